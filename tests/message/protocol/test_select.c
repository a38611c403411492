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

		pn_protocol_selector_choose(selector, &source, true, &choice);
		source.cached |= choice.keep;
		took = message_takes(m, choice.protocol);
		pn_protocol_selector_sent(selector, &choice, i + 1, 0);
		pn_protocol_selector_measured(selector, i + 1, took);
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

		pn_protocol_selector_choose(selector, &source, false, &choice);
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

		pn_protocol_selector_choose(selector, &source, true, &c);
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
		pn_protocol_selector_measured(selector, i + 1, took);
		pn_protocol_selector_measured(
			selector, i + 1, 1); /* reported twice: counts once */
	}
	pn_protocol_selector_query(selector, &stats);
	assert_true(ntrials > 3 && npredicted > MESSAGES / 2);
	assert_int_equal(stats.explored, ntrials);
	assert_int_equal(stats.measured, MESSAGES);
	assert_true(stats.mean_error < 0.05);
	pn_protocol_selector_close(selector);
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
	};

	return RUN_TESTS(tests);
}
