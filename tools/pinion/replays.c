/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/pinion/replays.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tools/pinion/report.h"

#define LOOK_US 20000

struct crew {
	const struct pn_script *script;
	struct pn_replay_job *jobs;
	size_t njobs;
	_Atomic size_t next, done;
	_Atomic uint64_t nsteps;
};

static void *work(void *arg)
{
	struct crew *crew = arg;
	size_t i;

	while ((i = atomic_fetch_add(&crew->next, 1)) < crew->njobs) {
		struct pn_replay_job *job = &crew->jobs[i];

		job->attr.progress = &crew->nsteps;
		job->ret = pn_replay(crew->script, &job->attr, &job->result);
		atomic_fetch_add(&crew->done, 1);
	}
	return NULL;
}

static void show(struct crew *crew)
{
	double all = (double)crew->njobs * (double)crew->script->nsteps;
	char text[64];

	snprintf(text, sizeof(text), "replaying: %zu of %zu runs, %.0f %%",
		 atomic_load(&crew->done), crew->njobs,
		 100 * (double)atomic_load(&crew->nsteps) / (all ? all : 1));
	pn_report_progress(text);
}

static unsigned ncores(void)
{
	cpu_set_t set;

	return sched_getaffinity(0, sizeof(set), &set)
		       ? 1
		       : (unsigned)CPU_COUNT(&set);
}

static int first_error(const struct crew *crew)
{
	for (size_t i = 0; i < crew->njobs; i++)
		if (crew->jobs[i].ret)
			return crew->jobs[i].ret;
	return 0;
}

int pn_replays_run(const struct pn_script *script, struct pn_replay_job *jobs,
		   size_t njobs, unsigned nthreads)
{
	struct crew crew = { .script = script, .jobs = jobs, .njobs = njobs };
	unsigned n, max = nthreads ? nthreads : ncores();
	pthread_t *threads;

	if (max > njobs)
		max = (unsigned)njobs;
	threads = calloc(max + 1, sizeof(*threads));
	if (!threads)
		return -ENOMEM;
	for (n = 0; n < max; n++)
		if (pthread_create(&threads[n], NULL, work, &crew))
			break;
	if (!n)
		work(&crew);
	while (atomic_load(&crew.done) < njobs) {
		show(&crew);
		usleep(LOOK_US);
	}
	pn_report_progress(NULL);
	while (n)
		pthread_join(threads[--n], NULL);
	free(threads);
	return first_error(&crew);
}
