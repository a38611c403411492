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

struct values {
	uint64_t min, max, rounds;
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
	PN_COMMAND_JSON(struct values, json),
};

#define OPENMPI "mpirun.openmpi --oversubscribe --mca osc ^ucx "

/* %s is this command; pinion comes first. */
static const struct {
	const char *name, *program, *launch;
} stacks[] = {
	{ "pinion", PROGRAM, "'%s' mpirun --oversubscribe" },
	{ "vader", PROGRAM, OPENMPI "--mca pml ob1 --mca btl self,vader" },
	{ "tcp;ofi_rxm", PROGRAM,
	  "FI_PROVIDER='tcp;ofi_rxm' " OPENMPI
	  "--mca pml cm --mca mtl ofi --mca btl self "
	  "--mca mtl_ofi_provider_include 'tcp;ofi_rxm' -x FI_PROVIDER" },
	{ "ucx", PROGRAM "_mpich", "mpiexec.hydra -bind-to core" },
};

#define NSTACKS PN_ARRAY_LEN(stacks)

struct state {
	const struct values *values;
	struct pn_report report;
	char command[PATH_BYTES];
	char programs[NSTACKS][PATH_BYTES]; /* "": not there, no rows */
	size_t bytes[MAX_SIZES];
	size_t nsizes;
	double us[NSTACKS][MAX_SIZES][MAX_ROUNDS];
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
				 places[i], stacks[stack].program);

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
	char launch[2 * PATH_BYTES], line[4 * PATH_BYTES];
	FILE *lines;
	int ret;

	snprintf(launch, sizeof(launch), stacks[stack].launch, s->command);
	snprintf(line, sizeof(line), "%s -n 2 '%s' %llu %llu", launch,
		 s->programs[stack], (unsigned long long)s->values->min,
		 (unsigned long long)s->values->max);
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

static void print_size(struct state *s, size_t size)
{
	double us[NSTACKS] = { 0 }, best = 0;

	for (unsigned k = 0; k < NSTACKS; k++) {
		if (!s->programs[k][0])
			continue;
		us[k] = median(s, k, size);
		if (k && (!best || us[k] < best))
			best = us[k];
	}
	for (unsigned k = 0; k < NSTACKS; k++) {
		if (!s->programs[k][0])
			continue;
		const struct pn_report_cell row[] = {
			PN_CELL_TEXT("stack", "stack", 12, stacks[k].name),
			PN_CELL_BYTES("bytes", "bytes", 8, s->bytes[size]),
			PN_CELL_NUMBER("latency_us", "latency us", 11, us[k]),
			PN_CELL_RATE("bytes_per_s", "bandwidth", 12,
				     (double)s->bytes[size] / us[k] * 1e6),
			PN_CELL_NUMBER("ratio_to_best_peer", "to best peer", 13,
				       us[k] / best),
		};

		pn_report_row(&s->report, row, PN_ARRAY_LEN(row));
	}
}

static int run_round(struct state *s, unsigned round)
{
	int ret = 0;

	for (unsigned k = 0; !ret && k < NSTACKS; k++)
		if (s->programs[k][0])
			ret = run_stack(s, k, round);
	return ret;
}

/* Those of Open MPI stand or fall together. */
static int find_programs(struct state *s)
{
	int ret = find_command(s);

	for (unsigned k = 0; !ret && k < NSTACKS; k++)
		if (!find_program(s, k) && !strcmp(stacks[k].program, PROGRAM))
			ret = -ENOENT;
	return ret;
}

static int run(const void *v, char *const *operands)
{
	struct state *s = calloc(1, sizeof(*s));
	int ret = s ? 0 : -ENOMEM;

	(void)operands;
	if (!s)
		return pn_failed("bench mpi", ret);
	s->values = v;
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
		 "stack in turn. As root, set OMPI_ALLOW_RUN_AS_ROOT=1 and "
		 "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1.",
	.options = options,
	.noptions = PN_ARRAY_LEN(options),
	.values_bytes = sizeof(struct values),
	.run = run,
};
