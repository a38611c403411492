/* SPDX-License-Identifier: BSD-2-Clause */
/* Which helpers get the idle cores, compared with an exhaustive search. */
#include "test.h"

#include "helper/share.h"

static struct pn_cores cores_of(uint64_t mask)
{
	return (struct pn_cores){ .word = { mask } };
}

static struct pn_member member(uint64_t process, uint64_t bytes, uint64_t mask)
{
	return (struct pn_member){ process, bytes, cores_of(mask) };
}

/* --- one thing at a time -------------------------------------------------- */

static bool rests(enum pn_share_policy policy, const struct pn_member *members,
		  unsigned n, unsigned me)
{
	return pn_share_decide(policy, members, n, me).idle;
}

static void with_a_core_for_each_all_helpers_act(void **state)
{
	struct pn_member m[] = { member(1, 5, 0xf), member(2, 9, 0xf) };

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		assert_false(rests(PN_SHARE_AUTO, m, 2, i));
		assert_false(rests(PN_SHARE_CONSERVATIVE, m, 2, i));
		assert_int_equal(
			pn_share_decide(PN_SHARE_AGGRESSIVE, m, 2, i).nhelpers,
			1);
	}
}

static void the_largest_registrants_keep_their_helpers(void **state)
{
	struct pn_member m[] = { member(1, 5, 0x1f), member(2, 9, 0x1f),
				 member(3, 7, 0x1f) };

	(void)state;
	assert_true(rests(PN_SHARE_CONSERVATIVE, m, 3, 0));
	assert_false(rests(PN_SHARE_CONSERVATIVE, m, 3, 1));
	assert_false(rests(PN_SHARE_AUTO, m, 3, 2));
}

/* In whatever order the members are read, the same one is chosen. */
static void equal_members_choose_the_same_one(void **state)
{
	struct pn_member m[] = { member(8, 5, 0x7), member(4, 5, 0x7) };
	struct pn_member twins[] = { member(8, 5, 0x3), member(8, 5, 0x3) };

	(void)state;
	assert_true(rests(PN_SHARE_CONSERVATIVE, m, 2, 0));
	assert_false(rests(PN_SHARE_CONSERVATIVE, m, 2, 1));
	m[0] = member(4, 5, 0x7);
	m[1] = member(8, 5, 0x7);
	assert_false(rests(PN_SHARE_CONSERVATIVE, m, 2, 0));
	assert_true(rests(PN_SHARE_CONSERVATIVE, m, 2, 1));
	/* Two helpers of one process: by their index. */
	assert_false(rests(PN_SHARE_CONSERVATIVE, twins, 2, 0));
	assert_true(rests(PN_SHARE_CONSERVATIVE, twins, 2, 1));
}

static void helpers_take_turns_aggressively(void **state)
{
	struct pn_member m[6];

	(void)state;
	/* The paper's example: six tasks on eight cores. */
	for (unsigned i = 0; i < 6; i++)
		m[i] = member(i + 1, i, 0xff);
	for (unsigned i = 0; i < 6; i++) {
		struct pn_share share =
			pn_share_decide(PN_SHARE_AGGRESSIVE, m, 6, i);

		assert_false(share.idle);
		assert_int_equal(share.nhelpers, 3);
	}
}

static void without_an_idle_core_only_policy_own_acts(void **state)
{
	struct pn_member m[] = { member(1, 5, 0x3), member(2, 9, 0x3) };

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		assert_true(rests(PN_SHARE_AUTO, m, 2, i));
		assert_true(rests(PN_SHARE_CONSERVATIVE, m, 2, i));
		assert_true(rests(PN_SHARE_AGGRESSIVE, m, 2, i));
		assert_true(rests(PN_SHARE_OFF, m, 2, i));
		assert_false(rests(PN_SHARE_OWN, m, 2, i));
	}
}

static void a_helper_does_not_leave_its_process_binding(void **state)
{
	/* Cores 2 and 3 are idle, but the first may run on core 0 alone. */
	struct pn_member m[] = { member(1, 9, 0x1), member(2, 5, 0xe) };

	(void)state;
	assert_true(rests(PN_SHARE_AUTO, m, 2, 0));
	assert_true(rests(PN_SHARE_AGGRESSIVE, m, 2, 0));
	assert_false(rests(PN_SHARE_AUTO, m, 2, 1));
}

static void a_member_moves_to_make_room_for_a_bound_one(void **state)
{
	/* The first could have core 0, which the second needs. */
	struct pn_member m[] = { member(1, 9, 0x7), member(2, 5, 0x3) };

	(void)state;
	assert_false(rests(PN_SHARE_AUTO, m, 2, 0));
	m[0] = member(1, 9, 0xf);
	assert_false(rests(PN_SHARE_AUTO, m, 2, 0));
	assert_false(rests(PN_SHARE_AUTO, m, 2, 1));
}

static void two_helpers_of_a_process_are_beside_one_program(void **state)
{
	struct pn_member m[] = { member(1, 9, 0x7), member(1, 5, 0x7) };

	(void)state;
	assert_false(rests(PN_SHARE_AUTO, m, 2, 0));
	assert_false(rests(PN_SHARE_AUTO, m, 2, 1));
}

static void all_members_of_a_large_machine_are_assigned(void **state)
{
	static struct pn_member m[PN_SHARE_MAX];
	struct pn_cores all;

	(void)state;
	memset(&all, 0xff, sizeof(all));
	assert_int_equal(pn_cores_count(&all), PN_CORES_MAX);
	for (unsigned i = 0; i < PN_SHARE_MAX; i++)
		m[i] = (struct pn_member){ i + 1, i, all };
	for (unsigned i = 0; i < PN_SHARE_MAX; i++)
		assert_false(rests(PN_SHARE_AUTO, m, PN_SHARE_MAX, i));
	/* 300 cores: 44 are left, for the largest. */
	memset(&all, 0, sizeof(all));
	for (unsigned i = 0; i < 300; i++)
		pn_cores_add(&all, i);
	for (unsigned i = 0; i < PN_SHARE_MAX; i++)
		m[i].cores = all;
	for (unsigned i = 0; i < PN_SHARE_MAX; i++)
		assert_int_equal(rests(PN_SHARE_AUTO, m, PN_SHARE_MAX, i),
				 i < PN_SHARE_MAX - 44);
}

/* --- against an exhaustive search ----------------------------------------- */

#define MAX_MEMBERS 4
#define CORES	    7

/* Whether each task of a list can have a core of its own. */
static bool fits(const uint64_t *masks, unsigned n, uint64_t taken)
{
	if (!n)
		return true;
	for (unsigned core = 0; core < CORES; core++) {
		uint64_t bit = UINT64_C(1) << core;

		if (masks[0] & ~taken & bit &&
		    fits(masks + 1, n - 1, taken | bit))
			return true;
	}
	return false;
}

/* Adds a task if all can have a core then. */
static bool add_task(uint64_t *assigned, unsigned *n, uint64_t mask)
{
	assigned[*n] = mask;
	if (!fits(assigned, *n + 1, 0))
		return false;
	++*n;
	return true;
}

/* Which helpers act, a bit for each. All have different bytes. */
static unsigned model(const struct pn_member *m, unsigned n)
{
	uint64_t assigned[2 * MAX_MEMBERS];
	unsigned nassigned = 0, acting = 0, served = 0;

	for (unsigned i = 0; i < n; i++)
		add_task(assigned, &nassigned, m[i].cores.word[0]);
	for (unsigned k = 0; k < n; k++) {
		unsigned best = n;

		for (unsigned i = 0; i < n; i++)
			if (!(served >> i & 1) &&
			    (best == n || m[i].bytes > m[best].bytes))
				best = i;
		served |= 1u << best;
		if (add_task(assigned, &nassigned, m[best].cores.word[0]))
			acting |= 1u << best;
	}
	return acting;
}

static void assignments_equal_an_exhaustive_search(void **state)
{
	uint64_t random = test_seed();

	(void)state;
	for (unsigned round = 0; round < 2000; round++) {
		unsigned n = 1 + (unsigned)test_below(&random, MAX_MEMBERS);
		struct pn_member m[MAX_MEMBERS];
		unsigned acting = 0;

		for (unsigned i = 0; i < n; i++)
			m[i] = member(i + 1,
				      test_below(&random, 1000) * MAX_MEMBERS +
					      i,
				      test_random(&random) >> 20 &
					      ((1u << CORES) - 1));
		for (unsigned i = 0; i < n; i++)
			acting |=
				(unsigned)!rests(PN_SHARE_CONSERVATIVE, m, n, i)
				<< i;
		assert_int_equal(acting, model(m, n));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(with_a_core_for_each_all_helpers_act),
		TEST(the_largest_registrants_keep_their_helpers),
		TEST(equal_members_choose_the_same_one),
		TEST(helpers_take_turns_aggressively),
		TEST(without_an_idle_core_only_policy_own_acts),
		TEST(a_helper_does_not_leave_its_process_binding),
		TEST(a_member_moves_to_make_room_for_a_bound_one),
		TEST(two_helpers_of_a_process_are_beside_one_program),
		TEST(all_members_of_a_large_machine_are_assigned),
		TEST(assignments_equal_an_exhaustive_search),
	};

	return RUN_TESTS(tests);
}
