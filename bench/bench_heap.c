/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Question: what does registered memory from a heap cost, compared with
 * malloc() and with explicit registration? (Levy and others 2020, figures 1
 * to 6; figure 7 is bench_view.c.)
 *
 *   register  registering a buffer of malloc(), and deregistering it
 *   new       memory that was never registered: nothing is freed until all
 *             trials are done. Means, since one block of many pays for a slab
 *   reuse     alloc and free of warm memory; malloc() and free() are the bound,
 *             malloc() and registering is the cost without a heap (freeing and
 *             deregistering are not counted)
 *   put       allocating a buffer and putting its contents to the other end
 *
 * The alternatives are measured alternately, trial by trial, and rows give
 * medians over the trials; `reuse` times batches, since one pair is shorter
 * than reading the clock. In virtual time (`sim`) only registering, moving and
 * copying cost anything: rows without a cost are not shown, and there is one
 * thread.
 */
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <pinion/heap.h>

#include "base/range.h"
#include "bench/bench.h"
#include "cache/cache.h"
#include "heap/heap.h"

#define MAX_TRIALS  1000
#define PAIRS	    100 /* pairs of alloc and free in a trial of `reuse` */
#define MAX_THREADS 2
#define NEW_ROUNDS  5

struct values {
	struct pn_bench_values common;
	uint64_t trials;
	char what[PN_OPTION_TEXT_BYTES];
};

static const struct pn_option options[] = {
	PN_BENCH_OPTIONS("128", "2M", "60s"),
	{ "trials", PN_OPTION_NUMBER, "1000", "number of trials",
	  offsetof(struct values, trials), 3, MAX_TRIALS, NULL },
	{ "what", PN_OPTION_TEXT, "register,new,reuse,put",
	  "experiments, separated by commas", offsetof(struct values, what), 0,
	  0, NULL },
};

struct state {
	struct pn_bench_run *run;
	struct pn_device *device;
	struct pn_budget budget;
	struct pn_cache *cache;
	struct pinion_heap *heap;
	size_t trials;
	void *blocks[MAX_TRIALS];
	struct pn_mr mrs[MAX_TRIALS];
	double heap_ns[MAX_TRIALS], explicit_ns[MAX_TRIALS],
		malloc_ns[MAX_TRIALS];
};

/* --- buffers of both sorts ------------------------------------------------ */

/* Hides from the compiler that the memory is not used. */
static inline void touch(void *p)
{
	__asm__ volatile("" : : "r"(p) : "memory");
}

static int open_heap(struct state *state)
{
	const struct pn_heap_attr attr = { .device = state->device,
					   .cache = state->cache,
					   .return_ns = PN_FOREVER,
					   .pages = { .numa_node = -1 } };

	return pn_heap_open(&attr, &state->heap);
}

static int register_buffer(struct state *state, void *p, size_t bytes,
			   struct pn_mr *mr)
{
	*mr = (struct pn_mr){ .addr = p,
			      .len = bytes,
			      .access = PINION_ACCESS_LOCAL_WRITE |
					PINION_ACCESS_REMOTE_READ |
					PINION_ACCESS_REMOTE_WRITE };
	return pn_device_register(state->device, &mr, 1);
}

/* malloc() and registering, as in a program without a heap. */
static int get_explicit(struct state *state, size_t bytes, struct pn_mr *mr)
{
	void *p = malloc(bytes);
	int ret;

	if (!p)
		return -ENOMEM;
	ret = register_buffer(state, p, bytes, mr);
	if (ret)
		free(p);
	return ret;
}

static void put_explicit(struct state *state, struct pn_mr *mr)
{
	pn_device_deregister(state->device, &mr, 1);
	free(mr->addr);
}

static int put_bytes(struct state *state, void *p, size_t bytes, uint64_t lkey)
{
	const struct pn_pair *pair = state->run->pair;
	const struct pn_blocking_transfer move = { .kind = PN_OP_WRITE,
						   .peer = pair->peer,
						   .local = p,
						   .lkey = lkey,
						   .remote_addr =
							   pair->remote_addr,
						   .rkey = pair->rkey,
						   .len = bytes };

	return pn_blocking_transfer(state->device, &move);
}

/* Nanoseconds since `from` on the device's clock. */
static double since(struct state *state, uint64_t start)
{
	return (double)(pn_device_now(state->device) - start);
}

/* --- rows ----------------------------------------------------------------- */

struct row {
	const char *what;
	size_t bytes, trials;
	unsigned threads;
	double heap, explicit, malloc; /* ns; NAN: not measured */
};

/* A cost of 0 in virtual time is not shown. */
static double shown(double ns)
{
	return ns > 0 ? ns : NAN;
}

static void print_row(struct state *state, const struct row *row)
{
	const struct pn_report_cell cells[] = {
		PN_CELL_TEXT("what", "what", -9, row->what),
		PN_CELL_BYTES("bytes", "bytes", 7, row->bytes),
		PN_CELL_COUNT("threads", "threads", 7, row->threads),
		PN_CELL_NUMBER("ns_heap", "heap ns", 10, shown(row->heap)),
		PN_CELL_NUMBER("ns_malloc_register", "malloc+reg ns", 13,
			       shown(row->explicit)),
		PN_CELL_NUMBER("ns_malloc", "malloc ns", 10,
			       shown(row->malloc)),
		PN_CELL_NUMBER("speedup", "speedup", 9,
			       row->explicit / shown(row->heap)),
		PN_CELL_COUNT("trials", "trials", 7, row->trials),
	};

	pn_report_row(&state->run->report, cells, PN_ARRAY_LEN(cells));
}

/* --- register ------------------------------------------------------------- */

static int try_register(struct state *state, size_t bytes, size_t i)
{
	struct pn_mr *mr = &state->mrs[0];
	uint64_t start = pn_device_now(state->device);
	void *p = malloc(bytes);
	int ret;

	if (!p)
		return -ENOMEM;
	touch(p);
	state->malloc_ns[i] = since(state, start);
	start = pn_device_now(state->device);
	ret = register_buffer(state, p, bytes, mr);
	state->explicit_ns[i] = since(state, start);
	if (ret) {
		free(p);
		return ret;
	}
	start = pn_device_now(state->device);
	pn_device_deregister(state->device, &mr, 1);
	state->heap_ns[i] = since(state, start);
	free(p);
	return 0;
}

static void print_register(struct state *state, size_t bytes, size_t n)
{
	const struct pn_report_cell cells[] = {
		PN_CELL_TEXT("what", "what", -9, "register"),
		PN_CELL_BYTES("bytes", "bytes", 7, bytes),
		PN_CELL_COUNT("threads", "threads", 7, 1),
		PN_CELL_NUMBER("ns_heap", NULL, 0, NAN),
		PN_CELL_NUMBER("ns_malloc_register", "register ns", 12,
			       shown(pn_median(state->explicit_ns, n))),
		PN_CELL_NUMBER("ns_malloc", "malloc ns", 10,
			       shown(pn_median(state->malloc_ns, n))),
		PN_CELL_NUMBER("speedup", NULL, 0, NAN),
		PN_CELL_NUMBER("ns_deregister", "deregister ns", 13,
			       shown(pn_median(state->heap_ns, n))),
		PN_CELL_COUNT("trials", "trials", 7, n),
	};

	pn_report_row(&state->run->report, cells, PN_ARRAY_LEN(cells));
}

/* Runs trials within the time budget. Returns their number or a negative errno.
 */
static int try_all(struct state *state, size_t bytes,
		   int (*once)(struct state *state, size_t bytes, size_t i))
{
	struct pn_trials trials =
		pn_trials_begin(3, state->trials,
				pn_bench_share_ns(state->run));
	int ret = once(state, bytes, 0); /* warm-up; overwritten */
	size_t n;

	for (n = 0; !ret && pn_trials_continue(&trials, n); n++)
		ret = once(state, bytes, n);
	return ret ? ret : (int)n;
}

static int measure_register(struct state *state, size_t bytes)
{
	int n = try_all(state, bytes, try_register);

	if (n < 0)
		return n;
	print_register(state, bytes, (size_t)n);
	return 0;
}

/* --- new ------------------------------------------------------------------ */

/* As many as can be pinned twice: by the heap, then explicitly. */
static size_t new_trials(struct state *state, size_t bytes)
{
	size_t room = atomic_load(&state->budget.max_bytes) / 2;
	size_t slot = bytes > PN_PAGE_BYTES ? bytes : PN_PAGE_BYTES;
	size_t mrs = state->device->limits.max_mrs / 2;
	size_t n = room / (2 * slot);

	n = n < mrs ? n : mrs;
	n = n < state->trials ? n : state->trials;
	return n ? n : 1;
}

/* ns per block for n new blocks of a new heap. */
static int new_from_heap(struct state *state, size_t bytes, size_t n,
			 double *ns)
{
	struct pinion_heap *warm = state->heap;
	uint64_t start;
	int ret = open_heap(state);

	if (ret)
		return ret;
	start = pn_device_now(state->device);
	for (size_t i = 0; i < n && !ret; i++) {
		void *p = pinion_heap_malloc(state->heap, bytes);

		touch(p);
		ret = p ? 0 : -errno;
	}
	*ns = since(state, start) / (double)n;
	pn_heap_close(state->heap);
	state->heap = warm;
	return ret;
}

static int new_explicit(struct state *state, size_t bytes, size_t n, double *ns)
{
	uint64_t start = pn_device_now(state->device);
	size_t got = 0;
	int ret = 0;

	while (got < n && !ret) {
		ret = get_explicit(state, bytes, &state->mrs[got]);
		got += !ret;
	}
	*ns = since(state, start) / (double)n;
	while (got)
		put_explicit(state, &state->mrs[--got]);
	return ret;
}

static double new_malloc(struct state *state, size_t bytes, size_t n)
{
	uint64_t start = pn_device_now(state->device);
	double ns;

	for (size_t i = 0; i < n; i++) {
		state->blocks[i] = malloc(bytes);
		touch(state->blocks[i]);
	}
	ns = since(state, start) / (double)n;
	for (size_t i = 0; i < n; i++)
		free(state->blocks[i]);
	return ns;
}

static int measure_new(struct state *state, size_t bytes)
{
	struct row row = { "new", bytes, new_trials(state, bytes), 1, 0, 0, 0 };
	struct pn_trials rounds =
		pn_trials_begin(1, NEW_ROUNDS, pn_bench_share_ns(state->run));
	size_t n;
	int ret = 0;

	for (n = 0; !ret && pn_trials_continue(&rounds, n); n++) {
		ret = new_from_heap(state, bytes, row.trials,
				    &state->heap_ns[n]);
		if (!ret)
			ret = new_explicit(state, bytes, row.trials,
					   &state->explicit_ns[n]);
		state->malloc_ns[n] = new_malloc(state, bytes, row.trials);
	}
	if (ret)
		return ret;
	row.heap = pn_median(state->heap_ns, n);
	row.explicit = pn_median(state->explicit_ns, n);
	row.malloc = pn_median(state->malloc_ns, n);
	print_row(state, &row);
	return 0;
}

/* --- reuse ---------------------------------------------------------------- */

static void reuse_heap(struct pinion_heap *heap, size_t bytes)
{
	for (unsigned i = 0; i < PAIRS; i++) {
		void *p = pinion_heap_malloc(heap, bytes);

		touch(p);
		pinion_heap_free(heap, p);
	}
}

static void reuse_malloc(size_t bytes)
{
	for (unsigned i = 0; i < PAIRS; i++) {
		void *p = malloc(bytes);

		touch(p);
		free(p);
	}
}

struct reuser {
	struct state *state;
	size_t bytes;
	uint64_t deadline_ns;
	pthread_t thread;
	size_t n;
	double heap, malloc; /* medians */
	double heap_ns[MAX_TRIALS], malloc_ns[MAX_TRIALS];
};

/* Pairs of the alternatives, alternately; for one thread. */
static void *reuse(void *arg)
{
	struct reuser *r = arg;
	struct state *state = r->state;
	struct pn_trials trials = { 3, state->trials, r->deadline_ns };
	uint64_t start;

	reuse_heap(state->heap, r->bytes);
	reuse_malloc(r->bytes);
	for (r->n = 0; pn_trials_continue(&trials, r->n); r->n++) {
		start = pn_device_now(state->device);
		reuse_heap(state->heap, r->bytes);
		r->heap_ns[r->n] = since(state, start) / PAIRS;
		start = pn_device_now(state->device);
		reuse_malloc(r->bytes);
		r->malloc_ns[r->n] = since(state, start) / PAIRS;
	}
	r->heap = pn_median(r->heap_ns, r->n);
	r->malloc = pn_median(r->malloc_ns, r->n);
	return NULL;
}

/* The mean of the threads' medians, in *row. */
static int reuse_threads(struct state *state, struct row *row)
{
	static struct reuser reusers[MAX_THREADS];
	uint64_t deadline = pn_clock_ns() + pn_bench_share_ns(state->run);
	unsigned n;

	for (n = 0; n < row->threads; n++) {
		reusers[n] = (struct reuser){ .state = state,
					      .bytes = row->bytes,
					      .deadline_ns = deadline };
		if (row->threads == 1)
			reuse(&reusers[n]);
		else if (pthread_create(&reusers[n].thread, NULL, reuse,
					&reusers[n]))
			break;
	}
	row->heap = row->malloc = 0;
	row->trials = reusers[0].n;
	for (unsigned i = 0; i < n; i++) {
		if (row->threads > 1)
			pthread_join(reusers[i].thread, NULL);
		row->heap += reusers[i].heap / row->threads;
		row->malloc += reusers[i].malloc / row->threads;
		row->trials = reusers[i].n;
	}
	return n == row->threads ? 0 : -EAGAIN;
}

static int try_explicit(struct state *state, size_t bytes, size_t i)
{
	uint64_t start = pn_device_now(state->device);
	int ret = get_explicit(state, bytes, &state->mrs[0]);

	state->explicit_ns[i] = since(state, start);
	if (!ret)
		put_explicit(state, &state->mrs[0]);
	return ret;
}

static int measure_reuse(struct state *state, size_t bytes)
{
	unsigned most = state->run->virtual_time ? 1 : MAX_THREADS;
	int n = try_all(state, bytes, try_explicit), ret = 0;
	struct row row = { .what = "reuse", .bytes = bytes };

	if (n < 0)
		return n;
	row.explicit = pn_median(state->explicit_ns, (size_t)n);
	for (row.threads = 1; !ret && row.threads <= most; row.threads++) {
		ret = reuse_threads(state, &row);
		if (!ret)
			print_row(state, &row);
	}
	return ret;
}

/* --- put ------------------------------------------------------------------ */

static int put_from_heap(struct state *state, size_t bytes, double *ns)
{
	uint64_t start = pn_device_now(state->device);
	void *p = pinion_heap_malloc(state->heap, bytes);
	int ret;

	if (!p)
		return -errno;
	ret = put_bytes(state, p, bytes, pn_heap_mr(state->heap, p)->lkey);
	*ns = since(state, start);
	pinion_heap_free(state->heap, p);
	return ret;
}

static int put_from_explicit(struct state *state, size_t bytes, double *ns)
{
	struct pn_mr *mr = &state->mrs[0];
	uint64_t start = pn_device_now(state->device);
	int ret = get_explicit(state, bytes, mr);

	if (ret)
		return ret;
	ret = put_bytes(state, mr->addr, bytes, mr->lkey);
	*ns = since(state, start);
	put_explicit(state, mr);
	return ret;
}

static int try_put(struct state *state, size_t bytes, size_t i)
{
	int ret = put_from_heap(state, bytes, &state->heap_ns[i]);

	return ret ? ret
		   : put_from_explicit(state, bytes, &state->explicit_ns[i]);
}

static int measure_put(struct state *state, size_t bytes)
{
	int n = try_all(state, bytes, try_put);
	struct row row = { "put", bytes, (size_t)n, 1, 0, 0, NAN };

	if (n < 0)
		return n;
	row.heap = pn_median(state->heap_ns, row.trials);
	row.explicit = pn_median(state->explicit_ns, row.trials);
	print_row(state, &row);
	return 0;
}

/* --- all of it ------------------------------------------------------------ */

static const struct experiment {
	const char *name;
	int (*measure)(struct state *state, size_t bytes);
	unsigned points; /* per size */
} experiments[] = {
	{ "register", measure_register, 1 },
	{ "new", measure_new, 1 },
	{ "reuse", measure_reuse, 3 },
	{ "put", measure_put, 1 },
};

/* -1: there is no such experiment. */
static int number_of(const char *word)
{
	for (int i = 0; i < (int)PN_ARRAY_LEN(experiments); i++)
		if (!strcmp(word, experiments[i].name))
			return i;
	return -1;
}

static int measure_sizes(struct state *state, const struct experiment *what)
{
	const struct pn_bench_values *v = state->run->values;
	size_t max = v->max < state->run->pair->bytes ? v->max
						      : state->run->pair->bytes;
	char text[PN_REPORT_BYTES_LEN];
	int ret = 0;

	pn_report_series(&state->run->report);
	for (size_t bytes = v->min; !ret && bytes <= max; bytes *= 2) {
		pn_report_progress(pn_report_bytes(bytes, text));
		ret = what->measure(state, bytes);
	}
	return ret;
}

static int measure_all(struct state *state, const struct values *values)
{
	size_t nsizes = pn_bench_nsizes(values->common.min, values->common.max);
	size_t npoints = 0;
	int ret = 0;

	for (size_t i = 0; i < PN_ARRAY_LEN(experiments); i++)
		if (pn_words_have(values->what, experiments[i].name))
			npoints += nsizes * experiments[i].points;
	pn_bench_plan(state->run, npoints);
	for (size_t i = 0; !ret && i < PN_ARRAY_LEN(experiments); i++)
		if (pn_words_have(values->what, experiments[i].name))
			ret = measure_sizes(state, &experiments[i]);
	return ret;
}

static int with_heap(struct state *state)
{
	const struct pn_cache_attr attr = { .device = state->device,
					    .budget = &state->budget,
					    .no_monitor = true,
					    .no_worker = true };
	int ret;

	pn_budget_init(&state->budget, state->device, 0, 0, 1);
	ret = pn_cache_open(&attr, &state->cache);
	if (ret)
		return ret;
	ret = open_heap(state);
	if (!ret)
		ret = measure_all(state, state->run->values);
	pn_heap_close(state->heap);
	pn_cache_close(state->cache);
	return ret;
}

static int body(struct pn_bench_run *run)
{
	const struct values *values = run->values;
	struct state *state = calloc(1, sizeof(*state));
	int ret;

	if (!state)
		return -ENOMEM;
	state->run = run;
	state->device = run->device;
	state->trials = values->trials;
	ret = pn_device_measure(run->device, NULL);
	if (!ret)
		ret = with_heap(state);
	free(state);
	return ret;
}

static int run_heap(const void *v, char *const *operands)
{
	const struct values *values = v;

	(void)operands;
	if (!pn_words_set(values->what, number_of))
		return pn_usage_error("--what takes register, new, reuse and "
				      "put, separated by commas");
	return pn_bench_execute(&pn_bench_heap, values, body);
}

const struct pn_command pn_bench_heap = {
	.name = "heap",
	.help = "what does registered memory from a heap cost, compared with "
		"malloc() and registering?",
	.about = "The experiments of the paper on a heap of registered memory: "
		 "registering, new memory, reused memory, and puts.",
	.options = options,
	.noptions = PN_ARRAY_LEN(options),
	.values_bytes = sizeof(struct values),
	.run = run_heap,
};
