/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/trace/replay.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "cache/cache.h"
#include "cache/trace_event.h"
#include "tools/trace/mappings.h"
#include "tools/trace/offline.h"

/* Traces may begin at address 0, which the cache refuses: all addresses are
 * shifted beyond the address space of programs. */
#define SHIFT ((uint64_t)1 << 47)

/* --- a device that counts --------------------------------------------------
 */

struct counter {
	struct pn_device base;
	uint64_t last_key;
	uint64_t nregistered, registered_pages;
	uint64_t nbatches, nderegistered, deregistered_pages;
};

static size_t npages_of(const struct pn_mr *mr)
{
	return pn_range_npages((uintptr_t)mr->addr, mr->len);
}

static int count_register(struct pn_device *device, struct pn_mr *const *mrs,
			  unsigned n)
{
	struct counter *counter = pn_container_of(device, struct counter, base);

	for (unsigned i = 0; i < n; i++) {
		mrs[i]->lkey = mrs[i]->rkey = ++counter->last_key;
		counter->registered_pages += npages_of(mrs[i]);
	}
	counter->nregistered += n;
	return 0;
}

static void count_deregister(struct pn_device *device, struct pn_mr *const *mrs,
			     unsigned n)
{
	struct counter *counter = pn_container_of(device, struct counter, base);

	for (unsigned i = 0; i < n; i++) {
		mrs[i]->lkey = 0;
		counter->deregistered_pages += npages_of(mrs[i]);
	}
	counter->nderegistered += n;
	counter->nbatches++;
}

static void zero_pinned(struct pn_device *device, struct pn_pinned *out)
{
	(void)device;
	*out = (struct pn_pinned){ 0 };
}

static uint64_t zero_time(struct pn_device *device)
{
	(void)device;
	return 0;
}

static void block(struct pn_device *device, _Atomic uint32_t *word,
		  uint32_t value, uint64_t deadline_ns)
{
	(void)device;
	(void)value;
	(void)deadline_ns;
	pn_assert(!word); /* no other thread could wake the caller */
}

static void unblock(struct pn_device *device, _Atomic uint32_t *word)
{
	(void)device;
	(void)word;
}

static const struct pn_device_ops counter_ops = {
	.kind = "replay",
	.reg = count_register,
	.dereg = count_deregister,
	.pinned = zero_pinned,
	.now = zero_time,
	.block = block,
	.unblock = unblock,
};

static double ns_of(const struct pn_profile *profile,
		    enum pn_profile_field field)
{
	return profile->value[field] * 1e3;
}

static void counter_init(struct counter *counter,
			 const struct pn_profile *profile,
			 const struct pn_workload *workload)
{
	*counter = (struct counter){
		.base = {
			.ops = &counter_ops,
			.caps = PN_CAP_VIRTUAL_TIME |
				(workload->read_only ? PN_CAP_READ_ONLY : 0) |
				(workload->one_segment ? PN_CAP_ONE_SEGMENT : 0),
			.limits = { .max_mr_bytes = SIZE_MAX,
				    .max_mrs = SIZE_MAX,
				    .max_pinned_bytes = SIZE_MAX },
			.profile = profile->name,
			.single_threaded = true,
		},
	};
	counter->base.costs = (struct pn_costs){
		.register_ns = ns_of(profile, PN_PROFILE_REGISTER_US),
		.register_page_ns = ns_of(profile, PN_PROFILE_REGISTER_PAGE_US),
		.deregister_ns = ns_of(profile, PN_PROFILE_DEREGISTER_US),
		.deregister_page_ns =
			ns_of(profile, PN_PROFILE_DEREGISTER_PAGE_US),
		.emulated = true,
	};
}

/* Formula 1 of Ou and others 2009. */
static double total_us(const struct counter *counter,
		       const struct pn_profile *profile)
{
	const double *cost = profile->value;
	uint64_t nfixed =
		profile->unbatched ? counter->nderegistered : counter->nbatches;

	return cost[PN_PROFILE_REGISTER_US] * (double)counter->nregistered +
	       cost[PN_PROFILE_REGISTER_PAGE_US] *
		       (double)counter->registered_pages +
	       cost[PN_PROFILE_DEREGISTER_US] * (double)nfixed +
	       cost[PN_PROFILE_DEREGISTER_PAGE_US] *
		       (double)counter->deregistered_pages;
}

/* --- one run ----------------------------------------------------------------
 */

struct run {
	const struct pn_workload *workload;
	const struct pn_replay_attr *attr;
	struct pn_replay_result *result;
	struct counter counter;
	struct pn_budget budget;
	struct pn_mappings mappings;
	struct pn_cache *cache;
	struct pinion_pin *held; /* index: hold - 1; nsegments 0: not held */
	size_t now;		 /* number of the step */
	/* part of the budget that OTHERS steps charged */
	size_t others_bytes, others_regions;
	/* the offline policy; NULL: the cache's own policy */
	struct pn_policy *policy;
	bool bypass;
};

static struct pn_range pages_of(const struct pn_workload_step *step)
{
	return pn_range_pages(step->addr + SHIFT, step->len, PN_PAGE_BYTES);
}

/* The request does not fit the budget: register it for this request only. */
static void pin_oversize(struct run *run, const struct pn_workload_step *step)
{
	struct pn_range pages = pages_of(step);
	struct counter *counter = &run->counter;

	run->result->oversize++;
	counter->nregistered++;
	counter->nderegistered++;
	counter->nbatches++;
	counter->registered_pages += pages.len >> PN_PAGE_SHIFT;
	counter->deregistered_pages += pages.len >> PN_PAGE_SHIFT;
}

static int replay_pin(struct run *run, const struct pn_workload_step *step)
{
	unsigned flags = pn_trace_event_pin_flags(step->flags) |
			 (run->bypass ? PINION_PIN_BYPASS : 0);
	void *addr = (void *)(uintptr_t)(step->addr + SHIFT);
	struct pinion_pin pin;
	int ret = 0;

	if (run->policy)
		ret = pn_offline_request(run->policy, run->now, pages_of(step));
	if (!ret)
		ret = pn_cache_pin(run->cache, addr, step->len, flags, &pin);
	run->result->requests++;
	if (ret == -ENOBUFS) {
		pin_oversize(run, step);
		return 0;
	}
	if (ret)
		return ret;
	if (run->policy)
		pn_cache_sync_policy(run->cache);
	if (step->hold)
		run->held[step->hold - 1] = pin;
	else
		pn_cache_unpin(run->cache, &pin);
	return 0;
}

static void replay_unpin(struct run *run, const struct pn_workload_step *step)
{
	struct pinion_pin *pin = &run->held[step->hold - 1];

	/* 0: the pin did not fit the budget. */
	if (pin->nsegments)
		pn_cache_unpin(run->cache, pin);
}

/* Charges the difference between the current and the requested share of others.
 */
static int charge_others(struct run *run, size_t bytes, size_t regions)
{
	int ret;

	if (bytes <= run->others_bytes && regions <= run->others_regions)
		return 0;
	ret = pn_cache_charge(run->cache,
			      bytes > run->others_bytes
				      ? bytes - run->others_bytes
				      : 0,
			      regions > run->others_regions
				      ? regions - run->others_regions
				      : 0);
	/* A replay with a smaller budget than the recorded one may have no
	 * space. */
	if (ret)
		return ret == -ENOBUFS ? 0 : ret;
	run->others_bytes =
		bytes > run->others_bytes ? bytes : run->others_bytes;
	run->others_regions =
		regions > run->others_regions ? regions : run->others_regions;
	return 0;
}

static int replay_others(struct run *run, size_t bytes, size_t regions)
{
	size_t less_bytes =
		run->others_bytes > bytes ? run->others_bytes - bytes : 0;
	size_t less_regions = run->others_regions > regions
				      ? run->others_regions - regions
				      : 0;

	pn_budget_uncharge(&run->budget, less_bytes, less_regions);
	run->others_bytes -= less_bytes;
	run->others_regions -= less_regions;
	return charge_others(run, bytes, regions);
}

static void replay_release(struct run *run, const struct pn_workload_step *step)
{
	pn_cache_invalidate(run->cache, step->addr + SHIFT, step->len);
	pn_mappings_remove(&run->mappings, step->addr + SHIFT, step->len);
}

static int replay_mapping(struct run *run, const struct pn_workload_step *step)
{
	uintptr_t addr = step->addr + SHIFT;

	if (step->hold)
		return pn_mappings_add(&run->mappings, addr, step->len);
	pn_mappings_split(&run->mappings, addr, step->len);
	return 0;
}

static int replay_step(struct run *run, const struct pn_workload_step *step)
{
	switch ((enum pn_workload_step_kind)step->kind) {
	case PN_WORKLOAD_PIN:
		return replay_pin(run, step);
	case PN_WORKLOAD_UNPIN:
		replay_unpin(run, step);
		return 0;
	case PN_WORKLOAD_RELEASE:
		replay_release(run, step);
		return 0;
	case PN_WORKLOAD_FLUSH:
		pn_cache_flush(run->cache);
		return 0;
	case PN_WORKLOAD_OTHERS:
		return replay_others(run, step->len, step->addr);
	case PN_WORKLOAD_MERGE:
		pn_cache_set_merging(run->cache, step->hold);
		return 0;
	case PN_WORKLOAD_MAPPING:
		return replay_mapping(run, step);
	}
	return -EINVAL;
}

#define PROGRESS_STEPS 65536

static int replay_steps(struct run *run)
{
	const struct pn_workload *workload = run->workload;
	_Atomic uint64_t *progress = run->attr->progress;
	int ret = 0;

	for (run->now = 0; run->now < workload->nsteps && !ret; run->now++) {
		ret = replay_step(run, &workload->steps[run->now]);
		if (progress && !((run->now + 1) % PROGRESS_STEPS))
			atomic_fetch_add(progress, PROGRESS_STEPS);
	}
	if (progress)
		atomic_fetch_add(progress, workload->nsteps % PROGRESS_STEPS);
	for (uint32_t i = 0; i < workload->nholds; i++)
		if (run->held[i].nsegments)
			pn_cache_unpin(run->cache, &run->held[i]);
	return ret;
}

static bool is_one_mapping(void *arg, struct pn_range range)
{
	return pn_mappings_cover(arg, range.addr, range.len);
}

static int open_offline(struct run *run)
{
	const struct pn_costs *costs = &run->counter.base.costs;
	struct pn_policy_attr attr = {
		.capacity_pages = run->attr->max_bytes >> PN_PAGE_SHIFT,
		.batch = run->attr->batch ? run->attr->batch : 32,
		.register_fixed = costs->register_ns / 1e3,
		.register_page = costs->register_page_ns / 1e3,
		.deregister_fixed = costs->deregister_ns / 1e3,
		.deregister_page = costs->deregister_page_ns / 1e3,
	};

	pn_assert(run->attr->next_use);
	return pn_offline_open(&attr, run->attr->next_use, &run->policy);
}

static int open_cache(struct run *run)
{
	const struct pn_replay_attr *attr = run->attr;
	struct pn_cache_attr cache = {
		.device = &run->counter.base,
		.budget = &run->budget,
		.policy = run->bypass ? "lru" : attr->policy,
		.max_region_bytes = attr->max_region_bytes,
		.batch = attr->batch,
		.no_merge = !run->workload->mappings || !run->workload->merge,
		.no_monitor = true,
		.no_worker = true,
		.alone = true,
		.is_one_mapping = is_one_mapping,
		.mapping_arg = &run->mappings,
	};
	int ret = 0;

	if (!strcmp(attr->policy, "offline"))
		ret = open_offline(run);
	cache.own_policy = run->policy;
	return ret ? ret : pn_cache_open(&cache, &run->cache);
}

static double cpu_seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static void collect(struct run *run)
{
	struct pinion_cache_stats stats;
	struct pn_replay_result *out = run->result;

	pn_cache_query(run->cache, &stats);
	out->hits = stats.hits;
	out->misses = stats.misses + out->oversize;
	out->registrations = run->counter.nregistered;
	out->registered_bytes = run->counter.registered_pages << PN_PAGE_SHIFT;
	out->deregistrations = stats.deregistrations + out->oversize;
	out->deregister_batches = run->counter.nbatches;
	out->evictions = stats.evictions;
	out->merges = stats.merges;
	out->peak_bytes = stats.peak_bytes;
	out->total_us = total_us(&run->counter, run->attr->profile);
}

int pn_replay(const struct pn_workload *workload,
	      const struct pn_replay_attr *attr, struct pn_replay_result *out)
{
	struct run run = {
		.workload = workload,
		.attr = attr,
		.result = out,
		.bypass = !strcmp(attr->policy, "none"),
	};
	double start = cpu_seconds();
	int ret;

	*out = (struct pn_replay_result){ 0 };
	counter_init(&run.counter, attr->profile, workload);
	pn_budget_init(&run.budget, &run.counter.base, attr->max_bytes,
		       attr->max_regions ? attr->max_regions : SIZE_MAX, 1);
	run.held = calloc(workload->nholds + 1, sizeof(*run.held));
	if (!run.held)
		return -ENOMEM;
	ret = open_cache(&run);
	if (ret)
		goto free_held;
	ret = replay_steps(&run);
	if (!ret)
		collect(&run);
	out->cpu_s = cpu_seconds() - start;
	pn_budget_uncharge(&run.budget, run.others_bytes, run.others_regions);
	pn_cache_close(run.cache);
	pn_mappings_fini(&run.mappings);
free_held:
	free(run.held);
	return ret;
}
