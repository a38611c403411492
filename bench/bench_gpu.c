/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What do the papers' mechanisms bring where the adapter is a GPU (row G7)?
 *
 * transfer: host memory whose pages are present goes to the GPU `reuse` times.
 * Times are for one of these uses.
 *   driver            the driver's own copy of unpinned memory
 *   demand            register, copy, deregister (Woodall and others 2006)
 *   pipeline          the same in fragments; one is copied while the next one
 *                     is registered
 *   caching-pipeline  fragments stay registered
 *   cached            all of it is registered once and stays so
 *   heap              from a heap: registered when it was allocated (Levy and
 *                     others 2020)
 * Methods alternate within a trial; the median of the trials counts.
 *
 * helper: a program with a rhythm (rhythm.h) that copies its buffers to the
 * GPU, left pinned and with the helper.
 *
 * Nothing here uses a cost profile: times are measured.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <pinion/pinion.h>

#include "base/clock.h"
#include "bench/bench.h"
#include "bench/rhythm.h"
#include "context.h"
#include "device/blocking.h"
#include "device/cuda/cuda.h"
#include "device/measure.h"

#define MAX_TRIALS 15

static const char *const experiments[] = { "transfer", "helper", NULL };

enum { TRANSFER, HELPER };

struct values {
	char device[PN_OPTION_TEXT_BYTES];
	uint64_t experiment;
	uint64_t min, max, fragment, budget;
	uint64_t buffers, bytes, period, periods;
	bool json;
};

#define AT(name) offsetof(struct values, name)

static const struct pn_option options[] = {
	{ "device", PN_OPTION_TEXT, "cuda", "the GPU: cuda, or cuda:1",
	  AT(device), 0, 0, NULL },
	{ "experiment", PN_OPTION_CHOICE, "transfer", "what to measure",
	  AT(experiment), 0, 0, experiments },
	{ "min", PN_OPTION_BYTES, "1M", "transfer: smallest size", AT(min),
	  4096, UINT64_C(1) << 36, NULL },
	{ "max", PN_OPTION_BYTES, "256M", "transfer: largest size", AT(max),
	  4096, UINT64_C(1) << 36, NULL },
	{ "fragment", PN_OPTION_BYTES, "4M", "transfer: length of a fragment",
	  AT(fragment), 4096, UINT64_C(1) << 36, NULL },
	{ "budget", PN_OPTION_TIME, "20s", "transfer: approximate time limit",
	  AT(budget), PN_NS_PER_MS, 0, NULL },
	{ "buffers", PN_OPTION_NUMBER, "16", "helper: how many buffers",
	  AT(buffers), 1, PN_RHYTHM_BUFFERS, NULL },
	{ "bytes", PN_OPTION_BYTES, "16M", "helper: length of a buffer",
	  AT(bytes), 4096, UINT64_C(1) << 32, NULL },
	{ "period", PN_OPTION_TIME, "800ms", "helper: a period", AT(period),
	  PN_NS_PER_MS, 0, NULL },
	{ "periods", PN_OPTION_NUMBER, "16", "helper: how many periods count",
	  AT(periods), 1, 10000, NULL },
	PN_COMMAND_JSON(struct values, json),
};

struct state {
	const struct values *values;
	struct pn_report report;
	struct pinion_context *context;
	struct pn_device *device;
	const struct pn_cuda_driver *cu;
	struct pn_peer *peer;
	char name[96];	    /* of the GPU; a stand-in's says so */
	uint64_t gpu, rkey; /* memory there */
	char *buffer, *from_heap;
	struct pinion_heap *heap;
};

/* --- one use, by each method -----------------------------------------------
 */

static int put(struct state *s, char *from, size_t len, uint64_t lkey,
	       size_t offset)
{
	struct pn_blocking_transfer move = { .kind = PN_OP_WRITE,
					     .peer = s->peer,
					     .local = from + offset,
					     .lkey = lkey,
					     .remote_addr = s->gpu + offset,
					     .rkey = s->rkey,
					     .len = len };

	return pn_blocking_transfer(s->device, &move);
}

static int by_driver(struct state *s, size_t bytes)
{
	struct pn_cuda_scope scope;
	int ret = pn_cuda_enter(s->device, &scope);

	if (ret)
		return ret;
	ret = pn_cuda_errno(s->cu->memcpy_htod(s->gpu, s->buffer, bytes));
	pn_cuda_leave(s->device, &scope);
	return ret;
}

static int by_demand(struct state *s, size_t bytes)
{
	struct pn_mr mr = { .addr = s->buffer, .len = bytes }, *one = &mr;
	int ret = pn_device_register(s->device, &one, 1);

	if (ret)
		return ret;
	ret = put(s, s->buffer, bytes, mr.lkey, 0);
	pn_device_deregister(s->device, &one, 1);
	return ret;
}

static int post_fragment(struct state *s, const struct pn_mr *mr)
{
	struct pn_sge sge = { mr->addr, mr->len, mr->lkey };
	struct pn_op op = { .kind = PN_OP_WRITE,
			    .sge = &sge,
			    .nsge = 1,
			    .remote_addr =
				    s->gpu +
				    (uint64_t)((char *)mr->addr - s->buffer),
			    .rkey = s->rkey };

	return pn_device_post(s->device, s->peer, &op);
}

static int end_fragment(struct state *s, struct pn_mr *mr)
{
	struct pn_completion c;
	int ret = pn_blocking_poll(s->device, PN_COMPLETION_OP, &c);

	pn_device_deregister(s->device, &mr, 1);
	return ret;
}

/* Two fragments are registered at a time. */
static int by_pipeline(struct state *s, size_t bytes)
{
	size_t step = pn_min_size(s->values->fragment, bytes), n = 0;
	struct pn_mr mrs[2], *one;
	int ret = 0;

	for (size_t at = 0; !ret && at < bytes; at += step, n++) {
		one = &mrs[n % 2];
		*one = (struct pn_mr){ .addr = s->buffer + at,
				       .len = pn_min_size(step, bytes - at) };
		ret = pn_device_register(s->device, &one, 1);
		if (!ret)
			ret = post_fragment(s, one);
		if (!ret && n)
			ret = end_fragment(s, &mrs[(n - 1) % 2]);
	}
	return ret ? ret : end_fragment(s, &mrs[(n - 1) % 2]);
}

static int put_pinned(struct state *s, char *from, size_t bytes, size_t offset)
{
	struct pinion_pin_segment segment;
	struct pinion_pin pin;
	int ret = pinion_pin(s->context, from + offset, bytes, 0, &pin);

	if (ret)
		return ret;
	for (unsigned i = 0; !ret && i < pin.nsegments; i++) {
		ret = pinion_pin_segment(&pin, i, &segment);
		if (!ret)
			ret = put(s, from, segment.len, segment.local_key,
				  (size_t)((char *)segment.addr - from));
	}
	pinion_unpin(s->context, &pin);
	return ret;
}

/* Posts all segments of a pin. */
static int post_pinned(struct state *s, struct pinion_pin *pin)
{
	struct pinion_pin_segment segment;
	int ret = 0;

	for (unsigned i = 0; !ret && i < pin->nsegments; i++) {
		ret = pinion_pin_segment(pin, i, &segment);
		if (!ret)
			ret = post_fragment(
				s,
				&(struct pn_mr){ .addr = segment.addr,
						 .len = segment.len,
						 .lkey = segment.local_key });
	}
	return ret;
}

static int end_pinned(struct state *s, struct pinion_pin *pin)
{
	struct pn_completion c;
	int ret = 0;

	for (unsigned i = 0; !ret && i < pin->nsegments; i++)
		ret = pn_blocking_poll(s->device, PN_COMPLETION_OP, &c);
	pinion_unpin(s->context, pin);
	return ret;
}

/* As by_pipeline(), with pins: fragments stay registered. */
static int by_caching_pipeline(struct state *s, size_t bytes)
{
	size_t step = pn_min_size(s->values->fragment, bytes), n = 0;
	struct pinion_pin pins[2];
	int ret = 0;

	for (size_t at = 0; !ret && at < bytes; at += step, n++) {
		ret = pinion_pin(s->context, s->buffer + at,
				 pn_min_size(step, bytes - at), 0,
				 &pins[n % 2]);
		if (!ret)
			ret = post_pinned(s, &pins[n % 2]);
		if (!ret && n)
			ret = end_pinned(s, &pins[(n - 1) % 2]);
	}
	return ret ? ret : end_pinned(s, &pins[(n - 1) % 2]);
}

static int by_cache(struct state *s, size_t bytes)
{
	return put_pinned(s, s->buffer, bytes, 0);
}

static int from_heap(struct state *s, size_t bytes)
{
	return put_pinned(s, s->from_heap, bytes, 0);
}

static const struct {
	const char *name;
	int (*use)(struct state *s, size_t bytes);
} methods[] = {
	{ "driver", by_driver },
	{ "demand", by_demand },
	{ "pipeline", by_pipeline },
	{ "caching-pipeline", by_caching_pipeline },
	{ "cached", by_cache },
	{ "heap", from_heap },
};

/* --- transfer ----------------------------------------------------------------
 */

static const unsigned reuses[] = { 1, 4, 16 };

#define NPOINTS (PN_ARRAY_LEN(methods) * PN_ARRAY_LEN(reuses))

/* ns for one of n uses; negative: an error. */
static double time_uses(struct state *s, unsigned m, size_t bytes, unsigned n)
{
	uint64_t start;
	int ret = 0;

	pn_cache_flush(s->context->cache);
	start = pn_device_now(s->device);
	for (unsigned i = 0; !ret && i < n; i++)
		ret = methods[m].use(s, bytes);
	return ret ? (double)ret : pn_device_since(s->device, start) / n;
}

static void print_point(struct state *s, size_t bytes, unsigned point,
			double ns)
{
	const struct pn_report_cell row[] = {
		PN_CELL_TEXT("experiment", NULL, 0, "transfer"),
		PN_CELL_TEXT("gpu", NULL, 0, s->name),
		PN_CELL_BYTES("bytes", "bytes", 8, bytes),
		PN_CELL_COUNT("reuse", "uses", 6, reuses[point % 3]),
		PN_CELL_TEXT("method", "method", -18, methods[point / 3].name),
		PN_CELL_NUMBER("use_us", "us a use", 12, ns / 1e3),
		PN_CELL_NUMBER("gbps", "GB/s", 10, (double)bytes / ns),
		/* As `pinion bench message` names them. */
		PN_CELL_TEXT("protocol", NULL, 0, methods[point / 3].name),
		PN_CELL_NUMBER("bytes_per_s", NULL, 0,
			       1e9 * (double)bytes / ns),
	};

	pn_report_row(&s->report, row, PN_ARRAY_LEN(row));
}

/* What the cost model needs to know of this GPU (tools/pinion/cost_model.h). */
static int print_costs(struct state *s)
{
	const struct pn_costs *c = &s->device->costs;
	int ret = pn_device_measure(s->device, NULL);
	const struct pn_report_cell row[] = {
		PN_CELL_TEXT("experiment", NULL, 0, "costs"),
		PN_CELL_TEXT("gpu", NULL, 0, s->name),
		PN_CELL_FLAG("fit", NULL, 0, true),
		PN_CELL_NUMBER("register_us_fixed", NULL, 0,
			       c->register_ns / 1e3),
		PN_CELL_NUMBER("register_us_per_page", NULL, 0,
			       c->register_page_ns / 1e3),
		PN_CELL_NUMBER("deregister_us_fixed", NULL, 0,
			       c->deregister_ns / 1e3),
		PN_CELL_NUMBER("deregister_us_per_page", NULL, 0,
			       c->deregister_page_ns / 1e3),
		PN_CELL_NUMBER("put_us_fixed", NULL, 0, c->put_ns / 1e3),
		PN_CELL_NUMBER("put_gbps", NULL, 0, 1 / c->put_byte_ns),
		PN_CELL_NUMBER("copy_gbps", NULL, 0, 1 / c->copy_byte_ns),
	};

	if (!ret && s->values->json)
		pn_report_row(&s->report, row, PN_ARRAY_LEN(row));
	return ret;
}

static int measure_size(struct state *s, size_t bytes, uint64_t share_ns)
{
	static double samples[NPOINTS][MAX_TRIALS];
	struct pn_trials trials = pn_trials_begin(3, MAX_TRIALS, share_ns);
	size_t n;

	for (n = 0; pn_trials_continue(&trials, n); n++)
		for (unsigned p = 0; p < NPOINTS; p++) {
			double ns = time_uses(s, p / 3, bytes, reuses[p % 3]);

			if (ns < 0)
				return (int)ns;
			samples[p][n] = ns;
		}
	for (unsigned p = 0; p < NPOINTS; p++)
		print_point(s, bytes, p, pn_median(samples[p], n));
	return 0;
}

#define HUGE_BYTES ((size_t)2 << 20)

static int open_memory(struct state *s, size_t bytes)
{
	struct pn_address address;
	int ret = s->device->ops->scratch(s->device, bytes, &s->gpu, &s->rkey);

	if (ret)
		return ret;
	pn_device_address(s->device, &address);
	ret = pn_device_attach(s->device, &address, &s->peer);
	if (ret)
		return ret;
	s->buffer = aligned_alloc(HUGE_BYTES,
				  (bytes + HUGE_BYTES - 1) & ~(HUGE_BYTES - 1));
	ret = pinion_heap_open(s->context, NULL, &s->heap);
	if (!ret)
		s->from_heap = pinion_heap_malloc(s->heap, bytes);
	if (!s->buffer || !s->from_heap)
		return -ENOMEM;
	memset(s->buffer, 1, bytes);
	memset(s->from_heap, 2, bytes);
	return 0;
}

static void close_memory(struct state *s)
{
	if (s->heap) {
		pinion_heap_free(s->heap, s->from_heap);
		pinion_heap_close(s->heap);
	}
	free(s->buffer);
	if (s->gpu)
		s->device->ops->scratch_free(s->device, s->gpu);
}

static void name_gpu(struct state *s)
{
	struct pn_cuda_scope scope;
	pn_cu_device number = 0;

	if (pn_cuda_enter(s->device, &scope))
		return;
	if (s->cu->ctx_get_device(&number) ||
	    s->cu->device_get_name(s->name, sizeof(s->name), number))
		snprintf(s->name, sizeof(s->name), "unknown");
	pn_cuda_leave(s->device, &scope);
}

static int open_context(struct state *s, const char *const *more, size_t n)
{
	char device[PN_OPTION_TEXT_BYTES + 8];
	const char *given[8] = { device, "cuda_keep=yes", "cache_merge=no" };
	struct pinion_attr attr = { .size = sizeof(attr), .options = given };
	int ret;

	snprintf(device, sizeof(device), "device=%s", s->values->device);
	for (size_t i = 0; i < n; i++)
		given[3 + i] = more[i];
	ret = pinion_open(&attr, &s->context);
	if (ret)
		return ret;
	s->device = s->context->device;
	if (!pn_device_is_cuda(s->device)) {
		pn_usage_error("'%s' is no GPU", s->values->device);
		pinion_close(s->context);
		s->context = NULL;
		return -ENODEV;
	}
	s->cu = pn_cuda_driver_of(s->device);
	name_gpu(s);
	return 0;
}

static int run_transfer(struct state *s)
{
	size_t nsizes = pn_bench_nsizes(s->values->min, s->values->max);
	int ret = open_context(s, NULL, 0);

	if (ret)
		return ret;
	pn_report_device(&s->report, s->device);
	pn_report_head(&s->report, "the papers' mechanisms on a GPU");
	ret = print_costs(s);
	if (!ret)
		ret = open_memory(s, s->values->max);
	for (size_t bytes = s->values->min;
	     !ret && bytes && bytes <= s->values->max; bytes *= 2)
		ret = measure_size(s, bytes, s->values->budget / nsizes);
	close_memory(s);
	pinion_close(s->context);
	return ret;
}

/* --- helper ------------------------------------------------------------------
 */

static size_t buffer_bytes(const struct state *s)
{
	return (s->values->bytes + 4095) & ~(size_t)4095;
}

static int helper_open(void *arg, const char *const *more, size_t n,
		       struct pinion_context **out)
{
	struct state *s = arg;
	int ret = open_context(s, more, n);

	if (ret)
		return ret;
	*out = s->context;
	ret = open_memory(s, buffer_bytes(s) * s->values->buffers);
	/* Only the program's buffers count. */
	pinion_heap_free(s->heap, s->from_heap);
	pinion_heap_close(s->heap);
	s->heap = NULL;
	return ret;
}

static void helper_close(void *arg)
{
	struct state *s = arg;

	close_memory(s);
	pinion_close(s->context);
	s->context = NULL;
	s->buffer = NULL;
	s->gpu = 0;
}

static int copy_buffer(void *arg, unsigned buffer)
{
	struct state *s = arg;

	return put_pinned(s, s->buffer, s->values->bytes,
			  buffer * buffer_bytes(s));
}

static int run_helper(struct state *s)
{
	const struct values *v = s->values;
	const struct pn_rhythm rhythm = { .buffers = (unsigned)v->buffers,
					  .periods = (unsigned)v->periods,
					  .period_ns = v->period,
					  .open = helper_open,
					  .use = copy_buffer,
					  .close = helper_close,
					  .arg = s,
					  .experiment = "helper",
					  .key = "gpu",
					  .value = s->name };

	pn_report_head(&s->report, "the helper with a periodic program");
	return pn_rhythm_run(&rhythm, &s->report);
}

static int run_gpu(const void *v, char *const *operands)
{
	struct state s = { .values = v };
	int ret;

	(void)operands;
	s.report = (struct pn_report){ .json = s.values->json,
				       .bench = "gpu",
				       .device = s.values->device };
	if (s.values->min > s.values->max)
		return pn_usage_error("--min is above --max");
	ret = s.values->experiment == HELPER ? run_helper(&s)
					     : run_transfer(&s);
	return ret ? pn_failed("gpu", ret) : PN_EXIT_OK;
}

const struct pn_command pn_bench_gpu = {
	.name = "gpu",
	.help = "what do the papers' mechanisms bring on a GPU?",
	.about = "Copies of host memory to a GPU by demand, pipeline, caching "
		 "pipeline, from the cache and from a heap; and the helper "
		 "with a periodic program. Times are measured.",
	.options = options,
	.noptions = PN_ARRAY_LEN(options),
	.values_bytes = sizeof(struct values),
	.run = run_gpu,
};
