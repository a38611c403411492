/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * script -- what happened to a cache, in the order in which it happened.
 *
 * Nouns
 *   step    one thing that happens: a request for a buffer, its end, a release
 *           of memory, ...
 *   script  the steps of one program. Made by reading a trace
 * (pn_workload_read) or by a generator (generate.h); read-only afterwards, so
 * that any number of replays share it hold    the number of a pin that does not
 * end at once, among those held
 *
 * Steps live in an unlinked file that is mapped: a script of any length costs
 * no memory that the kernel cannot take back (24 bytes of disk per step).
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
	PN_WORKLOAD_UNPIN,   /* hold: of its PIN */
	PN_WORKLOAD_RELEASE, /* the memory went away */
	PN_WORKLOAD_FLUSH,
	PN_WORKLOAD_OTHERS, /* take up len bytes, addr regions of the budget now
			     */
	PN_WORKLOAD_MERGE, /* hold: whether neighbours are joined from now on */
	PN_WORKLOAD_MAPPING, /* hold: whether one mapping holds the range */
};

struct pn_workload_step {
	uint64_t addr, len;
	uint32_t hold;	/* which of the pins that are held, from 1 */
	uint16_t flags; /* of a PIN: enum pn_trace_event_flag */
	uint16_t kind;
};

struct pn_workload {
	struct pn_workload_step *steps;
	size_t nsteps, room;
	int fd;
	size_t npins;	 /* of the steps */
	uint32_t nholds; /* pins held at a time */
	bool mappings;	 /* it knows them: joining can be replayed */
	bool joins, read_only, one_segment; /* of the cache and its device */
	/* What else is known of the cache that was recorded; 0: nothing. */
	size_t max_bytes, max_regions, max_region_bytes;
	unsigned batch;
	char policy[16];
	double register_us, register_page_us;
	double deregister_us, deregister_page_us;
};

/* An empty one; -ENOSPC and so on: as of open(2) in TMPDIR. */
int pn_workload_init(struct pn_workload *script);
void pn_workload_fini(struct pn_workload *script);

/* Appends a step. -ENOSPC, -ENOMEM; -ERANGE: not in the 47 bits of address that
 * programs have; -EINVAL: a request for nothing. */
int pn_workload_add(struct pn_workload *script,
		    const struct pn_workload_step *step);

/* Appends what a trace says of one cache (0: of the first one in it). Text
 * `why` has the place when the file is damaged (-EBADMSG) or a request cannot
 * be replayed; others as pn_trace_open(). */
int pn_workload_read(struct pn_workload *script, const char *path,
		     unsigned source, struct pn_why *why);

/* Bytes of all pages that are ever asked for. -ENOMEM, -ERANGE: addresses
 * beyond 2^47. */
int pn_workload_footprint(const struct pn_workload *script, size_t *bytes);

/* When the pages of each request are asked for again: the number of that step,
 * or PN_NEXT_NEVER. */
#define PN_NEXT_NEVER (UINT32_MAX - 1)
#define PN_NEXT_MIXED UINT32_MAX /* not the same for all of its pages */

struct pn_next_use {
	uint32_t *of_step;
	/* Of the pages of mixed ones, from the last page of the last step to
	 * the first page of the first. */
	uint32_t *each;
	size_t neach, room;
};

/* -ENOMEM; -E2BIG: too long. */
int pn_next_use_init(struct pn_next_use *next,
		     const struct pn_workload *script);
void pn_next_use_fini(struct pn_next_use *next);

#endif
