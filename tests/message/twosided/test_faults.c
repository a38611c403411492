/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Random messages (storm.h) with faults: registrations fail, messages are late,
 * the budget is too small, nodes die.
 *
 *   test_faults [NMESSAGES]
 *
 * A message arrives, or its requests end with an error at both ends. Nothing
 * may hang (virtual time has a deadline) or stay pinned.
 */
#include "message/storm.h"

#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "test.h"

static uint64_t nmessages = 20000;
static uint64_t seed;

/* Shared with such a process. */
static uint64_t *counter(void)
{
	uint64_t *n = mmap(NULL, sizeof(*n), PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	pn_assert(n != MAP_FAILED);
	return n;
}

/* Storms with different seeds, until a fourth of the messages has arrived. */
static bool storm(const char *name, struct ranks run, struct storm_attr attr,
		  void (*script)(uint64_t *random, char *text, size_t len))
{
	uint64_t *received = counter(), random = seed;
	bool passed = true;
	char text[512];

	printf("[ RUN      ] %s\n", name);
	attr.counter = received;
	run.how = "sim";
	run.fn = storm_run;
	run.arg = &attr;
	run.script = text;
	while (passed && *received < nmessages / 4) {
		attr.seed = test_random(&random);
		script(&random, text, sizeof(text));
		passed = attr.mortal ? ranks_run_apart(&run) : ranks_run(&run);
		if (!passed)
			printf("script: %s\n", text);
	}
	printf("[%s] %s\n", passed ? "       OK " : "  FAILED  ", name);
	munmap(received, sizeof(*received));
	return passed;
}

static const struct storm_attr usual = { .nrounds = 8,
					 .per_pair = 24,
					 .max_len = (size_t)1 << 20,
					 .protocol = STORM_ANY };

static void fail_and_delay(uint64_t *random, char *text, size_t len)
{
	snprintf(text, len,
		 "fail registrations every %u with ENOMEM on node 0\n"
		 "fail registrations every %u with EFAULT on node 1\n"
		 "delay %u us on node 2\n"
		 "delay registration %u by 1 ms\n",
		 2 + (unsigned)test_below(random, 5),
		 2 + (unsigned)test_below(random, 4),
		 (unsigned)test_below(random, 300),
		 1 + (unsigned)test_below(random, 20));
}

static bool failing_registrations_are_made_up_for_by_copying(void)
{
	struct ranks run = { .spec = "sim:cost=cx5,jitter=300", .nranks = 3 };

	return storm(__func__, run, usual, fail_and_delay);
}

static void nothing(uint64_t *random, char *text, size_t len)
{
	(void)random;
	snprintf(text, len, "# nothing");
}

/* Bounce buffers take 4 MiB of it; what is left is less than a fragment, a
 * few fragments, or less than a buffer, in turn. */
static bool a_budget_too_small_slows_but_does_not_fail(void)
{
	static const size_t left[] = { 4096, 40 << 10, 200 << 10, 600 << 10 };
	bool passed = true;

	for (unsigned i = 0; i < PN_ARRAY_LEN(left); i++) {
		struct ranks run = { .spec = "sim:cost=cx5", .nranks = 2 };
		struct storm_attr attr = usual;

		attr.max_bytes = 64 * ((size_t)64 << 10) + left[i];
		passed &= storm(__func__, run, attr, nothing);
	}
	return passed;
}

/* Ranks that die must have told their address before: registering the bounce
 * buffers, which comes first, takes 1.7 ms. */
#define OPENED_US 2000

static void drop_one(uint64_t *random, char *text, size_t len)
{
	snprintf(text, len, "drop peer %u at %u us\n",
		 1 + (unsigned)test_below(random, 2),
		 OPENED_US + (unsigned)test_below(random, 8000));
}

static bool the_living_go_on_when_others_die(void)
{
	struct ranks run = { .spec = "sim:cost=cx5,detect=100us", .nranks = 4 };
	struct storm_attr attr = usual;

	attr.mortal = 1 << 1 | 1 << 2;
	attr.unexpected_limit = 4000;
	return storm(__func__, run, attr, drop_one);
}

static void drop_all(uint64_t *random, char *text, size_t len)
{
	snprintf(text, len,
		 "drop peer 1 at %u us\ndrop peer 2 at %u us\n"
		 "fail registrations every 3 with ENOMEM on node 0\n",
		 OPENED_US + (unsigned)test_below(random, 20000),
		 OPENED_US + (unsigned)test_below(random, 20000));
}

static bool everything_ends_when_all_others_die(void)
{
	struct ranks run = { .spec = "sim:cost=woodall2006", .nranks = 3 };
	struct storm_attr attr = usual;

	attr.mortal = 1 << 1 | 1 << 2;
	attr.max_bytes = 64 * ((size_t)64 << 10) + (300 << 10);
	return storm(__func__, run, attr, drop_all);
}

/* Any port of any rank but the last one of its rank, up to three of them. */
static void cut_rails(uint64_t *random, char *text, size_t len)
{
	unsigned n = 1 + (unsigned)test_below(random, 3);
	size_t at = 0;

	text[0] = 0;
	for (unsigned i = 0; i < n; i++)
		at += (size_t)snprintf(text + at, len - at,
				       "drop rail %u of node %u after %u "
				       "operations\n",
				       (unsigned)test_below(random, 2), i,
				       1 + (unsigned)test_below(random, 400));
}

static bool rails_fail_and_messages_arrive(void)
{
	struct ranks run = { .spec = "sim:cost=cx5,rails=3,detect=50us",
			     .nranks = 3 };

	return storm(__func__, run, usual, cut_rails);
}

/* The first three registrations are the bounce buffers. */
static void cut_and_fail(uint64_t *random, char *text, size_t len)
{
	size_t at;

	cut_rails(random, text, len);
	at = strlen(text);
	snprintf(text + at, len - at,
		 "fail registrations every %u with ENOMEM on node 1\n",
		 4 + (unsigned)test_below(random, 5));
}

static bool rails_fail_and_so_do_registrations(void)
{
	struct ranks run = {
		.spec = "sim:cost=cx5,rails=3,rail_bandwidth=3:2:1,jitter=200",
		.nranks = 3
	};
	struct storm_attr attr = usual;

	attr.max_bytes = 3 * 64 * ((size_t)64 << 10) + (600 << 10);
	return storm(__func__, run, attr, cut_and_fail);
}

int main(int argc, char **argv)
{
	bool passed;

	if (argc > 1)
		nmessages = strtoull(argv[1], NULL, 0);
	seed = test_seed();
	passed = failing_registrations_are_made_up_for_by_copying();
	passed &= a_budget_too_small_slows_but_does_not_fail();
	passed &= the_living_go_on_when_others_die();
	passed &= everything_ends_when_all_others_die();
	passed &= rails_fail_and_messages_arrive();
	passed &= rails_fail_and_so_do_registrations();
	return !passed;
}
