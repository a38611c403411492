/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * onesided -- put, get, atomics and conditional writes over a device and a
 * cache.
 *
 * The public story is pinion/onesided.h; this is how it is built.
 *
 * A walk through the files: exposure.c keeps what is exposed here and the keys
 * of what peers expose; path.c decides how a local buffer reaches the device;
 * bounce.c keeps bounce buffers; piece.c moves a request's bytes fragment by
 * fragment; onesided.c starts and ends requests and keeps their order; grant.c
 * brings conditional writes and grants together (tag_table.h finds them).
 *
 * A request (kinds below) moves in fragments: a fragment is cut, gets its path
 * (and its pin), is posted as far as the device's queue and the bounce buffers
 * go, stalls at its peer when they do not, and is dropped when the device has
 * completed all its operations. As many fragments as the pipeline is deep are
 * under conn at a time.
 *
 * What holds at rest: `next` bytes of a request are cut into fragments, `moved`
 * of them have arrived. A put, get, atomic or flush that has not ended is in
 * its peer's list `order`, oldest first; a flush ends when it is the first
 * there. nunposted counts the begun ones of which not everything is in the
 * device's queue; those behind a fence are begun when it is 0, so that the
 * device's own order and PN_OP_FENCE do the rest.
 *
 * Rails: one-sided operations go from the first rail to the peer's first. A
 * peer's order is the device's, and keys are of one device. Where no conn joins
 * these two, they are refused.
 *
 * Threads: under the endpoint's lock, like all of the message layer. In virtual
 * time other tasks may run in pins and copies: a request counts a fragment too
 * many (nfragments, inflight) meanwhile, so that it is not ended under the feet
 * of whoever works on it.
 */
#ifndef PN_MESSAGE_ONESIDED_H
#define PN_MESSAGE_ONESIDED_H

#include <pinion/onesided.h>

#include "base/list.h"
#include "cache/exposed_memory.h"
#include "device/device.h"
#include "message/connection/wire.h"
#include "message/matching/tag_table.h"
#include "message/onesided/path.h"
#include "message/rdma/rdma.h"

enum pn_request_kind {
	PN_REQUEST_MESSAGE, /* not of this file */
	PN_REQUEST_PUT,
	PN_REQUEST_GET,
	PN_REQUEST_ATOMIC,
	PN_REQUEST_FLUSH,
	PN_REQUEST_PUT_WHEN,
	PN_REQUEST_GRANT,
};

/* A registered buffer for bytes on their conn. */
struct pn_bounce_buffer {
	struct pn_list link; /* in the pool while free */
	uint8_t *data;
};

#define PN_BOUNCE_BUFFER_BYTES ((size_t)16 << 10)
#define PN_BOUNCE_CELL_BYTES   ((size_t)64) /* for atomics and the like */
#define PN_NBOUNCE_BUFFERS     16
#define PN_NBOUNCE_CELLS       64

struct pn_bounce_pool {
	struct pn_mr mr; /* addr NULL: not opened */
	struct pn_list free, free_cells;
	struct pn_bounce_buffer storage[PN_NBOUNCE_BUFFERS + PN_NBOUNCE_CELLS];
};

/* A fragment of a one-sided operation. rdma.lost: of a conditional write whose
 * connection failed. */
struct pn_onesided_fragment {
	struct pn_rdma_fragment rdma;
	enum pn_path path;
	bool pending; /* counted in the request's npending */
	struct pn_bounce_buffer *bounce_buffer; /* BOUNCED, while posted */
};

/* What a request has besides a message's fields. */
struct pn_onesided {
	struct pn_list order; /* in the peer's order */
	struct pn_list fragments;
	unsigned nfragments; /* in that list; and whoever adds to it */
	unsigned npending;   /* of these: not all posted */
	enum pn_path path;
	enum pn_op_kind op;
	bool advancing; /* somebody cuts fragments just now */
	bool unposted;	/* counted in the peer's nunposted */
	bool fence;	/* its first operation carries PN_OP_FENCE */
	bool held;	/* PUT_WHEN: in the endpoint's `held` */
	bool granted;	/* PUT_WHEN: the grant is here */
	bool notified;	/* PUT_WHEN: the write itself tells the target */
	struct pinion_remote *remote;	/* PUT, GET, ATOMIC: a reference */
	const struct pn_wire_key *keys; /* of the target */
	unsigned nkeys;
	uint64_t at; /* where in them */
	uint64_t operand, compare;
	uint32_t number; /* PUT_WHEN, GRANT: the immediate of the write */
};

struct pn_peer_onesided {
	struct pn_list order;  /* requests */
	struct pn_list fenced; /* requests behind a fence, by their link */
	unsigned nunposted;
	bool fence; /* stands before the next request */
	bool ending_flushes,
		beginning_fenced; /* somebody is at it, further up the stack */
};

struct pn_endpoint_onesided {
	struct pn_bounce_pool bounce_pool;
	struct pn_list fragments; /* free ones */
	struct pn_list exposures; /* here */
	struct pn_list remotes;
	struct pn_tag_table held;    /* PUT_WHENs without a grant, by link */
	struct pn_tag_table granted; /* claims: grants without a PUT_WHEN */
};

struct pinion_remote {
	struct pinion_peer *peer;
	struct pn_list link; /* in the endpoint's remotes */
	unsigned refs;	     /* the handle + requests */
	unsigned access;
	uint64_t len;
	unsigned nkeys;
	struct pn_wire_key keys[];
};

struct pinion_endpoint;
struct pinion_peer;
struct pinion_request;

/* Arguments of these are checked by the public calls. */
int pn_endpoint_expose(struct pinion_endpoint *ep, void *addr, size_t len,
		       unsigned access, struct pinion_exposure **out);
void pn_exposure_key(const struct pinion_exposure *exposure,
		     struct pinion_exposure_key *out);
struct pinion_endpoint *pn_exposure_endpoint(
	const struct pinion_exposure *exposure);
void pn_endpoint_unexpose(struct pinion_exposure *exposure);
int pn_endpoint_remote(struct pinion_endpoint *ep, struct pinion_peer *peer,
		       const struct pinion_exposure_key *key,
		       struct pinion_remote **out);
void pn_endpoint_remote_close(struct pinion_remote *remote);
int pn_endpoint_access(struct pinion_endpoint *ep, enum pn_request_kind kind,
		       const struct pinion_move *move,
		       struct pinion_request **out);
int pn_endpoint_atomic(struct pinion_endpoint *ep, enum pn_op_kind op,
		       const struct pinion_atomic *atomic,
		       struct pinion_request **out);
int pn_endpoint_flush(struct pinion_endpoint *ep, struct pinion_peer *peer,
		      void *user, struct pinion_request **out);
int pn_endpoint_fence(struct pinion_endpoint *ep, struct pinion_peer *peer);
int pn_endpoint_put_when(struct pinion_endpoint *ep,
			 const struct pinion_message *message,
			 struct pinion_request **out);
int pn_endpoint_grant(struct pinion_endpoint *ep,
		      const struct pinion_message *message,
		      struct pinion_request **out);

/* Hooks of the message layer. */
void pn_onesided_init(struct pinion_endpoint *ep);
/* After operations have ended or were given up. Leaves fragments, for
 * pn_onesided_free_fragments(). */
void pn_onesided_fini(struct pinion_endpoint *ep);
void pn_onesided_init_peer(struct pinion_peer *peer);
void pn_onesided_init_request(struct pinion_request *request);
/* The peer has said DOWN of the first conn. */
void pn_onesided_remote_down(struct pinion_peer *peer);
/* A request of this file has ended. */
void pn_onesided_ended(struct pinion_request *request);
void pn_onesided_cancel(struct pinion_request *request);
/* Whether a packet is about a request of this file; if so, what it means:
 * -EPROTO: it makes no sense. */
bool pn_onesided_concerns(struct pinion_peer *peer, const struct pn_wire *wire);
int pn_onesided_packet(struct pinion_peer *peer, const struct pn_wire *wire,
		       const uint8_t *payload, size_t len);
/* A peer's write with an immediate arrived. */
void pn_onesided_written(struct pinion_request *request, uint32_t number,
			 size_t len);

/* Frees all fragments when the endpoint is freed. */
void pn_onesided_free_fragments(struct pinion_endpoint *ep);
/* A conditional write has failed: the granter is told. */
void pn_grant_send_fail(struct pinion_request *request);

#endif
