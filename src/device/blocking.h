/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * step -- a device used one step at a time: do a thing, wait for its end.
 *
 * For measuring, tools and tests, where nothing else happens on the device.
 * Engine code never waits like this: it posts, and polls in one place. What
 * the device has to say besides what a step waits for is dropped (messages
 * are released), except that a peer going down ends the step with its status.
 * A step that takes longer than PN_BLOCKING_TIMEOUT_NS of the device's time
 * gives up with -ETIMEDOUT. After a step that failed, earlier operations may
 * still be in flight and their completions still to come: close the device.
 * Threads: one at a time per device.
 */
#ifndef PN_DEVICE_BLOCKING_H
#define PN_DEVICE_BLOCKING_H

#include "base/clock.h"
#include "device/device.h"

#define PN_BLOCKING_TIMEOUT_NS (10 * PN_NS_PER_S)

/* Posts op, again as long as the queue is full or the peer still connecting:
 * a peer can be used right after pn_device_attach(). */
int pn_blocking_post(struct pn_device *device, struct pn_peer *peer,
		     const struct pn_op *op);

/* Waits for the next completion of this kind and returns its status. A message
 * (RECV) is the caller's to release. */
int pn_blocking_poll(struct pn_device *device, enum pn_completion_kind kind,
		     struct pn_completion *out);

/* Moves len bytes between local memory and a peer's, in operations as large
 * as the device allows, `depth` of them in flight; waits for all. kind is
 * PN_OP_WRITE or PN_OP_READ. */
struct pn_blocking_transfer {
	enum pn_op_kind kind;
	struct pn_peer *peer;
	char *local;
	uint64_t lkey;
	uint64_t remote_addr, rkey;
	size_t len;
	unsigned times; /* the whole move this often; 0 means 1 */
	unsigned depth; /* 0: as deep as the device's queue */
};

int pn_blocking_transfer(struct pn_device *device,
			 const struct pn_blocking_transfer *move);

#endif
