/* SPDX-License-Identifier: BSD-2-Clause */
/* libfabric's calls for messages without tags, fi_send() to fi_injectdata() and
 * fi_recv(): see fi_msg(3). */
#include "fabric/sendrecv.h"

static ssize_t msg_recv(struct fid_ep *ep, void *buf, size_t len, void *desc,
			fi_addr_t src, void *context)
{
	struct pn_fi_msg_args args = { .buf = buf,
				       .len = len,
				       .addr = src,
				       .space = PN_FI_SPACE_MSG,
				       .context = context,
				       .flags = pn_fi_op_flags(ep, PN_FI_RX) };

	(void)desc;
	return pn_fi_receive(ep, &args);
}

static ssize_t msg_recvv(struct fid_ep *ep, const struct iovec *iov,
			 void **desc, size_t count, fi_addr_t src,
			 void *context)
{
	struct pn_fi_msg_args args = { .iov = iov,
				       .count = count,
				       .addr = src,
				       .space = PN_FI_SPACE_MSG,
				       .context = context,
				       .flags = pn_fi_op_flags(ep, PN_FI_RX) };

	(void)desc;
	return pn_fi_receive(ep, &args);
}

static ssize_t msg_recvmsg(struct fid_ep *ep, const struct fi_msg *msg,
			   uint64_t flags)
{
	struct pn_fi_msg_args args = { .iov = msg->msg_iov,
				       .count = msg->iov_count,
				       .addr = msg->addr,
				       .space = PN_FI_SPACE_MSG,
				       .context = msg->context,
				       .flags = flags };

	if (flags & ~(PN_FI_RECV_FLAGS | FI_MULTI_RECV))
		return -FI_EBADFLAGS;
	return pn_fi_receive(ep, &args);
}

static ssize_t msg_send(struct fid_ep *ep, const void *buf, size_t len,
			void *desc, fi_addr_t dest, void *context)
{
	struct pn_fi_msg_args args = { .buf = buf,
				       .len = len,
				       .addr = dest,
				       .space = PN_FI_SPACE_MSG,
				       .context = context,
				       .flags = pn_fi_op_flags(ep, PN_FI_TX) };

	(void)desc;
	return pn_fi_send(ep, &args, false);
}

static ssize_t msg_sendv(struct fid_ep *ep, const struct iovec *iov,
			 void **desc, size_t count, fi_addr_t dest,
			 void *context)
{
	struct pn_fi_msg_args args = { .iov = iov,
				       .count = count,
				       .addr = dest,
				       .space = PN_FI_SPACE_MSG,
				       .context = context,
				       .flags = pn_fi_op_flags(ep, PN_FI_TX) };

	(void)desc;
	return pn_fi_send(ep, &args, false);
}

static ssize_t msg_sendmsg(struct fid_ep *ep, const struct fi_msg *msg,
			   uint64_t flags)
{
	struct pn_fi_msg_args args = { .iov = msg->msg_iov,
				       .count = msg->iov_count,
				       .addr = msg->addr,
				       .space = PN_FI_SPACE_MSG,
				       .data = msg->data,
				       .context = msg->context,
				       .flags = flags };

	if (flags & ~PN_FI_SEND_FLAGS)
		return -FI_EBADFLAGS;
	return pn_fi_send(ep, &args, false);
}

static ssize_t msg_inject(struct fid_ep *ep, const void *buf, size_t len,
			  fi_addr_t dest)
{
	struct pinion_message message;

	pn_fi_inject_prefetch(ep, dest, len);
	message =
		(struct pinion_message){ .size = sizeof(struct pinion_message),
					 .buf = (void *)(uintptr_t)buf,
					 .space = PN_FI_SPACE_MSG,
					 .len = len };
	return pn_fi_inject(ep, &message, dest);
}

static ssize_t msg_senddata(struct fid_ep *ep, const void *buf, size_t len,
			    void *desc, uint64_t data, fi_addr_t dest,
			    void *context)
{
	struct pn_fi_msg_args args = { .buf = buf,
				       .len = len,
				       .addr = dest,
				       .space = PN_FI_SPACE_MSG,
				       .data = data,
				       .context = context,
				       .flags = pn_fi_op_flags(ep, PN_FI_TX) |
						FI_REMOTE_CQ_DATA };

	(void)desc;
	return pn_fi_send(ep, &args, false);
}

static ssize_t msg_injectdata(struct fid_ep *ep, const void *buf, size_t len,
			      uint64_t data, fi_addr_t dest)
{
	struct pinion_message message;

	pn_fi_inject_prefetch(ep, dest, len);
	message =
		(struct pinion_message){ .size = sizeof(struct pinion_message),
					 .buf = (void *)(uintptr_t)buf,
					 .space = PN_FI_SPACE_MSG,
					 .len = len,
					 .data = (uint32_t)data,
					 .flags = PINION_MESSAGE_DATA };
	return pn_fi_inject(ep, &message, dest);
}

struct fi_ops_msg pn_fi_msg_ops = {
	.size = sizeof(struct fi_ops_msg),
	.recv = msg_recv,
	.recvv = msg_recvv,
	.recvmsg = msg_recvmsg,
	.send = msg_send,
	.sendv = msg_sendv,
	.sendmsg = msg_sendmsg,
	.inject = msg_inject,
	.senddata = msg_senddata,
	.injectdata = msg_injectdata,
};
