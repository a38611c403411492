/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Peers and their connections: one for each rail that both sides have.
 *
 * An address lists the devices of all rails of an endpoint. The i-th connection
 * goes over this endpoint's i-th rail, to the first of the peer's devices that
 * it can be attached to and that no other connection goes to. So both sides
 * find the same pairs. Connections are attached when the peer is first sent to.
 * If the peer attached first, its HELLO says which peer the connection belongs
 * to: with several rails the address of one device is not enough. A HELLO is
 * answered by a HELLO. Endpoints with one rail need no HELLO and send none.
 *
 * An endpoint may reach each peer over one rail only (`either`: soft inside a
 * host, verbs between hosts), the first that can. Then there is one connection,
 * as with one rail, and no HELLO. Both sides have to find the same one: the
 * order of the endpoint with the smaller address counts.
 *
 * Sessions. A peer that is down stays down; its address then names a new peer.
 * The new peer may be there already: an endpoint that is closed and opened
 * again has the same address, but new requests, new sequence numbers, and new
 * peers in the devices. Its first packets may arrive before the end of its old
 * connections is known. So, if a device's peer belongs to a connection that
 * exists already, it belongs to a new session, and the HELLO says to which:
 * each side names its own end of the session, and the other end if it knows it.
 * A connection is up when both sides have named the same session. A connection
 * whose two ends mean different sessions is detached.
 *
 * Packets take the first connection that is alive. When a connection goes down
 * and the peer has others, packets are sent again (retransmit.c), fragments are
 * announced again (failover.c), and the peer is told by a DOWN, since its
 * device may not have noticed. The peer fails with its last connection.
 *
 * The last connection that is up may fail while others are alive but not up
 * yet. If the peer's endpoint closes at that moment, its BYE is lost with the
 * connection, and the others would come up in the peer's next endpoint, or
 * never. So the peer fails unless one of them comes up in time
 * (`rail_timeout`).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "message/connection/connection.h"
#include "message/connection/packet.h"
#include "message/connection/wire.h"
#include "message/endpoint/endpoint.h"
#include "message/endpoint/request.h"
#include "message/onesided/onesided.h"
#include "message/twosided/transfer.h"

static bool same_address(const struct pn_address *a, const struct pn_address *b)
{
	return a->len == b->len && !memcmp(a->data, b->data, a->len);
}

static bool is_among(const struct pn_address *rail,
		     const struct pn_address *rails, unsigned nrails)
{
	for (unsigned i = 0; i < nrails; i++)
		if (same_address(&rails[i], rail))
			return true;
	return false;
}

/* The newest peer with one of these devices that is not down; new peers are at
 * the end of the list. */
static struct pinion_peer *find_peer(struct pinion_endpoint *ep,
				     const struct pn_address *rails,
				     unsigned nrails)
{
	struct pn_list *pos;

	for (pos = ep->peers.prev; pos != &ep->peers; pos = pos->prev) {
		struct pinion_peer *peer =
			pn_container_of(pos, struct pinion_peer, link);

		for (unsigned i = 0; i < nrails && !peer->down; i++)
			if (is_among(&rails[i], peer->rails, peer->nrails))
				return peer;
	}
	return NULL;
}

static void init_connections(struct pinion_peer *peer)
{
	for (unsigned r = 0; r < peer->ep->nrails; r++) {
		peer->conns[r].peer = peer;
		peer->conns[r].rail = &peer->ep->rails[r];
		for (unsigned user = 0; user < PN_RDMA_NUSERS; user++)
			pn_list_init(&peer->conns[r].stalled[user]);
	}
	peer->conn = &peer->conns[0];
}

/* Sets the addresses of the peer's devices. Before, perhaps only one of several
 * was known. */
static void set_rails(struct pinion_peer *peer, const struct pn_address *rails,
		      unsigned nrails)
{
	if (nrails <= peer->nrails)
		return;
	memcpy(peer->rails, rails, nrails * sizeof(*rails));
	peer->nrails = nrails;
	peer->sequenced = nrails > 1 && peer->ep->nrails > 1 && !peer->single;
}

static struct pinion_peer *make_peer(struct pinion_endpoint *ep,
				     const struct pn_address *rails,
				     unsigned nrails, bool single)
{
	static _Atomic uint64_t nnames;
	struct pinion_peer *peer = calloc(1, sizeof(*peer));

	if (!peer)
		return NULL;
	peer->ep = ep;
	peer->session = atomic_fetch_add(&nnames, 1) + 1;
	peer->single = single || ep->either;
	set_rails(peer, rails, nrails);
	init_connections(peer);
	pn_allowance_init(&peer->allowance, ep->unexpected_limit);
	peer->next_sequence = peer->expected_sequence = 1;
	pn_list_init(&peer->requests);
	pn_list_init(&peer->packets);
	pn_list_init(&peer->unconfirmed);
	pn_list_init(&peer->out_of_order);
	pn_list_init(&peer->pending_link);
	pn_onesided_init_peer(peer);
	pn_list_append(&ep->peers, &peer->link);
	return peer;
}

/* The peer with one of these devices that is not down. Made if there is none.
 * NULL: no memory. */
static struct pinion_peer *peer_of(struct pinion_endpoint *ep,
				   const struct pn_address *rails,
				   unsigned nrails, bool single)
{
	struct pinion_peer *peer = find_peer(ep, rails, nrails);

	if (!peer)
		return make_peer(ep, rails, nrails, single);
	peer->single |= single;
	set_rails(peer, rails, nrails);
	return peer;
}

/* --- connections ---------------------------------------------------------- */

static bool is_alive(const struct pn_connection *conn)
{
	return conn->device_peer && !conn->down;
}

/* The first connection that is alive, or NULL. */
static struct pn_connection *first_alive(struct pinion_peer *peer)
{
	for (unsigned r = 0; r < peer->ep->nrails; r++)
		if (is_alive(&peer->conns[r]))
			return &peer->conns[r];
	return NULL;
}

bool pn_connection_has_alternative(const struct pn_connection *conn)
{
	const struct pinion_peer *peer = conn->peer;

	for (unsigned r = 0; r < peer->ep->nrails; r++)
		if (&peer->conns[r] != conn && is_alive(&peer->conns[r]))
			return true;
	/* More can be attached. */
	return peer->sequenced && !peer->connected && !peer->closing;
}

bool pn_connection_is_loopback(const struct pn_connection *conn)
{
	struct pn_address own;

	pn_device_address(conn->rail->device, &own);
	return same_address(&conn->device_peer->address, &own);
}

/* The connection to one of the peer's rails, or NULL. */
static struct pn_connection *connection_to(struct pinion_peer *peer,
					   unsigned number)
{
	for (unsigned r = 0; r < peer->ep->nrails; r++)
		if (peer->conns[r].device_peer &&
		    peer->conns[r].remote_rail == number)
			return &peer->conns[r];
	return NULL;
}

struct pn_connection *pn_connection_by_rail(struct pinion_peer *peer,
					    unsigned number)
{
	if (pn_likely(!peer->sequenced))
		return !number && peer->conn->device_peer ? peer->conn : NULL;
	return connection_to(peer, number);
}

/* Between endpoints with several rails, only HELLO goes over a connection until
 * both ends have named the same session: the other end may belong to a session
 * that is over here, or not yet over there. */
static void update_up(struct pn_connection *conn)
{
	const struct pinion_peer *peer = conn->peer;

	conn->up = conn->device_peer->up && !conn->down && !conn->hello_due &&
		   !conn->wrong_session &&
		   (!peer->sequenced ||
		    (conn->hello_sent && conn->hello_received));
	if (conn->up)
		conn->peer->rail_deadline_ns = 0;
	if (conn->up || conn->hello_due)
		pn_peer_add_pending(conn->peer);
}

/* Binds a connection to a peer of its device. That peer may have come up before
 * this endpoint was opened (loopback, when costs were measured). It may also be
 * down again: PEER_DOWN comes after its packets. */
static void bind_connection(struct pn_connection *conn,
			    struct pn_peer *device_peer, unsigned number)
{
	struct pinion_peer *peer = conn->peer;

	conn->device_peer = device_peer;
	conn->remote_rail = number;
	conn->hello_sent = conn->hello_received = conn->wrong_session = false;
	device_peer->user = conn;
	if (!is_alive(peer->conn))
		peer->conn = conn;
	update_up(conn);
}

/* Attaches a connection to the peer's i-th device. */
static int attach_to(struct pn_connection *conn, unsigned i)
{
	struct pinion_peer *peer = conn->peer;
	struct pn_peer *device_peer;
	int ret = pn_device_attach(conn->rail->device, &peer->rails[i],
				   &device_peer);

	if (ret)
		return ret;
	if (device_peer->user) /* of an earlier endpoint, or of another peer */
		return device_peer->down ? device_peer->down : -EBUSY;
	conn->down = device_peer->down;
	conn->hello_due = peer->sequenced && !conn->down;
	bind_connection(conn, device_peer, i);
	return 0;
}

/* Attaches a connection to one of the peer's devices that has none. */
static int attach(struct pn_connection *conn)
{
	struct pinion_peer *peer = conn->peer;
	int ret = -EINVAL;

	for (unsigned i = 0; ret && i < peer->nrails; i++)
		if (!connection_to(peer, i))
			ret = attach_to(conn, i);
	return ret;
}

/* If no connection can be attached, the first error counts. */
static int attach_each(struct pinion_peer *peer)
{
	int first = 0;

	for (unsigned r = 0; r < peer->ep->nrails; r++) {
		int ret = peer->conns[r].device_peer ? 0
						     : attach(&peer->conns[r]);

		if (!first)
			first = ret;
	}
	return first;
}

/* Whether the order of this endpoint's rails counts, and not the peer's. */
static bool decides_order(const struct pinion_peer *peer)
{
	struct pn_address own;

	pn_device_address(peer->ep->device, &own);
	return memcmp(own.data, peer->rails[0].data, sizeof(own.data)) <= 0;
}

/* Attaches one connection, unless the peer attached first. Returns the most
 * telling error: -EINVAL only means that the address is of another kind of
 * device. */
static int attach_one(struct pinion_peer *peer)
{
	unsigned n = peer->ep->nrails, m = peer->nrails;
	bool first = decides_order(peer);
	int why = -EINVAL;

	if (first_alive(peer))
		return 0;
	for (unsigned k = 0; k < n * m; k++) {
		unsigned r = first ? k / m : k % n;
		int ret = attach_to(&peer->conns[r], first ? k % m : k / n);

		if (!ret)
			return 0;
		if (why == -EINVAL)
			why = ret;
	}
	return why;
}

/* Every send to this peer tries again; the reason is logged once. */
static int unreachable(struct pinion_peer *peer, int why)
{
	if (!peer->unreachable_logged && why == -EHOSTUNREACH)
		pn_error("a peer is on another host, or in another container, "
			 "and no device of this endpoint reaches it; for jobs "
			 "over several hosts set PINION_DEVICE=soft/verbs");
	peer->unreachable_logged = true;
	return why;
}

/* None to an endpoint that closes: it would wait for the next endpoint there,
 * which knows nothing of this session. */
static int attach_all(struct pinion_peer *peer)
{
	int ret = -ECONNRESET;

	if (!peer->closing)
		ret = peer->single ? attach_one(peer) : attach_each(peer);
	if (first_alive(peer)) {
		peer->connected = true;
		return 0;
	}
	if (ret)
		return unreachable(peer, ret);
	pn_peer_fail(peer, peer->conn->down);
	return peer->down;
}

int pn_peer_connect(struct pinion_peer *peer)
{
	if (peer->down)
		return peer->down;
	return pn_likely(peer->connected) ? 0 : attach_all(peer);
}

bool pn_connection_send_hello(struct pn_connection *conn)
{
	struct pn_wire wire = { .version = PN_WIRE_VERSION,
				.kind = PN_WIRE_HELLO,
				.tag = conn->peer->session,
				.offset = conn->peer->remote_session };
	struct pinion_address mine;

	if (pn_likely(!conn->hello_due) || !conn->device_peer->up)
		return false;
	pn_endpoint_address(conn->peer->ep, &mine);
	if (pn_packet_post(conn, &wire, mine.data, mine.len))
		return false;
	conn->hello_due = false;
	conn->hello_sent = true;
	update_up(conn);
	return true;
}

/* --- events of a device's peer -------------------------------------------- */

static struct pn_rail *rail_of(struct pinion_endpoint *ep,
			       const struct pn_device *device)
{
	struct pn_rail *rail = ep->rails;

	while (rail->device != device)
		rail++;
	return rail;
}

/* The index of a device's address among the peer's, or -1. */
static int number_of(const struct pinion_peer *peer,
		     const struct pn_address *address)
{
	for (unsigned i = 0; i < peer->nrails; i++)
		if (same_address(&peer->rails[i], address))
			return (int)i;
	return -1;
}

/* The connection that a device's peer can be bound to; NULL: none, or it is
 * bound already. */
static struct pn_connection *free_connection_for(
	struct pinion_peer *peer, const struct pn_peer *device_peer)
{
	struct pinion_endpoint *ep = peer->ep;
	struct pn_connection *conn =
		&peer->conns[rail_of(ep, device_peer->device)->index];
	int number = number_of(peer, &device_peer->address);

	if (conn->device_peer || number < 0 ||
	    connection_to(peer, (unsigned)number) ||
	    (peer->single && peer->conn->device_peer))
		return NULL;
	return conn;
}

/* Binds a device's peer that was attached by the other side. */
static struct pn_connection *adopt(struct pinion_peer *peer,
				   struct pn_peer *device_peer)
{
	struct pn_connection *conn =
		peer ? free_connection_for(peer, device_peer) : NULL;

	if (conn)
		bind_connection(conn, device_peer,
				(unsigned)number_of(peer,
						    &device_peer->address));
	return conn;
}

/* With one rail the device's peer is the whole peer and is known at once. With
 * several rails, a peer that has several, too, sends HELLO first. */
struct pn_connection *pn_connection_find(struct pinion_endpoint *ep,
					 struct pn_peer *device_peer)
{
	const struct pn_address *address = &device_peer->address;
	struct pinion_peer *peer = find_peer(ep, address, 1);

	if (peer && peer->sequenced)
		return NULL;
	if ((ep->nrails == 1 || ep->either) &&
	    (!peer || !free_connection_for(peer, device_peer)))
		peer = make_peer(ep, address, 1, false);
	return adopt(peer, device_peer);
}

/* Whether a HELLO can belong to the session of this peer. */
static bool is_same_session(const struct pinion_peer *peer,
			    const struct pn_wire *hello)
{
	return (!hello->offset || hello->offset == peer->session) &&
	       (!peer->remote_session || peer->remote_session == hello->tag);
}

/* The peer to whose session a new device's peer belongs, or NULL. */
static struct pinion_peer *find_session(struct pinion_endpoint *ep,
					const struct pn_peer *device_peer,
					const struct pn_wire *hello)
{
	struct pn_list *pos;

	for (pos = ep->peers.prev; pos != &ep->peers; pos = pos->prev) {
		struct pinion_peer *peer =
			pn_container_of(pos, struct pinion_peer, link);

		if (!peer->down && is_same_session(peer, hello) &&
		    free_connection_for(peer, device_peer))
			return peer;
	}
	return NULL;
}

/* The peer, also one that is down, whose remote end has this name of the
 * session; or NULL. */
static struct pinion_peer *find_remote_session(const struct pinion_endpoint *ep,
					       uint64_t remote_session)
{
	const struct pn_list *pos;

	pn_list_for_each (pos, &ep->peers) {
		struct pinion_peer *peer =
			pn_container_of(pos, struct pinion_peer, link);

		if (peer->remote_session == remote_session)
			return peer;
	}
	return NULL;
}

/* If this side attached the connection, and it never came up, it is replaced by
 * the one that the other side attached. */
static void replace_pending(struct pinion_peer *peer,
			    const struct pn_peer *device_peer)
{
	struct pn_connection *conn =
		&peer->conns[rail_of(peer->ep, device_peer->device)->index];
	int number = number_of(peer, &device_peer->address);

	if (peer->down || number < 0 || !conn->device_peer || conn->up ||
	    conn->down || conn->remote_rail != (unsigned)number)
		return;
	pn_connection_refuse(conn->device_peer);
	conn->device_peer = NULL;
}

/* Whether a device's peer may claim these addresses: they include its own, and
 * none of them belongs to another peer, except to an earlier session of the
 * same endpoint. */
static bool may_use_addresses(struct pinion_endpoint *ep,
			      const struct pn_address *own,
			      const struct pn_address *rails, unsigned nrails)
{
	const struct pinion_peer *other = find_peer(ep, rails, nrails);

	return is_among(own, rails, nrails) &&
	       (!other || is_among(own, other->rails, other->nrails));
}

struct pn_connection *pn_connection_identify(struct pinion_endpoint *ep,
					     struct pn_peer *device_peer,
					     const struct pn_wire *wire,
					     const uint8_t *payload, size_t len)
{
	static const struct pn_wire silent;
	const struct pn_address *own = &device_peer->address;
	struct pn_address rails[PN_RAILS_MAX] = { *own };
	bool hello = wire->kind == PN_WIRE_HELLO;
	struct pinion_peer *peer, *known;
	unsigned nrails = 1;

	if (hello && pn_wire_get_address(payload, len, rails, &nrails))
		return NULL;
	known = hello ? find_remote_session(ep, wire->tag) : NULL;
	if (known)
		replace_pending(known, device_peer);
	peer = find_session(ep, device_peer, hello ? wire : &silent);
	/* A HELLO for a session that exists, or that this side knows but has no
	 * connection for, is late: it starts nothing new. */
	if (!peer && hello &&
	    (wire->offset || known ||
	     !may_use_addresses(ep, own, rails, nrails)))
		pn_connection_refuse(device_peer);
	else if (!peer)
		peer = make_peer(ep, rails, nrails, false);
	return adopt(peer, device_peer);
}

/* Whatever still comes over this connection does not belong to the peer's
 * session. */
static void mark_wrong_session(struct pn_connection *conn)
{
	conn->wrong_session = true;
	conn->up = conn->hello_due = false;
	pn_connection_break(conn);
}

int pn_connection_hello(struct pn_connection *conn, const struct pn_wire *wire,
			const uint8_t *payload, size_t len)
{
	struct pinion_peer *peer = conn->peer;
	struct pn_address rails[PN_RAILS_MAX];
	unsigned nrails;

	if (pn_wire_get_address(payload, len, rails, &nrails) ||
	    !is_among(&conn->device_peer->address, rails, nrails))
		return -EPROTO;
	if (!is_same_session(peer, wire)) {
		if (conn->hello_received)
			return -EPROTO;
		mark_wrong_session(conn);
		return 0;
	}
	peer->remote_session = wire->tag;
	set_rails(peer, rails, nrails);
	conn->hello_received = true;
	/* The other end has to learn our name of the session, too. */
	conn->hello_due = peer->sequenced && !conn->hello_sent && !conn->down;
	update_up(conn);
	return 0;
}

bool pn_connection_accepts(struct pn_connection *conn)
{
	const struct pinion_peer *peer = conn->peer;

	if (peer->down || conn->wrong_session)
		return false;
	if (pn_unlikely(peer->sequenced && !conn->hello_received))
		mark_wrong_session(conn);
	return !conn->wrong_session;
}

void pn_connection_up(struct pn_connection *conn)
{
	if (!conn->peer->down)
		update_up(conn);
}

static void send_down(struct pn_connection *conn)
{
	struct pinion_peer *peer = conn->peer;
	struct pn_wire wire = { .version = PN_WIRE_VERSION,
				.kind = PN_WIRE_DOWN,
				.protocol = (uint8_t)pn_connection_local_rail(
					conn) };

	pn_packet_send(peer, &wire, NULL, 0, NULL);
}

static bool any_up(const struct pinion_peer *peer)
{
	for (unsigned r = 0; r < peer->ep->nrails; r++)
		if (peer->conns[r].up)
			return true;
	return false;
}

/* A peer whose session is not known may not be there yet: requests to it wait
 * as long as they like. */
static void update_deadline(struct pinion_peer *peer)
{
	struct pinion_endpoint *ep = peer->ep;

	if (!ep->rail_timeout_ns || !peer->remote_session ||
	    peer->rail_deadline_ns || any_up(peer))
		return;
	peer->rail_deadline_ns =
		pn_device_now(ep->device) + ep->rail_timeout_ns;
	pn_peer_add_pending(peer);
	/* They know of no deadline yet. */
	pn_endpoint_wake_waiting(ep);
	pn_progress_thread_resume(&ep->progress_entry);
}

bool pn_peer_check_deadline(struct pinion_peer *peer)
{
	if (pn_likely(!peer->rail_deadline_ns) ||
	    pn_device_now(peer->ep->device) < peer->rail_deadline_ns)
		return false;
	pn_warn("no connection to a peer has been up for %.3g s (option "
		"rail_timeout): its requests fail",
		(double)peer->ep->rail_timeout_ns / PN_NS_PER_S);
	pn_peer_fail(peer, -ECONNRESET);
	return true;
}

uint64_t pn_peers_deadline(const struct pinion_endpoint *ep)
{
	uint64_t first = PN_FOREVER;
	const struct pn_list *pos;

	pn_list_for_each (pos, &ep->pending_peers) {
		const struct pinion_peer *peer =
			pn_container_of(pos, struct pinion_peer, pending_link);

		if (peer->rail_deadline_ns && peer->rail_deadline_ns < first)
			first = peer->rail_deadline_ns;
	}
	return first;
}

void pn_connection_down(struct pn_connection *conn, int why)
{
	struct pinion_peer *peer = conn->peer;
	bool taken =
		peer->conn == conn; /* before attach_all() changes peer->conn */

	if (conn->down)
		return;
	conn->up = conn->hello_due = false;
	conn->down = why;
	if (peer->down)
		return;
	/* More connections may be possible than the peer has used so far. */
	if (!first_alive(peer) && !peer->single)
		attach_all(peer);
	if (!first_alive(peer)) {
		pn_peer_fail(peer, why);
		return;
	}
	pn_info("rail %u to a peer is down (%s); messages go on over others",
		conn->rail->index, strerror(-why));
	peer->ep->stats.rails_lost++;
	if (taken) {
		peer->conn = first_alive(peer);
		peer->resend = !pn_list_empty(&peer->unconfirmed);
	}
	pn_failover_connection_down(conn);
	/* Otherwise the peer may know a working connection by this number. */
	if (!conn->wrong_session)
		send_down(conn);
	pn_peer_add_pending(peer);
	update_deadline(peer);
}

void pn_connection_break(struct pn_connection *conn)
{
	if (!conn->down && pn_device_detach(conn->rail->device,
					    conn->device_peer) == -EOPNOTSUPP)
		pn_connection_down(conn, -ECONNRESET);
}

/* Connections that have heard no HELLO by now would wait for one from the next
 * endpoint there. Nothing of this session has come over them. */
void pn_connection_bye(struct pn_connection *conn)
{
	struct pinion_peer *peer = conn->peer;

	peer->closing = true;
	for (unsigned r = 0; peer->sequenced && r < peer->ep->nrails; r++)
		if (is_alive(&peer->conns[r]) && !peer->conns[r].hello_received)
			pn_connection_break(&peer->conns[r]);
}

void pn_connection_remote_down(struct pinion_peer *peer, unsigned number)
{
	struct pn_connection *conn = pn_connection_by_rail(peer, number);

	if (!conn)
		return;
	conn->down_received = true;
	pn_connection_break(conn);
	pn_failover_remote_down(conn);
	if (conn == &peer->conns[0])
		pn_onesided_remote_down(peer);
}

/* --- failure of a peer ---------------------------------------------------- */

static void drop_packets(struct pinion_peer *peer)
{
	struct pn_list *link;

	while ((link = pn_list_pop(&peer->packets))) {
		struct pn_queued_packet *p =
			pn_container_of(link, struct pn_queued_packet, link);

		if (p->request)
			p->request->npackets--;
		pn_pool_put(&peer->ep->packets.queued, p);
	}
	pn_list_remove(&peer->pending_link);
}

static void fail_posted(struct pinion_peer *peer, int why)
{
	struct pn_list *pos, *next;

	pn_list_for_each_safe (pos, next, &peer->ep->matching.posted.entries) {
		struct pinion_request *request =
			pn_container_of(pos, struct pinion_request, link);

		if (request->peer == peer)
			pn_request_end(request, why);
	}
}

/* Detaches: the other side learns of it, and nothing arrives any more. */
static void end_connection(struct pn_connection *conn)
{
	conn->up = conn->hello_due = false;
	if (is_alive(conn))
		pn_device_detach(conn->rail->device, conn->device_peer);
}

/* Unexpected messages stay. The bytes of eager ones are here. Receives that
 * match the others are to fail, and not to match messages that were sent later.
 */
void pn_peer_fail(struct pinion_peer *peer, int why)
{
	struct pn_list ending, *link;

	if (peer->down)
		return;
	peer->down = why;
	peer->rail_deadline_ns = 0;
	for (unsigned r = 0; r < peer->ep->nrails; r++)
		end_connection(&peer->conns[r]);
	drop_packets(peer);
	pn_retransmit_drop(peer);
	fail_posted(peer, why);
	/* The end of one request may end others (a flush) or begin them (a
	 * fence): take them one by one. */
	pn_list_init(&ending);
	pn_list_splice(&ending, &peer->requests);
	while ((link = pn_list_pop(&ending))) {
		pn_list_append(&peer->requests, link);
		pn_request_end(pn_container_of(link, struct pinion_request,
					       peer_link),
			       why);
	}
}

/* --- addresses ------------------------------------------------------------ */

void pn_endpoint_address(struct pinion_endpoint *ep, struct pinion_address *out)
{
	struct pn_address rails[PN_RAILS_MAX];

	for (unsigned r = 0; r < ep->nrails; r++)
		pn_device_address(ep->rails[r].device, &rails[r]);
	pn_wire_put_address(rails, ep->nrails, ep->either, out);
}

void pn_peer_address(const struct pinion_peer *peer, struct pinion_address *out)
{
	pn_wire_put_address(peer->rails, peer->nrails, peer->single, out);
}

int pn_endpoint_peer(struct pinion_endpoint *ep,
		     const struct pinion_address *address,
		     struct pinion_peer **out)
{
	struct pn_address rails[PN_RAILS_MAX];
	struct pinion_peer *peer;
	unsigned nrails;
	int ret = address->len > sizeof(address->data)
			  ? -EINVAL
			  : pn_wire_get_address(address->data, address->len,
						rails, &nrails);

	if (ret == -EPROTONOSUPPORT)
		pn_error("an address is of version %d of the wire format, not "
			 "%d: use one version of pinion everywhere",
			 address->data[0], PN_WIRE_VERSION);
	if (ret)
		return ret;
	pn_endpoint_lock(ep);
	peer = peer_of(ep, rails, nrails,
		       pn_wire_address_either(address->data));
	pn_endpoint_unlock(ep);
	if (!peer)
		return -ENOMEM;
	*out = peer;
	return 0;
}
