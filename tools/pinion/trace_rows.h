/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * traced -- what a recorded trace says, as rows for a report: registered memory
 * over time (`what` memory), how often buffers come again (reuse), and what a
 * cache of which size would find (budget).
 *
 * A trace that says when regions were registered tells memory over time; plain
 * lists of requests tell the rest alone.
 */
#ifndef PN_TOOLS_TRACED_H
#define PN_TOOLS_TRACED_H

#include "tools/pinion/rows.h"

/* -EBADMSG: no trace, or damaged (`why`); -ENOMEM; or as open(2). */
int pn_trace_rows_read(struct pn_rows *rows, const char *path,
		       struct pn_why *why);

#endif
