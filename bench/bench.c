/* SPDX-License-Identifier: BSD-2-Clause */
#include "bench/bench.h"

struct pn_point pn_point_begin(size_t fewest, size_t most, uint64_t budget_ns)
{
	return (struct pn_point){ .fewest = fewest < most ? fewest : most,
				  .most = most,
				  .deadline_ns = pn_clock_ns() + budget_ns };
}

double pn_since_us(struct pn_device *device, uint64_t start)
{
	uint64_t now = pn_device_now(device);

	return (now > start ? (double)(now - start) : 1) / 1e3;
}

size_t pn_bench_nsizes(size_t min, size_t max, size_t factor)
{
	size_t n = 0;

	for (size_t size = min; size && size <= max; size *= factor)
		n++;
	return n;
}

struct started {
	const struct pn_bench *bench;
	pn_bench_fn *body;
	struct pn_bench_run run;
};

static int body_of(struct pn_pair *pair, void *arg)
{
	struct started *s = arg;

	s->run.pair = pair;
	s->run.device = pair->device;
	s->run.virtual_time = pair->device->caps & PN_CAP_VIRTUAL_TIME;
	pn_report_device(&s->run.report, pair->device);
	pn_report_head(&s->run.report, s->bench->question);
	if (pair->bytes < s->bench->bytes) {
		char text[PN_REPORT_BYTES_LEN];

		pn_report_note(&s->run.report,
			       "only %s can be pinned at the target: larger "
			       "sizes are left out",
			       pn_report_bytes(pair->bytes, text));
	}
	return s->body(&s->run);
}

int pn_bench_go(const struct pn_bench *bench, pn_bench_fn *body, void *arg)
{
	struct started s = { .bench = bench, .body = body };
	struct pn_spec spec;
	int ret;

	if (pn_spec_find(&spec, bench->device))
		return PN_EXIT_FAILED;
	s.run.arg = arg;
	s.run.report = (struct pn_report){ .json = bench->json,
					   .bench = bench->name,
					   .device = spec.text };
	ret = pn_pair_run(&spec, bench->bytes, body_of, &s);
	pn_report_progress(NULL);
	return ret ? pn_spec_exit(bench->name, ret) : PN_EXIT_OK;
}
