/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a participant does: takes a block, starts its copy, and settles it two
 * blocks later, when its buffer is needed again.
 *
 * To the GPU the bytes go into a bounce buffer before the copy is started; from
 * the GPU they leave the bounce buffer when the copy is settled. So while one
 * buffer is copied by this CPU the other is copied by the GPU. A block that is
 * registered needs no buffer and is copied directly.
 */
#include <errno.h>
#include <sys/mman.h>

#include "base/log.h"
#include "copy/copy_impl.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

struct slot {
	bool busy;
	bool pinned;
	struct pinion_pin pin;
	char *buffer;
	struct pn_copy_completion *completion;
	char *host; /* of the block */
	size_t len;
};

struct participant {
	struct pn_copier *copier;
	const struct pn_cuda_driver *cu;
	struct pn_copy_job *job;
	pn_cu_stream stream;
	struct slot slots[PN_COPY_NBUFFERS];
};

/* Errors after which nothing that belonged to the context works. */
static bool is_loss(pn_cu_result result)
{
	return result == PN_CUDA_ERROR_CONTEXT_IS_DESTROYED ||
	       result == PN_CUDA_ERROR_INVALID_CONTEXT ||
	       result == PN_CUDA_ERROR_INVALID_HANDLE ||
	       result == PN_CUDA_ERROR_DEINITIALIZED;
}

void pn_copy_job_fail(struct pn_copy_job *job, int status, pn_cu_result result)
{
	int none = 0;

	if (atomic_compare_exchange_strong(&job->status, &none, status))
		atomic_store(&job->result, result);
	atomic_store(&job->next_block, SIZE_MAX / 2);
}

/* The stream that waits for the copy must go on, or the copy never ends. */
static void fail_stuck(struct pn_copy_job *job)
{
	pn_error("a copy waits for other streams, which wait for the copy: use "
		 "pinion_cuda_copy() where many streams wait");
	pn_copy_job_fail(job, -EDEADLK, PN_CUDA_ERROR_UNKNOWN);
	atomic_store(job->held_word, job->held_value);
}

static void fail(struct participant *p, pn_cu_result result)
{
	if (result == PN_COPY_STUCK) {
		fail_stuck(p->job);
		return;
	}
	if (is_loss(result))
		atomic_fetch_add(&p->copier->generation, 1);
	pn_copy_job_fail(p->job, pn_cuda_errno(result), result);
}

/* The range of the index-th block; false: there is none. */
static bool block_range(const struct pn_copy_job *job, size_t index,
			size_t *offset, size_t *len)
{
	size_t skew = (uintptr_t)job->host % job->block_bytes;
	size_t end;

	if (index > (job->bytes + skew) / job->block_bytes)
		return false;
	*offset = index ? index * job->block_bytes - skew : 0;
	end = (index + 1) * job->block_bytes - skew;
	*len = (end < job->bytes ? end : job->bytes) - *offset;
	return *offset < job->bytes;
}

static pn_cu_result copy_bytes(struct participant *p, char *host,
			       const char *block, const char *at, size_t len)
{
	struct pn_copy_job *job = p->job;
	pn_cu_deviceptr gpu =
		job->gpu + (size_t)(block - job->host) + (size_t)(at - block);

	return job->direction == PN_COPY_TO_GPU
		       ? p->cu->memcpy_htod_async(gpu, host, len, p->stream)
		       : p->cu->memcpy_dtoh_async(host, gpu, len, p->stream);
}

/* --- destinations that were never touched --------------------------------- */

static bool is_absent(const char *at)
{
	unsigned char present;
	uintptr_t page = (uintptr_t)at & ~(uintptr_t)(PN_PAGE_BYTES - 1);

	return !mincore((void *)page, 1, &present) && !(present & 1);
}

/* Makes the pages of a block at once: faults cost more than the pages. It is
 * done while the GPU copies. */
static void make_pages(const struct slot *slot)
{
	struct pn_range pages =
		pn_range_pages((uintptr_t)slot->host, slot->len, PN_PAGE_BYTES);

	if (is_absent(slot->host + slot->len / 2))
		madvise((void *)pages.addr, pages.len, MADV_POPULATE_WRITE);
}

void pn_copy_pages_prepare(const struct pn_copier *copier, char *host,
			   size_t bytes)
{
	const size_t huge = PN_PAGES_HUGE_BYTES;
	uintptr_t from = ((uintptr_t)host + huge - 1) & ~(huge - 1);
	uintptr_t to = ((uintptr_t)host + bytes) & ~(huge - 1);

	if (copier->attr.pages.huge == PN_PAGES_NORMAL || from + huge > to)
		return;
	if (is_absent((char *)from) && is_absent(host + bytes / 2) &&
	    is_absent((char *)to - 1))
		madvise((void *)from, to - from, MADV_HUGEPAGE);
}

/* --- one block ------------------------------------------------------------ */

/* Pins the block if it is to move without a bounce buffer. */
static bool pin_block(struct participant *p, struct slot *slot)
{
	struct pn_copy_job *job = p->job;
	struct pn_cache *cache = p->copier->attr.cache;
	unsigned flags = PINION_ACCESS_LOCAL_WRITE;

	if (job->mixed && pn_cache_covers(cache, slot->host, slot->len, flags))
		return !pn_cache_pin_hit(cache, slot->host, slot->len, flags,
					 &slot->pin);
	if (job->blocks != PN_BLOCKS_REGISTER)
		return false;
	flags |= PINION_PIN_BYPASS;
	return !pn_cache_pin(cache, slot->host, slot->len, flags, &slot->pin);
}

/* A segment may have several registrations: a call of the driver each. */
static pn_cu_result copy_segment(struct participant *p, struct slot *slot,
				 const struct pinion_pin_segment *segment)
{
	pn_cu_result ret = PN_CUDA_SUCCESS;
	char *at = segment->addr;
	size_t left = segment->len;

	while (!ret && left) {
		size_t n = pn_cuda_run(p->copier->attr.device, at, left);

		ret = copy_bytes(p, at, slot->host, at, n);
		at += n;
		left -= n;
	}
	return ret;
}

static pn_cu_result copy_pinned(struct participant *p, struct slot *slot)
{
	struct pinion_pin_segment segment;
	pn_cu_result ret = PN_CUDA_SUCCESS;

	for (unsigned i = 0; !ret && i < slot->pin.nsegments; i++) {
		pn_assert(!pn_cache_pin_segment(&slot->pin, i, &segment));
		ret = copy_segment(p, slot, &segment);
	}
	atomic_fetch_add_explicit(&p->job->registered_bytes, slot->len,
				  memory_order_relaxed);
	return ret;
}

static pn_cu_result copy_bounced(struct participant *p, struct slot *slot)
{
	pn_cu_result ret;

	if (p->job->direction == PN_COPY_TO_GPU && p->job->nontemporal)
		pn_copy_nontemporal(slot->buffer, slot->host, slot->len);
	else if (p->job->direction == PN_COPY_TO_GPU)
		pn_copy(p->copier->attr.device, slot->buffer, slot->host,
			slot->len);
	ret = copy_bytes(p, slot->buffer, slot->host, slot->host, slot->len);
	atomic_fetch_add_explicit(&p->job->bounced_bytes, slot->len,
				  memory_order_relaxed);
	return ret;
}

static void start_block(struct participant *p, struct slot *slot)
{
	pn_cu_result ret;

	slot->pinned = (p->job->mixed || p->job->blocks) && pin_block(p, slot);
	/* The pipeline's blocks are larger than bounce buffers. */
	if (!slot->pinned && slot->len > p->copier->block_bytes) {
		pn_copy_job_fail(p->job, -EAGAIN, PN_CUDA_ERROR_UNKNOWN);
		return;
	}
	ret = slot->pinned ? copy_pinned(p, slot) : copy_bounced(p, slot);
	slot->busy = true;
	if (!ret)
		ret = pn_copy_completion_record(p->copier, slot->completion,
						p->stream);
	if (ret) {
		fail(p, ret);
		return;
	}
	if (p->job->direction == PN_COPY_FROM_GPU && !slot->pinned)
		make_pages(slot);
}

/* Ends the copy of a block: its buffer, or its registration, is free. */
static void settle_block(struct participant *p, struct slot *slot)
{
	pn_cu_result ret;

	if (!slot->busy)
		return;
	slot->busy = false;
	ret = pn_unlikely(atomic_load(&p->job->status))
		      ? PN_CUDA_ERROR_UNKNOWN
		      : pn_copy_completion_wait(p->copier, slot->completion,
						p->job);
	if (ret) {
		fail(p, ret);
		/* The completion says nothing then, and the buffer must be
		 * free. */
		p->cu->stream_synchronize(p->stream);
		pn_copy_completion_drop(p->copier, slot->completion);
	} else if (!slot->pinned && p->job->direction == PN_COPY_FROM_GPU) {
		pn_copy(p->copier->attr.device, slot->host, slot->buffer,
			slot->len);
	}
	if (slot->pinned)
		pn_cache_unpin(p->copier->attr.cache, &slot->pin);
}

static bool next_block(struct participant *p, struct slot *slot)
{
	struct pn_copy_job *job = p->job;
	size_t index = atomic_fetch_add(&job->next_block, 1);
	size_t offset;

	if (!block_range(job, index, &offset, &slot->len))
		return false;
	slot->host = job->host + offset;
	return true;
}

static void begin(struct participant *p, struct pn_copy_staging *staging)
{
	struct pn_copy_job *job = p->job;
	unsigned n = atomic_fetch_add(&job->nstreams, 1);

	p->stream = job->streams->copy[n % PN_COPY_NSTREAMS];
	for (unsigned i = 0; i < PN_COPY_NBUFFERS; i++) {
		p->slots[i].buffer =
			(char *)staging->mr.addr + i * p->copier->block_bytes;
		p->slots[i].completion = &staging->completions[i];
	}
}

void pn_copy_blocks_move(struct pn_copier *copier,
			 struct pn_copy_staging *staging,
			 struct pn_copy_job *job)
{
	struct participant p = { .copier = copier,
				 .cu = copier->cu,
				 .job = job };
	unsigned turn = 0;

	begin(&p, staging);
	do {
		turn = (turn + 1) % PN_COPY_NBUFFERS;
		settle_block(&p, &p.slots[turn]);
		if (!next_block(&p, &p.slots[turn]))
			break;
		start_block(&p, &p.slots[turn]);
	} while (true);
	for (unsigned i = 1; i < PN_COPY_NBUFFERS; i++)
		settle_block(&p, &p.slots[(turn + i) % PN_COPY_NBUFFERS]);
}
