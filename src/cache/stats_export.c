/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the statistics segment has of a cache: its counters, the hits of each
 * thread, and the largest regions with the call sites that registered them.
 *
 * The table of the largest regions changes where regions become VALID and stop
 * being so, under the lock. A region smaller than all of a full table costs one
 * comparison. A region that was pushed out does not come back when a larger one
 * goes.
 */
#include <string.h>

#include "cache/cache_impl.h"
#include "cache/region_impl.h"

#define COUNTER(name) \
	PN_STATS_FIELD(COUNTER, struct pinion_cache_stats, name, #name)
#define BYTES(name) \
	PN_STATS_FIELD(BYTES, struct pinion_cache_stats, name, #name)

static const struct pn_stats_field cache_fields[] = {
	COUNTER(hits),
	COUNTER(misses),
	COUNTER(misses_new),
	COUNTER(misses_partial),
	COUNTER(misses_access),
	COUNTER(misses_bypass),
	COUNTER(waits),
	COUNTER(registrations),
	COUNTER(registered_bytes),
	COUNTER(deregistrations),
	COUNTER(deregister_batches),
	COUNTER(evictions),
	COUNTER(invalidations),
	COUNTER(overflows),
	COUNTER(refused),
	COUNTER(merges),
	COUNTER(unkept),
	PN_STATS_FIELD(GAUGE, struct pinion_cache_stats, regions, "regions"),
	BYTES(bytes),
	BYTES(dying_bytes),
};

const struct pn_stats_kind pn_stats_kind_cache = {
	"cache", sizeof(struct pinion_cache_stats), 0, cache_fields,
	PN_ARRAY_LEN(cache_fields)
};

static const struct pn_stats_field pins_fields[] = {
	PN_STATS_FIELD(COUNTER, struct pn_thread_slots, log_at, "hits"),
};

const struct pn_stats_kind pn_stats_kind_pins = {
	"thread", sizeof(struct pn_thread_slots), 0, pins_fields,
	PN_ARRAY_LEN(pins_fields)
};

#define ROW struct pn_largest_row

static const struct pn_stats_field largest_fields[] = {
	PN_STATS_FIELD(BYTES, ROW, bytes, "bytes"),
	PN_STATS_FIELD(ADDRESS, ROW, addr, "addr"),
	PN_STATS_FIELD(ADDRESS, ROW, access, "access"),
	PN_STATS_FIELD(ADDRESS, ROW, site, "site"),
	PN_STATS_FIELD(TEXT, ROW, site_name, "site_name"),
};

const struct pn_stats_kind pn_stats_kind_largest = {
	"region", sizeof(ROW), PN_LARGEST, largest_fields,
	PN_ARRAY_LEN(largest_fields)
};

/* The row to use next: an empty one, or the smallest. */
static ROW *smallest(struct pn_cache *cache) PN_REQUIRES(&cache->lock)
{
	ROW *found = &cache->largest[0];

	for (unsigned i = 1; i < PN_LARGEST; i++)
		if (cache->largest[i].bytes < found->bytes)
			found = &cache->largest[i];
	return found;
}

void pn_largest_add_locked(struct pn_cache *cache, struct pn_region *region)
{
	const struct pn_thread *self = pn_thread_current;
	uint64_t site = self ? self->site : 0;
	ROW *row;

	if (!cache->largest || region->mr.len <= cache->smallest_bytes)
		return;
	row = smallest(cache);
	if (row->bytes)
		cache->regions[row->id].flags &= (uint16_t)~PN_REGION_LISTED;
	*row = (ROW){ .addr = (uintptr_t)region->mr.addr,
		      .bytes = region->mr.len,
		      .site = site,
		      .access = region->mr.access,
		      .id = pn_region_id(cache, region) };
	if (site)
		memcpy(row->site_name, self->site_name, sizeof(row->site_name));
	region->flags |= PN_REGION_LISTED;
	cache->smallest_bytes = smallest(cache)->bytes;
}

void pn_largest_remove_locked(struct pn_cache *cache, struct pn_region *region)
{
	if (!(region->flags & PN_REGION_LISTED))
		return;
	region->flags &= (uint16_t)~PN_REGION_LISTED;
	for (unsigned i = 0; i < PN_LARGEST; i++)
		if (cache->largest[i].id == pn_region_id(cache, region))
			cache->largest[i] = (ROW){ 0 };
	cache->smallest_bytes = 0;
}
