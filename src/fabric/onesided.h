/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * onesided -- libfabric's RMA and atomics, carried by messages.
 *
 * A key of libfabric is 64 bits, and belongs to a domain with any number of
 * endpoints; what pinion_exposure_open() gives is a blob, of one endpoint. So
 * an operation is not done by the initiator but asked for: it sends an errand
 * to the target, whose progress runs it (manual progress is what is
 * advertised). The bytes go by the same messages, straight between the two
 * buffers, so long ones are registered by the cache and small ones are copied,
 * as pinion thinks best, and registering a region here registers nothing. One
 * mechanism for all of them makes every atomic atomic towards all others, on
 * every device.
 *
 * Nouns
 *   errand   what travels: kind, key, address, length, and a number that is
 *            the tag of all else that belongs to it.
 *   note     an errand on its way out, with its payload.
 *   task     what any of libfabric's calls asks for, before it is an errand.
 *   responder     a receive that waits for errands. One at a time lies on it.
 *            There are PN_FI_MIN_RESPONDERS, and more while all are busy.
 *   region   struct pn_fi_mr: memory that has a key.
 *
 * Life of an operation: the initiator sends what is too long for the note as a
 * message of PN_FI_SPACE_RMA_DATA, then the note, then receives the answer
 * (PN_FI_SPACE_RMA_RESPONSE): bytes of a read or what was there before an
 * atomic, and a status in the message's data. The answer ends it, so the end
 * means that the target has done it: FI_DELIVERY_COMPLETE, whatever was asked
 * for. A peer that dies fails that receive. Life of a responder: posted -> an
 * errand comes -> its long bytes are received -> the answer is sent -> posted
 * again.
 *
 * Order: errands of a peer are looked at in the order they were sent, but bytes
 * of long ones move later. None is promised.
 * At rest: an op of this file has `pending` requests of pinion under way.
 * Threads: the domain's lock. Endpoints without FI_RMA and FI_ATOMIC have no
 * responders, and pay nothing.
 * Errors: what the target refuses ends with the errno it says: FI_EACCES a key
 * that is unknown or does not allow it, or a range beyond the region.
 * Trust: errands are parsed as if anybody could have sent them.
 */
#ifndef PN_FABRIC_ONESIDED_H
#define PN_FABRIC_ONESIDED_H

#include <rdma/fi_atomic.h>
#include <rdma/fi_rma.h>

#include "fabric/fabric.h"

#define PN_FI_RMA_REQUEST_VERSION 1
#define PN_FI_PAYLOAD_BYTES	  2048 /* of a note; below eager_limit's default */
#define PN_FI_ATOMIC_BYTES	  (PN_FI_PAYLOAD_BYTES / 2)
#define PN_FI_MIN_RESPONDERS	  16

enum pn_fi_rma_kind {
	PN_FI_WRITE = 1,
	PN_FI_READ,
	PN_FI_UPDATE,  /* an atomic without an answer */
	PN_FI_FETCH,   /* with what was there before */
	PN_FI_COMPARE, /* the same, and values to compare with */
};

#define PN_FI_REMOTE_CQ_DATA \
	UINT16_C(1)		       /* a write that tells the target's CQ */
#define PN_FI_DATA_FOLLOWS UINT16_C(2) /* its bytes come as a message */

/* Little-endian, as everything of pinion. Payload follows: the bytes of a
 * write; the operands of an atomic (none for FI_ATOMIC_READ); behind these what
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

/* rma_request.c: how many bytes of payload it has. It was checked. */
size_t pn_fi_rma_request_payload(const struct pn_fi_rma_request *errand);
/* Takes a message apart; data need not be aligned. -EPROTONOSUPPORT: another
 * version; -EPROTO: garbage; then *out tells its number, if it has one. */
int pn_fi_rma_request_parse(const void *data, size_t len,
			    struct pn_fi_rma_request *out,
			    const uint8_t **payload);

/* reduce.c */
size_t pn_fi_datatype_bytes(unsigned type); /* 0: no such */
/* Whether there is such an operation among those of a kind of errand. */
bool pn_fi_atomic_valid(enum pn_fi_rma_kind kind, unsigned type, unsigned op);
/* Runs it on each of the values at `at`, atomically; `before`, `operand` and
 * `compare` may be NULL where the operation has none. Any thread. */
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
	struct pn_list link; /* among those of its hash */
	uint8_t *base;
	size_t len;
	uint64_t access;
	struct pn_fi_counter *counter; /* of remote writes to it; or NULL */
	unsigned users;		       /* responders */
	bool closing;		       /* nobody begins to use it */
};

/* Both under the lock. Also one that is closing. */
struct pn_fi_mr *pn_fi_mr_find(struct pn_fi_domain *domain, uint64_t key);
/* Where [addr, addr + len) is, NULL: not inside, or not allowed. */
uint8_t *pn_fi_mr_at(const struct pn_fi_mr *mr, uint64_t addr, uint64_t len,
		     uint64_t access);
int pn_fi_mrs_init(struct pn_fi_domain *domain);
void pn_fi_mrs_fini(struct pn_fi_domain *domain);
extern struct fi_ops_mr pn_fi_mr_ops;

/* responder.c: begins to take errands; -FI_ENOMEM. The end, under the lock: its
 * places in CQs are given back; then, after pinion's, all else. */
int pn_fi_responders_open(struct pn_fi_ep *ep);
void pn_fi_responders_abandon(struct pn_fi_ep *ep);
void pn_fi_responders_free(struct pn_fi_ep *ep);

/* --- the initiator -------------------------------------------------------- */

struct pn_fi_rma_args {
	enum pn_fi_rma_kind kind;
	enum fi_datatype type;
	enum fi_op op;
	const void *buf; /* written, or operands */
	const void *compare;
	void *result; /* read into */
	size_t len;   /* bytes */
	fi_addr_t peer;
	uint64_t addr, key, data;
	void *context;
	uint64_t flags; /* of the operation */
	bool silent;	/* no end is told */
};

/* initiator.c: as fi_write() and the like. */
ssize_t pn_fi_rma_post(struct fid_ep *ep, const struct pn_fi_rma_args *task);
void pn_fi_rma_tx_bufs_free(struct pn_fi_ep *ep);

/* Flags of calls that have none of their own. */
static inline uint64_t pn_fi_rma_op_flags(struct fid_ep *fid)
{
	return pn_container_of(fid, struct pn_fi_ep, fid)
		->ways[PN_FI_TX]
		.op_flags;
}

/* rma.c, atomic.c */
extern struct fi_ops_rma pn_fi_rma_ops;
extern struct fi_ops_atomic pn_fi_atomic_ops;
int pn_fi_query_atomic(struct fid_domain *domain, enum fi_datatype type,
		       enum fi_op op, struct fi_atomic_attr *attr,
		       uint64_t flags);

#endif
