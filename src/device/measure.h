/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * measure -- what things cost on an opened device, here and now.
 *
 * pn_device_measure() fills device->costs, on which protocols and policies
 * choose: registering and deregistering as a line over pages (1 to 1,024
 * pages that are present), copying per byte, one put, get and send over a peer
 * that is the device itself, and, where the device has threads of its own,
 * waking a thread. Each point is the median of a few trials, so
 * that one interruption does not count; the lines are fitted by
 * base/regression.h. A device in virtual time knows its costs from its profile
 * and sets them when it is opened: measuring leaves them alone.
 *
 * Takes less than 50 ms and pins up to 4 MiB meanwhile, but no more than a
 * sixteenth of RLIMIT_MEMLOCK or 256 KiB (kernel 6.1, which charges for a
 * second longer: 64 KiB, in few trials); where not even that is to be had it
 * makes do with smaller sizes. Threads: call it before anything else uses the
 * device. Caveat: afterwards the device's peer to itself exists and its PEER_UP
 * has been taken; attaching to it again gives it at once and says nothing.
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

/* How well the lines fit; for `pinion info`. */
struct pn_measure_regressions {
	struct pn_regression reg, dereg; /* ns over pages */
	struct pn_regression put, get;	 /* ns over bytes */
	size_t max_pages; /* largest registration that was possible */
};

/* Measures into device->costs; fits may be NULL. 0 without measuring when the
 * device runs in virtual time (fits are then zero). -ENOMEM: not even one page
 * can be pinned; other errors of register, attach and post. device->costs is
 * unchanged then. */
int pn_device_measure(struct pn_device *device,
		      struct pn_measure_regressions *fits);

/* Sets device->costs to what they are on an ordinary machine (the tables of
 * doc/design/soft.md), where measuring is not possible. */
void pn_device_assume_costs(struct pn_device *device);

/* --- what it is made of, for benchmarks too ------------------------------ */

/* The median of n > 0 samples, which it reorders. */
double pn_median(double *samples, size_t n);

/* When a point has enough trials: at least `fewest`, then more until there are
 * `most` or its budget of real time is used up. */
struct pn_trials {
	size_t fewest, most;
	uint64_t deadline_ns; /* of pn_clock_ns() */
};

struct pn_trials pn_trials_begin(size_t fewest, size_t most,
				 uint64_t budget_ns);

/* Whether trial number n (from 0) should run. */
static inline bool pn_trials_continue(const struct pn_trials *trials, size_t n)
{
	return n < trials->fewest ||
	       (n < trials->most && pn_clock_ns() < trials->deadline_ns);
}

/* Nanoseconds of the device's time since start; never 0, for clocks have a
 * grain and ratios are taken. */
double pn_device_since(struct pn_device *device, uint64_t start);

/* Registers and deregisters [addr, addr + len) again and again. */
struct pn_measure_register {
	void *addr;
	size_t len;
	struct pn_trials trials;
	double *samples; /* room for 2 * trials.most */
	/* Called before each, not timed; may be NULL. */
	void (*before)(void *arg);
	void *arg;
	/* what was found */
	size_t n;
	double register_ns, deregister_ns; /* medians */
};

int pn_measure_register(struct pn_device *device,
			struct pn_measure_register *m);

/* Makes a move again and again; *median_ns is for one. samples has room for
 * trials->most. */
int pn_measure_move(struct pn_device *device,
		    const struct pn_blocking_transfer *move,
		    const struct pn_trials *trials, double *samples,
		    double *median_ns);

#endif
