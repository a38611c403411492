/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * connection -- rails, peers, and the connections between them.
 *
 * Nouns
 *   rail        one device of an endpoint, with the cache that registers for
 *               it.
 *   peer        the endpoint that an address names: `struct pinion_peer`, the
 *               handle that programs hold.
 *   connection  the link to a peer over one rail (UCX: a lane). The device's
 *               own object for it is a `struct pn_peer`, whose `user` points
 *               back to the connection.
 *   session     one life of a pair of endpoints. An endpoint that is closed and
 *               opened again has the same address and starts a new session.
 *
 * Life of a connection: attached when the peer is first sent to, or bound when
 * the peer attaches first -> up, after an exchange of HELLO if both endpoints
 * have several rails -> down, when the device says PEER_DOWN. If other
 * connections of the peer are alive, its packets and fragments move to them
 * (retransmit.c, failover.c). The peer fails with its last connection, or when
 * none has been up for the time `rail_timeout`. close.c ends connections in
 * order.
 *
 * At rest: peer->conn is alive if any connection of the peer is. A peer with
 * something to post, or with a deadline, is in ep->pending_peers.
 *
 * Threads: under the endpoint's lock, except next_send, which
 * pinion_peer_prefetch() reads without it.
 */
#ifndef PN_MESSAGE_CONNECTION_H
#define PN_MESSAGE_CONNECTION_H

#include <stdatomic.h>

#include "base/compiler.h"
#include "base/list.h"
#include "cache/cache.h"
#include "device/device.h"
#include "message/connection/allowance.h"
#include "message/connection/wire.h"
#include "message/endpoint/operation.h"
#include "message/onesided/onesided.h"
#include "message/rdma/rdma.h"

struct pinion_endpoint;

struct pn_rail {
	struct pn_device *device;
	struct pn_cache *cache;
	unsigned index; /* in ep->rails */
	/* Bytes that are on their way to this side (rail.c). */
	double byte_ns;		  /* estimated */
	size_t expected;	  /* bytes announced that have not arrived */
	uint64_t free_ns;	  /* estimated time of their arrival */
	uint64_t last_arrival_ns; /* if more bytes were expected then; else 0 */
	uint64_t measured_bytes, measured_ns; /* for the next estimate */
};

/* How far the closing of a connection is (close.c). */
enum pn_close_state {
	PN_CLOSE_NONE,
	PN_CLOSE_PENDING, /* BYE is to be sent */
	PN_CLOSE_BYE_SENT,
	PN_CLOSE_DETACHED, /* PEER_DOWN follows */
};

struct pn_connection {
	struct pinion_peer *peer;
	struct pn_rail *rail;
	struct pn_peer *device_peer; /* NULL: not attached yet */
	unsigned remote_rail;	     /* index of the rail at the other end */
	bool up;		     /* operations can be posted */
	bool hello_due;		     /* HELLO is to be sent first */
	bool hello_sent;
	bool hello_received; /* with a matching session */
	bool wrong_session;  /* the other end means another session */
	bool down_received;  /* the peer has sent DOWN for it */
	int down;	     /* 0, or why the connection is down */
	enum pn_close_state close_state;
	struct pn_operation_context bye;
	/* Fragments that wait for its queue (rdma.h). */
	struct pn_list stalled[PN_RDMA_NUSERS];
};

#define PN_TIMINGS 128 /* a power of two: of a window of messages */

struct pinion_peer {
	/* Where the device writes the next short message. First, since
	 * pinion_peer_prefetch() reads nothing else. */
	_Atomic(const char *) next_send;
	struct pinion_endpoint *ep;
	struct pn_connection *conn;		  /* that packets take */
	struct pn_connection conns[PN_RAILS_MAX]; /* by rail of this endpoint */
	struct pn_address rails[PN_RAILS_MAX];	  /* of the peer's devices */
	unsigned nrails;
	/* The two ends' names of the session; remote_session comes by HELLO, 0:
	 * not known yet. */
	uint64_t session, remote_session;
	bool connected; /* every connection that is possible is attached */
	bool closing;	/* the peer has sent BYE: its endpoint closes */
	bool single;	/* one of the two ends uses one rail per peer */
	/* Both ends have several rails and use them: packets are numbered. */
	bool sequenced;
	bool unreachable_logged;
	struct pn_allowance allowance;
	int down; /* 0, or why the peer has failed */
	/* No connection is up any more. If none comes up by then, the peer
	 * fails; 0: not so. */
	uint64_t rail_deadline_ns;

	/* Packets that wait (packet.c, retransmit.c). */
	struct pn_list packets;	    /* for the device's queue, in order */
	struct pn_list unconfirmed; /* sent, not known to have arrived */
	bool resend;		    /* some of these are to be posted again */
	uint32_t next_sequence, expected_sequence;
	struct pn_list out_of_order; /* received before their turn */
	unsigned nout_of_order;

	struct pn_list link;	     /* in ep->peers */
	struct pn_list pending_link; /* in ep->pending_peers */
	struct pn_list requests;     /* by peer_link */
	struct pn_peer_onesided onesided;

	/* Times that messages took to arrive, to be reported to the peer, the
	 * oldest first (timing.c). */
	uint64_t timings[PN_TIMINGS];
	unsigned ntimings, ntaken; /* ever recorded; of these, taken or lost */
	uint32_t trace_number;	   /* 0: none yet */
};

/* Prefetches the cache lines that a message of len bytes will be written to. */
static inline void pn_peer_prefetch(const struct pinion_peer *peer, size_t len)
{
	const char *line =
		atomic_load_explicit(&peer->next_send, memory_order_relaxed);
	const char *end;

	if (!line)
		return;
	/* 48 bytes stand before a message; long ones are not urgent. */
	end = line + 48 + (len < 512 ? len : 512);
	for (; line < end; line += PN_CACHELINE)
		pn_prefetch_write(line);
}

/* Counts a MATCH that is about to be sent (allowance.h), as
 * pn_allowance_extend().
 */
static inline bool pn_allowance_take(struct pinion_peer *peer, size_t bytes,
				     int32_t *status)
{
	if (pn_unlikely(peer->allowance.left < bytes))
		return pn_allowance_extend(peer, bytes, status);
	peer->allowance.left -= bytes;
	return true;
}

/* Whether the answer to a question is of use for a message of len bytes. */
static inline bool pn_allowance_waits(const struct pinion_peer *peer,
				      size_t len)
{
	return peer->allowance.asking &&
	       peer->allowance.left < len + PN_ALLOWANCE_OVERHEAD;
}

/* --- connections ---------------------------------------------------------- */

/* The connection of a device's peer. NULL: not known yet, or no memory. */
struct pn_connection *pn_connection_find(struct pinion_endpoint *ep,
					 struct pn_peer *device_peer);
static inline struct pn_connection *pn_connection_of(
	struct pinion_endpoint *ep, struct pn_peer *device_peer)
{
	return pn_likely(device_peer->user)
		       ? device_peer->user
		       : pn_connection_find(ep, device_peer);
}

/* The connection of a device's peer whose first packet this is. NULL: it
 * belongs to no session of this endpoint, or no memory. */
struct pn_connection *pn_connection_identify(struct pinion_endpoint *ep,
					     struct pn_peer *device_peer,
					     const struct pn_wire *wire,
					     const uint8_t *payload,
					     size_t len);

/* Acts on a HELLO. -EPROTO: it contradicts an earlier one. */
int pn_connection_hello(struct pn_connection *conn, const struct pn_wire *wire,
			const uint8_t *payload, size_t len);

/* Whether a packet other than HELLO belongs to the peer's session. A packet
 * that comes before the HELLO does not, and this breaks the connection. */
bool pn_connection_accepts(struct pn_connection *conn);

/* The device says PEER_UP, or PEER_DOWN. */
void pn_connection_up(struct pn_connection *conn);
void pn_connection_down(struct pn_connection *conn, int why);

/* A BYE has come over it. PEER_DOWN follows. */
void pn_connection_bye(struct pn_connection *conn);

/* Sends HELLO if it is due; true: it was sent. */
bool pn_connection_send_hello(struct pn_connection *conn);

/* Whether the peer has, or may get, another connection that is alive. */
bool pn_connection_has_alternative(const struct pn_connection *conn);

/* The connection to a peer's rail, as packets number it; or NULL. */
struct pn_connection *pn_connection_by_rail(struct pinion_peer *peer,
					    unsigned number);

/* How packets number the rail at this end and at the other end. */
static inline unsigned pn_connection_local_rail(
	const struct pn_connection *conn)
{
	return conn->peer->sequenced ? conn->rail->index : 0;
}
static inline unsigned pn_connection_remote_rail(
	const struct pn_connection *conn)
{
	return conn->peer->sequenced ? conn->remote_rail : 0;
}

/* The connection does not work as it should: takes it down. */
void pn_connection_break(struct pn_connection *conn);

/* Acts on a DOWN packet. */
void pn_connection_remote_down(struct pinion_peer *peer, unsigned number);

/* Whether it leads back to its own device. */
bool pn_connection_is_loopback(const struct pn_connection *conn);

/* close.c: detaches a device's peer that belongs to no connection; whatever
 * still comes from it is ignored. */
void pn_connection_refuse(struct pn_peer *device_peer);

/* --- peers ---------------------------------------------------------------- */

/* Attaches the peer's connections that are not attached. Errors: why the peer
 * is down, or cannot be reached. */
int pn_peer_connect(struct pinion_peer *peer);

/* The peer is gone or broke the protocol: ends its connections and all its
 * requests. */
void pn_peer_fail(struct pinion_peer *peer, int why);

/* Fails a peer whose deadline has passed; true: it did. */
bool pn_peer_check_deadline(struct pinion_peer *peer);

/* Posts what waits: HELLO, packets, fragments, one-sided operations. True when
 * something was posted. */
bool pn_peer_progress(struct pinion_peer *peer);

/* The peer has something to post: pn_endpoint_progress() will call
 * pn_peer_progress(). */
void pn_peer_add_pending(struct pinion_peer *peer);

/* When the endpoint has to make progress even if no device has an event: the
 * earliest deadline of a peer, or PN_FOREVER. */
uint64_t pn_peers_deadline(const struct pinion_endpoint *ep);

#endif
