/* SPDX-License-Identifier: BSD-2-Clause */
/* libfabric's atomic calls (fi_atomic(3)). */
#include "provider/onesided.h"

/* Local values: up to PN_FI_IOV_LIMIT segments; none if n is 0. */
struct list {
	const struct fi_ioc *ioc;
	size_t n;
};

/* An atomic operation: local values, the target's values, and the operation. */
struct call {
	struct list buf, compare, result;
	const struct fi_rma_ioc *target;
	size_t ntargets;
	fi_addr_t peer;
	enum fi_datatype type;
	enum fi_op op;
	void *context;
	uint64_t flags;
	bool never_signaled;
};

/* The arguments of an operation, and the lists that they refer to. */
struct lists {
	struct pn_fi_rma_args args;
	struct iovec buf[PN_FI_IOV_LIMIT], compare[PN_FI_IOV_LIMIT],
		result[PN_FI_IOV_LIMIT];
	struct fi_rma_iov target[PN_FI_IOV_LIMIT];
};

/* Turns a list of values into a list of bytes. Returns how many bytes;
 * SIZE_MAX: too many bytes or segments. */
static size_t set_list(const struct list *list, size_t bytes, struct iovec *out)
{
	size_t sum = 0;

	if (list->n > PN_FI_IOV_LIMIT)
		return SIZE_MAX;
	for (size_t i = 0; i < list->n; i++) {
		if (list->ioc[i].count > PN_FI_ATOMIC_BYTES / bytes)
			return SIZE_MAX;
		out[i] = (struct iovec){ list->ioc[i].addr,
					 list->ioc[i].count * bytes };
		sum += out[i].iov_len;
	}
	return sum;
}

/* One segment is used in place. */
static struct pn_fi_segments several(const struct list *list,
				     const struct iovec *iov)
{
	return (struct pn_fi_segments){ iov, list->n > 1 ? list->n : 0 };
}

static int set_target(struct lists *l, const struct call *call, size_t bytes)
{
	struct pn_fi_rma_args *args = &l->args;

	if (!call->ntargets || call->ntargets > PN_FI_IOV_LIMIT)
		return -FI_EINVAL;
	for (size_t i = 0; i < call->ntargets; i++) {
		const struct fi_rma_ioc *from = &call->target[i];

		if (from->count > PN_FI_ATOMIC_BYTES / bytes)
			return -FI_EMSGSIZE;
		l->target[i] =
			(struct fi_rma_iov){ from->addr, from->count * bytes,
					     from->key };
		args->len += l->target[i].len;
	}
	args->addr = call->target->addr;
	args->key = call->target->key;
	args->target_list = l->target;
	args->ntargets = call->ntargets > 1 ? call->ntargets : 0;
	return 0;
}

/* Every list that there is has as many values as the target. */
static int set_lists(struct lists *l, const struct call *call, size_t bytes)
{
	struct pn_fi_rma_args *args = &l->args;

	if ((call->buf.n && set_list(&call->buf, bytes, l->buf) != args->len) ||
	    (call->compare.n &&
	     set_list(&call->compare, bytes, l->compare) != args->len) ||
	    (call->result.n &&
	     set_list(&call->result, bytes, l->result) != args->len))
		return -FI_EINVAL;
	args->buf_list = several(&call->buf, l->buf);
	args->compare_list = several(&call->compare, l->compare);
	args->result_list = several(&call->result, l->result);
	args->buf = call->buf.n ? l->buf->iov_base : NULL;
	args->compare = call->compare.n ? l->compare->iov_base : NULL;
	args->result = call->result.n ? l->result->iov_base : NULL;
	return 0;
}

/* FI_ATOMIC_READ has no operands. */
static ssize_t run(struct fid_ep *ep, enum pn_fi_rma_kind kind,
		   struct call *call)
{
	size_t bytes = pn_fi_datatype_bytes(call->type);
	struct lists l;
	int ret;

	l.args = (struct pn_fi_rma_args){ .kind = kind,
					  .type = call->type,
					  .op = call->op,
					  .peer = call->peer,
					  .context = call->context,
					  .flags = call->flags,
					  .never_signaled =
						  call->never_signaled };
	if (!bytes)
		return -FI_EOPNOTSUPP;
	if (call->op == FI_ATOMIC_READ)
		call->buf.n = 0;
	else if (!call->buf.n)
		return -FI_EINVAL;
	ret = set_target(&l, call, bytes);
	if (!ret)
		ret = set_lists(&l, call, bytes);
	return ret ? ret : pn_fi_rma_post(ep, &l.args);
}

static size_t values_of(const struct fi_ioc *ioc, size_t n)
{
	size_t sum = 0;

	for (size_t i = 0; i < n && i < PN_FI_IOV_LIMIT; i++)
		sum += ioc[i].count;
	return sum;
}

/* --- without a result ----------------------------------------------------- */

static ssize_t atomic_writev(struct fid_ep *ep, const struct fi_ioc *iov,
			     void **desc, size_t count, fi_addr_t dest,
			     uint64_t addr, uint64_t key, enum fi_datatype type,
			     enum fi_op op, void *context)
{
	const struct fi_rma_ioc target = { addr, values_of(iov, count), key };
	struct call call = { .buf = { iov, count },
			     .target = &target,
			     .ntargets = 1,
			     .peer = dest,
			     .type = type,
			     .op = op,
			     .context = context,
			     .flags = pn_fi_op_flags(ep, PN_FI_TX) };

	(void)desc;
	return run(ep, PN_FI_UPDATE, &call);
}

static ssize_t atomic_write(struct fid_ep *ep, const void *buf, size_t count,
			    void *desc, fi_addr_t dest, uint64_t addr,
			    uint64_t key, enum fi_datatype type, enum fi_op op,
			    void *context)
{
	const struct fi_ioc one = { (void *)(uintptr_t)buf, count };

	(void)desc;
	return atomic_writev(ep, &one, NULL, 1, dest, addr, key, type, op,
			     context);
}

static struct call call_of(const struct fi_msg_atomic *msg, uint64_t flags)
{
	return (struct call){ .buf = { msg->msg_iov, msg->iov_count },
			      .target = msg->rma_iov,
			      .ntargets = msg->rma_iov_count,
			      .peer = msg->addr,
			      .type = msg->datatype,
			      .op = msg->op,
			      .context = msg->context,
			      .flags = flags };
}

static ssize_t atomic_writemsg(struct fid_ep *ep,
			       const struct fi_msg_atomic *msg, uint64_t flags)
{
	struct call call = call_of(msg, flags);

	return run(ep, PN_FI_UPDATE, &call);
}

static ssize_t atomic_inject(struct fid_ep *ep, const void *buf, size_t count,
			     fi_addr_t dest, uint64_t addr, uint64_t key,
			     enum fi_datatype type, enum fi_op op)
{
	const struct fi_ioc one = { (void *)(uintptr_t)buf, count };
	const struct fi_rma_ioc target = { addr, count, key };
	struct call call = { .buf = { &one, 1 },
			     .target = &target,
			     .ntargets = 1,
			     .peer = dest,
			     .type = type,
			     .op = op,
			     .flags = FI_INJECT,
			     .never_signaled = true };
	ssize_t ret = run(ep, PN_FI_UPDATE, &call);

	return ret == -FI_EMSGSIZE ? -FI_EINVAL : ret;
}

/* --- with the old values -------------------------------------------------- */

static ssize_t atomic_fetchv(struct fid_ep *ep, const struct fi_ioc *iov,
			     void **desc, size_t count, struct fi_ioc *result,
			     void **result_desc, size_t result_count,
			     fi_addr_t dest, uint64_t addr, uint64_t key,
			     enum fi_datatype type, enum fi_op op,
			     void *context)
{
	const struct fi_rma_ioc target = { addr,
					   values_of(result, result_count),
					   key };
	struct call call = { .buf = { iov, count },
			     .result = { result, result_count },
			     .target = &target,
			     .ntargets = 1,
			     .peer = dest,
			     .type = type,
			     .op = op,
			     .context = context,
			     .flags = pn_fi_op_flags(ep, PN_FI_TX) };

	(void)desc, (void)result_desc;
	return result_count ? run(ep, PN_FI_FETCH, &call) : -FI_EINVAL;
}

static ssize_t atomic_fetch(struct fid_ep *ep, const void *buf, size_t count,
			    void *desc, void *result, void *result_desc,
			    fi_addr_t dest, uint64_t addr, uint64_t key,
			    enum fi_datatype type, enum fi_op op, void *context)
{
	const struct fi_ioc one = { (void *)(uintptr_t)buf, count };
	struct fi_ioc to = { result, count };

	(void)desc, (void)result_desc;
	return atomic_fetchv(ep, &one, NULL, 1, &to, NULL, 1, dest, addr, key,
			     type, op, context);
}

static ssize_t atomic_fetchmsg(struct fid_ep *ep,
			       const struct fi_msg_atomic *msg,
			       struct fi_ioc *result, void **result_desc,
			       size_t result_count, uint64_t flags)
{
	struct call call = call_of(msg, flags);

	(void)result_desc;
	call.result = (struct list){ result, result_count };
	return result_count ? run(ep, PN_FI_FETCH, &call) : -FI_EINVAL;
}

/* --- with a comparison ---------------------------------------------------- */

static ssize_t run_compare(struct fid_ep *ep, struct call *call)
{
	return call->compare.n && call->result.n ? run(ep, PN_FI_COMPARE, call)
						 : -FI_EINVAL;
}

static ssize_t atomic_comparev(
	struct fid_ep *ep, const struct fi_ioc *iov, void **desc, size_t count,
	const struct fi_ioc *compare, void **compare_desc, size_t compare_count,
	struct fi_ioc *result, void **result_desc, size_t result_count,
	fi_addr_t dest, uint64_t addr, uint64_t key, enum fi_datatype type,
	enum fi_op op, void *context)
{
	const struct fi_rma_ioc target = { addr,
					   values_of(result, result_count),
					   key };
	struct call call = { .buf = { iov, count },
			     .compare = { compare, compare_count },
			     .result = { result, result_count },
			     .target = &target,
			     .ntargets = 1,
			     .peer = dest,
			     .type = type,
			     .op = op,
			     .context = context,
			     .flags = pn_fi_op_flags(ep, PN_FI_TX) };

	(void)desc, (void)compare_desc, (void)result_desc;
	return run_compare(ep, &call);
}

static ssize_t atomic_compare(struct fid_ep *ep, const void *buf, size_t count,
			      void *desc, const void *compare,
			      void *compare_desc, void *result,
			      void *result_desc, fi_addr_t dest, uint64_t addr,
			      uint64_t key, enum fi_datatype type,
			      enum fi_op op, void *context)
{
	const struct fi_ioc one = { (void *)(uintptr_t)buf, count };
	const struct fi_ioc with = { (void *)(uintptr_t)compare, count };
	struct fi_ioc to = { result, count };

	(void)desc, (void)compare_desc, (void)result_desc;
	return atomic_comparev(ep, &one, NULL, 1, &with, NULL, 1, &to, NULL, 1,
			       dest, addr, key, type, op, context);
}

static ssize_t atomic_comparemsg(struct fid_ep *ep,
				 const struct fi_msg_atomic *msg,
				 const struct fi_ioc *compare,
				 void **compare_desc, size_t compare_count,
				 struct fi_ioc *result, void **result_desc,
				 size_t result_count, uint64_t flags)
{
	struct call call = call_of(msg, flags);

	(void)compare_desc, (void)result_desc;
	call.compare = (struct list){ compare, compare_count };
	call.result = (struct list){ result, result_count };
	return run_compare(ep, &call);
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
