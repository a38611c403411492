/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * tag table -- a hash table of list links, keyed by peer, tag and space.
 *
 * An entry is a struct pn_list inside an object; key_of() gives the key of the
 * object. Entries with equal keys stay in the order in which they were added.
 * The number of buckets doubles with the number of entries, so that a lookup
 * costs the same with ten thousand entries as with one.
 *
 * `ignore` names bits of the tag that are no part of the key: entries and
 * lookups whose tags differ in these bits alone have equal keys.
 *
 * To remove an entry, call pn_list_remove() on its link, then
 * pn_tag_table_removed().
 *
 * A table of zeroes with a key_of is empty; the first entry allocates buckets.
 *
 * Threads: under the endpoint's lock.
 */
#ifndef PN_MESSAGE_MATCHING_TAG_TABLE_H
#define PN_MESSAGE_MATCHING_TAG_TABLE_H

#include <stdint.h>

#include "base/list.h"

struct pn_tag_key {
	const void *peer; /* NULL is a peer like any other */
	uint64_t tag;
	uint8_t space;
};

typedef struct pn_tag_key pn_tag_key_fn(const struct pn_list *link);

struct pn_tag_table {
	pn_tag_key_fn *key_of;
	uint64_t ignore;
	struct pn_list *buckets;
	uint32_t nbuckets; /* a power of two; 0: not allocated yet */
	uint32_t n;
};

static inline void pn_tag_table_init(struct pn_tag_table *table,
				     pn_tag_key_fn *key_of)
{
	*table = (struct pn_tag_table){ .key_of = key_of };
}

/* -ENOMEM. */
int pn_tag_table_add(struct pn_tag_table *table, struct pn_list *link);

/* Adds an entry right behind another one with an equal key. */
static inline void pn_tag_table_add_behind(struct pn_tag_table *table,
					   struct pn_list *behind,
					   struct pn_list *link)
{
	pn_list_insert(behind, link);
	table->n++;
}

/* The oldest entry with that key, or NULL. The entry stays in the table. */
struct pn_list *pn_tag_table_find(const struct pn_tag_table *table,
				  struct pn_tag_key key);

/* The next entry with the same key, or NULL. */
struct pn_list *pn_tag_table_next(const struct pn_tag_table *table,
				  const struct pn_list *link);

/* The caller has removed one entry. */
static inline void pn_tag_table_removed(struct pn_tag_table *table)
{
	table->n--;
}

/* Any entry, for removing all; NULL: the table is empty. */
struct pn_list *pn_tag_table_any(const struct pn_tag_table *table);

/* Forgets all entries, without touching them, and changes `ignore`. Keeps the
 * buckets: adding as many entries again does not fail. */
void pn_tag_table_clear(struct pn_tag_table *table, uint64_t ignore);

/* Frees the buckets. Entries are not touched. */
void pn_tag_table_fini(struct pn_tag_table *table);

#endif
