/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * transfer -- moves the bytes of a message, fragment by fragment: what the rest
 * of the message layer calls. transfer_impl.h tells how transfers work.
 *
 * A fragment belongs to its request and is freed in pn_fragment_free(), the
 * only place.
 *
 * Threads: under the endpoint's lock. In virtual time other tasks run while a
 * fragment is pinned or unpinned, and the request may end meanwhile.
 */
#ifndef PN_MESSAGE_TRANSFER_H
#define PN_MESSAGE_TRANSFER_H

#include <pinion/cache.h>

#include "base/list.h"
#include "message/connection/wire.h"
#include "message/protocol/load.h"
#include "message/protocol/protocol.h"
#include "message/rdma/rdma.h"
#include "message/twosided/direct.h"

struct pinion_endpoint;
struct pinion_peer;
struct pinion_request;
struct pn_choice;
struct pn_connection;
struct pn_rail;

enum pn_fragment_kind {
	PN_FRAGMENT_DATA,   /* sender: goes by DATA packets */
	PN_FRAGMENT_WRITE,  /* sender: goes by RDMA writes */
	PN_FRAGMENT_TARGET, /* receiver: waits for FIN or DATA */
	PN_FRAGMENT_READ,   /* receiver: comes by RDMA reads */
};

/* A fragment of a long message that is being transferred. Of a WRITE,
 * rdma.lost says that its connection went down: the fragment waits until the
 * receiver announces it again, or says that all has arrived. */
struct pn_fragment {
	struct pn_rdma_fragment rdma;
	enum pn_fragment_kind kind;
	size_t arrived;	 /* TARGET: bytes that came by DATA */
	uint32_t number; /* immediate of its last write */
	bool expected;	 /* counted in rail->expected */
	/* TARGET: was announced before. WRITE: was announced again on
	 * next_conn; restarts there when the operations in flight have failed.
	 */
	bool again;
	struct pn_connection *next_conn;
	unsigned nkeys;
	struct pn_wire_key keys[PN_WIRE_MAX_KEYS]; /* of the other side */
};

/* The transfer of a request's message. */
struct pn_transfer {
	/* Allocated when first needed; stay with the request when it is used
	 * again. */
	struct pn_wire_key *keys;   /* of the source, or of a granted buffer */
	struct pinion_pin *sources; /* read: pins of the source, by rail */
	unsigned nkeys;
	uint64_t key_rails; /* as in the MATCH */
	struct pn_shape shape;
	struct pn_list fragments;
	unsigned nfragments;
	/* Receiver. */
	size_t next;		   /* where the next fragment begins */
	size_t data_due;	   /* bytes before it, still to come by DATA */
	struct pn_rail *data_rail; /* over this rail; NULL: there is one */
	uint64_t ready_ns; /* when what was announced will be registered */
	double plan_ns[PN_RAILS_MAX]; /* time planned for each rail */

	bool in_flight;	   /* counted in the endpoint's load */
	uint64_t began_ns; /* time of the match; sender: of the call, if the
			      selector was asked */
	/* Sender. */
	bool source_pinned;	  /* `source` is pinned as a whole */
	struct pinion_pin source; /* early protocols; a granted buffer */
	unsigned exposed; /* read: bits of rails with a pin in sources */
};

/* What an endpoint has for transfers. */
struct pn_endpoint_transfers {
	struct pn_pool fragments; /* struct pn_fragment */
	struct pn_direct_pool direct_pool;
	struct pn_load load;			 /* long messages in flight */
	uint64_t last_sent_ns, last_received_ns; /* when the last one ended */
};

/* Sends the message of a request as chosen. */
int pn_transfer_send(struct pinion_request *request,
		     const struct pn_choice *choice);

/* A receive was matched with a message. */
void pn_transfer_receive(struct pinion_request *request,
			 struct pinion_peer *peer, const struct pn_wire *wire,
			 const uint8_t *payload, size_t len);

/* A request's message begins to be in flight (load.h), or has ended. */
void pn_transfer_begin(struct pinion_request *request);
void pn_transfer_end(struct pinion_request *request);

/* Acts on a packet for a transfer. -EPROTO: it makes no sense. */
int pn_transfer_packet(struct pinion_peer *peer, const struct pn_wire *wire,
		       const uint8_t *payload, size_t len);

/* A peer's write with an immediate arrived. */
void pn_receiver_immediate(struct pinion_peer *peer, uint32_t number);

/* Sends FAIL for a request that has failed here. */
void pn_transfer_send_fail(struct pinion_request *request);

/* Sends GOT to a peer's request that asked for it; acts on a GOT. */
void pn_transfer_send_got(struct pinion_peer *peer, uint32_t request);
int pn_transfer_on_got(struct pinion_peer *peer, const struct pn_wire *wire);

/* read: unpins the source on all rails. */
void pn_transfer_unpin_source(struct pinion_request *request);

/* failover.c: a connection went down: reroutes its fragments. Later the peer
 * sends DOWN: the fragments that it has not announced again have arrived. */
void pn_failover_connection_down(struct pn_connection *conn);
void pn_failover_remote_down(struct pn_connection *conn);

#endif
