/* SPDX-License-Identifier: BSD-2-Clause */
/* libfabric's calls to read and write remote memory (fi_rma(3)). */
#include "fabric/onesided.h"

static ssize_t rma_read(struct fid_ep *ep, void *buf, size_t len, void *desc,
			fi_addr_t src, uint64_t addr, uint64_t key,
			void *context)
{
	struct pn_fi_rma_args args = { .kind = PN_FI_READ,
				       .result = buf,
				       .len = len,
				       .peer = src,
				       .addr = addr,
				       .key = key,
				       .context = context,
				       .flags = pn_fi_op_flags(ep, PN_FI_TX) };

	(void)desc;
	return pn_fi_rma_post(ep, &args);
}

/* The common arguments of calls that write. */
static struct pn_fi_rma_args write_of(const void *buf, size_t len,
				      fi_addr_t dest, uint64_t addr,
				      uint64_t key)
{
	return (struct pn_fi_rma_args){ .kind = PN_FI_WRITE,
					.buf = buf,
					.len = len,
					.peer = dest,
					.addr = addr,
					.key = key };
}

static ssize_t rma_write(struct fid_ep *ep, const void *buf, size_t len,
			 void *desc, fi_addr_t dest, uint64_t addr,
			 uint64_t key, void *context)
{
	struct pn_fi_rma_args args = write_of(buf, len, dest, addr, key);

	(void)desc;
	args.context = context;
	args.flags = pn_fi_op_flags(ep, PN_FI_TX);
	return pn_fi_rma_post(ep, &args);
}

static ssize_t rma_readv(struct fid_ep *ep, const struct iovec *iov,
			 void **desc, size_t count, fi_addr_t src,
			 uint64_t addr, uint64_t key, void *context)
{
	(void)desc;
	if (count != 1)
		return -FI_EINVAL;
	return rma_read(ep, iov->iov_base, iov->iov_len, NULL, src, addr, key,
			context);
}

static ssize_t rma_writev(struct fid_ep *ep, const struct iovec *iov,
			  void **desc, size_t count, fi_addr_t dest,
			  uint64_t addr, uint64_t key, void *context)
{
	(void)desc;
	if (count != 1)
		return -FI_EINVAL;
	return rma_write(ep, iov->iov_base, iov->iov_len, NULL, dest, addr, key,
			 context);
}

/* One local and one remote segment of the same length. */
static bool msg_ok(const struct fi_msg_rma *msg)
{
	return msg->iov_count == 1 && msg->rma_iov_count == 1 &&
	       msg->msg_iov->iov_len == msg->rma_iov->len;
}

static ssize_t run_msg(struct fid_ep *ep, const struct fi_msg_rma *msg,
		       enum pn_fi_rma_kind kind, uint64_t flags)
{
	struct pn_fi_rma_args args;

	if (!msg_ok(msg))
		return -FI_EINVAL;
	args = (struct pn_fi_rma_args){ .kind = kind,
					.buf = msg->msg_iov->iov_base,
					.result = msg->msg_iov->iov_base,
					.len = msg->msg_iov->iov_len,
					.peer = msg->addr,
					.addr = msg->rma_iov->addr,
					.key = msg->rma_iov->key,
					.data = msg->data,
					.context = msg->context,
					.flags = flags };
	return pn_fi_rma_post(ep, &args);
}

static ssize_t rma_readmsg(struct fid_ep *ep, const struct fi_msg_rma *msg,
			   uint64_t flags)
{
	return run_msg(ep, msg, PN_FI_READ, flags);
}

static ssize_t rma_writemsg(struct fid_ep *ep, const struct fi_msg_rma *msg,
			    uint64_t flags)
{
	return run_msg(ep, msg, PN_FI_WRITE, flags);
}

static ssize_t rma_injectdata(struct fid_ep *ep, const void *buf, size_t len,
			      uint64_t data, fi_addr_t dest, uint64_t addr,
			      uint64_t key)
{
	struct pn_fi_rma_args args = write_of(buf, len, dest, addr, key);

	args.data = data;
	args.flags = FI_INJECT | FI_REMOTE_CQ_DATA;
	args.never_signaled = true;
	return pn_fi_rma_post(ep, &args);
}

static ssize_t rma_inject(struct fid_ep *ep, const void *buf, size_t len,
			  fi_addr_t dest, uint64_t addr, uint64_t key)
{
	struct pn_fi_rma_args args = write_of(buf, len, dest, addr, key);

	args.flags = FI_INJECT;
	args.never_signaled = true;
	return pn_fi_rma_post(ep, &args);
}

static ssize_t rma_writedata(struct fid_ep *ep, const void *buf, size_t len,
			     void *desc, uint64_t data, fi_addr_t dest,
			     uint64_t addr, uint64_t key, void *context)
{
	struct pn_fi_rma_args args = write_of(buf, len, dest, addr, key);

	(void)desc;
	args.data = data;
	args.context = context;
	args.flags = pn_fi_op_flags(ep, PN_FI_TX) | FI_REMOTE_CQ_DATA;
	return pn_fi_rma_post(ep, &args);
}

struct fi_ops_rma pn_fi_rma_ops = {
	.size = sizeof(struct fi_ops_rma),
	.read = rma_read,
	.readv = rma_readv,
	.readmsg = rma_readmsg,
	.write = rma_write,
	.writev = rma_writev,
	.writemsg = rma_writemsg,
	.inject = rma_inject,
	.writedata = rma_writedata,
	.injectdata = rma_injectdata,
};
