/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * onesided -- libfabric's RMA and atomics, carried by messages.
 *
 * libfabric's keys have 64 bits and belong to a domain with any number of
 * endpoints. pinion_exposure_open() returns a key blob of one endpoint instead.
 * So the initiator sends an RMA request to the target, and the target's
 * progress executes it. The data travels in messages, directly between the two
 * buffers: long ones are registered by the cache, short ones are copied.
 * Registering a region here registers nothing. All atomics are executed by the
 * target, so every atomic is atomic with respect to all others.
 * Long reads and writes of a region that is used more than once are executed
 * by the device: the initiator asks the target for the region's exposure.
 *
 * Nouns
 *   request    what travels to the target: kind, key, address, length, and a
 *              number that is the tag of the data and of the response.
 *   transmit buffer  holds a request and its payload while they are sent.
 *   args       struct pn_fi_rma_args: the arguments of a call of libfabric.
 *   responder  a receive that waits for requests and executes one at a time.
 *              An endpoint has PN_FI_MIN_RESPONDERS, and more while all are
 *              busy.
 *   region     struct pn_fi_mr: memory with a key.
 *   exposure   struct pn_fi_exposure: a region that peers of one endpoint reach
 *              by its device.
 *   peer region  a region of a peer as the initiator knows it: how many bytes
 *              were moved by requests, and the exposure's key once it has it.
 *
 * Life of an operation: the initiator posts the receive of the response
 * (PN_FI_SPACE_RMA_RESPONSE), sends data that does not fit into the transmit
 * buffer as a message of PN_FI_SPACE_RMA_DATA, then the request. The response
 * is the bytes of a read or the old values of an atomic, and a status in the
 * data of the message. The
 * operation completes with the response, so completion means that the target
 * has executed it: FI_DELIVERY_COMPLETE, whatever was asked for. If the peer
 * dies, that receive fails.
 * Life of a responder: posted -> a request arrives -> its long data is received
 * -> the response is sent -> posted again.
 *
 * Life of an exposure (exposure.c, peer_region.c): after some bytes, the
 * initiator sends a request PN_FI_EXPOSE. The target exposes the region for the
 * endpoint that received it, and responds with struct pn_fi_region_key; or it
 * refuses, and the initiator asks again when it has moved twice as many bytes.
 * The exposure ends with the region, with the endpoint, when the program
 * releases the memory, and when a counter is bound that has to count what peers
 * do. The device then refuses the key. The operation is repeated as a request,
 * and the initiator forgets the key: the region that has the number now may be
 * another one, or none.
 *
 * Order: requests of a peer are executed in the order they were sent, but data
 * of long ones arrives later: order is promised up to PN_FI_PAYLOAD_BYTES. With
 * FI_ORDER_SAW, sends wait for long writes, with FI_ORDER_SAR for long reads.
 * Where an order is asked for, the device executes only longer operations, and
 * none with an order behind sends.
 * Segments: a request has up to PN_FI_IOV_LIMIT segments of target memory. Long
 * data of several segments goes through a copy on either side.
 * At rest: an op of this file has `pending` requests of pinion in flight.
 * Threads: under the domain's lock. Endpoints without FI_RMA and FI_ATOMIC have
 * no responders and no cost.
 * Errors: an operation that the target refuses completes with the target's
 * errno. FI_EACCES: the key is unknown or does not allow it, the range is not
 * inside the region, or memory of the region was released.
 * Trust: requests are parsed as untrusted input.
 */
#ifndef PN_PROVIDER_ONESIDED_H
#define PN_PROVIDER_ONESIDED_H

#include <rdma/fi_atomic.h>
#include <rdma/fi_rma.h>

#include "monitor/watched_range.h"
#include "provider/provider.h"

#define PN_FI_RMA_REQUEST_VERSION 3
#define PN_FI_PAYLOAD_BYTES	  2048
#define PN_FI_ATOMIC_BYTES	  (PN_FI_PAYLOAD_BYTES / 2)
#define PN_FI_MIN_RESPONDERS	  16

enum pn_fi_rma_kind {
	PN_FI_WRITE = 1,
	PN_FI_READ,
	PN_FI_UPDATE,  /* an atomic without a result */
	PN_FI_FETCH,   /* an atomic that returns the old values */
	PN_FI_COMPARE, /* the same, with values to compare with */
	/* Asks for the key of a region. `data`: bytes moved by requests. */
	PN_FI_EXPOSE,
};

static inline bool pn_fi_is_atomic(enum pn_fi_rma_kind kind)
{
	return kind >= PN_FI_UPDATE && kind <= PN_FI_COMPARE;
}

/* Flags of a request: the target's CQ gets an entry; the data is sent as a
 * message of its own. */
#define PN_FI_REMOTE_CQ_DATA UINT16_C(1)
#define PN_FI_DATA_FOLLOWS   UINT16_C(2)

/* Little-endian, as everything of pinion. The payload follows: the bytes of a
 * write; the operands of an atomic (none for FI_ATOMIC_READ), then the values
 * to compare with. */
struct pn_fi_rma_request {
	uint8_t version;
	uint8_t kind;
	uint8_t op;   /* enum fi_op */
	uint8_t type; /* enum fi_datatype */
	uint16_t flags;
	uint16_t nsegments; /* of target memory; 0: none, for CQ data alone */
	uint64_t number;
	uint64_t key;  /* of the only segment */
	uint64_t addr; /* of the only segment */
	uint64_t len;  /* bytes of target memory */
	uint64_t data;
};

/* Several segments stand between the request and its payload. */
struct pn_fi_rma_segment {
	uint64_t addr, len, key;
};

#define PN_FI_SEGMENTS_BYTES \
	(PN_FI_IOV_LIMIT * sizeof(struct pn_fi_rma_segment))

/* rma_request.c: the bytes of payload, and of segments, of a valid request. */
size_t pn_fi_rma_request_payload(const struct pn_fi_rma_request *request);
static inline size_t pn_fi_rma_request_segments(
	const struct pn_fi_rma_request *request)
{
	return request->nsegments > 1
		       ? request->nsegments * sizeof(struct pn_fi_rma_segment)
		       : 0;
}
/* Parses a message; data need not be aligned. -EPROTONOSUPPORT: another
 * version; -EPROTO: invalid. On error, *out has the number of the request if
 * the message had a complete header. */
int pn_fi_rma_request_parse(const void *data, size_t len,
			    struct pn_fi_rma_request *out,
			    const uint8_t **payload);
/* The response to PN_FI_EXPOSE. The message ends with the bytes in use of
 * `exposure`. */
struct pn_fi_region_key {
	uint64_t base; /* the address of the first byte, as in requests */
	uint64_t len;
	struct pinion_exposure_key exposure;
};

static inline size_t pn_fi_region_key_bytes(const struct pn_fi_region_key *key)
{
	return offsetof(struct pn_fi_region_key, exposure.data) +
	       key->exposure.len;
}
/* Checks a response of `len` bytes; pinion_remote_open() checks the exposure's
 * key. */
bool pn_fi_region_key_valid(const struct pn_fi_region_key *key, size_t len);

/* Segment i of a parsed request. */
struct pn_fi_rma_segment pn_fi_rma_request_segment(
	const struct pn_fi_rma_request *request, const uint8_t *payload,
	unsigned i);

/* atomic_compute.c */
size_t pn_fi_datatype_bytes(unsigned type); /* 0: no such type */
/* Whether a kind of request supports the operation on the type. */
bool pn_fi_atomic_valid(enum pn_fi_rma_kind kind, unsigned type, unsigned op);
/* Runs an atomic operation on each value at `at`. `before`, `operand` and
 * `compare` are NULL if the operation has none. Any thread. */
struct pn_fi_atomic_args {
	enum fi_datatype type;
	enum fi_op op;
	void *at;
	size_t bytes;
	const uint8_t *operand, *compare;
	uint8_t *before;
};
void pn_fi_atomic_run(const struct pn_fi_atomic_args *r);

/* --- the target ----------------------------------------------------------- */

struct pn_fi_mr {
	struct fid_mr fid;
	struct pn_fi_domain *domain;
	struct pn_list link; /* in its bucket of domain->mrs */
	uint8_t *base;
	size_t len;
	uint64_t access;
	struct pn_fi_counter *counter; /* of remote writes; or NULL */
	unsigned users;		       /* responders that access it */
	/* With remote access: knows whether the memory was released. */
	struct pn_watched_range *range;
	bool closing;		  /* no responder may start to use it */
	struct pn_list exposures; /* one for each endpoint */
};

/* Both under the lock. Also finds a region that is closing. */
struct pn_fi_mr *pn_fi_mr_find(struct pn_fi_domain *domain, uint64_t key);
/* The memory of [addr, addr + len); NULL: not inside, not allowed, or released
 * by the program. */
uint8_t *pn_fi_mr_at(const struct pn_fi_mr *mr, uint64_t addr, uint64_t len,
		     uint64_t access);
/* The address of its first byte in requests. */
static inline uint64_t pn_fi_mr_base(const struct pn_fi_mr *mr)
{
	return mr->domain->virtual_addresses ? (uintptr_t)mr->base : 0;
}
int pn_fi_mrs_init(struct pn_fi_domain *domain);
void pn_fi_mrs_fini(struct pn_fi_domain *domain);
extern struct fi_ops_mr pn_fi_mr_ops;

/* responder.c: starts to accept requests; -FI_ENOMEM, and may be called again.
 * Close of an endpoint: first, under the lock, unreserves entries in CQs; then,
 * when pinion's endpoint is closed, frees the responders. */
int pn_fi_responders_open(struct pn_fi_ep *ep);
/* Has progress try again. */
void pn_fi_lack_memory(struct pn_fi_ep *ep);
void pn_fi_responders_abandon(struct pn_fi_ep *ep);
void pn_fi_responders_free(struct pn_fi_ep *ep);

/* exposure.c: all under the lock. Whether the endpoint exposes regions: the
 * device must pin them. */
bool pn_fi_exposes(const struct pn_fi_ep *ep);
/* Fills *out with the key of a region, which it exposes if necessary. May sleep
 * in the device. -FI_EACCES: no such region, or its memory was released;
 * -FI_EAGAIN: too few bytes were `moved` so far; -FI_EOPNOTSUPP: the target has
 * to see each operation, or would not see that memory is released; -FI_ENOBUFS,
 * and others of pinion_exposure_open(). */
int pn_fi_expose(struct pn_fi_ep *ep, uint64_t key, uint64_t moved,
		 struct pn_fi_region_key *out);
void pn_fi_unexpose_mr(struct pn_fi_mr *mr);
void pn_fi_unexpose_ep(struct pn_fi_ep *ep);

/* --- the initiator -------------------------------------------------------- */

struct pn_fi_segments {
	const struct iovec *iov;
	size_t count;
};

struct pn_fi_rma_args {
	enum pn_fi_rma_kind kind;
	enum fi_datatype type;
	enum fi_op op;
	const void *buf; /* data of a write, or operands */
	const void *compare;
	void *result; /* destination of a read, or of old values */
	size_t len;   /* bytes */
	/* Lists of segments take the place of buf, compare and result; and of
	 * addr and key. Count 0: there is none. */
	struct pn_fi_segments buf_list, compare_list, result_list;
	const struct fi_rma_iov *target_list;
	size_t ntargets;
	bool no_target; /* CQ data alone */
	fi_addr_t peer;
	uint64_t addr, key, data;
	void *context;
	uint64_t flags;	     /* of the operation */
	bool never_signaled; /* inject: success writes no entry */
};

/* initiator.c: posts an operation; returns what fi_write() returns. */
ssize_t pn_fi_rma_post(struct fid_ep *fid, const struct pn_fi_rma_args *args);
void pn_fi_rma_tx_bufs_free(struct pn_fi_ep *ep);
/* Sends a request without an op; *number is that of its response. */
int pn_fi_rma_ask(struct pn_fi_ep *ep, const struct pn_fi_rma_args *args,
		  struct pinion_peer *peer, uint64_t *number);
/* The device has ended an operation, or has failed: it is sent as a request. */
void pn_fi_rma_ended(struct pn_fi_op *op);
void pn_fi_rma_repeat(struct pn_fi_op *op);

/* peer_region.c: the lengths that the device may execute: from `rma_min`. */
void pn_fi_peer_regions_init(struct pn_fi_ep *ep, const struct fi_info *info);
/* When pinion's endpoint is closed. */
void pn_fi_peer_regions_free(struct pn_fi_ep *ep);
/* Posts an operation to the device. False: it has to be sent as a request. */
bool pn_fi_device_post(struct pn_fi_op *op, const struct pn_fi_rma_args *args,
		       struct pinion_peer *peer);

/* rma.c, atomic.c */
extern struct fi_ops_rma pn_fi_rma_ops;
extern struct fi_ops_atomic pn_fi_atomic_ops;
int pn_fi_query_atomic(struct fid_domain *domain, enum fi_datatype type,
		       enum fi_op op, struct fi_atomic_attr *attr,
		       uint64_t flags);

#endif
