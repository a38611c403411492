/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * job -- something to be done by a deadline, and the queue of them (the
 * paper's RQ).
 *
 * The queue is ordered by deadline. One after the other, every job must be
 * done in time: between an job and the one before it lies at least the time
 * that it takes. Adding one that comes too close moves deadlines forward in
 * time, its own or those before it, never back (paper Helper, 3.2, "adjusting
 * registration deadlines").
 *
 * At rest: for neighbours a, b: a.due_ns + b.work_ns <= b.due_ns, or both are
 * as early as can be.
 * Threads: the caller's.
 */
#ifndef PN_HELPER_JOB_QUEUE_H
#define PN_HELPER_JOB_QUEUE_H

#include <stddef.h>
#include <stdint.h>

#include "base/list.h"

struct pn_job {
	struct pn_list link; /* in the queue, or alone */
	uint64_t due_ns;     /* done by then */
	uint64_t work_ns;    /* how long it takes, at most */
};

struct pn_job_queue {
	struct pn_list list;
	size_t n;
};

static inline void pn_job_init(struct pn_job *job)
{
	pn_list_init(&job->link);
}

static inline void pn_job_queue_init(struct pn_job_queue *jobs)
{
	pn_list_init(&jobs->list);
	jobs->n = 0;
}

/* The one due first; NULL: none. */
static inline struct pn_job *pn_job_queue_first(const struct pn_job_queue *jobs)
{
	if (pn_list_empty(&jobs->list))
		return NULL;
	return pn_container_of(jobs->list.next, struct pn_job, link);
}

/* When the first job that would have to move for it, or itself, would have
 * to be begun if one were added that is due at due_ns and takes work_ns. */
uint64_t pn_job_queue_start(const struct pn_job_queue *jobs, uint64_t due_ns,
			    uint64_t work_ns);

/* Adds an job that stands in no queue; its due_ns may become earlier. */
void pn_job_queue_add(struct pn_job_queue *jobs, struct pn_job *job);

/* Takes it out; nothing happens when it stands in no queue. */
void pn_job_queue_remove(struct pn_job_queue *jobs, struct pn_job *job);

#endif
