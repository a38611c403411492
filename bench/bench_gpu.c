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
 * helper: a program with a rhythm (Li and others 2011): in each period every
 * buffer is copied once, with computing in between. Left pinned, and with the
 * helper, which deregisters a buffer after each use and registers it before the
 * next one. `late` is the share of the uses that came before the buffer was
 * registered again; memory is the mean of what was registered, after the first
 * periods, in which the helper learns.
 *
 * Nothing here uses a cost profile: times are measured.
 */
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <pinion/pinion.h>

#include "base/clock.h"
#include "bench/bench.h"
#include "context.h"
#include "device/blocking.h"
#include "device/cuda/cuda.h"

#define MAX_TRIALS  15
#define MAX_BUFFERS 64
#define LEARNING    4 /* periods that do not count */

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
	  AT(buffers), 1, MAX_BUFFERS, NULL },
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
		PN_CELL_BYTES("bytes", "bytes", 8, bytes),
		PN_CELL_COUNT("reuse", "uses", 6, reuses[point % 3]),
		PN_CELL_TEXT("method", "method", -18, methods[point / 3].name),
		PN_CELL_NUMBER("use_us", "us a use", 12, ns / 1e3),
		PN_CELL_NUMBER("gbps", "GB/s", 10, (double)bytes / ns),
	};

	pn_report_row(&s->report, row, PN_ARRAY_LEN(row));
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
	s->buffer = aligned_alloc(2 << 20, bytes);
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
		return -ENODEV;
	}
	s->cu = pn_cuda_driver_of(s->device);
	return 0;
}

static int run_transfer(struct state *s)
{
	size_t nsizes = pn_bench_nsizes(s->values->min, s->values->max);
	int ret = open_context(s, NULL, 0);

	if (ret)
		return ret;
	ret = open_memory(s, s->values->max);
	pn_report_device(&s->report, s->device);
	pn_report_head(&s->report, "the papers' mechanisms on a GPU");
	for (size_t bytes = s->values->min;
	     !ret && bytes && bytes <= s->values->max; bytes *= 2)
		ret = measure_size(s, bytes, s->values->budget / nsizes);
	close_memory(s);
	pinion_close(s->context);
	return ret;
}

/* --- helper ------------------------------------------------------------------
 */

/* Samples how much is registered. */
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

static void compute(uint64_t ns)
{
	uint64_t until = pn_clock_ns() + ns;

	while (pn_clock_ns() < until)
		;
}

/* Every buffer once. */
static int run_period(struct state *s)
{
	const struct values *v = s->values;
	size_t each = (v->bytes + 4095) & ~(size_t)4095;
	int ret = 0;

	for (unsigned i = 0; !ret && i < v->buffers; i++) {
		compute(v->period / v->buffers);
		ret = put_pinned(s, s->buffer, v->bytes, i * each);
	}
	return ret;
}

struct helped {
	double seconds, mean_bytes, late;
	struct pinion_helper_stats stats;
};

static int run_periods(struct state *s, struct sampler *sampler,
		       struct helped *out)
{
	struct pinion_helper_stats before = { .size = sizeof(before) };
	uint64_t start = 0, used;
	int ret = 0;

	for (unsigned i = 0; !ret && i < LEARNING + s->values->periods; i++) {
		if (i == LEARNING) {
			pinion_helper_query(s->context, &before);
			start = pn_clock_ns();
			atomic_store(&sampler->counts, true);
		}
		ret = run_period(s);
	}
	atomic_store(&sampler->counts, false);
	out->seconds = (double)(pn_clock_ns() - start) / 1e9;
	out->stats.size = sizeof(out->stats);
	pinion_helper_query(s->context, &out->stats);
	used = s->values->periods * s->values->buffers;
	out->late = (double)(out->stats.late - before.late) / (double)used;
	return ret;
}

static int run_mode(struct state *s, const char *const *more, size_t n,
		    struct helped *out)
{
	size_t each = (s->values->bytes + 4095) & ~(size_t)4095;
	struct sampler sampler = { .n = 0 };
	int ret = open_context(s, more, n);

	if (ret)
		return ret;
	ret = open_memory(s, each * s->values->buffers);
	/* Only the program's buffers count. */
	pinion_heap_free(s->heap, s->from_heap);
	pinion_heap_close(s->heap);
	s->heap = NULL;
	sampler.context = s->context;
	if (!ret)
		ret = -pthread_create(&sampler.thread, NULL, sample, &sampler);
	if (!ret) {
		ret = run_periods(s, &sampler, out);
		atomic_store(&sampler.stop, true);
		pthread_join(sampler.thread, NULL);
		out->mean_bytes = sampler.sum / sampler.n;
	}
	close_memory(s);
	pinion_close(s->context);
	return ret;
}

static void print_helped(struct state *s, const char *mode,
			 const struct helped *h, const struct helped *pinned)
{
	const struct pn_report_cell row[] = {
		PN_CELL_TEXT("experiment", NULL, 0, "helper"),
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

	pn_report_row(&s->report, row, PN_ARRAY_LEN(row));
}

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

static int run_helper(struct state *s)
{
	struct helped pinned = { 0 }, h;
	int ret = 0;

	pn_report_head(&s->report, "the helper with a periodic program");
	for (unsigned m = 0; !ret && m < PN_ARRAY_LEN(modes); m++) {
		ret = run_mode(s, modes[m].options, modes[m].n, &h);
		if (ret)
			break;
		if (!m)
			pinned = h;
		print_helped(s, modes[m].name, &h, &pinned);
	}
	return ret;
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
