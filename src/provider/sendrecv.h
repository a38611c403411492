/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * sendrecv -- sends and receives: libfabric's many calls become two functions.
 *
 * tagged.c and msg.c, libfabric's tables of calls, describe a message by
 * pinion's own struct, on their stack. pn_fi_send() and pn_fi_receive()
 * complete it, take the domain's lock and call pinion: by pinion_inject() if
 * the message can leave before the call returns, else as an op (op.c) that
 * completes with an entry. Only tagged.c and msg.c call these functions.
 */
#ifndef PN_PROVIDER_SENDRECV_H
#define PN_PROVIDER_SENDRECV_H

#include "provider/provider.h"

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

/* Sends or receives a message; `flags` are those of the operation. Both set
 * message->peer and message->user, and return 0, -FI_EAGAIN (no room now) or
 * another negative errno; on error nothing was started. */
ssize_t pn_fi_send(struct fid_ep *fid, struct pinion_message *message,
		   fi_addr_t addr, void *context, uint64_t flags);
ssize_t pn_fi_receive(struct fid_ep *fid, struct pinion_message *message,
		      fi_addr_t addr, void *context, uint64_t flags);
/* The same with a list of segments instead of message->buf; a multi-receive, or
 * a receive that claims a message, has one. */
struct pn_fi_vector_call {
	const struct iovec *iov;
	size_t count;
	fi_addr_t addr;
	void *context;
	uint64_t flags;
};
ssize_t pn_fi_send_vector(struct fid_ep *fid, struct pinion_message *message,
			  const struct pn_fi_vector_call *call);
ssize_t pn_fi_receive_vector(struct fid_ep *fid, struct pinion_message *message,
			     const struct pn_fi_vector_call *call);
/* fi_inject() and its forms: pn_fi_send() with FI_INJECT, and success writes no
 * entry. */
ssize_t pn_fi_inject(struct fid_ep *fid, struct pinion_message *message,
		     fi_addr_t addr);

#endif
