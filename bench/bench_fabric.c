/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Question: how long does a short message take with libfabric's calls only,
 * over pinion, over libfabric's own shared memory provider, and compared with a
 * bare flag in shared memory?
 *
 * A separate program (fabric_pingpong.c) runs alternately for each provider:
 * pinion's and, where libfabric has it, shm. Each run is a new pair of
 * processes; its figure for a size is the mean over 1,000 round trips without
 * reading a clock between them. Rows give the best, the median and the worst
 * pair, and the ratio of the median to that of shm and to that of the flag
 * which each pair exchanges first: the machine's own latency, the floor. `slow`
 * is the number of pairs on a core that was slow at that time (core_speed.h).
 *
 * With --callgrind also: how many instructions does a message take, from the
 * send to the read completion, and how many an empty poll? One process sends to
 * itself, so that the number of polls is known.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "bench/callgrind.h"
#include "bench/comparison.h"
#include "tools/pinion/paths.h"

#define PROGRAM "fabric_pingpong"

struct values {
	uint64_t min, max, rounds;
	bool callgrind, json;
};

static const struct pn_option options[] = {
	{ "min", PN_OPTION_BYTES, "1", "smallest size",
	  offsetof(struct values, min), 1, 1 << 30, NULL },
	{ "max", PN_OPTION_BYTES, "4K",
	  "largest size; each is four times the one before",
	  offsetof(struct values, max), 1, 1 << 30, NULL },
	{ "rounds", PN_OPTION_NUMBER, "9",
	  "number of rounds, each with new pairs of processes",
	  offsetof(struct values, rounds), 1, PN_COMPARISON_ROUNDS, NULL },
	{ "callgrind", PN_OPTION_BOOL, "no",
	  "also count instructions (needs valgrind)",
	  offsetof(struct values, callgrind), 0, 0, NULL },
	PN_COMMAND_JSON(struct values, json),
};

enum provider { PINION, SHM, NPROVIDERS };

static const char *const names[NPROVIDERS] = { "pinion", "shm" };

/* The first line of every pair is the flag. */
#define FLAG 0

struct state {
	const struct values *values;
	struct pn_report report;
	char program[PN_PATH_BYTES];
	bool absent[NPROVIDERS];
	struct pn_comparison comparison;
};

/* --- time ----------------------------------------------------------------- */

static int run_pair(struct state *s, enum provider provider)
{
	char line[PN_PATH_BYTES + 256];
	int ret;

	snprintf(line, sizeof(line), "'%s' %s %" PRIu64 " %" PRIu64, s->program,
		 names[provider], s->values->min, s->values->max);
	ret = pn_comparison_run(&s->comparison, provider, line);
	if (ret != -ENODEV || provider == PINION)
		return ret;
	s->absent[provider] = true;
	pn_report_note(&s->report,
		       "libfabric has no provider %s here: no comparison",
		       names[provider]);
	return 0;
}

static int run_round(struct state *s)
{
	int ret = 0;

	for (unsigned p = 0; !ret && p < NPROVIDERS; p++)
		if (!s->absent[p])
			ret = run_pair(s, p);
	if (!ret)
		s->comparison.nrounds++;
	return ret;
}

/* The reference times of rows; shm may be NaN. */
struct floors {
	double flag, shm;
};

struct result {
	const char *stack;
	struct pn_spread ns;
	unsigned slow; /* rounds on a slow core */
};

static void print_row(struct state *s, size_t size, const struct result *r,
		      struct floors to)
{
	const struct pn_report_cell row[] = {
		PN_CELL_TEXT("stack", "stack", 8, r->stack),
		PN_CELL_BYTES("bytes", "bytes", 8, s->comparison.bytes[size]),
		PN_CELL_NUMBER("best_ns", "best ns", 10, r->ns.best),
		PN_CELL_NUMBER("latency_ns", "median ns", 10, r->ns.median),
		PN_CELL_NUMBER("worst_ns", "worst ns", 10, r->ns.worst),
		PN_CELL_NUMBER("ratio_to_shm", "to shm", 10,
			       r->ns.median / to.shm),
		PN_CELL_NUMBER("ratio_to_flag", "to flag", 10,
			       r->ns.median / to.flag),
		PN_CELL_COUNT("pairs", NULL, 0, s->comparison.nrounds),
		PN_CELL_COUNT("slow_turns", "slow", 6, r->slow),
	};

	pn_report_row(&s->report, row, PN_ARRAY_LEN(row));
}

static struct result result_of(struct state *s, unsigned provider, size_t size)
{
	return (struct result){
		.stack = names[provider],
		.ns = pn_comparison_spread(&s->comparison, provider, size),
		.slow = pn_comparison_slow_rounds(&s->comparison, provider,
						  size),
	};
}

static void print_size(struct state *s, size_t size, double flag)
{
	struct floors to = { flag, NAN };
	struct result results[NPROVIDERS] = { 0 };

	for (unsigned p = 0; p < NPROVIDERS; p++)
		if (!s->absent[p])
			results[p] = result_of(s, p, size);
	if (!s->absent[SHM])
		to.shm = results[SHM].ns.median;
	for (unsigned p = 0; p < NPROVIDERS; p++)
		if (!s->absent[p])
			print_row(s, size, &results[p], to);
}

/* The flag does not depend on the provider: all pairs count. */
static struct pn_spread flag_of_all(struct state *s)
{
	double all[NPROVIDERS * PN_COMPARISON_ROUNDS];
	size_t n = 0;

	for (unsigned p = 0; p < NPROVIDERS; p++)
		for (unsigned r = 0; !s->absent[p] && r < s->comparison.nrounds;
		     r++)
			all[n++] = s->comparison.samples[p][FLAG][0][r];
	return pn_spread_of(all, n);
}

static int compare_times(struct state *s)
{
	struct result flag = { .stack = "flag" };
	int ret = 0;

	for (unsigned r = 0; !ret && r < s->values->rounds; r++)
		ret = run_round(s);
	if (ret)
		return ret;
	flag.ns = flag_of_all(s);
	flag.slow = pn_comparison_slow_rounds(&s->comparison, PINION, FLAG);
	print_row(s, FLAG, &flag, (struct floors){ flag.ns.median, NAN });
	for (size_t size = FLAG + 1; size < s->comparison.npoints; size++)
		print_size(s, size, flag.ns.median);
	return 0;
}

/* --- instructions --------------------------------------------------------- */

/* Enough to include periodic work such as returning credits. */
#define FEW  UINT64_C(2000)
#define MANY UINT64_C(12000)

static int count_run(struct state *s, enum provider provider, uint64_t messages,
		     uint64_t looks, uint64_t *instructions)
{
	char sent[24], looked[24];
	const char *const args[] = { "--toggle-collect=send_to_self",
				     "--toggle-collect=poll_empty",
				     s->program,
				     names[provider],
				     "count",
				     sent,
				     looked,
				     NULL };

	snprintf(sent, sizeof(sent), "%" PRIu64, messages);
	snprintf(looked, sizeof(looked), "%" PRIu64, looks);
	return pn_callgrind(args, instructions);
}

static int print_counts(struct state *s, enum provider provider)
{
	uint64_t few, more_messages, more_looks;
	double each = (double)(MANY - FEW);
	int ret = count_run(s, provider, FEW, FEW, &few);

	if (!ret)
		ret = count_run(s, provider, MANY, FEW, &more_messages);
	if (!ret)
		ret = count_run(s, provider, FEW, MANY, &more_looks);
	if (ret)
		return ret;
	const struct pn_report_cell row[] = {
		PN_CELL_TEXT("stack", "stack", 8, names[provider]),
		PN_CELL_NUMBER("instructions_per_message",
			       "instructions per message", 24,
			       (double)(more_messages - few) / each),
		PN_CELL_NUMBER("instructions_per_look", "an empty poll", 16,
			       (double)(more_looks - few) / each),
	};

	pn_report_row(&s->report, row, PN_ARRAY_LEN(row));
	return 0;
}

static int count_instructions(struct state *s)
{
	int ret = 0;

	pn_report_series(&s->report);
	for (unsigned p = 0; !ret && p < NPROVIDERS; p++) {
		if (s->absent[p])
			continue;
		pn_report_progress("counting instructions");
		ret = print_counts(s, p);
	}
	pn_report_progress(NULL);
	if (ret == -ENOENT)
		fprintf(stderr, "pinion: install valgrind, or leave out "
				"--callgrind\n");
	return ret;
}

/* --- all of it ------------------------------------------------------------ */

/* Makes libfabric find the provider of this command; for callgrind, libc must
 * not be patched after it was translated. */
static int find_parts(struct state *s)
{
	struct pn_paths place;
	int ret = pn_paths_find(&place);

	if (!ret)
		ret = pn_paths_program(PROGRAM, s->program);
	if (!ret && (setenv("FI_PROVIDER_PATH", place.provider_dir, 1) ||
		     setenv("PINION_MONITOR", "none", 0)))
		ret = -errno;
	return ret;
}

static int measure(struct state *s)
{
	int ret;

	pn_report_head(&s->report, pn_bench_fabric.help);
	ret = compare_times(s);
	if (!ret && s->values->callgrind)
		ret = count_instructions(s);
	return ret ? pn_failed("bench fabric", ret) : PN_EXIT_OK;
}

static int run(const void *v, char *const *operands)
{
	struct state *s = calloc(1, sizeof(*s));
	const char *device = getenv("PINION_DEVICE");
	int ret;

	(void)operands;
	if (!s)
		return pn_failed("bench fabric", -ENOMEM);
	s->values = v;
	s->comparison.nfigures = 2;
	s->report = (struct pn_report){ .json = s->values->json,
					.bench = "fabric",
					.device = device ? device : "soft" };
	if (s->values->min > s->values->max)
		ret = pn_usage_error("--min is above --max");
	else if ((ret = find_parts(s)))
		ret = pn_failed(PROGRAM " (build with libfabric-dev)", ret);
	else
		ret = measure(s);
	free(s);
	return ret;
}

const struct pn_command pn_bench_fabric = {
	.name = "fabric",
	.help = "how long does a short message take through libfabric, "
		"compared with shm and a bare flag?",
	.about = "Runs pairs of processes on this machine, alternately over "
		 "pinion's provider and over libfabric's own shared memory. "
		 "Each pair keeps its speed for its whole life, so each round "
		 "uses new pairs, and the best, the median and the worst are "
		 "printed.",
	.options = options,
	.noptions = PN_ARRAY_LEN(options),
	.values_bytes = sizeof(struct values),
	.run = run,
};
