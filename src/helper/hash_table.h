/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * table -- a hash table of things that have a 64-bit key.
 *
 * The key is a hash already, made to be unique (pn_hash_mix()). Things embed
 * a pn_hash_entry; buckets are short, since the table doubles when it is full.
 * Threads: the caller's.
 */
#ifndef PN_HELPER_HASH_TABLE_H
#define PN_HELPER_HASH_TABLE_H

#include <stddef.h>
#include <stdint.h>

struct pn_hash_entry {
	uint64_t key;
	struct pn_hash_entry *next; /* in its chain */
};

struct pn_hash_table {
	struct pn_hash_entry **buckets;
	size_t nbuckets; /* a power of two */
	size_t n;
};

/* -ENOMEM. */
int pn_hash_table_init(struct pn_hash_table *table);
void pn_hash_table_fini(
	struct pn_hash_table *table); /* the things are the caller's */

/* NULL: none. */
struct pn_hash_entry *pn_hash_table_find(const struct pn_hash_table *table,
					 uint64_t key);

/* entry->key is set and not yet in the table. */
void pn_hash_table_add(struct pn_hash_table *table,
		       struct pn_hash_entry *entry);
void pn_hash_table_remove(struct pn_hash_table *table,
			  struct pn_hash_entry *entry);

/* Folds another word into a key; 0 begins one. Two rounds of multiply and
 * shift: every bit of both reaches every bit of the result. */
static inline uint64_t pn_hash_mix(uint64_t key, uint64_t word)
{
	key = (key ^ word) + UINT64_C(0x9e3779b97f4a7c15);
	key = (key ^ key >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	key = (key ^ key >> 27) * UINT64_C(0x94d049bb133111eb);
	return key ^ key >> 31;
}

#endif
