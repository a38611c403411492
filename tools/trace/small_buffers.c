/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/trace/small_buffers.h"

#include <string.h>

static void count_use(struct pn_small_buffers *small,
		      const struct pn_trace_event *e)
{
	struct pn_usage_entry *entry;

	if (!e->len || e->len > small->max_bytes)
		return;
	small->requests++;
	entry = pn_usage_find(&small->usage, e->addr);
	small->reuses += entry != NULL;
	if (!entry)
		entry = pn_usage_add(&small->usage, e->addr);
	if (!entry)
		return;
	if (entry->served < UINT32_MAX)
		entry->served++;
	if (entry->credit < e->len)
		entry->credit = (uint32_t)e->len;
}

static bool is_transfer(const struct pn_trace_event *e)
{
	return e->kind == PN_EVENT_SEND || e->kind == PN_EVENT_PUT ||
	       e->kind == PN_EVENT_GET;
}

/* In a trace with transfers the pins serve the transfers and are not counted.
 */
static void begin_transfers(struct pn_small_buffers *small)
{
	if (small->transfers)
		return;
	small->transfers = true;
	small->requests = small->reuses = 0;
	pn_usage_fini(&small->usage);
}

void pn_small_buffers_add(struct pn_small_buffers *small,
			  struct pn_trace *trace,
			  const struct pn_trace_event *events, int n)
{
	for (int i = 0; i < n; i++) {
		const struct pn_trace_event *e = &events[i];

		if (is_transfer(e)) {
			begin_transfers(small);
			count_use(small, e);
		} else if (e->kind == PN_EVENT_PIN && !small->transfers &&
			   !strstr(pn_trace_op_name(trace, e->op), "recv")) {
			count_use(small, e);
		}
	}
}

void pn_small_buffers_sum(const struct pn_small_buffers *small,
			  uint64_t min_bytes, pn_min_uses_fn *needed, void *arg,
			  struct pn_small_buffers_sums *out)
{
	*out = (struct pn_small_buffers_sums){ .buffers = small->requests -
							  small->reuses };
	for (uint32_t i = 1; i <= small->usage.nentries; i++) {
		const struct pn_usage_entry *e = &small->usage.entries[i];

		if (e->served > out->most_uses) {
			out->most_uses = e->served;
			out->most_bytes = e->credit;
		}
		if (e->credit < min_bytes)
			continue;
		out->counted++;
		out->frequent += e->served >= needed(arg, e->credit);
	}
}

void pn_small_buffers_fini(struct pn_small_buffers *small)
{
	pn_usage_fini(&small->usage);
}
