/* SPDX-License-Identifier: BSD-2-Clause */
/* libfabric's calls for messages without tags, fi_send() to fi_injectdata() and
 * fi_recv(): see fi_msg(3). */
#include "provider/sendrecv.h"

static uint64_t recv_flags(const struct fid_ep *ep)
{
	return pn_fi_op_flags(ep, PN_FI_RX);
}

static ssize_t msg_recv(struct fid_ep *ep, void *buf, size_t len, void *desc,
			fi_addr_t src, void *context)
{
	struct pinion_message message = {
		.size = sizeof(message),
		.buf = buf,
		.len = len,
		.space = PN_FI_SPACE_MSG,
	};

	(void)desc;
	return pn_fi_receive(ep, &message, src, context, recv_flags(ep));
}

static ssize_t msg_recvv(struct fid_ep *ep, const struct iovec *iov,
			 void **desc, size_t count, fi_addr_t src,
			 void *context)
{
	struct pinion_message message = {
		.size = sizeof(message),
		.space = PN_FI_SPACE_MSG,
	};
	const struct pn_fi_vector_call call = { iov, count, src, context,
						recv_flags(ep) };

	(void)desc;
	return pn_fi_receive_vector(ep, &message, &call);
}

static ssize_t msg_recvmsg(struct fid_ep *ep, const struct fi_msg *msg,
			   uint64_t flags)
{
	struct pinion_message message = {
		.size = sizeof(message),
		.space = PN_FI_SPACE_MSG,
	};
	const struct pn_fi_vector_call call = { msg->msg_iov, msg->iov_count,
						msg->addr, msg->context,
						flags };

	if (flags & ~(PN_FI_RECV_FLAGS | FI_MULTI_RECV))
		return -FI_EBADFLAGS;
	return pn_fi_receive_vector(ep, &message, &call);
}

static ssize_t msg_send(struct fid_ep *ep, const void *buf, size_t len,
			void *desc, fi_addr_t dest, void *context)
{
	struct pinion_message message = {
		.size = sizeof(message),
		.buf = (void *)(uintptr_t)buf,
		.len = len,
		.space = PN_FI_SPACE_MSG,
	};

	(void)desc;
	return pn_fi_send(ep, &message, dest, context,
			  pn_fi_op_flags(ep, PN_FI_TX));
}

static ssize_t msg_sendv(struct fid_ep *ep, const struct iovec *iov,
			 void **desc, size_t count, fi_addr_t dest,
			 void *context)
{
	struct pinion_message message = {
		.size = sizeof(message),
		.space = PN_FI_SPACE_MSG,
	};
	const struct pn_fi_vector_call call = { iov, count, dest, context,
						pn_fi_op_flags(ep, PN_FI_TX) };

	(void)desc;
	return pn_fi_send_vector(ep, &message, &call);
}

static ssize_t msg_sendmsg(struct fid_ep *ep, const struct fi_msg *msg,
			   uint64_t flags)
{
	struct pinion_message message = {
		.size = sizeof(message),
		.space = PN_FI_SPACE_MSG,
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

static ssize_t msg_inject(struct fid_ep *ep, const void *buf, size_t len,
			  fi_addr_t dest)
{
	struct pinion_message message;

	pn_fi_inject_prefetch(ep, dest, len);
	message = (struct pinion_message){
		.size = sizeof(message),
		.buf = (void *)(uintptr_t)buf,
		.len = len,
		.space = PN_FI_SPACE_MSG,
	};
	return pn_fi_inject(ep, &message, dest);
}

static ssize_t msg_senddata(struct fid_ep *ep, const void *buf, size_t len,
			    void *desc, uint64_t data, fi_addr_t dest,
			    void *context)
{
	struct pinion_message message = {
		.size = sizeof(message),
		.buf = (void *)(uintptr_t)buf,
		.len = len,
		.space = PN_FI_SPACE_MSG,
		.data = (uint32_t)data,
		.data_high = (uint32_t)(data >> 32),
		.flags = PINION_MESSAGE_DATA,
	};

	(void)desc;
	return pn_fi_send(ep, &message, dest, context,
			  pn_fi_op_flags(ep, PN_FI_TX));
}

static ssize_t msg_injectdata(struct fid_ep *ep, const void *buf, size_t len,
			      uint64_t data, fi_addr_t dest)
{
	struct pinion_message message;

	pn_fi_inject_prefetch(ep, dest, len);
	message = (struct pinion_message){
		.size = sizeof(message),
		.buf = (void *)(uintptr_t)buf,
		.len = len,
		.space = PN_FI_SPACE_MSG,
		.data = (uint32_t)data,
		.data_high = (uint32_t)(data >> 32),
		.flags = PINION_MESSAGE_DATA,
	};
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
