/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reuse distances with a Fenwick tree over the order of use: each buffer
 * occupies the slot of its last use with its number of pages, so the pages used
 * since then are the sum over all later slots. When the slots run out, the
 * occupied slots are renumbered without gaps.
 */
#include "tools/trace/stat.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/range.h"

struct buffer {
	uint64_t first, npages; /* npages 0: free */
	uint64_t uses;
	uint32_t slot; /* slot of its last use, from 1 */
};

struct pn_stat_work {
	struct buffer *buffers; /* open addressing, at most half full */
	uint32_t mask, n;
	uint64_t *tree;	 /* Fenwick: pages by slot, from 1 */
	uint32_t *owner; /* by slot: index in buffers + 1; 0: free slot */
	uint32_t nslots, last;
	uint64_t live; /* total pages of all buffers */
	struct pn_stat_site *sites;
	uint32_t site_mask, nsites;
};

#define INITIAL_SLOTS 1024

/* --- the tree --------------------------------------------------------------
 */

static void tree_add(struct pn_stat_work *w, uint32_t slot, uint64_t pages)
{
	for (; slot <= w->nslots; slot += slot & -slot)
		w->tree[slot] += pages;
}

/* Sum of the pages in slots up to this one. */
static uint64_t tree_sum(const struct pn_stat_work *w, uint32_t slot)
{
	uint64_t sum = 0;

	for (; slot; slot -= slot & -slot)
		sum += w->tree[slot];
	return sum;
}

/* Renumbers the occupied slots without gaps and allocates at least as many free
 * slots. */
static int renumber(struct pn_stat_work *w)
{
	uint32_t nslots = 4 * (w->n < INITIAL_SLOTS ? INITIAL_SLOTS : w->n);
	uint64_t *tree = calloc(nslots + 1, sizeof(*tree));
	uint32_t *owner = calloc(nslots + 1, sizeof(*owner));
	uint32_t to = 0;

	if (!tree || !owner) {
		free(tree);
		free(owner);
		return -ENOMEM;
	}
	for (uint32_t from = 1; from <= w->last; from++) {
		if (!w->owner[from])
			continue;
		owner[++to] = w->owner[from];
		w->buffers[owner[to] - 1].slot = to;
	}
	free(w->tree);
	free(w->owner);
	w->tree = tree;
	w->owner = owner;
	w->nslots = nslots;
	w->last = to;
	for (uint32_t slot = 1; slot <= to; slot++)
		tree_add(w, slot, w->buffers[owner[slot] - 1].npages);
	return 0;
}

/* --- buffers ---------------------------------------------------------------
 */

static uint64_t mix(uint64_t a, uint64_t b)
{
	uint64_t hash = a * UINT64_C(0x9e3779b97f4a7c15) ^ b;

	hash ^= hash >> 32;
	hash *= UINT64_C(0xd6e8feb86659fd93);
	return hash ^ hash >> 32;
}

/* Returns the entry of the buffer, or the free entry where it belongs. */
static struct buffer *find_entry(struct buffer *table, uint32_t mask,
				 uint64_t first, uint64_t npages)
{
	uint32_t at = (uint32_t)mix(first, npages) & mask;

	while (table[at].npages &&
	       (table[at].first != first || table[at].npages != npages))
		at = (at + 1) & mask;
	return &table[at];
}

static int grow(struct pn_stat_work *w)
{
	uint32_t mask = 2 * w->mask + 1;
	struct buffer *table = calloc((size_t)mask + 1, sizeof(*table));

	if (!table)
		return -ENOMEM;
	for (uint32_t i = 0; i <= w->mask; i++) {
		struct buffer *old = &w->buffers[i], *new;

		if (!old->npages)
			continue;
		new = find_entry(table, mask, old->first, old->npages);
		*new = *old;
		w->owner[new->slot] = (uint32_t)(new - table) + 1;
	}
	free(w->buffers);
	w->buffers = table;
	w->mask = mask;
	return 0;
}

/* Returns the buffer of a request; NULL: the buffer is new and the table is
 * full. */
static struct buffer *find(struct pn_stat_work *w, struct pn_range pages)
{
	uint64_t first = pages.addr >> PN_PAGE_SHIFT;
	struct buffer *b = find_entry(w->buffers, w->mask, first,
				      pages.len >> PN_PAGE_SHIFT);

	if (b->npages)
		return b;
	if (w->n == PN_STAT_MAX_BUFFERS)
		return NULL;
	w->n++;
	*b = (struct buffer){ .first = first,
			      .npages = pages.len >> PN_PAGE_SHIFT };
	w->live += b->npages;
	return b;
}

/* Moves the buffer to the end of the order. Returns its distance in pages
 * before that, 0: a new buffer. */
static uint64_t move_to_end(struct pn_stat_work *w, struct buffer *b)
{
	uint64_t distance = 0;

	if (b->slot) {
		distance = w->live - tree_sum(w, b->slot) + b->npages;
		tree_add(w, b->slot, -b->npages);
		w->owner[b->slot] = 0;
	}
	b->slot = ++w->last;
	b->uses++;
	w->owner[b->slot] = (uint32_t)(b - w->buffers) + 1;
	tree_add(w, b->slot, b->npages);
	return distance;
}

static int reserve(struct pn_stat_work *w)
{
	int ret = 0;

	if (2 * (w->n + 1) > w->mask)
		ret = grow(w);
	if (!ret && w->last == w->nslots)
		ret = renumber(w);
	return ret;
}

/* --- sites -----------------------------------------------------------------
 */

static struct pn_stat_site *site_of(struct pn_stat_work *w, uint64_t id)
{
	uint32_t at = (uint32_t)mix(id, 1) & w->site_mask;

	while (w->sites[at].requests && w->sites[at].site != id)
		at = (at + 1) & w->site_mask;
	if (w->sites[at].requests || w->nsites < PN_STAT_MAX_SITES)
		return &w->sites[at];
	return id ? site_of(w, 0) : &w->sites[at];
}

static void count_site(struct pn_stat_work *w, const struct pn_trace_event *e)
{
	struct pn_stat_site *site = site_of(w, e->site);

	if (!site->requests) {
		site->site = w->nsites < PN_STAT_MAX_SITES ? e->site : 0;
		site->op = e->op;
		w->nsites++;
	}
	site->requests++;
	site->bytes += e->len;
}

/* --- counting --------------------------------------------------------------
 */

static void count_in(struct pn_stat_class *class,
		     const struct pn_trace_event *e, uint64_t pages)
{
	class->requests++;
	class->bytes += e->len;
	class->pages += pages;
}

static int count_request(struct pn_stat *stat, const struct pn_trace_event *e)
{
	struct pn_stat_work *w = stat->work;
	struct pn_range pages = { 0, 0 };
	struct buffer *b = NULL;
	uint64_t npages, distance = 0;
	int ret = reserve(w);

	if (ret)
		return ret;
	if (e->len)
		pages = pn_range_pages(e->addr, e->len, PN_PAGE_BYTES);
	npages = pages.len >> PN_PAGE_SHIFT;
	stat->requests++;
	stat->bytes += e->len;
	stat->pages += npages;
	count_in(&stat->sizes[pn_stat_class_of(e->len)], e, npages);
	count_site(w, e);
	if (!npages)
		return 0;
	b = find(w, pages);
	if (b)
		distance = move_to_end(w, b);
	stat->untracked += !b;
	stat->sizes[pn_stat_class_of(e->len)].buffers += b && b->uses == 1;
	count_in(distance ? &stat->distances[pn_stat_class_of(distance
							      << PN_PAGE_SHIFT)]
			  : &stat->cold,
		 e, npages);
	return 0;
}

static void count_event(struct pn_stat *stat, const struct pn_trace_event *e)
{
	bool outcome = e->kind == PN_EVENT_PIN || e->kind == PN_EVENT_READY;

	if (e->kind < PN_EVENT_NKINDS)
		stat->events[e->kind]++;
	if (outcome && e->decision < PN_NDECISIONS)
		stat->decided[e->decision]++;
	if (outcome && e->reason < PN_NREASONS &&
	    (e->decision == PN_DECIDED_HIT || e->decision == PN_DECIDED_MISS))
		stat->why[e->reason]++;
	if (e->kind == PN_EVENT_EVICT && e->reason < PN_NREASONS)
		stat->ended[e->reason]++;
}

int pn_stat_add(struct pn_stat *stat, const struct pn_trace_event *events,
		int n)
{
	int ret = 0;

	for (int i = 0; i < n && !ret; i++) {
		const struct pn_trace_event *e = &events[i];

		if (e->time_ns < stat->first_ns)
			stat->first_ns = e->time_ns;
		if (e->time_ns > stat->last_ns)
			stat->last_ns = e->time_ns;
		count_event(stat, e);
		if (e->kind == PN_EVENT_PIN)
			ret = count_request(stat, e);
	}
	return ret;
}

/* --- beginning and end -----------------------------------------------------
 */

int pn_stat_init(struct pn_stat *stat)
{
	struct pn_stat_work *w = calloc(1, sizeof(*w));

	*stat = (struct pn_stat){ .first_ns = UINT64_MAX, .work = w };
	if (!w)
		return -ENOMEM;
	w->mask = INITIAL_SLOTS - 1;
	w->site_mask = 2 * PN_STAT_MAX_SITES - 1;
	w->buffers = calloc(INITIAL_SLOTS, sizeof(*w->buffers));
	w->sites = calloc((size_t)w->site_mask + 1, sizeof(*w->sites));
	if (w->buffers && w->sites && !renumber(w))
		return 0;
	pn_stat_fini(stat);
	return -ENOMEM;
}

void pn_stat_fini(struct pn_stat *stat)
{
	struct pn_stat_work *w = stat->work;

	free(stat->sites);
	stat->sites = NULL;
	stat->work = NULL;
	if (!w)
		return;
	free(w->buffers);
	free(w->tree);
	free(w->owner);
	free(w->sites);
	free(w);
}

static int by_requests(const void *a, const void *b)
{
	const struct pn_stat_site *x = a, *y = b;

	if (x->requests != y->requests)
		return x->requests < y->requests ? 1 : -1;
	return x->site < y->site ? -1 : x->site > y->site;
}

static void sort_sites(struct pn_stat *stat)
{
	struct pn_stat_work *w = stat->work;

	for (uint32_t i = 0; i <= w->site_mask; i++)
		if (w->sites[i].requests)
			w->sites[stat->nsites++] = w->sites[i];
	qsort(w->sites, stat->nsites, sizeof(*w->sites), by_requests);
	stat->sites = w->sites;
	w->sites = NULL;
}

static int by_address(const void *a, const void *b)
{
	const struct buffer *x = a, *y = b;

	return x->first < y->first ? -1 : x->first > y->first;
}

static enum pn_stat_uses uses_of(const struct buffer *b)
{
	if (b->uses == 1)
		return PN_USED_ONCE;
	if (b->uses <= 10)
		return PN_USED_TO_10;
	return b->uses <= 100 ? PN_USED_TO_100 : PN_USED_MORE;
}

/* Sorts the buffers by address, so that overlapping pages are counted once. */
static void sum_up(struct pn_stat *stat, struct buffer *buffers, uint32_t n)
{
	uint64_t end = 0, pages = 0;

	qsort(buffers, n, sizeof(*buffers), by_address);
	for (uint32_t i = 0; i < n; i++) {
		const struct buffer *b = &buffers[i];
		uint64_t from = b->first > end ? b->first : end;

		stat->uses[uses_of(b)].buffers++;
		stat->uses[uses_of(b)].requests += b->uses;
		if (b->first + b->npages > from) {
			end = b->first + b->npages;
			pages += end - from;
		}
	}
	stat->buffers = n;
	stat->footprint_bytes = pages << PN_PAGE_SHIFT;
}

void pn_stat_finish(struct pn_stat *stat)
{
	struct pn_stat_work *w = stat->work;
	uint32_t n = 0;

	sort_sites(stat);
	for (uint32_t i = 0; i <= w->mask; i++)
		if (w->buffers[i].npages)
			w->buffers[n++] = w->buffers[i];
	sum_up(stat, w->buffers, n);
	if (stat->first_ns > stat->last_ns)
		stat->first_ns = stat->last_ns;
}

struct pn_stat_class pn_stat_hits(const struct pn_stat *stat, uint64_t bytes)
{
	struct pn_stat_class sum = { 0 };

	for (unsigned k = 0; k <= pn_stat_class_of(bytes); k++) {
		sum.requests += stat->distances[k].requests;
		sum.bytes += stat->distances[k].bytes;
		sum.pages += stat->distances[k].pages;
	}
	return sum;
}
