/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * generate -- synthetic workloads with a known shape, the same for the same
 * seed on every machine.
 *
 * A spec is a name and options, "httpd,requests=100000,seed=7". Objects are
 * buffers that are requested whole, each at its own address.
 *
 *   cello92  like the disk trace of a timesharing system in the paper Region
 *            cache: 4 of 5 requests of two pages, the rest of one (figure 9),
 *            over 10.4 GB, 0.5 million a day, behind a client cache of 30 MB
 *            (table 2). Assumed: a request continues where the previous one
 *            ended, in runs of 8 on average; runs start with popularity
 *            1/rank^0.9; the client cache is direct mapped
 *   httpd    like its trace of a web server: whole files of 1 to 32 pages, all
 *            powers of two equally likely (figure 9 shows a wide spread), 524
 *            MB in total, 1.1 million requests (table 2). Assumed: popularity
 *            1/rank^0.8, independent of size
 *   zipf     popularity 1/rank^skew, sizes as httpd
 *   loop     the same objects again and again, in the same order
 *   scan     every third request is for a new object that is never used again,
 *            the others as zipf
 *   phases   as zipf, with other objects in each of several phases
 *
 * Errors: -EINVAL with a text that says what would be valid; those of
 * pn_workload_add().
 */
#ifndef PN_TOOLS_TRACE_GENERATE_H
#define PN_TOOLS_TRACE_GENERATE_H

#include "config/option.h"
#include "tools/trace/workload.h"

/* The name and help line of the index-th kind; NULL behind the last one. */
const char *pn_generate_kind(unsigned index, const char **help);

/* Appends the requests to a workload. */
int pn_generate(const char *spec, struct pn_workload *workload,
		struct pn_why *why);

#endif
