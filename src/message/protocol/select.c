/* SPDX-License-Identifier: BSD-2-Clause */
#include "message/protocol/select.h"

#include <math.h>
#include <stdlib.h>

#include "message/protocol/shapes.h"

#define NPREDICTIONS 64 /* a power of two; older ones are overwritten */

/* Corrections: measurements until a candidate counts as known, and in the mean
 * afterwards; how much longer than the mean a message may take before that is a
 * disturbance; corrections lie between MAX_CORRECTION and its inverse. */
#define MIN_MEASUREMENTS   3
#define MEASUREMENT_WINDOW 8
#define MAX_OUTLIER	   1.25
#define MAX_CORRECTION	   16.0

/* Exploration: its share of the time spent; not explored are candidates with a
 * price above so many times the best; messages of a size until a candidate is
 * explored again, four times as many each time. */
#define EXPLORATION_SHARE  (1.0 / 64)
#define MAX_EXPLORED_COST  3.0
#define MIN_RETRY_MESSAGES 32
#define MAX_RETRY_MESSAGES 1024

/* Fewer further uses do not pay for evicting another registration. */
#define MIN_FURTHER_USES 0.5

/* What was learned about a candidate, for one size and one state of the source.
 */
struct estimate {
	double correction;	 /* 0: nothing was measured, counts as 1 */
	unsigned n;		 /* measurements since exploration began */
	uint64_t taken;		 /* number of the last message that used it */
	uint64_t retry_messages; /* messages after that until it is explored
				    again */
};

/* Exploration uses some messages in a row: at first the CPU's caches hold what
 * other protocols need. */
struct exploration {
	int id;
	unsigned left;
};

struct size {
	struct estimate estimates[PN_PROTOCOL_COUNT][2]; /* by registered */
	uint64_t messages;
	double spent_ns, explored_ns; /* all of it; of that, on exploration */
	struct exploration explorations[2]; /* by registered */
	/* Predictions for the length that was asked for last. */
	size_t len;
	struct pn_prices predicted;
};

struct prediction {
	uint32_t id; /* 0: none */
	struct pn_choice choice;
	double before_ns;
};

struct pn_protocol_selector {
	const struct pn_protocol_limits *limits;
	const struct pn_costs *costs;
	struct pn_history *history;
	struct size sizes[PN_HISTORY_SIZES];
	struct prediction predictions[NPREDICTIONS];
	unsigned npredictions;
	struct pn_protocol_selector_stats stats;
	double error_sum;
};

const char *pn_choice_text(enum pn_trace_event_reason reason)
{
	switch (reason) {
	case PN_BECAUSE_CACHED:
		return "the buffer is registered already";
	case PN_BECAUSE_CHEAPEST:
		return "the cheapest for this use alone";
	case PN_BECAUSE_REUSE:
		return "uses that are expected to follow pay for registering";
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

static double correction(const struct estimate *estimate)
{
	return estimate->correction > 0 ? estimate->correction : 1;
}

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

void pn_protocol_selector_predict(const struct pn_protocol_limits *limits,
				  const struct pn_costs *costs, size_t len,
				  struct pn_prices *out)
{
	for (unsigned id = 0; id < PN_PROTOCOL_COUNT; id++) {
		const struct pn_protocol *row = pn_protocol_at(id);

		out->leaves[id] = pn_protocol_keeps_registration((int)id);
		out->first[id] = out->later[id] = out->plan[id] = NAN;
		if (!is_candidate(limits, id, len))
			continue;
		out->first[id] = row->cost(limits, costs, len, 0);
		out->later[id] = row->cost(limits, costs, len, 1);
	}
	/* Copying does not depend on registrations. */
	out->later[PN_PROTOCOL_COPY] = out->first[PN_PROTOCOL_COPY];
}

static void correct(const struct size *size, struct pn_prices *prices)
{
	for (unsigned id = 0; id < PN_PROTOCOL_COUNT; id++) {
		prices->first[id] *= correction(&size->estimates[id][false]);
		prices->later[id] *= correction(&size->estimates[id][true]);
	}
	prices->later[PN_PROTOCOL_COPY] = prices->first[PN_PROTOCOL_COPY];
}

/* Programs ask for the same length again and again: the prediction is cached.
 */
static void price(struct pn_protocol_selector *selector, struct size *size,
		  size_t len, struct pn_prices *out)
{
	if (size->len != len)
		pn_protocol_selector_predict(selector->limits, selector->costs,
					     len, &size->predicted);
	size->len = len;
	*out = size->predicted;
	correct(size, out);
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

/* --- exploration ---------------------------------------------------------- */

static struct estimate *estimate_of(struct size *size, int id, bool registered)
{
	return &size->estimates[id][registered && id != PN_PROTOCOL_COPY];
}

/* Whether a candidate should be explored if that is affordable. One that was
 * measured as bad should: if that measurement was disturbed, nothing else would
 * correct it, while a candidate that looks good in error is used and corrected.
 */
static bool is_unknown(const struct size *size, const struct estimate *estimate,
		       double plan, double best)
{
	bool far = plan > best * MAX_EXPLORED_COST;

	if (estimate->n >= MIN_MEASUREMENTS)
		return size->messages - estimate->taken >=
		       (far ? MAX_RETRY_MESSAGES : estimate->retry_messages);
	return estimate->correction > 0 || !far;
}

static const double *prices_now(const struct pn_prices *prices, bool registered)
{
	return registered ? prices->later : prices->first;
}

/* What a candidate may take at best: bad measurements are not believed for
 * ever. */
static double optimistic(double corrected_ns, double plain_ns)
{
	return fmin(corrected_ns, plain_ns);
}

static void begin_exploration(struct size *size, int id, bool registered)
{
	struct estimate *estimate = estimate_of(size, id, registered);

	estimate->n = 0;
	estimate->retry_messages *= 4;
	if (estimate->retry_messages > MAX_RETRY_MESSAGES)
		estimate->retry_messages = MAX_RETRY_MESSAGES;
	size->explorations[registered] =
		(struct exploration){ id, MIN_MEASUREMENTS };
}

/* What exploring a candidate costs above the best one, if the candidate is as
 * good as it may be. Its later gains are less certain than its present cost. */
static double extra(const struct size *size, const struct pn_prices *prices,
		    int id, int best, bool registered)
{
	const double *now = prices_now(prices, registered);
	double hope = optimistic(now[id],
				 prices_now(&size->predicted, registered)[id]);
	double plan = prices->plan[id] - prices->plan[best];

	return fmax(hope - now[best], plan - (now[id] - hope));
}

/* Chooses a candidate about which little is known and that is affordable. */
static void find_exploration(struct size *size, const struct pn_prices *prices,
			     int best, bool registered)
{
	double spare = EXPLORATION_SHARE * size->spent_ns - size->explored_ns;
	double least = prices->plan[best];

	for (int id = 0; id < PN_PROTOCOL_COUNT; id++) {
		if (id == best || isnan(prices->plan[id]) ||
		    MIN_MEASUREMENTS *
				    extra(size, prices, id, best, registered) >
			    spare)
			continue;
		if (is_unknown(size, estimate_of(size, id, registered),
			       prices->plan[id], least)) {
			begin_exploration(size, id, registered);
			return;
		}
	}
}

/* The candidate that is being explored, or the best. */
static int explore(struct size *size, const struct pn_prices *prices, int best,
		   bool registered)
{
	struct exploration *exploration = &size->explorations[registered];

	if (!exploration->left)
		find_exploration(size, prices, best, registered);
	/* It may not apply to another length of this size. */
	if (exploration->left && isnan(prices->plan[exploration->id]))
		exploration->left = 0;
	if (!exploration->left)
		return best;
	exploration->left--;
	size->explored_ns +=
		extra(size, prices, exploration->id, best, registered);
	return exploration->id;
}

static void count(struct size *size, const struct pn_choice *choice)
{
	struct estimate *estimate =
		&size->estimates[choice->protocol][choice->registered];

	estimate->taken = ++size->messages;
	/* If this candidate stops being the best, that may be an error. */
	if (choice->reason != PN_BECAUSE_TRIAL || !estimate->retry_messages)
		estimate->retry_messages = MIN_RETRY_MESSAGES;
	size->spent_ns += choice->predicted_ns;
}

void pn_protocol_selector_choose(struct pn_protocol_selector *selector,
				 const struct pn_use *source, bool has_room,
				 struct pn_choice *out)
{
	unsigned index = pn_history_size(source->len);
	struct size *size = &selector->sizes[index];
	struct pn_choice_input input = { .len = source->len,
					 .registered = source->cached,
					 .has_room = has_room };
	struct pn_prices prices;
	int best, id;

	pn_history_use(selector->history, source, &input.forecast);
	price(selector, size, source->len, &prices);
	best = pn_protocol_selector_weigh(&input, selector->costs, &prices,
					  &out->reason);
	id = explore(size, &prices, best, source->cached);
	if (id != best) {
		out->reason = PN_BECAUSE_TRIAL;
		selector->stats.explored++;
	}
	out->protocol = id;
	out->len = source->len;
	out->keep = prices.leaves[id] && !source->unkept;
	out->size = (uint8_t)index;
	out->registered = source->cached && id != PN_PROTOCOL_COPY;
	out->predicted_ns = prices_now(&prices, source->cached)[id];
	out->plain_ns = prices_now(&size->predicted, source->cached)[id];
	count(size, out);
	pn_history_kept(selector->history, source, out->keep || source->cached);
}

/* --- measurements --------------------------------------------------------- */

void pn_protocol_selector_sent(struct pn_protocol_selector *selector,
			       const struct pn_choice *choice, uint32_t id,
			       double took_ns)
{
	double before =
		pn_cost_match(selector->limits, selector->costs, choice->len);

	/* Its MATCH carries keys, and waits until the source is registered. */
	if (choice->protocol == PN_PROTOCOL_READ)
		before = took_ns + selector->costs->send_ns;
	selector->predictions[selector->npredictions++ & (NPREDICTIONS - 1)] =
		(struct prediction){ .id = id,
				     .choice = *choice,
				     .before_ns = before };
}

static struct prediction *find_prediction(struct pn_protocol_selector *selector,
					  uint32_t id)
{
	/* Measurements come soon: search the newest first. */
	for (unsigned i = 1; i <= NPREDICTIONS; i++) {
		struct prediction *prediction =
			&selector->predictions[(selector->npredictions - i) &
					       (NPREDICTIONS - 1)];

		if (prediction->id == id)
			return prediction;
	}
	return NULL;
}

/* The first messages are often slow (cold caches, page faults, sleeping
 * threads), so the best of the first MIN_MEASUREMENTS counts, then the mean of
 * the last MEASUREMENT_WINDOW. A message that took much longer was disturbed.
 * If it was not, the next ones take as long, and the mean follows step by step.
 */
static void learn(struct estimate *estimate, double found)
{
	double known = correction(estimate);

	if (!estimate->n)
		known = found;
	else if (estimate->n < MIN_MEASUREMENTS)
		known = fmin(known, found);
	else
		known += (fmin(found, MAX_OUTLIER * known) - known) /
			 (estimate->n + 1);
	if (estimate->n < MEASUREMENT_WINDOW - 1)
		estimate->n++;
	estimate->correction =
		fmin(fmax(known, 1 / MAX_CORRECTION), MAX_CORRECTION);
}

/* Counts what exploration cost above what was charged when it began. A pause of
 * a second is not its cost. */
static void charge_exploration(struct size *size, const struct pn_choice *c,
			       double took_ns)
{
	double most = fmin(took_ns, MAX_CORRECTION * c->plain_ns);
	double hope = optimistic(c->predicted_ns, c->plain_ns);

	if (most > hope)
		size->explored_ns += most - hope;
}

void pn_protocol_selector_measured(struct pn_protocol_selector *selector,
				   uint32_t id, double took_ns)
{
	struct prediction *prediction =
		id ? find_prediction(selector, id) : NULL;
	const struct pn_choice *c;
	struct size *size;

	if (!prediction)
		return;
	c = &prediction->choice;
	size = &selector->sizes[c->size];
	took_ns += prediction->before_ns;
	prediction->id = 0;
	if (!(took_ns > 0))
		return;
	learn(&size->estimates[c->protocol][c->registered],
	      took_ns / c->plain_ns);
	if (c->reason == PN_BECAUSE_TRIAL)
		charge_exploration(size, c, took_ns);
	selector->stats.measured++;
	selector->error_sum += fabs(took_ns / c->predicted_ns - 1);
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

void pn_protocol_selector_query(const struct pn_protocol_selector *selector,
				struct pn_protocol_selector_stats *out)
{
	*out = selector->stats;
	if (out->measured)
		out->mean_error = selector->error_sum / (double)out->measured;
}
