/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * replays -- many runs of one script (trace/replay.h), on all cores.
 *
 * A list of jobs, one for each policy and budget; threads take them one by one,
 * while the calling thread shows how far they are.
 */
#ifndef PN_TOOLS_REPLAYS_H
#define PN_TOOLS_REPLAYS_H

#include "tools/trace/replay.h"

struct pn_replay_job {
	struct pn_replay_attr attr;
	struct pn_replay_result result;
	int ret;
};

/* nthreads 0: one for each core that this process may use. Returns the first
 * error of a job, or 0. -ENOMEM. */
int pn_replay_jobs_run(const struct pn_workload *script,
		       struct pn_replay_job *jobs, size_t njobs,
		       unsigned nthreads);

#endif
