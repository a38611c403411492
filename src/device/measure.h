/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * measure -- what things cost on an opened device, here and now.
 *
 * pn_device_measure() fills device->costs, on which protocols and policies
 * choose: registering and deregistering as a line over pages (1 to 1,024
 * pages that are present), copying per byte, and one put, get and send over a
 * peer that is the device itself. Each point is the median of a few trials, so
 * that one interruption does not count; the lines are fitted by base/fit.h.
 * A device in virtual time knows its costs from its profile and sets them when
 * it is opened: measuring leaves them alone.
 *
 * Takes less than 50 ms and pins up to 4 MiB meanwhile; under a tight
 * RLIMIT_MEMLOCK it makes do with smaller sizes.
 * Threads: call it before anything else uses the device.
 * Caveat: afterwards the device's peer to itself exists and its PEER_UP has
 * been taken; attaching to it again gives it at once and says nothing.
 */
#ifndef PN_DEVICE_MEASURE_H
#define PN_DEVICE_MEASURE_H

#include <stddef.h>

#include "base/fit.h"
#include "device/device.h"

/* How well the lines fit; for `pinion info`. */
struct pn_measure_fits {
	struct pn_fit reg, dereg; /* ns over pages */
	struct pn_fit put, get;	  /* ns over bytes */
	size_t max_pages;	  /* largest registration that was possible */
};

/* Measures into device->costs; fits may be NULL. 0 without measuring when the
 * device runs in virtual time (fits are then zero). -ENOMEM: not even one page
 * can be pinned; other errors of register, attach and post. device->costs is
 * unchanged then. */
int pn_device_measure(struct pn_device *device, struct pn_measure_fits *fits);

/* The median of n > 0 samples, which it reorders. */
double pn_median(double *samples, size_t n);

#endif
