/* SPDX-License-Identifier: BSD-2-Clause */
/* What a message took, told to its sender by the receiver, who sees its end: a
 * sender's choices are bets on that (auto.h). The word goes along with the next
 * ACK or DONE to that peer; those that found none by then are overwritten. */
#include "message/transfer_impl.h"

#define REPORT_NS 16 /* a unit */

/* The request at the sender and the time in 16 ns, in one word. */
void pn_transfer_report(struct pinion_request *request)
{
	struct pinion_peer *peer = request->peer;
	uint64_t units;

	if (!request->began_ns)
		return;
	units = (pn_device_now(request->ep->device) - request->began_ns) /
		REPORT_NS;
	if (units > UINT32_MAX)
		units = UINT32_MAX;
	peer->reports[peer->nreports++ & (PN_REPORTS - 1)] =
		(uint64_t)request->other << 32 | units;
}

uint64_t pn_transfer_take_report(struct pinion_peer *peer)
{
	uint64_t *newest =
		&peer->reports[(peer->nreports - 1) & (PN_REPORTS - 1)];
	uint64_t found = *newest;

	*newest = 0;
	if (found)
		peer->nreports--;
	return found;
}

void pn_transfer_hear_report(const struct pinion_peer *peer, uint64_t word)
{
	if (word)
		pn_auto_told(pn_peer_chooser(peer), (uint32_t)(word >> 32),
			     (double)(word & UINT32_MAX) * REPORT_NS);
}
