/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * share -- which helpers of a machine get its idle cores.
 *
 * Nouns
 *   cores       a set of cores; a core's number is that of its first CPU.
 *   member      a helper of the machine: its process, the cores where that
 *               process may run, and how much memory the helper manages.
 *   assignment  a core given to a program or to a helper, one each.
 *
 * Programs get a core first, one for each process, then helpers, those that
 * manage the most memory first, each among the cores where its process may run.
 * Bindings overlap in every way, so a program or helper that has a core may
 * have to move to another core to make room for the next, but it never loses
 * its core (augmenting paths, Kuhn 1955). So a member gets a core whenever any
 * assignment of those before it allows that, and the memory managed by helpers
 * with a core is the most there can be.
 *
 * Policies
 *   own           the helper acts, whatever cores there are.
 *   conservative  the helper acts if it gets a core.
 *   aggressive    all helpers act if there is an idle core for them, and take
 *                 turns on it.
 *   auto          as conservative, which equals `own` while there is a core for
 *                 each helper. The paper prefers this policy (see helper.h).
 *
 * Pure functions: equal members give equal answers, so processes that see the
 * same members need no agreement. Cores are counted, threads are not bound: the
 * kernel moves threads within the binding that the user gave.
 * Threads: any.
 */
#ifndef PN_HELPER_SHARE_H
#define PN_HELPER_SHARE_H

#include <stdbool.h>
#include <stdint.h>

/* In the order of the choices of the option `helper`; a test compares. */
enum pn_share_policy {
	PN_SHARE_OFF,
	PN_SHARE_OWN,
	PN_SHARE_AUTO,
	PN_SHARE_AGGRESSIVE,
	PN_SHARE_CONSERVATIVE,
	PN_SHARE_NPOLICIES,
};

/* "off", ...; NULL at the end. */
const char *pn_share_policy_name(unsigned policy);

#define PN_CORES_WORDS 16
#define PN_CORES_MAX   (64 * PN_CORES_WORDS)

struct pn_cores {
	uint64_t word[PN_CORES_WORDS];
};

static inline void pn_cores_add(struct pn_cores *cores, unsigned core)
{
	if (core < PN_CORES_MAX)
		cores->word[core / 64] |= UINT64_C(1) << core % 64;
}

unsigned pn_cores_count(const struct pn_cores *cores);

#define PN_SHARE_MAX 256 /* members */

struct pn_member {
	uint64_t process; /* equal for two helpers of one process */
	uint64_t bytes;
	struct pn_cores cores;
};

struct pn_share {
	bool idle;	   /* there is no core for the helper */
	unsigned nhelpers; /* that take turns on its core; 1: itself alone */
};

/* What member `me` of `n` (at most PN_SHARE_MAX) does under a policy. */
struct pn_share pn_share_decide(enum pn_share_policy policy,
				const struct pn_member *members, unsigned n,
				unsigned me);

#endif
