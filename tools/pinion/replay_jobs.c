/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/pinion/replay_jobs.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tools/pinion/report.h"

#define LOOK_US 20000

struct pool {
	const struct pn_workload *workload;
	struct pn_replay_job *jobs;
	size_t njobs;
	_Atomic size_t next, done;
	_Atomic uint64_t nsteps;
};

static void *work(void *arg)
{
	struct pool *pool = arg;
	size_t i;

	while ((i = atomic_fetch_add(&pool->next, 1)) < pool->njobs) {
		struct pn_replay_job *job = &pool->jobs[i];

		job->attr.progress = &pool->nsteps;
		job->ret = pn_replay(pool->workload, &job->attr, &job->result);
		atomic_fetch_add(&pool->done, 1);
	}
	return NULL;
}

static void show(struct pool *pool)
{
	double all = (double)pool->njobs * (double)pool->workload->nsteps;
	char text[64];

	snprintf(text, sizeof(text), "replaying: %zu of %zu runs, %.0f %%",
		 atomic_load(&pool->done), pool->njobs,
		 100 * (double)atomic_load(&pool->nsteps) / (all ? all : 1));
	pn_report_progress(text);
}

static unsigned ncores(void)
{
	cpu_set_t set;

	return sched_getaffinity(0, sizeof(set), &set)
		       ? 1
		       : (unsigned)CPU_COUNT(&set);
}

static int first_error(const struct pool *pool)
{
	for (size_t i = 0; i < pool->njobs; i++)
		if (pool->jobs[i].ret)
			return pool->jobs[i].ret;
	return 0;
}

int pn_replay_jobs_run(const struct pn_workload *workload,
		       struct pn_replay_job *jobs, size_t njobs,
		       unsigned nthreads)
{
	struct pool pool = { .workload = workload,
			     .jobs = jobs,
			     .njobs = njobs };
	unsigned n, max = nthreads ? nthreads : ncores();
	pthread_t *threads;

	if (max > njobs)
		max = (unsigned)njobs;
	threads = calloc(max + 1, sizeof(*threads));
	if (!threads)
		return -ENOMEM;
	for (n = 0; n < max; n++)
		if (pthread_create(&threads[n], NULL, work, &pool))
			break;
	if (!n)
		work(&pool);
	while (atomic_load(&pool.done) < njobs) {
		show(&pool);
		usleep(LOOK_US);
	}
	pn_report_progress(NULL);
	while (n)
		pthread_join(threads[--n], NULL);
	free(threads);
	return first_error(&pool);
}
