/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fork(): the child cannot use what it inherited, can have a context of its
 * own, and does the parent no harm whatever it calls.
 *
 * Children report by their exit status: the line of what went wrong, below 256.
 */
#include "child.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <pinion/pinion.h>

#include "base/thread.h"
#include "cache/cache_impl.h"
#include "context.h"
#include "mover.h"

#define PAGE	PN_PAGE_BYTES
#define LEN	(4 * PAGE)
#define EXPOSED (PINION_ACCESS_REMOTE_WRITE | PINION_ACCESS_LOCAL_WRITE)

static struct {
	struct pinion_context *context;
	struct mover mover;
	char *mem;
	struct pinion_pin pin;
} f;

static struct pinion_context *open_soft(void)
{
	const char *const options[] = { "device=soft", NULL };
	const struct pinion_attr attr = { .size = sizeof(attr),
					  .options = options };
	struct pinion_context *context = NULL;

	return pinion_open(&attr, &context) ? NULL : context;
}

static char *map(void)
{
	char *p = mmap(NULL, LEN, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

static int setup(void **state)
{
	(void)state;
	f.context = open_soft();
	assert_non_null(f.context);
	f.mem = map();
	assert_non_null(f.mem);
	assert_ok(mover_open(&f.mover, f.context->device, LEN));
	assert_ok(pinion_pin(f.context, f.mem, LEN, EXPOSED, &f.pin));
	assert_ok(mover_put(&f.mover, &f.pin));
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	pinion_unpin(f.context, &f.pin);
	mover_close(&f.mover);
	pinion_close(f.context);
	munmap(f.mem, LEN);
	return 0;
}

/* The parent's keys work as before, and what is cached is. */
static void assert_unharmed(void)
{
	struct pinion_cache_stats before = { .size = sizeof(before) };
	struct pinion_cache_stats after = { .size = sizeof(after) };
	struct pinion_pin pin;

	assert_ok(mover_put(&f.mover, &f.pin));
	assert_ok(pinion_cache_query(f.context, &before));
	assert_ok(pinion_pin(f.context, f.mem, LEN, EXPOSED, &pin));
	assert_ok(mover_put(&f.mover, &pin));
	assert_int_equal(pin.remote_key, f.pin.remote_key);
	pinion_unpin(f.context, &pin);
	assert_ok(pinion_cache_query(f.context, &after));
	assert_int_equal(after.registrations, before.registrations);
	pn_cache_check(f.context->cache);
}

static void run_child(void (*fn)(void))
{
	child_run(fn);
	assert_unharmed();
}

static void call_everything(void)
{
	struct pinion_cache_stats stats = { .size = sizeof(stats) };
	struct iovec list = { f.mem, LEN };
	struct pinion_pin pin;

	CHECK(pinion_pin(f.context, f.mem, LEN, EXPOSED, &pin) == -EPERM);
	CHECK(pinion_pin_list(f.context, &list, 1, EXPOSED, &pin) == -EPERM);
	CHECK(pinion_pin_start(f.context, f.mem, LEN, EXPOSED, &pin) == -EPERM);
	CHECK(pinion_pin_test(f.context, &f.pin) == -EPERM);
	CHECK(pinion_pin_wait(f.context, &f.pin) == -EPERM);
	CHECK(pinion_cache_flush(f.context) == -EPERM);
	CHECK(pinion_cache_revoke(f.context, f.mem, LEN) == -EPERM);
	CHECK(pinion_cache_resize(f.context, PAGE, 1) == -EPERM);
	CHECK(pinion_cache_query(f.context, &stats) == -EPERM);
	pinion_invalidate(f.mem, LEN);
	pinion_unpin(f.context, &f.pin);
	pinion_close(f.context);
}

static void a_child_is_refused_everything(void **state)
{
	(void)state;
	run_child(call_everything);
}

static void live_alone(void)
{
	struct pinion_context *context = open_soft();
	struct mover mover;
	struct pinion_pin pin;
	char *mem = map();

	CHECK(context && mem);
	CHECK(!mover_open(&mover, context->device, LEN));
	for (unsigned i = 0; i < 3; i++) {
		CHECK(!pinion_pin(context, mem, LEN, EXPOSED, &pin));
		CHECK(!mover_put(&mover, &pin));
		pinion_unpin(context, &pin);
		/* Inherited memory is the child's copy by now. */
		CHECK(!pinion_pin(context, f.mem, LEN, EXPOSED, &pin));
		CHECK(!mover_put(&mover, &pin));
		pinion_unpin(context, &pin);
	}
	/* The monitor works here, too. */
	if (pn_monitor_mode() == PN_MONITOR_PATCH) {
		CHECK(!munmap(mem, LEN));
		CHECK(mmap(mem, LEN, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE,
			   -1, 0) == mem);
		CHECK(!pinion_pin(context, mem, LEN, EXPOSED, &pin));
		CHECK(!mover_put(&mover, &pin));
		pinion_unpin(context, &pin);
	}
	mover_close(&mover);
	pinion_close(context);
}

static void a_child_can_have_a_context_of_its_own(void **state)
{
	(void)state;
	run_child(live_alone);
}

static void live_and_close_both(void)
{
	live_alone();
	pinion_close(f.context);
	munmap(f.mem, LEN);
}

static void what_a_child_does_to_its_memory_is_its_own(void **state)
{
	(void)state;
	run_child(live_and_close_both);
}

static struct pinion_pin dying;

static void unpin_dying(void)
{
	pinion_unpin(f.context, &dying);
}

/* Some thread of the parent may be in the middle of something: its lock stays
 * taken in the child for ever. */
/* As if another thread had been in the cache at fork(). */
static void run_child_locked(void (*fn)(void))
{
	struct pn_cache *cache = f.context->cache;
	int status;
	pid_t pid;

	pn_lock(&cache->lock);
	pid = fork();
	if (!pid) {
		alarm(60);
		fn();
		_exit(0);
	}
	pn_unlock(&cache->lock);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void unpinning_in_a_child_waits_for_nobody(void **state)
{
	char *mem = map();

	(void)state;
	assert_ok(pinion_pin(f.context, mem, LEN, EXPOSED, &dying));
	pinion_invalidate(mem, LEN);
	assert_unharmed(); /* the notice has been heard */
	run_child_locked(unpin_dying);
	assert_ok(mover_put(&f.mover, &dying));
	pinion_unpin(f.context, &dying);
	munmap(mem, LEN);
}

/* As when a thread ends; but what is left to do then is not cmocka's. */
static void end_thread(void)
{
	pn_thread_fini(pn_thread_current);
}

static void a_thread_that_ends_in_a_child_waits_for_nobody(void **state)
{
	(void)state;
	run_child_locked(end_thread);
	assert_unharmed();
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(a_child_is_refused_everything),
		CASE(a_child_can_have_a_context_of_its_own),
		CASE(what_a_child_does_to_its_memory_is_its_own),
		CASE(unpinning_in_a_child_waits_for_nobody),
		CASE(a_thread_that_ends_in_a_child_waits_for_nobody),
	};

	return RUN_TESTS(tests);
}
