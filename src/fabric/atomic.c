/* SPDX-License-Identifier: BSD-2-Clause */
/* libfabric's atomic calls (fi_atomic(3)). */
#include "fabric/onesided.h"

/* The target's values, and the operation. */
struct target {
	fi_addr_t peer;
	uint64_t addr, key;
	enum fi_datatype type;
	enum fi_op op;
	void *context;
};

/* Local values. */
struct values {
	const void *buf, *compare;
	void *result;
	size_t count;
};

static ssize_t run(struct fid_ep *ep, enum pn_fi_rma_kind kind,
		   const struct target *target, const struct values *v,
		   uint64_t flags)
{
	size_t bytes = pn_fi_datatype_bytes(target->type);
	struct pn_fi_rma_args args = { .kind = kind,
				       .type = target->type,
				       .op = target->op,
				       .buf = v->buf,
				       .compare = v->compare,
				       .result = v->result,
				       .peer = target->peer,
				       .addr = target->addr,
				       .key = target->key,
				       .context = target->context,
				       .flags = flags };

	if (!bytes)
		return -FI_EOPNOTSUPP;
	if (v->count > PN_FI_ATOMIC_BYTES / bytes)
		return -FI_EMSGSIZE;
	args.len = v->count * bytes;
	return pn_fi_rma_post(ep, &args);
}

/* --- without a result ----------------------------------------------------- */

static ssize_t atomic_write(struct fid_ep *ep, const void *buf, size_t count,
			    void *desc, fi_addr_t dest, uint64_t addr,
			    uint64_t key, enum fi_datatype type, enum fi_op op,
			    void *context)
{
	struct target target = { dest, addr, key, type, op, context };
	struct values v = { .buf = buf, .count = count };

	(void)desc;
	return run(ep, PN_FI_UPDATE, &target, &v, pn_fi_op_flags(ep, PN_FI_TX));
}

static ssize_t atomic_writev(struct fid_ep *ep, const struct fi_ioc *iov,
			     void **desc, size_t count, fi_addr_t dest,
			     uint64_t addr, uint64_t key, enum fi_datatype type,
			     enum fi_op op, void *context)
{
	(void)desc;
	if (count != 1)
		return -FI_EINVAL;
	return atomic_write(ep, iov->addr, iov->count, NULL, dest, addr, key,
			    type, op, context);
}

/* One local and one remote segment of the same length. */
static int unpack(const struct fi_msg_atomic *msg, struct target *target,
		  struct values *v)
{
	bool operands = msg->op != FI_ATOMIC_READ;

	if (msg->rma_iov_count != 1 || msg->iov_count > 1 ||
	    (operands && (msg->iov_count != 1 ||
			  msg->msg_iov->count != msg->rma_iov->count)))
		return -FI_EINVAL;
	*target = (struct target){ msg->addr,	      msg->rma_iov->addr,
				   msg->rma_iov->key, msg->datatype,
				   msg->op,	      msg->context };
	v->buf = operands ? msg->msg_iov->addr : NULL;
	v->count = msg->rma_iov->count;
	return 0;
}

static ssize_t atomic_writemsg(struct fid_ep *ep,
			       const struct fi_msg_atomic *msg, uint64_t flags)
{
	struct values v = { 0 };
	struct target target;
	int ret = unpack(msg, &target, &v);

	return ret ? ret : run(ep, PN_FI_UPDATE, &target, &v, flags);
}

static ssize_t atomic_inject(struct fid_ep *ep, const void *buf, size_t count,
			     fi_addr_t dest, uint64_t addr, uint64_t key,
			     enum fi_datatype type, enum fi_op op)
{
	size_t bytes = pn_fi_datatype_bytes(type);
	struct pn_fi_rma_args args = { .kind = PN_FI_UPDATE,
				       .type = type,
				       .op = op,
				       .buf = buf,
				       .peer = dest,
				       .addr = addr,
				       .key = key,
				       .flags = FI_INJECT,
				       .never_signaled = true };

	if (!bytes)
		return -FI_EOPNOTSUPP;
	if (count > PN_FI_INJECT_BYTES / bytes)
		return -FI_EINVAL;
	args.len = count * bytes;
	return pn_fi_rma_post(ep, &args);
}

/* --- with the old values -------------------------------------------------- */

static ssize_t atomic_fetch(struct fid_ep *ep, const void *buf, size_t count,
			    void *desc, void *result, void *result_desc,
			    fi_addr_t dest, uint64_t addr, uint64_t key,
			    enum fi_datatype type, enum fi_op op, void *context)
{
	struct target target = { dest, addr, key, type, op, context };
	struct values v = { .buf = buf, .result = result, .count = count };

	(void)desc, (void)result_desc;
	return run(ep, PN_FI_FETCH, &target, &v, pn_fi_op_flags(ep, PN_FI_TX));
}

static ssize_t atomic_fetchv(struct fid_ep *ep, const struct fi_ioc *iov,
			     void **desc, size_t count, struct fi_ioc *result,
			     void **result_desc, size_t result_count,
			     fi_addr_t dest, uint64_t addr, uint64_t key,
			     enum fi_datatype type, enum fi_op op,
			     void *context)
{
	bool operands = op != FI_ATOMIC_READ;

	(void)desc, (void)result_desc;
	if (result_count != 1 || count > 1 ||
	    (operands && (count != 1 || iov->count != result->count)))
		return -FI_EINVAL;
	return atomic_fetch(ep, operands ? iov->addr : NULL, result->count,
			    NULL, result->addr, NULL, dest, addr, key, type, op,
			    context);
}

static ssize_t atomic_fetchmsg(struct fid_ep *ep,
			       const struct fi_msg_atomic *msg,
			       struct fi_ioc *result, void **result_desc,
			       size_t result_count, uint64_t flags)
{
	struct values v = { 0 };
	struct target target;
	int ret = unpack(msg, &target, &v);

	(void)result_desc;
	if (ret)
		return ret;
	if (result_count != 1 || result->count != v.count)
		return -FI_EINVAL;
	v.result = result->addr;
	return run(ep, PN_FI_FETCH, &target, &v, flags);
}

/* --- with a comparison ---------------------------------------------------- */

static ssize_t atomic_compare(struct fid_ep *ep, const void *buf, size_t count,
			      void *desc, const void *compare,
			      void *compare_desc, void *result,
			      void *result_desc, fi_addr_t dest, uint64_t addr,
			      uint64_t key, enum fi_datatype type,
			      enum fi_op op, void *context)
{
	struct target target = { dest, addr, key, type, op, context };
	struct values v = {
		.buf = buf, .compare = compare, .result = result, .count = count
	};

	(void)desc, (void)compare_desc, (void)result_desc;
	return run(ep, PN_FI_COMPARE, &target, &v,
		   pn_fi_op_flags(ep, PN_FI_TX));
}

static ssize_t atomic_comparev(
	struct fid_ep *ep, const struct fi_ioc *iov, void **desc, size_t count,
	const struct fi_ioc *compare, void **compare_desc, size_t compare_count,
	struct fi_ioc *result, void **result_desc, size_t result_count,
	fi_addr_t dest, uint64_t addr, uint64_t key, enum fi_datatype type,
	enum fi_op op, void *context)
{
	(void)desc, (void)compare_desc, (void)result_desc;
	if (count != 1 || compare_count != 1 || result_count != 1 ||
	    iov->count != compare->count || iov->count != result->count)
		return -FI_EINVAL;
	return atomic_compare(ep, iov->addr, iov->count, NULL, compare->addr,
			      NULL, result->addr, NULL, dest, addr, key, type,
			      op, context);
}

static ssize_t atomic_comparemsg(struct fid_ep *ep,
				 const struct fi_msg_atomic *msg,
				 const struct fi_ioc *compare,
				 void **compare_desc, size_t compare_count,
				 struct fi_ioc *result, void **result_desc,
				 size_t result_count, uint64_t flags)
{
	struct values v = { 0 };
	struct target target;
	int ret = unpack(msg, &target, &v);

	(void)compare_desc, (void)result_desc;
	if (ret)
		return ret;
	if (compare_count != 1 || result_count != 1 ||
	    compare->count != v.count || result->count != v.count)
		return -FI_EINVAL;
	v.compare = compare->addr;
	v.result = result->addr;
	return run(ep, PN_FI_COMPARE, &target, &v, flags);
}

/* --- fi_query_atomic() ---------------------------------------------------- */

static int valid(enum pn_fi_rma_kind kind, unsigned type, unsigned op,
		 size_t *count)
{
	if (!pn_fi_atomic_valid(kind, type, op))
		return -FI_EOPNOTSUPP;
	*count = PN_FI_ATOMIC_BYTES / pn_fi_datatype_bytes(type);
	return 0;
}

static int write_valid(struct fid_ep *ep, enum fi_datatype type, enum fi_op op,
		       size_t *count)
{
	(void)ep;
	return count ? valid(PN_FI_UPDATE, type, op, count) : -FI_EINVAL;
}

static int fetch_valid(struct fid_ep *ep, enum fi_datatype type, enum fi_op op,
		       size_t *count)
{
	(void)ep;
	return count ? valid(PN_FI_FETCH, type, op, count) : -FI_EINVAL;
}

static int compare_valid(struct fid_ep *ep, enum fi_datatype type,
			 enum fi_op op, size_t *count)
{
	(void)ep;
	return count ? valid(PN_FI_COMPARE, type, op, count) : -FI_EINVAL;
}

int pn_fi_query_atomic(struct fid_domain *domain, enum fi_datatype type,
		       enum fi_op op, struct fi_atomic_attr *attr,
		       uint64_t flags)
{
	enum pn_fi_rma_kind kind = flags & FI_COMPARE_ATOMIC ? PN_FI_COMPARE
				   : flags & FI_FETCH_ATOMIC ? PN_FI_FETCH
							     : PN_FI_UPDATE;
	int ret;

	(void)domain;
	if (!attr || (flags & FI_COMPARE_ATOMIC && flags & FI_FETCH_ATOMIC))
		return -FI_EINVAL;
	if (flags & ~(FI_COMPARE_ATOMIC | FI_FETCH_ATOMIC | FI_TAGGED))
		return -FI_EBADFLAGS;
	if (flags & FI_TAGGED)
		return -FI_EOPNOTSUPP;
	ret = valid(kind, type, op, &attr->count);
	if (!ret)
		attr->size = pn_fi_datatype_bytes(type);
	return ret;
}

struct fi_ops_atomic pn_fi_atomic_ops = {
	.size = sizeof(struct fi_ops_atomic),
	.write = atomic_write,
	.writev = atomic_writev,
	.writemsg = atomic_writemsg,
	.inject = atomic_inject,
	.readwrite = atomic_fetch,
	.readwritev = atomic_fetchv,
	.readwritemsg = atomic_fetchmsg,
	.compwrite = atomic_compare,
	.compwritev = atomic_comparev,
	.compwritemsg = atomic_comparemsg,
	.writevalid = write_valid,
	.readwritevalid = fetch_valid,
	.compwritevalid = compare_valid,
};
