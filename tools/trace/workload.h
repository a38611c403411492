/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * workload -- the operations on a cache, in the order in which they happened.
 *
 * Nouns
 *   step      one operation: a request for a buffer, its end, a release of
 *             memory
 *   workload  the steps of one program, read from a trace (pn_workload_read) or
 *             generated (generate.h); read-only afterwards, so that any number
 *             of replays share it
 *   hold      number of a pin that does not end at once, among the pins held at
 *             the same time
 *
 * Steps are in an unlinked file that is mapped: a workload of any length costs
 * no memory that the kernel cannot reclaim (24 bytes of disk per step).
 * Errors: negative errno.
 */
#ifndef PN_TOOLS_TRACE_WORKLOAD_H
#define PN_TOOLS_TRACE_WORKLOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/option.h"

enum pn_workload_step_kind {
	PN_WORKLOAD_PIN,     /* ends at once if `hold` is 0 */
	PN_WORKLOAD_UNPIN,   /* hold: the number of its PIN */
	PN_WORKLOAD_RELEASE, /* the program released the memory */
	PN_WORKLOAD_FLUSH,
	/* others now use len bytes and addr regions of the budget */
	PN_WORKLOAD_OTHERS,
	PN_WORKLOAD_MERGE, /* hold: whether neighbours are merged from now on */
	PN_WORKLOAD_MAPPING, /* hold: whether one mapping covers the range */
};

struct pn_workload_step {
	uint64_t addr, len;
	uint32_t hold;	/* number among the held pins, from 1 */
	uint16_t flags; /* of a PIN: enum pn_trace_event_flag */
	uint16_t kind;
};

struct pn_workload {
	struct pn_workload_step *steps;
	size_t nsteps, capacity;
	int fd;
	size_t npins;	 /* number of PIN steps */
	uint32_t nholds; /* maximum number of pins held at a time */
	bool mappings;	 /* has MAPPING steps: merging can be replayed */
	/* of the recorded cache and its device */
	bool merge, read_only, one_segment;
	/* Further configuration of the recorded cache; 0: not known. */
	size_t max_bytes, max_regions, max_region_bytes;
	unsigned batch;
	char policy[16];
	double register_us, register_page_us;
	double deregister_us, deregister_page_us;
};

/* Creates an empty workload with a file in TMPDIR. Errors as open(2). */
int pn_workload_init(struct pn_workload *workload);
void pn_workload_fini(struct pn_workload *workload);

/* Appends a step. -ENOSPC, -ENOMEM; -ERANGE: the range is beyond the 47-bit
 * address space of programs; -EINVAL: length 0. */
int pn_workload_add(struct pn_workload *workload,
		    const struct pn_workload_step *step);

/* Appends the operations on one cache of a trace (source 0: the first cache in
 * it). `why` has the position when the file is damaged (-EBADMSG) or a request
 * cannot be replayed; other errors as pn_trace_open(). */
int pn_workload_read(struct pn_workload *workload, const char *path,
		     unsigned source, struct pn_why *why);

/* Bytes of all distinct pages that are requested. -ENOMEM. */
int pn_workload_footprint(const struct pn_workload *workload, size_t *bytes);

/* When the pages of each request are requested again: the number of that step,
 * or PN_NEXT_NEVER. */
#define PN_NEXT_NEVER (UINT32_MAX - 1)
#define PN_NEXT_MIXED UINT32_MAX /* differs between its pages */

struct pn_next_use {
	uint32_t *of_step;
	/* Per page of the MIXED steps, from the last page of the last step to
	 * the first page of the first. */
	uint32_t *each;
	size_t neach, capacity;
};

/* -ENOMEM; -E2BIG: too many steps. */
int pn_next_use_init(struct pn_next_use *next,
		     const struct pn_workload *workload);
void pn_next_use_fini(struct pn_next_use *next);

#endif
