/* SPDX-License-Identifier: BSD-2-Clause */
#include "helper/hash_table.h"

#include <errno.h>
#include <stdlib.h>

#define FIRST_NBUCKETS 64

static struct pn_hash_entry **bucket_of(const struct pn_hash_table *table,
					uint64_t key)
{
	return &table->buckets[key & (table->nbuckets - 1)];
}

int pn_hash_table_init(struct pn_hash_table *table)
{
	table->buckets = calloc(FIRST_NBUCKETS, sizeof(struct pn_hash_entry *));
	table->nbuckets = FIRST_NBUCKETS;
	table->n = 0;
	return table->buckets ? 0 : -ENOMEM;
}

void pn_hash_table_fini(struct pn_hash_table *table)
{
	free(table->buckets);
}

struct pn_hash_entry *pn_hash_table_find(const struct pn_hash_table *table,
					 uint64_t key)
{
	struct pn_hash_entry *entry = *bucket_of(table, key);

	while (entry && entry->key != key)
		entry = entry->next;
	return entry;
}

static void insert(struct pn_hash_table *table, struct pn_hash_entry *entry)
{
	struct pn_hash_entry **bucket = bucket_of(table, entry->key);

	entry->next = *bucket;
	*bucket = entry;
}

/* Without memory the buckets get longer. */
static void grow(struct pn_hash_table *table)
{
	struct pn_hash_table wider = { .nbuckets = 2 * table->nbuckets };

	wider.buckets = calloc(wider.nbuckets, sizeof(struct pn_hash_entry *));
	if (!wider.buckets)
		return;
	for (size_t i = 0; i < table->nbuckets; i++) {
		struct pn_hash_entry *next, *entry = table->buckets[i];

		for (; entry; entry = next) {
			next = entry->next;
			insert(&wider, entry);
		}
	}
	free(table->buckets);
	table->buckets = wider.buckets;
	table->nbuckets = wider.nbuckets;
}

void pn_hash_table_add(struct pn_hash_table *table, struct pn_hash_entry *entry)
{
	if (table->n++ == table->nbuckets)
		grow(table);
	insert(table, entry);
}

void pn_hash_table_remove(struct pn_hash_table *table,
			  struct pn_hash_entry *entry)
{
	struct pn_hash_entry **at = bucket_of(table, entry->key);

	while (*at != entry)
		at = &(*at)->next;
	*at = entry->next;
	table->n--;
}
