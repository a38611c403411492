/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The oracle is one: this program is linked with a release.c that forgets
 * releases of memory whose registration is under way
 * (PN_CACHE_BREAK_GENERATION), and the model finds it out.
 */
#include "test.h"

#include "base/log.h"
#include "cache_model.h"

static void a_cache_without_the_generation_check_is_found_out(void **state)
{
	struct choices choices = { .seed = test_seed() };
	/* Asking the kernel, as under userfaultfd, would make up for it. */
	struct cache_model_attr attr = { .choices = &choices,
					 .announced = true };
	struct cache_model_result result = { 0 };

	(void)state;
	pn_log_set_level(PN_LOG_NONE); /* each stale use is an error */
	for (unsigned i = 0; i < 20; i++)
		cache_model_run(&attr, 1000, &result);
	print_message("%llu stale uses\n", (unsigned long long)result.stale);
	assert_true(result.stale > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_cache_without_the_generation_check_is_found_out),
	};

	return RUN_TESTS(tests);
}
