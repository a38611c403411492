/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Question: how fast is an MPI ping-pong over pinion, compared with other
 * transports of Open MPI between two ranks of this machine?
 *
 * A separate program (mpi_pingpong.c) runs under mpirun, alternately over each
 * stack: pinion's provider; Open MPI's own shared memory (ob1/vader);
 * libfabric's tcp;ofi_rxm; UCX as MPICH uses it, if installed. All bind each
 * rank to a core. Rows give the median over the rounds of the program's median
 * half round trip, and its ratio to the best of the others (below 1: faster).
 * Bandwidth is bytes over that latency.
 *
 * These trips read the clock at both ends, which costs time and hides what
 * follows a message. The second figure is therefore that of 1,000 trips (from
 * 64 KiB on 100) in a row without reading a clock: the median over the rounds,
 * the best and the worst, and the ratio of the medians. Every round is a new
 * pair of processes, and pairs differ.
 *
 * With --what bcast or scatter: how much do collectives gain if small messages
 * are sent directly from frequently used buffers (option `reuse`, Rashti and
 * Afsahi 2011)? Over pinion only, with the mechanism off, automatic, and on.
 * The ratio is to `off`.
 *
 * On a virtual machine, the host chooses the cores and changes them: two that
 * share a cache exchange a line in a fifth of the time. Many short rounds give
 * all stacks the same placements. And a core may be shared with another virtual
 * machine: `slow` is the number of turns for which that was so (core_speed.h).
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "bench/comparison.h"
#include "tools/pinion/paths.h"

#define PROGRAM "mpi_pingpong"
#define TRIES	3

enum what { PINGPONG, BCAST, SCATTER };

static const char *const whats[] = { "pingpong", "bcast", "scatter", NULL };

struct values {
	uint64_t min, max, rounds, ranks;
	int what;
	bool json;
};

static const struct pn_option options[] = {
	{ "min", PN_OPTION_BYTES, "1", "smallest size",
	  offsetof(struct values, min), 1, 1 << 30, NULL },
	{ "max", PN_OPTION_BYTES, "4M",
	  "largest size; each is four times the one before",
	  offsetof(struct values, max), 1, 1 << 30, NULL },
	{ "rounds", PN_OPTION_NUMBER, "5", "number of rounds",
	  offsetof(struct values, rounds), 1, PN_COMPARISON_ROUNDS, NULL },
	{ "what", PN_OPTION_CHOICE, "pingpong",
	  "pingpong: compared with other stacks; bcast, scatter: with and "
	  "without the option reuse",
	  offsetof(struct values, what), 0, 0, whats },
	{ "ranks", PN_OPTION_NUMBER, "2", "bcast, scatter: number of ranks",
	  offsetof(struct values, ranks), 2, 1024, NULL },
	PN_COMMAND_JSON(struct values, json),
};

#define OPENMPI "mpirun.openmpi --oversubscribe --mca osc ^ucx "
#define PINION	"'%s' mpirun --oversubscribe"

struct stack {
	const char *name, *program, *launch; /* %s: this command */
};

/* The first one is compared with the best of the others. */
static const struct stack stacks[] = {
	{ "pinion", PROGRAM, PINION },
	{ "vader", PROGRAM, OPENMPI "--mca pml ob1 --mca btl self,vader" },
	{ "tcp;ofi_rxm", PROGRAM,
	  "FI_PROVIDER='tcp;ofi_rxm' " OPENMPI
	  "--mca pml cm --mca mtl ofi --mca btl self "
	  "--mca mtl_ofi_provider_include 'tcp;ofi_rxm' -x FI_PROVIDER" },
	{ "ucx", PROGRAM "_mpich", "mpiexec.hydra -bind-to core" },
};

/* Each one is compared with the first. */
static const struct stack reuses[] = {
	{ "reuse=off", PROGRAM, "PINION_REUSE=off " PINION },
	{ "reuse=auto", PROGRAM, "PINION_REUSE=auto " PINION },
	{ "reuse=on", PROGRAM, "PINION_REUSE=on " PINION },
};

/* The figures of a line of the program, behind its bytes. */
enum figure { CLOCKED, UNCLOCKED, PACE, NFIGURES };

struct state {
	const struct values *values;
	const struct stack *stacks;
	unsigned nstacks;
	struct pn_report report;
	struct pn_paths place;
	char programs[PN_COMPARISON_COMMANDS][PN_PATH_BYTES]; /* "": none */
	struct pn_comparison comparison;
};

_Static_assert(PN_ARRAY_LEN(stacks) <= PN_COMPARISON_COMMANDS,
	       "all stacks are available");

static int run_stack(struct state *s, unsigned stack)
{
	const struct values *v = s->values;
	char launch[2 * PN_PATH_BYTES], line[4 * PN_PATH_BYTES];

	snprintf(launch, sizeof(launch), s->stacks[stack].launch,
		 s->place.command);
	snprintf(line, sizeof(line), "%s -n %llu '%s' %llu %llu %s", launch,
		 (unsigned long long)(v->what == PINGPONG ? 2 : v->ranks),
		 s->programs[stack], (unsigned long long)v->min,
		 (unsigned long long)v->max, whats[v->what]);
	return pn_comparison_run(&s->comparison, stack, line);
}

/* When Open MPI's ranks finalize, PMIx gives mpirun two seconds to notice. On a
 * busier machine the ranks end unnoticed, and mpirun reports rank 0 as "exiting
 * improperly", with any transport. */
static int try_stack(struct state *s, unsigned stack)
{
	int ret = -EIO;

	for (unsigned tries = TRIES; ret == -EIO && tries--;) {
		ret = run_stack(s, stack);
		if (ret == -EIO && tries)
			fprintf(stderr,
				"pinion: running %s again; mpirun may fail on "
				"a busy machine\n",
				s->stacks[stack].name);
	}
	return ret;
}

/* The result of a stack for a size. */
struct result {
	double us; /* median of clocked trips */
	struct pn_spread mean;
};

static void print_row(struct state *s, unsigned stack, size_t size,
		      const struct result *is, const struct result *base)
{
	bool peers = s->values->what == PINGPONG;
	size_t bytes = s->comparison.bytes[size];
	const struct pn_report_cell row[] = {
		PN_CELL_TEXT("what", "what", 9, whats[s->values->what]),
		PN_CELL_TEXT("stack", "stack", 12, s->stacks[stack].name),
		PN_CELL_BYTES("bytes", "bytes", 8, bytes),
		PN_CELL_NUMBER("latency_us", "latency us", 11, is->us),
		PN_CELL_RATE("bytes_per_s", "bandwidth", 12,
			     (double)bytes / is->us * 1e6),
		PN_CELL_NUMBER(peers ? "ratio_to_best_peer" : "ratio_to_off",
			       peers ? "to best peer" : "to off", 13,
			       is->us / base->us),
		PN_CELL_NUMBER("latency_mean_us", "mean us", 10,
			       is->mean.median),
		PN_CELL_NUMBER("latency_mean_best_us", "best", 8,
			       is->mean.best),
		PN_CELL_NUMBER("latency_mean_worst_us", "worst", 8,
			       is->mean.worst),
		PN_CELL_NUMBER(peers ? "mean_ratio_to_best_peer"
				     : "mean_ratio_to_off",
			       peers ? "to best peer" : "to off", 13,
			       is->mean.median / base->mean.median),
		PN_CELL_COUNT("slow_turns", "slow", 6,
			      pn_comparison_slow_rounds(&s->comparison, stack,
							size)),
	};

	pn_report_row(&s->report, row, PN_ARRAY_LEN(row));
}

static struct result result_of(struct state *s, unsigned stack, size_t size)
{
	struct pn_comparison *comparison = &s->comparison;

	return (struct result){
		pn_comparison_spread(comparison, stack, size, CLOCKED).median,
		pn_comparison_spread(comparison, stack, size, UNCLOCKED),
	};
}

/* The best of both figures, possibly of different stacks. */
static void keep_best(struct result *best, const struct result *is)
{
	if (!best->us || is->us < best->us)
		best->us = is->us;
	if (!best->mean.median || is->mean.median < best->mean.median)
		best->mean = is->mean;
}

static void print_size(struct state *s, size_t size)
{
	struct result results[PN_COMPARISON_COMMANDS] = { 0 }, best = { 0 };

	for (unsigned k = 0; k < s->nstacks; k++) {
		if (!s->programs[k][0])
			continue;
		results[k] = result_of(s, k, size);
		if (k)
			keep_best(&best, &results[k]);
	}
	if (s->values->what != PINGPONG)
		best = results[0];
	for (unsigned k = 0; k < s->nstacks; k++)
		if (s->programs[k][0])
			print_row(s, k, size, &results[k], &best);
}

static int run_round(struct state *s)
{
	int ret = 0;

	for (unsigned k = 0; !ret && k < s->nstacks; k++)
		if (s->programs[k][0])
			ret = try_stack(s, k);
	if (!ret)
		s->comparison.nrounds++;
	return ret;
}

/* The stacks of Open MPI are available together or not at all. */
static int find_programs(struct state *s)
{
	int ret = pn_paths_find(&s->place);

	for (unsigned k = 0; !ret && k < s->nstacks; k++)
		if (pn_paths_program(s->stacks[k].program, s->programs[k]) &&
		    !strcmp(s->stacks[k].program, PROGRAM))
			ret = -ENOENT;
	return ret;
}

static void choose_stacks(struct state *s)
{
	bool peers = s->values->what == PINGPONG;

	s->stacks = peers ? stacks : reuses;
	s->nstacks = peers ? PN_ARRAY_LEN(stacks) : PN_ARRAY_LEN(reuses);
}

static int run(const void *v, char *const *operands)
{
	struct state *s = calloc(1, sizeof(*s));
	int ret = s ? 0 : -ENOMEM;

	(void)operands;
	if (!s)
		return pn_failed("bench mpi", ret);
	s->values = v;
	choose_stacks(s);
	s->report = (struct pn_report){ .json = s->values->json,
					.bench = "mpi",
					.device = "soft" };
	ret = find_programs(s);
	if (ret) {
		free(s);
		return pn_failed(PROGRAM " (build with libopenmpi-dev)", ret);
	}
	pn_report_head(&s->report, pn_bench_mpi.help);
	s->comparison.nfigures = NFIGURES;
	for (unsigned r = 0; !ret && r < s->values->rounds; r++)
		ret = run_round(s);
	for (size_t n = 0; !ret && n < s->comparison.nsizes; n++)
		print_size(s, n);
	free(s);
	return ret ? pn_failed("bench mpi", ret) : PN_EXIT_OK;
}

const struct pn_command pn_bench_mpi = {
	.name = "mpi",
	.help = "how fast is an MPI ping-pong over pinion, compared with other "
		"transports?",
	.about = "Runs Open MPI's mpirun, two ranks on this machine, "
		 "alternately over each stack; or broadcasts and scatters over "
		 "pinion, with and without sending small messages directly "
		 "from their buffers. As root, set OMPI_ALLOW_RUN_AS_ROOT=1 "
		 "and OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1.",
	.options = options,
	.noptions = PN_ARRAY_LEN(options),
	.values_bytes = sizeof(struct values),
	.run = run,
};
