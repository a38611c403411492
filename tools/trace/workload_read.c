/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Converts a trace to a workload: the operations on one cache of the recorded
 * program.
 *
 * The trace identifies pins by handles, a workload by small numbers that are
 * reused. A hash table of the held pins translates; its size follows the
 * maximum number of pins held at a time.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "tools/trace/trace.h"
#include "tools/trace/workload.h"

#define EVENTS 256

/* Open addressing, at most half full. */
struct held {
	uint64_t handle; /* 0: free */
	uint32_t hold;
};

struct reader {
	struct pn_workload *workload;
	unsigned source; /* which cache; 0: the first one in the trace */
	bool unpins;
	struct held *table;
	uint32_t mask, nheld;
	uint32_t *unused; /* free hold numbers */
	uint32_t nunused;
};

static struct held *slot_of(const struct reader *reader, uint64_t handle)
{
	uint64_t at = handle * UINT64_C(0x9e3779b97f4a7c15) >> 20;

	while (reader->table[at & reader->mask].handle &&
	       reader->table[at & reader->mask].handle != handle)
		at++;
	return &reader->table[at & reader->mask];
}

static int grow(struct reader *reader)
{
	struct reader larger = *reader;
	uint32_t capacity = reader->table ? 2 * (reader->mask + 1) : 64;
	uint32_t *unused;

	larger.table = calloc(capacity, sizeof(*larger.table));
	unused = reallocarray(reader->unused, capacity, sizeof(*unused));
	if (unused)
		reader->unused = unused;
	if (!larger.table || !unused) {
		free(larger.table);
		return -ENOMEM;
	}
	larger.mask = capacity - 1;
	for (uint32_t i = 0; reader->table && i <= reader->mask; i++)
		if (reader->table[i].handle)
			*slot_of(&larger, reader->table[i].handle) =
				reader->table[i];
	free(reader->table);
	reader->table = larger.table;
	reader->mask = larger.mask;
	return 0;
}

static int add_held(struct reader *reader, uint64_t handle, uint32_t *out)
{
	struct held *slot;

	if (!reader->table || 2 * (reader->nheld + 1) > reader->mask + 1) {
		int ret = grow(reader);

		if (ret)
			return ret;
	}
	slot = slot_of(reader, handle);
	if (slot->handle) {
		/* handle is held already: treat as a pin that ends at once */
		*out = 0;
		return 0;
	}
	*slot = (struct held){ handle,
			       reader->nunused
				       ? reader->unused[--reader->nunused]
				       : reader->nheld + 1 };
	reader->nheld++;
	*out = slot->hold;
	return 0;
}

/* Removes the handle and closes the gap in the table. Returns its number, 0:
 * not held. */
static uint32_t remove_held(struct reader *reader, uint64_t handle)
{
	struct held *slot = reader->table ? slot_of(reader, handle) : NULL;
	uint32_t number = slot ? slot->hold : 0;
	uint32_t at;

	if (!slot || !slot->handle)
		return 0;
	*slot = (struct held){ 0, 0 };
	reader->nheld--;
	reader->unused[reader->nunused++] = number;
	for (at = (uint32_t)(slot - reader->table) + 1;
	     reader->table[at & reader->mask].handle; at++) {
		struct held moved = reader->table[at & reader->mask];

		reader->table[at & reader->mask] = (struct held){ 0, 0 };
		*slot_of(reader, moved.handle) = moved;
	}
	return number;
}

static int read_pin(struct reader *reader, const struct pn_trace_event *event,
		    struct pn_workload_step *step)
{
	const unsigned known = PN_EVENT_STARTED - 1;

	step->kind = PN_WORKLOAD_PIN;
	step->flags = event->flags & known;
	/* A refused pin holds nothing. A started asynchronous pin is treated as
	 * ending at once, since its end refers to the READY event. */
	if (!reader->unpins || !event->handle ||
	    event->decision == PN_DECIDED_REFUSED ||
	    event->decision == PN_DECIDED_LATER)
		return 0;
	return add_held(reader, event->handle, &step->hold);
}

/* Returns 1 for a step, 0 for an event that does not concern the cache. */
static int step_of(struct reader *reader, const struct pn_trace_event *event,
		   struct pn_workload_step *step)
{
	int ret;

	*step = (struct pn_workload_step){ .addr = event->addr,
					   .len = event->len };
	switch ((enum pn_trace_event_kind)event->kind) {
	case PN_EVENT_PIN:
		if (!event->len)
			return 0; /* the cache refuses it */
		ret = read_pin(reader, event, step);
		return ret ? ret : 1;
	case PN_EVENT_UNPIN:
		step->kind = PN_WORKLOAD_UNPIN;
		step->hold = remove_held(reader, event->handle);
		return step->hold ? 1 : 0;
	case PN_EVENT_RELEASE:
		step->kind = PN_WORKLOAD_RELEASE;
		return event->len ? 1 : 0;
	case PN_EVENT_FLUSH:
		step->kind = PN_WORKLOAD_FLUSH;
		return 1;
	case PN_EVENT_OTHERS:
		step->kind = PN_WORKLOAD_OTHERS;
		return 1;
	case PN_EVENT_JOINS:
		step->kind = PN_WORKLOAD_MERGE;
		step->hold = !!event->len;
		return 1;
	case PN_EVENT_MAPPING:
		step->kind = PN_WORKLOAD_MAPPING;
		step->hold = event->decision == PN_DECIDED_YES;
		reader->workload->mappings = true;
		return event->len ? 1 : 0;
	default:
		return 0;
	}
}

static int add_event(struct reader *reader, const struct pn_trace_event *event)
{
	struct pn_workload_step step;
	int ret;

	if (event->source && !reader->source)
		reader->source = event->source;
	if (event->source && event->source != reader->source)
		return 0;
	ret = step_of(reader, event, &step);
	return ret > 0 ? pn_workload_add(reader->workload, &step) : ret;
}

static int read_all(struct reader *reader, struct pn_trace *trace,
		    struct pn_why *why)
{
	struct pn_trace_event events[EVENTS];
	int n, ret = 0;

	while (!ret && (n = pn_trace_read(trace, events, EVENTS)) > 0) {
		for (int i = 0; i < n && !ret; i++) {
			ret = add_event(reader, &events[i]);
			if (ret)
				snprintf(why->text, sizeof(why->text),
					 "%s: a request for %#llx bytes at "
					 "%#llx cannot be replayed: %s",
					 pn_trace_location(trace),
					 (unsigned long long)events[i].len,
					 (unsigned long long)events[i].addr,
					 strerror(-ret));
		}
	}
	if (!ret && n < 0) {
		snprintf(why->text, sizeof(why->text), "%s",
			 pn_trace_location(trace));
		ret = n;
	}
	return ret;
}

/* Copies the configuration of the recorded cache. */
static void copy_cache_config(struct reader *reader, struct pn_trace *trace)
{
	struct pn_workload *workload = reader->workload;
	struct pn_trace_event_cache about;

	workload->merge = true;
	if (!reader->source ||
	    pn_trace_cache_config(trace, (uint16_t)reader->source, &about))
		return;
	workload->merge = about.merge;
	workload->read_only = about.read_only;
	workload->one_segment = about.one_segment;
	workload->max_bytes = about.max_bytes;
	workload->max_regions = about.max_regions;
	workload->max_region_bytes = about.max_region_bytes;
	workload->batch = about.batch;
	memcpy(workload->policy, about.policy, sizeof(workload->policy));
	workload->policy[sizeof(workload->policy) - 1] = '\0';
	workload->register_us = about.register_ns / 1e3;
	workload->register_page_us = about.register_page_ns / 1e3;
	workload->deregister_us = about.deregister_ns / 1e3;
	workload->deregister_page_us = about.deregister_page_ns / 1e3;
}

int pn_workload_read(struct pn_workload *workload, const char *path,
		     unsigned source, struct pn_why *why)
{
	struct reader reader = { .workload = workload, .source = source };
	struct pn_trace *trace;
	int ret = pn_trace_open(path, &trace, why);

	if (ret)
		return ret;
	reader.unpins = pn_trace_info(trace)->unpins;
	ret = read_all(&reader, trace, why);
	copy_cache_config(&reader, trace);
	pn_trace_close(trace);
	free(reader.table);
	free(reader.unused);
	return ret;
}
