/* SPDX-License-Identifier: BSD-2-Clause */
/* Several tasks and endpoints in virtual time, where others run whenever one
 * copies; and endpoints that come and go. */
#include <string.h>

#include "base/clock.h"
#include "device/sim/sim.h"
#include "message/endpoint/endpoint.h"
#include "message/onesided/onesided.h"
#include "message/party.h"
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
		struct pinion_message m = { .size = sizeof(m),
					    .buf = buf,
					    .len = BYTES,
					    .tag = i,
					    .peer = peer };

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
}

static void post_receives(void)
{
	for (unsigned i = 0; i < MESSAGES; i++) {
		struct pinion_message m = { .size = sizeof(m),
					    .buf = bed.bufs[i],
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
	post_receives();
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

/* --- a storm --------------------------------------------------------------
 */

/* Tasks in pairs, one on each node, share the endpoints of the nodes: messages
 * under any protocol, puts and gets. Each task waits for its own requests;
 * other tasks run wherever it waits, copies or registers. */
#define PAIRS 4
#define STEPS 40
#define MOST  ((size_t)200 << 10)

static struct {
	uint64_t seed;
	char *area[2]; /* exposed; a share for each task of the other node */
	struct pinion_exposure *exposure[2];
	struct pinion_peer *peer[2];	 /* the other node */
	struct pinion_remote *remote[2]; /* its area */
} storm;

struct partner {
	unsigned node, number;
	uint64_t steps; /* random, as the other's */
	char *buf;
};

static void storm_open(void)
{
	struct pinion_address address;
	struct pinion_exposure_key key;

	for (unsigned i = 0; i < 2; i++) {
		struct pinion_endpoint *ep = bed.nodes[i].ep;

		storm.area[i] = malloc(PAIRS * MOST);
		assert_non_null(storm.area[i]);
		pn_endpoint_address(bed.nodes[!i].ep, &address);
		assert_ok(pn_endpoint_peer(ep, &address, &storm.peer[i]));
		assert_ok(pn_endpoint_expose(ep, storm.area[i], PAIRS * MOST,
					     PINION_ACCESS_REMOTE_READ |
						     PINION_ACCESS_REMOTE_WRITE,
					     &storm.exposure[i]));
	}
	for (unsigned i = 0; i < 2; i++) {
		pn_exposure_key(storm.exposure[!i], &key);
		assert_ok(pn_endpoint_remote(bed.nodes[i].ep, storm.peer[i],
					     &key, &storm.remote[i]));
	}
}

static void storm_close(void)
{
	for (unsigned i = 0; i < 2; i++) {
		pn_endpoint_remote_close(storm.remote[i]);
		pn_endpoint_unexpose(storm.exposure[i]);
		free(storm.area[i]);
	}
}

static struct pinion_message message_of(const struct partner *p, size_t len,
					uint64_t key)
{
	return (struct pinion_message){ .size = sizeof(struct pinion_message),
					.buf = p->buf,
					.len = len,
					.tag = key,
					.peer = storm.peer[p->node] };
}

static void give(const struct partner *p, size_t len, uint64_t key)
{
	struct pinion_endpoint *ep = bed.nodes[p->node].ep;
	struct pinion_message m = message_of(p, len, key);
	struct pinion_request *request;

	pattern_fill(p->buf, len, key);
	pn_endpoint_set_protocol(ep, (int)(key % (PN_PROTOCOL_AUTO + 1)));
	assert_ok(pn_endpoint_send(ep, &m, &request));
	assert_ok(pn_endpoint_wait(ep, request, NULL));
	assert_true(pattern_holds(p->buf, len, key));
}

static void take(const struct partner *p, size_t len, uint64_t key)
{
	struct pinion_endpoint *ep = bed.nodes[p->node].ep;
	struct pinion_message m = message_of(p, len, key);
	struct pinion_request *request;

	assert_ok(pn_endpoint_recv(ep, &m, &request));
	assert_ok(pn_endpoint_wait(ep, request, NULL));
	assert_true(pattern_holds(p->buf, len, key));
}

static void move(const struct partner *p, enum pn_request_kind kind, size_t len)
{
	struct pinion_endpoint *ep = bed.nodes[p->node].ep;
	struct pinion_move m = { .size = sizeof(m),
				 .remote = storm.remote[p->node],
				 .offset = p->number * MOST,
				 .buf = p->buf,
				 .len = len };
	struct pinion_request *request;

	assert_ok(pn_endpoint_access(ep, kind, &m, &request));
	assert_ok(pn_endpoint_wait(ep, request, NULL));
}

static void put_and_get(const struct partner *p, size_t len, uint64_t key)
{
	const char *there = storm.area[!p->node] + p->number * MOST;

	pattern_fill(p->buf, len, key);
	move(p, PN_REQUEST_PUT, len);
	memset(p->buf, 0xee, len);
	move(p, PN_REQUEST_GET, len);
	assert_true(pattern_holds(p->buf, len, key));
	assert_true(pattern_holds(there, len, key));
}

static void play(void *arg)
{
	struct partner *p = arg;

	for (unsigned i = 0; i < STEPS; i++) {
		unsigned what = (unsigned)test_below(&p->steps, 3);
		size_t len =
			1 + test_below(&p->steps, MOST) %
				    ((size_t)1 << test_below(&p->steps, 18));
		uint64_t key = test_random(&p->steps);

		if (what == 2)
			put_and_get(p, len, key);
		else if (what == p->node)
			give(p, len, key);
		else
			take(p, len, key);
	}
}

static void storm_with(const char *params)
{
	struct partner partners[2][PAIRS];

	bed_open(params);
	storm_open();
	for (unsigned i = 0; i < 2 * PAIRS; i++) {
		struct partner *p = &partners[i % 2][i / 2];

		*p = (struct partner){ .node = i % 2, .number = i / 2 };
		p->steps = test_mix(storm.seed, p->number);
		p->buf = malloc(MOST);
		assert_non_null(p->buf);
		assert_ok(pn_sim_spawn(bed.sim, p->node, play, p));
	}
	assert_ok(pn_sim_run(bed.sim));
	for (unsigned i = 0; i < 2 * PAIRS; i++)
		free(partners[i % 2][i / 2].buf);
	storm_close();
	bed_close();
}

static void tasks_share_an_endpoint(void **state)
{
	(void)state;
	storm.seed = test_seed();
	storm_with("nodes=2,cores=4,cost=cx5,jitter=50");
	storm_with("nodes=2,cores=2,cost=ou2009");
}

/* --- probing --------------------------------------------------------------
 */

static void look_once(void *arg)
{
	struct pinion_message any = { .size = sizeof(any),
				      .ignore = UINT64_MAX };
	struct pinion_completion seen;

	(void)arg;
	for (unsigned i = 0; i < 2; i++) {
		/* The first probe also connects. */
		pn_sim_sleep(bed.sim, 50 * PN_NS_PER_MS);
		while (pn_endpoint_probe(bed.nodes[1].ep, &any, &seen, NULL))
			assert_int_equal(i, 0);
		assert_int_equal(seen.tag, i);
		any.buf = bed.bufs[0];
		any.len = BYTES;
		assert_ok(pn_endpoint_recv(bed.nodes[1].ep, &any, NULL));
	}
}

static void send_twice(void *arg)
{
	struct pinion_endpoint *ep = bed.nodes[0].ep;
	struct pinion_message m = { .size = sizeof(m),
				    .buf = bed.bufs[1],
				    .len = BYTES };

	(void)arg;
	assert_ok(pn_endpoint_peer(ep, &bed.to, &m.peer));
	for (; m.tag < 2; m.tag++) {
		assert_ok(pn_endpoint_send(ep, &m, NULL));
		for (unsigned i = 0; i < 60; i++) {
			pn_endpoint_poll(ep, NULL, 0);
			pn_sim_sleep(bed.sim, PN_NS_PER_MS);
		}
	}
}

static void a_probe_finds_what_has_come(void **state)
{
	(void)state;
	bed_open("nodes=2,cost=ou2009");
	assert_ok(pn_sim_spawn(bed.sim, 0, send_twice, NULL));
	assert_ok(pn_sim_spawn(bed.sim, 1, look_once, NULL));
	assert_ok(pn_sim_run(bed.sim));
	bed_close();
}

/* --- what stays ------------------------------------------------------------
 */

#define LIVES 200

#ifndef TEST_SANITIZED
#define TEST_SANITIZED 0
#endif

/* Sends directly from a buffer and puts through bounce buffers. */
static void use_all(void *arg)
{
	static char exposed[64], buf[BYTES];
	struct pinion_endpoint *ep = bed.nodes[0].ep;
	struct pinion_exposure *exposure;
	struct pinion_move move = { .size = sizeof(move),
				    .buf = buf,
				    .len = sizeof(exposed) };
	struct pinion_message m = { .size = sizeof(m),
				    .buf = buf,
				    .len = BYTES };
	struct pinion_request *request;
	struct pn_endpoint_stats stats;
	struct pinion_exposure_key key;

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
	assert_true(pn_pool_memory_is_open(&ep->onesided.bounce_pool.memory));
}

static void live_once(void)
{
	bed_open("nodes=2,cost=ou2009");
	post_receives();
	assert_ok(pn_sim_spawn(bed.sim, 0, use_all, NULL));
	assert_ok(pn_sim_run(bed.sim));
	bed_close();
}

/* Packet buffers, bounce buffers and headers of direct sends take at least a
 * page each. */
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
		TEST(tasks_share_an_endpoint),
		TEST(a_probe_finds_what_has_come),
		TEST(endpoints_leave_no_memory_behind),
	};

	return RUN_TESTS(tests);
}
