/* SPDX-License-Identifier: BSD-2-Clause */
/* The language of fault scripts; test_sim_faults.c tests their effects. */
#include "test.h"

#include <errno.h>

#include "device/sim/script.h"

static int parse(const char *text, struct pn_script *out, struct pn_why *why)
{
	*out = (struct pn_script){ 0 };
	return pn_script_parse(text, strlen(text), out, why);
}

static struct pn_fault only(const char *text)
{
	struct pn_script script;
	struct pn_fault fault;
	struct pn_why why = { "" };

	assert_ok(parse(text, &script, &why));
	assert_int_equal(script.n, 1);
	fault = script.faults[0];
	pn_script_free(&script);
	return fault;
}

static void every_statement_is_understood(void **state)
{
	struct pn_fault f;

	(void)state;
	f = only("fail registration 3 with ENOMEM");
	assert_int_equal(f.kind, PN_FAULT_FAIL_REGISTRATION);
	assert_int_equal(f.number, 3);
	assert_int_equal(f.error, -ENOMEM);
	assert_true(f.node == PN_FAULT_ANY_NODE);
	f = only("fail registrations every 10 with EAGAIN on node 2");
	assert_int_equal(f.kind, PN_FAULT_FAIL_EVERY);
	assert_int_equal(f.number, 10);
	assert_int_equal(f.error, -EAGAIN);
	assert_int_equal(f.node, 2);
	f = only("delay registration 2 by 10 ms");
	assert_int_equal(f.kind, PN_FAULT_DELAY_REGISTRATION);
	assert_int_equal(f.number, 2);
	assert_int_equal(f.time_ns, 10000000);
	f = only("delay 5 us");
	assert_int_equal(f.kind, PN_FAULT_DELAY_ALL);
	assert_int_equal(f.time_ns, 5000);
	f = only("delay message 7 by 5us on node 0");
	assert_int_equal(f.kind, PN_FAULT_DELAY_MESSAGE);
	assert_int_equal(f.number, 7);
	assert_int_equal(f.time_ns, 5000);
	assert_int_equal(f.node, 0);
	f = only("drop peer 2 at 1 ms");
	assert_int_equal(f.kind, PN_FAULT_NODE_DIE);
	assert_int_equal(f.node, 2);
	assert_int_equal(f.time_ns, 1000000);
	f = only("limit node 1 to 4M at 2 ms");
	assert_int_equal(f.kind, PN_FAULT_LIMIT);
	assert_int_equal(f.node, 1);
	assert_int_equal(f.bytes, 4 << 20);
	assert_int_equal(f.time_ns, 2000000);
	f = only("limit node 1 to 4 MiB at 2s");
	assert_int_equal(f.bytes, 4 << 20);
	assert_int_equal(f.time_ns, 2000000000);
}

static void newlines_semicolons_and_comments_separate(void **state)
{
	struct pn_script script;
	struct pn_why why = { "" };

	(void)state;
	assert_ok(parse("# faults\n\n delay 5 us ; drop peer 0 at 1 s # late\n"
			";;\tdelay 1 ns\r\n",
			&script, &why));
	assert_int_equal(script.n, 3);
	assert_int_equal(script.faults[1].kind, PN_FAULT_NODE_DIE);
	assert_int_equal(script.faults[2].time_ns, 1);
	assert_ok(pn_script_parse("delay 2 ns", 10, &script, &why));
	assert_int_equal(script.n, 4);
	pn_script_free(&script);
	assert_ok(parse("", &script, &why));
	assert_int_equal(script.n, 0);
	pn_script_free(&script);
}

static void text_ends_where_its_length_says(void **state)
{
	struct pn_script script = { 0 };

	(void)state;
	assert_ok(pn_script_parse("delay 5 us on node 1", 10, &script, NULL));
	assert_int_equal(script.n, 1);
	assert_true(script.faults[0].node == PN_FAULT_ANY_NODE);
	pn_script_free(&script);
}

static void errors_name_line_and_column(void **state)
{
	static const struct {
		const char *text, *place;
	} cases[] = {
		{ "explode", "line 1, column 1: " },
		{ "delay 5 us\n fail nothing", "line 2, column 7: " },
		{ "fail registration 0 with ENOMEM", "line 1, column 19: " },
		{ "fail registration 3 with ENOSUCH", "line 1, column 26: " },
		{ "fail registration 3 with", "line 1, column 25: " },
		{ "fail registration three with EIO", "line 1, column 19: " },
		{ "delay 5 weeks", "line 1, column 9: " },
		{ "delay", "line 1, column 6: " },
		{ "drop peer 2 at", "line 1, column 15: " },
		{ "drop peer 2 at 1 ms now", "line 1, column 21: " },
		{ "delay 1 ns; drop peer -1 at 1 ms", "line 1, column 23: " },
		{ "limit node 1 to lots at 2 ms", "line 1, column 17: " },
		{ "limit node 1 to 4M", "line 1, column 19: " },
		{ "delay 99999999999999999999 s", "line 1, column 7: " },
		{ "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
		  "line 1, column 1: " },
		{ "delay message 7 5 us", "line 1, column 17: " },
		{ "delay 5 us on 3", "line 1, column 15: " },
	};
	struct pn_script script = { 0 };

	(void)state;
	for (size_t i = 0; i < PN_ARRAY_LEN(cases); i++) {
		struct pn_why why = { "" };

		assert_int_equal(pn_script_parse(cases[i].text,
						 strlen(cases[i].text), &script,
						 &why),
				 -EINVAL);
		assert_memory_equal(why.text, cases[i].place,
				    strlen(cases[i].place));
		assert_true(strlen(why.text) > strlen(cases[i].place));
		assert_int_equal(script.n, 0);
	}
	pn_script_free(&script);
}

static void a_refused_text_leaves_the_script_as_it_was(void **state)
{
	struct pn_script script;
	const char *bad = "delay 1 us\ndelay 2 us\nnonsense";

	(void)state;
	assert_ok(parse("drop peer 1 at 1 ms", &script, NULL));
	assert_int_equal(pn_script_parse(bad, strlen(bad), &script, NULL),
			 -EINVAL);
	assert_int_equal(script.n, 1);
	assert_int_equal(script.faults[0].kind, PN_FAULT_NODE_DIE);
	pn_script_free(&script);
}

static void registrations_are_counted_per_world_or_per_node(void **state)
{
	struct pn_script script;
	uint64_t delay_ns;

	(void)state;
	assert_ok(parse("fail registration 3 with ENOMEM\n"
			"fail registrations every 5 with EIO on node 1\n"
			"delay registration 2 by 7 us on node 1\n",
			&script, NULL));
	assert_int_equal(pn_script_registration(&script, 0, 3, 1, &delay_ns),
			 -ENOMEM);
	assert_int_equal(pn_script_registration(&script, 0, 1, 3, &delay_ns),
			 0);
	assert_int_equal(pn_script_registration(&script, 1, 9, 5, &delay_ns),
			 -EIO);
	assert_int_equal(pn_script_registration(&script, 1, 9, 10, &delay_ns),
			 -EIO);
	assert_int_equal(pn_script_registration(&script, 0, 9, 5, &delay_ns),
			 0);
	assert_int_equal(delay_ns, 0);
	assert_ok(pn_script_registration(&script, 1, 9, 2, &delay_ns));
	assert_int_equal(delay_ns, 7000);
	pn_script_free(&script);
}

static void delays_of_messages_add_up(void **state)
{
	struct pn_script script;

	(void)state;
	assert_ok(parse("delay 5 us; delay message 7 by 1 us; "
			"delay 2 us on node 3",
			&script, NULL));
	assert_int_equal(pn_script_message_ns(&script, 0, 1, 1), 5000);
	assert_int_equal(pn_script_message_ns(&script, 0, 7, 1), 6000);
	assert_int_equal(pn_script_message_ns(&script, 3, 7, 7), 8000);
	pn_script_free(&script);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(every_statement_is_understood),
		TEST(newlines_semicolons_and_comments_separate),
		TEST(text_ends_where_its_length_says),
		TEST(errors_name_line_and_column),
		TEST(a_refused_text_leaves_the_script_as_it_was),
		TEST(registrations_are_counted_per_world_or_per_node),
		TEST(delays_of_messages_add_up),
	};

	return RUN_TESTS(tests);
}
