/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * onesided -- libfabric's RMA and atomics, carried by messages.
 *
 * libfabric's keys have 64 bits and belong to a domain with any number of
 * endpoints. pinion_exposure_open() returns a key blob of one endpoint instead.
 * So the initiator does not access the target's memory: it sends an RMA request
 * to the target, and the target's progress executes it (manual progress is
 * advertised). The data travels in messages, directly between the two buffers:
 * long ones are registered by the cache, short ones are copied. Registering a
 * region here registers nothing. Since one mechanism serves all operations,
 * every atomic is atomic with respect to all others, on every device.
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
 *
 * Life of an operation: the initiator sends data that does not fit into the
 * transmit buffer as a message of PN_FI_SPACE_RMA_DATA, then the request, then
 * receives the response (PN_FI_SPACE_RMA_RESPONSE): the bytes of a read or the
 * old values of an atomic, and a status in the data of the message. The
 * operation completes with the response, so completion means that the target
 * has executed it: FI_DELIVERY_COMPLETE, whatever was asked for. If the peer
 * dies, that receive fails.
 * Life of a responder: posted -> a request arrives -> its long data is received
 * -> the response is sent -> posted again.
 *
 * Order: requests of a peer are executed in the order they were sent, but data
 * of long ones arrives later. No order is promised.
 * At rest: an op of this file has `pending` requests of pinion in flight.
 * Threads: under the domain's lock. Endpoints without FI_RMA and FI_ATOMIC have
 * no responders and no cost.
 * Errors: an operation that the target refuses completes with the target's
 * errno. FI_EACCES: the key is unknown or does not allow it, or the range is
 * not inside the region.
 * Trust: requests are parsed as untrusted input.
 */
#ifndef PN_FABRIC_ONESIDED_H
#define PN_FABRIC_ONESIDED_H

#include <rdma/fi_atomic.h>
#include <rdma/fi_rma.h>

#include "fabric/fabric.h"

#define PN_FI_RMA_REQUEST_VERSION 1
#define PN_FI_PAYLOAD_BYTES	  2048 /* below eager_limit's default */
#define PN_FI_ATOMIC_BYTES	  (PN_FI_PAYLOAD_BYTES / 2)
#define PN_FI_MIN_RESPONDERS	  16

enum pn_fi_rma_kind {
	PN_FI_WRITE = 1,
	PN_FI_READ,
	PN_FI_UPDATE,  /* an atomic without a result */
	PN_FI_FETCH,   /* an atomic that returns the old values */
	PN_FI_COMPARE, /* the same, with values to compare with */
};

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
	uint16_t reserved;
	uint64_t number;
	uint64_t key;
	uint64_t addr;
	uint64_t len; /* bytes of target memory */
	uint64_t data;
};

/* rma_request.c: the bytes of payload of a valid request. */
size_t pn_fi_rma_request_payload(const struct pn_fi_rma_request *request);
/* Parses a message; data need not be aligned. -EPROTONOSUPPORT: another
 * version; -EPROTO: invalid. On error, *out has the number of the request if
 * the message had a complete header. */
int pn_fi_rma_request_parse(const void *data, size_t len,
			    struct pn_fi_rma_request *out,
			    const uint8_t **payload);

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
	bool closing;		       /* no responder may start to use it */
};

/* Both under the lock. Also finds a region that is closing. */
struct pn_fi_mr *pn_fi_mr_find(struct pn_fi_domain *domain, uint64_t key);
/* The memory of [addr, addr + len); NULL: not inside, or not allowed. */
uint8_t *pn_fi_mr_at(const struct pn_fi_mr *mr, uint64_t addr, uint64_t len,
		     uint64_t access);
int pn_fi_mrs_init(struct pn_fi_domain *domain);
void pn_fi_mrs_fini(struct pn_fi_domain *domain);
extern struct fi_ops_mr pn_fi_mr_ops;

/* responder.c: starts to accept requests; -FI_ENOMEM. Close of an endpoint:
 * first, under the lock, unreserves entries in CQs; then, when pinion's
 * endpoint is closed, frees the responders. */
int pn_fi_responders_open(struct pn_fi_ep *ep);
void pn_fi_responders_abandon(struct pn_fi_ep *ep);
void pn_fi_responders_free(struct pn_fi_ep *ep);

/* --- the initiator -------------------------------------------------------- */

struct pn_fi_rma_args {
	enum pn_fi_rma_kind kind;
	enum fi_datatype type;
	enum fi_op op;
	const void *buf; /* data of a write, or operands */
	const void *compare;
	void *result; /* destination of a read, or of old values */
	size_t len;   /* bytes */
	fi_addr_t peer;
	uint64_t addr, key, data;
	void *context;
	uint64_t flags;	     /* of the operation */
	bool never_signaled; /* inject: success writes no entry */
};

/* initiator.c: posts an operation; returns what fi_write() returns. */
ssize_t pn_fi_rma_post(struct fid_ep *fid, const struct pn_fi_rma_args *args);
void pn_fi_rma_tx_bufs_free(struct pn_fi_ep *ep);

/* rma.c, atomic.c */
extern struct fi_ops_rma pn_fi_rma_ops;
extern struct fi_ops_atomic pn_fi_atomic_ops;
int pn_fi_query_atomic(struct fid_domain *domain, enum fi_datatype type,
		       enum fi_op op, struct fi_atomic_attr *attr,
		       uint64_t flags);

#endif
