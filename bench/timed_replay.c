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
	struct pn_budget budget;
	struct pn_cache *cache;
	struct pn_helper *helper;
	struct pn_meter meter;
	uint64_t start_ns, ended_ns, waited_ns;
	uint64_t requests;
	struct pn_window window;
	int error;
};

/* Passes a request to the helper; the site is its only frame. */
static void record_request(struct replay *r, const struct pn_trace_event *event,
			   struct pn_call *call)
{
	uint64_t frames[PN_TRACE_MAX_FRAMES];
	unsigned n = pn_trace_site_frames(r->trace, event->site, frames);

	*call = (struct pn_call){
		.time_ns = pn_device_now(r->device),
		.range = { (uintptr_t)event->addr, event->len },
		.kind = event->op,
		.nframes = n < PN_CALL_FRAMES ? n : PN_CALL_FRAMES,
	};
	for (unsigned i = 0; i < call->nframes; i++)
		call->frames[i] = (uintptr_t)frames[i];
	pn_window_add(&r->window, r->attr->window, call);
}

/* Performs the deferred work until then, since no other thread does. */
static void await(struct replay *r, const struct pn_trace_event *event)
{
	uint64_t due = r->start_ns + event->time_ns, now, next;

	while (due > pn_device_now(r->device)) {
		next = pn_cache_step(r->cache);
		if (next > due)
			next = due;
		now = pn_device_now(r->device);
		if (next > now)
			pn_sim_sleep(r->sim, next - now);
	}
}

static int request(struct replay *r, const struct pn_trace_event *event)
{
	struct pinion_pin pin;
	struct pn_call call;
	int ret;

	await(r, event);
	record_request(r, event, &call);
	ret = pn_cache_pin(r->cache, (void *)(uintptr_t)event->addr, event->len,
			   PINION_ACCESS_REMOTE_WRITE, &pin);
	if (ret)
		return ret;
	r->waited_ns += pn_device_now(r->device) - call.time_ns;
	pn_sim_sleep(r->sim, pn_profile_link_ns(r->profile, event->len));
	pn_cache_unpin(r->cache, &pin);
	if (r->helper)
		pn_helper_record_done(r->helper, &call);
	r->requests++;
	return 0;
}

/* Replays an event if it concerns the cache. */
static int replay_event(struct replay *r, const struct pn_trace_event *event)
{
	if (!pn_range_valid((uintptr_t)event->addr, event->len))
		return 0;
	if (event->kind == PN_EVENT_PIN && event->len >= THRESHOLD)
		return request(r, event);
	if (event->kind == PN_EVENT_RELEASE) {
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

static void run_helper(void *arg)
{
	struct replay *r = arg;

	pn_helper_run(r->helper);
}

static int open_node(struct replay *r)
{
	struct pn_cache_attr cache = { .budget = &r->budget,
				       .max_region_bytes = PLENTY,
				       .no_merge = true,
				       .no_monitor = true,
				       .no_worker = true };
	struct pn_helper_attr helper = { .predictor = r->attr->predictor,
					 .patience = r->attr->patience,
					 .window = r->attr->window };
	char params[128];
	int ret;

	snprintf(params, sizeof(params), "cores=2,cost=%s,data=none",
		 r->attr->cost);
	ret = pn_sim_open(params, NULL, &r->sim);
	if (ret)
		return ret;
	r->device = cache.device = helper.device = pn_sim_device(r->sim, 0);
	pn_budget_init(&r->budget, r->device, PLENTY, 0, 1);
	ret = pn_cache_open(&cache, &r->cache);
	helper.cache = r->cache;
	if (!ret && r->attr->scheme == PN_SCHEME_HELPER)
		ret = pn_helper_open(&helper, &r->helper);
	return ret;
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

static void sum_up(struct replay *r, struct pn_cluster_result *out)
{
	struct pinion_helper_stats stats = { 0 };

	if (r->helper)
		pn_helper_query(r->helper, &stats);
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
			struct pn_cluster_result *out)
{
	struct replay r = { .attr = attr,
			    .profile = pn_profile_find(attr->cost) };
	struct pn_why why = { "" };
	int ret = pn_trace_open(attr->path, &r.trace, &why);

	if (ret) {
		pn_error("%s: %s", attr->path, why.text);
		return ret;
	}
	ret = open_node(&r);
	if (!ret)
		ret = run_node(&r);
	if (!ret && !r.requests)
		ret = -ENODATA;
	if (!ret)
		sum_up(&r, out);
	pn_helper_close(r.helper);
	pn_cache_close(r.cache);
	pn_sim_close(r.sim);
	pn_trace_close(r.trace);
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
