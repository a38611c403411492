/* SPDX-License-Identifier: BSD-2-Clause */
/* The completion queue, and the completions that callers poll. */
#include <errno.h>
#include <stdlib.h>

#include "base/log.h"
#include "device/fabric/fabric_impl.h"

#define BATCH	    16
/* A provider may handle packets of its own in a read that returns nothing. */
#define EMPTY_READS 64
#define MAX_READS   10000

/* --- the ring of completions ---------------------------------------------- */

static void grow(struct pn_fabric_device *dev)
{
	unsigned max = dev->done.max ? 2 * dev->done.max : 256;
	struct pn_completion *ring = calloc(max, sizeof(*ring));

	/* The length is bounded by the credits and the operations of peers. */
	pn_assert(ring);
	for (unsigned i = 0; i < dev->done.n; i++)
		ring[i] = dev->done.ring[(dev->done.head + i) &
					 (dev->done.max - 1)];
	free(dev->done.ring);
	dev->done.ring = ring;
	dev->done.head = 0;
	dev->done.max = max;
}

void pn_fabric_complete(struct pn_fabric_device *dev, struct pn_completion done)
{
	if (pn_unlikely(dev->done.n == dev->done.max))
		grow(dev);
	dev->done.ring[(dev->done.head + dev->done.n++) & (dev->done.max - 1)] =
		done;
}

void pn_fabric_complete_peer(struct pn_fabric_device *dev,
			     struct pn_fabric_peer *peer,
			     enum pn_completion_kind kind, int status)
{
	pn_fabric_complete(dev, (struct pn_completion){ .kind = kind,
							.status = status,
							.peer = &peer->peer });
}

/* --- packets -------------------------------------------------------------- */

/* The peer that sent a packet; NULL: none that is connected. */
static struct pn_fabric_peer *sender_of(const struct pn_fabric_device *dev,
					const struct pn_fabric_header *header)
{
	struct pn_fabric_peer *peer =
		header->to < dev->npeers ? dev->by_number[header->to] : NULL;

	return peer && peer->tag == header->tag && peer->up_reported &&
			       !peer->down
		       ? peer
		       : NULL;
}

/* True: the packet was taken. */
static bool on_packet(struct pn_fabric_device *dev, struct pn_fabric_peer *peer,
		      struct pn_fabric_packet *packet)
{
	switch (packet->wire.header.kind) {
	case PN_FABRIC_SEND:
	case PN_FABRIC_WRITE:
	case PN_FABRIC_PULL:
	case PN_FABRIC_READ:
	case PN_FABRIC_ATOMIC:
		pn_fabric_on_request(dev, peer, packet);
		return true;
	case PN_FABRIC_DATA:
	case PN_FABRIC_GRANT:
	case PN_FABRIC_FAILED:
		pn_fabric_on_answer(dev, peer, packet);
		break;
	case PN_FABRIC_RELEASE:
		pn_fabric_on_release(peer, packet->wire.header.number);
		break;
	case PN_FABRIC_PING:
		pn_fabric_ack_later(dev, peer);
		dev->ack_now = true;
		break;
	case PN_FABRIC_ACK:
		break;
	default:
		pn_fabric_peer_down(dev, peer, -EPROTO);
	}
	return false;
}

static void update_counters(struct pn_fabric_device *dev,
			    struct pn_fabric_peer *peer, uint32_t executed,
			    uint32_t granted)
{
	if (peer->tx.granted != granted && peer->tx.post_refused) {
		peer->tx.post_refused = false;
		dev->post_room = true;
	}
	peer->tx.granted = granted;
	peer->tx.executed = executed;
	pn_fabric_retire(dev, peer);
}

static void receive(struct pn_fabric_device *dev,
		    struct pn_fabric_packet *packet)
{
	const struct pn_fabric_header header = packet->wire.header;
	struct pn_fabric_peer *peer;
	bool taken;

	if (packet->len < sizeof(header) || header.kind <= PN_FABRIC_BYE) {
		pn_fabric_on_hello(dev, packet);
		pn_fabric_receive_post(dev, packet);
		return;
	}
	peer = sender_of(dev, &header);
	if (pn_unlikely(!peer)) {
		pn_fabric_receive_post(dev, packet);
		return;
	}
	peer->heard = true;
	if (pn_unlikely(header.sequence != peer->rx.sequence++)) {
		pn_info("fabric: packets of a peer are lost: it is down");
		pn_fabric_peer_down(dev, peer, -ECONNRESET);
		pn_fabric_receive_post(dev, packet);
		return;
	}
	taken = on_packet(dev, peer, packet);
	update_counters(dev, peer, header.executed, header.granted);
	if (!taken)
		pn_fabric_receive_post(dev, packet);
}

/* --- the completion queue ------------------------------------------------- */

static void dispatch(struct pn_fabric_device *dev,
		     struct pn_fabric_context *context, size_t len, int status)
{
	struct pn_fabric_packet *packet =
		pn_container_of(context, struct pn_fabric_packet, context);

	switch (context->kind) {
	case PN_FABRIC_TX:
		pn_fabric_sent(dev, packet, status);
		break;
	case PN_FABRIC_RX:
		packet->len = len;
		if (status)
			pn_fabric_receive_post(dev, packet);
		else
			receive(dev, packet);
		break;
	case PN_FABRIC_FETCH:
		pn_fabric_fetched(dev,
				  pn_container_of(context,
						  struct pn_fabric_piece,
						  context),
				  status);
	}
}

static int read_error(struct pn_fabric_device *dev)
{
	struct fi_cq_err_entry entry = { 0 };
	ssize_t n = fi_cq_readerr(dev->cq, &entry, 0);

	if (n <= 0)
		return 0;
	pn_debug("fabric: an operation of the provider ended with: %s",
		 dev->library->strerror(entry.err));
	if (entry.op_context)
		dispatch(dev, entry.op_context, entry.len,
			 pn_fabric_error(-entry.err));
	else if (!(entry.flags & (FI_SEND | FI_RECV)))
		pn_fabric_fetch_lost(dev, pn_fabric_error(-entry.err));
	return 1;
}

/* Returns how many entries there were. */
static int read_cq(struct pn_fabric_device *dev)
{
	struct fi_cq_msg_entry entries[BATCH];
	ssize_t n = fi_cq_read(dev->cq, entries, BATCH);

	if (n == -FI_EAVAIL)
		return read_error(dev);
	if (n <= 0)
		return 0;
	dev->cq_nread += (uint64_t)n;
	for (ssize_t i = 0; i < n; i++)
		if (pn_likely(entries[i].op_context))
			dispatch(dev, entries[i].op_context, entries[i].len, 0);
	return (int)n;
}

void pn_fabric_drain(struct pn_fabric_device *dev)
{
	unsigned empty = 0;

	for (unsigned i = 0; i < MAX_READS && empty < EMPTY_READS; i++)
		empty = read_cq(dev) ? 0 : empty + 1;
}

static void retry(struct pn_fabric_device *dev)
{
	if (pn_unlikely(!pn_list_empty(&dev->backlogged)))
		pn_fabric_send_backlog(dev);
	if (pn_unlikely(!pn_list_empty(&dev->fetches)))
		pn_fabric_fetches_post(dev);
	if (pn_unlikely(!pn_list_empty(&dev->unposted)))
		pn_fabric_receives_post(dev);
}

void pn_fabric_progress(struct pn_fabric_device *dev, bool flush)
{
	int n;

	if (!pn_list_empty(&dev->acks_due))
		pn_fabric_send_acks(dev);
	retry(dev);
	/* A teardown waits until the queue was empty. */
	do
		n = read_cq(dev);
	while (pn_unlikely(n && !pn_list_empty(&dev->teardowns)));
	if (pn_unlikely(!n && !pn_list_empty(&dev->teardowns)))
		pn_fabric_finish_teardowns(dev);
	if (flush || dev->ack_now)
		pn_fabric_send_acks(dev);
}

/* --- poll ----------------------------------------------------------------- */

int pn_fabric_poll(struct pn_device *device, struct pn_completion *out,
		   unsigned max)
{
	struct pn_fabric_device *dev = pn_fabric_of(device);
	unsigned n = 0;

	pn_fabric_lock(dev);
	dev->activity++;
	if (!dev->done.n)
		pn_fabric_progress(dev, false);
	while (n < max && dev->done.n) {
		out[n] = dev->done.ring[dev->done.head];
		dev->done.head = (dev->done.head + 1) & (dev->done.max - 1);
		dev->done.n--;
		if (out[n].kind == PN_COMPLETION_IMM)
			pn_fabric_return_credit(dev, out[n].lease);
		n++;
	}
	if (pn_unlikely(dev->done.n))
		pn_fabric_tell_sleepers(dev);
	pn_fabric_unlock(dev);
	return (int)n;
}

void pn_fabric_return_buffer(struct pn_device *device,
			     const struct pn_completion *completion)
{
	struct pn_fabric_device *dev = pn_fabric_of(device);

	if (completion->kind != PN_COMPLETION_RECV)
		return;
	pn_fabric_lock(dev);
	dev->activity++;
	pn_fabric_return_credit(dev, completion->lease);
	/* The caller has handled the message: if there was an answer, it is
	 * posted. */
	pn_fabric_send_acks(dev);
	pn_fabric_unlock(dev);
}
