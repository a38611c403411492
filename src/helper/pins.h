/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pins -- feeds the helper from pins, where the program transfers by itself: a
 * pin is a transfer that begins, its unpin is one that is over.
 *
 * A transfer's record (struct pn_call) waits in a table between the two, found
 * by the pin's slot, which no other pin has meanwhile. Short buffers have none.
 *
 * Threads: any. The lock is of the table, and held for a few instructions.
 */
#ifndef PN_HELPER_PINS_H
#define PN_HELPER_PINS_H

#include "base/list.h"
#include "base/lock.h"
#include "cache/cache.h"

struct pn_helper;

#define PN_PINNED_LISTS 1024 /* a power of two */

struct pn_helper_pins {
	struct pn_pin_listener listener;
	struct pn_helper *helper;
	struct pn_cache *cache;
	struct pn_mutex lock; /* protects the lists */
	struct pn_list lists[PN_PINNED_LISTS];
};

/* From here on the cache's pins are the helper's records. -ENOMEM. */
int pn_helper_pins_open(struct pn_helper *helper, struct pn_cache *cache,
			struct pn_helper_pins **out);

/* Before the helper is closed; nobody pins. Records of pins that were never
 * unpinned go. NULL is fine. */
void pn_helper_pins_close(struct pn_helper_pins *pins);

#endif
