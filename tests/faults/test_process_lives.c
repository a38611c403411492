/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_process_lives -- many schedules of process_lives.h.
 *
 *   test_process_lives DEVICE [NSCHEDULES [long]]
 *   test_process_lives run FILE [TIMES]
 *
 * The seed is printed; PINION_TEST_SEED repeats it, and each schedule has a
 * seed of its own, which is the first to be repeated when it fails. A schedule
 * that fails is shortened and printed; in a file it can be run again. What
 * happens depends on the machine, too: each try of the shortening is a number
 * of runs. With `long`, processes are stopped for longer than the time limits
 * of connections.
 */
#include "process_lives.h"

#include <stdlib.h>
#include <string.h>

#include "shrink.h"
#include "test.h"

#define TRIES 6

static struct lives_counts counts;

static bool fails_in(const struct lives_schedule *s, unsigned tries)
{
	const char *why = NULL;

	for (unsigned i = 0; i < tries && !why; i++)
		why = lives_run(s, &counts);
	if (why)
		printf("%u steps: %s\n", s->n, why);
	fflush(stdout);
	return why;
}

static bool still_fails(void *arg)
{
	return fails_in(arg, TRIES);
}

/* Shortens it; a shorter one is printed even if this takes too long. */
static void report(struct lives_schedule *s)
{
	const struct shrinkable list = { .steps = s->steps,
					 .step_bytes = sizeof(s->steps[0]),
					 .n = &s->n,
					 .fails = still_fails,
					 .arg = s };

	lives_schedule_print(s, stdout);
	fflush(stdout);
	if (!fails_in(s, TRIES)) {
		printf("it did not fail again in %u runs\n", TRIES);
		return;
	}
	shrink(&list);
	printf("the shortest that fails:\n");
	lives_schedule_print(s, stdout);
}

static bool run_one(uint64_t seed, const char *device, bool long_stops)
{
	static struct lives_schedule s;

	lives_schedule_make(&s, seed, device, long_stops);
	if (!fails_in(&s, 1))
		return true;
	printf("FAILED, seed 0x%llx\n", (unsigned long long)seed);
	report(&s);
	return false;
}

static int run_file(const char *path, unsigned times)
{
	static struct lives_schedule s;
	FILE *file = fopen(path, "re");

	if (!file || !lives_schedule_read(&s, file)) {
		fprintf(stderr, "%s: no schedule\n", path);
		return 2;
	}
	fclose(file);
	return fails_in(&s, times);
}

/* What is printed can be read. */
static bool schedules_can_be_read(uint64_t seed)
{
	static struct lives_schedule a, b;
	FILE *file = tmpfile();
	bool same;

	lives_schedule_make(&a, seed, "soft", true);
	assert_non_null(file);
	lives_schedule_print(&a, file);
	rewind(file);
	same = lives_schedule_read(&b, file) && !memcmp(&a, &b, sizeof(a));
	fclose(file);
	return same;
}

int main(int argc, char **argv)
{
	unsigned long n = argc > 2 ? strtoul(argv[2], NULL, 0) : 5;
	uint64_t seed, random;
	bool passed = true;

	lives_begin(argc, argv);
	if (argc > 2 && !strcmp(argv[1], "run"))
		return run_file(argv[2],
				argc > 3 ? (unsigned)atoi(argv[3]) : TRIES);
	if (argc < 2) {
		fprintf(stderr, "usage: test_process_lives DEVICE [NSCHEDULES "
				"[long]] | run FILE [TIMES]\n");
		return 2;
	}
	seed = random = test_seed();
	if (!schedules_can_be_read(seed)) {
		printf("a schedule that was printed cannot be read\n");
		return 1;
	}
	/* A seed that was given is tried itself first. */
	for (unsigned long i = 0; passed && i < n; i++)
		passed = run_one(i ? test_random(&random) : seed, argv[1],
				 argc > 3);
	printf("%lu schedules, %llu processes (%llu with the number of the one "
	       "before), %llu messages, %llu puts and gets, %llu atomics, "
	       "%llu conditional writes, %llu errors\n",
	       n, (unsigned long long)counts.processes,
	       (unsigned long long)counts.same_pids,
	       (unsigned long long)counts.received,
	       (unsigned long long)counts.moved,
	       (unsigned long long)counts.added,
	       (unsigned long long)counts.written,
	       (unsigned long long)counts.refused);
	return !passed || !counts.received || !counts.moved;
}
