/* SPDX-License-Identifier: BSD-2-Clause */
/* overlapped -- as cached, but the source is registered as soon as the MATCH is
 * sent (FRRWP for messages, Ou and others 2009): both sides register at the
 * same time. */
#include "message/protocol/shapes.h"

static void shape(const struct pn_protocol_limits *limits, size_t len,
		  struct pn_shape *out)
{
	pn_protocol_cached.shape(limits, len, out);
	out->early = true;
}

/* The source is ready before the target's answer arrives. */
static double cost(const struct pn_protocol_limits *limits,
		   const struct pn_costs *costs, size_t len, double reuse)
{
	return pn_protocol_cached.cost(limits, costs, len, reuse) -
	       (1 - reuse) * pn_cost_register(costs, len, 1);
}

static double busy(const struct pn_protocol_limits *limits,
		   const struct pn_costs *costs, size_t len, double reuse)
{
	return pn_busy_whole(limits, costs, len, reuse, true);
}

const struct pn_protocol pn_protocol_overlapped = {
	.name = "overlapped",
	.help = "as cached, both ends registering at the same time",
	.applies = pn_shape_not_empty,
	.shape = shape,
	.cost = cost,
	.busy = busy,
};
