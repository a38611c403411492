/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * share -- which helpers of a machine get its idle cores (H8).
 *
 * Nouns
 *   cores    a set of cores; a core's number is that of its first CPU.
 *   member   a helper of the machine: of which process, on which cores that
 *            may run, and how much memory it looks after.
 *   seat     a core given to a program or to a helper: one each.
 *
 * Programs are seated first, one core for each process, then helpers, those
 * that look after the most memory first, each on a core where its process may
 * run. Bindings overlap in every way, so that whoever comes first must not sit
 * where another has to: a newcomer may make those before it move, but never
 * stand up (augmenting paths, Kuhn 1955). So nobody is left standing whom any
 * arrangement of those before it could have seated, and the memory looked after
 * by seated helpers is the most there can be.
 *
 * Policies
 *   own           the helper acts, whatever there is.
 *   conservative  the helper acts if it is seated.
 *   aggressive    all helpers act if there is an idle core for them, and take
 *                 turns on it.
 *   auto          as conservative, which is as `own` while cores last: what the
 *                 paper prefers.
 *
 * Pure: equal members give equal answers, so processes that see the same need
 * not talk about it. Seats are counted, not assigned: the kernel moves threads
 * within their binding, and nobody leaves the binding that the user gave.
 * Threads: any.
 */
#ifndef PN_HELPER_SHARE_H
#define PN_HELPER_SHARE_H

#include <stdbool.h>
#include <stdint.h>

/* As the choices of the option `helper`; a test compares. */
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
	bool rest;	   /* there is no core for it */
	unsigned nhelpers; /* that take turns on its core; 1: it is alone */
};

/* What member `me` of `n`, at most PN_SHARE_MAX, does under a policy. */
struct pn_share pn_share_decide(enum pn_share_policy policy,
				const struct pn_member *members, unsigned n,
				unsigned me);

#endif
