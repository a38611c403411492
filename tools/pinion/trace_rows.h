/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * trace_rows -- makes rows for a report from a trace: registered memory over
 * time (`what` memory), reuse of buffers (reuse), and hits by cache size
 * (budget).
 *
 * Memory over time needs a trace with registrations; plain traces have only the
 * rest.
 */
#ifndef PN_TOOLS_TRACED_H
#define PN_TOOLS_TRACED_H

#include "tools/pinion/rows.h"

/* -EBADMSG: not a trace, or damaged (`why`); -ENOMEM; others as open(2). */
int pn_trace_rows_read(struct pn_rows *rows, const char *path,
		       struct pn_why *why);

#endif
