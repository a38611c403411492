/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Threads over one registrar. They share small buffers side by side in common
 * pages. Each thread also has pages of its own, which it releases and uses
 * again. The pages of two threads are neighbours, so that regions without
 * remote access are merged over both.
 *
 * test_registrar_threads [STEPS]
 */
#include "test.h"

#include <errno.h>
#include <pthread.h>
#include <unistd.h>

#include "base/asymmetric.h"
#include "context.h"
#include "ledger.h"

#define PAGE	 LEDGER_PAGE
#define NTHREADS 4
#define COMMON	 16 /* pages */
#define OWN	 32 /* pages of each thread */
#define SMALL	 300
#define OFFSET	 100 /* in a page: the remote buffers of a thread */
#define LOCAL	 PINION_ACCESS_LOCAL_WRITE
#define PUT	 (PINION_ACCESS_LOCAL_WRITE | PINION_ACCESS_REMOTE_WRITE)
#define GET	 PINION_ACCESS_REMOTE_READ
#define REMOTE	 (PINION_ACCESS_REMOTE_WRITE | PINION_ACCESS_REMOTE_READ)

static unsigned steps = PN_ASYMMETRIC_FENCES ? 2000 : 8000;

struct worker {
	struct ledger *ledger;
	struct pinion_context *context;
	struct pinion_heap *heap;
	pthread_t thread;
	unsigned number;
	uint64_t seed;
	unsigned npins;
	const char *wrong; /* the first violation */
};

static char *own_pages(const struct worker *w)
{
	return w->ledger->area + (COMMON + w->number * OWN) * PAGE;
}

static unsigned below(struct worker *w, unsigned n)
{
	return (unsigned)test_below(&w->seed, n);
}

static void note(struct worker *w, const char *what)
{
	if (what && !w->wrong)
		w->wrong = what;
}

/* Ranges with remote access are exact: one of a few small buffers, or a
 * thread's own buffer at OFFSET. */
static bool check_range(struct ledger *l,
			const struct pinion_registrar_range *r)
{
	size_t at = (size_t)((char *)r->addr - l->area);

	if (!(r->access & REMOTE) || at >= LEDGER_PAGES * PAGE)
		return true;
	if (at < COMMON * PAGE)
		return at % SMALL == 0 && r->len % SMALL == 0 &&
		       r->len <= 3 * SMALL;
	return at % PAGE == OFFSET && r->len % 1000 == 0;
}

static unsigned some_access(struct worker *w)
{
	static const unsigned all[] = { LOCAL, LOCAL, PUT, PUT, GET, 0 };

	return all[below(w, PN_ARRAY_LEN(all))];
}

static void use(struct worker *w, const struct pinion_pin *pin, unsigned access)
{
	note(w, ledger_use(w->ledger, pin, access));
	if (!below(w, 8))
		usleep(below(w, 50));
	note(w, ledger_use(w->ledger, pin, access));
	w->npins++;
}

static void finish(struct worker *w, struct pinion_pin *pin, unsigned access,
		   int ret)
{
	if (ret) {
		note(w, ret == -ENOBUFS ? NULL : "a pin failed");
		return;
	}
	use(w, pin, access);
	pinion_unpin(w->context, pin);
}

static void pin(struct worker *w, char *addr, size_t len, unsigned access)
{
	unsigned flags = below(w, 5) ? access : access | PINION_PIN_BYPASS;
	struct pinion_pin p;
	int ret;

	if (below(w, 8)) {
		ret = pinion_pin(w->context, addr, len, flags, &p);
	} else {
		ret = pinion_pin_start(w->context, addr, len, flags, &p);
		if (ret == -EINPROGRESS)
			ret = pinion_pin_wait(w->context, &p);
	}
	finish(w, &p, access, ret);
}

static void pin_small(struct worker *w)
{
	unsigned n = below(w, 4) ? 1 : 3;
	unsigned at = below(w, COMMON * PAGE / SMALL - 3);

	pin(w, w->ledger->area + at * SMALL, n * SMALL, some_access(w));
}

static void pin_list(struct worker *w)
{
	unsigned access = some_access(w), n = 1 + below(w, 6);
	struct pinion_pin pins[6];
	struct iovec list[6];
	int ret;

	for (unsigned i = 0; i < n; i++) {
		unsigned at = below(w, COMMON * PAGE / SMALL - 1);

		list[i] = (struct iovec){ w->ledger->area + at * SMALL, SMALL };
	}
	ret = pinion_pin_list(w->context, list, n, access, pins);
	for (unsigned i = 0; i < n; i++)
		finish(w, &pins[i], access, ret);
}

static void pin_own(struct worker *w)
{
	unsigned access = some_access(w), page = below(w, OWN - 4);
	char *addr = own_pages(w) + page * PAGE;

	if (access & REMOTE)
		pin(w, addr + OFFSET, 1000 * (1 + below(w, 12)), access);
	else
		pin(w, addr + below(w, PAGE), 1 + below(w, 3 * PAGE), access);
}

static void release_own(struct worker *w)
{
	unsigned page = below(w, OWN - 4);
	char *addr = own_pages(w) + page * PAGE;
	size_t len = (1 + below(w, 4)) * PAGE;

	if (below(w, 2))
		ledger_remap(w->ledger, addr, len);
	else
		ledger_discard(w->ledger, addr, len);
}

static void use_heap(struct worker *w)
{
	size_t len = 1 + below(w, 100000);
	char *block = pinion_heap_malloc(w->heap, len);

	if (!block)
		return;
	pin(w, block, len, LOCAL);
	pinion_heap_free(w->heap, block);
	if (!below(w, 16))
		pinion_heap_trim(w->heap);
}

static void *work(void *arg)
{
	struct worker *w = arg;

	for (unsigned i = 0; i < steps; i++) {
		unsigned what = below(w, 100);

		if (what < 40)
			pin_small(w);
		else if (what < 50)
			pin_list(w);
		else if (what < 80)
			pin_own(w);
		else if (what < 92)
			release_own(w);
		else if (what < 99)
			use_heap(w);
		else
			pinion_cache_flush(w->context);
	}
	return NULL;
}

static void run(struct ledger *ledger, const char *const *options)
{
	struct worker workers[NTHREADS];
	struct pinion_context *context;
	struct pinion_heap *heap;
	uint64_t seed = test_seed();
	unsigned npins = 0;

	ledger->check_range = check_range;
	assert_ok(ledger_open(ledger, options, &context));
	assert_ok(pinion_heap_open(context, NULL, &heap));
	for (unsigned i = 0; i < NTHREADS; i++) {
		workers[i] = (struct worker){ .ledger = ledger,
					      .context = context,
					      .heap = heap,
					      .number = i,
					      .seed = test_mix(seed, i) };
		assert_ok(pthread_create(&workers[i].thread, NULL, work,
					 &workers[i]));
	}
	for (unsigned i = 0; i < NTHREADS; i++) {
		pthread_join(workers[i].thread, NULL);
		npins += workers[i].npins;
	}
	pn_cache_check(context->cache);
	pinion_heap_close(heap);
	ledger_close(ledger, context);
	for (unsigned i = 0; i < NTHREADS; i++)
		if (workers[i].wrong)
			fail_msg("thread %u: %s", i, workers[i].wrong);
	if (ledger->wrong)
		fail_msg("%s", ledger->what);
	assert_true(npins > steps);
}

static void no_thread_uses_a_stale_registration(void **state)
{
	struct ledger ledger;

	(void)state;
	ledger_init(&ledger);
	run(&ledger, NULL);
	assert_int_equal(ledger.nlive, 0);
	ledger_fini(&ledger);
}

static void no_thread_uses_an_evicted_registration(void **state)
{
	static const char *const options[] = { "max_bytes=4M", "max_regions=24",
					       NULL };
	struct ledger ledger;

	(void)state;
	ledger_init(&ledger);
	run(&ledger, options);
	assert_int_equal(ledger.nlive, 0);
	ledger_fini(&ledger);
}

static void deregistrations_that_fail_leave_nothing(void **state)
{
	static const char *const options[] = { "max_bytes=8M", NULL };
	struct ledger ledger;

	(void)state;
	ledger_init(&ledger);
	ledger.registrar.max_batch = 3;
	ledger.fail_deregister = (struct ledger_fault){ 10, 200, -EBUSY, true };
	run(&ledger, options);
	assert_true(ledger.nderegister > 210);
	assert_int_equal(ledger.nlive, 0);
	ledger_fini(&ledger);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(no_thread_uses_a_stale_registration),
		TEST(no_thread_uses_an_evicted_registration),
		TEST(deregistrations_that_fail_leave_nothing),
	};

	if (argc > 1)
		steps = (unsigned)strtoul(argv[1], NULL, 0);
	setvbuf(stdout, NULL, _IOLBF, 0);
	return RUN_TESTS(tests);
}
