/* SPDX-License-Identifier: BSD-2-Clause */
#include "bench/rhythm.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "base/clock.h"
#include "context.h"

#define LEARNING 4 /* periods that do not count */

static const struct {
	const char *name;
	const char *options[4];
	size_t n;
} modes[] = {
	{ "pinned", { "helper=off" }, 1 },
	{ "learned", { "helper=own", "helper_predictor=learned" }, 2 },
	{ "shortest", { "helper=own", "helper_predictor=shortest" }, 2 },
	{ "periodic", { "helper=own", "helper_predictor=periodic" }, 2 },
	{ "economical",
	  { "helper=own", "helper_predictor=learned", "helper_patience=100" },
	  3 },
};

/* --- registered bytes over time ------------------------------------------- */

struct sampler {
	struct pinion_context *context;
	_Atomic bool counts, stop;
	double sum, n;
	pthread_t thread;
};

static void *sample(void *arg)
{
	const struct timespec pause = { .tv_nsec = 200000 };
	struct sampler *sampler = arg;

	while (!atomic_load(&sampler->stop)) {
		if (atomic_load(&sampler->counts)) {
			sampler->sum += (double)atomic_load(
				&sampler->context->budget.bytes);
			sampler->n++;
		}
		nanosleep(&pause, NULL);
	}
	return NULL;
}

/* --- the program ---------------------------------------------------------- */

struct result {
	double seconds, mean_bytes, late;
	struct pinion_helper_stats stats;
};

static void compute(uint64_t ns)
{
	uint64_t until = pn_clock_ns() + ns;

	while (pn_clock_ns() < until)
		;
}

static int run_period(const struct pn_rhythm *rhythm)
{
	int ret = 0;

	for (unsigned i = 0; !ret && i < rhythm->buffers; i++) {
		compute(rhythm->period_ns / rhythm->buffers);
		ret = rhythm->use(rhythm->arg, i);
	}
	return ret;
}

static int run_periods(const struct pn_rhythm *rhythm, struct sampler *sampler,
		       struct result *out)
{
	struct pinion_helper_stats before = { .size = sizeof(before) };
	uint64_t start = 0;
	int ret = 0;

	for (unsigned i = 0; !ret && i < LEARNING + rhythm->periods; i++) {
		if (i == LEARNING) {
			pinion_helper_query(sampler->context, &before);
			start = pn_clock_ns();
			atomic_store(&sampler->counts, true);
		}
		ret = run_period(rhythm);
	}
	atomic_store(&sampler->counts, false);
	out->seconds = (double)(pn_clock_ns() - start) / 1e9;
	out->stats = (struct pinion_helper_stats){ .size = sizeof(out->stats) };
	pinion_helper_query(sampler->context, &out->stats);
	out->late = (double)(out->stats.late - before.late) /
		    (rhythm->periods * rhythm->buffers);
	return ret;
}

static int run_mode(const struct pn_rhythm *rhythm, size_t mode,
		    struct result *out)
{
	struct sampler sampler = { .n = 0 };
	int ret = rhythm->open(rhythm->arg, modes[mode].options, modes[mode].n,
			       &sampler.context);

	if (!ret)
		ret = -pthread_create(&sampler.thread, NULL, sample, &sampler);
	if (!ret) {
		ret = run_periods(rhythm, &sampler, out);
		atomic_store(&sampler.stop, true);
		pthread_join(sampler.thread, NULL);
		out->mean_bytes = sampler.sum / sampler.n;
	}
	rhythm->close(rhythm->arg);
	return ret;
}

/* --- rows ----------------------------------------------------------------- */

static void print(const struct pn_rhythm *rhythm, struct pn_report *report,
		  const char *mode, const struct result r[2])
{
	const struct result *pinned = &r[0], *h = &r[1];
	const struct pn_report_cell row[] = {
		PN_CELL_TEXT("experiment", NULL, 0, rhythm->experiment),
		PN_CELL_TEXT(rhythm->key, NULL, 0, rhythm->value),
		PN_CELL_TEXT("mode", "mode", -12, mode),
		PN_CELL_NUMBER("seconds", "seconds", 10, h->seconds),
		PN_CELL_NUMBER("time", "time, of pinned", 16,
			       h->seconds / pinned->seconds),
		PN_CELL_NUMBER("late_percent", "late %", 8, 100 * h->late),
		PN_CELL_NUMBER("mean_mib", "MiB registered", 16,
			       h->mean_bytes / (1 << 20)),
		PN_CELL_NUMBER("memory", "of pinned", 10,
			       h->mean_bytes / pinned->mean_bytes),
		PN_CELL_COUNT("ahead", "ahead", 7, h->stats.registered),
		PN_CELL_COUNT("kept", "kept", 7, h->stats.kept),
	};

	pn_report_row(report, row, PN_ARRAY_LEN(row));
}

int pn_rhythm_run(const struct pn_rhythm *rhythm, struct pn_report *report)
{
	struct result r[2] = { 0 }; /* left pinned, and this mode */
	int ret = 0;

	for (size_t m = 0; !ret && m < PN_ARRAY_LEN(modes); m++) {
		ret = run_mode(rhythm, m, &r[1]);
		if (ret)
			break;
		if (!m)
			r[0] = r[1];
		print(rhythm, report, modes[m].name, r);
	}
	return ret;
}
