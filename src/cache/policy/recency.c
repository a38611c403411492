/* SPDX-License-Identifier: BSD-2-Clause */
#include "cache/policy/recency.h"

#include <errno.h>
#include <stdlib.h>

void pn_recency_init(struct pn_recency *recency)
{
	*recency = (struct pn_recency){ .npages = 0 };
	pn_list_init(&recency->sorted);
	pn_list_init(&recency->unsorted);
}

/* --- sorting: chains that end with NULL, linked by next alone ------------- */

static bool older(struct pn_list *a, struct pn_list *b)
{
	return pn_recency_node(a)->used < pn_recency_node(b)->used;
}

static struct pn_list *merge(struct pn_list *a, struct pn_list *b)
{
	struct pn_list *chain, **end = &chain;

	while (a && b) {
		struct pn_list **least = older(b, a) ? &b : &a;

		*end = *least;
		end = &(*least)->next;
		*least = *end;
	}
	*end = a ? a : b;
	return chain;
}

/* Merge sort from the bottom up, like a binary counter: bins[i] is empty or
 * holds a sorted chain of 2^i nodes. */
static struct pn_list *sort(struct pn_list *chain)
{
	struct pn_list *bins[64] = { NULL }, *rest;
	unsigned i, nbins = 0;

	for (; chain; chain = rest) {
		rest = chain->next;
		chain->next = NULL;
		for (i = 0; i < nbins && bins[i]; i++) {
			chain = merge(bins[i], chain);
			bins[i] = NULL;
		}
		bins[i] = chain;
		nbins = i == nbins ? nbins + 1 : nbins;
	}
	for (i = 0; i < nbins; i++)
		chain = merge(bins[i], chain);
	return chain;
}

/* Sorts the unsorted and puts it on top of what is sorted. */
static void sort_unsorted(struct pn_recency *recency)
{
	struct pn_list *chain = recency->unsorted.next, *rest;

	recency->unsorted.prev->next = NULL;
	pn_list_init(&recency->unsorted);
	for (chain = sort(chain); chain; chain = rest) {
		rest = chain->next;
		pn_list_append(&recency->sorted, chain);
	}
	recency->sorted_at = pn_recency_node(recency->sorted.prev)->used;
}

/* --- taking --------------------------------------------------------------- */

static bool used_since(const struct pn_recency *recency, struct pn_list *link)
{
	return pn_recency_node(link)->used > recency->sorted_at;
}

/* The oldest node above `below`, which is a node of `sorted` or its head; NULL:
 * none. */
static struct pn_list *next_oldest(struct pn_recency *recency,
				   struct pn_list *below)
{
	struct pn_list *link;

	while ((link = below->next) != &recency->sorted) {
		if (!used_since(recency, link))
			return link;
		pn_list_remove(link);
		pn_list_append(&recency->unsorted, link);
	}
	if (pn_list_empty(&recency->unsorted))
		return NULL;
	sort_unsorted(recency);
	return below->next;
}

struct pn_policy_node *pn_recency_oldest(struct pn_recency *recency)
{
	struct pn_list *link = next_oldest(recency, &recency->sorted);

	return link ? pn_recency_node(link) : NULL;
}

void pn_recency_evict(struct pn_recency *recency, struct pn_eviction *eviction,
		      bool (*more)(const struct pn_eviction *eviction))
{
	struct pn_list *below = &recency->sorted, *link;

	while (more(eviction) && (link = next_oldest(recency, below))) {
		struct pn_policy_node *node = pn_recency_node(link);

		if (pn_eviction_busy(eviction, node)) {
			below = link;
			continue;
		}
		pn_recency_remove(recency, node);
		pn_eviction_add(eviction, node);
	}
}

struct sums {
	size_t npages, nnodes;
};

static void count_list(struct pn_list *list, struct sums *sums)
{
	struct pn_list *pos;

	pn_list_for_each (pos, list) {
		pn_assert(pos->next->prev == pos);
		sums->npages += pn_recency_node(pos)->npages;
		sums->nnodes++;
	}
}

void pn_recency_check(struct pn_recency *recency)
{
	struct sums sums = { 0, 0 };
	struct pn_list *pos;
	uint64_t last = 0;

	count_list(&recency->sorted, &sums);
	count_list(&recency->unsorted, &sums);
	pn_assert(sums.npages == recency->npages);
	pn_assert(sums.nnodes == recency->nnodes);
	pn_list_for_each (pos, &recency->sorted) {
		if (used_since(recency, pos))
			continue;
		pn_assert(pn_recency_node(pos)->used > last);
		last = pn_recency_node(pos)->used;
	}
	pn_list_for_each (pos, &recency->unsorted)
		pn_assert(used_since(recency, pos));
}

void pn_recency_each(struct pn_recency *recency, pn_policy_node_fn *fn,
		     void *arg)
{
	struct pn_list *pos;

	pn_list_for_each (pos, &recency->sorted)
		fn(arg, pn_recency_node(pos));
	pn_list_for_each (pos, &recency->unsorted)
		fn(arg, pn_recency_node(pos));
}
