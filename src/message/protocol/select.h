/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * auto -- the choice nobody should have to make by hand (row X1): for each
 * message the protocol that is cheapest, counting what it leaves behind.
 *
 * Nouns
 *   candidate  a row of protocol.h, but for eager, which what is short takes
 *              without asking.
 *   price      what a candidate takes for one message of this length: its
 *              row's prediction from the device's costs, times a correction.
 *              One when the source has to be registered (first), another when
 *              it is registered already (later).
 *   plan       this message by a candidate, and the uses of the buffer that
 *              are expected to follow (history.h) by whatever is cheapest
 *              then: `later` after a candidate that leaves its registration,
 *              `first` after one that does not. The cheapest plan is taken.
 *   prediction        a price that was paid on, until it is known what it took.
 *   correction of a candidate for messages of about one size: the mean of what
 *              they took over what was predicted.
 *
 * Registering costs now and pays later: with u uses seen and nothing known, u
 * more are expected, so a buffer is registered when copying has cost as much
 * as registering would have; one who knew the future would have paid half at
 * least. What buffers of this size did before replaces that guess.
 *
 * Leaving a registration costs nothing while there is room (it is then never
 * deregistered, or while idle), and a deregistration when there is none. Each
 * side decides about its own: the sender by its plan, the receiver by the
 * forecast of its target (pn_protocol_selector_keep()), whatever the sender
 * said.
 *
 * What a message took is known where it arrives. The receiver takes the time
 * from MATCH to the last byte, of messages only that were expected (else its
 * own lateness would count), and tells by the next ACK or DONE (wire.h). What
 * is said is a hint: a lie makes pinion slow at worst, by MAX_EXPLORED_COST
 * times for what is learned from it.
 *
 * Trying: predictions can be wrong and measurements disturbed, so candidates
 * that were never taken, or not for long, are taken now and then, when what
 * they cost above the best fits into 2 % of the time spent on that size so far
 * (what they turn out to cost is what counts). At first sight nothing is
 * tried, so the bound above holds. What looks better than it is will be taken
 * and found out; what looks worse would not, so it is learned anew soon after
 * it ceased to be taken, then after twice as many messages each time.
 *
 * At rest: corrections are positive. Memory: fixed, some 100 KiB.
 * Threads: the endpoint's lock. Nothing here waits or calls the device.
 */
#ifndef PN_MESSAGE_AUTO_H
#define PN_MESSAGE_AUTO_H

#include "cache/trace_event.h"
#include "message/protocol/history.h"
#include "message/protocol/protocol.h"

struct pn_protocol_selector;

/* One line for people: why a candidate was taken (PN_BECAUSE_CACHED, CHEAPEST,
 * REUSE, TRIAL, SHORT). */
const char *pn_choice_text(enum pn_trace_event_reason reason);

struct pn_choice {
	int protocol;
	bool keep;   /* leave the source registered */
	bool direct; /* eager: straight from the buffer */
	enum pn_trace_event_reason reason;
	double predicted_ns; /* send to arrival; 0: nobody chose */
	/* for pn_protocol_selector_sent() */
	double plain_ns; /* as predicted_ns, before the correction */
	size_t len;
	uint8_t size;
	bool registered;
};

/* What is known at the time of a decision. */
struct pn_choice_input {
	size_t len;
	struct pn_forecast forecast;
	bool registered; /* the buffer is, now */
	bool roomy;	 /* another registration pushes nobody out */
};

/* Prices of all candidates for a length; NAN: does not apply. */
struct pn_prices {
	double first[PN_PROTOCOL_COUNT], later[PN_PROTOCOL_COUNT];
	double plan[PN_PROTOCOL_COUNT]; /* set by pn_protocol_selector_weigh()
					 */
	bool leaves[PN_PROTOCOL_COUNT]; /* its registration */
};

/* Limits and costs stay where they are. NULL: no memory. */
struct pn_protocol_selector *pn_protocol_selector_open(
	const struct pn_protocol_limits *limits, const struct pn_costs *costs);
void pn_protocol_selector_close(struct pn_protocol_selector *selector);

/* Chooses for a message that is about to be sent. */
void pn_protocol_selector_choose(struct pn_protocol_selector *selector,
				 const struct pn_use *source, bool roomy,
				 struct pn_choice *out);

/* Request `id` was sent as chosen; until its MATCH was out took_ns, which
 * counts when the source was registered for it. */
void pn_protocol_selector_sent(struct pn_protocol_selector *selector,
			       const struct pn_choice *choice, uint32_t id,
			       double took_ns);

/* A receiver tells what a request took; unknown ones are ignored. */
void pn_protocol_selector_measured(struct pn_protocol_selector *selector,
				   uint32_t id, double took_ns);

/* Whether the receiver leaves its target registered. */
bool pn_protocol_selector_keep(struct pn_protocol_selector *selector,
			       const struct pn_use *target, bool roomy);

/* How often predictions could be compared, and the mean of how far they were
 * off, as a fraction of what was predicted. */
struct pn_protocol_selector_stats {
	uint64_t trials; /* taken to know better */
	uint64_t told;
	double off;
};

void pn_protocol_selector_query(const struct pn_protocol_selector *selector,
				struct pn_protocol_selector_stats *out);

/* --- what it is made of, for `pinion explain` too ------------------------- */

/* As the device's costs say, before any correction. */
void pn_protocol_selector_predict(const struct pn_protocol_limits *limits,
				  const struct pn_costs *costs, size_t len,
				  struct pn_prices *out);

/* Fills prices->plan; the cheapest. */
int pn_protocol_selector_weigh(const struct pn_choice_input *question,
			       const struct pn_costs *costs,
			       struct pn_prices *prices,
			       enum pn_trace_event_reason *reason);

/* Whether a protocol's registrations may be left. */
bool pn_protocol_keeps_registration(int protocol);

#endif
