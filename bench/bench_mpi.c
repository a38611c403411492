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
 * With --what bcast or scatter: how much do these gain when small messages go
 * straight from buffers that are used often (option `reuse`, paper Reuse)? Over
 * pinion alone, with the mechanism off, as it decides by itself, and on. The
 * ratio is to `off`.
 *
 * On a virtual machine, where its cores are is the host's choice, and changes:
 * two that share a cache pass a line in a fifth of the time. Many short rounds
 * see all stacks in the same places.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/bench.h"

#define MAX_ROUNDS 31
#define MAX_SIZES  16
#define PROGRAM	   "mpi_pingpong"
#define PATH_BYTES 1024

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
	  offsetof(struct values, rounds), 1, MAX_ROUNDS, NULL },
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

#define MOST_STACKS PN_ARRAY_LEN(stacks)

struct state {
	const struct values *values;
	const struct stack *stacks;
	unsigned nstacks;
	struct pn_report report;
	char command[PATH_BYTES];
	char programs[MOST_STACKS][PATH_BYTES]; /* "": not there, no rows */
	size_t bytes[MAX_SIZES];
	size_t nsizes;
	double us[MOST_STACKS][MAX_SIZES][MAX_ROUNDS];
};

static int find_command(struct state *s)
{
	ssize_t n =
		readlink("/proc/self/exe", s->command, sizeof(s->command) - 1);

	if (n < 0)
		return -errno;
	s->command[n] = '\0';
	return 0;
}

/* Beside this command in the build tree, or as installed with it. */
static bool find_program(struct state *s, unsigned stack)
{
	static const char *const places[] = { "", "../" PN_LIBDIR "/pinion/" };
	int dir = (int)(strrchr(s->command, '/') - s->command);

	for (size_t i = 0; i < PN_ARRAY_LEN(places); i++) {
		char *out = s->programs[stack];
		int len =
			snprintf(out, PATH_BYTES, "%.*s/%s%s", dir, s->command,
				 places[i], s->stacks[stack].program);

		if (len < PATH_BYTES && !access(out, X_OK))
			return true;
	}
	s->programs[stack][0] = '\0';
	return false;
}

/* Reads what a run prints. */
static int take_lines(struct state *s, FILE *lines, unsigned stack,
		      unsigned round)
{
	size_t n = 0, bytes;
	double us;

	while (n < MAX_SIZES && fscanf(lines, "%zu %lf", &bytes, &us) == 2) {
		s->bytes[n] = bytes;
		s->us[stack][n++][round] = us;
	}
	if (!n || (s->nsizes && n != s->nsizes))
		return -EIO;
	s->nsizes = n;
	return 0;
}

static int run_stack(struct state *s, unsigned stack, unsigned round)
{
	const struct values *v = s->values;
	char launch[2 * PATH_BYTES], line[4 * PATH_BYTES];
	FILE *lines;
	int ret;

	snprintf(launch, sizeof(launch), s->stacks[stack].launch, s->command);
	snprintf(line, sizeof(line), "%s -n %llu '%s' %llu %llu %s", launch,
		 (unsigned long long)(v->what == PINGPONG ? 2 : v->ranks),
		 s->programs[stack], (unsigned long long)v->min,
		 (unsigned long long)v->max, whats[v->what]);
	lines = popen(line, "re");
	if (!lines)
		return -errno;
	ret = take_lines(s, lines, stack, round);
	return pclose(lines) ? -EIO : ret;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(struct state *s, unsigned stack, size_t size)
{
	double *us = s->us[stack][size];

	qsort(us, s->values->rounds, sizeof(*us), compare);
	return us[s->values->rounds / 2];
}

static void print_row(struct state *s, unsigned stack, size_t size, double us,
		      double base)
{
	bool peers = s->values->what == PINGPONG;
	const struct pn_report_cell row[] = {
		PN_CELL_TEXT("what", "what", 9, whats[s->values->what]),
		PN_CELL_TEXT("stack", "stack", 12, s->stacks[stack].name),
		PN_CELL_BYTES("bytes", "bytes", 8, s->bytes[size]),
		PN_CELL_NUMBER("latency_us", "latency us", 11, us),
		PN_CELL_RATE("bytes_per_s", "bandwidth", 12,
			     (double)s->bytes[size] / us * 1e6),
		PN_CELL_NUMBER(peers ? "ratio_to_best_peer" : "ratio_to_off",
			       peers ? "to best peer" : "to off", 13,
			       us / base),
	};

	pn_report_row(&s->report, row, PN_ARRAY_LEN(row));
}

static void print_size(struct state *s, size_t size)
{
	double us[MOST_STACKS] = { 0 }, best = 0;

	for (unsigned k = 0; k < s->nstacks; k++) {
		if (!s->programs[k][0])
			continue;
		us[k] = median(s, k, size);
		if (k && (!best || us[k] < best))
			best = us[k];
	}
	if (s->values->what != PINGPONG)
		best = us[0];
	for (unsigned k = 0; k < s->nstacks; k++)
		if (s->programs[k][0])
			print_row(s, k, size, us[k], best);
}

static int run_round(struct state *s, unsigned round)
{
	int ret = 0;

	for (unsigned k = 0; !ret && k < s->nstacks; k++)
		if (s->programs[k][0])
			ret = run_stack(s, k, round);
	return ret;
}

/* Those of Open MPI stand or fall together. */
static int find_programs(struct state *s)
{
	int ret = find_command(s);

	for (unsigned k = 0; !ret && k < s->nstacks; k++)
		if (!find_program(s, k) &&
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
	for (unsigned r = 0; !ret && r < s->values->rounds; r++)
		ret = run_round(s, r);
	for (size_t n = 0; !ret && n < s->nsizes; n++)
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
