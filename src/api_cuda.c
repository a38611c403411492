/* SPDX-License-Identifier: BSD-2-Clause */
/* The public calls of pinion/cuda.h, and those of copy/private.h. */
#include <pinion/cuda.h>

#include <errno.h>

#include "base/cancel.h"
#include "base/sized.h"
#include "context.h"
#include "copy/copy.h"
#include "copy/private.h"
#include "device/cuda/cuda.h"

static int open_copier(struct pinion_context *context, struct pn_copier **out)
{
	struct pn_device *device = context->device;
	struct pn_copier_attr attr = {
		.driver = pn_cuda_driver_of(device),
		.primary = pn_cuda_context_of(device),
		.device = device,
		.cache = context->cache,
		.pages = pn_context_pages(context),
		.bus_id = pn_cuda_bus_id_of(device),
		.keep = context->config.cuda_keep,
	};

	return pn_copier_open(&attr, out);
}

/* The context's copier, opened by the first call. */
static int find_copier(struct pinion_context *context, struct pn_copier **out)
{
	struct pn_copier *found, *none = NULL;
	int ret;

	if (!context)
		return -EINVAL;
	if (pn_context_foreign(context))
		return -EPERM;
	found = atomic_load(&context->copier);
	if (pn_unlikely(!found)) {
		if (!pn_device_is_cuda(context->device))
			return -EOPNOTSUPP;
		ret = open_copier(context, &found);
		if (ret)
			return ret;
		if (!atomic_compare_exchange_strong(&context->copier, &none,
						    found)) {
			pn_copier_close(found);
			found = none;
		}
	}
	*out = found;
	return 0;
}

void pn_context_close_copier(struct pinion_context *context)
{
	pn_copier_close(atomic_load(&context->copier));
}

static bool is_valid(const struct pn_copy_op *op)
{
	uintptr_t dst = (uintptr_t)op->dst, src = (uintptr_t)op->src;

	return !op->bytes ||
	       (dst && src && dst + op->bytes > dst && src + op->bytes > src);
}

int pn_cuda_copy(struct pinion_context *context, const struct pn_copy_op *op,
		 pn_cu_result *result)
{
	PN_NO_CANCEL();
	struct pn_copier *copier;
	int ret = find_copier(context, &copier);

	if (ret)
		return ret;
	return is_valid(op) ? pn_copier_copy(copier, op, result) : -EINVAL;
}

int pinion_cuda_copy(struct pinion_context *context, void *dst, const void *src,
		     size_t bytes, void *stream)
{
	const struct pn_copy_op op = {
		.dst = dst, .src = src, .bytes = bytes, .stream = stream
	};

	return pn_cuda_copy(context, &op, NULL);
}

int pinion_cuda_copy_start(struct pinion_context *context,
			   const struct pinion_cuda_copy_attr *given,
			   struct pinion_cuda_request **out)
{
	PN_NO_CANCEL();
	struct pinion_cuda_copy_attr attr;
	struct pn_copier *copier;
	struct pn_copy_op op;
	int ret = pn_sized_copy(&attr, sizeof(attr), given);

	if (ret)
		return ret;
	op = (struct pn_copy_op){ .dst = attr.dst,
				  .src = attr.src,
				  .bytes = attr.bytes,
				  .stream = attr.stream,
				  .default_of = attr.default_of };
	if (!out || attr.flags || !is_valid(&op))
		return -EINVAL;
	ret = find_copier(context, &copier);
	return ret ? ret : pn_copier_start(copier, &op, out);
}

int pinion_cuda_test(struct pinion_cuda_request *request)
{
	PN_NO_CANCEL();

	return request ? pn_copy_request_test(request) : -EINVAL;
}

int pinion_cuda_wait(struct pinion_cuda_request *request, uint64_t timeout_us)
{
	PN_NO_CANCEL();

	return request ? pn_copy_request_wait(request, timeout_us) : -EINVAL;
}

int pinion_cuda_query(struct pinion_context *context,
		      struct pinion_cuda_stats *stats)
{
	struct pinion_cuda_stats full;
	struct pn_copier *copier;
	int ret;

	if (!stats || !stats->size)
		return -EINVAL;
	ret = find_copier(context, &copier);
	if (ret)
		return ret;
	pn_copier_query(copier, &full);
	pn_sized_answer(stats, &full, sizeof(full));
	return 0;
}

int pinion_cuda_explain(struct pinion_context *context,
			const struct pinion_explain_attr *given, unsigned index,
			struct pinion_explanation *out)
{
	struct pinion_explain_attr attr;
	struct pinion_explanation full;
	struct pn_copier *copier;
	int ret = pn_sized_copy(&attr, sizeof(attr), given);

	if (ret)
		return ret;
	if (!out || !out->size ||
	    attr.flags & ~(uint64_t)PINION_CUDA_EXPLAIN_FROM_GPU)
		return -EINVAL;
	ret = find_copier(context, &copier);
	if (!ret)
		ret = pn_copier_explain(copier, &attr, index, &full);
	if (!ret)
		pn_sized_answer(out, &full, sizeof(full));
	return ret;
}

/* --- for libpinion-cuda.so ------------------------------------------------ */

int pn_cuda_settle(struct pinion_context *context)
{
	PN_NO_CANCEL();

	if (!pn_context_usable(context))
		return -EPERM;
	pn_cache_settle(context->cache);
	return 0;
}

int pn_cuda_yield(struct pinion_context *context, const void *addr, size_t len)
{
	PN_NO_CANCEL();
	struct pn_copier *copier;
	int ret = find_copier(context, &copier);

	return ret ? ret : pn_copier_yield(copier, addr, len);
}

size_t pn_cuda_min_bytes(struct pinion_context *context)
{
	struct pn_copier *copier;

	return find_copier(context, &copier) ? SIZE_MAX
					     : pn_copier_min_bytes(copier);
}
