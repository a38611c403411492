/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Question: how fast do copies of unpinned memory to and from a GPU go,
 * compared with pinned memory and with the driver's own copy?
 *
 * Series
 *   size     memory never pinned, pages present. Each round copies once by
 *            each: pinned (the driver's copy of pinned memory), driver (the
 *            driver's copy of unpinned memory), pinion. A copy ends when the
 *            stream is idle. Rows give medians over the rounds.
 *   again    the same buffer again, in a context with cuda_keep=yes: the n-th
 *            use, with a pause between uses and without, median over buffers;
 *            compared with the n-th use of pinned memory in the same rhythm.
 *            Both are written before the first use.
 *   new      from the GPU into memory that was never touched.
 *   threads  several threads copy at the same time.
 *   held_up  how long copies of 64 KiB of pinned memory take in another thread
 *            while the background registers (row G6).
 */
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <pinion/cuda.h>
#include <pinion/pinion.h>

#include "bench/bench.h"
#include "context.h"
#include "device/cuda/cuda.h"
#include "tools/pinion/spec.h"

#define MAX_ROUNDS  41
#define MAX_USES    12
#define MAX_BUFFERS 3
#define MIB	    ((size_t)1 << 20)
#define PAUSE_US    100000

struct values {
	struct pn_bench_values common;
	char series[PN_OPTION_TEXT_BYTES];
};

static const struct pn_option options[] = {
	PN_BENCH_OPTIONS("4K", "1G", "60s"),
	{ "series", PN_OPTION_TEXT, "size,again,new,threads,held_up",
	  "what to measure, separated by commas",
	  offsetof(struct values, series), 0, 0, NULL },
};

struct state {
	const struct values *values;
	struct pn_report report;
	struct pinion_context *context, *keeping;
	const struct pn_cuda_driver *cu;
	pn_cu_stream stream;
	pn_cu_deviceptr there;
	char *host, *pinned;
	uint64_t end_ns;
};

static double us_since(uint64_t begin)
{
	return (double)(pn_clock_ns() - begin) / 1e3;
}

static int by_number(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *samples, size_t n)
{
	if (!n)
		return NAN;
	qsort(samples, n, sizeof(*samples), by_number);
	return samples[n / 2];
}

static char *map(size_t bytes)
{
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return at == MAP_FAILED ? NULL : at;
}

/* --- one copy ------------------------------------------------------------- */

enum by { BY_PINNED, BY_DRIVER, BY_PINION, NBY };

struct copy {
	enum by by;
	bool to;
	char *host;
	pn_cu_deviceptr there;
	size_t bytes;
	pn_cu_stream stream;
	struct pinion_context *context;
};

static int driver_copy(const struct pn_cuda_driver *cu, const struct copy *c)
{
	return pn_cuda_errno(c->to ? cu->memcpy_htod_async(c->there, c->host,
							   c->bytes, c->stream)
				   : cu->memcpy_dtoh_async(c->host, c->there,
							   c->bytes,
							   c->stream));
}

static int pinion_copy(const struct copy *c)
{
	void *there = (void *)(uintptr_t)c->there;

	return c->to ? pinion_cuda_copy(c->context, there, c->host, c->bytes,
					c->stream)
		     : pinion_cuda_copy(c->context, c->host, there, c->bytes,
					c->stream);
}

/* Microseconds until the stream is idle; NAN: it failed. */
static double time_copy(const struct pn_cuda_driver *cu, const struct copy *c)
{
	uint64_t begin = pn_clock_ns();
	int ret = c->by == BY_PINION ? pinion_copy(c) : driver_copy(cu, c);

	if (ret || cu->stream_synchronize(c->stream))
		return NAN;
	return us_since(begin);
}

static struct copy make_copy(const struct state *s, enum by by, bool to,
			     size_t bytes)
{
	return (struct copy){
		.by = by,
		.to = to,
		.host = by == BY_PINNED ? s->pinned : s->host,
		.there = s->there,
		.bytes = bytes,
		.stream = s->stream,
		.context = s->context,
	};
}

static double gbps(size_t bytes, double us)
{
	return (double)bytes / us / 1e3;
}

/* --- by size -------------------------------------------------------------- */

static void print_size(struct state *s, bool to, size_t bytes,
		       const double us[NBY])
{
	const struct pn_report_cell row[] = {
		PN_CELL_TEXT("series", NULL, 0, "size"),
		PN_CELL_TEXT("direction", "", -5, to ? "to" : "from"),
		PN_CELL_BYTES("bytes", "bytes", 6, bytes),
		PN_CELL_NUMBER("pinned_us", "pinned us", 10, us[BY_PINNED]),
		PN_CELL_NUMBER("driver_us", "driver us", 10, us[BY_DRIVER]),
		PN_CELL_NUMBER("pinion_us", "pinion us", 10, us[BY_PINION]),
		PN_CELL_NUMBER("pinion_gb_per_s", "GB/s", 7,
			       gbps(bytes, us[BY_PINION])),
		PN_CELL_NUMBER("of_pinned", "of pinned", 9,
			       us[BY_PINNED] / us[BY_PINION]),
		PN_CELL_NUMBER("of_driver", "of driver", 9,
			       us[BY_DRIVER] / us[BY_PINION]),
	};

	pn_report_row(&s->report, row, PN_ARRAY_LEN(row));
}

static void measure_size(struct state *s, bool to, size_t bytes)
{
	size_t rounds = bytes >= 256 * MIB  ? 7
			: bytes >= 16 * MIB ? 21
					    : MAX_ROUNDS;
	double samples[NBY][MAX_ROUNDS], us[NBY];

	/* The first rounds warm up. */
	for (size_t n = 0; n < rounds + 4; n++)
		for (unsigned by = 0; by < NBY; by++) {
			struct copy c = make_copy(s, by, to, bytes);
			double took = time_copy(s->cu, &c);

			if (n >= 4)
				samples[by][n - 4] = took;
		}
	for (unsigned by = 0; by < NBY; by++)
		us[by] = median(samples[by], rounds);
	print_size(s, to, bytes, us);
}

static void run_size(struct state *s)
{
	pn_report_series(&s->report);
	for (size_t b = s->values->common.min; b <= s->values->common.max;
	     b *= b < 16 * MIB ? 2 : 4) {
		measure_size(s, true, b);
		measure_size(s, false, b);
	}
}

/* --- the same buffer again ------------------------------------------------ */

/* Medians of the n-th use. */
struct again {
	double us, pinned_us;
	double registered; /* share of the bytes that needed no bounce buffer */
};

static void print_again(struct state *s, const struct copy *c, bool pause,
			const struct again *uses)
{
	for (unsigned i = 0; i < MAX_USES; i++) {
		const struct pn_report_cell row[] = {
			PN_CELL_TEXT("series", NULL, 0, "again"),
			PN_CELL_TEXT("direction", "", -5,
				     c->to ? "to" : "from"),
			PN_CELL_BYTES("bytes", "bytes", 6, c->bytes),
			PN_CELL_COUNT("pause_ms", "pause ms", 8,
				      pause ? PAUSE_US / 1000 : 0),
			PN_CELL_COUNT("use", "use", 4, i + 1),
			PN_CELL_NUMBER("us", "us", 10, uses[i].us),
			PN_CELL_NUMBER("pinned_us", "pinned us", 10,
				       uses[i].pinned_us),
			PN_CELL_NUMBER("of_pinned", "of pinned", 9,
				       uses[i].pinned_us / uses[i].us),
			PN_CELL_NUMBER("registered", "registered", 10,
				       uses[i].registered),
		};

		pn_report_row(&s->report, row, PN_ARRAY_LEN(row));
	}
}

static double registered_bytes(const struct state *s)
{
	struct pinion_cuda_stats stats = { .size = sizeof(stats) };

	pinion_cuda_query(s->keeping, &stats);
	return (double)stats.registered_bytes;
}

/* Copies, with a pause after each copy if there is one. */
static double use_once(const struct state *s, const struct copy *c, bool pause)
{
	double us = time_copy(s->cu, c);

	if (pause)
		usleep(PAUSE_US);
	return us;
}

/* Times of uses of memory that has just been written, so that pinned memory and
 * ours are compared in the same state. */
static void time_uses(const struct state *s, const struct copy *c, bool pause,
		      struct again uses[MAX_USES])
{
	memset(c->host, 1, c->bytes);
	for (unsigned i = 0; i < MAX_USES; i++) {
		double before = registered_bytes(s);

		uses[i].us = use_once(s, c, pause);
		uses[i].registered =
			(registered_bytes(s) - before) / (double)c->bytes;
	}
}

static struct again median_use(struct again rounds[2][MAX_BUFFERS][MAX_USES],
			       unsigned use)
{
	double us[MAX_BUFFERS], pinned_us[MAX_BUFFERS], registered[MAX_BUFFERS];

	for (unsigned b = 0; b < MAX_BUFFERS; b++) {
		pinned_us[b] = rounds[0][b][use].us;
		us[b] = rounds[1][b][use].us;
		registered[b] = rounds[1][b][use].registered;
	}
	return (struct again){
		.us = median(us, MAX_BUFFERS),
		.pinned_us = median(pinned_us, MAX_BUFFERS),
		.registered = median(registered, MAX_BUFFERS),
	};
}

/* A buffer of its own each time: its history begins anew. */
static void measure_again(struct state *s, bool to, size_t bytes, bool pause)
{
	struct again rounds[2][MAX_BUFFERS][MAX_USES], uses[MAX_USES];
	struct copy pinned = make_copy(s, BY_PINNED, to, bytes);
	struct copy c = make_copy(s, BY_PINION, to, bytes);

	c.context = s->keeping;
	for (size_t b = 0; b < MAX_BUFFERS; b++) {
		time_uses(s, &pinned, pause, rounds[0][b]);
		c.host = map(bytes);
		if (!c.host)
			return;
		time_uses(s, &c, pause, rounds[1][b]);
		munmap(c.host, bytes);
	}
	for (unsigned i = 0; i < MAX_USES; i++)
		uses[i] = median_use(rounds, i);
	print_again(s, &c, pause, uses);
}

static void print_left(struct state *s)
{
	struct pinion_cache_stats stats = { .size = sizeof(stats) };

	if (pinion_cache_query(s->keeping, &stats))
		return;
	const struct pn_report_cell row[] = {
		PN_CELL_TEXT("series", NULL, 0, "again_pinned"),
		PN_CELL_BYTES("peak_bytes", "peak", 8, stats.peak_bytes),
		PN_CELL_BYTES("max_bytes", "budget", 8, stats.max_bytes),
		PN_CELL_BYTES("bytes", "cached now", 10, stats.bytes),
	};

	pn_report_series(&s->report);
	pn_report_row(&s->report, row, PN_ARRAY_LEN(row));
}

static void run_again(struct state *s)
{
	const size_t sizes[] = { 16 * MIB, 64 * MIB, 256 * MIB, 1024 * MIB };

	pn_report_series(&s->report);
	for (unsigned i = 0; i < PN_ARRAY_LEN(sizes); i++) {
		if (sizes[i] > s->values->common.max)
			break;
		for (int to = 1; to >= 0; to--) {
			measure_again(s, to, sizes[i], true);
			measure_again(s, to, sizes[i], false);
		}
	}
	print_left(s);
}

/* --- new memory ----------------------------------------------------------- */

static void measure_new(struct state *s, size_t bytes, bool huge)
{
	double samples[NBY][5] = { { 0 } };
	const size_t rounds = 3;

	for (size_t n = 0; n < rounds; n++)
		for (unsigned by = BY_DRIVER; by < NBY; by++) {
			struct copy c = make_copy(s, by, false, bytes);

			c.host = map(bytes);
			if (!c.host)
				return;
			/* A context without huge pages leaves them out. */
			c.context = huge ? s->context : s->keeping;
			if (!huge)
				madvise(c.host, bytes, MADV_NOHUGEPAGE);
			samples[by][n] = time_copy(s->cu, &c);
			munmap(c.host, bytes);
		}
	const struct pn_report_cell row[] = {
		PN_CELL_TEXT("series", NULL, 0, "new"),
		PN_CELL_BYTES("bytes", "bytes", 6, bytes),
		PN_CELL_FLAG("huge", "huge pages", 10, huge),
		PN_CELL_NUMBER("driver_ms", "driver ms", 10,
			       median(samples[BY_DRIVER], rounds) / 1e3),
		PN_CELL_NUMBER("pinion_ms", "pinion ms", 10,
			       median(samples[BY_PINION], rounds) / 1e3),
	};

	pn_report_row(&s->report, row, PN_ARRAY_LEN(row));
}

static void run_new(struct state *s)
{
	pn_report_series(&s->report);
	measure_new(s, s->values->common.max, true);
	measure_new(s, s->values->common.max, false);
}

/* --- several threads ------------------------------------------------------ */

#define NTHREADS 16

struct thread {
	struct state *state;
	struct copy copy;
	unsigned times;
	pthread_t thread;
	pthread_barrier_t *barrier;
};

static void *copy_often(void *arg)
{
	struct thread *t = arg;
	pn_cu_context context = pn_cuda_context_of(t->state->context->device);

	t->state->cu->ctx_set_current(context);
	t->state->cu->stream_create(&t->copy.stream, PN_CU_STREAM_NON_BLOCKING);
	pthread_barrier_wait(t->barrier);
	for (unsigned i = 0; i < t->times; i++)
		time_copy(t->state->cu, &t->copy);
	pthread_barrier_wait(t->barrier);
	t->state->cu->stream_destroy(t->copy.stream);
	return NULL;
}

/* GB/s of all threads together. */
static double time_threads(struct state *s, enum by by, bool to, size_t bytes)
{
	struct thread threads[NTHREADS];
	unsigned times = bytes >= 16 * MIB ? 6 : 40;
	pthread_barrier_t barrier;
	uint64_t begin;
	double us;

	pthread_barrier_init(&barrier, NULL, NTHREADS + 1);
	for (unsigned i = 0; i < NTHREADS; i++) {
		threads[i] = (struct thread){
			.state = s,
			.copy = make_copy(s, by, to, bytes),
			.times = times,
			.barrier = &barrier,
		};
		threads[i].copy.host += i * bytes;
		threads[i].copy.there += i * bytes;
		pthread_create(&threads[i].thread, NULL, copy_often,
			       &threads[i]);
	}
	begin = pn_clock_ns();
	pthread_barrier_wait(&barrier);
	pthread_barrier_wait(&barrier);
	us = us_since(begin);
	for (unsigned i = 0; i < NTHREADS; i++)
		pthread_join(threads[i].thread, NULL);
	pthread_barrier_destroy(&barrier);
	return gbps(bytes * NTHREADS * times, us);
}

static void measure_threads(struct state *s, bool to, size_t bytes)
{
	/* Once to warm up: times are learned. */
	double pinion = time_threads(s, BY_PINION, to, bytes);
	double driver = time_threads(s, BY_DRIVER, to, bytes);

	pinion = time_threads(s, BY_PINION, to, bytes);
	const struct pn_report_cell row[] = {
		PN_CELL_TEXT("series", NULL, 0, "threads"),
		PN_CELL_TEXT("direction", "", -5, to ? "to" : "from"),
		PN_CELL_COUNT("threads", "threads", 7, NTHREADS),
		PN_CELL_BYTES("bytes", "bytes", 6, bytes),
		PN_CELL_NUMBER("driver_gb_per_s", "driver GB/s", 11, driver),
		PN_CELL_NUMBER("pinion_gb_per_s", "pinion GB/s", 11, pinion),
		PN_CELL_NUMBER("of_driver", "of driver", 9, pinion / driver),
	};

	pn_report_row(&s->report, row, PN_ARRAY_LEN(row));
}

static void run_threads(struct state *s)
{
	const size_t sizes[] = { 64 << 10, 1 * MIB, 4 * MIB, 16 * MIB,
				 64 * MIB };

	pn_report_series(&s->report);
	for (unsigned i = 0; i < PN_ARRAY_LEN(sizes); i++)
		if (sizes[i] * NTHREADS <= s->values->common.max) {
			measure_threads(s, true, sizes[i]);
			measure_threads(s, false, sizes[i]);
		}
}

/* --- held up by the background -------------------------------------------- */

struct probe {
	struct state *state;
	struct copy copy;
	_Atomic bool stop;
	double worst_us;
};

static void *probe(void *arg)
{
	struct probe *p = arg;
	pn_cu_context context = pn_cuda_context_of(p->state->context->device);

	p->state->cu->ctx_set_current(context);
	while (!p->stop) {
		double us = time_copy(p->state->cu, &p->copy);

		if (us > p->worst_us)
			p->worst_us = us;
	}
	return NULL;
}

/* The worst copy of another thread while a buffer becomes registered. */
static double worst_us(struct state *s, size_t bytes, bool copying)
{
	struct probe p = { .state = s,
			   .copy = make_copy(s, BY_PINNED, true, 64 << 10) };
	struct copy c = make_copy(s, BY_PINION, true, bytes);
	pthread_t thread;

	s->cu->stream_create(&p.copy.stream, PN_CU_STREAM_NON_BLOCKING);
	c.context = s->keeping;
	c.host = map(bytes);
	if (!c.host)
		return NAN;
	memset(c.host, 1, bytes);
	for (int i = 0; copying && i < 2; i++)
		time_copy(s->cu, &c);
	/* The background begins after the second use. */
	pthread_create(&thread, NULL, probe, &p);
	usleep(400000);
	p.stop = true;
	pthread_join(thread, NULL);
	s->cu->stream_destroy(p.copy.stream);
	munmap(c.host, bytes);
	return p.worst_us;
}

static void run_held_up(struct state *s)
{
	struct pinion_cuda_stats stats = { .size = sizeof(stats) };
	double quiet, busy;
	uint64_t before;

	pinion_cuda_query(s->keeping, &stats);
	before = stats.background_blocks;
	quiet = worst_us(s, s->values->common.max, false);
	busy = worst_us(s, s->values->common.max, true);
	pinion_cuda_query(s->keeping, &stats);
	const struct pn_report_cell row[] = {
		PN_CELL_TEXT("series", NULL, 0, "held_up"),
		PN_CELL_BYTES("bytes", "bytes", 6, s->values->common.max),
		PN_CELL_COUNT("blocks", "blocks", 7,
			      stats.background_blocks - before),
		PN_CELL_NUMBER("quiet_us", "worst us, quiet", 16, quiet),
		PN_CELL_NUMBER("busy_us", "while registering", 18, busy),
	};

	pn_report_series(&s->report);
	pn_report_row(&s->report, row, PN_ARRAY_LEN(row));
}

/* --- the benchmark -------------------------------------------------------- */

static int open_context(const struct pn_spec *spec, bool keeping,
			struct pinion_context **out)
{
	char device[PN_OPTION_TEXT_BYTES + 8];
	/* The second context also has no huge pages, for the series `new`. */
	const char *const options_of[] = { device,
					   keeping ? "cuda_keep=yes" : NULL,
					   "huge_pages=never", NULL };
	struct pinion_attr attr = { .size = sizeof(attr),
				    .options = options_of };

	snprintf(device, sizeof(device), "device=%s", spec->text);
	return pinion_open(&attr, out);
}

static int allocate(struct state *s)
{
	size_t bytes = s->values->common.max;
	void *pinned = NULL;
	pn_cu_result ret;

	s->cu = pn_cuda_driver_of(s->context->device);
	ret = s->cu->ctx_set_current(pn_cuda_context_of(s->context->device));
	if (!ret)
		ret = s->cu->mem_alloc(&s->there, bytes);
	if (!ret)
		ret = s->cu->mem_host_alloc(&pinned, bytes, 0);
	if (!ret)
		ret = s->cu->stream_create(&s->stream,
					   PN_CU_STREAM_NON_BLOCKING);
	s->pinned = pinned;
	s->host = map(bytes);
	if (ret || !s->host)
		return ret ? pn_cuda_errno(ret) : -ENOMEM;
	memset(s->pinned, 1, bytes);
	memset(s->host, 2, bytes);
	return 0;
}

static void free_all(struct state *s)
{
	if (s->stream)
		s->cu->stream_destroy(s->stream);
	if (s->pinned)
		s->cu->mem_free_host(s->pinned);
	if (s->there)
		s->cu->mem_free(s->there);
	if (s->host)
		munmap(s->host, s->values->common.max);
}

static const struct {
	const char *name;
	void (*run)(struct state *s);
} all_series[] = {
	{ "size", run_size },	    { "again", run_again },
	{ "new", run_new },	    { "threads", run_threads },
	{ "held_up", run_held_up },
};

static int measure(struct state *s)
{
	int ret = allocate(s);

	pn_report_device(&s->report, s->context->device);
	if (!ret)
		pn_report_head(&s->report, pn_bench_cuda.help);
	for (unsigned i = 0; !ret && i < PN_ARRAY_LEN(all_series); i++)
		if (strstr(s->values->series, all_series[i].name))
			all_series[i].run(s);
	free_all(s);
	return ret;
}

static int run_cuda(const void *values, char *const *operands)
{
	struct state s = { .values = values };
	struct pn_spec spec;
	int ret;

	(void)operands;
	if (pn_spec_find(&spec, s.values->common.device))
		return PN_EXIT_FAILED;
	if (!*s.values->common.device)
		strcpy(spec.text, "cuda");
	s.report = (struct pn_report){ .json = s.values->common.json,
				       .bench = "cuda",
				       .device = spec.text };
	ret = open_context(&spec, false, &s.context);
	if (ret)
		return pn_spec_exit(spec.text, ret);
	ret = pn_device_is_cuda(s.context->device) ? 0 : -EOPNOTSUPP;
	if (!ret)
		ret = open_context(&spec, true, &s.keeping);
	if (!ret)
		ret = measure(&s);
	pinion_close(s.keeping);
	pinion_close(s.context);
	return ret ? pn_spec_exit("a GPU", ret) : PN_EXIT_OK;
}

const struct pn_command pn_bench_cuda = {
	.name = "cuda",
	.help = "how fast are copies of unpinned memory to and from a GPU?",
	.about = "Copies of memory that is not pinned, to and from a GPU, "
		 "compared with the driver's own copy and with pinned memory: "
		 "by size, of the same buffer again, into new memory, by "
		 "several threads, and what others are held up meanwhile.",
	.options = options,
	.noptions = PN_ARRAY_LEN(options),
	.values_bytes = sizeof(struct values),
	.run = run_cuda,
};
