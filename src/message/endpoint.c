/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/log.h"
#include "base/thread.h"
#include "message/message_impl.h"

#define POLL_BATCH 16

void pn_endpoint_lock(struct pinion_endpoint *ep) PN_NO_THREAD_SAFETY
{
	if (ep->locking)
		pn_lock(&ep->lock);
}

void pn_endpoint_unlock(struct pinion_endpoint *ep) PN_NO_THREAD_SAFETY
{
	if (ep->locking)
		pn_unlock(&ep->lock);
}

/* --- what the device says ------------------------------------------------- */

static int on_match(struct pinion_peer *peer, const struct pn_wire *wire,
		    const uint8_t *payload, size_t len)
{
	struct pinion_endpoint *ep = peer->ep;
	struct pinion_request *receive;
	struct pinion_claim *claim;

	if (!pn_protocol_at(wire->protocol))
		return -EPROTO;
	receive = pn_match_posted(ep, peer, wire);
	if (receive) {
		pn_transfer_receive(receive, peer, wire, payload, len);
		return 0;
	}
	claim = pn_claim_alloc(ep, len);
	if (!claim)
		return -ENOMEM;
	claim->peer = peer;
	claim->wire = *wire;
	claim->payload_len = len;
	pn_copy(ep->device, claim->payload, payload, len);
	pn_list_append(&ep->unexpected, &claim->link);
	ep->stats.unexpected++;
	return 0;
}

/* One peer's garbage ends that peer and nothing else. */
static void bad_packet(struct pinion_peer *peer, int why)
{
	peer->ep->stats.bad_packets++;
	if (why == -EPROTONOSUPPORT)
		pn_error("a peer speaks another version of the wire format "
			 "than %d: use one version of pinion everywhere",
			 PN_WIRE_VERSION);
	else
		pn_error("a peer sent what makes no sense (%s); its messages "
			 "are given up",
			 strerror(-why));
	pn_peer_fail(peer, why);
}

static int on_packet(struct pinion_peer *peer, const struct pn_wire *wire,
		     const uint8_t *payload, size_t len)
{
	if (wire->kind == PN_WIRE_MATCH)
		return on_match(peer, wire, payload, len);
	if (pn_onesided_concerns(peer, wire))
		return pn_onesided_packet(peer, wire, payload, len);
	if (pn_likely(wire->kind < PN_WIRE_HELLO))
		return pn_transfer_packet(peer, wire, payload, len);
	if (wire->kind == PN_WIRE_DOWN)
		pn_way_told_down(peer, wire->protocol);
	return 0;
}

static void on_imm(struct pinion_peer *peer, const struct pn_completion *c)
{
	struct pinion_request *request = pn_request_announced(peer, c->imm);

	if (request && request->kind)
		pn_onesided_written(request, c->imm, c->len);
	else
		pn_transfer_written(peer, c->imm);
}

/* Those that came too early follow when their turn has come. */
static int on_sequenced(struct pinion_peer *peer, uint32_t sequence,
			const struct pn_wire *wire, const uint8_t *payload,
			size_t len)
{
	int ret = pn_kept_arrived(peer, sequence, wire, payload, len);
	struct pinion_claim *claim;

	if (ret)
		return ret == -EALREADY ? 0 : ret;
	ret = on_packet(peer, wire, payload, len);
	while (!ret && !peer->down && (claim = pn_kept_next(peer))) {
		ret = on_packet(peer, &claim->wire, claim->payload,
				claim->payload_len);
		pn_claim_free(peer->ep, claim);
	}
	return ret;
}

/* Of a stranger whose first packet says nothing nothing is known but its
 * device. */
static struct pn_way *way_of_packet(struct pinion_endpoint *ep,
				    const struct pn_completion *c,
				    const struct pn_wire *wire, int parsed,
				    const uint8_t *payload, size_t len)
{
	static const struct pn_wire nothing;
	struct pn_way *way = pn_way_of(ep, c->peer);

	return pn_likely(way)
		       ? way
		       : pn_way_introduce(ep, c->peer, parsed ? &nothing : wire,
					  payload, len);
}

static void on_recv(struct pinion_endpoint *ep, const struct pn_completion *c)
{
	struct pn_device *device = c->peer->device;
	const uint8_t *payload = NULL;
	struct pn_wire wire;
	size_t len = 0;
	int ret = pn_wire_parse(c->data, c->len, &wire, &payload, &len);
	struct pn_way *way = way_of_packet(ep, c, &wire, ret, payload, len);

	if (way && !way->owner->down) {
		if (!ret && pn_unlikely(wire.kind == PN_WIRE_HELLO))
			ret = pn_way_hello(way, &wire, payload, len);
		else if (!ret && pn_unlikely(c->imm))
			ret = on_sequenced(way->owner, c->imm, &wire, payload,
					   len);
		else if (!ret)
			ret = on_packet(way->owner, &wire, payload, len);
		if (ret)
			bad_packet(way->owner, ret);
	}
	pn_device_release(device, c);
}

static void on_op(struct pinion_endpoint *ep, const struct pn_completion *c)
{
	struct pn_track *track = c->user;

	if (pn_unlikely(track->ep != ep)) {
		pn_endpoint_left(track->ep);
		return;
	}
	ep->noperations--;
	if (track->kind == PN_TRACK_BOUNCE) {
		struct pn_bounce *bounce = c->user;

		if (pn_unlikely(bounce->peer))
			pn_kept_done(bounce, c->status);
		else
			pn_bounce_put(ep, bounce);
	} else if (track->kind == PN_TRACK_DIRECT) {
		pn_direct_done(ep, c->user, c->status);
	} else if (track->kind == PN_TRACK_PIECE) {
		pn_onesided_done(c->user, c->status);
	} else {
		pn_transfer_done(c->user, c->status);
	}
}

static void dispatch(struct pinion_endpoint *ep, const struct pn_completion *c)
{
	struct pn_way *way;

	switch (c->kind) {
	case PN_COMPLETION_RECV:
		/* An empty one is a BYE: PEER_DOWN will say the same. */
		if (pn_likely(c->len))
			on_recv(ep, c);
		else
			pn_device_release(c->peer->device, c);
		return;
	case PN_COMPLETION_OP:
		/* A silent packet that failed has no user; its peer will. */
		if (c->user)
			on_op(ep, c);
		return;
	case PN_COMPLETION_PEER_UP:
		way = pn_way_of(ep, c->peer);
		if (way)
			pn_way_up(way);
		return;
	case PN_COMPLETION_PEER_DOWN:
		way = pn_way_of(ep, c->peer);
		if (way)
			pn_way_down(way, c->status ? c->status : -ECONNRESET);
		return;
	case PN_COMPLETION_IMM:
		way = pn_way_of(ep, c->peer);
		if (way && !way->owner->down)
			on_imm(way->owner, c);
		return;
	}
}

static bool pump_all(struct pinion_endpoint *ep)
{
	struct pn_list *pos, *next;
	bool moved = false;

	pn_list_for_each_safe (pos, next, &ep->busy) {
		struct pinion_peer *peer =
			pn_container_of(pos, struct pinion_peer, busy);

		moved |= pn_peer_pump(peer);
	}
	return moved;
}

static int poll_rail(struct pinion_endpoint *ep, struct pn_device *device)
{
	struct pn_completion completions[POLL_BATCH];
	int n = pn_device_poll(device, completions, POLL_BATCH);

	for (int i = 0; i < n; i++)
		dispatch(ep, &completions[i]);
	return n;
}

int pn_endpoint_progress(struct pinion_endpoint *ep)
{
	int n;

	pn_cache_heed(ep->cache);
	n = poll_rail(ep, ep->device);
	for (unsigned r = 1; r < ep->nrails; r++)
		n += poll_rail(ep, ep->rails[r].device);
	if (!pn_list_empty(&ep->busy))
		n += pump_all(ep);
	return n;
}

/* --- life ----------------------------------------------------------------- */

static void init_lists(struct pinion_endpoint *ep)
{
	struct pn_list *lists[] = { &ep->smalls,       &ep->peers,
				    &ep->busy,	       &ep->posted,
				    &ep->unexpected,   &ep->done,
				    &ep->small_claims, &ep->large_claims,
				    &ep->claimed,      &ep->packets,
				    &ep->fragments,    &ep->requests };

	for (size_t i = 0; i < PN_ARRAY_LEN(lists); i++)
		pn_list_init(lists[i]);
}

/* What the device allows, and what its costs suggest where nothing is set. */
static void set_limits(struct pinion_endpoint *ep)
{
	struct pn_protocol_limits *limits = &ep->limits;
	struct pn_costs costs = ep->device->costs;
	double bandwidth = 0;

	limits->packet_bytes = ep->small_bytes = SIZE_MAX;
	for (unsigned r = 0; r < ep->nrails; r++) {
		const struct pn_device_limits *of = &ep->devices[r]->limits;
		size_t most = of->max_send_bytes - sizeof(struct pn_wire);

		if (limits->packet_bytes > most)
			limits->packet_bytes = most;
		if (ep->small_bytes > of->inline_bytes)
			ep->small_bytes = of->inline_bytes;
		bandwidth += 1 / ep->rails[r].byte_ns;
	}
	if (ep->nrails > 1)
		costs.put_byte_ns = 1 / bandwidth;
	if (ep->small_bytes > sizeof(struct pn_wire) + limits->packet_bytes)
		ep->small_bytes = sizeof(struct pn_wire) + limits->packet_bytes;
	if (limits->eager_bytes > limits->packet_bytes)
		limits->eager_bytes = limits->packet_bytes;
	if (limits->match_bytes > limits->packet_bytes)
		limits->match_bytes = limits->packet_bytes;
	if (!limits->fragment_bytes)
		limits->fragment_bytes =
			pn_protocol_best_fragment(limits, &costs, false);
	if (!limits->segment_bytes)
		limits->segment_bytes =
			pn_protocol_best_fragment(limits, &costs, true);
}

static void init_reuse(struct pinion_endpoint *ep, struct pn_reuse_attr attr)
{
	const struct pn_device *device = ep->device;

	attr.small_bytes = ep->limits.eager_bytes;
	pn_reuse_init(&ep->reuse, ep->device, ep->cache, &attr);
	ep->eager_way =
		device->caps & PN_CAP_RING ? PN_REUSE_RING : PN_REUSE_SEND;
	if (!(device->caps & PN_CAP_GATHER) || ep->nrails > 1)
		pn_reuse_exclude(&ep->reuse, ep->eager_way);
}

int pn_endpoint_open(const struct pn_endpoint_attr *attr,
		     struct pinion_endpoint **out)
{
	struct pinion_endpoint *ep =
		pn_board_alloc(&pn_shown_endpoint, attr->shown_by,
			       attr->shown_by);
	int ret;

	if (!ep)
		return -ENOMEM;
	ep->nrails = attr->nrails;
	ep->epoll = ep->told = -1;
	for (unsigned r = 0; r < ep->nrails; r++) {
		ep->rails[r].device = attr->rails[r].device;
		ep->rails[r].cache = attr->rails[r].cache;
		ep->devices[r] = attr->rails[r].device;
	}
	ep->device = ep->rails[0].device;
	ep->cache = ep->rails[0].cache;
	ep->budget = attr->budget;
	ep->helper = attr->helper;
	ep->limits = attr->limits;
	pn_rails_init(ep);
	set_limits(ep);
	init_reuse(ep, attr->reuse);
	ep->protocol = attr->protocol;
	ep->locking = !attr->single_threaded &&
		      !(ep->device->caps & PN_CAP_VIRTUAL_TIME);
	init_lists(ep);
	ret = pn_onesided_init(ep);
	if (ret)
		goto free_ep;
	ep->chooser = pn_auto_open(&ep->limits, &ep->device->costs);
	ret = ep->chooser ? pn_bounces_open(ep, &attr->pages) : -ENOMEM;
	if (ret)
		goto close_auto;
	pn_mutex_init(&ep->lock);
	pn_rails_claim(ep, true, attr->single_threaded);
	*out = ep;
	return 0;

close_auto:
	pn_auto_close(ep->chooser);
	pn_onesided_fini(ep);
free_ep:
	pn_board_free(ep);
	return ret;
}

/* --- sending and receiving ------------------------------------------------ */

bool pn_endpoint_roomy(const struct pinion_endpoint *ep, size_t len)
{
	const struct pn_budget *budget = ep->budget;

	return atomic_load_explicit(&budget->bytes, memory_order_relaxed) +
		       len <
	       atomic_load_explicit(&budget->max_bytes, memory_order_relaxed) /
		       2;
}

bool pn_endpoint_covers(const struct pinion_endpoint *ep, const uint8_t *buf,
			size_t len, unsigned access)
{
	const struct pn_protocol_limits *limits = &ep->limits;
	size_t from = len > limits->rdma_offset ? limits->rdma_offset
						: limits->match_bytes;

	return len > from &&
	       pn_cache_covers(ep->cache, buf + from, len - from, access);
}

/* An eager message is copied, or goes straight from its buffer. */
static void choose_eager(struct pinion_endpoint *ep,
			 const struct pinion_message *m, struct pn_choice *out)
{
	enum pn_reuse_verdict verdict =
		pn_reuse_wants(&ep->reuse, ep->eager_way, m->buf, m->len);

	if (pn_likely(!verdict))
		return;
	out->direct = true;
	out->reason =
		verdict == PN_REUSE_HELD ? PN_BECAUSE_CACHED : PN_BECAUSE_REUSE;
}

/* A message goes eagerly when it may, else as configured, else by copying. */
static void choose(struct pinion_endpoint *ep, const struct pinion_message *m,
		   struct pn_choice *out)
{
	const struct pn_protocol *row;

	*out = (struct pn_choice){ .protocol = PN_PROTOCOL_EAGER,
				   .reason = PN_BECAUSE_SHORT };
	if (pn_protocol_eager.applies(&ep->limits, m->len)) {
		choose_eager(ep, m, out);
		return;
	}
	if (ep->protocol == PN_PROTOCOL_AUTO) {
		const struct pn_use source = {
			.addr = (uintptr_t)m->buf,
			.len = m->len,
			.end = PN_END_SOURCE,
			.cached = pn_endpoint_covers(ep, m->buf, m->len,
						     PN_SOURCE_ACCESS),
		};

		pn_auto_choose(ep->chooser, &source,
			       pn_endpoint_roomy(ep, m->len), out);
		return;
	}
	row = pn_protocol_at((unsigned)ep->protocol);
	out->protocol = row->applies(&ep->limits, m->len) ? ep->protocol
							  : PN_PROTOCOL_COPY;
	out->reason = out->protocol == ep->protocol ? PN_BECAUSE_ASKED
						    : PN_BECAUSE_SHORT;
	out->keep = pn_auto_leaves(out->protocol);
}

/* Sends as chosen; how long it took until the MATCH was out is part of the bet.
 */
static int send_chosen(struct pinion_request *request,
		       const struct pn_choice *choice)
{
	struct pinion_endpoint *ep = request->ep;
	uint32_t id = request->id;
	uint64_t start;
	int ret;

	ep->stats.sent[choice->protocol]++;
	if (!choice->predicted_ns)
		return pn_transfer_send(request, choice);
	start = pn_device_now(ep->device);
	ret = pn_transfer_send(request, choice);
	pn_auto_sent(ep->chooser, choice, id,
		     (double)(pn_device_now(ep->device) - start));
	return ret;
}

/* Whether a message could be out before the call returns, with nobody to be
 * told of it. */
static bool may_end_at_once(const struct pinion_endpoint *ep,
			    const struct pinion_message *m)
{
	const struct pinion_peer *peer = m->peer;

	return m->at_once && !peer->down && peer->way && peer->way->up &&
	       !peer->sequenced && pn_list_empty(&peer->packets) &&
	       !ep->helper && !pn_event_sink() &&
	       pn_protocol_eager.applies(&ep->limits, m->len) &&
	       pn_reuse_ignores(&ep->reuse, ep->eager_way, m->len) &&
	       pn_packet_is_inline(peer->way, m->len);
}

/* An eager message whose bytes the device takes while it posts needs no
 * request: what the receiver would say to it, nobody here would hear. */
static int send_at_once(struct pinion_endpoint *ep,
			const struct pinion_message *m)
{
	const struct pn_wire wire = {
		.version = PN_WIRE_VERSION,
		.kind = PN_WIRE_MATCH,
		.protocol = PN_PROTOCOL_EAGER,
		.to = m->data,
		.status = pn_wire_match_status(m->space, m->has_data),
		.tag = m->tag,
		.len = m->len,
	};
	int ret = pn_packet_post(m->peer->way, &wire, m->buf, m->len);

	ep->stats.sent[PN_PROTOCOL_EAGER] += !ret;
	return ret ? ret : PINION_SENT;
}

static int send_request(struct pinion_endpoint *ep,
			const struct pinion_message *message,
			struct pinion_request **out)
{
	struct pinion_request *request;
	struct pn_choice choice;
	int ret;

	ret = pn_peer_connect(message->peer);
	request = ret ? NULL : pn_request_alloc(ep, message);
	if (request) {
		choose(ep, message, &choice);
		request->is_send = true;
		request->has_handle = out;
		pn_helper_post(ep->helper, &request->call, PN_CALL_SEND,
			       message->buf, message->len);
		pn_tell_request(request);
		pn_tell_protocol(request, choice.protocol, choice.reason);
		ret = send_chosen(request, &choice);
		if (out)
			*out = request;
	} else if (!ret) {
		ret = -ENOMEM;
	}
	return ret;
}

int pn_endpoint_send(struct pinion_endpoint *ep,
		     const struct pinion_message *message,
		     struct pinion_request **out)
{
	int ret = -EAGAIN;

	pn_endpoint_lock(ep);
	pn_reuse_sends(&ep->reuse);
	if (may_end_at_once(ep, message))
		ret = send_at_once(ep, message);
	if (ret < 0 && message->at_once != PINION_AT_ONCE_ONLY)
		ret = send_request(ep, message, out);
	pn_endpoint_unlock(ep);
	return ret;
}

static void receive_claim(struct pinion_endpoint *ep,
			  struct pinion_request *request,
			  struct pinion_claim *claim)
{
	pn_list_remove(&claim->link);
	request->late = true;
	pn_transfer_receive(request, claim->peer, &claim->wire, claim->payload,
			    claim->payload_len);
	pn_claim_free(ep, claim);
}

static int receive(struct pinion_endpoint *ep,
		   const struct pinion_message *message,
		   struct pinion_claim *claim, struct pinion_request **out)
{
	struct pinion_request *request;

	if (!claim && message->peer && message->peer->down &&
	    !pn_match_unexpected(ep, message))
		return message->peer->down;
	request = pn_request_alloc(ep, message);
	if (!request)
		return -ENOMEM;
	request->has_handle = out;
	pn_helper_post(ep->helper, &request->call, PN_CALL_RECEIVE,
		       message->buf, message->len);
	pn_tell_request(request);
	if (!claim)
		claim = pn_match_unexpected(ep, message);
	if (claim)
		receive_claim(ep, request, claim);
	else
		pn_list_append(&ep->posted, &request->link);
	if (out)
		*out = request;
	return 0;
}

int pn_endpoint_recv_claimed(struct pinion_endpoint *ep,
			     struct pinion_claim *claim,
			     const struct pinion_message *message,
			     struct pinion_request **out)
{
	int ret;

	pn_endpoint_lock(ep);
	ret = receive(ep, message, claim, out);
	pn_endpoint_unlock(ep);
	return ret;
}

int pn_endpoint_probe(struct pinion_endpoint *ep,
		      const struct pinion_message *message,
		      struct pinion_completion *out,
		      struct pinion_claim **claim)
{
	struct pinion_claim *found;

	pn_endpoint_lock(ep);
	found = pn_match_unexpected(ep, message);
	if (!found) {
		pn_endpoint_progress(ep);
		found = pn_match_unexpected(ep, message);
	}
	if (found) {
		if (out)
			*out = (struct pinion_completion){
				.peer = found->peer,
				.tag = found->wire.tag,
				.len = found->wire.len,
				.message_len = found->wire.len,
				.data = found->wire.to,
				.has_data =
					found->wire.status & PN_WIRE_HAS_DATA,
			};
		if (claim) {
			pn_list_remove(&found->link);
			pn_list_append(&ep->claimed, &found->link);
			*claim = found;
		}
	}
	pn_endpoint_unlock(ep);
	return found ? 0 : -EAGAIN;
}

static void cancel(struct pinion_request *request)
{
	struct pn_wire wire = { .version = PN_WIRE_VERSION,
				.kind = PN_WIRE_CANCEL,
				.from = request->id };

	if (request->ended || request->canceling)
		return;
	if (request->kind) {
		pn_onesided_cancel(request);
		return;
	}
	if (!request->is_send) {
		/* Only one that has not been matched is in the list. */
		if (!pn_list_empty(&request->link))
			pn_request_end(request, -ECANCELED);
		return;
	}
	/* An eager message ends when it is out: asked to forget it after that,
	 * the receiver would lose what was reported as sent. */
	if (pn_packet_withdraw(request)) {
		pn_request_end(request, -ECANCELED);
		return;
	}
	/* The same holds for one that is out, straight from its buffer. */
	if (request->moved == request->total)
		return;
	request->canceling = true;
	if (!request->other)
		pn_packet_send(request->peer, &wire, NULL, 0, NULL);
}

int pn_endpoint_cancel(struct pinion_endpoint *ep,
		       struct pinion_request *request)
{
	pn_endpoint_lock(ep);
	cancel(request);
	pn_endpoint_unlock(ep);
	return 0;
}

int pn_endpoint_cancel_user(struct pinion_endpoint *ep, const void *user)
{
	struct pinion_request *found = NULL;
	struct pn_list *pos;

	pn_endpoint_lock(ep);
	pn_list_for_each (pos, &ep->posted) {
		struct pinion_request *request =
			pn_container_of(pos, struct pinion_request, link);

		if (request->user != user || request->has_handle)
			continue;
		found = request;
		break;
	}
	if (found)
		pn_request_end(found, -ECANCELED);
	pn_endpoint_unlock(ep);
	return found ? 0 : -ENOENT;
}

static bool is_virtual(const struct pinion_endpoint *ep)
{
	return ep->device->caps & PN_CAP_VIRTUAL_TIME;
}

/* --- ends of requests ----------------------------------------------------- */

/* Eager, and not out yet or not read yet. */
static bool is_direct(const struct pinion_request *request)
{
	return request->is_send && request->moved == request->total;
}

void pn_endpoint_tell(struct pinion_endpoint *ep)
{
	uint64_t one = 1;

	if (pn_likely(!ep->armed))
		return;
	ep->armed = NULL;
	/* Fails only when it is readable as it can be. */
	if (ep->told >= 0 && write(ep->told, &one, sizeof(one)) < 0)
		return;
}

/* Whoever armed the descriptor looks by itself: it need not be told. */
static void disarm(struct pinion_endpoint *ep)
{
	if (pn_unlikely(ep->armed) && ep->armed == pn_thread_self())
		ep->armed = NULL;
}

int pn_endpoint_test(struct pinion_endpoint *ep, struct pinion_request *request,
		     struct pinion_completion *out)
{
	bool ended;

	pn_endpoint_lock(ep);
	disarm(ep);
	if (!request->ended)
		pn_endpoint_progress(ep);
	ended = request->ended;
	if (ended)
		pn_request_take(request, out);
	else
		pn_reuse_idle(&ep->reuse, is_direct(request));
	pn_endpoint_unlock(ep);
	return ended ? 0 : -EAGAIN;
}

/* What can be done while there is nothing to do: releasing registrations that
 * nobody needs any more. False: not even that. */
static bool tidy(struct pinion_endpoint *ep)
{
	bool more = false;

	pn_endpoint_unlock(ep);
	for (unsigned r = 0; r < ep->nrails; r++)
		more |= pn_cache_step(ep->rails[r].cache) <=
			pn_device_now(ep->device);
	pn_endpoint_lock(ep);
	return more;
}

/* Sleeps until something happened. One thread sleeps in the device; others
 * wait for that one. Called with the lock, which is given up meanwhile. */
static void sleep_for_news(struct pinion_endpoint *ep)
{
	uint32_t seen = atomic_load(&ep->progressed);

	if (ep->sleeping) {
		pn_endpoint_unlock(ep);
		pn_device_block(ep->device, &ep->progressed, seen);
		pn_endpoint_lock(ep);
		return;
	}
	ep->sleeping = true;
	pn_endpoint_unlock(ep);
	pn_device_wait_any(ep->devices, ep->nrails, PN_FOREVER);
	pn_endpoint_lock(ep);
	ep->sleeping = false;
	pn_endpoint_tell(ep);
	atomic_fetch_add(&ep->progressed, 1);
	if (ep->locking)
		pn_device_unblock(ep->device, &ep->progressed);
}

int pn_endpoint_wait(struct pinion_endpoint *ep, struct pinion_request *request,
		     struct pinion_completion *out)
{
	/* An answer is often a fraction of a microsecond away. Others who
	 * wait for the lock, and virtual time, are not kept waiting. */
	unsigned most = ep->locking || is_virtual(ep) ? 0 : 100;
	struct pinion_completion end;
	unsigned looks = 0;

	pn_endpoint_lock(ep);
	while (!request->ended) {
		if (pn_endpoint_progress(ep) || request->ended) {
			looks = 0;
			continue;
		}
		pn_reuse_idle(&ep->reuse, is_direct(request));
		/* Another thread may have ended it while this one tidied. */
		if (looks++ < most || tidy(ep) || request->ended)
			continue;
		sleep_for_news(ep);
	}
	pn_request_take(request, &end);
	pn_endpoint_unlock(ep);
	if (out)
		*out = end;
	return end.status;
}

int pn_endpoint_poll(struct pinion_endpoint *ep, struct pinion_completion *out,
		     unsigned max)
{
	unsigned n = 0;

	pn_endpoint_lock(ep);
	disarm(ep);
	if (pn_list_empty(&ep->done))
		pn_endpoint_progress(ep);
	for (; n < max && !pn_list_empty(&ep->done); n++)
		pn_request_take(pn_container_of(ep->done.next,
						struct pinion_request, link),
				&out[n]);
	if (!n)
		pn_reuse_idle(&ep->reuse, true);
	pn_endpoint_unlock(ep);
	return (int)n;
}

static int watch(int epoll, int fd)
{
	struct epoll_event event = { .events = EPOLLIN };

	if (fd < 0)
		return fd;
	return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

/* One descriptor for all: readable when that of a rail or `told` is. */
static int open_epoll(struct pinion_endpoint *ep)
{
	int epoll = epoll_create1(EPOLL_CLOEXEC);
	int told = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	int ret = epoll < 0 || told < 0 ? -errno : watch(epoll, told);

	for (unsigned r = 0; r < ep->nrails && !ret; r++)
		ret = watch(epoll, pn_device_fd(ep->devices[r]));
	if (!ret) {
		ep->told = told;
		ep->epoll = epoll;
		return epoll;
	}
	if (epoll >= 0)
		close(epoll);
	if (told >= 0)
		close(told);
	return ret;
}

int pn_endpoint_fd(struct pinion_endpoint *ep)
{
	int fd;

	pn_endpoint_lock(ep);
	fd = ep->epoll < 0 ? open_epoll(ep) : ep->epoll;
	pn_endpoint_unlock(ep);
	return fd;
}

/* Those armed before one that has something may tell of it in vain. Arming
 * would take away the bell that is rung for a thread that sleeps there. */
static int arm_all(struct pinion_endpoint *ep)
{
	uint64_t count;
	int ret = 0;

	/* What an earlier tell left. */
	if (ep->told >= 0 && read(ep->told, &count, sizeof(count)) < 0)
		count = 0;
	if (ep->sleeping && ep->told >= 0)
		return 0;
	for (unsigned r = 0; r < ep->nrails && !ret; r++)
		ret = pn_device_arm(ep->devices[r]);
	return ret;
}

int pn_endpoint_arm(struct pinion_endpoint *ep)
{
	int ret;

	pn_endpoint_lock(ep);
	/* What moved may have ended a request that has a handle. */
	ret = pn_endpoint_progress(ep) || !pn_list_empty(&ep->done)
		      ? -EAGAIN
		      : arm_all(ep);
	ep->armed = ret ? NULL : pn_thread_self();
	pn_endpoint_unlock(ep);
	return ret;
}

void pn_endpoint_query(struct pinion_endpoint *ep,
		       struct pn_endpoint_stats *out)
{
	pn_endpoint_lock(ep);
	*out = ep->stats;
	pn_auto_query(ep->chooser, &out->choices);
	pn_endpoint_unlock(ep);
}

void pn_endpoint_use(struct pinion_endpoint *ep, int protocol)
{
	ep->protocol = protocol;
}
