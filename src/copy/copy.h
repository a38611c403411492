/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * copy -- moves bytes between unpinned host memory and GPUs (rows G2, G3, G4,
 * G6; pinion/cuda.h has the guarantees).
 *
 * Nouns
 *   copier      the engine of one context: workers, bounce buffers, measured
 *               times. It is opened by the context's first copy.
 *   job         one copy that goes through bounce buffers: a host range, a GPU
 *               range, and the index of the next block that nobody has taken.
 *   block       what one participant moves in one step. Blocks begin at
 *               multiples of the block length in host memory, so that no huge
 *               page belongs to two of them.
 *   participant a thread that takes blocks of a job: the caller and workers.
 *   staging set what a participant needs: two bounce buffers and, for each, the
 *               completion of its copy. Staging sets belong to the copier; a
 *               thread holds one while it participates.
 *   streams     of our own, in one CUDA context, with an event. A job takes
 *               them and gives them back; its participants share them.
 *   worker      a thread of the copier. Between jobs it sleeps (workers.c says
 *               why it does not poll).
 *   method      how a copy is made: by the driver, through bounce buffers, from
 *               registered memory.
 *
 * Life of a job
 *   posted -> participants join, take blocks, leave -> no block is left and all
 *   have left: ended. A job of pinion_cuda_copy() lies on the caller's stack;
 *   the caller participates, so the job ends though no worker has time for it.
 *   A job of pinion_cuda_copy_start() lies in its request, and workers alone
 *   participate.
 *
 * Which method (choose.h): below a minimum the driver, without a look at the
 * memory. Else the method whose measured time is the least for the size, the
 * direction and the free staging sets. Memory that the cache keeps registered
 * is copied directly; where only a part is, participants copy registered blocks
 * directly, and the driver's copy, which refuses such ranges, is not used.
 *
 * With `keep` (the option cuda_keep) memory that comes again is registered in
 * the background, block by block (background.h).
 *
 * Order with the caller's stream. The caller records an event in its stream.
 * Unless that event has already happened, the job's streams wait for it. The
 * call returns when all bytes have arrived, so the caller's stream need not
 * wait for ours. With a request it waits for a word in host memory
 * (cuStreamWaitValue32) that the last participant writes.
 *
 * At rest: all staging sets are free; nobody waits; workers sleep.
 *
 * Threads: any. copier->lock protects jobs, staging sets and counts; it is a
 * leaf and nobody calls CUDA or copies under it. Workers run on the GPU's NUMA
 * node, with signals blocked and capture mode RELAXED.
 *
 * Errors: the first error of a participant ends the job: others stop at their
 * next block. After an error that says that the CUDA context is gone, staging
 * sets and streams are made anew by the next copy.
 *
 * Caveat: blocks are read and written by memcpy(): a program that frees the
 * memory while the copy is under way gets a signal, as it does in memcpy().
 * After fork() the child has no workers, and its copy of the context is
 * refused.
 */
#ifndef PN_COPY_COPY_H
#define PN_COPY_COPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <pinion/cuda.h>

#include "cache/cache.h"
#include "device/cuda/driver.h"
#include "device/device.h"

struct pn_copier;

struct pn_copier_attr {
	const struct pn_cuda_driver *driver;
	pn_cu_context primary; /* for threads without a current context */
	struct pn_device *device;
	struct pn_cache *cache;	      /* of the device; has the budget */
	struct pn_pages_policy pages; /* of bounce buffers */
	const char *bus_id;   /* of the GPU, for its NUMA node; may be NULL */
	bool keep;	      /* program memory may stay registered */
	unsigned max_workers; /* 0: by the cores of the process */
	/* For tests; 0: what was measured to be the best. */
	size_t block_bytes;	 /* the largest, through bounce buffers */
	size_t background_bytes; /* a block that is registered */
	size_t min_bytes;	 /* what is smaller is the driver's */
};

/* One copy. */
struct pn_copy_op {
	void *dst;
	const void *src;
	size_t bytes;
	pn_cu_stream stream;
	/* Memory of a GPU: default streams are those of its context. NULL: of
	 * the current one. pn_copier_start() alone. */
	const void *default_of;
	/* Copies between unpinned memory and that of a GPU only: others are
	 * refused with -EXDEV, and nothing has happened. */
	bool unpinned_only;
	/* For a call that waits for its copy: on return what the driver's
	 * blocking call promises holds (up to 64 KiB to the GPU may be staged
	 * alone). The stream is a default one. */
	bool blocking;
};

/* -ENOMEM. Starts no thread and registers nothing yet. */
int pn_copier_open(const struct pn_copier_attr *attr, struct pn_copier **out);

/* Ends workers and bounce buffers. No copy may be under way. NULL is fine. */
void pn_copier_close(struct pn_copier *copier);

/* pinion_cuda_copy(). *result, which may be NULL, is what the driver returned
 * if it refused. */
int pn_copier_copy(struct pn_copier *copier, const struct pn_copy_op *op,
		   pn_cu_result *result);

/* pinion_cuda_copy_start(), _test(), _wait(). */
int pn_copier_start(struct pn_copier *copier, const struct pn_copy_op *op,
		    struct pinion_cuda_request **out);
int pn_copy_request_test(struct pinion_cuda_request *request);
int pn_copy_request_wait(struct pinion_cuda_request *request,
			 uint64_t timeout_us);

void pn_copier_query(struct pn_copier *copier, struct pinion_cuda_stats *out);

/* Deregisters program memory that overlaps the range, and what was released.
 * -EBUSY: a copy is under way there. */
int pn_copier_yield(struct pn_copier *copier, const void *addr, size_t len);

/* Below, copies are the driver's. */
size_t pn_copier_min_bytes(const struct pn_copier *copier);

/* The index-th method of a copy and its expected times. -ENOENT. */
int pn_copier_explain(struct pn_copier *copier,
		      const struct pinion_explain_attr *attr, unsigned index,
		      struct pinion_explanation *out);

/* Waits until the background registers nothing and wants nothing. For tests. */
void pn_copier_settle(struct pn_copier *copier);

#endif
