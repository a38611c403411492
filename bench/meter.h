/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * meter -- how much memory is registered, over time, on one or several devices
 * of one world.
 *
 * It stands between the devices and those who register: bytes count from the
 * beginning of a registration to the end of its deregistration. A meter may
 * count into another: that of a process into that of its machine.
 * Threads: one; the devices are of one world.
 */
#ifndef PN_BENCH_METER_H
#define PN_BENCH_METER_H

#include <stddef.h>
#include <stdint.h>

#include "bench/series.h"
#include "device/device.h"

struct pn_metered {
	size_t peak_bytes;
	double mean_bytes; /* over the time between start and stop */
};

struct pn_meter {
	size_t bytes;
	uint64_t start_ns, since_ns;
	double byte_ns;
	struct pn_metered metered;
	struct pn_series series; /* bytes over time */
	struct pn_meter *into;	 /* NULL: no other */
	/* Told whenever the bytes have changed; NULL: nobody. */
	void (*changed)(void *arg, uint64_t since_start_ns, size_t bytes);
	void *arg;
};

/* Measures what is registered from now on, on top of what is. Leaves `into`
 * and who is told as they are. */
void pn_meter_start(struct pn_meter *meter, uint64_t now_ns);

/* A device counts for the meter until it is closed. -ENOMEM. */
int pn_meter_attach(struct pn_meter *meter, struct pn_device *device);
void pn_meter_detach(struct pn_device *device);

void pn_meter_stop(struct pn_meter *meter, uint64_t now_ns);

#endif
