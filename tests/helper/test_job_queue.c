/* SPDX-License-Identifier: BSD-2-Clause */
#include "test.h"

#include "helper/job_queue.h"

static uint64_t due_of(const struct pn_list *link)
{
	return pn_container_of(link, struct pn_job, link)->due_ns;
}

static void add_three(struct pn_job_queue *jobs, struct pn_job e[3])
{
	pn_job_queue_init(jobs);
	for (unsigned i = 0; i < 3; i++)
		pn_job_queue_add(jobs, &e[i]);
}

static void jobs_are_ordered_by_deadline(void **state)
{
	struct pn_job e[3] = { { .due_ns = 300 },
			       { .due_ns = 100 },
			       { .due_ns = 200 } };
	struct pn_job_queue jobs;

	(void)state;
	pn_job_queue_init(&jobs);
	assert_null(pn_job_queue_first(&jobs));
	add_three(&jobs, e);
	assert_ptr_equal(pn_job_queue_first(&jobs), &e[1]);
	pn_job_queue_remove(&jobs, &e[1]);
	assert_ptr_equal(pn_job_queue_first(&jobs), &e[2]);
	pn_job_queue_remove(&jobs, &e[1]); /* once more does no harm */
	assert_int_equal(jobs.n, 2);
}

static void close_deadlines_become_earlier(void **state)
{
	struct pn_job e[3] = { { .due_ns = 1000, .work_ns = 100 },
			       { .due_ns = 1000, .work_ns = 30 },
			       { .due_ns = 2000, .work_ns = 50 } };
	struct pn_job_queue jobs;

	(void)state;
	add_three(&jobs, e);
	assert_int_equal(e[2].due_ns, 2000);
	assert_int_equal(e[1].due_ns, 1000);
	assert_int_equal(e[0].due_ns, 970);
}

/* A job that comes too close to the next moves itself and the jobs before it.
 */
static void a_new_job_moves_the_deadlines_before_it(void **state)
{
	struct pn_job e[3] = { { .due_ns = 1000, .work_ns = 100 },
			       { .due_ns = 950, .work_ns = 100 },
			       { .due_ns = 980, .work_ns = 10 } };
	struct pn_job_queue jobs;

	(void)state;
	add_three(&jobs, e);
	assert_int_equal(e[0].due_ns, 1000);
	assert_int_equal(e[2].due_ns, 900);
	assert_int_equal(e[1].due_ns, 890);
}

static void the_start_is_that_after_adding_the_job(void **state)
{
	struct pn_job e[3] = { { .due_ns = 1000, .work_ns = 100 },
			       { .due_ns = 950, .work_ns = 100 },
			       { .due_ns = 980, .work_ns = 10 } };
	struct pn_job_queue jobs;

	(void)state;
	pn_job_queue_init(&jobs);
	assert_int_equal(pn_job_queue_start(&jobs, 1000, 100), 900);
	pn_job_queue_add(&jobs, &e[0]);
	assert_int_equal(pn_job_queue_start(&jobs, 950, 100), 800);
	pn_job_queue_add(&jobs, &e[1]);
	assert_int_equal(e[1].due_ns, 900);
	assert_int_equal(pn_job_queue_start(&jobs, 980, 10), 790);
	assert_int_equal(pn_job_queue_start(&jobs, 5000, 10), 4990);
	assert_int_equal(pn_job_queue_start(&jobs, 700, 10), 690);
}

#define NERRANDS 64

/* A naive model: every job can be done in time, one after the other, and no
 * deadline is earlier than the jobs after it require. */
static void check(const struct pn_job_queue *jobs, const uint64_t *asked,
		  const struct pn_job *all)
{
	const struct pn_list *pos;
	size_t n = 0;

	pn_list_for_each (pos, &jobs->list) {
		const struct pn_job *job =
			pn_container_of(pos, struct pn_job, link);

		n++;
		assert_true(job->due_ns <= asked[job - all]);
		if (pos->next == &jobs->list)
			continue;
		assert_true(job->due_ns + pn_container_of(pos->next,
							  struct pn_job, link)
						  ->work_ns <=
			    due_of(pos->next));
	}
	assert_int_equal(n, jobs->n);
}

static void any_order_of_adding_leaves_time_for_each(void **state)
{
	uint64_t seed = test_seed(), start, asked[NERRANDS] = { 0 };
	struct pn_job all[NERRANDS];
	struct pn_job_queue jobs;

	(void)state;
	pn_job_queue_init(&jobs);
	for (unsigned i = 0; i < NERRANDS; i++)
		pn_job_init(&all[i]);
	for (unsigned step = 0; step < 20000; step++) {
		struct pn_job *e = &all[test_below(&seed, NERRANDS)];

		if (pn_list_empty(&e->link)) {
			e->due_ns = 1000000 + test_below(&seed, 20000);
			e->work_ns = test_below(&seed, 500);
			asked[e - all] = e->due_ns;
			start = pn_job_queue_start(&jobs, e->due_ns,
						   e->work_ns);
			pn_job_queue_add(&jobs, e);
			assert_true(start <= e->due_ns - e->work_ns);
		} else {
			pn_job_queue_remove(&jobs, e);
		}
		check(&jobs, asked, all);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(jobs_are_ordered_by_deadline),
		TEST(close_deadlines_become_earlier),
		TEST(a_new_job_moves_the_deadlines_before_it),
		TEST(the_start_is_that_after_adding_the_job),
		TEST(any_order_of_adding_leaves_time_for_each),
	};

	return RUN_TESTS(tests);
}
