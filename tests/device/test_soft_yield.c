/* SPDX-License-Identifier: BSD-2-Clause */
/* Giving up the core while polls are empty: the decision in simulated time, and
 * a pair of processes that have one core. */
#include "device/soft_util.h"

#include <sched.h>

#include <pinion/pinion.h>

#include "device/soft/yield.h"

#define POLL_NS	 40
#define CALL_NS	 300 /* a yield that lets nobody run */
#define SLICE_NS (3 * PN_NS_PER_MS)

/* --- the decision --------------------------------------------------------- */

/* A thread that polls from now on, in simulated time. */
struct poller {
	struct pn_soft_yield yield;
	unsigned nempty;
	uint64_t now_ns;
	uint64_t poll_ns; /* from one poll to the next */
	uint64_t away_ns; /* that a yield takes */
	bool crowded;
};

static struct poller new_poller(void)
{
	struct poller p = { .poll_ns = POLL_NS, .away_ns = CALL_NS };

	pn_soft_yield_init(&p.yield);
	return p;
}

/* Polls for a time. Returns how much of it the thread had given up. */
static uint64_t poll_for(struct poller *p, uint64_t ns)
{
	uint64_t until = p->now_ns + ns, away_ns = 0;

	while (p->now_ns < until) {
		p->now_ns += p->poll_ns;
		if (++p->nempty < p->yield.look_after)
			continue;
		p->nempty = 0;
		if (!pn_soft_yield_due(&p->yield, p->now_ns, p->crowded))
			continue;
		pn_soft_yield_done(&p->yield, p->now_ns,
				   p->now_ns + p->away_ns);
		p->now_ns += p->away_ns;
		away_ns += p->away_ns;
	}
	return away_ns;
}

static void a_lone_process_yields_ever_more_seldom(void **state)
{
	struct poller p = new_poller();

	(void)state;
	poll_for(&p, 100 * PN_NS_PER_MS);
	assert_in_range(p.yield.nyields, 10, 100);
	assert_int_equal(p.yield.nswitches, 0);
}

static void a_short_wait_never_yields(void **state)
{
	struct poller p = new_poller();

	(void)state;
	p.crowded = true;
	for (unsigned i = 0; i < 1000; i++) {
		p.nempty = 0; /* a message came */
		poll_for(&p, 20 * POLL_NS);
	}
	assert_int_equal(p.yield.nyields, 0);
}

static void a_program_that_works_between_its_polls_never_yields(void **state)
{
	struct poller p = new_poller();

	(void)state;
	p.crowded = true;
	p.poll_ns = 5 * PN_NS_PER_US;
	poll_for(&p, PN_NS_PER_S);
	assert_int_equal(p.yield.nyields, 0);
}

static void a_peer_on_this_core_gets_it_at_once(void **state)
{
	struct poller p = new_poller();
	uint64_t before;

	(void)state;
	poll_for(&p, 100 * PN_NS_PER_MS);
	before = p.yield.nyields;
	p.crowded = true;
	p.away_ns = SLICE_NS;
	poll_for(&p, 40 * POLL_NS);
	assert_int_equal(p.yield.nyields, before + 1);
	assert_int_equal(p.yield.nswitches, 1);
}

static void a_peer_gets_all_the_time_that_it_needs(void **state)
{
	struct poller p = new_poller();

	(void)state;
	p.crowded = true;
	p.away_ns = SLICE_NS;
	assert_true(poll_for(&p, PN_NS_PER_S) > 9 * PN_NS_PER_S / 10);
}

static void a_process_that_is_no_peer_gets_its_fair_share(void **state)
{
	struct poller p = new_poller();
	uint64_t away_ns;

	(void)state;
	p.away_ns = SLICE_NS;
	away_ns = poll_for(&p, PN_NS_PER_S);
	assert_in_range(away_ns, 4 * PN_NS_PER_S / 10, 6 * PN_NS_PER_S / 10);
}

/* --- a pair on one core --------------------------------------------------- */

#define HOPS		  200
#define MAX_POLLS_PER_HOP 2000 /* of about 100,000 in a time slice */

static void use_one_core(void)
{
	cpu_set_t all, one;
	int core = 0;

	assert_ok(sched_getaffinity(0, sizeof(all), &all));
	while (!CPU_ISSET(core, &all))
		core++;
	CPU_ZERO(&one);
	CPU_SET(core, &one);
	assert_ok(sched_setaffinity(0, sizeof(one), &one));
}

/* How a rank waits: pinion_poll() of a single-threaded endpoint, or
 * pinion_test() of one with a lock. */
enum waiting { POLLING, TESTING };

struct end {
	enum waiting waiting;
	struct pinion_context *context;
	struct pinion_endpoint *ep;
	struct pinion_peer *peer;
	uint64_t nempty; /* polls and tests that found nothing */
};

static void open_end(struct end *end, struct common *common, unsigned rank)
{
	struct pinion_endpoint_attr attr = {
		.size = sizeof(attr),
		.flags = common->number == POLLING
				 ? PINION_ENDPOINT_SINGLE_THREADED
				 : 0,
	};

	*end = (struct end){ .waiting = (enum waiting)common->number };
	CHECK(!pinion_open(NULL, &end->context));
	CHECK(!pinion_endpoint_open(end->context, &attr, &end->ep));
	CHECK(!pinion_endpoint_address(end->ep, &common->rank[rank].endpoint));
	common->rank[rank].here = 1;
	await(&common->rank[1 - rank].here, 1);
	CHECK(!pinion_peer_add(end->ep, &common->rank[1 - rank].endpoint,
			       &end->peer));
}

static void close_end(struct end *end)
{
	pinion_endpoint_close(end->ep);
	pinion_close(end->context);
}

/* Sends or receives an empty message and waits for the end by calling again and
 * again. */
static void move_message(struct end *end, bool send)
{
	struct pinion_message message = { .size = sizeof(message),
					  .peer = end->peer };
	struct pinion_request *request = NULL;
	struct pinion_request **handle =
		end->waiting == TESTING ? &request : NULL;
	struct pinion_completion c = { 0 };

	CHECK(!(send ? pinion_send : pinion_recv)(end->ep, &message, handle));
	while (end->waiting == TESTING
		       ? pinion_test(end->ep, request, &c)
		       : !pinion_poll(end->ep, &c, sizeof(c), 1))
		end->nempty++;
	CHECK(!c.status);
}

/* Sends a message back and forth without any wait but polling. */
static int bounce(struct common *common, unsigned rank)
{
	struct end end;

	use_one_core();
	open_end(&end, common, rank);
	for (unsigned i = 0; i < 2 * HOPS; i++)
		move_message(&end, (i + rank) % 2);
	common->go[rank] = 1;
	await(&common->go[1 - rank], 1);
	close_end(&end);
	if (end.nempty > HOPS * MAX_POLLS_PER_HOP)
		printf("rank %u: %llu empty polls\n", rank,
		       (unsigned long long)end.nempty);
	return end.nempty > HOPS * MAX_POLLS_PER_HOP;
}

static void run_pair(enum waiting waiting)
{
	struct common *common = new_common();
	pid_t pids[2];

	common->number = (int)waiting;
	for (unsigned r = 0; r < 2; r++)
		pids[r] = start_rank(bounce, common, r);
	for (unsigned r = 0; r < 2; r++)
		assert_exits_well(pids[r]);
	free_common(common);
}

static void a_pair_on_one_core_polls_little(void **state)
{
	(void)state;
	run_pair(POLLING);
}

static void a_pair_on_one_core_tests_little(void **state)
{
	(void)state;
	run_pair(TESTING);
}

const struct role roles[] = { ROLE(bounce), { NULL, NULL } };

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(a_lone_process_yields_ever_more_seldom),
		TEST(a_short_wait_never_yields),
		TEST(a_program_that_works_between_its_polls_never_yields),
		TEST(a_peer_on_this_core_gets_it_at_once),
		TEST(a_peer_gets_all_the_time_that_it_needs),
		TEST(a_process_that_is_no_peer_gets_its_fair_share),
		TEST(a_pair_on_one_core_polls_little),
		TEST(a_pair_on_one_core_tests_little),
	};

	play_role(argc, argv);
	return RUN_TESTS(tests);
}
