/* SPDX-License-Identifier: BSD-2-Clause */
#include "message/party.h"

#include <string.h>

#include "base/clock.h"
#include "device/sim/sim.h"
#include "message/endpoint/endpoint.h"
#include "message/twosided/direct.h"

#define OFTEN	     50
#define HELPED_BYTES ((size_t)4 << 10)

static const struct pn_protocol_limits small_limits = {
	.eager_bytes = 2000,
	.match_bytes = 1000,
	.rdma_offset = 20000,
	.fragment_bytes = 48 << 10,
	.segment_bytes = 32 << 10,
	.depth = 3,
};

static void check_limit(struct party *party)
{
	const struct pn_list *pos;

	pn_endpoint_lock(party->ep);
	pn_list_for_each (pos, &party->ep->peers)
		pn_assert(pn_container_of(pos, struct pinion_peer, link)
				  ->allowance.kept <= party->unexpected_limit);
	pn_endpoint_unlock(party->ep);
}

void party_look(struct party *party)
{
	unsigned n = atomic_fetch_add(&party->looks, 1);

	if (party->unexpected_limit)
		check_limit(party);

	if (n < OFTEN || !(n % OFTEN))
		pn_endpoint_check(party->ep);
}

void party_poll(struct party *party)
{
	pn_endpoint_poll(party->ep, NULL, 0);
	party_look(party);
}

static void idle(void *arg)
{
	party_poll(arg);
}

static bool open_caches(struct party *party)
{
	const struct rank *rank = party->rank;

	for (unsigned r = 0; r < rank->nrails; r++) {
		struct pn_cache_attr attr = { .device = rank->rails[r],
					      .budget = &party->budget,
					      .no_monitor = rank->virtual_time,
					      .no_worker = rank->virtual_time };

		if (r)
			pn_budget_add(&party->budget, rank->rails[r]);
		if (pn_cache_open(&attr, &party->caches[r]))
			return false;
	}
	party->cache = party->caches[0];
	return true;
}

static bool open_helper(struct party *party)
{
	struct pn_helper_attr attr = { .nrails = party->rank->nrails,
				       .threshold = HELPED_BYTES };

	for (unsigned r = 0; r < attr.nrails; r++)
		attr.rails[r] = (struct pn_helper_rail){ party->rank->rails[r],
							 party->caches[r] };
	return !pn_helper_open(&attr, &party->helper);
}

static void help(void *arg)
{
	struct party *party = arg;

	pn_helper_run(party->helper);
	party->helping = false;
}

static bool start_helper(struct party *party)
{
	const struct rank *rank = party->rank;

	if (!rank->virtual_time)
		return !pn_helper_start(party->helper);
	party->helping = true;
	return !pn_sim_spawn(rank->sim, rank->rank, help, party);
}

/* What it would register again must not be in the way of what follows. */
static void close_helper(struct party *party)
{
	struct pinion_helper_stats stats;

	if (!party->helper)
		return;
	pn_endpoint_lock(party->ep);
	party->ep->helper = NULL;
	pn_endpoint_unlock(party->ep);
	pn_helper_stop(party->helper);
	while (party->helping)
		rank_pause(party->rank);
	pn_helper_query(party->helper, &stats);
	printf("rank %u: the helper saw %llu transfers, deregistered %llu and "
	       "registered %llu buffers, %llu were late\n",
	       party->rank->rank, (unsigned long long)stats.calls,
	       (unsigned long long)stats.deregistered,
	       (unsigned long long)stats.registered,
	       (unsigned long long)stats.late);
	pn_helper_close(party->helper);
	party->helper = NULL;
}

static bool open_layers(struct party *party, const struct party_attr *attr)
{
	const struct rank *rank = party->rank;
	struct pn_endpoint_attr ep = { .nrails = rank->nrails,
				       .either = rank->either,
				       .budget = &party->budget,
				       .limits = attr->limits,
				       .protocol = attr->protocol,
				       .reuse = attr->reuse,
				       .rail_timeout_ns = attr->rail_timeout_ns,
				       .unexpected_limit =
					       attr->unexpected_limit,
				       .single_threaded = attr->single_threaded,
				       .progress_thread = rank->progress_thread,
				       .pages = { .numa_node = -1 } };

	if (!ep.limits.depth)
		ep.limits = small_limits;
	pn_budget_init(&party->budget, rank->device,
		       attr->max_bytes ? attr->max_bytes : (size_t)4 << 30, 0,
		       1);
	if (!open_caches(party))
		return false;
	if ((attr->helped || rank->helper) && !open_helper(party))
		return false;
	if (rank->helper && !start_helper(party))
		return false;
	ep.helper = party->helper;
	for (unsigned r = 0; r < rank->nrails; r++) {
		ep.rails[r].device = rank->rails[r];
		ep.rails[r].cache = party->caches[r];
	}
	if (pn_endpoint_open(&ep, &party->ep))
		return false;
	party->bounce_bytes = atomic_load(&party->budget.bytes);
	return true;
}

bool party_open(struct party *party, struct rank *rank,
		const struct party_attr *attr)
{
	struct pinion_address mine, all[RANKS_MAX];

	*party = (struct party){ .rank = rank,
				 .unexpected_limit = attr->unexpected_limit };
	if (!open_layers(party, attr)) {
		rank_fail(rank, "open", __FILE__, __LINE__);
		return false;
	}
	rank->idle = idle;
	rank->idle_arg = party;
	pn_endpoint_address(party->ep, &mine);
	if (!rank_exchange(rank, &mine, sizeof(mine), all))
		return false;
	for (unsigned r = 0; r < rank->nranks && !attr->knows_nobody; r++)
		if (pn_endpoint_peer(party->ep, &all[r], &party->peers[r])) {
			rank_fail(rank, "peer", __FILE__, __LINE__);
			return false;
		}
	return true;
}

bool party_barrier(struct party *party)
{
	return rank_barrier(party->rank);
}

/* The cache's worker may still be deregistering the last ones. */
static bool settles(struct party *party)
{
	struct pn_device *device = party->rank->device;
	uint64_t deadline = pn_device_now(device) + 60 * PN_NS_PER_S;
	size_t packet_buffers =
		party->bounce_bytes +
		party->ep->onesided.bounce_pool.memory.mrs[0].len +
		pn_direct_bytes(party->ep);

	for (unsigned r = 0; r < party->rank->nrails; r++)
		pn_cache_flush(party->caches[r]);
	while (atomic_load(&party->budget.bytes) != packet_buffers) {
		if (pn_device_now(device) > deadline)
			return false;
		rank_pause(party->rank);
	}
	return true;
}

/* Counters only grow, and no test lasts long enough for such values. */
static bool counts_are_sane(const struct party *party)
{
	struct pn_endpoint_stats s;
	uint64_t all;

	pn_endpoint_query(party->ep, &s);
	all = s.direct | s.received | s.unexpected | s.copied_no_budget |
	      s.bounced | s.stalls | s.bad_packets | s.rails_lost | s.resent;
	for (unsigned i = 0; i < PN_ARRAY_LEN(s.sent); i++)
		all |= s.sent[i];
	for (unsigned i = 0; i < PN_ARRAY_LEN(s.accesses); i++)
		all |= s.accesses[i];
	for (unsigned i = 0; i < PN_ARRAY_LEN(s.fragments); i++)
		all |= s.fragments[i];
	return all < (uint64_t)1 << 40;
}

void party_close(struct party *party)
{
	struct pn_pinned pinned;
	size_t mrs = 0;

	party->rank->idle = NULL;
	pn_endpoint_check(party->ep);
	if (!counts_are_sane(party))
		rank_fail(party->rank, "a counter went down", __FILE__,
			  __LINE__);
	if (party->rank->helper)
		close_helper(party);
	if (!settles(party))
		rank_fail(party->rank, "more than bounce buffers is pinned",
			  __FILE__, __LINE__);
	pn_endpoint_close(party->ep);
	pn_helper_close(party->helper);
	for (unsigned r = 0; r < party->rank->nrails; r++) {
		pn_cache_close(party->caches[r]);
		pn_device_pinned(party->rank->rails[r], &pinned);
		mrs += pinned.mrs;
	}
	if (atomic_load(&party->budget.bytes) ||
	    atomic_load(&party->budget.regions) || mrs)
		rank_fail(party->rank, "something stays pinned", __FILE__,
			  __LINE__);
}

/* --- one message ---------------------------------------------------------- */

static int wait(struct party *party, struct pinion_request *request)
{
	int ret;

	party_look(party);
	ret = pn_endpoint_wait(party->ep, request, NULL);
	party_look(party);
	return ret;
}

int party_send(struct party *party, unsigned to, void *buf, size_t len,
	       uint64_t tag)
{
	struct pinion_message m = { .size = sizeof(m),
				    .buf = buf,
				    .len = len,
				    .tag = tag,
				    .peer = party->peers[to] };
	struct pinion_request *request;
	int ret = pn_endpoint_send(party->ep, &m, &request);

	return ret ? ret : wait(party, request);
}

int party_recv(struct party *party, unsigned from, void *buf, size_t len,
	       uint64_t tag)
{
	struct pinion_message m = { .size = sizeof(m),
				    .buf = buf,
				    .len = len,
				    .tag = tag,
				    .peer = party->peers[from] };
	struct pinion_request *request;
	int ret = pn_endpoint_recv(party->ep, &m, &request);

	return ret ? ret : wait(party, request);
}

/* --- patterns ------------------------------------------------------------- */

/* splitmix64: every word of every key is another. */
static uint64_t word(uint64_t key, size_t n)
{
	uint64_t x = key + (n + 1) * UINT64_C(0x9e3779b97f4a7c15);

	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

void pattern_fill(void *buf, size_t len, uint64_t key)
{
	uint8_t *to = buf;

	for (size_t n = 0; n * 8 < len; n++) {
		uint64_t w = word(key, n);

		memcpy(to + n * 8, &w, len - n * 8 < 8 ? len - n * 8 : 8);
	}
}

bool pattern_holds(const void *buf, size_t len, uint64_t key)
{
	const uint8_t *from = buf;

	for (size_t n = 0; n * 8 < len; n++) {
		uint64_t w = word(key, n);

		if (memcmp(from + n * 8, &w, len - n * 8 < 8 ? len - n * 8 : 8))
			return false;
	}
	return true;
}
