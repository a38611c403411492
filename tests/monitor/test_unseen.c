/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Releases that are hard to detect, each as src/monitor/untested.c and the
 * self-test say of the mode in force (PINION_MONITOR). The argument is a
 * library that can be unloaded.
 */
#include "test.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <unistd.h>

#include "device/soft/uring.h"
#include "monitor/monitor_impl.h"
#include "recorder.h"
#include "unseen_library.h"

#define LEN (4 * PN_PAGE_BYTES)

static const char *library;
static char of_the_program[LEN];

static bool patched(void)
{
	return pn_monitor_mode() == PN_MONITOR_PATCH;
}

static bool by_kernel(void)
{
	return pn_monitor_mode() == PN_MONITOR_USERFAULTFD;
}

static const char *seen_of(const char *what)
{
	const char *name, *seen;

	for (unsigned i = 0;
	     (name = pn_monitor_untested(i, pn_monitor_mode(), &seen)); i++)
		if (!strcmp(name, what))
			return seen;
	fail_msg("%s is not in the table", what);
	return "";
}

static char *map(int flags, int fd)
{
	char *p = mmap(NULL, LEN, PROT_READ | PROT_WRITE, flags, fd, 0);

	assert_true(p != MAP_FAILED);
	return memset(p, 1, LEN);
}

static void watch(struct recorder *r, char *p)
{
	assert_ok(recorder_open(r));
	recorder_aim(r, p, LEN);
	assert_ok(pn_monitor_watch((uintptr_t)p, LEN));
}

static void unwatch(struct recorder *r)
{
	pn_monitor_unwatch(r->target.addr, r->target.len);
	recorder_close(r);
}

static char *load(void **handle)
{
	char *(*memory)(void);

	*handle = dlopen(library, RTLD_NOW);
	assert_non_null(*handle);
	memory = (char *(*)(void))dlsym(*handle, "unseen_memory");
	assert_non_null(memory);
	/* Whole pages of it. */
	return (char *)(((uintptr_t)memory() + PN_PAGE_BYTES - 1) &
			~(PN_PAGE_BYTES - 1));
}

static void unloading_a_library_is_notified_or_its_memory_refused(void **state)
{
	struct recorder r;
	void *handle;
	char *p = load(&handle);
	int ret;

	(void)state;
	assert_ok(recorder_open(&r));
	recorder_aim(&r, p, LEN);
	ret = pn_monitor_watch((uintptr_t)p, LEN);
	assert_int_equal(ret, patched() ? -EOPNOTSUPP : 0);
	assert_ok(dlclose(handle));
	recorder_settle();
	if (by_kernel())
		assert_true(r.after >= 1);
	if (!ret)
		pn_monitor_unwatch((uintptr_t)p, LEN);
	recorder_close(&r);
}

static void memory_of_the_program_itself_can_be_watched(void **state)
{
	uintptr_t addr = (uintptr_t)of_the_program;
	void *block = malloc(LEN);

	(void)state;
	assert_non_null(block);
	assert_int_equal(pn_library_contains((struct pn_range){ addr, LEN }),
			 false);
	assert_int_equal(pn_library_contains(
				 (struct pn_range){ (uintptr_t)block, LEN }),
			 false);
	free(block);
}

/* A disk's, if the current folder is on one. Private pages that were written to
 * go, too. */
static void a_private_file_that_is_truncated_is_told_or_not_watched(
	void **state)
{
	char path[] = "unseen-XXXXXX";
	int fd = mkstemp(path);
	struct recorder r;
	char *p;
	int ret;

	(void)state;
	assert_true(fd >= 0);
	unlink(path);
	assert_ok(ftruncate(fd, LEN));
	p = map(MAP_PRIVATE, fd);
	assert_ok(recorder_open(&r));
	recorder_aim(&r, p, LEN);
	ret = pn_monitor_watch((uintptr_t)p, LEN);
	assert_ok(ftruncate(fd, 2 * LEN));
	assert_int_equal(r.after, 0); /* it only grows */
	assert_ok(ftruncate(fd, PN_PAGE_BYTES));
	if (patched()) {
		assert_ok(ret);
		assert_int_equal(r.before, 1);
		assert_int_equal(r.after, 1);
		assert_true(r.addr == (uintptr_t)p + PN_PAGE_BYTES);
		assert_int_equal(r.len, LEN - PN_PAGE_BYTES);
	} else if (by_kernel()) {
		assert_int_equal(ret, -EOPNOTSUPP);
	}
	if (!ret)
		pn_monitor_unwatch((uintptr_t)p, LEN);
	recorder_close(&r);
	munmap(p, LEN);
	close(fd);
}

/* Files that are not mapped do not matter. */
static void truncating_other_files_notifies_nobody(void **state)
{
	int fd = memfd_create("mapped", MFD_CLOEXEC);
	int other = memfd_create("other", MFD_CLOEXEC);
	struct recorder r;
	char *p;

	(void)state;
	if (by_kernel())
		skip(); /* no file is watched */
	assert_ok(ftruncate(fd, LEN));
	assert_ok(ftruncate(other, LEN));
	p = map(MAP_SHARED, fd);
	watch(&r, p);
	assert_ok(ftruncate(other, 0));
	assert_int_equal(r.before + r.after + r.others, 0);
	unwatch(&r);
	munmap(p, LEN);
	close(fd);
	close(other);
}

/* One madvise() by io_uring; false: there is no io_uring here. */
static bool advise_by_ring(void *addr)
{
	struct io_uring_params params = { 0 };
	struct pn_uring ring;
	int ret;

	if (pn_uring_open(&ring, 1, &params))
		return false;
	ring.sqes[0] = (struct io_uring_sqe){ .opcode = IORING_OP_MADVISE,
					      .addr = (uint64_t)(uintptr_t)addr,
					      .len = LEN,
					      .fadvise_advice = MADV_DONTNEED };
	ring.array[0] = 0;
	__atomic_store_n(ring.sq.tail, 1, __ATOMIC_RELEASE);
	ret = pn_uring_enter(&ring, 1, 1, IORING_ENTER_GETEVENTS);
	if (ret == 1)
		ret = ring.cqes[0].res;
	pn_uring_close(&ring);
	assert_ok(ret);
	return true;
}

static void madvise_by_io_uring_is_as_the_table_says(void **state)
{
	char *p = map(MAP_PRIVATE | MAP_ANONYMOUS, -1);
	const char *seen = seen_of("io_uring madvise");
	struct recorder r;

	(void)state;
	watch(&r, p);
	if (!advise_by_ring(p)) {
		unwatch(&r);
		skip();
	}
	recorder_settle();
	assert_int_equal(r.after >= 1, !strcmp(seen, "after"));
	unwatch(&r);
	munmap(p, LEN);
}

/* Notifications of other memory may be under way, but not for ever. */
static bool trusted(const char *p)
{
	for (int i = 0; i < 1000; i++) {
		recorder_settle();
		if (pn_monitor_probe((uintptr_t)p))
			return true;
		sched_yield();
	}
	return false;
}

/* The kernel has no event for these two; a probe detects them. */
static void what_comes_over_memory_without_an_event_is_found_by_asking(
	void **state)
{
	int id = shmget(IPC_PRIVATE, LEN, IPC_CREAT | 0600);
	char *p = map(MAP_PRIVATE | MAP_ANONYMOUS, -1);
	char *q = map(MAP_SHARED | MAP_ANONYMOUS, -1);

	(void)state;
	assert_true(id >= 0);
	assert_ok(pn_monitor_watch((uintptr_t)p, LEN));
	assert_ok(pn_monitor_watch((uintptr_t)q, LEN));
	assert_true(trusted(p));
	assert_true(trusted(q));
	assert_ptr_equal(shmat(id, p, SHM_REMAP), p);
	shmctl(id, IPC_RMID, NULL);
	assert_int_equal(trusted(p), !by_kernel());
	if (!remap_file_pages(q, PN_PAGE_BYTES, 0, 2, 0))
		assert_int_equal(trusted(q), !by_kernel());
	pn_monitor_unwatch((uintptr_t)p, LEN);
	pn_monitor_unwatch((uintptr_t)q, LEN);
	shmdt(p);
	munmap(q, LEN);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(unloading_a_library_is_notified_or_its_memory_refused),
		TEST(memory_of_the_program_itself_can_be_watched),
		TEST(a_private_file_that_is_truncated_is_told_or_not_watched),
		TEST(truncating_other_files_notifies_nobody),
		TEST(madvise_by_io_uring_is_as_the_table_says),
		TEST(what_comes_over_memory_without_an_event_is_found_by_asking),
	};

	if (argc != 2)
		return 2;
	library = argv[1];
	return RUN_TESTS(tests);
}
