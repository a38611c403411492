/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What should not wait for the next call: batches of deregistrations that are
 * old enough, pins begun with pin_start. A step function does one thing and
 * says when to call again; a thread drives it, started with the first work and
 * asleep while there is none. In virtual time there is no thread: callers, or
 * a task of the test, drive the step.
 */
#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/servant.h"
#include "cache/cache_impl.h"
#include "cache/exposed.h"
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

/* The chore that is due, marked as running; *when_ns is when the next will be.
 */
static struct pn_chore *take_chore(struct pn_cache *cache, uint64_t *when_ns)
	PN_REQUIRES(&cache->lock)
{
	struct pn_chore *due = NULL;
	struct pn_list *pos;

	*when_ns = PN_FOREVER;
	pn_list_for_each (pos, &cache->chores) {
		struct pn_chore *chore =
			pn_container_of(pos, struct pn_chore, link);

		if (!due && !chore->running &&
		    chore->when_ns <= atomic_load(&cache->now_ns))
			due = chore;
		else if (chore->when_ns < *when_ns)
			*when_ns = chore->when_ns;
	}
	if (due) {
		due->running = true;
		due->when_ns = PN_FOREVER;
	}
	return due;
}

static void end_chore(struct pn_cache *cache, struct pn_chore *chore,
		      uint64_t next)
{
	pn_lock(&cache->lock);
	if (next < chore->when_ns)
		chore->when_ns = next;
	chore->running = false;
	atomic_fetch_add(&cache->chored, 1);
	pn_unlock(&cache->lock);
	pn_device_unblock(cache->device, &cache->chored);
}

/* Does one step of a chore that is due; false: none is. */
static bool step_chore(struct pn_cache *cache, uint64_t *when_ns)
{
	struct pn_chore *chore;

	pn_lock(&cache->lock);
	chore = take_chore(cache, when_ns);
	pn_unlock(&cache->lock);
	if (!chore)
		return false;
	end_chore(cache, chore, chore->step(chore->arg));
	return true;
}

/* The first that may have something to give and was not asked in this round,
 * marked as running. NULL: none. */
static struct pn_chore *take_giver(struct pn_cache *cache, uint32_t round)
{
	struct pn_chore *found = NULL;
	struct pn_list *pos;

	pn_lock(&cache->lock);
	pn_list_for_each (pos, &cache->chores) {
		struct pn_chore *chore =
			pn_container_of(pos, struct pn_chore, link);

		if (found || !chore->give || chore->running ||
		    chore->asked == round)
			continue;
		chore->running = true;
		chore->asked = round;
		found = chore;
	}
	pn_unlock(&cache->lock);
	return found;
}

size_t pn_chores_give(struct pn_cache *cache)
{
	uint32_t round = atomic_fetch_add(&cache->asking, 1) + 1;
	struct pn_chore *chore;
	size_t given = 0;

	while ((chore = take_giver(cache, round))) {
		given += chore->give(chore->arg);
		end_chore(cache, chore, PN_FOREVER);
	}
	return given;
}

void pn_cache_chore_add(struct pn_cache *cache, struct pn_chore *chore)
{
	chore->when_ns = PN_FOREVER;
	chore->running = false;
	chore->asked = 0;
	pn_lock(&cache->lock);
	pn_list_append(&cache->chores, &chore->link);
	pn_unlock(&cache->lock);
}

void pn_cache_chore_at(struct pn_cache *cache, struct pn_chore *chore,
		       uint64_t when_ns)
{
	bool sooner;

	pn_lock(&cache->lock);
	sooner = when_ns < chore->when_ns;
	if (sooner)
		chore->when_ns = when_ns;
	pn_unlock(&cache->lock);
	if (sooner)
		pn_worker_ring(cache);
}

void pn_cache_chore_remove(struct pn_cache *cache, struct pn_chore *chore)
{
	pn_lock(&cache->lock);
	pn_list_remove(&chore->link);
	while (chore->running) {
		uint32_t seen = atomic_load(&cache->chored);

		pn_unlock(&cache->lock);
		pn_device_block(cache->device, &cache->chored, seen);
		pn_lock(&cache->lock);
	}
	pn_unlock(&cache->lock);
}

uint64_t pn_cache_step(struct pn_cache *cache)
{
	uint64_t when, chore_when = PN_FOREVER;
	struct pn_plan *plan;
	bool due, done = true;

	pn_cache_heed(cache);
	atomic_store(&cache->now_ns, pn_device_now(cache->device));
	pn_lock(&cache->lock);
	pn_release_drain_locked(cache);
	plan = take_plan(cache);
	atomic_store(&cache->worker.wanted, false);
	due = pn_room_due_locked(cache, &when);
	pn_unlock(&cache->lock);
	if (plan)
		pn_plan_run(plan);
	else if (!due || !pn_room_reap(cache))
		done = step_chore(cache, &chore_when);
	if (done)
		return pn_device_now(cache->device);
	/* The others are held: unpinning rings the bell. */
	if (due)
		when = pn_room_retry_ns(cache);
	return when < chore_when ? when : chore_when;
}

/* Sleeps until the bell rings or for so long. */
static void sleep_for(struct pn_cache *cache, uint32_t bell, uint64_t ns)
{
	struct timespec ts = { (time_t)(ns / PN_NS_PER_S),
			       (long)(ns % PN_NS_PER_S) };

	syscall(SYS_futex, &cache->worker.bell, FUTEX_WAIT_PRIVATE, bell,
		ns == PN_FOREVER ? NULL : &ts, NULL, 0);
}

/* Whoever releases memory rings only a worker that would not look by itself
 * before regions are old enough to go. Said before the last look for notices,
 * so that either we see the notice, or they see us. */
static void rest(struct pn_cache *cache, uint32_t bell, uint64_t ns)
{
	bool long_rest = ns > cache->attr.batch_age_ns;

	atomic_store(&cache->worker.resting, long_rest);
	if (!long_rest || !pn_release_waiting(cache))
		sleep_for(cache, bell, ns);
	atomic_store(&cache->worker.resting, false);
}

/* How long to sleep. A dying region that was held when it was looked at may be
 * let go by somebody who does not look (a hit that failed on it): it is looked
 * at again, less and less often. */
static uint64_t rest_ns(struct pn_cache *cache, uint64_t when,
			uint64_t *patience)
{
	uint64_t now = pn_device_now(cache->device);

	if (when != PN_FOREVER) {
		*patience = cache->attr.batch_age_ns;
		return when > now ? when - now : 0;
	}
	if (!atomic_load(&cache->nstuck))
		return PN_FOREVER;
	if (*patience < PN_NS_PER_S)
		*patience *= 2;
	return *patience;
}

static void *work(void *arg)
{
	struct pn_cache *cache = arg;
	uint64_t patience = cache->attr.batch_age_ns;

	while (!atomic_load(&cache->worker.stop)) {
		uint32_t bell = atomic_load(&cache->worker.bell);
		uint64_t when = pn_cache_step(cache);
		uint64_t ns = rest_ns(cache, when, &patience);

		if (ns)
			rest(cache, bell, ns);
	}
	return NULL;
}

/* Starts the thread once; false where there is to be none. */
static bool has_thread(struct pn_cache *cache)
{
	bool running;

	if (cache->attr.no_worker)
		return false;
	pn_lock(&cache->lock);
	if (!cache->worker.running)
		cache->worker.running =
			!pn_servant_start(&cache->worker.thread, "pinion-cache",
					  work, cache);
	running = cache->worker.running;
	pn_unlock(&cache->lock);
	return running;
}

static void ring_bell(struct pn_cache *cache)
{
	atomic_fetch_add(&cache->worker.bell, 1);
	/* Also inside free(): errno stays as it is. */
	PN_SYSCALL(SYS_futex, (long)&cache->worker.bell, FUTEX_WAKE_PRIVATE, 1,
		   0, 0, 0);
}

void pn_worker_ring(struct pn_cache *cache)
{
	uint64_t when;
	bool due;

	/* A forked child has no worker, and the lock may be taken for ever. */
	if (pn_cache_foreign(cache))
		return;
	if (has_thread(cache)) {
		ring_bell(cache);
		return;
	}
	atomic_store(&cache->now_ns, pn_device_now(cache->device));
	pn_lock(&cache->lock);
	due = atomic_load(&cache->stepped) ? pn_room_full_locked(cache)
					   : pn_room_due_locked(cache, &when);
	pn_unlock(&cache->lock);
	if (due)
		pn_room_reap(cache);
}

void pn_cache_stepped(struct pn_cache *cache, bool stepped)
{
	atomic_store(&cache->stepped, stepped);
}

void pn_worker_ensure(struct pn_cache *cache)
{
	if (cache->subscribed && !atomic_load(&cache->worker.running))
		has_thread(cache);
}

void pn_worker_wake(struct pn_cache *cache)
{
	if (atomic_load(&cache->worker.resting) &&
	    atomic_exchange(&cache->worker.resting, false))
		ring_bell(cache);
}

void pn_worker_tell(struct pn_cache *cache)
{
	if (atomic_load_explicit(&cache->worker.wanted, memory_order_relaxed) &&
	    atomic_exchange(&cache->worker.wanted, false))
		pn_worker_ring(cache);
}

void pn_worker_stop(struct pn_cache *cache)
{
	if (!cache->worker.running)
		return;
	atomic_store(&cache->worker.stop, true);
	pn_worker_ring(cache);
	pthread_join(cache->worker.thread, NULL);
}
