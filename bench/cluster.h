/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cluster -- runs a program (program.h) on simulated nodes with the real
 * message layer, caches and helpers, in virtual time, and measures registered
 * memory over time.
 *
 * Each rank has a node of `sim` with two cores, one for the program and one for
 * its helper. Ranks can share a machine: then registered memory is summed over
 * them, and messages between them are not sent at all (shared memory carries
 * them and needs no registration). Memory has no bytes behind it (data=none).
 */
#ifndef PN_BENCH_CLUSTER_H
#define PN_BENCH_CLUSTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bench/meter.h"
#include "bench/program.h"
#include "helper/share.h"
#include "helper/site.h"

enum pn_scheme {
	PN_SCHEME_LEAVE_PINNED,
	PN_SCHEME_ON_DEMAND,
	PN_SCHEME_PIPELINE,
	PN_SCHEME_PIPELINE_LEAVE_PINNED,
	PN_SCHEME_HELPER,
	PN_SCHEME_AUTO,
	PN_SCHEME_AUTO_HELPER,
	PN_SCHEME_COUNT,
};

static inline bool pn_scheme_is_helped(enum pn_scheme scheme)
{
	return scheme == PN_SCHEME_HELPER || scheme == PN_SCHEME_AUTO_HELPER;
}

const char *pn_scheme_name(enum pn_scheme scheme);

#define PN_CLUSTER_PROCESSES 8

/* Registered memory over time on machine 0: of all its ranks, and of each of
 * the first ones. */
struct pn_cluster_series {
	struct pn_series machine;
	struct pn_series processes[PN_CLUSTER_PROCESSES];
	unsigned ranks[PN_CLUSTER_PROCESSES]; /* their ranks */
	unsigned nprocesses;
};

struct pn_cluster_attr {
	struct pn_program_attr program; /* rank is set here */
	unsigned copies;  /* copies of the whole job in parallel; 0: 1 */
	const char *cost; /* profile */
	enum pn_scheme scheme;
	enum pn_predictor predictor;
	unsigned window;
	double jitter;
	uint64_t seed;
	size_t max_bytes; /* budget of each rank; 0: large */
	/* Machine of rank r is machines[r]; NULL: one machine per rank. The
	 * meter measures machine 0. */
	const unsigned *machines;
	/* How helpers get cores; PN_SHARE_OFF, the first: as OWN. */
	enum pn_share_policy policy;
	/* idle cores of a machine besides one core per rank */
	unsigned idle_cores;
	struct pn_cluster_series *series; /* output; NULL: not wanted */
	/* faults (device/sim/script.h); NULL: none. With a script, ranks may
	 * fail: see the result */
	const char *script;
	/* Called with the registered bytes of a rank whenever they change, and
	 * with the progress of rank 0, 0 to 1; may be NULL. */
	void (*observe)(void *arg, unsigned rank, uint64_t t_ns, size_t bytes);
	void (*progress)(void *arg, double done);
	void *arg;
};

struct pn_cluster_result {
	struct pn_metered registered; /* on machine 0 */
	double communication_s;	      /* mean of the ranks */
	double time_s;		      /* end of the last rank */
	/* of all ranks, above the threshold; late: registered again on the
	 * critical path although the buffer had been used before */
	uint64_t transfers, late;
	/* fragments copied because the budget was full */
	uint64_t copied;
	/* transfers whose site the helper left to the cache */
	uint64_t irregular;
	unsigned failed; /* number of ranks that did not finish */
	int error;	 /* error of the first of them */
};

int pn_cluster_run(const struct pn_cluster_attr *attr,
		   struct pn_cluster_result *out);

#endif
