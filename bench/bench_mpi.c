/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Question: how fast is an MPI ping-pong over pinion, beside other ways that
 * Open MPI can take between two ranks of this machine?
 *
 * A program of its own (mpi_pingpong.c) runs under mpirun, over each stack in
 * turn, round by round: pinion's provider; Open MPI's own shared memory
 * (ob1/vader); libfabric's tcp;ofi_rxm; UCX as MPICH uses it, where that is
 * installed. All bind each rank to a core. Rows give the median over the rounds
 * of the program's median half round trip, and how that compares with the best
 * of the others (below 1: faster). Bandwidth is bytes over that latency.
 *
 * A clock is read at both ends of these trips, which takes its time and hides
 * what follows a message. So there is a second figure, of 1,000 trips (from
 * 64 KiB on 100) in a row without a clock between them: the median over the
 * rounds, that of the best and that of the worst, and the ratio of the medians.
 * Every round is a new pair of processes, and pairs differ.
 *
 * With --what bcast or scatter: how much do these gain when small messages go
 * straight from buffers that are used often (option `reuse`, paper Reuse)? Over
 * pinion alone, with the mechanism off, as it decides by itself, and on. The
 * ratio is to `off`.
 *
 * On a virtual machine, where its cores are is the host's choice, and changes:
 * two that share a cache pass a line in a fifth of the time. Many short rounds
 * see all stacks in the same places. And a core may have to share with another
 * machine's: `slow` says of how many turns that was so (core_speed.h).
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
	{ "rounds", PN_OPTION_NUMBER, "5", "how often all take a turn",
	  offsetof(struct values, rounds), 1, PN_COMPARISON_ROUNDS, NULL },
	{ "what", PN_OPTION_CHOICE, "pingpong",
	  "pingpong: beside other stacks; bcast, scatter: with the option "
	  "reuse and without",
	  offsetof(struct values, what), 0, 0, whats },
	{ "ranks", PN_OPTION_NUMBER, "2", "bcast, scatter: how many",
	  offsetof(struct values, ranks), 2, 1024, NULL },
	PN_COMMAND_JSON(struct values, json),
};

#define OPENMPI "mpirun.openmpi --oversubscribe --mca osc ^ucx "
#define PINION	"'%s' mpirun --oversubscribe"

struct stack {
	const char *name, *program, *launch; /* %s is this command */
};

/* The first is compared with the best of the others. */
static const struct stack stacks[] = {
	{ "pinion", PROGRAM, PINION },
	{ "vader", PROGRAM, OPENMPI "--mca pml ob1 --mca btl self,vader" },
	{ "tcp;ofi_rxm", PROGRAM,
	  "FI_PROVIDER='tcp;ofi_rxm' " OPENMPI
	  "--mca pml cm --mca mtl ofi --mca btl self "
	  "--mca mtl_ofi_provider_include 'tcp;ofi_rxm' -x FI_PROVIDER" },
	{ "ucx", PROGRAM "_mpich", "mpiexec.hydra -bind-to core" },
};

/* Each is compared with the first. */
static const struct stack reuses[] = {
	{ "reuse=off", PROGRAM, "PINION_REUSE=off " PINION },
	{ "reuse=auto", PROGRAM, "PINION_REUSE=auto " PINION },
	{ "reuse=on", PROGRAM, "PINION_REUSE=on " PINION },
};

/* What a line of the program says besides its bytes. */
enum figure { CLOCKED, UNCLOCKED, PACE, NFIGURES };

struct state {
	const struct values *values;
	const struct stack *stacks;
	unsigned nstacks;
	struct pn_report report;
	struct pn_paths place;
	char programs[PN_COMPARISON_COMMANDS][PN_PATH_BYTES]; /* "": no rows */
	struct pn_comparison turns;
};

_Static_assert(PN_ARRAY_LEN(stacks) <= PN_COMPARISON_COMMANDS, "all can play");

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
	return pn_comparison_run(&s->turns, stack, line);
}

/* When Open MPI's ranks finalize, PMIx gives mpirun two seconds to hear of it.
 * On a machine that is busier they end unheard, and mpirun says of its rank 0
 * that it was "exiting improperly", whatever it ran over. */
static int try_stack(struct state *s, unsigned stack)
{
	int ret = -EIO;

	for (unsigned tries = TRIES; ret == -EIO && tries--;) {
		ret = run_stack(s, stack);
		if (ret == -EIO && tries)
			fprintf(stderr,
				"pinion: %s is run again; a busy machine is "
				"enough for mpirun to fail\n",
				s->stacks[stack].name);
	}
	return ret;
}

/* What is printed of a stack and a size. */
struct result {
	double us; /* median of clocked trips */
	struct pn_spread mean;
};

static void print_row(struct state *s, unsigned stack, size_t size,
		      const struct result *is, const struct result *base)
{
	bool peers = s->values->what == PINGPONG;
	size_t bytes = s->turns.bytes[size];
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
			      pn_comparison_slow_rounds(&s->turns, stack,
							size)),
	};

	pn_report_row(&s->report, row, PN_ARRAY_LEN(row));
}

static struct result result_of(struct state *s, unsigned stack, size_t size)
{
	struct pn_comparison *turns = &s->turns;

	return (struct result){
		pn_comparison_spread(turns, stack, size, CLOCKED).median,
		pn_comparison_spread(turns, stack, size, UNCLOCKED),
	};
}

/* The best of both figures, which need not be one stack's. */
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
		s->turns.nrounds++;
	return ret;
}

/* Those of Open MPI stand or fall together. */
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
	s->turns.nfigures = NFIGURES;
	for (unsigned r = 0; !ret && r < s->values->rounds; r++)
		ret = run_round(s);
	for (size_t n = 0; !ret && n < s->turns.nsizes; n++)
		print_size(s, n);
	free(s);
	return ret ? pn_failed("bench mpi", ret) : PN_EXIT_OK;
}

const struct pn_command pn_bench_mpi = {
	.name = "mpi",
	.help = "how fast is an MPI ping-pong over pinion, beside other ways "
		"of Open MPI?",
	.about = "Runs Open MPI's mpirun, two ranks on this machine, over each "
		 "stack in turn; or broadcasts and scatters over pinion, with "
		 "small messages straight from their buffers and without. As "
		 "root, set OMPI_ALLOW_RUN_AS_ROOT=1 and "
		 "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1.",
	.options = options,
	.noptions = PN_ARRAY_LEN(options),
	.values_bytes = sizeof(struct values),
	.run = run,
};
