/* SPDX-License-Identifier: BSD-2-Clause */
/* cached -- leave pinned. As demand, but registrations go through the
 * cache and stay, so a buffer that is used again costs nothing. As in Woodall
 * and others 2006, the target is registered when the message is matched, the
 * source when the answer arrives. */
#include "message/protocol/shapes.h"

static void shape(const struct pn_protocol_limits *limits, size_t len,
		  struct pn_shape *out)
{
	*out = (struct pn_shape){ .match = pn_shape_match(limits, len),
				  .fragment = len,
				  .depth = 1,
				  .keep = true };
}

static double cost(const struct pn_protocol_limits *limits,
		   const struct pn_costs *costs, size_t len, double reuse)
{
	return pn_cost_whole(limits, costs, len, reuse, true);
}

static double busy(const struct pn_protocol_limits *limits,
		   const struct pn_costs *costs, size_t len, double reuse)
{
	return pn_busy_whole(limits, costs, len, reuse, true);
}

const struct pn_protocol pn_protocol_cached = {
	.name = "cached",
	.help = "registered whole and left registered",
	.applies = pn_shape_not_empty,
	.shape = shape,
	.cost = cost,
	.busy = busy,
};
