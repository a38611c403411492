/* SPDX-License-Identifier: BSD-2-Clause */
#include "helper/job_queue.h"

static struct pn_job *job_of(struct pn_list *link)
{
	return pn_container_of(link, struct pn_job, link);
}

/* Not below 0. */
static uint64_t subtract(uint64_t time_ns, uint64_t ns)
{
	return time_ns > ns ? time_ns - ns : 0;
}

/* Moves the deadline of `job` so that enough time is left for the job behind.
 */
static void leave_time(struct pn_job *job, const struct pn_job *behind)
{
	uint64_t latest = subtract(behind->due_ns, behind->work_ns);

	if (job->due_ns > latest)
		job->due_ns = latest;
}

/* The link behind which a job due at due_ns belongs: a job's, or the list's.
 * New jobs are mostly due last, so the search begins at the end. */
static struct pn_list *position_for(const struct pn_job_queue *jobs,
				    uint64_t due_ns)
{
	struct pn_list *pos = jobs->list.prev;

	while (pos != &jobs->list && job_of(pos)->due_ns > due_ns)
		pos = pos->prev;
	return pos;
}

uint64_t pn_job_queue_start(const struct pn_job_queue *jobs, uint64_t due_ns,
			    uint64_t work_ns)
{
	const struct pn_list *list = &jobs->list;
	struct pn_list *pos = position_for(jobs, due_ns);
	uint64_t start;

	if (pos->next != list) {
		const struct pn_job *behind = job_of(pos->next);
		uint64_t latest = subtract(behind->due_ns, behind->work_ns);

		due_ns = due_ns < latest ? due_ns : latest;
	}
	start = subtract(due_ns, work_ns);
	for (; pos != list && job_of(pos)->due_ns > start; pos = pos->prev)
		start = subtract(start, job_of(pos)->work_ns);
	return start;
}

void pn_job_queue_add(struct pn_job_queue *jobs, struct pn_job *job)
{
	struct pn_list *list = &jobs->list;
	struct pn_list *pos = position_for(jobs, job->due_ns);

	pn_list_insert(pos, &job->link);
	jobs->n++;
	if (job->link.next != list)
		leave_time(job, job_of(job->link.next));
	for (; pos != list; pos = pos->prev) {
		uint64_t wanted_ns = job_of(pos)->due_ns;

		leave_time(job_of(pos), job_of(pos->next));
		if (job_of(pos)->due_ns == wanted_ns)
			return; /* the jobs further ahead had time enough */
	}
}

void pn_job_queue_remove(struct pn_job_queue *jobs, struct pn_job *job)
{
	if (pn_list_empty(&job->link))
		return;
	pn_list_remove(&job->link);
	jobs->n--;
}
