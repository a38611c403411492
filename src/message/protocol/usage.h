/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * usage -- which small buffers have been used, and how much (paper Reuse,
 * section 3.3.3).
 *
 * Nouns
 *   entry   a buffer, by its address: two lengths at one address are one
 *           buffer, since one registration serves both.
 *   bucket  where entries whose address has one hash hang, as a chain. There
 *           are 2^20, and the hash is multiplicative: the paper's choice, with
 *           which a search takes the same from ten buffers to hundreds of
 *           thousands. `pinion bench reuse` compares with a balanced tree.
 *   credit  what an entry's uses are worth, in parts of PN_USAGE_ONE: each adds
 *           the share of a registration that it would have paid for (reuse.h).
 *
 * Life: an entry is added, or takes the place of one that has not been used
 * since the hand last came by (second chance), and is never removed otherwise:
 * a registration that is gone is seen at the next use, and until then an entry
 * is 24 bytes.
 *
 * At rest: every entry hangs in the chain of its bucket once; nchained counts
 * those beyond the first of a bucket, nfrequent the frequent ones.
 *
 * Memory is taken as the table fills: address space for all of it when the
 * first entry is added, pages when they are touched. 4 MiB of buckets and
 * 24 MiB of entries are the most.
 *
 * Threads: the caller's lock. Nothing here calls anybody.
 */
#ifndef PN_MESSAGE_USAGE_H
#define PN_MESSAGE_USAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

#define PN_USAGE_BITS 20 /* of the hash */
#define PN_USAGE_MAX  ((uint32_t)1 << 20)
#define PN_USAGE_ONE  ((uint32_t)1 << 31)

struct pn_usage_entry {
	uintptr_t addr;
	uint32_t next; /* in its chain; 0: the last */
	uint32_t credit;
	uint32_t served; /* uses of its registration */
	uint8_t penalty; /* its uses count 2^penalty times less */
	bool frequent;	 /* was found worth registering */
	bool used;	 /* since the hand came by */
};

/* Zero is fine at birth. */
struct pn_usage {
	uint32_t *buckets; /* the first entry's number; NULL: nothing yet */
	struct pn_usage_entry *entries; /* from 1 on */
	uint32_t nentries, nchained, nfrequent;
	uint32_t hand;
};

void pn_usage_fini(struct pn_usage *usage);

/* Linux's hash for buffer addresses: the high bits of a product. */
static inline uint32_t pn_usage_bucket(uintptr_t addr)
{
	return (uint32_t)(addr * UINT64_C(0x9e3779b97f4a7c15) >>
			  (64 - PN_USAGE_BITS));
}

/* The entry of a buffer, or NULL. */
static inline struct pn_usage_entry *pn_usage_find(const struct pn_usage *usage,
						   uintptr_t addr)
{
	uint32_t i;

	if (pn_unlikely(!usage->buckets))
		return NULL;
	for (i = usage->buckets[pn_usage_bucket(addr)]; i;
	     i = usage->entries[i].next)
		if (usage->entries[i].addr == addr)
			return &usage->entries[i];
	return NULL;
}

/* Adds a buffer that is not there. NULL: PN_USAGE_MAX are, or no memory. */
struct pn_usage_entry *pn_usage_add(struct pn_usage *usage, uintptr_t addr);

/* The same in the place of another. NULL: the next few have all been used. */
struct pn_usage_entry *pn_usage_replace(struct pn_usage *usage, uintptr_t addr);

static inline void pn_usage_mark(struct pn_usage *usage,
				 struct pn_usage_entry *entry, bool frequent)
{
	usage->nfrequent += frequent;
	usage->nfrequent -= entry->frequent;
	entry->frequent = frequent;
}

/* Checks what holds at rest; asserts. For tests, slow. */
void pn_usage_check(const struct pn_usage *usage);

#endif
