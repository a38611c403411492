/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * claims -- the tables behind agreement.h: the papers, their numbers with the
 * bounds, and the rows of the design that only tests show.
 *
 * A new experiment is a new entry of pn_claims. Its bounds are written before
 * it is run. `fitted` names what makes the number follow from the costs alone;
 * it must be set if the profile of the claim was chosen with this number in
 * view.
 */
#ifndef PN_TOOLS_CLAIMS_H
#define PN_TOOLS_CLAIMS_H

#include "tools/pinion/agreement.h"
#include "tools/pinion/cost_model.h"
#include "tools/pinion/ideas.h"

/* How a number is computed from rows. */
enum pn_claim_how {
	PN_CLAIM_MEAN,	/* mean of the key */
	PN_CLAIM_LESS,	/* per cent less than in the rows of `base` */
	PN_CLAIM_TIMES, /* ratio to the rows of `base` */
	PN_CLAIM_MEET,	/* smallest reuse at which it reaches `base` */
};

struct pn_claim {
	const char *row;
	enum pn_paper paper;
	const char *where, *what, *unit;
	double number;
	double low, high; /* what counts as the same */
	int good;	  /* 1: more is better; -1: less is */
	/* Where the paper's number is expected, and the profile of
	 * PN_PLACE_PAPER. */
	enum pn_place home;
	const char *profile;
	/* Another claim has the same rows elsewhere. */
	bool home_only;
	const char *fitted; /* NULL: no cost was chosen for this number */
	pn_cost_model model;
	const char *bench, *key;
	bool on_gpu; /* rows of `bench gpu` have the same keys */
	enum pn_claim_how how;
	const char *common[4]; /* conditions, as pn_row_meets() */
	const char *own, *base;
	/* The number is computed for each value of this key. The mean of these
	 * is judged, or with `extreme` the largest: where the paper names a
	 * limit that holds for each of them, or the largest over the same sizes
	 * of messages. NULL: one number. */
	const char *over;
	bool extreme;
	/* The idea whose gain the number is: per cent, or times. With a limit
	 * it is not a gain but a price, in per cent, that is too high above it.
	 */
	enum pn_idea idea;
	double limit;
	const char *why, *command;
};

extern const struct pn_claim pn_claims[];
extern const size_t pn_nclaims;

/* Gains and prices of ideas for which no paper has a number. */
extern const struct pn_claim pn_effects[];
extern const size_t pn_neffects;

/* Rows without a number in the paper, or with one that cannot be measured
 * here. */
struct pn_tested {
	const char *row, *where, *what, *why;
};

extern const struct pn_tested pn_tested[];
extern const size_t pn_ntested;

/* What the papers show and no experiment here can: `why` says what is missing,
 * and what stands in. */
extern const struct pn_tested pn_absent[];
extern const size_t pn_nabsent;

#endif
