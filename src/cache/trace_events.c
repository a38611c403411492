/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The trace events of a cache (rule 6 of CONTRIBUTING.md): each request with
 * its outcome and the reason, and all that decides the outcome of later
 * requests, so that a run can be replayed (doc/design/trace.md says what that
 * takes). The callers check whether there is a sink.
 */
#include <errno.h>
#include <stdio.h>

#include "cache/cache_impl.h"
#include "cache/plan_impl.h"
#include "cache/trace_impl.h"

static void record_at(struct pn_cache *cache, uint64_t time_ns,
		      struct pn_trace_event *event)
{
	event->time_ns = time_ns;
	event->source = cache->source;
	event->peer = PN_EVENT_NO_PEER;
	cache->sink->record(cache->sink, event);
}

void pn_cache_trace(struct pn_cache *cache, struct pn_trace_event event)
{
	record_at(cache, atomic_load(&cache->now_ns), &event);
}

void pn_cache_trace_registered(struct pn_cache *cache,
			       const struct pn_region *region,
			       enum pn_trace_event_decision decision,
			       enum pn_trace_event_reason why)
{
	pn_cache_trace(cache,
		       (struct pn_trace_event){
			       .kind = PN_EVENT_REGISTER,
			       .addr = (uintptr_t)region->mr.addr,
			       .len = region->mr.len,
			       .flags = pn_trace_event_flags(region->mr.access),
			       .decision = (uint8_t)decision,
			       .reason = (uint8_t)why });
}

void pn_cache_trace_release(struct pn_cache *cache, struct pn_range range)
{
	/* No time: nobody may ask for it here. The sink takes one after the
	 * last event of this thread. */
	struct pn_trace_event event = { .kind = PN_EVENT_RELEASE,
					.addr = range.addr,
					.len = range.len,
					.source = cache->source,
					.peer = PN_EVENT_NO_PEER };

	cache->sink->record_noalloc(cache->sink, &event);
}

void pn_cache_trace_event(struct pn_cache *cache,
			  const struct pn_trace_event *event)
{
	struct pn_trace_event e = *event;

	if (!cache->sink)
		return;
	e.time_ns = pn_device_now(cache->device);
	e.source = cache->source;
	cache->sink->record(cache->sink, &e);
}

/* --- flags ---------------------------------------------------------------- */

static const struct {
	unsigned pin;
	uint16_t event;
} flags[] = {
	{ PINION_ACCESS_LOCAL_WRITE, PN_EVENT_LOCAL_WRITE },
	{ PINION_ACCESS_REMOTE_READ, PN_EVENT_REMOTE_READ },
	{ PINION_ACCESS_REMOTE_WRITE, PN_EVENT_REMOTE_WRITE },
	{ PINION_ACCESS_REMOTE_ATOMIC, PN_EVENT_REMOTE_ATOMIC },
	{ PINION_ACCESS_RELAXED, PN_EVENT_RELAXED },
	{ PINION_PIN_BYPASS, PN_EVENT_BYPASS },
	{ PN_EVENT_STARTED, PN_EVENT_STARTED },
};

uint16_t pn_trace_event_flags(unsigned pin_flags)
{
	uint16_t event = 0;

	for (size_t i = 0; i < PN_ARRAY_LEN(flags); i++)
		if (pin_flags & flags[i].pin)
			event |= flags[i].event;
	return event;
}

unsigned pn_trace_event_pin_flags(uint16_t event)
{
	unsigned pin = 0;

	for (size_t i = 0; i < PN_ARRAY_LEN(flags); i++)
		if (event & flags[i].event && flags[i].pin != PN_EVENT_STARTED)
			pin |= flags[i].pin;
	return pin;
}

/* --- requests ------------------------------------------------------------- */

/* One pin at a time uses a slot. */
static uint64_t handle_of(const struct pinion_pin *pin)
{
	const struct pn_segments *several = pin->internal[0];

	if (pin->reserved == PN_PIN_STARTED)
		return 0;
	return (uintptr_t)(pin->nsegments > 1 ? (void *)several->segment[0].slot
					      : pin->internal[0]);
}

static void trace_pin(struct pn_cache *cache, const struct iovec *buffer,
		      const struct pinion_pin *pin,
		      const struct pn_outcome *outcome, unsigned more)
{
	bool refused = outcome->ret && outcome->ret != -EINPROGRESS;
	struct pn_trace_event event = {
		.kind = PN_EVENT_PIN,
		.addr = (uintptr_t)buffer->iov_base,
		.len = buffer->iov_len,
		.handle = refused ? 0 : handle_of(pin),
		.flags = pn_trace_event_flags(outcome->flags),
		.more = more > UINT16_MAX ? UINT16_MAX : (uint16_t)more,
		.decision = refused ? PN_DECIDED_REFUSED : outcome->decision,
		.reason = refused ? (uint8_t)-outcome->ret : outcome->reason,
	};

	record_at(cache, pn_device_now(cache->device), &event);
}

void pn_cache_trace_pins(struct pn_cache *cache, const struct iovec *buffers,
			 unsigned n, const struct pinion_pin *pins,
			 const struct pn_outcome *outcome)
{
	struct pn_outcome o = *outcome;

	for (unsigned i = 0; i < n; i++) {
		trace_pin(cache, &buffers[i], &pins[i], &o, n - i - 1);
		if (o.decision == PN_DECIDED_MISS)
			o.decision = PN_DECIDED_NOTHING;
	}
}

void pn_cache_trace_ready(struct pn_cache *cache, const struct pinion_pin *pin,
			  const struct pn_outcome *outcome)
{
	int ret = outcome->ret;
	struct pn_trace_event event = {
		.kind = PN_EVENT_READY,
		.addr = (uintptr_t)pin->addr,
		.len = pin->len,
		.handle = ret ? 0 : handle_of(pin),
		.flags = pn_trace_event_flags(outcome->flags),
		.decision = ret ? PN_DECIDED_REFUSED : outcome->decision,
		.reason = ret ? (uint8_t)-ret : outcome->reason,
	};

	record_at(cache, pn_device_now(cache->device), &event);
}

void pn_cache_trace_unpin(struct pn_cache *cache, const struct pinion_pin *pin)
{
	struct pn_trace_event event = { .kind = PN_EVENT_UNPIN,
					.addr = (uintptr_t)pin->addr,
					.len = pin->len,
					.handle = handle_of(pin) };

	if (pin->nsegments)
		record_at(cache, pn_device_now(cache->device), &event);
}

/* --- the cache ------------------------------------------------------------ */

static void describe(const struct pn_cache *cache,
		     struct pn_trace_event_cache *out)
{
	const struct pn_cache_attr *attr = &cache->attr;
	const struct pn_costs *costs = &cache->device->costs;

	*out = (struct pn_trace_event_cache){
		.max_bytes = atomic_load(&cache->budget->max_bytes),
		.max_regions = atomic_load(&cache->budget->max_regions),
		.max_region_bytes = attr->max_region_bytes,
		.batch_bytes = attr->batch_bytes,
		.batch_age_ns = attr->batch_age_ns,
		.batch = attr->batch,
		.merge = !attr->no_merge,
		.watched = cache->subscribed,
		.read_only = !!(cache->device->caps & PN_CAP_READ_ONLY),
		.one_segment = pn_cache_one_segment(cache),
		.register_ns = costs->register_ns,
		.register_page_ns = costs->register_page_ns,
		.deregister_ns = costs->deregister_ns,
		.deregister_page_ns = costs->deregister_page_ns,
	};
	snprintf(out->policy, sizeof(out->policy), "%s", attr->policy);
	snprintf(out->device, sizeof(out->device), "%s",
		 cache->device->ops->kind);
}

void pn_cache_trace_open(struct pn_cache *cache)
{
	struct pn_trace_event event = { .kind = PN_EVENT_OPEN,
					.time_ns = pn_device_now(cache->device),
					.peer = PN_EVENT_NO_PEER };
	struct pn_trace_sink *sink = pn_trace_sink();
	struct pn_trace_event_cache about;

	if (!sink)
		return;
	describe(cache, &about);
	cache->source = sink->add_source(sink, &event, &about, sizeof(about));
	if (cache->source)
		atomic_store(&cache->sink, sink);
}

void pn_cache_trace_close(struct pn_cache *cache)
{
	struct pinion_cache_stats stats;
	struct pn_trace_event event = { .kind = PN_EVENT_CLOSE };

	pn_cache_query(cache, &stats);
	event.addr = stats.hits;
	event.len = stats.misses;
	record_at(cache, pn_device_now(cache->device), &event);
}

void pn_cache_trace_others_locked(struct pn_cache *cache)
{
	struct pn_budget *budget = cache->budget;
	size_t bytes = pn_budget_others(budget, cache->own_bytes);
	size_t regions = atomic_load(&budget->regions) - cache->own_regions;

	if (bytes == cache->others_bytes && regions == cache->others_regions)
		return;
	cache->others_bytes = bytes;
	cache->others_regions = regions;
	pn_cache_trace(cache, (struct pn_trace_event){ .kind = PN_EVENT_OTHERS,
						       .addr = regions,
						       .len = bytes });
}
