/* SPDX-License-Identifier: BSD-2-Clause */
/* Ranges whose release is remembered, in the mode that PINION_MONITOR names. */
#include "test.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/range.h"
#include "monitor/monitor_impl.h"
#include "monitor/watched_range.h"

#define PAGES 16
#define BYTES (PAGES * PN_PAGE_BYTES)
#define MANY  2000

static char *map_pages(void *at)
{
	char *p = mmap(at, BYTES, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS |
			       (at ? MAP_FIXED_NOREPLACE : 0),
		       -1, 0);

	assert_true(p != MAP_FAILED);
	return p;
}

static struct pn_watched_range *add(const void *addr, size_t len)
{
	struct pn_watched_range *range;

	assert_ok(pn_watched_range_add(addr, len, &range));
	return range;
}

/* Whether the mode notices that something else is mapped. */
static bool detects(void)
{
	return pn_monitor_mode() == PN_MONITOR_PATCH ||
	       pn_monitor_mode() == PN_MONITOR_USERFAULTFD;
}

static void unmapped_memory_is_not_used(void **state)
{
	char *p = map_pages(NULL);
	struct pn_watched_range *range = add(p + 100, BYTES - 200);

	(void)state;
	assert_ok(pn_watched_range_check(range, p + 100, BYTES - 200, true));
	assert_ok(munmap(p + 4 * PN_PAGE_BYTES, PN_PAGE_BYTES));
	assert_int_equal(pn_watched_range_check(range, p + 4 * PN_PAGE_BYTES, 8,
						false),
			 -EFAULT);
	assert_int_equal(pn_watched_range_check(range, p + 100, BYTES - 200,
						true),
			 -EFAULT);
	assert_ok(munmap(p, BYTES));
	pn_watched_range_remove(range);
}

static void other_memory_at_its_address_is_not_used(void **state)
{
	char *p = map_pages(NULL);
	struct pn_watched_range *range, *newer;

	(void)state;
	if (!detects())
		skip();
	range = add(p, BYTES);
	assert_ok(munmap(p, BYTES));
	map_pages(p);
	assert_int_equal(pn_watched_range_check(range, p, 1, false), -EFAULT);
	newer = add(p, BYTES);
	assert_ok(pn_watched_range_check(newer, p, BYTES, true));
	/* A call that fails does not bring the first one back. */
	assert_int_equal(munmap(p + 1, BYTES), -1);
	assert_int_equal(pn_watched_range_check(range, p, 1, false), -EFAULT);
	assert_ok(pn_watched_range_check(newer, p, BYTES, true));
	pn_watched_range_remove(range);
	range = add(p, 10);
	assert_ok(pn_watched_range_check(range, p, 10, true));
	pn_watched_range_remove(range);
	pn_watched_range_remove(newer);
	assert_ok(munmap(p, BYTES));
}

static void neighbours_are_used_on(void **state)
{
	char *p = map_pages(NULL);
	struct pn_watched_range *ranges[PAGES];

	(void)state;
	for (size_t i = 0; i < PAGES; i++)
		ranges[i] = add(p + i * PN_PAGE_BYTES, PN_PAGE_BYTES);
	for (size_t i = 0; i < PAGES; i += 2)
		assert_ok(munmap(p + i * PN_PAGE_BYTES, PN_PAGE_BYTES));
	for (size_t i = 0; i < PAGES; i++)
		assert_int_equal(pn_watched_range_check(ranges[i],
							p + i * PN_PAGE_BYTES,
							PN_PAGE_BYTES, true),
				 i % 2 ? 0 : -EFAULT);
	for (size_t i = 0; i < PAGES; i++)
		pn_watched_range_remove(ranges[i]);
	assert_ok(munmap(p, BYTES));
}

static void what_cannot_be_watched_is_checked_by_the_kernel(void **state)
{
	char *p = map_pages(NULL);
	struct pn_watched_range *all = add(NULL, SIZE_MAX);

	(void)state;
	assert_ok(pn_watched_range_check(all, p, BYTES, true));
	assert_ok(mprotect(p, BYTES, PROT_READ));
	assert_ok(pn_watched_range_check(all, p, BYTES, false));
	assert_int_equal(pn_watched_range_check(all, p, BYTES, true), -EFAULT);
	assert_ok(munmap(p, BYTES));
	assert_int_equal(pn_watched_range_check(all, p, 1, false), -EFAULT);
	assert_ok(pn_watched_range_check(all, p, 0, true));
	pn_watched_range_remove(all);
	pn_watched_range_remove(NULL);
}

/* Random ranges come and go while their pages do, against a model. */
static void random_ranges_agree_with_a_model(void **state)
{
	uint64_t seed = test_seed();
	char *p = map_pages(NULL);
	struct {
		struct pn_watched_range *range;
		size_t page;
		bool gone;
	} model[8] = { 0 };

	(void)state;
	if (!detects())
		skip();
	for (unsigned i = 0; i < MANY; i++) {
		unsigned k = (unsigned)test_below(&seed, 8);
		size_t page = test_below(&seed, PAGES) * PN_PAGE_BYTES;

		pn_watched_range_remove(model[k].range);
		model[k].page = page;
		model[k].gone = false;
		model[k].range = add(p + page + test_below(&seed, 4000), 90);
		page = test_below(&seed, PAGES) * PN_PAGE_BYTES;
		assert_ok(madvise(p + page, PN_PAGE_BYTES, MADV_DONTNEED));
		for (k = 0; k < 8; k++) {
			model[k].gone |= model[k].page == page;
			if (model[k].range)
				assert_int_equal(pn_watched_range_check(
							 model[k].range,
							 p + model[k].page, 1,
							 false),
						 model[k].gone ? -EFAULT : 0);
		}
	}
	for (unsigned k = 0; k < 8; k++)
		pn_watched_range_remove(model[k].range);
	assert_ok(munmap(p, BYTES));
}

/* --- what releases nothing -------------------------------------------------
 */

static void fail_to_unmap(char *p)
{
	assert_int_equal(munmap(p + 1, BYTES), -1);
	assert_int_equal(munmap(p, SIZE_MAX), -1);
}

static void fail_to_map(char *p)
{
	assert_true(mmap(p, BYTES, PROT_READ, MAP_SHARED | MAP_FIXED, -1, 0) ==
		    MAP_FAILED);
	assert_true(mmap(p, BYTES, PROT_READ,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1,
			 0) == MAP_FAILED);
}

static void fail_to_advise(char *p)
{
	struct iovec iov = { p, BYTES };

	assert_int_equal(madvise(p + 1, BYTES, MADV_DONTNEED), -1);
	assert_int_equal(syscall(SYS_process_madvise, -1, &iov, 1,
				 MADV_DONTNEED, 0),
			 -1);
}

/* What is behind it is in the way. */
static void grow_in_place(char *p)
{
	assert_true(mremap(p, BYTES / 2, BYTES, 0) == MAP_FAILED);
	assert_true(mremap(p, BYTES, 2 * BYTES, 0) == MAP_FAILED);
	assert_ptr_equal(mremap(p, BYTES - 1, BYTES, MREMAP_MAYMOVE), p);
}

/* Removes less than a page. */
static void shrink_by_bytes(char *p)
{
	assert_ptr_equal(mremap(p, BYTES, BYTES - 1, 0), p);
}

static void calls_that_release_nothing_change_nothing(void **state)
{
	static void (*const calls[])(char *) = { fail_to_unmap, fail_to_map,
						 fail_to_advise, grow_in_place,
						 shrink_by_bytes };
	char *p = mmap(NULL, 2 * BYTES, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct pn_watched_range *range;

	(void)state;
	assert_true(p != MAP_FAILED);
	for (unsigned i = 0; i < PN_ARRAY_LEN(calls); i++) {
		range = add(p, BYTES);
		calls[i](p);
		assert_ok(pn_watched_range_check(range, p, BYTES, true));
		/* Still watched. */
		assert_ok(munmap(p, BYTES));
		assert_ptr_equal(map_pages(p), p);
		assert_int_equal(pn_watched_range_check(range, p, 1, true),
				 detects() ? -EFAULT : 0);
		pn_watched_range_remove(range);
	}
	assert_ok(munmap(p, 2 * BYTES));
}

/* While a call is under way, nobody knows how it ends. */
static void two_calls_end_in_any_order(void **state)
{
	char *p = map_pages(NULL);

	(void)state;
	if (!detects())
		skip();
	for (unsigned order = 0; order < 4; order++) {
		struct pn_watched_range *range = add(p, BYTES);
		struct pn_release releases[2];

		for (unsigned i = 0; i < 2; i++) {
			pn_release_init(&releases[i]);
			pn_release_add(&releases[i], (uintptr_t)p, BYTES);
			pn_release_begin(&releases[i]);
		}
		releases[0].failed = true;
		releases[1].failed = order & 2;
		for (unsigned i = 0; i < 2; i++) {
			assert_int_equal(pn_watched_range_check(range, p, 1,
								true),
					 -EFAULT);
			pn_release_end(&releases[i ^ (order & 1)]);
		}
		assert_int_equal(pn_watched_range_check(range, p, 1, true),
				 releases[1].failed ? 0 : -EFAULT);
		pn_watched_range_remove(range);
	}
	assert_ok(munmap(p, BYTES));
}

#define GIGANTIC ((size_t)1 << 30)

/* At the address of a huge page, mmap() and mremap() may release all of it. */
static void pages_behind_a_small_mapping_are_used(void **state)
{
	char *all = mmap(NULL, 2 * GIGANTIC, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	char *p = all + (-(uintptr_t)all & (GIGANTIC - 1)), *moved;
	struct pn_watched_range *range;

	(void)state;
	assert_true(all != MAP_FAILED);
	range = add(p + PN_PAGE_BYTES, BYTES);
	assert_ptr_equal(mmap(p, PN_PAGE_BYTES, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
			 p);
	assert_ok(
		pn_watched_range_check(range, p + PN_PAGE_BYTES, BYTES, true));
	moved = mremap(p, PN_PAGE_BYTES, 2 * PN_PAGE_BYTES, MREMAP_MAYMOVE);
	assert_true(moved != MAP_FAILED);
	assert_ok(
		pn_watched_range_check(range, p + PN_PAGE_BYTES, BYTES, true));
	assert_ok(munmap(p + PN_PAGE_BYTES, PN_PAGE_BYTES));
	assert_int_equal(pn_watched_range_check(range, p + PN_PAGE_BYTES, 1,
						true),
			 -EFAULT);
	pn_watched_range_remove(range);
	assert_ok(munmap(moved, 2 * PN_PAGE_BYTES));
	assert_ok(munmap(all, 2 * GIGANTIC));
}

/* A file that becomes shorter and longer again is the same memory. */
static void a_file_that_grew_again_is_used(void **state)
{
	int fd = memfd_create("watched", MFD_CLOEXEC);
	struct pn_watched_range *range;
	char *p;

	(void)state;
	assert_true(fd >= 0);
	assert_ok(ftruncate(fd, BYTES));
	p = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_true(p != MAP_FAILED);
	range = add(p, BYTES);
	assert_ok(ftruncate(fd, 0));
	assert_int_equal(pn_watched_range_check(range, p, 1, true), -EFAULT);
	assert_ok(ftruncate(fd, BYTES));
	assert_ok(pn_watched_range_check(range, p, BYTES, true));
	pn_watched_range_remove(range);
	assert_ok(munmap(p, BYTES));
	close(fd);
}

/* --- threads ---------------------------------------------------------------
 */

/* What a hook does around munmap(). The memory may be new at its address: the
 * kernel got it back before. */
static void a_range_added_during_a_release_is_used(void **state)
{
	char *p = map_pages(NULL), *q;
	struct pn_watched_range *range, *neighbour = NULL;
	struct pn_release release;

	(void)state;
	/* Nothing near it is watched at first; then something is. */
	for (unsigned i = 0; i < 2; i++) {
		pn_release_init(&release);
		pn_release_add(&release, (uintptr_t)p, BYTES);
		pn_release_begin(&release);
		range = add(p, BYTES);
		pn_release_end(&release);
		assert_ok(pn_watched_range_check(range, p, BYTES, true));
		if (!neighbour)
			neighbour = add(p, 1);
		pn_watched_range_remove(range);
	}
	pn_watched_range_remove(neighbour);
	/* It is still noticed that the memory goes. */
	pn_release_init(&release);
	pn_release_add(&release, (uintptr_t)p, BYTES);
	pn_release_begin(&release);
	range = add(p, BYTES);
	pn_release_end(&release);
	assert_ok(munmap(p, BYTES));
	assert_int_equal(pn_watched_range_check(range, p, 1, true), -EFAULT);
	q = map_pages(p);
	if (detects())
		assert_int_equal(pn_watched_range_check(range, q, 1, true),
				 -EFAULT);
	pn_watched_range_remove(range);
	assert_ok(munmap(q, BYTES));
}

#define THREADS 4

/* Counts what is wrong. Addresses go from thread to thread. */
static void *come_and_go(void *arg)
{
	_Atomic unsigned *nwrong = arg;

	for (unsigned i = 0; i < MANY; i++) {
		char *p = mmap(NULL, BYTES, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		struct pn_watched_range *range;

		if (p == MAP_FAILED || pn_watched_range_add(p, BYTES, &range)) {
			++*nwrong;
			return NULL;
		}
		*nwrong += pn_watched_range_check(range, p, BYTES, true) != 0;
		munmap(p, BYTES);
		*nwrong += pn_watched_range_check(range, p, 1, true) != -EFAULT;
		pn_watched_range_remove(range);
	}
	return NULL;
}

/* Where nothing is noted, another thread may have mapped the address anew. And
 * userfaultfd notes a release after other threads can have its address. */
static void threads_do_not_mark_each_others_ranges(void **state)
{
	_Atomic unsigned nwrong = 0;
	pthread_t threads[THREADS];

	(void)state;
	if (pn_monitor_mode() != PN_MONITOR_PATCH)
		skip();
	for (unsigned i = 0; i < THREADS; i++)
		assert_ok(pthread_create(&threads[i], NULL, come_and_go,
					 &nwrong));
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(nwrong, 0);
}

/* A release looks at the ranges there are, not at all there have been. */
static void removed_ranges_are_not_looked_at(void **state)
{
	static struct pn_watched_range *ranges[MANY];
	size_t before = pn_watched_range_count(), n = MANY;
	uint64_t seed = test_seed();
	char *p = map_pages(NULL);

	(void)state;
	for (size_t i = 0; i < MANY; i++)
		ranges[i] = add(p + i % BYTES, 1);
	assert_int_equal(pn_watched_range_count() - before,
			 pn_monitor_watches() ? MANY : 0);
	while (n) {
		size_t i = test_below(&seed, n);

		pn_watched_range_remove(ranges[i]);
		ranges[i] = ranges[--n];
		if (pn_monitor_watches())
			assert_int_equal(pn_watched_range_count() - before, n);
	}
	assert_int_equal(pn_watched_range_count(), before);
	assert_ok(munmap(p, BYTES));
}

static atomic_bool stop;
static atomic_uint nreleases;

/* Releases watched memory, which others do not use. */
static void *release_on(void *arg)
{
	while (!stop) {
		madvise(arg, PN_PAGE_BYTES, MADV_DONTNEED);
		nreleases++;
	}
	return NULL;
}

/* A release may be at a range when it is removed. */
static void ranges_go_while_memory_is_released(void **state)
{
	char *p = map_pages(NULL), *q = map_pages(NULL);
	struct pn_watched_range *released = add(q, BYTES);
	pthread_t threads[2];

	(void)state;
	stop = false;
	nreleases = 0;
	for (unsigned i = 0; i < 2; i++)
		assert_ok(pthread_create(&threads[i], NULL, release_on, q));
	while (!nreleases)
		sched_yield();
	for (unsigned i = 0; i < MANY; i++) {
		struct pn_watched_range *range = add(p, BYTES);

		assert_ok(pn_watched_range_check(range, p, BYTES, true));
		pn_watched_range_remove(range);
	}
	stop = true;
	for (unsigned i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(pn_watched_range_check(released, q, 1, true),
			 detects() ? -EFAULT : 0);
	pn_watched_range_remove(released);
	assert_ok(munmap(p, BYTES));
	assert_ok(munmap(q, BYTES));
}

static void a_child_watches_its_own(void **state)
{
	char *p = map_pages(NULL);
	struct pn_watched_range *range = add(p, BYTES);
	int status;
	pid_t pid;

	(void)state;
	pid = fork();
	if (!pid) {
		char *q = map_pages(NULL);
		struct pn_watched_range *own;

		if (pn_watched_range_add(q, BYTES, &own) ||
		    pn_watched_range_check(own, q, BYTES, true) ||
		    munmap(q, BYTES) ||
		    pn_watched_range_check(own, q, 1, false) != -EFAULT)
			_exit(1);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_ok(pn_watched_range_check(range, p, BYTES, true));
	pn_watched_range_remove(range);
	assert_ok(munmap(p, BYTES));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(unmapped_memory_is_not_used),
		TEST(other_memory_at_its_address_is_not_used),
		TEST(neighbours_are_used_on),
		TEST(what_cannot_be_watched_is_checked_by_the_kernel),
		TEST(random_ranges_agree_with_a_model),
		TEST(calls_that_release_nothing_change_nothing),
		TEST(two_calls_end_in_any_order),
		TEST(pages_behind_a_small_mapping_are_used),
		TEST(a_file_that_grew_again_is_used),
		TEST(a_range_added_during_a_release_is_used),
		TEST(threads_do_not_mark_each_others_ranges),
		TEST(removed_ranges_are_not_looked_at),
		TEST(ranges_go_while_memory_is_released),
		TEST(a_child_watches_its_own),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
