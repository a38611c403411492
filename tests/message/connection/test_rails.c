/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One message over several rails, on `sim`: how fast, and what happens when a
 * rail fails at any moment.
 *
 *   test_rails [STEP]     a failure after every STEP-th operation; 1
 *
 * Failures are placed by counting the operations of a port: the n-th is the
 * one after which it fails, for every n up to the last one of the course.
 */
#include "test.h"

#include <errno.h>
#include <inttypes.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/log.h"
#include "message/endpoint/endpoint.h"
#include "message/onesided/onesided.h"
#include "message/party.h"

#define MIB ((size_t)1 << 20)

static unsigned step = 1;

static bool run_ranks(const char *spec, const char *script, unsigned nranks,
		      void (*fn)(struct rank *rank), void *arg)
{
	struct ranks run = { .how = "sim",
			     .spec = spec,
			     .script = script,
			     .nranks = nranks,
			     .fn = fn,
			     .arg = arg };

	return ranks_run(&run);
}

/* --- how fast ------------------------------------------------------------- */

struct course {
	int protocol;
	size_t len;
	bool reuse;
	size_t at;  /* of the buffers, from a multiple of 1 MiB */
	double lie; /* the second rail's nominal speed is multiplied by this */
	uint64_t took_ns; /* time per message */
	uint64_t fragments[PN_RAILS_MAX];
};

static const struct pn_protocol_limits defaults = {
	.eager_bytes = 8 << 10,
	.match_bytes = 4 << 10,
	.rdma_offset = 256 << 10,
	.depth = 4,
};

#define NWARM	  12
#define NMEASURED 10

static void run_course(struct rank *rank)
{
	struct course *c = rank->arg;
	struct party_attr attr = { .protocol = c->protocol,
				   .limits = defaults };
	size_t stride = c->len + MIB, n = NWARM + NMEASURED;
	uint8_t *arena =
		mmap(NULL, (n + 1) * stride, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	uint8_t *first = arena + (-(uintptr_t)arena & (MIB - 1)) + c->at;
	struct pn_endpoint_stats stats;
	struct party party;
	uint64_t begin = 0;

	RANK_CHECK(rank, arena != MAP_FAILED);
	if (c->lie > 0 && rank->nrails > 1)
		rank->rails[1]->costs.put_byte_ns *= c->lie;
	if (!party_open(&party, rank, &attr))
		return;
	for (size_t i = 0; i < n; i++) {
		uint8_t *buf = first + (c->reuse ? 0 : i * stride);

		if (i == NWARM)
			begin = pn_device_now(rank->device);
		RANK_CHECK(rank,
			   !(rank->rank
				     ? party_recv(&party, 0, buf, c->len, 1)
				     : party_send(&party, 1, buf, c->len, 1)));
	}
	if (rank->rank) {
		c->took_ns = (pn_device_now(rank->device) - begin) / NMEASURED;
		pn_endpoint_query(party.ep, &stats);
		memcpy(c->fragments, stats.fragments, sizeof(c->fragments));
	}
	party_barrier(&party);
	party_close(&party);
	munmap(arena, (n + 1) * stride);
}

/* Bytes per nanosecond. */
static double speed(const char *spec, struct course *c)
{
	assert_true(run_ranks(spec, NULL, 2, run_course, c));
	return (double)c->len / (double)c->took_ns;
}

static const int by_rdma[] = { PN_PROTOCOL_DEMAND, PN_PROTOCOL_CACHED,
			       PN_PROTOCOL_PIPELINE,
			       PN_PROTOCOL_CACHING_PIPELINE, PN_PROTOCOL_READ };

/* Protocols that keep registrations, and offsets of buffers. */
static const int keeping[] = { PN_PROTOCOL_CACHED, PN_PROTOCOL_CACHING_PIPELINE,
			       PN_PROTOCOL_READ };
static const size_t places[] = { 0, 4096, 300 << 10, 700 << 10, 1020 << 10 };

/* If failures are sampled, so are offsets and sizes. */
static size_t nplaces(void)
{
	return step > 1 ? 2 : PN_ARRAY_LEN(places);
}

static size_t max_len(void)
{
	return step > 1 ? 16 * MIB : 64 * MIB;
}

static double ratio(int protocol, size_t len, size_t at, bool reuse)
{
	struct course c = {
		.protocol = protocol, .len = len, .at = at, .reuse = reuse
	};
	double one = speed("sim:cost=cx5,data=none", &c);
	double two = speed("sim:cost=cx5,data=none,rails=2", &c);

	printf("%-17s %3zu MiB at %7zu, %s: one rail %.2f GB/s, two %.2f GB/s: "
	       "%.2f\n",
	       pn_protocol_at((unsigned)protocol)->name, len / MIB, at,
	       reuse ? "reused" : "fresh ", one, two, two / one);
	return two / one;
}

static void two_equal_rails_are_nearly_twice_as_fast(void **state)
{
	(void)state;
	for (size_t len = 8 * MIB; len <= max_len(); len *= 2)
		for (size_t p = 0; p < PN_ARRAY_LEN(keeping); p++)
			for (size_t i = 0; i < nplaces(); i++)
				assert_true(ratio(keeping[p], len, places[i],
						  true) >= 1.9);
}

/* With new buffers the time is that of registering on one CPU: the pages of a
 * message take as long as one rail takes to transfer them. A second rail gains
 * nothing; it must not cost anything either. */
static void fresh_buffers_are_bound_by_registering(void **state)
{
	(void)state;
	for (size_t i = 0; i < PN_ARRAY_LEN(by_rdma); i++)
		assert_true(ratio(by_rdma[i], 8 * MIB, 0, false) >=
			    (by_rdma[i] == PN_PROTOCOL_READ ? 0.6 : 0.95));
}

static double share_of_sum(int protocol, size_t len, size_t at, double lie)
{
	struct course c = { .protocol = protocol,
			    .len = len,
			    .reuse = true,
			    .at = at,
			    .lie = lie };
	double alone = speed("sim:cost=cx5,data=none", &c);
	double both =
		speed("sim:cost=cx5,data=none,rails=2,rail_bandwidth=3:1", &c);

	printf("%-17s %3zu MiB at %7zu, 3:1%s: %.1f %% of the sum, %" PRIu64
	       " and %" PRIu64 " fragments\n",
	       pn_protocol_at((unsigned)protocol)->name, len / MIB, at,
	       lie > 0 ? ", promised equal" : "", 75 * both / alone,
	       c.fragments[0], c.fragments[1]);
	return 0.75 * both / alone;
}

static void unequal_rails_carry_their_share(void **state)
{
	(void)state;
	for (size_t len = 8 * MIB; len <= max_len(); len *= 2)
		for (size_t p = 0; p < PN_ARRAY_LEN(keeping); p++)
			for (size_t i = 0; i < nplaces(); i++)
				assert_true(share_of_sum(keeping[p], len,
							 places[i], 0) >= 0.9);
}

/* The second rail claims to be as fast as the first. */
static void shares_follow_what_is_observed(void **state)
{
	(void)state;
	assert_true(share_of_sum(PN_PROTOCOL_CACHING_PIPELINE, 64 * MIB, 0,
				 1 / 3.0) >= 0.9);
}

/* --- failing -------------------------------------------------------------- */

/* Two messages from rank 0 to rank 1, one back, and both exchange messages with
 * rank 2. */
#define LEN 200000

struct trip {
	int protocol;
	uint64_t lost, resent; /* of both */
	int expected;	       /* status of messages between ranks 0 and 1 */
};

static void talk(struct party *party, unsigned other, uint64_t tag, int status)
{
	uint8_t *buf = malloc(LEN);
	bool sends = party->rank->rank < other;
	uint64_t key = tag + 10 * party->rank->rank;
	int ret;

	if (!sends)
		key = tag + 10 * other;
	if (sends)
		pattern_fill(buf, LEN, key);
	ret = sends ? party_send(party, other, buf, LEN, tag)
		    : party_recv(party, other, buf, LEN, tag);
	if (ret != status || (!ret && !pattern_holds(buf, LEN, key)))
		rank_fail(party->rank, "a message did not arrive", __FILE__,
			  __LINE__);
	free(buf);
}

static void run_trip(struct rank *rank)
{
	struct trip *trip = rank->arg;
	struct party_attr attr = { .protocol = trip->protocol };
	struct pn_endpoint_stats stats;
	struct party party;
	unsigned other = !rank->rank;

	if (!party_open(&party, rank, &attr))
		return;
	for (uint64_t i = 0; i < 2; i++) {
		if (rank->rank < 2)
			talk(&party, other, i, trip->expected);
		if (rank->rank == 0 || rank->rank == 2)
			talk(&party, 2 - rank->rank, 100 + i, 0);
		if (rank->rank)
			talk(&party, 3 - rank->rank, 200 + i, 0);
	}
	pn_endpoint_query(party.ep, &stats);
	trip->lost += stats.rails_lost;
	trip->resent += stats.resent;
	/* The last DOWN packets are still in flight. */
	for (unsigned i = 0; i < 3000; i++) {
		party_poll(&party);
		rank_pause(rank);
	}
	party_barrier(&party);
	party_close(&party);
}

/* Fails a port after 1, 2, ... operations, up to the last one that makes a
 * difference. Returns how many. */
static unsigned fail_everywhere(int protocol, unsigned rail, unsigned node)
{
	struct trip trip;
	unsigned n = 0;
	char script[64];

	do {
		n += step;
		trip = (struct trip){ .protocol = protocol };
		snprintf(script, sizeof(script),
			 "drop rail %u of node %u after %u operations", rail,
			 node, n);
		if (!run_ranks("sim:cost=cx5,rails=2,detect=20us", script, 3,
			       run_trip, &trip)) {
			printf("%s, %s\n", script,
			       pn_protocol_at((unsigned)protocol)->name);
			fail();
		}
	} while (trip.lost && n < 10000);
	return n;
}

static void a_rail_may_fail_at_any_moment(void **state)
{
	(void)state;
	for (int p = 0; p < PN_PROTOCOL_COUNT; p++) {
		unsigned n = 0;

		for (unsigned i = 0; i < 4; i++)
			n += fail_everywhere(p, i / 2, i % 2) / step;
		printf("%s: %u failures\n", pn_protocol_at((unsigned)p)->name,
		       n);
	}
}

/* Rank 1 has only received, over the one connection that exists so far. */
static void run_one_message(struct rank *rank)
{
	struct party_attr attr = { .protocol = *(int *)rank->arg };
	struct party party;

	if (!party_open(&party, rank, &attr))
		return;
	talk(&party, !rank->rank, 1, 0);
	party_barrier(&party);
	party_close(&party);
}

static void fail_before_the_second_is_there(int protocol, const char *late)
{
	char spec[80], script[64];

	for (unsigned n = 0; n < 40; n += step) {
		snprintf(spec, sizeof(spec),
			 "sim:cost=cx5,rails=2,detect=20us,rail_setup=%s",
			 late);
		snprintf(script, sizeof(script),
			 "drop rail 0 of node %u after %u operations", n % 2,
			 1 + n / 2);
		if (!run_ranks(spec, script, 2, run_one_message, &protocol))
			fail_msg("%s, %s, %s", spec, script,
				 pn_protocol_at((unsigned)protocol)->name);
	}
}

static void what_was_kept_takes_a_way_attached_for_it(void **state)
{
	(void)state;
	for (int p = 0; p < PN_PROTOCOL_COUNT; p++) {
		fail_before_the_second_is_there(p, "5us");
		fail_before_the_second_is_there(p, "50us");
	}
}

/* All rails of rank 1 fail; ranks 0 and 2 go on. */
static void run_cut_off(struct rank *rank)
{
	struct party_attr attr = { .protocol = PN_PROTOCOL_PIPELINE };
	struct party party;
	uint8_t *buf = malloc(LEN);

	if (!party_open(&party, rank, &attr))
		return;
	if (rank->rank < 2) {
		uint64_t i = 0;
		int ret = 0;

		while (!ret && i++ < 1000)
			ret = rank->rank ? party_recv(&party, 0, buf, LEN, 1)
					 : party_send(&party, 1, buf, LEN, 1);
		RANK_CHECK(rank, ret == -ECONNRESET);
	}
	if (rank->rank != 1)
		for (uint64_t i = 0; i < 10; i++)
			talk(&party, 2 - rank->rank, i, 0);
	party_barrier(&party);
	party_close(&party);
	free(buf);
}

static void a_peer_goes_with_its_last_rail(void **state)
{
	(void)state;
	assert_true(run_ranks("sim:cost=cx5,rails=2",
			      "drop rail 0 of node 1 at 4 ms\n"
			      "drop rail 1 of node 1 at 5 ms",
			      3, run_cut_off, NULL));
	assert_true(run_ranks("sim:cost=cx5,rails=3",
			      "drop rail 2 of node 1 at 6 ms\n"
			      "drop rail 1 of node 1 at 6 ms\n"
			      "drop rail 0 of node 1 at 6 ms",
			      3, run_cut_off, NULL));
}

/* --- refusals ------------------------------------------------------------- */

/* Rank 1 revokes its keys after it has announced them; then follows a message
 * that is not disturbed. */
#define NFAILS 3

static void revoke(struct party *party, const uint8_t *buf, unsigned nrails)
{
	for (unsigned r = 0; r < nrails; r++)
		pn_cache_revoke(party->caches[r], (uintptr_t)buf, LEN);
}

static bool is_announced(struct party *party, const uint8_t *buf)
{
	for (unsigned r = 0; r < party->rank->nrails; r++)
		if (pn_cache_holds(party->caches[r], buf + LEN / 4) ||
		    pn_cache_holds(party->caches[r], buf + 3 * LEN / 4))
			return true;
	return false;
}

static int receive_revoked(struct party *party, uint8_t *buf, unsigned nrails)
{
	struct pinion_message m = { .size = sizeof(m),
				    .buf = buf,
				    .len = LEN,
				    .tag = 1,
				    .peer = party->peers[0] };
	struct pinion_request *request;
	int ret;

	for (unsigned r = 0; r < party->rank->nrails; r++)
		pn_cache_flush(party->caches[r]);
	ret = pn_endpoint_recv(party->ep, &m, &request);
	while (!ret) {
		party_poll(party);
		if (is_announced(party, buf))
			break;
		rank_pause(party->rank);
	}
	revoke(party, buf, nrails);
	return ret ? ret : pn_endpoint_wait(party->ep, request, NULL);
}

static void run_refused(struct rank *rank)
{
	struct party_attr attr = { .protocol = PN_PROTOCOL_CACHED };
	uint8_t *buf = aligned_alloc(4096, (LEN + 4095) & ~4095);
	struct pn_endpoint_stats stats;
	struct party party;

	if (!party_open(&party, rank, &attr))
		return;
	for (unsigned i = 0; i < NFAILS; i++) {
		int ret = rank->rank ? receive_revoked(&party, buf, 2)
				     : party_send(&party, 1, buf, LEN, 1);

		RANK_CHECK(rank, ret == -EACCES);
		talk(&party, !rank->rank, 2, 0);
	}
	pn_endpoint_query(party.ep, &stats);
	RANK_CHECK(rank, !stats.rails_lost);
	party_barrier(&party);
	party_close(&party);
	free(buf);
}

/* The second rail is a hundred times slower than its nominal speed. When the
 * write over the first rail was refused the message has failed, but the
 * receiver must not free its buffer while the other write is in flight. */
static void run_overtaken(struct rank *rank)
{
	struct party_attr attr = { .protocol = PN_PROTOCOL_CACHED };
	uint8_t *buf = aligned_alloc(4096, (LEN + 4095) & ~4095);
	struct party party;
	size_t kept = 0;

	rank->rails[1]->costs.put_byte_ns = rank->rails[0]->costs.put_byte_ns;
	if (!party_open(&party, rank, &attr))
		return;
	talk(&party, !rank->rank, 2, 0);
	memset(buf, 0, LEN);
	RANK_CHECK(rank, (rank->rank ? receive_revoked(&party, buf, 1)
				     : party_send(&party, 1, buf, LEN, 1)) ==
				 -EACCES);
	memset(buf, 'x', LEN);
	for (unsigned i = 0; i < 5000; i++) {
		party_poll(&party);
		rank_pause(rank);
	}
	while (kept < LEN && buf[kept] == 'x')
		kept++;
	RANK_CHECK(rank, kept == LEN);
	party_barrier(&party);
	party_close(&party);
	free(buf);
}

static void a_failure_does_not_overtake_writes_on_other_rails(void **state)
{
	(void)state;
	assert_true(run_ranks("sim:cost=cx5,rails=2,rail_bandwidth=100:1", NULL,
			      2, run_overtaken, NULL));
}

static void a_refused_key_fails_its_message_and_no_rail(void **state)
{
	(void)state;
	assert_true(
		run_ranks("sim:cost=cx5,rails=2", NULL, 2, run_refused, NULL));
}

/* A source must be registered on each rail over which it is read: on the second
 * use, not on the first. */
static void run_seen_again(struct rank *rank)
{
	struct party_attr attr = { .protocol = PN_PROTOCOL_READ };
	uint8_t *buf = aligned_alloc(4096, (LEN + 4095) & ~4095);
	struct party party;

	if (!party_open(&party, rank, &attr))
		return;
	talk(&party, !rank->rank, 2, 0); /* all connections are up */
	for (unsigned i = 0; i < 2; i++) {
		unsigned n = 0;

		RANK_CHECK(rank,
			   !(rank->rank ? party_recv(&party, 0, buf, LEN, 1)
					: party_send(&party, 1, buf, LEN, 1)));
		for (unsigned r = 0; r < rank->nrails; r++)
			n += pn_cache_covers(party.caches[r], buf, LEN,
					     PN_SOURCE_ACCESS);
		RANK_CHECK(rank, rank->rank || n == 1 + i);
		party_barrier(&party);
	}
	party_close(&party);
	free(buf);
}

static void a_source_is_registered_on_each_rail_when_it_comes_again(
	void **state)
{
	(void)state;
	assert_true(run_ranks("sim:cost=cx5,rails=2", NULL, 2, run_seen_again,
			      NULL));
}

/* Rank 1 has one rail and knows rank 0 by its second rail only: no connection
 * joins the first rails. */
static void know_by_second_rail(struct pinion_peer *peer)
{
	peer->rails[0] = peer->rails[1];
	peer->nrails = 1;
}

static void run_out_of_reach(struct rank *rank)
{
	struct pinion_message m = { .size = sizeof(m), .len = 8 };
	struct pinion_completion end;
	struct pinion_request *request;
	uint64_t word = 0;
	struct party_attr attr = { .protocol = PN_PROTOCOL_CACHED };
	struct party party;

	if (rank->rank)
		rank->nrails = 1;
	if (!party_open(&party, rank, &attr))
		return;
	m.buf = &word;
	if (rank->rank) {
		know_by_second_rail(party.peers[0]);
		RANK_CHECK(rank, !party_send(&party, 0, &word, 8, 1));
	} else {
		m.tag = 1;
		RANK_CHECK(rank, !pn_endpoint_recv(party.ep, &m, &request));
		RANK_CHECK(rank, !pn_endpoint_wait(party.ep, request, &end));
		m.peer = end.peer;
		RANK_CHECK(rank, pn_endpoint_put_when(party.ep, &m, &request) ==
					 -EHOSTUNREACH);
		RANK_CHECK(rank, pn_endpoint_grant(party.ep, &m, &request) ==
					 -EHOSTUNREACH);
		/* Messages have a connection. */
		RANK_CHECK(rank, !pn_endpoint_send(party.ep, &m, &request));
		RANK_CHECK(rank, !pn_endpoint_wait(party.ep, request, NULL));
	}
	if (rank->rank)
		RANK_CHECK(rank, !party_recv(&party, 0, &word, 8, 1));
	party_barrier(&party);
	party_close(&party);
}

static void one_sided_operations_need_a_way_between_first_rails(void **state)
{
	(void)state;
	pn_log_set_level(PN_LOG_NONE);
	assert_true(run_ranks("sim:cost=cx5,rails=2", NULL, 2, run_out_of_reach,
			      NULL));
	pn_log_set_level(PN_LOG_ERROR);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(two_equal_rails_are_nearly_twice_as_fast),
		TEST(fresh_buffers_are_bound_by_registering),
		TEST(unequal_rails_carry_their_share),
		TEST(shares_follow_what_is_observed),
		TEST(a_rail_may_fail_at_any_moment),
		TEST(what_was_kept_takes_a_way_attached_for_it),
		TEST(a_peer_goes_with_its_last_rail),
		TEST(a_failure_does_not_overtake_writes_on_other_rails),
		TEST(a_refused_key_fails_its_message_and_no_rail),
		TEST(a_source_is_registered_on_each_rail_when_it_comes_again),
		TEST(one_sided_operations_need_a_way_between_first_rails),
	};

	pn_log_set_level(PN_LOG_ERROR);
	if (argc > 1 && atoi(argv[1]) > 0)
		step = (unsigned)atoi(argv[1]);
	return RUN_TESTS(tests);
}
