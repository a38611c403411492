/* SPDX-License-Identifier: BSD-2-Clause */
/* pipeline -- the pipeline of Woodall and others 2006. Fragments of the target
 * are registered up to a depth; each is announced by READY, written, ended by
 * FIN and deregistered at once. Data up to the RDMA offset goes by packets
 * meanwhile.
 */
#include "message/protocol/shapes.h"

static void shape(const struct pn_protocol_limits *limits, size_t len,
		  struct pn_shape *out)
{
	*out = (struct pn_shape){ .match = pn_shape_match(limits, len),
				  .offset = limits->rdma_offset,
				  .fragment = limits->fragment_bytes,
				  .depth = limits->depth };
}

static double cost(const struct pn_protocol_limits *limits,
		   const struct pn_costs *costs, size_t len, double reuse)
{
	(void)reuse;
	return pn_cost_pipeline(limits, costs, len, 0, false);
}

static double busy(const struct pn_protocol_limits *limits,
		   const struct pn_costs *costs, size_t len, double reuse)
{
	(void)reuse;
	return pn_busy_pipeline(limits, costs, len, 0, false);
}

const struct pn_protocol pn_protocol_pipeline = {
	.name = "pipeline",
	.help = "registered in fragments while others move, released at once",
	.applies = pn_shape_not_empty,
	.shape = shape,
	.cost = cost,
	.busy = busy,
};
