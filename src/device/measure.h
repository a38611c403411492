/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * measure -- measures the costs of an opened device on this machine.
 *
 * pn_device_measure() fills device->costs, from which protocols and policies
 * choose: registering and deregistering as a line over pages (1 to 1,024 pages
 * that are present), copying per byte, one put, get and send to a peer that is
 * the device itself, and, where the device has threads of its own, waking a
 * thread. Each point is the median of a few trials, so that one interruption
 * does not count; base/regression.h computes the lines.
 * A device in virtual time knows its costs from its profile and sets them when
 * it is opened: measuring leaves them unchanged.
 *
 * Takes less than 50 ms and pins up to 4 MiB meanwhile, but no more than a
 * sixteenth of RLIMIT_MEMLOCK or 256 KiB. (Kernel 6.1 charges pages for a
 * second after they were unpinned: there it pins 64 KiB, in few trials.) Where
 * not even that can be pinned, it uses smaller sizes. Threads: call it before
 * anything else uses the device.
 * Caveat: afterwards the device's peer to itself exists and its PEER_UP has
 * been polled; attaching to it again returns that peer and brings no
 * completion.
 */
#ifndef PN_DEVICE_MEASURE_H
#define PN_DEVICE_MEASURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/regression.h"
#include "device/blocking.h"
#include "device/device.h"

/* The lines that were computed and how well they match; for `pinion info`. */
struct pn_measure_regressions {
	struct pn_regression reg, dereg; /* ns over pages */
	struct pn_regression put, get;	 /* ns over bytes */
	size_t max_pages; /* the largest registration that was possible */
};

/* Measures into device->costs; regressions may be NULL. In virtual time it
 * returns 0 without measuring (*regressions is then zero). -ENOMEM: not even
 * one page can be pinned; also errors of register, attach and post. On error
 * device->costs is unchanged. */
int pn_device_measure(struct pn_device *device,
		      struct pn_measure_regressions *regressions);

/* Sets device->costs to those of a typical machine (the tables of
 * doc/design/soft.md), where measuring is not possible. */
void pn_device_assume_costs(struct pn_device *device);

/* --- building blocks, also for benchmarks -------------------------------- */

/* The median of n > 0 samples, which it reorders. */
double pn_median(double *samples, size_t n);

/* Bounds the trials of a point: at least `min` of them, then more until there
 * are `max` or the budget of real time is used up. */
struct pn_trials {
	size_t min, max;
	uint64_t deadline_ns; /* of pn_clock_ns() */
};

struct pn_trials pn_trials_begin(size_t min, size_t max, uint64_t budget_ns);

/* Whether trial number n (from 0) should run. */
static inline bool pn_trials_continue(const struct pn_trials *trials, size_t n)
{
	return n < trials->min ||
	       (n < trials->max && pn_clock_ns() < trials->deadline_ns);
}

/* Nanoseconds of the device's time since start. Never 0: clocks have a
 * granularity, and callers divide. */
double pn_device_since(struct pn_device *device, uint64_t start);

/* Registers and deregisters [addr, addr + len) repeatedly. */
struct pn_measure_register {
	void *addr;
	size_t len;
	struct pn_trials trials;
	double *samples; /* room for 2 * trials.max */
	/* Called before each trial, not timed; may be NULL. */
	void (*before)(void *arg);
	void *arg;
	/* Results. */
	size_t n;
	double register_ns, deregister_ns; /* medians */
};

int pn_measure_register(struct pn_device *device,
			struct pn_measure_register *m);

/* Repeats a transfer; *median_ns is for one. samples has room for trials->max.
 */
int pn_measure_move(struct pn_device *device,
		    const struct pn_blocking_transfer *move,
		    const struct pn_trials *trials, double *samples,
		    double *median_ns);

#endif
