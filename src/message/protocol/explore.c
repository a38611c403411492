/* SPDX-License-Identifier: BSD-2-Clause */
/* Exploration, and when the protocol of messages in flight may change. */
#include <math.h>

#include "message/protocol/select_impl.h"

/* Exploration: its share of the time spent; in flight, of the first
 * LEARNING_MESSAGES of a situation, for candidates that were never measured,
 * and else; not explored are candidates with a price above so many times the
 * best; messages of a situation until a candidate is explored again, four times
 * as many each time (in flight, times the level). */
#define ALONE_SHARE	   (1.0 / 64)
#define FIRST_SHARE	   (1.0 / 4)
#define LATER_SHARE	   (1.0 / 256)
#define LEARNING_MESSAGES  2000
#define PENDING_WINDOWS	   4 /* measurements have come after so many */
#define MAX_EXPLORED_COST  3.0
#define MIN_RETRY_MESSAGES 32
#define MAX_RETRY_MESSAGES 1024

/* In flight: by how much a candidate must be better than the one in use. */
#define HYSTERESIS 0.03

static struct estimate *estimate_of(const struct question *q, int id)
{
	return &q->situation->estimates[id][q->registered &&
					    id != PN_PROTOCOL_COPY];
}

static bool is_alone(const struct question *q)
{
	return q->level == 1;
}

/* The time to learn lapses: an exploration that it would pay for later would
 * cost a stream that has settled more than LATER_SHARE. */
static bool is_learning(const struct question *q)
{
	return q->situation->messages < LEARNING_MESSAGES;
}

static uint64_t min_retry(const struct question *q)
{
	return (uint64_t)MIN_RETRY_MESSAGES * q->level;
}

static uint64_t max_retry(const struct question *q)
{
	return (uint64_t)MAX_RETRY_MESSAGES * q->level;
}

/* Whether a candidate should be explored if that is affordable. One that was
 * measured as bad should: if that measurement was disturbed, nothing else would
 * correct it, while a candidate that looks good in error is used and corrected.
 * In flight, measurements of the last exploration may still come. */
static bool is_unknown(const struct question *q, int id, int best)
{
	const struct estimate *e = estimate_of(q, id);
	const double *now = pn_prices_now(&q->prices, q->registered);
	/* Later uses, which are part of a plan, cost the same after both. */
	bool far = q->prices.plan[id] - q->prices.plan[best] >
		   (MAX_EXPLORED_COST - 1) * now[best];
	uint64_t since = q->situation->messages - e->taken;

	if (e->n >= (is_alone(q) ? MIN_MEASUREMENTS : MIN_BATCHES))
		return since >= (far ? max_retry(q) : e->retry_messages);
	if (!is_alone(q) && e->retry_messages &&
	    since < PENDING_WINDOWS * q->level)
		return false;
	return e->correction > 0 || !far;
}

/* Messages in a row of an exploration. */
static unsigned run_messages(const struct question *q, bool idle)
{
	if (is_alone(q))
		return MIN_MEASUREMENTS;
	/* Otherwise the first and the last ones are mixed with others. */
	return MIN_BATCHES * pn_batch_messages(q->level) +
	       (idle ? 0 : 2 * q->level);
}

/* In flight, candidates that were never measured are explored out of a budget
 * of their own. */
static enum pn_exploration_time budget_of(const struct question *q, int id)
{
	return !is_alone(q) && estimate_of(q, id)->correction <= 0
		       ? PN_TIME_TO_LEARN
		       : PN_TIME_TO_CHECK;
}

static void begin(const struct question *q, int id)
{
	struct estimate *e = estimate_of(q, id);
	unsigned n = run_messages(q, q->idle);
	enum pn_exploration_time budget = budget_of(q, id);

	e->n = e->nbatch = 0;
	e->took_ns = e->sent_ns = e->plain_ns = 0;
	e->retry_messages *= 4;
	if (e->retry_messages > max_retry(q))
		e->retry_messages = max_retry(q);
	q->situation->explorations[q->registered] =
		(struct exploration){ id, budget, n, n };
}

/* What exploring a candidate costs above the best one, if the candidate is as
 * good as it may be. Its later gains are less certain than its present cost. */
static double extra(const struct question *q, int id, int best)
{
	const double *now = pn_prices_now(&q->prices, q->registered);
	double plain = pn_prices_now(&q->size->predicted, q->registered)[id];
	double hope = pn_price_optimistic(now[id], plain);
	double plan = q->prices.plan[id] - q->prices.plan[best];

	return fmax(hope - now[best], plan - (now[id] - hope));
}

static bool is_affordable(const struct question *q, int id, int best)
{
	const struct situation *s = q->situation;
	enum pn_exploration_time budget = budget_of(q, id);
	double share = is_alone(q) ? ALONE_SHARE : LATER_SHARE;
	double spare = share * s->spent_ns - s->explored_ns[budget];
	unsigned n = run_messages(q, q->idle);

	if (budget == PN_TIME_TO_LEARN && is_learning(q))
		spare += FIRST_SHARE * s->learning_ns;
	return n * extra(q, id, best) <= spare;
}

/* Chooses the most promising candidate of those about which little is known, if
 * it is affordable. */
static void find(const struct question *q, int best)
{
	int found = -1;

	for (int id = 0; id < PN_PROTOCOL_COUNT; id++)
		if (id != best && !isnan(q->prices.plan[id]) &&
		    is_affordable(q, id, best) && is_unknown(q, id, best) &&
		    (found < 0 || extra(q, id, best) < extra(q, found, best)))
			found = id;
	if (found >= 0)
		begin(q, found);
}

/* The candidate that is being explored, or -1. */
static int next_explored(const struct question *q, int best)
{
	struct exploration *e = &q->situation->explorations[q->registered];

	/* It may not apply to another length of this size. */
	if (e->left && isnan(q->prices.plan[e->id]))
		e->left = 0;
	if (!e->left || e->id == best) {
		e->left = 0;
		return -1;
	}
	e->left--;
	return e->id;
}

/* Messages in flight share caches, pages and the link: they change their
 * protocol together. So the protocol changes when none is in flight. If that
 * does not happen, it changes after enough messages in a row to have measured
 * some that were not mixed. */
static bool may_change(const struct question *q)
{
	const struct row *row = &q->size->rows[q->registered];
	unsigned n = run_messages(q, false);

	return is_alone(q) || q->idle || !row->n ||
	       isnan(q->prices.plan[row->id]) ||
	       (row->n >= n && row->since_idle >= n);
}

/* The protocol in use, unless the best one is clearly better. */
static int settle(const struct question *q, int best)
{
	const struct row *row = &q->size->rows[q->registered];
	const double *plan = q->prices.plan;

	if (!is_alone(q) && row->n && !isnan(plan[row->id]) &&
	    estimate_of(q, row->id)->n >= MIN_BATCHES &&
	    plan[row->id] * (1 - HYSTERESIS) <= plan[best])
		return row->id;
	return best;
}

/* Charges what the message is expected to cost above the best candidate; what
 * it costs is known when it was measured (learn.c). */
static void charge(const struct question *q, int id, int best,
		   struct pn_choice *out)
{
	out->best_ns = pn_prices_now(&q->prices, q->registered)[best];
	out->charged_ns = fmax(0, extra(q, id, best));
	out->row_messages = q->situation->explorations[q->registered].messages;
	out->budget = q->situation->explorations[q->registered].budget;
	q->situation->explored_ns[out->budget] += out->charged_ns;
}

int pn_explore(const struct question *q, int best, struct pn_choice *out)
{
	const struct row *row = &q->size->rows[q->registered];
	const struct exploration *e =
		&q->situation->explorations[q->registered];
	bool change = may_change(q);
	int id = -1;

	if (change && !e->left)
		find(q, best);
	if (change || (e->left && e->id == row->id))
		id = next_explored(q, best);
	if (id < 0)
		return change ? settle(q, best) : row->id;
	out->reason = PN_BECAUSE_TRIAL;
	charge(q, id, best, out);
	return id;
}

/* The row of a choice: whether its measurement counts, and whether the row
 * before it ended with messages in flight. */
static void extend_row(struct pn_protocol_selector *selector,
		       const struct question *q, struct pn_choice *choice)
{
	struct row *row = &q->size->rows[q->registered];
	unsigned since_idle = row->since_idle;

	if (row->n && row->id != choice->protocol) {
		selector->stats.changes++;
		if (!q->idle)
			pn_learn_forget(selector, choice, q->level);
		row->n = 0;
	}
	if (!row->n)
		*row = (struct row){ .id = choice->protocol,
				     .mixed = !q->idle };
	choice->counts = is_alone(q) || !row->mixed || row->n >= q->level;
	if (row->n < UINT32_MAX)
		row->n++;
	row->since_idle = q->idle ? 1 : since_idle + 1;
}

void pn_explore_count(struct pn_protocol_selector *selector,
		      const struct question *q, struct pn_choice *choice)
{
	struct estimate *e = estimate_of(q, choice->protocol);

	extend_row(selector, q, choice);
	if (is_learning(q))
		q->situation->learning_ns += choice->predicted_ns;
	/* If this candidate stops being the best, that may be an error. */
	if (choice->reason != PN_BECAUSE_TRIAL || !e->retry_messages)
		e->retry_messages = min_retry(q);
	q->situation->spent_ns += choice->predicted_ns;
	e->taken = ++q->situation->messages;
}
