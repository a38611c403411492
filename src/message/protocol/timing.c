/* SPDX-License-Identifier: BSD-2-Clause */
#include "message/protocol/timing.h"

#include "message/endpoint/endpoint.h"
#include "message/protocol/select.h"
#include "message/twosided/transfer.h"

#define TIMING_UNIT_NS 16 /* unit of the reported time */

/* The sender's request id and the time in units, in one word. */
void pn_timing_record(struct pinion_request *request)
{
	struct pinion_peer *peer = request->peer;
	uint64_t units;

	if (!request->transfer.began_ns)
		return;
	units = (pn_device_now(request->ep->device) -
		 request->transfer.began_ns) /
		TIMING_UNIT_NS;
	if (units > UINT32_MAX)
		units = UINT32_MAX;
	peer->timings[peer->ntimings++ & (PN_TIMINGS - 1)] =
		(uint64_t)request->remote_id << 32 | units;
}

uint64_t pn_timing_take(struct pinion_peer *peer)
{
	uint64_t *newest =
		&peer->timings[(peer->ntimings - 1) & (PN_TIMINGS - 1)];
	uint64_t found = *newest;

	*newest = 0;
	if (found)
		peer->ntimings--;
	return found;
}

void pn_timing_received(const struct pinion_peer *peer, uint64_t word)
{
	if (word)
		pn_protocol_selector_measured(pn_peer_selector(peer),
					      (uint32_t)(word >> 32),
					      (double)(word & UINT32_MAX) *
						      TIMING_UNIT_NS);
}
