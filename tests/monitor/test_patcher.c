/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Another library patches libc, too (arguments: that library, and when). One
 * process for each case, since code is patched for good.
 */
#include "test.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "late.h"
#include "monitor/monitor_impl.h"
#include "monitor/watched_range.h"
#include "patcher.h"

static const char *library;
static unsigned (*count_calls)(void);
static int (*install)(enum patcher_kind kind);

static void load_patcher(void)
{
	void *handle = dlopen(library, RTLD_NOW);

	assert_non_null(handle);
	count_calls = (unsigned (*)(void))dlsym(handle, "patcher_calls");
	install = (int (*)(enum patcher_kind))dlsym(handle, "patcher_install");
	assert_non_null(count_calls);
	assert_non_null(install);
}

/* Releases watched memory and returns how often it was notified; *calls: how
 * often the other library was called. */
static unsigned count_notified(unsigned *calls)
{
	unsigned before = count_calls();
	char *p = mmap(NULL, PN_PAGE_BYTES, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct recorder r;

	assert_ok(recorder_open(&r));
	recorder_aim(&r, p, PN_PAGE_BYTES);
	assert_ok(pn_monitor_watch((uintptr_t)p, PN_PAGE_BYTES));
	assert_ok(munmap(p, PN_PAGE_BYTES));
	recorder_settle();
	*calls = count_calls() - before;
	pn_monitor_unwatch((uintptr_t)p, PN_PAGE_BYTES);
	recorder_close(&r);
	return r.after;
}

static void assert_both_are_called(unsigned chained, unsigned notified)
{
	struct pn_monitor_report report;
	unsigned calls;

	pn_monitor_report(&report);
	assert_int_equal(report.mode, PN_MONITOR_PATCH);
	assert_int_equal(report.chained, chained);
	assert_int_equal(count_notified(&calls), notified);
	assert_int_equal(calls, 1);
}

static void an_earlier_patch_is_called(void **state)
{
	(void)state;
	load_patcher();
	assert_both_are_called(1, 1);
	assert_true(pn_monitor_check());
}

/* Its syscall() comes back to pinion's hook, and goes to the kernel there. */
static void an_earlier_patch_may_end_in_syscall(void **state)
{
	(void)state;
	load_patcher();
	assert_both_are_called(1, 2);
}

/* Moves the break by four pages and back: what goes is notified, before it
 * goes. */
static void an_earlier_patch_of_sbrk_is_called(void **state)
{
	const size_t len = 4 * PN_PAGE_BYTES;
	struct recorder r;
	unsigned calls;
	char *start;

	(void)state;
	load_patcher();
	assert_int_equal(pn_monitor_mode(), PN_MONITOR_PATCH);
	assert_int_equal(pn_patch_chained(), 1);
	assert_ok(recorder_open(&r));
	start = sbrk(0);
	assert_ok(brk(start + (-(uintptr_t)start & (PN_PAGE_BYTES - 1))));
	calls = count_calls();
	start = sbrk((intptr_t)len);
	recorder_aim(&r, start, len);
	assert_ok(pn_monitor_watch((uintptr_t)start, len));
	*(volatile char *)start = 1;
	assert_ptr_equal(sbrk(0), start + len);
	assert_ptr_equal(sbrk((intptr_t)len), start + len);
	assert_ptr_equal(sbrk(-(intptr_t)len), start + 2 * len);
	assert_int_equal(r.before + r.after, 0);
	assert_ptr_equal(sbrk(-(intptr_t)len), start + len);
	assert_int_equal(r.before, 1);
	assert_int_equal(r.after, 1);
	assert_true(r.present);
	assert_int_equal(r.addr, (uintptr_t)start);
	assert_int_equal(r.len, len);
	assert_true(count_calls() - calls >= 5);
	pn_monitor_unwatch((uintptr_t)start, len);
	recorder_close(&r);
}

/* Subscribes, lets the other library patch, and checks. */
static void overwrite(enum patcher_kind kind, struct recorder *r)
{
	static char buffer[PN_PAGE_BYTES] PN_ALIGNED(4096);

	assert_int_equal(pn_monitor_mode(), PN_MONITOR_PATCH);
	assert_ok(recorder_open(r));
	recorder_aim(r, buffer, sizeof(buffer));
	assert_true(pn_monitor_check());
	load_patcher();
	assert_ok(install(kind));
	assert_false(pn_monitor_check());
	/* Everything counts as released: a release may have been missed. */
	assert_int_equal(r->after, 1);
	assert_true(pn_monitor_check());
	recorder_close(r);
}

static void a_later_patch_is_patched_over_and_called(void **state)
{
	struct recorder r;

	(void)state;
	overwrite(PATCHER_RAW, &r);
	assert_both_are_called(1, 1);
}

static void a_later_patch_that_calls_pinion_stays(void **state)
{
	struct recorder r;

	(void)state;
	overwrite(PATCHER_POLITE, &r);
	assert_both_are_called(0, 1);
}

static void a_later_patch_that_ends_in_syscall_stays(void **state)
{
	struct recorder r;

	(void)state;
	overwrite(PATCHER_SYSCALL, &r);
	assert_both_are_called(0, 1);
}

static void with_threads_the_next_mode_is_used(void **state)
{
	struct recorder r;
	unsigned calls;

	(void)state;
	pn_log_set_level(PN_LOG_ERROR);
	pn_monitor_faults.threaded = true;
	overwrite(PATCHER_RAW, &r);
	assert_int_equal(pn_monitor_mode(), PN_MONITOR_USERFAULTFD);
	assert_true(pn_monitor_needs_probe());
	assert_int_equal(count_notified(&calls), 1);
	assert_int_equal(calls, 1);
}

static char *map_page(char *at)
{
	char *p = mmap(at, PN_PAGE_BYTES, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS |
			       (at ? MAP_FIXED_NOREPLACE : 0),
		       -1, 0);

	assert_true(p != MAP_FAILED);
	return p;
}

static struct pn_watched_range *add_page(const char *page)
{
	struct pn_watched_range *range;

	assert_ok(pn_watched_range_add(page, 1, &range));
	return range;
}

/* Whether the page may not be used when other memory is mapped there. */
static bool replacement_is_refused(struct pn_watched_range *range, char *page)
{
	assert_ok(munmap(page, PN_PAGE_BYTES));
	map_page(page);
	return pn_watched_range_check(range, page, 1, true) == -EFAULT;
}

/* Pages with watched ranges, when the hooks are overwritten. */
enum { UNTOUCHED, UNMAPPED, NPAGES };

static void ranges_survive_a_patch(bool again)
{
	struct pn_watched_range *ranges[NPAGES], *newer;
	char *pages[NPAGES], *page = map_page(NULL);

	for (unsigned i = 0; i < NPAGES; i++) {
		pages[i] = map_page(NULL);
		ranges[i] = add_page(pages[i]);
	}
	assert_int_equal(pn_monitor_mode(), PN_MONITOR_PATCH);
	load_patcher();
	assert_ok(install(PATCHER_RAW));
	/* The hooks detect nothing, and nobody has noticed: the kernel is
	 * asked. */
	assert_ok(pn_watched_range_check(ranges[UNMAPPED], pages[UNMAPPED], 1,
					 true));
	assert_ok(munmap(pages[UNMAPPED], PN_PAGE_BYTES));
	assert_int_equal(pn_watched_range_check(ranges[UNMAPPED],
						pages[UNMAPPED], 1, false),
			 -EFAULT);
	/* To add a range has the monitor look. The others are not released. */
	newer = add_page(page);
	assert_true(replacement_is_refused(newer, page));
	assert_ok(pn_watched_range_check(ranges[UNTOUCHED], pages[UNTOUCHED], 1,
					 true));
	if (again)
		assert_true(replacement_is_refused(ranges[UNTOUCHED],
						   pages[UNTOUCHED]));
	assert_ok(munmap(pages[UNTOUCHED], PN_PAGE_BYTES));
	assert_int_equal(pn_watched_range_check(ranges[UNTOUCHED],
						pages[UNTOUCHED], 1, false),
			 -EFAULT);
	for (unsigned i = 0; i < NPAGES; i++)
		pn_watched_range_remove(ranges[i]);
	pn_watched_range_remove(newer);
}

static void ranges_are_watched_when_libc_is_patched_again(void **state)
{
	(void)state;
	ranges_survive_a_patch(true);
	assert_int_equal(pn_monitor_mode(), PN_MONITOR_PATCH);
}

static void ranges_survive_the_next_mode(void **state)
{
	(void)state;
	pn_log_set_level(PN_LOG_ERROR);
	pn_monitor_faults.threaded = true;
	ranges_survive_a_patch(false);
	assert_int_equal(pn_monitor_mode(), PN_MONITOR_USERFAULTFD);
}

/* All patched again: everything counts as released for caches only. */
static void a_range_survives_a_check_of_the_monitor(void **state)
{
	char *page = map_page(NULL);
	struct pn_watched_range *range = add_page(page);

	(void)state;
	load_patcher();
	assert_ok(install(PATCHER_RAW));
	assert_false(pn_monitor_check());
	assert_ok(pn_watched_range_check(range, page, 1, true));
	assert_true(replacement_is_refused(range, page));
	pn_watched_range_remove(range);
}

/* A range that is checked wherever memory is released. */
static struct checked {
	struct pn_subscriber subscriber;
	struct pn_watched_range *range;
	const char *page;
	unsigned nchecks;
} checked;

static void check_range(void *arg, uintptr_t addr, size_t len,
			enum pn_release_phase phase)
{
	struct checked *c = arg;

	(void)addr, (void)len, (void)phase;
	pn_watched_range_check(c->range, c->page, 1, false);
	c->nchecks++;
}

/* The self-test releases memory under the monitor's lock. */
static void a_check_needs_no_lock(void **state)
{
	checked.subscriber = (struct pn_subscriber){ .released = check_range,
						     .arg = &checked };
	checked.page = map_page(NULL);
	checked.range = add_page(checked.page);
	(void)state;
	assert_int_equal(pn_monitor_mode(), PN_MONITOR_PATCH);
	assert_ok(pn_monitor_subscribe(&checked.subscriber));
	load_patcher();
	assert_ok(install(PATCHER_RAW));
	alarm(120); /* a lock would be waited for */
	assert_false(pn_monitor_check());
	alarm(0);
	assert_true(checked.nchecks > 0);
	pn_monitor_unsubscribe(&checked.subscriber);
	pn_watched_range_remove(checked.range);
}

#define CASE(when, name)         \
	{                        \
		when, TEST(name) \
	}

int main(int argc, char **argv)
{
	static const struct {
		const char *when;
		struct CMUnitTest test;
	} cases[] = {
		CASE("early", an_earlier_patch_is_called),
		CASE("early_syscall", an_earlier_patch_may_end_in_syscall),
		CASE("early_sbrk", an_earlier_patch_of_sbrk_is_called),
		CASE("later", a_later_patch_is_patched_over_and_called),
		CASE("polite", a_later_patch_that_calls_pinion_stays),
		CASE("syscall", a_later_patch_that_ends_in_syscall_stays),
		CASE("check", a_check_needs_no_lock),
		CASE("survivor", a_range_survives_a_check_of_the_monitor),
		CASE("range", ranges_are_watched_when_libc_is_patched_again),
		CASE("range_threads", ranges_survive_the_next_mode),
		CASE("threads", with_threads_the_next_mode_is_used),
	};

	for (size_t i = 0; argc == 3 && i < PN_ARRAY_LEN(cases); i++) {
		const struct CMUnitTest tests[] = { cases[i].test };

		library = argv[1];
		if (!strcmp(argv[2], cases[i].when))
			return RUN_TESTS(tests);
	}
	return 2;
}
