/* SPDX-License-Identifier: BSD-2-Clause */
#include "message/auto.h"

#include <math.h>
#include <stdlib.h>

#include "message/protocol/shapes.h"

#define BETS	  64	     /* a power of two; older ones are forgotten */
#define ENOUGH	  3	     /* measurements, not to be tried any more */
#define PATIENCE  32	     /* messages of a size until it is tried again, */
#define STALE	  1024	     /* four times as many then, up to this */
#define TRIALS	  (1.0 / 64) /* of the time, for trying */
#define COSTLIEST 3.0	     /* times the best; not tried if predicted above */
#define MEMORY	  8	     /* measurements that a correction remembers */
#define SURPRISE  1.25	     /* times the correction; more is a disturbance */
#define WILDEST	  16.0	     /* corrections lie within this and its inverse */
#define HARDLY	  0.5	     /* fewer further uses do not pay for pushing out */

/* What was learned about a candidate, for a size and a state of the source. */
struct lesson {
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
	struct lesson lessons[PN_PROTOCOL_COUNT][2]; /* by registered */
	uint64_t messages;
	double spent_ns, tried_ns; /* all of it; of that, on trials */
	struct trial trials[2];	   /* by registered */
	/* Predictions for the length that was asked for last. */
	size_t len;
	struct pn_prices predicted;
};

struct bet {
	uint32_t id; /* 0: none */
	struct pn_choice choice;
	double before_ns;
};

struct pn_auto {
	const struct pn_protocol_limits *limits;
	const struct pn_costs *costs;
	struct pn_history *history;
	struct size sizes[PN_HISTORY_SIZES];
	struct bet bets[BETS];
	unsigned nbets;
	struct pn_auto_stats stats;
	double off_sum;
};

const char *pn_choice_text(enum pn_event_reason reason)
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

struct pn_auto *pn_auto_open(const struct pn_protocol_limits *limits,
			     const struct pn_costs *costs)
{
	struct pn_auto *chooser = calloc(1, sizeof(*chooser));

	if (!chooser)
		return NULL;
	chooser->limits = limits;
	chooser->costs = costs;
	chooser->history = pn_history_open();
	if (!chooser->history) {
		free(chooser);
		return NULL;
	}
	return chooser;
}

void pn_auto_close(struct pn_auto *chooser)
{
	if (!chooser)
		return;
	pn_history_close(chooser->history);
	free(chooser);
}

/* --- prices --------------------------------------------------------------- */

static double correction(const struct lesson *lesson)
{
	return lesson->correction > 0 ? lesson->correction : 1;
}

bool pn_auto_leaves(int protocol)
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

void pn_auto_predict(const struct pn_protocol_limits *limits,
		     const struct pn_costs *costs, size_t len,
		     struct pn_prices *out)
{
	for (unsigned id = 0; id < PN_PROTOCOL_COUNT; id++) {
		const struct pn_protocol *row = pn_protocol_at(id);

		out->leaves[id] = pn_auto_leaves((int)id);
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
		prices->first[id] *= correction(&size->lessons[id][false]);
		prices->later[id] *= correction(&size->lessons[id][true]);
	}
	prices->later[PN_PROTOCOL_COPY] = prices->first[PN_PROTOCOL_COPY];
}

/* Programs ask for the same length again and again. */
static void price(struct pn_auto *chooser, struct size *size, size_t len,
		  struct pn_prices *out)
{
	if (size->len != len)
		pn_auto_predict(chooser->limits, chooser->costs, len,
				&size->predicted);
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

static void weigh_fresh(const struct pn_question *q,
			const struct pn_costs *costs, struct pn_prices *prices)
{
	double rent = least(prices->first, prices->leaves, false);
	double after = fmin(least(prices->later, prices->leaves, true), rent);
	double push = q->roomy ? 0 : pn_cost_deregister(costs, q->len, 1);

	for (int id = 0; id < PN_PROTOCOL_COUNT; id++)
		prices->plan[id] =
			prices->first[id] +
			(prices->leaves[id] ? push + q->outlook.further * after
					    : q->outlook.further * rent);
}

static int cheapest(const double *prices)
{
	int best = PN_PROTOCOL_COPY; /* always applies */

	for (int id = 0; id < PN_PROTOCOL_COUNT; id++)
		if (prices[id] < prices[best])
			best = id;
	return best;
}

int pn_auto_weigh(const struct pn_question *question,
		  const struct pn_costs *costs, struct pn_prices *prices,
		  enum pn_event_reason *reason)
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

static struct lesson *lesson_of(struct size *size, int id, bool registered)
{
	return &size->lessons[id][registered && id != PN_PROTOCOL_COPY];
}

/* Whether a candidate is worth a trial if it can be afforded. One that looks
 * bad by measurement is: had it been disturbed then, nobody would find out
 * otherwise, while one that looks good in error is taken and found out. */
static bool is_unknown(const struct size *size, const struct lesson *lesson,
		       double plan, double best)
{
	bool far = plan > best * COSTLIEST;

	if (lesson->n >= ENOUGH)
		return size->messages - lesson->taken >=
		       (far ? STALE : lesson->patience);
	return lesson->correction > 0 || !far;
}

static const double *prices_now(const struct pn_prices *prices, bool registered)
{
	return registered ? prices->later : prices->first;
}

/* What a candidate is hoped to take: measurements that looked bad are not
 * believed for ever. */
static double hoped(double corrected_ns, double plain_ns)
{
	return fmin(corrected_ns, plain_ns);
}

static void begin_trial(struct size *size, int id, bool registered)
{
	struct lesson *lesson = lesson_of(size, id, registered);

	lesson->n = 0;
	lesson->patience *= 4;
	if (lesson->patience > STALE)
		lesson->patience = STALE;
	size->trials[registered] = (struct trial){ id, ENOUGH };
}

/* What trying a candidate takes above the best, if it is as hoped: what it is
 * going to save is less certain than what it takes now. */
static double extra(const struct size *size, const struct pn_prices *prices,
		    int id, int best, bool registered)
{
	const double *now = prices_now(prices, registered);
	double hope =
		hoped(now[id], prices_now(&size->predicted, registered)[id]);
	double plan = prices->plan[id] - prices->plan[best];

	return fmax(hope - now[best], plan - (now[id] - hope));
}

/* Begins with a candidate that little is known of and that can be afforded. */
static void look_for_trial(struct size *size, const struct pn_prices *prices,
			   int best, bool registered)
{
	double spare = TRIALS * size->spent_ns - size->tried_ns;
	double least = prices->plan[best];

	for (int id = 0; id < PN_PROTOCOL_COUNT; id++) {
		if (id == best || isnan(prices->plan[id]) ||
		    ENOUGH * extra(size, prices, id, best, registered) > spare)
			continue;
		if (is_unknown(size, lesson_of(size, id, registered),
			       prices->plan[id], least)) {
			begin_trial(size, id, registered);
			return;
		}
	}
}

/* What is on trial, or the best. */
static int try_another(struct size *size, const struct pn_prices *prices,
		       int best, bool registered)
{
	struct trial *trial = &size->trials[registered];

	if (!trial->left)
		look_for_trial(size, prices, best, registered);
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
	struct lesson *lesson =
		&size->lessons[choice->protocol][choice->registered];

	lesson->taken = ++size->messages;
	/* If it ceases to be the best, that may be an error. */
	if (choice->reason != PN_BECAUSE_TRIAL || !lesson->patience)
		lesson->patience = PATIENCE;
	size->spent_ns += choice->predicted_ns;
}

void pn_auto_choose(struct pn_auto *chooser, const struct pn_use *source,
		    bool roomy, struct pn_choice *out)
{
	unsigned index = pn_history_size(source->len);
	struct size *size = &chooser->sizes[index];
	struct pn_question question = { .len = source->len,
					.registered = source->cached,
					.roomy = roomy };
	struct pn_prices prices;
	int best, id;

	pn_history_use(chooser->history, source, &question.outlook);
	price(chooser, size, source->len, &prices);
	best = pn_auto_weigh(&question, chooser->costs, &prices, &out->reason);
	id = try_another(size, &prices, best, source->cached);
	if (id != best) {
		out->reason = PN_BECAUSE_TRIAL;
		chooser->stats.trials++;
	}
	out->protocol = id;
	out->len = source->len;
	out->keep = prices.leaves[id] && !source->unkept;
	out->size = (uint8_t)index;
	out->registered = source->cached && id != PN_PROTOCOL_COPY;
	out->predicted_ns = prices_now(&prices, source->cached)[id];
	out->plain_ns = prices_now(&size->predicted, source->cached)[id];
	count(size, out);
	pn_history_kept(chooser->history, source, out->keep || source->cached);
}

/* --- what it took --------------------------------------------------------- */

void pn_auto_sent(struct pn_auto *chooser, const struct pn_choice *choice,
		  uint32_t id, double took_ns)
{
	double before =
		pn_cost_match(chooser->limits, chooser->costs, choice->len);

	/* Its MATCH carries keys, and waits for the source. */
	if (choice->protocol == PN_PROTOCOL_READ)
		before = took_ns + chooser->costs->send_ns;
	chooser->bets[chooser->nbets++ & (BETS - 1)] = (struct bet){
		.id = id, .choice = *choice, .before_ns = before
	};
}

static struct bet *bet_on(struct pn_auto *chooser, uint32_t id)
{
	/* Answers come soon: the newest first. */
	for (unsigned i = 1; i <= BETS; i++) {
		struct bet *bet =
			&chooser->bets[(chooser->nbets - i) & (BETS - 1)];

		if (bet->id == id)
			return bet;
	}
	return NULL;
}

/* The first of a kind is often slow (caches, pages, whoever sleeps), so the
 * best of the first ENOUGH counts, then the mean of the last MEMORY. What
 * took much longer was disturbed by something else; if it was not, the next
 * ones are alike, and are believed bit by bit. */
static void learn(struct lesson *lesson, double found)
{
	double known = correction(lesson);

	if (!lesson->n)
		known = found;
	else if (lesson->n < ENOUGH)
		known = fmin(known, found);
	else
		known += (fmin(found, SURPRISE * known) - known) /
			 (lesson->n + 1);
	if (lesson->n < MEMORY - 1)
		lesson->n++;
	lesson->correction = fmin(fmax(known, 1 / WILDEST), WILDEST);
}

/* Above what was counted when it began. A stop of a second is nobody's cost. */
static void pay_for_trial(struct size *size, const struct pn_choice *c,
			  double took_ns)
{
	double most = fmin(took_ns, WILDEST * c->plain_ns);
	double hope = hoped(c->predicted_ns, c->plain_ns);

	if (most > hope)
		size->tried_ns += most - hope;
}

void pn_auto_told(struct pn_auto *chooser, uint32_t id, double took_ns)
{
	struct bet *bet = id ? bet_on(chooser, id) : NULL;
	const struct pn_choice *c;
	struct size *size;

	if (!bet)
		return;
	c = &bet->choice;
	size = &chooser->sizes[c->size];
	took_ns += bet->before_ns;
	bet->id = 0;
	if (!(took_ns > 0))
		return;
	learn(&size->lessons[c->protocol][c->registered],
	      took_ns / c->plain_ns);
	if (c->reason == PN_BECAUSE_TRIAL)
		pay_for_trial(size, c, took_ns);
	chooser->stats.told++;
	chooser->off_sum += fabs(took_ns / c->predicted_ns - 1);
}

/* --- the receiver --------------------------------------------------------- */

bool pn_auto_keep(struct pn_auto *chooser, const struct pn_use *target,
		  bool roomy)
{
	struct pn_outlook outlook;
	bool keep;

	pn_history_use(chooser->history, target, &outlook);
	keep = target->cached || roomy || outlook.further > HARDLY;
	pn_history_kept(chooser->history, target, keep);
	return keep;
}

void pn_auto_query(const struct pn_auto *chooser, struct pn_auto_stats *out)
{
	*out = chooser->stats;
	if (out->told)
		out->off = chooser->off_sum / (double)out->told;
}
