/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * agreement -- the figures of the five papers beside those of our rows.
 *
 * A *claim* is an entry of the table in agreement.c: the paper and the place in
 * it, its number, how the same number is computed from rows of measurements,
 * the range that counts as agreement, and the reason for a difference. A claim
 * without rows is *missing*; the table names the command that makes its rows. A
 * new experiment is a new entry. Rows of the design for which the papers have
 * no number, or none that can be measured here, name the tests that show them.
 */
#ifndef PN_TOOLS_AGREEMENT_H
#define PN_TOOLS_AGREEMENT_H

#include <stddef.h>

#include "tools/pinion/rows.h"

enum pn_verdict {
	PN_AGREES,  /* within the bounds of the claim */
	PN_BETTER,  /* beyond the bounds on the good side */
	PN_DIFFERS, /* `why` has the reason */
	PN_MISSING, /* no rows */
	PN_TESTED,  /* no number in the paper; covered by tests */
	PN_VERDICTS
};

struct pn_agreement {
	const char *row;   /* row of the design: "H6" */
	const char *where; /* "Li and others 2011, table 3" */
	const char *what;  /* "registered memory saved, CG" */
	const char *unit;
	double paper, ours; /* NAN: the paper has none; no rows */
	enum pn_verdict verdict;
	/* reason of a difference, or the basis of the number */
	const char *why;
	const char *command; /* command that makes its rows */
	unsigned number;     /* index in the table */
};

/* Compares all claims with the rows. The caller frees the array. -ENOMEM. */
int pn_agreement_find(const struct pn_rows *rows, struct pn_agreement **out,
		      size_t *n);

const char *pn_verdict_name(enum pn_verdict verdict);

#endif
