/* SPDX-License-Identifier: BSD-2-Clause */
/* What the helper's operations take at most, by the devices' line costs: the
 * terms of its conditions (helper.h). */
#include "helper/helper_impl.h"

/* Comparing two entries of a queue; finding an entry of a table that is not in
 * the CPU's cache. Generous: beside registering they are small. */
#define COMPARE_NS 20
#define LOOKUP_NS  500

/* One page more: a buffer need not begin at a page. */
static uint64_t line(double fixed, double per_page, size_t bytes)
{
	double npages = (double)((bytes + PN_PAGE_BYTES - 1) >> PN_PAGE_SHIFT);

	return (uint64_t)(fixed + per_page * (npages + 1));
}

static uint64_t register_on(const struct pn_helper *helper, unsigned rail,
			    size_t bytes)
{
	const struct pn_costs *costs = &helper->attr.rails[rail].device->costs;

	return line(pn_cost(&costs->register_ns),
		    pn_cost(&costs->register_page_ns), bytes);
}

static uint64_t deregister_on(const struct pn_helper *helper, unsigned rail,
			      size_t bytes)
{
	const struct pn_costs *costs = &helper->attr.rails[rail].device->costs;

	return line(pn_cost(&costs->deregister_ns),
		    pn_cost(&costs->deregister_page_ns), bytes);
}

/* On all rails where the buffer was registered. If it was never dropped that is
 * not known: the rails have a share each then, together the whole. */
static uint64_t on_rails(const struct pn_helper *helper,
			 const struct pn_call_buffer *buffer,
			 uint64_t (*on)(const struct pn_helper *helper,
					unsigned rail, size_t bytes))
{
	uint64_t ns = 0;

	for (unsigned r = 0; r < helper->attr.nrails; r++)
		if (buffer->dropped[r].range.len)
			ns += on(helper, r, buffer->dropped[r].range.len);
	return ns ? ns : on(helper, 0, buffer->range.len);
}

uint64_t pn_helper_register_bytes_ns(const struct pn_helper *helper,
				     size_t bytes)
{
	return register_on(helper, 0, bytes);
}

uint64_t pn_helper_register_ns(const struct pn_helper *helper,
			       const struct pn_call_buffer *buffer)
{
	return on_rails(helper, buffer, register_on);
}

uint64_t pn_helper_deregister_ns(const struct pn_helper *helper,
				 const struct pn_call_buffer *buffer)
{
	return on_rails(helper, buffer, deregister_on);
}

/* Of the largest buffer known, on every rail. */
static uint64_t deregister_largest_ns(const struct pn_helper *helper)
{
	uint64_t ns = 0;

	for (unsigned r = 0; r < helper->attr.nrails; r++)
		ns += deregister_on(helper, r, helper->largest);
	return ns;
}

/* Inserting a job into a queue, or updating it: in the worst case every entry
 * is looked at. */
static uint64_t queue_ns(const struct pn_helper *helper)
{
	return COMPARE_NS * (helper->jobs.n + 1);
}

/* Waiting for the other helpers on this core. */
static uint64_t turn_ns(const struct pn_helper *helper)
{
	return atomic_load_explicit(&helper->turn_ns, memory_order_relaxed);
}

uint64_t pn_helper_round_trip_ns(const struct pn_helper *helper,
				 const struct pn_call_buffer *buffer)
{
	return pn_helper_deregister_ns(helper, buffer) + queue_ns(helper) +
	       pn_helper_register_ns(helper, buffer) + queue_ns(helper) +
	       turn_ns(helper) + helper->wake_ns;
}

/* The record costs a lookup in the table and one in each cache, where the
 * largest buffer is deregistered and queued. */
uint64_t pn_helper_job_ns(const struct pn_helper *helper,
			  const struct pn_call_buffer *buffer)
{
	return (1 + helper->attr.nrails) * LOOKUP_NS +
	       deregister_largest_ns(helper) + queue_ns(helper) +
	       pn_helper_register_ns(helper, buffer) + queue_ns(helper) +
	       turn_ns(helper) + helper->wake_ns;
}
