/* SPDX-License-Identifier: BSD-2-Clause */
/* Owners and the visitor of a biased lock exclude each other, and the visitor
 * comes in only while the owners are idle. */
#include "base/biased_lock.h"

#include <pthread.h>
#include <sched.h>

#include "base/clock.h"
#include "test.h"

static void a_visitor_enters_a_lock_that_nobody_takes(void **state)
{
	struct pn_biased_lock lock;

	(void)state;
	for (int one_owner = 0; one_owner < 2; one_owner++) {
		pn_biased_init(&lock, one_owner);
		for (int i = 0; i < 3; i++) {
			assert_true(pn_biased_visit(&lock));
			pn_biased_leave(&lock);
			pn_biased_lock(&lock);
			pn_biased_unlock(&lock);
		}
		pn_biased_fini(&lock);
	}
}

static void a_visitor_does_not_enter_while_an_owner_is_inside(void **state)
{
	struct pn_biased_lock lock;

	(void)state;
	for (int one_owner = 0; one_owner < 2; one_owner++) {
		pn_biased_init(&lock, one_owner);
		pn_biased_lock(&lock);
		assert_false(pn_biased_visit(&lock));
		pn_biased_unlock(&lock);
		assert_true(pn_biased_visit(&lock));
		pn_biased_leave(&lock);
		pn_biased_fini(&lock);
	}
}

/* With a mutex, nothing is reserved. */
static void a_lock_is_reserved_until_an_owner_comes(void **state)
{
	struct pn_biased_lock lock;

	(void)state;
	pn_biased_init(&lock, true);
	if (lock.several_owners)
		skip();
	assert_false(pn_biased_visit_reserved(&lock));
	assert_true(pn_biased_visit(&lock));
	assert_false(pn_biased_visit_reserved(&lock));
	pn_biased_leave(&lock);
	assert_true(pn_biased_visit_reserved(&lock));
	pn_biased_leave(&lock);
	pn_biased_lock(&lock);
	assert_false(pn_biased_visit_reserved(&lock));
	pn_biased_unlock(&lock);
	assert_false(pn_biased_visit_reserved(&lock));
	pn_biased_fini(&lock);
}

static void an_owner_offers_its_lock_to_the_visitor(void **state)
{
	struct pn_biased_lock lock;

	(void)state;
	pn_biased_init(&lock, true);
	if (lock.several_owners)
		skip();
	for (int i = 0; i < 3; i++) {
		pn_biased_lock(&lock);
		pn_biased_unlock(&lock);
		pn_biased_offer(&lock);
		assert_true(pn_biased_visit_reserved(&lock));
		pn_biased_offer(&lock); /* too late: the visitor is inside */
		assert_int_equal(atomic_load(&lock.visitor), PN_BIASED_VISITED);
		pn_biased_leave(&lock);
	}
	pn_biased_lock(&lock);
	assert_false(pn_biased_visit(&lock));
	pn_biased_unlock(&lock);
	pn_biased_fini(&lock);
}

#define TURNS	   200000
#define MAX_OWNERS 3

/* Not atomic: only the lock orders the accesses. */
struct shared {
	struct pn_biased_lock lock;
	uint64_t count;
	_Atomic unsigned nrunning;
	uint64_t visits;
};

static void *own(void *arg)
{
	struct shared *s = arg;

	for (unsigned i = 0; i < TURNS; i++) {
		pn_biased_lock(&s->lock);
		s->count++;
		pn_biased_unlock(&s->lock);
		if (!(i % 10))
			pn_biased_offer(&s->lock);
		/* Idle now and then, so that the visitor has a chance. */
		if (!(i % 1000))
			for (int n = 0; n < 2000; n++)
				pn_relax();
	}
	atomic_fetch_sub(&s->nrunning, 1);
	return NULL;
}

/* Stays inside until an owner wants the lock, every other time. */
static void visit(struct shared *s, bool one_owner)
{
	if (!pn_biased_visit(&s->lock))
		return;
	s->visits++;
	s->count++;
	for (int n = 0; one_owner && s->visits % 2 && n < 10000 &&
			!pn_biased_is_wanted(&s->lock);
	     n++)
		pn_relax();
	pn_biased_leave(&s->lock);
}

static void exclude(unsigned nowners)
{
	struct shared s = { .nrunning = nowners };
	pthread_t threads[MAX_OWNERS];

	pn_biased_init(&s.lock, nowners == 1);
	for (unsigned i = 0; i < nowners; i++)
		assert_ok(pthread_create(&threads[i], NULL, own, &s));
	while (atomic_load(&s.nrunning)) {
		visit(&s, nowners == 1);
		sched_yield();
	}
	for (unsigned i = 0; i < nowners; i++)
		assert_ok(pthread_join(threads[i], NULL));
	assert_int_equal(s.count, (uint64_t)nowners * TURNS + s.visits);
	assert_true(pn_biased_visit(&s.lock));
	pn_biased_leave(&s.lock);
	pn_biased_fini(&s.lock);
}

static void an_owner_and_the_visitor_exclude_each_other(void **state)
{
	(void)state;
	exclude(1);
}

static void several_owners_and_the_visitor_exclude_each_other(void **state)
{
	(void)state;
	exclude(MAX_OWNERS);
}

/* The visitor stays until the owner sleeps. */
static void *take_once(void *arg)
{
	pn_biased_lock(arg);
	pn_biased_unlock(arg);
	return NULL;
}

static void an_owner_that_sleeps_is_woken_when_the_visitor_leaves(void **state)
{
	uint64_t deadline = pn_clock_ns() + 60 * PN_NS_PER_S;
	struct pn_biased_lock lock;
	pthread_t thread;

	(void)state;
	pn_biased_init(&lock, true);
	assert_true(pn_biased_visit(&lock));
	assert_ok(pthread_create(&thread, NULL, take_once, &lock));
	while (!lock.several_owners &&
	       atomic_load(&lock.visitor) != PN_BIASED_BLOCKED)
		assert_true(pn_clock_ns() < deadline);
	pn_biased_leave(&lock);
	assert_ok(pthread_join(thread, NULL));
	assert_true(pn_biased_visit(&lock));
	pn_biased_leave(&lock);
	pn_biased_fini(&lock);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_visitor_enters_a_lock_that_nobody_takes),
		TEST(a_visitor_does_not_enter_while_an_owner_is_inside),
		TEST(a_lock_is_reserved_until_an_owner_comes),
		TEST(an_owner_offers_its_lock_to_the_visitor),
		TEST(an_owner_and_the_visitor_exclude_each_other),
		TEST(several_owners_and_the_visitor_exclude_each_other),
		TEST(an_owner_that_sleeps_is_woken_when_the_visitor_leaves),
	};

	return RUN_TESTS(tests);
}
