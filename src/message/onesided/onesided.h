/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * onesided -- put, get, atomics and conditional writes over a device and a
 * cache.
 *
 * The public story is pinion/onesided.h; this is how it is built.
 *
 * Files: onesided.c starts and ends requests and keeps their order; fragment.c
 * cuts a request into fragments, which rdma.h posts; path.c decides how a local
 * buffer reaches the device; bounce.c keeps bounce buffers; exposure.c keeps
 * exposed memory and the keys of memory that peers expose; grant.c brings
 * conditional writes and grants together (tag_table.h finds them).
 *
 * Life of a request (kinds below): started -> behind a fence it waits -> cut
 * into fragments, as many at a time as the pipeline is deep; each is pinned, or
 * goes through a bounce buffer, and is dropped when its operations have
 * completed -> ends when all bytes have moved.
 *
 * At rest: `next` bytes of a request are cut into fragments, `moved` bytes of
 * these have completed. A put, get, atomic or flush that has not ended is in
 * `order` of its peer, oldest first; a flush ends when it is the first there.
 * `nunposted` counts requests that have begun and are not all in the device's
 * queue. A request behind a fence begins when that count is 0: the order of the
 * device and PN_OP_FENCE do the rest.
 *
 * Rails: one-sided operations go from the first rail to the peer's first rail,
 * since the order is the device's, and keys belong to one device. Where no
 * connection joins these two, operations are refused.
 *
 * Threads: under the endpoint's lock. In virtual time other tasks run while
 * memory is pinned or copied: whoever works on a request counts as one of its
 * fragments (nfragments, inflight), so that the request does not end meanwhile.
 */
#ifndef PN_MESSAGE_ONESIDED_H
#define PN_MESSAGE_ONESIDED_H

#include <pinion/onesided.h>

#include "base/list.h"
#include "cache/exposed_memory.h"
#include "device/device.h"
#include "message/connection/wire.h"
#include "message/endpoint/pool.h"
#include "message/matching/tag_table.h"
#include "message/onesided/path.h"
#include "message/rdma/rdma.h"

enum pn_request_kind {
	PN_REQUEST_MESSAGE, /* two-sided */
	PN_REQUEST_PUT,
	PN_REQUEST_GET,
	PN_REQUEST_ATOMIC,
	PN_REQUEST_FLUSH,
	PN_REQUEST_PUT_WHEN,
	PN_REQUEST_GRANT,
};

/* A registered buffer that bytes are copied through. */
struct pn_bounce_buffer {
	struct pn_list link; /* in the pool while free */
	uint8_t *data;
};

#define PN_BOUNCE_BUFFER_BYTES ((size_t)16 << 10)
#define PN_BOUNCE_CELL_BYTES   ((size_t)64) /* for atomics and the like */
#define PN_NBOUNCE_BUFFERS     16
#define PN_NBOUNCE_CELLS       64

struct pn_bounce_pool {
	struct pn_pool_memory
		memory; /* of the first rail; opened when needed */
	struct pn_pool buffers, cells; /* struct pn_bounce_buffer */
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
	unsigned nfragments; /* in that list, and who adds to it */
	unsigned npending;   /* of these, not all posted */
	enum pn_path path;
	enum pn_op_kind op;
	bool advancing; /* fragments are being cut */
	bool unposted;	/* counted in the peer's nunposted */
	bool fence;	/* its first operation carries PN_OP_FENCE */
	bool held;	/* PUT_WHEN: in the endpoint's `held` */
	bool granted;	/* PUT_WHEN: the grant has arrived */
	bool notified;	/* PUT_WHEN: the write notifies the target itself */
	struct pinion_remote *remote;	/* PUT, GET, ATOMIC: a reference */
	const struct pn_wire_key *keys; /* of the target */
	unsigned nkeys;
	uint64_t at; /* offset in the target */
	uint64_t operand, compare;
	uint32_t number; /* PUT_WHEN, GRANT: the immediate of the write */
};

struct pn_peer_onesided {
	struct pn_list order;  /* requests */
	struct pn_list fenced; /* requests behind a fence, by their link */
	unsigned nunposted;
	bool fence; /* the next request begins with a fence */
	/* Set while onesided.c ends flushes, or begins fenced requests: these
	 * functions are not entered again. */
	bool ending_flushes, beginning_fenced;
};

struct pn_endpoint_onesided {
	struct pn_bounce_pool bounce_pool;
	struct pn_pool fragments;    /* struct pn_onesided_fragment */
	struct pn_list exposures;    /* of this endpoint */
	struct pn_list remotes;	     /* of peers */
	struct pn_tag_table held;    /* PUT_WHENs without a grant, by link */
	struct pn_tag_table granted; /* grants without a PUT_WHEN */
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

/* The public calls have checked the arguments. */
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

void pn_onesided_init(struct pinion_endpoint *ep);
/* When operations have ended or were abandoned. The fragments' storage stays,
 * for pn_onesided_free_fragments(). */
void pn_onesided_fini(struct pinion_endpoint *ep);
void pn_onesided_init_peer(struct pinion_peer *peer);
void pn_onesided_init_request(struct pinion_request *request);
/* The peer has sent DOWN for the first connection. */
void pn_onesided_remote_down(struct pinion_peer *peer);
/* A one-sided request has ended. */
void pn_onesided_ended(struct pinion_request *request);
void pn_onesided_cancel(struct pinion_request *request);
/* Whether a packet is for a one-sided request. The second acts on such a
 * packet; -EPROTO: it makes no sense. */
bool pn_onesided_concerns(struct pinion_peer *peer, const struct pn_wire *wire);
int pn_onesided_packet(struct pinion_peer *peer, const struct pn_wire *wire,
		       const uint8_t *payload, size_t len);
/* A peer's write with an immediate arrived. */
void pn_grant_immediate(struct pinion_request *request, uint32_t number,
			size_t len);

/* Frees all fragments when the endpoint is freed. */
void pn_onesided_free_fragments(struct pinion_endpoint *ep);
/* Sends FAIL for a conditional write that has failed. */
void pn_grant_send_fail(struct pinion_request *request);

#endif
