/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pinion/cuda.h -- copies between host memory and NVIDIA GPUs.
 *
 *	const char *const options[] = { "device=cuda", NULL };
 *	struct pinion_attr attr = { .size = sizeof(attr), .options = options };
 *	struct pinion_context *context;
 *
 *	pinion_open(&attr, &context);
 *	pinion_cuda_copy(context, device_memory, array, bytes, stream);
 *	pinion_cuda_copy(context, array, device_memory, bytes, stream);
 *
 * The arguments are those of cuMemcpyAsync(). The host memory need not be
 * pinned: threads of pinion move it through pinned buffers, several times as
 * fast as the driver does. Where the driver's copy is the fastest, that is
 * what happens.
 *
 * Nouns
 *   unpinned memory  host memory that CUDA does not know. Memory of
 *                    cuMemHostAlloc(), of cuMemHostRegister(), of a heap
 *                    (pinion/heap.h) or under a pin (pinion/cache.h) is pinned.
 *   stream           a CUstream or cudaStream_t; NULL, or CU_STREAM_LEGACY, is
 *                    the legacy default stream, CU_STREAM_PER_THREAD that of
 *                    the calling thread. Its context is used; for the default
 *                    streams the current one, or, if the thread has none, the
 *                    primary one of the context's GPU. A request can name
 *                    memory instead, whose context it is (default_of).
 *
 * Order. A copy begins when the work that the stream had before has ended, and
 * work that the stream gets later begins after the copy. Where one end is
 * unpinned, the other is memory of a GPU, and the driver's copy is not the
 * fastest, the bytes move on streams of pinion's own, which wait for an event
 * of the given stream. Everything else is the driver's own copy in the given
 * stream: between GPUs, pinned and managed memory, and whatever the stream is
 * being captured for.
 *
 * On return of pinion_cuda_copy()
 *   from unpinned memory: the source has been read and may be changed or freed;
 *   into unpinned memory: the destination has been written;
 *   otherwise: as after cuMemcpyAsync(), the copy is under way.
 *
 * pinion_cuda_copy_start() does not wait, and gives a request. Until the
 * request has ended the host memory belongs to the copy. Work that the stream
 * gets after the call begins after the copy. The mechanism is a stream memory
 * operation: the stream waits (cuStreamWaitValue32) for a word that pinion
 * writes. A GPU or driver without these: the call blocks, and the request has
 * ended when it returns. Do not synchronise a thread that pinion's copy needs
 * with the stream: pinion_cuda_wait() and cuStreamSynchronize() are both fine,
 * from any thread.
 *
 * Memory stays registered between copies only in a context that was opened with
 * the option cuda_keep=yes. CUDA looks registrations up by address in every
 * copy of the process: memory that is registered and then released and mapped
 * again would deliver old bytes to copies that do not go through pinion. So set
 * the option only if every copy of the process does (pinion-run(1) sees to it).
 *
 * Threads: any, concurrently; GPUs: those of all contexts of the process. An
 * error changes no memory that the copy does not name; the destination may
 * have been written in part.
 */
#ifndef PINION_CUDA_H
#define PINION_CUDA_H

#include <stddef.h>
#include <stdint.h>

#include <pinion/config.h>
#include <pinion/message.h>

#ifdef __cplusplus
extern "C" {
#endif

struct pinion_cuda_request;

/* Copies; the kinds of memory are found out. 0 bytes are fine.
 * -EINVAL: NULL, a range that wraps around, or what the driver calls an invalid
 * value, stream or context; -EOPNOTSUPP: the context's device is no GPU;
 * -EPERM: the context is of this process's parent; -ENOMEM: host or GPU;
 * -ENODEV: the CUDA context is gone (cudaDeviceReset()) or the GPU is; -EBUSY:
 * a capture forbids it, or the stream is being captured and a pin or another
 * copy keeps memory of the range registered; -EIO, -EEXIST: another error of
 * the driver; that of -EIO is logged with its name. */
PINION_API int pinion_cuda_copy(struct pinion_context *context, void *dst,
				const void *src, size_t bytes, void *stream);

/* What pinion_cuda_copy_start() copies. Start from zero. */
struct pinion_cuda_copy_attr {
	size_t size;	/* sizeof(struct pinion_cuda_copy_attr) */
	uint64_t flags; /* none yet: 0 */
	void *dst;
	const void *src;
	size_t bytes;
	void *stream;
	/* Memory of a GPU, dst or src for example: a default stream is that of
	 * the context which has this memory, whatever context is current. NULL:
	 * of the current context. */
	const void *default_of;
};

/* Begins a copy. *out is its request, which ends with the pinion_cuda_wait() or
 * pinion_cuda_test() that finds the copy ended. Errors as above; -E2BIG. */
PINION_API int pinion_cuda_copy_start(struct pinion_context *context,
				      const struct pinion_cuda_copy_attr *attr,
				      struct pinion_cuda_request **out);

/* 0: the copy has ended, and the handle is gone; -EAGAIN: not yet, or the
 * driver cannot be asked now; -EINVAL: NULL; -EPERM; or the error that ended
 * it, an error of pinion_cuda_copy(): the handle is gone, too. */
PINION_API int pinion_cuda_test(struct pinion_cuda_request *request);

/* As above, but sleeps until the copy has ended, for timeout_us at most
 * (PINION_FOREVER: without limit). -ETIMEDOUT: it has not, or the driver cannot
 * be asked now, and the handle stays good. */
PINION_API int pinion_cuda_wait(struct pinion_cuda_request *request,
				uint64_t timeout_us);

/* Counters of the copies of a context, by how the bytes moved. */
struct pinion_cuda_stats {
	size_t size;	     /* sizeof(struct pinion_cuda_stats), by you */
	uint64_t driver;     /* the driver's own copy */
	uint64_t bounced;    /* by copy workers, through bounce buffers */
	uint64_t registered; /* from or to memory that is kept registered */
	uint64_t mixed;	     /* a part of it was kept registered */
	uint64_t bounced_bytes;
	uint64_t registered_bytes;  /* moved from and to registered memory */
	uint64_t background_blocks; /* registered for later uses */
	uint64_t background_bytes;
	uint64_t explored; /* by another method than the best, to learn its time
			    */
	size_t bounce_bytes;	 /* of the bounce buffers, now */
	unsigned workers;	 /* threads, now */
	unsigned workers_asleep; /* of them */
};

/* Fills *stats, whose `size` you set. -EINVAL: NULL, or size 0; -EPERM. */
PINION_API int pinion_cuda_query(struct pinion_context *context,
				 struct pinion_cuda_stats *stats);

enum pinion_cuda_explain_flag {
	/* From the GPU; else to it. */
	PINION_CUDA_EXPLAIN_FROM_GPU = 1 << 0,
};

/* Fills *out with the index-th method, from 0, by which a copy of attr->len
 * bytes of unpinned memory, used attr->reuse times, could be made, with the
 * times that are expected now: attr->flags are of enum
 * pinion_cuda_explain_flag. -ENOENT: there are no more; -EINVAL; -E2BIG;
 * -EOPNOTSUPP; -EPERM; -ENOMEM. */
PINION_API int pinion_cuda_explain(struct pinion_context *context,
				   const struct pinion_explain_attr *attr,
				   unsigned index,
				   struct pinion_explanation *out);

#ifdef __cplusplus
}
#endif

#endif
