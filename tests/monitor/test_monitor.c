/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Runs once per mode (PINION_MONITOR in the environment) and again under other
 * allocators. What a mode claims in its report is what it is held to.
 */
#include "test.h"

#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/wait.h>

#include "monitor/monitor_impl.h"
#include "recorder.h"
#include "releases.h"

#define LEN (8 * PN_PAGE_BYTES)

static char *map_at(void *at, int flags)
{
	char *p = mmap(at, LEN, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

static bool sees_nothing(void)
{
	enum pn_monitor_mode mode = pn_monitor_mode();

	return mode == PN_MONITOR_KEEP || mode == PN_MONITOR_NONE;
}

static bool watched(const struct scene *s, enum pn_sight sight)
{
	int ret = pn_monitor_watch((uintptr_t)s->target, s->len);

	if (sight == PN_SIGHT_REFUSED)
		assert_int_equal(ret, -EOPNOTSUPP);
	else
		assert_int_equal(ret, 0);
	return !ret;
}

/* Compares what the recorder heard with what the mode had promised. */
static void assert_told(const struct recorder *r, const struct release_way *way,
			enum pn_sight sight)
{
	if (sight == PN_SIGHT_UNSEEN) {
		assert_int_equal(r->after, 0);
		return;
	}
	if (sight == PN_SIGHT_KEPT)
		return; /* told or not: the pages stay */
	assert_true(r->after >= 1);
	assert_int_equal(r->before, r->after);
	if (sight == PN_SIGHT_BEFORE)
		assert_true(r->present);
	if (way->exact) {
		assert_true(
			pn_range_covers((struct pn_range){ r->addr, r->len },
					r->target));
		assert_true(r->len <= r->target.len + PN_PAGE_BYTES);
	}
}

static void play(struct recorder *r, const struct release_way *way,
		 enum pn_sight sight)
{
	struct scene s = { 0 };

	if (!way->prepare(&s)) {
		print_message("%s: not possible here\n", way->name);
		return;
	}
	recorder_aim(r, s.target, s.len);
	if (watched(&s, sight)) {
		bool done = way->release(&s);

		recorder_settle();
		print_message("%s: %s, told %u+%u\n", way->name,
			      pn_sight_name(sight), r->before, r->after);
		assert_int_equal(done, sight != PN_SIGHT_IMPOSSIBLE);
		if (done)
			assert_told(r, way, sight);
		pn_monitor_unwatch(r->target.addr, r->target.len);
	} else {
		way->release(&s);
	}
	recorder_aim(r, (void *)PN_PAGE_BYTES, 1);
	if (way->clean)
		way->clean(&s);
}

static void each_release_is_told_as_the_mode_claims(void **state)
{
	struct pn_monitor_report report;
	struct recorder r;

	(void)state;
	pn_monitor_report(&report);
	print_message("mode %s\n", pn_monitor_mode_name(report.mode));
	assert_ok(recorder_open(&r));
	for (size_t i = 0; i < nrelease_ways; i++)
		play(&r, &release_ways[i], report.sight[release_ways[i].kind]);
	recorder_close(&r);
}

/* A mode that was asked for and claims less than this is broken. */
static void modes_claim_what_they_are_for(void **state)
{
	struct pn_monitor_report report;

	(void)state;
	pn_monitor_report(&report);
	for (int k = 0; k < PN_RELEASE_NKINDS; k++) {
		if (report.mode == PN_MONITOR_PATCH)
			assert_true(report.sight[k] != PN_SIGHT_UNSEEN &&
				    report.sight[k] != PN_SIGHT_AFTER);
		if (report.mode == PN_MONITOR_USERFAULTFD)
			assert_int_not_equal(report.sight[k], PN_SIGHT_UNSEEN);
	}
	assert_int_equal(report.needs_probe,
			 report.mode == PN_MONITOR_USERFAULTFD);
	assert_int_equal(report.race_madvise, report.mode == PN_MONITOR_PATCH);
	assert_int_equal(report.race_unmap, !sees_nothing());
}

static void the_mode_asked_for_is_taken_where_it_can_be(void **state)
{
	const char *asked = getenv("PINION_MONITOR");
	struct pn_monitor_report report;

	(void)state;
	pn_monitor_report(&report);
	if (!asked || getenv("LD_PRELOAD")) /* allocators decide then */
		assert_true(report.mode != PN_MONITOR_NONE);
	else if (!strcmp(asked, pn_monitor_mode_name(report.mode)))
		assert_string_equal(report.refused[report.mode], "");
	else
		assert_true(strlen(report.refused[report.wanted]) > 0);
	if (RECORDER_SANITIZED)
		assert_int_not_equal(report.mode, PN_MONITOR_PATCH);
}

/* Granules share buckets, so a few may be told in vain. */
static void unrelated_releases_are_told_to_nobody(void **state)
{
	char *kept = map_at(NULL, 0), *far;
	struct recorder r;

	(void)state;
	assert_ok(recorder_open(&r));
	recorder_aim(&r, kept, LEN);
	assert_ok(pn_monitor_watch((uintptr_t)kept, LEN));
	for (int i = 0; i < 1000; i++) {
		size_t away = (size_t)(i + 1) << 30;

		far = map_at(kept - away, 0);
		assert_non_null(far);
		munmap(far, LEN);
	}
	assert_true(r.others <= 20);
	assert_int_equal(r.before + r.after, 0);
	pn_monitor_unwatch((uintptr_t)kept, LEN);
	munmap(kept, LEN);
	recorder_settle();
	assert_int_equal(r.before + r.after, 0);
	recorder_close(&r);
}

static void a_watch_counts_until_its_last_unwatch(void **state)
{
	char *p = map_at(NULL, 0);
	struct recorder r;

	(void)state;
	if (sees_nothing())
		skip();
	assert_ok(recorder_open(&r));
	recorder_aim(&r, p, LEN);
	assert_ok(pn_monitor_watch((uintptr_t)p, LEN));
	assert_ok(pn_monitor_watch((uintptr_t)p, LEN));
	pn_monitor_unwatch((uintptr_t)p, LEN);
	munmap(p, LEN);
	recorder_settle();
	assert_int_equal(r.after, 1);
	pn_monitor_unwatch((uintptr_t)p, LEN);
	recorder_close(&r);
}

static void invalidation_is_told_in_every_mode(void **state)
{
	static char buffer[LEN] PN_ALIGNED(4096);
	struct recorder r;

	(void)state;
	assert_ok(recorder_open(&r));
	recorder_aim(&r, buffer, LEN);
	pn_monitor_invalidate((uintptr_t)buffer + 5, 10);
	assert_int_equal(r.before, 1);
	assert_int_equal(r.after, 1);
	assert_int_equal(r.addr, (uintptr_t)buffer);
	assert_int_equal(r.len, PN_PAGE_BYTES);
	pn_monitor_invalidate(0, 0);
	pn_monitor_invalidate(UINTPTR_MAX, 1);
	pn_monitor_invalidate((uintptr_t)buffer, SIZE_MAX);
	assert_int_equal(r.after, 1);
	recorder_close(&r);
}

static void bad_input_is_refused(void **state)
{
	struct recorder r[PN_MONITOR_SUBSCRIBERS + 1];
	struct pn_subscriber none = { 0 };

	(void)state;
	assert_int_equal(pn_monitor_subscribe(NULL), -EINVAL);
	assert_int_equal(pn_monitor_subscribe(&none), -EINVAL);
	assert_int_equal(pn_monitor_watch(0, 1), -EINVAL);
	assert_int_equal(pn_monitor_watch(4096, 0), -EINVAL);
	assert_int_equal(pn_monitor_watch(4096, SIZE_MAX), -EINVAL);
	assert_int_equal(pn_monitor_setup(PN_MONITOR_NMODES), -EINVAL);
	for (int i = 0; i < PN_MONITOR_SUBSCRIBERS; i++)
		assert_ok(recorder_open(&r[i]));
	assert_int_equal(recorder_open(&r[PN_MONITOR_SUBSCRIBERS]), -ENOSPC);
	assert_int_equal(pn_monitor_setup(PN_MONITOR_NONE), -EBUSY);
	for (int i = 0; i < PN_MONITOR_SUBSCRIBERS; i++)
		recorder_close(&r[i]);
	recorder_close(&r[0]); /* a stranger by now */
}

static void unmapped_memory_cannot_be_watched_by_the_kernel(void **state)
{
	char *p = map_at(NULL, 0);

	(void)state;
	if (pn_monitor_mode() != PN_MONITOR_USERFAULTFD)
		skip();
	munmap(p + LEN / 2, PN_PAGE_BYTES);
	assert_int_equal(pn_monitor_watch((uintptr_t)p, LEN), -EFAULT);
	munmap(p, LEN);
}

static void raw_system_calls_are_seen_by_the_kernel_alone(void **state)
{
	char *p = map_at(NULL, 0);
	struct recorder r;

	(void)state;
	assert_ok(recorder_open(&r));
	recorder_aim(&r, p, LEN);
	assert_ok(pn_monitor_watch((uintptr_t)p, LEN));
	assert_int_equal(PN_SYSCALL(SYS_munmap, (long)p, LEN), 0);
	recorder_settle();
	assert_int_equal(r.after, pn_monitor_mode() == PN_MONITOR_USERFAULTFD);
	pn_monitor_unwatch((uintptr_t)p, LEN);
	recorder_close(&r);
}

/* What hooks do with a call, without the call. */
static void a_range_watched_during_its_release_is_still_told(void **state)
{
	struct pn_release release;
	struct recorder r;
	char *p = map_at(NULL, 0);

	(void)state;
	assert_ok(recorder_open(&r));
	recorder_aim(&r, p, LEN);
	pn_release_init(&release);
	pn_release_add(&release, (uintptr_t)p, LEN);
	pn_release_begin(&release);
	assert_int_equal(r.before, 0);
	assert_ok(pn_monitor_watch((uintptr_t)p, LEN));
	pn_release_end(&release);
	assert_int_equal(r.before, 1);
	assert_int_equal(r.after, 1);
	pn_monitor_unwatch((uintptr_t)p, LEN);
	munmap(p, LEN);
	recorder_close(&r);
}

static void many_ranges_in_one_release_are_all_covered(void **state)
{
	const uintptr_t base = (uintptr_t)1 << 40;
	struct pn_release release;
	bool covered = false;

	(void)state;
	pn_release_init(&release);
	for (int i = 64; i >= 0; i--) {
		pn_release_add(&release, base + (uintptr_t)i * LEN, 1);
		assert_true(release.nranges <= PN_RELEASE_RANGES);
	}
	for (int i = 0; i <= 64; i++, covered = false) {
		struct pn_range one = { base + (uintptr_t)i * LEN, 1 };

		for (unsigned n = 0; n < release.nranges; n++)
			covered |= pn_range_covers(release.ranges[n], one);
		assert_true(covered);
	}
}

static struct recorder stack_recorder;
static int stack_watch;

/* A page deep in this thread's stack, below what it uses. */
static void *watch_own_stack(void *arg)
{
	uintptr_t deep = (uintptr_t)__builtin_frame_address(0) - (512 << 10);
	char *page = (char *)(deep & ~(PN_PAGE_BYTES - 1));

	(void)arg;
	*(volatile char *)page = 1;
	recorder_aim(&stack_recorder, page, PN_PAGE_BYTES);
	stack_watch = pn_monitor_watch((uintptr_t)page, PN_PAGE_BYTES);
	return NULL;
}

static void a_thread_that_ends_releases_its_stack(void **state)
{
	struct pn_monitor_report report;
	pthread_attr_t attr;
	pthread_t thread;

	(void)state;
	pn_monitor_report(&report);
	assert_ok(recorder_open(&stack_recorder));
	assert_ok(pthread_attr_init(&attr));
	assert_ok(pthread_attr_setstacksize(&attr, 1 << 20));
	assert_ok(pthread_create(&thread, &attr, watch_own_stack, NULL));
	pthread_attr_destroy(&attr);
	assert_ok(pthread_join(thread, NULL));
	recorder_settle();
	assert_int_equal(stack_watch, 0);
	if (report.sight[PN_RELEASE_THREAD_STACK] == PN_SIGHT_UNSEEN)
		assert_int_equal(stack_recorder.after, 0);
	else if (report.sight[PN_RELEASE_THREAD_STACK] != PN_SIGHT_KEPT)
		assert_true(stack_recorder.after >= 1);
	if (report.sight[PN_RELEASE_THREAD_STACK] == PN_SIGHT_BEFORE)
		assert_true(stack_recorder.present);
	pn_monitor_unwatch(stack_recorder.target.addr, PN_PAGE_BYTES);
	recorder_close(&stack_recorder);
}

/* The replacements must fail as libc does. */
static void errno_is_as_libc_sets_it(void **state)
{
	char *p = map_at(NULL, 0);

	(void)state;
	errno = EILSEQ;
	assert_int_equal(madvise(p, LEN, MADV_DONTNEED), 0);
	assert_int_equal(errno, EILSEQ);
	assert_int_equal(munmap(p + 1, LEN), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(madvise(p, LEN, 12345), -1);
	assert_int_equal(errno, EINVAL);
	errno = 0;
	assert_true(mmap(p, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) ==
		    MAP_FAILED);
	assert_int_equal(errno, EINVAL);
	assert_true(mremap(p, LEN, (size_t)1 << 46, 0) == MAP_FAILED);
	assert_int_equal(errno, ENOMEM);
	assert_int_equal(shmdt(p), -1);
	assert_int_equal(errno, EINVAL);
	assert_true(mmap(p, LEN, PROT_READ,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1,
			 0) == MAP_FAILED);
	assert_int_equal(errno, EEXIST);
	assert_int_equal(brk((void *)(UINTPTR_MAX / 2)), -1);
	assert_int_equal(errno, ENOMEM);
	assert_int_equal(munmap(p, LEN), 0);
}

static void the_break_moves_as_libc_remembers(void **state)
{
	char *start = sbrk(0);

	(void)state;
	assert_int_equal(brk(start + 100 * PN_PAGE_BYTES), 0);
	assert_ptr_equal(sbrk(0), start + 100 * PN_PAGE_BYTES);
	assert_ptr_equal(sbrk(-(intptr_t)(50 * PN_PAGE_BYTES)),
			 start + 100 * PN_PAGE_BYTES);
	assert_ptr_equal(sbrk(0), start + 50 * PN_PAGE_BYTES);
	assert_int_equal(brk(start), 0);
	assert_ptr_equal(sbrk(0), start);
}

/* --- processes and threads ----------------------------------------------- */

static int child_main(struct recorder *of_parent)
{
	char *p = map_at(NULL, 0);
	struct recorder r;
	bool blind = sees_nothing();

	if (recorder_open(&r))
		return 1;
	recorder_aim(&r, p, LEN);
	if (pn_monitor_watch((uintptr_t)p, LEN))
		return 2;
	munmap(p, LEN);
	recorder_settle();
	if (!blind && r.after != 1)
		return 3;
	/* What the parent watched may be unwatched here. */
	pn_monitor_unwatch(of_parent->target.addr, of_parent->target.len);
	return of_parent->others || of_parent->after ? 4 : 0;
}

static void a_forked_child_starts_afresh(void **state)
{
	enum pn_monitor_mode mode = pn_monitor_mode();
	char *p = map_at(NULL, 0);
	struct recorder r;
	int status;
	pid_t pid;

	(void)state;
	/* ThreadSanitizer forbids a thread after a fork. */
	if (RECORDER_TSAN && mode == PN_MONITOR_USERFAULTFD)
		skip();
	assert_ok(recorder_open(&r));
	recorder_aim(&r, p, LEN);
	assert_ok(pn_monitor_watch((uintptr_t)p, LEN));
	pid = fork();
	assert_true(pid >= 0);
	if (!pid)
		_exit(pn_monitor_mode() == mode ? child_main(&r) : 5);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	munmap(p, LEN);
	recorder_settle();
	assert_int_equal(r.after, sees_nothing() ? 0 : 1);
	pn_monitor_unwatch((uintptr_t)p, LEN);
	recorder_close(&r);
}

#define LANES	4
#define ROUNDS	300
#define LANE_NO 0

/* One thread's own range; the callback finds the lane by address. */
static struct lane {
	_Atomic uintptr_t addr;
	atomic_uint told;
	unsigned missed;
	uint64_t seed;
} lanes[LANES];

static void lanes_released(void *arg, uintptr_t addr, size_t len,
			   enum pn_release_phase phase)
{
	struct lane *lane = arg;

	for (int i = 0; i < LANES; i++) {
		uintptr_t at = lane[i].addr;

		if (phase == PN_RELEASE_AFTER && at >= addr && at < addr + len)
			lane[i].told++;
	}
}

/* Fills and empties a dozen blocks of all sizes, so that hooks run inside
 * malloc and free of several threads. */
static void churn(uint64_t *seed)
{
	void *blocks[12];

	for (size_t i = 0; i < PN_ARRAY_LEN(blocks); i++) {
		blocks[i] = malloc((size_t)1 << test_below(seed, 21));
		if (blocks[i])
			*(volatile char *)blocks[i] = 1;
	}
	for (size_t i = 0; i < PN_ARRAY_LEN(blocks); i++)
		free(blocks[i]);
}

static void *hammer(void *arg)
{
	struct lane *lane = arg;

	for (int i = 0; i < ROUNDS; i++) {
		char *p = map_at(NULL, 0);
		unsigned before = lane->told;

		churn(&lane->seed);
		memset(p, 1, LEN);
		lane->addr = (uintptr_t)p;
		if (pn_monitor_watch((uintptr_t)p, LEN))
			lane->missed++;
		munmap(p, LEN);
		recorder_settle();
		if (lane->told == before)
			lane->missed++;
		lane->addr = 0;
		pn_monitor_unwatch((uintptr_t)p, LEN);
	}
	return NULL;
}

static void run_lanes(void *(*fn)(void *), uint64_t seed)
{
	pthread_t threads[LANES];

	for (int i = 0; i < LANES; i++) {
		lanes[i].seed = test_random(&seed);
		lanes[i].missed = 0;
		assert_ok(pthread_create(&threads[i], NULL, fn, &lanes[i]));
	}
	for (int i = 0; i < LANES; i++)
		assert_ok(pthread_join(threads[i], NULL));
}

static void threads_allocating_and_releasing_miss_nothing(void **state)
{
	struct pn_subscriber all = { lanes_released, lanes };

	(void)state;
	if (sees_nothing())
		skip();
	assert_ok(pn_monitor_subscribe(&all));
	run_lanes(hammer, test_seed());
	pn_monitor_unsubscribe(&all);
	for (int i = 0; i < LANES; i++)
		assert_int_equal(lanes[i].missed, 0);
}

static atomic_bool comes_and_goes_alive;
static atomic_uint called_when_gone, called_at_all;
static atomic_bool releasing;

static void comes_and_goes(void *arg, uintptr_t addr, size_t len,
			   enum pn_release_phase phase)
{
	(void)arg;
	(void)addr;
	(void)len;
	(void)phase;
	called_at_all++;
	if (!comes_and_goes_alive)
		called_when_gone++;
}

static void *release_without_end(void *arg)
{
	(void)arg;
	while (releasing) {
		char *p = map_at(NULL, 0);

		if (!pn_monitor_watch((uintptr_t)p, LEN)) {
			munmap(p, LEN);
			pn_monitor_unwatch((uintptr_t)p, LEN);
		}
	}
	return NULL;
}

static void nobody_is_told_after_unsubscribing(void **state)
{
	struct pn_subscriber s = { comes_and_goes, NULL };
	pthread_t thread;

	(void)state;
	if (sees_nothing())
		skip();
	releasing = true;
	assert_ok(pthread_create(&thread, NULL, release_without_end, NULL));
	for (int i = 0; i < 200 || !called_at_all; i++) {
		comes_and_goes_alive = true;
		assert_ok(pn_monitor_subscribe(&s));
		sched_yield();
		pn_monitor_unsubscribe(&s);
		comes_and_goes_alive = false;
	}
	releasing = false;
	assert_ok(pthread_join(thread, NULL));
	assert_int_equal(called_when_gone, 0);
}

/* The race: one thread unmaps, another gets the address at once and asks
 * whether it may trust what it knows about it. */
static struct race {
	_Atomic uintptr_t addr; /* mapped and watched; 0: not yet */
	atomic_bool over;
	unsigned stale, in_doubt;
} race;

static void *unmap_on_signal(void *arg)
{
	struct race *r = arg;
	uintptr_t addr;

	while (!r->over) {
		addr = r->addr;
		if (!addr) {
			sched_yield();
			continue;
		}
		munmap((void *)addr, LEN);
		r->addr = 0;
	}
	return NULL;
}

static void run_race_once(struct race *r, char *p)
{
	unsigned told = lanes[LANE_NO].told;
	char *again;

	memset(p, 1, LEN);
	lanes[LANE_NO].addr = (uintptr_t)p;
	assert_ok(pn_monitor_watch((uintptr_t)p, LEN));
	r->addr = (uintptr_t)p;
	for (int i = 1; !(again = map_at(p, MAP_FIXED_NOREPLACE)); i++)
		if (i % 64 == 0)
			sched_yield(); /* for machines with few cores */
	/* p means other pages now. */
	if (!pn_monitor_probe((uintptr_t)again))
		r->in_doubt++;
	else if (lanes[LANE_NO].told == told)
		r->stale++;
	while (r->addr)
		sched_yield();
	recorder_settle();
	assert_true(lanes[LANE_NO].told > told);
	lanes[LANE_NO].addr = 0;
	pn_monitor_unwatch((uintptr_t)p, LEN);
	munmap(p, LEN);
}

/* In patch mode BEFORE is what counts: the cache has dropped the range. */
static void race_released(void *arg, uintptr_t addr, size_t len,
			  enum pn_release_phase phase)
{
	(void)phase;
	lanes_released(arg, addr, len, PN_RELEASE_AFTER);
}

static void an_address_taken_over_is_never_trusted_untold(void **state)
{
	struct pn_subscriber all = { race_released, lanes };
	pthread_t thread;

	(void)state;
	if (sees_nothing())
		skip();
	assert_ok(pn_monitor_subscribe(&all));
	assert_ok(pthread_create(&thread, NULL, unmap_on_signal, &race));
	for (int i = 0; i < 1000; i++) {
		char *p = map_at(NULL, 0);

		run_race_once(&race, p);
	}
	race.over = true;
	assert_ok(pthread_join(thread, NULL));
	pn_monitor_unsubscribe(&all);
	print_message("1000 races: %u in doubt\n", race.in_doubt);
	assert_int_equal(race.stale, 0);
	if (!pn_monitor_needs_probe())
		assert_int_equal(race.in_doubt, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(the_mode_asked_for_is_taken_where_it_can_be),
		TEST(modes_claim_what_they_are_for),
		TEST(each_release_is_told_as_the_mode_claims),
		TEST(unrelated_releases_are_told_to_nobody),
		TEST(a_watch_counts_until_its_last_unwatch),
		TEST(invalidation_is_told_in_every_mode),
		TEST(bad_input_is_refused),
		TEST(unmapped_memory_cannot_be_watched_by_the_kernel),
		TEST(raw_system_calls_are_seen_by_the_kernel_alone),
		TEST(a_range_watched_during_its_release_is_still_told),
		TEST(many_ranges_in_one_release_are_all_covered),
		TEST(a_thread_that_ends_releases_its_stack),
		TEST(errno_is_as_libc_sets_it),
		TEST(the_break_moves_as_libc_remembers),
		TEST(a_forked_child_starts_afresh),
		TEST(threads_allocating_and_releasing_miss_nothing),
		TEST(nobody_is_told_after_unsubscribing),
		TEST(an_address_taken_over_is_never_trusted_untold),
	};

	return RUN_TESTS(tests);
}
