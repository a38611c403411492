/* SPDX-License-Identifier: BSD-2-Clause */
#include "helper/share.h"

#include <stdlib.h>

#include "base/compiler.h"

static const char *const names[] = { "off", "own", "auto", "aggressive",
				     "conservative" };

_Static_assert(PN_ARRAY_LEN(names) == PN_SHARE_NPOLICIES, "name every policy");

const char *pn_share_policy_name(unsigned policy)
{
	return policy < PN_SHARE_NPOLICIES ? names[policy] : NULL;
}

unsigned pn_cores_count(const struct pn_cores *cores)
{
	unsigned n = 0;

	for (unsigned i = 0; i < PN_CORES_WORDS; i++)
		n += (unsigned)__builtin_popcountll(cores->word[i]);
	return n;
}

/* --- assigning cores ------------------------------------------------------ */

/* Tasks 0 to n-1 are the members' programs, n to 2n-1 their helpers. */
struct assignment {
	const struct pn_member *members;
	unsigned n;
	struct pn_cores used;
	struct pn_cores visited;     /* in this search */
	uint16_t task[PN_CORES_MAX]; /* which has a core that is used */
};

static const struct pn_cores *cores_of(const struct assignment *s,
				       unsigned task)
{
	return &s->members[task % s->n].cores;
}

/* The first core of `in` that is not in `excluded`; PN_CORES_MAX: none. */
static unsigned first_core(const struct pn_cores *in,
			   const struct pn_cores *excluded)
{
	for (unsigned i = 0; i < PN_CORES_WORDS; i++) {
		uint64_t left = in->word[i] & ~excluded->word[i];

		if (left)
			return 64 * i + (unsigned)__builtin_ctzll(left);
	}
	return PN_CORES_MAX;
}

/* Gives a task a free core, or a core whose task can move to another. Each core
 * is visited once in a search, which bounds its time and its depth. */
static bool find_core(struct assignment *s, unsigned task)
{
	const struct pn_cores *cores = cores_of(s, task);
	unsigned core = first_core(cores, &s->used);

	if (core == PN_CORES_MAX) {
		while ((core = first_core(cores, &s->visited)) !=
		       PN_CORES_MAX) {
			pn_cores_add(&s->visited, core);
			if (find_core(s, s->task[core]))
				break;
		}
		if (core == PN_CORES_MAX)
			return false;
	}
	pn_cores_add(&s->used, core);
	s->task[core] = (uint16_t)task;
	return true;
}

static bool assign(struct assignment *s, unsigned task)
{
	s->visited = (struct pn_cores){ 0 };
	return find_core(s, task);
}

/* Two helpers of one process have one program. */
static void assign_programs(struct assignment *s)
{
	for (unsigned i = 0; i < s->n; i++) {
		unsigned j = 0;

		while (s->members[j].process != s->members[i].process)
			j++;
		if (j == i)
			assign(s, i);
	}
}

/* --- policies ------------------------------------------------------------- */

/* The member with more memory comes first; ties by process, which is arbitrary
 * but the same for all who decide, then by index, which makes the order total.
 */
static int by_bytes(const void *a, const void *b)
{
	const struct pn_member *l = *(const struct pn_member *const *)a;
	const struct pn_member *r = *(const struct pn_member *const *)b;

	if (l->bytes != r->bytes)
		return l->bytes > r->bytes ? -1 : 1;
	if (l->process != r->process)
		return l->process < r->process ? -1 : 1;
	return l < r ? -1 : l > r;
}

static bool has_core(struct assignment *s, unsigned me)
{
	const struct pn_member *order[PN_SHARE_MAX];

	for (unsigned i = 0; i < s->n; i++)
		order[i] = &s->members[i];
	qsort(order, s->n, sizeof(order[0]), by_bytes);
	for (unsigned i = 0; i < s->n; i++) {
		unsigned member = (unsigned)(order[i] - s->members);
		bool assigned = assign(s, s->n + member);

		if (member == me)
			return assigned;
	}
	return false;
}

static bool overlap(const struct pn_cores *a, const struct pn_cores *b)
{
	uint64_t both = 0;

	for (unsigned i = 0; i < PN_CORES_WORDS; i++)
		both |= a->word[i] & b->word[i];
	return both;
}

/* The helpers that may run on the idle cores of this one, spread evenly. */
static struct pn_share share_idle_cores(const struct assignment *s, unsigned me)
{
	struct pn_cores idle = s->members[me].cores;
	unsigned nidle, nhelpers = 0;

	for (unsigned i = 0; i < PN_CORES_WORDS; i++)
		idle.word[i] &= ~s->used.word[i];
	nidle = pn_cores_count(&idle);
	if (!nidle)
		return (struct pn_share){ .idle = true, .nhelpers = 1 };
	for (unsigned i = 0; i < s->n; i++)
		nhelpers += overlap(&s->members[i].cores, &idle);
	return (struct pn_share){ .nhelpers = (nhelpers + nidle - 1) / nidle };
}

struct pn_share pn_share_decide(enum pn_share_policy policy,
				const struct pn_member *members, unsigned n,
				unsigned me)
{
	struct assignment s = { .members = members, .n = n };
	struct pn_share share = { .nhelpers = 1 };

	pn_assert(me < n && n <= PN_SHARE_MAX);
	if (policy == PN_SHARE_OFF)
		share.idle = true;
	if (policy == PN_SHARE_OFF || policy == PN_SHARE_OWN)
		return share;
	assign_programs(&s);
	if (policy == PN_SHARE_AGGRESSIVE)
		return share_idle_cores(&s, me);
	share.idle = !has_core(&s, me);
	return share;
}
