/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * bench -- the frame of every benchmark.
 *
 * A benchmark is a file bench_<question>.c that opens with the question it
 * answers, and a command (`pinion bench <question>`). It runs between two ends
 * (pair.h), takes the median of trials, and prints rows (report.h). What is
 * compared is measured in turns within one run: machines are noisy, ratios
 * within a run are not.
 * A point is one row: at least `fewest` trials, then more until there are
 * `most` or its share of the benchmark's time is used up. Time is the
 * device's, so that `sim` is measured in virtual time; budgets are real time.
 */
#ifndef PN_BENCH_BENCH_H
#define PN_BENCH_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "bench/pair.h"
#include "tools/pinion/command.h"
#include "tools/pinion/report.h"

extern const struct pn_command pn_bench_raw;
extern const struct pn_command pn_bench_register;

/* The row that benchmarks have in common. */
#define PN_BENCH_BUDGET(type, field, def)                            \
	{                                                            \
		"budget", PN_OPTION_TIME, def,                       \
			"about how long all of it may take",         \
			offsetof(type, field), PN_NS_PER_MS, 0, NULL \
	}

/* When to end a point. */
struct pn_point {
	size_t fewest, most;
	uint64_t deadline_ns; /* of pn_clock_ns() */
};

struct pn_point pn_point_begin(size_t fewest, size_t most, uint64_t budget_ns);

/* Whether trial number n (from 0) should run. */
static inline bool pn_point_go_on(const struct pn_point *point, size_t n)
{
	return n < point->fewest ||
	       (n < point->most && pn_clock_ns() < point->deadline_ns);
}

/* Microseconds of the device's time since start; never 0, for clocks have a
 * grain and ratios are taken. */
double pn_since_us(struct pn_device *device, uint64_t start);

/* How many sizes there are from min to max in steps of `factor`. */
size_t pn_bench_nsizes(size_t min, size_t max, size_t factor);

/* A benchmark between two ends. */
struct pn_bench {
	const char *name, *question;
	const char *device; /* as --device gave it; may be "" */
	size_t bytes;	    /* of memory at the target */
	bool json;
};

/* What the body gets. */
struct pn_bench_run {
	struct pn_report report;
	struct pn_pair *pair;
	struct pn_device *device; /* pair->device */
	bool virtual_time;
	void *arg;
};

typedef int pn_bench_fn(struct pn_bench_run *run);

/* Opens the ends, prints the head, runs body, closes. Returns enum pn_exit. */
int pn_bench_go(const struct pn_bench *bench, pn_bench_fn *body, void *arg);

#endif
