/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * work -- sends and receives: from libfabric's many calls to two functions.
 *
 * tagged.c and msg.c, libfabric's tables of calls, say what is asked for in a
 * struct pn_fi_msg_args, on the stack. pn_fi_send() and pn_fi_receive() check
 * it, take the domain's lock and have pinion do it: at once when it can leave
 * before the call returns, else as an op (op.c) that ends with an entry. Only
 * those two files call them.
 */
#ifndef PN_FABRIC_WORK_H
#define PN_FABRIC_WORK_H

#include "fabric/fabric.h"

/* What any of the calls asks for. */
struct pn_fi_msg_args {
	const struct iovec *iov; /* or buf and len */
	size_t count;
	const void *buf;
	size_t len;
	fi_addr_t addr;
	uint64_t tag, ignore, data;
	void *context;
	uint64_t flags; /* of the operation */
	uint8_t space;
};

/* What calls with flags of their own may ask for. */
#define PN_FI_SEND_FLAGS                                                   \
	(FI_COMPLETION | FI_INJECT | FI_INJECT_COMPLETE |                  \
	 FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE | FI_REMOTE_CQ_DATA | \
	 FI_MORE)
#define PN_FI_RECV_FLAGS (FI_COMPLETION | FI_MORE)
#define PN_FI_PEEK_FLAGS (FI_PEEK | FI_CLAIM | FI_DISCARD)

/* What those without mean. */
static inline uint64_t pn_fi_op_flags(const struct fid_ep *fid,
				      enum pn_fi_dir way)
{
	const struct pn_fi_ep *ep = pn_container_of(fid, struct pn_fi_ep, fid);

	return ep->ways[way].op_flags;
}

/* What is injected leaves at once, as a rule: that is said before anything is
 * looked at, since what it is written to takes as long to come as all the rest.
 * Peers are looked at without the lock where there is none. */
static inline void pn_fi_inject_prefetch(const struct fid_ep *fid,
					 fi_addr_t addr, size_t len)
{
	const struct pn_fi_ep *ep = pn_container_of(fid, struct pn_fi_ep, fid);

	if (pn_likely(!ep->domain->locking && addr < ep->npeers &&
		      ep->peers[addr]))
		pinion_peer_prefetch(ep->peers[addr], len);
}

/* silent: a good end is never told. Both return 0, -FI_EAGAIN (no room now) or
 * another negative errno, and then nothing has begun. */
ssize_t pn_fi_send(struct fid_ep *fid, struct pn_fi_msg_args *work,
		   bool silent);
ssize_t pn_fi_receive(struct fid_ep *fid, struct pn_fi_msg_args *work);
/* What fi_inject() and its like are: silent, and gone when they return. As
 * pn_fi_send(), but nothing is written down of what leaves at once. */
ssize_t pn_fi_inject(struct fid_ep *fid, struct pinion_message *message,
		     fi_addr_t addr);

#endif
