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
#include "cache/cache_impl.h"
#include "cache/exposed.h"

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

/* Does one step of a chore that is due; false: none is. */
static bool step_chore(struct pn_cache *cache, uint64_t *when_ns)
{
	struct pn_chore *chore;
	uint64_t next;

	pn_lock(&cache->lock);
	chore = take_chore(cache, when_ns);
	pn_unlock(&cache->lock);
	if (!chore)
		return false;
	next = chore->step(chore->arg);
	pn_lock(&cache->lock);
	if (next < chore->when_ns)
		chore->when_ns = next;
	chore->running = false;
	atomic_fetch_add(&cache->chored, 1);
	pn_unlock(&cache->lock);
	pn_device_unblock(cache->device, &cache->chored);
	return true;
}

void pn_cache_chore_add(struct pn_cache *cache, struct pn_chore *chore)
{
	chore->when_ns = PN_FOREVER;
	chore->running = false;
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
	plan = take_plan(cache);
	due = pn_room_due_locked(cache, &when);
	pn_unlock(&cache->lock);
	if (plan)
		pn_plan_run(plan);
	else if (!due || !pn_room_reap(cache))
		done = step_chore(cache, &chore_when);
	if (done)
		return pn_device_now(cache->device);
	if (due)
		when = PN_FOREVER; /* all are held: unpinning rings the bell */
	return when < chore_when ? when : chore_when;
}

/* Sleeps until the bell rings or the device's clock says `when`. */
static void sleep_until(struct pn_cache *cache, uint32_t bell, uint64_t when)
{
	uint64_t now = pn_device_now(cache->device);
	uint64_t ns = when > now ? when - now : 1;
	struct timespec ts = { (time_t)(ns / PN_NS_PER_S),
			       (long)(ns % PN_NS_PER_S) };

	syscall(SYS_futex, &cache->worker.bell, FUTEX_WAIT_PRIVATE, bell,
		when == PN_FOREVER ? NULL : &ts, NULL, 0);
}

static void *work(void *arg)
{
	struct pn_cache *cache = arg;

	pthread_setname_np(pthread_self(), "pinion-cache");
	while (!atomic_load(&cache->worker.stop)) {
		uint32_t bell = atomic_load(&cache->worker.bell);
		uint64_t when = pn_cache_step(cache);

		if (when > pn_device_now(cache->device))
			sleep_until(cache, bell, when);
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
		cache->worker.running = !pthread_create(&cache->worker.thread,
							NULL, work, cache);
	running = cache->worker.running;
	pn_unlock(&cache->lock);
	return running;
}

void pn_worker_ring(struct pn_cache *cache)
{
	uint64_t when;
	bool due;

	/* A forked child has no worker, and the lock may be taken for ever. */
	if (cache->foreign)
		return;
	if (has_thread(cache)) {
		atomic_fetch_add(&cache->worker.bell, 1);
		syscall(SYS_futex, &cache->worker.bell, FUTEX_WAKE_PRIVATE, 1,
			NULL, NULL, 0);
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
