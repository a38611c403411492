/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * bench -- the frame of every benchmark.
 *
 * A benchmark is a file bench_<question>.c that begins with the question it
 * answers, and a command (`pinion bench <question>`). It runs between two ends
 * (pair.h), takes the median of trials, and prints rows (report.h). Compared
 * alternatives are measured alternately within one run: machines are noisy,
 * ratios within a run much less. Time is that of the device, so that `sim` is
 * measured in virtual time; budgets are real time. A size that does not fit its
 * share of the budget gets fewer trials.
 */
#ifndef PN_BENCH_BENCH_H
#define PN_BENCH_BENCH_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "bench/pair.h"
#include "device/measure.h"
#include "tools/pinion/command.h"
#include "tools/pinion/report.h"
#include "tools/pinion/words.h"

extern const struct pn_command pn_bench_cache;
extern const struct pn_command pn_bench_cuda;
extern const struct pn_command pn_bench_fabric;
extern const struct pn_command pn_bench_frrwp;
extern const struct pn_command pn_bench_gpu;
extern const struct pn_command pn_bench_heap;
extern const struct pn_command pn_bench_helper;
extern const struct pn_command pn_bench_message;
extern const struct pn_command pn_bench_mpi;
extern const struct pn_command pn_bench_ops;
extern const struct pn_command pn_bench_peers;
extern const struct pn_command pn_bench_progress;
extern const struct pn_command pn_bench_put;
extern const struct pn_command pn_bench_rails;
extern const struct pn_command pn_bench_raw;
extern const struct pn_command pn_bench_register;
extern const struct pn_command pn_bench_reuse;
extern const struct pn_command pn_bench_slab;
extern const struct pn_command pn_bench_slots;
extern const struct pn_command pn_bench_view;

/* Options of every benchmark; its own values begin with this struct. */
struct pn_bench_values {
	char device[PN_OPTION_TEXT_BYTES]; /* may be "" */
	uint64_t min, max;		   /* sizes */
	/* ns of real time for the whole benchmark */
	uint64_t budget;
	bool json;
};

#define PN_BENCH_FIELD(name) offsetof(struct pn_bench_values, name)

/* The entries of these options; smallest, largest, time: defaults. */
#define PN_BENCH_OPTIONS(smallest, largest, time)          \
	PN_COMMAND_DEVICE(struct pn_bench_values, device), \
		{ "min",                                   \
		  PN_OPTION_BYTES,                         \
		  smallest,                                \
		  "smallest size",                         \
		  PN_BENCH_FIELD(min),                     \
		  1,                                       \
		  UINT64_C(1) << 40,                       \
		  NULL },                                  \
		{ "max",                                   \
		  PN_OPTION_BYTES,                         \
		  largest,                                 \
		  "largest size",                          \
		  PN_BENCH_FIELD(max),                     \
		  1,                                       \
		  UINT64_C(1) << 40,                       \
		  NULL },                                  \
		{ "budget",                                \
		  PN_OPTION_TIME,                          \
		  time,                                    \
		  "approximate time limit",                \
		  PN_BENCH_FIELD(budget),                  \
		  PN_NS_PER_MS,                            \
		  0,                                       \
		  NULL },                                  \
		PN_COMMAND_JSON(struct pn_bench_values, json)

/* Number of sizes from min to max, each twice the one before. */
size_t pn_bench_nsizes(size_t min, size_t max);

/* Argument of the body of a benchmark. */
struct pn_bench_run {
	struct pn_report report;
	struct pn_pair *pair;
	struct pn_device *device; /* pair->device */
	bool virtual_time;
	const void *values; /* the benchmark's values, pn_bench_values first */
	uint64_t end_ns;    /* end of the budget, of pn_clock_ns() */
	size_t left;	    /* remaining points */
};

/* Sets the number of points. Each point then gets its share of the remaining
 * time, so that slow points use the time that quick points left. */
void pn_bench_plan(struct pn_bench_run *run, size_t npoints);
uint64_t pn_bench_share_ns(struct pn_bench_run *run);

/* Measures every alternative once, for one size; n: number of the round. */
typedef int pn_bench_round_fn(void *arg, size_t size, size_t n);

/* Runs one round to warm up, then between `fewest` and `most` rounds, as many
 * as the point's share of the time allows; in virtual time one, since all are
 * equal. *n is their number. */
struct pn_bench_rounds {
	pn_bench_round_fn *round;
	void *arg;
	size_t fewest, most;
};
int pn_bench_run_rounds(struct pn_bench_run *run,
			const struct pn_bench_rounds *rounds, size_t size,
			uint64_t share_ns, size_t *n);

/* Returned by a body that has printed its error on standard error. */
#define PN_BENCH_REPORTED (-ECANCELED)

typedef int pn_bench_fn(struct pn_bench_run *run);

/* Opens the two ends on the device of values with max bytes at the target,
 * prints the head (the command's help is the question), runs body, closes.
 * Returns enum pn_exit; errors in values are printed. */
int pn_bench_execute(const struct pn_command *command, const void *values,
		     pn_bench_fn *body);

#endif
