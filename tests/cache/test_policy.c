/* SPDX-License-Identifier: BSD-2-Clause */
#include "test.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>

#include "cache/policy/policy.h"
#include "cache/policy_model.h"

/* Powers of two, as are all sizes in the random tests: then sums of earnings
 * are exact, and equal priorities are equal in the model too. */
static const struct pn_policy_attr plain = {
	.capacity_pages = 1024,
	.batch = 4,
	.register_fixed = 16,
	.register_page = 0.5,
	.deregister_fixed = 4,
	.deregister_page = 0.25,
};

#define NODES 16

/* Spread over all 32 bits, as the cache's are. */
static uint32_t name_of(unsigned id)
{
	return (id + 1) * UINT32_C(2654435761);
}

/* A policy and a few nodes, known by their number. */
struct bed {
	struct pn_policy *policy;
	const struct pn_policy_ops *ops;
	struct pn_policy_node nodes[NODES];
	bool busy[NODES];
	unsigned asked[NODES]; /* how often busy() was asked about it */
	unsigned victims[NODES];
	unsigned nvictims;
};

static void bed_open(struct bed *bed, const char *name,
		     const struct pn_policy_attr *attr)
{
	memset(bed, 0, sizeof(*bed));
	assert_ok(pn_policy_open(name, attr, &bed->policy));
	bed->ops = bed->policy->ops;
}

static void bed_close(struct bed *bed)
{
	bed->ops->check(bed->policy);
	pn_policy_close(bed->policy);
}

static void insert(struct bed *bed, unsigned id, uint32_t npages)
{
	bed->nodes[id].npages = npages;
	pn_policy_insert(bed->policy, &bed->nodes[id]);
	bed->ops->check(bed->policy);
}

static void use(struct bed *bed, unsigned id)
{
	pn_policy_use(bed->policy, &bed->nodes[id]);
	bed->ops->check(bed->policy);
}

static bool is_busy(void *arg, const struct pn_policy_node *node)
{
	struct bed *bed = arg;

	bed->asked[node - bed->nodes]++;
	return bed->busy[node - bed->nodes];
}

static unsigned evict(struct bed *bed, size_t npages, unsigned nregions)
{
	struct pn_policy_want want = { npages, nregions, is_busy, bed };
	struct pn_list victims, *pos;
	unsigned n;

	pn_list_init(&victims);
	memset(bed->asked, 0, sizeof(bed->asked));
	n = bed->ops->evict(bed->policy, &want, &victims);
	bed->ops->check(bed->policy);
	bed->nvictims = 0;
	pn_list_for_each (pos, &victims) {
		struct pn_policy_node *node =
			pn_container_of(pos, struct pn_policy_node, link);

		bed->victims[bed->nvictims++] = (unsigned)(node - bed->nodes);
	}
	assert_int_equal(n, bed->nvictims);
	return n;
}

static void assert_victims(const struct bed *bed, const unsigned *ids, size_t n)
{
	assert_int_equal(bed->nvictims, n);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(bed->victims[i], ids[i]);
}

#define EXPECT(bed, ...)                                       \
	assert_victims(bed, (const unsigned[]){ __VA_ARGS__ }, \
		       sizeof((unsigned[]){ __VA_ARGS__ }) / sizeof(unsigned))

/* --- all policies --------------------------------------------------------- */

static void unknown_policy_is_refused(void **state)
{
	struct pn_policy *policy = NULL;

	(void)state;
	assert_int_equal(pn_policy_open("mru", &plain, &policy), -ENOENT);
	assert_int_equal(pn_policy_open("", &plain, &policy), -ENOENT);
	assert_int_equal(pn_policy_open("lru2", &plain, &policy), -ENOENT);
	assert_null(policy);
	pn_policy_close(NULL);
}

static void every_listed_policy_opens_by_its_name(void **state)
{
	unsigned n = 0;

	(void)state;
	for (; pn_policy_at(n); n++) {
		struct bed bed;

		bed_open(&bed, pn_policy_at(n)->name, &plain);
		assert_ptr_equal(bed.ops, pn_policy_at(n));
		assert_true(strlen(bed.ops->help) > 0);
		bed_close(&bed);
	}
	assert_int_equal(n, 6);
}

static void only_lru_deregisters_one_by_one(void **state)
{
	(void)state;
	for (unsigned i = 0; pn_policy_at(i); i++)
		assert_int_equal(pn_policy_at(i)->batched,
				 pn_policy_at(i) != &pn_policy_lru);
}

static void nothing_wanted_takes_nothing(void **state)
{
	(void)state;
	for (unsigned i = 0; pn_policy_at(i); i++) {
		struct bed bed;

		bed_open(&bed, pn_policy_at(i)->name, &plain);
		assert_int_equal(evict(&bed, 1, 1), 0);
		for (unsigned id = 0; id < NODES; id++)
			insert(&bed, id, 1);
		assert_int_equal(evict(&bed, 0, 0), 0);
		bed_close(&bed);
	}
}

static void wants_are_met_in_pages_and_in_regions(void **state)
{
	(void)state;
	for (unsigned i = 0; pn_policy_at(i); i++) {
		struct bed bed;
		size_t npages = 0;

		bed_open(&bed, pn_policy_at(i)->name, &plain);
		for (unsigned id = 0; id < NODES; id++)
			insert(&bed, id, 1 + id % 3);
		assert_true(evict(&bed, 9, 1) >= 3);
		for (unsigned v = 0; v < bed.nvictims; v++)
			npages += bed.nodes[bed.victims[v]].npages;
		assert_true(npages >= 9);
		assert_true(evict(&bed, 1, 5) >= 5);
		bed_close(&bed);
	}
}

static void wanting_too_much_takes_all_but_the_busy(void **state)
{
	(void)state;
	for (unsigned i = 0; pn_policy_at(i); i++) {
		struct bed bed;

		bed_open(&bed, pn_policy_at(i)->name, &plain);
		for (unsigned id = 0; id < NODES; id++) {
			insert(&bed, id, 1 + id);
			bed.busy[id] = id % 4 == 0;
		}
		assert_int_equal(evict(&bed, SIZE_MAX, 0), NODES * 3 / 4);
		for (unsigned v = 0; v < bed.nvictims; v++)
			assert_false(bed.busy[bed.victims[v]]);
		assert_int_equal(evict(&bed, 0, UINT32_MAX), 0);
		memset(bed.busy, 0, sizeof(bed.busy));
		assert_int_equal(evict(&bed, 1, NODES), NODES / 4);
		bed_close(&bed);
	}
}

static void busy_is_asked_once_and_its_no_is_final(void **state)
{
	(void)state;
	for (unsigned i = 0; pn_policy_at(i); i++) {
		struct bed bed;
		unsigned idle = 0;

		bed_open(&bed, pn_policy_at(i)->name, &plain);
		for (unsigned id = 0; id < NODES; id++) {
			insert(&bed, id, 1 + id % 5);
			bed.busy[id] = id % 3 != 2;
		}
		evict(&bed, 0, 3);
		for (unsigned id = 0; id < NODES; id++) {
			assert_true(bed.asked[id] <= 1);
			idle += bed.asked[id] && !bed.busy[id];
		}
		assert_int_equal(idle, bed.nvictims);
		bed_close(&bed);
	}
}

static void removed_node_is_no_victim(void **state)
{
	(void)state;
	for (unsigned i = 0; pn_policy_at(i); i++) {
		struct bed bed;

		bed_open(&bed, pn_policy_at(i)->name, &plain);
		insert(&bed, 0, 1);
		insert(&bed, 1, 1);
		bed.ops->remove(bed.policy, &bed.nodes[0]);
		bed.ops->check(bed.policy);
		assert_int_equal(evict(&bed, 2, 2), 1);
		EXPECT(&bed, 1);
		bed_close(&bed);
	}
}

static void victim_may_come_back_as_new(void **state)
{
	(void)state;
	for (unsigned i = 0; pn_policy_at(i); i++) {
		struct bed bed;

		bed_open(&bed, pn_policy_at(i)->name, &plain);
		insert(&bed, 0, 2);
		insert(&bed, 1, 2);
		use(&bed, 0);
		evict(&bed, 4, 2);
		insert(&bed, 0, 2);
		insert(&bed, 1, 2);
		assert_int_equal(evict(&bed, 4, 2), 2);
		if (bed.ops == &pn_policy_keep)
			EXPECT(&bed, 1, 0); /* the newer is on trial */
		else
			EXPECT(&bed, 0, 1);
		bed_close(&bed);
	}
}

/* --- lru, fmrd ------------------------------------------------------------ */

static void lru_takes_what_was_used_longest_ago(void **state)
{
	struct bed bed;

	(void)state;
	bed_open(&bed, "lru", &plain);
	for (unsigned id = 0; id < 4; id++)
		insert(&bed, id, 1 + id);
	use(&bed, 0);
	use(&bed, 2);
	use(&bed, 2);
	evict(&bed, 1, 0);
	EXPECT(&bed, 1);
	evict(&bed, 4, 2);
	EXPECT(&bed, 3, 0);
	bed_close(&bed);
}

static void busy_lru_region_keeps_its_place(void **state)
{
	struct bed bed;

	(void)state;
	bed_open(&bed, "lru", &plain);
	for (unsigned id = 0; id < 3; id++)
		insert(&bed, id, 1);
	bed.busy[0] = true;
	evict(&bed, 1, 1);
	EXPECT(&bed, 1);
	bed.busy[0] = false;
	evict(&bed, 1, 1);
	EXPECT(&bed, 0);
	bed_close(&bed);
}

static void fmrd_takes_a_batch_or_what_is_wanted(void **state)
{
	struct bed bed;

	(void)state;
	bed_open(&bed, "fmrd", &plain);
	for (unsigned id = 0; id < NODES; id++)
		insert(&bed, id, 1);
	use(&bed, 1);
	evict(&bed, 1, 0);
	EXPECT(&bed, 0, 2, 3, 4);
	evict(&bed, 6, 0);
	EXPECT(&bed, 5, 6, 7, 8, 9, 10);
	bed_close(&bed);
}

/* --- mre ------------------------------------------------------------------ */

/* The paper: "MRE prefers to replace large regions first". */
static void mre_takes_large_old_regions_first(void **state)
{
	struct bed bed;

	(void)state;
	bed_open(&bed, "mre", &plain);
	insert(&bed, 0, 1);
	insert(&bed, 1, 8);
	insert(&bed, 2, 4);
	insert(&bed, 3, 12);
	/* 3 is the largest, but among the frequent half. */
	evict(&bed, 1, 1);
	EXPECT(&bed, 1);
	/* Now it sinks, but is younger than 2 by what r has grown. */
	evict(&bed, 1, 1);
	EXPECT(&bed, 2);
	evict(&bed, 1, 1);
	EXPECT(&bed, 3);
	bed_close(&bed);
}

/* "accessed again and sent to the top of the stack, in which case the eviction
 * factor is set to zero again" */
static void mre_use_sends_a_region_to_the_top_with_factor_zero(void **state)
{
	struct bed bed;

	(void)state;
	bed_open(&bed, "mre", &plain);
	for (unsigned id = 0; id < 8; id++)
		insert(&bed, id, 2);
	evict(&bed, 1, 1);
	EXPECT(&bed, 0);
	assert_true(bed.nodes[1].factor == 0.5);
	use(&bed, 1);
	assert_true(bed.nodes[1].factor == 0);
	evict(&bed, 1, 1);
	EXPECT(&bed, 2);
	assert_true(bed.nodes[1].factor == 0);
	assert_int_equal(evict(&bed, 0, 8), 6);
	assert_int_equal(bed.victims[5], 1);
	bed_close(&bed);
}

/* "The eviction factor of a memory region is not renewed unless it is zero" */
static void mre_factor_stays_while_r_grows(void **state)
{
	struct bed bed;

	(void)state;
	bed_open(&bed, "mre", &plain);
	insert(&bed, 0, 2);
	insert(&bed, 1, 4);
	insert(&bed, 2, 2);
	insert(&bed, 3, 8);
	evict(&bed, 1, 1);
	EXPECT(&bed, 1);
	assert_true(bed.nodes[0].factor == 1.0 / 2);
	insert(&bed, 4, 8);
	insert(&bed, 5, 8);
	/* Full: r becomes 1/2, the factor at the bottom; 3 sinks. */
	evict(&bed, 1, 1);
	EXPECT(&bed, 0);
	assert_true(bed.nodes[2].factor == 1.0 / 2);
	assert_true(bed.nodes[3].factor == 1.0 / 2 + 1.0 / 8);
	bed_close(&bed);
}

/* Otherwise small regions would stay for ever. */
static void mre_lets_a_small_region_go_in_the_end(void **state)
{
	struct bed bed;
	unsigned rounds = 0;

	(void)state;
	bed_open(&bed, "mre", &plain);
	insert(&bed, 0, 1);
	for (unsigned id = 1; id < 8; id++)
		insert(&bed, id, 4);
	for (;; rounds++) {
		assert_true(rounds < 100);
		evict(&bed, 1, 1);
		if (bed.victims[0] == 0)
			break;
		insert(&bed, bed.victims[0], 4);
	}
	assert_true(rounds > 8);
	bed_close(&bed);
}

static void mre_takes_its_eviction_segment_in_one_batch(void **state)
{
	struct bed bed;

	(void)state;
	bed_open(&bed, "mre", &plain);
	for (unsigned id = 0; id < 8; id++)
		insert(&bed, id, 1);
	insert(&bed, 8, 32);
	insert(&bed, 9, 40);
	/* 80 pages: a segment of 5, but 4 regions at most; 8 has sunk and is
	 * largest. */
	evict(&bed, 0, 1);
	EXPECT(&bed, 8);
	evict(&bed, 0, 1);
	EXPECT(&bed, 0, 1, 2);
	bed_close(&bed);
}

/* --- greedy --------------------------------------------------------------- */

static void greedy_keeps_what_earns_most_per_page(void **state)
{
	struct bed bed;

	(void)state;
	bed_open(&bed, "greedy", &plain);
	insert(&bed, 0, 1);
	insert(&bed, 1, 64);
	insert(&bed, 2, 8);
	use(&bed, 0);
	use(&bed, 1);
	evict(&bed, 1, 1);
	EXPECT(&bed, 1);
	bed_close(&bed);
}

static void greedy_counts_a_place_per_region_when_only_regions_count(
	void **state)
{
	struct pn_policy_attr attr = plain;
	struct bed bed;

	(void)state;
	attr.capacity_pages = SIZE_MAX;
	bed_open(&bed, "greedy", &attr);
	insert(&bed, 0, 64);
	insert(&bed, 1, 1);
	use(&bed, 0);
	use(&bed, 1);
	evict(&bed, 0, 1);
	EXPECT(&bed, 1);
	bed_close(&bed);
}

static void greedy_without_costs_is_lru(void **state)
{
	struct pn_policy_attr attr = { .capacity_pages = 64, .batch = 1 };
	struct bed bed;

	(void)state;
	bed_open(&bed, "greedy", &attr);
	for (unsigned id = 0; id < 4; id++)
		insert(&bed, id, 1 + 3 * id);
	use(&bed, 0);
	evict(&bed, 1, 1);
	EXPECT(&bed, 1);
	evict(&bed, 1, 3);
	EXPECT(&bed, 2, 3, 0);
	bed_close(&bed);
}

/* Fifty uses long ago do not outweigh a turn of the cache. */
static void greedy_forgets_old_uses(void **state)
{
	struct bed bed;
	unsigned rounds = 0;

	(void)state;
	bed_open(&bed, "greedy", &plain);
	for (unsigned id = 0; id < 8; id++)
		insert(&bed, id, 4);
	for (unsigned i = 0; i < 50; i++)
		use(&bed, 0);
	for (;; rounds++) {
		assert_true(rounds < 8 * 4 + 4);
		evict(&bed, 1, 1);
		if (bed.victims[0] == 0)
			break;
		for (unsigned v = 0; v < bed.nvictims; v++)
			insert(&bed, bed.victims[v], 4);
	}
	assert_true(rounds > 8);
	bed_close(&bed);
}

/* Batches shrink when what goes early is missed. */
static void greedy_takes_batches_only_while_hits_are_rare(void **state)
{
	struct bed bed;

	(void)state;
	bed_open(&bed, "greedy", &plain);
	for (unsigned id = 0; id < NODES; id++)
		insert(&bed, id, 1);
	assert_int_equal(evict(&bed, 1, 1), 4);
	for (unsigned v = 0; v < 4; v++)
		insert(&bed, bed.victims[v], 1);
	for (unsigned i = 0; i < 100 * NODES; i++)
		use(&bed, i % NODES);
	assert_int_equal(evict(&bed, 1, 1), 1);
	bed_close(&bed);
}

/* --- keep ----------------------------------------------------------------- */

static void keep_evicts_what_is_new_and_unused(void **state)
{
	struct pn_policy_attr attr = plain;
	struct bed bed;

	(void)state;
	attr.batch = 1;
	bed_open(&bed, "keep", &attr);
	for (unsigned id = 0; id < 4; id++)
		insert(&bed, id, 1);
	evict(&bed, 1, 1); /* full: from now on there are trials */
	EXPECT(&bed, 0);
	insert(&bed, 4, 1);
	insert(&bed, 5, 1);
	use(&bed, 4);
	evict(&bed, 1, 1);
	EXPECT(&bed, 5);
	evict(&bed, 1, 1);
	EXPECT(&bed, 1);
	bed_close(&bed);
}

/* One in sixteen evictions spares the newest and takes from the rest. */
static void keep_follows_in_the_end(void **state)
{
	struct pn_policy_attr attr = plain;
	struct bed bed;
	unsigned old = 0;

	(void)state;
	attr.batch = 1;
	bed_open(&bed, "keep", &attr);
	for (unsigned id = 0; id < 8; id++)
		insert(&bed, id, 1);
	for (unsigned i = 0; i < 16 * 8 + 16; i++) {
		evict(&bed, 1, 1);
		old += bed.victims[0] < 8;
		/* A place among the others: it is not one of the first. */
		insert(&bed,
		       bed.victims[0] < 8 ? bed.victims[0] + 8 : bed.victims[0],
		       1);
	}
	assert_int_equal(old, 8);
	bed_close(&bed);
}

/* --- memory --------------------------------------------------------------- */

void *__real_reallocarray(void *ptr, size_t n, size_t size);
void *__wrap_reallocarray(void *ptr, size_t n, size_t size);

static bool no_memory;
static unsigned nrefused;

/* The linker puts this in front of the C library's (--wrap). */
void *__wrap_reallocarray(void *ptr, size_t n, size_t size)
{
	if (!no_memory)
		return __real_reallocarray(ptr, n, size);
	nrefused++;
	return NULL;
}

static void without_memory_policies_still_evict(void **state)
{
	(void)state;
	nrefused = 0;
	for (unsigned i = 0; pn_policy_at(i); i++) {
		struct bed bed;
		unsigned gone;

		no_memory = true;
		bed_open(&bed, pn_policy_at(i)->name, &plain);
		for (unsigned id = 0; id < 8; id++)
			insert(&bed, id, 2);
		use(&bed, 3);
		gone = evict(&bed, 4, 1);
		assert_in_range(gone, 2, 4);
		bed.ops->remove(bed.policy, &bed.nodes[7]);
		no_memory = false;
		for (unsigned id = 8; id < NODES; id++)
			insert(&bed, id, 2);
		assert_int_equal(evict(&bed, 0, NODES), NODES - 1 - gone);
		bed_close(&bed);
	}
	assert_true(nrefused >= 2); /* those with a heap */
}

#define MILLION 1000000u

static size_t take_all(struct pn_policy *policy)
{
	struct pn_policy_want want = { .nregions = 1 };
	struct pn_list victims, *pos;
	size_t sum = 0, taken;

	do {
		pn_list_init(&victims);
		taken = policy->ops->evict(policy, &want, &victims);
		sum += taken;
		pn_list_for_each (pos, &victims)
			taken--;
		assert_int_equal(taken, 0);
	} while (!pn_list_empty(&victims));
	return sum;
}

static void a_million_regions_come_and_go(void **state)
{
	struct pn_policy_node *nodes = calloc(MILLION, sizeof(*nodes));
	struct pn_policy_attr attr = plain;
	uint64_t random = 1;

	(void)state;
	assert_non_null(nodes);
	attr.batch = 64;
	for (unsigned i = 0; pn_policy_at(i); i++) {
		struct pn_policy *policy;

		assert_ok(
			pn_policy_open(pn_policy_at(i)->name, &attr, &policy));
		for (unsigned id = 0; id < MILLION; id++) {
			nodes[id].npages = 1 + id % 32;
			pn_policy_insert(policy, &nodes[id]);
		}
		for (unsigned n = 0; n < MILLION; n++)
			pn_policy_use(policy,
				      &nodes[test_below(&random, MILLION)]);
		policy->ops->check(policy);
		assert_int_equal(take_all(policy), MILLION);
		policy->ops->check(policy);
		pn_policy_close(policy);
	}
	free(nodes);
}

/* --- against the model ---------------------------------------------------- */

#define STEPS 100000

/* How many steps apart the checkers run, which look at every node. */
#ifdef PINION_CHECK
#define STRIDE 1
#else
#define STRIDE 16
#endif

/* One policy and its model side by side. */
struct duel {
	struct pn_policy *policy;
	struct model model;
	struct pn_policy_node nodes[MODEL_ITEMS];
	bool known[MODEL_ITEMS], busy[MODEL_ITEMS];
	uint64_t random;
};

static bool duel_busy(void *arg, const struct pn_policy_node *node)
{
	struct duel *duel = arg;

	return duel->busy[node - duel->nodes];
}

static void duel_evict(struct duel *duel)
{
	struct pn_policy_want want = {
		.npages = test_below(&duel->random, 40),
		.nregions = (unsigned)test_below(&duel->random, 4),
		.busy = duel_busy,
		.busy_arg = duel,
	};
	unsigned share = (unsigned)test_below(&duel->random, 4);
	struct pn_list victims, *pos;
	unsigned n, at = 0;

	for (unsigned id = 0; id < MODEL_ITEMS; id++)
		duel->busy[id] = test_below(&duel->random, 4) < share;
	pn_list_init(&victims);
	n = duel->policy->ops->evict(duel->policy, &want, &victims);
	assert_int_equal(n, model_evict(&duel->model, want.npages,
					want.nregions, duel->busy));
	pn_list_for_each (pos, &victims) {
		struct pn_policy_node *node =
			pn_container_of(pos, struct pn_policy_node, link);

		assert_true(at < n);
		assert_int_equal(node - duel->nodes, duel->model.victims[at]);
		duel->known[duel->model.victims[at++]] = false;
	}
	assert_int_equal(at, n);
}

static void duel_resize(struct duel *duel)
{
	size_t pages = test_below(&duel->random, 2) ? SIZE_MAX : 512;

	duel->policy->ops->resize(duel->policy, pages);
	duel->model.attr.capacity_pages = pages;
}

/* Uses some known node, or makes an unknown one known. */
static void duel_use(struct duel *duel, unsigned id)
{
	struct pn_policy_node *node = &duel->nodes[id];

	if (duel->known[id]) {
		pn_policy_use(duel->policy, node);
		model_access(&duel->model, id);
		return;
	}
	node->npages = 1u << test_below(&duel->random, 6);
	node->name = name_of(id);
	pn_policy_insert(duel->policy, node);
	model_insert(&duel->model, id, node->npages);
	duel->known[id] = true;
}

static void duel_step(struct duel *duel)
{
	unsigned id = (unsigned)test_below(&duel->random, MODEL_ITEMS);
	uint64_t what = test_below(&duel->random, 1000);

	/* Half of the uses go to a sixteenth of the nodes. */
	if (what % 2)
		id %= MODEL_ITEMS / 16;
	if (what < 50 && duel->known[id]) {
		duel->policy->ops->remove(duel->policy, &duel->nodes[id]);
		model_remove(&duel->model, id);
		duel->known[id] = false;
	} else if (what < 150) {
		duel_evict(duel);
	} else if (what < 152) {
		duel_resize(duel);
	} else {
		duel_use(duel, id);
	}
}

static void matches_its_model(const char *name, unsigned batch)
{
	struct pn_policy_attr attr = plain;
	struct duel *duel = calloc(1, sizeof(*duel));

	assert_non_null(duel);
	duel->random = test_seed();
	attr.batch = batch;
	assert_ok(pn_policy_open(name, &attr, &duel->policy));
	model_init(&duel->model, name, &attr);
	for (unsigned i = 0; i < STEPS; i++) {
		duel_step(duel);
		if (i % STRIDE == 0)
			duel->policy->ops->check(duel->policy);
	}
	pn_policy_close(duel->policy);
	free(duel);
}

static void lru_does_what_its_definition_says(void **state)
{
	(void)state;
	matches_its_model("lru", 8);
}

static void fmrd_does_what_its_definition_says(void **state)
{
	(void)state;
	matches_its_model("fmrd", 8);
}

static void mre_does_what_its_definition_says(void **state)
{
	(void)state;
	matches_its_model("mre", 1);
	matches_its_model("mre", 8);
}

static void greedy_does_what_its_definition_says(void **state)
{
	(void)state;
	matches_its_model("greedy", 1);
	matches_its_model("greedy", 8);
}

/* --- without a model -------------------------------------------------------
 */

/* Whatever the order: victims are known and idle, enough go, none is lost. */
static void hold_evict(struct duel *duel, size_t *nknown)
{
	struct pn_policy_want want = {
		.npages = test_below(&duel->random, 40),
		.nregions = (unsigned)test_below(&duel->random, 4),
		.busy = duel_busy,
		.busy_arg = duel,
	};
	struct pn_list victims, *pos;
	size_t npages = 0;
	unsigned n = 0, idle = 0, taken;

	for (unsigned id = 0; id < MODEL_ITEMS; id++) {
		duel->busy[id] = !test_below(&duel->random, 4);
		idle += duel->known[id] && !duel->busy[id];
	}
	pn_list_init(&victims);
	taken = duel->policy->ops->evict(duel->policy, &want, &victims);
	pn_list_for_each (pos, &victims) {
		struct pn_policy_node *node =
			pn_container_of(pos, struct pn_policy_node, link);
		size_t id = (size_t)(node - duel->nodes);

		assert_true(duel->known[id] && !duel->busy[id]);
		duel->known[id] = false;
		npages += node->npages;
		n++;
	}
	assert_int_equal(n, taken);
	*nknown -= n;
	assert_true(n == idle || (npages >= want.npages && n >= want.nregions));
}

static void count_node(void *arg, struct pn_policy_node *node)
{
	(void)node;
	++*(size_t *)arg;
}

static void holds_what_it_was_given(const char *name)
{
	struct pn_policy_attr attr = plain;
	struct duel *duel = calloc(1, sizeof(*duel));
	size_t nknown = 0, n = 0;

	assert_non_null(duel);
	duel->random = test_seed();
	attr.capacity_pages = 512;
	assert_ok(pn_policy_open(name, &attr, &duel->policy));
	for (unsigned i = 0; i < STEPS; i++) {
		unsigned id = (unsigned)test_below(&duel->random, MODEL_ITEMS);
		struct pn_policy_node *node = &duel->nodes[id];

		if (!test_below(&duel->random, 8)) {
			hold_evict(duel, &nknown);
		} else if (!duel->known[id]) {
			node->npages = 1u << test_below(&duel->random, 6);
			node->name = name_of(id);
			pn_policy_insert(duel->policy, node);
			nknown++;
			duel->known[id] = true;
		} else if (!test_below(&duel->random, 8)) {
			duel->policy->ops->remove(duel->policy, node);
			nknown--;
			duel->known[id] = false;
		} else {
			pn_policy_use(duel->policy, node);
		}
		if (i % STRIDE == 0)
			duel->policy->ops->check(duel->policy);
	}
	duel->policy->ops->each(duel->policy, count_node, &n);
	assert_int_equal(n, nknown);
	pn_policy_close(duel->policy);
	free(duel);
}

static void every_policy_holds_what_it_was_given(void **state)
{
	(void)state;
	for (unsigned i = 0; pn_policy_at(i); i++)
		holds_what_it_was_given(pn_policy_at(i)->name);
}

/* --- a workload ----------------------------------------------------------- */

#define FILES	 4096
#define REQUESTS 200000

/* Files of 1 to 32 pages, each power of two as likely, asked for whole, with a
 * popularity falling as 1/rank that has nothing to do with size: the shape
 * that Ou and others 2009 gives for its HTTPD trace. */
struct web {
	struct pn_policy_node files[FILES];
	bool cached[FILES];
	double chance[FILES]; /* of a file or one before it */
	uint64_t random;
};

struct score {
	unsigned hits;
	double total_us; /* the paper's formula 1 */
};

static void web_init(struct web *web)
{
	double sum = 0;

	memset(web, 0, sizeof(*web));
	web->random = 2009;
	for (unsigned i = 0; i < FILES; i++) {
		web->files[i].npages = 1u << test_below(&web->random, 6);
		web->files[i].name = name_of(i);
		sum += 1.0 / (i + 1);
		web->chance[i] = sum;
	}
}

static unsigned web_next(struct web *web)
{
	double x = (double)(test_random(&web->random) >> 11) * 0x1p-53 *
		   web->chance[FILES - 1];
	unsigned low = 0, high = FILES - 1;

	while (low < high) {
		unsigned middle = (low + high) / 2;

		if (web->chance[middle] < x)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Makes room; returns the pages freed. */
static size_t web_evict(struct web *web, struct pn_policy *policy,
			const struct pn_policy_attr *attr, size_t npages,
			double *total_us)
{
	struct pn_policy_want want = { .npages = npages };
	struct pn_list victims, *pos;
	size_t freed = 0;
	unsigned n;

	pn_list_init(&victims);
	n = policy->ops->evict(policy, &want, &victims);
	*total_us += attr->deregister_fixed * (policy->ops->batched ? 1 : n);
	while ((pos = pn_list_pop(&victims))) {
		struct pn_policy_node *file =
			pn_container_of(pos, struct pn_policy_node, link);

		web->cached[file - web->files] = false;
		freed += file->npages;
		*total_us += attr->deregister_page * file->npages;
	}
	return freed;
}

static struct score web_run(struct web *web, const char *name,
			    const struct pn_policy_attr *attr)
{
	struct score score = { 0, 0 };
	struct pn_policy *policy;
	size_t used = 0;

	web_init(web);
	assert_ok(pn_policy_open(name, attr, &policy));
	for (unsigned i = 0; i < REQUESTS; i++) {
		unsigned id = web_next(web);
		struct pn_policy_node *file = &web->files[id];

		if (web->cached[id]) {
			pn_policy_use(policy, file);
			score.hits++;
			continue;
		}
		used += file->npages;
		if (used > attr->capacity_pages)
			used -= web_evict(web, policy, attr,
					  used - attr->capacity_pages,
					  &score.total_us);
		assert_true(used <= attr->capacity_pages);
		pn_policy_insert(policy, file);
		web->cached[id] = true;
		score.total_us += attr->register_fixed +
				  attr->register_page * file->npages;
	}
	pn_policy_close(policy);
	return score;
}

static void web_compare(struct web *web, size_t capacity_pages)
{
	struct pn_policy_attr attr = {
		capacity_pages, 16, 7.42, 0.77, 1.1, 0.22
	};
	struct score lru = web_run(web, "lru", &attr);

	for (unsigned i = 0; pn_policy_at(i); i++) {
		const char *name = pn_policy_at(i)->name;
		struct score score = web_run(web, name, &attr);

		printf("| %5zu | %-4s | %.3f | %.0f |\n", capacity_pages, name,
		       (double)score.hits / REQUESTS, score.total_us / 1000);
		if (strcmp(name, "lru") && strcmp(name, "fmrd")) {
			assert_true(score.hits > lru.hits);
			assert_true(score.total_us < lru.total_us);
		}
	}
}

static void sizes_matter_where_files_differ_in_size(void **state)
{
	struct web *web = malloc(sizeof(*web));

	(void)state;
	assert_non_null(web);
	printf("| pages | policy | hit ratio | total ms (ou2009) |\n");
	for (size_t pages = 512; pages <= 16384; pages *= 2)
		web_compare(web, pages);
	free(web);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(unknown_policy_is_refused),
		TEST(every_listed_policy_opens_by_its_name),
		TEST(only_lru_deregisters_one_by_one),
		TEST(nothing_wanted_takes_nothing),
		TEST(wants_are_met_in_pages_and_in_regions),
		TEST(wanting_too_much_takes_all_but_the_busy),
		TEST(busy_is_asked_once_and_its_no_is_final),
		TEST(removed_node_is_no_victim),
		TEST(victim_may_come_back_as_new),
		TEST(lru_takes_what_was_used_longest_ago),
		TEST(busy_lru_region_keeps_its_place),
		TEST(fmrd_takes_a_batch_or_what_is_wanted),
		TEST(mre_takes_large_old_regions_first),
		TEST(mre_use_sends_a_region_to_the_top_with_factor_zero),
		TEST(mre_factor_stays_while_r_grows),
		TEST(mre_lets_a_small_region_go_in_the_end),
		TEST(mre_takes_its_eviction_segment_in_one_batch),
		TEST(greedy_keeps_what_earns_most_per_page),
		TEST(greedy_counts_a_place_per_region_when_only_regions_count),
		TEST(greedy_without_costs_is_lru),
		TEST(greedy_forgets_old_uses),
		TEST(greedy_takes_batches_only_while_hits_are_rare),
		TEST(keep_evicts_what_is_new_and_unused),
		TEST(keep_follows_in_the_end),
		TEST(without_memory_policies_still_evict),
		TEST(a_million_regions_come_and_go),
		TEST(lru_does_what_its_definition_says),
		TEST(fmrd_does_what_its_definition_says),
		TEST(mre_does_what_its_definition_says),
		TEST(greedy_does_what_its_definition_says),
		TEST(every_policy_holds_what_it_was_given),
		TEST(sizes_matter_where_files_differ_in_size),
	};

	return RUN_TESTS(tests);
}
