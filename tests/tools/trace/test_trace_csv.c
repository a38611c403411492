/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Traces as text: what is read, and how malformed files are refused.
 */
#include "trace/trace_file.h"

#include <errno.h>

static struct pn_trace *open_text(const char *text, bool gzip)
{
	const char *path = trace_path("text.csv");
	struct pn_trace *trace;
	struct pn_why why = { "" };

	trace_write(path, text, strlen(text), gzip);
	assert_ok(pn_trace_open(path, &trace, &why));
	trace_remove("text.csv");
	return trace;
}

static void check_two_lines(bool gzip)
{
	struct pn_trace *trace = open_text("t_us,addr,len\n"
					   "236.3,0x7ffede5e1884,4\n"
					   "630,6610272,16\n",
					   gzip);
	struct pn_trace_event e[3];

	assert_int_equal(pn_trace_read(trace, e, 3), 2);
	assert_int_equal(e[0].time_ns, 236300);
	assert_int_equal(e[0].addr, 0x7ffede5e1884);
	assert_int_equal(e[0].len, 4);
	assert_int_equal(e[0].kind, PN_EVENT_PIN);
	assert_int_equal(e[1].time_ns, 630000);
	assert_int_equal(e[1].addr, 6610272);
	assert_int_equal(e[1].site, 0);
	assert_int_equal(pn_trace_read(trace, e, 3), 0);
	assert_int_equal(pn_trace_info(trace)->gzip, gzip);
	assert_false(pn_trace_info(trace)->unpins);
	pn_trace_close(trace);
}

static void three_columns_are_requests(void **state)
{
	(void)state;
	check_two_lines(false);
}

static void compressed_text_reads_the_same(void **state)
{
	(void)state;
	check_two_lines(true);
}

static void operations_and_sites_get_numbers_and_keep_names(void **state)
{
	struct pn_trace *trace =
		open_text("t_us,addr,len,op,site\r\n"
			  "1,4096,8,send,558c70b29c12;7fb93335a24a\r\n"
			  "\n# a remark\n"
			  "2,8192,8,recv,aa\n"
			  "3,4096,8,send,558c70b29c12;7fb93335a24a\n"
			  "4,4096,8,,\n",
			  false);
	uint64_t frames[PN_TRACE_MAX_FRAMES];
	struct pn_trace_event e[4];

	(void)state;
	for (int i = 0; i < 4; i++)
		assert_int_equal(pn_trace_next(trace, &e[i]), 1);
	assert_int_equal(pn_trace_next(trace, &e[0]), 0);
	assert_string_equal(pn_trace_op_name(trace, e[1].op), "recv");
	assert_string_equal(pn_trace_op_name(trace, e[2].op), "send");
	assert_string_equal(pn_trace_op_name(trace, e[3].op), "");
	assert_int_not_equal(e[1].site, e[2].site);
	assert_int_equal(pn_trace_site_frames(trace, e[2].site, frames), 2);
	assert_int_equal(frames[0], 0x558c70b29c12);
	assert_int_equal(frames[1], 0x7fb93335a24a);
	assert_int_equal(e[3].site, 0);
	assert_int_equal(pn_trace_site_frames(trace, 0, frames), 0);
	pn_trace_close(trace);
}

/* The last of `lines` lines is wrong; the lines before it are returned first.
 */
static void check_damage(const char *text, const char *where, int good)
{
	struct pn_trace *trace = open_text(text, false);
	struct pn_trace_event e;

	for (int i = 0; i < good; i++)
		assert_int_equal(pn_trace_next(trace, &e), 1);
	assert_int_equal(pn_trace_next(trace, &e), -EBADMSG);
	assert_int_equal(pn_trace_next(trace, &e), -EBADMSG);
	if (!strstr(pn_trace_location(trace), where))
		fail_msg("%s: %s", where, pn_trace_location(trace));
	pn_trace_close(trace);
}

static void damage_is_reported_with_its_line(void **state)
{
	static const struct {
		const char *line, *where;
	} cases[] = {
		{ "x,1,1", ":3: the time is" },
		{ "-1,1,1", ":3: the time is" },
		{ "99999999999999999999,1,1", ":3: the time is" },
		{ "1,0xg,1", ":3: the address is" },
		{ "1,0x12345678123456789,1", ":3: the address is" },
		{ "1,2", ":3: the address is" },
		{ "1,2,", ":3: the length is" },
		{ "1,2,18446744073709551616", ":3: the length is" },
		{ "1,2,18446744073709551615", ":3: the buffer wraps" },
		{ "1,2,3,4", ":3: more columns" },
	};
	char text[256];

	(void)state;
	for (size_t i = 0; i < PN_ARRAY_LEN(cases); i++) {
		snprintf(text, sizeof(text), "t_us,addr,len\n1,2,3\n%s",
			 cases[i].line);
		check_damage(text, cases[i].where, 1);
	}
	check_damage("t_us,addr,len,op,site\n1,2,3\n", ":2: the op", 0);
	check_damage("t_us,addr,len,op,site\n1,2,3,a\n", ":2: the site", 0);
	check_damage("t_us,addr,len,op,site\n1,2,3,a,1;;2\n", ":2: a site", 0);
	check_damage("t_us,addr,len,op\n1,2,3,a\x1b[2J\n",
		     ":2: the operation's name", 0);
	check_damage("t_us,addr,len,op\n1,2,3,"
		     "a_name_that_has_more_letters_than_any_operation\n",
		     ":2: the operation's name", 0);
}

static void a_file_that_is_not_a_trace_is_refused_with_a_reason(void **state)
{
	static const char *const texts[] = { "", "\n", "hello\n", "t_us,addr\n",
					     "\x7f\x45\x4c\x46" };
	struct pn_trace *trace = NULL;

	(void)state;
	for (size_t i = 0; i < PN_ARRAY_LEN(texts); i++) {
		const char *path = trace_path("text.csv");
		struct pn_why why = { "" };

		trace_write(path, texts[i], strlen(texts[i]), false);
		assert_int_equal(pn_trace_open(path, &trace, &why), -EBADMSG);
		assert_non_null(strstr(why.text, "not a trace"));
	}
	trace_remove("text.csv");
	assert_int_equal(pn_trace_open("/nowhere/at/all", &trace, NULL),
			 -ENOENT);
	assert_int_equal(pn_trace_open("/", &trace, NULL), -EISDIR);
}

static void a_line_that_is_too_long_is_refused(void **state)
{
	char *text = malloc(20000);

	(void)state;
	strcpy(text, "t_us,addr,len\n1,2,");
	memset(text + 18, '0', 19000);
	text[19018] = 0;
	check_damage(text, ":2: the line is longer", 0);
	free(text);
}

static void a_truncated_compressed_file_is_reported(void **state)
{
	enum { LINES = 100000 };
	char *text = malloc(64 + LINES * 32);
	char path[128];
	struct pn_trace *trace;
	struct pn_trace_event e;
	size_t len = (size_t)sprintf(text, "t_us,addr,len\n");
	int ret, n = 0;

	(void)state;
	for (int i = 0; i < LINES; i++)
		len += (size_t)sprintf(text + len, "%d,%d,4\n", i, i * 77);
	strcpy(path, trace_path("text.csv"));
	trace_write(path, text, len, true);
	free(text);
	assert_ok(truncate(path, 100000));
	assert_ok(pn_trace_open(path, &trace, NULL));
	trace_remove("text.csv");
	while ((ret = pn_trace_next(trace, &e)) > 0)
		assert_int_equal(e.addr, n++ * 77);
	assert_int_equal(ret, -EBADMSG);
	assert_true(n > 0 && n < LINES);
	assert_non_null(strstr(pn_trace_location(trace), "cut short"));
	pn_trace_close(trace);
}

static void any_number_of_names_and_sites_takes_bounded_memory(void **state)
{
	enum { LINES = 300000 };
	char *text = malloc(64 + LINES * 40);
	struct pn_trace *trace;
	struct pn_trace_event e;
	size_t len = (size_t)sprintf(text, "t_us,addr,len,op,site\n");
	uint64_t frames[PN_TRACE_MAX_FRAMES];

	(void)state;
	for (int i = 0; i < LINES; i++)
		len += (size_t)sprintf(text + len, "%d,0,4,op%d,%x\n", i, i,
				       i + 1);
	trace = open_text(text, false);
	free(text);
	for (int i = 0; i < LINES; i++) {
		assert_int_equal(pn_trace_next(trace, &e), 1);
		if (i == 10)
			assert_string_equal(pn_trace_op_name(trace, e.op),
					    "op10");
		if (i == 10)
			assert_int_equal(pn_trace_site_frames(trace, e.site,
							      frames),
					 1);
	}
	assert_string_equal(pn_trace_op_name(trace, e.op), "others");
	assert_true(e.site);
	assert_int_equal(pn_trace_site_frames(trace, e.site, frames), 0);
	pn_trace_close(trace);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(three_columns_are_requests),
		TEST(compressed_text_reads_the_same),
		TEST(operations_and_sites_get_numbers_and_keep_names),
		TEST(damage_is_reported_with_its_line),
		TEST(a_file_that_is_not_a_trace_is_refused_with_a_reason),
		TEST(a_line_that_is_too_long_is_refused),
		TEST(a_truncated_compressed_file_is_reported),
		TEST(any_number_of_names_and_sites_takes_bounded_memory),
	};

	return RUN_TESTS(tests);
}
