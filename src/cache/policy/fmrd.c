/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fmrd -- LRU with batched deregistration: the regions used longest ago go
 * first, several at a time, so that the fixed cost of a deregistration is paid
 * once for all of them.
 *
 * Source: FMRD (Wu and others 2003), as paper Region cache tells it: a pin-down
 * cache with the batched deregistration of Zhou and others (2002). Its other
 * half, fast registration, is the device's matter. The price: a victim beyond
 * what was wanted leaves early, and may be asked for in the meantime.
 */
#include "cache/policy/recency.h"

static int fmrd_open(const struct pn_policy_attr *attr, struct pn_policy **out)
{
	return pn_stack_policy_open(&pn_policy_fmrd, attr->batch, out);
}

const struct pn_policy_ops pn_policy_fmrd = {
	.name = "fmrd",
	.help = "least recently used first, deregistered in batches",
	.batched = true,
	.open = fmrd_open,
	PN_STACK_POLICY_OPS,
};
