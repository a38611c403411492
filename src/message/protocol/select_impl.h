/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * select -- the state of a protocol selector. select.h tells the story.
 *
 * Files
 *   select.c   prices, plans, the choice
 *   explore.c  which candidate is explored, and when the protocol may change
 *   learn.c    predictions, measurements, corrections
 * These files alone include this header.
 */
#ifndef PN_MESSAGE_SELECT_IMPL_H
#define PN_MESSAGE_SELECT_IMPL_H

#include "message/protocol/load.h"
#include "message/protocol/select.h"

#define NPREDICTIONS 256 /* a power of two; older ones are overwritten */

/* Corrections of lone messages: measurements until a candidate counts as known,
 * and in the mean afterwards. */
#define MIN_MEASUREMENTS   3
#define MEASUREMENT_WINDOW 8

/* Corrections lie between MAX_CORRECTION and its inverse. */
#define MAX_CORRECTION 16.0

/* In flight: measurements of a batch at least; batches until a candidate counts
 * as known. */
#define MIN_BATCH   8
#define MIN_BATCHES 2

/* What was learned about a candidate, in one situation and for one state of the
 * source. */
struct estimate {
	double correction; /* 0: nothing was measured, counts as 1 */
	unsigned n;	   /* values since exploration began: measurements
			      if alone, else batches */
	unsigned nbatch;   /* in flight: measurements of this batch, */
	double took_ns, sent_ns, plain_ns; /* and their sums */
	uint64_t taken;		 /* number of the last message that used it */
	uint64_t retry_messages; /* messages after that until it is explored
				    again */
};

/* A number of messages in a row: at first the CPU's caches hold what other
 * protocols need, and messages of other protocols may still be in flight. */
struct exploration {
	int id;
	enum pn_exploration_time budget;
	unsigned messages, left;
};

/* Messages of about one size at about one level (load.h). */
struct situation {
	struct estimate estimates[PN_PROTOCOL_COUNT][2]; /* by registered */
	uint64_t messages;
	double spent_ns;
	double explored_ns[PN_NTIMES]; /* of that, on exploration */
	double learning_ns; /* of that, while the situation was new */
	struct exploration explorations[2]; /* by registered */
};

/* The messages of one protocol that were sent one after the other. */
struct row {
	unsigned n;
	int id;
	bool mixed;	     /* began with messages of others in flight */
	unsigned since_idle; /* messages since none was in flight */
};

struct size {
	struct situation situations[PN_LOAD_CLASSES];
	struct row rows[2]; /* by registered */
	/* Predictions for the length and level that were asked for last. */
	size_t len;
	unsigned level;
	struct pn_prices predicted;
};

struct prediction {
	struct pn_choice choice;
	double sent_ns; /* what the message added at the sender */
	double before_ns;
};

struct pn_protocol_selector {
	const struct pn_protocol_limits *limits;
	const struct pn_costs *costs;
	struct pn_history *history;
	struct size sizes[PN_HISTORY_SIZES];
	struct prediction predictions[NPREDICTIONS];
	uint32_t ids[NPREDICTIONS]; /* their messages; 0: none */
	unsigned npredictions;
	struct pn_protocol_selector_stats stats;
	double error_sum;
};

/* What a decision is about. */
struct question {
	struct size *size;
	struct situation *situation;
	struct pn_prices prices;
	unsigned level;
	bool idle; /* no message is in flight */
	bool registered;
};

static inline const double *pn_prices_now(const struct pn_prices *prices,
					  bool registered)
{
	return registered ? prices->later : prices->first;
}

/* In flight, messages often end together, up to all of a window: the time then
 * stands with the first of them. So a batch covers a window. */
static inline unsigned pn_batch_messages(unsigned level)
{
	if (level < MIN_BATCH)
		return MIN_BATCH;
	return level < NPREDICTIONS / 2 ? level : NPREDICTIONS / 2;
}

static inline double pn_estimate_correction(const struct estimate *estimate)
{
	return estimate->correction > 0 ? estimate->correction : 1;
}

/* What a candidate may take at best: bad measurements are not believed for
 * ever. */
static inline double pn_price_optimistic(double corrected_ns, double plain_ns)
{
	return corrected_ns < plain_ns ? corrected_ns : plain_ns;
}

/* explore.c: the candidate to take, if the best is known: an explored one (then
 * out->reason says so), the one that messages in flight use, or the best. */
int pn_explore(const struct question *q, int best, struct pn_choice *out);

/* explore.c: counts a choice. */
void pn_explore_count(struct pn_protocol_selector *selector,
		      const struct question *q, struct pn_choice *choice);

/* learn.c: messages in flight of a size whose protocol changes do not count. */
void pn_learn_forget(struct pn_protocol_selector *selector,
		     const struct pn_choice *choice, unsigned level);

#endif
