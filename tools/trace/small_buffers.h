/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * small -- how often a program uses its small buffers again: the statistics of
 * the paper Reuse, tables 1 and 3.
 *
 * Buffers are told apart by their address, as the table that decides about
 * them does (message/protocol/usage.h, which counts them here, too): those in
 * one page are different ones. Only what a program sends, puts or gets is
 * counted; of a plain list of requests (CSV) all but those whose operation is a
 * receive. Beyond 2^20 buffers each use counts as one of a new buffer. Threads:
 * it belongs to one.
 */
#ifndef PN_TOOLS_TRACE_SMALL_BUFFERS_H
#define PN_TOOLS_TRACE_SMALL_BUFFERS_H

#include "message/protocol/usage.h"
#include "tools/trace/trace.h"

/* max_bytes is set by the caller, the rest zero. */
struct pn_small_buffers {
	uint64_t max_bytes; /* longer ones are not small */
	uint64_t requests;
	uint64_t again;	       /* of a buffer that was used before */
	struct pn_usage usage; /* served: uses; credit: the longest */
	bool transfers; /* sends and the like were seen, not pins alone */
};

/* What a buffer of that length must be used for to be frequent. */
typedef double pn_min_uses_fn(void *arg, uint64_t len);

struct pn_small_buffers_sums {
	uint64_t buffers;
	uint64_t most_uses, most_bytes; /* of the buffer used most */
	uint64_t counted, frequent;	/* of at least min_bytes */
};

void pn_small_buffers_add(struct pn_small_buffers *small,
			  struct pn_trace *trace,
			  const struct pn_trace_event *events, int n);
void pn_small_buffers_sum(const struct pn_small_buffers *small,
			  uint64_t min_bytes, pn_min_uses_fn *needed, void *arg,
			  struct pn_small_buffers_sums *out);
void pn_small_buffers_fini(struct pn_small_buffers *small);

#endif
