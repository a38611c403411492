/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ring -- records of calls, from the thread that makes them to the helper: the
 * paper's deregistration queue (H2).
 *
 * One thread writes, one reads, neither waits. The writer overwrites what the
 * reader has not taken in time: a program that transfers that fast gives no
 * time to register in between, so skipping loses nothing. Records hold no
 * reference to anything.
 *
 * A slot carries the number of its record + 1 once it can be read and 0 while
 * it is written; the reader copies, then looks whether the number is still the
 * same. All words are atomic, so that a torn copy is only discarded, not
 * undefined.
 * Orders: the writer's release of `number` pairs with the reader's acquire;
 * the writer's store of 0 comes before its words by a release fence in each
 * word's store, the reader's second look after them by acquire loads.
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
	uint64_t tail;	       /* records taken or skipped: the reader's */
	struct pn_ring_slot slots[PN_RING_SLOTS];
};

/* The writer. */
void pn_ring_put(struct pn_ring *ring, const struct pn_call *call);

/* The reader: false when there is none. Adds what it had to skip to *lost. */
bool pn_ring_take(struct pn_ring *ring, struct pn_call *call, uint64_t *lost);

/* The reader: whether there is one. */
static inline bool pn_ring_any(struct pn_ring *ring)
{
	return atomic_load(&ring->head) != ring->tail;
}

#endif
