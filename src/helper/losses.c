/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the helper costs the program, and what it may cost.
 *
 * A buffer that is dropped and used before it is registered again costs the
 * program one registration. The helper drops a buffer only while what such
 * calls have cost, and what the dropped buffers may be expected to cost, stays
 * below max_percent of the time since the first call. A dropped buffer is
 * expected to cost its registration times the share of calls that were late;
 * one without a deadline, times the share of such buffers that came back. With
 * nothing known both are one half. So a helper that is always late, or that
 * sees nothing periodic, soon leaves buffers to the cache, and tries again as
 * time passes.
 */
#include "helper/helper_impl.h"

#define SHARE_EVENTS 128

static void count_event(struct pn_share_of *share, bool hit)
{
	share->hits += hit;
	if (++share->all < SHARE_EVENTS)
		return;
	share->hits /= 2;
	share->all /= 2;
}

static uint64_t expected_ns(const struct pn_losses *losses, bool has_deadline,
			    uint64_t register_ns)
{
	const struct pn_share_of *share =
		has_deadline ? &losses->late : &losses->returned;

	return register_ns * (share->hits + 1) / (share->all + 2);
}

bool pn_losses_allow(const struct pn_losses *losses, bool has_deadline,
		     uint64_t register_ns, uint64_t now_ns)
{
	uint64_t all_ns = losses->lost_ns + losses->at_risk_ns +
			  expected_ns(losses, has_deadline, register_ns);

	return !losses->max_percent || all_ns <= (now_ns - losses->start_ns) /
							 100 *
							 losses->max_percent;
}

void pn_losses_dropped(struct pn_losses *losses, struct pn_call_buffer *buffer,
		       uint64_t register_ns)
{
	buffer->risk_returns = !buffer->deadline_ns;
	buffer->risk_ns =
		1 + expected_ns(losses, buffer->deadline_ns, register_ns);
	losses->at_risk_ns += buffer->risk_ns;
	/* Taken back if it returns. */
	if (buffer->risk_returns)
		count_event(&losses->returned, false);
}

void pn_losses_forgotten(struct pn_losses *losses,
			 struct pn_call_buffer *buffer)
{
	losses->at_risk_ns -= buffer->risk_ns;
	buffer->risk_ns = 0;
}

void pn_losses_used(struct pn_losses *losses, struct pn_call_buffer *buffer,
		    uint64_t delay_ns)
{
	if (!buffer->risk_ns)
		return;
	losses->at_risk_ns -= buffer->risk_ns;
	buffer->risk_ns = 0;
	losses->lost_ns += delay_ns;
	if (!buffer->risk_returns)
		count_event(&losses->late, delay_ns);
	else if (losses->returned.hits < losses->returned.all)
		losses->returned.hits++;
}
