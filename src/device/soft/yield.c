/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/soft/yield.h"

#include "base/clock.h"

/* Empty polls before a look, about a microsecond; and when the last yield let
 * another process run. */
#define LOOK_POLLS	   32
#define LOOK_POLLS_CROWDED 4

/* A caller that polls less often than this on average works in between. */
#define MAX_POLL_NS 1000

/* A yield that takes longer than this let another process run. */
#define SWITCH_NS 1000

/* Another process that waits by polling, too, yields within this time. */
#define POLITE_NS (100 * PN_NS_PER_US)

#define MIN_BACKOFF_NS (10 * PN_NS_PER_US)
#define MAX_BACKOFF_NS (2 * PN_NS_PER_MS)

void pn_soft_yield_init(struct pn_soft_yield *yield)
{
	*yield = (struct pn_soft_yield){ .look_after = LOOK_POLLS,
					 .backoff_ns = MIN_BACKOFF_NS };
}

bool pn_soft_yield_due(struct pn_soft_yield *yield, uint64_t now_ns,
		       bool crowded)
{
	uint64_t polled_ns = now_ns - yield->looked_ns;
	bool is_waiting = polled_ns <= LOOK_POLLS * MAX_POLL_NS;

	yield->looked_ns = now_ns;
	if (crowded && !yield->was_crowded)
		yield->next_ns = now_ns;
	yield->was_crowded = crowded;
	return is_waiting && now_ns >= yield->next_ns;
}

void pn_soft_yield_done(struct pn_soft_yield *yield, uint64_t begin_ns,
			uint64_t end_ns)
{
	uint64_t away_ns = end_ns - begin_ns;

	yield->nyields++;
	yield->looked_ns = yield->next_ns = end_ns;
	if (away_ns < SWITCH_NS) {
		yield->look_after = LOOK_POLLS;
		yield->next_ns += yield->backoff_ns;
		if (yield->backoff_ns < MAX_BACKOFF_NS)
			yield->backoff_ns *= 2;
		return;
	}
	yield->nswitches++;
	yield->look_after = LOOK_POLLS_CROWDED;
	yield->backoff_ns = MIN_BACKOFF_NS;
	if (!yield->was_crowded && away_ns > POLITE_NS)
		yield->next_ns += away_ns;
}
