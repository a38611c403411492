/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Notifying the subscribers of a release, without a lock, since a release may
 * happen inside anything.
 *
 * The subscribers are a list through their own storage, so that there may be
 * any number of them. A release counts itself as a reader of the list, in one
 * of two epochs, from before the system call until after it. A subscriber that
 * leaves is removed from the list (a reader that is at it still finds the next)
 * and then waits until both epochs have been seen without readers. New readers
 * enter the other epoch meanwhile, so a steady stream of releases does not
 * delay it. This is the idea of sleepable RCU. A subscriber that arrives waits,
 * too, so that no release which has to notify it is half done. Subscribers are
 * numbered as they come: a release notifies those that were there when it
 * began, BEFORE and AFTER.
 */
#include <sched.h>
#include <stdatomic.h>
#include <sys/auxv.h>

#include "base/compiler.h"
#include "base/lock.h"
#include "base/process.h"
#include "monitor/monitor_impl.h"

struct pn_monitor_faults pn_monitor_faults;

static struct pn_subscriber *_Atomic first;
/* The number of the newest subscriber. Stored after the subscriber is in the
 * list, so that whoever reads the number finds all up to it. */
static _Atomic uint64_t newest;

static _Atomic unsigned epoch_now;
static _Atomic unsigned readers[2];
/* Protects writing the list and epoch_now; taken after the monitor's lock. */
static struct pn_mutex subscribers_lock = { PTHREAD_MUTEX_INITIALIZER };

size_t pn_monitor_page_bytes(void)
{
	static _Atomic size_t known;
	size_t page = atomic_load_explicit(&known, memory_order_relaxed);

	if (pn_unlikely(!page)) {
		page = getauxval(AT_PAGESZ);
		atomic_store_explicit(&known, page, memory_order_relaxed);
	}
	return page;
}

/* --- readers of the list ------------------------------------------------- */

static void readers_enter(struct pn_release *release)
{
	release->epoch = atomic_load(&epoch_now) & 1;
	atomic_fetch_add(&readers[release->epoch], 1);
}

static void readers_leave(struct pn_release *release)
{
	atomic_fetch_sub(&readers[release->epoch], 1);
}

/* Returns when all who may have read the list before this call have left. Two
 * rounds, since a reader may have read epoch_now and not yet counted itself. */
static void wait_for_readers(void) PN_REQUIRES(&subscribers_lock)
{
	for (int round = 0; round < 2; round++) {
		unsigned old = atomic_fetch_xor(&epoch_now, 1) & 1;

		while (atomic_load(&readers[old]))
			sched_yield();
	}
}

/* --- subscribers --------------------------------------------------------- */

static bool is_subscribed(const struct pn_subscriber *subscriber)
	PN_REQUIRES(&subscribers_lock)
{
	const struct pn_subscriber *s = atomic_load(&first);

	while (s && s != subscriber)
		s = atomic_load(&s->next);
	return s;
}

/* Subscribed twice, it would make the list a cycle, in which a release walks
 * for ever. */
void pn_release_subscribe(struct pn_subscriber *subscriber)
{
	pn_lock(&subscribers_lock);
	pn_assert(!is_subscribed(subscriber));
	subscriber->number = atomic_load(&newest) + 1;
	atomic_store(&subscriber->next, atomic_load(&first));
	atomic_store(&first, subscriber);
	atomic_store(&newest, subscriber->number);
	wait_for_readers();
	pn_unlock(&subscribers_lock);
}

/* Does nothing for a subscriber that is not in the list. */
void pn_release_unsubscribe(struct pn_subscriber *subscriber)
{
	struct pn_subscriber *_Atomic *link = &first, *s;

	pn_lock(&subscribers_lock);
	while ((s = atomic_load(link)) && s != subscriber)
		link = &s->next;
	if (s) {
		atomic_store(link, atomic_load(&s->next));
		wait_for_readers();
	}
	pn_unlock(&subscribers_lock);
}

void pn_release_wait(void)
{
	pn_lock(&subscribers_lock);
	wait_for_readers();
	pn_unlock(&subscribers_lock);
}

bool pn_release_has_subscribers(void)
{
	return atomic_load(&first);
}

void pn_release_reset(void)
{
	pn_mutex_init(&subscribers_lock);
	atomic_store(&first, NULL);
	atomic_store(&readers[0], 0);
	atomic_store(&readers[1], 0);
}

/* --- notifying ----------------------------------------------------------- */

/* A further range becomes one with the last. */
static void merge_into_last(struct pn_release *release, struct pn_range range)
{
	struct pn_range *last = &release->ranges[PN_RELEASE_RANGES - 1];

	*last = pn_range_hull(*last, range);
	release->certain[PN_RELEASE_RANGES - 1] = 0;
}

void pn_release_add_perhaps(struct pn_release *release, uintptr_t addr,
			    size_t len, size_t certain)
{
	size_t page = pn_monitor_page_bytes();
	struct pn_range range;

	if (!len || addr > UINTPTR_MAX - page ||
	    len > UINTPTR_MAX - page - addr)
		return;
	range = pn_range_pages(addr, len, page);
	if (release->nranges == PN_RELEASE_RANGES) {
		merge_into_last(release, range);
		return;
	}
	release->certain[release->nranges] =
		certain ? pn_range_pages(addr, certain, page).len : 0;
	release->ranges[release->nranges++] = range;
}

void pn_release_add(struct pn_release *release, uintptr_t addr, size_t len)
{
	pn_release_add_perhaps(release, addr, len, len);
}

/* For a subscriber with wants_outcome: what is certain apart from the rest. */
static void notify_outcome(const struct pn_subscriber *to,
			   const struct pn_release *release, unsigned i,
			   enum pn_release_phase phase)
{
	struct pn_range range = release->ranges[i];
	size_t certain = release->late ? 0 : release->certain[i];

	if (phase == PN_RELEASE_AFTER && release->failed)
		phase = PN_RELEASE_FAILED;
	if (certain)
		to->released(to->arg, range.addr, certain, phase);
	if (certain < range.len)
		to->released(to->arg, range.addr + certain, range.len - certain,
			     PN_RELEASE_PERHAPS);
}

static void notify_subscriber(const struct pn_subscriber *to,
			      const struct pn_release *release,
			      enum pn_release_phase phase)
{
	for (unsigned i = 0; i < release->nranges; i++)
		if (to->wants_outcome)
			notify_outcome(to, release, i, phase);
		else
			to->released(to->arg, release->ranges[i].addr,
				     release->ranges[i].len, phase);
}

static void notify(const struct pn_release *release,
		   enum pn_release_phase phase)
{
	for (struct pn_subscriber *to = atomic_load(&first); to;
	     to = atomic_load(&to->next))
		if (to->number <= release->newest)
			notify_subscriber(to, release, phase);
}

/* In a child in which no fork handler ran, the subscribers are the parent's. */
static void begin_notify(struct pn_release *release)
{
	readers_enter(release);
	release->open = true;
	release->newest = pn_process_is_unusable() ? 0 : atomic_load(&newest);
	notify(release, PN_RELEASE_BEFORE);
}

static bool anything_watched(const struct pn_release *release)
{
	for (unsigned i = 0; i < release->nranges; i++)
		if (pn_filter_may_overlap(release->ranges[i]))
			return !pn_monitor_faults.ignore_hooks;
	return false;
}

void pn_release_begin(struct pn_release *release)
{
	if (pn_unlikely(anything_watched(release)))
		begin_notify(release);
}

void pn_release_end(struct pn_release *release)
{
	if (!release->open && pn_likely(!anything_watched(release)))
		return;
	if (!release->open) { /* watched since it began */
		release->late = true;
		begin_notify(release);
	}
	notify(release, PN_RELEASE_AFTER);
	readers_leave(release);
	release->open = false;
}

static void notify_performed(struct pn_range range, size_t certain)
{
	struct pn_release release;

	pn_release_init(&release);
	pn_release_add_perhaps(&release, range.addr, range.len, certain);
	begin_notify(&release);
	pn_release_end(&release);
}

void pn_release_notify(struct pn_range range)
{
	notify_performed(range, range.len);
}

void pn_release_notify_watched(struct pn_range range)
{
	if (pn_filter_may_overlap(range) && !pn_monitor_faults.ignore_events)
		pn_release_notify(range);
}

void pn_release_notify_all(void)
{
	size_t page = pn_monitor_page_bytes();

	notify_performed((struct pn_range){ page, UINTPTR_MAX - 4 * page }, 0);
}
