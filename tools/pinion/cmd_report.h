/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Writing a report, for `pinion report` and for commands that end with one.
 */
#ifndef PN_TOOLS_CMD_REPORT_H
#define PN_TOOLS_CMD_REPORT_H

#include <stdbool.h>
#include <stddef.h>

struct pn_left_out; /* page.h */

struct pn_report_attr {
	const char *title;
	char *const *files; /* terminated by NULL */
	const char *output;
	bool agreement; /* include the comparison with the papers */
	/* a folder for the SVG of each figure; NULL: none */
	const char *pictures;
	/* experiments that could not be run; named beside the comparison */
	const struct pn_left_out *left_out;
	size_t nleft_out;
};

/* Reads, draws and writes the report; prints errors on standard error. Returns
 * enum pn_exit. */
int pn_report_write(const struct pn_report_attr *attr);

#endif
