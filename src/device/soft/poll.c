/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "device/soft/soft_impl.h"

#define FIRST_COMPLETED 64

/* --- completed operations ------------------------------------------------ */

int pn_soft_completed_reserve(struct pn_soft_device *dev)
{
	unsigned max =
		dev->ncompleted_max ? 2 * dev->ncompleted_max : FIRST_COMPLETED;
	struct pn_soft_completed *bigger;

	if (pn_likely(dev->ncompleted < dev->ncompleted_max))
		return 0;
	bigger = malloc(max * sizeof(*bigger));
	if (!bigger)
		return dev->ncompleted ? -EAGAIN : -ENOMEM;
	for (unsigned i = 0; i < dev->ncompleted; i++)
		bigger[i] = dev->completed[(dev->completed_head + i) %
					   dev->ncompleted_max];
	free(dev->completed);
	dev->completed = bigger;
	dev->completed_head = 0;
	dev->ncompleted_max = max;
	return 0;
}

void pn_soft_completed_add(struct pn_soft_device *dev,
			   struct pn_soft_completed completed)
{
	/* ncompleted_max is a power of two. */
	dev->completed[(dev->completed_head + dev->ncompleted++) &
		       (dev->ncompleted_max - 1)] = completed;
}

static void fill_op(struct pn_completion *out, struct pn_soft_peer *peer,
		    void *user, int status)
{
	peer->inflight--;
	*out = (struct pn_completion){ .kind = PN_COMPLETION_OP,
				       .status = status,
				       .peer = &peer->peer,
				       .user = user };
}

static unsigned poll_completed(struct pn_soft_device *dev,
			       struct pn_completion *out, unsigned max)
{
	unsigned n = 0;

	while (n < max && dev->ncompleted) {
		struct pn_soft_completed *f =
			&dev->completed[dev->completed_head];

		dev->completed_head =
			(dev->completed_head + 1) & (dev->ncompleted_max - 1);
		dev->ncompleted--;
		fill_op(&out[n++], f->peer, f->user, f->status);
	}
	return n;
}

static unsigned poll_engine(struct pn_soft_device *dev,
			    struct pn_completion *out, unsigned max)
{
	unsigned n = 0;

	while (n < max) {
		struct pn_soft_op *op = pn_soft_engine_take(&dev->engine);

		if (!op)
			break;
		op->peer->queued--;
		op->peer->queued_copies -= op->copied;
		if (op->status || !(op->op.flags & PN_OP_SILENT))
			fill_op(&out[n++], op->peer, op->op.user, op->status);
		else
			op->peer->inflight--;
		pn_soft_engine_free(&dev->engine, op);
	}
	return n;
}

/* --- peers that come up or go down --------------------------------------- */

static void queue_event(struct pn_soft_device *dev, struct pn_list *list,
			struct pn_list *entry)
{
	pn_lock(&dev->events_lock);
	pn_list_append(list, entry);
	atomic_fetch_add(&dev->nevents, 1);
	pn_unlock(&dev->events_lock);
}

void pn_soft_queue_up(struct pn_soft_device *dev, struct pn_soft_peer *peer)
{
	queue_event(dev, &dev->up_events, &peer->up);
	pn_soft_notify_own(dev);
}

/* The peer may have cleared `sleeping`, also if it is not up on this side. Its
 * wake-up may not have been read yet, or the peer may have died before it sent
 * it. */
void pn_soft_queue_down(struct pn_soft_device *dev, struct pn_soft_peer *peer)
{
	queue_event(dev, &dev->down_events, &peer->down);
	pn_soft_wake_always(dev);
}

static struct pn_list *next_event(struct pn_soft_device *dev,
				  struct pn_list *list)
{
	struct pn_list *first;

	pn_lock(&dev->events_lock);
	first = pn_list_pop(list);
	if (first)
		atomic_fetch_sub(&dev->nevents, 1);
	pn_unlock(&dev->events_lock);
	return first;
}

/* The new array has room for all peers. */
static void use_next_active(struct pn_soft_device *dev)
{
	struct pn_soft_peer **bigger;

	pn_lock(&dev->peers_lock);
	bigger = dev->next_active;
	dev->next_active = NULL;
	dev->nactive_max = dev->peers_capacity;
	pn_unlock(&dev->peers_lock);
	if (dev->nactive)
		memcpy(bigger, dev->active, dev->nactive * sizeof(*bigger));
	free(dev->active);
	dev->active = bigger;
}

static void activate(struct pn_soft_device *dev, struct pn_soft_peer *peer)
{
	if (dev->nactive == dev->nactive_max)
		use_next_active(dev);
	dev->active[dev->nactive++] = peer;
}

static void fill_peer(struct pn_completion *out, struct pn_soft_peer *peer,
		      enum pn_completion_kind kind, int status)
{
	*out = (struct pn_completion){ .kind = kind,
				       .status = status,
				       .peer = &peer->peer };
}

/* Up events before down events: a peer may be in both lists. */
static unsigned poll_peer_events(struct pn_soft_device *dev,
				 struct pn_completion *out, unsigned max)
{
	struct pn_soft_peer *peer;
	struct pn_list *pos;
	unsigned n = 0;

	while (n < max && (pos = next_event(dev, &dev->up_events))) {
		peer = pn_container_of(pos, struct pn_soft_peer, up);
		activate(dev, peer);
		fill_peer(&out[n++], peer, PN_COMPLETION_PEER_UP, 0);
	}
	while (n < max && (pos = next_event(dev, &dev->down_events))) {
		peer = pn_container_of(pos, struct pn_soft_peer, down);
		if (peer->mapped) {
			peer->closing = true;
			dev->nclosing++;
			continue;
		}
		peer->down_polled = true;
		fill_peer(&out[n++], peer, PN_COMPLETION_PEER_DOWN,
			  peer->status);
	}
	return n;
}

/* --- messages ------------------------------------------------------------ */

static void notify_if_stalled(struct pn_soft_peer *peer, bool stalled)
{
	if (pn_unlikely(stalled))
		pn_soft_notify_peer(peer);
}

static void return_cell(struct pn_soft_device *dev, struct pn_soft_peer *peer,
			void *lease)
{
	dev->cells_to_return = true;
	notify_if_stalled(peer, pn_soft_rx_consumed(&peer->rx, lease));
}

/* All records before the invalid one were taken. */
static void fail_peer(struct pn_soft_device *dev, struct pn_soft_peer *peer)
{
	if (atomic_exchange(&peer->protocol_error, true))
		return;
	pn_error("soft: process %d wrote an invalid record into its message "
		 "ring; the connection is closed",
		 (int)peer->remote.pid);
	pn_soft_service_kick(&dev->service);
}

/* A record that a write with immediate left: nothing is lent. */
static void fill_imm(struct pn_soft_device *dev, struct pn_completion *out,
		     struct pn_soft_peer *peer,
		     const struct pn_soft_message *message)
{
	uint64_t len;

	memcpy(&len, message->data, sizeof(len));
	*out = (struct pn_completion){ .kind = PN_COMPLETION_IMM,
				       .peer = &peer->peer,
				       .len = len,
				       .imm = message->imm };
	return_cell(dev, peer, message->lease);
}

/* False: there was only a mark, or an invalid record. */
static bool take_message(struct pn_soft_device *dev, struct pn_completion *out,
			 struct pn_soft_peer *peer)
{
	struct pn_soft_message message;

	if (pn_unlikely(!pn_soft_rx_take(&peer->rx, &message))) {
		dev->cells_to_return = true; /* marks are returned, too */
		if (peer->rx.broken)
			fail_peer(dev, peer);
		return false;
	}
	if (pn_unlikely(message.kind != PN_SOFT_SEND)) {
		fill_imm(dev, out, peer, &message);
		return true;
	}
	*out = (struct pn_completion){ .kind = PN_COMPLETION_RECV,
				       .peer = &peer->peer,
				       .data = message.data,
				       .len = message.len,
				       .imm = message.imm,
				       .lease = message.lease };
	peer->lent++;
	return true;
}

/* Offers the next message of a peer to the receive handler. True: the handler
 * took it, and its cells are consumed. */
static inline bool offer_message(struct pn_soft_device *dev,
				 struct pn_soft_peer *peer)
{
	struct pn_receive_handler *handler = dev->device.receive_handler;
	const void *data;
	size_t len;

	if (!handler)
		return false;
	data = pn_soft_rx_peek(&peer->rx, &len);
	if (pn_unlikely(!data ||
			!handler->receive(handler, &peer->peer, data, len)))
		return false;
	dev->cells_to_return = true;
	notify_if_stalled(peer, pn_soft_rx_consume_next(&peer->rx, len));
	return true;
}

/* Visits the peers in turn, so that none starves. NULL: no peer has sent. */
static inline struct pn_soft_peer *next_sender(struct pn_soft_device *dev)
{
	unsigned at = dev->next_rx;

	for (unsigned i = 0; i < dev->nactive; i++, at++) {
		if (at >= dev->nactive)
			at = 0;
		if (pn_unlikely(pn_soft_rx_ready(&dev->active[at]->rx))) {
			dev->next_rx = at + 1;
			return dev->active[at];
		}
	}
	return NULL;
}

/* Takes messages of the only peer that sends, without looking at the others
 * each time. */
static unsigned drain(struct pn_soft_device *dev, struct pn_soft_peer *sender,
		      struct pn_completion *out, unsigned max)
{
	unsigned n = 0;

	while (n < max && pn_soft_rx_ready(&sender->rx))
		n += take_message(dev, &out[n], sender);
	return n;
}

/* Takes one message of each sender, then the next one of each. A peer that
 * next_sender() returned is served, or it would lose its turn. */
static PN_NOINLINE unsigned poll_messages(struct pn_soft_device *dev,
					  struct pn_soft_peer *sender,
					  struct pn_completion *out,
					  unsigned max)
{
	unsigned n = 0;

	while (sender) {
		struct pn_soft_peer *before = sender;

		n += take_message(dev, &out[n], sender);
		sender = n < max ? next_sender(dev) : NULL;
		if (pn_likely(sender != before))
			continue;
		n += drain(dev, sender, out + n, max - n);
		sender = n < max ? next_sender(dev) : NULL;
	}
	return n;
}

void pn_soft_return_buffer(struct pn_device *device,
			   const struct pn_completion *completion)
{
	struct pn_soft_device *dev = pn_soft_of(device);
	struct pn_soft_peer *peer = pn_soft_peer_of(completion->peer);

	if (completion->kind != PN_COMPLETION_RECV)
		return;
	pn_soft_enter(dev);
	peer->lent--;
	return_cell(dev, peer, completion->lease);
	if (pn_unlikely(peer->down_polled && !peer->lent))
		pn_soft_peer_unmap(peer);
	pn_soft_leave(dev);
}

/* --- peers that are down ------------------------------------------------- */

static bool is_over(const struct pn_soft_peer *peer)
{
	return peer->closing && !peer->inflight && !peer->queued &&
	       !pn_soft_rx_ready(&peer->rx);
}

static unsigned poll_closed(struct pn_soft_device *dev,
			    struct pn_completion *out, unsigned max)
{
	unsigned n = 0;

	for (unsigned i = 0; i < dev->nactive && n < max;) {
		struct pn_soft_peer *peer = dev->active[i];

		if (!is_over(peer)) {
			i++;
			continue;
		}
		dev->active[i] = dev->active[--dev->nactive];
		dev->nclosing--;
		peer->down_polled = true;
		fill_peer(&out[n++], peer, PN_COMPLETION_PEER_DOWN,
			  peer->status);
		if (!peer->lent)
			pn_soft_peer_unmap(peer);
	}
	return n;
}

/* --- poll ---------------------------------------------------------------- */

static unsigned poll_all(struct pn_soft_device *dev, struct pn_completion *out,
			 unsigned max)
{
	unsigned n = poll_completed(dev, out, max);

	n += poll_engine(dev, out + n, max - n);
	if (atomic_load_explicit(&dev->nevents, memory_order_relaxed))
		n += poll_peer_events(dev, out + n, max - n);
	if (n < max)
		n += poll_messages(dev, next_sender(dev), out + n, max - n);
	if (dev->nclosing)
		n += poll_closed(dev, out + n, max - n);
	return n;
}

/* Returns cells when a poll finds nothing, as most polls do. */
static PN_NOINLINE void return_cells(struct pn_soft_device *dev)
{
	dev->cells_to_return = false;
	for (unsigned i = 0; i < dev->nactive; i++)
		notify_if_stalled(dev->active[i], pn_soft_rx_return_pending(
							  &dev->active[i]->rx));
}

static unsigned poll_once(struct pn_soft_device *dev, struct pn_completion *out,
			  unsigned max)
{
	unsigned n;

	pn_soft_enter(dev);
	n = poll_all(dev, out, max);
	if (!n && dev->cells_to_return)
		return_cells(dev);
	pn_soft_leave(dev);
	return n;
}

static PN_NOINLINE int poll_and_help(struct pn_soft_device *dev,
				     struct pn_completion *out, unsigned max)
{
	unsigned n = poll_once(dev, out, max);

	/* Outside the lock, so that others can post meanwhile. */
	if (!n && pn_soft_engine_help(&dev->engine))
		n = poll_once(dev, out, max);
	return (int)n;
}

/* Whether there can only be messages, and only one thread calls. */
static bool is_simple(const struct pn_soft_device *dev)
{
	return dev->device.single_threaded && !dev->ncompleted &&
	       !dev->nclosing &&
	       !atomic_load_explicit(&dev->engine.ndone,
				     memory_order_relaxed) &&
	       !atomic_load_explicit(&dev->engine.nqueued,
				     memory_order_relaxed) &&
	       !atomic_load_explicit(&dev->nevents, memory_order_relaxed);
}

/* Offers messages to the receive handler until it refuses one; that one and the
 * rest are lent. Looking for the next message takes a cache line from its
 * sender, and a caller that waits for this message only would wait for that,
 * too. So the next one is looked for only if no poll since the last message was
 * empty. */
static PN_NOINLINE int offer_messages(struct pn_soft_device *dev,
				      struct pn_soft_peer *sender,
				      struct pn_completion *out, unsigned max)
{
	const struct pn_receive_handler *handler = dev->device.receive_handler;
	bool burst = dev->cells_to_return;

	do {
		if (burst)
			pn_soft_rx_prefetch_burst(&sender->rx);
		if (!offer_message(dev, sender))
			return (int)poll_messages(dev, sender, out, max);
	} while (burst && !handler->is_full && (sender = next_sender(dev)));
	return 0;
}

/* Most polls find nothing, and most others find one message. */
int pn_soft_poll(struct pn_device *device, struct pn_completion *out,
		 unsigned max)
{
	struct pn_soft_device *dev = pn_soft_of(device);
	struct pn_soft_peer *sender;

	if (pn_unlikely(!is_simple(dev)))
		return poll_and_help(dev, out, max);
	sender = next_sender(dev);
	if (pn_unlikely(sender))
		return offer_messages(dev, sender, out, max);
	if (pn_unlikely(dev->cells_to_return))
		return_cells(dev);
	return 0;
}

/* Room in a channel is an event for a caller whose post was refused for want of
 * it. The engine looks for room itself. A thread that goes to sleep has
 * returned the cells that the peer may need. */
static bool peer_has_events(struct pn_soft_peer *peer)
{
	notify_if_stalled(peer, pn_soft_rx_return_pending(&peer->rx));
	return pn_soft_rx_ready(&peer->rx) || is_over(peer) ||
	       (!peer->queued && pn_soft_tx_unstalled(&peer->tx));
}

bool pn_soft_has_events(struct pn_soft_device *dev)
{
	if (dev->ncompleted || atomic_load(&dev->engine.ndone) ||
	    atomic_load(&dev->nevents))
		return true;
	for (unsigned i = 0; i < dev->nactive; i++)
		if (peer_has_events(dev->active[i]))
			return true;
	return false;
}
