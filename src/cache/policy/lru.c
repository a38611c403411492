/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * lru -- the pin-down cache: the region used longest ago goes first, and no
 * more go than are needed, each deregistered by itself.
 *
 * Source: Tezuka, O'Carroll, Hori, Ishikawa, "Pin-down cache: a virtual memory
 * management technique for zero-copy communication", 1998. What the other
 * policies are measured against.
 */
#include "cache/policy/recency.h"

static int lru_open(const struct pn_policy_attr *attr, struct pn_policy **out)
{
	(void)attr;
	return pn_stack_policy_open(&pn_policy_lru, 0, out);
}

const struct pn_policy_ops pn_policy_lru = {
	.name = "lru",
	.help = "pin-down cache: least recently used first, one by one",
	.batched = false,
	.open = lru_open,
	PN_STACK_POLICY_OPS,
};
