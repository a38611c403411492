/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Every way to give memory back, on `soft` or the device named as argument,
 * where pages are really pinned: pin,
 * release, map again at the same address, pin, and a peer's put must reach the
 * new pages. Bytes put through a stale registration land in pages that nobody
 * sees.
 *
 * Runs once per mode of the monitor (PINION_MONITOR in the environment). What
 * the mode claims in its report it is held to; with `none` the same releases
 * lose bytes, which shows that the test can fail.
 */
#include "map_below.h"
#include "test.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include "base/range.h"
#include "cache/cache.h"
#include "monitor/recorder.h"
#include "monitor/releases.h"
#include "mover.h"

#define PAGE	PN_PAGE_BYTES
#define LEN	(8 * PAGE)
#define STACK	((size_t)64 << 20) /* more than libc keeps for later */
#define RACES	1000
#define EXPOSED (PINION_ACCESS_REMOTE_WRITE | PINION_ACCESS_LOCAL_WRITE)

static const char *spec = "soft";

static struct {
	struct pn_device *device;
	struct pn_budget budget;
	struct pn_cache *cache;
	struct mover mover;
	struct pn_monitor_report report;
} f;

static int setup(void **state)
{
	struct pn_cache_attr attr = { .budget = &f.budget };

	(void)state;
	assert_ok(pn_device_open(spec, NULL, &f.device));
	assert_ok(mover_open(&f.mover, f.device, LEN));
	pn_budget_init(&f.budget, f.device, (size_t)4 << 20, 0, 1);
	attr.device = f.device;
	assert_ok(pn_cache_open(&attr, &f.cache));
	pn_monitor_report(&f.report);
	print_message("mode %s\n", pn_monitor_mode_name(f.report.mode));
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	pn_cache_check(f.cache);
	pn_cache_close(f.cache);
	assert_int_equal(atomic_load(&f.budget.bytes), 0);
	mover_close(&f.mover);
	pn_device_close(f.device);
	return 0;
}

/* Pins, has a peer put, unpins. 0; -EILSEQ: the bytes are not there. */
static int put_once(void *addr, size_t len)
{
	struct pinion_pin pin;
	int ret = pn_cache_pin(f.cache, addr, len, EXPOSED, &pin);

	if (ret)
		return ret;
	ret = mover_put(&f.mover, &pin);
	pn_cache_unpin(f.cache, &pin);
	return ret;
}

/* --- one release at a time ----------------------------------------------- */

static bool claimed(enum pn_detection detection)
{
	return detection != PN_DETECTION_NONE &&
	       detection != PN_DETECTION_UNTESTED;
}

/* The allocator kept what it was given and hands it out again. */
static void put_into_another(const struct release_case *way)
{
	struct scene s = { 0 };

	assert_true(way->prepare(&s));
	assert_ok(put_once(s.target, s.len));
	print_message("%s: kept, bytes arrived\n", way->name);
	way->release(&s);
	release_clean(way, &s);
}

/* Whether bytes were lost. */
static bool loses(const struct release_case *way, enum pn_detection detection)
{
	bool lost = false, usable = false, kept = false;
	struct scene s = { 0 };

	if (!way->prepare(&s)) {
		print_message("%s: not possible here\n", way->name);
		return false;
	}
	assert_ok(put_once(s.target, s.len));
	assert_ok(put_once(s.target, s.len));
	if (way->release(&s))
		kept = !(usable = release_map_again(way, &s));
	else
		print_message("%s: refused here\n", way->name);
	if (usable || (way->exact && !kept)) {
		int ret = put_once(s.target, s.len);

		lost = ret == -EILSEQ;
		print_message("%s: %s, %s\n", way->name,
			      pn_detection_name(detection),
			      lost ? "bytes lost" : "bytes arrived");
		assert_true(!ret || (lost && !claimed(detection)));
	}
	if (kept)
		put_into_another(way);
	release_clean(way, &s);
	pn_cache_invalidate(f.cache, (uintptr_t)s.target, s.len);
	return lost;
}

static void new_pages_get_the_bytes_after_each_release(void **state)
{
	unsigned nlost = 0;

	(void)state;
	for (size_t i = 0; i < nrelease_cases; i++) {
		const struct release_case *way = &release_cases[i];

		/* What is freed stays with a sanitizer's allocator. */
		if (RECORDER_SANITIZED && !way->exact)
			continue;
		nlost += loses(way, f.report.detection[way->kind]);
	}
	if (f.report.mode == PN_MONITOR_NONE)
		assert_true(nlost > 5);
}

/* --- the stack of a thread ----------------------------------------------- */

struct stack {
	pthread_t thread;
	_Atomic uintptr_t page; /* somewhere in it */
	_Atomic bool end;
};

static void *live_shortly(void *arg)
{
	struct stack *stack = arg;
	char buffer[3 * PAGE];

	stack->page = ((uintptr_t)buffer + PAGE) & ~(uintptr_t)(PAGE - 1);
	while (!stack->end)
		sched_yield();
	return NULL;
}

static bool prepare_stack(struct scene *s)
{
	struct stack *stack = calloc(1, sizeof(*stack));
	pthread_attr_t attr;

	assert_ok(pthread_attr_init(&attr));
	assert_ok(pthread_attr_setstacksize(&attr, STACK));
	assert_ok(pthread_create(&stack->thread, &attr, live_shortly, stack));
	pthread_attr_destroy(&attr);
	while (!stack->page)
		sched_yield();
	s->base = (char *)stack;
	s->target = (char *)stack->page;
	s->len = PAGE;
	return true;
}

static bool release_stack(struct scene *s)
{
	struct stack *stack = (struct stack *)s->base;

	stack->end = true;
	assert_ok(pthread_join(stack->thread, NULL));
	free(stack);
	return true;
}

static void new_pages_get_the_bytes_after_a_thread_ended(void **state)
{
	const struct release_case way = {
		"thread's stack", PN_RELEASE_THREAD_STACK, false,
		prepare_stack,	  release_stack,	   NULL
	};
	enum pn_detection detection =
		f.report.detection[PN_RELEASE_THREAD_STACK];

	(void)state;
	if (RECORDER_SANITIZED)
		skip(); /* its shadow would go wrong */
	loses(&way, detection);
}

/* --- the race of two threads --------------------------------------------- */

struct race {
	char *at;
	pthread_barrier_t start, end;
	bool advise; /* MADV_DONTNEED rather than munmap */
};

static void *release_again_and_again(void *arg)
{
	struct race *race = arg;

	for (unsigned i = 0; i < RACES; i++) {
		pthread_barrier_wait(&race->start);
		if (race->advise)
			madvise(race->at, LEN, MADV_DONTNEED);
		else
			munmap(race->at, LEN);
		pthread_barrier_wait(&race->end);
	}
	return NULL;
}

/* Returns as soon as the old pages are gone, which the releasing thread's
 * system call may be later to know. */
static void own_again(const struct race *race)
{
	volatile char *last = race->at + LEN - 1;

	if (race->advise) {
		while (*last)
			;
		return;
	}
	while (mmap(race->at, LEN, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1,
		    0) != race->at)
		assert_int_equal(errno, EEXIST);
}

static unsigned run_race(bool advise)
{
	struct race race = { .advise = advise };
	pthread_t thread;
	unsigned lost = 0, early = 0;

	race.at = map_below(LEN);
	assert_true(race.at != MAP_FAILED);
	pthread_barrier_init(&race.start, NULL, 2);
	pthread_barrier_init(&race.end, NULL, 2);
	assert_ok(
		pthread_create(&thread, NULL, release_again_and_again, &race));
	for (unsigned i = 0; i < RACES; i++) {
		int ret = put_once(race.at, LEN);

		assert_true(!ret || ret == -EILSEQ);
		race.at[LEN - 1] = 1;
		pthread_barrier_wait(&race.start);
		own_again(&race);
		ret = put_once(race.at, LEN);
		assert_true(!ret || ret == -EILSEQ);
		pthread_barrier_wait(&race.end);
		/* Until the release has ended, this CPU may see old pages that
		 * the page tables do not have any more (its TLB is flushed
		 * last): what counts is where the bytes are then. */
		early += !!ret;
		lost += ret && memcmp(race.at, f.mover.scratch, LEN);
	}
	assert_ok(pthread_join(thread, NULL));
	pthread_barrier_destroy(&race.start);
	pthread_barrier_destroy(&race.end);
	munmap(race.at, LEN);
	print_message("%s: %u of %u lost, %u looked at too early\n",
		      advise ? "madvise" : "munmap", lost, RACES, early);
	return lost;
}

static void an_address_that_another_thread_unmaps_is_safe(void **state)
{
	unsigned lost = run_race(false);

	(void)state;
	if (f.report.race_unmap)
		assert_int_equal(lost, 0);
	if (f.report.mode == PN_MONITOR_NONE)
		assert_true(lost > 0);
}

static void pages_that_another_thread_gives_up_are_safe(void **state)
{
	unsigned lost = run_race(true);

	(void)state;
	if (f.report.race_madvise)
		assert_int_equal(lost, 0);
}

/* --- lists --------------------------------------------------------------- */

/* The second buffer meets a region that its own list has only begun. */
static char *map_over(char *at)
{
	return mmap(at, LEN, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

/* Far apart and in mappings of their own, so that nobody's watch covers
 * another's. */
static void every_buffer_of_a_list_is_watched(void **state)
{
	const size_t apart = (size_t)16 << 20;
	char *all = mmap(NULL, 4 * apart, PROT_NONE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	struct pinion_pin pins[4];
	struct iovec list[4];

	(void)state;
	if (f.report.mode != PN_MONITOR_PATCH &&
	    f.report.mode != PN_MONITOR_USERFAULTFD)
		skip();
	assert_true(all != MAP_FAILED);
	for (unsigned i = 0; i < 4; i++)
		list[i] = (struct iovec){ map_over(all + i * apart), LEN };
	assert_ok(pn_cache_pin_list(f.cache, list, 4, EXPOSED, pins));
	for (unsigned i = 0; i < 4; i++)
		pn_cache_unpin(f.cache, &pins[i]);
	for (unsigned i = 4; i--;) {
		map_over(all + i * apart);
		assert_ok(put_once(all + i * apart, LEN));
	}
	munmap(all, 4 * apart);
}

static void buffers_of_a_list_may_overlap(void **state)
{
	char *p = mmap(NULL, LEN, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct iovec list[] = { { p, 4 * PAGE }, { p + 2 * PAGE, 4 * PAGE } };
	struct pinion_pin pins[2];

	(void)state;
	assert_true(p != MAP_FAILED);
	assert_ok(pn_cache_pin_list(f.cache, list, 2, EXPOSED, pins));
	pn_cache_check(f.cache);
	for (unsigned i = 0; i < 2; i++) {
		assert_ok(mover_put(&f.mover, &pins[i]));
		pn_cache_unpin(f.cache, &pins[i]);
	}
	munmap(p, LEN);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		CASE(new_pages_get_the_bytes_after_each_release),
		CASE(new_pages_get_the_bytes_after_a_thread_ended),
		CASE(an_address_that_another_thread_unmaps_is_safe),
		CASE(pages_that_another_thread_gives_up_are_safe),
		CASE(buffers_of_a_list_may_overlap),
		CASE(every_buffer_of_a_list_is_watched),
	};

	if (argc > 1)
		spec = argv[1];
	setvbuf(stdout, NULL, _IOLBF, 0);
	return RUN_TESTS(tests);
}
