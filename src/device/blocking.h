/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * blocking -- blocking operations on a device: post and wait for the end.
 *
 * For measuring, tools and tests, where nothing else uses the device. The
 * layers above never wait like this: they post, and poll in one place. A
 * blocking call drops completions other than those it waits for (it returns the
 * buffers of messages), except that a peer going down ends the call with the
 * peer's status.
 * A call that takes longer than PN_BLOCKING_TIMEOUT_NS of the device's time
 * returns -ETIMEDOUT.
 * After a call that failed, earlier operations may still be in flight and their
 * completions still to come: close the device.
 * Threads: one at a time per device.
 */
#ifndef PN_DEVICE_BLOCKING_H
#define PN_DEVICE_BLOCKING_H

#include "base/clock.h"
#include "device/device.h"

#define PN_BLOCKING_TIMEOUT_NS (10 * PN_NS_PER_S)

/* Posts op, again while the queue is full or the peer still connecting: a peer
 * can be used right after pn_device_attach(). */
int pn_blocking_post(struct pn_device *device, struct pn_peer *peer,
		     const struct pn_op *op);

/* Waits for the next completion of this kind and returns its status. The caller
 * returns the buffer of a message (RECV). */
int pn_blocking_poll(struct pn_device *device, enum pn_completion_kind kind,
		     struct pn_completion *out);

/* Moves len bytes between local memory and a peer's memory, in operations as
 * large as the device allows, with `depth` of them in flight; waits for all.
 * kind is PN_OP_WRITE or PN_OP_READ. */
struct pn_blocking_transfer {
	enum pn_op_kind kind;
	struct pn_peer *peer;
	char *local;
	uint64_t lkey;
	uint64_t remote_addr, rkey;
	size_t len;
	unsigned times; /* repetitions of the whole transfer; 0 means 1 */
	unsigned depth; /* 0: the device's queue depth */
};

int pn_blocking_transfer(struct pn_device *device,
			 const struct pn_blocking_transfer *move);

#endif
