/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Faults that never heal, in virtual time: no room in the budget, no more
 * registrations, rails that are dead, peers that make no progress. What can end
 * ends, and in a time that is compared with that of the same conversation
 * without a fault. test_never_heals_soft.c does the same in real time.
 */
#include "test.h"

#include <errno.h>

#include "base/clock.h"
#include "base/log.h"
#include "device/sim/sim.h"
#include "message/party.h"

#define LONG	      ((size_t)1 << 20)
#define BOUNCE	      (64 * ((size_t)64 << 10)) /* of each rail */
#define CLOSE_NS      PN_NS_PER_S /* src/message/endpoint/close.c */
#define SIXTEEN	      16
#define FIRST_STOPPED 2 /* rank; the ranks before talk to each other */

/* One run. */
struct talk {
	size_t max_bytes;  /* of the budgets; 0: plenty */
	bool fails;	   /* messages end with an error instead */
	uint64_t begin_ns; /* when the ranks begin to talk; 0: at once */
	/* of rank 0: */
	uint64_t talk_ns, close_ns;
	unsigned nended;
};

static const size_t lengths[] = { 8, 1500, 40000, 300000, LONG };

/* --- two ranks that talk -------------------------------------------------- */

static int one_message(struct party *party, unsigned i, void *buf, bool send)
{
	unsigned other = !party->rank->rank;

	return send ? party_send(party, other, buf, lengths[i], i)
		    : party_recv(party, other, buf, lengths[i], i);
}

/* Each length by each protocol, there and back. */
static bool talk_by(struct party *party, int protocol, uint8_t *buf)
{
	bool first = !party->rank->rank;

	pn_endpoint_set_protocol(party->ep, protocol);
	for (unsigned i = 0; i < PN_ARRAY_LEN(lengths); i++) {
		uint64_t key = (uint64_t)protocol * 100 + i;

		if (first)
			pattern_fill(buf, lengths[i], key);
		else
			memset(buf, 0, lengths[i]);
		if (one_message(party, i, buf, first))
			return false;
		if (first)
			memset(buf, 0, lengths[i]);
		if (one_message(party, i, buf, !first) ||
		    !pattern_holds(buf, lengths[i], key))
			return false;
	}
	return true;
}

/* All requests end, with an error, also those of protocols not tried yet. */
static bool talk_in_vain(struct party *party, uint8_t *buf, unsigned *nended)
{
	for (int p = 0; p < PN_PROTOCOL_COUNT; p++) {
		pn_endpoint_set_protocol(party->ep, p);
		for (unsigned i = 0; i < PN_ARRAY_LEN(lengths); i++) {
			if (!one_message(party, i, buf, !party->rank->rank))
				return false;
			++*nended;
		}
	}
	return true;
}

static bool talk_all(struct party *party, struct talk *talk)
{
	uint64_t start = pn_device_now(party->rank->device);
	uint8_t *buf = malloc(LONG);
	unsigned nended = 0;
	bool done = true;

	if (talk->fails)
		done = talk_in_vain(party, buf, &nended);
	else
		for (int p = 0; done && p <= PN_PROTOCOL_AUTO; p++)
			done = talk_by(party, p, buf);
	free(buf);
	if (!party->rank->rank) {
		talk->talk_ns = pn_device_now(party->rank->device) - start;
		talk->nended = nended;
	}
	return done;
}

/* Connects: only sends do. */
static int say_hello(struct party *party)
{
	unsigned other = !party->rank->rank;
	char byte = 0;
	int ret = party_send(party, other, &byte, 1, 1000);

	return ret ? ret : party_recv(party, other, &byte, 1, 1000);
}

static void two_talk(struct rank *rank)
{
	struct talk *talk = rank->arg;
	struct party_attr attr = { .max_bytes = talk->max_bytes };
	struct party party;

	if (!party_open(&party, rank, &attr))
		return;
	RANK_CHECK(rank, !say_hello(&party));
	if (talk->begin_ns > pn_device_now(rank->device))
		pn_sim_sleep(rank->sim,
			     talk->begin_ns - pn_device_now(rank->device));
	RANK_CHECK(rank, talk_all(&party, talk));
	if (!party_barrier(&party))
		return;
	party_close(&party);
}

/* Returns how long the ranks talked. */
static uint64_t run(const char *spec, const char *script, struct talk *talk)
{
	struct ranks ranks = { .how = "sim",
			       .spec = spec,
			       .script = script,
			       .nranks = 2,
			       .fn = two_talk,
			       .arg = talk };

	assert_true(ranks_run(&ranks));
	return talk->talk_ns;
}

/* --- budget and registrations --------------------------------------------- */

static void no_room_in_the_budget_makes_messages_slower_only(void **state)
{
	struct talk plain = { 0 }, none = { .max_bytes = BOUNCE };
	uint64_t bound = 4 * run("sim:cost=cx5", NULL, &plain);

	(void)state;
	assert_in_range(run("sim:cost=cx5", NULL, &none), 1, bound);
}

static void no_room_for_bounce_buffers_refuses_the_endpoint(void **state)
{
	struct pn_device *device;
	struct pn_budget budget;
	struct pn_cache_attr cache = { .no_monitor = true, .no_worker = true };
	struct pn_endpoint_attr ep = { .nrails = 1,
				       .limits = { .eager_bytes = 2000,
						   .match_bytes = 1000,
						   .fragment_bytes = 1 << 16,
						   .segment_bytes = 1 << 16,
						   .depth = 3 },
				       .pages = { .numa_node = -1 } };
	struct pinion_endpoint *out;

	(void)state;
	pn_log_set_level(PN_LOG_NONE);
	assert_ok(pn_device_open("sim", NULL, &device));
	pn_budget_init(&budget, device, 1, 0, 1);
	cache.device = ep.rails[0].device = device;
	cache.budget = ep.budget = &budget;
	assert_ok(pn_cache_open(&cache, &ep.rails[0].cache));
	assert_int_equal(pn_endpoint_open(&ep, &out), -ENOBUFS);
	assert_int_equal(budget.bytes, 0);
	pn_cache_close(ep.rails[0].cache);
	pn_device_close(device);
	pn_log_set_level(PN_LOG_WARN);
}

/* The bounce buffers are registered by 2 ms; nothing can be after 3 ms. */
static void refused_registrations_make_messages_slower_only(void **state)
{
	struct talk plain = { 0 }, refused = { .begin_ns = 4 * PN_NS_PER_MS };
	uint64_t bound = 4 * run("sim:cost=cx5", NULL, &plain);

	(void)state;
	assert_in_range(run("sim:cost=cx5",
			    "limit node 0 to 4096 at 3 ms\n"
			    "limit node 1 to 4096 at 3 ms\n",
			    &refused),
			1, bound);
}

/* --- rails ---------------------------------------------------------------- */

static void a_rail_that_is_dead_makes_messages_slower_only(void **state)
{
	static const char *const scripts[] = {
		"drop rail 0 of node 0 at 0 us\n",
		"drop rail 1 of node 0 at 0 us\n",
		"drop rail 0 of node 1 at 5 ms\n",
		"drop rail 1 of node 1 at 5 ms\n",
	};
	struct talk plain = { 0 };
	/* Half of the bandwidth, and 10 ms until the fault is detected. */
	uint64_t bound = 4 * run("sim:cost=cx5,rails=2", NULL, &plain) +
			 10 * PN_NS_PER_MS;

	(void)state;
	for (unsigned i = 0; i < PN_ARRAY_LEN(scripts); i++) {
		struct talk one = { 0 };

		assert_in_range(run("sim:cost=cx5,rails=2,detect=10ms",
				    scripts[i], &one),
				1, bound);
	}
}

/* Each rank has a rail that works; the two do not lead to each other. */
static void rails_that_are_all_dead_end_all_messages(void **state)
{
	static const char *const scripts[] = {
		"drop rail 0 of node 0 at 20 ms; drop rail 1 of node 0 at 20 "
		"ms",
		"drop rail 0 of node 0 at 20 ms; drop rail 1 of node 1 at 20 "
		"ms",
		"drop rail 0 of node 0 at 15 ms; drop rail 1 of node 1 at 35 "
		"ms",
	};

	(void)state;
	for (unsigned i = 0; i < PN_ARRAY_LEN(scripts); i++) {
		struct talk talk = { .fails = true,
				     .begin_ns = 60 * PN_NS_PER_MS };

		assert_in_range(run("sim:cost=cx5,rails=2,detect=10ms",
				    scripts[i], &talk),
				0, 2 * PN_NS_PER_S);
		assert_int_equal(talk.nended,
				 PN_PROTOCOL_COUNT * PN_ARRAY_LEN(lengths));
	}
}

/* --- peers that make no progress ------------------------------------------ */

/* It has sent one byte, so it is connected, and does nothing for an hour. Then
 * it is told that the others are gone. */
static void stop(struct party *party)
{
	struct rank *rank = party->rank;
	uint8_t *buf = malloc(LONG);
	char byte = 1;

	RANK_CHECK(rank, !party_send(party, 0, &byte, 1, 1));
	if (!party_barrier(party))
		return;
	rank->idle = NULL;
	pn_sim_sleep(rank->sim, 3600 * PN_NS_PER_S);
	RANK_CHECK(rank, party_recv(party, 0, buf, 8, 2) == 0);
	RANK_CHECK(rank, party_recv(party, 0, buf, LONG, 3) == -ECONNRESET);
	free(buf);
	party_close(party);
}

/* Short messages leave. Long ones wait for the peers, and cannot be canceled
 * either. */
static void post_to_stopped(struct party *party, uint8_t *buf,
			    struct pinion_request **requests)
{
	struct rank *rank = party->rank;

	for (unsigned r = FIRST_STOPPED; r < rank->nranks; r++) {
		struct pinion_message m = { .size = sizeof(m),
					    .buf = buf,
					    .len = LONG,
					    .tag = 3,
					    .peer = party->peers[r] };

		RANK_CHECK(rank, !party_send(party, r, buf, 8, 2));
		RANK_CHECK(rank,
			   !pn_endpoint_send(party->ep, &m, &requests[r]));
	}
}

static void meet_stopped(struct party *party)
{
	struct rank *rank = party->rank;
	char byte;

	for (unsigned r = FIRST_STOPPED; !rank->rank && r < rank->nranks; r++)
		RANK_CHECK(rank, !party_recv(party, r, &byte, 1, 1));
	if (!party_barrier(party))
		return;
}

static void talk_beside_stopped(struct party *party, struct talk *talk)
{
	struct rank *rank = party->rank;
	struct pinion_request *requests[RANKS_MAX];
	uint8_t *buf = calloc(1, LONG);

	meet_stopped(party);
	if (!rank->rank)
		post_to_stopped(party, buf, requests);
	RANK_CHECK(rank, talk_all(party, talk));
	for (unsigned r = FIRST_STOPPED; !rank->rank && r < rank->nranks; r++) {
		uint64_t now = pn_device_now(rank->device);

		RANK_CHECK(rank, !pn_endpoint_cancel(party->ep, requests[r]));
		RANK_CHECK(rank, pn_endpoint_wait_until(party->ep, requests[r],
							now + PN_NS_PER_MS,
							NULL) == -ETIMEDOUT);
	}
	talk->close_ns = pn_device_now(rank->device);
	rank->idle = NULL;
	pn_endpoint_close(party->ep);
	talk->close_ns = pn_device_now(rank->device) - talk->close_ns;
	pn_cache_close(party->cache);
	free(buf);
	RANK_CHECK(rank, !atomic_load(&party->budget.bytes));
	RANK_CHECK(rank, talk->close_ns < CLOSE_NS + 10 * PN_NS_PER_MS);
}

static void among_stopped(struct rank *rank)
{
	struct party_attr attr = { 0 };
	struct party party;

	if (!party_open(&party, rank, &attr))
		return;
	if (rank->rank >= FIRST_STOPPED)
		stop(&party);
	else
		talk_beside_stopped(&party, rank->arg);
}

static void sixteen_stopped_peers_stop_nobody_else(void **state)
{
	struct talk plain = { 0 }, talk = { 0 };
	struct ranks ranks = { .how = "sim",
			       .spec = "sim:cost=cx5",
			       .nranks = FIRST_STOPPED + SIXTEEN,
			       .fn = among_stopped,
			       .arg = &talk };
	uint64_t bound = 2 * run("sim:cost=cx5", NULL, &plain);

	(void)state;
	pn_log_set_level(PN_LOG_NONE);
	assert_true(ranks_run(&ranks));
	pn_log_set_level(PN_LOG_WARN);
	assert_in_range(talk.talk_ns, 1, bound);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(no_room_in_the_budget_makes_messages_slower_only),
		TEST(no_room_for_bounce_buffers_refuses_the_endpoint),
		TEST(refused_registrations_make_messages_slower_only),
		TEST(a_rail_that_is_dead_makes_messages_slower_only),
		TEST(rails_that_are_all_dead_end_all_messages),
		TEST(sixteen_stopped_peers_stop_nobody_else),
	};

	return RUN_TESTS(tests);
}
