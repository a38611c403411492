/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * stat -- statistics of a sequence of requests: number, sizes, reuse and reuse
 * distance.
 *
 * Nouns
 *   buffer    the pages that a request touches: two requests have the same
 *             buffer if first page and number of pages are equal
 *   distance  of a request: bytes of all different buffers used since the last
 *             use of its buffer, its own included. An LRU cache of whole
 *             buffers hits this request if and only if its capacity is at least
 *             the distance. So one pass over the trace gives the hit ratio for
 *             every budget (Mattson, Gecsei, Slutz and Traiger: Evaluation
 *             techniques for storage hierarchies, 1970).
 *   cold      a request whose buffer was never used before
 *
 * The distance treats overlapping buffers as different ones and ignores
 * releases and pins: an estimate that costs one pass. `pinion sim cache`
 * replays a trace through the real cache.
 *
 * A stat gets events in order, then pn_stat_finish(), then it is read. Cost is
 * O(log(buffers)) per request. Memory is bounded: each use of a buffer beyond
 * the first 2^22 counts as cold (`untracked`); sites beyond 2^16 are counted as
 * one.
 * Threads: one.
 */
#ifndef PN_TOOLS_TRACE_STAT_H
#define PN_TOOLS_TRACE_STAT_H

#include "tools/trace/trace.h"

#define PN_STAT_CLASSES	    66 /* 0: empty; k: up to 2^(k-1) bytes */
#define PN_STAT_MAX_BUFFERS (1u << 22)
#define PN_STAT_MAX_SITES   (1u << 16)

/* Requests of one size class or distance class. */
struct pn_stat_class {
	uint64_t requests, bytes, pages;
	uint64_t buffers; /* size classes: number of different buffers */
};

struct pn_stat_site {
	uint64_t site;
	uint64_t requests, bytes;
	uint8_t op; /* operation of its first request */
};

/* Classes by number of uses. */
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
	uint64_t decided[PN_NDECISIONS]; /* decisions of PIN and READY events */
	uint64_t why[PN_NREASONS];	 /* reasons of their hits and misses */
	uint64_t ended[PN_NREASONS];	 /* reasons of EVICT events */
	struct pn_stat_class sizes[PN_STAT_CLASSES];
	struct pn_stat_class distances[PN_STAT_CLASSES];
	struct pn_stat_class cold;
	uint64_t untracked;
	/* Valid after pn_stat_finish(): */
	uint64_t buffers, footprint_bytes;
	struct pn_stat_use uses[PN_STAT_NUSES];
	struct pn_stat_site *sites; /* sorted by requests, descending */
	unsigned nsites;
	struct pn_stat_work *work;
};

/* -ENOMEM. */
int pn_stat_init(struct pn_stat *stat);
int pn_stat_add(struct pn_stat *stat, const struct pn_trace_event *events,
		int n);
void pn_stat_finish(struct pn_stat *stat);
void pn_stat_fini(struct pn_stat *stat);

/* Requests that a cache of `bytes` (a power of two) would hit. */
struct pn_stat_class pn_stat_hits(const struct pn_stat *stat, uint64_t bytes);

/* The class of a size or distance in bytes. */
static inline unsigned pn_stat_class_of(uint64_t bytes)
{
	return bytes < 2 ? (unsigned)bytes
			 : 65 - (unsigned)__builtin_clzll(bytes - 1);
}

#endif
