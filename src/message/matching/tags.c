/* SPDX-License-Identifier: BSD-2-Clause */
#include "message/matching/tags.h"

#include <errno.h>
#include <stdlib.h>

static struct pn_list *bucket_of(const struct pn_tag_table *tags,
				 struct pn_tag_key tag)
{
	uint64_t x = (tag.tag ^ (uintptr_t)tag.peer >> 4) *
		     UINT64_C(0x9e3779b97f4a7c15);

	return &tags->buckets[x >> 32 & (tags->nbuckets - 1)];
}

static int alloc_buckets(struct pn_tag_table *tags, uint32_t n)
{
	tags->buckets = malloc(n * sizeof(*tags->buckets));
	if (!tags->buckets)
		return -ENOMEM;
	tags->nbuckets = n;
	for (uint32_t i = 0; i < n; i++)
		pn_list_init(&tags->buckets[i]);
	return 0;
}

int pn_tag_table_init(struct pn_tag_table *tags, pn_tag_key_fn *key_of)
{
	*tags = (struct pn_tag_table){ .key_of = key_of };
	return alloc_buckets(tags, 64);
}

/* Things of one tag stay in order: they lie in one bucket before and after. */
static int grow(struct pn_tag_table *tags)
{
	struct pn_tag_table wider = { .key_of = tags->key_of, .n = tags->n };
	struct pn_list *link;
	int ret = alloc_buckets(&wider, 2 * tags->nbuckets);

	if (ret)
		return ret;
	for (uint32_t i = 0; i < tags->nbuckets; i++)
		while ((link = pn_list_pop(&tags->buckets[i])))
			pn_list_append(bucket_of(&wider, tags->key_of(link)),
				       link);
	free(tags->buckets);
	*tags = wider;
	return 0;
}

int pn_tag_table_add(struct pn_tag_table *tags, struct pn_list *link)
{
	int ret = tags->n == tags->nbuckets ? grow(tags) : 0;

	if (ret)
		return ret;
	pn_list_append(bucket_of(tags, tags->key_of(link)), link);
	tags->n++;
	return 0;
}

/* From behind `at`, to the end of the bucket. */
static struct pn_list *search(const struct pn_tag_table *tags,
			      const struct pn_list *at, struct pn_tag_key tag)
{
	const struct pn_list *bucket = bucket_of(tags, tag);

	for (struct pn_list *pos = at->next; pos != bucket; pos = pos->next) {
		struct pn_tag_key other = tags->key_of(pos);

		if (other.peer == tag.peer && other.tag == tag.tag)
			return pos;
	}
	return NULL;
}

struct pn_list *pn_tag_table_find(const struct pn_tag_table *tags,
				  struct pn_tag_key tag)
{
	return tags->n ? search(tags, bucket_of(tags, tag), tag) : NULL;
}

struct pn_list *pn_tag_table_next(const struct pn_tag_table *tags,
				  const struct pn_list *link)
{
	return search(tags, link, tags->key_of(link));
}

struct pn_list *pn_tag_table_any(const struct pn_tag_table *tags)
{
	for (uint32_t i = 0; tags->n && i < tags->nbuckets; i++)
		if (!pn_list_empty(&tags->buckets[i]))
			return tags->buckets[i].next;
	return NULL;
}

void pn_tag_table_fini(struct pn_tag_table *tags)
{
	free(tags->buckets);
	*tags = (struct pn_tag_table){ 0 };
}
