/* SPDX-License-Identifier: BSD-2-Clause */
#include "bench/bench.h"

size_t pn_bench_nsizes(size_t min, size_t max)
{
	size_t n = 0;

	for (size_t size = min; size && size <= max; size *= 2)
		n++;
	return n;
}

void pn_bench_plan(struct pn_bench_run *run, size_t npoints)
{
	const struct pn_bench_values *values = run->values;

	run->end_ns = pn_clock_ns() + values->budget;
	run->left = npoints;
}

uint64_t pn_bench_share_ns(struct pn_bench_run *run)
{
	uint64_t now = pn_clock_ns();
	size_t left = run->left ? run->left-- : 1;

	return now < run->end_ns ? (run->end_ns - now) / left : 0;
}

int pn_bench_run_rounds(struct pn_bench_run *run,
			const struct pn_bench_rounds *rounds, size_t size,
			uint64_t share_ns, size_t *n)
{
	bool once = run->virtual_time;
	struct pn_trials trials;
	/* warm-up; overwritten */
	int ret = rounds->round(rounds->arg, size, 0);

	trials = pn_trials_begin(once ? 1 : rounds->fewest,
				 once ? 1 : rounds->most, share_ns);
	for (*n = 0; !ret && pn_trials_continue(&trials, *n); ++*n)
		ret = rounds->round(rounds->arg, size, *n);
	return ret;
}

/* Arguments of body_of(), which runs between the two ends. */
struct started {
	const struct pn_command *command;
	const struct pn_bench_values *values;
	pn_bench_fn *body;
	struct pn_bench_run run;
};

static int body_of(struct pn_pair *pair, void *arg)
{
	struct started *s = arg;
	char text[PN_REPORT_BYTES_LEN];

	s->run.pair = pair;
	s->run.device = pair->device;
	s->run.virtual_time = pair->device->caps & PN_CAP_VIRTUAL_TIME;
	pn_report_device(&s->run.report, pair->device);
	pn_report_head(&s->run.report, s->command->help);
	if (pair->bytes < s->values->max)
		pn_report_note(&s->run.report,
			       "the target may not pin more than %s: larger "
			       "sizes are skipped",
			       pn_report_bytes(pair->bytes, text));
	return s->body(&s->run);
}

int pn_bench_execute(const struct pn_command *command, const void *values,
		     pn_bench_fn *body)
{
	struct started s = { .command = command,
			     .values = values,
			     .body = body,
			     .run = { .values = values } };
	struct pn_spec spec;
	int ret;

	if (s.values->min > s.values->max)
		return pn_usage_error("--min is above --max");
	if (pn_spec_find(&spec, s.values->device))
		return PN_EXIT_FAILED;
	s.run.report = (struct pn_report){ .json = s.values->json,
					   .bench = command->name,
					   .device = spec.text };
	ret = pn_pair_run(&spec, s.values->max, body_of, &s);
	pn_report_progress(NULL);
	if (ret == PN_BENCH_REPORTED)
		return PN_EXIT_FAILED;
	return ret ? pn_spec_exit(command->name, ret) : PN_EXIT_OK;
}
