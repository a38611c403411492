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

double pn_cost_match(const struct pn_protocol_limits *limits,
		     const struct pn_costs *costs, size_t len)
{
	return costs->send_ns +
	       (double)pn_shape_match(limits, len) *
		       (costs->put_byte_ns + 2 * costs->copy_byte_ns);
}

static double handoff(const struct pn_costs *costs, size_t len)
{
	return len > costs->handoff_bytes ? costs->handoff_ns : 0;
}

/* One write of len bytes until they have arrived. */
static double cost_write(const struct pn_costs *costs, size_t len)
{
	return costs->put_ns - costs->ack_ns + handoff(costs, len) +
	       (double)len * costs->put_byte_ns;
}

/* Copying in, the link and copying out overlap packet by packet: the first
 * packet takes all three, the others take the slowest. */
double pn_cost_copy(const struct pn_protocol_limits *limits,
		    const struct pn_costs *costs, size_t len)
{
	size_t rest = len - pn_shape_match(limits, len);
	size_t first =
		rest < limits->packet_bytes ? rest : limits->packet_bytes;
	double slowest = fmax(costs->copy_byte_ns, costs->put_byte_ns);

	if (!rest)
		return pn_cost_match(limits, costs, len);
	return pn_cost_match(limits, costs, len) + 2 * costs->send_ns +
	       (double)first * (costs->put_byte_ns + 2 * costs->copy_byte_ns) +
	       (double)(rest - first) * slowest;
}

double pn_cost_whole(const struct pn_protocol_limits *limits,
		     const struct pn_costs *costs, size_t len, double reuse,
		     bool keep)
{
	size_t rest = len - pn_shape_match(limits, len);
	double each = (1 - reuse) * pn_cost_register(costs, rest, 1);

	/* One of the two deregistrations overlaps with the next message. */
	if (!keep)
		each += pn_cost_deregister(costs, rest, 1) / 2;
	return pn_cost_match(limits, costs, len) + 2 * each + costs->send_ns +
	       cost_write(costs, rest);
}

/* In a running pipeline the link and both CPUs work at the same time, and the
 * slowest sets the pace. Before, the first fragment is registered at the
 * target, while the sender copies the data up to the offset, and then at the
 * source. Where a CPU is the slowest, its last fragment is still to be
 * transferred. */
double pn_cost_pipeline(const struct pn_protocol_limits *limits,
			const struct pn_costs *costs, size_t len, double reuse,
			bool keep)
{
	size_t fragment = keep ? limits->segment_bytes : limits->fragment_bytes;
	size_t copied = len < limits->rdma_offset ? len : limits->rdma_offset;
	size_t rest = len - copied;
	size_t first = rest < fragment ? rest : fragment;
	size_t n = rest / fragment + !!(rest % fragment);
	double link = (double)rest * costs->put_byte_ns, cpu, start, copy;

	if (!rest)
		return pn_cost_copy(limits, costs, len);
	copy = (double)(copied - pn_shape_match(limits, copied)) *
	       costs->copy_byte_ns;
	start = (1 - reuse) * pn_cost_register(costs, first, 1);
	cpu = (1 - reuse) * pn_cost_register(costs, rest - first, n - 1) +
	      (double)n * handoff(costs, first);
	if (!keep)
		cpu += pn_cost_deregister(costs, rest, n);
	if (costs->cpu_moves)
		cpu += link;
	else
		cpu += copy + (double)first * costs->put_byte_ns;
	return pn_cost_match(limits, costs, len) + costs->send_ns +
	       fmax(start + costs->send_ns, copy) + start + fmax(cpu, link) +
	       costs->put_ns - costs->ack_ns;
}

/* --- occupancy ------------------------------------------------------------ */

double pn_busy_copy(const struct pn_costs *costs, size_t len)
{
	return (double)len * fmax(costs->copy_byte_ns, costs->put_byte_ns);
}

/* The sender and the receiver do the same work; where CPUs move the bytes, the
 * sender does that, too. */
static double busy_rdma(const struct pn_costs *costs, size_t copied,
			size_t rest, double cpu)
{
	double move = (double)rest * costs->put_byte_ns;
	double link = move + (double)copied * costs->put_byte_ns;

	cpu += (double)copied * costs->copy_byte_ns;
	return fmax(costs->cpu_moves ? cpu + move : cpu, link);
}

double pn_busy_whole(const struct pn_protocol_limits *limits,
		     const struct pn_costs *costs, size_t len, double reuse,
		     bool keep)
{
	size_t copied = pn_shape_match(limits, len), rest = len - copied;
	double cpu = (1 - reuse) * pn_cost_register(costs, rest, 1);

	if (!keep)
		cpu += pn_cost_deregister(costs, rest, 1);
	return busy_rdma(costs, copied, rest, cpu);
}

double pn_busy_pipeline(const struct pn_protocol_limits *limits,
			const struct pn_costs *costs, size_t len, double reuse,
			bool keep)
{
	size_t fragment = keep ? limits->segment_bytes : limits->fragment_bytes;
	size_t copied = len < limits->rdma_offset ? len : limits->rdma_offset;
	size_t rest = len - copied, n = rest / fragment + !!(rest % fragment);
	double cpu = (1 - reuse) * pn_cost_register(costs, rest, n);

	if (!keep)
		cpu += pn_cost_deregister(costs, rest, n);
	return busy_rdma(costs, copied, rest, cpu);
}

size_t pn_protocol_best_fragment(const struct pn_protocol_limits *limits,
				 const struct pn_costs *costs, bool keep)
{
	struct pn_protocol_limits trial = *limits;
	size_t best = 0;
	double least = 0;

	/* For a message of the papers' size; longer ones differ little. */
	for (size_t f = (size_t)64 << 10; f <= (size_t)4 << 20; f *= 2) {
		double cost;

		trial.fragment_bytes = trial.segment_bytes = f;
		cost = pn_cost_pipeline(&trial, costs, (size_t)8 << 20, 0,
					keep);
		/* Of those that are about as good, the largest: fewer packets
		 * and regions. */
		if (best && cost > 1.01 * least)
			continue;
		best = f;
		if (least == 0 || cost < least)
			least = cost;
	}
	return best;
}
