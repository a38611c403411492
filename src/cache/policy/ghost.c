/* SPDX-License-Identifier: BSD-2-Clause */
#include "cache/policy/ghost.h"

#include <errno.h>
#include <stdlib.h>

#define BUCKETS (2 * PN_JURY_REGIONS)
#define ALL	((uint64_t)1 << 32) /* threshold of all names */

/* Bills fade by half after so many uses per region of the sample. */
#define WINDOW_USES 16

/* So many uses make an average of what a registration costs. */
#define AVERAGE_USES 64

/* What another candidate must be better by: so many registrations, for chance,
 * and a share of the bill, for changing costs what the new one does not know;
 * a larger one when it is a sample that speaks. */
#define CHANCE_MISSES 16
#define SHARE_OF_ALL  0.003
#define SHARE_SAMPLED 0.03

struct known {
	uint32_t name, npages;
	uint32_t in;   /* bit per ghost */
	uint32_t next; /* in its bucket, or free; number plus one */
	struct pn_policy_node nodes[PN_JURY_GHOSTS];
};

struct ghost {
	struct pn_policy *policy;
	size_t npages;
	double bill;
	/* What the cache paid under this candidate, by what the ghost paid
	 * meanwhile; 0: not known. */
	double truth;
};

/* What was paid since the champion reigns. */
struct reign {
	double real, ghost;
};

struct pn_jury {
	struct pn_policy_attr attr;
	uint64_t threshold;
	size_t capacity_pages; /* of the cache */
	const struct pn_policy_ops *const *candidates;
	double miss_cost; /* of registering what is used, on average */
	struct ghost ghosts[PN_JURY_GHOSTS];
	unsigned champion;
	struct reign reign;
	struct known known[PN_JURY_REGIONS];
	uint32_t buckets[BUCKETS];
	uint32_t free, nknown;
	uint64_t nuses; /* since the bills faded */
};

int pn_jury_open(const struct pn_policy_attr *attr,
		 const struct pn_policy_ops *const *candidates,
		 struct pn_jury **out)
{
	struct pn_jury *jury = calloc(1, sizeof(*jury));

	if (!jury)
		return -ENOMEM;
	jury->attr = *attr;
	jury->threshold = ALL;
	jury->capacity_pages = attr->capacity_pages;
	jury->candidates = candidates;
	for (uint32_t i = 0; i < PN_JURY_REGIONS; i++)
		jury->known[i].next = i + 2 <= PN_JURY_REGIONS ? i + 2 : 0;
	jury->free = 1;
	for (unsigned i = 0; i < PN_JURY_GHOSTS; i++) {
		int ret = candidates[i]->open(attr, &jury->ghosts[i].policy);

		if (ret) {
			pn_jury_close(jury);
			return ret;
		}
	}
	*out = jury;
	return 0;
}

void pn_jury_close(struct pn_jury *jury)
{
	if (!jury)
		return;
	for (unsigned i = 0; i < PN_JURY_GHOSTS; i++)
		pn_policy_close(jury->ghosts[i].policy);
	free(jury);
}

bool pn_jury_samples(const struct pn_jury *jury,
		     const struct pn_policy_node *node)
{
	return node->name < jury->threshold;
}

/* --- known regions ----------------------------------------------------------
 */

/* High bits choose the sample, so buckets take low ones. */
static uint32_t *bucket_of(struct pn_jury *jury, uint32_t name)
{
	return &jury->buckets[name % BUCKETS];
}

static struct known *find(struct pn_jury *jury, uint32_t name)
{
	uint32_t at = *bucket_of(jury, name);

	while (at && jury->known[at - 1].name != name)
		at = jury->known[at - 1].next;
	return at ? &jury->known[at - 1] : NULL;
}

/* NULL: no more can be known. */
static struct known *learn(struct pn_jury *jury,
			   const struct pn_policy_node *node)
{
	uint32_t *bucket = bucket_of(jury, node->name), at = jury->free;
	struct known *known;

	if (!at)
		return NULL;
	known = &jury->known[at - 1];
	jury->free = known->next;
	jury->nknown++;
	*known = (struct known){ .name = node->name,
				 .npages = node->npages,
				 .next = *bucket };
	*bucket = at;
	return known;
}

static void forget(struct pn_jury *jury, struct known *known)
{
	uint32_t at = (uint32_t)(known - jury->known) + 1;
	uint32_t *from = bucket_of(jury, known->name);

	while (*from != at)
		from = &jury->known[*from - 1].next;
	*from = known->next;
	known->next = jury->free;
	jury->free = at;
	jury->nknown--;
}

static struct known *known_of(struct pn_policy_node *node, unsigned ghost)
{
	return pn_container_of(node - ghost, struct known, nodes);
}

static void leave(struct pn_jury *jury, struct known *known, unsigned ghost)
{
	jury->ghosts[ghost].npages -= known->npages;
	known->in &= ~(1u << ghost);
	if (!known->in)
		forget(jury, known);
}

/* --- ghosts ------------------------------------------------------------------
 */

static bool by_regions(const struct pn_jury *jury)
{
	return jury->capacity_pages == SIZE_MAX;
}

static double part_of_all(const struct pn_jury *jury)
{
	return (double)jury->threshold / (double)ALL;
}

/* The share of the sample, in pages. */
static size_t share(const struct pn_jury *jury)
{
	return (size_t)((double)jury->capacity_pages * part_of_all(jury) + 0.5);
}

/* As many batches as n victims cost: in the whole cache they have company. */
static double batches(const struct pn_jury *jury,
		      const struct pn_policy *policy, unsigned n)
{
	double company = n / part_of_all(jury);

	if (!policy->ops->batched)
		return n;
	return n / (company < jury->attr.batch ? company : jury->attr.batch);
}

static void charge(struct pn_jury *jury, unsigned i, double us)
{
	jury->ghosts[i].bill += us;
	if (i == jury->champion)
		jury->reign.ghost += us;
}

/* Makes room for npages more. */
static void make_room(struct pn_jury *jury, unsigned i, size_t npages)
{
	struct ghost *ghost = &jury->ghosts[i];
	struct pn_policy *policy = ghost->policy;
	struct pn_policy_want want = { .nregions = 1 };
	struct pn_list victims, *link;
	size_t room = share(jury);
	unsigned n;

	if (ghost->npages + npages <= room)
		return;
	want.npages = ghost->npages + npages - room;
	pn_list_init(&victims);
	n = policy->ops->evict(policy, &want, &victims);
	charge(jury, i, jury->attr.deregister_fixed * batches(jury, policy, n));
	while ((link = pn_list_pop(&victims))) {
		struct known *known = known_of(
			pn_container_of(link, struct pn_policy_node, link), i);

		charge(jury, i, jury->attr.deregister_page * known->npages);
		leave(jury, known, i);
	}
}

static double register_cost(const struct pn_jury *jury, uint32_t npages)
{
	return jury->attr.register_fixed + jury->attr.register_page * npages;
}

static void enter(struct pn_jury *jury, struct known *known, unsigned i)
{
	struct ghost *ghost = &jury->ghosts[i];
	struct pn_policy_node *node = &known->nodes[i];

	known->in |= 1u << i; /* before others leave, so that it stays known */
	charge(jury, i, register_cost(jury, known->npages));
	make_room(jury, i, known->npages);
	*node = (struct pn_policy_node){ .npages = known->npages,
					 .name = known->name };
	pn_list_init(&node->link);
	ghost->npages += known->npages;
	pn_policy_insert(ghost->policy, node);
}

/* The candidate once more, with batches that suit the sample. */
static void reopen(struct pn_jury *jury, unsigned i)
{
	struct pn_policy_want all = { .nregions = UINT32_MAX };
	struct pn_policy_attr attr = jury->attr;
	struct pn_policy *old = jury->ghosts[i].policy, *new;
	struct pn_list nodes, *link;

	attr.batch = (unsigned)(attr.batch * part_of_all(jury) + 0.5);
	attr.batch = attr.batch ? attr.batch : 1;
	if (jury->candidates[i]->open(&attr, &new))
		return;
	new->clock = old->clock;
	pn_list_init(&nodes);
	old->ops->evict(old, &all, &nodes);
	while ((link = pn_list_pop(&nodes))) {
		struct pn_policy_node *node =
			pn_container_of(link, struct pn_policy_node, link);

		pn_policy_heard(new, node);
		new->ops->insert(new, node);
	}
	pn_policy_close(old);
	jury->ghosts[i].policy = new;
}

/* Half of the sample goes. */
static void halve(struct pn_jury *jury)
{
	jury->threshold /= 2;
	for (uint32_t at = 0; at < PN_JURY_REGIONS; at++) {
		struct known *known = &jury->known[at];

		if (!known->in || known->name < jury->threshold)
			continue;
		for (unsigned i = 0; i < PN_JURY_GHOSTS; i++) {
			struct pn_policy *policy = jury->ghosts[i].policy;

			if (!(known->in & 1u << i))
				continue;
			policy->ops->remove(policy, &known->nodes[i]);
			leave(jury, known, i);
		}
	}
	for (unsigned i = 0; i < PN_JURY_GHOSTS; i++) {
		jury->ghosts[i].bill /= 2;
		reopen(jury, i);
	}
	jury->reign = (struct reign){ 0, 0 };
}

/* What a reign showed long ago is doubted: the candidate may get another try.
 */
static void doubt(struct pn_jury *jury)
{
	for (unsigned i = 0; i < PN_JURY_GHOSTS; i++)
		if (i != jury->champion && jury->ghosts[i].truth > 0)
			jury->ghosts[i].truth =
				(jury->ghosts[i].truth +
				 jury->ghosts[jury->champion].truth) /
				2;
}

static void fade(struct pn_jury *jury)
{
	if (++jury->nuses < WINDOW_USES * (uint64_t)PN_JURY_REGIONS)
		return;
	jury->nuses = 0;
	for (unsigned i = 0; i < PN_JURY_GHOSTS; i++)
		jury->ghosts[i].bill /= 2;
	jury->reign.real /= 2;
	jury->reign.ghost /= 2;
	doubt(jury);
}

void pn_jury_use(struct pn_jury *jury, const struct pn_policy_node *node)
{
	struct known *known = find(jury, node->name);

	if (by_regions(jury) || node->npages > share(jury))
		return; /* the same for all */
	while (!known && !(known = learn(jury, node))) {
		halve(jury);
		if (!pn_jury_samples(jury, node))
			return;
	}
	fade(jury);
	jury->miss_cost +=
		(register_cost(jury, known->npages) - jury->miss_cost) /
		AVERAGE_USES;
	for (unsigned i = 0; i < PN_JURY_GHOSTS; i++) {
		if (known->in & 1u << i)
			pn_policy_use(jury->ghosts[i].policy, &known->nodes[i]);
		else
			enter(jury, known, i);
	}
}

void pn_jury_resize(struct pn_jury *jury, size_t capacity_pages)
{
	jury->capacity_pages = capacity_pages;
	for (unsigned i = 0; i < PN_JURY_GHOSTS; i++) {
		struct pn_policy *policy = jury->ghosts[i].policy;

		policy->ops->resize(policy, capacity_pages);
		if (!by_regions(jury))
			make_room(jury, i, 0);
	}
}

void pn_jury_begin(struct pn_jury *jury)
{
	for (unsigned i = 0; i < PN_JURY_GHOSTS; i++)
		jury->ghosts[i].bill = 0;
	jury->nuses = 0;
	jury->reign = (struct reign){ 0, 0 };
}

void pn_jury_registered(struct pn_jury *jury, uint32_t npages)
{
	jury->reign.real += register_cost(jury, npages);
}

void pn_jury_evicted(struct pn_jury *jury, unsigned nregions, size_t npages)
{
	const struct pn_policy_ops *ops = jury->candidates[jury->champion];

	jury->reign.real +=
		jury->attr.deregister_fixed * (ops->batched ? 1 : nregions) +
		jury->attr.deregister_page * (double)npages;
}

/* Ghosts know regions by name. Where requests overlap without being the same,
 * the real cache does otherwise, under some candidates more than under others;
 * so a bill is worth what the candidate's last reign showed it to be worth. */
static void look_at_truth(struct pn_jury *jury)
{
	const struct reign *reign = &jury->reign;

	if (reign->ghost < CHANCE_MISSES * jury->miss_cost)
		return;
	jury->ghosts[jury->champion].truth =
		reign->real * part_of_all(jury) / reign->ghost;
}

static double true_bill(const struct pn_jury *jury, unsigned i)
{
	double truth = jury->ghosts[i].truth;

	if (truth <= 0)
		truth = jury->ghosts[jury->champion].truth;
	return jury->ghosts[i].bill * (truth > 0 ? truth : 1);
}

unsigned pn_jury_verdict(struct pn_jury *jury)
{
	double share = jury->threshold < ALL ? SHARE_SAMPLED : SHARE_OF_ALL;
	unsigned best = jury->champion;
	double bill;

	look_at_truth(jury);
	bill = true_bill(jury, jury->champion);
	for (unsigned i = 0; i < PN_JURY_GHOSTS; i++)
		if (true_bill(jury, i) < true_bill(jury, best))
			best = i;
	if (true_bill(jury, best) + share * bill +
		    CHANCE_MISSES * jury->miss_cost <
	    bill)
		return best;
	return jury->champion;
}

void pn_jury_crown(struct pn_jury *jury, unsigned candidate)
{
	jury->champion = candidate;
	pn_jury_watch(jury);
}

void pn_jury_watch(struct pn_jury *jury)
{
	jury->reign = (struct reign){ 0, 0 };
}

void pn_jury_check(struct pn_jury *jury)
{
	size_t npages[PN_JURY_GHOSTS] = { 0 };
	uint32_t nknown = 0;

	for (uint32_t at = 0; at < PN_JURY_REGIONS; at++) {
		const struct known *known = &jury->known[at];

		nknown += !!known->in;
		for (unsigned i = 0; i < PN_JURY_GHOSTS; i++)
			if (known->in & 1u << i)
				npages[i] += known->npages;
	}
	pn_assert(nknown == jury->nknown);
	for (unsigned i = 0; i < PN_JURY_GHOSTS; i++) {
		struct pn_policy *policy = jury->ghosts[i].policy;

		pn_assert(npages[i] == jury->ghosts[i].npages);
		policy->ops->check(policy);
	}
}
