/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The checker: asserts what holds for an endpoint at rest, that is while no
 * thread is inside a call on it.
 *
 * Requests. Each is in one place: posted, listed with its peer, ended and not
 * yet reaped, or free. A request that has not ended waits for something. One
 * that has ended holds nothing: no fragment, queued packet, pin or place in an
 * order.
 *
 * Bytes. Of a message that is being received, four numbers make the whole:
 * bytes that have arrived, bytes still to come by DATA, bytes that its
 * fragments lack, and bytes not announced yet. Of a one-sided request, the
 * bytes moved and those of its fragments are the bytes cut so far.
 *
 * Fragments, two-sided and one-sided. Each is where its kind says: in the
 * device, in the queue of its connection or peer, or waiting for the other
 * side; it is pinned or not accordingly.
 *
 * Operations. The endpoint waits for the operations of fragments, packet
 * buffers and direct sends, and for no others. Objects without an operation are
 * free.
 *
 * Peers. A peer with something to post is pending. Packets take a connection
 * that is alive, if there is one. Nothing waits for a peer that is down.
 *
 * Matching. No posted receive accepts an unexpected message.
 *
 * Rails expect the bytes that fragments and DATA still owe, no more.
 *
 * Threads: takes the endpoint's lock. A single-threaded endpoint has none: the
 * caller sees to it that no other thread is inside.
 */
#include "message/connection/keys.h"
#include "message/connection/packet.h"
#include "message/endpoint/endpoint.h"
#include "message/endpoint/request.h"
#include "message/matching/matching.h"
#include "message/onesided/onesided.h"
#include "message/twosided/direct.h"
#include "message/twosided/transfer.h"

struct sums {
	uint32_t shelved;    /* free, or ended and to be polled */
	uint32_t posted;     /* receives */
	uint32_t with_peers; /* not ended and not posted */
	uint32_t in_order;   /* of these, in the peer's one-sided order */
	unsigned operations; /* of the devices */
	unsigned packets;    /* that requests wait for */
	unsigned queued;     /* of these, found in queues and direct slots */
	unsigned stalled;    /* fragments in the queues of their connections */
	unsigned bounce_buffers; /* in use */
	uint32_t held, fenced, unposted;
	size_t expected[PN_RAILS_MAX];
};

static bool is_linked(const struct pn_list *link)
{
	return !pn_list_empty(link);
}

static unsigned length(const struct pn_list *list)
{
	const struct pn_list *pos;
	unsigned n = 0;

	pn_list_for_each (pos, list) {
		pn_assert(pos->next->prev == pos && pos->prev->next == pos);
		n++;
	}
	return n;
}

/* --- fragments ------------------------------------------------------------ */

static void check_pin(const struct pinion_pin *pin, const uint8_t *at,
		      size_t len)
{
	pn_assert(pin->nsegments && pn_pin_at(pin, 0).addr == at);
	pn_assert(pn_pin_at(pin, len - 1).len);
}

/* A fragment that goes by operations of the device. If it has failed, it waits
 * for its operations in flight; a read then waits for its connection to be
 * down. */
static void check_rdma(const struct pn_fragment *f)
{
	const struct pinion_request *request = f->rdma.request;

	pn_assert(f->rdma.pinned || (f->kind == PN_FRAGMENT_WRITE &&
				     request->transfer.source_pinned));
	if (request->status || f->rdma.status)
		pn_assert(f->rdma.inflight ||
			  (f->kind == PN_FRAGMENT_READ && !request->status));
	else if (is_linked(&f->rdma.stall_link))
		pn_assert(f->rdma.posted < f->rdma.len);
	else
		pn_assert(f->rdma.inflight && f->rdma.posted == f->rdma.len);
	pn_assert(!request->status || !is_linked(&f->rdma.stall_link));
}

static void check_lost(const struct pn_fragment *f)
{
	pn_assert(f->kind == PN_FRAGMENT_WRITE);
	pn_assert(!f->rdma.pinned && !f->rdma.inflight &&
		  !is_linked(&f->rdma.stall_link));
	pn_assert(!f->rdma.request->status || !f->rdma.conn->down_received);
}

static void check_kind(const struct pn_fragment *f)
{
	const struct pinion_request *request = f->rdma.request;
	bool many_rails = request->ep->nrails > 1;

	pn_assert(request->is_send == (f->kind <= PN_FRAGMENT_WRITE));
	pn_assert(f->expected ==
		  (!request->is_send && f->rdma.pinned && many_rails));
	switch (f->kind) {
	case PN_FRAGMENT_WRITE:
	case PN_FRAGMENT_READ:
		if (f->rdma.lost)
			check_lost(f);
		else
			check_rdma(f);
		return;
	case PN_FRAGMENT_DATA:
		pn_assert(!f->rdma.pinned && !f->rdma.inflight &&
			  is_linked(&f->rdma.stall_link));
		return;
	case PN_FRAGMENT_TARGET:
		pn_assert(!f->rdma.inflight && !is_linked(&f->rdma.stall_link));
		pn_assert(!request->status && f->arrived < f->rdma.len);
		return;
	}
}

static void check_fragment(const struct pinion_request *request,
			   const struct pn_fragment *f, struct sums *sums)
{
	const struct pinion_endpoint *ep = request->ep;

	pn_assert(f->rdma.request == request &&
		  f->rdma.conn->peer == request->peer);
	pn_assert(f->rdma.operation.kind == PN_OPERATION_FRAGMENT &&
		  f->rdma.operation.ep == ep);
	pn_assert(f->rdma.len && f->rdma.posted <= f->rdma.len);
	pn_assert(f->rdma.offset + f->rdma.len <= request->len);
	if (f->rdma.pinned)
		check_pin(&f->rdma.pin, request->buf + f->rdma.offset,
			  f->rdma.len);
	check_kind(f);
	sums->operations += f->rdma.inflight;
	sums->stalled += is_linked(&f->rdma.stall_link);
	if (f->expected)
		sums->expected[f->rdma.conn->rail->index] += f->rdma.len;
}

/* --- messages ------------------------------------------------------------- */

/* A lying peer may make a sender count more bytes than there are. */
static void check_bytes(const struct pinion_request *request, size_t owed)
{
	pn_assert(request->moved <= request->total &&
		  request->total <= request->len);
	if (request->is_send || request->status)
		return;
	pn_assert(request->moved < request->total);
	pn_assert(request->transfer.next <= request->total);
	pn_assert(request->moved + request->transfer.data_due + owed ==
		  request->transfer.next);
}

static void check_message(const struct pinion_request *request,
			  struct sums *sums)
{
	const struct pn_list *pos;
	unsigned n = 0;
	size_t owed = 0;

	pn_list_for_each (pos, &request->transfer.fragments) {
		const struct pn_fragment *f =
			pn_container_of(pos, struct pn_fragment, rdma.link);

		check_fragment(request, f, sums);
		owed += f->rdma.len - f->arrived;
		n++;
	}
	pn_assert(n == request->transfer.nfragments);
	pn_assert(!is_linked(&request->link) && !request->onesided.nfragments);
	pn_assert(n || request->npackets ||
		  (!request->status &&
		   (request->awaits_got || request->moved < request->total)));
	check_bytes(request, owed);
	if (request->transfer.data_rail)
		sums->expected[request->transfer.data_rail->index] +=
			request->transfer.data_due;
}

/* --- one-sided requests --------------------------------------------------- */

static bool is_ordered(const struct pinion_request *request)
{
	return request->kind != PN_REQUEST_PUT_WHEN &&
	       request->kind != PN_REQUEST_GRANT;
}

static void check_onesided_fragment(const struct pinion_request *request,
				    const struct pn_onesided_fragment *p,
				    struct sums *sums)
{
	bool prepared = request->kind == PN_REQUEST_PUT_WHEN &&
			!request->onesided.granted;
	bool stalled = is_linked(&p->rdma.stall_link);

	pn_assert(p->rdma.request == request &&
		  p->rdma.operation.ep == request->ep);
	pn_assert(p->rdma.operation.kind == PN_OPERATION_FRAGMENT);
	pn_assert(p->rdma.len && p->rdma.posted <= p->rdma.len);
	pn_assert(p->rdma.offset + p->rdma.len <= request->transfer.next);
	pn_assert(p->rdma.pinned == (p->path == PN_PATH_PINNED));
	pn_assert(!p->bounce_buffer || p->path == PN_PATH_BOUNCED);
	if (p->rdma.pinned)
		check_pin(&p->rdma.pin, request->buf + p->rdma.offset,
			  p->rdma.len);
	if (request->status)
		pn_assert(!stalled && (p->rdma.inflight || p->rdma.lost));
	else if (prepared)
		pn_assert(!stalled && !p->pending && !p->rdma.inflight);
	else
		pn_assert(stalled == p->pending &&
			  (stalled || p->rdma.inflight));
	sums->operations += p->rdma.inflight;
	sums->stalled += stalled;
	sums->bounce_buffers += p->bounce_buffer != NULL;
}

static void check_onesided_fragments(const struct pinion_request *request,
				     struct sums *sums)
{
	const struct pn_onesided *o = &request->onesided;
	const struct pn_list *pos;
	unsigned n = 0, pending = 0;
	size_t cut = request->moved;

	pn_list_for_each (pos, &o->fragments) {
		const struct pn_onesided_fragment *p =
			pn_container_of(pos, struct pn_onesided_fragment,
					rdma.link);

		check_onesided_fragment(request, p, sums);
		cut += p->rdma.len;
		pending += p->pending;
		n++;
	}
	pn_assert(n == o->nfragments && pending == o->npending &&
		  !o->advancing);
	pn_assert(request->transfer.next <= request->total);
	pn_assert(request->status || request->kind == PN_REQUEST_GRANT ||
		  cut == request->transfer.next);
}

/* A request behind a fence has not begun. */
static void check_place(const struct pinion_request *request, struct sums *sums)
{
	const struct pn_onesided *o = &request->onesided;
	bool waits = is_linked(&request->link);
	bool more = request->transfer.next < request->total || o->npending;

	pn_assert(is_linked(&o->order) == is_ordered(request));
	pn_assert(o->held == (waits && request->kind == PN_REQUEST_PUT_WHEN));
	sums->held += o->held;
	if (request->kind == PN_REQUEST_PUT_WHEN)
		pn_assert(request->status || o->held != o->granted);
	if (!is_ordered(request) || request->kind == PN_REQUEST_FLUSH)
		return;
	pn_assert(o->remote && o->remote->refs);
	sums->fenced += waits;
	sums->unposted += o->unposted;
	if (waits)
		pn_assert(!o->unposted && !request->transfer.next &&
			  !o->nfragments);
	else if (!request->status)
		pn_assert(o->unposted == more && o->nfragments);
}

static void check_onesided(const struct pinion_request *request,
			   struct sums *sums)
{
	sums->in_order += is_ordered(request);
	pn_assert(pn_list_empty(&request->transfer.fragments) &&
		  !request->transfer.nfragments);
	check_onesided_fragments(request, sums);
	check_place(request, sums);
	pn_assert(!request->status || request->onesided.nfragments);
	if (request->transfer.source_pinned)
		check_pin(&request->transfer.source, request->buf,
			  request->len);
}

/* --- requests ------------------------------------------------------------- */

static void check_holds_nothing(const struct pinion_request *request)
{
	const struct pn_onesided *o = &request->onesided;

	pn_assert(!request->transfer.nfragments &&
		  pn_list_empty(&request->transfer.fragments));
	pn_assert(!request->npackets && !request->transfer.source_pinned &&
		  !request->transfer.exposed && !request->sends_fail);
	pn_assert(!o->nfragments && pn_list_empty(&o->fragments) &&
		  !o->npending);
	pn_assert(!o->held && !o->unposted && !o->remote && !o->advancing);
	pn_assert(pn_list_empty(&o->order));
}

/* What a short message does not use is as pn_request_alloc() made it. */
static void check_untouched(const struct pinion_request *request)
{
	pn_assert(!request->transfer.next && !request->transfer.data_due &&
		  !request->transfer.data_rail && !request->transfer.ready_ns &&
		  !request->transfer.began_ns && !request->transfer.nkeys &&
		  !request->transfer.shape.fragment &&
		  !request->onesided.granted && !request->onesided.fence &&
		  !request->onesided.notified && !request->onesided.nkeys);
}

static void check_ended(const struct pinion_request *request, struct sums *sums)
{
	check_holds_nothing(request);
	if (request->rest_is_clean)
		check_untouched(request);
	pn_assert(!is_linked(&request->peer_link));
	pn_assert(is_linked(&request->link) || request->has_handle);
	pn_assert(request->status || request->kind ||
		  request->moved == request->total);
	sums->shelved += is_linked(&request->link);
}

static void check_posted(const struct pinion_request *request,
			 struct sums *sums)
{
	check_holds_nothing(request);
	pn_assert(!request->is_send && !request->kind);
	pn_assert(!request->status && !request->moved && !request->total);
	pn_assert(is_linked(&request->link));
	sums->posted++;
}

static void check_living(const struct pinion_request *request,
			 struct sums *sums)
{
	pn_assert(pn_request_by_id(request->peer, request->id) == request);
	sums->with_peers++;
	sums->packets += request->npackets;
	if (request->kind)
		check_onesided(request, sums);
	else
		check_message(request, sums);
}

/* A multi-receive counts all receives that it stands for. */
static void check_multi_recv(const struct pinion_endpoint *ep,
			     const struct pinion_multi_recv *multi)
{
	unsigned n = 0;
	struct pn_list *pos;

	for (uint32_t i = 0; i < ep->requests.nrequests; i++)
		n += ep->requests.table[i]->multi_recv == multi &&
		     !ep->requests.table[i]->ended;
	pn_list_for_each (pos, &ep->requests.done)
		n += pn_container_of(pos, struct pinion_request, link)
			     ->multi_recv == multi;
	pn_assert(n == multi->internal);
}

static void check_request(const struct pinion_endpoint *ep,
			  const struct pinion_request *request,
			  struct sums *sums)
{
	pn_assert(request->ep == ep && request->id);
	if (request->ended)
		check_ended(request, sums);
	else if (is_linked(&request->peer_link))
		check_living(request, sums);
	else
		check_posted(request, sums);
	if (request->multi_recv && !request->ended)
		check_multi_recv(ep, request->multi_recv);
}

static void check_free_and_done(const struct pinion_endpoint *ep,
				const struct sums *sums)
{
	const struct pn_list *pos;

	pn_assert(length(&ep->requests.free) + length(&ep->requests.done) ==
		  sums->shelved);
	pn_assert(length(&ep->matching.posted.entries) == sums->posted);
	pn_list_for_each (pos, &ep->requests.done) {
		const struct pinion_request *request =
			pn_container_of(pos, struct pinion_request, link);

		pn_assert(request->ended && !request->has_handle);
	}
	pn_list_for_each (pos, &ep->requests.free)
		pn_assert(pn_container_of(pos, struct pinion_request, link)
				  ->ended);
}

/* --- peers ---------------------------------------------------------------- */

static void check_connection(const struct pn_connection *conn,
			     struct sums *sums)
{
	const struct pinion_peer *peer = conn->peer;

	for (unsigned user = 0; user < PN_RDMA_NUSERS; user++)
		sums->stalled -= length(&conn->stalled[user]);
	pn_assert(!conn->close_state);
	if (!conn->device_peer) {
		pn_assert(!conn->up && !conn->hello_due && !conn->down);
		return;
	}
	pn_assert(!conn->up || !peer->sequenced ||
		  (conn->hello_sent && conn->hello_received));
	pn_assert(!conn->wrong_session ||
		  (!conn->up && !conn->hello_due && !conn->hello_received));
	pn_assert(conn->device_peer->user == conn);
	pn_assert(conn->remote_rail < peer->nrails);
	pn_assert(!conn->up ||
		  (!conn->hello_due && !conn->down && !peer->down));
	pn_assert(!conn->hello_due || (!conn->down && !peer->down));
}

static void check_connections(struct pinion_peer *peer, struct sums *sums)
{
	const struct pinion_endpoint *ep = peer->ep;
	bool lives = false, waits = false;
	unsigned numbers = 0;

	for (unsigned r = 0; r < ep->nrails; r++) {
		const struct pn_connection *conn = &peer->conns[r];

		pn_assert(conn->peer == peer && conn->rail == &ep->rails[r]);
		check_connection(conn, sums);
		if (!conn->device_peer)
			continue;
		pn_assert(!(numbers >> conn->remote_rail & 1));
		numbers |= 1U << conn->remote_rail;
		lives |= !conn->down;
		waits |= conn->hello_due ||
			 is_linked(&conn->stalled[PN_RDMA_TWOSIDED]) ||
			 is_linked(&conn->stalled[PN_RDMA_ONESIDED]);
	}
	pn_assert(!lives || peer->down ||
		  (peer->conn->device_peer && !peer->conn->down));
	pn_assert(!waits || is_linked(&peer->pending_link));
	pn_assert(lives || peer->down || !peer->connected);
}

/* In the order of their sequence numbers, each once. Returns how many are
 * registered. */
static unsigned check_sent(const struct pinion_peer *peer, struct sums *sums)
{
	uint32_t before = 0;
	unsigned registered = 0;
	const struct pn_list *pos;

	pn_list_for_each (pos, &peer->unconfirmed) {
		const struct pn_packet_buffer *buffer =
			pn_container_of(pos, struct pn_packet_buffer, link);

		pn_assert(buffer->peer == peer && buffer->sequence);
		pn_assert(!before || (int32_t)(buffer->sequence - before) > 0);
		pn_assert((int32_t)(peer->next_sequence - buffer->sequence) >
			  0);
		pn_assert(buffer->posted || !peer->down);
		before = buffer->sequence;
		sums->operations += buffer->posted;
		registered += !buffer->unregistered;
	}
	return registered;
}

static void check_out_of_order(const struct pinion_peer *peer)
{
	uint32_t before = peer->expected_sequence;
	const struct pn_list *pos;

	pn_assert(length(&peer->out_of_order) == peer->nout_of_order);
	pn_list_for_each (pos, &peer->out_of_order) {
		uint32_t at =
			pn_container_of(pos, struct pinion_unexpected, link)
				->sequence;

		pn_assert((int32_t)(at - before) > 0);
		before = at;
	}
}

static void check_queue(const struct pinion_peer *peer, struct sums *sums)
{
	const struct pn_list *pos;

	pn_list_for_each (pos, &peer->packets) {
		const struct pn_queued_packet *p =
			pn_container_of(pos, struct pn_queued_packet, link);
		const struct pinion_request *request = p->request;

		if (!request)
			continue;
		pn_assert(request->peer == peer && !request->ended);
		sums->queued++;
	}
	pn_assert(pn_list_empty(&peer->packets) || !peer->down);
}

/* The first request behind a fence waits for others. */
static void check_order(const struct pinion_peer *peer, struct sums *sums)
{
	const struct pn_peer_onesided *o = &peer->onesided;

	pn_assert(!o->ending_flushes && !o->beginning_fenced);
	sums->in_order -= length(&o->order);
	sums->fenced -= length(&o->fenced);
	sums->unposted -= o->nunposted;
	if (is_linked(&o->fenced))
		pn_assert(o->nunposted &&
			  pn_container_of(o->fenced.next, struct pinion_request,
					  link)
				  ->onesided.fence);
	if (is_linked(&o->order))
		pn_assert(pn_container_of(o->order.next, struct pinion_request,
					  onesided.order)
				  ->kind != PN_REQUEST_FLUSH);
}

static unsigned check_peer(const struct pinion_endpoint *ep,
			   struct pinion_peer *peer, struct sums *sums)
{
	const struct pn_list *pos;

	pn_assert(peer->ep == ep && peer->nrails && peer->session);
	check_connections(peer, sums);
	check_out_of_order(peer);
	check_queue(peer, sums);
	check_order(peer, sums);
	pn_assert(is_linked(&peer->pending_link) ||
		  (pn_list_empty(&peer->packets) && !peer->resend));
	pn_assert(!peer->resend || is_linked(&peer->unconfirmed));
	pn_assert(!peer->rail_deadline_ns ||
		  (is_linked(&peer->pending_link) && peer->remote_session));
	pn_assert(peer->sequenced ==
		  (peer->nrails > 1 && ep->nrails > 1 && !peer->single));
	pn_assert(peer->trace_number <= ep->ntraced_peers);
	sums->with_peers -= length(&peer->requests);
	pn_list_for_each (pos, &peer->requests)
		pn_assert(pn_container_of(pos, struct pinion_request, peer_link)
				  ->peer == peer);
	return check_sent(peer, sums);
}

/* Subtracts from the sums what it finds with the peers. Returns how many
 * registered packet buffers are unconfirmed there. */
static unsigned check_peers(const struct pinion_endpoint *ep, struct sums *sums)
{
	unsigned registered = 0, busy = 0;
	const struct pn_list *pos;

	pn_list_for_each (pos, &ep->peers) {
		struct pinion_peer *peer =
			pn_container_of(pos, struct pinion_peer, link);

		registered += check_peer(ep, peer, sums);
		busy += is_linked(&peer->pending_link);
	}
	pn_assert(busy == length(&ep->pending_peers));
	pn_assert(!sums->with_peers && !sums->in_order && !sums->stalled &&
		  !sums->fenced && !sums->unposted);
	return registered;
}

/* --- buffers -------------------------------------------------------------- */

static void check_packet_buffers(const struct pinion_endpoint *ep,
				 unsigned unconfirmed, struct sums *sums)
{
	unsigned apart = length(&ep->packets.buffers.free) + unconfirmed;
	const struct pn_list *pos;

	pn_assert(apart <= ep->packets.buffers.nfixed);
	sums->operations += ep->packets.buffers.nfixed - apart;
	pn_list_for_each (pos, &ep->packets.buffers.free) {
		const struct pn_packet_buffer *b =
			pn_container_of(pos, struct pn_packet_buffer, link);

		pn_assert(!b->unregistered && !b->peer && !b->posted);
	}
	pn_list_for_each (pos, &ep->packets.unregistered.free)
		pn_assert(pn_container_of(pos, struct pn_packet_buffer, link)
				  ->unregistered);
}

static void check_directs(const struct pinion_endpoint *ep, struct sums *sums)
{
	const struct pn_pool *slots = &ep->transfers.direct_pool.slots;
	unsigned used = 0;

	for (unsigned i = 0; i < slots->nfixed; i++) {
		const struct pn_direct_slot *slot = pn_pool_at(slots, i);
		const struct pinion_request *request = slot->request;

		if (!request)
			continue;
		pn_assert(!request->ended && request->is_send);
		check_pin(&slot->pin, request->buf, request->len);
		used++;
	}
	pn_assert(used + length(&slots->free) == slots->nfixed);
	pn_assert(used == ep->reuse.direct_inflight);
	sums->operations += used;
	sums->queued += used;
}

static void check_bounce_buffers(const struct pinion_endpoint *ep,
				 unsigned used)
{
	const struct pn_bounce_pool *pool = &ep->onesided.bounce_pool;
	const struct pn_list *pos;
	unsigned n = length(&pool->buffers.free) + length(&pool->cells.free);

	pn_assert(n + used == pool->buffers.nfixed + pool->cells.nfixed);
	pn_list_for_each (pos, &pool->cells.free)
		pn_assert(pn_pool_owns(
			&pool->cells,
			pn_container_of(pos, struct pn_bounce_buffer, link)));
}

/* --- matching ------------------------------------------------------------- */

static void check_unmatched(const struct pinion_endpoint *ep,
			    const struct pinion_unexpected *unexpected)
{
	const struct pn_list *pos;

	pn_list_for_each (pos, &ep->matching.posted.entries)
		pn_assert(!pn_match_accepts(
			pn_container_of(pos, struct pinion_request, link),
			unexpected->peer, &unexpected->wire));
}

static void check_unexpected(const struct pinion_endpoint *ep,
			     const struct pn_list *messages, bool unmatched)
{
	const struct pn_list *pos;

	pn_list_for_each (pos, messages) {
		const struct pinion_unexpected *unexpected =
			pn_container_of(pos, struct pinion_unexpected, link);

		pn_assert(unexpected->peer->ep == ep);
		pn_assert(unexpected->payload_len <= unexpected->capacity);
		pn_assert(unexpected->wire.kind == PN_WIRE_MATCH);
		if (unmatched)
			check_unmatched(ep, unexpected);
	}
}

static size_t kept_of(const struct pn_list *messages,
		      const struct pinion_peer *peer)
{
	const struct pn_list *pos;
	size_t sum = 0;

	pn_list_for_each (pos, messages) {
		const struct pinion_unexpected *unexpected =
			pn_container_of(pos, struct pinion_unexpected, link);

		sum += unexpected->peer == peer ? unexpected->counted : 0;
	}
	return sum;
}

/* Each peer's messages are counted, and no more is used than the limit. */
static void check_kept(const struct pinion_endpoint *ep)
{
	const struct pn_list *pos;
	size_t sum = 0;

	pn_list_for_each (pos, &ep->peers) {
		const struct pinion_peer *peer =
			pn_container_of(pos, struct pinion_peer, link);
		const struct pn_allowance *allowance = &peer->allowance;

		pn_assert(allowance->kept ==
			  kept_of(&ep->matching.unexpected.entries, peer) +
				  kept_of(&ep->matching.probed, peer));
		pn_assert(!allowance->tells ||
			  allowance->kept > allowance->tell_at);
		pn_assert(allowance->left <= allowance->bound);
		pn_assert(!ep->unexpected_limit ||
			  allowance->bound <= ep->unexpected_limit);
		sum += allowance->kept;
	}
	pn_assert(sum == ep->matching.kept_bytes);
}

static void check_free_unexpected(const struct pn_list *messages,
				  size_t capacity)
{
	const struct pn_list *pos;

	pn_list_for_each (pos, messages)
		pn_assert(pn_container_of(pos, struct pinion_unexpected, link)
				  ->capacity == capacity);
}

/* Each entry is found by its tag, and counted. */
static void check_tags(const struct pn_tag_table *tags)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < tags->nbuckets; i++) {
		const struct pn_list *pos, *at;

		pn_list_for_each (pos, &tags->buckets[i]) {
			at = pn_tag_table_find(tags, tags->key_of(pos));
			while (at && at != pos)
				at = pn_tag_table_next(tags, at);
			pn_assert(at);
			n++;
		}
	}
	pn_assert(n == tags->n);
}

/* No conditional write is queued for a grant that is here. */
static void check_grants(const struct pinion_endpoint *ep, uint32_t held)
{
	const struct pn_endpoint_onesided *o = &ep->onesided;

	check_tags(&o->held);
	check_tags(&o->granted);
	pn_assert(o->held.n == held);
	for (uint32_t i = 0; i < o->granted.nbuckets; i++) {
		const struct pn_list *pos;

		pn_list_for_each (pos, &o->granted.buckets[i])
			pn_assert(!pn_tag_table_find(&o->held,
						     o->granted.key_of(pos)));
	}
}

/* --- everything ----------------------------------------------------------- */

static void check_rails(const struct pinion_endpoint *ep,
			const struct sums *sums)
{
	for (unsigned r = 0; r < ep->nrails; r++) {
		pn_assert(ep->rails[r].expected == sums->expected[r]);
		pn_assert(ep->rails[r].byte_ns > 0);
	}
}

/* Connections that are still closing are counted. */
void pn_endpoint_check_closing(const struct pinion_endpoint *ep)
{
	const struct pn_list *pos;
	unsigned n = 0;

	pn_list_for_each (pos, &ep->peers) {
		const struct pinion_peer *peer =
			pn_container_of(pos, struct pinion_peer, link);

		for (unsigned r = 0; r < ep->nrails; r++)
			n += peer->conns[r].close_state != PN_CLOSE_NONE;
	}
	pn_assert(n == ep->nclosing);
}

void pn_endpoint_check(struct pinion_endpoint *ep)
{
	struct sums sums = { 0 };
	unsigned unconfirmed;

	pn_endpoint_lock(ep);
	for (uint32_t i = 0; i < ep->requests.nrequests; i++)
		check_request(ep, ep->requests.table[i], &sums);
	check_free_and_done(ep, &sums);
	unconfirmed = check_peers(ep, &sums);
	check_packet_buffers(ep, unconfirmed, &sums);
	check_directs(ep, &sums);
	check_bounce_buffers(ep, sums.bounce_buffers);
	check_unexpected(ep, &ep->matching.unexpected.entries, true);
	check_unexpected(ep, &ep->matching.probed, false);
	pn_matching_check(&ep->matching);
	for (unsigned i = 0; i < PN_UNEXPECTED_SIZES; i++)
		check_free_unexpected(&ep->matching.storage[i].free,
				      (size_t)PN_UNEXPECTED_MIN_BYTES << i);
	check_kept(ep);
	check_grants(ep, sums.held);
	check_rails(ep, &sums);
	pn_assert(sums.packets == sums.queued);
	pn_assert(sums.operations == ep->noperations && !ep->nclosing);
	pn_assert(!ep->poll.n && !ep->poll.room);
	pn_assert(pn_stats_counters_valid(&pn_endpoint_statistics, ep));
	pn_assert(ep->waiting.armed || !ep->waiting.others_armed);
	pn_endpoint_unlock(ep);
}
