/* SPDX-License-Identifier: BSD-2-Clause */
/* libfabric's calls for tagged messages, fi_tsend() to fi_tinjectdata() and
 * fi_trecv(): see fi_tagged(3). */
#include "fabric/sendrecv.h"

static ssize_t trecv(struct fid_ep *ep, void *buf, size_t len, void *desc,
		     fi_addr_t src, uint64_t tag, uint64_t ignore,
		     void *context)
{
	struct pn_fi_msg_args args = { .buf = buf,
				       .len = len,
				       .addr = src,
				       .tag = tag,
				       .ignore = ignore,
				       .context = context,
				       .flags = pn_fi_op_flags(ep, PN_FI_RX) &
						~FI_MULTI_RECV };

	(void)desc;
	return pn_fi_receive(ep, &args);
}

static ssize_t trecvv(struct fid_ep *ep, const struct iovec *iov, void **desc,
		      size_t count, fi_addr_t src, uint64_t tag,
		      uint64_t ignore, void *context)
{
	struct pn_fi_msg_args args = { .iov = iov,
				       .count = count,
				       .addr = src,
				       .tag = tag,
				       .ignore = ignore,
				       .context = context,
				       .flags = pn_fi_op_flags(ep, PN_FI_RX) &
						~FI_MULTI_RECV };

	(void)desc;
	return pn_fi_receive(ep, &args);
}

static ssize_t trecvmsg(struct fid_ep *ep, const struct fi_msg_tagged *msg,
			uint64_t flags)
{
	struct pn_fi_msg_args args = { .iov = msg->msg_iov,
				       .count = msg->iov_count,
				       .addr = msg->addr,
				       .tag = msg->tag,
				       .ignore = msg->ignore,
				       .context = msg->context,
				       .flags = flags };

	if (flags & ~(PN_FI_RECV_FLAGS | PN_FI_PEEK_FLAGS))
		return -FI_EBADFLAGS;
	return pn_fi_receive(ep, &args);
}

static ssize_t tsend(struct fid_ep *ep, const void *buf, size_t len, void *desc,
		     fi_addr_t dest, uint64_t tag, void *context)
{
	struct pn_fi_msg_args args = { .buf = buf,
				       .len = len,
				       .addr = dest,
				       .tag = tag,
				       .context = context,
				       .flags = pn_fi_op_flags(ep, PN_FI_TX) };

	(void)desc;
	return pn_fi_send(ep, &args, false);
}

static ssize_t tsendv(struct fid_ep *ep, const struct iovec *iov, void **desc,
		      size_t count, fi_addr_t dest, uint64_t tag, void *context)
{
	struct pn_fi_msg_args args = { .iov = iov,
				       .count = count,
				       .addr = dest,
				       .tag = tag,
				       .context = context,
				       .flags = pn_fi_op_flags(ep, PN_FI_TX) };

	(void)desc;
	return pn_fi_send(ep, &args, false);
}

static ssize_t tsendmsg(struct fid_ep *ep, const struct fi_msg_tagged *msg,
			uint64_t flags)
{
	struct pn_fi_msg_args args = { .iov = msg->msg_iov,
				       .count = msg->iov_count,
				       .addr = msg->addr,
				       .tag = msg->tag,
				       .data = msg->data,
				       .context = msg->context,
				       .flags = flags };

	if (flags & ~PN_FI_SEND_FLAGS)
		return -FI_EBADFLAGS;
	return pn_fi_send(ep, &args, false);
}

static ssize_t tinject(struct fid_ep *ep, const void *buf, size_t len,
		       fi_addr_t dest, uint64_t tag)
{
	struct pinion_message message;

	pn_fi_inject_prefetch(ep, dest, len);
	message =
		(struct pinion_message){ .size = sizeof(struct pinion_message),
					 .buf = (void *)(uintptr_t)buf,
					 .tag = tag,
					 .len = len };
	return pn_fi_inject(ep, &message, dest);
}

static ssize_t tsenddata(struct fid_ep *ep, const void *buf, size_t len,
			 void *desc, uint64_t data, fi_addr_t dest,
			 uint64_t tag, void *context)
{
	struct pn_fi_msg_args args = { .buf = buf,
				       .len = len,
				       .addr = dest,
				       .tag = tag,
				       .data = data,
				       .context = context,
				       .flags = pn_fi_op_flags(ep, PN_FI_TX) |
						FI_REMOTE_CQ_DATA };

	(void)desc;
	return pn_fi_send(ep, &args, false);
}

static ssize_t tinjectdata(struct fid_ep *ep, const void *buf, size_t len,
			   uint64_t data, fi_addr_t dest, uint64_t tag)
{
	struct pinion_message message;

	pn_fi_inject_prefetch(ep, dest, len);
	message =
		(struct pinion_message){ .size = sizeof(struct pinion_message),
					 .buf = (void *)(uintptr_t)buf,
					 .tag = tag,
					 .len = len,
					 .data = (uint32_t)data,
					 .flags = PINION_MESSAGE_DATA };
	return pn_fi_inject(ep, &message, dest);
}

struct fi_ops_tagged pn_fi_tagged_ops = {
	.size = sizeof(struct fi_ops_tagged),
	.recv = trecv,
	.recvv = trecvv,
	.recvmsg = trecvmsg,
	.send = tsend,
	.sendv = tsendv,
	.sendmsg = tsendmsg,
	.inject = tinject,
	.senddata = tsenddata,
	.injectdata = tinjectdata,
};
