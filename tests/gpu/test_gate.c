/* SPDX-License-Identifier: BSD-2-Clause */
/* The gate between pinion's registrations and the program's own CUDA calls. */
#include "test.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device/cuda/gate.h"

#define PAGE(n) ((uintptr_t)(n) << PN_PAGE_SHIFT)
#define BASE	1000 /* page numbers: nothing is accessed */

static const struct pn_range none;

static struct pn_range pages(size_t first, size_t n)
{
	return (struct pn_range){ PAGE(BASE + first), PAGE(n) };
}

static int hold(size_t first, size_t n)
{
	return pn_cuda_gate_hold((void *)PAGE(BASE + first), PAGE(n));
}

static void drop(size_t first, size_t n)
{
	pn_cuda_gate_drop((void *)PAGE(BASE + first), PAGE(n));
}

static void a_passage_stops_at_held_pages(void **state)
{
	struct pn_gate_passage p;

	(void)state;
	assert_ok(hold(4, 4));
	assert_int_equal(pn_cuda_gate_held_pages(), 4);
	assert_int_equal(pn_cuda_gate_enter(pages(0, 5), none, &p),
			 PN_GATE_HELD);
	assert_int_equal(pn_cuda_gate_enter(pages(0, 1), pages(7, 2), &p),
			 PN_GATE_HELD);
	assert_int_equal(pn_cuda_gate_enter(pages(0, 4), pages(8, 2), &p),
			 PN_GATE_CLEAR);
	pn_cuda_gate_leave(&p);
	drop(4, 4);
	assert_int_equal(pn_cuda_gate_enter(pages(0, 9), none, &p),
			 PN_GATE_CLEAR);
	pn_cuda_gate_leave(&p);
	assert_int_equal(pn_cuda_gate_held_pages(), 0);
}

static void nothing_is_held_where_a_passage_is(void **state)
{
	struct pn_gate_passage p;

	(void)state;
	assert_int_equal(pn_cuda_gate_enter(pages(2, 1), pages(6, 1), &p),
			 PN_GATE_CLEAR);
	assert_int_equal(hold(0, 3), -EBUSY);
	assert_int_equal(hold(6, 1), -EBUSY);
	assert_int_equal(pn_cuda_gate_held_pages(), 0);
	assert_ok(hold(3, 3));
	pn_cuda_gate_leave(&p);
	assert_ok(hold(0, 3));
	assert_ok(hold(6, 1));
	drop(0, 3);
	drop(3, 3);
	drop(6, 1);
}

static void bytes_in_a_page_touch_the_page(void **state)
{
	struct pn_range inside = { PAGE(BASE) + 100, 1 };
	struct pn_gate_passage p;

	(void)state;
	assert_ok(hold(0, 1));
	assert_int_equal(pn_cuda_gate_enter(inside, none, &p), PN_GATE_HELD);
	drop(0, 1);
}

/* Registrations have bytes, not pages, and may share one. */
static void a_shared_page_is_held_until_the_last_drop(void **state)
{
	char *a = (char *)PAGE(BASE), *b = a + PAGE(2) - 100;
	struct pn_gate_passage p;

	(void)state;
	assert_ok(pn_cuda_gate_hold(a, PAGE(2) - 100));
	assert_ok(pn_cuda_gate_hold(b, 300));
	assert_int_equal(pn_cuda_gate_held_pages(), 3);
	pn_cuda_gate_drop(a, PAGE(2) - 100);
	assert_int_equal(pn_cuda_gate_held_pages(), 2);
	assert_int_equal(pn_cuda_gate_enter(pages(0, 1), none, &p),
			 PN_GATE_CLEAR);
	pn_cuda_gate_leave(&p);
	assert_int_equal(pn_cuda_gate_enter(pages(1, 1), none, &p),
			 PN_GATE_HELD);
	pn_cuda_gate_drop(b, 300);
	assert_int_equal(pn_cuda_gate_enter(pages(0, 3), none, &p),
			 PN_GATE_CLEAR);
	/* What the passage refuses leaves no mark. */
	assert_int_equal(pn_cuda_gate_hold(b, 300), -EBUSY);
	pn_cuda_gate_leave(&p);
	assert_int_equal(pn_cuda_gate_held_pages(), 0);
}

/* The driver may refuse a registration that overlaps another. */
static void a_hold_that_is_refused_leaves_the_others(void **state)
{
	struct pn_gate_passage p;

	(void)state;
	assert_ok(hold(0, 2));
	assert_int_equal(pn_cuda_gate_enter(pages(2, 1), none, &p),
			 PN_GATE_CLEAR);
	assert_int_equal(hold(1, 2), -EBUSY);
	pn_cuda_gate_leave(&p);
	assert_int_equal(pn_cuda_gate_held_pages(), 2);
	assert_true(pn_cuda_gate_holds(pages(1, 1)));
	assert_false(pn_cuda_gate_holds(pages(2, 1)));
	drop(0, 2);
	assert_int_equal(pn_cuda_gate_held_pages(), 0);
}

static void a_range_may_be_all_addresses(void **state)
{
	struct pn_range all = { 0, SIZE_MAX }, wraps = { PAGE(7), SIZE_MAX };
	struct pn_gate_passage p;

	(void)state;
	assert_int_equal(pn_cuda_gate_enter(all, none, &p), PN_GATE_CLEAR);
	assert_int_equal(hold(0, 1), -EBUSY);
	pn_cuda_gate_leave(&p);
	assert_ok(hold(0, 1));
	assert_true(pn_cuda_gate_holds(all));
	assert_true(pn_cuda_gate_holds(wraps));
	/* Device addresses may be above what an index holds. */
	assert_false(
		pn_cuda_gate_holds((struct pn_range){ UINTPTR_MAX - 100, 50 }));
	drop(0, 1);
	assert_false(pn_cuda_gate_holds(all));
}

static void a_closed_gate_holds_nothing_new(void **state)
{
	(void)state;
	assert_ok(hold(0, 1));
	pn_cuda_gate_close();
	pn_cuda_gate_close();
	assert_int_equal(hold(1, 1), -EBUSY);
	pn_cuda_gate_open();
	assert_int_equal(hold(1, 1), -EBUSY);
	assert_int_equal(pn_cuda_gate_held_pages(), 1);
	pn_cuda_gate_open();
	assert_ok(hold(1, 1));
	drop(0, 2);
}

static void more_passages_than_slots_are_kept_apart_too(void **state)
{
	struct pn_gate_passage p[100];

	(void)state;
	for (size_t i = 0; i < PN_ARRAY_LEN(p); i++)
		assert_int_equal(pn_cuda_gate_enter(pages(i, 1), none, &p[i]),
				 PN_GATE_CLEAR);
	assert_int_equal(hold(99, 1), -EBUSY);
	for (size_t i = 0; i < PN_ARRAY_LEN(p); i++)
		pn_cuda_gate_leave(&p[i]);
	assert_ok(hold(99, 1));
	drop(99, 1);
}

/* --- threads -------------------------------------------------------------- */

#define NPAGES 16
#define ROUNDS 20000

/* One flag a page: how many passages are on the page, and whether the page is
 * held. Both at once is what the gate is to prevent. */
static _Atomic int passing[NPAGES], is_held[NPAGES];
static _Atomic unsigned collisions, holds, passages, refusals;

struct walker {
	pthread_t thread;
	uint64_t seed;
};

static void *passes(void *arg)
{
	struct walker *me = arg;

	for (unsigned i = 0; i < ROUNDS; i++) {
		size_t a = test_random(&me->seed) % NPAGES;
		struct pn_gate_passage p;

		if (pn_cuda_gate_enter(pages(a, 1), none, &p)) {
			refusals++;
			continue;
		}
		passing[a]++;
		collisions += is_held[a] != 0;
		passing[a]--;
		pn_cuda_gate_leave(&p);
		passages++;
	}
	return NULL;
}

static void *holds_and_drops(void *arg)
{
	struct walker *me = arg;
	size_t half = NPAGES / 2, from = me->seed & 1 ? half : 0;

	for (unsigned i = 0; i < ROUNDS; i++) {
		size_t a = from + test_random(&me->seed) % half;

		if (hold(a, 1)) {
			refusals++;
			continue;
		}
		is_held[a] = 1;
		collisions += passing[a] != 0;
		is_held[a] = 0;
		drop(a, 1);
		holds++;
	}
	return NULL;
}

static void passages_and_held_pages_never_meet(void **state)
{
	struct walker w[6];
	uint64_t seed = test_seed();

	(void)state;
	for (size_t i = 0; i < PN_ARRAY_LEN(w); i++) {
		w[i].seed = (test_random(&seed) & ~UINT64_C(1)) | (i & 1);
		assert_ok(pthread_create(&w[i].thread, NULL,
					 i < 2 ? holds_and_drops : passes,
					 &w[i]));
	}
	for (size_t i = 0; i < PN_ARRAY_LEN(w); i++)
		assert_ok(pthread_join(w[i].thread, NULL));
	printf("%u passages, %u holds, %u refused\n", passages, holds,
	       refusals);
	assert_int_equal(collisions, 0);
	assert_true(passages && holds);
	assert_int_equal(pn_cuda_gate_held_pages(), 0);
}

/* --- fork ----------------------------------------------------------------- */

#define LONG (1 << 18) /* pages: takes long to mark, under the lock */

static _Atomic bool forked;

static void *holds_much(void *arg)
{
	struct pn_gate_passage p;

	(void)arg;
	while (!atomic_load(&forked)) {
		assert_ok(hold(0, LONG));
		drop(0, LONG);
		pn_cuda_gate_begin(pages(LONG, 1), none, &p);
		pn_cuda_gate_leave(&p);
	}
	return NULL;
}

/* In the child. */
static int use_the_gate(void)
{
	struct pn_gate_passage p;
	int bad = 0;

	alarm(60); /* ends a child that hangs */
	bad |= pn_cuda_gate_enter(pages(0, LONG), none, &p) != PN_GATE_CLEAR;
	pn_cuda_gate_leave(&p);
	pn_cuda_gate_close();
	bad |= hold(0, 1) != -EBUSY;
	pn_cuda_gate_open();
	bad |= hold(0, 1) != 0 || hold(LONG, 1) != 0;
	bad |= pn_cuda_gate_held_pages() != 2;
	bad |= pn_cuda_gate_enter(pages(0, 1), none, &p) != PN_GATE_HELD;
	drop(0, 1);
	drop(LONG, 1);
	return bad | (pn_cuda_gate_held_pages() != 0);
}

static void a_child_can_use_the_gate_whatever_other_threads_did(void **state)
{
	pthread_t thread;
	int status;

	(void)state;
	assert_ok(pthread_create(&thread, NULL, holds_much, NULL));
	for (int i = 0; i < 50; i++) {
		pid_t child = fork();

		if (!child)
			_exit(use_the_gate());
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_true(WIFEXITED(status));
		assert_int_equal(WEXITSTATUS(status), 0);
	}
	atomic_store(&forked, true);
	assert_ok(pthread_join(thread, NULL));
	assert_int_equal(pn_cuda_gate_held_pages(), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_passage_stops_at_held_pages),
		TEST(nothing_is_held_where_a_passage_is),
		TEST(bytes_in_a_page_touch_the_page),
		TEST(a_shared_page_is_held_until_the_last_drop),
		TEST(a_hold_that_is_refused_leaves_the_others),
		TEST(a_range_may_be_all_addresses),
		TEST(a_closed_gate_holds_nothing_new),
		TEST(more_passages_than_slots_are_kept_apart_too),
		TEST(passages_and_held_pages_never_meet),
		TEST(a_child_can_use_the_gate_whatever_other_threads_did),
	};

	return RUN_TESTS(tests);
}
