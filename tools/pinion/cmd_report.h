/* SPDX-License-Identifier: BSD-2-Clause */
/* Writing a report, for `pinion report` and for commands that end with one. */
#ifndef PN_TOOLS_CMD_REPORT_H
#define PN_TOOLS_CMD_REPORT_H

#include <stdbool.h>

struct pn_report_attr {
	const char *title;
	char *const *files; /* NULL at the end */
	const char *output;
	bool agreement;	      /* with the papers' figures beside ours */
	const char *pictures; /* a folder for each figure's SVG; NULL: none */
};

/* Reads, draws and writes; says what is wrong on standard error. Returns enum
 * pn_exit. */
int pn_report_write(const struct pn_report_attr *attr);

#endif
