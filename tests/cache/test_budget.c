/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The process's budget of pinned memory: contexts share it, reclaim in each
 * other, obey caps of their own, and leave nothing behind. On `soft`, where
 * VmPin shows what is pinned.
 */
#include "test.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <pinion/pinion.h>

#include "base/pages.h"
#include "base/thread.h"
#include "child.h"
#include "context.h"
#include "vmpin.h"

#define KIB   ((size_t)1 << 10)
#define MIB   ((size_t)1 << 20)
#define ARENA (8 * MIB)
#define WRITE PINION_ACCESS_LOCAL_WRITE

static char *arena;
static char *mapped;
static size_t vmpin_before;

static struct pinion_context *open_on(const char *device, const char *option,
				      const char *more)
{
	const char *const options[] = { device, "cache_merge=no", option, more,
					NULL };
	const struct pinion_attr attr = { .size = sizeof(attr),
					  .options = options };
	struct pinion_context *context;

	assert_ok(pinion_open(&attr, &context));
	return context;
}

static struct pinion_context *open_with(const char *option)
{
	return open_on("device=soft", option, NULL);
}

static struct pn_budget_process process_now(void)
{
	struct pn_budget_process now;

	pn_budget_process(&now);
	return now;
}

static struct pinion_cache_stats stats_of(struct pinion_context *context)
{
	struct pinion_cache_stats s = { .size = sizeof(s) };

	assert_ok(pinion_cache_query(context, &s));
	return s;
}

static int setup(void **state)
{
	(void)state;
	/* Untouched: an old kernel does not say that 2 MiB which are there are
	 * no huge page. */
	mapped = mmap(NULL, 2 * ARENA, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(mapped != MAP_FAILED);
	arena = mapped + PN_PAGES_HUGE_BYTES -
		(uintptr_t)mapped % PN_PAGES_HUGE_BYTES;
	madvise(arena, ARENA, MADV_NOHUGEPAGE);
	vmpin_before = vmpin();
	/* The first context of all makes what is looked at below. */
	pinion_close(open_with(NULL));
	return 0;
}

static int teardown(void **state)
{
	struct pn_budget_process now = process_now();

	(void)state;
	assert_int_equal(now.nmembers, 0);
	assert_int_equal(now.bytes, 0);
	assert_vmpin_comes_back_to(vmpin_before);
	munmap(mapped, 2 * ARENA);
	return 0;
}

/* Kernel 6.1 gives charges back about a second late, and a pin that finds no
 * room but for that is refused: so long it is tried again. */
static int pin_when_unpinned(struct pinion_context *context, char *addr,
			     size_t len, struct pinion_pin *pin)
{
	bool late = context->device->limits.deferred_uncharge;
	uint64_t end = pn_clock_ns() + 5 * PN_NS_PER_S;
	int ret;

	do {
		ret = pinion_pin(context, addr, len, WRITE, pin);
		if (!ret || !late)
			break;
		usleep(10000);
	} while (pn_clock_ns() < end);
	return ret;
}

/* Pins pieces of 64 KiB from a place on until there is no room; how many. */
#define PIECE (64 * KIB)

static unsigned fill(struct pinion_context *context, char *from,
		     struct pinion_pin *pins, unsigned max)
{
	unsigned n = 0;
	int ret = 0;

	while (n < max && !ret) {
		ret = pin_when_unpinned(context, from + n * PIECE, PIECE,
					&pins[n]);
		n += !ret;
	}
	assert_true(!ret || ret == -ENOBUFS);
	return n;
}

static void empty(struct pinion_context *context, struct pinion_pin *pins,
		  unsigned n)
{
	while (n)
		pinion_unpin(context, &pins[--n]);
}

static void contexts_together_stay_below_the_limit(void **state)
{
	struct pinion_context *a = open_with("process_max_bytes=1M");
	struct pinion_context *b = open_with(NULL);
	struct pinion_pin pins[2][32];
	size_t pinned = vmpin();
	unsigned n;

	(void)state;
	assert_int_equal(stats_of(b).max_bytes, MIB);
	assert_int_equal(fill(a, arena, pins[0], 10), 10);
	n = fill(b, arena + ARENA / 2, pins[1], 32);
	assert_int_equal(n, 6);
	assert_int_equal(process_now().bytes, MIB);
	assert_int_equal(stats_of(a).peak_bytes, 10 * PIECE);
	assert_int_equal(stats_of(b).peak_bytes, 6 * PIECE);
	assert_in_range(vmpin(), 0, pinned + MIB);
	/* What one gives up is the other's. */
	empty(a, pins[0], 10);
	n += fill(b, arena + ARENA / 2 + n * PIECE, pins[1] + n, 32 - n);
	assert_int_equal(n, 16);
	assert_int_equal(process_now().peak_bytes, MIB);
	empty(b, pins[1], n);
	pinion_close(a);
	pinion_close(b);
}

static void idle_regions_of_other_contexts_make_room(void **state)
{
	struct pinion_context *a = open_with("process_max_bytes=1M");
	struct pinion_context *b = open_with("process_max_bytes=1M");
	struct pinion_pin pins[16], whole;

	(void)state;
	assert_int_equal(fill(a, arena, pins, 12), 12);
	empty(a, pins + 2, 10);
	/* Ten idle, two in use: these stay. */
	assert_ok(pin_when_unpinned(b, arena + ARENA / 2, 14 * PIECE, &whole));
	assert_int_equal(stats_of(a).bytes, 2 * PIECE);
	assert_int_equal(process_now().bytes, MIB);
	pinion_unpin(b, &whole);
	assert_int_equal(pinion_pin(b, arena + ARENA / 2, 15 * PIECE, WRITE,
				    &whole),
			 -ENOBUFS);
	empty(a, pins, 2);
	assert_ok(pin_when_unpinned(b, arena + ARENA / 2, 15 * PIECE, &whole));
	pinion_unpin(b, &whole);
	pinion_close(b);
	pinion_close(a);
}

static void empty_slabs_of_other_contexts_make_room(void **state)
{
	struct pinion_context *a = open_with("process_max_bytes=2M");
	struct pinion_context *b = open_with(NULL);
	struct pinion_heap_stats heap_stats = { .size = sizeof(heap_stats) };
	struct pinion_heap *heap;
	struct pinion_pin pin;
	void *block;

	(void)state;
	assert_ok(pinion_heap_open(a, NULL, &heap));
	block = pinion_heap_malloc(heap, 300 * KIB);
	assert_non_null(block);
	assert_int_equal(pinion_pin(b, arena, 2 * MIB, WRITE, &pin), -ENOBUFS);
	pinion_heap_free(heap, block);
	assert_ok(pin_when_unpinned(b, arena, 2 * MIB, &pin));
	assert_ok(pinion_heap_query(heap, &heap_stats));
	assert_int_equal(heap_stats.slabs, 0);
	pinion_unpin(b, &pin);
	pinion_close(a);
	pinion_close(b);
}

/* Who is at its own cap takes nothing from others. */
static void a_cap_holds_and_spares_the_others(void **state)
{
	struct pinion_context *a = open_with("max_bytes=256K");
	struct pinion_context *b = open_with("process_max_bytes=4M");
	struct pinion_pin pins[32];

	(void)state;
	assert_int_equal(fill(b, arena, pins, 8), 8);
	empty(b, pins, 8);
	assert_int_equal(fill(a, arena + ARENA / 2, pins, 32), 4);
	assert_int_equal(stats_of(a).max_bytes, 256 * KIB);
	assert_int_equal(stats_of(b).max_bytes, 4 * MIB);
	assert_int_equal(stats_of(b).bytes, 8 * PIECE);
	empty(a, pins, 4);
	assert_ok(pinion_cache_resize(b, 2 * PIECE, 0));
	assert_in_range(stats_of(b).bytes, 0, 2 * PIECE);
	assert_int_equal(fill(b, arena, pins, 32), 2);
	empty(b, pins, 2);
	pinion_close(b);
	pinion_close(a);
}

static void a_larger_cap_raises_what_was_derived(void **state)
{
	struct pinion_context *a = open_with(NULL), *b;
	size_t derived = process_now().max_bytes;
	size_t hard = a->device->limits.max_pinned_bytes;
	size_t cap = derived + derived / 8;
	char option[64];

	(void)state;
	assert_int_equal(stats_of(a).max_bytes, derived);
	snprintf(option, sizeof(option), "max_bytes=%zu", cap);
	b = open_with(option);
	assert_int_equal(stats_of(b).max_bytes, cap);
	assert_int_equal(process_now().max_bytes, cap < hard ? cap : hard);
	/* Without a cap of its own the other follows, up and down. */
	assert_int_equal(stats_of(a).max_bytes, process_now().max_bytes);
	pinion_close(b);
	assert_in_range(stats_of(a).max_bytes, derived / 2,
			derived + derived / 16);
	/* What is given for the process is not raised. */
	b = open_on("device=soft", option, "process_max_bytes=1M");
	assert_int_equal(process_now().max_bytes, MIB);
	pinion_close(b);
	pinion_close(a);
}

static void the_smallest_given_for_the_process_holds(void **state)
{
	struct pinion_context *a = open_with("process_max_bytes=2M");
	struct pinion_context *b = open_with("process_max_bytes=1M");

	(void)state;
	assert_int_equal(process_now().max_bytes, MIB);
	pinion_close(b);
	assert_int_equal(process_now().max_bytes, 2 * MIB);
	pinion_close(a);
}

static void closing_a_context_does_not_read_the_limits_again(void **state)
{
	struct pinion_context *a = open_with(NULL), *b = open_with(NULL);
	size_t max_bytes = process_now().max_bytes;
	unsigned nreads = process_now().nreads;

	(void)state;
	assert_true(nreads > 0);
	pinion_close(b);
	assert_int_equal(process_now().nreads, nreads);
	assert_int_equal(process_now().max_bytes, max_bytes);
	assert_string_equal(process_now().derived_from, a->budget.derived_from);
	/* A cap that goes with its context still counts. */
	b = open_with("process_max_bytes=1M");
	assert_int_equal(process_now().max_bytes, MIB);
	nreads = process_now().nreads;
	pinion_close(b);
	assert_int_equal(process_now().nreads, nreads);
	assert_int_equal(process_now().max_bytes, max_bytes);
	pinion_close(a);
}

static void virtual_time_stays_out(void **state)
{
	struct pinion_context *real = open_with("process_max_bytes=1M");
	struct pinion_context *sim = open_on("device=sim", NULL, NULL);
	struct pinion_pin pin;

	(void)state;
	assert_int_equal(process_now().nmembers, 1);
	assert_ok(pinion_pin(sim, arena, 2 * MIB, WRITE, &pin));
	assert_int_equal(process_now().bytes, 0);
	assert_true(stats_of(sim).max_bytes > MIB);
	pinion_unpin(sim, &pin);
	pinion_close(sim);
	pinion_close(real);
}

static void closing_gives_back_what_is_still_pinned(void **state)
{
	struct pinion_context *a = open_with("process_max_bytes=1M");
	struct pinion_context *b = open_with(NULL);
	struct pinion_pin pins[2][32];

	(void)state;
	assert_int_equal(fill(a, arena, pins[0], 16), 16);
	pinion_close(a);
	assert_int_equal(process_now().bytes, 0);
	assert_int_equal(fill(b, arena, pins[1], 16), 16);
	empty(b, pins[1], 16);
	pinion_close(b);
}

/* The kernel charges a huge page whole, for every context that pins in it. */
static void huge_pages_of_all_contexts_stay_below_the_limit(void **state)
{
	char *huge = mmap(NULL, 2 * ARENA, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	size_t skip =
		PN_PAGES_HUGE_BYTES - (uintptr_t)huge % PN_PAGES_HUGE_BYTES;
	struct pinion_context *c[3];
	struct pinion_pin pins[3][4];
	unsigned n[3];

	(void)state;
	assert_true(huge != MAP_FAILED);
	madvise(huge + skip, ARENA, MADV_HUGEPAGE);
	memset(huge + skip, 1, ARENA);
	for (unsigned i = 0; i < 3; i++) {
		c[i] = open_with("process_max_bytes=5M");
		n[i] = 0;
		for (unsigned k = 0; k < 4; k++)
			n[i] += !pinion_pin(c[i],
					    huge + skip +
						    k * PN_PAGES_HUGE_BYTES,
					    4 * KIB, WRITE, &pins[i][n[i]]);
		assert_in_range(vmpin(), 0, vmpin_before + 5 * MIB);
	}
	for (unsigned i = 0; i < 3; i++)
		empty(c[i], pins[i], n[i]);
	/* What was charged for one context is there for another. */
	assert_ok(pin_when_unpinned(c[2], huge + skip, 4 * MIB, &pins[2][0]));
	assert_in_range(vmpin(), 0, vmpin_before + 5 * MIB);
	pinion_unpin(c[2], &pins[2][0]);
	for (unsigned i = 0; i < 3; i++)
		pinion_close(c[i]);
	munmap(huge, 2 * ARENA);
}

static void ignore(void *local)
{
	(void)local;
}

/* The cache cannot be opened when no thread key is left. */
static void a_context_that_fails_to_open_leaves_nothing(void **state)
{
	static int keys[PN_THREAD_KEYS];
	const char *const options[] = { "device=soft", "process_max_bytes=1M",
					NULL };
	const struct pinion_attr attr = { .size = sizeof(attr),
					  .options = options };
	struct pinion_context *a = open_with(NULL), *failed;
	size_t max_bytes = process_now().max_bytes;
	unsigned n = 0;

	(void)state;
	while ((keys[n] = pn_thread_key_alloc(ignore)) >= 0)
		n++;
	assert_int_equal(pinion_open(&attr, &failed), -EMFILE);
	assert_int_equal(process_now().nmembers, 1);
	assert_int_equal(process_now().max_bytes, max_bytes);
	while (n)
		pn_thread_key_free(keys[--n]);
	pinion_close(a);
}

/* --- fork ----------------------------------------------------------------- */

static struct pinion_context *parents;

static void live_as_a_child(void)
{
	struct pinion_pin pins[32];
	struct pinion_context *own;

	CHECK(!process_now().nmembers && !process_now().bytes);
	CHECK(!process_now().charged_bytes);
	own = open_with("process_max_bytes=1M");
	CHECK(process_now().nmembers == 1);
	CHECK(fill(own, arena, pins, 32) == 16);
	empty(own, pins, 16);
	pinion_close(parents);
	pinion_close(own);
	CHECK(!process_now().nmembers && !process_now().bytes);
}

static void a_child_begins_with_an_empty_budget(void **state)
{
	struct pinion_pin pins[16];

	(void)state;
	parents = open_with("process_max_bytes=1M");
	assert_int_equal(fill(parents, arena, pins, 16), 16);
	child_run(live_as_a_child);
	assert_int_equal(process_now().bytes, MIB);
	empty(parents, pins, 16);
	pinion_close(parents);
}

/* --- threads -------------------------------------------------------------- */

#define NTHREADS 4
#define ROUNDS	 40

struct worker {
	pthread_t thread;
	char *memory;
	bool opens; /* a context for each round */
	uint64_t seed;
	unsigned failed;
	size_t most;
};

static void look(struct worker *w)
{
	size_t bytes = process_now().bytes;

	if (bytes > w->most)
		w->most = bytes;
}

static void use(struct worker *w, struct pinion_context *context)
{
	for (unsigned i = 0; i < 16; i++) {
		size_t len = (1 + test_below(&w->seed, 6)) * PIECE;
		size_t at = test_below(&w->seed, 10) * PIECE;
		struct pinion_pin pin;
		int ret = pinion_pin(context, w->memory + at, len, WRITE, &pin);

		look(w);
		if (!ret)
			pinion_unpin(context, &pin);
		if (ret == -ENOBUFS) /* the others have all of it in use */
			sched_yield();
		w->failed += ret && ret != -ENOBUFS;
	}
}

static void *work(void *arg)
{
	const char *const options[] = { "device=soft", "process_max_bytes=1M",
					NULL };
	const struct pinion_attr attr = { .size = sizeof(attr),
					  .options = options };
	struct worker *w = arg;
	struct pinion_context *context = NULL;

	for (unsigned i = 0; i < ROUNDS; i++) {
		if (!context && pinion_open(&attr, &context)) {
			w->failed++;
			break;
		}
		use(w, context);
		if (w->opens) {
			pinion_close(context);
			context = NULL;
		}
	}
	pinion_close(context);
	return NULL;
}

static void contexts_come_and_go_while_others_make_room(void **state)
{
	struct worker workers[NTHREADS];
	struct pinion_context *first = open_with("process_max_bytes=1M");
	uint64_t seed = test_seed();
	struct pinion_pin whole;

	(void)state;
	/* There every pin waits a second for the charges of others. */
	if (first->device->limits.deferred_uncharge) {
		pinion_close(first);
		skip();
	}
	for (unsigned i = 0; i < NTHREADS; i++) {
		workers[i] = (struct worker){ .memory = arena + i * MIB,
					      .opens = i % 2,
					      .seed = seed + i };
		assert_int_equal(pthread_create(&workers[i].thread, NULL, work,
						&workers[i]),
				 0);
	}
	for (unsigned i = 0; i < NTHREADS; i++) {
		pthread_join(workers[i].thread, NULL);
		assert_int_equal(workers[i].failed, 0);
		assert_in_range(workers[i].most, PIECE, MIB);
	}
	assert_ok(pin_when_unpinned(first, arena, MIB, &whole));
	assert_int_equal(process_now().bytes, MIB);
	pinion_unpin(first, &whole);
	pinion_close(first);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(contexts_together_stay_below_the_limit),
		CASE(idle_regions_of_other_contexts_make_room),
		CASE(empty_slabs_of_other_contexts_make_room),
		CASE(a_cap_holds_and_spares_the_others),
		CASE(a_larger_cap_raises_what_was_derived),
		CASE(the_smallest_given_for_the_process_holds),
		CASE(closing_a_context_does_not_read_the_limits_again),
		CASE(virtual_time_stays_out),
		CASE(closing_gives_back_what_is_still_pinned),
		CASE(huge_pages_of_all_contexts_stay_below_the_limit),
		CASE(a_context_that_fails_to_open_leaves_nothing),
		CASE(a_child_begins_with_an_empty_budget),
		CASE(contexts_come_and_go_while_others_make_room),
	};

	return RUN_TESTS(tests);
}
