/* SPDX-License-Identifier: BSD-2-Clause */
#include "test.h"

#include "helper/errand.h"

static uint64_t due_of(const struct pn_list *link)
{
	return pn_container_of(link, struct pn_errand, link)->due_ns;
}

static void add_three(struct pn_errands *errands, struct pn_errand e[3])
{
	pn_errands_init(errands);
	for (unsigned i = 0; i < 3; i++)
		pn_errands_add(errands, &e[i]);
}

static void errands_come_by_deadline(void **state)
{
	struct pn_errand e[3] = { { .due_ns = 300 },
				  { .due_ns = 100 },
				  { .due_ns = 200 } };
	struct pn_errands errands;

	(void)state;
	pn_errands_init(&errands);
	assert_null(pn_errands_first(&errands));
	add_three(&errands, e);
	assert_ptr_equal(pn_errands_first(&errands), &e[1]);
	pn_errands_remove(&errands, &e[1]);
	assert_ptr_equal(pn_errands_first(&errands), &e[2]);
	pn_errands_remove(&errands, &e[1]); /* once more does no harm */
	assert_int_equal(errands.n, 2);
}

static void deadlines_that_crowd_are_pulled_apart(void **state)
{
	struct pn_errand e[3] = { { .due_ns = 1000, .work_ns = 100 },
				  { .due_ns = 1000, .work_ns = 30 },
				  { .due_ns = 2000, .work_ns = 50 } };
	struct pn_errands errands;

	(void)state;
	add_three(&errands, e);
	assert_int_equal(e[2].due_ns, 2000);
	assert_int_equal(e[1].due_ns, 1000);
	assert_int_equal(e[0].due_ns, 970);
}

/* One that comes too close to the next moves itself and those before it. */
static void a_newcomer_makes_those_before_it_earlier(void **state)
{
	struct pn_errand e[3] = { { .due_ns = 1000, .work_ns = 100 },
				  { .due_ns = 950, .work_ns = 100 },
				  { .due_ns = 980, .work_ns = 10 } };
	struct pn_errands errands;

	(void)state;
	add_three(&errands, e);
	assert_int_equal(e[0].due_ns, 1000);
	assert_int_equal(e[2].due_ns, 900);
	assert_int_equal(e[1].due_ns, 890);
}

static void a_start_is_what_adding_would_bring_about(void **state)
{
	struct pn_errand e[3] = { { .due_ns = 1000, .work_ns = 100 },
				  { .due_ns = 950, .work_ns = 100 },
				  { .due_ns = 980, .work_ns = 10 } };
	struct pn_errands errands;

	(void)state;
	pn_errands_init(&errands);
	assert_int_equal(pn_errands_start(&errands, 1000, 100), 900);
	pn_errands_add(&errands, &e[0]);
	assert_int_equal(pn_errands_start(&errands, 950, 100), 800);
	pn_errands_add(&errands, &e[1]);
	assert_int_equal(e[1].due_ns, 900);
	assert_int_equal(pn_errands_start(&errands, 980, 10), 790);
	assert_int_equal(pn_errands_start(&errands, 5000, 10), 4990);
	assert_int_equal(pn_errands_start(&errands, 700, 10), 690);
}

#define NERRANDS 64

/* A naive model: any errand can be done in time, one after the other, and
 * none is asked for earlier than those after it force it to be. */
static void check(const struct pn_errands *errands, const uint64_t *asked,
		  const struct pn_errand *all)
{
	const struct pn_list *pos;
	size_t n = 0;

	pn_list_for_each (pos, &errands->list) {
		const struct pn_errand *errand =
			pn_container_of(pos, struct pn_errand, link);

		n++;
		assert_true(errand->due_ns <= asked[errand - all]);
		if (pos->next == &errands->list)
			continue;
		assert_true(errand->due_ns + pn_container_of(pos->next,
							     struct pn_errand,
							     link)
						     ->work_ns <=
			    due_of(pos->next));
	}
	assert_int_equal(n, errands->n);
}

static void any_order_of_adding_leaves_time_for_each(void **state)
{
	uint64_t seed = test_seed(), start, asked[NERRANDS] = { 0 };
	struct pn_errand all[NERRANDS];
	struct pn_errands errands;

	(void)state;
	pn_errands_init(&errands);
	for (unsigned i = 0; i < NERRANDS; i++)
		pn_errand_init(&all[i]);
	for (unsigned step = 0; step < 20000; step++) {
		struct pn_errand *e = &all[test_below(&seed, NERRANDS)];

		if (pn_list_empty(&e->link)) {
			e->due_ns = 1000000 + test_below(&seed, 20000);
			e->work_ns = test_below(&seed, 500);
			asked[e - all] = e->due_ns;
			start = pn_errands_start(&errands, e->due_ns,
						 e->work_ns);
			pn_errands_add(&errands, e);
			assert_true(start <= e->due_ns - e->work_ns);
		} else {
			pn_errands_remove(&errands, e);
		}
		check(&errands, asked, all);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(errands_come_by_deadline),
		TEST(deadlines_that_crowd_are_pulled_apart),
		TEST(a_newcomer_makes_those_before_it_earlier),
		TEST(a_start_is_what_adding_would_bring_about),
		TEST(any_order_of_adding_leaves_time_for_each),
	};

	return RUN_TESTS(tests);
}
