/* SPDX-License-Identifier: BSD-2-Clause */
#include "bench/timed_replay.h"

#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/pages.h"
#include "device/measure.h"
#include "device/profiles.h"
#include "device/sim/sim.h"
#include "helper/helper.h"
#include "tools/trace/trace.h"

#define THRESHOLD ((size_t)16 << 10)
#define PLENTY	  ((size_t)1 << 46)

struct replay {
	const struct pn_timed_replay_attr *attr;
	const struct pn_profile *profile;
	struct pn_trace *trace;
	struct pn_sim *sim;
	struct pn_device *device;
	struct arena *arena; /* real time: the memory; NULL: none is needed */
	struct pn_budget budget;
	struct pn_cache *cache;
	struct pn_helper *helper;
	struct pn_meter meter;
	uint64_t start_ns, ended_ns, waited_ns;
	uint64_t requests;
	struct pn_window window;
	int error;
};

/* --- memory --------------------------------------------------------------- */

/* What the requests of a trace touch: ranges of its addresses, sorted, and the
 * memory that stands for each. */
struct arena {
	struct area {
		struct pn_range range; /* whole pages */
		void *memory;
	} * areas;
	size_t n, capacity;
};

static int add_area(struct arena *arena, struct pn_range range)
{
	if (arena->n == arena->capacity) {
		size_t capacity = arena->capacity ? 2 * arena->capacity : 256;
		void *areas = reallocarray(arena->areas, capacity,
					   sizeof(*arena->areas));

		if (!areas)
			return -ENOMEM;
		arena->areas = areas;
		arena->capacity = capacity;
	}
	arena->areas[arena->n++].range =
		pn_range_pages(range.addr, range.len, PN_PAGE_BYTES);
	return 0;
}

static int by_address(const void *a, const void *b)
{
	const struct area *x = a, *y = b;

	return x->range.addr < y->range.addr ? -1
					     : x->range.addr > y->range.addr;
}

static void join_areas(struct arena *arena)
{
	size_t n = 0;

	qsort(arena->areas, arena->n, sizeof(*arena->areas), by_address);
	for (size_t i = 0; i < arena->n; i++) {
		struct pn_range range = arena->areas[i].range;
		struct pn_range *last = n ? &arena->areas[n - 1].range : NULL;

		if (last && range.addr <= last->addr + last->len)
			*last = pn_range_hull(*last, range);
		else
			arena->areas[n++].range = range;
	}
	arena->n = n;
}

static bool concerns(const struct pn_trace_event *event)
{
	return event->kind == PN_EVENT_PIN && event->len >= THRESHOLD &&
	       pn_range_valid((uintptr_t)event->addr, event->len);
}

static const struct pn_pages_policy present = { .numa_node = -1,
						.populate = true };

/* Reads the whole trace. */
static int map_arena(struct arena *arena, const char *path)
{
	struct pn_trace_event event;
	struct pn_why why = { "" };
	struct pn_trace *trace = NULL;
	int ret = pn_trace_open(path, &trace, &why), more = 1;

	while (!ret && (more = pn_trace_next(trace, &event)) == 1)
		if (concerns(&event))
			ret = add_area(arena,
				       (struct pn_range){ (uintptr_t)event.addr,
							  event.len });
	pn_trace_close(trace);
	if (!ret && more < 0)
		ret = more;
	if (arena->n)
		join_areas(arena);
	for (size_t i = 0; i < arena->n && !ret; i++)
		ret = pn_pages_map(arena->areas[i].range.len, &present,
				   &arena->areas[i].memory);
	return ret;
}

/* The memory that stands for an address of a request. */
static uintptr_t address_of(const struct replay *r, uint64_t addr)
{
	size_t low = 0, high = r->arena ? r->arena->n : 0;

	if (!r->arena)
		return (uintptr_t)addr;
	while (low + 1 < high) {
		size_t middle = (low + high) / 2;

		if (r->arena->areas[middle].range.addr <= addr)
			low = middle;
		else
			high = middle;
	}
	return (uintptr_t)r->arena->areas[low].memory +
	       ((uintptr_t)addr - r->arena->areas[low].range.addr);
}

/* --- requests ------------------------------------------------------------- */

/* Passes a request to the helper; the site is its only frame. */
static void record_request(struct replay *r, const struct pn_trace_event *event,
			   struct pn_call *call)
{
	uint64_t frames[PN_TRACE_MAX_FRAMES];
	unsigned n = pn_trace_site_frames(r->trace, event->site, frames);

	*call = (struct pn_call){
		.time_ns = pn_device_now(r->device),
		.range = { address_of(r, event->addr), event->len },
		.kind = event->op,
		.nframes = n < PN_CALL_FRAMES ? n : PN_CALL_FRAMES,
	};
	for (unsigned i = 0; i < call->nframes; i++)
		call->frames[i] = (uintptr_t)frames[i];
	pn_window_add(&r->window, r->attr->window, call);
}

static void compute_until(const struct replay *r, uint64_t due)
{
	while (pn_device_now(r->device) < due)
		pn_relax();
}

/* Performs the deferred work until then, since no other thread does. */
static void await(struct replay *r, const struct pn_trace_event *event)
{
	uint64_t due = r->start_ns + event->time_ns, now, next;

	if (!r->sim) {
		compute_until(r, due);
		return;
	}
	while (due > pn_device_now(r->device)) {
		next = pn_cache_step(r->cache);
		if (next > due)
			next = due;
		now = pn_device_now(r->device);
		if (next > now)
			pn_sim_sleep(r->sim, next - now);
	}
}

/* The bytes are on the link. */
static void transfer(struct replay *r, size_t len)
{
	double byte_ns = pn_cost(&r->device->costs.put_byte_ns);

	if (r->sim)
		pn_sim_sleep(r->sim, pn_profile_link_ns(r->profile, len));
	else
		compute_until(r, pn_device_now(r->device) +
					 (uint64_t)(byte_ns * (double)len));
}

static int request(struct replay *r, const struct pn_trace_event *event)
{
	struct pinion_pin pin;
	struct pn_call call;
	int ret;

	await(r, event);
	record_request(r, event, &call);
	ret = pn_cache_pin(r->cache, (void *)call.range.addr, event->len,
			   PINION_ACCESS_REMOTE_WRITE, &pin);
	if (ret)
		return ret;
	r->waited_ns += pn_device_now(r->device) - call.time_ns;
	transfer(r, event->len);
	pn_cache_unpin(r->cache, &pin);
	if (r->helper)
		pn_helper_record_done(r->helper, &call);
	r->requests++;
	return 0;
}

/* Replays an event if it concerns the cache. */
static int replay_event(struct replay *r, const struct pn_trace_event *event)
{
	if (concerns(event))
		return request(r, event);
	if (event->kind == PN_EVENT_RELEASE && r->sim &&
	    pn_range_valid((uintptr_t)event->addr, event->len)) {
		await(r, event);
		pn_cache_invalidate(r->cache, (uintptr_t)event->addr,
				    event->len);
	}
	return 0;
}

static void run_requests(void *arg)
{
	struct replay *r = arg;
	struct pn_trace_event event;
	int ret;

	r->start_ns = pn_device_now(r->device);
	pn_meter_start(&r->meter, r->start_ns);
	while ((ret = pn_trace_next(r->trace, &event)) == 1 && !r->error)
		r->error = replay_event(r, &event);
	if (ret < 0)
		pn_error("%s", pn_trace_location(r->trace));
	if (ret < 0 && !r->error)
		r->error = ret;
	r->ended_ns = pn_device_now(r->device);
	pn_meter_stop(&r->meter, r->ended_ns);
	if (r->helper)
		pn_helper_stop(r->helper);
}

/* --- devices -------------------------------------------------------------- */

static void run_helper(void *arg)
{
	struct replay *r = arg;

	pn_helper_run(r->helper);
}

static int open_cache(struct replay *r)
{
	struct pn_cache_attr cache = { .device = r->device,
				       .budget = &r->budget,
				       .max_region_bytes = PLENTY,
				       .no_merge = true,
				       .no_monitor = r->sim,
				       .no_worker = r->sim };
	struct pn_helper_attr helper = { .predictor = r->attr->predictor,
					 .patience = r->attr->patience,
					 .window = r->attr->window,
					 .loss_percent = r->sim ? 0 : 1 };
	int ret = pn_cache_open(&cache, &r->cache);

	helper.rails[0] = (struct pn_helper_rail){ r->device, r->cache };
	if (!ret && r->attr->scheme == PN_SCHEME_HELPER)
		ret = pn_helper_open(&helper, &r->helper);
	return ret;
}

static int open_node(struct replay *r)
{
	char params[128];
	int ret;

	snprintf(params, sizeof(params), "cores=2,cost=%s,data=none",
		 r->attr->cost);
	ret = pn_sim_open(params, NULL, &r->sim);
	if (ret)
		return ret;
	r->device = pn_sim_device(r->sim, 0);
	pn_budget_init(&r->budget, r->device, PLENTY, 0, 1);
	return open_cache(r);
}

static int run_node(struct replay *r)
{
	int ret = pn_meter_attach(&r->meter, r->device);

	if (ret)
		return ret;
	ret = pn_sim_spawn(r->sim, 0, run_requests, r);
	if (!ret && r->helper)
		ret = pn_sim_spawn(r->sim, 0, run_helper, r);
	if (!ret)
		ret = pn_sim_run(r->sim);
	pn_meter_detach(r->device);
	return ret ? ret : r->error;
}

static int open_device(struct replay *r)
{
	int ret = map_arena(r->arena, r->attr->path);

	if (!ret)
		ret = pn_device_open(r->attr->device, NULL, &r->device);
	if (!ret)
		ret = pn_device_measure(r->device, NULL);
	if (ret)
		return ret;
	pn_budget_init(&r->budget, r->device, 0, 0, 1);
	return open_cache(r);
}

static int run_device(struct replay *r)
{
	int ret;

	pn_meter_start(&r->meter, pn_device_now(r->device));
	ret = pn_meter_attach(&r->meter, r->device);
	if (!ret && r->helper)
		ret = pn_helper_start(r->helper);
	if (!ret)
		run_requests(r);
	return ret ? ret : r->error;
}

static void close_all(struct replay *r)
{
	pn_helper_close(r->helper);
	pn_cache_close(r->cache);
	if (!r->sim)
		pn_device_close(r->device);
	pn_sim_close(r->sim);
	for (size_t i = 0; r->arena && i < r->arena->n; i++)
		pn_pages_unmap(r->arena->areas[i].memory,
			       r->arena->areas[i].range.len, &present);
	if (r->arena)
		free(r->arena->areas);
	pn_trace_close(r->trace);
}

static void sum_up(struct replay *r, struct pn_cluster_result *out,
		   struct pinion_helper_stats *helper)
{
	struct pinion_helper_stats stats = { 0 };

	if (r->helper)
		pn_helper_query(r->helper, &stats);
	if (helper)
		*helper = stats;
	*out = (struct pn_cluster_result){
		.registered = r->meter.metered,
		.communication_s = (double)r->waited_ns / 1e9,
		.time_s = (double)(r->ended_ns - r->start_ns) / 1e9,
		.transfers = stats.calls,
		.late = stats.late,
		.irregular = stats.irregular,
	};
}

int pn_timed_replay_run(const struct pn_timed_replay_attr *attr,
			struct pn_cluster_result *out,
			struct pinion_helper_stats *helper)
{
	struct arena arena = { .n = 0 };
	struct replay r = { .attr = attr,
			    .profile = pn_profile_find(attr->cost),
			    .arena = attr->device ? &arena : NULL };
	struct pn_why why = { "" };
	int ret = pn_trace_open(attr->path, &r.trace, &why);

	if (ret) {
		pn_error("%s: %s", attr->path, why.text);
		return ret;
	}
	ret = attr->device ? open_device(&r) : open_node(&r);
	if (!ret)
		ret = attr->device ? run_device(&r) : run_node(&r);
	if (!ret && !r.requests)
		ret = -ENODATA;
	if (!ret)
		sum_up(&r, out, helper);
	close_all(&r);
	return ret;
}

static int is_trace(const struct dirent *entry)
{
	return !fnmatch("*.csv", entry->d_name, 0) ||
	       !fnmatch("*.csv.gz", entry->d_name, 0);
}

int pn_trace_files_each(const char *folder, pn_trace_file_fn *fn, void *arg)
{
	struct dirent **entries;
	int n = scandir(folder, &entries, is_trace, alphasort), ret = 0;

	if (n < 0)
		return -errno;
	for (int i = 0; i < n; i++) {
		char path[4096], name[256];

		snprintf(path, sizeof(path), "%s/%s", folder,
			 entries[i]->d_name);
		snprintf(name, sizeof(name), "%s", entries[i]->d_name);
		*strstr(name, ".csv") = 0;
		if (!ret)
			ret = fn(arg, path, name);
		free(entries[i]);
	}
	free(entries);
	return ret;
}
