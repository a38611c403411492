/* SPDX-License-Identifier: BSD-2-Clause */
/* caching-pipeline -- the hybrid: the pipeline, with the registration of
 * each fragment kept in the cache. Fragments end at addresses that are
 * multiples of the segment size, so that another message over the same memory
 * finds the same regions. */
#include "message/protocol/shapes.h"

static void shape(const struct pn_protocol_limits *limits, size_t len,
		  struct pn_shape *out)
{
	*out = (struct pn_shape){ .match = pn_shape_match(limits, len),
				  .offset = limits->rdma_offset,
				  .fragment = limits->segment_bytes,
				  .align = limits->segment_bytes,
				  .depth = limits->depth,
				  .keep = true };
}

static double cost(const struct pn_protocol_limits *limits,
		   const struct pn_costs *costs, size_t len, double reuse)
{
	return pn_cost_pipeline(limits, costs, len, reuse, true);
}

static double busy(const struct pn_protocol_limits *limits,
		   const struct pn_costs *costs, size_t len, double reuse)
{
	return pn_busy_pipeline(limits, costs, len, reuse, true);
}

const struct pn_protocol pn_protocol_caching_pipeline = {
	.name = "caching-pipeline",
	.help = "as pipeline, but registrations are kept",
	.applies = pn_shape_not_empty,
	.shape = shape,
	.cost = cost,
	.busy = busy,
};
