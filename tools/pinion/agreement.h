/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * agreement -- the figures of the five papers beside those of our rows.
 *
 * Nouns
 *   claim    an entry of the table in claims.c: the paper and the place in it,
 *            its number, the range that counts as the same, how the same number
 *            is computed from rows, and which cost profile was fitted to it
 *   place    the costs under which a claim is run: those of its paper, the
 *            profiles `cx5` and `h200`, which nobody fitted to a paper, and
 *            the devices `soft`, `verbs` and `cuda` with the costs they
 *            really have
 *   basis    *measured*: a real device with its own costs; *predicted*: virtual
 *            time, or emulated costs, that were not fitted to this claim;
 *            *repeated*: as predicted, but costs do not enter the number, so
 *            the model can only say that it stays; *fitted*: the costs were
 *            chosen so that this very number comes out, or the paper computes
 *            its number from the same costs. Repeated and fitted claims show
 *            nothing new and are counted apart.
 *   verdict  basis and result of a claim in a place, with the bounds
 *
 * Bounds are part of the table, written before a run. In the place of the paper
 * they surround the paper's number; elsewhere the same relative bounds surround
 * what the cost model predicts for that place (cost_model.h), since other costs
 * are another regime and not a worse result.
 * Rows of the design for which the papers have no number, or none that can be
 * measured here, name the tests that show them.
 */
#ifndef PN_TOOLS_AGREEMENT_H
#define PN_TOOLS_AGREEMENT_H

#include <stddef.h>

#include "tools/pinion/rows.h"

enum pn_paper {
	PN_PAPER_HELPER,
	PN_PAPER_HEAP,
	PN_PAPER_PIPELINE,
	PN_PAPER_CACHE,
	PN_PAPER_REUSE,
	PN_PAPERS
};

struct pn_paper_info {
	const char *authors, *title, *year;
	const char *question; /* what its figures answer */
};

enum pn_place {
	PN_PLACE_PAPER, /* the costs of the paper's machine */
	PN_PLACE_CX5,
	PN_PLACE_H200,
	PN_PLACE_SOFT,
	PN_PLACE_VERBS,
	PN_PLACE_CUDA,
	PN_PLACES
};

enum pn_basis { PN_MEASURED, PN_PREDICTED, PN_REPEATED, PN_FITTED, PN_BASES };

enum pn_result {
	PN_BETTER,
	PN_SAME, /* within the bounds */
	PN_WORSE,
	PN_UNJUDGED, /* a number, but nothing to compare with */
	PN_MISSING,  /* no rows */
	PN_RESULTS
};

struct pn_verdict {
	double ours;	     /* NAN: no rows */
	double least, most;  /* of the rows behind it; NAN: one number */
	double expected;     /* the paper's number, or the cost model's */
	double low, high;    /* bounds of "same" */
	enum pn_basis basis; /* valid unless PN_MISSING */
	enum pn_result result;
	const char *command; /* of a row behind it; NULL: none */
};

struct pn_claim; /* claims.h */

struct pn_agreement {
	const struct pn_claim *claim; /* NULL: covered by tests */
	const char *row;	      /* row of the design: "H6" */
	enum pn_paper paper;
	const char *where; /* "table 3" */
	const char *what;  /* "registered memory saved, CG" */
	const char *unit;
	double number; /* the paper's; NAN: none, covered by tests */
	struct pn_verdict at[PN_PLACES];
	enum pn_place home;  /* where the paper's number is expected */
	const char *why;     /* basis, reason of a difference, or the tests */
	const char *fitted;  /* NULL: no cost was chosen for this number */
	const char *command; /* command that makes its rows */
	unsigned index;	     /* in the table */
};

/* Judges all claims by the rows. The caller frees the array. -ENOMEM. */
int pn_agreement_find(const struct pn_rows *rows, struct pn_agreement **out,
		      size_t *n);

/* The number of a claim in a place, without judging it; NAN: no rows. */
double pn_agreement_number(const struct pn_claim *claim,
			   const struct pn_rows *rows, enum pn_place place);

/* The command of a row behind that number; NULL: none. */
const char *pn_agreement_command(const struct pn_claim *claim,
				 const struct pn_rows *rows,
				 enum pn_place place);

const struct pn_paper_info *pn_paper_info(enum pn_paper paper);
const char *pn_place_name(enum pn_place place);

/* The cost profile of a place in which a claim is run; NULL: a device with its
 * own costs, or the claim has none. */
const char *pn_place_profile(enum pn_place place, const struct pn_claim *claim);
const char *pn_basis_name(enum pn_basis basis);
const char *pn_result_name(enum pn_result result);

#endif
