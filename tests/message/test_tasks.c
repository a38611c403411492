/* SPDX-License-Identifier: BSD-2-Clause */
/* Several tasks and endpoints in virtual time, where others run whenever one
 * copies; and endpoints that come and go. */
#include <string.h>

#include "base/clock.h"
#include "device/sim/sim.h"
#include "message/message_impl.h"
#include "test.h"

#define MESSAGES 400
#define BYTES	 1500

struct node {
	struct pn_budget budget;
	struct pn_cache *cache;
	struct pinion_endpoint *ep;
};

static struct {
	struct pn_sim *sim;
	struct node nodes[2];
	struct pinion_address to;
	char bufs[MESSAGES][BYTES];
	unsigned told[MESSAGES];
	bool over;
} bed;

static enum pn_reuse_mode reuse_mode;

static void open_node(unsigned i)
{
	struct node *node = &bed.nodes[i];
	struct pn_device *device = pn_sim_device(bed.sim, i);
	struct pn_cache_attr cache = { .device = device,
				       .budget = &node->budget,
				       .no_monitor = true,
				       .no_worker = true };
	struct pn_endpoint_attr attr = {
		.nrails = 1,
		.budget = &node->budget,
		.limits = { .eager_bytes = 4000,
			    .match_bytes = 1000,
			    .rdma_offset = 20000,
			    .fragment_bytes = 48 << 10,
			    .segment_bytes = 32 << 10,
			    .depth = 3 },
		.reuse = { .mode = reuse_mode },
		.pages = { .numa_node = -1 },
	};

	pn_budget_init(&node->budget, device, (size_t)1 << 30, 0, 1);
	assert_ok(pn_cache_open(&cache, &node->cache));
	attr.rails[0].device = device;
	attr.rails[0].cache = node->cache;
	assert_ok(pn_endpoint_open(&attr, &node->ep));
}

static void send_all(void *arg)
{
	struct pinion_endpoint *ep = bed.nodes[0].ep;
	struct pinion_request *request;
	struct pinion_peer *peer;
	static char buf[BYTES];

	(void)arg;
	assert_ok(pn_endpoint_peer(ep, &bed.to, &peer));
	for (unsigned i = 0; i < MESSAGES; i++) {
		struct pinion_message m = {
			.buf = buf, .len = BYTES, .tag = i, .peer = peer
		};

		assert_ok(pn_endpoint_send(ep, &m, &request));
		assert_ok(pn_endpoint_wait(ep, request, NULL));
	}
	pn_sim_sleep(bed.sim, 50 * PN_NS_PER_MS);
	bed.over = true;
}

static void poll_one_by_one(void *arg)
{
	(void)arg;
	while (!bed.over) {
		struct pinion_completion c[2];
		char untouched[sizeof(c[1])];
		int n;

		memset(c, 0x5a, sizeof(c));
		memset(untouched, 0x5a, sizeof(untouched));
		n = pn_endpoint_poll(bed.nodes[1].ep, c, 1);
		assert_memory_equal(&c[1], untouched, sizeof(untouched));
		if (!n) {
			pn_sim_sleep(bed.sim, 200);
			continue;
		}
		assert_true(c[0].tag < MESSAGES);
		bed.told[c[0].tag]++;
	}
}

static void bed_open(const char *params)
{
	memset(&bed, 0, sizeof(bed));
	assert_ok(pn_sim_open(params, NULL, &bed.sim));
	for (unsigned i = 0; i < 2; i++)
		open_node(i);
	pn_endpoint_address(bed.nodes[1].ep, &bed.to);
	for (unsigned i = 0; i < MESSAGES; i++) {
		struct pinion_message m = { .buf = bed.bufs[i],
					    .len = BYTES,
					    .ignore = UINT64_MAX };

		assert_ok(pn_endpoint_recv(bed.nodes[1].ep, &m, NULL));
	}
}

static void bed_close(void)
{
	for (unsigned i = 0; i < 2; i++) {
		pn_endpoint_check(bed.nodes[i].ep);
		pn_endpoint_close(bed.nodes[i].ep);
		pn_cache_close(bed.nodes[i].cache);
	}
	pn_sim_close(bed.sim);
}

static void poll_by(unsigned tasks, const char *params)
{
	bed_open(params);
	assert_ok(pn_sim_spawn(bed.sim, 0, send_all, NULL));
	for (unsigned i = 0; i < tasks; i++)
		assert_ok(pn_sim_spawn(bed.sim, 1, poll_one_by_one, NULL));
	assert_ok(pn_sim_run(bed.sim));
	for (unsigned i = 0; i < MESSAGES; i++)
		assert_int_equal(bed.told[i], 1);
	bed_close();
}

static void every_end_is_told_once_to_one_of_several(void **state)
{
	(void)state;
	poll_by(1, "nodes=2,cores=3,cost=ou2009");
	poll_by(3, "nodes=2,cores=3,cost=ou2009");
	poll_by(2, "nodes=2,cores=1,cost=ou2009");
}

/* --- what stays ------------------------------------------------------------
 */

#define LIVES 200

#ifndef TEST_SANITIZED
#define TEST_SANITIZED 0
#endif

/* Sends from its buffer and puts through bounce buffers. */
static void use_all(void *arg)
{
	static char exposed[64], buf[BYTES];
	struct pinion_endpoint *ep = bed.nodes[0].ep;
	struct pinion_exposure *exposure;
	struct pinion_move move = { .buf = buf, .len = sizeof(exposed) };
	struct pinion_message m = { .buf = buf, .len = BYTES };
	struct pinion_request *request;
	struct pn_endpoint_stats stats;
	struct pinion_key key;

	(void)arg;
	assert_ok(pn_endpoint_peer(ep, &bed.to, &m.peer));
	for (unsigned i = 0; i < 10; i++) {
		assert_ok(pn_endpoint_send(ep, &m, &request));
		assert_ok(pn_endpoint_wait(ep, request, NULL));
	}
	assert_ok(pn_endpoint_expose(bed.nodes[1].ep, exposed, sizeof(exposed),
				     PINION_ACCESS_REMOTE_WRITE, &exposure));
	pn_exposure_key(exposure, &key);
	assert_ok(pn_endpoint_remote(ep, m.peer, &key, &move.remote));
	assert_ok(pn_endpoint_access(ep, PN_REQUEST_PUT, &move, &request));
	assert_ok(pn_endpoint_wait(ep, request, NULL));
	pn_endpoint_remote_close(move.remote);
	pn_endpoint_unexpose(exposure);
	pn_endpoint_query(ep, &stats);
	assert_true(stats.direct > 0);
	assert_non_null(ep->onesided.landings.mr.addr);
}

static void live_once(void)
{
	bed_open("nodes=2,cost=ou2009");
	assert_ok(pn_sim_spawn(bed.sim, 0, use_all, NULL));
	assert_ok(pn_sim_run(bed.sim));
	bed_close();
}

/* Bounce buffers, those of one-sided operations and heads of direct sends are
 * a page at least. */
static void endpoints_leave_no_memory_behind(void **state)
{
	size_t before;

	(void)state;
	reuse_mode = PN_REUSE_ON;
	for (unsigned i = 0; i < 3; i++)
		live_once();
	before = test_mapped_pages();
	for (unsigned i = 0; i < LIVES; i++)
		live_once();
	if (!TEST_SANITIZED) /* which map what they need */
		assert_true(test_mapped_pages() < before + LIVES);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(every_end_is_told_once_to_one_of_several),
		TEST(endpoints_leave_no_memory_behind),
	};

	return RUN_TESTS(tests);
}
