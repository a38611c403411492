/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * replay_jobs -- many replays of one workload (tools/trace/replay.h), on all
 * cores.
 *
 * A list of jobs, one per policy and budget; threads take one job after the
 * other while the calling thread shows the progress.
 */
#ifndef PN_TOOLS_REPLAYS_H
#define PN_TOOLS_REPLAYS_H

#include "tools/trace/replay.h"

struct pn_replay_job {
	struct pn_replay_attr attr;
	struct pn_replay_result result;
	int ret;
};

/* nthreads 0: one per core that this process may use. Returns the first error
 * of a job, or 0. -ENOMEM. */
int pn_replay_jobs_run(const struct pn_workload *workload,
		       struct pn_replay_job *jobs, size_t njobs,
		       unsigned nthreads);

#endif
