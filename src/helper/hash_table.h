/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * hash_table -- objects by a 64-bit key.
 *
 * The key is itself a hash of what identifies the object (pn_hash_mix()), so
 * two objects with equal keys are taken for the same. An object embeds a struct
 * pn_hash_entry. The number of buckets doubles when there is one object for
 * each.
 * Threads: the caller's.
 */
#ifndef PN_HELPER_HASH_TABLE_H
#define PN_HELPER_HASH_TABLE_H

#include <stddef.h>
#include <stdint.h>

struct pn_hash_entry {
	uint64_t key;
	struct pn_hash_entry *next; /* in the same bucket */
};

struct pn_hash_table {
	struct pn_hash_entry **buckets;
	size_t nbuckets; /* a power of two */
	size_t n;
};

/* -ENOMEM. */
int pn_hash_table_init(struct pn_hash_table *table);
/* The objects stay the caller's. */
void pn_hash_table_fini(struct pn_hash_table *table);

/* NULL: none. */
struct pn_hash_entry *pn_hash_table_find(const struct pn_hash_table *table,
					 uint64_t key);

/* entry->key is set, and no entry of the table has it. */
void pn_hash_table_add(struct pn_hash_table *table,
		       struct pn_hash_entry *entry);
void pn_hash_table_remove(struct pn_hash_table *table,
			  struct pn_hash_entry *entry);

/* Adds a word to a key; 0 is the key of no words. Two rounds of multiply and
 * shift: every bit of key and word reaches every bit of the result. */
static inline uint64_t pn_hash_mix(uint64_t key, uint64_t word)
{
	key = (key ^ word) + UINT64_C(0x9e3779b97f4a7c15);
	key = (key ^ key >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	key = (key ^ key >> 27) * UINT64_C(0x94d049bb133111eb);
	return key ^ key >> 31;
}

#endif
