/* SPDX-License-Identifier: BSD-2-Clause */
/* copy -- the copy calls.
 *
 * Each becomes one operation of a stream. Pageable memory: the source is read
 * before the call returns, the destination is written before it returns.
 * Pinned memory: the asynchronous calls return at once. */
#include <stdlib.h>
#include <string.h>

#include "standin_impl.h"

#define ANY_SIDE -1

/* Where an end is; with `want` it must be there. */
static bool find_end(struct memory_end *end, size_t bytes, int want,
		     enum where *out)
{
	pthread_mutex_lock(&standin_lock);
	*out = memory_where(end->at, bytes, &end->id);
	pthread_mutex_unlock(&standin_lock);
	return *out != INVALID &&
	       (want == ANY_SIDE || (*out == DEVICE) == (want == DEVICE));
}

static char *snapshot(const struct op *op)
{
	char *copy = malloc(op->width * op->height);

	for (size_t y = 0; y < op->height; y++)
		memcpy(copy + y * op->width,
		       (const char *)op->src.at + y * op->src_pitch, op->width);
	return copy;
}

struct copy {
	struct op op;
	int dst, src; /* DEVICE, PAGEABLE (any host memory) or ANY_SIDE */
	pn_cu_stream stream;
	bool sync;
};

static size_t span(size_t pitch, const struct op *op)
{
	return op->height ? (op->height - 1) * pitch + op->width : 0;
}

static pn_cu_result start(struct copy c)
{
	enum where dst, src;
	struct op *op = &c.op;
	bool captured = stream_captures(c.stream);
	pn_cu_result result;

	if (!op->width || !op->height)
		return 0;
	if (c.sync) {
		result = stream_check_unsafe();
		if (result)
			return result;
	}
	if (!find_end(&op->dst, span(op->dst_pitch, op), c.dst, &dst) ||
	    !find_end(&op->src, span(op->src_pitch, op), c.src, &src))
		return PN_CUDA_ERROR_INVALID_VALUE;
	op->late = dst == PINNED || src == PINNED || !c.sync;
	if (src == PAGEABLE && !captured)
		op->snapshot = snapshot(op);
	result = stream_add(c.stream, op, c.sync || dst == PAGEABLE);
	if (result == PN_CUDA_ERROR_INVALID_HANDLE)
		free(op->snapshot);
	return result;
}

static struct copy flat(uintptr_t dst, uintptr_t src, size_t bytes)
{
	return (struct copy){ .op = { .kind = OP_COPY,
				      .dst.at = dst,
				      .src.at = src,
				      .width = bytes,
				      .height = 1 },
			      .dst = ANY_SIDE,
			      .src = ANY_SIDE };
}

/* --- for streams given, and the default streams of both kinds --------------
 */

static pn_cu_result copy_on(struct copy c, pn_cu_stream stream)
{
	c.stream = stream;
	return start(c);
}

static pn_cu_result copy_now(struct copy c, pn_cu_stream stream)
{
	c.sync = true;
	return copy_on(c, stream);
}

static pn_cu_stream ptsz(pn_cu_stream stream)
{
	return stream ? stream : PN_CU_STREAM_PER_THREAD;
}

static struct copy htod(pn_cu_deviceptr dst, const void *src, size_t bytes)
{
	struct copy c = flat(dst, (uintptr_t)src, bytes);

	c.dst = DEVICE;
	c.src = PAGEABLE;
	return c;
}

static struct copy dtoh(void *dst, pn_cu_deviceptr src, size_t bytes)
{
	struct copy c = flat((uintptr_t)dst, src, bytes);

	c.dst = PAGEABLE;
	c.src = DEVICE;
	return c;
}

static struct copy dtod(pn_cu_deviceptr dst, pn_cu_deviceptr src, size_t bytes)
{
	struct copy c = flat(dst, src, bytes);

	c.dst = c.src = DEVICE;
	return c;
}

static uintptr_t end_2d(int type, uintptr_t host, pn_cu_deviceptr device)
{
	return type == PN_CU_MEMORYTYPE_HOST ? host : (uintptr_t)device;
}

static int side_2d(int type)
{
	return type == PN_CU_MEMORYTYPE_HOST	 ? PAGEABLE
	       : type == PN_CU_MEMORYTYPE_DEVICE ? DEVICE
						 : ANY_SIDE;
}

static struct copy copy_2d(const struct pn_cu_memcpy2d *m)
{
	return (struct copy){
		.op = { .kind = OP_COPY,
			.dst.at = end_2d(m->dst_type, (uintptr_t)m->dst_host,
					 m->dst_device) +
				  m->dst_y * m->dst_pitch + m->dst_x_bytes,
			.src.at = end_2d(m->src_type, (uintptr_t)m->src_host,
					 m->src_device) +
				  m->src_y * m->src_pitch + m->src_x_bytes,
			.width = m->width_bytes,
			.height = m->height,
			.dst_pitch = m->dst_pitch,
			.src_pitch = m->src_pitch },
		.dst = side_2d(m->dst_type),
		.src = side_2d(m->src_type)
	};
}

/* A synchronous call and its form for per-thread default streams. */
#define SYNC(symbol, params, made)                              \
	STANDIN_API pn_cu_result symbol params                  \
	{                                                       \
		ENTER_CONTEXT(symbol);                          \
		return copy_now(made, PN_CU_STREAM_LEGACY);     \
	}                                                       \
	STANDIN_API pn_cu_result symbol##_ptds params           \
	{                                                       \
		ENTER_CONTEXT(symbol##_ptds);                   \
		return copy_now(made, PN_CU_STREAM_PER_THREAD); \
	}

#define UNPACK(...) __VA_ARGS__
#define ASYNC(symbol, params, made)                                         \
	STANDIN_API pn_cu_result symbol(UNPACK params, pn_cu_stream stream) \
	{                                                                   \
		ENTER_CONTEXT(symbol);                                      \
		return copy_on(made, stream);                               \
	}                                                                   \
	STANDIN_API pn_cu_result symbol##_ptsz(UNPACK params,               \
					       pn_cu_stream stream)         \
	{                                                                   \
		ENTER_CONTEXT(symbol##_ptsz);                               \
		return copy_on(made, ptsz(stream));                         \
	}

SYNC(cuMemcpy, (pn_cu_deviceptr dst, pn_cu_deviceptr src, size_t bytes),
     flat(dst, src, bytes))
ASYNC(cuMemcpyAsync, (pn_cu_deviceptr dst, pn_cu_deviceptr src, size_t bytes),
      flat(dst, src, bytes))
SYNC(cuMemcpyHtoD_v2, (pn_cu_deviceptr dst, const void *src, size_t bytes),
     htod(dst, src, bytes))
ASYNC(cuMemcpyHtoDAsync_v2,
      (pn_cu_deviceptr dst, const void *src, size_t bytes),
      htod(dst, src, bytes))
SYNC(cuMemcpyDtoH_v2, (void *dst, pn_cu_deviceptr src, size_t bytes),
     dtoh(dst, src, bytes))
ASYNC(cuMemcpyDtoHAsync_v2, (void *dst, pn_cu_deviceptr src, size_t bytes),
      dtoh(dst, src, bytes))
SYNC(cuMemcpyDtoD_v2, (pn_cu_deviceptr dst, pn_cu_deviceptr src, size_t bytes),
     dtod(dst, src, bytes))
ASYNC(cuMemcpyDtoDAsync_v2,
      (pn_cu_deviceptr dst, pn_cu_deviceptr src, size_t bytes),
      dtod(dst, src, bytes))
SYNC(cuMemcpy2D_v2, (const struct pn_cu_memcpy2d *copy), copy_2d(copy))
SYNC(cuMemcpy2DUnaligned_v2, (const struct pn_cu_memcpy2d *copy), copy_2d(copy))
ASYNC(cuMemcpy2DAsync_v2, (const struct pn_cu_memcpy2d *copy), copy_2d(copy))

/* Attributes say when sources are read: as with separate copies. */
STANDIN_API pn_cu_result cuMemcpyBatchAsync(pn_cu_deviceptr *dsts,
					    pn_cu_deviceptr *srcs,
					    size_t *bytes, size_t n,
					    void *attrs, size_t *indexes,
					    size_t nattrs, size_t *failed,
					    pn_cu_stream stream)
{
	pn_cu_result ret = PN_CUDA_SUCCESS;

	ENTER_CONTEXT(cuMemcpyBatchAsync);
	(void)attrs;
	(void)indexes;
	(void)nattrs;
	for (size_t i = 0; !ret && i < n; i++) {
		*failed = i;
		ret = copy_on(flat(dsts[i], srcs[i], bytes[i]), stream);
	}
	return ret;
}

STANDIN_API pn_cu_result cuMemsetD8Async(pn_cu_deviceptr dst,
					 unsigned char value, size_t bytes,
					 pn_cu_stream stream)
{
	struct op op = {
		.kind = OP_SET, .dst.at = dst, .value = value, .width = bytes
	};

	ENTER_CONTEXT(cuMemsetD8Async);
	return stream_add(stream, &op, false);
}

STANDIN_API pn_cu_result cuMemsetD8_v2(pn_cu_deviceptr dst, unsigned char value,
				       size_t bytes)
{
	struct op op = {
		.kind = OP_SET, .dst.at = dst, .value = value, .width = bytes
	};

	ENTER_CONTEXT(cuMemsetD8_v2);
	return stream_add(NULL, &op, true);
}
