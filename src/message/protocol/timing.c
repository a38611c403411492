/* SPDX-License-Identifier: BSD-2-Clause */
#include "message/protocol/timing.h"

#include "message/endpoint/endpoint.h"
#include "message/protocol/select.h"
#include "message/twosided/transfer.h"

#define TIMING_UNIT_NS 16 /* unit of the reported time */

/* What a request added to the time in which this side had some under way: from
 * its begin, or from the end of the one before, if that came later. Alone, this
 * is what it took. */
static uint64_t added_ns(const struct pinion_request *request, uint64_t *last)
{
	uint64_t now = pn_device_now(request->ep->device);
	uint64_t began = request->transfer.began_ns;
	uint64_t from = *last > began ? *last : began;

	*last = now;
	return now - from;
}

void pn_timing_sent(struct pinion_request *request)
{
	uint64_t *last = &request->ep->transfers.last_sent_ns;

	if (request->transfer.began_ns && !request->status)
		pn_protocol_selector_ended(pn_peer_selector(request->peer),
					   request->id,
					   (double)added_ns(request, last));
}

/* The sender's request id, the time in units, and whether the receive was
 * late, in one word. */
void pn_timing_record(struct pinion_request *request)
{
	struct pinion_peer *peer = request->peer;
	uint64_t *last = &request->ep->transfers.last_received_ns;
	uint64_t units = added_ns(request, last) / TIMING_UNIT_NS;

	if (units > UINT32_MAX >> 1)
		units = UINT32_MAX >> 1;
	if (peer->ntimings - peer->ntaken == PN_TIMINGS)
		peer->ntaken++;
	peer->timings[peer->ntimings++ & (PN_TIMINGS - 1)] =
		(uint64_t)request->remote_id << 32 | units << 1 |
		request->was_unexpected;
}

uint64_t pn_timing_take(struct pinion_peer *peer)
{
	if (peer->ntaken == peer->ntimings)
		return 0;
	return peer->timings[peer->ntaken++ & (PN_TIMINGS - 1)];
}

void pn_timing_received(const struct pinion_peer *peer, uint64_t word)
{
	double units = (double)((word & UINT32_MAX) >> 1);

	if (word)
		pn_protocol_selector_measured(pn_peer_selector(peer),
					      (uint32_t)(word >> 32),
					      units * TIMING_UNIT_NS, word & 1);
}
