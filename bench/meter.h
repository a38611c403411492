/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * meter -- measures the registered memory over time of one or several devices,
 * of one simulation or of one process.
 *
 * A meter replaces the register and deregister calls of its devices: bytes
 * count from the beginning of a registration to the end of its deregistration.
 * A meter may also count into another one: that of a process into that of its
 * machine.
 * Threads: any register and deregister; one starts, stops and attaches.
 */
#ifndef PN_BENCH_METER_H
#define PN_BENCH_METER_H

#include <stddef.h>
#include <stdint.h>

#include "bench/series.h"
#include "device/device.h"

struct pn_metered {
	size_t peak_bytes;
	double mean_bytes; /* mean between start and stop */
};

struct pn_meter {
	size_t bytes;
	uint64_t start_ns, since_ns;
	double byte_ns;
	struct pn_metered metered;
	struct pn_series series; /* bytes over time */
	struct pn_meter *into;	 /* also counts there; may be NULL */
	/* Called whenever the bytes have changed; may be NULL. */
	void (*changed)(void *arg, uint64_t since_start_ns, size_t bytes);
	void *arg;
};

/* Starts measuring, beginning with the currently registered bytes. Does not
 * change `into` and `changed`. */
void pn_meter_start(struct pn_meter *meter, uint64_t now_ns);

/* The device counts for the meter until it is closed. -ENOMEM. */
int pn_meter_attach(struct pn_meter *meter, struct pn_device *device);
void pn_meter_detach(struct pn_device *device);

void pn_meter_stop(struct pn_meter *meter, uint64_t now_ns);

#endif
