/* SPDX-License-Identifier: BSD-2-Clause */
/* From a plan to a pin, and the segments of a pin that has several. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cache/plan_impl.h"
#include "cache/reclaim_impl.h"
#include "cache/trace_impl.h"
#include "cache/worker_impl.h"

static int fill_pin_segments(struct pinion_pin *pin, const struct iovec *buffer,
			     const struct pn_segment *segments, unsigned n)
{
	struct pn_segments *several;

	*pin = (struct pinion_pin){ .addr = buffer->iov_base,
				    .len = buffer->iov_len,
				    .nsegments = n };
	if (n == 1) {
		pin->local_key = segments->region->mr.lkey;
		pin->remote_key = segments->region->mr.rkey;
		pin->handle = segments->region->mr.handle;
		pin->internal[0] = (void *)segments->slot;
		pin->internal[1] = segments->region;
		return 0;
	}
	several = malloc(sizeof(*several) + n * sizeof(*segments));
	if (!several)
		return -ENOMEM;
	several->n = n;
	memcpy(several->segment, segments, n * sizeof(*segments));
	pin->internal[0] = several;
	return 0;
}

void pn_segments_put(struct pn_cache *cache, const struct pn_segment *segments,
		     unsigned n)
{
	bool dying = false;

	for (unsigned i = 0; i < n; i++) {
		pn_asymmetric_store(segments[i].slot, NULL);
		dying |= pn_asymmetric_load(&segments[i].region->state) ==
			 PN_REGION_DYING;
	}
	if (dying)
		pn_worker_notify(cache);
}

int pn_plan_finish(struct pn_plan *plan, struct pinion_pin *pins)
{
	unsigned i, n = plan->nbuffers;

	for (i = 0; i < n; i++) {
		unsigned first = plan->first[i];
		unsigned end = i + 1 < n ? plan->first[i + 1] : plan->nsegments;

		if (fill_pin_segments(&pins[i], &plan->buffers[i],
				      &plan->segments[first], end - first))
			break;
		if (plan->has_private)
			pins[i].reserved = PN_PIN_PRIVATE;
	}
	if (i == n)
		return 0;
	while (i--)
		if (pins[i].nsegments > 1)
			free(pins[i].internal[0]);
	pn_reclaim_put_private(plan->cache, plan->segments, plan->nsegments,
			       false);
	return -ENOMEM;
}

void pn_plan_trace(const struct pn_plan *plan, const struct pinion_pin *pins,
		   unsigned flags, int ret)
{
	struct pn_outcome outcome = { .flags = plan->flags | flags,
				      .decision = plan->decision,
				      .reason = plan->reason,
				      .ret = ret };

	pn_cache_trace_pins(plan->cache, plan->buffers, plan->nbuffers, pins,
			    &outcome);
}

void pn_segments_unpin(struct pn_cache *cache, struct pinion_pin *pin, bool now)
{
	struct pn_segments *several = pin->internal[0];
	const struct pn_segment one = { .slot = pin->internal[0],
					.region = pin->internal[1] };
	bool is_one = pin->nsegments == 1;

	/* 0: unpinned twice, or never pinned. */
	pn_debug_assert(pin->nsegments);
	if (!pin->nsegments)
		return;
	/* In a forked child: the lock may be held for ever. */
	if (pn_cache_foreign(cache)) {
		pin->nsegments = 0;
		return;
	}
	if (pin->reserved == PN_PIN_PRIVATE)
		pn_reclaim_put_private(cache, is_one ? &one : several->segment,
				       pin->nsegments, now);
	else
		pn_segments_put(cache, several->segment, several->n);
	if (!is_one)
		free(several);
	pin->nsegments = pin->reserved = 0;
	PN_CACHE_CHECK(cache);
}

static void describe_segment(const struct pn_segment *segment,
			     struct pinion_pin_segment *out)
{
	*out = (struct pinion_pin_segment){ .addr = (void *)segment->addr,
					    .len = segment->len,
					    .local_key =
						    segment->region->mr.lkey,
					    .remote_key =
						    segment->region->mr.rkey };
}

/* A segment that was available from the start stays available; the others are
 * when the plan is done. */
static int describe_plan_segment(const struct pn_plan *plan, unsigned index,
				 struct pinion_pin_segment *out)
{
	const struct pn_segment *segment = &plan->available[index];

	if (atomic_load(&plan->status) == PN_PLAN_DONE && !plan->result &&
	    index < plan->nsegments)
		segment = &plan->segments[index];
	if (!segment->region)
		return -EAGAIN;
	describe_segment(segment, out);
	return 0;
}

int pn_cache_pin_segment(const struct pinion_pin *pin, unsigned index,
			 struct pinion_pin_segment *out)
{
	const struct pn_segments *several = pin->internal[0];
	const struct pn_plan *plan = pin->internal[0];
	const struct pn_region *region = pin->internal[1];

	if (pin->reserved == PN_PIN_STARTED && !pin->nsegments)
		return -EAGAIN; /* not even planned yet */
	if (index >= pin->nsegments)
		return -EINVAL;
	if (pin->reserved == PN_PIN_STARTED)
		return describe_plan_segment(plan, index, out);
	if (pin->nsegments > 1)
		describe_segment(&several->segment[index], out);
	else
		*out = (struct pinion_pin_segment){ .addr = pin->addr,
						    .len = pin->len,
						    .local_key =
							    region->mr.lkey,
						    .remote_key =
							    region->mr.rkey };
	return 0;
}
