/* SPDX-License-Identifier: BSD-2-Clause */
#include "cache/policy/selector.h"

#include <errno.h>
#include <stdlib.h>

#define BUCKETS (2 * PN_POLICY_SELECTOR_MAX_SAMPLES)
#define ALL	((uint64_t)1 << 32) /* threshold of all names */

/* Bills decay by half after so many uses per region of the sample. */
#define WINDOW_USES 16

/* So many uses make an average of what a registration costs. */
#define AVERAGE_USES 64

/* What another candidate must be better by: so many registrations, for chance,
 * and a share of the cost_us, for changing costs what the new one does not
 * know; a larger one when it is a sample that speaks. */
#define MIN_GAIN_MISSES	   16
#define MIN_GAIN_UNSAMPLED 0.003
#define MIN_GAIN_SAMPLED   0.03

struct known {
	uint32_t name, npages;
	uint32_t in;   /* bit per ghost */
	uint32_t next; /* in its bucket, or free; number plus one */
	struct pn_policy_node nodes[PN_POLICY_SELECTOR_POLICIES];
};

struct ghost {
	struct pn_policy *policy;
	size_t npages;
	double cost_us;
	/* What the cache paid under this candidate, by what the ghost paid
	 * meanwhile; 0: not known. */
	double correction;
};

/* What was paid since the active reigns. */
struct period {
	double real, ghost;
};

struct pn_policy_selector {
	struct pn_policy_attr attr;
	uint64_t threshold;
	size_t capacity_pages; /* of the cache */
	const struct pn_policy_ops *const *candidates;
	double miss_cost; /* of registering what is used, on average */
	struct ghost ghosts[PN_POLICY_SELECTOR_POLICIES];
	unsigned active;
	struct period period;
	struct known known[PN_POLICY_SELECTOR_MAX_SAMPLES];
	uint32_t buckets[BUCKETS];
	uint32_t free, nsamples;
	uint64_t nuses; /* since the bills faded */
};

int pn_policy_selector_open(const struct pn_policy_attr *attr,
			    const struct pn_policy_ops *const *candidates,
			    struct pn_policy_selector **out)
{
	struct pn_policy_selector *selector = calloc(1, sizeof(*selector));

	if (!selector)
		return -ENOMEM;
	selector->attr = *attr;
	selector->threshold = ALL;
	selector->capacity_pages = attr->capacity_pages;
	selector->candidates = candidates;
	for (uint32_t i = 0; i < PN_POLICY_SELECTOR_MAX_SAMPLES; i++)
		selector->known[i].next =
			i + 2 <= PN_POLICY_SELECTOR_MAX_SAMPLES ? i + 2 : 0;
	selector->free = 1;
	for (unsigned i = 0; i < PN_POLICY_SELECTOR_POLICIES; i++) {
		int ret =
			candidates[i]->open(attr, &selector->ghosts[i].policy);

		if (ret) {
			pn_policy_selector_close(selector);
			return ret;
		}
	}
	*out = selector;
	return 0;
}

void pn_policy_selector_close(struct pn_policy_selector *selector)
{
	if (!selector)
		return;
	for (unsigned i = 0; i < PN_POLICY_SELECTOR_POLICIES; i++)
		pn_policy_close(selector->ghosts[i].policy);
	free(selector);
}

bool pn_policy_selector_samples(const struct pn_policy_selector *selector,
				const struct pn_policy_node *node)
{
	return node->name < selector->threshold;
}

/* --- known regions ----------------------------------------------------------
 */

/* High bits choose the sample, so buckets take low ones. */
static uint32_t *bucket_of(struct pn_policy_selector *selector, uint32_t name)
{
	return &selector->buckets[name % BUCKETS];
}

static struct known *find(struct pn_policy_selector *selector, uint32_t name)
{
	uint32_t at = *bucket_of(selector, name);

	while (at && selector->known[at - 1].name != name)
		at = selector->known[at - 1].next;
	return at ? &selector->known[at - 1] : NULL;
}

/* NULL: no more can be known. */
static struct known *learn(struct pn_policy_selector *selector,
			   const struct pn_policy_node *node)
{
	uint32_t *bucket = bucket_of(selector, node->name), at = selector->free;
	struct known *known;

	if (!at)
		return NULL;
	known = &selector->known[at - 1];
	selector->free = known->next;
	selector->nsamples++;
	*known = (struct known){ .name = node->name,
				 .npages = node->npages,
				 .next = *bucket };
	*bucket = at;
	return known;
}

static void forget(struct pn_policy_selector *selector, struct known *known)
{
	uint32_t at = (uint32_t)(known - selector->known) + 1;
	uint32_t *from = bucket_of(selector, known->name);

	while (*from != at)
		from = &selector->known[*from - 1].next;
	*from = known->next;
	known->next = selector->free;
	selector->free = at;
	selector->nsamples--;
}

static struct known *sample_of(struct pn_policy_node *node, unsigned ghost)
{
	return pn_container_of(node - ghost, struct known, nodes);
}

static void leave(struct pn_policy_selector *selector, struct known *known,
		  unsigned ghost)
{
	selector->ghosts[ghost].npages -= known->npages;
	known->in &= ~(1u << ghost);
	if (!known->in)
		forget(selector, known);
}

/* --- ghosts ------------------------------------------------------------------
 */

static bool by_regions(const struct pn_policy_selector *selector)
{
	return selector->capacity_pages == SIZE_MAX;
}

static double sampled_share(const struct pn_policy_selector *selector)
{
	return (double)selector->threshold / (double)ALL;
}

/* The share of the sample, in pages. */
static size_t share(const struct pn_policy_selector *selector)
{
	return (size_t)((double)selector->capacity_pages *
				sampled_share(selector) +
			0.5);
}

/* As many batches as n victims cost: in the whole cache they have company. */
static double batches(const struct pn_policy_selector *selector,
		      const struct pn_policy *policy, unsigned n)
{
	double company = n / sampled_share(selector);

	if (!policy->ops->batched)
		return n;
	return n / (company < selector->attr.batch ? company
						   : selector->attr.batch);
}

static void charge(struct pn_policy_selector *selector, unsigned i, double us)
{
	selector->ghosts[i].cost_us += us;
	if (i == selector->active)
		selector->period.ghost += us;
}

/* Makes room for npages more. */
static void make_room(struct pn_policy_selector *selector, unsigned i,
		      size_t npages)
{
	struct ghost *ghost = &selector->ghosts[i];
	struct pn_policy *policy = ghost->policy;
	struct pn_policy_want want = { .nregions = 1 };
	struct pn_list victims, *link;
	size_t room = share(selector);
	unsigned n;

	if (ghost->npages + npages <= room)
		return;
	want.npages = ghost->npages + npages - room;
	pn_list_init(&victims);
	n = policy->ops->evict(policy, &want, &victims);
	charge(selector, i,
	       selector->attr.deregister_fixed * batches(selector, policy, n));
	while ((link = pn_list_pop(&victims))) {
		struct known *known = sample_of(
			pn_container_of(link, struct pn_policy_node, link), i);

		charge(selector, i,
		       selector->attr.deregister_page * known->npages);
		leave(selector, known, i);
	}
}

static double register_cost(const struct pn_policy_selector *selector,
			    uint32_t npages)
{
	return selector->attr.register_fixed +
	       selector->attr.register_page * npages;
}

static void enter(struct pn_policy_selector *selector, struct known *known,
		  unsigned i)
{
	struct ghost *ghost = &selector->ghosts[i];
	struct pn_policy_node *node = &known->nodes[i];

	known->in |= 1u << i; /* before others leave, so that it stays known */
	charge(selector, i, register_cost(selector, known->npages));
	make_room(selector, i, known->npages);
	*node = (struct pn_policy_node){ .npages = known->npages,
					 .name = known->name };
	pn_list_init(&node->link);
	ghost->npages += known->npages;
	pn_policy_insert(ghost->policy, node);
}

/* The candidate once more, with batches that suit the sample. */
static void reopen(struct pn_policy_selector *selector, unsigned i)
{
	struct pn_policy_want all = { .nregions = UINT32_MAX };
	struct pn_policy_attr attr = selector->attr;
	struct pn_policy *old = selector->ghosts[i].policy, *new;
	struct pn_list nodes, *link;

	attr.batch = (unsigned)(attr.batch * sampled_share(selector) + 0.5);
	attr.batch = attr.batch ? attr.batch : 1;
	if (selector->candidates[i]->open(&attr, &new))
		return;
	new->clock = old->clock;
	pn_list_init(&nodes);
	old->ops->evict(old, &all, &nodes);
	while ((link = pn_list_pop(&nodes))) {
		struct pn_policy_node *node =
			pn_container_of(link, struct pn_policy_node, link);

		pn_policy_ignore_access(new, node);
		new->ops->insert(new, node);
	}
	pn_policy_close(old);
	selector->ghosts[i].policy = new;
}

/* Half of the sample goes. */
static void halve(struct pn_policy_selector *selector)
{
	selector->threshold /= 2;
	for (uint32_t at = 0; at < PN_POLICY_SELECTOR_MAX_SAMPLES; at++) {
		struct known *known = &selector->known[at];

		if (!known->in || known->name < selector->threshold)
			continue;
		for (unsigned i = 0; i < PN_POLICY_SELECTOR_POLICIES; i++) {
			struct pn_policy *policy = selector->ghosts[i].policy;

			if (!(known->in & 1u << i))
				continue;
			policy->ops->remove(policy, &known->nodes[i]);
			leave(selector, known, i);
		}
	}
	for (unsigned i = 0; i < PN_POLICY_SELECTOR_POLICIES; i++) {
		selector->ghosts[i].cost_us /= 2;
		reopen(selector, i);
	}
	selector->period = (struct period){ 0, 0 };
}

/* What a period showed long ago is doubted: the candidate may get another try.
 */
static void decay_corrections(struct pn_policy_selector *selector)
{
	for (unsigned i = 0; i < PN_POLICY_SELECTOR_POLICIES; i++)
		if (i != selector->active && selector->ghosts[i].correction > 0)
			selector->ghosts[i].correction =
				(selector->ghosts[i].correction +
				 selector->ghosts[selector->active]
					 .correction) /
				2;
}

static void decay(struct pn_policy_selector *selector)
{
	if (++selector->nuses <
	    WINDOW_USES * (uint64_t)PN_POLICY_SELECTOR_MAX_SAMPLES)
		return;
	selector->nuses = 0;
	for (unsigned i = 0; i < PN_POLICY_SELECTOR_POLICIES; i++)
		selector->ghosts[i].cost_us /= 2;
	selector->period.real /= 2;
	selector->period.ghost /= 2;
	decay_corrections(selector);
}

void pn_policy_selector_use(struct pn_policy_selector *selector,
			    const struct pn_policy_node *node)
{
	struct known *known = find(selector, node->name);

	if (by_regions(selector) || node->npages > share(selector))
		return; /* the same for all */
	while (!known && !(known = learn(selector, node))) {
		halve(selector);
		if (!pn_policy_selector_samples(selector, node))
			return;
	}
	decay(selector);
	selector->miss_cost +=
		(register_cost(selector, known->npages) - selector->miss_cost) /
		AVERAGE_USES;
	for (unsigned i = 0; i < PN_POLICY_SELECTOR_POLICIES; i++) {
		if (known->in & 1u << i)
			pn_policy_use(selector->ghosts[i].policy,
				      &known->nodes[i]);
		else
			enter(selector, known, i);
	}
}

void pn_policy_selector_resize(struct pn_policy_selector *selector,
			       size_t capacity_pages)
{
	selector->capacity_pages = capacity_pages;
	for (unsigned i = 0; i < PN_POLICY_SELECTOR_POLICIES; i++) {
		struct pn_policy *policy = selector->ghosts[i].policy;

		policy->ops->resize(policy, capacity_pages);
		if (!by_regions(selector))
			make_room(selector, i, 0);
	}
}

void pn_policy_selector_reset_costs(struct pn_policy_selector *selector)
{
	for (unsigned i = 0; i < PN_POLICY_SELECTOR_POLICIES; i++)
		selector->ghosts[i].cost_us = 0;
	selector->nuses = 0;
	selector->period = (struct period){ 0, 0 };
}

void pn_policy_selector_registered(struct pn_policy_selector *selector,
				   uint32_t npages)
{
	selector->period.real += register_cost(selector, npages);
}

void pn_policy_selector_evicted(struct pn_policy_selector *selector,
				unsigned nregions, size_t npages)
{
	const struct pn_policy_ops *ops =
		selector->candidates[selector->active];

	selector->period.real +=
		selector->attr.deregister_fixed *
			(ops->batched ? 1 : nregions) +
		selector->attr.deregister_page * (double)npages;
}

/* Ghosts know regions by name. Where requests overlap without being the same,
 * the real cache does otherwise, under some candidates more than under others;
 * so a cost_us is worth what the candidate's last period showed it to be worth.
 */
static void update_correction(struct pn_policy_selector *selector)
{
	const struct period *period = &selector->period;

	if (period->ghost < MIN_GAIN_MISSES * selector->miss_cost)
		return;
	selector->ghosts[selector->active].correction =
		period->real * sampled_share(selector) / period->ghost;
}

static double corrected_cost(const struct pn_policy_selector *selector,
			     unsigned i)
{
	double correction = selector->ghosts[i].correction;

	if (correction <= 0)
		correction = selector->ghosts[selector->active].correction;
	return selector->ghosts[i].cost_us * (correction > 0 ? correction : 1);
}

unsigned pn_policy_selector_best(struct pn_policy_selector *selector)
{
	double share = selector->threshold < ALL ? MIN_GAIN_SAMPLED
						 : MIN_GAIN_UNSAMPLED;
	unsigned best = selector->active;
	double cost_us;

	update_correction(selector);
	cost_us = corrected_cost(selector, selector->active);
	for (unsigned i = 0; i < PN_POLICY_SELECTOR_POLICIES; i++)
		if (corrected_cost(selector, i) <
		    corrected_cost(selector, best))
			best = i;
	if (corrected_cost(selector, best) + share * cost_us +
		    MIN_GAIN_MISSES * selector->miss_cost <
	    cost_us)
		return best;
	return selector->active;
}

void pn_policy_selector_set_active(struct pn_policy_selector *selector,
				   unsigned candidate)
{
	selector->active = candidate;
	pn_policy_selector_restart_period(selector);
}

void pn_policy_selector_restart_period(struct pn_policy_selector *selector)
{
	selector->period = (struct period){ 0, 0 };
}

void pn_policy_selector_check(struct pn_policy_selector *selector)
{
	size_t npages[PN_POLICY_SELECTOR_POLICIES] = { 0 };
	uint32_t nsamples = 0;

	for (uint32_t at = 0; at < PN_POLICY_SELECTOR_MAX_SAMPLES; at++) {
		const struct known *known = &selector->known[at];

		nsamples += !!known->in;
		for (unsigned i = 0; i < PN_POLICY_SELECTOR_POLICIES; i++)
			if (known->in & 1u << i)
				npages[i] += known->npages;
	}
	pn_assert(nsamples == selector->nsamples);
	for (unsigned i = 0; i < PN_POLICY_SELECTOR_POLICIES; i++) {
		struct pn_policy *policy = selector->ghosts[i].policy;

		pn_assert(npages[i] == selector->ghosts[i].npages);
		policy->ops->check(policy);
	}
}
