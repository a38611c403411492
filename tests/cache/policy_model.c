/* SPDX-License-Identifier: BSD-2-Clause */
#include "cache/policy_model.h"

#include <math.h>
#include <string.h>

static struct model_item *find(struct model *m, unsigned id)
{
	for (size_t i = 0; i < m->n; i++) {
		if (m->items[i].id == id)
			return &m->items[i];
	}
	pn_assert(!"the model does not know this item");
	return NULL;
}

static size_t sum_pages(const struct model *m)
{
	size_t sum = 0;

	for (size_t i = 0; i < m->n; i++)
		sum += m->items[i].npages;
	return sum;
}

static bool wanting(const struct model *m)
{
	return m->victim_pages < m->want_pages || m->nvictims < m->want_regions;
}

static void take(struct model *m, struct model_item *item)
{
	m->victims[m->nvictims++] = item->id;
	m->victim_pages += item->npages;
	*item = m->items[--m->n];
}

/* By factor, then by age; skips busy items, and those with factor 0 if told
 * to. NULL: none. */
static struct model_item *smallest(struct model *m, bool idle, bool factored)
{
	struct model_item *best = NULL;

	for (size_t i = 0; i < m->n; i++) {
		struct model_item *item = &m->items[i];

		if ((idle && m->busy && m->busy[item->id]) ||
		    (factored && item->factor == 0))
			continue;
		if (!best || item->factor < best->factor ||
		    (item->factor == best->factor && item->when < best->when))
			best = item;
	}
	return best;
}

/* --- lru and fmrd: all factors are 0, so age decides ---------------------- */

static void stack_use(struct model *m, struct model_item *item, bool fresh)
{
	(void)fresh;
	item->when = ++m->time;
}

static void stack_evict(struct model *m, unsigned batch)
{
	struct model_item *item;

	while ((wanting(m) || m->nvictims < batch) &&
	       (item = smallest(m, true, false)))
		take(m, item);
}

static void lru_evict(struct model *m)
{
	stack_evict(m, 0);
}

static void fmrd_evict(struct model *m)
{
	stack_evict(m, m->attr.batch);
}

/* --- mre ------------------------------------------------------------------ */

static void mre_use(struct model *m, struct model_item *item, bool fresh)
{
	(void)fresh;
	item->when = ++m->time;
	item->factor = 0;
}

/* The oldest item of the frequent-reference section, if that is too large. */
static struct model_item *too_many_frequent(struct model *m)
{
	struct model_item *oldest = NULL;
	size_t npages = 0;

	for (size_t i = 0; i < m->n; i++) {
		struct model_item *item = &m->items[i];

		if (item->factor != 0)
			continue;
		npages += item->npages;
		if (!oldest || item->when < oldest->when)
			oldest = item;
	}
	return npages > sum_pages(m) / 2 ? oldest : NULL;
}

static void mre_evict(struct model *m)
{
	size_t segment = sum_pages(m) / 16;
	struct model_item *item = smallest(m, false, true);

	if (item)
		m->level = item->factor;
	while ((item = too_many_frequent(m))) {
		item->factor = m->level + 1.0 / item->npages;
		item->when = ++m->time;
	}
	while ((wanting(m) ||
		(m->victim_pages < segment && m->nvictims < m->attr.batch)) &&
	       (item = smallest(m, true, true)))
		take(m, item);
	/* Those with a factor are used up or busy; of the others all factors
	 * are 0. */
	while (wanting(m)) {
		struct model_item *oldest = NULL;

		for (size_t i = 0; i < m->n; i++) {
			item = &m->items[i];
			if (item->factor == 0 &&
			    !(m->busy && m->busy[item->id]) &&
			    (!oldest || item->when < oldest->when))
				oldest = item;
		}
		if (!oldest)
			break;
		take(m, oldest);
	}
}

/* --- greedy --------------------------------------------------------------- */

static double loss(const struct model *m, double npages)
{
	const struct pn_policy_attr *a = &m->attr;

	return a->register_fixed + a->deregister_fixed / a->batch +
	       (a->register_page + a->deregister_page) * npages;
}

static void greedy_use(struct model *m, struct model_item *item, bool fresh)
{
	double earning = loss(m, item->npages);
	double credit = fresh ? 0 : fmax(item->factor - m->level, 0);

	if (m->attr.capacity_pages != SIZE_MAX)
		earning /= item->npages;
	credit = fmax(credit, fmin(credit + earning, 4 * earning));
	item->factor = m->level + credit;
	item->when = ++m->time;
	if (fresh)
		m->nmisses++;
	else
		m->nhits++;
}

/* In the policy's order of operations: where the root is a whole number, both
 * have to round alike. */
static double best_batch(const struct model *m)
{
	const struct pn_policy_attr *a = &m->attr;
	double n = (double)m->n;
	double mean = loss(m, 0) + (a->register_page + a->deregister_page) *
					   (double)sum_pages(m) / n;
	double paying = (double)m->nmisses * a->deregister_fixed;

	if (!m->nhits)
		return a->batch;
	return floor(sqrt(2 * n * paying / ((double)m->nhits * mean)));
}

static void greedy_evict(struct model *m)
{
	size_t before = m->n;
	struct model_item *item;
	double batch;

	if (!before)
		return;
	batch = fmin(best_batch(m), m->attr.batch);
	while ((wanting(m) || m->nvictims < batch) &&
	       (item = smallest(m, true, false))) {
		m->level = fmax(m->level, item->factor);
		take(m, item);
	}
	if (m->nhits + m->nmisses >= 16 * before) {
		m->nhits /= 2;
		m->nmisses /= 2;
	}
}

/* --- all ------------------------------------------------------------------ */

static const struct model_kind kinds[] = {
	{ "lru", stack_use, lru_evict },
	{ "fmrd", stack_use, fmrd_evict },
	{ "mre", mre_use, mre_evict },
	{ "greedy", greedy_use, greedy_evict },
};

void model_init(struct model *m, const char *name,
		const struct pn_policy_attr *attr)
{
	memset(m, 0, sizeof(*m));
	m->attr = *attr;
	for (size_t i = 0; i < PN_ARRAY_LEN(kinds); i++) {
		if (!strcmp(kinds[i].name, name))
			m->kind = &kinds[i];
	}
	pn_assert(m->kind);
}

void model_insert(struct model *m, unsigned id, uint32_t npages)
{
	struct model_item *item = &m->items[m->n++];

	pn_assert(m->n <= MODEL_ITEMS);
	*item = (struct model_item){ .id = id, .npages = npages };
	m->kind->use(m, item, true);
}

void model_access(struct model *m, unsigned id)
{
	m->kind->use(m, find(m, id), false);
}

void model_remove(struct model *m, unsigned id)
{
	*find(m, id) = m->items[m->n - 1];
	m->n--;
}

unsigned model_evict(struct model *m, size_t npages, unsigned nregions,
		     const bool *busy)
{
	m->want_pages = npages;
	m->want_regions = nregions;
	m->busy = busy;
	m->victim_pages = 0;
	m->nvictims = 0;
	if (wanting(m))
		m->kind->evict(m);
	return m->nvictims;
}
