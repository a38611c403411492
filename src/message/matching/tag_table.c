/* SPDX-License-Identifier: BSD-2-Clause */
#include "message/matching/tag_table.h"

#include <errno.h>
#include <stdlib.h>

#define MIN_BUCKETS 64

/* Programs put ranks, communicators and counters into all parts of a tag, so
 * all bits count: a multiplication moves them up only, hence the folding. */
static struct pn_list *bucket_of(const struct pn_tag_table *table,
				 struct pn_tag_key key)
{
	uint64_t x = (key.tag & ~table->ignore) + key.space;

	x = (x ^ x >> 32) * UINT64_C(0x9e3779b97f4a7c15);
	x ^= x >> 32;
	x = (x + ((uintptr_t)key.peer >> 4)) * UINT64_C(0xbf58476d1ce4e5b9);
	return &table->buckets[x >> 32 & (table->nbuckets - 1)];
}

static void init_buckets(struct pn_tag_table *table)
{
	for (uint32_t i = 0; i < table->nbuckets; i++)
		pn_list_init(&table->buckets[i]);
}

static int alloc_buckets(struct pn_tag_table *table, uint32_t n)
{
	table->buckets = malloc(n * sizeof(*table->buckets));
	if (!table->buckets)
		return -ENOMEM;
	table->nbuckets = n;
	init_buckets(table);
	return 0;
}

/* Entries with equal keys stay in order: they are in one bucket before and
 * after. */
static int grow(struct pn_tag_table *table)
{
	struct pn_tag_table wider = *table;
	uint32_t n = table->nbuckets ? 2 * table->nbuckets : MIN_BUCKETS;
	struct pn_list *link;
	int ret = alloc_buckets(&wider, n);

	if (ret)
		return ret;
	for (uint32_t i = 0; i < table->nbuckets; i++)
		while ((link = pn_list_pop(&table->buckets[i])))
			pn_list_append(bucket_of(&wider, table->key_of(link)),
				       link);
	free(table->buckets);
	*table = wider;
	return 0;
}

int pn_tag_table_add(struct pn_tag_table *table, struct pn_list *link)
{
	int ret = table->n >= table->nbuckets ? grow(table) : 0;

	if (ret)
		return ret;
	pn_list_append(bucket_of(table, table->key_of(link)), link);
	table->n++;
	return 0;
}

static bool equal(const struct pn_tag_table *table, struct pn_tag_key a,
		  struct pn_tag_key b)
{
	return a.peer == b.peer && !((a.tag ^ b.tag) & ~table->ignore) &&
	       a.space == b.space;
}

/* Searches from behind `at` to the end of the bucket. */
static struct pn_list *search(const struct pn_tag_table *table,
			      const struct pn_list *at, struct pn_tag_key key)
{
	const struct pn_list *bucket = bucket_of(table, key);

	for (struct pn_list *pos = at->next; pos != bucket; pos = pos->next)
		if (equal(table, table->key_of(pos), key))
			return pos;
	return NULL;
}

struct pn_list *pn_tag_table_find(const struct pn_tag_table *table,
				  struct pn_tag_key key)
{
	return table->n ? search(table, bucket_of(table, key), key) : NULL;
}

struct pn_list *pn_tag_table_next(const struct pn_tag_table *table,
				  const struct pn_list *link)
{
	return search(table, link, table->key_of(link));
}

struct pn_list *pn_tag_table_any(const struct pn_tag_table *table)
{
	for (uint32_t i = 0; table->n && i < table->nbuckets; i++)
		if (!pn_list_empty(&table->buckets[i]))
			return table->buckets[i].next;
	return NULL;
}

void pn_tag_table_clear(struct pn_tag_table *table, uint64_t ignore)
{
	init_buckets(table);
	table->n = 0;
	table->ignore = ignore;
}

void pn_tag_table_fini(struct pn_tag_table *table)
{
	free(table->buckets);
	*table = (struct pn_tag_table){ .key_of = table->key_of };
}
