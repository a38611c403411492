/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * recorder -- a subscriber that records the notifications of one range.
 *
 * It does what a callback may: no allocation, no lock. It asks the kernel at
 * that moment whether the pages are still there.
 */
#ifndef PN_TESTS_MONITOR_RECORDER_H
#define PN_TESTS_MONITOR_RECORDER_H

#include <sched.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/range.h"
#include "monitor/monitor.h"
#include "monitor/syscalls.h"

/* Whether a sanitizer brings its own allocator into this build. */
#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)
#define RECORDER_TSAN 1
#else
#define RECORDER_TSAN 0
#endif
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
#define RECORDER_SANITIZED 1
#else
#define RECORDER_SANITIZED RECORDER_TSAN
#endif

struct recorder {
	struct pn_subscriber subscriber;
	struct pn_range target;
	atomic_uint before, after; /* releases that cover the target */
	atomic_uint others;	   /* that touch nothing of it */
	atomic_bool present;	   /* at BEFORE, in the releasing thread */
	_Atomic uintptr_t addr;	   /* as notified */
	_Atomic size_t len;
	long releaser;
};

static inline long recorder_tid(void)
{
	return PN_SYSCALL(SYS_gettid, 0);
}

static inline void recorder_released(void *arg, uintptr_t addr, size_t len,
				     enum pn_release_phase phase)
{
	struct recorder *r = arg;
	unsigned char vec = 0;

	if (!pn_range_overlaps((struct pn_range){ addr, len }, r->target)) {
		r->others++;
		return;
	}
	r->addr = addr;
	r->len = len;
	if (phase == PN_RELEASE_AFTER) {
		r->after++;
		return;
	}
	r->before++;
	if (recorder_tid() == r->releaser &&
	    !PN_SYSCALL(SYS_mincore, (long)r->target.addr, PN_PAGE_BYTES,
			(long)&vec))
		r->present = vec & 1;
}

/* Waits for the notifications of releases that have returned. */
static inline void recorder_settle(void)
{
	while (!pn_monitor_settled())
		sched_yield();
}

/* Late notifications of what was at this address before are ignored. */
static inline void recorder_aim(struct recorder *r, void *addr, size_t len)
{
	recorder_settle();
	r->target = (struct pn_range){ (uintptr_t)addr, len };
	r->before = r->after = r->others = 0;
	r->present = false;
	r->releaser = recorder_tid();
}

static inline int recorder_open(struct recorder *r)
{
	r->subscriber = (struct pn_subscriber){ .released = recorder_released,
						.arg = r };
	recorder_aim(r, (void *)PN_PAGE_BYTES, 1);
	return pn_monitor_subscribe(&r->subscriber);
}

static inline void recorder_close(struct recorder *r)
{
	pn_monitor_unsubscribe(&r->subscriber);
}

#endif
