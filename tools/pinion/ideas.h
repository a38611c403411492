/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ideas -- where each idea of the papers pays, where it does not, and why.
 *
 * Nouns
 *   idea    the helper, the heap, the pipeline, ...: a claim (claims.h) that
 *           says what an idea gains names it, with the number at which it gains
 *           nothing. The helper's gain on a device has no number in the paper;
 *           pn_effects are claims without one
 *   effect  a claim's number in a place: a gain, a loss, or no difference,
 * which is less than PN_IDEA_MARGIN per cent; or a price (time, for memory
 *           saved), which is too high above the claim's limit
 *   answer  of an idea in a place: pays, if something is gained, nothing lost
 *           and no price too high; pays in part; does not pay
 *   why     the costs of the place that decide: what registering takes there
 *           against moving, or copying
 *
 * All of it follows from rows. Numbers for which costs were fitted are no
 * evidence and are left out. Threads: any; no state.
 */
#ifndef PN_TOOLS_IDEAS_H
#define PN_TOOLS_IDEAS_H

#include <stddef.h>

#include "tools/pinion/agreement.h"
#include "tools/pinion/rows.h"

/* Ideas of pn_claim; claims about other things have none. */
enum pn_idea {
	PN_IDEA_NONE,
	PN_IDEA_HELPER,
	PN_IDEA_HEAP,
	PN_IDEA_PIPELINE,
	PN_IDEA_CACHE,
	PN_IDEA_OVERLAP,
	PN_IDEA_DIRECT,
	PN_IDEAS
};

#define PN_IDEA_MARGIN 2.0 /* per cent: less is no difference */

enum pn_answer {
	PN_PAYS,
	PN_PAYS_IN_PART,
	PN_PAYS_NOT,
	PN_NOT_SEEN, /* no rows, or fitted ones alone */
	PN_ANSWERS
};

struct pn_idea_at {
	enum pn_answer answer;
	char seen[512]; /* the numbers, as a sentence */
	char why[256];	/* the costs; "": not known */
	/* of numbers that are not a claim's; NULL: there are none */
	const char *command;
};

struct pn_idea_answer {
	const char *name, *does; /* "pipeline", what it does */
	struct pn_idea_at at[PN_PLACES];
	char says[256]; /* where it pays and where not */
};

/* Writes the answers of all ideas but PN_IDEA_NONE, PN_IDEAS - 1. `agreements`
 * are those of pn_agreement_find() for the same rows. */
void pn_ideas_find(const struct pn_rows *rows,
		   const struct pn_agreement *agreements, size_t n,
		   struct pn_idea_answer out[PN_IDEAS - 1]);

const char *pn_answer_name(enum pn_answer answer);

#endif
