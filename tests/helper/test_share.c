/* SPDX-License-Identifier: BSD-2-Clause */
/* Who gets the idle cores, against trying everything. */
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
	return pn_share_decide(policy, members, n, me).rest;
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

/* In whatever order the members are read, one is chosen and the same one. */
static void of_equals_all_choose_the_same(void **state)
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
	/* Two helpers of one process: by their place. */
	assert_false(rests(PN_SHARE_CONSERVATIVE, twins, 2, 0));
	assert_true(rests(PN_SHARE_CONSERVATIVE, twins, 2, 1));
}

static void helpers_take_turns_aggressively(void **state)
{
	struct pn_member m[6];

	(void)state;
	/* The paper's: six tasks on eight cores. */
	for (unsigned i = 0; i < 6; i++)
		m[i] = member(i + 1, i, 0xff);
	for (unsigned i = 0; i < 6; i++) {
		struct pn_share share =
			pn_share_decide(PN_SHARE_AGGRESSIVE, m, 6, i);

		assert_false(share.rest);
		assert_int_equal(share.nhelpers, 3);
	}
}

static void without_an_idle_core_nobody_helps_but_whoever_insists(void **state)
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
	/* Core 2 and 3 are idle, but the first may run on core 0 alone. */
	struct pn_member m[] = { member(1, 9, 0x1), member(2, 5, 0xe) };

	(void)state;
	assert_true(rests(PN_SHARE_AUTO, m, 2, 0));
	assert_true(rests(PN_SHARE_AGGRESSIVE, m, 2, 0));
	assert_false(rests(PN_SHARE_AUTO, m, 2, 1));
}

static void whoever_can_move_makes_room_for_the_bound(void **state)
{
	/* The first could sit on core 0, where the second has to. */
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

static void a_full_house_on_a_large_machine_is_seated(void **state)
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

/* --- against trying everything -------------------------------------------- */

#define MOST  4
#define CORES 7

/* Whether each guest of a list can have a core of its own. */
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

/* Takes a guest in if there is a way to seat all. */
static bool admit(uint64_t *seated, unsigned *n, uint64_t mask)
{
	seated[*n] = mask;
	if (!fits(seated, *n + 1, 0))
		return false;
	++*n;
	return true;
}

/* Which helpers act: a bit for each. Bytes are all different. */
static unsigned model(const struct pn_member *m, unsigned n)
{
	uint64_t seated[2 * MOST];
	unsigned nseated = 0, acting = 0, served = 0;

	for (unsigned i = 0; i < n; i++)
		admit(seated, &nseated, m[i].cores.word[0]);
	for (unsigned k = 0; k < n; k++) {
		unsigned best = n;

		for (unsigned i = 0; i < n; i++)
			if (!(served >> i & 1) &&
			    (best == n || m[i].bytes > m[best].bytes))
				best = i;
		served |= 1u << best;
		if (admit(seated, &nseated, m[best].cores.word[0]))
			acting |= 1u << best;
	}
	return acting;
}

static void seats_are_given_as_by_trying_everything(void **state)
{
	uint64_t random = test_seed();

	(void)state;
	for (unsigned round = 0; round < 2000; round++) {
		unsigned n = 1 + (unsigned)test_below(&random, MOST);
		struct pn_member m[MOST];
		unsigned acting = 0;

		for (unsigned i = 0; i < n; i++)
			m[i] = member(i + 1,
				      test_below(&random, 1000) * MOST + i,
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
		TEST(of_equals_all_choose_the_same),
		TEST(helpers_take_turns_aggressively),
		TEST(without_an_idle_core_nobody_helps_but_whoever_insists),
		TEST(a_helper_does_not_leave_its_process_binding),
		TEST(whoever_can_move_makes_room_for_the_bound),
		TEST(two_helpers_of_a_process_are_beside_one_program),
		TEST(a_full_house_on_a_large_machine_is_seated),
		TEST(seats_are_given_as_by_trying_everything),
	};

	return RUN_TESTS(tests);
}
