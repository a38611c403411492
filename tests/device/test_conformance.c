/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Runs the conformance suite on one device:
 *
 *   test_conformance sim|threads|processes SPEC [CASE]
 *
 * sim: ranks are coroutines of one world; threads: ranks are threads, each with
 * a device of its own (the best for TSan); processes: ranks are forked.
 */
#include "conformance.h"

#include <string.h>

static void run_rank(struct rank *rank)
{
	const struct conf_case *test = rank->arg;
	struct conf conf = { .self = *rank };

	if ((rank->device->caps & test->needs) == test->needs)
		test->fn(&conf);
}

static bool run_case(const char *how, const char *spec,
		     const struct conf_case *test)
{
	struct ranks run = { .how = how,
			     .spec = spec,
			     .nranks = test->nranks,
			     .fn = run_rank,
			     .arg = (void *)test };
	bool passed;

	printf("[ RUN      ] %s\n", test->name);
	passed = ranks_run(&run);
	printf("[%s] %s\n", passed ? "       OK " : "  FAILED  ", test->name);
	return passed;
}

int main(int argc, char **argv)
{
	unsigned passed = 0, failed = 0;

	if (argc < 3 || argc > 4) {
		fprintf(stderr, "usage: %s sim|threads|processes SPEC [CASE]\n",
			argv[0]);
		return 2;
	}
	for (const struct conf_case *t = conf_cases; t->name; t++) {
		if (argc == 4 && strcmp(argv[3], t->name))
			continue;
		if (run_case(argv[1], argv[2], t))
			passed++;
		else
			failed++;
	}
	printf("%u passed, %u failed\n", passed, failed);
	return failed || !passed;
}
