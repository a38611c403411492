/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The worker: work that should not wait for the next call. These are batches of
 * deregistrations that are old enough, asynchronous pins, background tasks and
 * keys of released memory. pn_cache_step() does one thing and says when to call
 * again. A service thread calls it; the thread starts with the first work and
 * sleeps while there is none. In virtual time there is no thread: callers, or a
 * task of the test, call the step.
 */
#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/service_thread.h"
#include "cache/cache_impl.h"
#include "cache/exposed_memory.h"
#include "cache/invalidate_impl.h"
#include "cache/plan_impl.h"
#include "cache/reclaim_impl.h"
#include "cache/worker_impl.h"
#include "monitor/syscalls.h"

static struct pn_plan *take_plan(struct pn_cache *cache)
	PN_REQUIRES(&cache->lock)
{
	struct pn_list *link = pn_list_pop(&cache->queue);
	struct pn_plan *plan;

	if (!link)
		return NULL;
	plan = pn_container_of(link, struct pn_plan, link);
	atomic_store(&plan->status, PN_PLAN_RUNNING);
	return plan;
}

/* A task that is due, marked as running; *when_ns is when the next will be. */
static struct pn_background_task *start_due_task(struct pn_cache *cache,
						 uint64_t *when_ns)
	PN_REQUIRES(&cache->lock)
{
	struct pn_background_task *due = NULL;
	struct pn_list *pos;

	*when_ns = PN_FOREVER;
	pn_list_for_each (pos, &cache->tasks.list) {
		struct pn_background_task *task =
			pn_container_of(pos, struct pn_background_task, link);

		if (!due && !task->running &&
		    task->when_ns <= atomic_load(&cache->now_ns))
			due = task;
		else if (task->when_ns < *when_ns)
			*when_ns = task->when_ns;
	}
	if (due) {
		due->running = true;
		due->when_ns = PN_FOREVER;
	}
	return due;
}

static void end_task(struct pn_cache *cache, struct pn_background_task *task,
		     uint64_t next)
{
	pn_lock(&cache->lock);
	if (next < task->when_ns)
		task->when_ns = next;
	task->running = false;
	atomic_fetch_add(&cache->tasks.nruns, 1);
	pn_unlock(&cache->lock);
	pn_device_futex_wake(cache->device, &cache->tasks.nruns);
}

/* Runs a task that is due; false: none is. */
static bool run_due_task(struct pn_cache *cache, uint64_t *when_ns)
{
	struct pn_background_task *task;

	pn_lock(&cache->lock);
	task = start_due_task(cache, when_ns);
	pn_unlock(&cache->lock);
	if (!task)
		return false;
	end_task(cache, task, task->step(task->arg));
	return true;
}

/* The first shrinker that was not asked in this round, marked as running. NULL:
 * none. */
static struct pn_background_task *start_shrinker(struct pn_cache *cache,
						 uint32_t round)
{
	struct pn_background_task *found = NULL;
	struct pn_list *pos;

	pn_lock(&cache->lock);
	pn_list_for_each (pos, &cache->tasks.list) {
		struct pn_background_task *task =
			pn_container_of(pos, struct pn_background_task, link);

		if (found || !task->shrink || task->running ||
		    task->shrink_round == round)
			continue;
		task->running = true;
		task->shrink_round = round;
		found = task;
	}
	pn_unlock(&cache->lock);
	return found;
}

size_t pn_tasks_shrink(struct pn_cache *cache)
{
	uint32_t round = atomic_fetch_add(&cache->tasks.shrink_round, 1) + 1;
	struct pn_background_task *task;
	size_t given = 0;

	while ((task = start_shrinker(cache, round))) {
		given += task->shrink(task->arg);
		end_task(cache, task, PN_FOREVER);
	}
	return given;
}

void pn_cache_task_add(struct pn_cache *cache, struct pn_background_task *task)
{
	task->when_ns = PN_FOREVER;
	task->running = false;
	task->shrink_round = 0;
	pn_lock(&cache->lock);
	pn_list_append(&cache->tasks.list, &task->link);
	pn_unlock(&cache->lock);
}

void pn_cache_task_schedule(struct pn_cache *cache,
			    struct pn_background_task *task, uint64_t when_ns)
{
	bool sooner;

	pn_lock(&cache->lock);
	sooner = when_ns < task->when_ns;
	if (sooner)
		task->when_ns = when_ns;
	pn_unlock(&cache->lock);
	if (sooner)
		pn_worker_notify(cache);
}

void pn_cache_task_remove(struct pn_cache *cache,
			  struct pn_background_task *task)
{
	pn_lock(&cache->lock);
	pn_list_remove(&task->link);
	while (task->running) {
		uint32_t seen = atomic_load(&cache->tasks.nruns);

		pn_unlock(&cache->lock);
		pn_device_futex_wait(cache->device, &cache->tasks.nruns, seen);
		pn_lock(&cache->lock);
	}
	pn_unlock(&cache->lock);
}

uint64_t pn_cache_step(struct pn_cache *cache)
{
	uint64_t when, task_when = PN_FOREVER;
	struct pn_plan *plan;
	bool due, done = true;

	pn_cache_revoke_released(cache);
	atomic_store(&cache->now_ns, pn_device_now(cache->device));
	pn_lock(&cache->lock);
	pn_invalidate_drain_locked(cache);
	plan = take_plan(cache);
	atomic_store(&cache->worker.wanted, false);
	due = pn_reclaim_batch_due_locked(cache, &when);
	pn_unlock(&cache->lock);
	if (plan)
		pn_plan_run(plan);
	else if (!due || !pn_reclaim_reap(cache))
		done = run_due_task(cache, &task_when);
	if (done)
		return pn_device_now(cache->device);
	/* The other dying regions are held: unpinning rings the doorbell. */
	if (due)
		when = pn_reclaim_retry_ns(cache);
	return when < task_when ? when : task_when;
}

/* Sleeps until the doorbell rings or the time is over. */
static void sleep_for(struct pn_cache *cache, uint32_t doorbell, uint64_t ns)
{
	struct timespec ts = { (time_t)(ns / PN_NS_PER_S),
			       (long)(ns % PN_NS_PER_S) };

	syscall(SYS_futex, &cache->worker.doorbell, FUTEX_WAIT_PRIVATE,
		doorbell, ns == PN_FOREVER ? NULL : &ts, NULL, 0);
}

/* A release notice rings only a worker that would not look by itself before
 * regions are old enough to go. `idle` is set before the last look for notices,
 * so that either we see the notice, or the notice sees `idle`. */
static void idle_sleep(struct pn_cache *cache, uint32_t doorbell, uint64_t ns)
{
	bool long_sleep = ns > cache->attr.batch_age_ns;

	atomic_store(&cache->worker.idle, long_sleep);
	if (!long_sleep || !pn_invalidate_pending(cache))
		sleep_for(cache, doorbell, ns);
	atomic_store(&cache->worker.idle, false);
}

/* How long to sleep. A dying region that was found held may be let go by a
 * thread that does not notify (a hit that failed on it): it is looked at again,
 * less and less often. */
static uint64_t idle_ns(struct pn_cache *cache, uint64_t when,
			uint64_t *recheck_ns)
{
	uint64_t now = pn_device_now(cache->device);

	if (when != PN_FOREVER) {
		*recheck_ns = cache->attr.batch_age_ns;
		return when > now ? when - now : 0;
	}
	if (!atomic_load(&cache->dying.nheld))
		return PN_FOREVER;
	if (*recheck_ns < PN_NS_PER_S)
		*recheck_ns *= 2;
	return *recheck_ns;
}

static void *work(void *arg)
{
	struct pn_cache *cache = arg;
	uint64_t recheck_ns = cache->attr.batch_age_ns;

	while (!atomic_load(&cache->worker.stop)) {
		uint32_t doorbell = atomic_load(&cache->worker.doorbell);
		uint64_t when = pn_cache_step(cache);
		uint64_t ns = idle_ns(cache, when, &recheck_ns);

		if (ns)
			idle_sleep(cache, doorbell, ns);
	}
	return NULL;
}

/* Starts the thread once; false: there is none. */
static bool has_thread(struct pn_cache *cache)
{
	bool running;

	if (cache->attr.no_worker)
		return false;
	pn_lock(&cache->lock);
	if (!cache->worker.running)
		cache->worker.running =
			!pn_service_thread_start(&cache->worker.thread,
						 "pinion-cache", work, cache);
	running = cache->worker.running;
	pn_unlock(&cache->lock);
	return running;
}

static void ring_doorbell(struct pn_cache *cache)
{
	atomic_fetch_add(&cache->worker.doorbell, 1);
	/* Also runs inside free(): errno stays as it is. */
	PN_SYSCALL(SYS_futex, (long)&cache->worker.doorbell, FUTEX_WAKE_PRIVATE,
		   1, 0, 0, 0);
}

void pn_worker_notify(struct pn_cache *cache)
{
	uint64_t when;
	bool due;

	/* A forked child has no worker, and the lock may be held for ever. */
	if (pn_cache_foreign(cache))
		return;
	if (has_thread(cache)) {
		ring_doorbell(cache);
		return;
	}
	atomic_store(&cache->now_ns, pn_device_now(cache->device));
	pn_lock(&cache->lock);
	due = atomic_load(&cache->stepped)
		      ? pn_reclaim_batch_full_locked(cache)
		      : pn_reclaim_batch_due_locked(cache, &when);
	pn_unlock(&cache->lock);
	if (due)
		pn_reclaim_reap(cache);
}

void pn_cache_set_stepped(struct pn_cache *cache, bool stepped)
{
	atomic_store(&cache->stepped, stepped);
}

void pn_worker_ensure(struct pn_cache *cache)
{
	if (cache->subscribed && !atomic_load(&cache->worker.running))
		has_thread(cache);
}

void pn_worker_wake_idle(struct pn_cache *cache)
{
	if (atomic_load(&cache->worker.idle) &&
	    atomic_exchange(&cache->worker.idle, false))
		ring_doorbell(cache);
}

void pn_worker_notify_if_wanted(struct pn_cache *cache)
{
	if (atomic_load_explicit(&cache->worker.wanted, memory_order_relaxed) &&
	    atomic_exchange(&cache->worker.wanted, false))
		pn_worker_notify(cache);
}

void pn_worker_stop(struct pn_cache *cache)
{
	if (!cache->worker.running)
		return;
	atomic_store(&cache->worker.stop, true);
	pn_worker_notify(cache);
	pthread_join(cache->worker.thread, NULL);
}
