/* SPDX-License-Identifier: BSD-2-Clause */
/* eager -- the whole message with its MATCH: one packet, one copy at each
 * end, no registration, no answer. For messages that fit into a packet. */
#include "message/protocol/shapes.h"

static bool applies(const struct pn_protocol_limits *limits, size_t len)
{
	return len <= limits->eager_bytes;
}

static void shape(const struct pn_protocol_limits *limits, size_t len,
		  struct pn_shape *out)
{
	(void)limits;
	*out = (struct pn_shape){ .match = len, .offset = len, .depth = 1 };
}

static double cost(const struct pn_protocol_limits *limits,
		   const struct pn_costs *costs, size_t len, double reuse)
{
	(void)limits, (void)reuse;
	return costs->send_ns +
	       (double)len * (costs->put_byte_ns + 2 * costs->copy_byte_ns);
}

static double busy(const struct pn_protocol_limits *limits,
		   const struct pn_costs *costs, size_t len, double reuse)
{
	(void)limits, (void)reuse;
	return pn_busy_copy(costs, len);
}

const struct pn_protocol pn_protocol_eager = {
	.name = "eager",
	.help = "the whole message with its header, copied at both ends",
	.applies = applies,
	.shape = shape,
	.cost = cost,
	.busy = busy,
};
