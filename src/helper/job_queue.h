/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * job_queue -- registration jobs ordered by deadline: the registration queue
 * of the paper that helper.h names.
 *
 * A job takes up to work_ns and has to be done by due_ns. One thread does the
 * jobs one after the other, so the deadline of a job leaves enough time for
 * the job behind it. Adding a job that comes too close to its neighbours moves
 * deadlines to earlier times, the job's own or those before it, never to later
 * ones (the paper's section 3.2, "adjusting registration deadlines").
 *
 * At rest: for neighbours a, b: a.due_ns + b.work_ns <= b.due_ns, or both
 * deadlines are 0.
 * Threads: the caller's.
 */
#ifndef PN_HELPER_JOB_QUEUE_H
#define PN_HELPER_JOB_QUEUE_H

#include <stddef.h>
#include <stdint.h>

#include "base/list.h"

struct pn_job {
	struct pn_list link; /* in a queue, or empty */
	uint64_t due_ns;     /* the deadline */
	uint64_t work_ns;    /* how long the job takes at most */
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

/* The job with the first deadline; NULL: the queue is empty. */
static inline struct pn_job *pn_job_queue_first(const struct pn_job_queue *jobs)
{
	if (pn_list_empty(&jobs->list))
		return NULL;
	return pn_container_of(jobs->list.next, struct pn_job, link);
}

/* If a job were added that is due at due_ns and takes work_ns: the latest time
 * at which the first of the jobs concerned, that one or one that would have to
 * move for it, could begin. */
uint64_t pn_job_queue_start(const struct pn_job_queue *jobs, uint64_t due_ns,
			    uint64_t work_ns);

/* Adds a job that is in no queue; its due_ns may become earlier. */
void pn_job_queue_add(struct pn_job_queue *jobs, struct pn_job *job);

/* Does nothing when the job is in no queue. */
void pn_job_queue_remove(struct pn_job_queue *jobs, struct pn_job *job);

#endif
