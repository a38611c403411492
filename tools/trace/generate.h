/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * generate -- requests of programs that never ran: workloads with a known
 * shape, the same for the same seed everywhere.
 *
 * A spec is a name and options, "httpd,requests=100000,seed=7". Objects are
 * buffers that are asked for whole, each at an address of its own.
 *
 *   cello92  like paper Region cache's trace of a timesharing system's disks:
 *            4 of 5 requests of two pages, the rest of one (its figure 9), over
 *            10.4 GB, 0.5 million a day, behind a client cache of 30 MB (table
 *            2). Assumed: requests go on where the one before ended, in runs
 *            of 8 on average, which begin with popularity 1/rank^0.9; the
 *            client cache is direct mapped
 *   httpd    like its trace of a web server: whole files of 1 to 32 pages, each
 *            power of two as likely (figure 9 shows a wide spread), 524 MB of
 *            them, 1.1 million requests (table 2). Assumed: popularity
 *            1/rank^0.8, which has nothing to do with size
 *   zipf     popularity 1/rank^skew, sizes as httpd
 *   loop     the same objects over and over, in the same order
 *   scan     every third request is for a new object that never returns, the
 *            others are as zipf
 *   phases   as zipf, but all other objects in each of several phases
 *
 * Errors: -EINVAL with a text that says what would be right; those of
 * pn_workload_add().
 */
#ifndef PN_TOOLS_TRACE_GENERATE_H
#define PN_TOOLS_TRACE_GENERATE_H

#include "config/option.h"
#include "tools/trace/workload.h"

/* The kinds, one by one, and a line about each; NULL at the end. */
const char *pn_generate_kind(unsigned index, const char **help);

/* Appends the requests to a script. */
int pn_generate(const char *spec, struct pn_workload *script,
		struct pn_why *why);

#endif
