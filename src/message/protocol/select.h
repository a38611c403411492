/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * select -- chooses the protocol of a message if the option says `auto` (row
 * X1): the cheapest one, counting the registration that it leaves behind.
 *
 * Nouns
 *   candidate   a row of protocol.h other than eager. Short messages are eager
 *               without asking the selector.
 *   price       what a candidate takes for one message of this length: the
 *               row's prediction from the device's costs, times a correction.
 *               There are two: `first`, if the source has to be registered, and
 *               `later`, if it is registered already.
 *   plan        the price of this message by a candidate, plus the prices of
 *               the uses of the buffer that are expected to follow (history.h),
 *               by whatever is cheapest then: `later` after a candidate that
 *               keeps its registration, `first` after another. The selector
 *               takes the candidate with the cheapest plan.
 *   prediction  the price of a message that was sent, until its time is
 *               measured.
 *   correction  of a candidate, for messages of about one size: the mean of the
 *               measured times over the predicted ones.
 *
 * Registering costs now and pays later. With u uses seen and nothing else
 * known, u more are expected, so a buffer is registered when copying has cost
 * as much as registering would have. Someone who knew the future would have
 * paid at least half of that (ski rental). What buffers of this size did before
 * replaces this guess.
 *
 * A registration that is kept costs nothing while the budget has room: it is
 * deregistered never, or while idle. If the budget is full it costs the
 * deregistration of another. Each side decides about its own registration: the
 * sender by its plan, the receiver by the forecast for its target
 * (pn_protocol_selector_keep()), whatever the sender does.
 *
 * Alone or in flight (load.h). A message that is alone is judged by its
 * latency. With n long messages in flight at a time, a message is judged by
 * what it adds to the time of all: the time for which it occupies the busiest
 * of sender, receiver and link, and at least an n-th of its latency. What is
 * learned is kept for each size and each class of n (a situation).
 *
 * Measurements (timing.h). Each side takes what a message added to the time in
 * which it had some under way; alone, this is the latency. The receiver reports
 * its time to the sender; of a lone message only if its receive was posted
 * before, since the time of a late receive says nothing about the protocol. In
 * flight the mean of a batch counts, of a window of messages or more, and of
 * both sides' sums the larger. Measurements are hints. A peer that reports
 * wrong times makes pinion slower, at worst by a factor of MAX_EXPLORED_COST
 * (explore.c).
 *
 * Exploration. Predictions can be wrong and measurements disturbed. So
 * candidates that were never used, or not lately, are used now and then, if
 * their cost above the best fits into 2 % of the time spent in that situation
 * (what they then really cost counts); in flight, candidates that were never
 * measured have a quarter of the first messages' time.
 * On the first use of a buffer nothing is explored, so the bound above holds. A
 * candidate that looks better than it is gets used, and its correction then
 * shows its cost. A candidate that looks worse than it is would never be used.
 * So it is measured again soon after its last use, then after four times as
 * many messages each time.
 *
 * Messages in flight share caches, pages and the link: mixed protocols can be
 * slower than each. So messages of one size change their protocol together:
 * while none is in flight, or, if that does not happen, after a row of two
 * batches and two windows; and only if the other one is better by 3 %. An
 * exploration is a row of messages: three alone, two batches in flight.
 *
 * At rest: corrections are positive. Memory: fixed, some 700
 * KiB of addresses; pages of sizes that are not used are not touched. Threads:
 * the endpoint's lock. Nothing here waits or calls the device.
 */
#ifndef PN_MESSAGE_SELECT_H
#define PN_MESSAGE_SELECT_H

#include "cache/trace_event.h"
#include "message/protocol/history.h"
#include "message/protocol/load.h"
#include "message/protocol/protocol.h"

struct pn_protocol_selector;

/* One line for people: why a candidate was chosen (PN_BECAUSE_CACHED, CHEAPEST,
 * REUSE, STREAM, TRIAL, SHORT). */
const char *pn_choice_text(enum pn_trace_event_reason reason);

/* What pays for an exploration: time to learn about candidates that were never
 * measured, or to check those that were. */
enum pn_exploration_time { PN_TIME_TO_LEARN, PN_TIME_TO_CHECK, PN_NTIMES };

struct pn_choice {
	int protocol;
	bool keep;   /* keep the source registered */
	bool direct; /* eager: directly from the buffer */
	enum pn_trace_event_reason reason;
	double predicted_ns; /* from send to arrival; 0: the selector was not
				asked */
	/* For pn_protocol_selector_sent(). */
	double plain_ns;   /* as predicted_ns, without the correction */
	double best_ns;	   /* exploration: what the best candidate takes */
	double charged_ns; /* what was charged for this message */
	enum pn_exploration_time budget;
	unsigned row_messages; /* and the messages of its row */
	size_t len;
	unsigned level; /* of messages in flight; 1: alone */
	uint8_t size;
	bool registered;
	bool first;  /* none was in flight before it */
	bool counts; /* its time says what the protocol takes */
};

/* What is known when a protocol is chosen. */
struct pn_choice_input {
	size_t len;
	struct pn_forecast forecast;
	bool registered; /* the buffer is registered now */
	bool has_room;	 /* another registration evicts none */
};

/* Prices of all candidates for a length; NAN: does not apply. */
struct pn_prices {
	double first[PN_PROTOCOL_COUNT], later[PN_PROTOCOL_COUNT];
	double plan[PN_PROTOCOL_COUNT]; /* set by pn_protocol_selector_weigh()
					 */
	bool leaves[PN_PROTOCOL_COUNT]; /* keeps its registration */
};

/* The caller keeps limits and costs. NULL: no memory. */
struct pn_protocol_selector *pn_protocol_selector_open(
	const struct pn_protocol_limits *limits, const struct pn_costs *costs);
void pn_protocol_selector_close(struct pn_protocol_selector *selector);

/* Chooses for a message that is about to be sent. */
void pn_protocol_selector_choose(struct pn_protocol_selector *selector,
				 const struct pn_use *source, bool has_room,
				 const struct pn_load *load,
				 struct pn_choice *out);

/* Request `id` was sent as chosen. took_ns: the time until its MATCH was
 * posted, which counts if the source was registered for it. */
void pn_protocol_selector_sent(struct pn_protocol_selector *selector,
			       const struct pn_choice *choice, uint32_t id,
			       double took_ns);

/* Request `id` has ended at the sender, where it added so much to the time in
 * which requests were under way. */
void pn_protocol_selector_ended(struct pn_protocol_selector *selector,
				uint32_t id, double added_ns);

/* A receiver reports the time that a request took; late: its receive was posted
 * after the MATCH had arrived. Unknown ids are ignored. */
void pn_protocol_selector_measured(struct pn_protocol_selector *selector,
				   uint32_t id, double took_ns, bool late);

/* Whether the receiver keeps its target registered. */
bool pn_protocol_selector_keep(struct pn_protocol_selector *selector,
			       const struct pn_use *target, bool has_room);

/* How many predictions were compared with measurements, and the mean of their
 * error, as a fraction of the prediction. */
struct pn_protocol_selector_stats {
	uint64_t explored;  /* messages used for exploration */
	uint64_t in_flight; /* choices while others were in flight */
	uint64_t changes;   /* from one protocol to another, of one size */
	uint64_t measured;
	double mean_error;
};

void pn_protocol_selector_query(const struct pn_protocol_selector *selector,
				struct pn_protocol_selector_stats *out);

/* --- the parts, for `pinion explain` too ---------------------------------- */

struct pn_predict_attr {
	const struct pn_protocol_limits *limits;
	const struct pn_costs *costs;
	size_t len;
	unsigned level; /* of messages in flight (load.h) */
};

/* From the device's costs, without corrections. */
void pn_protocol_selector_predict(const struct pn_predict_attr *attr,
				  struct pn_prices *out);

/* Fills prices->plan and returns the cheapest candidate. */
int pn_protocol_selector_weigh(const struct pn_choice_input *input,
			       const struct pn_costs *costs,
			       struct pn_prices *prices,
			       enum pn_trace_event_reason *reason);

/* Whether the registrations of a protocol may be kept. */
bool pn_protocol_keeps_registration(int protocol);

#endif
