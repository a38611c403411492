/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Runs once for each mode (PINION_MONITOR in the environment) and again under
 * other allocators. A mode has to do what it claims in its report.
 */
#include "test.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "monitor/monitor_impl.h"
#include "recorder.h"
#include "releases.h"

#define LEN	      (8 * PN_PAGE_BYTES)
#define GUARD_INSTALL 102 /* MADV_GUARD_INSTALL */

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

/* A mapping that is watched, with recorder r. */
static char *map_watched(struct recorder *r)
{
	char *p = map_at(NULL, 0);

	assert_ok(recorder_open(r));
	recorder_aim(r, p, LEN);
	assert_ok(pn_monitor_watch((uintptr_t)p, LEN));
	return p;
}

/* The first test: the mode has not been chosen yet. */
static void the_first_subscriber_starts_the_monitor(void **state)
{
	char *p;
	struct recorder r;

	(void)state;
	p = map_watched(&r);
	munmap(p, LEN);
	recorder_settle();
	assert_int_equal(r.after, sees_nothing() ? 0 : 1);
	pn_monitor_unwatch((uintptr_t)p, LEN);
	recorder_close(&r);
}

/* `keep` makes libc's malloc keep its memory; other allocators ignore that. */
static void keep_works_only_with_libcs_malloc(void **state)
{
	const char *asked = getenv("PINION_MONITOR");
	Dl_info info;
	bool libcs;

	(void)state;
	if (!asked || strcmp(asked, "keep"))
		skip();
	assert_true(dladdr(dlsym(RTLD_DEFAULT, "malloc"), &info));
	libcs = strstr(info.dli_fname, "/libc.so") && !RECORDER_SANITIZED;
	assert_int_equal(pn_monitor_mode(),
			 libcs ? PN_MONITOR_KEEP : PN_MONITOR_BYPASS);
}

/* What is not detected must not stay registered, unless asked for by name. */
static void nothing_can_be_watched_in_bypass(void **state)
{
	char *p = map_at(NULL, 0);
	struct recorder r;

	(void)state;
	assert_int_equal(pn_monitor_mode(), PN_MONITOR_BYPASS);
	assert_false(pn_monitor_watches());
	assert_ok(recorder_open(&r));
	recorder_aim(&r, p, LEN);
	assert_int_equal(pn_monitor_watch((uintptr_t)p, LEN), -EOPNOTSUPP);
	munmap(p, LEN);
	assert_int_equal(r.after, 0);
	pn_monitor_invalidate((uintptr_t)p, LEN);
	assert_int_equal(r.after, 1);
	recorder_close(&r);
}

static bool watched(const struct scene *s, enum pn_detection detection)
{
	int ret = pn_monitor_watch((uintptr_t)s->target, s->len);

	if (detection == PN_DETECTION_REFUSED)
		assert_int_equal(ret, -EOPNOTSUPP);
	else
		assert_int_equal(ret, 0);
	return !ret;
}

/* Compares the recorded notifications with the detection in the report. */
static void assert_notified(const struct recorder *r,
			    const struct release_case *c,
			    enum pn_detection detection)
{
	if (detection == PN_DETECTION_NONE) {
		assert_int_equal(r->after, 0);
		return;
	}
	if (detection == PN_DETECTION_KEPT)
		return; /* notified or not: the pages stay */
	assert_true(r->after >= 1);
	assert_int_equal(r->before, r->after);
	if (detection == PN_DETECTION_BEFORE)
		assert_true(r->present);
	if (c->exact) {
		assert_true(
			pn_range_covers((struct pn_range){ r->addr, r->len },
					r->target));
		assert_true(r->len <= r->target.len + PN_PAGE_BYTES);
	}
}

static void play(struct recorder *r, const struct release_case *c,
		 enum pn_detection detection)
{
	struct scene s = { 0 };

	if (!c->prepare(&s)) {
		print_message("%s: not possible here\n", c->name);
		return;
	}
	recorder_aim(r, s.target, s.len);
	if (watched(&s, detection)) {
		bool done = c->release(&s);

		recorder_settle();
		print_message("%s: %s, notified %u+%u\n", c->name,
			      pn_detection_name(detection), r->before,
			      r->after);
		assert_int_equal(done, detection != PN_DETECTION_IMPOSSIBLE);
		if (done)
			assert_notified(r, c, detection);
		pn_monitor_unwatch(r->target.addr, r->target.len);
	} else {
		c->release(&s);
	}
	recorder_aim(r, (void *)PN_PAGE_BYTES, 1);
	if (c->clean)
		c->clean(&s);
}

static void each_release_is_notified_as_reported(void **state)
{
	struct pn_monitor_report report;
	struct recorder r;

	(void)state;
	pn_monitor_report(&report);
	print_message("mode %s\n", pn_monitor_mode_name(report.mode));
	assert_ok(recorder_open(&r));
	for (size_t i = 0; i < nrelease_cases; i++)
		play(&r, &release_cases[i],
		     report.detection[release_cases[i].kind]);
	recorder_close(&r);
}

/* A wanted mode that detects less than this is broken. */
static void modes_detect_what_they_are_for(void **state)
{
	struct pn_monitor_report report;

	(void)state;
	pn_monitor_report(&report);
	for (int k = 0; k < PN_RELEASE_NKINDS; k++) {
		if (report.mode == PN_MONITOR_PATCH)
			assert_true(report.detection[k] != PN_DETECTION_NONE &&
				    report.detection[k] != PN_DETECTION_AFTER);
		/* The kernel has no event for this one. */
		if (report.mode == PN_MONITOR_USERFAULTFD &&
		    k != PN_RELEASE_GUARD_INSTALL)
			assert_int_not_equal(report.detection[k],
					     PN_DETECTION_NONE);
	}
	assert_int_equal(report.needs_probe,
			 report.mode == PN_MONITOR_USERFAULTFD);
	assert_int_equal(report.race_madvise, report.mode == PN_MONITOR_PATCH);
	assert_int_equal(report.race_unmap, !sees_nothing());
}

static void the_wanted_mode_is_used_if_possible(void **state)
{
	const char *asked = getenv("PINION_MONITOR");
	struct pn_monitor_report report;

	(void)state;
	pn_monitor_report(&report);
	if (!asked)
		assert_true(report.mode == PN_MONITOR_PATCH ||
			    report.mode == PN_MONITOR_USERFAULTFD);
	else if (!strcmp(asked, pn_monitor_mode_name(report.mode)))
		assert_string_equal(report.refused[report.mode], "");
	else
		assert_true(strlen(report.refused[report.wanted]) > 0);
	if (RECORDER_SANITIZED)
		assert_int_not_equal(report.mode, PN_MONITOR_PATCH);
}

/* Granules share buckets, so a few may be notified all the same. */
static void unrelated_releases_notify_nobody(void **state)
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
	char *p;
	struct recorder r;

	(void)state;
	if (sees_nothing())
		skip();
	p = map_watched(&r);
	assert_ok(pn_monitor_watch((uintptr_t)p, LEN));
	pn_monitor_unwatch((uintptr_t)p, LEN);
	munmap(p, LEN);
	recorder_settle();
	assert_int_equal(r.after, 1);
	pn_monitor_unwatch((uintptr_t)p, LEN);
	recorder_close(&r);
}

static void invalidation_notifies_in_every_mode(void **state)
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
	struct recorder r;
	struct pn_subscriber none = { 0 };

	(void)state;
	assert_int_equal(pn_monitor_subscribe(NULL), -EINVAL);
	assert_int_equal(pn_monitor_subscribe(&none), -EINVAL);
	assert_int_equal(pn_monitor_watch(0, 1), -EINVAL);
	assert_int_equal(pn_monitor_watch(4096, 0), -EINVAL);
	assert_int_equal(pn_monitor_watch(4096, SIZE_MAX), -EINVAL);
	assert_int_equal(pn_monitor_setup(PN_MONITOR_NMODES), -EINVAL);
	assert_ok(recorder_open(&r));
	assert_int_equal(pn_monitor_setup(PN_MONITOR_NONE), -EBUSY);
	recorder_close(&r);
	recorder_close(&r); /* a stranger by now */
}

/* They unsubscribe in another order than they subscribed. */
static void any_number_of_subscribers_is_notified(void **state)
{
	enum { MANY = 1500 };
	struct recorder *r = calloc(MANY, sizeof(*r));
	char *buffer = map_at(NULL, 0);
	const struct pn_range target = { (uintptr_t)buffer, PN_PAGE_BYTES };

	(void)state;
	assert_non_null(r);
	for (int i = 0; i < MANY; i++) {
		assert_ok(recorder_open(&r[i]));
		r[i].target = target;
	}
	pn_monitor_invalidate(target.addr, target.len);
	for (int i = 0; i < MANY; i += 3)
		recorder_close(&r[i]);
	pn_monitor_invalidate(target.addr, target.len);
	for (int i = 0; i < MANY; i++) {
		assert_int_equal(r[i].before, i % 3 ? 2 : 1);
		assert_int_equal(r[i].after, i % 3 ? 2 : 1);
	}
	for (int i = MANY - 1; i >= 0; i--)
		recorder_close(&r[i]);
	munmap(buffer, LEN);
	free(r);
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

static void only_userfaultfd_detects_raw_system_calls(void **state)
{
	char *p;
	struct recorder r;

	(void)state;
	p = map_watched(&r);
	assert_int_equal(PN_SYSCALL(SYS_munmap, (long)p, LEN), 0);
	recorder_settle();
	assert_int_equal(r.after, pn_monitor_mode() == PN_MONITOR_USERFAULTFD);
	pn_monitor_unwatch((uintptr_t)p, LEN);
	recorder_close(&r);
}

/* --- what a call releases ------------------------------------------------- */

/* Memory that is watched as a whole, at the border of a huge page of 2 MiB and
 * not at one of 1 GiB, where a hook has to assume a larger page. */
static struct {
	char *at;
	struct recorder recorder;
} stretch;

#define STRETCH	 (2 * HUGE)
#define HUGE	 ((size_t)2 << 20)
#define GIGANTIC ((size_t)1 << 30)

static void map_stretch(void)
{
	char *all = mmap(NULL, 2 * STRETCH, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	assert_true(all != MAP_FAILED);
	stretch.at = all + (-(uintptr_t)all & (HUGE - 1));
	if (!((uintptr_t)stretch.at & (GIGANTIC - 1)))
		stretch.at += HUGE;
	munmap(all, (size_t)(stretch.at - all));
	munmap(stretch.at + STRETCH,
	       2 * STRETCH - STRETCH - (size_t)(stretch.at - all));
	assert_ok(recorder_open(&stretch.recorder));
	assert_ok(pn_monitor_watch((uintptr_t)stretch.at, STRETCH));
	recorder_aim(&stretch.recorder, stretch.at, STRETCH);
}

static void unmap_stretch(void)
{
	pn_monitor_unwatch((uintptr_t)stretch.at, STRETCH);
	recorder_close(&stretch.recorder);
	munmap(stretch.at, STRETCH);
}

/* Expects that these pages were notified since the last time, or none. */
static void assert_released(size_t first, size_t npages)
{
	struct recorder *r = &stretch.recorder;

	assert_int_equal(r->before, npages ? 1 : 0);
	assert_int_equal(r->after, npages ? 1 : 0);
	if (npages) {
		assert_int_equal(r->addr - (uintptr_t)stretch.at,
				 first * PN_PAGE_BYTES);
		assert_int_equal(r->len, npages * PN_PAGE_BYTES);
	}
	r->before = r->after = 0;
}

static char *page_of(size_t n)
{
	return stretch.at + n * PN_PAGE_BYTES;
}

static char *map_over(size_t first, size_t npages, int flags)
{
	return mmap(page_of(first), npages * PN_PAGE_BYTES,
		    PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags,
		    -1, 0);
}

static char *map_file_over(size_t page)
{
	int fd = memfd_create("over", MFD_CLOEXEC);
	char *p = mmap(page_of(page), PN_PAGE_BYTES, PROT_READ,
		       MAP_SHARED | MAP_FIXED, fd, 0);

	close(fd);
	return p;
}

/* Patches know only the arguments; the kernel reports what it did. */
static bool patched(void)
{
	return pn_monitor_mode() == PN_MONITOR_PATCH;
}

static void mapping_over_memory_releases_it(void **state)
{
	char *elsewhere;

	(void)state;
	if (!patched())
		skip();
	map_stretch();
	assert_ptr_equal(map_over(3, 2, MAP_FIXED), page_of(3));
	assert_released(3, 2);
	assert_ptr_equal(map_over(0, 1, MAP_FIXED), page_of(0));
	assert_released(0, 1);
	/* A file may have huge pages. */
	assert_ptr_equal(map_file_over(0), page_of(0));
	assert_released(0, 512);
	elsewhere = map_over(3, 2, 0); /* a wish that cannot be granted */
	assert_released(0, 0);
	munmap(elsewhere, 2 * PN_PAGE_BYTES);
	assert_true(map_over(3, 2, MAP_FIXED_NOREPLACE) == MAP_FAILED);
	assert_released(0, 0);
	assert_true(map_over(3, 2, MAP_FIXED | MAP_FIXED_NOREPLACE) ==
		    MAP_FAILED);
	assert_released(0, 0);
	unmap_stretch();
}

static void mremap_releases_source_and_destination(void **state)
{
	char *moved;

	(void)state;
	if (!patched())
		skip();
	map_stretch();
	assert_ptr_equal(mremap(page_of(4), 4 * PN_PAGE_BYTES,
				3 * PN_PAGE_BYTES, 0),
			 page_of(4));
	assert_released(7, 1);
	assert_ptr_equal(mremap(page_of(4), 3 * PN_PAGE_BYTES,
				3 * PN_PAGE_BYTES, 0),
			 page_of(4));
	assert_released(0, 0);
	/* It need not move, but the hook cannot know. */
	assert_ptr_equal(mremap(page_of(4), 3 * PN_PAGE_BYTES,
				4 * PN_PAGE_BYTES, MREMAP_MAYMOVE),
			 page_of(4));
	assert_released(4, 3);
	moved = mremap(page_of(20), 2 * PN_PAGE_BYTES, 2 * PN_PAGE_BYTES,
		       MREMAP_MAYMOVE | MREMAP_DONTUNMAP);
	if (moved != MAP_FAILED)
		munmap(moved, 2 * PN_PAGE_BYTES);
	assert_released(20, 2);
	moved = map_at(NULL, 0);
	assert_ptr_equal(mremap(moved, 2 * PN_PAGE_BYTES, 3 * PN_PAGE_BYTES,
				MREMAP_MAYMOVE | MREMAP_FIXED, page_of(30)),
			 page_of(30));
	assert_released(30, 3);
	munmap(moved, LEN);
	unmap_stretch();
}

static void only_some_advice_releases(void **state)
{
	static const int harmless[] = { MADV_NORMAL, MADV_SEQUENTIAL,
					MADV_WILLNEED, MADV_NOHUGEPAGE,
					MADV_DONTFORK };

	(void)state;
	if (!patched())
		skip();
	map_stretch();
	for (unsigned i = 0; i < PN_ARRAY_LEN(harmless); i++) {
		madvise(page_of(9), 2 * PN_PAGE_BYTES, harmless[i]);
		assert_released(0, 0);
	}
	assert_ok(madvise(page_of(9), 2 * PN_PAGE_BYTES, MADV_DONTNEED));
	assert_released(9, 2);
	/* Linux 6.13; others refuse it, which the hook cannot know. */
	madvise(page_of(12), 3 * PN_PAGE_BYTES, GUARD_INSTALL);
	assert_released(12, 3);
	unmap_stretch();
}

/* An old system call that maps pages of shared memory in another order. */
static void remap_file_pages_releases_the_old_pages(void **state)
{
	(void)state;
	if (!patched())
		skip();
	map_stretch();
	assert_ptr_equal(mmap(page_of(5), 4 * PN_PAGE_BYTES,
			      PROT_READ | PROT_WRITE,
			      MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
			 page_of(5));
	assert_released(5, 4);
	*page_of(8) = 8;
	if (!remap_file_pages(page_of(5), 2 * PN_PAGE_BYTES, 0, 2, 0))
		assert_int_equal(*page_of(6), 8);
	assert_released(5, 2);
	unmap_stretch();
}

/* As many ranges as the kernel accepts, and one more, which it refuses. */
static void process_madvise_notifies_each_range(void **state)
{
	static struct iovec list[1025];

	(void)state;
	if (!patched())
		skip();
	map_stretch();
	for (size_t i = 0; i < PN_ARRAY_LEN(list); i++)
		list[i] = (struct iovec){ page_of(i % 1024), PN_PAGE_BYTES };
	/* The hook does not check which process is meant; the kernel does. */
	syscall(SYS_process_madvise, -1, list, 1024, MADV_DONTNEED, 0);
	assert_true(stretch.recorder.before >= 1);
	assert_int_equal(stretch.recorder.before, stretch.recorder.after);
	stretch.recorder.before = stretch.recorder.after = 0;
	syscall(SYS_process_madvise, -1, list, 1025, MADV_DONTNEED, 0);
	assert_released(0, 0);
	unmap_stretch();
}

/* The segment has three pages, and is attached one byte behind the first. */
static void shmat_over_memory_releases_it(void **state)
{
	int id = shmget(IPC_PRIVATE, 3 * PN_PAGE_BYTES, 0600);

	(void)state;
	if (!patched() || id < 0)
		skip();
	map_stretch();
	assert_true(shmat(id, page_of(5), 0) == (void *)-1);
	assert_released(0, 0);
	assert_true(shmat(id, NULL, SHM_REMAP) == (void *)-1);
	assert_released(0, 0);
	assert_ptr_equal(shmat(id, page_of(5), SHM_REMAP), page_of(5));
	assert_released(5, 3);
	assert_ptr_equal(shmat(id, page_of(9) + 1, SHM_REMAP | SHM_RND),
			 page_of(9));
	assert_released(9, 3);
	assert_ok(shmdt(page_of(5)));
	assert_released(5, 3);
	assert_ok(shmdt(page_of(9)));
	assert_released(9, 3);
	shmctl(id, IPC_RMID, NULL);
	unmap_stretch();
}

/* The first half cannot be watched, the second can. */
static void one_unwatchable_mapping_refuses_the_range(void **state)
{
	int id = shmget(IPC_PRIVATE, 4 * PN_PAGE_BYTES, 0600);
	char *p = map_at(NULL, 0);

	(void)state;
	if (pn_monitor_mode() != PN_MONITOR_USERFAULTFD || id < 0)
		skip();
	assert_ptr_equal(shmat(id, p, SHM_REMAP), p);
	assert_int_equal(pn_monitor_watch((uintptr_t)p, LEN), -EOPNOTSUPP);
	assert_ok(shmdt(p));
	shmctl(id, IPC_RMID, NULL);
	munmap(p, LEN);
}

/* What hooks do around a call, without the call. */
static void a_range_watched_during_its_release_is_notified(void **state)
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

static void assert_covered(const struct pn_release *release,
			   struct pn_range one)
{
	bool covered = false;

	for (unsigned n = 0; n < release->nranges; n++)
		covered |= pn_range_covers(release->ranges[n], one);
	assert_true(covered);
}

/* Adds 65 ranges, every step'th one after the other; 64 is backwards. */
static void assert_all_covered(unsigned step)
{
	const uintptr_t base = (uintptr_t)1 << 40;
	struct pn_release release;
	uintptr_t most = 0;

	pn_release_init(&release);
	for (unsigned i = 0; i < 65; i++) {
		pn_release_add(&release, base + i * step % 65 * LEN,
			       2 * PN_PAGE_BYTES);
		assert_true(release.nranges <= PN_RELEASE_RANGES);
	}
	for (unsigned n = 0; n < release.nranges; n++)
		if (release.ranges[n].addr + release.ranges[n].len > most)
			most = release.ranges[n].addr + release.ranges[n].len;
	assert_int_equal(most, base + 64 * LEN + 2 * PN_PAGE_BYTES);
	for (unsigned i = 0; i < 65; i++)
		assert_covered(&release,
			       (struct pn_range){ base + i * LEN,
						  2 * PN_PAGE_BYTES });
}

static void many_ranges_in_one_release_are_all_covered(void **state)
{
	(void)state;
	for (unsigned step = 1; step < 65; step += 21) /* forth, about, back */
		assert_all_covered(step);
}

/* Any watched range notifies, not only the first. */
static void one_watched_range_of_several_notifies(void **state)
{
	char *p, *far = map_at(NULL, 0);
	struct pn_release release;
	struct recorder r;

	(void)state;
	p = map_watched(&r);
	pn_release_init(&release);
	pn_release_add(&release, PN_PAGE_BYTES, 1);
	pn_release_add(&release, (uintptr_t)p, LEN);
	pn_release_begin(&release);
	pn_release_end(&release);
	assert_int_equal(r.before, 1);
	assert_int_equal(r.after, 1);
	assert_int_equal(r.others, 2);
	/* The old contents of the storage do not matter. */
	pn_release_init(&release);
	pn_release_add(&release, PN_PAGE_BYTES, 1);
	pn_release_begin(&release);
	pn_release_end(&release);
	assert_int_equal(r.before + r.after + r.others, 4);
	pn_monitor_unwatch((uintptr_t)p, LEN);
	recorder_close(&r);
	munmap(p, LEN);
	munmap(far, LEN);
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
	if (report.detection[PN_RELEASE_THREAD_STACK] == PN_DETECTION_NONE)
		assert_int_equal(stack_recorder.after, 0);
	else if (report.detection[PN_RELEASE_THREAD_STACK] != PN_DETECTION_KEPT)
		assert_true(stack_recorder.after >= 1);
	if (report.detection[PN_RELEASE_THREAD_STACK] == PN_DETECTION_BEFORE)
		assert_true(stack_recorder.present);
	pn_monitor_unwatch(stack_recorder.target.addr, PN_PAGE_BYTES);
	recorder_close(&stack_recorder);
}

/* The hooks have to fail as libc does. */
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

static void libcs_copy_of_the_break_is_updated(void **state)
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
	bool ignore_hooks = sees_nothing();

	if (recorder_open(&r))
		return 1;
	recorder_aim(&r, p, LEN);
	if (pn_monitor_watch((uintptr_t)p, LEN))
		return 2;
	munmap(p, LEN);
	recorder_settle();
	if (!ignore_hooks && r.after != 1)
		return 3;
	/* The child may unwatch what the parent watched. */
	pn_monitor_unwatch(of_parent->target.addr, of_parent->target.len);
	return of_parent->others || of_parent->after ? 4 : 0;
}

static void a_forked_child_starts_the_monitor_again(void **state)
{
	enum pn_monitor_mode mode = pn_monitor_mode();
	char *p;
	unsigned ndescriptors;
	struct recorder r;
	int status;
	pid_t pid;

	(void)state;
	/* ThreadSanitizer forbids a thread after a fork. */
	if (RECORDER_TSAN && mode == PN_MONITOR_USERFAULTFD)
		skip();
	p = map_watched(&r);
	ndescriptors = test_descriptors();
	pid = fork();
	assert_true(pid >= 0);
	/* The two that the kernel watches are the parent's. */
	if (!pid && mode == PN_MONITOR_USERFAULTFD)
		ndescriptors -= 2;
	if (!pid && test_descriptors() != ndescriptors)
		_exit(6);
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

#define SLICES	 4
#define ROUNDS	 300
#define SLICE_NO 0

/* One thread's own range; the callback finds the slice by address. */
static struct slice {
	_Atomic uintptr_t addr;
	atomic_uint notified;
	unsigned missed;
	uint64_t seed;
} slices[SLICES];

static void slices_released(void *arg, uintptr_t addr, size_t len,
			    enum pn_release_phase phase)
{
	struct slice *slice = arg;

	for (int i = 0; i < SLICES; i++) {
		uintptr_t at = slice[i].addr;

		if (phase == PN_RELEASE_AFTER && at >= addr && at < addr + len)
			slice[i].notified++;
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
	struct slice *slice = arg;

	for (int i = 0; i < ROUNDS; i++) {
		char *p = map_at(NULL, 0);
		unsigned before = slice->notified;

		churn(&slice->seed);
		memset(p, 1, LEN);
		slice->addr = (uintptr_t)p;
		if (pn_monitor_watch((uintptr_t)p, LEN))
			slice->missed++;
		munmap(p, LEN);
		recorder_settle();
		if (slice->notified == before)
			slice->missed++;
		slice->addr = 0;
		pn_monitor_unwatch((uintptr_t)p, LEN);
	}
	return NULL;
}

static void run_lanes(void *(*fn)(void *), uint64_t seed)
{
	pthread_t threads[SLICES];

	for (int i = 0; i < SLICES; i++) {
		slices[i].seed = test_random(&seed);
		slices[i].missed = 0;
		assert_ok(pthread_create(&threads[i], NULL, fn, &slices[i]));
	}
	for (int i = 0; i < SLICES; i++)
		assert_ok(pthread_join(threads[i], NULL));
}

static void threads_allocating_and_releasing_miss_nothing(void **state)
{
	struct pn_subscriber all = { .released = slices_released,
				     .arg = slices };

	(void)state;
	if (sees_nothing())
		skip();
	assert_ok(pn_monitor_subscribe(&all));
	run_lanes(hammer, test_seed());
	pn_monitor_unsubscribe(&all);
	for (int i = 0; i < SLICES; i++)
		assert_int_equal(slices[i].missed, 0);
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

static void ignore_release(void *arg, uintptr_t addr, size_t len,
			   enum pn_release_phase phase)
{
	(void)arg, (void)addr, (void)len, (void)phase;
}

static void subscribing_twice_aborts(void **state)
{
	struct pn_subscriber subscriber = { .released = ignore_release };
	int status;
	pid_t pid = fork();

	(void)state;
	assert_true(pid >= 0);
	if (!pid) {
		pn_release_subscribe(&subscriber);
		pn_release_subscribe(&subscriber);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

static void no_callback_after_unsubscribing(void **state)
{
	struct pn_subscriber s = { .released = comes_and_goes };
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

/* --- a release half done ------------------------------------------------- */

static atomic_bool passed;

static void *subscribe_meanwhile(void *arg)
{
	if (!pn_monitor_subscribe(arg))
		passed = true;
	return NULL;
}

static void *unsubscribe_meanwhile(void *arg)
{
	pn_monitor_unsubscribe(arg);
	passed = true;
	return NULL;
}

/* Runs fn while a release is under way: it must not return before that ends.
 * However long the test waits, a correct one does not. */
static void assert_waits(void *(*fn)(void *), struct pn_subscriber *s,
			 struct pn_release *release)
{
	pthread_t thread;

	passed = false;
	pn_release_begin(release);
	assert_ok(pthread_create(&thread, NULL, fn, s));
	for (int i = 0; i < 50 && !passed; i++)
		usleep(1000);
	assert_false(passed);
	pn_release_end(release);
	assert_ok(pthread_join(thread, NULL));
	assert_true(passed);
}

static void subscribers_wait_for_releases_under_way(void **state)
{
	struct pn_subscriber s = { .released = comes_and_goes };
	char *p = map_at(NULL, 0);
	struct pn_release release;

	(void)state;
	/* The epochs are the same in every mode; under userfaultfd threads
	 * whose stacks are watched wait for the reader, too. */
	if (pn_monitor_needs_probe())
		skip();
	assert_ok(pn_monitor_watch((uintptr_t)p, LEN));
	pn_release_init(&release);
	pn_release_add(&release, (uintptr_t)p, LEN);
	comes_and_goes_alive = true;
	assert_waits(subscribe_meanwhile, &s, &release);
	assert_waits(unsubscribe_meanwhile, &s, &release);
	pn_monitor_unwatch((uintptr_t)p, LEN);
	munmap(p, LEN);
}

/* The race: one thread unmaps, another gets the address at once and asks
 * whether it may use what it knows about it. */
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
	unsigned notified = slices[SLICE_NO].notified;
	char *again;

	memset(p, 1, LEN);
	slices[SLICE_NO].addr = (uintptr_t)p;
	assert_ok(pn_monitor_watch((uintptr_t)p, LEN));
	r->addr = (uintptr_t)p;
	for (int i = 1; !(again = map_at(p, MAP_FIXED_NOREPLACE)); i++)
		if (i % 64 == 0)
			sched_yield(); /* for machines with few cores */
	/* There are other pages at p now. */
	if (!pn_monitor_probe((uintptr_t)again))
		r->in_doubt++;
	else if (slices[SLICE_NO].notified == notified)
		r->stale++;
	while (r->addr)
		sched_yield();
	recorder_settle();
	assert_true(slices[SLICE_NO].notified > notified);
	slices[SLICE_NO].addr = 0;
	pn_monitor_unwatch((uintptr_t)p, LEN);
	munmap(p, LEN);
}

/* In patch mode BEFORE counts: the cache has invalidated the range. */
static void race_released(void *arg, uintptr_t addr, size_t len,
			  enum pn_release_phase phase)
{
	(void)phase;
	slices_released(arg, addr, len, PN_RELEASE_AFTER);
}

static void a_reused_address_is_never_used_unnotified(void **state)
{
	struct pn_subscriber all = { .released = race_released, .arg = slices };
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

/* Most tests watch something. */
static bool taken_for_bypass(void)
{
	const char *asked = getenv("PINION_MONITOR");

	return asked && (!strcmp(asked, "bypass") || !strcmp(asked, "keep")) &&
	       pn_monitor_mode() == PN_MONITOR_BYPASS;
}

int main(void)
{
	const struct CMUnitTest ignore_hooks[] = {
		TEST(keep_works_only_with_libcs_malloc),
		TEST(the_wanted_mode_is_used_if_possible),
		TEST(nothing_can_be_watched_in_bypass),
		TEST(invalidation_notifies_in_every_mode),
		TEST(bad_input_is_refused),
		TEST(errno_is_as_libc_sets_it),
		TEST(libcs_copy_of_the_break_is_updated),
	};
	const struct CMUnitTest tests[] = {
		TEST(the_first_subscriber_starts_the_monitor),
		TEST(the_wanted_mode_is_used_if_possible),
		TEST(keep_works_only_with_libcs_malloc),
		TEST(modes_detect_what_they_are_for),
		TEST(each_release_is_notified_as_reported),
		TEST(unrelated_releases_notify_nobody),
		TEST(a_watch_counts_until_its_last_unwatch),
		TEST(invalidation_notifies_in_every_mode),
		TEST(bad_input_is_refused),
		TEST(any_number_of_subscribers_is_notified),
		TEST(unmapped_memory_cannot_be_watched_by_the_kernel),
		TEST(only_userfaultfd_detects_raw_system_calls),
		TEST(mapping_over_memory_releases_it),
		TEST(mremap_releases_source_and_destination),
		TEST(only_some_advice_releases),
		TEST(remap_file_pages_releases_the_old_pages),
		TEST(process_madvise_notifies_each_range),
		TEST(shmat_over_memory_releases_it),
		TEST(one_unwatchable_mapping_refuses_the_range),
		TEST(a_range_watched_during_its_release_is_notified),
		TEST(many_ranges_in_one_release_are_all_covered),
		TEST(one_watched_range_of_several_notifies),
		TEST(a_thread_that_ends_releases_its_stack),
		TEST(errno_is_as_libc_sets_it),
		TEST(libcs_copy_of_the_break_is_updated),
		TEST(a_forked_child_starts_the_monitor_again),
		TEST(threads_allocating_and_releasing_miss_nothing),
		TEST(subscribing_twice_aborts),
		TEST(no_callback_after_unsubscribing),
		TEST(subscribers_wait_for_releases_under_way),
		TEST(a_reused_address_is_never_used_unnotified),
	};

	return taken_for_bypass() ? RUN_TESTS(ignore_hooks) : RUN_TESTS(tests);
}
