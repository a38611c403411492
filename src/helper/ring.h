/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ring -- records of calls, from the thread that makes them to the helper: the
 * deregistration queue of the paper that helper.h names.
 *
 * One thread writes, one reads, neither waits. The writer overwrites records
 * that the reader has not taken in time. A program that transfers so fast
 * leaves no time to deregister and register in between, so the loss does not
 * matter. Records hold no reference to anything.
 *
 * A slot carries the number of its record + 1 when it can be read and 0 while
 * it is written. The reader copies the record, then looks whether the number is
 * still the same. All words are atomic, so that a torn copy is discarded, not
 * undefined.
 * Orders: the writer's release store of `number` pairs with the reader's first
 * acquire load of it. The writer's store of 0 comes before its words because
 * each word is a release store; the reader's second load of `number` comes
 * after the words because each word is an acquire load.
 */
#ifndef PN_HELPER_RING_H
#define PN_HELPER_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "helper/site.h"

#define PN_RING_SLOTS 64 /* a power of two */
#define PN_CALL_WORDS (sizeof(struct pn_call) / sizeof(uint64_t))

_Static_assert(sizeof(struct pn_call) % sizeof(uint64_t) == 0, "whole words");

struct pn_ring_slot {
	_Atomic uint64_t number;
	_Atomic uint64_t words[PN_CALL_WORDS];
};

struct pn_ring {
	_Atomic uint64_t head; /* records written */
	uint64_t tail;	       /* records taken or lost; the reader's alone */
	struct pn_ring_slot slots[PN_RING_SLOTS];
};

/* For the writer. */
void pn_ring_put(struct pn_ring *ring, const struct pn_call *call);

/* For the reader; false: the ring is empty. Adds the number of records that
 * were overwritten to *lost. */
bool pn_ring_take(struct pn_ring *ring, struct pn_call *call, uint64_t *lost);

/* For the reader: whether there is a record. */
static inline bool pn_ring_any(struct pn_ring *ring)
{
	return atomic_load(&ring->head) != ring->tail;
}

#endif
