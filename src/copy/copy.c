/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A copy from call to return: what kind of memory it is, in which CUDA context
 * it happens, and by which method.
 */
#include "copy/copy.h"

#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "copy/call_impl.h"
#include "copy/copy_impl.h"
#include "device/cuda/gate.h"

/* --- the copier ----------------------------------------------------------- */

/* The largest block of shape.c. */
#define BLOCK_BYTES	 ((size_t)2 << 20)
#define MAX_PARTICIPANTS 12
/* A machine with fewer cores has better to do than to poll. */
#define MIN_POLL_CORES	 4

static void set_affinity(struct pn_copier *copier)
{
	unsigned ncores = pn_copy_ncores();
	unsigned max = copier->attr.max_workers;

	copier->has_cpus =
		pn_copy_cpus_near(copier->attr.bus_id, &copier->cpus);
	if (copier->attr.pages.numa_node < 0)
		copier->attr.pages.numa_node =
			pn_copy_node_of(copier->attr.bus_id);
	if (copier->has_cpus)
		ncores = (unsigned)CPU_COUNT(&copier->cpus);
	if (!max)
		max = ncores < MAX_PARTICIPANTS ? ncores : MAX_PARTICIPANTS;
	copier->max_participants =
		max < PN_COPY_MAX_PARTICIPANTS ? max : PN_COPY_MAX_PARTICIPANTS;
	copier->may_poll = ncores >= MIN_POLL_CORES;
}

int pn_copier_open(const struct pn_copier_attr *attr, struct pn_copier **out)
{
	struct pn_copier *copier = calloc(1, sizeof(*copier));
	int ret;

	if (!copier)
		return -ENOMEM;
	copier->attr = *attr;
	copier->cu = attr->driver;
	copier->block_bytes =
		attr->block_bytes ? attr->block_bytes : BLOCK_BYTES;
	copier->min_bytes =
		attr->min_bytes ? attr->min_bytes : PN_COPY_MIN_BYTES;
	set_affinity(copier);
	copier->attr.bus_id = NULL; /* the caller's */
	pn_copy_times_init(&copier->times, &attr->device->costs);
	ret = pn_background_init(&copier->background, attr->device,
				 attr->keep ? attr->cache : NULL);
	if (ret) {
		free(copier);
		return ret;
	}
	if (attr->background_bytes) {
		copier->background.block_bytes = attr->background_bytes;
		copier->background.max_block_bytes = attr->background_bytes;
	}
	/* Blocks that merge would be registered again and again. */
	if (attr->keep)
		pn_cache_set_merging(attr->cache, false);
	pn_mutex_init(&copier->lock);
	pn_mutex_init(&copier->growing);
	pn_list_init(&copier->jobs);
	pn_list_init(&copier->free_staging);
	pn_list_init(&copier->idle_streams);
	pn_list_init(&copier->requests);
	*out = copier;
	return 0;
}

void pn_copier_close(struct pn_copier *copier)
{
	if (!copier)
		return;
	pn_copy_requests_close(copier);
	pn_copy_words_close(copier);
	pn_background_fini(&copier->background);
	pn_copy_workers_close(copier);
	pn_copy_streams_close(copier);
	pn_copy_staging_close(copier);
	pn_mutex_fini(&copier->growing);
	pn_mutex_fini(&copier->lock);
	free(copier);
}

void pn_copier_settle(struct pn_copier *copier)
{
	pn_background_settle(&copier->background);
}

/* --- a copy --------------------------------------------------------------- */

/* Beyond the small sizes: finds the kinds of memory out and chooses. */
static pn_cu_result copy_slowly(struct pn_copy_call *call)
{
	pn_cu_result ret = pn_copy_call_enter(call);

	if (ret)
		return ret;
	if (pn_copy_call_is_ours(call)) {
		ret = pn_copy_call_move(call);
		/* Afterwards: registering is not to meet this copy. */
		pn_copy_call_use(call);
	} else if (call->op->unpinned_only) {
		call->status = -EXDEV;
		ret = PN_CUDA_ERROR_INVALID_VALUE;
	} else {
		ret = pn_copy_call_by_driver(call);
	}
	pn_copy_call_leave(call);
	return ret;
}

int pn_copy_call_error(const struct pn_copy_call *call, pn_cu_result result)
{
	int ret = call->status ? call->status : pn_cuda_errno(result);

	if (ret == -EIO)
		pn_error("a copy of %zu bytes failed: %s", call->op->bytes,
			 pn_cuda_error_name(call->copier->cu, result));
	return ret;
}

int pn_copier_copy(struct pn_copier *copier, const struct pn_copy_op *op,
		   pn_cu_result *result)
{
	struct pn_copy_call call = { .copier = copier, .op = op };
	pn_cu_result ret = PN_CUDA_ERROR_INVALID_CONTEXT;

	if (!op->bytes)
		return 0;
	pn_cache_settle(copier->attr.cache);
	/* Small: whatever the memory is, and unless a registration of ours is
	 * in the way, or the thread has no context. */
	if (op->bytes < copier->min_bytes && !op->unpinned_only)
		ret = pn_copy_call_driver(&call);
	if (ret == PN_CUDA_ERROR_INVALID_CONTEXT || call.held)
		ret = pn_copy_call_registered(&call) ? PN_CUDA_SUCCESS
						     : copy_slowly(&call);
	if (result)
		*result = ret;
	return ret ? pn_copy_call_error(&call, ret) : 0;
}

void pn_copier_query(struct pn_copier *copier, struct pinion_cuda_stats *out)
{
	*out = (struct pinion_cuda_stats){
		.driver = copier->driver,
		.bounced = copier->bounced,
		.registered = copier->registered,
		.mixed = copier->mixed,
		.bounced_bytes = copier->bounced_bytes,
		.registered_bytes = copier->registered_bytes,
		.background_blocks = copier->background.blocks,
		.background_bytes = copier->background.bytes,
		.explored = copier->times.explored,
		.bounce_bytes = copier->nstaging * PN_COPY_NBUFFERS *
				copier->block_bytes,
		.workers = copier->nthreads,
		.workers_asleep = copier->nasleep,
	};
}

int pn_copier_yield(struct pn_copier *copier, const void *addr, size_t len)
{
	struct pn_cache *cache = copier->attr.cache;
	struct pn_range range = { (uintptr_t)addr, len };

	pn_background_forget(&copier->background, range);
	if (len >= UINTPTR_MAX - range.addr) {
		pn_cache_flush(cache);
	} else {
		pn_cache_invalidate(cache, range.addr, len);
		pn_cache_settle(cache);
	}
	return pn_cuda_gate_holds(range) ? -EBUSY : 0;
}

size_t pn_copier_min_bytes(const struct pn_copier *copier)
{
	return copier->min_bytes;
}
