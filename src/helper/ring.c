/* SPDX-License-Identifier: BSD-2-Clause */
#include "helper/ring.h"

#include <string.h>

void pn_ring_put(struct pn_ring *ring, const struct pn_call *call)
{
	uint64_t n = atomic_load_explicit(&ring->head, memory_order_relaxed);
	struct pn_ring_slot *slot = &ring->slots[n % PN_RING_SLOTS];
	uint64_t words[PN_CALL_WORDS];

	memcpy(words, call, sizeof(words));
	atomic_store_explicit(&slot->number, 0, memory_order_relaxed);
	/* Release: a reader that sees one of the new words sees the 0, too. */
	for (size_t i = 0; i < PN_CALL_WORDS; i++)
		atomic_store_explicit(&slot->words[i], words[i],
				      memory_order_release);
	atomic_store_explicit(&slot->number, n + 1, memory_order_release);
	/* Sequentially consistent: after this the writer reads whether the
	 * reader sleeps; the reader first says that it sleeps, then reads
	 * this (loop.c). */
	atomic_store(&ring->head, n + 1);
}

/* Copies record n; false: the writer has overwritten it, or does so now. */
static bool copy_out(struct pn_ring *ring, uint64_t n, struct pn_call *call)
{
	struct pn_ring_slot *slot = &ring->slots[n % PN_RING_SLOTS];
	uint64_t words[PN_CALL_WORDS];

	if (atomic_load_explicit(&slot->number, memory_order_acquire) != n + 1)
		return false;
	/* Acquire: the second load of `number` comes after them. */
	for (size_t i = 0; i < PN_CALL_WORDS; i++)
		words[i] = atomic_load_explicit(&slot->words[i],
						memory_order_acquire);
	if (atomic_load_explicit(&slot->number, memory_order_relaxed) != n + 1)
		return false;
	memcpy(call, words, sizeof(words));
	return true;
}

bool pn_ring_take(struct pn_ring *ring, struct pn_call *call, uint64_t *lost)
{
	for (;;) {
		uint64_t head = atomic_load(&ring->head);

		if (head == ring->tail)
			return false;
		if (head - ring->tail > PN_RING_SLOTS) {
			*lost += head - PN_RING_SLOTS - ring->tail;
			ring->tail = head - PN_RING_SLOTS;
		}
		if (copy_out(ring, ring->tail++, call))
			return true;
		++*lost;
	}
}
