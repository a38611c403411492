/* SPDX-License-Identifier: BSD-2-Clause */
/* copy -- in and out of registered packet buffers. After the ACK
 * everything goes by packets. No registration; every byte is copied twice. */
#include "message/protocol/shapes.h"

static void shape(const struct pn_protocol_limits *limits, size_t len,
		  struct pn_shape *out)
{
	*out = (struct pn_shape){ .match = pn_shape_match(limits, len),
				  .offset = len,
				  .depth = 1 };
}

static double cost(const struct pn_protocol_limits *limits,
		   const struct pn_costs *costs, size_t len, double reuse)
{
	(void)reuse;
	return pn_cost_copy(limits, costs, len);
}

static double busy(const struct pn_protocol_limits *limits,
		   const struct pn_costs *costs, size_t len, double reuse)
{
	(void)limits, (void)reuse;
	return pn_busy_copy(costs, len);
}

const struct pn_protocol pn_protocol_copy = {
	.name = "copy",
	.help = "copied through pre-registered buffers at both ends",
	.applies = pn_shape_always,
	.shape = shape,
	.cost = cost,
	.busy = busy,
};
