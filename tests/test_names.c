/* SPDX-License-Identifier: BSD-2-Clause */
/* Names that two layers define, since the lower one must not include the upper:
 * the choices of an option and the objects that they choose. */
#include "test.h"

#include "cache/policy/policy.h"
#include "config/config.h"
#include "helper/share.h"
#include "helper/site.h"
#include "message/protocol/protocol.h"
#include "monitor/monitor.h"

static const char *const *choices_of(const char *name)
{
	size_t n;
	const struct pn_option *table = pn_config_table(&n);
	const struct pn_option *option =
		pn_option_find(table, n, name, strlen(name));

	assert_non_null(option);
	return option->choices;
}

static void policies_are_named_as_they_are_chosen(void **state)
{
	const char *const *choices = choices_of("cache_policy");
	unsigned i = 0;

	(void)state;
	for (; choices[i]; i++)
		assert_string_equal(pn_policy_at(i)->name, choices[i]);
	assert_null(pn_policy_at(i));
}

static void protocols_are_named_as_they_are_chosen(void **state)
{
	const char *const *choices = choices_of("protocol");
	unsigned i = 0;

	(void)state;
	for (; choices[i]; i++) {
		assert_string_equal(pn_protocol_name(i), choices[i]);
		assert_int_equal(pn_protocol_find(choices[i]), i);
	}
	assert_int_equal(i, PN_PROTOCOL_AUTO + 1);
}

static void monitor_modes_are_named_as_they_are_chosen(void **state)
{
	const char *const *choices = choices_of("monitor");
	unsigned i = 0;

	(void)state;
	for (; choices[i]; i++)
		assert_string_equal(pn_monitor_mode_name(
					    (enum pn_monitor_mode)i),
				    choices[i]);
	assert_int_equal(i, PN_MONITOR_NMODES);
}

static void core_policies_are_named_as_they_are_chosen(void **state)
{
	const char *const *choices = choices_of("helper");
	unsigned i = 0;

	(void)state;
	for (; choices[i]; i++)
		assert_string_equal(pn_share_policy_name(i), choices[i]);
	assert_null(pn_share_policy_name(i));
}

static void predictors_are_named_as_they_are_chosen(void **state)
{
	const char *const *choices = choices_of("helper_predictor");
	unsigned i = 0;

	(void)state;
	for (; choices[i]; i++)
		assert_string_equal(pn_predictor_name(i), choices[i]);
	assert_null(pn_predictor_name(i));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(policies_are_named_as_they_are_chosen),
		TEST(protocols_are_named_as_they_are_chosen),
		TEST(core_policies_are_named_as_they_are_chosen),
		TEST(predictors_are_named_as_they_are_chosen),
		TEST(monitor_modes_are_named_as_they_are_chosen),
	};

	return RUN_TESTS(tests);
}
