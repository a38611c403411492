/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * stat -- what a stream of requests is like: how much, how large, how often
 * again, and after how much else.
 *
 * Nouns
 *   buffer    the pages that a request touches: two requests have the same
 *             buffer when first page and number of pages agree
 *   distance  of a request: the bytes of all different buffers used since its
 *             buffer was used last, its own included. A cache of whole buffers
 *             that gives up the least recently used one finds the request
 *             registered if and only if it holds so many bytes: one pass over
 *             the trace tells the hit ratio for every budget (Mattson and
 *             others, 1970).
 *   cold      a request whose buffer was never used before
 *
 * The distance takes buffers that overlap for different ones and knows nothing
 * of releases and pins: it is an estimate that costs one pass. `pinion sim
 * cache` replays a trace through the cache itself.
 *
 * A stat is given events in order, then finished, then read. Work is
 * O(log(buffers)) a request. Memory is bounded: buffers beyond 2^22 count as
 * cold each time (`untracked`), sites beyond 2^16 are summed up as one.
 * Threads: a stat belongs to one.
 */
#ifndef PN_TOOLS_TRACE_STAT_H
#define PN_TOOLS_TRACE_STAT_H

#include "tools/trace/trace.h"

#define PN_STAT_CLASSES	    66 /* 0: empty; k: up to 2^(k-1) bytes */
#define PN_STAT_MAX_BUFFERS (1u << 22)
#define PN_STAT_MAX_SITES   (1u << 16)

/* Requests of one class of size, or of distance. */
struct pn_stat_class {
	uint64_t requests, bytes, pages;
	uint64_t buffers; /* of sizes: different ones */
};

struct pn_stat_site {
	uint64_t site;
	uint64_t requests, bytes;
	uint8_t op; /* of its first request */
};

/* How often buffers were used. */
enum pn_stat_uses {
	PN_USED_ONCE,
	PN_USED_TO_10,
	PN_USED_TO_100,
	PN_USED_MORE,
	PN_STAT_NUSES,
};

struct pn_stat_use {
	uint64_t buffers, requests;
};

struct pn_stat {
	uint64_t requests, bytes, pages;
	uint64_t first_ns, last_ns;
	uint64_t events[PN_EVENT_NKINDS];
	uint64_t decided[PN_NDECISIONS]; /* of PIN and READY */
	uint64_t why[PN_NREASONS];	 /* of those: hits and misses */
	uint64_t ended[PN_NREASONS];	 /* of EVICT events */
	struct pn_stat_class sizes[PN_STAT_CLASSES];
	struct pn_stat_class distances[PN_STAT_CLASSES];
	struct pn_stat_class cold;
	uint64_t untracked;
	/* After pn_stat_finish(): */
	uint64_t buffers, footprint_bytes;
	struct pn_stat_use uses[PN_STAT_NUSES];
	struct pn_stat_site *sites; /* most requests first */
	unsigned nsites;
	struct pn_stat_work *work;
};

/* -ENOMEM. */
int pn_stat_init(struct pn_stat *stat);
int pn_stat_add(struct pn_stat *stat, const struct pn_trace_event *events,
		int n);
void pn_stat_finish(struct pn_stat *stat);
void pn_stat_fini(struct pn_stat *stat);

/* Requests that a cache of so many bytes (a power of two) would find. */
struct pn_stat_class pn_stat_hits(const struct pn_stat *stat, uint64_t bytes);

/* The class of a number of bytes. */
static inline unsigned pn_stat_class_of(uint64_t bytes)
{
	return bytes < 2 ? (unsigned)bytes
			 : 65 - (unsigned)__builtin_clzll(bytes - 1);
}

#endif
