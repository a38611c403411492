/* SPDX-License-Identifier: BSD-2-Clause */
#include "test.h"

#include "message/protocol/history.h"

#define LEN ((size_t)1 << 20)

static struct pn_history *history;

static int open_history(void **state)
{
	(void)state;
	history = pn_history_open();
	return !history;
}

static int close_history(void **state)
{
	(void)state;
	pn_history_close(history);
	return 0;
}

static double keep_uses; /* what keeping a registration costs */

/* Uses the n-th buffer; returns the further uses that are expected. */
static double use(unsigned n, size_t len, bool cached)
{
	struct pn_use u = { .addr = 0x10000000 + n * UINT64_C(0x4000000),
			    .len = len,
			    .keep_uses = keep_uses,
			    .cached = cached };
	struct pn_forecast forecast;

	pn_history_use(history, &u, &forecast);
	return forecast.further;
}

static void keep(unsigned n, size_t len)
{
	struct pn_use u = { .addr = 0x10000000 + n * UINT64_C(0x4000000),
			    .len = len };

	pn_history_kept(history, &u, true);
}

static void with_nothing_known_as_many_uses_are_expected_again(void **state)
{
	(void)state;
	for (unsigned i = 1; i < 100; i++)
		assert_true(use(1, LEN, false) == i);
}

static void buffers_are_expected_to_do_what_others_did(void **state)
{
	double further = 0;

	(void)state;
	for (unsigned n = 0; n < 100; n++)
		for (unsigned i = 0; i < 8; i++) {
			further = use(n, LEN, false);
			/* Seven more at the first use, none at the last. */
			if (n > 50 && i == 0)
				assert_true(further > 6.5 && further < 7.5);
			if (n > 50 && i == 1)
				assert_true(further > 5.5 && further < 6.5);
		}
	assert_true(further < 1);
}

/* However many uses, none finds a registration. */
static void nothing_is_expected_where_nothing_is_kept(void **state)
{
	struct pn_use u = { .addr = 0x10000, .len = LEN, .unkept = true };
	struct pn_forecast forecast;

	(void)state;
	for (unsigned i = 1; i < 100; i++) {
		pn_history_use(history, &u, &forecast);
		assert_true(forecast.further == 0 && forecast.uses == i);
		pn_history_kept(history, &u, false);
	}
}

static void sizes_and_ends_are_judged_apart(void **state)
{
	struct pn_use target = { .addr = 0x10000, .len = LEN };
	struct pn_forecast forecast;

	(void)state;
	for (unsigned n = 0; n < 100; n++)
		for (unsigned i = 0; i < 16; i++)
			use(n, LEN, false);
	for (unsigned n = 200; n < 300; n++)
		use(n, 8 * LEN, false);
	assert_true(use(1000, LEN, false) > 10);
	assert_true(use(1001, 8 * LEN, false) < 0.2);
	target.end = PN_END_TARGET;
	pn_history_use(history, &target, &forecast);
	assert_true(forecast.further == 1 && forecast.lives == 0);
}

static void a_change_of_ways_is_followed(void **state)
{
	(void)state;
	for (unsigned n = 0; n < 100; n++)
		for (unsigned i = 0; i < 64; i++)
			use(n, LEN, false);
	assert_true(use(1000, LEN, false) > 40);
	for (unsigned n = 0; n < 150; n++)
		use(2000 + n, LEN, false);
	assert_true(use(3000, LEN, false) < 1);
}

/* The buffer comes at the same address again and again, but the registration
 * that was kept is gone each time. */
static void buffers_that_are_freed_after_use_are_not_hoped_for(void **state)
{
	unsigned hopes = 0;

	(void)state;
	for (unsigned i = 0; i < 1000; i++)
		if (use(1, LEN, false) >= 2) {
			keep(1, LEN);
			hopes++;
		}
	/* Now and then keeping it is tried again. */
	assert_true(hopes > 2 && hopes < 20);
}

/* What is lost by trying again stays a share of the uses. */
static void costly_registrations_are_tried_again_less_often(void **state)
{
	unsigned hopes = 0;

	(void)state;
	keep_uses = 10;
	for (unsigned i = 0; i < 10000; i++)
		if (use(1, LEN, false) >= 2) {
			keep(1, LEN);
			hopes++;
		}
	keep_uses = 0;
	assert_true(hopes > 2 && hopes * 10 < 10000 / 50);
}

static void a_registration_that_lasts_lifts_the_ceiling(void **state)
{
	double further = 0;

	(void)state;
	for (unsigned i = 0; i < 4; i++) {
		use(1, LEN, false);
		keep(1, LEN);
	}
	assert_true(use(1, LEN, false) < 1);
	keep(1, LEN);
	for (unsigned i = 0; i < 20; i++)
		further = use(1, LEN, true);
	assert_true(further > 5);
}

/* More buffers than the table has: those that were replaced are new. */
/* A registration is kept once. To report it again while it stays makes no new
 * forecast. */
/* The helper deregisters the buffer after each use. */
static void a_registration_that_the_helper_dropped_is_hoped_for(void **state)
{
	struct pn_use u = { .addr = 0x10000000, .len = LEN, .dropped = true };
	struct pn_forecast forecast;

	(void)state;
	for (unsigned i = 1; i < 50; i++) {
		pn_history_use(history, &u, &forecast);
		assert_true(forecast.uses == i && forecast.further >= 1);
		pn_history_kept(history, &u, true);
	}
	u.dropped = false;
	pn_history_use(history, &u, &forecast);
	assert_true(forecast.uses == 1);
}

static void a_registration_that_stays_is_hoped_for_once(void **state)
{
	struct pn_history *mine = history, *other = pn_history_open();
	uint64_t seed = test_seed();
	double further;

	(void)state;
	assert_non_null(other);
	for (unsigned i = 0; i < 2000; i++) {
		unsigned n = (unsigned)test_below(&seed, 5);
		bool cached = test_below(&seed, 8);

		history = other;
		further = use(n, LEN, cached);
		if (!cached)
			keep(n, LEN);
		history = mine;
		assert_true(use(n, LEN, cached) == further);
		keep(n, LEN);
	}
	pn_history_close(other);
}

static void memory_is_bounded_and_the_newest_are_remembered(void **state)
{
	uint64_t random = test_seed();
	unsigned known = 0;

	(void)state;
	for (unsigned n = 0; n < 100000; n++) {
		use(n, LEN + (test_random(&random) & 4095), false);
		if (n % 1000)
			continue;
		/* The last hundred again, at their second use. */
		for (unsigned i = 0; i < 100; i++)
			use(200000 + n + i, 16 * LEN, false);
		for (unsigned i = 0; i < 100; i++)
			known += use(200000 + n + i, 16 * LEN, false) < 0.6;
	}
	assert_true(known > 9000);
}

static void sizes_are_two_for_each_power_of_two(void **state)
{
	(void)state;
	assert_int_equal(pn_history_size(4096), pn_history_size(6143));
	assert_int_equal(pn_history_size(4096) + 1, pn_history_size(6144));
	assert_int_equal(pn_history_size(4096) + 2, pn_history_size(8192));
	assert_int_equal(pn_history_size(0), 0);
	assert_true(pn_history_size(SIZE_MAX) < PN_HISTORY_SIZES);
}

#define HISTORY_TEST(name) \
	cmocka_unit_test_setup_teardown(name, open_history, close_history)

int main(void)
{
	const struct CMUnitTest tests[] = {
		HISTORY_TEST(
			with_nothing_known_as_many_uses_are_expected_again),
		HISTORY_TEST(buffers_are_expected_to_do_what_others_did),
		HISTORY_TEST(nothing_is_expected_where_nothing_is_kept),
		HISTORY_TEST(sizes_and_ends_are_judged_apart),
		HISTORY_TEST(a_change_of_ways_is_followed),
		HISTORY_TEST(
			buffers_that_are_freed_after_use_are_not_hoped_for),
		HISTORY_TEST(costly_registrations_are_tried_again_less_often),
		HISTORY_TEST(a_registration_that_lasts_lifts_the_ceiling),
		HISTORY_TEST(
			a_registration_that_the_helper_dropped_is_hoped_for),
		HISTORY_TEST(a_registration_that_stays_is_hoped_for_once),
		HISTORY_TEST(memory_is_bounded_and_the_newest_are_remembered),
		HISTORY_TEST(sizes_are_two_for_each_power_of_two),
	};

	return RUN_TESTS(tests);
}
