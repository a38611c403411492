/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * core_speed -- measures how fast a core is at the moment.
 *
 * A core of a virtual machine is usually one of the two hardware threads of a
 * real core; the other one may run another virtual machine. While that one is
 * busy, this one executes half as many instructions per second, and its figures
 * are not comparable with those of another time. The time of a loop that
 * saturates the core detects this.
 *
 * Threads: any.
 */
#ifndef PN_BENCH_PACE_H
#define PN_BENCH_PACE_H

#include <time.h>

#define PN_CORE_LOOP_ITERATIONS 20000 /* about 10 us */
#define PN_CORE_LOOP_TRIES	5

/* Time of the loop in ns: sums that do not depend on each other and that the
 * compiler cannot fold. */
static inline double pn_core_loop_once_ns(void)
{
	unsigned long a = 0, b = 0, c = 0, d = 0, e = 0, f = 0;
	struct timespec from, to;

	clock_gettime(CLOCK_MONOTONIC, &from);
	for (unsigned long i = 0; i < PN_CORE_LOOP_ITERATIONS; i++) {
		a += i, b += i, c += i, d += i, e += i, f += i;
		__asm__ volatile(""
				 : "+r"(a), "+r"(b), "+r"(c), "+r"(d), "+r"(e),
				   "+r"(f));
	}
	clock_gettime(CLOCK_MONOTONIC, &to);
	return (double)(to.tv_sec - from.tv_sec) * 1e9 +
	       (double)(to.tv_nsec - from.tv_nsec);
}

/* The best of a few runs, so that an interrupt does not count. */
static inline double pn_core_loop_ns(void)
{
	double best = pn_core_loop_once_ns();

	for (unsigned i = 1; i < PN_CORE_LOOP_TRIES; i++) {
		double ns = pn_core_loop_once_ns();

		if (ns < best)
			best = ns;
	}
	return best;
}

#endif
