/* SPDX-License-Identifier: BSD-2-Clause */
#include "message/party.h"

#include <string.h>

#include "base/clock.h"
#include "message/message_impl.h"

static const struct pn_protocol_limits small_limits = {
	.eager_bytes = 2000,
	.match_bytes = 1000,
	.rdma_offset = 20000,
	.fragment_bytes = 48 << 10,
	.segment_bytes = 32 << 10,
	.depth = 3,
};

static void idle(void *arg)
{
	struct party *party = arg;

	pn_endpoint_poll(party->ep, NULL, 0);
}

static bool open_layers(struct party *party, const struct party_attr *attr)
{
	struct pn_device *device = party->rank->device;
	struct pn_cache_attr cache = { .device = device,
				       .budget = &party->budget,
				       .no_monitor = party->rank->virtual_time,
				       .no_worker = party->rank->virtual_time };
	struct pn_endpoint_attr ep = { .rails = { { device, NULL } },
				       .nrails = 1,
				       .budget = &party->budget,
				       .limits = attr->limits,
				       .protocol = attr->protocol,
				       .single_threaded = attr->single_threaded,
				       .pages = { .numa_node = -1 } };

	if (!ep.limits.depth)
		ep.limits = small_limits;
	pn_budget_init(&party->budget, device,
		       attr->max_bytes ? attr->max_bytes : (size_t)4 << 30, 0,
		       1);
	if (pn_cache_open(&cache, &party->cache))
		return false;
	ep.rails[0].cache = party->cache;
	if (pn_endpoint_open(&ep, &party->ep))
		return false;
	party->bounce_bytes = atomic_load(&party->budget.bytes);
	return true;
}

bool party_open(struct party *party, struct rank *rank,
		const struct party_attr *attr)
{
	struct pinion_address mine, all[RANKS_MAX];

	*party = (struct party){ .rank = rank };
	if (!open_layers(party, attr)) {
		rank_fail(rank, "open", __FILE__, __LINE__);
		return false;
	}
	rank->idle = idle;
	rank->idle_arg = party;
	pn_endpoint_address(party->ep, &mine);
	if (!rank_exchange(rank, &mine, sizeof(mine), all))
		return false;
	for (unsigned r = 0; r < rank->nranks; r++)
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

/* The cache's worker may be at the last ones still. */
static bool settles(struct party *party)
{
	struct pn_device *device = party->rank->device;
	uint64_t deadline = pn_device_now(device) + 10 * PN_NS_PER_S;
	size_t bounces =
		party->bounce_bytes + party->ep->onesided.landings.mr.len;

	pn_cache_flush(party->cache);
	while (atomic_load(&party->budget.bytes) != bounces) {
		if (pn_device_now(device) > deadline)
			return false;
		rank_pause(party->rank);
	}
	return true;
}

void party_close(struct party *party)
{
	struct pn_pinned pinned;

	party->rank->idle = NULL;
	if (!settles(party))
		rank_fail(party->rank, "more than bounce buffers is pinned",
			  __FILE__, __LINE__);
	pn_endpoint_close(party->ep);
	pn_cache_close(party->cache);
	pn_device_pinned(party->rank->device, &pinned);
	if (atomic_load(&party->budget.bytes) ||
	    atomic_load(&party->budget.regions) || pinned.mrs)
		rank_fail(party->rank, "something stays pinned", __FILE__,
			  __LINE__);
}

/* --- one message ---------------------------------------------------------- */

int party_send(struct party *party, unsigned to, void *buf, size_t len,
	       uint64_t tag)
{
	struct pinion_message m = {
		.buf = buf, .len = len, .tag = tag, .peer = party->peers[to]
	};
	struct pinion_request *request;
	int ret = pn_endpoint_send(party->ep, &m, &request);

	return ret ? ret : pn_endpoint_wait(party->ep, request, NULL);
}

int party_recv(struct party *party, unsigned from, void *buf, size_t len,
	       uint64_t tag)
{
	struct pinion_message m = {
		.buf = buf, .len = len, .tag = tag, .peer = party->peers[from]
	};
	struct pinion_request *request;
	int ret = pn_endpoint_recv(party->ep, &m, &request);

	return ret ? ret : pn_endpoint_wait(party->ep, request, NULL);
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
