/* SPDX-License-Identifier: BSD-2-Clause */
#include "message/auto.h"

#include <math.h>
#include <stdlib.h>

#include "message/protocol/shapes.h"

#define BETS	  64	     /* a power of two; older ones are forgotten */
#define ENOUGH	  2	     /* measurements, not to be tried any more */
#define STALE	  1024	     /* messages of a size until it is tried again */
#define TRIALS	  (1.0 / 48) /* of the time, for trying */
#define COSTLIEST 3.0	     /* times the best; never tried above */
#define MEMORY	  8	     /* measurements that a correction remembers */
#define WILDEST	  16.0	     /* corrections lie within this and its inverse */
#define HARDLY	  0.5	     /* fewer further uses do not pay for pushing out */

/* What was learned about a candidate, for a size and a state of the source. */
struct lesson {
	double correction; /* 0 stands for 1: nothing measured */
	unsigned n;
	uint64_t taken; /* number of the message that it was taken for */
};

struct size {
	struct lesson lessons[PN_PROTOCOL_COUNT][2]; /* by registered */
	uint64_t messages;
	double spent_ns, tried_ns; /* all of it; of that, on trials */
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
	return lesson->n ? lesson->correction : 1;
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

void pn_auto_price(const struct pn_auto *chooser,
		   const struct pn_protocol_limits *limits,
		   const struct pn_costs *costs, size_t len,
		   struct pn_prices *out)
{
	const struct size *size =
		chooser ? &chooser->sizes[pn_history_size(len)] : NULL;

	for (unsigned id = 0; id < PN_PROTOCOL_COUNT; id++) {
		const struct pn_protocol *row = pn_protocol_at(id);

		out->first[id] = out->later[id] = out->plan[id] = NAN;
		if (!is_candidate(limits, id, len))
			continue;
		out->first[id] = row->cost(limits, costs, len, 0);
		out->later[id] = row->cost(limits, costs, len, 1);
		if (!size)
			continue;
		out->first[id] *= correction(&size->lessons[id][false]);
		out->later[id] *= correction(&size->lessons[id][true]);
	}
	/* Copying does not care. */
	out->later[PN_PROTOCOL_COPY] = out->first[PN_PROTOCOL_COPY];
}

/* The least of those that leave their registration, or of those that do not.
 */
static double least(const double *prices, bool leaves)
{
	double best = INFINITY;

	for (int id = 0; id < PN_PROTOCOL_COUNT; id++)
		if (pn_auto_leaves(id) == leaves && prices[id] < best)
			best = prices[id];
	return best;
}

/* What is registered stays with those that use it, or is copied from. */
static void weigh_registered(struct pn_prices *prices)
{
	for (int id = 0; id < PN_PROTOCOL_COUNT; id++)
		if (pn_auto_leaves(id) || id == PN_PROTOCOL_COPY)
			prices->plan[id] = prices->later[id];
}

static void weigh_fresh(const struct pn_question *q,
			const struct pn_costs *costs, struct pn_prices *prices)
{
	double rent = least(prices->first, false);
	double after = fmin(least(prices->later, true), rent);
	double push = q->roomy ? 0 : pn_cost_deregister(costs, q->len, 1);

	for (int id = 0; id < PN_PROTOCOL_COUNT; id++)
		prices->plan[id] =
			prices->first[id] +
			(pn_auto_leaves(id) ? push + q->outlook.further * after
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

/* A candidate that little is known of and that can be afforded; the best if
 * there is none. */
static int try_another(struct size *size, const struct pn_prices *prices,
		       int best, bool registered)
{
	double spare = TRIALS * size->spent_ns - size->tried_ns;
	double most = prices->plan[best] * COSTLIEST;

	for (int id = 0; id < PN_PROTOCOL_COUNT; id++) {
		bool state = registered && id != PN_PROTOCOL_COPY;
		struct lesson *lesson = &size->lessons[id][state];
		double extra = prices->plan[id] - prices->plan[best];

		if (id == best || !(prices->plan[id] < most))
			continue;
		if (lesson->n >= ENOUGH &&
		    size->messages - lesson->taken < STALE)
			continue;
		if (extra > spare)
			continue;
		if (lesson->n > ENOUGH)
			lesson->n = ENOUGH;
		size->tried_ns += extra;
		return id;
	}
	return best;
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
	pn_auto_price(chooser, chooser->limits, chooser->costs, source->len,
		      &prices);
	best = pn_auto_weigh(&question, chooser->costs, &prices, &out->reason);
	id = try_another(size, &prices, best, source->cached);
	if (id != best) {
		out->reason = PN_BECAUSE_TRIAL;
		chooser->stats.trials++;
	}
	out->protocol = id;
	out->len = source->len;
	out->keep = pn_auto_leaves(id);
	out->size = (uint8_t)index;
	out->registered = source->cached && id != PN_PROTOCOL_COPY;
	out->predicted_ns =
		source->cached ? prices.later[id] : prices.first[id];
	size->messages++;
	size->spent_ns += out->predicted_ns;
	size->lessons[id][out->registered].taken = size->messages;
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

/* The first few count alike, then the last MEMORY. One that took very long was
 * interrupted by something else, and counts as twice as long as usual. */
static void learn(struct lesson *lesson, double ratio)
{
	double known = correction(lesson), to = known * ratio;

	if (lesson->n >= ENOUGH && to > 2 * known)
		to = 2 * known;
	if (lesson->n < MEMORY)
		lesson->n++;
	known += (to - known) / lesson->n;
	lesson->correction = fmin(fmax(known, 1 / WILDEST), WILDEST);
}

void pn_auto_told(struct pn_auto *chooser, uint32_t id, double took_ns)
{
	struct bet *bet = id ? bet_on(chooser, id) : NULL;
	const struct pn_choice *c;
	double ratio;

	if (!bet)
		return;
	c = &bet->choice;
	ratio = (took_ns + bet->before_ns) / c->predicted_ns;
	bet->id = 0;
	if (!(ratio > 0))
		return;
	learn(&chooser->sizes[c->size].lessons[c->protocol][c->registered],
	      ratio);
	chooser->stats.told++;
	chooser->off_sum += fabs(ratio - 1);
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
