/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Question: what does it cost to move the contents of a View of Kokkos to
 * another process, in registered memory, registered for the move, or
 * serialised? (Levy and others 2020, figure 7.)
 *
 * A separate program (kokkos_view.cpp) makes the Views and moves them. Each
 * round is a new pair of processes that measures every size, the ways in turns;
 * rows give the median over the rounds, and `speedup` is that of `pinned` over
 * `host`. `slow` is the number of rounds in which a core was slow
 * (core_speed.h).
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "bench/comparison.h"
#include "tools/pinion/paths.h"

#define PROGRAM "kokkos_view"

enum way { PINNED, HOST, SERIALISE, ELEMENTS, NWAYS };

struct values {
	char device[PN_OPTION_TEXT_BYTES];
	uint64_t min, max, trials, rounds;
	bool json;
};

static const struct pn_option options[] = {
	PN_COMMAND_DEVICE(struct values, device),
	{ "min", PN_OPTION_BYTES, "1K", "smallest size",
	  offsetof(struct values, min), 128, 1 << 30, NULL },
	{ "max", PN_OPTION_BYTES, "2M",
	  "largest size; each is twice the one before",
	  offsetof(struct values, max), 128, 1 << 30, NULL },
	{ "trials", PN_OPTION_NUMBER, "200", "moves of a size, in each way",
	  offsetof(struct values, trials), 1, 1 << 20, NULL },
	{ "rounds", PN_OPTION_NUMBER, "5",
	  "number of rounds, each with a new pair of processes",
	  offsetof(struct values, rounds), 1, PN_COMPARISON_ROUNDS, NULL },
	PN_COMMAND_JSON(struct values, json),
};

struct state {
	const struct values *values;
	struct pn_report report;
	char program[PN_PATH_BYTES], profile[32];
	struct pn_comparison comparison;
};

static void print_size(struct state *s, size_t first)
{
	struct pn_comparison *c = &s->comparison;
	double ns[NWAYS];

	for (size_t way = 0; way < NWAYS; way++)
		ns[way] = pn_comparison_spread(c, 0, first + way).median;
	const struct pn_report_cell row[] = {
		PN_CELL_BYTES("bytes", "bytes", 6, c->bytes[first]),
		PN_CELL_NUMBER("ns_pinned", "pinned ns", 12, ns[PINNED]),
		PN_CELL_NUMBER("ns_host", "host ns", 12, ns[HOST]),
		PN_CELL_NUMBER("ns_serialise", "serialise ns", 12,
			       ns[SERIALISE]),
		PN_CELL_NUMBER("ns_elements", "by element", 12, ns[ELEMENTS]),
		PN_CELL_NUMBER("speedup", "speedup", 8, ns[HOST] / ns[PINNED]),
		PN_CELL_COUNT("trials", "trials", 6, s->values->trials),
		PN_CELL_COUNT("rounds", "rounds", 6, c->nrounds),
		PN_CELL_COUNT("slow_turns", "slow", 5,
			      pn_comparison_slow_rounds(c, 0, first)),
	};

	pn_report_row(&s->report, row, PN_ARRAY_LEN(row));
}

static int run_rounds(struct state *s)
{
	char line[PN_PATH_BYTES + 256];
	int ret = 0;

	snprintf(line, sizeof(line), "'%s' %" PRIu64 " %" PRIu64 " %" PRIu64,
		 s->program, s->values->min, s->values->max, s->values->trials);
	for (unsigned r = 0; !ret && r < s->values->rounds; r++) {
		pn_report_progress("moving Views");
		ret = pn_comparison_run(&s->comparison, 0, line);
		if (!ret)
			s->comparison.nrounds++;
	}
	pn_report_progress(NULL);
	return ret;
}

static int measure(struct state *s)
{
	int ret;

	pn_report_head(&s->report, pn_bench_view.help);
	ret = run_rounds(s);
	for (size_t i = 0; !ret && i + NWAYS <= s->comparison.npoints;
	     i += NWAYS)
		print_size(s, i);
	return ret ? pn_failed("bench view", ret) : PN_EXIT_OK;
}

/* The device is opened by the program alone. */
static void name_costs(struct state *s, const char *device)
{
	const char *cost = strstr(device, "cost=");

	snprintf(s->profile, sizeof(s->profile), "%.*s",
		 cost ? (int)strcspn(cost + 5, ",") : 4,
		 cost ? cost + 5 : "none");
	s->report.device = device;
	s->report.profile = s->profile;
	s->report.emulated = cost;
}

/* The program finds its device in the environment. */
static int find_parts(struct state *s, struct pn_spec *spec)
{
	int ret = pn_paths_program(PROGRAM, s->program);

	if (!ret)
		ret = pn_spec_find(spec, s->values->device);
	if (!ret && setenv("PINION_DEVICE", spec->text, 1))
		ret = -errno;
	name_costs(s, spec->text);
	return ret;
}

static int run(const void *v, char *const *operands)
{
	struct state *s = calloc(1, sizeof(*s));
	struct pn_spec spec;
	int ret;

	(void)operands;
	if (!s)
		return pn_failed("bench view", -ENOMEM);
	s->values = v;
	s->comparison.nfigures = 2;
	s->comparison.nkeys = 1;
	s->report =
		(struct pn_report){ .json = s->values->json, .bench = "view" };
	if (s->values->min > s->values->max)
		ret = pn_usage_error("--min is above --max");
	else if ((ret = find_parts(s, &spec)))
		ret = pn_failed(PROGRAM " (build with libtrilinos-kokkos-dev)",
				ret);
	else
		ret = measure(s);
	free(s);
	return ret;
}

const struct pn_command pn_bench_view = {
	.name = "view",
	.help = "what does moving a View of Kokkos cost, in registered memory, "
		"registered for it, or serialised?",
	.about = "Two processes: Views of Kokkos in a heap of registered "
		 "memory, in ordinary memory that is registered for the put, "
		 "and copied into registered memory, by Kokkos and element by "
		 "element.",
	.options = options,
	.noptions = PN_ARRAY_LEN(options),
	.values_bytes = sizeof(struct values),
	.run = run,
};
