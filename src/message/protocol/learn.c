/* SPDX-License-Identifier: BSD-2-Clause */
/* Predictions, the measurements that they are compared with, and corrections.
 */
#include <math.h>

#include "message/protocol/select_impl.h"
#include "message/protocol/shapes.h"

/* How much longer than the mean a lone message, or a batch in flight, may take
 * before that is a disturbance; the weight of a new batch. */
#define MAX_OUTLIER	  1.25
#define MAX_BATCH_OUTLIER 2.0
#define BATCH_WEIGHT	  0.25

static struct prediction *prediction_at(struct pn_protocol_selector *selector,
					unsigned number)
{
	return &selector->predictions[number & (NPREDICTIONS - 1)];
}

void pn_protocol_selector_sent(struct pn_protocol_selector *selector,
			       const struct pn_choice *choice, uint32_t id,
			       double took_ns)
{
	unsigned at = selector->npredictions++;
	double before = choice->protocol == PN_PROTOCOL_READ
				? took_ns + selector->costs->send_ns
				: pn_cost_match(selector->limits,
						selector->costs, choice->len);

	/* What passes before the MATCH arrives. The MATCH of `read` carries
	 * keys, and waits until the source is registered. */
	selector->ids[at & (NPREDICTIONS - 1)] = choice->counts ? id : 0;
	*prediction_at(selector, at) =
		(struct prediction){ .choice = *choice, .before_ns = before };
}

/* The prediction of a message, or NULL. The ids lie together, because a
 * measurement comes up to a window of messages later. */
static struct prediction *find(struct pn_protocol_selector *selector,
			       uint32_t id)
{
	unsigned found = NPREDICTIONS;

	for (unsigned i = 0; i < NPREDICTIONS; i++)
		if (selector->ids[i] == id)
			found = i;
	return id && found < NPREDICTIONS ? &selector->predictions[found]
					  : NULL;
}

void pn_protocol_selector_ended(struct pn_protocol_selector *selector,
				uint32_t id, double added_ns)
{
	struct prediction *prediction = find(selector, id);

	if (prediction)
		prediction->sent_ns = added_ns;
}

void pn_learn_forget(struct pn_protocol_selector *selector,
		     const struct pn_choice *choice, unsigned level)
{
	for (unsigned i = 1; i <= level && i <= NPREDICTIONS; i++) {
		unsigned at = selector->npredictions - i;

		if (prediction_at(selector, at)->choice.size == choice->size)
			selector->ids[at & (NPREDICTIONS - 1)] = 0;
	}
}

static void correct(struct estimate *estimate, double known)
{
	estimate->correction =
		fmin(fmax(known, 1 / MAX_CORRECTION), MAX_CORRECTION);
}

/* The first messages are often slow (cold caches, page faults, sleeping
 * threads), so the best of the first MIN_MEASUREMENTS counts, then the mean of
 * the last MEASUREMENT_WINDOW. A message that took much longer was disturbed.
 * If it was not, the next ones take as long, and the mean follows step by step.
 */
static void learn_alone(struct estimate *estimate, double found)
{
	double known = pn_estimate_correction(estimate);

	if (!estimate->n)
		known = found;
	else if (estimate->n < MIN_MEASUREMENTS)
		known = fmin(known, found);
	else
		known += (fmin(found, MAX_OUTLIER * known) - known) /
			 (estimate->n + 1);
	if (estimate->n < MEASUREMENT_WINDOW - 1)
		estimate->n++;
	correct(estimate, known);
}

/* The mean of a batch is one value. The better of the first MIN_BATCHES counts:
 * the first messages of a protocol in a row find the CPU's caches with what
 * others need. */
static void learn_batch(struct estimate *e, double found)
{
	double known = pn_estimate_correction(e);

	if (!e->n)
		known = found;
	else if (e->n < MIN_BATCHES)
		known = fmin(known, found);
	else
		known += (fmin(found, MAX_BATCH_OUTLIER * known) - known) *
			 BATCH_WEIGHT;
	if (e->n < MIN_BATCHES)
		e->n++;
	correct(e, known);
}

/* Counts what an explored message cost above the best candidate, if that is not
 * what was charged when it began; `messages` of its row took as long. A pause
 * of a second is not its cost. */
static void charge_exploration(struct situation *situation,
			       const struct pn_choice *c, double took_ns,
			       double messages)
{
	double most = fmin(took_ns, MAX_CORRECTION * c->plain_ns);

	situation->explored_ns[c->budget] +=
		messages * (fmax(0, most - c->best_ns) - c->charged_ns);
}

static void count_error(struct pn_protocol_selector *selector, double took_ns,
			double predicted_ns)
{
	selector->stats.measured++;
	selector->error_sum += fabs(took_ns / predicted_ns - 1);
}

static void measured_alone(struct pn_protocol_selector *selector,
			   struct situation *situation,
			   const struct pn_choice *c, double took_ns)
{
	learn_alone(&situation->estimates[c->protocol][c->registered],
		    took_ns / c->plain_ns);
	if (c->reason == PN_BECAUSE_TRIAL)
		charge_exploration(situation, c, took_ns, 1);
	count_error(selector, took_ns, c->predicted_ns);
}

/* Each side sees what a message added to the time in which it had some. The
 * receiver does not see what precedes the MATCH of the first message in flight,
 * which is added. The sender does not see what follows the last packet of a
 * copy. The larger sum counts. */
static void measured_in_flight(struct pn_protocol_selector *selector,
			       struct situation *situation,
			       const struct prediction *prediction,
			       double took_ns)
{
	const struct pn_choice *c = &prediction->choice;
	struct estimate *e = &situation->estimates[c->protocol][c->registered];
	unsigned n = pn_batch_messages(c->level);
	double most = MAX_CORRECTION * c->level * c->plain_ns, mean;

	if (c->first)
		took_ns += prediction->before_ns;
	e->took_ns += fmin(took_ns, most);
	e->sent_ns += fmin(prediction->sent_ns, most);
	e->plain_ns += c->plain_ns;
	if (++e->nbatch < n)
		return;
	mean = fmax(e->took_ns, e->sent_ns) / e->nbatch;
	learn_batch(e, mean * e->nbatch / e->plain_ns);
	/* Those at the ends of a row that was mixed do not count, but cost. */
	if (c->reason == PN_BECAUSE_TRIAL)
		charge_exploration(situation, c, mean,
				   (double)c->row_messages / MIN_BATCHES);
	count_error(selector, mean, c->predicted_ns);
	e->nbatch = 0;
	e->took_ns = e->sent_ns = e->plain_ns = 0;
}

void pn_protocol_selector_measured(struct pn_protocol_selector *selector,
				   uint32_t id, double took_ns, bool late)
{
	const struct prediction *prediction = find(selector, id);
	const struct pn_choice *c;
	struct situation *situation;

	if (!prediction)
		return;
	selector->ids[prediction - selector->predictions] = 0;
	c = &prediction->choice;
	situation =
		&selector->sizes[c->size].situations[pn_load_class(c->level)];
	if (c->level > 1)
		measured_in_flight(selector, situation, prediction, took_ns);
	else if (!late)
		measured_alone(selector, situation, c,
			       took_ns + prediction->before_ns);
}

void pn_protocol_selector_query(const struct pn_protocol_selector *selector,
				struct pn_protocol_selector_stats *out)
{
	*out = selector->stats;
	if (out->measured)
		out->mean_error = selector->error_sum / (double)out->measured;
}
