/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pace -- how fast a core is just now.
 *
 * A core of a virtual machine is, as a rule, one of the two threads of a real
 * core, and what runs on the other is somebody else's. While that one is busy
 * this one has half as many instructions a second, and a figure taken then says
 * nothing about one taken at another time. A loop that fills the core tells.
 *
 * Threads: any.
 */
#ifndef PN_BENCH_PACE_H
#define PN_BENCH_PACE_H

#include <time.h>

#define PN_CORE_LOOP_ITERATIONS 20000 /* some 10 us */
#define PN_CORE_LOOP_TRIES	5

/* How long the loop takes, in ns: sums that do not wait for each other, and
 * that the compiler cannot do at once. */
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

/* The best of a few, so that an interrupt does not count. */
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
