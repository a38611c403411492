/* SPDX-License-Identifier: BSD-2-Clause */
#include "copy/background.h"

#include <errno.h>
#include <sched.h>
#include <string.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "copy/choose.h"

#define BLOCK_BYTES	((size_t)32 << 20)
#define MIN_BLOCK_BYTES ((size_t)1 << 20)
/* Others are held up for as long as a block takes: half of what row G6 allows.
 */
#define MAX_HOLD_NS	(2500 * PN_NS_PER_US)
#define RETRY		4

/* --- the queue ------------------------------------------------------------ */

static struct pn_background_refusal *find_refusal(
	struct pn_background *background, struct pn_range range)
	PN_REQUIRES(&background->lock)
{
	for (unsigned i = 0; i < PN_BACKGROUND_QUEUE; i++) {
		struct pn_background_refusal *r = &background->refusals[i];

		if (r->range.len == range.len && r->range.addr == range.addr)
			return r;
	}
	return NULL;
}

/* A refused range is skipped once, then RETRY times as often each time. */
static bool is_refused(struct pn_background *background, struct pn_range range)
	PN_REQUIRES(&background->lock)
{
	struct pn_background_refusal *r = find_refusal(background, range);

	return r && ++r->requests <= r->skip;
}

static void refuse(struct pn_background *background, struct pn_range range)
	PN_REQUIRES(&background->lock)
{
	struct pn_background_refusal *r = find_refusal(background, range);

	if (!r) {
		r = &background->refusals[background->next_refusal++ %
					  PN_BACKGROUND_QUEUE];
		*r = (struct pn_background_refusal){ .range = range };
	}
	r->skip = r->skip ? r->skip * RETRY : 1;
	r->requests = 0;
}

static bool is_queued(const struct pn_background *background,
		      struct pn_range range) PN_REQUIRES(&background->lock)
{
	for (unsigned i = 0; i < background->nqueued; i++)
		if (pn_range_overlaps(background->queue[i].whole, range))
			return true;
	return false;
}

static bool enqueue(struct pn_background *background,
		    const struct pn_background_use *use)
	PN_REQUIRES(&background->lock)
{
	if (background->nqueued == PN_BACKGROUND_QUEUE)
		return false;
	background->queue[background->nqueued++] = (struct pn_background_range){
		.whole = use->range, .rest = use->range, .end = use->end
	};
	return true;
}

static void dequeue(struct pn_background *background, unsigned at)
	PN_REQUIRES(&background->lock)
{
	background->nqueued--;
	memmove(&background->queue[at], &background->queue[at + 1],
		(background->nqueued - at) * sizeof(background->queue[0]));
}

/* --- registering ---------------------------------------------------------- */

/* The next block; false: nothing is queued. */
static bool next_block(struct pn_background *background, struct pn_range *out)
{
	bool found;

	pn_lock(&background->lock);
	found = background->nqueued;
	if (found) {
		*out = background->queue[0].rest;
		out->len = pn_min_size(out->len, background->block_bytes);
	}
	background->running = found;
	pn_unlock(&background->lock);
	return found;
}

/* The range at the head of the queue cannot be registered now. */
static void give_up_first(struct pn_background *background)
	PN_REQUIRES(&background->lock)
{
	const struct pn_background_range *first = &background->queue[0];
	const struct pn_use use = { .addr = first->whole.addr,
				    .len = first->whole.len,
				    .end = first->end };

	refuse(background, first->whole);
	pn_history_kept(background->history, &use, false);
	dequeue(background, 0);
}

/* A machine that was busy for a moment must not leave short blocks for ever. */
static void adapt_length(struct pn_background *background, size_t len,
			 uint64_t took_ns) PN_REQUIRES(&background->lock)
{
	size_t *bytes = &background->block_bytes;

	if (took_ns > MAX_HOLD_NS && *bytes > MIN_BLOCK_BYTES)
		*bytes /= 2;
	else if (took_ns < MAX_HOLD_NS / 4 && len == *bytes &&
		 *bytes < background->max_block_bytes)
		*bytes *= 2;
}

static void block_ended(struct pn_background *background, struct pn_range block,
			int status, uint64_t took_ns)
{
	struct pn_background_range *first = &background->queue[0];

	pn_lock(&background->lock);
	background->running = false;
	if (status) {
		give_up_first(background);
	} else {
		first->rest.addr += block.len;
		first->rest.len -= block.len;
		if (!first->rest.len)
			dequeue(background, 0);
	}
	adapt_length(background, block.len, took_ns);
	pn_unlock(&background->lock);
	if (!status) {
		atomic_fetch_add(&background->blocks, 1);
		atomic_fetch_add(&background->bytes, block.len);
	}
}

/* The cache's service thread calls it: registers a block. */
static uint64_t step(void *arg)
{
	struct pn_background *background = arg;
	struct pn_range block;
	uint64_t begin, end;
	int ret;

	if (!next_block(background, &block))
		return PN_FOREVER;
	begin = pn_device_now(background->device);
	ret = pn_cache_prefetch(background->cache, block.addr, block.len,
				PINION_ACCESS_LOCAL_WRITE);
	end = pn_device_now(background->device);
	block_ended(background, block, ret, end - begin);
	return end + (end - begin);
}

int pn_background_init(struct pn_background *background,
		       struct pn_device *device, struct pn_cache *cache)
{
	*background = (struct pn_background){
		.cache = cache,
		.device = device,
		.block_bytes = BLOCK_BYTES,
		.max_block_bytes = BLOCK_BYTES,
		.task = { .step = step, .arg = background },
	};
	if (!cache)
		return 0;
	background->history = pn_history_open();
	if (!background->history)
		return -ENOMEM;
	pn_mutex_init(&background->lock);
	pn_cache_task_add(cache, &background->task);
	return 0;
}

void pn_background_fini(struct pn_background *background)
{
	if (!background->cache)
		return;
	pn_cache_task_remove(background->cache, &background->task);
	pn_mutex_fini(&background->lock);
	pn_history_close(background->history);
}

/* The one whose block is being registered ends with that block. */
void pn_background_forget(struct pn_background *background,
			  struct pn_range range)
{
	struct pn_background_range *q = background->queue;

	if (!background->cache)
		return;
	pn_lock(&background->lock);
	for (unsigned i = background->nqueued; i--;) {
		if (!pn_range_overlaps(q[i].whole, range))
			continue;
		if (!i && background->running)
			q[0].rest.len = pn_min_size(q[0].rest.len,
						    background->block_bytes);
		else
			dequeue(background, i);
	}
	pn_unlock(&background->lock);
}

/* --- deciding ------------------------------------------------------------- */

/* Whether the expected uses would take more CPU time than registering. */
static bool pays(const struct pn_background *background,
		 const struct pn_background_use *use,
		 const struct pn_forecast *forecast)
{
	const struct pn_costs *costs = &background->device->costs;
	size_t npages = use->range.len / PN_PAGE_BYTES;
	double pages = (double)npages;
	double once =
		pn_copy_cost(&costs->register_ns, PN_COPY_REGISTER_NS) +
		pn_copy_cost(&costs->deregister_ns, PN_COPY_DEREGISTER_NS) +
		pages * pn_copy_cost(&costs->register_page_ns,
				     PN_COPY_REGISTER_PAGE_NS) +
		pages * pn_copy_cost(&costs->deregister_page_ns,
				     PN_COPY_DEREGISTER_PAGE_NS);

	return forecast->uses >= 2 && forecast->further * use->bounce_ns > once;
}

/* Whether the memory is registered, or will be. The queue first: a range leaves
 * it when it has been registered. */
static bool is_registered(struct pn_background *background,
			  struct pn_range range)
{
	bool queued;

	pn_lock(&background->lock);
	queued = is_queued(background, range);
	pn_unlock(&background->lock);
	return queued || pn_cache_covers(background->cache, (void *)range.addr,
					 range.len, PINION_ACCESS_LOCAL_WRITE);
}

void pn_background_use(struct pn_background *background,
		       const struct pn_background_use *use)
{
	struct pn_use seen = { .addr = use->range.addr,
			       .len = use->range.len,
			       .end = use->end };
	struct pn_forecast forecast;
	bool wanted;

	if (!background->cache)
		return;
	seen.cached = is_registered(background, use->range);
	/* Where the notice of a release comes before the pages go, registering
	 * in between would take the old ones: see pn_cache_notices_early(). */
	seen.unkept = !pn_cache_keeps(background->cache) ||
		      pn_cache_notices_early(background->cache);
	pn_lock(&background->lock);
	pn_history_use(background->history, &seen, &forecast);
	wanted = !seen.cached && !seen.unkept &&
		 pays(background, use, &forecast) &&
		 !is_refused(background, use->range) &&
		 enqueue(background, use);
	pn_history_kept(background->history, &seen, seen.cached || wanted);
	pn_unlock(&background->lock);
	if (wanted)
		pn_cache_task_schedule(background->cache, &background->task, 0);
}

void pn_background_settle(struct pn_background *background)
{
	bool idle = !background->cache;

	while (!idle) {
		sched_yield();
		pn_lock(&background->lock);
		idle = !background->nqueued;
		pn_unlock(&background->lock);
	}
}
