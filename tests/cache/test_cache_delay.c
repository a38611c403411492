/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A slow registration delays only those who need the same memory. On `sim` the
 * test is exact in virtual time; on `soft` the device does not end the
 * registration of one buffer before the others are done. And a flush waits for
 * what another thread is deregistering.
 */
#include "test.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/pages.h"
#include "base/range.h"
#include "cache/cache.h"
#include "device/sim/sim.h"

#define PAGE	 PN_PAGE_BYTES
#define NPAGES	 64
#define HITS	 1000
#define WRITE	 PINION_ACCESS_LOCAL_WRITE
#define SLOW_NS	 (10 * PN_NS_PER_MS)
#define PATIENCE (60 * PN_NS_PER_S)

/* Where the buffers lie, in pages; each of 4. */
enum { HOT = 0, SLOW = 16, COLD = 32 };

static struct {
	struct pn_sim *sim;
	struct pn_device *device;
	struct pn_budget budget;
	struct pn_cache *cache;
	char *mem;
} f;

static void open_cache(void)
{
	struct pn_cache_attr attr = { .device = f.device,
				      .budget = &f.budget,
				      .no_monitor = true };

	pn_budget_init(&f.budget, f.device, NPAGES * PAGE, 0, 1);
	assert_ok(pn_cache_open(&attr, &f.cache));
	assert_ok(pn_pages_map(NPAGES * PAGE, NULL, (void **)&f.mem));
}

static void close_cache(void)
{
	pn_cache_check(f.cache);
	pn_cache_close(f.cache);
	pn_pages_unmap(f.mem, NPAGES * PAGE, NULL);
}

static int touch(unsigned page)
{
	struct pinion_pin pin;
	int ret = pn_cache_pin(f.cache, f.mem + page * PAGE, 4 * PAGE, WRITE,
			       &pin);

	if (!ret)
		pn_cache_unpin(f.cache, &pin);
	return ret;
}

static struct pinion_cache_stats stats(void)
{
	struct pinion_cache_stats s;

	pn_cache_query(f.cache, &s);
	return s;
}

/* --- in virtual time ----------------------------------------------------- */

/* What a task does, and when: it must not assert. */
struct task {
	unsigned page, times;
	uint64_t after_ns; /* begins then */
	uint64_t began_ns, ended_ns;
	int failed;
};

static void pin_in_time(void *arg)
{
	struct task *task = arg;

	pn_sim_sleep(f.sim, task->after_ns);
	task->began_ns = pn_sim_now(f.sim);
	for (unsigned i = 0; i < task->times; i++)
		if (touch(task->page))
			task->failed = 1;
	task->ended_ns = pn_sim_now(f.sim);
}

static void close_in_time(void *arg)
{
	(void)arg;
	close_cache();
}

static void run(void (*fn)(void *arg), void *arg)
{
	assert_ok(pn_sim_spawn(f.sim, 0, fn, arg));
	assert_ok(pn_sim_run(f.sim));
}

/* Only tasks use the cache: a task runs under the lock of the world and takes
 * that of the cache; other threads would take them in the other order. */
static void a_slow_registration_delays_no_hit_in_virtual_time(void **state)
{
	struct task first = { .page = HOT, .times = 1 };
	struct task slow = { .page = SLOW, .times = 1 };
	struct task same = { .page = SLOW, .times = 1, .after_ns = 1000 };
	struct task hits = { .page = HOT, .times = HITS, .after_ns = 2000 };
	struct task cold = { .page = COLD, .times = 1, .after_ns = 3000 };
	struct task *const tasks[] = { &slow, &same, &hits, &cold };
	uint64_t start;

	(void)state;
	assert_ok(pn_sim_open("cores=2,cost=none",
			      "delay registration 2 by 10 ms", &f.sim));
	f.device = pn_sim_device(f.sim, 0);
	open_cache();
	run(pin_in_time, &first);
	start = pn_sim_now(f.sim);
	for (unsigned i = 0; i < PN_ARRAY_LEN(tasks); i++)
		assert_ok(pn_sim_spawn(f.sim, 0, pin_in_time, tasks[i]));
	assert_ok(pn_sim_run(f.sim));
	for (unsigned i = 0; i < PN_ARRAY_LEN(tasks); i++)
		assert_int_equal(tasks[i]->failed, 0);
	assert_int_equal(slow.ended_ns, start + SLOW_NS);
	assert_int_equal(hits.began_ns, start + 2000);
	assert_int_equal(hits.ended_ns, hits.began_ns);
	assert_int_equal(stats().hits, HITS + 1); /* and `same` at last */
	/* Another registration goes on beside it. */
	assert_int_equal(cold.ended_ns, start + 3000);
	/* Who wants the same waits for it, and registers nothing. */
	assert_int_equal(same.ended_ns, start + SLOW_NS);
	assert_int_equal(stats().registrations, 3);
	assert_int_equal(stats().waits, 1);
	run(close_in_time, NULL);
	pn_sim_close(f.sim);
}

struct flush {
	uint64_t after_ns, ended_ns;
	size_t left_bytes;
};

static void flush_in_time(void *arg)
{
	struct flush *flush = arg;

	pn_sim_sleep(f.sim, flush->after_ns);
	pn_cache_flush(f.cache);
	flush->left_bytes = atomic_load(&f.budget.bytes);
	flush->ended_ns = pn_sim_now(f.sim);
}

static void a_flush_ends_when_all_is_deregistered(void **state)
{
	struct task hot = { .page = HOT, .times = 1 };
	struct flush first = { 0 }, second = { .after_ns = 1000 };
	uint64_t start;

	(void)state;
	assert_ok(pn_sim_open("cores=2,cost=cx5", NULL, &f.sim));
	f.device = pn_sim_device(f.sim, 0);
	open_cache();
	run(pin_in_time, &hot);
	start = pn_sim_now(f.sim);
	assert_ok(pn_sim_spawn(f.sim, 0, flush_in_time, &first));
	assert_ok(pn_sim_spawn(f.sim, 0, flush_in_time, &second));
	assert_ok(pn_sim_run(f.sim));
	/* Four pages take 8.24 us there. */
	assert_int_equal(first.ended_ns, start + 8240);
	assert_int_equal(first.left_bytes, 0);
	assert_int_equal(second.ended_ns, first.ended_ns);
	assert_int_equal(second.left_bytes, 0);
	run(close_in_time, NULL);
	pn_sim_close(f.sim);
}

static uint64_t work_slowly(void *arg)
{
	(void)arg;
	pn_sim_sleep(f.sim, 5000);
	return PN_FOREVER;
}

static void step_in_time(void *arg)
{
	(void)arg;
	pn_cache_step(f.cache);
}

static void remove_in_time(void *arg)
{
	pn_sim_sleep(f.sim, 1000);
	pn_cache_task_remove(f.cache, arg);
}

/* Its data may be freed afterwards. */
static void removing_a_background_task_waits_until_it_is_done(void **state)
{
	struct pn_background_task background_task = { .step = work_slowly };
	uint64_t start;

	(void)state;
	assert_ok(pn_sim_open("cores=2,cost=none", NULL, &f.sim));
	f.device = pn_sim_device(f.sim, 0);
	open_cache();
	pn_cache_task_add(f.cache, &background_task);
	pn_cache_task_schedule(f.cache, &background_task, 0);
	start = pn_sim_now(f.sim);
	assert_ok(pn_sim_spawn(f.sim, 0, step_in_time, NULL));
	assert_ok(pn_sim_spawn(f.sim, 0, remove_in_time, &background_task));
	assert_ok(pn_sim_run(f.sim));
	assert_int_equal(pn_sim_now(f.sim), start + 5000);
	run(close_in_time, NULL);
	pn_sim_close(f.sim);
}

/* --- with threads -------------------------------------------------------- */

static const struct pn_device_ops *real_ops;
static _Atomic bool under_way, may_end;

static bool await(_Atomic bool *flag)
{
	uint64_t end = pn_clock_ns() + PATIENCE;

	while (!*flag && pn_clock_ns() < end)
		usleep(100);
	return *flag;
}

/* Does not return from registering SLOW before it may. */
static int register_slowly(struct pn_device *device, struct pn_mr *const *mrs,
			   unsigned n)
{
	int ret = real_ops->reg(device, mrs, n);

	if (mrs[0]->addr != f.mem + SLOW * PAGE)
		return ret;
	under_way = true;
	return await(&may_end) ? ret : -ETIMEDOUT;
}

struct waiter {
	pthread_t thread;
	_Atomic bool done;
	int ret;
};

static void *want_slow(void *arg)
{
	struct waiter *waiter = arg;

	waiter->ret = touch(SLOW);
	waiter->done = true;
	return NULL;
}

static void start(struct waiter *waiter)
{
	assert_ok(pthread_create(&waiter->thread, NULL, want_slow, waiter));
}

static void finish(struct waiter *waiter)
{
	assert_ok(pthread_join(waiter->thread, NULL));
	assert_int_equal(waiter->ret, 0);
}

static void a_slow_registration_delays_no_hit_of_another_thread(void **state)
{
	struct pn_device_ops slow_ops;
	struct waiter first = { 0 }, second = { 0 };

	(void)state;
	assert_ok(pn_device_open("soft", NULL, &f.device));
	real_ops = f.device->ops;
	slow_ops = *real_ops;
	slow_ops.reg = register_slowly;
	f.device->ops = &slow_ops;
	open_cache();
	assert_ok(touch(HOT));
	start(&first);
	assert_true(await(&under_way));
	start(&second);
	for (unsigned i = 0; i < HITS; i++)
		assert_ok(touch(HOT));
	assert_ok(touch(COLD)); /* registered meanwhile */
	assert_int_equal(stats().hits, HITS);
	assert_false(first.done || second.done || may_end);
	may_end = true;
	finish(&first);
	finish(&second);
	assert_int_equal(stats().registrations, 3);
	close_cache();
	f.device->ops = real_ops;
	pn_device_close(f.device);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_slow_registration_delays_no_hit_in_virtual_time),
		TEST(a_flush_ends_when_all_is_deregistered),
		TEST(removing_a_background_task_waits_until_it_is_done),
		TEST(a_slow_registration_delays_no_hit_of_another_thread),
	};

	return RUN_TESTS(tests);
}
