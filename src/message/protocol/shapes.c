/* SPDX-License-Identifier: BSD-2-Clause */
#include "message/protocol/shapes.h"

#include <math.h>

bool pn_shape_always(const struct pn_protocol_limits *limits, size_t len)
{
	(void)limits, (void)len;
	return true;
}

bool pn_shape_not_empty(const struct pn_protocol_limits *limits, size_t len)
{
	(void)limits;
	return len > 0;
}

size_t pn_shape_match(const struct pn_protocol_limits *limits, size_t len)
{
	return len < limits->match_bytes ? len : limits->match_bytes;
}

static double npages(size_t len)
{
	return ceil((double)len / (double)PN_PAGE_BYTES);
}

double pn_cost_register(const struct pn_costs *costs, size_t len, size_t n)
{
	return (double)n * costs->register_ns +
	       npages(len) * costs->register_page_ns;
}

double pn_cost_deregister(const struct pn_costs *costs, size_t len, size_t n)
{
	return (double)n * costs->deregister_ns +
	       npages(len) * costs->deregister_page_ns;
}

double pn_cost_whole(const struct pn_costs *costs, size_t len, double reuse,
		     bool keep)
{
	double fresh = 1 - reuse;
	double each = fresh * pn_cost_register(costs, len, 1);

	if (!keep)
		each += pn_cost_deregister(costs, len, 1);
	return 2 * each + 4 * costs->send_ns + costs->put_ns +
	       (double)len * costs->put_byte_ns;
}

/* In a pipeline that runs, the link and either side's CPU work at the same
 * time, and the slower one sets the pace; what each fragment costs besides
 * registering (READY, the write, its notice) is the CPU's, too. Before it runs,
 * the first fragment is registered at the target, then at the source; so long
 * the link has only the bytes up to the offset to carry. */
double pn_cost_pipeline(const struct pn_protocol_limits *limits,
			const struct pn_costs *costs, size_t len, double reuse,
			bool keep)
{
	size_t fragment = keep ? limits->segment_bytes : limits->fragment_bytes;
	size_t n = len / fragment + !!(len % fragment);
	size_t first = len < fragment ? len : fragment;
	size_t copied = len < limits->rdma_offset ? len : limits->rdma_offset;
	double cpu = (1 - reuse) * pn_cost_register(costs, len, n) +
		     (double)n * 2 * costs->send_ns;
	double start = (1 - reuse) * 2 * pn_cost_register(costs, first, 1) -
		       (double)copied * costs->put_byte_ns;

	if (!keep)
		cpu += pn_cost_deregister(costs, len, n);
	return fmax(cpu, (double)len * costs->put_byte_ns) + fmax(start, 0) +
	       3 * costs->send_ns + costs->put_ns;
}

size_t pn_protocol_best_fragment(const struct pn_protocol_limits *limits,
				 const struct pn_costs *costs, bool keep)
{
	struct pn_protocol_limits trial = *limits;
	size_t best = 0;
	double least = 0;

	/* Judged by a message of the papers' size; longer ones differ little.
	 */
	for (size_t f = (size_t)64 << 10; f <= (size_t)4 << 20; f *= 2) {
		double cost;

		trial.fragment_bytes = trial.segment_bytes = f;
		cost = pn_cost_pipeline(&trial, costs, (size_t)8 << 20, 0,
					keep);
		/* Of equals the largest: fewer messages. */
		if (best && cost > least)
			continue;
		best = f;
		least = cost;
	}
	return best;
}
