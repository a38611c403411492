/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * offline -- a policy that knows the future, for comparison: a heuristic bound
 * on what any policy could do.
 *
 * Belady's rule (evict the region with the farthest next use) is optimal when
 * all regions are alike. They are not: this policy evicts the region that costs
 * least to lose per page and per request until its next use,
 *   (fixed + page * pages) / (pages * requests until its next use).
 * Regions that are never used again go before all others, in batches. The true
 * optimum is NP-hard with sizes, so an online policy can beat this one.
 *
 * Nodes of about the same size (a power of two) are in one heap, farthest next
 * use first: within a class the order does not depend on the time, and an
 * eviction compares only the first nodes of the classes.
 *
 * The next use of a region is the first use of any of its pages, so this policy
 * maps its nodes to the cache's regions; no other policy does. It must be told
 * of each request before the cache gets it (pn_offline_request()), and of each
 * use immediately.
 */
#ifndef PN_TOOLS_TRACE_OFFLINE_H
#define PN_TOOLS_TRACE_OFFLINE_H

#include "base/range.h"
#include "cache/policy/policy.h"
#include "tools/trace/workload.h"

/* -ENOMEM. */
int pn_offline_open(const struct pn_policy_attr *attr,
		    const struct pn_next_use *next, struct pn_policy **out);

/* Announces request `number` for these pages. Requests are announced in order,
 * from the first. -ENOMEM. */
int pn_offline_request(struct pn_policy *policy, size_t number,
		       struct pn_range pages);

#endif
