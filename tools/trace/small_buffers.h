/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * small_buffers -- how often a program reuses its small buffers: the statistics
 * of tables 1 and 3 of Rashti and Afsahi 2011.
 *
 * A buffer is identified by its address, as in the table that decides about
 * direct sends (message/usage.h, which counts here, too): two addresses in one
 * page are two buffers. Only buffers that the program sends, puts or gets are
 * counted; of a plain trace (CSV) all requests whose operation is not a
 * receive. Beyond 2^20 buffers each use counts as the use of a new buffer.
 * Threads: one.
 */
#ifndef PN_TOOLS_TRACE_SMALL_BUFFERS_H
#define PN_TOOLS_TRACE_SMALL_BUFFERS_H

#include "message/protocol/usage.h"
#include "tools/trace/trace.h"

/* The caller sets max_bytes; the rest starts as zero. */
struct pn_small_buffers {
	uint64_t max_bytes; /* longer buffers are not counted */
	uint64_t requests;
	uint64_t reuses;       /* requests for a buffer that was used before */
	struct pn_usage usage; /* served: number of uses; credit: longest use */
	bool transfers;	       /* the trace has transfers, not only pins */
};

/* Number of uses that makes a buffer of that length frequent. */
typedef double pn_min_uses_fn(void *arg, uint64_t len);

struct pn_small_buffers_sums {
	uint64_t buffers;
	uint64_t most_uses, most_bytes; /* of the most used buffer */
	uint64_t counted, frequent;	/* buffers of at least min_bytes */
};

void pn_small_buffers_add(struct pn_small_buffers *small,
			  struct pn_trace *trace,
			  const struct pn_trace_event *events, int n);
void pn_small_buffers_sum(const struct pn_small_buffers *small,
			  uint64_t min_bytes, pn_min_uses_fn *needed, void *arg,
			  struct pn_small_buffers_sums *out);
void pn_small_buffers_fini(struct pn_small_buffers *small);

#endif
