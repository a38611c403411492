/* SPDX-License-Identifier: BSD-2-Clause */
/* Opens an endpoint, and answers queries. close.c ends it. */
#include <errno.h>

#include "message/connection/packet.h"
#include "message/connection/rail.h"
#include "message/endpoint/endpoint.h"
#include "message/onesided/onesided.h"
#include "message/protocol/select.h"

static void init_lists(struct pinion_endpoint *ep)
{
	struct pn_list *lists[] = { &ep->peers, &ep->pending_peers,
				    &ep->requests.done, &ep->requests.free,
				    &ep->progress_entry.link };

	for (size_t i = 0; i < PN_ARRAY_LEN(lists); i++)
		pn_list_init(lists[i]);
}

/* Applies the limits of the devices, and derives from their costs what the
 * program has not set. */
static void set_limits(struct pinion_endpoint *ep)
{
	struct pn_protocol_limits *limits = &ep->limits;
	struct pn_costs costs = ep->device->costs;
	double bandwidth = 0;

	limits->packet_bytes = ep->packets.unregistered_bytes = SIZE_MAX;
	for (unsigned r = 0; r < ep->nrails; r++) {
		const struct pn_device_limits *of = &ep->devices[r]->limits;
		size_t most = of->max_send_bytes - sizeof(struct pn_wire);

		if (limits->packet_bytes > most)
			limits->packet_bytes = most;
		if (ep->packets.unregistered_bytes > of->inline_bytes)
			ep->packets.unregistered_bytes = of->inline_bytes;
		bandwidth += 1 / ep->rails[r].byte_ns;
	}
	if (ep->nrails > 1 && !ep->either)
		costs.put_byte_ns = 1 / bandwidth;
	if (ep->packets.unregistered_bytes >
	    sizeof(struct pn_wire) + limits->packet_bytes)
		ep->packets.unregistered_bytes =
			sizeof(struct pn_wire) + limits->packet_bytes;
	if (limits->eager_bytes > limits->packet_bytes)
		limits->eager_bytes = limits->packet_bytes;
	if (limits->match_bytes > limits->packet_bytes)
		limits->match_bytes = limits->packet_bytes;
	if (!limits->fragment_bytes)
		limits->fragment_bytes =
			pn_protocol_best_fragment(limits, &costs, false);
	if (!limits->segment_bytes)
		limits->segment_bytes =
			pn_protocol_best_fragment(limits, &costs, true);
}

static size_t inject_below(const struct pinion_endpoint *ep)
{
	size_t most = ep->limits.eager_bytes;

	for (unsigned r = 0; r < ep->nrails; r++) {
		size_t inline_bytes = ep->devices[r]->limits.inline_bytes;

		if (inline_bytes < sizeof(struct pn_wire))
			return 0;
		if (most > inline_bytes - sizeof(struct pn_wire))
			most = inline_bytes - sizeof(struct pn_wire);
	}
	return pn_reuse_skips(&ep->reuse, ep->eager_kind, most)
		       ? most + 1
		       : ep->reuse.from[ep->eager_kind];
}

static void init_reuse(struct pinion_endpoint *ep, struct pn_reuse_attr attr)
{
	const struct pn_device *device = ep->device;

	attr.small_bytes = ep->limits.eager_bytes;
	pn_reuse_init(&ep->reuse, ep->device, ep->cache, &attr);
	ep->eager_kind =
		device->caps & PN_CAP_RING ? PN_REUSE_RING : PN_REUSE_SEND;
	if (!(device->caps & PN_CAP_GATHER) || ep->nrails > 1)
		pn_reuse_exclude(&ep->reuse, ep->eager_kind);
	ep->inject_below = inject_below(ep);
}

static int open_selectors(struct pinion_endpoint *ep)
{
	for (unsigned r = 0; r < (ep->either ? ep->nrails : 1); r++) {
		ep->selectors[r] =
			pn_protocol_selector_open(&ep->limits,
						  &ep->devices[r]->costs);
		if (!ep->selectors[r])
			return -ENOMEM;
	}
	return 0;
}

static void close_selectors(struct pinion_endpoint *ep)
{
	for (unsigned r = 0; r < ep->nrails; r++)
		pn_protocol_selector_close(ep->selectors[r]);
}

/* With `progress` the caller's own lock keeps the progress thread out. */
static void init_locks(struct pinion_endpoint *ep,
		       const struct pn_endpoint_attr *attr)
{
	ep->single_threaded = attr->single_threaded;
	ep->virtual_time = ep->device->caps & PN_CAP_VIRTUAL_TIME;
	if (attr->progress_thread && !attr->progress)
		ep->locking = PN_LOCKING_BIASED;
	else if (attr->single_threaded)
		ep->locking = PN_LOCKING_NONE;
	else
		ep->locking = ep->virtual_time ? PN_LOCKING_VIRTUAL
					       : PN_LOCKING_MUTEX;
	pn_mutex_init(&ep->lock);
	pn_biased_init(&ep->biased_lock, attr->single_threaded);
}

void pn_endpoint_fini_locks(struct pinion_endpoint *ep)
{
	pn_biased_fini(&ep->biased_lock);
	pn_mutex_fini(&ep->lock);
}

static void set_rails(struct pinion_endpoint *ep,
		      const struct pn_endpoint_attr *attr)
{
	ep->nrails = attr->nrails;
	ep->either = attr->either && attr->nrails > 1;
	for (unsigned r = 0; r < ep->nrails; r++) {
		ep->rails[r].device = attr->rails[r].device;
		ep->rails[r].cache = attr->rails[r].cache;
		ep->rails[r].index = r;
		ep->devices[r] = attr->rails[r].device;
	}
	ep->device = ep->rails[0].device;
	ep->cache = ep->rails[0].cache;
	ep->owns_devices = attr->owns_devices;
}

int pn_endpoint_open(const struct pn_endpoint_attr *attr,
		     struct pinion_endpoint **out)
{
	struct pinion_endpoint *ep =
		pn_stats_alloc(&pn_endpoint_statistics, attr->stats_owner,
			       attr->stats_owner);
	int ret;

	if (!ep)
		return -ENOMEM;
	set_rails(ep, attr);
	ep->waiting.epoll = ep->waiting.notify_fd = ep->waiting.timer_fd = -1;
	ep->waiting.timer_ns = PN_FOREVER;
	ep->rail_timeout_ns = attr->rail_timeout_ns;
	ep->unexpected_limit = attr->unexpected_limit;
	ep->budget = attr->budget;
	ep->helper = attr->helper;
	ep->limits = attr->limits;
	ep->pages = attr->pages;
	pn_rails_init(ep);
	set_limits(ep);
	init_reuse(ep, attr->reuse);
	ep->protocol = attr->protocol;
	init_locks(ep, attr);
	init_lists(ep);
	pn_matching_init(&ep->matching, ep->limits.packet_bytes);
	pn_progress_init(ep);
	PN_POOL_INIT(&ep->transfers.fragments, struct pn_fragment, rdma.link,
		     0);
	pn_direct_init(ep);
	pn_onesided_init(ep);
	ret = open_selectors(ep);
	if (!ret)
		ret = pn_packets_open(ep);
	if (ret)
		goto close_selectors;
	pn_rails_set_owner(ep, true, attr->single_threaded);
	if (attr->progress_thread)
		ret = pn_progress_thread_add(ep, attr);
	if (ret)
		goto close_packets;
	*out = ep;
	return 0;

close_packets:
	pn_rails_set_owner(ep, false, false);
	pn_packets_close(ep);
	pn_packets_free(ep);
close_selectors:
	close_selectors(ep);
	pn_onesided_fini(ep);
	pn_endpoint_close_descriptors(ep);
	pn_endpoint_fini_locks(ep);
	pn_stats_free(ep);
	return ret;
}

/* The sum over all selectors. */
static void query_selectors(struct pinion_endpoint *ep,
			    struct pn_protocol_selector_stats *out)
{
	struct pn_protocol_selector_stats one;

	*out = (struct pn_protocol_selector_stats){ 0 };
	for (unsigned r = 0; r < ep->nrails && ep->selectors[r]; r++) {
		pn_protocol_selector_query(ep->selectors[r], &one);
		out->mean_error += one.mean_error * (double)one.measured;
		out->measured += one.measured;
		out->explored += one.explored;
		out->in_flight += one.in_flight;
		out->changes += one.changes;
	}
	if (out->measured)
		out->mean_error /= (double)out->measured;
}

void pn_endpoint_query(struct pinion_endpoint *ep,
		       struct pn_endpoint_stats *out)
{
	pn_endpoint_lock(ep);
	*out = ep->stats;
	query_selectors(ep, &out->choices);
	pn_endpoint_unlock(ep);
}

void pn_endpoint_set_protocol(struct pinion_endpoint *ep, int protocol)
{
	pn_endpoint_lock(ep);
	ep->protocol = protocol;
	pn_endpoint_unlock(ep);
}
