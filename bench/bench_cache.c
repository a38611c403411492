/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Question: what does pinning a cached buffer cost, how does the cost grow with
 * the number of regions and threads, and what else does the cache cost?
 *
 * Regions of 8 KiB, one in every 16 KiB of reserved addresses; in the last row
 * one in every GiB. The device is simulated, costs nothing and touches no
 * memory, so the benchmark measures the cache behind pinion_pin() and
 * pinion_unpin(). Addresses are generated beforehand. With --registrar the
 * context uses registration functions of a caller that do nothing
 * (pinion/registrar.h); with --contexts further contexts are open, with a
 * region each.
 *
 *   ns_per_hit       real time per pair of pin and unpin, over all threads:
 *                    random hits that do not depend on each other, so that the
 *                    CPU overlaps their cache misses
 *   ns_dependent     the same if each address depends on the key of the last
 *                    pin, so that the CPU cannot overlap them
 *   speedup          throughput of all threads over that of one thread,
 *                    measured alternately in slices; the median over the
 *                    rounds. A single thread reports each hit to the policy,
 *                    several threads leave that to misses. The other threads
 *                    exist only during their slice, so that one thread is
 *                    measured as a single one
 *   bytes_per_region growth of the process's anonymous memory from the first
 *   region
 *                    (which brings the thread's slots and log) to the last, on
 *                    the
 *                    same device with registrations that keep nothing: includes
 *                    neither the device's registry nor the buffers, which are
 *                    never
 *                    touched
 *   ns_per_miss      a pin that registers, and its unpin; _bare: without the
 *                    device
 *   ns_unrelated_munmap  additional time of mmap and munmap of an unwatched
 *                        page
 *                    through libc, which the monitor intercepts, compared with
 *                    a
 *                    second libc (dlmopen), which it does not intercept.
 *                    ns_munmap_over_raw: compared with raw system calls, which
 *                    are
 *                    faster by some hundred nanoseconds for reasons unrelated
 *                    to
 *                    pinion
 *   instructions_per_hit  of a pair, by callgrind (--callgrind); a single
 *                         thread
 *                    reports to the policy, see above
 */
#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "base/range.h"
#include "bench/bench.h"
#include "bench/callgrind.h"
#include "cache/policy/policy.h"
#include "context.h"
#include "monitor/monitor.h"
#include "monitor/syscalls.h"
#include "tools/pinion/system_limits.h"

#define REGION_BYTES	((size_t)8 << 10)
#define DENSE_BYTES	((size_t)16 << 10)
#define SCATTERED_BYTES ((size_t)1 << 30)
#define MAX_ROUNDS	201
#define MAX_THREADS	64
#define MAX_LIST	16
#define MAX_CONTEXTS	16
#define MOST_PAIRS	((size_t)1 << 17)
#define ACCESS		PINION_ACCESS_LOCAL_WRITE

struct values {
	struct pn_bench_values common; /* sizes are not options here */
	char regions[PN_OPTION_TEXT_BYTES];
	uint64_t scattered, threads, hits, contexts;
	char policy[PN_OPTION_TEXT_BYTES];
	bool callgrind, registrar;
};

#define FIELD(name) offsetof(struct values, name)

static const struct pn_option options[] = {
	{ "device", PN_OPTION_TEXT, "sim:cost=none,data=none",
	  "the device, as a spec", FIELD(common.device), 0, 0, NULL },
	{ "registrar", PN_OPTION_BOOL, "no",
	  "use registration functions that do nothing instead of a device",
	  FIELD(registrar), 0, 0, NULL },
	{ "contexts", PN_OPTION_NUMBER, "1",
	  "number of open contexts, of which one is measured", FIELD(contexts),
	  1, MAX_CONTEXTS, NULL },
	{ "regions", PN_OPTION_TEXT, "1000,100000,1000000",
	  "number of regions, one in 16 KiB; separated by commas",
	  FIELD(regions), 0, 0, NULL },
	{ "scattered", PN_OPTION_NUMBER, "1000",
	  "number of regions, one in a GiB (0: skip)", FIELD(scattered), 0,
	  65536, NULL },
	{ "threads", PN_OPTION_NUMBER, "2", "threads to compare with one",
	  FIELD(threads), 1, MAX_THREADS, NULL },
	{ "policy", PN_OPTION_TEXT, "cost", "policies, separated by commas",
	  FIELD(policy), 0, 0, NULL },
	{ "callgrind", PN_OPTION_BOOL, "no",
	  "also count instructions (needs valgrind)", FIELD(callgrind), 0, 0,
	  NULL },
	{ "hits", PN_OPTION_NUMBER, "0",
	  "run so many hits and exit (used with callgrind)", FIELD(hits), 0, 0,
	  NULL },
	{ "budget", PN_OPTION_TIME, "20s", "approximate time limit",
	  FIELD(common.budget), PN_NS_PER_MS, 0, NULL },
	PN_COMMAND_JSON(struct values, common.json),
};

/* --- addresses of regions ------------------------------------------------ */

struct field {
	char *base;
	size_t n, spacing;
	void **order;  /* random addresses, norder per thread */
	size_t norder; /* power of two */
};

static void *region_at(const struct field *field, size_t i)
{
	return field->base + i * field->spacing;
}

static uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* Twice as many addresses as regions: the array contains most regions and, read
 * in order, takes little of the CPU's caches. */
static int make_order(struct field *field, unsigned nthreads)
{
	uint64_t random = UINT64_C(0x9e3779b97f4a7c15);

	field->norder = (size_t)1 << 14;
	while (field->norder < 2 * field->n)
		field->norder *= 2;
	field->order = calloc(nthreads * field->norder, sizeof(*field->order));
	if (!field->order)
		return -ENOMEM;
	for (size_t i = 0; i < nthreads * field->norder; i++)
		field->order[i] =
			region_at(field, next_random(&random) % field->n);
	return 0;
}

static void field_close(struct field *field)
{
	munmap(field->base, field->n * field->spacing);
	free(field->order);
}

static int field_open(struct field *field, size_t n, size_t spacing,
		      unsigned nthreads)
{
	int ret;

	*field = (struct field){ .n = n, .spacing = spacing };
	field->base = mmap(NULL, n * spacing, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (field->base == MAP_FAILED)
		return -errno;
	ret = make_order(field, nthreads);
	if (ret)
		field_close(field);
	return ret;
}

/* --- hits ----------------------------------------------------------------- */

struct worker {
	struct pinion_context *context;
	void *const *order;
	size_t mask, at, npairs;
	bool dependent;
	uint64_t end_ns;
	int ret;
	/* threads of the current slice */
	pthread_t thread;
	_Atomic unsigned *ready;
	_Atomic bool *go;
};

/* The compiler cannot know that it stays 0, so adding it creates a dependence.
 */
static volatile uint64_t nothing;

static inline __attribute__((always_inline)) int pin_pairs(struct worker *w,
							   size_t npairs,
							   bool dependent)
{
	struct pinion_context *const context = w->context;
	const uint64_t no_bits = nothing;
	struct pinion_pin pin = { .local_key = 0 };
	size_t at = w->at, end = at + npairs;
	int ret = 0;

	for (; at != end && pn_likely(!ret); at++) {
		char *addr = w->order[at & w->mask];

		if (dependent)
			addr += pin.local_key & no_bits;
		ret = pinion_pin(context, addr, REGION_BYTES, ACCESS, &pin);
		if (pn_likely(!ret))
			pinion_unpin(context, &pin);
	}
	w->at = at;
	return ret;
}

static void work(struct worker *w)
{
	w->ret = w->dependent ? pin_pairs(w, w->npairs, true)
			      : pin_pairs(w, w->npairs, false);
	w->end_ns = pn_clock_ns();
}

/* The first pin of a thread allocates its slots; then all start at once. */
static void *thread_main(void *arg)
{
	struct worker *w = arg;

	pin_pairs(w, 16, false);
	atomic_fetch_add(w->ready, 1);
	while (!atomic_load_explicit(w->go, memory_order_acquire))
		pn_relax();
	work(w);
	return NULL;
}

struct pool {
	struct worker workers[MAX_THREADS];
	size_t npairs; /* pairs of each thread in a slice */
};

static void pool_init(struct pool *pool, struct pinion_context *context,
		      const struct field *field, unsigned nthreads)
{
	for (unsigned i = 0; i < nthreads; i++)
		pool->workers[i] = (struct worker){
			.context = context,
			.order = field->order + i * field->norder,
			.mask = field->norder - 1,
		};
}

/* Starts threads 1 to n - 1 and waits until they are ready. Returns the number
 * of threads, including thread 0. */
static unsigned line_up(struct pool *pool, unsigned n, _Atomic unsigned *ready,
			_Atomic bool *go)
{
	unsigned started = 1;

	for (; started < n; started++) {
		struct worker *w = &pool->workers[started];

		w->ready = ready;
		w->go = go;
		if (pthread_create(&w->thread, NULL, thread_main, w))
			break;
	}
	while (atomic_load(ready) != started - 1)
		pn_relax();
	return started;
}

/* n threads run their pairs. *ns: the time of the slowest thread divided by all
 * pairs. */
static int slice(struct pool *pool, unsigned n, bool dependent, double *ns)
{
	_Atomic unsigned ready = 0;
	_Atomic bool go = false;
	uint64_t start, end = 0;
	unsigned started;
	int ret = 0;

	for (unsigned i = 0; i < n; i++) {
		pool->workers[i].dependent = dependent;
		pool->workers[i].npairs = pool->npairs;
	}
	started = line_up(pool, n, &ready, &go);
	start = pn_clock_ns();
	atomic_store_explicit(&go, true, memory_order_release);
	work(&pool->workers[0]);
	for (unsigned i = 0; i < started; i++) {
		struct worker *w = &pool->workers[i];

		if (i)
			pthread_join(w->thread, NULL);
		ret = ret ? ret : w->ret;
		end = w->end_ns > end ? w->end_ns : end;
	}
	*ns = (double)(end - start) / (double)(n * pool->npairs);
	return started < n ? -EAGAIN : ret;
}

/* --- memory and misses ---------------------------------------------------- */

/* Registrations cost nothing and keep nothing. */
static int register_nothing(void *arg,
			    struct pinion_registrar_range *const *ranges,
			    unsigned n)
{
	static _Atomic uint64_t last_key;

	(void)arg;
	for (unsigned i = 0; i < n; i++)
		ranges[i]->local_key = atomic_fetch_add(&last_key, 1) + 1;
	return 0;
}

static int deregister_nothing(void *arg,
			      struct pinion_registrar_range *const *ranges,
			      unsigned n)
{
	(void)arg;
	(void)ranges;
	(void)n;
	return 0;
}

static const struct pinion_registrar no_registrar = {
	.size = sizeof(no_registrar),
	.register_ranges = register_nothing,
	.deregister_ranges = deregister_nothing,
};

static int open_one(const struct values *values, const char *policy,
		    const struct field *field, struct pinion_context **out)
{
	char device[PN_OPTION_TEXT_BYTES + 16], name[64], bytes[64];
	const char *const list[] = { device, name, bytes, NULL };
	const struct pinion_attr attr = {
		.size = sizeof(attr),
		.options = list,
		.registrar = values->registrar ? &no_registrar : NULL,
	};

	snprintf(device, sizeof(device), "device=%s", values->common.device);
	snprintf(name, sizeof(name), "cache_policy=%s", policy);
	snprintf(bytes, sizeof(bytes), "max_bytes=%zu",
		 field->n * REGION_BYTES);
	return pinion_open(&attr, out);
}

/* The measured context and the further ones. */
struct contexts {
	struct pinion_context *one;
	struct pinion_context *others[MAX_CONTEXTS];
	unsigned nothers;
};

static void close_contexts(struct contexts *contexts)
{
	pinion_close(contexts->one);
	while (contexts->nothers)
		pinion_close(contexts->others[--contexts->nothers]);
}

/* Each further context has a region that the measured one will have, too. */
static int open_contexts(const struct values *values, const char *policy,
			 const struct field *field, struct contexts *out)
{
	int ret = 0;

	*out = (struct contexts){ .one = NULL };
	while (!ret && out->nothers + 1 < values->contexts) {
		struct pinion_context **other = &out->others[out->nothers];
		struct pinion_pin pin;

		ret = open_one(values, policy, field, other);
		out->nothers += !ret;
		if (!ret)
			ret = pinion_pin(*other, field->base, REGION_BYTES,
					 ACCESS, &pin);
		if (!ret)
			pinion_unpin(*other, &pin);
	}
	if (!ret)
		ret = open_one(values, policy, field, &out->one);
	if (ret)
		close_contexts(out);
	return ret;
}

/* Pins every region once. */
static int fill(struct pinion_context *context, const struct field *field,
		double *ns)
{
	uint64_t start = pn_clock_ns();

	for (size_t i = 0; i < field->n; i++) {
		struct pinion_pin pin;
		int ret = pinion_pin(context, region_at(field, i), REGION_BYTES,
				     ACCESS, &pin);

		if (ret)
			return ret;
		pinion_unpin(context, &pin);
	}
	*ns = (double)(pn_clock_ns() - start) / (double)field->n;
	return 0;
}

/* A registration that costs nothing and keeps nothing. */
static int bare_register(struct pn_device *device, struct pn_mr *const *mrs,
			 unsigned n)
{
	static _Atomic uint64_t last_key;

	(void)device;
	for (unsigned i = 0; i < n; i++)
		mrs[i]->lkey = atomic_fetch_add(&last_key, 1) + 1;
	return 0;
}

static void bare_deregister(struct pn_device *device, struct pn_mr *const *mrs,
			    unsigned n)
{
	(void)device;
	for (unsigned i = 0; i < n; i++)
		mrs[i]->lkey = 0;
}

static double anonymous_bytes(void)
{
	return (double)pn_proc_field("/proc/self/smaps_rollup", "Anonymous", 0);
}

struct point {
	const char *policy;
	size_t regions, spacing, rounds;
	unsigned threads;
	double bytes, miss_ns, bare_miss_ns;
	double instructions[2]; /* of one thread; of several */
	double munmap_ns, munmap_raw_ns;
	uint64_t misses; /* during the hit measurement: should be 0 */
	double hit_ns, dependent_ns, speedup;
};

static int measure_memory(const struct values *values,
			  const struct field *field, struct point *point)
{
	struct pinion_context *context;
	const struct field first = { .base = field->base, .n = 1 };
	struct pn_device_ops ops;
	double before;
	int ret = open_one(values, point->policy, field, &context);

	if (ret)
		return ret;
	ops = *context->device->ops;
	ops.reg = bare_register;
	ops.dereg = bare_deregister;
	context->device->ops = &ops;
	ret = fill(context, &first, &point->bare_miss_ns);
	before = anonymous_bytes();
	if (!ret)
		ret = fill(context, field, &point->bare_miss_ns);
	point->bytes = (anonymous_bytes() - before) / (double)field->n;
	pinion_close(context);
	return ret;
}

/* --- munmap of unwatched memory ------------------------------------------- */

#define MUNMAP_PAIRS   200
#define MUNMAP_BATCHES 201
#define HOLE_BYTES     ((size_t)4 << 20)

#define PAGE_PROT  (PROT_READ | PROT_WRITE)
#define PAGE_FLAGS (MAP_PRIVATE | MAP_ANONYMOUS)

/* mmap and munmap of a libc; NULL: raw system calls. */
struct mapper {
	__typeof__(mmap) *map;
	__typeof__(munmap) *unmap;
};

static inline void map_and_unmap(const struct mapper *mapper, void *at)
{
	long page;

	if (mapper->map) {
		mapper->unmap(mapper->map(at, PN_PAGE_BYTES, PAGE_PROT,
					  PAGE_FLAGS, -1, 0),
			      PN_PAGE_BYTES);
		return;
	}
	page = PN_SYSCALL(SYS_mmap, (long)at, PN_PAGE_BYTES, PAGE_PROT,
			  PAGE_FLAGS, -1, 0);
	PN_SYSCALL(SYS_munmap, page, PN_PAGE_BYTES);
}

static double batch_ns(const struct mapper *mapper, void *at)
{
	uint64_t start = pn_clock_ns();

	for (int i = 0; i < MUNMAP_PAIRS; i++)
		map_and_unmap(mapper, at);
	return (double)(pn_clock_ns() - start) / MUNMAP_PAIRS;
}

/* Loads a second libc, which the monitor has not patched; false: not possible.
 */
static bool second_libc(struct mapper *mapper)
{
	void *libc = dlmopen(LM_ID_NEWLM, "libc.so.6", RTLD_NOW);
	void *map = libc ? dlsym(libc, "mmap") : NULL;
	void *unmap = libc ? dlsym(libc, "munmap") : NULL;

	memcpy(&mapper->map, &map, sizeof(map));
	memcpy(&mapper->unmap, &unmap, sizeof(unmap));
	return map && unmap;
}

/* In an address hole, away from other mappings, and each batch at another
 * address: the monitor's filter is a hash, and some addresses share a bucket
 * with watched memory. */
static void unrelated_munmap(struct point *point, uint64_t budget_ns)
{
	static const struct mapper raw = { NULL, NULL };
	static const struct mapper watched = { mmap, munmap };
	static struct mapper second;
	static bool tried, there;
	double over_second[MUNMAP_BATCHES], over_raw[MUNMAP_BATCHES];
	struct pn_trials trials = pn_trials_begin(3, MUNMAP_BATCHES, budget_ns);
	size_t n;
	char *hole = mmap(NULL, (MUNMAP_BATCHES + 2) * HOLE_BYTES, PROT_NONE,
			  PAGE_FLAGS | MAP_NORESERVE, -1, 0);

	if (!tried)
		there = second_libc(&second);
	tried = true;
	point->munmap_ns = point->munmap_raw_ns = NAN;
	if (hole == MAP_FAILED)
		return;
	munmap(hole, (MUNMAP_BATCHES + 2) * HOLE_BYTES);
	for (n = 0; pn_trials_continue(&trials, n); n++) {
		char *at = hole + (n + 1) * HOLE_BYTES;
		double ns = batch_ns(&watched, at);

		over_raw[n] = ns - batch_ns(&raw, at);
		over_second[n] = there ? ns - batch_ns(&second, at) : NAN;
	}
	point->munmap_raw_ns = pn_median(over_raw, n);
	if (there)
		point->munmap_ns = pn_median(over_second, n);
}

/* --- rows ----------------------------------------------------------------- */

static void print_point(struct pn_report *report, const struct point *p)
{
	const char *monitor = pn_monitor_mode_name(pn_monitor_mode());
	const struct pn_report_cell row[] = {
		PN_CELL_COUNT("regions", "regions", 8, p->regions),
		PN_CELL_BYTES("spacing_bytes", "per", 4, p->spacing),
		PN_CELL_TEXT("policy", "policy", 6, p->policy),
		PN_CELL_TEXT("monitor", NULL, 0, monitor),
		PN_CELL_COUNT("threads", "thr", 3, p->threads),
		PN_CELL_NUMBER("ns_per_hit", "ns/hit", 7, p->hit_ns),
		PN_CELL_NUMBER("ns_dependent", "dep.", 6, p->dependent_ns),
		PN_CELL_NUMBER("speedup", "x", 6, p->speedup),
		PN_CELL_NUMBER("instructions_per_hit", "instr", 6,
			       p->instructions[p->threads > 1]),
		PN_CELL_NUMBER("bytes_per_region", "B/reg", 6, p->bytes),
		PN_CELL_NUMBER("ns_per_miss", "miss", 6, p->miss_ns),
		PN_CELL_NUMBER("ns_per_miss_bare", NULL, 0, p->bare_miss_ns),
		PN_CELL_NUMBER("ns_unrelated_munmap", "munmap", 6,
			       p->munmap_ns),
		PN_CELL_NUMBER("ns_munmap_over_raw", NULL, 0, p->munmap_raw_ns),
		PN_CELL_COUNT("misses", NULL, 0, p->misses),
		PN_CELL_COUNT("rounds", NULL, 0, p->rounds),
	};

	pn_report_row(report, row, PN_ARRAY_LEN(row));
}

/* ns of each round: by one thread and by all. */
struct rounds {
	double hit[2][MAX_ROUNDS], dependent[2][MAX_ROUNDS];
	double ratio[MAX_ROUNDS];
	size_t n;
};

static int run_round(struct pool *pool, unsigned nthreads, struct rounds *r,
		     size_t i)
{
	const unsigned n[2] = { 1, nthreads };
	int ret = 0;

	/* The order changes from round to round. */
	for (unsigned turn = 0; turn < 2 && !ret; turn++) {
		unsigned t = (turn + (unsigned)i) % 2;

		ret = slice(pool, n[t], false, &r->hit[t][i]);
		if (!ret)
			ret = slice(pool, n[t], true, &r->dependent[t][i]);
	}
	r->ratio[i] = r->hit[0][i] / r->hit[1][i];
	return ret;
}

static int play_rounds(struct pool *pool, unsigned nthreads, uint64_t share_ns,
		       struct rounds *r)
{
	struct pn_trials trials;
	uint64_t start;
	int ret = 0;

	/* Also warms up. Slices are long enough for the clock and for starting
	 * threads, and short enough for several rounds. */
	for (pool->npairs = 512; !ret && pool->npairs < MOST_PAIRS;) {
		pool->npairs *= 2;
		start = pn_clock_ns();
		ret = run_round(pool, nthreads, r, 0);
		if (pn_clock_ns() - start > share_ns / 16)
			break;
	}
	trials = pn_trials_begin(3, MAX_ROUNDS, share_ns);
	for (r->n = 0; !ret && pn_trials_continue(&trials, r->n); r->n++)
		ret = run_round(pool, nthreads, r, r->n);
	return ret;
}

/* Ratios first: computing a median reorders the samples. */
static void print_rounds(struct pn_report *report, struct point *point,
			 unsigned nthreads, struct rounds *r)
{
	double speedup = pn_median(r->ratio, r->n);

	point->rounds = r->n;
	for (unsigned t = 0; t < (nthreads > 1 ? 2 : 1); t++) {
		point->threads = t ? nthreads : 1;
		point->hit_ns = pn_median(r->hit[t], r->n);
		point->dependent_ns = pn_median(r->dependent[t], r->n);
		point->speedup = t ? speedup : NAN;
		print_point(report, point);
	}
}

static uint64_t misses_of(struct pinion_context *context)
{
	struct pinion_cache_stats stats = { .size = sizeof(stats) };

	pinion_cache_query(context, &stats);
	return stats.misses;
}

/* All measurements with a full cache. */
static int measure_hits(struct pn_bench_run *run,
			struct pinion_context *context,
			const struct field *field, struct point *point)
{
	const struct values *values = run->values;
	unsigned nthreads = (unsigned)values->threads;
	struct rounds *rounds = calloc(1, sizeof(*rounds));
	struct pool pool;
	uint64_t before, share_ns;
	int ret;

	if (!rounds)
		return -ENOMEM;
	pool_init(&pool, context, field, nthreads);
	before = misses_of(context);
	share_ns = pn_bench_share_ns(run);
	ret = play_rounds(&pool, nthreads, share_ns / 4 * 3, rounds);
	point->misses = misses_of(context) - before;
	unrelated_munmap(point, share_ns / 4);
	if (!ret)
		print_rounds(&run->report, point, nthreads, rounds);
	free(rounds);
	return ret;
}

static int with_field(struct pn_bench_run *run, const struct field *field,
		      struct point *point)
{
	const struct values *values = run->values;
	struct contexts contexts;
	int ret = measure_memory(values, field, point);

	if (ret)
		return ret;
	ret = open_contexts(values, point->policy, field, &contexts);
	if (ret)
		return ret;
	ret = fill(contexts.one, field, &point->miss_ns);
	if (!ret)
		ret = measure_hits(run, contexts.one, field, point);
	close_contexts(&contexts);
	return ret;
}

static int measure_point(struct pn_bench_run *run, struct point point)
{
	const struct values *values = run->values;
	struct field field;
	char text[64];
	int ret;

	snprintf(text, sizeof(text), "%s, %zu regions", point.policy,
		 point.regions);
	pn_report_progress(text);
	ret = field_open(&field, point.regions, point.spacing,
			 (unsigned)values->threads);
	if (ret)
		return ret;
	ret = with_field(run, &field, &point);
	field_close(&field);
	return ret;
}

/* --- instructions --------------------------------------------------------- */

/* Multiples of the log length, so that the policy is updated as often as on
 * average. */
#define FEW_HITS  UINT64_C(4096)
#define MANY_HITS UINT64_C(24576)

static int count_run(const struct values *values, const char *policy,
		     unsigned nthreads, uint64_t hits, uint64_t *instructions)
{
	char number[24], threads[24], contexts[24];
	const char *const args[] = { "--toggle-collect=pinion_pin",
				     "--toggle-collect=pinion_unpin",
				     "--",
				     "bench",
				     "cache",
				     "--device",
				     values->common.device,
				     "--policy",
				     policy,
				     "--threads",
				     threads,
				     "--contexts",
				     contexts,
				     "--hits",
				     number,
				     values->registrar ? "--registrar" : NULL,
				     NULL };

	snprintf(number, sizeof(number), "%" PRIu64, hits);
	snprintf(threads, sizeof(threads), "%u", nthreads);
	snprintf(contexts, sizeof(contexts), "%" PRIu64, values->contexts);
	return pn_callgrind(args, instructions);
}

static double count_instructions(const struct values *values,
				 const char *policy, unsigned nthreads)
{
	uint64_t few = 0, many = 0;
	int ret;

	if (!values->callgrind)
		return NAN;
	pn_report_progress("counting instructions");
	ret = count_run(values, policy, nthreads, FEW_HITS, &few);
	if (!ret)
		ret = count_run(values, policy, nthreads, MANY_HITS, &many);
	if (!ret)
		return (double)(many - few) / (double)(MANY_HITS - FEW_HITS);
	fprintf(stderr, "pinion: callgrind: %s\n",
		ret == -ENOENT ? "valgrind is not installed" : strerror(-ret));
	return NAN;
}

/* The hits of one thread while the other threads are alive and have pinned a
 * buffer. */
static int hits_in_company(struct pool *pool, unsigned nthreads, size_t hits)
{
	_Atomic unsigned ready = 0;
	_Atomic bool go = false;
	unsigned started = line_up(pool, nthreads, &ready, &go);
	int ret = pin_pairs(&pool->workers[0], hits, false);

	atomic_store_explicit(&go, true, memory_order_release);
	for (unsigned i = 1; i < started; i++)
		pthread_join(pool->workers[i].thread, NULL);
	return started < nthreads ? -EAGAIN : ret;
}

/* The part that callgrind runs. */
static int make_hits(const struct values *values, const char *policy)
{
	unsigned nthreads = (unsigned)values->threads;
	struct contexts contexts;
	struct field field;
	struct pool pool;
	double ns;
	int ret = field_open(&field, 1000, DENSE_BYTES, nthreads);

	if (ret)
		return pn_failed("reserving addresses", ret);
	ret = open_contexts(values, policy, &field, &contexts);
	if (!ret) {
		pool_init(&pool, contexts.one, &field, nthreads);
		ret = fill(contexts.one, &field, &ns);
		if (!ret)
			ret = hits_in_company(&pool, nthreads, values->hits);
		close_contexts(&contexts);
	}
	field_close(&field);
	return ret ? pn_spec_exit("cache", ret) : PN_EXIT_OK;
}

/* --- all of it ------------------------------------------------------------ */

struct lists {
	const char *policies[MAX_LIST];
	uint64_t regions[MAX_LIST];
	size_t npolicies, nregions;
};

static const char *find_policy(const char *name)
{
	for (unsigned i = 0; pn_policy_at(i); i++)
		if (!strcmp(pn_policy_at(i)->name, name))
			return pn_policy_at(i)->name;
	return NULL;
}

/* Each list has at least one entry, and all entries are valid. */
static bool parse_lists(const struct values *values, struct lists *lists)
{
	const struct pn_option row = { .type = PN_OPTION_NUMBER,
				       .min = 1,
				       .max = UINT64_C(1) << 32 };
	const char *at = values->policy;
	char word[PN_WORD_BYTES];

	while (pn_words_next(&at, word)) {
		const char *name = find_policy(word);

		if (!name || lists->npolicies == MAX_LIST)
			return false;
		lists->policies[lists->npolicies++] = name;
	}
	return !*at && lists->npolicies &&
	       !pn_words_numbers(values->regions, &row, lists->regions,
				 MAX_LIST, &lists->nregions);
}

static int measure_policy(struct pn_bench_run *run, const struct lists *lists,
			  const char *policy, size_t max_regions)
{
	const struct values *values = run->values;
	struct point point = { .policy = policy, .spacing = DENSE_BYTES };
	int ret = 0;

	point.instructions[0] = count_instructions(values, policy, 1);
	point.instructions[1] =
		count_instructions(values, policy, (unsigned)values->threads);
	for (unsigned i = 0; i < lists->nregions && !ret; i++) {
		point.regions = lists->regions[i];
		if (point.regions <= max_regions)
			ret = measure_point(run, point);
		else
			pn_report_note(
				&run->report,
				"%zu regions are more than the device supports",
				point.regions);
	}
	point.regions = values->scattered;
	point.spacing = SCATTERED_BYTES;
	if (!ret && point.regions && point.regions <= max_regions)
		ret = measure_point(run, point);
	return ret;
}

static int measure(struct pn_bench_run *run, const struct lists *lists,
		   size_t max_regions)
{
	const struct values *values = run->values;
	int ret = 0;

	pn_bench_plan(run, lists->npolicies *
				   (lists->nregions + !!values->scattered));
	for (unsigned i = 0; i < lists->npolicies && !ret; i++)
		ret = measure_policy(run, lists, lists->policies[i],
				     max_regions);
	pn_report_progress(NULL);
	return ret ? pn_failed("cache", ret) : PN_EXIT_OK;
}

/* Opens the device once to print its name and costs. */
static int run_cache(const void *v, char *const *operands)
{
	const struct values *values = v;
	struct pn_bench_run run = { .values = values };
	struct lists lists = { .npolicies = 0 };
	struct pinion_context *context;
	struct pn_spec spec;
	size_t max_regions;
	int ret;

	(void)operands;
	if (!parse_lists(values, &lists))
		return pn_usage_error(
			"--regions takes numbers, --policy takes lru, fmrd, "
			"mre, greedy, keep and cost, separated by commas");
	if (pn_spec_find(&spec, values->common.device))
		return PN_EXIT_FAILED;
	if (values->hits)
		return make_hits(values, lists.policies[0]);
	ret = pn_spec_open(&spec, &context);
	if (ret)
		return pn_spec_exit(spec.text, ret);
	run.report = (struct pn_report){ .json = values->common.json,
					 .bench = "cache",
					 .device = spec.text };
	max_regions = context->device->limits.max_mrs;
	pn_report_device(&run.report, context->device);
	pinion_close(context);
	pn_report_head(&run.report, pn_bench_cache.help);
	return measure(&run, &lists, max_regions);
}

const struct pn_command pn_bench_cache = {
	.name = "cache",
	.help = "what does pinning a cached buffer cost?",
	.about = "Pins and unpins random cached buffers, alternately with one "
		 "thread and with several; also measures the cost of a miss, "
		 "of a region and of an unrelated munmap.",
	.options = options,
	.noptions = PN_ARRAY_LEN(options),
	.values_bytes = sizeof(struct values),
	.run = run_cache,
};
