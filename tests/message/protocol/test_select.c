/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What `auto` learns from measurements that cannot be trusted: the selector
 * alone, with messages that take what a small model of a machine says.
 */
#include <math.h>

#include "message/protocol/select.h"
#include "message/protocol/shapes.h"
#include "test.h"

#define LEN	 ((size_t)1 << 20)
#define MESSAGES 4000
#define LAST	 2000 /* of these, the last ones that count */

static const struct pn_protocol_limits limits = {
	.packet_bytes = 8 << 10,
	.eager_bytes = 8 << 10,
	.match_bytes = 4 << 10,
	.rdma_offset = 256 << 10,
	.fragment_bytes = 256 << 10,
	.segment_bytes = 256 << 10,
	.depth = 4,
};

static const struct pn_costs costs = {
	.register_ns = 5000,
	.register_page_ns = 100,
	.deregister_ns = 2000,
	.deregister_page_ns = 50,
	.send_ns = 500,
	.put_ns = 1000,
	.put_byte_ns = 0.04,
	.get_ns = 1500,
	.get_byte_ns = 0.04,
	.copy_byte_ns = 0.05,
};

/* No other message is in flight. */
static const struct pn_load alone;

/* The time of a message by a protocol. Copy is the fastest, except for the
 * first few in a row, because CPU caches hold what others need (`soft`,
 * measured). */
struct machine {
	double copy_ns, cold_ns, other_ns;
	unsigned disturbed; /* the first so many messages take ten times as
			       long, */
	unsigned from, to;  /* and copies of these messages */
	double stop_ns;	    /* one message stops for so long: */
	unsigned stop_at;   /* the first one by another protocol after this
			       message */
	unsigned row;	    /* copies since another protocol was used */
	unsigned n;
	int last;
};

static double message_takes(struct machine *m, int protocol)
{
	double ns = m->other_ns;

	m->row = protocol == PN_PROTOCOL_COPY ? m->row + 1 : 0;
	if (protocol == PN_PROTOCOL_COPY)
		ns = m->row > 1 ? m->copy_ns : m->cold_ns;
	if (protocol == PN_PROTOCOL_COPY && m->n >= m->from && m->n < m->to)
		ns *= 16;
	if (m->stop_ns > 0 && m->n > m->stop_at && protocol != m->last) {
		ns += m->stop_ns;
		m->stop_ns = 0;
	}
	m->last = protocol;
	return m->n++ < m->disturbed ? 10 * ns : ns;
}

/* One buffer, used again and again. Returns how many of the last messages were
 * copied; *ns is the time of all of them. */
static unsigned copies_of_last(struct machine *m, double *ns)
{
	struct pn_protocol_selector *selector =
		pn_protocol_selector_open(&limits, &costs);
	struct pn_use source = { .addr = 1 << 20,
				 .len = LEN,
				 .end = PN_END_SOURCE };
	unsigned copied = 0;

	assert_non_null(selector);
	*ns = 0;
	for (unsigned i = 0; i < MESSAGES; i++) {
		struct pn_choice choice;
		double took;

		pn_protocol_selector_choose(selector, &source, true, &alone,
					    &choice);
		source.cached |= choice.keep;
		took = message_takes(m, choice.protocol);
		pn_protocol_selector_sent(selector, &choice, i + 1, 0);
		pn_protocol_selector_measured(selector, i + 1, took, false);
		if (i < MESSAGES - LAST)
			continue;
		copied += choice.protocol == PN_PROTOCOL_COPY;
		*ns += took;
	}
	pn_protocol_selector_close(selector);
	return copied;
}

/* However often a buffer is used, no later use would find it registered. */
static void nothing_is_left_where_nothing_is_kept(void **state)
{
	struct pn_protocol_selector *selector =
		pn_protocol_selector_open(&limits, &costs);
	struct pn_use source = { .addr = 1 << 20,
				 .len = LEN,
				 .end = PN_END_SOURCE,
				 .unkept = true };

	(void)state;
	assert_non_null(selector);
	for (unsigned i = 0; i < MESSAGES; i++) {
		struct pn_choice choice;

		pn_protocol_selector_choose(selector, &source, false, &alone,
					    &choice);
		assert_false(choice.keep);
		assert_int_not_equal(choice.reason, PN_BECAUSE_REUSE);
		assert_false(
			pn_protocol_selector_keep(selector, &source, false));
	}
	pn_protocol_selector_close(selector);
}

static void the_best_is_found_although_it_began_badly(void **state)
{
	struct machine m = { .copy_ns = 50e3,
			     .cold_ns = 50e3,
			     .other_ns = 60e3,
			     .disturbed = 8 };
	double ns;

	(void)state;
	assert_in_range(copies_of_last(&m, &ns), LAST * 9 / 10, LAST);
}

static void the_best_is_found_although_it_needs_a_few_in_a_row(void **state)
{
	struct machine m = { .copy_ns = 50e3,
			     .cold_ns = 170e3,
			     .other_ns = 60e3,
			     .disturbed = 8 };
	double ns;

	(void)state;
	assert_in_range(copies_of_last(&m, &ns), LAST * 9 / 10, LAST);
}

/* Exploring with a buffer that was not registered leaves it registered; it is
 * not the last exploration. */
static void a_phase_that_was_bad_is_forgotten(void **state)
{
	struct machine m = { .copy_ns = 12e3,
			     .cold_ns = 12e3,
			     .other_ns = 60e3,
			     .from = 1500,
			     .to = 1600 };
	double ns;

	(void)state;
	assert_in_range(copies_of_last(&m, &ns), LAST * 8 / 10, LAST);
}

/* The process may have been stopped, or a peer may lie. */
static void a_trial_that_stops_does_not_end_all_trials(void **state)
{
	struct machine m = { .copy_ns = 50e3,
			     .cold_ns = 50e3,
			     .other_ns = 60e3,
			     .disturbed = 6,
			     .stop_ns = 10e9,
			     .stop_at = 20 };
	double ns;

	(void)state;
	assert_in_range(copies_of_last(&m, &ns), LAST / 2, LAST);
}

/* The cost of exploration is bounded, however bad its results. */
static void trials_stay_within_their_share(void **state)
{
	struct machine m = { .copy_ns = 50e3,
			     .cold_ns = 50e3,
			     .other_ns = 500e3 };
	double ns;

	(void)state;
	copies_of_last(&m, &ns);
	assert_true(ns < 1.05 * LAST * m.copy_ns);
}

/* --- statistics ----------------------------------------------------------- */

/* What counts besides the time that the receiver reports. */
static double before(int protocol)
{
	return protocol == PN_PROTOCOL_READ
		       ? costs.send_ns
		       : pn_cost_match(&limits, &costs, LEN);
}

/* On a machine without noise three measurements are enough to predict the next;
 * explorations and measurements are counted. */
static void three_of_a_kind_are_enough_to_predict_the_next(void **state)
{
	struct pn_protocol_selector *selector =
		pn_protocol_selector_open(&limits, &costs);
	struct pn_use source = { .addr = 1 << 20,
				 .len = LEN,
				 .end = PN_END_SOURCE };
	unsigned known[PN_PROTOCOL_COUNT][2] = { 0 }, ntrials = 0, npredicted;
	struct pn_protocol_selector_stats stats;

	(void)state;
	assert_non_null(selector);
	npredicted = 0;
	for (unsigned i = 0; i < MESSAGES; i++) {
		struct pn_choice c;
		double took;

		pn_protocol_selector_choose(selector, &source, true, &alone,
					    &c);
		source.cached |= c.keep;
		took = 300e3 + 40e3 * c.protocol;
		if (known[c.protocol][c.registered]++ >= 3) {
			npredicted++;
			assert_true(fabs(took + before(c.protocol) -
					 c.predicted_ns) <
				    0.01 * c.predicted_ns);
		}
		ntrials += c.reason == PN_BECAUSE_TRIAL;
		pn_protocol_selector_sent(selector, &c, i + 1, 0);
		pn_protocol_selector_measured(selector, i + 1, took, false);
		pn_protocol_selector_measured(
			selector, i + 1, 1,
			false); /* reported twice: counts once */
	}
	pn_protocol_selector_query(selector, &stats);
	assert_true(ntrials > 3 && npredicted > MESSAGES / 2);
	assert_int_equal(stats.explored, ntrials);
	assert_int_equal(stats.measured, MESSAGES);
	assert_true(stats.mean_error < 0.05);
	pn_protocol_selector_close(selector);
}

/* --- messages in flight --------------------------------------------------- */

static void the_level_is_that_of_the_last_window(void **state)
{
	struct pn_load load = { 0 };

	(void)state;
	assert_int_equal(pn_load_level(&load), 1);
	for (unsigned window = 1; window <= 32; window *= 2) {
		for (unsigned i = 0; i < window; i++)
			pn_load_begin(&load);
		assert_int_equal(pn_load_level(&load), window + 1);
		for (unsigned i = 0; i < window; i++)
			pn_load_end(&load);
		assert_true(pn_load_is_idle(&load));
		assert_int_equal(pn_load_level(&load), window);
	}
	/* One message alone, and the window is forgotten. */
	pn_load_begin(&load);
	pn_load_end(&load);
	assert_int_equal(pn_load_level(&load), 1);
	assert_int_equal(pn_load_class(1), 0);
	assert_int_equal(pn_load_class(2), 1);
	assert_int_equal(pn_load_class(4), 2);
	assert_int_equal(pn_load_class(5), 3);
	assert_int_equal(pn_load_class(1000), PN_LOAD_CLASSES - 1);
}

/* Windows of messages from one registered buffer, on a machine where copying is
 * the best in flight; alone all take the same. All messages of a window end
 * together: the first one's time is that of all. */
struct stream {
	unsigned window, nwindows;
	unsigned mixed;	 /* windows with several protocols */
	unsigned copied; /* of the last half, windows that were copied */
	unsigned explored;
	double copy_ns, other_ns; /* what a message adds, by copy or others */
	double took_ns;		  /* of the last half, all */
};

static double in_flight_ns(const struct stream *s, int protocol, bool mixed)
{
	if (mixed)
		return 3 * s->copy_ns;
	return protocol == PN_PROTOCOL_COPY ? s->copy_ns : s->other_ns;
}

static void run_window(struct pn_protocol_selector *selector,
		       struct pn_load *load, struct stream *s, unsigned number)
{
	struct pn_use source = { .addr = 1 << 20,
				 .len = LEN,
				 .end = PN_END_SOURCE,
				 .cached = true };
	unsigned id = 1 + number * s->window, others = 0;
	int first = 0;
	double ns;

	for (unsigned i = 0; i < s->window; i++) {
		struct pn_choice c;

		pn_protocol_selector_choose(selector, &source, true, load, &c);
		pn_protocol_selector_sent(selector, &c, id + i, 0);
		pn_load_begin(load);
		first = i ? first : c.protocol;
		others += c.protocol != first;
		s->explored += c.reason == PN_BECAUSE_TRIAL;
		if (number > 1 && c.reason != PN_BECAUSE_TRIAL)
			assert_int_equal(c.reason, PN_BECAUSE_STREAM);
	}
	ns = in_flight_ns(s, first, others) * s->window;
	for (unsigned i = 0; i < s->window; i++) {
		pn_load_end(load);
		pn_protocol_selector_ended(selector, id + i, 0);
		pn_protocol_selector_measured(selector, id + i, i ? 0 : ns,
					      i % 2);
	}
	s->mixed += number > 1 && others;
	s->took_ns += number >= s->nwindows / 2 ? ns : 0;
	s->copied += number >= s->nwindows / 2 && !others &&
		     first == PN_PROTOCOL_COPY;
}

static void messages_in_flight_change_their_protocol_together(void **state)
{
	(void)state;
	for (unsigned window = 2; window <= 64; window *= 2) {
		struct pn_protocol_selector *selector =
			pn_protocol_selector_open(&limits, &costs);
		struct stream s = { .window = window,
				    .nwindows = 8192 / window,
				    .copy_ns = 30e3,
				    .other_ns = 45e3 };
		struct pn_load load = { 0 };
		struct pn_protocol_selector_stats stats;

		assert_non_null(selector);
		for (unsigned n = 0; n < s.nwindows; n++)
			run_window(selector, &load, &s, n);
		pn_protocol_selector_query(selector, &stats);
		assert_int_equal(s.mixed, 0);
		assert_true(s.copied >= s.nwindows / 2 * 95 / 100);
		assert_int_equal(stats.explored, s.explored);
		assert_in_range(s.explored, 16, 8192 / 8);
		assert_true(stats.in_flight >= 8192 - 1);
		pn_protocol_selector_close(selector);
	}
}

/* All take much longer than predicted, as where both directions share a link:
 * then every candidate seems to be worth an exploration. */
static void explorations_in_flight_stay_within_their_share(void **state)
{
	(void)state;
	for (unsigned window = 2; window <= 64; window *= 2) {
		struct pn_protocol_selector *selector =
			pn_protocol_selector_open(&limits, &costs);
		struct stream s = { .window = window,
				    .nwindows = 16384 / window,
				    .copy_ns = 200e3,
				    .other_ns = 300e3 };
		struct pn_load load = { 0 };

		assert_non_null(selector);
		for (unsigned n = 0; n < s.nwindows; n++)
			run_window(selector, &load, &s, n);
		assert_int_equal(s.mixed, 0);
		assert_true(s.took_ns <= 1.03 * 8192 * s.copy_ns);
		pn_protocol_selector_close(selector);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(nothing_is_left_where_nothing_is_kept),
		TEST(the_best_is_found_although_it_began_badly),
		TEST(the_best_is_found_although_it_needs_a_few_in_a_row),
		TEST(a_phase_that_was_bad_is_forgotten),
		TEST(a_trial_that_stops_does_not_end_all_trials),
		TEST(trials_stay_within_their_share),
		TEST(three_of_a_kind_are_enough_to_predict_the_next),
		TEST(the_level_is_that_of_the_last_window),
		TEST(messages_in_flight_change_their_protocol_together),
		TEST(explorations_in_flight_stay_within_their_share),
	};

	return RUN_TESTS(tests);
}
