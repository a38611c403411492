/* SPDX-License-Identifier: BSD-2-Clause */
#include "test.h"

#include <math.h>

#include "tools/pinion/json.h"
#include "tools/pinion/rows.h"

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

/* Texts as jansson reads them; invalid bytes are U+FFFD by then. */
static void jansson_reads_what_is_written(void **state)
{
	static const char *const cases[][2] = {
		{ "say \"hi\"\\\n\t\x01\x7f", "say \"hi\"\\\n\t\x01\x7f" },
		{ "\xc2\xb5s \xf0\x9f\x98\x80", "\xc2\xb5s \xf0\x9f\x98\x80" },
		{ "\xff|\xed\xa0\x80", "\xef\xbf\xbd|\xef\xbf\xbd\xef\xbf\xbd"
				       "\xef\xbf\xbd" },
	};

	(void)state;
	for (size_t i = 0; i < PN_ARRAY_LEN(cases); i++) {
		FILE *file = open_memstream(&text, &text_len);
		struct pn_rows rows = { 0 };
		struct pn_json json;
		struct pn_why why;

		pn_json_begin(&json, file);
		pn_json_text(&json, "text", cases[i][0]);
		pn_json_number(&json, "number", -1.25e-7);
		pn_json_count(&json, "count", UINT64_C(1) << 63);
		pn_json_flag(&json, "flag", true);
		pn_json_number(&json, "nan", NAN);
		pn_json_end(&json);
		fclose(file);
		assert_int_equal(pn_rows_parse(&rows, text, &why), 0);
		assert_string_equal(pn_row_text(rows.rows[0], "text"),
				    cases[i][1]);
		assert_true(pn_row_number(rows.rows[0], "number") == -1.25e-7);
		assert_true(pn_row_number(rows.rows[0], "count") == 0x1p63);
		assert_true(pn_row_meets(rows.rows[0], "flag=yes"));
		assert_true(isnan(pn_row_number(rows.rows[0], "nan")));
		pn_rows_fini(&rows);
		free(text);
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
		TEST(jansson_reads_what_is_written),
	};

	return RUN_TESTS(tests);
}
