/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * offline -- a policy that knows the future, to compare with: a heuristic bound
 * on what any policy could do.
 *
 * Belady's rule (the farthest next use goes first) is optimal when all regions
 * are alike. They are not: here a region goes first that costs least to lose
 * per page and per request until it is needed again,
 *   (fixed + page * pages) / (pages * requests until its next use),
 * and what never returns goes before all others, in batches. Finding the true
 * optimum is NP-hard with sizes; this can be beaten, and where it is, it is.
 *
 * Nodes of about one size (a power of two) stand in one heap, farthest first:
 * within a class the order does not depend on the time, and the first ones of
 * the classes are compared when one has to go.
 *
 * When a region is used next is the first use of any of its pages, so this
 * policy looks through its nodes at the cache's regions; no other one does. It
 * has to be told of each request before, and of each use at once.
 */
#ifndef PN_TOOLS_TRACE_OFFLINE_H
#define PN_TOOLS_TRACE_OFFLINE_H

#include "base/range.h"
#include "cache/policy/policy.h"
#include "tools/trace/workload.h"

/* -ENOMEM. */
int pn_offline_open(const struct pn_policy_attr *attr,
		    const struct pn_next_use *next, struct pn_policy **out);

/* Request `number` for these pages comes now. Requests come in order, from the
 * first. -ENOMEM. */
int pn_offline_request(struct pn_policy *policy, size_t number,
		       struct pn_range pages);

#endif
