/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sharing cores with the other helpers of the machine.
 *
 * A helper publishes the size of all buffers it knows: what would be pinned if
 * they all stayed registered. The size of what is pinned now would not do: a
 * helper that works well makes it small, would lose its core for that, stop
 * working, and get the core back.
 */
#include "base/clock.h"
#include "helper/helper_impl.h"

#define REBALANCE_NS (250 * PN_NS_PER_MS)
/* How long Linux lets a thread run while some others wait. */
#define SLICE_NS     (4 * PN_NS_PER_MS)

void pn_helper_join_registry(struct pn_helper *helper,
			     struct pn_helper_registry *registry,
			     enum pn_share_policy policy)
{
	helper->registry = registry;
	helper->policy = policy;
	pn_helper_set_idle(helper, true); /* until it has read the registry */
}

void pn_helper_rebalance(struct pn_helper *helper, uint64_t now)
{
	const struct pn_member *members;
	struct pn_share share = { .idle = true, .nhelpers = 1 };
	unsigned n, me = PN_SHARE_MAX;

	if (!helper->registry || now < helper->rebalance_ns)
		return;
	helper->rebalance_ns = now + REBALANCE_NS;
	pn_helper_registry_publish(helper->registry,
				   pn_callsites_bytes(helper->sites));
	n = pn_helper_registry_read(helper->registry, &members, &me);
	if (me < n)
		share = pn_share_decide(helper->policy, members, n, me);
	atomic_store(&helper->members, n);
	pn_helper_share_core(helper, share.nhelpers, SLICE_NS);
	pn_helper_set_idle(helper, share.idle);
}
