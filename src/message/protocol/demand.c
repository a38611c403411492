/* SPDX-License-Identifier: BSD-2-Clause */
/* demand -- register on demand, deregister at once. The target is
 * registered when the message is matched, the source when the answer arrives;
 * one RDMA write transfers everything, and both are deregistered. The baseline
 * for the others. */
#include "message/protocol/shapes.h"

static void shape(const struct pn_protocol_limits *limits, size_t len,
		  struct pn_shape *out)
{
	*out = (struct pn_shape){ .match = pn_shape_match(limits, len),
				  .fragment = len,
				  .depth = 1 };
}

static double cost(const struct pn_protocol_limits *limits,
		   const struct pn_costs *costs, size_t len, double reuse)
{
	(void)reuse;
	return pn_cost_whole(limits, costs, len, 0, false);
}

static double busy(const struct pn_protocol_limits *limits,
		   const struct pn_costs *costs, size_t len, double reuse)
{
	(void)reuse;
	return pn_busy_whole(limits, costs, len, 0, false);
}

const struct pn_protocol pn_protocol_demand = {
	.name = "demand",
	.help = "registered whole for the transfer, released at once",
	.applies = pn_shape_not_empty,
	.shape = shape,
	.cost = cost,
	.busy = busy,
};
