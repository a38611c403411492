/* SPDX-License-Identifier: BSD-2-Clause */
#include "monitor/watched_range.h"

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/lock.h"
#include "base/pages.h"
#include "base/process.h"
#include "base/range.h"
#include "monitor/monitor_impl.h"

/* The monitor's filter counts each 2 MiB of a watch. */
#define MAX_WATCHED_BYTES ((size_t)64 << 30)

/* A release may be at a range that has just been removed. It counts as a reader
 * of the monitor's subscribers (release.c), so removed ranges are freed after
 * all readers have left, many at a time. */
#define MAX_REMOVED 256

/* The state of a range. */
#define RELEASED  (UINT32_C(1) << 31)
#define DOUBTED	  (UINT32_C(1) << 30) /* perhaps released */
#define UNDER_WAY (DOUBTED - 1)	      /* number of releases under way */

struct pn_watched_range {
	struct pn_watched_range *_Atomic next;	/* of those that are watched */
	struct pn_watched_range *_Atomic *link; /* that leads here */
	struct pn_watched_range *next_removed;
	struct pn_range pages;
	unsigned interruptions; /* of the monitor's detection, before it */
	bool watched;		/* by the monitor, and in the list */
	_Atomic uint32_t state;
};

static struct pn_watched_range *_Atomic first;
/* Protects what follows, and writing the list. Taken before the monitor's. */
static struct pn_mutex lock = { PTHREAD_MUTEX_INITIALIZER };
static struct pn_watched_range *removed PN_GUARDED_BY(&lock);
static unsigned nremoved PN_GUARDED_BY(&lock);
static bool subscribed PN_GUARDED_BY(&lock);

/* --- releases ------------------------------------------------------------- */

/* AFTER or FAILED without BEFORE: the range was added while the release was
 * under way. It may be new memory at that address. */
static void note_release(struct pn_watched_range *range,
			 enum pn_release_phase phase)
{
	uint32_t state = atomic_load(&range->state), next;

	do {
		next = state | DOUBTED;
		if (phase == PN_RELEASE_BEFORE)
			next = state + 1;
		else if (phase == PN_RELEASE_AFTER && (state & UNDER_WAY))
			next = state | RELEASED;
		else if (phase == PN_RELEASE_FAILED && (state & UNDER_WAY))
			next = (state - 1) | DOUBTED;
	} while (!(state & RELEASED) &&
		 !atomic_compare_exchange_weak(&range->state, &state, next));
}

static void on_release(void *arg, uintptr_t addr, size_t len,
		       enum pn_release_phase phase)
{
	struct pn_range pages = { addr, len };

	(void)arg;
	if (!pn_range_valid(addr, len))
		return;
	for (struct pn_watched_range *range = atomic_load(&first); range;
	     range = atomic_load(&range->next))
		if (pn_range_overlaps(range->pages, pages))
			note_release(range, phase);
}

static struct pn_subscriber subscriber = { .released = on_release,
					   .wants_outcome = true };

/* --- fork ------------------------------------------------------------------
 */

static void before_fork(void) PN_NO_THREAD_SAFETY
{
	pn_lock(&lock);
}

static void after_fork(void) PN_NO_THREAD_SAFETY
{
	pn_unlock(&lock);
}

/* A child has no subscribers. */
static void in_child(void) PN_NO_THREAD_SAFETY
{
	subscribed = false;
	pn_unlock(&lock);
}

static void watch_fork(void)
{
	pn_process_atfork(before_fork, after_fork, in_child);
}

/* --- ranges ----------------------------------------------------------------
 */

/* A range is complete before it is in the list, and in the list before the
 * monitor watches it: a release that begins after that finds it. */
static void insert(struct pn_watched_range *range) PN_REQUIRES(&lock)
{
	struct pn_watched_range *next = atomic_load(&first);

	atomic_store(&range->next, next);
	range->link = &first;
	if (next)
		next->link = &range->next;
	atomic_store(&first, range);
}

/* A release that is at the range still finds the next one. */
static void take_out(struct pn_watched_range *range) PN_REQUIRES(&lock)
{
	struct pn_watched_range *next = atomic_load(&range->next);

	atomic_store(range->link, next);
	if (next)
		next->link = range->link;
}

static void free_removed(struct pn_watched_range *range)
{
	struct pn_watched_range *next;

	if (range)
		pn_release_wait();
	for (; range; range = next) {
		next = range->next_removed;
		free(range);
	}
}

static int ensure_subscribed(void) PN_REQUIRES(&lock)
{
	int ret = subscribed ? 0 : pn_monitor_subscribe(&subscriber);

	subscribed = !ret;
	return ret;
}

/* Under userfaultfd, notifications of earlier releases come late. They are for
 * what was at the address before. */
static void wait_for_notices(void)
{
	while (pn_monitor_needs_probe() && !pn_monitor_settled())
		sched_yield();
}

static bool can_watch(const void *addr, size_t len)
{
	return len <= MAX_WATCHED_BYTES && pn_range_valid((uintptr_t)addr, len);
}

static void watch(struct pn_watched_range *range) PN_REQUIRES(&lock)
{
	range->interruptions = pn_monitor_interruptions();
	insert(range);
	range->watched = !pn_monitor_watch(range->pages.addr, range->pages.len);
	if (!range->watched)
		take_out(range);
}

int pn_watched_range_add(const void *addr, size_t len,
			 struct pn_watched_range **out)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct pn_watched_range *range = calloc(1, sizeof(*range));

	if (!range)
		return -ENOMEM;
	pthread_once(&once, watch_fork);
	pn_monitor_check();
	wait_for_notices();
	pn_lock(&lock);
	if (can_watch(addr, len) && !ensure_subscribed()) {
		range->pages =
			pn_range_pages((uintptr_t)addr, len, PN_PAGE_BYTES);
		watch(range);
	}
	pn_unlock(&lock);
	*out = range;
	return 0;
}

void pn_watched_range_remove(struct pn_watched_range *range)
{
	struct pn_watched_range *unused = NULL;

	if (!range)
		return;
	pn_lock(&lock);
	if (range->watched) {
		pn_monitor_unwatch(range->pages.addr, range->pages.len);
		take_out(range);
	}
	range->next_removed = removed;
	removed = range;
	if (++nremoved == MAX_REMOVED) {
		unused = removed;
		removed = NULL;
		nremoved = 0;
	}
	pn_unlock(&lock);
	free_removed(unused);
}

size_t pn_watched_range_count(void)
{
	size_t n = 0;

	pn_lock(&lock);
	for (struct pn_watched_range *range = atomic_load(&first); range;
	     range = atomic_load(&range->next))
		n++;
	pn_unlock(&lock);
	return n;
}

/* Since the range was added, and without the program's help. */
bool pn_watched_range_detects(const struct pn_watched_range *range)
{
	return range->watched && !(atomic_load(&range->state) & DOUBTED) &&
	       pn_monitor_detects(range->interruptions);
}

int pn_watched_range_check(struct pn_watched_range *range, const void *addr,
			   size_t len, bool write)
{
	wait_for_notices();
	/* Whoever learns of a release does so after its system call, which came
	 * after the mark. */
	if (atomic_load(&range->state) & (RELEASED | UNDER_WAY))
		return -EFAULT;
	return !len || pn_watched_range_detects(range)
		       ? 0
		       : pn_pages_check(addr, len, write);
}
