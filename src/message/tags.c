/* SPDX-License-Identifier: BSD-2-Clause */
#include "message/tags.h"

#include <errno.h>
#include <stdlib.h>

static struct pn_list *chain_of(const struct pn_tags *tags, struct pn_tag tag)
{
	uint64_t x = (tag.tag ^ (uintptr_t)tag.peer >> 4) *
		     UINT64_C(0x9e3779b97f4a7c15);

	return &tags->chains[x >> 32 & (tags->nchains - 1)];
}

static int open_chains(struct pn_tags *tags, uint32_t n)
{
	tags->chains = malloc(n * sizeof(*tags->chains));
	if (!tags->chains)
		return -ENOMEM;
	tags->nchains = n;
	for (uint32_t i = 0; i < n; i++)
		pn_list_init(&tags->chains[i]);
	return 0;
}

int pn_tags_init(struct pn_tags *tags, pn_tag_fn *tag_of)
{
	*tags = (struct pn_tags){ .tag_of = tag_of };
	return open_chains(tags, 64);
}

/* Things of one tag stay in order: they lie in one chain before and after. */
static int grow(struct pn_tags *tags)
{
	struct pn_tags wider = { .tag_of = tags->tag_of, .n = tags->n };
	struct pn_list *link;
	int ret = open_chains(&wider, 2 * tags->nchains);

	if (ret)
		return ret;
	for (uint32_t i = 0; i < tags->nchains; i++)
		while ((link = pn_list_pop(&tags->chains[i])))
			pn_list_append(chain_of(&wider, tags->tag_of(link)),
				       link);
	free(tags->chains);
	*tags = wider;
	return 0;
}

int pn_tags_add(struct pn_tags *tags, struct pn_list *link)
{
	int ret = tags->n == tags->nchains ? grow(tags) : 0;

	if (ret)
		return ret;
	pn_list_append(chain_of(tags, tags->tag_of(link)), link);
	tags->n++;
	return 0;
}

/* From behind `at`, to the end of the chain. */
static struct pn_list *search(const struct pn_tags *tags,
			      const struct pn_list *at, struct pn_tag tag)
{
	const struct pn_list *chain = chain_of(tags, tag);

	for (struct pn_list *pos = at->next; pos != chain; pos = pos->next) {
		struct pn_tag other = tags->tag_of(pos);

		if (other.peer == tag.peer && other.tag == tag.tag)
			return pos;
	}
	return NULL;
}

struct pn_list *pn_tags_find(const struct pn_tags *tags, struct pn_tag tag)
{
	return tags->n ? search(tags, chain_of(tags, tag), tag) : NULL;
}

struct pn_list *pn_tags_after(const struct pn_tags *tags,
			      const struct pn_list *link)
{
	return search(tags, link, tags->tag_of(link));
}

struct pn_list *pn_tags_any(const struct pn_tags *tags)
{
	for (uint32_t i = 0; tags->n && i < tags->nchains; i++)
		if (!pn_list_empty(&tags->chains[i]))
			return tags->chains[i].next;
	return NULL;
}

void pn_tags_fini(struct pn_tags *tags)
{
	free(tags->chains);
	*tags = (struct pn_tags){ 0 };
}
