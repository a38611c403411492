/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A helper thread; threads that transfer, release their memory and allocate it
 * again; a budget that changes; a device that now and then fails to register.
 * All on `soft`, where a stale registration loses bytes. Whatever the helper
 * does and however late it is, every transfer moves its bytes, or is refused
 * for lack of budget, or reports that the device failed.
 *
 * test_helper_threads [STEPS]: so many steps of each thread.
 */
#include "test.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include "base/asymmetric.h"
#include "base/clock.h"
#include "cache/mover.h"
#include "helper/helper.h"
#include "monitor/monitor.h"

#define NTHREADS 3
#define NBUFFERS 4
#define BYTES	 ((size_t)64 << 10)
#define FLAGS	 (PINION_ACCESS_LOCAL_WRITE | PINION_ACCESS_REMOTE_WRITE)

static unsigned steps = PN_ASYMMETRIC_FENCES ? 300 : 1500;

struct world {
	struct pn_device *device;
	struct pn_budget budget;
	struct pn_cache *cache;
	struct pn_helper *helper;
	struct mover mover;
	pthread_mutex_t moving;
	bool madvise; /* one of the ways to release memory */
	_Atomic unsigned running;
};

/* --- a device that fails now and then ------------------------------------- */

#define FAILS_EVERY 61

static struct {
	struct pn_device_ops ops; /* the device's own but for one */
	const struct pn_device_ops *inner;
	_Atomic unsigned asked, failed;
} failing;

static int register_or_fail(struct pn_device *device, struct pn_mr *const *mrs,
			    unsigned n)
{
	if (atomic_fetch_add(&failing.asked, 1) % FAILS_EVERY)
		return failing.inner->reg(device, mrs, n);
	atomic_fetch_add(&failing.failed, 1);
	return -EIO;
}

static void make_fail(struct pn_device *device)
{
	failing.inner = device->ops;
	failing.ops = *device->ops;
	failing.ops.reg = register_or_fail;
	atomic_store(&failing.asked, 1);
	device->ops = &failing.ops;
}

/* --- threads that transfer ------------------------------------------------ */

struct record {
	struct world *w;
	pthread_t thread;
	uint64_t random;
	char *area;
	unsigned moved, refused, failed, releases;
	int wrong;
};

/* As a transfer does: record, pin, move, unpin, record the end. */
static void transfer(struct record *r, unsigned buffer)
{
	char *addr = r->area + buffer * BYTES;
	struct pinion_pin pin;
	struct pn_call call = { .copied = false };
	int ret;

	pn_helper_post(r->w->helper, &call, buffer, addr, BYTES);
	ret = pn_cache_pin(r->w->cache, addr, BYTES, FLAGS, &pin);
	if (ret == -ENOBUFS)
		r->refused++;
	else if (ret == -EIO)
		r->failed++;
	else if (ret)
		r->wrong = ret;
	if (ret)
		return;
	pthread_mutex_lock(&r->w->moving);
	ret = mover_put(&r->w->mover, &pin);
	pthread_mutex_unlock(&r->w->moving);
	if (ret)
		r->wrong = ret;
	r->moved++;
	pn_cache_unpin(r->w->cache, &pin);
	pn_helper_done(r->w->helper, &call);
}

static void release(struct record *r, unsigned buffer)
{
	char *addr = r->area + buffer * BYTES;

	if (r->w->madvise && test_below(&r->random, 2)
		    ? madvise(addr, BYTES, MADV_DONTNEED)
		    : mmap(addr, BYTES, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
			   0) == MAP_FAILED)
		r->wrong = -errno;
	r->releases++;
}

static void pause_for(uint64_t ns)
{
	struct timespec ts = { .tv_nsec = (long)ns };

	nanosleep(&ts, NULL);
}

/* Rounds over the buffers, with regular pauses that the helper can learn and
 * now and then one that it cannot. */
static void *work(void *arg)
{
	struct record *r = arg;

	for (unsigned i = 0; i < steps; i++) {
		unsigned buffer = i % NBUFFERS;

		transfer(r, buffer);
		if (!test_below(&r->random, 20))
			release(r, (unsigned)test_below(&r->random, NBUFFERS));
		if (buffer == NBUFFERS - 1)
			pause_for(200 * PN_NS_PER_US);
		if (!test_below(&r->random, 50))
			pause_for(test_below(&r->random, PN_NS_PER_MS));
	}
	atomic_fetch_sub(&r->w->running, 1);
	return NULL;
}

static void open_threads_world(struct world *w)
{
	struct pn_cache_attr cache = { .budget = &w->budget, .no_merge = true };
	struct pn_helper_attr helper = { .window = 2,
					 .frames = true,
					 .no_madvise = !w->madvise };

	assert_ok(pn_device_open("soft", NULL, &w->device));
	/* Measuring would take the loopback peer that the mover waits for. */
	w->device->costs = (struct pn_costs){ .register_ns = 500,
					      .register_page_ns = 60,
					      .deregister_ns = 400,
					      .deregister_page_ns = 20 };
	assert_ok(mover_open(&w->mover, w->device, BYTES));
	make_fail(w->device);
	cache.device = w->device;
	pn_budget_init(&w->budget, w->device, 4 << 20, 0, 1);
	assert_ok(pn_cache_open(&cache, &w->cache));
	helper.rails[0] = (struct pn_helper_rail){ w->device, w->cache };
	assert_ok(pn_helper_open(&helper, &w->helper));
	assert_ok(pn_helper_start(w->helper));
	assert_ok(pthread_mutex_init(&w->moving, NULL));
}

static void close_threads_world(struct world *w)
{
	mover_close(&w->mover);
	pn_helper_close(w->helper);
	pn_cache_check(w->cache);
	pn_cache_close(w->cache);
	pn_device_close(w->device);
	pthread_mutex_destroy(&w->moving);
}

static void start_threads(struct world *w, struct record *records,
			  uint64_t seed)
{
	atomic_store(&w->running, NTHREADS);
	for (unsigned i = 0; i < NTHREADS; i++) {
		struct record *r = &records[i];

		*r = (struct record){ .w = w, .random = seed + i };
		r->area = mmap(NULL, NBUFFERS * BYTES, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		assert_true(r->area != MAP_FAILED);
		assert_ok(pthread_create(&r->thread, NULL, work, r));
	}
}

/* From more than enough to less than all threads need at a time. */
static void change_budget(struct world *w, uint64_t *seed)
{
	while (atomic_load(&w->running)) {
		pn_budget_resize(&w->budget, BYTES * (2 + test_below(seed, 20)),
				 0);
		pn_cache_trim(w->cache);
		pn_helper_set_idle(w->helper, !test_below(seed, 8));
		pause_for(PN_NS_PER_MS);
	}
}

/* Runs all threads; returns the helper's statistics. */
static struct pinion_helper_stats run_threads(bool madvise)
{
	struct record records[NTHREADS], sum = { 0 };
	struct pinion_helper_stats stats;
	struct world w = { .madvise = madvise };
	uint64_t seed = test_seed();

	open_threads_world(&w);
	start_threads(&w, records, seed);
	change_budget(&w, &seed);
	for (unsigned i = 0; i < NTHREADS; i++) {
		assert_ok(pthread_join(records[i].thread, NULL));
		sum.wrong |= records[i].wrong;
		sum.moved += records[i].moved;
		sum.refused += records[i].refused;
		sum.failed += records[i].failed;
		munmap(records[i].area, NBUFFERS * BYTES);
	}
	pn_helper_query(w.helper, &stats);
	printf("moved %u, refused %u, failed %u, calls %llu, lost %llu, "
	       "deregistered %llu, registered %llu, late %llu\n",
	       sum.moved, sum.refused, sum.failed,
	       (unsigned long long)stats.calls, (unsigned long long)stats.lost,
	       (unsigned long long)stats.deregistered,
	       (unsigned long long)stats.registered,
	       (unsigned long long)stats.late);
	close_threads_world(&w);
	assert_int_equal(sum.wrong, 0);
	assert_int_equal(sum.moved + sum.refused + sum.failed,
			 NTHREADS * steps);
	/* Some of the failures were the helper's, and cost only time. */
	assert_in_range(sum.failed, 0, atomic_load(&failing.failed));
	assert_true(stats.calls + stats.lost <= sum.moved);
	return stats;
}

/* Under userfaultfd (the monitor of sanitized programs) memory is released only
 * by mapping it anew. */
static void whatever_the_helper_does_bytes_arrive(void **state)
{
	struct pinion_helper_stats stats;

	(void)state;
	stats = run_threads(pn_monitor_mode() != PN_MONITOR_USERFAULTFD);
	assert_true(stats.deregistered > 0);
	assert_true(atomic_load(&failing.failed) > 0);
}

/* Its notification of madvise() comes before the pages go: a helper that
 * registered at that moment lost bytes. */
static void under_userfaultfd_the_helper_holds_back(void **state)
{
	struct pinion_helper_stats stats;

	(void)state;
	assert_ok(pn_monitor_setup(PN_MONITOR_USERFAULTFD));
	if (pn_monitor_mode() != PN_MONITOR_USERFAULTFD)
		skip(); /* the kernel refuses it here */
	stats = run_threads(true);
	assert_int_equal(stats.registered + stats.deregistered, 0);
	assert_int_equal(stats.held_back, 1);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(whatever_the_helper_does_bytes_arrive),
		TEST(under_userfaultfd_the_helper_holds_back),
	};

	if (argc > 1)
		steps = (unsigned)strtoul(argv[1], NULL, 10);
	return RUN_TESTS(tests);
}
