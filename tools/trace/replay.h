/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * replay -- what another policy or budget would have done with the requests of
 * a program that ran before.
 *
 * The requests go through the real cache (src/cache), hit path, regions,
 * policies and all, so there is no second idea of a region that could differ.
 * Only the device is not real: it registers nothing, counts, and knows what
 * a cost profile says. Time stands still; nobody else uses the cache, so it
 * needs no barriers.
 *
 * A request larger than the budget is a miss, registered and released at once.
 * So is one that finds no room because all that is cached is in use.
 * Total time is the paper's formula 1 (Region cache): every registration pays
 * fixed + pages * page, every batch of deregistrations its fixed part once.
 * What is still cached at the end was not deregistered and is not counted.
 *
 * Threads: any number of runs at a time, each in a thread of its own.
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
	_Atomic uint64_t *progress;	    /* counts steps; may be NULL */
};

struct pn_replay_result {
	uint64_t requests, hits, misses;
	uint64_t oversize; /* misses that no budget of this size could keep */
	uint64_t registrations, registered_bytes;
	uint64_t deregistrations, deregister_batches;
	uint64_t evictions, merges;
	size_t peak_bytes;
	double total_us;
	double cpu_s; /* of the thread */
};

/* -EINVAL: no such policy; -ENOMEM, -EMFILE. */
int pn_replay(const struct pn_workload *script,
	      const struct pn_replay_attr *attr, struct pn_replay_result *out);

#endif
