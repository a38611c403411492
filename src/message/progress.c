/* SPDX-License-Identifier: BSD-2-Clause */
/* Progress of an endpoint: what its devices say goes to whom it concerns, and
 * what waited for room in their queues is posted. */
#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "message/message_impl.h"

#define POLL_BATCH 16

/* --- packets -------------------------------------------------------------- */

static int take_match(struct pinion_peer *peer, const struct pn_wire *wire,
		      const uint8_t *payload, size_t len)
{
	struct pinion_endpoint *ep = peer->ep;
	struct pinion_request *receive;
	struct pinion_unexpected *claim;

	if (!pn_protocol_at(wire->protocol))
		return -EPROTO;
	receive = pn_match_posted(ep, peer, wire);
	if (receive) {
		pn_transfer_receive(receive, peer, wire, payload, len);
		return 0;
	}
	claim = pn_claim_make(peer, wire, len);
	if (!claim)
		return -ENOMEM;
	pn_copy(ep->device, claim->payload, payload, len);
	pn_list_append(&ep->unexpected, &claim->link);
	ep->stats.unexpected++;
	return 0;
}

/* Of a message that is more than its MATCH is told at its end. */
static int on_match(struct pinion_peer *peer, const struct pn_wire *wire,
		    const uint8_t *payload, size_t len)
{
	int ret = take_match(peer, wire, payload, len);

	if (pn_unlikely(wire->status & PN_WIRE_TELL) && !ret &&
	    len == wire->len && !wire->nkeys)
		pn_transfer_got(peer, wire->from);
	return ret;
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
	if (wire->kind == PN_WIRE_GOT)
		return pn_transfer_heard(peer, wire);
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
	struct pinion_unexpected *claim;

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

static int on_way(struct pn_way *way, uint32_t sequence,
		  const struct pn_wire *wire, const uint8_t *payload,
		  size_t len)
{
	if (pn_unlikely(wire->kind == PN_WIRE_HELLO))
		return pn_way_hello(way, wire, payload, len);
	if (!pn_way_listens(way))
		return 0;
	if (pn_unlikely(sequence))
		return on_sequenced(way->owner, sequence, wire, payload, len);
	return on_packet(way->owner, wire, payload, len);
}

static void on_recv(struct pinion_endpoint *ep, const struct pn_completion *c)
{
	struct pn_device *device = c->peer->device;
	const uint8_t *payload = NULL;
	struct pn_wire wire;
	size_t len = 0;
	int ret = pn_wire_parse(c->data, c->len, &wire, &payload, &len);
	struct pn_way *way = way_of_packet(ep, c, &wire, ret, payload, len);

	if (way && !way->owner->down && !way->foreign) {
		if (!ret)
			ret = on_way(way, c->imm, &wire, payload, len);
		if (ret)
			bad_packet(way->owner, ret);
	}
	pn_device_release(device, c);
}

/* --- the short way -------------------------------------------------------- */

/* A message that is all there, as most are. */
static inline bool is_whole(const struct pn_wire *wire, size_t len)
{
	uint32_t first;

	memcpy(&first, wire, sizeof(first));
	return first == PN_WIRE_MATCH_BY(PN_PROTOCOL_EAGER) &&
	       wire->len == len - sizeof(*wire) &&
	       !(wire->status & ~(PN_WIRE_SPACE | PN_WIRE_HAS_DATA));
}

/* The oldest receive, if it is what the message is for and there is nothing
 * else to do than to copy and to tell whoever polls. */
static struct pinion_request *taker_of(const struct pinion_endpoint *ep,
				       const struct pn_way *way,
				       const struct pn_wire *wire)
{
	struct pinion_request *first =
		pn_container_of(ep->posted.next, struct pinion_request, link);

	if (!way || pn_list_empty(&ep->posted) || !way->up ||
	    !pn_match_message(first, way->owner, wire) ||
	    wire->len > first->len || first->has_handle || first->multi_recv)
		return NULL;
	return first;
}

static void tell_taker(struct pinion_endpoint *ep,
		       const struct pinion_request *receive,
		       struct pinion_peer *peer, const struct pn_wire *wire)
{
	ep->polled.out[ep->polled.n++] = (struct pinion_completion){
		.flags = wire->status & PN_WIRE_HAS_DATA
				 ? PINION_COMPLETION_DATA
				 : 0,
		.peer = peer,
		.tag = wire->tag,
		.len = wire->len,
		.user = receive->user,
		.data = wire->to,
		.message_len = wire->len,
		.buf = receive->buf,
	};
}

/* What most messages are, in one go: a short one that a receive waits for and
 * that the thread which polls takes. False: nothing was done, it goes the way
 * of all. */
static bool take_short(struct pn_taker *taker, struct pn_peer *device_peer,
		       const void *data, size_t len)
{
	struct pinion_endpoint *ep =
		pn_container_of(taker, struct pinion_endpoint, taker);
	const struct pn_way *way = device_peer->user;
	struct pinion_request *receive;
	struct pn_wire wire;

	if (len < sizeof(wire) || ep->polled.n == ep->polled.room ||
	    !pn_list_empty(&ep->done))
		return false;
	memcpy(&wire, data, sizeof(wire));
	if (!is_whole(&wire, len))
		return false;
	receive = taker_of(ep, way, &wire);
	if (!receive)
		return false;
	pn_list_remove(&receive->link);
	if (wire.len)
		pn_copy(ep->device, receive->buf,
			(const uint8_t *)data + sizeof(wire), wire.len);
	ep->stats.received++;
	tell_taker(ep, receive, way->owner, &wire);
	receive->ended = receive->was_short = true;
	pn_request_free(receive);
	return true;
}

/* The same of what was lent, since not every device asks. */
static bool take_lent(struct pinion_endpoint *ep, const struct pn_completion *c)
{
	if (c->kind != PN_COMPLETION_RECV || c->imm ||
	    !take_short(&ep->taker, c->peer, c->data, c->len))
		return false;
	pn_device_release(c->peer->device, c);
	return true;
}

/* As long as nobody polls there is no room, and nothing is taken so. */
void pn_progress_init(struct pinion_endpoint *ep)
{
	ep->taker.take = take_short;
	ep->polls_into =
		!ep->helper && !(ep->device->caps & PN_CAP_VIRTUAL_TIME);
}

/* --- all that a device tells ---------------------------------------------- */

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

static PN_NOINLINE void dispatch(struct pinion_endpoint *ep,
				 const struct pn_completion *c)
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
		if (way && pn_way_listens(way))
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

/* Inline: most find nothing, and are over. */
static PN_ALWAYS_INLINE inline int poll_rail(struct pinion_endpoint *ep,
					     struct pn_device *device)
{
	struct pn_completion completions[POLL_BATCH];
	int n = pn_device_poll(device, completions, POLL_BATCH);

	for (int i = 0; pn_unlikely(i < n); i++)
		if (!take_lent(ep, &completions[i]))
			dispatch(ep, &completions[i]);
	return n;
}

static PN_NOINLINE int poll_further(struct pinion_endpoint *ep)
{
	int n = 0;

	for (unsigned r = 1; r < ep->nrails; r++)
		n += poll_rail(ep, ep->rails[r].device);
	return n;
}

static PN_ALWAYS_INLINE inline int progress(struct pinion_endpoint *ep)
{
	int n;

	pn_cache_heed(ep->cache);
	n = poll_rail(ep, ep->device);
	if (pn_unlikely(ep->nrails > 1))
		n += poll_further(ep);
	if (pn_unlikely(!pn_list_empty(&ep->busy)))
		n += pump_all(ep);
	return n;
}

int pn_endpoint_progress(struct pinion_endpoint *ep)
{
	return progress(ep);
}

/* --- polling -------------------------------------------------------------- */

/* Nothing has ended before, or it would be taken first. In virtual time others
 * run while this one copies, and may come here, too. */
static PN_ALWAYS_INLINE inline unsigned progress_into(
	struct pinion_endpoint *ep, struct pinion_completion *out, unsigned max)
{
	unsigned n;

	if (pn_likely(ep->polls_into)) {
		ep->polled.out = out;
		ep->polled.room = max;
	}
	progress(ep);
	n = ep->polled.n;
	ep->polled.n = ep->polled.room = 0;
	return n;
}

/* Behind the n that are there already. */
static PN_NOINLINE unsigned take_done(struct pinion_endpoint *ep,
				      struct pinion_completion *out, unsigned n,
				      unsigned max)
{
	for (; n < max && !pn_list_empty(&ep->done); n++)
		pn_request_take(pn_container_of(ep->done.next,
						struct pinion_request, link),
				&out[n]);
	return n;
}

int pn_endpoint_poll(struct pinion_endpoint *ep, struct pinion_completion *out,
		     unsigned max)
{
	unsigned n = 0;

	pn_endpoint_lock(ep);
	pn_endpoint_disarm(ep);
	if (pn_likely(pn_list_empty(&ep->done)))
		n = progress_into(ep, out, max);
	if (pn_unlikely(!pn_list_empty(&ep->done)))
		n = take_done(ep, out, n, max);
	if (!n)
		pn_reuse_idle(&ep->reuse, true);
	pn_endpoint_unlock(ep);
	return (int)n;
}
