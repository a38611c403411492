/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * sendrecv -- sends and receives: libfabric's many calls become two functions.
 *
 * tagged.c and msg.c, libfabric's tables of calls, put their arguments into a
 * struct pn_fi_msg_args on the stack. pn_fi_send() and pn_fi_receive() check
 * them, take the domain's lock and call pinion: by pinion_inject() if the
 * message can leave before the call returns, else as an op (op.c) that
 * completes with an entry. Only tagged.c and msg.c call these functions.
 */
#ifndef PN_FABRIC_SENDRECV_H
#define PN_FABRIC_SENDRECV_H

#include "fabric/fabric.h"

/* The arguments of a call. */
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

/* Flags that fi_sendmsg(), fi_recvmsg() and their tagged forms accept. */
#define PN_FI_SEND_FLAGS                                                   \
	(FI_COMPLETION | FI_INJECT | FI_INJECT_COMPLETE |                  \
	 FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE | FI_REMOTE_CQ_DATA | \
	 FI_MORE)
#define PN_FI_RECV_FLAGS (FI_COMPLETION | FI_MORE)
#define PN_FI_PEEK_FLAGS (FI_PEEK | FI_CLAIM | FI_DISCARD)

/* An injected message usually leaves in the call. Prefetch the memory that the
 * message will be written to before anything else: the cache lines take as long
 * to arrive as the rest of the call takes to run. Only without a lock, since
 * this reads ep->peers. */
static inline void pn_fi_inject_prefetch(const struct fid_ep *fid,
					 fi_addr_t addr, size_t len)
{
	const struct pn_fi_ep *ep = pn_container_of(fid, struct pn_fi_ep, fid);

	if (pn_likely(!ep->domain->locking && addr < ep->npeers &&
		      ep->peers[addr]))
		pinion_peer_prefetch(ep->peers[addr], len);
}

/* never_signaled: success writes no entry. Both return 0, -FI_EAGAIN (no room
 * now) or another negative errno; on error nothing was started. */
ssize_t pn_fi_send(struct fid_ep *fid, struct pn_fi_msg_args *args,
		   bool never_signaled);
ssize_t pn_fi_receive(struct fid_ep *fid, struct pn_fi_msg_args *args);
/* fi_inject() and its forms: pn_fi_send() with FI_INJECT and never signaled,
 * without a struct pn_fi_msg_args for a message that leaves in the call. */
ssize_t pn_fi_inject(struct fid_ep *fid, struct pinion_message *message,
		     fi_addr_t addr);

#endif
