/* SPDX-License-Identifier: BSD-2-Clause */
#include "message/protocol/select.h"

#include <math.h>
#include <stdlib.h>

#include "message/protocol/shapes.h"

#define NPREDICTIONS	   64	/* a power of two; older ones are forgotten */
#define MIN_MEASUREMENTS   3	/* measurements, not to be tried any more */
#define MIN_RETRY_MESSAGES 32	/* messages of a size until it is tried again, \
				 */
#define MAX_RETRY_MESSAGES 1024 /* four times as many then, up to this */
#define EXPLORATION_SHARE  (1.0 / 64) /* of the time, for trying */
#define MAX_EXPLORED_COST  3.0 /* times the best; not tried if predicted above \
				*/
#define MEASUREMENT_WINDOW 8   /* measurements that a correction remembers */
#define MAX_OUTLIER	   1.25 /* times the correction; more is a disturbance */
#define MAX_CORRECTION	   16.0 /* corrections lie within this and its inverse */
#define MIN_FURTHER_USES   0.5 /* fewer further uses do not pay for pushing out \
				*/

/* What was learned about a candidate, for a size and a state of the source. */
struct estimate {
	double correction; /* 0 stands for 1: nothing was ever measured */
	unsigned n;	   /* measurements, since it is believed again */
	uint64_t taken;	   /* number of the message that it was taken for */
	uint64_t patience; /* messages after that until it is tried again */
};

/* Some messages in a row: caches are still full of what others need. */
struct trial {
	int id;
	unsigned left;
};

struct size {
	struct estimate estimates[PN_PROTOCOL_COUNT][2]; /* by registered */
	uint64_t messages;
	double spent_ns, tried_ns; /* all of it; of that, on trials */
	struct trial trials[2];	   /* by registered */
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
	double off_sum;
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

/* A pipeline whose offset is beyond the end is copying by another name. */
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
	/* Copying does not care. */
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

/* Programs ask for the same length again and again. */
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

/* The least of those that leave their registration, or of those that do not.
 */
static double least(const double *prices, const bool *leaves, bool leaving)
{
	double best = INFINITY;

	for (int id = 0; id < PN_PROTOCOL_COUNT; id++)
		if (leaves[id] == leaving && prices[id] < best)
			best = prices[id];
	return best;
}

/* What is registered stays with those that use it, or is copied from. */
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
	double push = q->roomy ? 0 : pn_cost_deregister(costs, q->len, 1);

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

int pn_protocol_selector_weigh(const struct pn_choice_input *question,
			       const struct pn_costs *costs,
			       struct pn_prices *prices,
			       enum pn_trace_event_reason *reason)
{
	int best;

	if (question->registered)
		weigh_registered(prices);
	else
		weigh_fresh(question, costs, prices);
	best = cheapest(prices->plan);
	if (question->registered)
		*reason = PN_BECAUSE_CACHED;
	else if (best == cheapest(prices->first))
		*reason = PN_BECAUSE_CHEAPEST;
	else
		*reason = PN_BECAUSE_REUSE;
	return best;
}

/* --- trying --------------------------------------------------------------- */

static struct estimate *estimate_of(struct size *size, int id, bool registered)
{
	return &size->estimates[id][registered && id != PN_PROTOCOL_COPY];
}

/* Whether a candidate is worth a trial if it can be afforded. One that looks
 * bad by measurement is: had it been disturbed then, nobody would find out
 * otherwise, while one that looks good in error is taken and found out. */
static bool is_unknown(const struct size *size, const struct estimate *estimate,
		       double plan, double best)
{
	bool far = plan > best * MAX_EXPLORED_COST;

	if (estimate->n >= MIN_MEASUREMENTS)
		return size->messages - estimate->taken >=
		       (far ? MAX_RETRY_MESSAGES : estimate->patience);
	return estimate->correction > 0 || !far;
}

static const double *prices_now(const struct pn_prices *prices, bool registered)
{
	return registered ? prices->later : prices->first;
}

/* What a candidate is optimistic to take: measurements that looked bad are not
 * believed for ever. */
static double optimistic(double corrected_ns, double plain_ns)
{
	return fmin(corrected_ns, plain_ns);
}

static void begin_exploration(struct size *size, int id, bool registered)
{
	struct estimate *estimate = estimate_of(size, id, registered);

	estimate->n = 0;
	estimate->patience *= 4;
	if (estimate->patience > MAX_RETRY_MESSAGES)
		estimate->patience = MAX_RETRY_MESSAGES;
	size->trials[registered] = (struct trial){ id, MIN_MEASUREMENTS };
}

/* What trying a candidate takes above the best, if it is as optimistic: what it
 * is going to save is less certain than what it takes now. */
static double extra(const struct size *size, const struct pn_prices *prices,
		    int id, int best, bool registered)
{
	const double *now = prices_now(prices, registered);
	double hope = optimistic(now[id],
				 prices_now(&size->predicted, registered)[id]);
	double plan = prices->plan[id] - prices->plan[best];

	return fmax(hope - now[best], plan - (now[id] - hope));
}

/* Begins with a candidate that little is known of and that can be afforded. */
static void find_exploration(struct size *size, const struct pn_prices *prices,
			     int best, bool registered)
{
	double spare = EXPLORATION_SHARE * size->spent_ns - size->tried_ns;
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

/* What is on trial, or the best. */
static int explore(struct size *size, const struct pn_prices *prices, int best,
		   bool registered)
{
	struct trial *trial = &size->trials[registered];

	if (!trial->left)
		find_exploration(size, prices, best, registered);
	/* Another length of this size may be none for it. */
	if (trial->left && isnan(prices->plan[trial->id]))
		trial->left = 0;
	if (!trial->left)
		return best;
	trial->left--;
	size->tried_ns += extra(size, prices, trial->id, best, registered);
	return trial->id;
}

static void count(struct size *size, const struct pn_choice *choice)
{
	struct estimate *estimate =
		&size->estimates[choice->protocol][choice->registered];

	estimate->taken = ++size->messages;
	/* If it ceases to be the best, that may be an error. */
	if (choice->reason != PN_BECAUSE_TRIAL || !estimate->patience)
		estimate->patience = MIN_RETRY_MESSAGES;
	size->spent_ns += choice->predicted_ns;
}

void pn_protocol_selector_choose(struct pn_protocol_selector *selector,
				 const struct pn_use *source, bool roomy,
				 struct pn_choice *out)
{
	unsigned index = pn_history_size(source->len);
	struct size *size = &selector->sizes[index];
	struct pn_choice_input question = { .len = source->len,
					    .registered = source->cached,
					    .roomy = roomy };
	struct pn_prices prices;
	int best, id;

	pn_history_use(selector->history, source, &question.forecast);
	price(selector, size, source->len, &prices);
	best = pn_protocol_selector_weigh(&question, selector->costs, &prices,
					  &out->reason);
	id = explore(size, &prices, best, source->cached);
	if (id != best) {
		out->reason = PN_BECAUSE_TRIAL;
		selector->stats.trials++;
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

/* --- what it took --------------------------------------------------------- */

void pn_protocol_selector_sent(struct pn_protocol_selector *selector,
			       const struct pn_choice *choice, uint32_t id,
			       double took_ns)
{
	double before =
		pn_cost_match(selector->limits, selector->costs, choice->len);

	/* Its MATCH carries keys, and waits for the source. */
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
	/* Answers come soon: the newest first. */
	for (unsigned i = 1; i <= NPREDICTIONS; i++) {
		struct prediction *prediction =
			&selector->predictions[(selector->npredictions - i) &
					       (NPREDICTIONS - 1)];

		if (prediction->id == id)
			return prediction;
	}
	return NULL;
}

/* The first of a kind is often slow (caches, pages, whoever sleeps), so the
 * best of the first MIN_MEASUREMENTS counts, then the mean of the last
 * MEASUREMENT_WINDOW. What took much longer was disturbed by something else; if
 * it was not, the next ones are alike, and are believed bit by bit. */
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

/* Above what was counted when it began. A stop of a second is nobody's cost. */
static void charge_exploration(struct size *size, const struct pn_choice *c,
			       double took_ns)
{
	double most = fmin(took_ns, MAX_CORRECTION * c->plain_ns);
	double hope = optimistic(c->predicted_ns, c->plain_ns);

	if (most > hope)
		size->tried_ns += most - hope;
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
	selector->stats.told++;
	selector->off_sum += fabs(took_ns / c->predicted_ns - 1);
}

/* --- the receiver --------------------------------------------------------- */

bool pn_protocol_selector_keep(struct pn_protocol_selector *selector,
			       const struct pn_use *target, bool roomy)
{
	struct pn_forecast forecast;
	bool keep;

	pn_history_use(selector->history, target, &forecast);
	keep = target->cached || roomy || forecast.further > MIN_FURTHER_USES;
	pn_history_kept(selector->history, target, keep);
	return keep;
}

void pn_protocol_selector_query(const struct pn_protocol_selector *selector,
				struct pn_protocol_selector_stats *out)
{
	*out = selector->stats;
	if (out->told)
		out->off = selector->off_sum / (double)out->told;
}
