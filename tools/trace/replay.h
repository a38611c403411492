/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * replay -- what another policy or budget would have done with the requests of
 * a recorded program.
 *
 * The requests go through the real cache (src/cache) with its hit path, regions
 * and policies; there is no second model of a region that could differ. Only
 * the device is not real: it registers nothing, counts, and has the costs of a
 * profile. Time stands still. No other thread uses the cache, so it needs no
 * barriers.
 *
 * A request larger than the budget is a miss that is registered and
 * deregistered at once. So is a request for which the budget has no space
 * because all cached regions are in use. Total time is formula 1 of Ou and
 * others 2009: each registration pays fixed + pages * page, each batch of
 * deregistrations pays its fixed cost once. Regions that are still cached at
 * the end were not deregistered and are not counted.
 *
 * Threads: any number of runs at a time, each in its own thread.
 * Errors: negative errno.
 */
#ifndef PN_TOOLS_TRACE_REPLAY_H
#define PN_TOOLS_TRACE_REPLAY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/profiles.h"
#include "tools/trace/workload.h"

struct pn_replay_attr {
	const char *policy; /* a policy's name, "offline" or "none" */
	size_t max_bytes;
	size_t max_regions;	 /* 0: any number */
	size_t max_region_bytes; /* 0: the cache's default */
	unsigned batch;		 /* 0: the cache's default */
	const struct pn_profile *profile;
	const struct pn_next_use *next_use; /* for offline */
	/* incremented by the number of replayed steps; may be NULL */
	_Atomic uint64_t *progress;
};

struct pn_replay_result {
	uint64_t requests, hits, misses;
	uint64_t oversize; /* misses that did not fit the budget */
	uint64_t registrations, registered_bytes;
	uint64_t deregistrations, deregister_batches;
	uint64_t evictions, merges;
	size_t peak_bytes;
	double total_us;
	double cpu_s; /* CPU time of the calling thread */
};

/* -EINVAL: no such policy; -ENOMEM, -EMFILE. */
int pn_replay(const struct pn_workload *workload,
	      const struct pn_replay_attr *attr, struct pn_replay_result *out);

#endif
