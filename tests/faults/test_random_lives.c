/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_random_lives -- many schedules of lives.h.
 *
 *   test_random_lives [NSCHEDULES]
 *
 * The seed is printed; PINION_TEST_SEED repeats it, and each schedule has a
 * seed of its own, which is the first to be repeated when it fails. A schedule
 * that fails is shortened, in processes of their own, and printed.
 */
#include "lives.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "test.h"

#define PATIENCE_S 120 /* one takes some milliseconds */

static char *why;	    /* shared: what is wrong with the last one */
static uint64_t *nreceived; /* shared */

/* In a process of its own: a failed assertion ends it. */
static bool fails(const struct schedule *schedule)
{
	const char *wrong;
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	pn_assert(pid >= 0);
	if (!pid) {
		alarm(PATIENCE_S);
		pn_log_set_level(PN_LOG_NONE);
		wrong = schedule_run(schedule, nreceived);
		if (wrong)
			snprintf(why, 256, "%s", wrong);
		_exit(wrong != NULL);
	}
	pn_assert(waitpid(pid, &status, 0) == pid);
	if (WIFSIGNALED(status))
		snprintf(why, 256, "signal %d", WTERMSIG(status));
	return status;
}

/* --- what was found ------------------------------------------------------- */

/* The shortest of those that failed once; schedule_print() wrote them. */
static const struct schedule found[] = {
	/* A message has been matched when its sender closes one connection and
	 * the other has failed: no other is attached to it. */
	{ 0x9528d916211a2fe1,
	  2,
	  2,
	  "drop rail 1 of node 1 after 59 operations\n",
	  { { STEP_OPEN, 0, 1, 21084, 4, 303561 },
	    { STEP_OPEN, 1, 0, 113723, 8, 266 },
	    { STEP_RECEIVE, 1, 1, 7, 2, 9745844 },
	    { STEP_SEND, 1, 0, 28502, 5, 1838 },
	    { STEP_CLOSE, 1, 1, 805, 1, 17565355 },
	    { STEP_CLOSE, 0, 1, 725, 0, 5399 },
	    { STEP_OPEN, 1, 1, 942, 8, 639 },
	    { STEP_SEND, 1, 0, 222, 1, 7785196 },
	    { STEP_SEND, 0, 1, 120742, 0, 18278624 },
	    { STEP_WAIT, 1, 0, 12969, 2, 2220744 },
	    { STEP_RECEIVE, 0, 1, 7, 5, 16749750 },
	    { STEP_OPEN, 0, 1, 934, 0, 0 },
	    { STEP_SEND, 1, 0, 88002, 5, 190 },
	    { STEP_RECEIVE, 0, 0, 525, 2, 5195426 },
	    { STEP_CLOSE, 1, 0, 230, 1, 0 },
	    { STEP_RECEIVE, 0, 1, 7939, 1, 12883 } },
	  16,
	  0 },
	/* A peer closes while a connection to it is not up yet: one that both
	 * sides have begun, and one of the sender alone. */
	{ 0xbc23d8c1ba735eab,
	  3,
	  2,
	  "",
	  { { STEP_OPEN, 2, 1, 4755, 2, 7666 },
	    { STEP_OPEN, 1, 2, 2738, 1, 293006 },
	    { STEP_SEND, 2, 0, 5, 1, 9599758 },
	    { STEP_SEND, 1, 2, 82243, 0, 4826606 },
	    { STEP_CLOSE, 2, 1, 210, 2, 0 } },
	  5,
	  30000 },
	{ 0x253baff929e84119,
	  4,
	  2,
	  "",
	  { { STEP_OPEN, 0, 3, 16763, 2, 3591563 },
	    { STEP_OPEN, 3, 0, 61085, 6, 335762 },
	    { STEP_OPEN, 3, 2, 2927, 6, 17519166 },
	    { STEP_CLOSE, 3, 1, 16294, 8, 732674 },
	    { STEP_SEND, 0, 3, 2589, 4, 798 } },
	  5,
	  30000 },
};

static bool what_was_found_passes(void)
{
	bool passed = true;

	for (unsigned i = 0; i < PN_ARRAY_LEN(found); i++) {
		if (!fails(&found[i]))
			continue;
		printf("FAILED, number %u of those found: %s\n", i, why);
		passed = false;
	}
	return passed;
}

/* --- the shrinker --------------------------------------------------------- */

/* A defect that needs a send of node 1 and, later, a close of node 0. */
static bool has_two_steps(const struct schedule *s)
{
	bool sent = false;

	for (unsigned i = 0; i < s->n; i++) {
		if (s->steps[i].node == 1 && s->steps[i].kind == STEP_SEND)
			sent = true;
		if (sent && s->steps[i].node == 0 &&
		    s->steps[i].kind == STEP_CLOSE)
			return true;
	}
	return false;
}

static bool shrinker_finds_the_steps_that_matter(uint64_t random)
{
	static struct schedule s;

	do
		schedule_make(&s, test_random(&random));
	while (!has_two_steps(&s));
	schedule_shrink(&s, has_two_steps);
	return s.n == 2 && has_two_steps(&s);
}

/* -------------------------------------------------------------------------- */

static bool equal_seeds_give_equal_runs(uint64_t seed)
{
	static struct schedule a, b;

	schedule_make(&a, seed);
	schedule_make(&b, seed);
	return !memcmp(&a, &b, sizeof(a));
}

static void *share(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	pn_assert(p != MAP_FAILED);
	return p;
}

static bool run_one(uint64_t seed)
{
	static struct schedule s;

	schedule_make(&s, seed);
	if (!fails(&s))
		return true;
	printf("FAILED, seed 0x%llx: %s\n", (unsigned long long)seed, why);
	schedule_shrink(&s, fails);
	fails(&s);
	printf("the shortest that fails: %s\n", why);
	schedule_print(&s);
	return false;
}

int main(int argc, char **argv)
{
	unsigned long n = argc > 1 ? strtoul(argv[1], NULL, 0) : 200;
	uint64_t seed = test_seed(), random = seed;
	bool passed;

	why = share(256);
	nreceived = share(sizeof(*nreceived));
	if (!shrinker_finds_the_steps_that_matter(seed) ||
	    !equal_seeds_give_equal_runs(seed)) {
		printf("the shrinker does not work\n");
		return 1;
	}
	passed = what_was_found_passes();
	/* A seed that was given is tried itself first. */
	for (unsigned long i = 0; passed && i < n; i++)
		passed = run_one(i ? test_random(&random) : seed);
	printf("%lu schedules, %llu messages received\n", n,
	       (unsigned long long)*nreceived);
	return !passed;
}
