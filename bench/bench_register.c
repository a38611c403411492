/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Question: what does registering memory cost by size, and how does that
 * compare with moving the bytes?
 *
 * Rows A4 and M9: 128 B to 256 MiB, pages present and never touched, 4 KiB and
 * huge pages. Each series ends with the line a * pages + b through its medians
 * (base/fit.h). put_us is one put of as many bytes between registered buffers
 * of two processes: where register_us is above it, registering on demand costs
 * more than the transfer itself.
 *
 * Pages never touched are made so again before every trial (MADV_DONTNEED), so
 * registering them includes faulting them in. Huge pages are real: smaps says
 * so, or the series is left out.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/fit.h"
#include "base/range.h"
#include "bench/bench.h"
#include "device/measure.h"

#define MAX_POINTS 48

enum which { FIRST, SECOND, BOTH };

struct values {
	char device[PN_OPTION_TEXT_BYTES];
	uint64_t min, max, trials, budget;
	int pages, present; /* enum which */
	bool json;
};

static const char *const page_choices[] = { "4k", "huge", "both", NULL };
static const char *const present_choices[] = { "yes", "no", "both", NULL };

#define FIELD(name) offsetof(struct values, name)

static const struct pn_option options[] = {
	PN_COMMAND_DEVICE(struct values, device),
	{ "min", PN_OPTION_BYTES, "128", "smallest size", FIELD(min), 1, 0,
	  NULL },
	{ "max", PN_OPTION_BYTES, "256M", "largest size", FIELD(max), 1,
	  UINT64_C(1) << 40, NULL },
	{ "trials", PN_OPTION_NUMBER, "1000",
	  "registrations per size (fewer where the budget does not allow it)",
	  FIELD(trials), 1, 100000, NULL },
	{ "pages", PN_OPTION_CHOICE, "both", "pages of 4 KiB, or of 2 MiB",
	  FIELD(pages), 0, 0, page_choices },
	{ "present", PN_OPTION_CHOICE, "both",
	  "pages touched before, or never touched", FIELD(present), 0, 0,
	  present_choices },
	PN_BENCH_BUDGET(struct values, budget, "20s"),
	PN_COMMAND_JSON(struct values, json),
};

/* One buffer and how its pages are. */
struct series {
	struct pn_pages_policy policy;
	size_t page_bytes;
	bool present;
	char *buffer;
	size_t bytes; /* of it */
};

struct point {
	size_t bytes, pages, trials;
	double register_us, deregister_us, put_us;
};

struct state {
	struct pn_bench_run *run;
	const struct values *values;
	uint64_t point_ns;
	double *reg, *dereg; /* samples, values->trials of each */
	double x[MAX_POINTS], r[MAX_POINTS], d[MAX_POINTS]; /* for the fit */
	size_t npoints;
};

/* --- pages ---------------------------------------------------------------- */

/* Bytes of [addr, addr + len) that smaps says lie on transparent huge pages;
 * mappings may have been merged or split, so whole ones count. */
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

/* Maps huge pages that are huge indeed: transparent ones if the kernel gives
 * them, else reserved ones. */
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

/* Gives the pages behind the first bytes back: they are untouched again. */
static void untouch(const struct series *s, size_t bytes)
{
	struct pn_range range =
		pn_range_pages((uintptr_t)s->buffer, bytes, s->page_bytes);

	madvise((void *)range.addr, range.len, MADV_DONTNEED);
}

/* --- one point ------------------------------------------------------------ */

static int register_trials(struct state *state, const struct series *s,
			   struct point *point)
{
	struct pn_device *device = state->run->device;
	struct pn_mr mr = { .addr = s->buffer,
			    .len = point->bytes,
			    .access = PINION_ACCESS_LOCAL_WRITE };
	struct pn_point limit =
		pn_point_begin(3, state->values->trials, state->point_ns);
	struct pn_mr *list = &mr;
	size_t n;

	for (n = 0; pn_point_go_on(&limit, n); n++) {
		uint64_t start;
		int ret;

		if (!s->present)
			untouch(s, point->bytes);
		start = pn_device_now(device);
		ret = pn_device_register(device, &list, 1);
		if (ret)
			return ret;
		state->reg[n] = pn_since_us(device, start);
		start = pn_device_now(device);
		pn_device_deregister(device, &list, 1);
		state->dereg[n] = pn_since_us(device, start);
	}
	point->trials = n;
	point->register_us = pn_median(state->reg, n);
	point->deregister_us = pn_median(state->dereg, n);
	return 0;
}

static int put_trials(struct state *state, struct pn_mr *mr,
		      struct point *point)
{
	struct pn_pair *pair = state->run->pair;
	struct pn_step_move move = { .kind = PN_OP_WRITE,
				     .peer = pair->peer,
				     .local = mr->addr,
				     .lkey = mr->lkey,
				     .remote_addr = pair->remote_addr,
				     .rkey = pair->rkey,
				     .len = mr->len };
	struct pn_point limit =
		pn_point_begin(3, state->values->trials, state->point_ns / 2);
	int ret = pn_step_move(pair->device, &move); /* warms both ends */
	size_t n;

	for (n = 0; !ret && pn_point_go_on(&limit, n); n++) {
		uint64_t start = pn_device_now(pair->device);

		ret = pn_step_move(pair->device, &move);
		state->reg[n] = pn_since_us(pair->device, start);
	}
	if (!ret)
		point->put_us = pn_median(state->reg, n);
	return ret;
}

static int measure_put(struct state *state, const struct series *s,
		       struct point *point)
{
	struct pn_device *device = state->run->device;
	struct pn_mr mr = { .addr = s->buffer, .len = point->bytes };
	struct pn_mr *list = &mr;
	int ret;

	point->put_us = NAN;
	if (!s->present || point->bytes > state->run->pair->bytes)
		return 0;
	ret = pn_device_register(device, &list, 1);
	if (ret)
		return ret;
	ret = put_trials(state, &mr, point);
	pn_device_deregister(device, &list, 1);
	return ret;
}

static void print_point(struct pn_report *report, const struct series *s,
			const struct point *p)
{
	static const struct pn_report_column columns[] = {
		{ "fit", NULL, PN_REPORT_FLAG, 0 },
		{ "bytes", "bytes", PN_REPORT_BYTES, 8 },
		{ "pages", "pages", PN_REPORT_COUNT, 8 },
		{ "page_bytes", "of", PN_REPORT_BYTES, 5 },
		{ "present", "present", PN_REPORT_FLAG, 8 },
		{ "trials", "trials", PN_REPORT_COUNT, 7 },
		{ "register_us", "register us", PN_REPORT_NUMBER, 12 },
		{ "deregister_us", "dereg. us", PN_REPORT_NUMBER, 10 },
		{ "put_us", "put us", PN_REPORT_NUMBER, 9 },
	};
	const union pn_report_value row[] = {
		{ .flag = false },
		{ .count = p->bytes },
		{ .count = p->pages },
		{ .count = s->page_bytes },
		{ .flag = s->present },
		{ .count = p->trials },
		{ .number = p->register_us },
		{ .number = p->deregister_us },
		{ .number = p->put_us },
	};

	pn_report_row(report, columns, PN_ARRAY_LEN(columns), row);
}

static int measure_point(struct state *state, const struct series *s,
			 size_t bytes)
{
	struct point point = {
		.bytes = bytes,
		.pages = pn_range_pages((uintptr_t)s->buffer, bytes,
					s->page_bytes)
				 .len /
			 s->page_bytes,
	};
	char text[PN_REPORT_BYTES_LEN];
	int ret;

	pn_report_progress(pn_report_bytes(bytes, text));
	ret = register_trials(state, s, &point);
	if (!ret)
		ret = measure_put(state, s, &point);
	if (ret)
		return ret;
	print_point(&state->run->report, s, &point);
	state->x[state->npoints] = (double)point.pages;
	state->r[state->npoints] = point.register_us;
	state->d[state->npoints++] = point.deregister_us;
	return 0;
}

/* --- one series ----------------------------------------------------------- */

static void print_fit_json(struct pn_report *report, const struct series *s,
			   const struct pn_fit *r, const struct pn_fit *d)
{
	static const struct pn_report_column columns[] = {
		{ "fit", NULL, PN_REPORT_FLAG, 0 },
		{ "page_bytes", NULL, PN_REPORT_BYTES, 0 },
		{ "present", NULL, PN_REPORT_FLAG, 0 },
		{ "register_us_fixed", NULL, PN_REPORT_NUMBER, 0 },
		{ "register_us_per_page", NULL, PN_REPORT_NUMBER, 0 },
		{ "mean_residual_percent", NULL, PN_REPORT_NUMBER, 0 },
		{ "max_residual_percent", NULL, PN_REPORT_NUMBER, 0 },
		{ "deregister_us_fixed", NULL, PN_REPORT_NUMBER, 0 },
		{ "deregister_us_per_page", NULL, PN_REPORT_NUMBER, 0 },
		{ "deregister_mean_residual_percent", NULL, PN_REPORT_NUMBER,
		  0 },
		{ "deregister_max_residual_percent", NULL, PN_REPORT_NUMBER,
		  0 },
	};
	const union pn_report_value row[] = {
		{ .flag = true },
		{ .count = s->page_bytes },
		{ .flag = s->present },
		{ .number = r->intercept },
		{ .number = r->slope },
		{ .number = 100 * r->mean_residual },
		{ .number = 100 * r->max_residual },
		{ .number = d->intercept },
		{ .number = d->slope },
		{ .number = 100 * d->mean_residual },
		{ .number = 100 * d->max_residual },
	};

	pn_report_row(report, columns, PN_ARRAY_LEN(columns), row);
}

static void note_fit(struct pn_report *report, const char *what,
		     const struct pn_fit *fit)
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
	struct pn_fit r, d;
	int ret;

	if (!state->npoints)
		return 0;
	ret = pn_fit_line(state->x, state->r, state->npoints, &r);
	if (!ret)
		ret = pn_fit_line(state->x, state->d, state->npoints, &d);
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
	const struct values *v = state->values;
	struct pn_device *device = state->run->device;
	int ret = 0;

	state->npoints = 0;
	state->run->report.last = NULL; /* each series has its head */
	for (size_t bytes = v->min; !ret && bytes <= v->max; bytes *= 2)
		if (bytes <= device->limits.max_mr_bytes)
			ret = measure_point(state, s, bytes);
	if (ret == -ENOMEM) {
		pn_report_note(&state->run->report,
			       "more cannot be pinned: RLIMIT_MEMLOCK");
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
	int ret = huge ? map_huge(&s, state->values->max)
		       : map_series(&s, state->values->max);

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

/* A simulated device knows neither huge nor missing pages. */
static bool has_series(const struct state *state, bool huge, bool is_present)
{
	return wants(state->values->pages, huge) &&
	       wants(state->values->present, !is_present) &&
	       !(state->run->virtual_time && (huge || !is_present));
}

static int each_series(struct state *state)
{
	size_t nsizes =
		pn_bench_nsizes(state->values->min, state->values->max, 2);
	unsigned nseries = 0;
	int ret = 0;

	for (int i = 0; i < 4; i++)
		nseries += has_series(state, i & 2, !(i & 1));
	/* Putting takes half as long as registering. */
	state->point_ns = nseries && nsizes ? 2 * state->values->budget /
						      (3 * nseries * nsizes)
					    : 0;
	for (int i = 0; !ret && i < 4; i++)
		if (has_series(state, i & 2, !(i & 1)))
			ret = measure_series(state, i & 2, !(i & 1));
	return ret;
}

static int body(struct pn_bench_run *run)
{
	const struct values *values = run->arg;
	struct state *state = calloc(1, sizeof(*state));
	double *samples = calloc(2 * values->trials + 6, sizeof(*samples));
	int ret = -ENOMEM;

	if (state && samples) {
		state->run = run;
		state->values = values;
		state->reg = samples;
		state->dereg = samples + values->trials + 3;
		ret = each_series(state);
	}
	free(samples);
	free(state);
	return ret;
}

static int run_register(const void *v, char *const *operands)
{
	struct values values = *(const struct values *)v;
	struct pn_bench bench = {
		.name = "register",
		.question = "what does registering memory cost by size?",
		.device = values.device,
		.bytes = values.max,
		.json = values.json,
	};

	(void)operands;
	if (values.min > values.max)
		return pn_usage_error("--min is above --max");
	return pn_bench_go(&bench, body, &values);
}

const struct pn_command pn_bench_register = {
	.name = "register",
	.help = "what does registering memory cost by size?",
	.about =
		"Registers and deregisters 128 B to 256 MiB: pages present and "
		"never touched, 4 KiB and huge pages; fits a line over pages; "
		"beside it one put of as many bytes between two processes.",
	.options = options,
	.noptions = PN_ARRAY_LEN(options),
	.values_bytes = sizeof(struct values),
	.run = run_register,
};
