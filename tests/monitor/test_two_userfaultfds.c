/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program that uses userfaultfd itself, with write protection. Memory that it
 * has registered must not stay registered with a device, and its protection
 * must not change.
 */
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <pinion/pinion.h>

#include "base/log.h"
#include "context.h"
#include "forbid.h"
#include "monitor/monitor_impl.h"
#include "recorder.h"

#define LEN (16 * PN_PAGE_BYTES)

static int own = -1; /* the program's userfaultfd */

static int open_own(void)
{
	struct uffdio_api api = {
		.api = UFFD_API,
		.features = UFFD_FEATURE_PAGEFAULT_FLAG_WP,
	};
	long fd = syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);

	return fd < 0 || ioctl((int)fd, UFFDIO_API, &api) ? -1 : (int)fd;
}

static int register_own(void *addr)
{
	struct uffdio_register reg = { .range = { (uintptr_t)addr, LEN },
				       .mode = UFFDIO_REGISTER_MODE_WP };

	return ioctl(own, UFFDIO_REGISTER, &reg) ? -errno : 0;
}

static void protect_own(void *addr, bool on)
{
	struct uffdio_writeprotect wp = {
		.range = { (uintptr_t)addr, LEN },
		.mode = on ? UFFDIO_WRITEPROTECT_MODE_WP : 0,
	};

	assert_ok(ioctl(own, UFFDIO_WRITEPROTECT, &wp));
}

/* As /proc/self/pagemap says, bit 57. */
static unsigned protected_pages(const char *addr)
{
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	uint64_t entries[LEN / PN_PAGE_BYTES];
	unsigned n = 0;

	assert_true(fd >= 0);
	assert_int_equal(pread(fd, entries, sizeof(entries),
			       (off_t)((uintptr_t)addr / PN_PAGE_BYTES *
				       sizeof(*entries))),
			 sizeof(entries));
	close(fd);
	for (size_t i = 0; i < PN_ARRAY_LEN(entries); i++)
		n += entries[i] >> 57 & 1;
	return n;
}

/* Apart from its neighbours, since the kernel merges mappings that are alike.
 */
static char *map(void)
{
	char *p = mmap(NULL, LEN + 2 * PN_PAGE_BYTES, PROT_NONE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_true(p != MAP_FAILED);
	p += PN_PAGE_BYTES;
	assert_ok(mprotect(p, LEN, PROT_READ | PROT_WRITE));
	memset(p, 1, LEN);
	return p;
}

static void unmap(char *p)
{
	munmap(p - PN_PAGE_BYTES, LEN + 2 * PN_PAGE_BYTES);
}

static int take_userfaultfd(void **state)
{
	(void)state;
	assert_ok(pn_monitor_setup(PN_MONITOR_USERFAULTFD));
	assert_int_equal(pn_monitor_mode(), PN_MONITOR_USERFAULTFD);
	return 0;
}

static int heal(void **state)
{
	(void)state;
	/* Ends the reader, which reads them. */
	assert_ok(pn_monitor_setup(PN_MONITOR_NONE));
	pn_monitor_faults = (struct pn_monitor_faults){ 0 };
	return 0;
}

/* --- the tests ----------------------------------------------------------- */

static void memory_of_another_userfaultfd_is_not_watched(void **state)
{
	char *p = map();

	(void)state;
	assert_ok(register_own(p));
	assert_int_equal(pn_monitor_watch((uintptr_t)p, LEN), -EOPNOTSUPP);
	assert_int_equal(pn_monitor_watch((uintptr_t)p + PN_PAGE_BYTES, 1),
			 -EOPNOTSUPP);
	unmap(p);
}

/* Half of a buffer is enough to refuse it. */
static void memory_partly_of_another_userfaultfd_is_not_watched(void **state)
{
	char *p = map(), *q = p + LEN / 2;
	struct uffdio_register half = { .range = { (uintptr_t)q, LEN / 2 },
					.mode = UFFDIO_REGISTER_MODE_WP };

	(void)state;
	assert_ok(ioctl(own, UFFDIO_REGISTER, &half));
	assert_int_equal(pn_monitor_watch((uintptr_t)p, LEN), -EOPNOTSUPP);
	assert_ok(pn_monitor_watch((uintptr_t)p, LEN / 2));
	pn_monitor_unwatch((uintptr_t)p, LEN / 2);
	unmap(p);
}

/* Also where a watched mapping was before. */
static void the_programs_write_protection_stays(void **state)
{
	char *p = map();

	(void)state;
	assert_ok(pn_monitor_watch((uintptr_t)p, LEN));
	assert_true(mmap(p, LEN, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == p);
	memset(p, 2, LEN);
	assert_ok(register_own(p));
	protect_own(p, true);
	assert_int_equal(protected_pages(p), LEN / PN_PAGE_BYTES);
	assert_int_equal(pn_monitor_watch((uintptr_t)p, LEN), -EOPNOTSUPP);
	pn_monitor_probe((uintptr_t)p);
	assert_int_equal(protected_pages(p), LEN / PN_PAGE_BYTES);
	protect_own(p, false);
	pn_monitor_unwatch((uintptr_t)p, LEN);
	unmap(p);
}

static struct pinion_cache_stats stats_of(struct pinion_context *context)
{
	struct pinion_cache_stats stats = { .size = sizeof(stats) };

	assert_ok(pinion_cache_query(context, &stats));
	return stats;
}

/* It would become stale when the program releases the pages: the kernel reports
 * that to the program's userfaultfd, not to pinion's. */
static void memory_of_another_userfaultfd_does_not_stay_registered(void **state)
{
	const char *const options[] = { "device=soft", "log=none", NULL };
	const struct pinion_attr attr = { .size = sizeof(attr),
					  .options = options };
	struct pinion_context *context;
	struct pinion_pin pin;
	char *p = map();

	(void)state;
	assert_ok(register_own(p));
	assert_ok(pinion_open(&attr, &context));
	for (int i = 0; i < 2; i++) {
		assert_ok(pinion_pin(context, p, LEN, 0, &pin));
		pinion_unpin(context, &pin);
		assert_int_equal(stats_of(context).regions, 0);
		assert_ok(madvise(p, LEN, MADV_DONTNEED));
	}
	assert_int_equal(stats_of(context).registrations, 2);
	assert_int_equal(stats_of(context).unkept, 2);
	assert_int_equal(stats_of(context).hits, 0);
	pinion_close(context);
	unmap(p);
}

/* Where pinion was first, the program would be refused. So a program that is
 * known to use userfaultfd gets another mode, unless it asks for this one. */
static void a_program_with_a_userfaultfd_gets_another_mode(void **state)
{
	struct pn_monitor_report report;
	char *p = map();

	(void)state;
	pn_monitor_faults.ignore_hooks = true; /* no patch */
	assert_ok(pn_monitor_setup(PN_MONITOR_AUTO));
	pn_monitor_report(&report);
	assert_int_equal(report.mode, PN_MONITOR_BYPASS);
	assert_non_null(strstr(report.refused[PN_MONITOR_USERFAULTFD],
			       "the program uses userfaultfd itself"));
	assert_int_equal(pn_monitor_watch((uintptr_t)p, LEN), -EOPNOTSUPP);
	assert_ok(register_own(p));
	unmap(p);
}

/* What the kernel makes impossible, and the manual says. */
static void a_userfaultfd_of_the_program_is_refused_watched_memory(void **state)
{
	char *p = map();

	(void)state;
	assert_ok(pn_monitor_watch((uintptr_t)p, LEN));
	assert_int_equal(register_own(p), -EBUSY);
	pn_monitor_unwatch((uintptr_t)p, LEN);
	unmap(p);
}

/* Notified, so that its address can be watched again: no hint outlives it. */
static void a_mapping_at_an_old_address_is_watched_anew(void **state)
{
	char *p = map();

	(void)state;
	for (int i = 0; i < 100; i++) {
		assert_ok(pn_monitor_watch((uintptr_t)p, PN_PAGE_BYTES));
		while (!pn_monitor_probe((uintptr_t)p))
			sched_yield(); /* events are being handled */
		assert_true(mmap(p, LEN, PROT_READ | PROT_WRITE,
				 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
				 0) == p);
		pn_monitor_unwatch((uintptr_t)p, PN_PAGE_BYTES);
	}
	unmap(p);
}

#define UFFD_TEST(name) \
	cmocka_unit_test_setup_teardown(name, take_userfaultfd, heal)

int main(void)
{
	const struct CMUnitTest tests[] = {
		UFFD_TEST(memory_of_another_userfaultfd_is_not_watched),
		UFFD_TEST(memory_partly_of_another_userfaultfd_is_not_watched),
		UFFD_TEST(the_programs_write_protection_stays),
		UFFD_TEST(
			memory_of_another_userfaultfd_does_not_stay_registered),
		UFFD_TEST(
			a_userfaultfd_of_the_program_is_refused_watched_memory),
		UFFD_TEST(a_mapping_at_an_old_address_is_watched_anew),
		cmocka_unit_test_teardown(
			a_program_with_a_userfaultfd_gets_another_mode, heal),
	};

	pn_log_set_level(PN_LOG_NONE);
	own = open_own();
	if (own < 0)
		return forbid_skip("no userfaultfd here");
	return RUN_TESTS(tests);
}
