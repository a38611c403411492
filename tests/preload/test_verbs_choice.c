/* SPDX-License-Identifier: BSD-2-Clause */
/* Which memory of peers gets the key of a window, with costs that are made up.
 */
#include "preload/verbs/preload.h"
#include "test.h"

#define KIB ((size_t)1 << 10)

static struct pn_ibv_choice choice;
static char *const memory = (char *)(64 * KIB);

static struct pn_ibv_request of(size_t at, size_t len)
{
	return (struct pn_ibv_request){ .addr = memory + at, .len = len };
}

/* Registering takes 10 us and 100 ns a page, deregistering half of that. */
static void registers(size_t at, size_t len)
{
	uint64_t npages = (len + 4 * KIB - 1) / (4 * KIB);

	pn_ibv_choice_registered(&choice, memory + at, len,
				 10000 + 100 * npages);
	pn_ibv_choice_deregistered(&choice, memory + at, len,
				   5000 + 50 * npages);
}

/* A program that registers the buffer. True: it gets a window. */
static bool use(size_t at, size_t len, bool is_released)
{
	struct pn_ibv_request r = of(at, len);
	bool wants = pn_ibv_choice_wants(&choice, &r);
	unsigned before = pn_ibv_choice_count();
	static size_t kept;

	if (!wants || !pn_ibv_choice_pays(&choice, &r)) {
		registers(at, len);
		return false;
	}
	if (is_released || kept != at + 1)
		registers(at, len);
	kept = at + 1;
	pn_ibv_choice_used(&choice, &r, true, before);
	return true;
}

static int start(void **state)
{
	(void)state;
	choice = (struct pn_ibv_choice){ .nreuses = 0 };
	pn_ibv_choice_init(&choice);
	return 0;
}

static int stop(void **state)
{
	(void)state;
	pn_ibv_choice_fini(&choice);
	return 0;
}

static void binds(uint64_t ns)
{
	for (unsigned i = 0; i < 16; i++)
		pn_ibv_choice_bound(&choice, ns);
}

static void windows_are_not_wanted_before_memory_comes_again(void **state)
{
	struct pn_ibv_request r;

	(void)state;
	for (size_t i = 0; i < 1000; i++) {
		r = of(i * 64 * KIB, 64 * KIB);
		assert_false(pn_ibv_choice_wants(&choice, &r));
	}
	/* The first time was the first; seven more are not enough. */
	r = of(0, 4 * KIB);
	for (unsigned i = 0; i < 8; i++)
		assert_false(pn_ibv_choice_wants(&choice, &r));
	assert_true(pn_ibv_choice_wants(&choice, &r));
}

static void nothing_pays_before_both_were_measured(void **state)
{
	struct pn_ibv_request r = of(0, 1024 * KIB);

	(void)state;
	assert_false(pn_ibv_choice_pays(&choice, &r));
	registers(0, 1024 * KIB);
	assert_false(pn_ibv_choice_pays(&choice, &r));
	binds(1000);
	assert_true(pn_ibv_choice_pays(&choice, &r));
}

/* 15,150 ns for a page; 53,400 for a MiB. */
static void windows_pay_above_the_length_that_costs_say(void **state)
{
	struct pn_ibv_request page = of(0, 4 * KIB), mib = of(0, 1024 * KIB);

	(void)state;
	for (unsigned i = 0; i < 8; i++) {
		registers(0, 4 * KIB);
		registers(0, 1024 * KIB);
	}
	binds(5000);
	assert_true(pn_ibv_choice_pays(&choice, &page));
	binds(20000);
	for (unsigned i = 0; i < 200; i++)
		binds(20000);
	assert_false(pn_ibv_choice_pays(&choice, &page));
	assert_true(pn_ibv_choice_pays(&choice, &mib));
	for (unsigned i = 0; i < 200; i++)
		binds(22000);
	assert_false(pn_ibv_choice_pays(&choice, &mib));
}

static void a_buffer_that_stays_gets_a_window_each_time(void **state)
{
	unsigned n = 0;

	(void)state;
	binds(1000);
	for (unsigned i = 0; i < 1000; i++)
		n += use(0, 64 * KIB, false);
	assert_int_equal(n, 1000 - 8);
}

static void a_buffer_that_is_released_gets_fewer_and_fewer(void **state)
{
	unsigned n = 0;

	(void)state;
	binds(1000);
	for (unsigned i = 0; i < 1000; i++)
		n += use(0, 64 * KIB, true);
	print_message("%u windows for 1000 uses\n", n);
	assert_in_range(n, 10, 30);
	/* It stays from now on. */
	n = 0;
	for (unsigned i = 0; i < 3000; i++)
		n += use(0, 64 * KIB, false);
	assert_in_range(n, 1500, 3000);
}

static void what_did_not_work_is_not_tried_again_at_once(void **state)
{
	struct pn_ibv_request r = of(0, 64 * KIB);
	unsigned n = 0;

	(void)state;
	for (unsigned i = 0; i < 1000; i++)
		if (pn_ibv_choice_wants(&choice, &r)) {
			n++;
			pn_ibv_choice_used(&choice, &r, false,
					   pn_ibv_choice_count());
		}
	assert_in_range(n, 1, 20);
}

#define TEST_OPEN(name) cmocka_unit_test_setup_teardown(name, start, stop)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST_OPEN(windows_are_not_wanted_before_memory_comes_again),
		TEST_OPEN(nothing_pays_before_both_were_measured),
		TEST_OPEN(windows_pay_above_the_length_that_costs_say),
		TEST_OPEN(a_buffer_that_stays_gets_a_window_each_time),
		TEST_OPEN(a_buffer_that_is_released_gets_fewer_and_fewer),
		TEST_OPEN(what_did_not_work_is_not_tried_again_at_once),
	};

	return RUN_TESTS(tests);
}
