/* SPDX-License-Identifier: BSD-2-Clause */
#include "test.h"

#include <errno.h>

#include "helper/site.h"

#define KIB 1024

static const struct pn_costs costs = { .register_ns = 16000,
				       .register_page_ns = 250 };

struct table {
	struct pn_callsites *sites;
	struct pn_call_sequence *sequence;
	struct pn_window window;
	unsigned length;
};

static struct table open_table(enum pn_predictor predictor, unsigned window)
{
	struct pn_callsites_attr attr = { .predictor = predictor,
					  .periodic = 16,
					  .costs = costs };
	struct table table = { .length = window };

	assert_ok(pn_callsites_open(&attr, &table.sites));
	table.sequence = pn_call_sequence_alloc(table.sites);
	assert_non_null(table.sequence);
	return table;
}

static void close_table(struct table *table)
{
	pn_call_sequence_free(table->sequence);
	pn_callsites_close(table->sites);
}

static struct pn_call_result call_at(struct table *table, uint64_t time_us,
				     uintptr_t from, unsigned buffer)
{
	struct pn_call call = {
		.time_ns = time_us * 1000,
		.range = { 0x100000 * (buffer + UINT64_C(1)), 64 * KIB },
		.kind = 1,
		.nframes = 2,
		.frames = { from, 0x4000 },
	};
	struct pn_call_result verdict;

	pn_window_add(&table->window, table->length, &call);
	assert_ok(pn_callsites_add_call(table->sequence, &call, &verdict));
	return verdict;
}

static void the_shortest_period_is_predicted(void **state)
{
	struct table table = open_table(PN_PREDICT_SHORTEST, 0);
	struct pn_call_result v;

	(void)state;
	v = call_at(&table, 1000, 1, 0);
	assert_true(v.first);
	assert_int_equal(v.buffer->deadline_ns, 0);
	v = call_at(&table, 1300, 1, 0);
	assert_false(v.first);
	assert_int_equal(v.predicted_ns, 0);
	assert_int_equal(v.buffer->deadline_ns, 1600 * 1000);
	v = call_at(&table, 1500, 1, 0);
	assert_int_equal(v.predicted_ns, 300 * 1000);
	assert_int_equal(v.observed_ns, 200 * 1000);
	v = call_at(&table, 1900, 1, 0);
	assert_int_equal(v.buffer->deadline_ns, 2100 * 1000);
	close_table(&table);
}

static void the_earliest_site_of_a_buffer_counts(void **state)
{
	struct table table = open_table(PN_PREDICT_SHORTEST, 0);
	struct pn_call_result v;

	(void)state;
	call_at(&table, 1000, 1, 0);
	call_at(&table, 1900, 2, 0);
	call_at(&table, 2000, 1, 0);
	v = call_at(&table, 2300, 2, 0);
	/* Site 1 is due at 3000, site 2 at 2700. */
	assert_int_equal(v.buffer->deadline_ns, 2700 * 1000);
	assert_int_equal(pn_callsites_nsites(table.sites), 2);
	assert_int_equal(pn_callsites_nbuffers(table.sites), 1);
	close_table(&table);
}

/* One line of the program uses buffer 0 alternately after 1 and after 2. The
 * gaps are 30 us and 70 us; the call before tells which. */
static unsigned predictions_missed(unsigned window)
{
	struct table table = open_table(PN_PREDICT_SHORTEST, window);
	uint64_t time_us = 1000;
	unsigned missed = 0;

	for (unsigned i = 0; i < 40; i++) {
		static const unsigned buffers[] = { 1, 0, 2, 0 };
		static const unsigned pause_us[] = { 20, 10, 20, 50 };
		struct pn_call_result v =
			call_at(&table, time_us, 1, buffers[i % 4]);

		missed += v.predicted_ns && v.predicted_ns != v.observed_ns;
		time_us += pause_us[i % 4];
	}
	close_table(&table);
	return missed;
}

static void context_tells_periods_of_one_line_apart(void **state)
{
	(void)state;
	/* Of 20 calls one is the first, one has no period yet, and then every
	 * other period is not the shortest. */
	assert_int_equal(predictions_missed(0), 9);
	assert_int_equal(predictions_missed(1), 0);
	assert_int_equal(predictions_missed(2), 0);
	assert_int_equal(predictions_missed(PN_WINDOW_MAX), 0);
}

static void a_pattern_is_found_when_the_window_is_full(void **state)
{
	struct table table = open_table(PN_PREDICT_PERIODIC, 0);
	uint64_t time_us = 1000;
	struct pn_call_result v = { .first = false };

	(void)state;
	/* a b a c, 10 us after a, 20 after b, 30 after c. */
	for (unsigned i = 0; i < 20; i++) {
		static const unsigned buffers[] = { 0, 1, 0, 2 };
		static const unsigned pause[] = { 10, 20, 10, 30 };

		v = call_at(&table, time_us, 1, buffers[i % 4]);
		assert_int_equal(!!v.buffer->deadline_ns, i >= 15);
		if (i == 16) /* a: again behind b */
			assert_int_equal(v.buffer->deadline_ns,
					 (time_us + 30) * 1000);
		time_us += pause[i % 4];
	}
	v = call_at(&table, time_us, 1, 3);
	assert_int_equal(v.buffer->deadline_ns, 0);
	close_table(&table);
}

static void few_gaps_predict_the_shortest(void **state)
{
	struct table table = open_table(PN_PREDICT_LEARNED, 0);
	struct pn_call_result v;

	(void)state;
	call_at(&table, 1000, 1, 0);
	call_at(&table, 51000, 1, 0);
	v = call_at(&table, 91000, 1, 0);
	/* 40 ms, less 0.6 %. */
	assert_int_equal(v.buffer->deadline_ns, 130760 * 1000);
	assert_int_equal(v.buffer->expiry_ns, 491000 * 1000);
	close_table(&table);
}

/* 20 us to register, 40 ms held at most: for one short gap in a hundred it is
 * not worth holding the memory when the other gaps are ten times as long. */
static void a_rare_short_gap_does_not_rule_what_is_learned(void **state)
{
	struct table table = open_table(PN_PREDICT_LEARNED, 0);
	uint64_t time_us = 1000;
	struct pn_call_result v = { .first = false };

	(void)state;
	for (unsigned i = 0; i < 101; i++) {
		v = call_at(&table, time_us, 1, 0);
		time_us += i == 50 ? 10000 : 100000;
	}
	/* One late call costs 20 us; the others would be held 90 ms. */
	assert_int_equal(v.buffer->predicted_ns, 100000 * 1000);
	close_table(&table);
}

/* A new site of a known buffer uses the buffer's gaps. */
static void a_new_site_uses_the_gaps_of_its_buffer(void **state)
{
	struct table table = open_table(PN_PREDICT_LEARNED, 0);
	struct pn_call_result v;

	(void)state;
	for (unsigned i = 0; i <= PN_GAPS_FEW; i++)
		call_at(&table, 1000 + 5000 * i, 1, 0);
	v = call_at(&table, 1000 + 5000 * (PN_GAPS_FEW + 1), 2, 0);
	assert_int_equal(v.buffer->predicted_ns, 5000 * 1000);
	close_table(&table);
}

static void a_site_is_irregular_while_its_predictions_miss(void **state)
{
	struct table table = open_table(PN_PREDICT_SHORTEST, 0);
	uint64_t time_us = 1 << 30, pause_us = 1 << 28;
	struct pn_call_result v = { .first = false };
	unsigned n = 0;

	(void)state;
	/* Each call comes sooner than ever before. */
	for (; !v.irregular && n < 20; n++, pause_us /= 2) {
		v = call_at(&table, time_us, 1, 0);
		time_us += pause_us;
	}
	assert_in_range(n, 7, 9);
	for (n = 0; v.irregular && n < 40; n++, time_us += 1 << 28)
		v = call_at(&table, time_us, 1, 0);
	assert_in_range(n, 8, 12);
	close_table(&table);
}

static void the_oldest_buffer_is_forgotten_unless_queued(void **state)
{
	struct pn_callsites_attr attr = { .predictor = PN_PREDICT_SHORTEST,
					  .max_buffers = 3 };
	struct table table = { .length = 0 };
	struct pn_call_result v;

	(void)state;
	assert_ok(pn_callsites_open(&attr, &table.sites));
	table.sequence = pn_call_sequence_alloc(table.sites);
	v = call_at(&table, 1, 1, 0);
	v.buffer->queued = true;
	for (unsigned i = 1; i < 5; i++)
		call_at(&table, 1 + i, 1, i);
	assert_int_equal(pn_callsites_nbuffers(table.sites), 3);
	assert_int_equal(pn_callsites_nsites(table.sites), 3);
	assert_false(call_at(&table, 7, 1, 0).first);
	assert_true(call_at(&table, 8, 1, 1).first);
	close_table(&table);
}

static void windows_beyond_the_limit_are_refused(void **state)
{
	struct pn_callsites_attr attr = { .periodic = PN_PERIODIC_MAX + 1 };
	struct pn_callsites *sites;

	(void)state;
	assert_int_equal(pn_callsites_open(&attr, &sites), -EINVAL);
}

/* --- gaps against a naive model ------------------------------------------- */

#define NMODEL 400

static int by_length(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static double model_early(const uint64_t *sorted, unsigned n)
{
	double spread = (double)sorted[n / 2] / (double)sorted[n / 8] - 1;

	return spread > 0.1 ? 0.1 : spread;
}

struct model {
	const uint64_t *gaps;
	unsigned n;
	double late, hold, unseen;
};

/* The formula in gaps.h, written down naively. */
static double model_cost(const struct model *m, double d)
{
	double shorter = 0, queued = 0;

	for (unsigned i = 0; i < m->n; i++) {
		double gap = (double)m->gaps[i];

		shorter += gap < d;
		queued += gap > d ? gap - d : 0;
	}
	return (d > 0 ? m->late * (shorter + m->unseen) / (m->n + 1) : 0) +
	       m->hold * queued / m->n;
}

static double model_best(const struct model *m)
{
	double early = model_early(m->gaps, m->n);
	double best = model_cost(m, 0);

	for (unsigned i = 0; i < m->n; i++) {
		double cost = model_cost(m, (double)m->gaps[i] * (1 - early));

		best = cost < best ? cost : best;
	}
	return best;
}

static void the_deadline_costs_least_of_all(void **state)
{
	uint64_t seed = test_seed(), all[NMODEL], sorted[PN_GAPS_MAX];
	struct pn_gaps gaps = { .n = 0 };

	(void)state;
	for (unsigned n = 1; n <= NMODEL; n++) {
		unsigned kept = n < PN_GAPS_MAX ? n : PN_GAPS_MAX;
		struct model model = {
			.gaps = sorted,
			.n = kept,
			.late = (double)(1 + test_below(&seed, 100000)),
			.hold = 1 / (double)(1 + test_below(&seed, 5000)),
		};
		uint64_t d;

		all[n - 1] = 1000 + test_below(&seed, n < 50 ? 5 : 50 * n);
		pn_gaps_add(&gaps, all[n - 1]);
		memcpy(sorted, &all[n - kept], kept * sizeof(*sorted));
		qsort(sorted, kept, sizeof(*sorted), by_length);
		assert_int_equal(gaps.n, kept);
		assert_memory_equal(gaps.sorted, sorted,
				    kept * sizeof(*sorted));
		assert_int_equal(pn_gaps_longest(&gaps), sorted[kept - 1]);
		d = pn_gaps_deadline(&gaps, model.late, model.hold);
		if (kept < PN_GAPS_FEW) {
			assert_int_equal(d, sorted[0] - sorted[0] * 3 / 500);
			continue;
		}
		model.unseen = model_early(sorted, kept) < 0.05 ? 0.1 : 1;
		/* The deadline is a whole nanosecond. */
		assert_true(model_cost(&model, (double)d) <=
			    model_best(&model) * 1.000001 + model.hold);
	}
	pn_gaps_fini(&gaps);
}

/* --- the hash table ------------------------------------------------------- */

#define NNAMES 5000

static void keys_are_found_while_they_are_in_the_table(void **state)
{
	static struct pn_hash_entry all[NNAMES];
	static bool there[NNAMES];
	uint64_t seed = test_seed();
	struct pn_hash_table table;
	size_t n = 0;

	(void)state;
	assert_ok(pn_hash_table_init(&table));
	for (unsigned i = 0; i < NNAMES; i++)
		all[i].key = pn_hash_mix(0, i);
	for (unsigned step = 0; step < 100000; step++) {
		unsigned i = (unsigned)test_below(&seed, NNAMES);

		assert_ptr_equal(pn_hash_table_find(&table, all[i].key),
				 there[i] ? &all[i] : NULL);
		if (there[i])
			pn_hash_table_remove(&table, &all[i]);
		else
			pn_hash_table_add(&table, &all[i]);
		there[i] = !there[i];
		n += there[i] ? 1 : (size_t)-1;
		assert_int_equal(table.n, n);
	}
	pn_hash_table_fini(&table);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(the_shortest_period_is_predicted),
		TEST(the_earliest_site_of_a_buffer_counts),
		TEST(context_tells_periods_of_one_line_apart),
		TEST(a_pattern_is_found_when_the_window_is_full),
		TEST(few_gaps_predict_the_shortest),
		TEST(a_rare_short_gap_does_not_rule_what_is_learned),
		TEST(a_new_site_uses_the_gaps_of_its_buffer),
		TEST(a_site_is_irregular_while_its_predictions_miss),
		TEST(the_oldest_buffer_is_forgotten_unless_queued),
		TEST(windows_beyond_the_limit_are_refused),
		TEST(the_deadline_costs_least_of_all),
		TEST(keys_are_found_while_they_are_in_the_table),
	};

	return RUN_TESTS(tests);
}
