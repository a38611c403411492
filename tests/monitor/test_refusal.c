/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Modes that are broken on purpose (struct pn_monitor_faults) must be refused
 * with a reason, and the next mode used.
 */
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "base/log.h"
#include "child.h"
#include "forbid.h"
#include "monitor/monitor_impl.h"
#include "recorder.h"

static struct pn_monitor_report report_of(enum pn_monitor_mode wanted)
{
	struct pn_monitor_report report;

	pn_log_set_level(PN_LOG_NONE);
	assert_ok(pn_monitor_setup(wanted));
	pn_monitor_report(&report);
	return report;
}

static int heal(void **state)
{
	(void)state;
	pn_monitor_faults = (struct pn_monitor_faults){ 0 };
	return 0;
}

static void patches_that_detect_nothing_are_refused(void **state)
{
	struct pn_monitor_report report;

	(void)state;
	pn_monitor_faults.ignore_hooks = true;
	report = report_of(PN_MONITOR_PATCH);
	assert_int_equal(report.mode, PN_MONITOR_USERFAULTFD);
	if (RECORDER_SANITIZED)
		return; /* refused before it could be tried */
	assert_non_null(strstr(report.refused[PN_MONITOR_PATCH], "heap trim"));
	assert_non_null(strstr(report.refused[PN_MONITOR_PATCH], "not see"));
}

/* The child starts the monitor again, with patches that worked at first. */
static void start_blind(void)
{
	struct pn_monitor_report report;

	pn_monitor_faults.ignore_hooks = true;
	pn_monitor_report(&report);
	if (report.mode == PN_MONITOR_PATCH ||
	    !strstr(report.refused[PN_MONITOR_PATCH], "munmap"))
		_exit(1);
}

static void patches_are_tested_when_a_subscriber_comes(void **state)
{
	(void)state;
	if (report_of(PN_MONITOR_PATCH).mode != PN_MONITOR_PATCH)
		skip();
	child_run(start_blind);
}

/* A refused mode leaves nothing running. */
static void a_userfaultfd_that_misses_releases_is_closed(void **state)
{
	struct pn_monitor_report report;

	(void)state;
	pn_monitor_faults.ignore_hooks = true; /* hooks would tell, too */
	pn_monitor_faults.ignore_events = true;
	report = report_of(PN_MONITOR_USERFAULTFD);
	assert_int_equal(report.mode, PN_MONITOR_BYPASS);
	assert_non_null(
		strstr(report.refused[PN_MONITOR_USERFAULTFD], "not see"));
	assert_false(pn_uffd_running());
}

static void without_userfaultfd_only_bypass_is_left(void **state)
{
	struct pn_monitor_report report;
	struct recorder r;

	(void)state;
	pn_monitor_faults.ignore_hooks = true;
	pn_monitor_faults.no_userfaultfd = true;
	report = report_of(PN_MONITOR_AUTO);
	assert_int_equal(report.mode, PN_MONITOR_BYPASS);
	assert_true(strlen(report.refused[PN_MONITOR_PATCH]) > 0);
	assert_non_null(
		strstr(report.refused[PN_MONITOR_USERFAULTFD], "userfaultfd"));
	for (int k = 0; k < PN_RELEASE_NKINDS; k++)
		assert_int_equal(report.detection[k], PN_DETECTION_NONE);
	/* What is not detected must not stay registered. */
	assert_false(pn_monitor_watches());
	assert_int_equal(pn_monitor_watch(PN_PAGE_BYTES, 1), -EOPNOTSUPP);
	/* Explicit invalidation works all the same. */
	assert_ok(recorder_open(&r));
	pn_monitor_invalidate(PN_PAGE_BYTES, 1);
	assert_int_equal(r.after, 1);
	recorder_close(&r);
}

static void a_working_mode_can_be_selected_again(void **state)
{
	struct pn_monitor_report report = report_of(PN_MONITOR_AUTO);

	(void)state;
	assert_int_equal(report.mode, RECORDER_SANITIZED
					      ? PN_MONITOR_USERFAULTFD
					      : PN_MONITOR_PATCH);
	assert_string_equal(report.refused[report.mode], "");
	if (RECORDER_SANITIZED)
		return;
	/* libc maps blocks of that size one by one, and unmaps them at once. */
	assert_int_equal(report.detection[PN_RELEASE_BIG_FREE],
			 PN_DETECTION_BEFORE);
	assert_int_equal(report.detection[PN_RELEASE_BIG_REALLOC],
			 PN_DETECTION_BEFORE);
}

static void a_mode_that_ends_closes_its_descriptors(void **state)
{
	unsigned before;

	(void)state;
	report_of(PN_MONITOR_NONE);
	before = test_descriptors();
	for (int mode = 0; mode < PN_MONITOR_NMODES; mode++)
		if (mode != PN_MONITOR_KEEP) /* that is for good */
			report_of((enum pn_monitor_mode)mode);
	report_of(PN_MONITOR_NONE);
	assert_int_equal(test_descriptors(), before);
}

static bool count_pages(void *arg, const struct pn_mapping *mapping)
{
	*(size_t *)arg += (mapping->end - mapping->start) / PN_PAGE_BYTES;
	return true;
}

static size_t mapped_pages(void)
{
	size_t n = 0;

	assert_ok(pn_maps_walk(count_pages, &n));
	return n;
}

static void walk_without_reading(void)
{
	size_t n = 0;

	if (forbid(__NR_read, EIO) && pn_maps_walk(count_pages, &n) != -EIO)
		_exit(1);
}

static void unreadable_mappings_are_an_error(void **state)
{
	(void)state;
	child_run(walk_without_reading);
}

/* Except for what libc keeps: its heap and stacks. */
static void the_self_test_leaves_no_memory_behind(void **state)
{
	const unsigned kinds =
		PN_SELFTEST_ALL &
		~(PN_SELFTEST_THREAD | PN_SELFTEST_HEAP | 1u << PN_RELEASE_BRK);
	enum pn_detection detection[PN_RELEASE_NKINDS];
	size_t before;

	(void)state;
	if (RECORDER_SANITIZED)
		return; /* which map what they need */
	report_of(PN_MONITOR_PATCH);
	pn_selftest_run(kinds, false, detection);
	before = mapped_pages();
	for (unsigned i = 0; i < 10; i++)
		pn_selftest_run(kinds, false, detection);
	assert_int_equal(mapped_pages(), before);
	report_of(PN_MONITOR_NONE);
}

/* --- the self-test beside other threads ----------------------------------- */

static _Atomic bool tested, lost;

static bool is_mapped(void *page)
{
	unsigned char resident;

	return !mincore(page, 4096, &resident);
}

/* Maps pages, which may lie where the self-test has just released some, and
 * looks whether they stay. */
static void *map_and_look(void *arg)
{
	void *at[8];

	(void)arg;
	while (!tested) {
		for (unsigned i = 0; i < 8; i++)
			at[i] = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
				     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		sched_yield();
		for (unsigned i = 0; i < 8; i++) {
			if (at[i] != MAP_FAILED && !is_mapped(at[i]))
				lost = true;
			munmap(at[i], 4096);
		}
	}
	return NULL;
}

static void the_self_test_unmaps_only_its_own_memory(void **state)
{
	const unsigned kinds =
		1u << PN_RELEASE_MUNMAP_PART | 1u << PN_RELEASE_MREMAP_SHRINK;
	enum pn_detection detection[PN_RELEASE_NKINDS];
	pthread_t thread;

	(void)state;
	report_of(PN_MONITOR_NONE);
	assert_int_equal(pthread_create(&thread, NULL, map_and_look, NULL), 0);
	for (unsigned i = 0; i < 20000 && !lost; i++)
		pn_selftest_run(kinds, false, detection);
	tested = true;
	pthread_join(thread, NULL);
	assert_false(lost);
}

#ifdef __x86_64__
static uintptr_t followed(uint8_t a, uint8_t b)
{
	const uint8_t code[16] = { a, b, 0, 0, 0, 0, 0x78, 0x56, 0x34, 0x12 };

	return (uintptr_t)pn_jump_decode(code);
}

/* Two bytes make a jump through memory, not one of them. */
static void only_jumps_are_decoded(void **state)
{
	(void)state;
	assert_int_equal(followed(0xff, 0x25), 0x12345678);
	assert_int_equal(followed(0xff, 0x15), 0);
	assert_int_equal(followed(0x48, 0x25), 0);
	assert_int_equal(followed(0x49, 0xbb), 0);
	assert_int_equal(followed(0x48, 0xb8), 0);
}
#endif

static int forty_two(void)
{
	return 42;
}

static int seven(void)
{
	return 7;
}

/* As /proc/self/maps says. */
static bool is_executable(const void *at)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	unsigned long start, end;
	char line[512], may[5];
	bool yes = false;

	assert_non_null(maps);
	while (fgets(line, sizeof(line), maps))
		if (sscanf(line, "%lx-%lx %4s", &start, &end, may) == 3 &&
		    (uintptr_t)at >= start && (uintptr_t)at < end)
			yes = may[2] == 'x';
	fclose(maps);
	return yes;
}

/* Some systems forbid it. */
static bool proc_mem_writes(void *at)
{
	int fd = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
	bool yes = fd >= 0 && pwrite(fd, "", 1, (off_t)(uintptr_t)at) == 1;

	if (fd >= 0)
		close(fd);
	return yes;
}

/* The code stays executable at all times: the protection of its pages is
 * changed only if there is no other way. */
static void code_is_written_without_mprotect_if_possible(void **state)
{
	size_t page = pn_monitor_page_bytes();
	uint8_t code[PN_JUMP_MAX_BYTES];
	size_t len;

	(void)state;
	for (int fault = 0; fault < 2; fault++) {
		void *at = mmap(NULL, page, PROT_READ,
				MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		bool must_touch = fault || !proc_mem_writes(at);

		pn_monitor_faults.no_proc_mem = fault;
		len = pn_jump_encode(at, (void *)forty_two, code);
		pn_jump_begin();
		assert_ok(pn_jump_write(at, code, len));
		pn_jump_end();
		assert_int_equal(is_executable(at), must_touch);
		munmap(at, page);
	}
}

/* Both ways of writing code, on a function of this test's own. */
static void code_can_be_written_either_way(void **state)
{
	size_t page = pn_monitor_page_bytes();
	uint8_t code[PN_JUMP_MAX_BYTES];
	int (*function)(void);
	size_t len;

	(void)state;
	for (int fault = 0; fault < 2; fault++) {
		void *at = mmap(NULL, page, PROT_READ | PROT_EXEC,
				MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		pn_monitor_faults.no_proc_mem = fault;
		pn_jump_begin();
		assert_null(pn_jump_decode(at));
		len = pn_jump_encode(at, (void *)forty_two, code);
		assert_true(len <= PN_JUMP_MAX_BYTES);
		assert_ok(pn_jump_write(at, code, len));
		assert_ptr_equal(pn_jump_decode(at), (void *)forty_two);
		function = (int (*)(void))at;
		assert_int_equal(function(), 42);
		len = pn_jump_encode(at, (void *)seven, code);
		assert_ok(pn_jump_write(at, code, len));
		assert_int_equal(function(), 7);
		pn_jump_end();
		munmap(at, page);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(
			patches_that_detect_nothing_are_refused, heal),
		TEST(patches_are_tested_when_a_subscriber_comes),
		cmocka_unit_test_teardown(
			without_userfaultfd_only_bypass_is_left, heal),
		cmocka_unit_test_teardown(
			a_userfaultfd_that_misses_releases_is_closed, heal),
		TEST(a_working_mode_can_be_selected_again),
		TEST(a_mode_that_ends_closes_its_descriptors),
		TEST(unreadable_mappings_are_an_error),
		TEST(the_self_test_leaves_no_memory_behind),
		TEST(the_self_test_unmaps_only_its_own_memory),
#ifdef __x86_64__
		TEST(only_jumps_are_decoded),
#endif
		cmocka_unit_test_teardown(code_can_be_written_either_way, heal),
		cmocka_unit_test_teardown(
			code_is_written_without_mprotect_if_possible, heal),
	};

	return RUN_TESTS(tests);
}
