/* SPDX-License-Identifier: BSD-2-Clause */
#include "test.h"

#include "device/profiles.h"

static void register_costs_are_those_of_the_papers(void **state)
{
	(void)state;
	assert_int_equal(pn_profile_register_ns(pn_profile_find("ou2009"), 10),
			 15120);
	assert_int_equal(pn_profile_register_ns(pn_profile_find("cx5"), 4),
			 17000);
	assert_int_equal(pn_profile_deregister_ns(pn_profile_find("cx5"), 1,
						  100),
			 14000);
	assert_int_equal(pn_profile_register_ns(pn_profile_find("stria"), 512),
			 310640);
}

static void a_batch_pays_once_unless_measured_otherwise(void **state)
{
	(void)state;
	assert_int_equal(pn_profile_deregister_ns(pn_profile_find("cx5"), 5,
						  100),
			 14000);
	/* cuMemHostUnregister() is called for each range. */
	assert_int_equal(pn_profile_deregister_ns(pn_profile_find("h200"), 5,
						  100),
			 5 * 31000 + 6700);
}

static void bandwidths_are_ten_to_the_nine_bytes_per_second(void **state)
{
	(void)state;
	assert_int_equal(pn_profile_link_ns(pn_profile_find("cx5"), 12500000),
			 1000000);
	assert_int_equal(pn_profile_copy_ns(pn_profile_find("rashti2011"),
					    4000),
			 1000);
}

static void none_costs_nothing(void **state)
{
	const struct pn_profile *none = pn_profile_find("none");

	(void)state;
	assert_int_equal(pn_profile_register_ns(none, 1000), 0);
	assert_int_equal(pn_profile_link_ns(none, 1 << 30), 0);
	assert_int_equal(pn_profile_copy_ns(none, 1 << 30), 0);
}

static void every_profile_is_found_by_its_name(void **state)
{
	unsigned n = 0;

	(void)state;
	for (; pn_profile_at(n); n++)
		assert_ptr_equal(pn_profile_find(pn_profile_at(n)->name),
				 pn_profile_at(n));
	assert_int_equal(n, 8);
	assert_null(pn_profile_find("abacus"));
}

static void assumed_figures_are_marked(void **state)
{
	(void)state;
	assert_false(pn_profile_assumed(pn_profile_find("ou2009"),
					PN_PROFILE_REGISTER_US));
	assert_true(pn_profile_assumed(pn_profile_find("ou2009"),
				       PN_PROFILE_LINK_GBPS));
	assert_true(pn_profile_assumed(pn_profile_find("woodall2006"),
				       PN_PROFILE_REGISTER_US));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(register_costs_are_those_of_the_papers),
		TEST(a_batch_pays_once_unless_measured_otherwise),
		TEST(bandwidths_are_ten_to_the_nine_bytes_per_second),
		TEST(none_costs_nothing),
		TEST(every_profile_is_found_by_its_name),
		TEST(assumed_figures_are_marked),
	};

	return RUN_TESTS(tests);
}
