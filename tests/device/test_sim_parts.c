/* SPDX-License-Identifier: BSD-2-Clause */
/* The modules that `sim` is made of: coroutines, the event queue, intervals. */
#include "test.h"

#include <fenv.h>
#include <stdbool.h>

#include "base/range.h"
#include "device/sim/coroutine.h"
#include "device/sim/events.h"
#include "device/sim/interval.h"

/* --- coroutines ----------------------------------------------------------- */

struct counter {
	struct pn_coroutine *co;
	unsigned count, limit;
	double sum;
};

/* Keeps values of every kind across switches. */
static void count_up(void *arg)
{
	struct counter *c = arg;
	volatile char stack[3000];
	double half = 0.5;

	memset((char *)stack, 7, sizeof(stack));
	while (c->count < c->limit) {
		c->count++;
		c->sum += half;
		pn_coroutine_suspend(c->co);
	}
	c->sum += stack[2999];
}

static void coroutines_interleave_and_finish(void **state)
{
	struct counter a = { .limit = 3 }, b = { .limit = 1000 };

	(void)state;
	assert_ok(pn_coroutine_create(16384, count_up, &a, &a.co));
	assert_ok(pn_coroutine_create(16384, count_up, &b, &b.co));
	for (unsigned i = 1; i <= 3; i++) {
		pn_coroutine_resume(a.co);
		pn_coroutine_resume(b.co);
		assert_int_equal(a.count, i);
		assert_int_equal(b.count, i);
		assert_false(pn_coroutine_finished(a.co));
	}
	pn_coroutine_resume(a.co);
	assert_true(pn_coroutine_finished(a.co));
	assert_true(a.sum == 8.5);
	while (!pn_coroutine_finished(b.co))
		pn_coroutine_resume(b.co);
	assert_true(b.sum == 507);
	pn_coroutine_destroy(a.co);
	pn_coroutine_destroy(b.co);
	pn_coroutine_destroy(NULL);
}

static void a_coroutine_can_be_destroyed_in_the_middle(void **state)
{
	struct counter c = { .limit = 10 };

	(void)state;
	for (unsigned i = 0; i < 100; i++) {
		c.count = 0;
		assert_ok(pn_coroutine_create(16384, count_up, &c, &c.co));
		pn_coroutine_resume(c.co);
		assert_int_equal(c.count, 1);
		pn_coroutine_destroy(c.co);
	}
}

struct nest {
	struct pn_coroutine *co;
	struct nest *inner;
	unsigned depth;
};

static void resume_inner(void *arg)
{
	struct nest *n = arg;

	if (n->inner)
		pn_coroutine_resume(n->inner->co);
	n->depth = n->inner ? n->inner->depth + 1 : 1;
	pn_coroutine_suspend(n->co);
}

static void coroutines_nest(void **state)
{
	struct nest n[5];

	(void)state;
	for (unsigned i = 0; i < 5; i++) {
		n[i] = (struct nest){ .inner = i ? &n[i - 1] : NULL };
		assert_ok(pn_coroutine_create(16384, resume_inner, &n[i],
					      &n[i].co));
	}
	pn_coroutine_resume(n[4].co);
	assert_int_equal(n[4].depth, 5);
	for (unsigned i = 0; i < 5; i++)
		pn_coroutine_destroy(n[i].co);
}

static void round_up(void *arg)
{
	struct counter *c = arg;

	fesetround(FE_UPWARD);
	pn_coroutine_suspend(c->co);
	c->count = fegetround() == FE_UPWARD;
}

/* As with threads, each coroutine has a rounding mode of its own. */
static void coroutines_keep_their_rounding_mode(void **state)
{
	struct counter c = { 0 };

	(void)state;
	assert_ok(pn_coroutine_create(16384, round_up, &c, &c.co));
	pn_coroutine_resume(c.co);
	assert_int_equal(fegetround(), FE_TONEAREST);
	pn_coroutine_resume(c.co);
	assert_int_equal(c.count, 1);
	assert_int_equal(fegetround(), FE_TONEAREST);
	pn_coroutine_destroy(c.co);
}

/* --- events --------------------------------------------------------------- */

#define NEVENTS 300

struct planned {
	struct pn_sim_event event;
	uint64_t time_ns, order;
};

/* Finds the earliest by a linear search. */
static struct planned *naive_first(struct planned *all)
{
	struct planned *best = NULL;

	for (unsigned i = 0; i < NEVENTS; i++) {
		struct planned *p = &all[i];

		if (!pn_sim_event_is_queued(&p->event))
			continue;
		if (!best || p->time_ns < best->time_ns ||
		    (p->time_ns == best->time_ns && p->order < best->order))
			best = p;
	}
	return best;
}

static void events_come_by_time_and_then_by_age(void **state)
{
	static struct planned all[NEVENTS];
	struct pn_sim_event_queue events = { 0 };
	uint64_t seed = test_seed(), order = 0, time_ns;

	(void)state;
	for (unsigned step = 0; step < 20000; step++) {
		struct planned *p = &all[test_below(&seed, NEVENTS)];

		if (test_below(&seed, 3) == 0) {
			struct planned *first = naive_first(all);
			struct pn_sim_event *event =
				pn_sim_event_pop(&events, &time_ns);

			assert_ptr_equal(event, first ? &first->event : NULL);
			if (first)
				assert_int_equal(time_ns, first->time_ns);
		} else if (pn_sim_event_is_queued(&p->event)) {
			pn_sim_event_cancel(&events, &p->event);
			assert_false(pn_sim_event_is_queued(&p->event));
		} else {
			p->time_ns = test_below(&seed, 40);
			p->order = order++;
			pn_sim_event_add(&events, &p->event, p->time_ns);
		}
	}
	pn_sim_event_queue_fini(&events);
}

/* --- intervals ------------------------------------------------------------ */

#define NINTERVALS 200

struct visits {
	struct pn_interval *all;
	bool seen[NINTERVALS];
	uintptr_t last_addr;
	bool sorted;
};

static void visit(struct pn_interval *interval, void *arg)
{
	struct visits *v = arg;

	v->seen[interval - v->all] = true;
	v->sorted = v->sorted && interval->range.addr >= v->last_addr;
	v->last_addr = interval->range.addr;
}

static void intervals_are_found_exactly_when_they_overlap(void **state)
{
	static struct pn_interval all[NINTERVALS];
	bool in[NINTERVALS] = { false };
	struct pn_interval *root = NULL;
	uint64_t seed = test_seed(), id = 0;

	(void)state;
	for (unsigned step = 0; step < 5000; step++) {
		size_t i = test_below(&seed, NINTERVALS);
		struct pn_range range = { 1 + test_below(&seed, 1000),
					  1 + test_below(&seed, 50) };
		struct visits v = { .all = all, .sorted = true };

		if (in[i]) {
			pn_interval_remove(&root, &all[i]);
		} else {
			all[i].range = range;
			all[i].id = ++id;
			pn_interval_add(&root, &all[i]);
		}
		in[i] = !in[i];
		pn_interval_visit(root, range, visit, &v);
		assert_true(v.sorted);
		for (size_t k = 0; k < NINTERVALS; k++)
			assert_int_equal(v.seen[k],
					 in[k] &&
						 pn_range_overlaps(all[k].range,
								   range));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(coroutines_interleave_and_finish),
		TEST(a_coroutine_can_be_destroyed_in_the_middle),
		TEST(coroutines_nest),
		TEST(coroutines_keep_their_rounding_mode),
		TEST(events_come_by_time_and_then_by_age),
		TEST(intervals_are_found_exactly_when_they_overlap),
	};

	return RUN_TESTS(tests);
}
