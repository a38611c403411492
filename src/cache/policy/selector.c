/* SPDX-License-Identifier: BSD-2-Clause */
#include "cache/policy/selector.h"

#include <errno.h>
#include <stdlib.h>

#define BUCKETS (2 * PN_POLICY_SELECTOR_MAX_SAMPLES)
#define ALL	((uint64_t)1 << 32) /* the threshold that samples all names */

/* Costs are halved after so many uses per sampled region. */
#define WINDOW_USES 16

/* The average cost of a registration is over so many uses. */
#define AVERAGE_USES 64

/* What another candidate must be cheaper by: so many registrations, against
 * chance, and a share of the cost of the active one, since switching costs what
 * the ghost of the new one does not know. The share is larger when only a
 * sample is compared. */
#define MIN_GAIN_MISSES	   16
#define MIN_GAIN_UNSAMPLED 0.003
#define MIN_GAIN_SAMPLED   0.03

struct sample {
	uint32_t name, npages;
	uint32_t in;   /* a bit for each ghost that holds it */
	uint32_t next; /* in its bucket, or free; number plus one */
	struct pn_policy_node nodes[PN_POLICY_SELECTOR_POLICIES];
};

struct ghost {
	struct pn_policy *policy;
	size_t npages;
	double cost_us;
	/* What the real cache paid under this candidate divided by what the
	 * ghost paid meanwhile; 0: not known. */
	double correction;
};

/* What was paid since the candidate is active. */
struct period {
	double real, ghost;
};

struct pn_policy_selector {
	struct pn_policy_attr attr;
	uint64_t threshold;
	size_t capacity_pages; /* of the cache */
	const struct pn_policy_ops *const *candidates;
	double miss_cost; /* average cost of a registration */
	struct ghost ghosts[PN_POLICY_SELECTOR_POLICIES];
	unsigned active;
	struct period period;
	struct sample samples[PN_POLICY_SELECTOR_MAX_SAMPLES];
	uint32_t buckets[BUCKETS];
	uint32_t free, nsamples;
	uint64_t nuses; /* since the costs were halved */
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
		selector->samples[i].next =
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

/* --- the sample -------------------------------------------------------------
 */

/* High bits choose the sample, so buckets take low ones. */
static uint32_t *bucket_of(struct pn_policy_selector *selector, uint32_t name)
{
	return &selector->buckets[name % BUCKETS];
}

static struct sample *find(struct pn_policy_selector *selector, uint32_t name)
{
	uint32_t at = *bucket_of(selector, name);

	while (at && selector->samples[at - 1].name != name)
		at = selector->samples[at - 1].next;
	return at ? &selector->samples[at - 1] : NULL;
}

/* NULL: the sample is full. */
static struct sample *add_sample(struct pn_policy_selector *selector,
				 const struct pn_policy_node *node)
{
	uint32_t *bucket = bucket_of(selector, node->name), at = selector->free;
	struct sample *sample;

	if (!at)
		return NULL;
	sample = &selector->samples[at - 1];
	selector->free = sample->next;
	selector->nsamples++;
	*sample = (struct sample){ .name = node->name,
				   .npages = node->npages,
				   .next = *bucket };
	*bucket = at;
	return sample;
}

static void remove_sample(struct pn_policy_selector *selector,
			  struct sample *sample)
{
	uint32_t at = (uint32_t)(sample - selector->samples) + 1;
	uint32_t *from = bucket_of(selector, sample->name);

	while (*from != at)
		from = &selector->samples[*from - 1].next;
	*from = sample->next;
	sample->next = selector->free;
	selector->free = at;
	selector->nsamples--;
}

static struct sample *sample_of(struct pn_policy_node *node, unsigned ghost)
{
	return pn_container_of(node - ghost, struct sample, nodes);
}

static void leave(struct pn_policy_selector *selector, struct sample *sample,
		  unsigned ghost)
{
	selector->ghosts[ghost].npages -= sample->npages;
	sample->in &= ~(1u << ghost);
	if (!sample->in)
		remove_sample(selector, sample);
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

/* The size of a ghost, in pages. */
static size_t share(const struct pn_policy_selector *selector)
{
	return (size_t)((double)selector->capacity_pages *
				sampled_share(selector) +
			0.5);
}

/* How many batches n victims of a ghost stand for: in the real cache, victims
 * outside the sample go with them. */
static double batches(const struct pn_policy_selector *selector,
		      const struct pn_policy *policy, unsigned n)
{
	double in_cache = n / sampled_share(selector);

	if (!policy->ops->batched)
		return n;
	return n / (in_cache < selector->attr.batch ? in_cache
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
		struct sample *sample = sample_of(
			pn_container_of(link, struct pn_policy_node, link), i);

		charge(selector, i,
		       selector->attr.deregister_page * sample->npages);
		leave(selector, sample, i);
	}
}

static double register_cost(const struct pn_policy_selector *selector,
			    uint32_t npages)
{
	return selector->attr.register_fixed +
	       selector->attr.register_page * npages;
}

static void enter(struct pn_policy_selector *selector, struct sample *sample,
		  unsigned i)
{
	struct ghost *ghost = &selector->ghosts[i];
	struct pn_policy_node *node = &sample->nodes[i];

	sample->in |=
		1u
		<< i; /* before others leave, so that it stays in the sample */
	charge(selector, i, register_cost(selector, sample->npages));
	make_room(selector, i, sample->npages);
	*node = (struct pn_policy_node){ .npages = sample->npages,
					 .name = sample->name };
	pn_list_init(&node->link);
	ghost->npages += sample->npages;
	pn_policy_insert(ghost->policy, node);
}

/* Opens the candidate again, with batches that suit the size of the sample. */
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

/* Halves the sample. */
static void halve(struct pn_policy_selector *selector)
{
	selector->threshold /= 2;
	for (uint32_t at = 0; at < PN_POLICY_SELECTOR_MAX_SAMPLES; at++) {
		struct sample *sample = &selector->samples[at];

		if (!sample->in || sample->name < selector->threshold)
			continue;
		for (unsigned i = 0; i < PN_POLICY_SELECTOR_POLICIES; i++) {
			struct pn_policy *policy = selector->ghosts[i].policy;

			if (!(sample->in & 1u << i))
				continue;
			policy->ops->remove(policy, &sample->nodes[i]);
			leave(selector, sample, i);
		}
	}
	for (unsigned i = 0; i < PN_POLICY_SELECTOR_POLICIES; i++) {
		selector->ghosts[i].cost_us /= 2;
		reopen(selector, i);
	}
	selector->period = (struct period){ 0, 0 };
}

/* Old corrections move towards that of the active policy: the candidate may get
 * another try. */
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
	struct sample *sample = find(selector, node->name);

	if (by_regions(selector) || node->npages > share(selector))
		return; /* it costs all candidates the same */
	while (!sample && !(sample = add_sample(selector, node))) {
		halve(selector);
		if (!pn_policy_selector_samples(selector, node))
			return;
	}
	decay(selector);
	selector->miss_cost += (register_cost(selector, sample->npages) -
				selector->miss_cost) /
			       AVERAGE_USES;
	for (unsigned i = 0; i < PN_POLICY_SELECTOR_POLICIES; i++) {
		if (sample->in & 1u << i)
			pn_policy_use(selector->ghosts[i].policy,
				      &sample->nodes[i]);
		else
			enter(selector, sample, i);
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

/* Ghosts know regions by name. Where requests overlap without being equal, the
 * real cache behaves otherwise, under some candidates more than under others.
 * So the cost of a ghost is multiplied by what the real cache paid for it when
 * the candidate was active last. */
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
		const struct sample *sample = &selector->samples[at];

		nsamples += !!sample->in;
		for (unsigned i = 0; i < PN_POLICY_SELECTOR_POLICIES; i++)
			if (sample->in & 1u << i)
				npages[i] += sample->npages;
	}
	pn_assert(nsamples == selector->nsamples);
	for (unsigned i = 0; i < PN_POLICY_SELECTOR_POLICIES; i++) {
		struct pn_policy *policy = selector->ghosts[i].policy;

		pn_assert(npages[i] == selector->ghosts[i].npages);
		policy->ops->check(policy);
	}
}
