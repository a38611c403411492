/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Question: what does registering memory cost by size, and how does that
 * compare with moving the bytes?
 *
 * Rows A4 and M9: 128 B to 256 MiB, present and untouched pages, 4 KiB and huge
 * pages. Each series ends with the regression a * pages + b of its medians
 * (base/regression.h). put_us is one put of as many bytes between registered
 * buffers of two processes: where register_us is larger, registering on demand
 * costs more than the transfer itself.
 *
 * kernel_percent is the kernel's share of the CPU time of registering and
 * deregistering, from getrusage(2) over SHARE_NS of repetitions: the kernel
 * samples it, so it is good to some per cent.
 *
 * Untouched pages are made untouched again before every trial (MADV_DONTNEED),
 * so registering them includes the page faults. Huge pages are verified in
 * smaps; without them the series is left out.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "base/range.h"
#include "base/regression.h"
#include "bench/bench.h"

#define MAX_POINTS 48
#define SHARE_NS   (100 * PN_NS_PER_MS)

enum which { FIRST, SECOND, BOTH };

struct values {
	struct pn_bench_values common;
	uint64_t trials;
	int pages, present; /* enum which */
};

static const char *const page_choices[] = { "4k", "huge", "both", NULL };
static const char *const present_choices[] = { "yes", "no", "both", NULL };

#define FIELD(name) offsetof(struct values, name)

static const struct pn_option options[] = {
	PN_BENCH_OPTIONS("128", "256M", "20s"),
	{ "trials", PN_OPTION_NUMBER, "1000",
	  "registrations per size (fewer if the budget does not allow it)",
	  FIELD(trials), 1, 100000, NULL },
	{ "pages", PN_OPTION_CHOICE, "both", "pages of 4 KiB, or of 2 MiB",
	  FIELD(pages), 0, 0, page_choices },
	{ "present", PN_OPTION_CHOICE, "both",
	  "pages touched before, or never touched", FIELD(present), 0, 0,
	  present_choices },
};

/* A buffer and the state of its pages. */
struct series {
	struct pn_pages_policy policy;
	size_t page_bytes;
	bool present;
	char *buffer;
	size_t bytes; /* of it */
};

struct point {
	const struct series *series;
	size_t bytes, pages, trials;
	double register_us, deregister_us, put_us;
	double kernel_percent; /* NAN: not measured */
};

struct state {
	struct pn_bench_run *run;
	const struct values *values;
	uint64_t point_ns; /* budget for registering; half of it for putting */
	double *samples;   /* 2 * values->trials */
	/* for the regression */
	double x[MAX_POINTS], r[MAX_POINTS], d[MAX_POINTS];
	size_t npoints;
};

/* --- pages ---------------------------------------------------------------- */

/* Bytes of [addr, addr + len) on transparent huge pages according to smaps.
 * Mappings may have been merged or split, so whole mappings count. */
static size_t huge_bytes(const char *addr, size_t len)
{
	FILE *file = fopen("/proc/self/smaps", "re");
	uintptr_t start, end, at = (uintptr_t)addr;
	bool inside = false;
	size_t sum = 0, kib;
	char line[512];

	while (file && fgets(line, sizeof(line), file)) {
		if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &start, &end) ==
		    2)
			inside = start < at + len && at < end;
		else if (inside &&
			 sscanf(line, "AnonHugePages: %zu kB", &kib) == 1)
			sum += kib << 10;
	}
	if (file)
		fclose(file);
	return sum;
}

static int map_series(struct series *s, size_t bytes)
{
	void *buffer;
	int ret;

	s->policy.populate = true;
	ret = pn_pages_map(bytes, &s->policy, &buffer);
	if (ret)
		return ret;
	s->buffer = buffer;
	s->bytes = bytes;
	return 0;
}

/* Maps real huge pages: transparent ones if the kernel provides them, else
 * reserved ones. */
static int map_huge(struct series *s, size_t bytes)
{
	size_t whole =
		(bytes + PN_PAGES_HUGE_BYTES - 1) & ~(PN_PAGES_HUGE_BYTES - 1);

	s->policy.huge = PN_PAGES_TRANSPARENT;
	if (!map_series(s, bytes)) {
		if (huge_bytes(s->buffer, whole) >= whole)
			return 0;
		pn_pages_unmap(s->buffer, bytes, &s->policy);
	}
	s->policy.huge = PN_PAGES_HUGETLB;
	return map_series(s, bytes);
}

/* Returns the pages of the point's bytes to the kernel: they are untouched
 * again. */
static void untouch(void *arg)
{
	const struct point *point = arg;
	const struct series *s = point->series;
	struct pn_range range = pn_range_pages((uintptr_t)s->buffer,
					       point->bytes, s->page_bytes);

	madvise((void *)range.addr, range.len, MADV_DONTNEED);
}

/* --- one point ------------------------------------------------------------ */

static int measure_register(struct state *state, struct point *point)
{
	struct pn_measure_register m = {
		.addr = point->series->buffer,
		.len = point->bytes,
		.trials = pn_trials_begin(3, state->values->trials,
					  state->point_ns),
		.samples = state->samples,
		.before = point->series->present ? NULL : untouch,
		.arg = point,
	};
	int ret = pn_measure_register(state->run->device, &m);

	point->trials = m.n;
	point->register_us = m.register_ns / 1e3;
	point->deregister_us = m.deregister_ns / 1e3;
	return ret;
}

static double us_of(const struct timeval *t)
{
	return (double)t->tv_sec * 1e6 + (double)t->tv_usec;
}

/* Virtual time has no kernel. */
static int measure_share(struct state *state, struct point *point)
{
	struct pn_mr mr = { .addr = point->series->buffer,
			    .len = point->bytes };
	struct pn_mr *list = &mr;
	uint64_t end = pn_clock_ns() + SHARE_NS;
	struct rusage before, after;
	double user, kernel;
	int ret = 0;

	point->kernel_percent = NAN;
	if (state->run->virtual_time || !point->series->present)
		return 0;
	getrusage(RUSAGE_THREAD, &before);
	while (!ret && pn_clock_ns() < end) {
		ret = pn_device_register(state->run->device, &list, 1);
		if (!ret)
			pn_device_deregister(state->run->device, &list, 1);
	}
	getrusage(RUSAGE_THREAD, &after);
	user = us_of(&after.ru_utime) - us_of(&before.ru_utime);
	kernel = us_of(&after.ru_stime) - us_of(&before.ru_stime);
	point->kernel_percent = 100 * kernel / (user + kernel);
	return ret;
}

static int put_trials(struct state *state, struct pn_mr *mr, double *ns)
{
	struct pn_pair *pair = state->run->pair;
	struct pn_blocking_transfer move = pn_pair_move(pair, PN_OP_WRITE, mr);
	struct pn_trials trials;
	int ret =
		/* warm-up of both ends */
		pn_blocking_transfer(pair->device, &move);

	trials = pn_trials_begin(3, state->values->trials, state->point_ns / 2);
	return ret ? ret
		   : pn_measure_move(pair->device, &move, &trials,
				     state->samples, ns);
}

static int measure_put(struct state *state, struct point *point)
{
	struct pn_device *device = state->run->device;
	struct pn_mr mr = { .addr = point->series->buffer,
			    .len = point->bytes };
	struct pn_mr *list = &mr;
	double ns = NAN;
	int ret;

	point->put_us = NAN;
	if (!point->series->present || point->bytes > state->run->pair->bytes)
		return 0;
	ret = pn_device_register(device, &list, 1);
	if (ret)
		return ret;
	ret = put_trials(state, &mr, &ns);
	pn_device_deregister(device, &list, 1);
	point->put_us = ns / 1e3;
	return ret;
}

static void print_point(struct pn_report *report, const struct point *p)
{
	const struct pn_report_cell row[] = {
		PN_CELL_FLAG("fit", NULL, 0, false),
		PN_CELL_BYTES("bytes", "bytes", 8, p->bytes),
		PN_CELL_COUNT("pages", "pages", 8, p->pages),
		PN_CELL_BYTES("page_bytes", "of", 5, p->series->page_bytes),
		PN_CELL_FLAG("present", "present", 8, p->series->present),
		PN_CELL_COUNT("trials", "trials", 7, p->trials),
		PN_CELL_NUMBER("register_us", "register us", 12,
			       p->register_us),
		PN_CELL_NUMBER("deregister_us", "dereg. us", 10,
			       p->deregister_us),
		PN_CELL_NUMBER("put_us", "put us", 9, p->put_us),
		PN_CELL_NUMBER("register_ns_per_byte", "ns/byte", 9,
			       1e3 * p->register_us / (double)p->bytes),
		PN_CELL_NUMBER("kernel_percent", "kernel %", 8,
			       p->kernel_percent),
	};

	pn_report_row(report, row, PN_ARRAY_LEN(row));
}

static int measure_point(struct state *state, const struct series *s,
			 size_t bytes)
{
	struct pn_range range =
		pn_range_pages((uintptr_t)s->buffer, bytes, s->page_bytes);
	struct point point = { .series = s,
			       .bytes = bytes,
			       .pages = range.len / s->page_bytes };
	char text[PN_REPORT_BYTES_LEN];
	int ret;

	pn_report_progress(pn_report_bytes(bytes, text));
	state->point_ns = 2 * pn_bench_share_ns(state->run) / 3;
	ret = measure_register(state, &point);
	if (!ret)
		ret = measure_put(state, &point);
	if (!ret)
		ret = measure_share(state, &point);
	if (ret)
		return ret;
	print_point(&state->run->report, &point);
	state->x[state->npoints] = (double)point.pages;
	state->r[state->npoints] = point.register_us;
	state->d[state->npoints++] = point.deregister_us;
	return 0;
}

/* --- one series ----------------------------------------------------------- */

static void print_fit_json(struct pn_report *report, const struct series *s,
			   const struct pn_regression *r,
			   const struct pn_regression *d)
{
	const struct pn_report_cell row[] = {
		PN_CELL_FLAG("fit", NULL, 0, true),
		PN_CELL_BYTES("page_bytes", NULL, 0, s->page_bytes),
		PN_CELL_FLAG("present", NULL, 0, s->present),
		PN_CELL_NUMBER("register_us_fixed", NULL, 0, r->intercept),
		PN_CELL_NUMBER("register_us_per_page", NULL, 0, r->slope),
		PN_CELL_NUMBER("mean_residual_percent", NULL, 0,
			       100 * r->mean_residual),
		PN_CELL_NUMBER("max_residual_percent", NULL, 0,
			       100 * r->max_residual),
		PN_CELL_NUMBER("deregister_us_fixed", NULL, 0, d->intercept),
		PN_CELL_NUMBER("deregister_us_per_page", NULL, 0, d->slope),
		PN_CELL_NUMBER("deregister_mean_residual_percent", NULL, 0,
			       100 * d->mean_residual),
		PN_CELL_NUMBER("deregister_max_residual_percent", NULL, 0,
			       100 * d->max_residual),
	};

	pn_report_row(report, row, PN_ARRAY_LEN(row));
}

static void note_fit(struct pn_report *report, const char *what,
		     const struct pn_regression *fit)
{
	pn_report_note(report,
		       "  %-11s %.3f us + %.4f us/page (residuals: mean %.0f "
		       "%%, worst %.0f %%)",
		       what, fit->intercept, fit->slope,
		       100 * fit->mean_residual, 100 * fit->max_residual);
}

static int print_fit(struct state *state, const struct series *s)
{
	struct pn_report *report = &state->run->report;
	struct pn_regression r, d;
	int ret;

	if (!state->npoints)
		return 0;
	ret = pn_regression_line(state->x, state->r, state->npoints, &r);
	if (!ret)
		ret = pn_regression_line(state->x, state->d, state->npoints,
					 &d);
	if (ret)
		return ret;
	if (report->json) {
		print_fit_json(report, s, &r, &d);
		return 0;
	}
	note_fit(report, "register", &r);
	note_fit(report, "deregister", &d);
	return 0;
}

static int measure_sizes(struct state *state, const struct series *s)
{
	const struct pn_bench_values *v = &state->values->common;
	struct pn_device *device = state->run->device;
	int ret = 0;

	state->npoints = 0;
	pn_report_series(&state->run->report);
	for (size_t bytes = v->min; !ret && bytes <= v->max; bytes *= 2)
		if (bytes <= device->limits.max_mr_bytes)
			ret = measure_point(state, s, bytes);
	if (ret == -ENOMEM) {
		pn_report_note(&state->run->report,
			       "larger sizes exceed RLIMIT_MEMLOCK");
		ret = 0;
	}
	return ret ? ret : print_fit(state, s);
}

static int measure_series(struct state *state, bool huge, bool is_present)
{
	struct series s = {
		.policy = { .huge = PN_PAGES_NORMAL, .numa_node = -1 },
		.page_bytes = huge ? PN_PAGES_HUGE_BYTES : PN_PAGE_BYTES,
		.present = is_present,
	};
	size_t max = state->values->common.max;
	int ret = huge ? map_huge(&s, max) : map_series(&s, max);

	if (ret && huge) {
		pn_report_note(&state->run->report,
			       "\nno huge pages here: allow transparent ones "
			       "(madvise) or reserve some (vm.nr_hugepages)");
		return 0;
	}
	if (ret)
		return ret;
	ret = measure_sizes(state, &s);
	pn_pages_unmap(s.buffer, s.bytes, &s.policy);
	return ret;
}

/* --- all of them ---------------------------------------------------------- */

static bool wants(int which, bool second)
{
	return which == BOTH || which == (second ? SECOND : FIRST);
}

/* A simulated device has neither huge nor missing pages. */
static bool has_series(const struct state *state, bool huge, bool is_present)
{
	return wants(state->values->pages, huge) &&
	       wants(state->values->present, !is_present) &&
	       !(state->run->virtual_time && (huge || !is_present));
}

static int each_series(struct state *state)
{
	const struct pn_bench_values *v = &state->values->common;
	size_t npoints = 0;
	int ret = 0;

	for (int i = 0; i < 4; i++)
		if (has_series(state, i & 2, !(i & 1)))
			npoints += pn_bench_nsizes(v->min, v->max);
	pn_bench_plan(state->run, npoints);
	for (int i = 0; !ret && i < 4; i++)
		if (has_series(state, i & 2, !(i & 1)))
			ret = measure_series(state, i & 2, !(i & 1));
	return ret;
}

static int body(struct pn_bench_run *run)
{
	const struct values *values = run->values;
	struct state *state = calloc(1, sizeof(*state));
	double *samples = calloc(2 * values->trials, sizeof(*samples));
	int ret = -ENOMEM;

	if (state && samples) {
		state->run = run;
		state->values = values;
		state->samples = samples;
		ret = each_series(state);
	}
	free(samples);
	free(state);
	return ret;
}

static int run_register(const void *values, char *const *operands)
{
	(void)operands;
	return pn_bench_execute(&pn_bench_register, values, body);
}

const struct pn_command pn_bench_register = {
	.name = "register",
	.help = "what does registering memory cost by size?",
	.about = "Registers and deregisters ranges of present and of untouched "
		 "pages, of 4 KiB and of huge ones; computes a linear "
		 "regression over pages; compares with one put of as many "
		 "bytes between two processes.",
	.options = options,
	.noptions = PN_ARRAY_LEN(options),
	.values_bytes = sizeof(struct values),
	.run = run_register,
};
