/* SPDX-License-Identifier: BSD-2-Clause */
/* The copy calls of the driver, as a program finds them (calls.h). Each looks
 * whether the copy is pinion's; else the driver's function of the same name is
 * called, inside a passage of the gate. */
#include <stdlib.h>

#include "preload/cuda/preload.h"

/* The stream that 0 stands for, by the suffix of the function. */
#define STREAM		PN_CU_STREAM_LEGACY
#define STREAM_ptds	PN_CU_STREAM_PER_THREAD
#define STREAM_ptsz	PN_CU_STREAM_PER_THREAD
#define ZERO_IS(suffix) STREAM##suffix
#define IN(suffix)	(stream ? stream : ZERO_IS(suffix))

static const struct pn_range none;

static struct pn_range range_of(const void *at, size_t bytes)
{
	return (struct pn_range){ (uintptr_t)at, bytes };
}

/* --- one dimension ---------------------------------------------------------
 */

#define TAKE_OR(symbol, copy_, ...)                         \
	do {                                                \
		const struct pn_preload_copy taken = copy_; \
		struct pn_gate_passage passage;             \
		pn_cu_result ret;                           \
                                                            \
		if (pn_preload_take(&taken, &passage))      \
			return PN_CUDA_SUCCESS;             \
		ret = PN_REAL(symbol, __VA_ARGS__);         \
		pn_cuda_gate_leave(&passage);               \
		return ret;                                 \
	} while (0)

/* `device` is the end that the name says to be memory of a GPU, or 0. */
#define BLOCKING(name, suffix, dst_type, src_type, device)                     \
	PN_PRELOAD_API pn_cu_result name##suffix(dst_type dst, src_type src,   \
						 size_t bytes)                 \
	{                                                                      \
		TAKE_OR(name##suffix,                                          \
			((struct pn_preload_copy){                             \
				(uintptr_t)dst, (uintptr_t)src, bytes,         \
				ZERO_IS(suffix), (uintptr_t)(device), true }), \
			dst, src, bytes);                                      \
	}

#define ASYNC(name, suffix, dst_type, src_type, device)                      \
	PN_PRELOAD_API pn_cu_result name##suffix(dst_type dst, src_type src, \
						 size_t bytes,               \
						 pn_cu_stream stream)        \
	{                                                                    \
		TAKE_OR(name##suffix,                                        \
			((struct pn_preload_copy){                           \
				(uintptr_t)dst, (uintptr_t)src, bytes,       \
				stream ? stream : ZERO_IS(suffix),           \
				(uintptr_t)(device), false }),               \
			dst, src, bytes, stream);                            \
	}

/* --- two dimensions --------------------------------------------------------
 */

/* From the first byte to the last that an end may touch. */
static struct pn_range rows(uintptr_t at, size_t pitch, size_t width,
			    size_t height)
{
	return (struct pn_range){ at,
				  height ? pitch * (height - 1) + width : 0 };
}

/* Arrays are no addresses. A device address does no harm. */
static uintptr_t address_2d(int type, const void *host, pn_cu_deviceptr device)
{
	if (type == PN_CU_MEMORYTYPE_HOST)
		return (uintptr_t)host;
	return type == PN_CU_MEMORYTYPE_ARRAY ? 0 : (uintptr_t)device;
}

struct ends {
	struct pn_range dst, src; /* len 0: an array */
	bool contiguous;
};

static struct ends ends_of_2d(const struct pn_cu_memcpy2d *c)
{
	uintptr_t dst = address_2d(c->dst_type, c->dst_host, c->dst_device);
	uintptr_t src = address_2d(c->src_type, c->src_host, c->src_device);
	struct ends ends = { .contiguous = dst && src };

	if (dst)
		ends.dst = rows(dst + c->dst_y * c->dst_pitch + c->dst_x_bytes,
				c->dst_pitch, c->width_bytes, c->height);
	if (src)
		ends.src = rows(src + c->src_y * c->src_pitch + c->src_x_bytes,
				c->src_pitch, c->width_bytes, c->height);
	if (c->height != 1 &&
	    (c->dst_pitch != c->width_bytes || c->src_pitch != c->width_bytes))
		ends.contiguous = false;
	return ends;
}

/* True: done. */
static bool take_2d(const struct pn_cu_memcpy2d *c, pn_cu_stream stream,
		    bool blocking, struct pn_gate_passage *passage)
{
	struct ends ends = { none, none, false };
	struct pn_preload_copy copy;

	if (c)
		ends = ends_of_2d(c);
	if (!ends.contiguous) {
		pn_preload_graph_reads(stream, ends.dst, ends.src);
		pn_preload_pass(ends.dst, ends.src, passage);
		return false;
	}
	copy = (struct pn_preload_copy){
		ends.dst.addr, ends.src.addr, ends.dst.len, stream, 0, blocking
	};
	if (c->dst_type == PN_CU_MEMORYTYPE_DEVICE)
		copy.device = copy.dst;
	else if (c->src_type == PN_CU_MEMORYTYPE_DEVICE)
		copy.device = copy.src;
	return pn_preload_take(&copy, passage);
}

#define CALL_2D(name, suffix, params, in, blocking, ...)   \
	PN_PRELOAD_API pn_cu_result name##suffix params    \
	{                                                  \
		struct pn_gate_passage passage;            \
		pn_cu_result ret;                          \
                                                           \
		if (take_2d(copy, in, blocking, &passage)) \
			return PN_CUDA_SUCCESS;            \
		ret = PN_REAL(name##suffix, __VA_ARGS__);  \
		pn_cuda_gate_leave(&passage);              \
		return ret;                                \
	}

#define BLOCKING_2D(name, suffix)                                  \
	CALL_2D(name, suffix, (const struct pn_cu_memcpy2d *copy), \
		ZERO_IS(suffix), true, copy)

#define ASYNC_2D(name, suffix)                                            \
	CALL_2D(name, suffix,                                             \
		(const struct pn_cu_memcpy2d *copy, pn_cu_stream stream), \
		IN(suffix), false, copy, stream)

/* --- what always passes: three dimensions, arrays --------------------------
 */

static struct pn_range end_of_3d(const struct pn_cu_memcpy3d_end *end,
				 const struct pn_cu_memcpy3d *c)
{
	uintptr_t at = address_2d(end->type, end->host, end->device);
	size_t slice = end->pitch * (end->height ? end->height : c->height);

	if (!at || !c->depth)
		return none;
	return (struct pn_range){
		at + end->z * slice + end->y * end->pitch + end->x_bytes,
		slice * (c->depth - 1) +
			rows(0, end->pitch, c->width_bytes, c->height).len
	};
}

struct pn_range pn_preload_src_of_3d(const struct pn_cu_memcpy3d *copy)
{
	return copy ? end_of_3d(&copy->src, copy) : none;
}

struct pn_range pn_preload_dst_of_3d(const struct pn_cu_memcpy3d *copy)
{
	return copy ? end_of_3d(&copy->dst, copy) : none;
}

/* `in`: the stream. */
#define PASS(symbol, params, in, a, b, ...)         \
	PN_PRELOAD_API pn_cu_result symbol params   \
	{                                           \
		struct pn_range a_ = a, b_ = b;     \
		struct pn_gate_passage passage;     \
		pn_cu_result ret;                   \
                                                    \
		pn_preload_graph_reads(in, a_, b_); \
		pn_preload_pass(a_, b_, &passage);  \
		ret = PN_REAL(symbol, __VA_ARGS__); \
		pn_cuda_gate_leave(&passage);       \
		return ret;                         \
	}

#define BLOCKING_3D(name, suffix)                               \
	PASS(name##suffix, (const struct pn_cu_memcpy3d *copy), \
	     ZERO_IS(suffix), pn_preload_dst_of_3d(copy),       \
	     pn_preload_src_of_3d(copy), copy)

#define ASYNC_3D(name, suffix)                                         \
	PASS(name##suffix,                                             \
	     (const struct pn_cu_memcpy3d *copy, pn_cu_stream stream), \
	     IN(suffix), pn_preload_dst_of_3d(copy),                   \
	     pn_preload_src_of_3d(copy), copy, stream)

/* --- batches ---------------------------------------------------------------
 */

struct batch {
	const pn_cu_deviceptr *dsts, *srcs;
	const size_t *bytes;
	size_t n;
	pn_cu_stream stream;
};

static bool take_batch(const struct batch *batch,
		       struct pn_gate_passage *passage)
{
	struct pn_preload_copy *copies =
		batch->n && batch->dsts && batch->srcs && batch->bytes
			? calloc(batch->n, sizeof(*copies))
			: NULL;
	bool done;

	if (!copies) {
		pn_preload_pass(pn_preload_everything, none, passage);
		return false;
	}
	for (size_t i = 0; i < batch->n; i++)
		copies[i] = (struct pn_preload_copy){ (uintptr_t)batch->dsts[i],
						      (uintptr_t)batch->srcs[i],
						      batch->bytes[i],
						      batch->stream,
						      0,
						      false };
	done = pn_preload_take_batch(copies, batch->n, passage);
	free(copies);
	return done;
}

#define BATCH(symbol, suffix, params, ...)                               \
	PN_PRELOAD_API pn_cu_result symbol##suffix params                \
	{                                                                \
		const struct batch batch = { dsts, srcs, bytes, n,       \
					     stream ? stream             \
						    : ZERO_IS(suffix) }; \
		struct pn_gate_passage passage;                          \
		pn_cu_result ret;                                        \
                                                                         \
		if (take_batch(&batch, &passage))                        \
			return PN_CUDA_SUCCESS;                          \
		ret = PN_REAL(symbol##suffix, __VA_ARGS__);              \
		pn_cuda_gate_leave(&passage);                            \
		return ret;                                              \
	}

/* --- the functions ---------------------------------------------------------
 */

/* clang-format off */
#define ALL_BLOCKING(suffix) \
	BLOCKING(cuMemcpy, suffix, pn_cu_deviceptr, pn_cu_deviceptr, 0) \
	BLOCKING(cuMemcpyHtoD_v2, suffix, pn_cu_deviceptr, const void *, dst) \
	BLOCKING(cuMemcpyDtoH_v2, suffix, void *, pn_cu_deviceptr, src) \
	BLOCKING_2D(cuMemcpy2D_v2, suffix) \
	BLOCKING_2D(cuMemcpy2DUnaligned_v2, suffix) \
	BLOCKING_3D(cuMemcpy3D_v2, suffix) \
	BLOCKING_3D(cuMemcpy3DPeer, suffix) \
	PASS(cuMemcpyHtoA_v2##suffix, \
	     (pn_cu_array dst, size_t offset, const void *src, size_t bytes), \
	     ZERO_IS(suffix), range_of(src, bytes), none, \
	     dst, offset, src, bytes) \
	PASS(cuMemcpyAtoH_v2##suffix, \
	     (void *dst, pn_cu_array src, size_t offset, size_t bytes), \
	     ZERO_IS(suffix), range_of(dst, bytes), none, \
	     dst, src, offset, bytes)

#define ALL_ASYNC(suffix) \
	ASYNC(cuMemcpyAsync, suffix, pn_cu_deviceptr, pn_cu_deviceptr, 0) \
	ASYNC(cuMemcpyHtoDAsync_v2, suffix, pn_cu_deviceptr, const void *, dst) \
	ASYNC(cuMemcpyDtoHAsync_v2, suffix, void *, pn_cu_deviceptr, src) \
	ASYNC_2D(cuMemcpy2DAsync_v2, suffix) \
	ASYNC_3D(cuMemcpy3DAsync_v2, suffix) \
	ASYNC_3D(cuMemcpy3DPeerAsync, suffix) \
	PASS(cuMemcpyHtoAAsync_v2##suffix, \
	     (pn_cu_array dst, size_t offset, const void *src, size_t bytes, \
	      pn_cu_stream stream), \
	     IN(suffix), range_of(src, bytes), none, dst, offset, src, bytes, stream) \
	PASS(cuMemcpyAtoHAsync_v2##suffix, \
	     (void *dst, pn_cu_array src, size_t offset, size_t bytes, \
	      pn_cu_stream stream), \
	     IN(suffix), range_of(dst, bytes), none, dst, src, offset, bytes, stream) \
	BATCH(cuMemcpyBatchAsync, suffix, \
	      (pn_cu_deviceptr *dsts, pn_cu_deviceptr *srcs, size_t *bytes, \
	       size_t n, void *attrs, size_t *indexes, size_t nattrs, \
	       size_t *failed, pn_cu_stream stream), \
	      dsts, srcs, bytes, n, attrs, indexes, nattrs, failed, stream) \
	BATCH(cuMemcpyBatchAsync_v2, suffix, \
	      (pn_cu_deviceptr *dsts, pn_cu_deviceptr *srcs, size_t *bytes, \
	       size_t n, void *attrs, size_t *indexes, size_t nattrs, \
	       pn_cu_stream stream), \
	      dsts, srcs, bytes, n, attrs, indexes, nattrs, stream) \
	PASS(cuMemcpy3DBatchAsync##suffix, \
	     (size_t n, void *copies, size_t *failed, \
	      unsigned long long flags, pn_cu_stream stream), \
	     IN(suffix), pn_preload_everything, none, n, copies, failed, flags, stream) \
	PASS(cuMemcpy3DBatchAsync_v2##suffix, \
	     (size_t n, void *copies, unsigned long long flags, \
	      pn_cu_stream stream), \
	     IN(suffix), pn_preload_everything, none, n, copies, flags, stream)

ALL_BLOCKING()
ALL_BLOCKING(_ptds)
ALL_ASYNC()
ALL_ASYNC(_ptsz)
/* clang-format on */
