/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * read -- receiver-driven: the sender registers the source when it sends and
 * says where it is; the receiver registers its target in fragments and reads.
 * One message fewer than writing, and the sender's CPU is free meanwhile.
 */
#include "message/protocol/shapes.h"

static void shape(const struct pn_protocol_limits *limits, size_t len,
		  struct pn_shape *out)
{
	(void)len;
	*out = (struct pn_shape){ .fragment = limits->segment_bytes,
				  .align = limits->segment_bytes,
				  .depth = limits->depth,
				  .keep = true,
				  .read = true };
}

static double cost(const struct pn_protocol_limits *limits,
		   const struct pn_costs *costs, size_t len, double reuse)
{
	return (1 - reuse) * pn_cost_register(costs, len, 1) +
	       pn_cost_pipeline(limits, costs, len, reuse, true);
}

const struct pn_protocol pn_protocol_read = {
	.name = "read",
	.help = "the receiver reads from the sender's registered buffer",
	.applies = pn_shape_not_empty,
	.shape = shape,
	.cost = cost,
};
