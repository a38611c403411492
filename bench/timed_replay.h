/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * recorded -- replays the requests of a program that ran before, at their
 * times, over one simulated node, with or without helper.
 *
 * Each request of at least 16 KiB pins its buffer, holds it for as long as its
 * bytes take on the link, and unpins it. What registering takes delays the
 * requests behind it only where they would have come before. The trace's call
 * sites are the helper's. Memory that the program released is deregistered
 * then, if the trace says so (plain ones do not): nobody leaves that pinned.
 */
#ifndef PN_BENCH_RECORDED_H
#define PN_BENCH_RECORDED_H

#include "bench/cluster.h"

struct pn_timed_replay_attr {
	const char *path;
	const char *cost;      /* profile */
	enum pn_scheme scheme; /* LEAVE_PINNED or HELPER */
	enum pn_predictor predictor;
	unsigned window;
	double patience; /* of `learned`; 0: the default */
};

/* -ENODATA: no request is long enough; errors of pn_trace_open(), said. */
int pn_timed_replay_run(const struct pn_timed_replay_attr *attr,
			struct pn_cluster_result *out);

typedef int pn_trace_file_fn(void *arg, const char *path, const char *name);

/* Calls fn for each trace of a folder, by name, until it returns an error. */
int pn_trace_files_each(const char *folder, pn_trace_file_fn *fn, void *arg);

#endif
