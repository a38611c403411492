/* SPDX-License-Identifier: BSD-2-Clause */
/* libfabric calls these without checking for NULL. */
#include <rdma/fi_collective.h>

#include "provider/provider.h"

int pn_fi_no_bind(struct fid *fid, struct fid *other, uint64_t flags)
{
	(void)fid, (void)other, (void)flags;
	return -FI_ENOSYS;
}

int pn_fi_no_control(struct fid *fid, int command, void *arg)
{
	(void)fid, (void)command, (void)arg;
	return -FI_ENOSYS;
}

int pn_fi_no_ops(struct fid *fid, const char *name, uint64_t flags, void **ops,
		 void *context)
{
	(void)fid, (void)name, (void)flags, (void)ops, (void)context;
	return -FI_ENOSYS;
}

/* --- collective operations ------------------------------------------------ */

static ssize_t barrier(struct fid_ep *ep, fi_addr_t group, void *context)
{
	(void)ep, (void)group, (void)context;
	return -FI_ENOSYS;
}

static ssize_t broadcast(struct fid_ep *ep, void *buf, size_t count, void *desc,
			 fi_addr_t group, fi_addr_t root, enum fi_datatype type,
			 uint64_t flags, void *context)
{
	(void)ep, (void)buf, (void)count, (void)desc, (void)group, (void)root;
	(void)type, (void)flags, (void)context;
	return -FI_ENOSYS;
}

/* alltoall and allgather */
static ssize_t exchange(struct fid_ep *ep, const void *buf, size_t count,
			void *desc, void *result, void *result_desc,
			fi_addr_t group, enum fi_datatype type, uint64_t flags,
			void *context)
{
	(void)ep, (void)buf, (void)count, (void)desc, (void)result;
	(void)result_desc, (void)group, (void)type, (void)flags, (void)context;
	return -FI_ENOSYS;
}

/* allreduce and reduce_scatter */
static ssize_t reduce_all(struct fid_ep *ep, const void *buf, size_t count,
			  void *desc, void *result, void *result_desc,
			  fi_addr_t group, enum fi_datatype type, enum fi_op op,
			  uint64_t flags, void *context)
{
	(void)op;
	return exchange(ep, buf, count, desc, result, result_desc, group, type,
			flags, context);
}

static ssize_t reduce(struct fid_ep *ep, const void *buf, size_t count,
		      void *desc, void *result, void *result_desc,
		      fi_addr_t group, fi_addr_t root, enum fi_datatype type,
		      enum fi_op op, uint64_t flags, void *context)
{
	(void)root, (void)op;
	return exchange(ep, buf, count, desc, result, result_desc, group, type,
			flags, context);
}

/* scatter and gather */
static ssize_t with_root(struct fid_ep *ep, const void *buf, size_t count,
			 void *desc, void *result, void *result_desc,
			 fi_addr_t group, fi_addr_t root, enum fi_datatype type,
			 uint64_t flags, void *context)
{
	(void)root;
	return exchange(ep, buf, count, desc, result, result_desc, group, type,
			flags, context);
}

static ssize_t message(struct fid_ep *ep, const struct fi_msg_collective *msg,
		       struct fi_ioc *result, void **result_desc, size_t count,
		       uint64_t flags)
{
	(void)ep, (void)msg, (void)result, (void)result_desc, (void)count;
	(void)flags;
	return -FI_ENOSYS;
}

struct fi_ops_collective pn_fi_no_collective_ops = {
	.size = sizeof(struct fi_ops_collective),
	.barrier = barrier,
	.broadcast = broadcast,
	.alltoall = exchange,
	.allreduce = reduce_all,
	.allgather = exchange,
	.reduce_scatter = reduce_all,
	.reduce = reduce,
	.scatter = with_root,
	.gather = with_root,
	.msg = message,
};
