/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Random operations against the naive model, with an oracle for stale keys.
 *
 * test_cache_model [OPERATIONS]: 100,000 unless told, 40,000 with a sanitizer.
 * The seed of each round follows from the one printed.
 */
#include "test.h"

#include "base/asymmetric.h"
#include "base/log.h"
#include "cache_model.h"

#define ROUND 2000

/* Sanitizers are slow. */
static unsigned operations = PN_ASYMMETRIC_FENCES ? 40000 : 100000;

static struct cache_model_result play(unsigned n, bool deaf, bool registrar)
{
	struct choices choices = { .seed = test_seed() };
	struct cache_model_attr attr = { .choices = &choices,
					 .deaf = deaf,
					 .registrar = registrar };
	struct cache_model_result result = { 0 };

	while (result.operations < n)
		cache_model_run(&attr, ROUND, &result);
	print_message("%llu operations, %llu pins (%llu hits, %llu without "
		      "room, %llu faults), %llu uses, %llu invalidated, "
		      "%llu stale\n",
		      (unsigned long long)result.operations,
		      (unsigned long long)result.pins,
		      (unsigned long long)result.hits,
		      (unsigned long long)result.refused,
		      (unsigned long long)result.faults,
		      (unsigned long long)result.uses,
		      (unsigned long long)result.invalidations,
		      (unsigned long long)result.stale);
	return result;
}

static void did_what_it_is_about(const struct cache_model_result *played)
{
	struct cache_model_result result = *played;

	assert_int_equal(result.stale, 0);
	assert_true(result.pins > operations / 20);
	assert_true(result.hits > operations / 100);
	assert_true(result.invalidations > operations / 100);
	assert_true(result.refused > 0);
	assert_true(result.faults > 0);
}

static void no_stale_key_is_ever_used(void **state)
{
	struct cache_model_result result = play(operations, false, false);

	(void)state;
	did_what_it_is_about(&result);
}

static void no_stale_handle_is_ever_used(void **state)
{
	struct cache_model_result result = play(operations, false, true);

	(void)state;
	did_what_it_is_about(&result);
	assert_true(result.refused_ends > 0);
}

static void a_cache_that_hears_of_no_release_is_found_out(void **state)
{
	(void)state;
	pn_log_set_level(PN_LOG_NONE); /* each stale use is an error */
	assert_true(play(10 * ROUND, true, false).stale > 0);
	pn_log_set_level(PN_LOG_WARN);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(no_stale_key_is_ever_used),
		TEST(no_stale_handle_is_ever_used),
		TEST(a_cache_that_hears_of_no_release_is_found_out),
	};

	if (argc > 1)
		operations = (unsigned)strtoul(argv[1], NULL, 0);
	setvbuf(stdout, NULL, _IOLBF, 0); /* the seed, whatever comes */
	return RUN_TESTS(tests);
}
