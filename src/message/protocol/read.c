/* SPDX-License-Identifier: BSD-2-Clause */
/* read -- receiver-driven. The sender registers the source when it sends and
 * puts its keys into the MATCH; the receiver registers its target in fragments
 * and reads. One packet fewer than with writes, and the sender's CPU is free
 * meanwhile. */
#include "message/protocol/shapes.h"

#include <math.h>

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

/* Registering the whole source, then the target's fragments, of which all but
 * the first are registered while others are transferred. */
static double cost(const struct pn_protocol_limits *limits,
		   const struct pn_costs *costs, size_t len, double reuse)
{
	size_t fragment = limits->segment_bytes;
	size_t first = len < fragment ? len : fragment;
	size_t n = len / fragment + !!(len % fragment);
	double link = (double)len * costs->get_byte_ns;
	double cpu =
		(1 - reuse) * pn_cost_register(costs, len - first, n - 1) +
		(costs->cpu_moves ? link : (double)first * costs->get_byte_ns);

	return (1 - reuse) * (pn_cost_register(costs, len, 1) +
			      pn_cost_register(costs, first, 1)) +
	       costs->send_ns + costs->get_ns + fmax(cpu, link) +
	       (len > costs->handoff_bytes ? (double)n * costs->handoff_ns : 0);
}

static double busy(const struct pn_protocol_limits *limits,
		   const struct pn_costs *costs, size_t len, double reuse)
{
	size_t fragment = limits->segment_bytes;
	size_t n = len / fragment + !!(len % fragment);
	double link = (double)len * costs->get_byte_ns;
	double cpu = (1 - reuse) * pn_cost_register(costs, len, n);

	return fmax(costs->cpu_moves ? cpu + link : cpu, link);
}

const struct pn_protocol pn_protocol_read = {
	.name = "read",
	.help = "the receiver reads from the sender's registered buffer",
	.applies = pn_shape_not_empty,
	.shape = shape,
	.cost = cost,
	.busy = busy,
};
