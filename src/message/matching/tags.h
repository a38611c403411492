/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * tags -- things of a peer found by their tag, the oldest first.
 *
 * Chains of list links that the things bring along; whoever calls says how to
 * get from a link to the tag and the peer. The number of buckets doubles as
 * there are more things, so that thousands outstanding cost no more than one.
 * Taking a thing out is pn_list_remove() of its link and
 * pn_tag_table_removed().
 *
 * Threads: under the endpoint's lock.
 */
#ifndef PN_MESSAGE_TAGS_H
#define PN_MESSAGE_TAGS_H

#include <stdint.h>

#include "base/list.h"

struct pn_tag_key {
	const void *peer;
	uint64_t tag;
};

typedef struct pn_tag_key pn_tag_key_fn(const struct pn_list *link);

struct pn_tag_table {
	pn_tag_key_fn *key_of;
	struct pn_list *buckets;
	uint32_t nbuckets; /* a power of two */
	uint32_t n;
};

/* -ENOMEM. */
int pn_tag_table_init(struct pn_tag_table *tags, pn_tag_key_fn *key_of);

/* -ENOMEM. */
int pn_tag_table_add(struct pn_tag_table *tags, struct pn_list *link);

/* The oldest with that tag, still inside; NULL: none. */
struct pn_list *pn_tag_table_find(const struct pn_tag_table *tags,
				  struct pn_tag_key tag);

/* The next one with the same tag; NULL: none. */
struct pn_list *pn_tag_table_next(const struct pn_tag_table *tags,
				  const struct pn_list *link);

/* One was taken out. */
static inline void pn_tag_table_removed(struct pn_tag_table *tags)
{
	tags->n--;
}

/* Any one, for taking all out; NULL: empty. */
struct pn_list *pn_tag_table_any(const struct pn_tag_table *tags);

/* What is inside is forgotten. Fine before init, when all is zero. */
void pn_tag_table_fini(struct pn_tag_table *tags);

#endif
