/* SPDX-License-Identifier: BSD-2-Clause */
#include "cache/policy/policy.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "base/log.h"

/* The cache embeds a node in each region, and there may be a million. */
_Static_assert(sizeof(struct pn_policy_node) <= 48, "keep the node small");

static const struct pn_policy_ops *const policies[] = {
	&pn_policy_lru,	   &pn_policy_fmrd, &pn_policy_mre,
	&pn_policy_greedy, &pn_policy_keep, &pn_policy_cost,
};

const struct pn_policy_ops *pn_policy_at(unsigned index)
{
	return index < PN_ARRAY_LEN(policies) ? policies[index] : NULL;
}

static void log_unknown(const char *name)
{
	char names[128] = "";
	size_t used = 0;

	for (size_t i = 0; i < PN_ARRAY_LEN(policies); i++) {
		used += (size_t)snprintf(names + used, sizeof(names) - used,
					 "%s%s", i ? ", " : "",
					 policies[i]->name);
		pn_assert(used < sizeof(names));
	}
	pn_error("no eviction policy is called '%s'; choose one of %s", name,
		 names);
}

int pn_policy_open(const char *name, const struct pn_policy_attr *attr,
		   struct pn_policy **out)
{
	for (size_t i = 0; i < PN_ARRAY_LEN(policies); i++) {
		if (!strcmp(policies[i]->name, name))
			return policies[i]->open(attr, out);
	}
	log_unknown(name);
	return -ENOENT;
}

void pn_policy_close(struct pn_policy *policy)
{
	if (policy)
		policy->ops->close(policy);
}
