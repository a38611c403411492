/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * path -- how the local buffer of a put or get reaches the device. The decision
 * is made here alone.
 *
 *   INLINE   the device copies the bytes while it posts (puts only)
 *   BOUNCED  through a bounce buffer, which is registered already
 *   PINNED   from the buffer itself, registered through the cache
 *   PACKETS  by DATA packets: conditional writes whose target is not pinned
 *
 * The first two copy, the third may register. Up to PN_PATH_SMALL bytes a copy
 * is always cheaper than a lookup. A longer buffer that is cached is used as it
 * is, unless the device takes it inline. A buffer that is not cached is copied
 * until it has been used so often that a registration pays (reuse.h): that is
 * when the copies have cost as much as a registration (the ski-rental rule: at
 * most twice the cost of the best choice in hindsight).
 *
 * Threads: under the endpoint's lock.
 */
#ifndef PN_MESSAGE_PATH_H
#define PN_MESSAGE_PATH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/device.h"

struct pn_reuse;

enum pn_path {
	PN_PATH_INLINE,
	PN_PATH_BOUNCED,
	PN_PATH_PINNED,
	PN_PATH_PACKETS,
};

#define PN_PATH_SMALL	   128
#define PN_PATH_INLINE_MAX 4096 /* beyond, devices do more than copy */

/* The path of [buf, buf + len); write: the device reads the buffer. May let
 * other tasks run. */
enum pn_path pn_path_choose(struct pn_reuse *reuse,
			    const struct pn_device *device, const void *buf,
			    size_t len, bool write);

/* Whether the device takes len bytes inline. */
static inline bool pn_path_inlines(const struct pn_device *device, size_t len)
{
	return len <= device->limits.inline_bytes && len <= PN_PATH_INLINE_MAX;
}

#endif
