/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * agreement -- what the five papers report, beside what our rows say.
 *
 * A *claim* is a row of the table in agreement.c: which paper and where, what
 * it says as a number, how the same number follows from rows of measurements,
 * how far off counts as agreement, and why they differ where they do. A claim
 * whose rows are not at hand is *missing*, and the table says which command
 * makes them. A new experiment is a new row. Rows of the design for which the
 * papers give no number, or none that can be had here, name the tests that show
 * them.
 */
#ifndef PN_TOOLS_AGREEMENT_H
#define PN_TOOLS_AGREEMENT_H

#include <stddef.h>

#include "tools/pinion/rows.h"

enum pn_verdict {
	PN_AGREES,  /* within the claim's bounds */
	PN_BETTER,  /* beyond them on the good side */
	PN_DIFFERS, /* `why` says why */
	PN_MISSING, /* no rows */
	PN_TESTED,  /* no number in the paper: tests show that it works */
	PN_VERDICTS
};

struct pn_agreement {
	const char *row;   /* of the design: "H6" */
	const char *where; /* "Helper (000), table 3" */
	const char *what;  /* "registered memory saved, CG" */
	const char *unit;
	double paper, ours; /* NAN: not given, not at hand */
	enum pn_verdict verdict;
	const char *why;     /* of a difference, or what it stands on */
	const char *command; /* that makes its rows */
	unsigned number;     /* in the order of the table */
};

/* All claims against the rows; the array is the caller's to free. -ENOMEM. */
int pn_agreement_find(const struct pn_rows *rows, struct pn_agreement **out,
		      size_t *n);

const char *pn_verdict_name(enum pn_verdict verdict);

#endif
