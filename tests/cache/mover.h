/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * mover -- moves the bytes of a pinned buffer through its keys, over the
 * loopback peer of its device, to and from a scratch buffer of its own.
 *
 * This is what tests call using a pin: a key that is stale, dead or short of
 * access shows in the status (`sim`) or in the bytes (`soft`).
 *
 * Threads: one at a time.
 */
#ifndef PN_TESTS_CACHE_MOVER_H
#define PN_TESTS_CACHE_MOVER_H

#include <stdbool.h>
#include <stddef.h>

#include <pinion/cache.h>

#include "device/device.h"

enum mover_direction {
	MOVER_LOCAL_OUT,  /* the buffer is the source, by its local key */
	MOVER_LOCAL_IN,	  /* a get into the buffer, by its local key */
	MOVER_REMOTE_IN,  /* a peer's put, by the remote key */
	MOVER_REMOTE_OUT, /* a peer's get, by the remote key */
	MOVER_NWAYS,
};

struct mover {
	struct pn_device *device;
	struct pn_peer *peer;
	struct pn_mr mr; /* of the scratch buffer */
	unsigned char *scratch;
	size_t len;
	unsigned char stamp; /* changes with every move */
};

/* Up to len bytes at a time. 0 or negative errno. */
int mover_open(struct mover *mover, struct pn_device *device, size_t len);
void mover_close(struct mover *mover);

/* Moves len bytes at addr and compares them at the other end.
 * The status of the operation; -EILSEQ: other bytes arrived. */
int mover_move(struct mover *mover, enum mover_direction direction,
	       const struct pinion_pin_segment *segment);

/* Whether a pin with these flags can be moved in that direction. */
bool mover_may(unsigned flags, enum mover_direction direction);

/* A peer's put into every segment of a pin. Errors as above. */
int mover_put(struct mover *mover, const struct pinion_pin *pin);

#endif
