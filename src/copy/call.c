/* SPDX-License-Identifier: BSD-2-Clause */
/* What a copy is about: CUDA context, stream, kinds of memory. */
#include "copy/call_impl.h"
#include "device/cuda/gate.h"

/* The streams that need not be created belong to the current context. */
static bool is_default_stream(pn_cu_stream stream)
{
	return !stream || stream == PN_CU_STREAM_LEGACY ||
	       stream == PN_CU_STREAM_PER_THREAD;
}

/* Work of the legacy stream waits for other streams, too; asking it whether it
 * is idle says nothing about them. */
static bool is_legacy(pn_cu_stream stream)
{
	return !stream || stream == PN_CU_STREAM_LEGACY;
}

/* The context that has some memory of a GPU. Memory of a pool has none by
 * itself: the primary context of its GPU, which exists while the memory does.
 */
static pn_cu_result context_of(const struct pn_cuda_driver *cu, uintptr_t at,
			       pn_cu_context *out)
{
	int attributes[] = { PN_CU_POINTER_ATTRIBUTE_CONTEXT,
			     PN_CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL };
	pn_cu_context context = NULL;
	int ordinal = -1;
	void *values[] = { &context, &ordinal };
	pn_cu_result ret =
		cu->pointer_get_attributes(2, attributes, values, at);

	if (!ret && !context && ordinal >= 0) {
		ret = cu->primary_ctx_retain(&context, ordinal);
		if (!ret)
			cu->primary_ctx_release(ordinal);
	}
	/* What is not known is the driver's to refuse. */
	if (!ret && context)
		*out = context;
	return ret;
}

static pn_cu_result find_context(struct pn_copy_call *call,
				 pn_cu_context current)
{
	const struct pn_cuda_driver *cu = call->copier->cu;
	const struct pn_copy_op *op = call->op;
	pn_cu_context popped;
	pn_cu_result ret;

	call->context = current ? current : call->copier->attr.primary;
	if (!is_default_stream(op->stream))
		return cu->stream_get_ctx(op->stream, &call->context);
	if (!op->default_of)
		return PN_CUDA_SUCCESS;
	/* Attributes are asked for in some context. */
	ret = current ? PN_CUDA_SUCCESS : cu->ctx_push_current(call->context);
	if (ret)
		return ret;
	ret = context_of(cu, (uintptr_t)op->default_of, &call->context);
	if (!current)
		cu->ctx_pop_current(&popped);
	return ret;
}

pn_cu_result pn_copy_call_enter(struct pn_copy_call *call)
{
	const struct pn_cuda_driver *cu = call->copier->cu;
	pn_cu_context current = NULL;
	pn_cu_result ret = cu->ctx_get_current(&current);

	if (!ret)
		ret = find_context(call, current);
	if (!ret && cu->ctx_get_id)
		ret = cu->ctx_get_id(call->context, &call->context_id);
	if (!ret && call->context != current) {
		ret = cu->ctx_push_current(call->context);
		call->pushed = !ret;
	}
	if (ret)
		return ret;
	pn_copy_check_generation(call->copier);
	/* What we do beside the copy must not disturb a capture of another
	 * thread. */
	call->capture_mode = PN_CU_STREAM_CAPTURE_MODE_RELAXED;
	cu->exchange_capture_mode(&call->capture_mode);
	return PN_CUDA_SUCCESS;
}

void pn_copy_call_leave(struct pn_copy_call *call)
{
	const struct pn_cuda_driver *cu = call->copier->cu;
	pn_cu_context popped;

	cu->exchange_capture_mode(&call->capture_mode);
	if (call->pushed)
		cu->ctx_pop_current(&popped);
}

/* --- kinds of memory ------------------------------------------------------ */

enum kind { UNPINNED, PINNED, GPU, OTHER };

static enum kind kind_of(struct pn_copier *copier, uintptr_t at)
{
	int attributes[] = { PN_CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
			     PN_CU_POINTER_ATTRIBUTE_IS_MANAGED };
	unsigned type = 0;
	int managed = 0;
	void *out[] = { &type, &managed };

	if (copier->cu->pointer_get_attributes(2, attributes, out, at))
		return OTHER;
	if (managed)
		return OTHER;
	switch (type) {
	case 0:
		return UNPINNED;
	case PN_CU_MEMORYTYPE_HOST:
		return PINNED;
	case PN_CU_MEMORYTYPE_DEVICE:
		return GPU;
	default:
		return OTHER;
	}
}

/* Whether one allocation of a GPU has all of it. If not, the driver decides:
 * each block of the copy could be valid where the whole is not. */
static bool is_in_one_allocation(struct pn_copier *copier,
				 struct pn_range range)
{
	int attributes[] = { PN_CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
			     PN_CU_POINTER_ATTRIBUTE_RANGE_SIZE };
	struct pn_range whole = { 0 };
	void *out[] = { &whole.addr, &whole.len };

	return !copier->cu->pointer_get_attributes(2, attributes, out,
						   range.addr) &&
	       range.addr - whole.addr < whole.len &&
	       range.len <= whole.len - (range.addr - whole.addr);
}

/* Host memory of which not all is pinned by the program. */
static bool is_unpinned(struct pn_copy_call *call, struct pn_range range)
{
	uintptr_t last = range.addr + range.len - 1;

	if (pn_cuda_gate_holds(range)) {
		call->held = true;
		return true;
	}
	return kind_of(call->copier, range.addr) == UNPINNED ||
	       kind_of(call->copier, last) == UNPINNED;
}

/* Sets the direction if one end is memory of a GPU and the other unpinned. */
static bool find_direction(struct pn_copy_call *call)
{
	const struct pn_copy_op *op = call->op;
	uintptr_t dst = (uintptr_t)op->dst, src = (uintptr_t)op->src;
	bool to = kind_of(call->copier, dst) == GPU;
	uintptr_t gpu = to ? dst : src, host = to ? src : dst;

	call->direction = to ? PN_COPY_TO_GPU : PN_COPY_FROM_GPU;
	call->gpu = gpu;
	call->host = (struct pn_range){ host, op->bytes };
	return (to || kind_of(call->copier, src) == GPU) &&
	       is_unpinned(call, call->host) &&
	       is_in_one_allocation(call->copier,
				    (struct pn_range){ gpu, op->bytes });
}

bool pn_copy_call_is_ours(struct pn_copy_call *call)
{
	const struct pn_cuda_driver *cu = call->copier->cu;
	int capturing = 0;

	if (!find_direction(call))
		return false;
	if (cu->stream_is_capturing(call->op->stream, &capturing) || capturing)
		return false;
	call->idle = !is_legacy(call->op->stream) &&
		     !cu->stream_query(call->op->stream);
	/* The legacy stream cannot be asked; most often it is idle. */
	call->measured =
		!call->held && (call->idle || is_legacy(call->op->stream));
	return true;
}

/* --- the driver's copy ---------------------------------------------------- */

/* An asynchronous copy of unpinned memory returns when its source has been
 * read; work that is not ordered behind its stream could still find the old
 * bytes. */
static pn_cu_result copy_by_driver(const struct pn_cuda_driver *cu,
				   const struct pn_copy_op *op)
{
	pn_cu_deviceptr dst = (uintptr_t)op->dst, src = (uintptr_t)op->src;
	pn_cu_result ret;

	if (op->blocking && is_legacy(op->stream))
		return cu->memcpy(dst, src, op->bytes);
	ret = cu->memcpy_async(dst, src, op->bytes, op->stream);
	if (!ret && op->blocking)
		ret = cu->stream_synchronize(op->stream);
	return ret;
}

pn_cu_result pn_copy_call_driver(struct pn_copy_call *call)
{
	const struct pn_copy_op *op = call->op;
	struct pn_range dst = { (uintptr_t)op->dst, op->bytes };
	struct pn_range src = { (uintptr_t)op->src, op->bytes };
	struct pn_gate_passage passage;
	pn_cu_result ret;

	call->held = pn_cuda_gate_enter(dst, src, &passage) == PN_GATE_HELD;
	if (call->held)
		return PN_CUDA_SUCCESS;
	ret = copy_by_driver(call->copier->cu, op);
	pn_cuda_gate_leave(&passage);
	atomic_fetch_add_explicit(&call->copier->driver, 1,
				  memory_order_relaxed);
	return ret;
}
