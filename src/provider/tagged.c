/* SPDX-License-Identifier: BSD-2-Clause */
/* libfabric's calls for tagged messages, fi_tsend() to fi_tinjectdata() and
 * fi_trecv(): see fi_tagged(3). */
#include "provider/sendrecv.h"

/* Multi-receives are for messages without tags. */
static uint64_t recv_flags(const struct fid_ep *ep)
{
	return pn_fi_op_flags(ep, PN_FI_RX) & ~FI_MULTI_RECV;
}

static ssize_t trecv(struct fid_ep *ep, void *buf, size_t len, void *desc,
		     fi_addr_t src, uint64_t tag, uint64_t ignore,
		     void *context)
{
	struct pinion_message message = {
		.size = sizeof(message),
		.buf = buf,
		.len = len,
		.tag = tag,
		.ignore = ignore,
	};

	(void)desc;
	return pn_fi_receive(ep, &message, src, context, recv_flags(ep));
}

static ssize_t trecvv(struct fid_ep *ep, const struct iovec *iov, void **desc,
		      size_t count, fi_addr_t src, uint64_t tag,
		      uint64_t ignore, void *context)
{
	struct pinion_message message = {
		.size = sizeof(message),
		.tag = tag,
		.ignore = ignore,
	};
	const struct pn_fi_vector_call call = { iov, count, src, context,
						recv_flags(ep) };

	(void)desc;
	return pn_fi_receive_vector(ep, &message, &call);
}

static ssize_t trecvmsg(struct fid_ep *ep, const struct fi_msg_tagged *msg,
			uint64_t flags)
{
	struct pinion_message message = {
		.size = sizeof(message),
		.tag = msg->tag,
		.ignore = msg->ignore,
	};
	const struct pn_fi_vector_call call = { msg->msg_iov, msg->iov_count,
						msg->addr, msg->context,
						flags };

	if (flags & ~(PN_FI_RECV_FLAGS | PN_FI_PEEK_FLAGS))
		return -FI_EBADFLAGS;
	return pn_fi_receive_vector(ep, &message, &call);
}

static ssize_t tsend(struct fid_ep *ep, const void *buf, size_t len, void *desc,
		     fi_addr_t dest, uint64_t tag, void *context)
{
	struct pinion_message message = {
		.size = sizeof(message),
		.buf = (void *)(uintptr_t)buf,
		.len = len,
		.tag = tag,
	};

	(void)desc;
	return pn_fi_send(ep, &message, dest, context,
			  pn_fi_op_flags(ep, PN_FI_TX));
}

static ssize_t tsendv(struct fid_ep *ep, const struct iovec *iov, void **desc,
		      size_t count, fi_addr_t dest, uint64_t tag, void *context)
{
	struct pinion_message message = {
		.size = sizeof(message),
		.tag = tag,
	};
	const struct pn_fi_vector_call call = { iov, count, dest, context,
						pn_fi_op_flags(ep, PN_FI_TX) };

	(void)desc;
	return pn_fi_send_vector(ep, &message, &call);
}

static ssize_t tsendmsg(struct fid_ep *ep, const struct fi_msg_tagged *msg,
			uint64_t flags)
{
	struct pinion_message message = {
		.size = sizeof(message),
		.tag = msg->tag,
		.data = (uint32_t)msg->data,
		.data_high = (uint32_t)(msg->data >> 32),
		.flags = flags & FI_REMOTE_CQ_DATA ? PINION_MESSAGE_DATA : 0,
	};
	const struct pn_fi_vector_call call = { msg->msg_iov, msg->iov_count,
						msg->addr, msg->context,
						flags };

	if (flags & ~PN_FI_SEND_FLAGS)
		return -FI_EBADFLAGS;
	return pn_fi_send_vector(ep, &message, &call);
}

static ssize_t tinject(struct fid_ep *ep, const void *buf, size_t len,
		       fi_addr_t dest, uint64_t tag)
{
	struct pinion_message message;

	pn_fi_inject_prefetch(ep, dest, len);
	message = (struct pinion_message){
		.size = sizeof(message),
		.buf = (void *)(uintptr_t)buf,
		.len = len,
		.tag = tag,
	};
	return pn_fi_inject(ep, &message, dest);
}

static ssize_t tsenddata(struct fid_ep *ep, const void *buf, size_t len,
			 void *desc, uint64_t data, fi_addr_t dest,
			 uint64_t tag, void *context)
{
	struct pinion_message message = {
		.size = sizeof(message),
		.buf = (void *)(uintptr_t)buf,
		.len = len,
		.tag = tag,
		.data = (uint32_t)data,
		.data_high = (uint32_t)(data >> 32),
		.flags = PINION_MESSAGE_DATA,
	};

	(void)desc;
	return pn_fi_send(ep, &message, dest, context,
			  pn_fi_op_flags(ep, PN_FI_TX));
}

static ssize_t tinjectdata(struct fid_ep *ep, const void *buf, size_t len,
			   uint64_t data, fi_addr_t dest, uint64_t tag)
{
	struct pinion_message message;

	pn_fi_inject_prefetch(ep, dest, len);
	message = (struct pinion_message){
		.size = sizeof(message),
		.buf = (void *)(uintptr_t)buf,
		.len = len,
		.tag = tag,
		.data = (uint32_t)data,
		.data_high = (uint32_t)(data >> 32),
		.flags = PINION_MESSAGE_DATA,
	};
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
