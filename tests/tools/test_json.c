/* SPDX-License-Identifier: BSD-2-Clause */
#include "test.h"

#include <math.h>

#include "tools/pinion/json.h"

static char *text;
static size_t text_len;

/* Begins an object whose line is written to `text`. */
static void begin(struct pn_json *json)
{
	FILE *file = open_memstream(&text, &text_len);

	assert_non_null(file);
	pn_json_begin(json, file);
}

static void end_equals(struct pn_json *json, const char *expected)
{
	pn_json_end(json);
	fclose(json->file);
	assert_string_equal(text, expected);
	free(text);
}

static void object_without_fields_is_empty(void **state)
{
	struct pn_json json;

	(void)state;
	begin(&json);
	end_equals(&json, "{}\n");
}

static void fields_come_in_order(void **state)
{
	struct pn_json json;

	(void)state;
	begin(&json);
	pn_json_text(&json, "t", "x");
	pn_json_count(&json, "c", UINT64_MAX);
	pn_json_number(&json, "n", 1.5);
	pn_json_flag(&json, "f", true);
	pn_json_flag(&json, "g", false);
	pn_json_null(&json, "z");
	end_equals(&json, "{\"t\":\"x\",\"c\":18446744073709551615,\"n\":1.5,"
			  "\"f\":true,\"g\":false,\"z\":null}\n");
}

static void values_unknown_to_json_are_null(void **state)
{
	struct pn_json json;

	(void)state;
	begin(&json);
	pn_json_number(&json, "nan", NAN);
	pn_json_number(&json, "inf", -INFINITY);
	pn_json_text(&json, "text", NULL);
	end_equals(&json, "{\"nan\":null,\"inf\":null,\"text\":null}\n");
}

static void texts_are_escaped(void **state)
{
	struct pn_json json;

	(void)state;
	begin(&json);
	pn_json_text(&json, "a", "say \"hi\"\\\n\t\x01\x7f");
	end_equals(&json, "{\"a\":\"say \\\"hi\\\"\\\\\\u000a\\u0009\\u0001"
			  "\\u007f\"}\n");
}

static void utf8_passes_and_other_bytes_are_replaced(void **state)
{
	static const struct {
		const char *in, *out;
	} cases[] = {
		{ "\xc2\xb5s \xe2\x82\xac \xf0\x9f\x98\x80",
		  "\xc2\xb5s \xe2\x82\xac \xf0\x9f\x98\x80" },
		{ "\xff|", "\\ufffd|" },
		{ "\xc2", "\\ufffd" },			     /* cut off */
		{ "\xe2\x82", "\\ufffd\\ufffd" },	     /* cut off */
		{ "\xc0\x80", "\\ufffd\\ufffd" },	     /* overlong */
		{ "\xed\xa0\x80", "\\ufffd\\ufffd\\ufffd" }, /* surrogate */
		{ "\xf5\x80\x80\x80", "\\ufffd\\ufffd\\ufffd\\ufffd" },
	};

	(void)state;
	for (size_t i = 0; i < PN_ARRAY_LEN(cases); i++) {
		char expected[128];
		struct pn_json json;

		snprintf(expected, sizeof(expected), "{\"a\":\"%s\"}\n",
			 cases[i].out);
		begin(&json);
		pn_json_text(&json, "a", cases[i].in);
		end_equals(&json, expected);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(object_without_fields_is_empty),
		TEST(fields_come_in_order),
		TEST(values_unknown_to_json_are_null),
		TEST(texts_are_escaped),
		TEST(utf8_passes_and_other_bytes_are_replaced),
	};

	return RUN_TESTS(tests);
}
