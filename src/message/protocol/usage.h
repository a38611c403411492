/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * usage -- the table of small buffers that have been used (Rashti and Afsahi
 * 2011, section 3.3.3). reuse.h decides by it.
 *
 * Nouns
 *   entry   a buffer, by its address. Two lengths at one address are one
 *           buffer, since one registration serves both.
 *   bucket  a chain of the entries whose addresses have the same hash. There
 *           are 2^20, and the hash is multiplicative: the paper's choice, with
 *           which a search takes the same time for ten buffers and for hundreds
 *           of thousands. `pinion bench reuse` compares it with a balanced
 *           tree.
 *   credit  what the uses of an entry are worth, in parts of PN_USAGE_ONE: each
 *           use adds the share of a registration that it would have paid for.
 *
 * Life: an entry is added, or replaces one that has not been used since the
 * clock hand last passed (second chance). An entry is not removed otherwise:
 * the next use shows that its registration is gone, and until then the entry
 * costs 24 bytes.
 *
 * At rest: every entry is in the chain of its bucket, once. nchained counts the
 * entries that are not the first of a bucket, nfrequent the frequent ones.
 *
 * Memory: address space for the whole table is mapped with the first entry;
 * pages are taken when they are touched. At most 4 MiB of buckets and 24 MiB of
 * entries.
 *
 * Threads: the caller's lock. Nothing here calls other modules.
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
	uint32_t next; /* in its chain; 0: the last one */
	uint32_t credit;
	uint32_t served; /* uses that its registration served */
	uint8_t penalty; /* its uses count 2^penalty times less */
	bool frequent;	 /* was worth registering */
	bool used;	 /* since the clock hand passed */
};

/* All zero is an empty table. */
struct pn_usage {
	uint32_t *buckets; /* index of the first entry; NULL: no entry yet */
	struct pn_usage_entry *entries; /* from 1 on */
	uint32_t nentries, nchained, nfrequent;
	uint32_t hand;
};

void pn_usage_fini(struct pn_usage *usage);

/* The multiplicative hash of Linux: the high bits of a product. */
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

/* Adds a buffer that has no entry. NULL: the table is full, or no memory. */
struct pn_usage_entry *pn_usage_add(struct pn_usage *usage, uintptr_t addr);

/* The same, replacing another. NULL: the next few have all been used. */
struct pn_usage_entry *pn_usage_replace(struct pn_usage *usage, uintptr_t addr);

static inline void pn_usage_mark(struct pn_usage *usage,
				 struct pn_usage_entry *entry, bool frequent)
{
	usage->nfrequent += frequent;
	usage->nfrequent -= entry->frequent;
	entry->frequent = frequent;
}

/* Asserts what holds at rest. For tests; slow. */
void pn_usage_check(const struct pn_usage *usage);

#endif
