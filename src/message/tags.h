/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * tags -- things of a peer found by their tag, the oldest first.
 *
 * Chains of list links that the things bring along; whoever calls says how to
 * get from a link to the tag and the peer. The number of chains doubles as
 * there are more things, so that thousands outstanding cost no more than one.
 * Taking a thing out is pn_list_remove() of its link and pn_tags_forget().
 *
 * Threads: under the endpoint's lock.
 */
#ifndef PN_MESSAGE_TAGS_H
#define PN_MESSAGE_TAGS_H

#include <stdint.h>

#include "base/list.h"

struct pn_tag {
	const void *peer;
	uint64_t tag;
};

typedef struct pn_tag pn_tag_fn(const struct pn_list *link);

struct pn_tags {
	pn_tag_fn *tag_of;
	struct pn_list *chains;
	uint32_t nchains; /* a power of two */
	uint32_t n;
};

/* -ENOMEM. */
int pn_tags_init(struct pn_tags *tags, pn_tag_fn *tag_of);

/* -ENOMEM. */
int pn_tags_add(struct pn_tags *tags, struct pn_list *link);

/* The oldest with that tag, still inside; NULL: none. */
struct pn_list *pn_tags_find(const struct pn_tags *tags, struct pn_tag tag);

/* The next one with the same tag; NULL: none. */
struct pn_list *pn_tags_after(const struct pn_tags *tags,
			      const struct pn_list *link);

/* One was taken out. */
static inline void pn_tags_forget(struct pn_tags *tags)
{
	tags->n--;
}

/* Any one, for taking all out; NULL: empty. */
struct pn_list *pn_tags_any(const struct pn_tags *tags);

/* What is inside is forgotten. Fine before init, when all is zero. */
void pn_tags_fini(struct pn_tags *tags);

#endif
