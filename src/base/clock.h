/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * clock -- the machine's monotonic clock, in nanoseconds.
 *
 * Only devices and tools read it. Engine code (cache, helper, message) asks
 * its device (pn_device_now()), so that it runs in virtual time on `sim`.
 */
#ifndef PN_BASE_CLOCK_H
#define PN_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

#define PN_NS_PER_US UINT64_C(1000)
#define PN_NS_PER_MS UINT64_C(1000000)
#define PN_NS_PER_S  UINT64_C(1000000000)

static inline uint64_t pn_clock_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * PN_NS_PER_S + (uint64_t)ts.tv_nsec;
}

/* Tells the CPU that this is a busy wait. */
static inline void pn_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield" ::: "memory");
#endif
}

#endif
