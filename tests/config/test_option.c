/* SPDX-License-Identifier: BSD-2-Clause */
#include "test.h"

#include <errno.h>
#include <stdbool.h>

#include "config/option.h"

struct values {
	bool flag;
	uint64_t number, bytes, time;
	int choice, when;
	char text[PN_OPTION_TEXT_BYTES];
};

static const char *const choices[] = { "red", "green", "yes", NULL };
static const char *const when[] = { "maybe", "yes", "no", NULL };

#define FIELD(name) offsetof(struct values, name)

static const struct pn_option table[] = {
	{ "flag", PN_OPTION_BOOL, "no", "", FIELD(flag), 0, 0, NULL },
	{ "number", PN_OPTION_NUMBER, "3", "", FIELD(number), 1, 100, NULL },
	{ "bytes", PN_OPTION_BYTES, "64K", "", FIELD(bytes), 0, 0, NULL },
	{ "time", PN_OPTION_TIME, "5us", "", FIELD(time), 0, 0, NULL },
	{ "choice", PN_OPTION_CHOICE, "red", "", FIELD(choice), 0, 0, choices },
	{ "when", PN_OPTION_CHOICE, "maybe", "", FIELD(when), 1, 0, when },
	{ "text", PN_OPTION_TEXT, "", "", FIELD(text), 0, 0, NULL },
};

static int parse(const char *list, struct values *values, struct pn_why *why)
{
	pn_options_defaults(table, PN_ARRAY_LEN(table), values);
	return pn_options_parse_list(table, PN_ARRAY_LEN(table), list, values,
				     why);
}

static void defaults_are_parsed(void **state)
{
	struct values v;

	(void)state;
	assert_ok(parse("", &v, NULL));
	assert_false(v.flag);
	assert_int_equal(v.number, 3);
	assert_int_equal(v.bytes, 65536);
	assert_int_equal(v.time, 5000);
	assert_int_equal(v.choice, 0);
}

static void list_sets_what_it_names(void **state)
{
	struct values v;

	(void)state;
	assert_ok(parse("flag,number=7,bytes=2MiB,time=10 ms,choice=green,"
			"text=a=b",
			&v, NULL));
	assert_true(v.flag);
	assert_int_equal(v.number, 7);
	assert_int_equal(v.bytes, 2 << 20);
	assert_int_equal(v.time, 10000000);
	assert_int_equal(v.choice, 1);
	assert_string_equal(v.text, "a=b");
}

static void a_name_alone_says_yes(void **state)
{
	struct values v;

	(void)state;
	assert_ok(parse("flag,when", &v, NULL));
	assert_true(v.flag);
	assert_int_equal(v.when, 1);
	assert_ok(parse("when=no", &v, NULL));
	assert_int_equal(v.when, 2);
	assert_true(pn_option_is_flag(&table[0]));
	assert_false(pn_option_is_flag(&table[1]));
	assert_false(pn_option_is_flag(&table[4]));
	assert_true(pn_option_is_flag(&table[5]));
	assert_int_equal(parse("choice", &v, NULL), -EINVAL);
}

static void every_unit_is_understood(void **state)
{
	static const struct {
		const char *text;
		uint64_t bytes;
	} cases[] = { { "0", 0 },
		      { "12b", 12 },
		      { "1k", 1024 },
		      { "1KB", 1024 },
		      { "3G", UINT64_C(3) << 30 },
		      { "1 TiB", UINT64_C(1) << 40 } };
	struct values v;

	(void)state;
	for (size_t i = 0; i < PN_ARRAY_LEN(cases); i++) {
		assert_ok(pn_option_parse(&table[2], cases[i].text, &v, NULL));
		assert_int_equal(v.bytes, cases[i].bytes);
	}
}

static void nonsense_is_refused_with_a_reason(void **state)
{
	static const char *const bad[] = {
		"unknown=1",
		"number",
		"number=",
		"number=x",
		"number=0",
		"number=101",
		"number=1K",
		"number=-1",
		"bytes=1Q",
		"bytes=",
		"bytes=-4",
		"bytes=1KKKKKKKKKK",
		"time=5weeks",
		"choice=blue",
		"flag=maybe",
		"flag=1,flag=1",
		",",
		"number=1,",
		"=",
		"number =1",
		"bytes=99999999999999999999",
		"bytes=20000000000G",
	};
	struct values v;

	(void)state;
	for (size_t i = 0; i < PN_ARRAY_LEN(bad); i++) {
		struct pn_why why = { "" };

		assert_int_equal(parse(bad[i], &v, &why), -EINVAL);
		assert_true(strlen(why.text) > 0);
	}
}

static void refused_value_leaves_the_old_one(void **state)
{
	struct values v = { .number = 5 };

	(void)state;
	assert_int_equal(pn_option_parse(&table[1], "1000", &v, NULL), -EINVAL);
	assert_int_equal(v.number, 5);
}

static void too_long_a_text_is_refused(void **state)
{
	char text[PN_OPTION_TEXT_BYTES + 1];
	struct values v = { .text = "old" };

	(void)state;
	memset(text, 'x', sizeof(text));
	text[sizeof(text) - 1] = 0;
	assert_int_equal(pn_option_parse(&table[6], text, &v, NULL), -EINVAL);
	assert_string_equal(v.text, "old");
}

static void formatted_values_parse_back(void **state)
{
	struct values v, w;
	char buf[64];

	(void)state;
	assert_ok(parse("flag,number=7,bytes=1536K,time=1500us,choice=green,"
			"text=hello",
			&v, NULL));
	memset(&w, 0, sizeof(w));
	for (size_t i = 0; i < PN_ARRAY_LEN(table); i++) {
		pn_option_format(&table[i], &v, buf, sizeof(buf));
		assert_ok(pn_option_parse(&table[i], buf, &w, NULL));
	}
	assert_true(w.flag);
	assert_int_equal(w.bytes, 1536 << 10);
	assert_int_equal(w.time, 1500000);
	assert_int_equal(w.choice, 1);
	assert_string_equal(w.text, "hello");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(defaults_are_parsed),
		TEST(list_sets_what_it_names),
		TEST(a_name_alone_says_yes),
		TEST(every_unit_is_understood),
		TEST(nonsense_is_refused_with_a_reason),
		TEST(refused_value_leaves_the_old_one),
		TEST(too_long_a_text_is_refused),
		TEST(formatted_values_parse_back),
	};

	return RUN_TESTS(tests);
}
