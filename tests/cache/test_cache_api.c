/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The public calls of pinion/cache.h: what is wrong is refused with the errno
 * that the header names, changes nothing and leaks nothing. On `soft`, so that
 * VmPin tells.
 */
#include "test.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <pinion/pinion.h>

#include "base/clock.h"
#include "base/huge.h"
#include "context.h"

#define PAGE	 ((size_t)4096)
#define NPAGES	 64
#define WRITE	 PINION_ACCESS_LOCAL_WRITE
#define EXPOSED	 (PINION_ACCESS_REMOTE_WRITE | WRITE)
#define NO_FLAGS (1u << 8) /* of no flag */

static struct pinion_context *context;
static char *mem;
static size_t pinned_before;

static int setup(void **state)
{
	const char *const options[] = { "device=soft", "log=none", NULL };
	const struct pinion_attr attr = { .size = sizeof(attr),
					  .options = options };

	(void)state;
	assert_ok(pinion_open(&attr, &context));
	mem = mmap(NULL, NPAGES * PAGE, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(mem != MAP_FAILED);
	madvise(mem, NPAGES * PAGE, MADV_NOHUGEPAGE);
	memset(mem, 1, NPAGES * PAGE);
	pinned_before = pn_huge_vmpin();
	return 0;
}

static struct pinion_cache_stats stats(void)
{
	struct pinion_cache_stats s = { .size = sizeof(s) };

	assert_ok(pinion_cache_query(context, &s));
	return s;
}

/* Kernel 6.1 gives pages back about a second late. */
static int teardown(void **state)
{
	uint64_t end = pn_clock_ns() + 60 * PN_NS_PER_S;

	(void)state;
	assert_ok(pinion_cache_flush(context));
	assert_int_equal(stats().regions, 0);
	assert_int_equal(stats().dying_bytes, 0);
	while (pn_huge_vmpin() != pinned_before && pn_clock_ns() < end)
		usleep(10000);
	assert_int_equal(pn_huge_vmpin(), pinned_before);
	pinion_close(context);
	munmap(mem, NPAGES * PAGE);
	return 0;
}

/* --- pins ---------------------------------------------------------------- */

static const struct bad {
	size_t skip; /* from mem; SIZE_MAX: NULL */
	size_t len;
	unsigned flags;
} bads[] = {
	{ SIZE_MAX, PAGE, WRITE }, { 0, 0, WRITE },
	{ 0, SIZE_MAX, WRITE },	   { 0, SIZE_MAX - 4096, WRITE },
	{ 0, PAGE, NO_FLAGS },	   { 0, PAGE, WRITE | 1u << 31 },
};

static void *address(const struct bad *bad)
{
	return bad->skip == SIZE_MAX ? NULL : mem + bad->skip;
}

static void pins_of_nothing_sensible_are_refused(void **state)
{
	struct pinion_pin pin;

	(void)state;
	for (size_t i = 0; i < PN_ARRAY_LEN(bads); i++) {
		void *addr = address(&bads[i]);
		struct iovec list[] = { { mem, PAGE }, { addr, bads[i].len } };
		struct pinion_pin pins[2];

		assert_int_equal(pinion_pin(context, addr, bads[i].len,
					    bads[i].flags, &pin),
				 -EINVAL);
		assert_int_equal(pinion_pin_start(context, addr, bads[i].len,
						  bads[i].flags, &pin),
				 -EINVAL);
		assert_int_equal(pinion_pin_list(context, list, 2,
						 bads[i].flags, pins),
				 -EINVAL);
	}
	assert_int_equal(stats().registrations, 0);
}

/* `soft` cannot pin memory for reading alone, so the rights are there. */
static void a_buffer_sent_from_is_received_into_as_it_is(void **state)
{
	struct pinion_pin pin;

	(void)state;
	assert_ok(pinion_pin(context, mem, PAGE, 0, &pin));
	pinion_unpin(context, &pin);
	assert_ok(pinion_pin(context, mem, PAGE, WRITE, &pin));
	pinion_unpin(context, &pin);
	assert_int_equal(stats().registrations, 1);
	assert_int_equal(stats().misses_access, 0);
}

static void missing_arguments_are_refused(void **state)
{
	struct pinion_pin_segment segment;
	struct pinion_pin pin = { 0 };
	struct iovec list = { mem, PAGE };

	(void)state;
	assert_int_equal(pinion_pin(NULL, mem, PAGE, WRITE, &pin), -EINVAL);
	assert_int_equal(pinion_pin(context, mem, PAGE, WRITE, NULL), -EINVAL);
	assert_int_equal(pinion_pin_list(NULL, &list, 1, WRITE, &pin), -EINVAL);
	assert_int_equal(pinion_pin_list(context, NULL, 1, WRITE, &pin),
			 -EINVAL);
	assert_int_equal(pinion_pin_list(context, &list, 1, WRITE, NULL),
			 -EINVAL);
	assert_ok(pinion_pin_list(context, NULL, 0, WRITE, NULL));
	assert_int_equal(pinion_pin_start(NULL, mem, PAGE, WRITE, &pin),
			 -EINVAL);
	assert_int_equal(pinion_pin_start(context, mem, PAGE, WRITE, NULL),
			 -EINVAL);
	assert_int_equal(pinion_pin_test(NULL, &pin), -EINVAL);
	assert_int_equal(pinion_pin_test(context, NULL), -EINVAL);
	assert_int_equal(pinion_pin_test(context, &pin), -EINVAL);
	assert_int_equal(pinion_pin_wait(NULL, &pin), -EINVAL);
	assert_int_equal(pinion_pin_wait(context, NULL), -EINVAL);
	assert_int_equal(pinion_pin_wait(context, &pin), -EINVAL);
	assert_int_equal(pinion_pin_segment(NULL, 0, &segment), -EINVAL);
	assert_int_equal(pinion_pin_segment(&pin, 0, NULL), -EINVAL);
	assert_int_equal(pinion_pin_segment(&pin, 0, &segment), -EINVAL);
	pinion_unpin(NULL, &pin);
	pinion_unpin(context, NULL);
	assert_int_equal(stats().registrations, 0);
}

static void assert_faults(void *addr, size_t len)
{
	struct iovec list[] = { { mem, PAGE }, { addr, len } };
	struct pinion_pin pins[2];
	int ret;

	assert_int_equal(pinion_pin(context, addr, len, WRITE, pins), -EFAULT);
	assert_int_equal(pinion_pin(context, addr, len,
				    WRITE | PINION_PIN_BYPASS, pins),
			 -EFAULT);
	assert_int_equal(pinion_pin_list(context, list, 2, WRITE, pins),
			 -EFAULT);
	ret = pinion_pin_start(context, addr, len, WRITE, pins);
	if (ret == -EINPROGRESS)
		ret = pinion_pin_wait(context, pins);
	assert_int_equal(ret, -EFAULT);
	assert_int_equal(stats().regions, 0);
}

static void *revoke_until(void *stop)
{
	while (!atomic_load((_Atomic bool *)stop))
		pinion_cache_revoke(context, mem, PAGE);
	return NULL;
}

static void keys_are_revoked_while_their_pins_end(void **state)
{
	_Atomic bool stop = false;
	struct pinion_pin pin;
	pthread_t thread;

	(void)state;
	assert_ok(pthread_create(&thread, NULL, revoke_until, &stop));
	for (unsigned i = 0; i < 500; i++) {
		assert_ok(pinion_pin(context, mem, PAGE,
				     EXPOSED | PINION_PIN_BYPASS, &pin));
		pinion_unpin(context, &pin);
		/* Nobody else deregisters, so it was the unpin. */
		assert_int_equal(stats().deregistrations, i + 1);
	}
	atomic_store(&stop, true);
	pthread_join(thread, NULL);
}

static void memory_that_cannot_be_pinned_is_refused(void **state)
{
	char *p = mmap(NULL, 4 * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS,
		       -1, 0);

	(void)state;
	assert_true(p != MAP_FAILED);
	assert_faults(p, PAGE);
	assert_ok(mprotect(p, 4 * PAGE, PROT_READ | PROT_WRITE));
	/* What is unmapped could be anyone's in a moment. */
	assert_ok(mprotect(p + PAGE, PAGE, PROT_NONE));
	assert_faults(p, 3 * PAGE);
	assert_faults(p + PAGE, PAGE);
	assert_faults((char *)PAGE, PAGE); /* nothing is ever mapped there */
	munmap(p, 4 * PAGE);
}

static void more_than_the_budget_is_refused(void **state)
{
	struct iovec list[] = { { mem, 5 * PAGE }, { mem + 9 * PAGE, PAGE } };
	struct pinion_pin pin, held, pins[2];
	int ret;

	(void)state;
	assert_ok(pinion_cache_resize(context, 8 * PAGE, 0));
	assert_int_equal(pinion_pin(context, mem, 9 * PAGE, WRITE, &pin),
			 -ENOBUFS);
	ret = pinion_pin_start(context, mem, 9 * PAGE, WRITE, &pin);
	assert_int_equal(ret, -EINPROGRESS);
	assert_int_equal(pinion_pin_wait(context, &pin), -ENOBUFS);
	assert_ok(pinion_pin(context, mem + 20 * PAGE, 3 * PAGE, WRITE, &held));
	assert_int_equal(pinion_pin_list(context, list, 2, WRITE, pins),
			 -ENOBUFS);
	assert_true(stats().refused >= 3);
	assert_ok(pinion_pin(context, mem, 5 * PAGE, WRITE, &pin));
	pinion_unpin(context, &pin);
	pinion_unpin(context, &held);
}

static void an_unpinned_pin_has_no_segments(void **state)
{
	struct pinion_pin_segment segment;
	struct pinion_pin pin;

	(void)state;
	assert_ok(pinion_pin(context, mem + 1, PAGE, WRITE, &pin));
	assert_ok(pinion_pin_test(context, &pin));
	assert_ok(pinion_pin_wait(context, &pin));
	assert_ok(pinion_pin_segment(&pin, 0, &segment));
	assert_ptr_equal(segment.addr, mem + 1);
	assert_int_equal(segment.len, PAGE);
	assert_int_equal(pinion_pin_segment(&pin, 1, &segment), -EINVAL);
	assert_int_equal(pinion_pin_segment(&pin, UINT32_MAX, &segment),
			 -EINVAL);
	pinion_unpin(context, &pin);
	assert_int_equal(pinion_pin_segment(&pin, 0, &segment), -EINVAL);
	assert_int_equal(pinion_pin_test(context, &pin), -EINVAL);
}

/* Debug builds find it out: in a child, since they abort. */
static void unpinning_twice_does_no_harm(void **state)
{
	struct pinion_pin pin, other;
	int status;
	pid_t pid;

	(void)state;
	assert_ok(pinion_pin(context, mem, PAGE, WRITE, &pin));
	pinion_unpin(context, &pin);
	fflush(stdout);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		pinion_unpin(context, &pin);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
#ifdef PINION_CHECK
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
#else
	assert_int_equal(status, 0);
	pinion_unpin(context, &pin);
#endif
	assert_ok(pinion_pin(context, mem, PAGE, WRITE, &other));
	assert_int_equal(stats().hits, 1);
	pinion_unpin(context, &other);
}

/* --- the rest ------------------------------------------------------------ */

static void other_calls_refuse_what_is_wrong(void **state)
{
	struct pinion_cache_stats s = { .size = 0 };

	(void)state;
	assert_int_equal(pinion_cache_flush(NULL), -EINVAL);
	assert_int_equal(pinion_cache_revoke(NULL, mem, PAGE), -EINVAL);
	assert_int_equal(pinion_cache_revoke(context, NULL, PAGE), -EINVAL);
	assert_int_equal(pinion_cache_revoke(context, mem, 0), -EINVAL);
	assert_int_equal(pinion_cache_revoke(context, mem, SIZE_MAX), -EINVAL);
	assert_ok(pinion_cache_revoke(context, mem, PAGE)); /* nothing there */
	assert_int_equal(pinion_cache_resize(NULL, PAGE, 1), -EINVAL);
	assert_int_equal(pinion_cache_query(NULL, &s), -EINVAL);
	assert_int_equal(pinion_cache_query(context, NULL), -EINVAL);
	assert_int_equal(pinion_cache_query(context, &s), -EINVAL);
	pinion_invalidate(NULL, 0);
	pinion_invalidate(NULL, SIZE_MAX);
	pinion_invalidate(mem, SIZE_MAX);
	pinion_invalidate(mem, 0);
	pinion_invalidate((void *)(UINTPTR_MAX - 10), 100);
}

static void an_older_program_gets_as_much_as_it_knows(void **state)
{
	struct pinion_cache_stats s;
	size_t old = offsetof(struct pinion_cache_stats, waits);

	(void)state;
	memset(&s, 0xee, sizeof(s));
	s.size = old;
	assert_ok(pinion_cache_query(context, &s));
	assert_int_equal(s.size, old);
	assert_int_equal(s.misses, 0);
	assert_int_equal(s.waits, UINT64_C(0xeeeeeeeeeeeeeeee));
	s.size = SIZE_MAX; /* a newer one, rather */
	assert_ok(pinion_cache_query(context, &s));
	assert_int_equal(s.size, sizeof(s));
}

static void a_policy_or_mode_that_does_not_exist_is_refused(void **state)
{
	static const char *const wrong[] = { "cache_policy=coin",
					     "monitor=crystal-ball",
					     "monitor=bypass", /* too late */
					     "cache_max_region=nothing" };

	(void)state;
	for (size_t i = 0; i < PN_ARRAY_LEN(wrong); i++) {
		const char *const options[] = { "log=none", wrong[i], NULL };
		const struct pinion_attr attr = { .size = sizeof(attr),
						  .options = options };
		struct pinion_context *other;

		assert_int_equal(pinion_open(&attr, &other), -EINVAL);
	}
}

/* The first one may leave what the process keeps. */
static void a_closed_context_leaves_no_descriptor(void **state)
{
	unsigned before = 0;

	for (unsigned i = 0; i < 3; i++) {
		if (i == 1)
			before = test_descriptors();
		setup(state);
		/* Two neighbours: whether they merge, the kernel is asked. */
		for (unsigned k = 0; k < 2; k++) {
			struct pinion_pin pin;

			assert_ok(pinion_pin(context, mem + k * PAGE, PAGE,
					     WRITE, &pin));
			pinion_unpin(context, &pin);
		}
		teardown(state);
	}
	assert_int_equal(test_descriptors(), before);
}

/* Each rail has a cache of its own, and a program has one answer. */
static void counts_are_those_of_all_rails(void **state)
{
	const char *const options[] = { "device=soft+soft", "log=none", NULL };
	const struct pinion_attr attr = { .size = sizeof(attr),
					  .options = options };
	struct pinion_cache_stats s = { .size = sizeof(s) };
	struct pinion_context *both;
	struct pinion_pin pin;

	(void)state;
	assert_ok(pinion_open(&attr, &both));
	for (unsigned i = 0; i < 5; i++) {
		assert_ok(pn_cache_pin(both->caches[i % 2], mem, PAGE, WRITE,
				       &pin));
		pn_cache_unpin(both->caches[i % 2], &pin);
	}
	assert_ok(pinion_cache_query(both, &s));
	assert_int_equal(s.misses, 2);
	assert_int_equal(s.hits, 3);
	assert_int_equal(s.regions, 2);
	assert_int_equal(s.bytes, 2 * PAGE);
	assert_int_equal(s.max_bytes, atomic_load(&both->budget.max_bytes));
	pinion_close(both);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(pins_of_nothing_sensible_are_refused),
		CASE(a_buffer_sent_from_is_received_into_as_it_is),
		CASE(missing_arguments_are_refused),
		CASE(keys_are_revoked_while_their_pins_end),
		CASE(memory_that_cannot_be_pinned_is_refused),
		CASE(more_than_the_budget_is_refused),
		CASE(an_unpinned_pin_has_no_segments),
		CASE(unpinning_twice_does_no_harm),
		CASE(other_calls_refuse_what_is_wrong),
		CASE(an_older_program_gets_as_much_as_it_knows),
		CASE(a_policy_or_mode_that_does_not_exist_is_refused),
		CASE(counts_are_those_of_all_rails),
		TEST(a_closed_context_leaves_no_descriptor),
	};

	return RUN_TESTS(tests);
}
