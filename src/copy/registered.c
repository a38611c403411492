/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Copies of memory that is all registered: the GPU reads or writes it directly,
 * in the order of the caller's stream.
 *
 * 16 MiB take 310 us. After a pause every call of the driver before the copy
 * costs several us more, since its code and data have left the CPU's caches. So
 * nothing is asked before the copy is started that the driver finds out itself:
 * pinion holds one end (gate.h), and if the other end is not memory of a GPU
 * the driver refuses the copy. The rest is done while the GPU copies.
 */
#include "base/clock.h"
#include "copy/call_impl.h"
#include "device/cuda/gate.h"

/* --- starting ------------------------------------------------------------- */

/* A segment may have several registrations: a call of the driver each. */
static pn_cu_result copy_segment(const struct pn_copy_call *call,
				 const struct pinion_pin_segment *segment)
{
	const struct pn_cuda_driver *cu = call->copier->cu;
	pn_cu_result ret = PN_CUDA_SUCCESS;
	char *at = segment->addr;
	size_t left = segment->len;

	while (!ret && left) {
		size_t n = pn_cuda_run(call->copier->attr.device, at, left);
		pn_cu_deviceptr gpu =
			call->gpu + ((uintptr_t)at - call->host.addr);

		ret = call->direction == PN_COPY_TO_GPU
			      ? cu->memcpy_htod_async(gpu, at, n,
						      call->op->stream)
			      : cu->memcpy_dtoh_async(at, gpu, n,
						      call->op->stream);
		at += n;
		left -= n;
	}
	return ret;
}

pn_cu_result pn_copy_call_segments(const struct pn_copy_call *call,
				   const struct pinion_pin *pin)
{
	struct pinion_pin_segment segment;
	pn_cu_result ret = PN_CUDA_SUCCESS;

	for (unsigned i = 0; !ret && i < pin->nsegments; i++) {
		pn_assert(!pn_cache_pin_segment(pin, i, &segment));
		ret = copy_segment(call, &segment);
	}
	return ret;
}

bool pn_copy_call_pin(const struct pn_copy_call *call, struct pinion_pin *out)
{
	struct pn_cache *cache = call->copier->attr.cache;
	void *host = (void *)call->host.addr;

	return call->held &&
	       pn_cache_covers(cache, host, call->host.len,
			       PINION_ACCESS_LOCAL_WRITE) &&
	       !pn_cache_pin_hit(cache, host, call->host.len,
				 PINION_ACCESS_LOCAL_WRITE, out);
}

/* --- waiting -------------------------------------------------------------- */

/* Twice what the copy should take, as far as a core can be spared. Sleeping
 * would end 50 to 200 us late. */
static uint64_t poll_ns(const struct pn_copy_call *call)
{
	const struct pn_costs *costs = &call->copier->attr.device->costs;
	double byte_ns = pn_copy_cost(call->direction == PN_COPY_TO_GPU
					      ? &costs->put_byte_ns
					      : &costs->get_byte_ns,
				      PN_COPY_MOVE_BYTE_NS);

	if (!call->copier->may_poll)
		return PN_COPY_POLL_NS;
	return PN_COPY_POLL_NS +
	       (uint64_t)(2 * byte_ns * (double)call->host.len);
}

/* Waits for this copy, not for what other threads put into the stream
 * meanwhile. */
static pn_cu_result wait_for_copy(struct pn_copy_call *call)
{
	struct pn_copier *copier = call->copier;
	struct pn_copy_completion completion = { .poll_ns = poll_ns(call) };
	pn_cu_result ret;

	completion.word = pn_copy_word_take(copier, &completion.at);
	if (completion.word)
		completion.value = atomic_load(completion.word);
	else
		completion.at = 0;
	ret = pn_copy_completion_record(copier, &completion, call->op->stream);
	pn_copy_call_use(call);
	if (!ret)
		ret = pn_copy_completion_wait(copier, &completion, NULL);
	if (completion.word)
		pn_copy_word_return(copier, completion.word);
	return ret;
}

pn_cu_result pn_copy_call_pinned(struct pn_copy_call *call,
				 struct pinion_pin *pin)
{
	struct pn_copier *copier = call->copier;
	pn_cu_result ret = pn_copy_call_segments(call, pin);

	if (!ret)
		ret = wait_for_copy(call);
	/* What was started must end before the unpin. */
	if (ret)
		copier->cu->stream_synchronize(call->op->stream);
	pn_cache_unpin(copier->attr.cache, pin);
	if (!ret) {
		atomic_fetch_add(&copier->registered, 1);
		atomic_fetch_add(&copier->registered_bytes, call->host.len);
	}
	return ret;
}

/* --- without looking ------------------------------------------------------ */

/* Sets the direction by the end that pinion holds. */
static bool find_held_end(struct pn_copy_call *call)
{
	const struct pn_copy_op *op = call->op;
	const struct pn_range dst = { (uintptr_t)op->dst, op->bytes };
	const struct pn_range src = { (uintptr_t)op->src, op->bytes };
	bool to = pn_cuda_gate_holds(src);

	if (to == pn_cuda_gate_holds(dst))
		return false;
	call->held = true;
	call->direction = to ? PN_COPY_TO_GPU : PN_COPY_FROM_GPU;
	call->host = to ? src : dst;
	call->gpu = to ? dst.addr : src.addr;
	return true;
}

/* As in a call that was entered: what we do beside the copy must not disturb a
 * capture of another thread. */
static bool copy_relaxed(struct pn_copy_call *call, struct pinion_pin *pin)
{
	const struct pn_cuda_driver *cu = call->copier->cu;
	int mode = PN_CU_STREAM_CAPTURE_MODE_RELAXED;
	pn_cu_result ret;

	cu->exchange_capture_mode(&mode);
	ret = pn_copy_call_pinned(call, pin);
	cu->exchange_capture_mode(&mode);
	return !ret;
}

bool pn_copy_call_registered(struct pn_copy_call *call)
{
	const struct pn_cuda_driver *cu = call->copier->cu;
	struct pinion_pin pin;
	int capturing = 0;

	if (find_held_end(call) &&
	    !cu->stream_is_capturing(call->op->stream, &capturing) &&
	    !capturing && pn_copy_call_pin(call, &pin) &&
	    copy_relaxed(call, &pin))
		return true;
	call->held = false;
	return false;
}
