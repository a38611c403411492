/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Random messages (storm.h) under every protocol, between ranks that are
 * tasks, threads or processes:
 *
 *   test_storm sim|threads|processes SPEC [NROUNDS [MAX_LEN [LIMIT]]]
 *
 * LIMIT is the option unexpected_limit.
 */
#include "message/storm.h"

#include <string.h>

#include "test.h"

static bool storm(const char *name, struct ranks *run, struct storm_attr *attr)
{
	bool passed;

	printf("[ RUN      ] %s\n", name);
	run->fn = storm_run;
	run->arg = attr;
	passed = ranks_run(run);
	printf("[%s] %s\n", passed ? "       OK " : "  FAILED  ", name);
	return passed;
}

/* Two ranks, each protocol by itself. */
static bool one_protocol(struct ranks *run, struct storm_attr attr,
			 int protocol)
{
	char name[80];

	snprintf(name, sizeof(name), "messages_arrive_by_%s",
		 pn_protocol_name((unsigned)protocol));
	attr.protocol = protocol;
	run->nranks = 2;
	return storm(name, run, &attr);
}

/* Four ranks, all to all, whatever protocol. */
static bool four_ranks(struct ranks *run, struct storm_attr attr)
{
	run->nranks = 4;
	return storm("messages_arrive_from_all_to_all", run, &attr);
}

static bool a_thousand(struct ranks *run, struct storm_attr attr)
{
	attr.per_pair = 1500;
	attr.max_len = 6000;
	attr.nrounds = 2;
	run->nranks = 2;
	return storm("a_thousand_messages_can_be_under_way", run, &attr);
}

int main(int argc, char **argv)
{
	struct ranks run = { 0 };
	struct storm_attr attr = { .nrounds = 10,
				   .per_pair = 24,
				   .max_len = (size_t)2 << 20,
				   .protocol = STORM_ANY };
	bool passed;

	if (argc < 3 || argc > 6) {
		fprintf(stderr,
			"usage: %s HOW SPEC [NROUNDS [MAX_LEN [LIMIT]]]\n",
			argv[0]);
		return 2;
	}
	run.how = argv[1];
	run.spec = argv[2];
	if (argc > 3)
		attr.nrounds = (unsigned)strtoul(argv[3], NULL, 0);
	if (argc > 4)
		attr.max_len = strtoull(argv[4], NULL, 0);
	if (argc > 5)
		attr.unexpected_limit = strtoull(argv[5], NULL, 0);
	attr.seed = test_seed();
	passed = a_thousand(&run, attr);
	for (int p = 0; p <= PN_PROTOCOL_AUTO; p++)
		passed &= one_protocol(&run, attr, p);
	passed &= four_ranks(&run, attr);
	return !passed;
}
