/* SPDX-License-Identifier: BSD-2-Clause */
#include "test.h"

#include <errno.h>

#include "base/log.h"
#include "config/config.h"

static const char *source_of(const struct pn_config *config, const char *name)
{
	size_t n;
	const struct pn_option *table = pn_config_table(&n);
	const struct pn_option *option =
		pn_option_find(table, n, name, strlen(name));

	assert_non_null(option);
	return pn_config_source_name(config->source[option - table]);
}

static void without_anything_set_defaults_hold(void **state)
{
	struct pn_config config;

	(void)state;
	assert_ok(pn_config_load(&config, NULL));
	assert_string_equal(config.device, "soft");
	assert_string_equal(source_of(&config, "device"), "default");
}

static void environment_overrides_defaults(void **state)
{
	struct pn_config config;

	(void)state;
	setenv("PINION_DEVICE", "sim:nodes=2", 1);
	assert_ok(pn_config_load(&config, NULL));
	assert_string_equal(config.device, "sim:nodes=2");
	assert_string_equal(source_of(&config, "device"), "environment");
	unsetenv("PINION_DEVICE");
}

static void attributes_override_the_environment(void **state)
{
	const char *const attributes[] = { "device=sim", NULL };
	struct pn_config config;

	(void)state;
	setenv("PINION_DEVICE", "soft:strict", 1);
	assert_ok(pn_config_load(&config, attributes));
	assert_string_equal(config.device, "sim");
	assert_string_equal(source_of(&config, "device"), "attribute");
	unsetenv("PINION_DEVICE");
}

static void a_bad_value_changes_nothing(void **state)
{
	const char *const unknown[] = { "colour=red", NULL };
	const char *const no_value[] = { "device", NULL };
	struct pn_config config = { .device = "untouched" };

	(void)state;
	pn_log_set_level(PN_LOG_NONE);
	assert_int_equal(pn_config_load(&config, unknown), -EINVAL);
	assert_int_equal(pn_config_load(&config, no_value), -EINVAL);
	setenv("PINION_LOG", "shout", 1);
	assert_int_equal(pn_config_load(&config, NULL), -EINVAL);
	unsetenv("PINION_LOG");
	assert_string_equal(config.device, "untouched");
}

static void an_unknown_variable_is_only_a_warning(void **state)
{
	struct pn_config config;

	(void)state;
	setenv("PINION_COLOUR", "red", 1);
	assert_ok(pn_config_load(&config, NULL));
	unsetenv("PINION_COLOUR");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(without_anything_set_defaults_hold),
		TEST(environment_overrides_defaults),
		TEST(attributes_override_the_environment),
		TEST(a_bad_value_changes_nothing),
		TEST(an_unknown_variable_is_only_a_warning),
	};

	return RUN_TESTS(tests);
}
