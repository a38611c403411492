/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which rail a fragment takes.
 *
 * The receiver decides, since it announces (or reads) the fragments. Each
 * fragment takes the rail on which it would arrive first. For each rail the
 * receiver knows the bytes still to come over it and its recent speed. So rails
 * of different bandwidth, and rails that others use too, carry their share
 * although nobody computes shares. If the rail that would be first has as many
 * fragments of the message as the depth allows, the receiver waits for it: the
 * slower rail would end later still.
 *
 * When registrations are not kept, the CPU that registers a fragment is often
 * slower than a rail. Until the fragment is registered all rails count as idle,
 * and the fastest is taken.
 *
 * When registrations are kept, a choice by the load of the moment would in time
 * register every buffer on every rail. So a message has a plan: the choice that
 * would be made if nothing else were on the rails, which is the same each time
 * the message comes. A rail other than the planned one is taken only if it
 * gains more time than registering costs.
 *
 * Protocols that transfer a message as a whole cut it into one share for each
 * rail, in proportion to the planned speeds, so again the same each time.
 */
#include <errno.h>

#include "message/connection/connection.h"
#include "message/connection/rail.h"
#include "message/connection/wire.h"
#include "message/endpoint/endpoint.h"
#include "message/protocol/shapes.h"
#include "message/twosided/transfer.h"

/* A shorter share is not worth a second rail. */
#define MIN_SHARE_BYTES ((size_t)64 << 10)

/* So many bytes are measured before the estimate of a rail's speed changes, and
 * the new speed must be slower or faster by these factors: fragments that are
 * polled late look as if they had come fast, and plans should change rarely. */
#define MEASURED_BYTES ((size_t)32 << 20)
#define SLOWER	       1.1
#define FASTER	       1.5

static double nominal_byte_ns(const struct pn_rail *rail)
{
	double ns = rail->device->costs.put_byte_ns;

	/* A device without cost is fast, but not infinitely fast. */
	return ns > 1e-3 ? ns : 1e-3;
}

void pn_rails_init(struct pinion_endpoint *ep)
{
	for (unsigned r = 0; r < ep->nrails; r++)
		ep->rails[r].byte_ns = nominal_byte_ns(&ep->rails[r]);
}

void pn_rails_set_owner(struct pinion_endpoint *ep, bool owner,
			bool single_threaded)
{
	for (unsigned r = 0; r < ep->nrails; r++) {
		pn_cache_count_endpoint(ep->rails[r].cache, owner);
		ep->rails[r].device->single_threaded = single_threaded;
		ep->rails[r].device->receive_handler =
			owner && single_threaded ? &ep->poll.receive_handler
						 : NULL;
	}
}

/* --- bytes on their way --------------------------------------------------- */

static void expect(struct pinion_endpoint *ep, struct pn_rail *rail, size_t len)
{
	uint64_t now = pn_device_now(ep->device);

	if (rail->free_ns < now)
		rail->free_ns = now;
	rail->free_ns += (uint64_t)((double)len * rail->byte_ns);
	rail->expected += len;
}

/* The time to register a fragment, and to deregister it at the end, if
 * registrations are not kept. Until then its rail may as well be busy. */
static uint64_t register_ns(const struct pinion_request *request, size_t len)
{
	const struct pn_costs *costs = &request->ep->device->costs;

	return request->transfer.shape.keep
		       ? 0
		       : (uint64_t)(pn_cost_register(costs, len, 1) +
				    pn_cost_deregister(costs, len, 1));
}

static void plan(struct pinion_request *request, const struct pn_rail *rail,
		 size_t len)
{
	request->transfer.plan_ns[rail->index] += (double)len * rail->byte_ns;
}

/* When a fragment will be registered: one CPU registers one after the other. */
static uint64_t ready_ns(const struct pinion_request *request, size_t len)
{
	uint64_t now = pn_device_now(request->ep->device);

	return (request->transfer.ready_ns > now ? request->transfer.ready_ns
						 : now) +
	       register_ns(request, len);
}

void pn_rail_expect(struct pn_fragment *f)
{
	struct pinion_endpoint *ep = f->rdma.request->ep;

	if (pn_likely(ep->nrails == 1))
		return;
	f->rdma.request->transfer.ready_ns =
		ready_ns(f->rdma.request, f->rdma.len);
	if (f->rdma.conn->rail->free_ns < f->rdma.request->transfer.ready_ns)
		f->rdma.conn->rail->free_ns =
			f->rdma.request->transfer.ready_ns;
	expect(ep, f->rdma.conn->rail, f->rdma.len);
	plan(f->rdma.request, f->rdma.conn->rail, f->rdma.len);
	f->expected = true;
}

/* The bytes up to the offset come by DATA, over the connection of packets. */
void pn_rail_expect_data(struct pinion_request *request)
{
	if (pn_likely(request->ep->nrails == 1))
		return;
	request->transfer.data_rail = request->peer->conn->rail;
	expect(request->ep, request->transfer.data_rail,
	       request->transfer.data_due);
	plan(request, request->transfer.data_rail, request->transfer.data_due);
}

void pn_rail_data_arrived(struct pinion_request *request, size_t len)
{
	struct pn_rail *rail = request->transfer.data_rail;

	if (pn_likely(!rail))
		return;
	rail->expected -= len;
	rail->last_arrival_ns =
		rail->expected ? pn_device_now(request->ep->device) : 0;
}

/* Between two fragments that arrive while more are expected the rail is never
 * idle: so fast is it. Short fragments would show the latency instead. */
static void measure(struct pn_rail *rail, size_t len, uint64_t now)
{
	double promised = nominal_byte_ns(rail), ns;

	if (!rail->last_arrival_ns || len < MIN_SHARE_BYTES)
		return;
	rail->measured_bytes += len;
	rail->measured_ns += now - rail->last_arrival_ns;
	if (rail->measured_bytes < MEASURED_BYTES)
		return;
	ns = (double)rail->measured_ns / (double)rail->measured_bytes;
	rail->measured_bytes = rail->measured_ns = 0;
	if (ns > promised / FASTER && ns < promised * SLOWER)
		rail->byte_ns = promised;
	else if (ns > rail->byte_ns * SLOWER || ns * SLOWER < rail->byte_ns)
		rail->byte_ns = ns;
}

void pn_rail_expect_done(struct pn_fragment *f, bool arrived)
{
	struct pinion_endpoint *ep = f->rdma.request->ep;
	struct pn_rail *rail = f->rdma.conn->rail;
	uint64_t now;

	if (pn_likely(!f->expected))
		return;
	f->expected = false;
	now = pn_device_now(ep->device);
	rail->expected -= f->rdma.len;
	if (arrived) {
		measure(rail, f->rdma.len, now);
		ep->stats.fragments[rail->index]++;
	}
	rail->last_arrival_ns = arrived && rail->expected ? now : 0;
	rail->free_ns =
		now + (uint64_t)((double)rail->expected * rail->byte_ns);
}

/* --- usable connections --------------------------------------------------- */

bool pn_rail_can_read(const struct pinion_request *request,
		      const struct pn_connection *conn)
{
	for (unsigned i = 0; i < request->transfer.nkeys; i++)
		if (pn_wire_key_rail(request->transfer.key_rails, i) ==
		    pn_connection_remote_rail(conn))
			return true;
	return false;
}

static bool is_usable(const struct pinion_request *request,
		      const struct pn_connection *conn)
{
	return conn->up &&
	       (!request->transfer.nkeys || pn_rail_can_read(request, conn));
}

static unsigned count_usable(const struct pinion_request *request)
{
	unsigned n = 0;

	for (unsigned r = 0; r < request->ep->nrails; r++)
		n += is_usable(request, &request->peer->conns[r]);
	return n;
}

static unsigned count_on(const struct pinion_request *request,
			 const struct pn_connection *conn)
{
	struct pn_list *pos;
	unsigned n = 0;

	pn_list_for_each (pos, &request->transfer.fragments)
		n += pn_container_of(pos, struct pn_fragment, rdma.link)
			     ->rdma.conn == conn;
	return n;
}

/* --- the best connection -------------------------------------------------- */

/* The connection that a fragment would take if there were no other message. */
static const struct pn_connection *planned_connection(
	const struct pinion_request *request, size_t len)
{
	const struct pn_connection *best = NULL;
	double least = 0;

	for (unsigned r = 0; r < request->ep->nrails; r++) {
		const struct pn_connection *conn = &request->peer->conns[r];
		double ns = request->transfer.plan_ns[r] +
			    (double)len * conn->rail->byte_ns;

		if (is_usable(request, conn) && (!best || ns < least)) {
			least = ns;
			best = conn;
		}
	}
	return best;
}

/* When a fragment of len bytes that is registered at `ready` would arrive. */
static double end_ns(const struct pn_rail *rail, size_t len, uint64_t ready)
{
	uint64_t begin = rail->free_ns > ready ? rail->free_ns : ready;

	return (double)begin + (double)len * rail->byte_ns;
}

/* The best connection now. If `planned` is not NULL, another connection must
 * gain more than registering costs. */
static struct pn_connection *best_connection(
	const struct pinion_request *request, size_t len,
	const struct pn_connection *planned)
{
	struct pinion_endpoint *ep = request->ep;
	uint64_t ready = ready_ns(request, len);
	struct pn_connection *best = request->peer->conn;
	double least = -1;

	for (unsigned r = 0; r < ep->nrails; r++) {
		struct pn_connection *conn = &request->peer->conns[r];
		double ns = end_ns(conn->rail, len, ready);

		if (!is_usable(request, conn))
			continue;
		if (planned && planned != conn)
			ns += pn_cost_register(&conn->rail->device->costs, len,
					       1);
		if (least < 0 || ns < least) {
			least = ns;
			best = conn;
		}
	}
	return best;
}

struct pn_connection *pn_rail_choose_alternative(
	const struct pinion_request *request, size_t len)
{
	return best_connection(request, len, NULL);
}

/* --- the length of a fragment --------------------------------------------- */

static size_t fragment_len(const struct pinion_request *request)
{
	size_t len = request->transfer.shape.fragment;
	size_t left = request->total - request->transfer.next;
	uintptr_t at = (uintptr_t)request->buf + request->transfer.next;

	if (request->transfer.shape.align)
		len -= at & (request->transfer.shape.align - 1) &
		       (request->transfer.shape.fragment - 1);
	return len && len < left ? len : left;
}

/* Cuts the last fragments of a message so that, by the plan, all rails end at
 * the same time. */
static size_t last_len(const struct pinion_request *request,
		       const struct pn_connection *conn, size_t len)
{
	size_t left = request->total - request->transfer.next, share;
	double bytes = (double)left, rate = 0, own;

	if (left > count_usable(request) * request->transfer.shape.fragment)
		return len;
	for (unsigned r = 0; r < request->ep->nrails; r++) {
		const struct pn_connection *w = &request->peer->conns[r];

		if (!is_usable(request, w))
			continue;
		rate += 1 / w->rail->byte_ns;
		bytes += request->transfer.plan_ns[r] / w->rail->byte_ns;
	}
	own = request->transfer.plan_ns[conn->rail->index];
	own = (bytes / rate - own) / conn->rail->byte_ns;
	share = own > 0 ? (size_t)own : 0;
	share = (share + MIN_SHARE_BYTES - 1) & ~(MIN_SHARE_BYTES - 1);
	if (share < MIN_SHARE_BYTES)
		share = MIN_SHARE_BYTES;
	if (share + MIN_SHARE_BYTES > left)
		share = left;
	return share < len ? share : len;
}

/* A message that is transferred as a whole. */
static bool is_whole(const struct pinion_request *request)
{
	return request->transfer.shape.fragment >= request->message_len;
}

/* The share of a connection in the bytes that are left for it and the
 * connections behind it. The last one takes all. */
static size_t share_len(const struct pinion_request *request,
			const struct pn_connection *conn)
{
	const struct pn_connection *last =
		&request->peer->conns[request->ep->nrails];
	size_t left = request->total - request->transfer.next, len;
	double all = 0;

	for (const struct pn_connection *w = conn; w < last; w++)
		if (is_usable(request, w))
			all += conn->rail->byte_ns / w->rail->byte_ns;
	len = (size_t)((double)left / all);
	len = (len + MIN_SHARE_BYTES - 1) & ~(MIN_SHARE_BYTES - 1);
	return len < left ? len : left;
}

/* One share for each connection that has none yet. */
static int choose_share(struct pinion_request *request, size_t *len,
			struct pn_connection **out)
{
	size_t left = request->total - request->transfer.next;

	if (left < 2 * MIN_SHARE_BYTES) {
		*len = left;
		*out = pn_rail_choose_alternative(request, left);
		return count_on(request, *out) ? -EAGAIN : 0;
	}
	for (unsigned r = 0; r < request->ep->nrails; r++) {
		struct pn_connection *conn = &request->peer->conns[r];

		if (!is_usable(request, conn) || count_on(request, conn))
			continue;
		*out = conn;
		*len = share_len(request, conn);
		return 0;
	}
	return -EAGAIN;
}

int pn_rail_choose(struct pinion_request *request, size_t *len,
		   struct pn_connection **out)
{
	*out = request->peer->conn;
	if (pn_likely(request->ep->nrails == 1) || !count_usable(request)) {
		*len = fragment_len(request);
		return request->transfer.nfragments <
				       request->transfer.shape.depth
			       ? 0
			       : -EAGAIN;
	}
	if (is_whole(request))
		return choose_share(request, len, out);
	*len = fragment_len(request);
	*out = best_connection(request, *len,
			       request->transfer.shape.keep
				       ? planned_connection(request, *len)
				       : NULL);
	if (request->transfer.shape.keep)
		*len = last_len(request, *out, *len);
	return count_on(request, *out) < request->transfer.shape.depth
		       ? 0
		       : -EAGAIN;
}
