/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * path -- how the local buffer of a put or get reaches the device: the one
 * place that decides it.
 *
 *   INLINE   the device takes the bytes while it posts (puts)
 *   LANDED   through a bounce buffer that is registered already
 *   PINNED   straight from the buffer, registered through the cache
 *   PACKETS  not by RDMA at all: conditional writes whose target has no room
 *
 * The first two copy, the third may register. Up to PN_PATH_SMALL bytes a copy
 * is always cheaper than looking for a registration. Beyond, a buffer that is
 * cached is used as it is, unless the device takes it inline. Whether another
 * will come again is not known when it is first seen: it is copied until it has
 * been used so often that a registration is worth it (reuse.h). For what is not
 * small that is when the copies have cost as much as registering would have
 * (the ski-rental rule: never more than twice what one who knew the future
 * would pay).
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

/* How [buf, buf + len) goes to the device; write: the buffer is read by it. May
 * let others run. */
enum pn_path pn_path_choose(struct pn_reuse *reuse,
			    const struct pn_device *device, const void *buf,
			    size_t len, bool write);

/* Whether the device takes so much inline. */
static inline bool pn_path_inlines(const struct pn_device *device, size_t len)
{
	return len <= device->limits.inline_bytes && len <= PN_PATH_INLINE_MAX;
}

#endif
