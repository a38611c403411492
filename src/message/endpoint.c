/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
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

/* --- peers ---------------------------------------------------------------- */

static struct pinion_peer *find_peer(struct pinion_endpoint *ep,
				     const struct pn_address *address)
{
	struct pn_list *pos;

	pn_list_for_each (pos, &ep->peers) {
		struct pinion_peer *peer =
			pn_container_of(pos, struct pinion_peer, link);

		if (peer->address.len == address->len &&
		    !memcmp(peer->address.data, address->data, address->len))
			return peer;
	}
	return NULL;
}

static struct pinion_peer *peer_of(struct pinion_endpoint *ep,
				   const struct pn_address *address)
{
	struct pinion_peer *peer = find_peer(ep, address);

	if (peer)
		return peer;
	peer = calloc(1, sizeof(*peer));
	if (!peer)
		return NULL;
	peer->ep = ep;
	peer->address = *address;
	pn_list_init(&peer->requests);
	pn_list_init(&peer->packets);
	pn_list_init(&peer->stalled);
	pn_list_init(&peer->busy);
	pn_list_append(&ep->peers, &peer->link);
	return peer;
}

int pn_peer_connect(struct pinion_peer *peer)
{
	int ret;

	if (peer->down)
		return peer->down;
	if (peer->peer)
		return 0;
	ret = pn_device_attach(peer->ep->device, &peer->address, &peer->peer);
	if (ret)
		return ret;
	peer->peer->user = peer;
	/* It may have come up before this endpoint was there: the device's own
	 * address, when its costs were measured. */
	peer->up = peer->peer->up;
	return 0;
}

static void drop_packets(struct pinion_peer *peer)
{
	struct pn_list *link;

	while ((link = pn_list_pop(&peer->packets))) {
		struct pn_packet *p =
			pn_container_of(link, struct pn_packet, link);

		if (p->request)
			p->request->npackets--;
		pn_list_insert(&peer->ep->packets, link);
	}
	pn_list_remove(&peer->busy);
}

static void fail_posted(struct pinion_peer *peer, int why)
{
	struct pn_list *pos, *next;

	pn_list_for_each_safe (pos, next, &peer->ep->posted) {
		struct pinion_request *request =
			pn_container_of(pos, struct pinion_request, link);

		if (request->peer == peer)
			pn_request_end(request, why);
	}
}

/* Messages that nobody received yet stay: the bytes of eager ones are here,
 * and the receives that the others would have matched are to fail, not to
 * match what was sent after them. */
void pn_peer_fail(struct pinion_peer *peer, int why)
{
	struct pn_list *pos, *next;

	if (peer->down)
		return;
	peer->down = why;
	peer->up = false;
	drop_packets(peer);
	fail_posted(peer, why);
	pn_list_for_each_safe (pos, next, &peer->requests)
		pn_request_end(pn_container_of(pos, struct pinion_request,
					       peer_link),
			       why);
}

/* --- what the device says ------------------------------------------------- */

static struct pinion_peer *peer_of_device(struct pinion_endpoint *ep,
					  struct pn_peer *device_peer)
{
	struct pinion_peer *peer = device_peer->user;

	if (pn_likely(peer))
		return peer;
	/* It came by itself. */
	peer = peer_of(ep, &device_peer->address);
	if (!peer)
		return NULL;
	peer->peer = device_peer;
	device_peer->user = peer;
	return peer;
}

static int on_match(struct pinion_peer *peer, const struct pn_wire *wire,
		    const uint8_t *payload, size_t len)
{
	struct pinion_endpoint *ep = peer->ep;
	struct pinion_request *receive;
	struct pinion_claim *claim;

	if (!pn_protocol_at(wire->protocol))
		return -EPROTO;
	receive = pn_match_posted(ep, peer, wire->tag);
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

static void on_recv(struct pinion_endpoint *ep, const struct pn_completion *c)
{
	struct pinion_peer *peer = peer_of_device(ep, c->peer);
	const uint8_t *payload;
	struct pn_wire wire;
	size_t len;
	int ret = -ENOMEM;

	if (peer && peer->down) {
		pn_device_release(ep->device, c);
		return;
	}
	if (peer)
		ret = pn_wire_parse(c->data, c->len, &wire, &payload, &len);
	if (!ret)
		ret = wire.kind == PN_WIRE_MATCH
			      ? on_match(peer, &wire, payload, len)
			      : pn_transfer_packet(peer, &wire, payload, len);
	pn_device_release(ep->device, c);
	if (ret && peer)
		bad_packet(peer, ret);
}

static void on_op(struct pinion_endpoint *ep, const struct pn_completion *c)
{
	enum pn_tracked track = *(enum pn_tracked *)c->user;

	ep->noperations--;
	if (track == PN_TRACK_BOUNCE)
		pn_bounce_put(ep, c->user);
	else
		pn_transfer_done(c->user, c->status);
}

static void dispatch(struct pinion_endpoint *ep, const struct pn_completion *c)
{
	struct pinion_peer *peer;

	switch (c->kind) {
	case PN_COMPLETION_RECV:
		on_recv(ep, c);
		return;
	case PN_COMPLETION_OP:
		/* A silent packet that failed has no user; its peer will. */
		if (c->user)
			on_op(ep, c);
		return;
	case PN_COMPLETION_PEER_UP:
		peer = peer_of_device(ep, c->peer);
		if (peer) {
			peer->up = true;
			pn_peer_busy(peer);
		}
		return;
	case PN_COMPLETION_PEER_DOWN:
		peer = peer_of_device(ep, c->peer);
		if (peer)
			pn_peer_fail(peer, c->status ? c->status : -ECONNRESET);
		return;
	case PN_COMPLETION_IMM:
		peer = peer_of_device(ep, c->peer);
		if (peer && !peer->down && pn_transfer_written(peer, c->imm))
			bad_packet(peer, -EPROTO);
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

int pn_endpoint_progress(struct pinion_endpoint *ep)
{
	struct pn_completion completions[POLL_BATCH];
	int n = pn_device_poll(ep->device, completions, POLL_BATCH);

	for (int i = 0; i < n; i++)
		dispatch(ep, &completions[i]);
	if (!pn_list_empty(&ep->busy))
		n += pump_all(ep);
	return n;
}

/* --- life ----------------------------------------------------------------- */

static void init_lists(struct pinion_endpoint *ep)
{
	struct pn_list *lists[] = { &ep->peers,	       &ep->busy,
				    &ep->posted,       &ep->unexpected,
				    &ep->done,	       &ep->small_claims,
				    &ep->large_claims, &ep->claimed,
				    &ep->packets,      &ep->fragments,
				    &ep->requests };

	for (size_t i = 0; i < PN_ARRAY_LEN(lists); i++)
		pn_list_init(lists[i]);
}

/* What the device allows, and what its costs suggest where nothing is set. */
static void set_limits(struct pinion_endpoint *ep)
{
	struct pn_protocol_limits *limits = &ep->limits;
	const struct pn_costs *costs = &ep->device->costs;

	limits->packet_bytes =
		ep->device->limits.max_send_bytes - sizeof(struct pn_wire);
	if (limits->eager_bytes > limits->packet_bytes)
		limits->eager_bytes = limits->packet_bytes;
	if (limits->match_bytes > limits->packet_bytes)
		limits->match_bytes = limits->packet_bytes;
	if (!limits->fragment_bytes)
		limits->fragment_bytes =
			pn_protocol_best_fragment(limits, costs, false);
	if (!limits->segment_bytes)
		limits->segment_bytes =
			pn_protocol_best_fragment(limits, costs, true);
}

int pn_endpoint_open(const struct pn_endpoint_attr *attr,
		     struct pinion_endpoint **out)
{
	struct pinion_endpoint *ep = calloc(1, sizeof(*ep));
	int ret;

	if (!ep)
		return -ENOMEM;
	ep->device = attr->device;
	ep->cache = attr->cache;
	ep->budget = attr->budget;
	ep->limits = attr->limits;
	set_limits(ep);
	ep->protocol = attr->protocol;
	ep->locking = !attr->single_threaded &&
		      !(attr->device->caps & PN_CAP_VIRTUAL_TIME);
	init_lists(ep);
	ret = pn_bounces_open(ep, &attr->pages);
	if (ret) {
		free(ep);
		return ret;
	}
	pn_mutex_init(&ep->lock);
	pn_cache_stepped(ep->cache, true);
	pn_cache_joins(ep->cache, false);
	/* Nobody else posts to the device. */
	ep->device->single_threaded = attr->single_threaded;
	*out = ep;
	return 0;
}

static void free_list(struct pn_list *list, size_t link_offset)
{
	struct pn_list *link;

	while ((link = pn_list_pop(list)))
		free((char *)link - link_offset);
}

/* Operations point into memory that goes with the endpoint: their ends are
 * waited for. Those to a peer that takes nothing may never end. */
static void drain(struct pinion_endpoint *ep)
{
	uint64_t deadline = pn_device_now(ep->device) + PN_NS_PER_S;
	struct pn_completion c;

	while (ep->noperations) {
		if (pn_device_poll(ep->device, &c, 1)) {
			if (c.kind == PN_COMPLETION_RECV)
				pn_device_release(ep->device, &c);
			ep->noperations -= c.kind == PN_COMPLETION_OP && c.user;
		} else if (pn_device_wait(ep->device, deadline)) {
			return;
		}
	}
}

/* Fragments of requests that never ended still hold pins. */
static void abandon_all(struct pinion_endpoint *ep)
{
	for (uint32_t i = 0; i < ep->nrequests; i++) {
		struct pinion_request *request = ep->table[i];
		struct pn_list *link;

		while ((link = pn_list_pop(&request->fragments))) {
			struct pn_fragment *f =
				pn_container_of(link, struct pn_fragment, link);

			if (f->pinned)
				pn_cache_unpin(ep->cache, &f->pin);
			if (!ep->noperations)
				free(f);
		}
		if (request->source_pinned)
			pn_cache_unpin(ep->cache, &request->source);
	}
}

/* Operations that did not end in time may still come up in the device: what
 * they point to is left behind, for good. */
void pn_endpoint_close(struct pinion_endpoint *ep)
{
	struct pn_list *pos;

	if (!ep)
		return;
	pn_cache_stepped(ep->cache, false);
	pn_cache_joins(ep->cache, true);
	ep->device->single_threaded = false;
	drain(ep);
	abandon_all(ep);
	pn_list_for_each (pos, &ep->peers) {
		struct pinion_peer *peer =
			pn_container_of(pos, struct pinion_peer, link);

		free_list(&peer->packets, offsetof(struct pn_packet, link));
		if (peer->peer)
			peer->peer->user = NULL;
	}
	free_list(&ep->unexpected, offsetof(struct pinion_claim, link));
	free_list(&ep->claimed, offsetof(struct pinion_claim, link));
	free_list(&ep->small_claims, offsetof(struct pinion_claim, link));
	free_list(&ep->large_claims, offsetof(struct pinion_claim, link));
	free_list(&ep->packets, offsetof(struct pn_packet, link));
	free_list(&ep->fragments, offsetof(struct pn_fragment, link));
	free_list(&ep->peers, offsetof(struct pinion_peer, link));
	pn_requests_free(ep);
	pn_bounces_close(ep);
	pn_mutex_fini(&ep->lock);
	free(ep);
}

/* The device's address behind the version of what is spoken over it. */
static void wrap_address(const struct pn_address *inner,
			 struct pinion_address *out)
{
	_Static_assert(sizeof(out->data) >= sizeof(inner->data) + 1,
		       "room for the version");
	memset(out, 0, sizeof(*out));
	out->data[0] = PN_WIRE_VERSION;
	memcpy(out->data + 1, inner->data, inner->len);
	out->len = inner->len + 1;
}

void pn_endpoint_address(struct pinion_endpoint *ep, struct pinion_address *out)
{
	struct pn_address address;

	pn_device_address(ep->device, &address);
	wrap_address(&address, out);
}

void pn_peer_address(const struct pinion_peer *peer, struct pinion_address *out)
{
	wrap_address(&peer->address, out);
}

int pn_endpoint_peer(struct pinion_endpoint *ep,
		     const struct pinion_address *address,
		     struct pinion_peer **out)
{
	struct pn_address inner = { 0 };
	struct pinion_peer *peer;

	if (address->len < 2 || address->len > sizeof(inner.data) + 1)
		return -EINVAL;
	if (address->data[0] != PN_WIRE_VERSION) {
		pn_error("an address is of version %d of the wire format, not "
			 "%d: use one version of pinion everywhere",
			 address->data[0], PN_WIRE_VERSION);
		return -EPROTONOSUPPORT;
	}
	inner.len = address->len - 1;
	memcpy(inner.data, address->data + 1, inner.len);
	pn_endpoint_lock(ep);
	peer = peer_of(ep, &inner);
	pn_endpoint_unlock(ep);
	if (!peer)
		return -ENOMEM;
	*out = peer;
	return 0;
}

/* --- sending and receiving ------------------------------------------------ */

/* A message goes eagerly when it may, else as configured, else by copying. */
static int choose(const struct pinion_endpoint *ep, size_t len)
{
	if (pn_protocol_eager.applies(&ep->limits, len))
		return PN_PROTOCOL_EAGER;
	if (pn_protocol_at((unsigned)ep->protocol)->applies(&ep->limits, len))
		return ep->protocol;
	return PN_PROTOCOL_COPY;
}

int pn_endpoint_send(struct pinion_endpoint *ep,
		     const struct pinion_message *message,
		     struct pinion_request **out)
{
	struct pinion_request *request;
	int protocol, ret;

	pn_endpoint_lock(ep);
	ret = pn_peer_connect(message->peer);
	request = ret ? NULL : pn_request_alloc(ep, message);
	if (request) {
		protocol = choose(ep, message->len);
		ep->stats.sent[protocol]++;
		request->is_send = true;
		request->has_handle = out;
		ret = pn_transfer_send(request, protocol);
		if (out)
			*out = request;
	} else if (!ret) {
		ret = -ENOMEM;
	}
	pn_endpoint_unlock(ep);
	return ret;
}

static void receive_claim(struct pinion_endpoint *ep,
			  struct pinion_request *request,
			  struct pinion_claim *claim)
{
	pn_list_remove(&claim->link);
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

static bool is_virtual(const struct pinion_endpoint *ep)
{
	return ep->device->caps & PN_CAP_VIRTUAL_TIME;
}

/* --- ends of requests ----------------------------------------------------- */

int pn_endpoint_test(struct pinion_endpoint *ep, struct pinion_request *request,
		     struct pinion_completion *out)
{
	bool ended;

	pn_endpoint_lock(ep);
	if (!request->ended)
		pn_endpoint_progress(ep);
	ended = request->ended;
	if (ended)
		pn_request_take(request, out);
	pn_endpoint_unlock(ep);
	return ended ? 0 : -EAGAIN;
}

/* What can be done while there is nothing to do: releasing registrations that
 * nobody needs any more. False: not even that. */
static bool tidy(struct pinion_endpoint *ep)
{
	bool more;

	pn_endpoint_unlock(ep);
	more = pn_cache_step(ep->cache) <= pn_device_now(ep->device);
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
	pn_device_wait(ep->device, PN_FOREVER);
	pn_endpoint_lock(ep);
	ep->sleeping = false;
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
	if (pn_list_empty(&ep->done))
		pn_endpoint_progress(ep);
	for (; n < max && !pn_list_empty(&ep->done); n++)
		pn_request_take(pn_container_of(ep->done.next,
						struct pinion_request, link),
				&out[n]);
	pn_endpoint_unlock(ep);
	return (int)n;
}

int pn_endpoint_fd(struct pinion_endpoint *ep)
{
	return pn_device_fd(ep->device);
}

int pn_endpoint_arm(struct pinion_endpoint *ep)
{
	int ret;

	pn_endpoint_lock(ep);
	/* What moved may have ended a request that has a handle. */
	ret = pn_endpoint_progress(ep) || !pn_list_empty(&ep->done)
		      ? -EAGAIN
		      : pn_device_arm(ep->device);
	pn_endpoint_unlock(ep);
	return ret;
}

void pn_endpoint_query(struct pinion_endpoint *ep,
		       struct pn_endpoint_stats *out)
{
	pn_endpoint_lock(ep);
	*out = ep->stats;
	pn_endpoint_unlock(ep);
}

void pn_endpoint_use(struct pinion_endpoint *ep, int protocol)
{
	ep->protocol = protocol;
}
