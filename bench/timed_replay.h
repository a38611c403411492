/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * timed_replay -- replays the requests of a trace at their recorded times over
 * one simulated node, or in real time over a device of this machine, with or
 * without helper.
 *
 * Each request of at least 16 KiB pins its buffer, holds it for the time that
 * its bytes take on the link, and unpins it. The time of a registration delays
 * the following requests only if they would come before its end. The call sites
 * of the trace are those of the helper. Memory that the program released is
 * deregistered at that time if the trace has releases (plain traces have none).
 *
 * In real time the memory is real, at other addresses, and between requests the
 * thread computes (it keeps its core busy). The helper is a thread and has the
 * limit that the option `helper` sets. A device has threads of its own: run
 * each such replay in a new process.
 */
#ifndef PN_BENCH_RECORDED_H
#define PN_BENCH_RECORDED_H

#include <pinion/helper.h>

#include "bench/cluster.h"

struct pn_timed_replay_attr {
	const char *path;
	const char *cost;      /* profile of the simulated node */
	const char *device;    /* spec of a device; NULL: a simulated node */
	enum pn_scheme scheme; /* LEAVE_PINNED or HELPER */
	enum pn_predictor predictor;
	unsigned window;
	double patience; /* parameter of `learned`; 0: the default */
};

/* *helper gets the helper's counters, unless it is NULL. -ENODATA: no request
 * is long enough; errors of pn_trace_open(), printed, and of the device. */
int pn_timed_replay_run(const struct pn_timed_replay_attr *attr,
			struct pn_cluster_result *out,
			struct pinion_helper_stats *helper);

typedef int pn_trace_file_fn(void *arg, const char *path, const char *name);

/* Calls fn for each trace of a folder, sorted by name, until it returns an
 * error. */
int pn_trace_files_each(const char *folder, pn_trace_file_fn *fn, void *arg);

#endif
