/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * job -- what commands that run other people's programs (run, mpirun) do
 * before and after: the environment, traces of each process, a report of them.
 *
 * Threads: one.
 */
#ifndef PN_TOOLS_JOB_H
#define PN_TOOLS_JOB_H

#include <stdbool.h>

/* A folder for traces that nobody wants to keep. */
#define PN_JOB_FOLDER "/tmp/pinion-job-XXXXXX"

/* Prepends an entry to the list in an environment variable. -ENOMEM. */
int pn_job_prepend(const char *name, const char *value);

/* Each process of the job records its requests into this folder, which is made
 * if it is not there, into a file NAME.trace; %p and %r in the name stand for
 * process id and rank. "": none does. Negative errno. */
int pn_job_trace(const char *folder, const char *name);

struct pn_job_report {
	const char *title;
	const char *folder; /* of the traces */
	const char *output; /* the page */
	bool remove;	    /* the traces and their folder, afterwards */
};

/* Writes a report of all traces in the folder. Returns enum pn_exit. */
int pn_job_report(const struct pn_job_report *report);

#endif
