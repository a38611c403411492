/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What an endpoint waits for, in the statistics segment: `pinion mpirun` reads
 * there which rank of a job that stands still waits for what.
 *
 * Polls and tests in a row without an event are counted once, for this and for
 * giving up the core (pn_endpoint_is_idle()); an event sets the count to zero.
 * From PN_STALL_POLLS on, pn_endpoint_idle() comes here now and then. If
 * nothing has happened for PERIOD_NS, the requests are walked and written to
 * the segment, at most once in that time. What is written holds if empty_polls
 * is larger than PN_STALL_POLLS, which an event ends, and seen_ns > since_ns;
 * and it held at seen_ns. A process that computes or sleeps does not poll, and
 * its seen_ns grows old.
 *
 * A reader may see half of a change. While an endpoint waits, nothing but
 * seen_ns changes.
 *
 * Threads: under the endpoint's lock.
 */
#include "base/fnv.h"
#include "message/endpoint/endpoint.h"

#define PERIOD_NS (50 * UINT64_C(1000000))

/* Of the addresses of the devices. */
static uint64_t hash(const struct pn_address *rails, unsigned nrails)
{
	uint64_t h = PN_FNV_START;

	for (unsigned r = 0; r < nrails; r++)
		h = pn_fnv_add(h, rails[r].data, rails[r].len);
	return h;
}

static uint64_t own_address(const struct pinion_endpoint *ep)
{
	struct pn_address rails[PN_RAILS_MAX];

	for (unsigned r = 0; r < ep->nrails; r++)
		pn_device_address(ep->rails[r].device, &rails[r]);
	return hash(rails, ep->nrails);
}

/* The last one that is shown stays; the others count. */
static void add(struct pn_stalled_request *out,
		const struct pinion_request *request, bool show)
{
	out->n++;
	if (!show)
		return;
	out->space = request->space;
	out->matched = request->remote_id || !request->is_send;
	out->peer = request->peer
			    ? hash(request->peer->rails, request->peer->nrails)
			    : 0;
	out->tag = request->tag;
	out->ignore = request->ignore;
	out->bytes = request->len;
}

/* Posted receives: the newest is likelier to be what the program waits for than
 * those that it posted in advance; and one that names its peer likelier than
 * one for any peer. */
static void add_posted(struct pinion_endpoint *ep,
		       struct pn_stalled_request *out)
{
	struct pn_list *pos;

	pn_list_for_each (pos, &ep->matching.posted.entries) {
		const struct pinion_request *request =
			pn_container_of(pos, struct pinion_request, link);

		add(out, request, request->peer || !out->peer);
		out->matched = false;
	}
}

static void add_matched(struct pinion_endpoint *ep,
			struct pn_stalled_request *receive,
			struct pn_stalled_request *send)
{
	struct pn_list *p, *r;

	pn_list_for_each (p, &ep->peers) {
		const struct pinion_peer *peer =
			pn_container_of(p, struct pinion_peer, link);

		pn_list_for_each (r, &peer->requests) {
			const struct pinion_request *request =
				pn_container_of(r, struct pinion_request,
						peer_link);

			if (request->is_send)
				add(send, request, !send->n);
			else
				add(receive, request, true);
		}
	}
}

static void write_requests(struct pinion_endpoint *ep)
{
	struct pn_stalled_request receive = { 0 }, send = { 0 };

	add_posted(ep, &receive);
	add_matched(ep, &receive, &send);
	ep->stall.receive = receive;
	ep->stall.send = send;
	if (!ep->stall.address)
		ep->stall.address = own_address(ep);
}

void pn_endpoint_stalled(struct pinion_endpoint *ep)
{
	struct pn_endpoint_stall *stall = &ep->stall;
	uint64_t now, last;

	if (ep->virtual_time)
		return;
	now = pn_device_now(ep->device);
	/* The first call after an event, and perhaps some more. */
	if (stall->empty_polls < 2 * PN_STALL_POLLS) {
		stall->since_ns = now;
		return;
	}
	if (stall->empty_polls > UINT32_MAX / 2)
		stall->empty_polls = 2 * PN_STALL_POLLS;
	last = stall->seen_ns > stall->since_ns ? stall->seen_ns
						: stall->since_ns;
	if (now - last < PERIOD_NS)
		return;
	write_requests(ep);
	stall->seen_ns = now;
}
