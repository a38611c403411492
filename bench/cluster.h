/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cluster -- runs a program (program.h) on simulated nodes, with the message
 * layer, caches and helpers as they are, in virtual time, and measures how
 * much memory was registered when.
 *
 * Each rank has a node of `sim` with two cores, one for the program and one
 * for its helper. Ranks can share a machine: then what is registered is summed
 * up over them, and messages between them are not sent at all (shared memory
 * carries them, which needs no registration).
 * Memory has no bytes behind it (data=none).
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
	PN_SCHEME_COUNT,
};

const char *pn_scheme_name(enum pn_scheme scheme);

#define PN_CLUSTER_PROCESSES 8

/* Registered memory over time on machine 0: of all its ranks, and of the first
 * of them one by one. */
struct pn_cluster_series {
	struct pn_series machine;
	struct pn_series processes[PN_CLUSTER_PROCESSES];
	unsigned ranks[PN_CLUSTER_PROCESSES]; /* whose they are */
	unsigned nprocesses;
};

struct pn_cluster_attr {
	struct pn_program_attr program; /* rank is set here */
	unsigned copies;  /* of the whole job, side by side; 0: 1 */
	const char *cost; /* profile */
	enum pn_scheme scheme;
	enum pn_predictor predictor;
	unsigned window;
	double jitter;
	uint64_t seed;
	size_t max_bytes; /* budget of each rank; 0: plenty */
	/* Ranks on one machine: machine of rank r is machines[r]; NULL: one
	 * each. The meter is of machine 0. */
	const unsigned *machines;
	/* How helpers get cores (H8); PN_SHARE_OFF, the first: as OWN. */
	enum pn_share_policy policy;
	unsigned idle_cores; /* of a machine, beside one for each rank */
	struct pn_cluster_series *series; /* set; NULL: not asked for */
	const char *script; /* faults (device/sim/script.h); NULL: none. With
			     * one, ranks may fail: the result says so */
	/* Told how much each rank has registered, whenever that changes, and
	 * how far rank 0 has come, 0 to 1; NULL: nobody. */
	void (*observe)(void *arg, unsigned rank, uint64_t t_ns, size_t bytes);
	void (*progress)(void *arg, double done);
	void *arg;
};

struct pn_cluster_result {
	struct pn_metered registered; /* on machine 0 */
	double communication_s;	      /* mean of the ranks */
	double time_s;		      /* until the last rank ended */
	uint64_t transfers, late; /* of all ranks, above the threshold; late:
				   * on the critical path again although the
				   * buffer had been used before */
	uint64_t copied;	  /* fragments copied for want of room */
	uint64_t irregular; /* transfers whose site was left to the cache */
	unsigned failed;    /* ranks that did not come to their end */
	int error;	    /* of the first of them */
};

int pn_cluster_run(const struct pn_cluster_attr *attr,
		   struct pn_cluster_result *out);

#endif
