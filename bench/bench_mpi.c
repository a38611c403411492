/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Question: how fast is MPI over pinion, compared with other transports of Open
 * MPI on this machine?
 *
 * A separate program (mpi_patterns.c) runs under mpirun, alternately over each
 * stack (mpi_stacks.h). A part of the benchmark is a pattern of communication
 * with a number of ranks; its ranks measure all sizes and windows in one job. A
 * round runs a job over each stack. Two parts measure jobs from outside:
 * `startup` one that does nothing, `program` one that the user names.
 *
 * A row gives the median over the rounds, the best and the worst. The best peer
 * of a point is the one with the least median; the ratio to it is the median of
 * the rounds' ratios. If there are variants of pinion (fixed protocols), the
 * best one is chosen by the odd rounds, and the ratio to it is that of the even
 * rounds: choosing and judging by the same rounds would reward luck. `learning`
 * compares the time of the messages before the timed ones with the same
 * variant's.
 *
 * On a virtual machine, the host chooses the cores and changes them: two that
 * share a cache exchange a line in a fifth of the time. Many short rounds give
 * all stacks the same placements. And a core may be shared with another virtual
 * machine: `slow` is the number of turns for which that was so (core_speed.h).
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "bench/comparison.h"
#include "bench/mpi_stacks.h"

struct values {
	char what[PN_OPTION_TEXT_BYTES], stacks[PN_OPTION_TEXT_BYTES];
	char ranks[PN_OPTION_TEXT_BYTES], windows[PN_OPTION_TEXT_BYTES];
	char program[PN_OPTION_TEXT_BYTES];
	uint64_t min, max, factor, rounds, warm, time;
	bool json;
};

static const struct pn_option options[] = {
	{ "what", PN_OPTION_TEXT, "latency",
	  "parts, separated by commas: latency, stream, bistream, rate, "
	  "allreduce, alltoall, allgather, bcast, scatter, halo, startup, "
	  "program; or all of them, without scatter and program",
	  offsetof(struct values, what), 0, 0, NULL },
	{ "stacks", PN_OPTION_TEXT, "pinion,vader,ucx",
	  "what is compared, separated by commas: pinion, vader, ucx, tcp, "
	  "mpich, pinion:PROTOCOL, fixed (pinion over each protocol), "
	  "pinion:OPTION=VALUE+OPTION=VALUE",
	  offsetof(struct values, stacks), 0, 0, NULL },
	{ "ranks", PN_OPTION_TEXT, "",
	  "numbers of ranks, separated by commas (default: by part)",
	  offsetof(struct values, ranks), 0, 0, NULL },
	{ "min", PN_OPTION_BYTES, "0", "smallest size (default: by part)",
	  offsetof(struct values, min), 0, 1 << 28, NULL },
	{ "max", PN_OPTION_BYTES, "0", "largest size (default: by part)",
	  offsetof(struct values, max), 0, 1 << 28, NULL },
	{ "factor", PN_OPTION_NUMBER, "0",
	  "a size is so many times the one before (default: by part)",
	  offsetof(struct values, factor), 0, 1 << 20, NULL },
	{ "windows", PN_OPTION_TEXT, "1,4,16,64",
	  "stream, bistream: numbers of messages under way, separated by "
	  "commas",
	  offsetof(struct values, windows), 0, 0, NULL },
	{ "rounds", PN_OPTION_NUMBER, "9", "number of rounds",
	  offsetof(struct values, rounds), 1, PN_COMPARISON_ROUNDS, NULL },
	{ "warm", PN_OPTION_NUMBER, "4000",
	  "messages of each size and window before the timed ones",
	  offsetof(struct values, warm), 0, 1 << 20, NULL },
	{ "time", PN_OPTION_TIME, "10ms",
	  "how long each size and window is timed, at least",
	  offsetof(struct values, time), 0, 0, NULL },
	{ "program", PN_OPTION_TEXT, "",
	  "the program of the part of this name, with its arguments; its time "
	  "is that of the whole job",
	  offsetof(struct values, program), 0, 0, NULL },
	PN_COMMAND_JSON(struct values, json),
};

/* --- parts ---------------------------------------------------------------- */

/* What a row's time is that of. */
enum unit { MESSAGE, COLLECTIVE, JOB };

static const struct part {
	const char *name, *ranks;
	const char *windows; /* NULL: the option's */
	enum unit unit;
	size_t min, max, factor;
	bool asked; /* not in `all` */
} parts[] = {
	{ "latency", "2", "1", MESSAGE, 1, 4 << 20, 2, false },
	{ "stream", "2", NULL, MESSAGE, 1, 4 << 20, 2, false },
	{ "bistream", "2", NULL, MESSAGE, 1, 4 << 20, 2, false },
	{ "rate", "2,4", "64", MESSAGE, 1, 4 << 10, 4, false },
	{ "allreduce", "2,4", "1", COLLECTIVE, 4, 1 << 20, 4, false },
	{ "alltoall", "2,4", "1", COLLECTIVE, 1, 1 << 20, 4, false },
	{ "allgather", "2,4", "1", COLLECTIVE, 1, 1 << 20, 4, false },
	{ "bcast", "2,4", "1", COLLECTIVE, 1, 1 << 20, 4, false },
	{ "scatter", "2,4", "1", COLLECTIVE, 1, 1 << 20, 4, true },
	{ "halo", "4", "1", COLLECTIVE, 1 << 10, 64 << 10, 8, false },
	{ "startup", "2,4", "1", JOB, 0, 0, 0, false },
	{ "program", "4", "1", JOB, 0, 0, 0, true },
};

/* What a job prints of a point: the time of an operation, of the operations
 * before, from which a transport may learn, and of the core's loop. */
enum figure { TIMED, LEARNING, LOOP, NFIGURES };

struct state {
	const struct values *values;
	const struct part *part;
	unsigned ranks;
	struct pn_report report;
	struct pn_mpi_stacks stacks;
	struct pn_comparison comparison;
};

/* --- running -------------------------------------------------------------- */

static const struct values *sizes_of(const struct state *s, struct values *v)
{
	const struct part *p = s->part;

	*v = *s->values;
	v->min = v->min ? v->min : p->min;
	v->max = v->max ? v->max : p->max;
	v->factor = v->factor > 1 ? v->factor : p->factor;
	return v;
}

static int line_of(const struct state *s, unsigned stack,
		   char line[PN_MPI_LINE_BYTES])
{
	bool program = !strcmp(s->part->name, "program");
	char arguments[2 * PN_OPTION_TEXT_BYTES] = "";
	struct values v;

	sizes_of(s, &v);
	if (s->part->unit != JOB)
		snprintf(arguments, sizeof(arguments),
			 "%s %llu %llu %llu %s %llu %llu", s->part->name,
			 (unsigned long long)v.min, (unsigned long long)v.max,
			 (unsigned long long)v.factor,
			 s->part->windows ? s->part->windows : v.windows,
			 (unsigned long long)v.warm,
			 (unsigned long long)v.time / 1000);
	return pn_mpi_stack_line(&s->stacks, stack,
				 &(struct pn_mpi_job){
					 s->ranks, program ? v.program : NULL,
					 arguments },
				 line);
}

/* Times a job from outside; its output is not shown. */
static int time_job(struct state *s, unsigned stack, const char *line)
{
	char quiet[PN_MPI_LINE_BYTES + 32];
	uint64_t start = pn_clock_ns();

	snprintf(quiet, sizeof(quiet), "(%s) >/dev/null", line);
	if (system(quiet))
		return -EIO;
	pn_comparison_enter(&s->comparison, stack,
			    (double)(pn_clock_ns() - start) / 1e3);
	return 0;
}

static int try_stack(struct state *s, unsigned stack)
{
	char line[PN_MPI_LINE_BYTES];
	int ret = line_of(s, stack, line);

	for (unsigned tries = ret ? 0 : PN_MPI_TRIES; tries--;) {
		ret = s->part->unit == JOB
			      ? time_job(s, stack, line)
			      : pn_comparison_run(&s->comparison, stack, line);
		if (ret != -EIO)
			break;
		if (tries)
			fprintf(stderr,
				"pinion: running %s again; mpirun may fail on "
				"a busy machine\n",
				s->stacks.all[stack].name);
	}
	return ret;
}

static int run_round(struct state *s)
{
	char what[PN_OPTION_TEXT_BYTES];
	int ret = 0;

	for (unsigned k = 0; !ret && k < s->stacks.n; k++) {
		snprintf(what, sizeof(what), "%s, %u ranks, round %u of %u: %s",
			 s->part->name, s->ranks, s->comparison.nrounds + 1,
			 (unsigned)s->values->rounds, s->stacks.all[k].name);
		pn_report_progress(what);
		ret = try_stack(s, k);
	}
	if (!ret)
		s->comparison.nrounds++;
	return ret;
}

/* --- rows ----------------------------------------------------------------- */

/* What the stacks of a point are compared with; -1: none. */
struct references {
	int peer;
	int fixed;
};

static struct references references_of(const struct state *s, size_t point)
{
	const struct pn_comparison *c = &s->comparison;
	unsigned peers = pn_mpi_stacks_of(&s->stacks, PN_MPI_PEER);
	unsigned fixed = pn_mpi_stacks_of(&s->stacks, PN_MPI_VARIANT);

	return (struct references){
		pn_comparison_best(c, peers, point, PN_ROUNDS_ALL),
		pn_comparison_best(c, fixed, point, PN_ROUNDS_ODD),
	};
}

static double ratio_to(const struct state *s, unsigned stack, int other,
		       size_t point, enum pn_rounds rounds)
{
	return other < 0 ? NAN
			 : pn_comparison_ratio(&s->comparison, stack,
					       (unsigned)other, point, rounds);
}

static const char *name_of(const struct state *s, int stack)
{
	return stack < 0 ? "" : s->stacks.all[stack].name;
}

/* The time of the first messages to that of another stack. */
static double learning_to(const struct state *s, unsigned stack, int other,
			  size_t point)
{
	const struct pn_comparison *c = &s->comparison;
	double us = pn_comparison_median(c, stack, point, LEARNING), to;

	if (other < 0 || !(us > 0))
		return NAN;
	to = pn_comparison_median(c, (unsigned)other, point, LEARNING);
	return us / to;
}

static void print_row(struct state *s, unsigned stack, size_t point,
		      struct references to)
{
	const struct pn_comparison *c = &s->comparison;
	struct pn_spread us = pn_comparison_spread(c, stack, point);
	double ratio = ratio_to(s, stack, to.peer, point, PN_ROUNDS_ALL);
	double fixed = ratio_to(s, stack, to.fixed, point, PN_ROUNDS_EVEN);
	double each = s->part->unit == MESSAGE ? 1e6 / us.median : NAN;
	const char *variants = to.fixed < 0 ? NULL : "to fixed";
	const struct pn_report_cell row[] = {
		PN_CELL_TEXT("what", "what", -9, s->part->name),
		PN_CELL_COUNT("ranks", "ranks", 5, s->ranks),
		PN_CELL_TEXT("stack", "stack", -14, s->stacks.all[stack].name),
		PN_CELL_BYTES("bytes", "bytes", 6, c->bytes[point]),
		PN_CELL_COUNT("window", "window", 6, c->keys[point][0]),
		PN_CELL_NUMBER("time_us", "us", 9, us.median),
		PN_CELL_NUMBER("time_best_us", "best", 9, us.best),
		PN_CELL_NUMBER("time_worst_us", "worst", 9, us.worst),
		PN_CELL_RATE("bytes_per_s", "bandwidth", 10,
			     (double)c->bytes[point] * each),
		PN_CELL_RATE("messages_per_s", "messages", 9, each),
		PN_CELL_TEXT("best_peer", "best peer", 9, name_of(s, to.peer)),
		PN_CELL_NUMBER("time_to_best_peer", "time to", 8, ratio),
		PN_CELL_NUMBER("speed_to_best_peer", "speed to", 8, 1 / ratio),
		PN_CELL_TEXT("best_fixed", variants ? "best fixed" : NULL, 24,
			     name_of(s, to.fixed)),
		PN_CELL_NUMBER("time_to_best_fixed", variants, 8, fixed),
		PN_CELL_NUMBER("learning_us", NULL, 0,
			       pn_comparison_median(c, stack, point, LEARNING)),
		PN_CELL_NUMBER("learning_to_best_fixed",
			       variants ? "learning" : NULL, 8,
			       learning_to(s, stack, to.fixed, point)),
		PN_CELL_COUNT("rounds", NULL, 0, c->nrounds),
		PN_CELL_COUNT("slow_turns", "slow", 4,
			      pn_comparison_slow_rounds(c, stack, point)),
	};

	pn_report_row(&s->report, row, PN_ARRAY_LEN(row));
}

/* The worst ratio of pinion to the best peer, and where. */
static void print_summary(struct state *s)
{
	double ratios[PN_COMPARISON_POINTS], worst = 0;
	unsigned pinion = pn_mpi_stacks_of(&s->stacks, PN_MPI_PINION);
	char bytes[PN_REPORT_BYTES_LEN];
	size_t n = s->comparison.npoints, at = 0;

	if (!pinion || !pn_mpi_stacks_of(&s->stacks, PN_MPI_PEER))
		return;
	for (size_t i = 0; i < n; i++) {
		ratios[i] =
			ratio_to(s, (unsigned)__builtin_ctz(pinion),
				 references_of(s, i).peer, i, PN_ROUNDS_ALL);
		if (ratios[i] > worst) {
			worst = ratios[i];
			at = i;
		}
	}
	pn_report_note(&s->report,
		       "%s, %u ranks: pinion's time to the best peer's: median "
		       "%.2f, at most %.2f (%s bytes, window %zu)",
		       s->part->name, s->ranks, pn_median(ratios, n), worst,
		       pn_report_bytes(s->comparison.bytes[at], bytes),
		       s->comparison.keys[at][0]);
}

/* --- all of it ------------------------------------------------------------ */

static int run_part(struct state *s)
{
	int ret = 0;

	memset(&s->comparison, 0, sizeof(s->comparison));
	s->comparison.nkeys = 1;
	s->comparison.nfigures = NFIGURES;
	for (unsigned r = 0; !ret && r < s->values->rounds; r++)
		ret = run_round(s);
	pn_report_progress(NULL);
	if (ret)
		return ret;
	pn_report_series(&s->report);
	for (size_t i = 0; i < s->comparison.npoints; i++) {
		struct references to = references_of(s, i);

		for (unsigned k = 0; k < s->stacks.n; k++)
			print_row(s, k, i, to);
	}
	print_summary(s);
	return 0;
}

#define MAX_NUMBERS 64 /* of a list */

static int parse_numbers(const char *list, uint64_t least,
			 uint64_t numbers[MAX_NUMBERS], size_t *n)
{
	const struct pn_option row = { .type = PN_OPTION_NUMBER,
				       .min = least,
				       .max = 1024 };

	return pn_words_numbers(list, &row, numbers, MAX_NUMBERS, n);
}

/* Runs a part with each number of ranks. */
static int run_ranks(struct state *s)
{
	const char *own = s->values->ranks;
	uint64_t ranks[MAX_NUMBERS];
	size_t n;
	int ret = parse_numbers(*own ? own : s->part->ranks, 1, ranks, &n);

	for (size_t i = 0; !ret && i < n; i++) {
		s->ranks = (unsigned)ranks[i];
		ret = run_part(s);
	}
	return ret;
}

static int run_parts(struct state *s)
{
	bool all = pn_words_have(s->values->what, "all");
	int ret = 0;

	for (size_t i = 0; !ret && i < PN_ARRAY_LEN(parts); i++) {
		s->part = &parts[i];
		if (pn_words_have(s->values->what, parts[i].name) ||
		    (all && !parts[i].asked))
			ret = run_ranks(s);
	}
	return ret;
}

/* -1: there is no such part. */
static int part_number(const char *word)
{
	int n = (int)PN_ARRAY_LEN(parts);

	for (int i = 0; i < n; i++)
		if (!strcmp(word, parts[i].name))
			return i;
	return strcmp(word, "all") ? -1 : n;
}

/* NULL: the values can be run. */
static const char *wrong_with(const struct values *v)
{
	uint64_t numbers[MAX_NUMBERS];
	size_t n;

	if (!pn_words_set(v->what, part_number))
		return "--what: no such part; `pinion help bench mpi` lists "
		       "them";
	if (*v->ranks && parse_numbers(v->ranks, 2, numbers, &n))
		return "--ranks: numbers from 2 to 1024, separated by commas";
	if (parse_numbers(v->windows, 1, numbers, &n))
		return "--windows: numbers from 1 to 1024, separated by commas";
	if (pn_words_have(v->what, "program") && !*v->program)
		return "--what program: say which with --program";
	return NULL;
}

static void note_removed(void *arg, const char *name)
{
	pn_report_note(arg, "%s does not run here: no comparison", name);
}

static int run(const void *v, char *const *operands)
{
	struct state *s;
	int ret;

	(void)operands;
	if (wrong_with(v))
		return pn_usage_error("bench mpi: %s", wrong_with(v));
	s = calloc(1, sizeof(*s));
	if (!s)
		return pn_failed("bench mpi", -ENOMEM);
	s->values = v;
	s->report = (struct pn_report){ .json = s->values->json,
					.bench = "mpi",
					.device = "soft",
					/* the ranks' device, if not named */
					.profile = getenv("PINION_DEVICE")
							   ? NULL
							   : "none" };
	ret = pn_mpi_stacks_parse(&s->stacks, s->values->stacks);
	if (ret) {
		free(s);
		return ret == -EINVAL ? PN_EXIT_USAGE
				      : pn_failed("bench mpi (build with "
						  "libopenmpi-dev)",
						  ret);
	}
	pn_report_head(&s->report, pn_bench_mpi.help);
	pn_mpi_stacks_probe(&s->stacks, note_removed, &s->report);
	ret = run_parts(s);
	free(s);
	return ret ? pn_failed("bench mpi", ret) : PN_EXIT_OK;
}

const struct pn_command pn_bench_mpi = {
	.name = "mpi",
	.help = "how fast is MPI over pinion, compared with other transports?",
	.about = "Runs Open MPI's mpirun on this machine, alternately over "
		 "each stack: latency, streams, message rate, collectives, "
		 "more ranks than cores, and the start of jobs. As root, set "
		 "OMPI_ALLOW_RUN_AS_ROOT=1 and "
		 "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1.",
	.options = options,
	.noptions = PN_ARRAY_LEN(options),
	.values_bytes = sizeof(struct values),
	.run = run,
};
