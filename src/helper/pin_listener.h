/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pin_listener -- records the program's pins as calls for the helper: the
 * program transfers by itself what it pins. A pin counts as the begin of a
 * transfer, its unpin as the end.
 *
 * Between the two, the record of the transfer (struct pn_call) is in a hash
 * table, by the pin's slot in the cache: no other pin uses that slot until the
 * unpin. Buffers below the helper's threshold have no record.
 * Threads: any. The lock protects the table and is held for a few instructions.
 */
#ifndef PN_HELPER_PIN_LISTENER_H
#define PN_HELPER_PIN_LISTENER_H

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

/* From now on each pin of the cache is recorded as a call. -ENOMEM. */
int pn_helper_pins_open(struct pn_helper *helper, struct pn_cache *cache,
			struct pn_helper_pins **out);

/* To be called before the helper is closed, while no thread pins. Frees the
 * records of pins that were never unpinned. NULL is fine. */
void pn_helper_pins_close(struct pn_helper_pins *pins);

#endif
