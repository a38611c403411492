/* SPDX-License-Identifier: BSD-2-Clause */
/* What a message took, told to its sender by the receiver, who sees its end: a
 * sender's choices are bets on that (select.h). The word goes along with the
 * next ACK or DONE to that peer; those that found none by then are overwritten.
 */
#include "message/twosided/transfer_impl.h"

#define TIMING_UNIT_NS 16 /* a unit */

/* The request at the sender and the time in 16 ns, in one word. */
void pn_timing_record(struct pinion_request *request)
{
	struct pinion_peer *peer = request->peer;
	uint64_t units;

	if (!request->began_ns)
		return;
	units = (pn_device_now(request->ep->device) - request->began_ns) /
		TIMING_UNIT_NS;
	if (units > UINT32_MAX)
		units = UINT32_MAX;
	peer->reports[peer->nreports++ & (PN_TIMINGS - 1)] =
		(uint64_t)request->other << 32 | units;
}

uint64_t pn_timing_take(struct pinion_peer *peer)
{
	uint64_t *newest =
		&peer->reports[(peer->nreports - 1) & (PN_TIMINGS - 1)];
	uint64_t found = *newest;

	*newest = 0;
	if (found)
		peer->nreports--;
	return found;
}

void pn_transfer_use_report(const struct pinion_peer *peer, uint64_t word)
{
	if (word)
		pn_protocol_selector_measured(pn_peer_selector(peer),
					      (uint32_t)(word >> 32),
					      (double)(word & UINT32_MAX) *
						      TIMING_UNIT_NS);
}
