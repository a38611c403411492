/* SPDX-License-Identifier: BSD-2-Clause */
/* libfabric's calls to read and write remote memory (fi_rma(3)). */
#include "provider/onesided.h"
#include "provider/vector.h"

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

/* Sets the local segments; one is used in place. */
static int set_local(struct pn_fi_rma_args *args, const struct iovec *iov,
		     size_t count)
{
	args->len = pn_fi_vector_bytes(iov, count);
	if (args->len == SIZE_MAX)
		return -FI_EINVAL;
	args->buf = args->result = count ? iov->iov_base : NULL;
	if (count > 1 && args->kind == PN_FI_WRITE)
		args->buf_list = (struct pn_fi_segments){ iov, count };
	else if (count > 1)
		args->result_list = (struct pn_fi_segments){ iov, count };
	return 0;
}

static ssize_t rma_readv(struct fid_ep *ep, const struct iovec *iov,
			 void **desc, size_t count, fi_addr_t src,
			 uint64_t addr, uint64_t key, void *context)
{
	struct pn_fi_rma_args args = { .kind = PN_FI_READ,
				       .peer = src,
				       .addr = addr,
				       .key = key,
				       .context = context,
				       .flags = pn_fi_op_flags(ep, PN_FI_TX) };
	int ret = set_local(&args, iov, count);

	(void)desc;
	return ret ? ret : pn_fi_rma_post(ep, &args);
}

static ssize_t rma_writev(struct fid_ep *ep, const struct iovec *iov,
			  void **desc, size_t count, fi_addr_t dest,
			  uint64_t addr, uint64_t key, void *context)
{
	struct pn_fi_rma_args args = { .kind = PN_FI_WRITE,
				       .peer = dest,
				       .addr = addr,
				       .key = key,
				       .context = context,
				       .flags = pn_fi_op_flags(ep, PN_FI_TX) };
	int ret = set_local(&args, iov, count);

	(void)desc;
	return ret ? ret : pn_fi_rma_post(ep, &args);
}

/* Sets the remote segments, which have as many bytes as the local ones. CQ data
 * may travel without any. */
static int set_remote(struct pn_fi_rma_args *args, const struct fi_msg_rma *msg)
{
	size_t sum = 0;

	if (msg->rma_iov_count > PN_FI_IOV_LIMIT)
		return -FI_EINVAL;
	for (size_t i = 0; i < msg->rma_iov_count; i++)
		if (__builtin_add_overflow(sum, msg->rma_iov[i].len, &sum))
			return -FI_EINVAL;
	if (sum != args->len)
		return -FI_EINVAL;
	args->no_target = !msg->rma_iov_count;
	if (args->no_target)
		return args->kind == PN_FI_WRITE ? 0 : -FI_EINVAL;
	args->addr = msg->rma_iov->addr;
	args->key = msg->rma_iov->key;
	args->target_list = msg->rma_iov;
	args->ntargets = msg->rma_iov_count > 1 ? msg->rma_iov_count : 0;
	return 0;
}

static ssize_t run_msg(struct fid_ep *ep, const struct fi_msg_rma *msg,
		       enum pn_fi_rma_kind kind, uint64_t flags)
{
	struct pn_fi_rma_args args = { .kind = kind,
				       .peer = msg->addr,
				       .data = msg->data,
				       .context = msg->context,
				       .flags = flags };
	int ret = set_local(&args, msg->msg_iov, msg->iov_count);

	if (!ret)
		ret = set_remote(&args, msg);
	return ret ? ret : pn_fi_rma_post(ep, &args);
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
