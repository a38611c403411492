/* SPDX-License-Identifier: BSD-2-Clause */
#include "message/protocol/select.h"

#include <math.h>
#include <stdlib.h>

#include "message/protocol/select_impl.h"
#include "message/protocol/shapes.h"

/* Fewer further uses do not pay for evicting another registration. */
#define MIN_FURTHER_USES 0.5

const char *pn_choice_text(enum pn_trace_event_reason reason)
{
	switch (reason) {
	case PN_BECAUSE_CACHED:
		return "the buffer is registered already";
	case PN_BECAUSE_CHEAPEST:
		return "the cheapest for this use alone";
	case PN_BECAUSE_REUSE:
		return "uses that are expected to follow pay for registering";
	case PN_BECAUSE_STREAM:
		return "the most bytes per time while others are in flight";
	case PN_BECAUSE_TRIAL:
		return "tried, to know what it takes";
	case PN_BECAUSE_SHORT:
		return "short enough to go with its header";
	default:
		return "asked for";
	}
}

struct pn_protocol_selector *pn_protocol_selector_open(
	const struct pn_protocol_limits *limits, const struct pn_costs *costs)
{
	struct pn_protocol_selector *selector = calloc(1, sizeof(*selector));

	if (!selector)
		return NULL;
	selector->limits = limits;
	selector->costs = costs;
	selector->history = pn_history_open();
	if (!selector->history) {
		free(selector);
		return NULL;
	}
	return selector;
}

void pn_protocol_selector_close(struct pn_protocol_selector *selector)
{
	if (!selector)
		return;
	pn_history_close(selector->history);
	free(selector);
}

/* --- prices --------------------------------------------------------------- */

bool pn_protocol_keeps_registration(int protocol)
{
	struct pn_protocol_limits any = { .segment_bytes = PN_PAGE_BYTES };
	struct pn_shape shape;

	pn_protocol_at((unsigned)protocol)->shape(&any, 1, &shape);
	return shape.keep;
}

/* A pipeline whose RDMA offset is beyond the end is copy by another name. */
static bool is_candidate(const struct pn_protocol_limits *limits, unsigned id,
			 size_t len)
{
	const struct pn_protocol *row = pn_protocol_at(id);
	struct pn_shape shape;

	if (id == PN_PROTOCOL_EAGER || !row->applies(limits, len))
		return false;
	row->shape(limits, len, &shape);
	return id == PN_PROTOCOL_COPY || shape.offset < len;
}

/* With n messages in flight at a time, a message adds at least the time for
 * which it occupies the busiest part, and at least an n-th of its latency. */
static double cost_at(const struct pn_protocol *row,
		      const struct pn_predict_attr *attr, double reuse)
{
	double latency = row->cost(attr->limits, attr->costs, attr->len, reuse);

	if (attr->level <= 1)
		return latency;
	return fmax(row->busy(attr->limits, attr->costs, attr->len, reuse),
		    latency / attr->level);
}

void pn_protocol_selector_predict(const struct pn_predict_attr *attr,
				  struct pn_prices *out)
{
	for (unsigned id = 0; id < PN_PROTOCOL_COUNT; id++) {
		const struct pn_protocol *row = pn_protocol_at(id);

		out->leaves[id] = pn_protocol_keeps_registration((int)id);
		out->first[id] = out->later[id] = out->plan[id] = NAN;
		if (!is_candidate(attr->limits, id, attr->len))
			continue;
		out->first[id] = cost_at(row, attr, 0);
		out->later[id] = cost_at(row, attr, 1);
	}
	/* Copying does not depend on registrations. */
	out->later[PN_PROTOCOL_COPY] = out->first[PN_PROTOCOL_COPY];
}

static void correct(const struct situation *situation, struct pn_prices *prices)
{
	for (unsigned id = 0; id < PN_PROTOCOL_COUNT; id++) {
		const struct estimate *estimates = situation->estimates[id];

		prices->first[id] *= pn_estimate_correction(&estimates[false]);
		prices->later[id] *= pn_estimate_correction(&estimates[true]);
	}
	prices->later[PN_PROTOCOL_COPY] = prices->first[PN_PROTOCOL_COPY];
}

/* Programs ask for the same length again and again: the prediction is cached.
 */
static void price(struct pn_protocol_selector *selector, struct question *q,
		  size_t len)
{
	const struct pn_predict_attr attr = { .limits = selector->limits,
					      .costs = selector->costs,
					      .len = len,
					      .level = q->level };
	struct size *size = q->size;

	if (size->len != len || size->level != q->level)
		pn_protocol_selector_predict(&attr, &size->predicted);
	size->len = len;
	size->level = q->level;
	q->prices = size->predicted;
	correct(q->situation, &q->prices);
}

/* The lowest price of the candidates that keep their registration, or of those
 * that do not. */
static double least(const double *prices, const bool *leaves, bool leaving)
{
	double best = INFINITY;

	for (int id = 0; id < PN_PROTOCOL_COUNT; id++)
		if (leaves[id] == leaving && prices[id] < best)
			best = prices[id];
	return best;
}

/* If the source is registered, only candidates that use the registration, and
 * copy, are considered. */
static void weigh_registered(struct pn_prices *prices)
{
	for (int id = 0; id < PN_PROTOCOL_COUNT; id++)
		if (prices->leaves[id] || id == PN_PROTOCOL_COPY)
			prices->plan[id] = prices->later[id];
}

static void weigh_fresh(const struct pn_choice_input *q,
			const struct pn_costs *costs, struct pn_prices *prices)
{
	double rent = least(prices->first, prices->leaves, false);
	double after = fmin(least(prices->later, prices->leaves, true), rent);
	double push = q->has_room ? 0 : pn_cost_deregister(costs, q->len, 1);

	for (int id = 0; id < PN_PROTOCOL_COUNT; id++)
		prices->plan[id] =
			prices->first[id] +
			(prices->leaves[id] ? push + q->forecast.further * after
					    : q->forecast.further * rent);
}

static int cheapest(const double *prices)
{
	int best = PN_PROTOCOL_COPY; /* always applies */

	for (int id = 0; id < PN_PROTOCOL_COUNT; id++)
		if (prices[id] < prices[best])
			best = id;
	return best;
}

int pn_protocol_selector_weigh(const struct pn_choice_input *input,
			       const struct pn_costs *costs,
			       struct pn_prices *prices,
			       enum pn_trace_event_reason *reason)
{
	int best;

	if (input->registered)
		weigh_registered(prices);
	else
		weigh_fresh(input, costs, prices);
	best = cheapest(prices->plan);
	if (input->registered)
		*reason = PN_BECAUSE_CACHED;
	else if (best == cheapest(prices->first))
		*reason = PN_BECAUSE_CHEAPEST;
	else
		*reason = PN_BECAUSE_REUSE;
	return best;
}

/* --- the choice ----------------------------------------------------------- */

static void fill_choice(const struct question *q, const struct pn_use *source,
			int id, struct pn_choice *out)
{
	out->protocol = id;
	out->len = source->len;
	out->keep = q->prices.leaves[id] && !source->unkept;
	out->level = q->level;
	out->first = q->idle;
	out->registered = source->cached && id != PN_PROTOCOL_COPY;
	out->predicted_ns = pn_prices_now(&q->prices, source->cached)[id];
	out->plain_ns = pn_prices_now(&q->size->predicted, source->cached)[id];
}

/* What a registration that is kept costs more than the best way without, and
 * later its deregistration; in uses of that best way. */
static double keep_uses(const struct pn_costs *costs,
			const struct pn_prices *prices, size_t len)
{
	double rent = least(prices->first, prices->leaves, false);
	double kept = least(prices->first, prices->leaves, true);

	return fmax(0, kept - rent + pn_cost_deregister(costs, len, 1)) / rent;
}

void pn_protocol_selector_choose(struct pn_protocol_selector *selector,
				 const struct pn_use *source, bool has_room,
				 const struct pn_load *load,
				 struct pn_choice *out)
{
	unsigned index = pn_history_size(source->len);
	unsigned level = pn_load_level(load);
	struct size *size = &selector->sizes[index];
	struct question q = {
		.size = size,
		.situation = &size->situations[pn_load_class(level)],
		.level = level,
		.idle = pn_load_is_idle(load),
		.registered = source->cached,
	};
	struct pn_choice_input input = { .len = source->len,
					 .registered = source->cached,
					 .has_room = has_room };
	struct pn_use use = *source;
	int id;

	price(selector, &q, source->len);
	use.keep_uses = keep_uses(selector->costs, &q.prices, source->len);
	pn_history_use(selector->history, &use, &input.forecast);
	id = pn_protocol_selector_weigh(&input, selector->costs, &q.prices,
					&out->reason);
	if (level > 1) {
		out->reason = PN_BECAUSE_STREAM;
		selector->stats.in_flight++;
	}
	id = pn_explore(&q, id, out);
	selector->stats.explored += out->reason == PN_BECAUSE_TRIAL;
	out->size = (uint8_t)index;
	fill_choice(&q, source, id, out);
	pn_explore_count(selector, &q, out);
	pn_history_kept(selector->history, source, out->keep || source->cached);
}

/* --- the receiver --------------------------------------------------------- */

bool pn_protocol_selector_keep(struct pn_protocol_selector *selector,
			       const struct pn_use *target, bool has_room)
{
	struct pn_forecast forecast;
	bool keep;

	pn_history_use(selector->history, target, &forecast);
	keep = target->cached || has_room ||
	       forecast.further > MIN_FURTHER_USES;
	pn_history_kept(selector->history, target, keep);
	return keep;
}
