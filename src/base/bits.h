/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * bits -- arrays of bits, in words of 64.
 *
 * The owner has the array, PN_BITS_WORDS(n) words for n bits. Nothing checks
 * bounds. Threads: the owner's lock.
 */
#ifndef PN_BASE_BITS_H
#define PN_BASE_BITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PN_BITS_WORDS(nbits) (((nbits) + 63) / 64)

static inline bool pn_bits_get(const uint64_t *words, size_t at)
{
	return words[at / 64] >> (at % 64) & 1;
}

/* The n bits from `at` on. */
static inline void pn_bits_set(uint64_t *words, size_t at, size_t n, bool set)
{
	for (size_t i = at; i < at + n; i++) {
		uint64_t bit = UINT64_C(1) << (i % 64);

		if (set)
			words[i / 64] |= bit;
		else
			words[i / 64] &= ~bit;
	}
}

#endif
