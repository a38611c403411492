/* SPDX-License-Identifier: BSD-2-Clause */
/* The helper in virtual time: one task transfers, another is the helper. */
#include "device/sim_world.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "cache/cache.h"
#include "device/measure.h"
#include "helper/frames.h"
#include "helper/helper.h"

#define MIB	 ((size_t)1 << 20)
#define BYTES	 (4 * MIB)
#define MS(n)	 ((uint64_t)(n)*PN_NS_PER_MS)
#define NBUFFERS 64

/* Registering 4 MiB costs 0.27 ms, deregistering 0.07 ms (cx5). */
struct program {
	struct pn_sim *sim;
	struct pn_device *device;
	struct pn_budget budget;
	struct pn_cache *cache; /* of the first rail */
	struct pn_helper *helper;
	struct pn_helper_attr attr;
	void (*main)(struct program *program);
	const char *script; /* of the simulation; or NULL */
	char *buffer;
	uint64_t waited_ns; /* what pinning took, in all */
	uint64_t first_ns;  /* ... at first, where that matters */
	unsigned misses;    /* transfers that had to register */
	unsigned nrefused;  /* pins that were refused */
	struct pinion_helper_stats stats;
};

static size_t registered(struct program *p)
{
	struct pn_pinned pinned;
	size_t bytes = 0;

	for (unsigned r = 0; r < p->attr.nrails; r++) {
		pn_device_pinned(p->attr.rails[r].device, &pinned);
		bytes += pinned.live_bytes;
	}
	return bytes;
}

/* A transfer of 1 ms, of which each rail has a share. A script may refuse to
 * register. */
static void transfer(struct program *p, unsigned buffer)
{
	size_t share = BYTES / p->attr.nrails;
	char *addr = p->buffer + buffer * BYTES;
	uint64_t start = pn_device_now(p->device);
	struct pinion_pin pins[PN_RAILS_MAX];
	struct pn_call call = { .copied = false };
	bool pinned[PN_RAILS_MAX];

	pn_helper_post(p->helper, &call, 1, addr, BYTES);
	for (unsigned r = 0; r < p->attr.nrails; r++) {
		int ret = pn_cache_pin(p->attr.rails[r].cache, addr + r * share,
				       share, PINION_ACCESS_REMOTE_WRITE,
				       &pins[r]);

		pinned[r] = !ret;
		p->nrefused += !pinned[r];
		CHECK(pinned[r] || p->script);
	}
	p->misses += pn_device_now(p->device) != start;
	p->waited_ns += pn_device_now(p->device) - start;
	pn_device_consume_cpu(p->device, MS(1));
	for (unsigned r = 0; r < p->attr.nrails; r++)
		if (pinned[r])
			pn_cache_unpin(p->attr.rails[r].cache, &pins[r]);
	pn_helper_done(p->helper, &call);
}

static void compute(struct program *p, uint64_t ns)
{
	pn_device_consume_cpu(p->device, ns);
}

static void help(void *arg)
{
	struct program *p = arg;

	pn_helper_run(p->helper);
}

static void open_rail(struct program *p, unsigned rail)
{
	struct pn_cache_attr cache = { .device = pn_sim_rail(p->sim, 0, rail),
				       .budget = &p->budget,
				       .no_merge = true,
				       .no_monitor = true,
				       .no_worker = true };

	CHECK(!pn_device_measure(cache.device, NULL));
	if (rail)
		pn_budget_add(&p->budget, cache.device);
	p->attr.rails[rail].device = cache.device;
	CHECK(!pn_cache_open(&cache, &p->attr.rails[rail].cache));
}

static void close_rails(struct program *p)
{
	for (unsigned r = 0; r < p->attr.nrails; r++) {
		pn_cache_check(p->attr.rails[r].cache);
		pn_cache_close(p->attr.rails[r].cache);
	}
}

static void run_main(void *arg)
{
	struct program *p = arg;

	pn_budget_init(&p->budget, p->device, (size_t)4 << 30, 0, 1);
	p->attr.nrails = pn_sim_nrails(p->sim);
	for (unsigned r = 0; r < p->attr.nrails; r++)
		open_rail(p, r);
	p->cache = p->attr.rails[0].cache;
	CHECK(!pn_helper_open(&p->attr, &p->helper));
	CHECK(!pn_sim_spawn(p->sim, 0, help, p));
	p->buffer = pn_sim_reserve(p->sim, NBUFFERS * BYTES);
	p->main(p);
	pn_helper_query(p->helper, &p->stats);
	pn_helper_stop(p->helper);
	pn_sim_sleep(p->sim, MS(1)); /* it sees that, wherever it is */
	pn_helper_close(p->helper);
	close_rails(p);
	CHECK(!registered(p));
}

static struct program run_script(const char *spec, const char *script,
				 void (*main)(struct program *program),
				 const struct pn_helper_attr *attr)
{
	struct program p = {
		.sim = open_world(spec, script),
		.main = main,
		.script = script,
	};

	if (attr)
		p.attr = *attr;
	p.device = pn_sim_device(p.sim, 0);
	assert_ok(pn_sim_spawn(p.sim, 0, run_main, &p));
	run_world(p.sim);
	pn_sim_close(p.sim);
	return p;
}

static struct program run_on(const char *spec,
			     void (*main)(struct program *program),
			     const struct pn_helper_attr *attr)
{
	return run_script(spec, NULL, main, attr);
}

static struct program run(void (*main)(struct program *program),
			  const struct pn_helper_attr *attr)
{
	return run_on("cores=2,cost=cx5,data=none", main, attr);
}

/* --- regular calls -------------------------------------------------------- */

static void use_once(struct program *p)
{
	transfer(p, 0);
	CHECK(registered(p) == BYTES);
	compute(p, MS(1));
	CHECK(!registered(p));
	compute(p, MS(1000));
	CHECK(!registered(p));
}

static void a_buffer_used_once_is_deregistered(void **state)
{
	struct program p = run(use_once, NULL);

	(void)state;
	assert_int_equal(p.stats.calls, 1);
	assert_int_equal(p.stats.first, 1);
	assert_int_equal(p.stats.deregistered, 1);
	assert_int_equal(p.stats.registered, 0);
}

static void use_regularly(struct program *p)
{
	for (unsigned i = 0; i < 20; i++) {
		transfer(p, 0);
		compute(p, MS(1));
		CHECK(!registered(p));
		compute(p, MS(97));
		CHECK(!registered(p));
		compute(p, MS(2));
		CHECK(registered(p) == (i ? BYTES : 0));
	}
}

static void check_regular(struct program p)
{
	/* The first call registers, and the second: one use is no period. */
	assert_int_equal(p.misses, 2);
	assert_int_equal(p.stats.calls, 20);
	assert_int_equal(p.stats.late, 1);
	assert_int_equal(p.stats.in_time, 18);
	assert_int_equal(p.stats.deregistered, 20);
	assert_int_equal(p.stats.registered, 19);
	assert_int_equal(p.stats.buffers, 1);
}

static void a_regular_buffer_is_registered_in_time(void **state)
{
	(void)state;
	check_regular(run(use_regularly, NULL));
	check_regular(
		run(use_regularly,
		    &(struct pn_helper_attr){ .predictor = PN_PREDICT_SHORTEST,
					      .window = 0 }));
}

static void all_rails_of_a_regular_buffer_are_registered_in_time(void **state)
{
	(void)state;
	check_regular(run_on("cores=2,rails=2,cost=cx5,data=none",
			     use_regularly, NULL));
	check_regular(run_on("cores=2,rails=4,cost=cx5,data=none",
			     use_regularly, NULL));
}

/* Registered on every rail or on none, as the deadline comes; unless the
 * program itself used one rail alone. */
static void use_wholly(struct program *p)
{
	for (unsigned i = 0; i < 4; i++) {
		transfer(p, 0);
		compute(p, MS(98));
		CHECK(!registered(p));
		compute(p, MS(2));
		CHECK(p->nrefused || !registered(p) || registered(p) == BYTES);
	}
}

/* Whichever registration is refused: some are the helper's, on either rail. */
static void a_buffer_that_one_rail_refuses_is_registered_on_none(void **state)
{
	char script[80];
	unsigned nrefused = 0;

	(void)state;
	for (unsigned n = 1; n <= 40; n++) {
		struct program p;

		snprintf(script, sizeof(script),
			 "fail registration %u with EFAULT", n);
		p = run_script("cores=2,rails=2,cost=cx5,data=none", script,
			       use_wholly, NULL);
		nrefused += p.stats.refused > 0;
	}
	/* Of three prefetches on two rails. */
	assert_int_equal(nrefused, 6);
}

static void use_quickly(struct program *p)
{
	for (unsigned i = 0; i < 20; i++) {
		transfer(p, 0);
		compute(p, 100 * PN_NS_PER_US);
		CHECK(i < 2 || registered(p) == BYTES);
	}
}

static void a_buffer_used_again_soon_stays_registered(void **state)
{
	struct program p = run(use_quickly, NULL);

	(void)state;
	assert_int_equal(p.stats.deregistered, 1);
	assert_int_equal(p.stats.kept, 19);
	assert_int_equal(p.misses, 2);
}

static void use_and_end(struct program *p)
{
	for (unsigned i = 0; i < 20; i++) {
		transfer(p, 0);
		compute(p, MS(99));
	}
	compute(p, MS(100));
	CHECK(registered(p) == BYTES);
	compute(p, MS(400));
	CHECK(!registered(p));
}

static void a_lease_ends_when_no_call_comes(void **state)
{
	struct program p = run(use_and_end, NULL);

	(void)state;
	assert_int_equal(p.stats.expired, 1);
}

/* Sixteen buffers in one phase, each a millisecond after the other. */
static void use_many(struct program *p)
{
	for (unsigned i = 0; i < 10; i++) {
		for (unsigned b = 0; b < 16; b++)
			transfer(p, b);
		compute(p, MS(10));
		CHECK(!registered(p));
		compute(p, MS(500));
	}
}

static void a_phase_of_many_buffers_is_ready_in_time(void **state)
{
	struct program p = run(use_many, NULL);

	(void)state;
	assert_int_equal(p.misses, 2 * 16);
	assert_int_equal(p.stats.late, 16);
	/* The last round ends before most jobs of the next are due. */
	assert_int_equal(p.stats.registered, 8 * 16 + 1);
}

static void all_at_once(struct program *p)
{
	for (unsigned i = 0; i < 10; i++) {
		struct pinion_pin pins[16];
		struct pn_call calls[16] = { 0 };

		for (unsigned b = 0; b < 16; b++) {
			char *addr = p->buffer + b * BYTES;
			uint64_t start = pn_device_now(p->device);

			pn_helper_post(p->helper, &calls[b], 1, addr, BYTES);
			CHECK(!pn_cache_pin(p->cache, addr, BYTES, 0,
					    &pins[b]));
			p->misses += pn_device_now(p->device) != start;
		}
		compute(p, MS(5));
		for (unsigned b = 0; b < 16; b++) {
			pn_cache_unpin(p->cache, &pins[b]);
			pn_helper_done(p->helper, &calls[b]);
		}
		compute(p, MS(500));
	}
}

/* Eight buffers, all posted before the first is needed. Twice: the second time
 * their sites are known, and no call is predicted. */
static void post_then_pin(struct program *p)
{
	for (unsigned i = 0; i < 2; i++) {
		struct pinion_pin pins[8];
		struct pn_call calls[8] = { 0 };
		uint64_t start = pn_device_now(p->device);

		for (unsigned b = 0; b < 8; b++)
			pn_helper_post(p->helper, &calls[b], PN_CALL_SEND,
				       p->buffer + b * BYTES, BYTES);
		for (unsigned b = 0; b < 8; b++)
			CHECK(!pn_cache_pin(p->cache, p->buffer + b * BYTES,
					    BYTES, 0, &pins[b]));
		p->waited_ns = pn_device_now(p->device) - start;
		if (!i)
			p->first_ns = p->waited_ns;
		for (unsigned b = 0; b < 8; b++) {
			pn_cache_unpin(p->cache, &pins[b]);
			pn_helper_done(p->helper, &calls[b]);
		}
		compute(p, MS(100 - 50 * i));
		CHECK(!registered(p));
	}
}

static void helper_and_program_register_posted_buffers(void **state)
{
	struct program p = run(post_then_pin, NULL);

	(void)state;
	assert_in_range(p.first_ns, 8 * 260 * 1000, 8 * 290 * 1000);
	assert_in_range(p.waited_ns, p.first_ns * 4 / 10, p.first_ns * 7 / 10);
	assert_int_equal(p.stats.late, 8);
	assert_int_equal(p.stats.registered, 0);
}

/* All have the same deadline, and each registration takes 0.27 ms. When the
 * first is not late any more the others come sooner than ever, once. */
static void deadlines_that_coincide_are_all_met(void **state)
{
	struct program p = run(all_at_once, NULL);

	(void)state;
	assert_in_range(p.misses, 2 * 16, 3 * 16);
	assert_int_equal(p.stats.late, p.misses - 16);
}

/* --- what it must not touch ----------------------------------------------- */

static void hold_while_another_ends(struct program *p)
{
	struct pinion_pin pin;

	CHECK(!pn_cache_pin(p->cache, p->buffer, BYTES,
			    PINION_ACCESS_REMOTE_WRITE, &pin));
	transfer(p, 0);
	compute(p, MS(10));
	CHECK(registered(p) >= BYTES);
	pn_cache_unpin(p->cache, &pin);
}

static void a_region_in_use_is_not_touched(void **state)
{
	struct program p = run(hold_while_another_ends, NULL);

	(void)state;
	assert_int_equal(p.stats.in_use, 1);
	assert_int_equal(p.stats.deregistered, 0);
}

static void use_a_little(struct program *p)
{
	struct pn_call call = { .copied = false };

	pn_helper_post(p->helper, &call, 1, p->buffer, 16 * 1024 - 1);
	pn_helper_done(p->helper, &call);
	pn_helper_post(p->helper, &call, 1, p->buffer, 16 * 1024);
	pn_helper_done(p->helper, &call);
	pn_helper_post(NULL, &call, 1, p->buffer, 16 * 1024);
	pn_helper_done(NULL, &call);
	compute(p, MS(1));
}

static void transfers_below_the_threshold_are_ignored(void **state)
{
	struct program p = run(use_a_little, NULL);

	(void)state;
	assert_int_equal(p.stats.calls, 1);
	assert_int_equal(p.stats.deregistered, 0); /* nothing was there */
}

/* Each gap is much shorter than any before: every prediction is late. */
static void use_ever_sooner(struct program *p)
{
	for (uint64_t gap = MS(1 << 20); gap > MS(2); gap /= 2) {
		transfer(p, 0);
		compute(p, gap);
	}
}

static void irregular_sites_are_left_to_the_cache(void **state)
{
	struct program p = run(use_ever_sooner, NULL);

	(void)state;
	assert_true(p.stats.irregular > 5);
	assert_int_equal(p.stats.late + p.stats.in_time + 1, p.stats.calls);
	/* From then on no call is late: the region stays. */
	assert_int_equal(p.misses, p.stats.late + 1);
	assert_in_range(p.misses, 7, 10);
}

static void rest_after_a_while(struct program *p)
{
	use_regularly(p);
	pn_helper_set_idle(p->helper, true);
	p->misses = 0;
	transfer(p, 0);
	compute(p, MS(99));
	CHECK(registered(p) == BYTES);
}

static void an_idle_helper_leaves_buffers_to_the_cache(void **state)
{
	(void)state;
	assert_int_equal(run(rest_after_a_while, NULL).misses, 0);
}

/* --- what the message layer copies ---------------------------------------- */

/* A transfer of 1 ms that uses no registration. */
static void copy(struct program *p, unsigned buffer)
{
	struct pn_call call = { .copied = false };

	pn_helper_post(p->helper, &call, 1, p->buffer + buffer * BYTES, BYTES);
	pn_device_consume_cpu(p->device, MS(1));
	call.copied = true;
	pn_helper_done(p->helper, &call);
}

static void register_then_copy(struct program *p)
{
	for (unsigned i = 0; i < 10; i++) {
		transfer(p, 0);
		compute(p, MS(99));
	}
	/* Its buffer is registered ahead of eight transfers more. */
	for (unsigned i = 0; i < 18; i++) {
		copy(p, 0);
		compute(p, MS(1));
		CHECK(!registered(p));
		compute(p, MS(98));
		CHECK(registered(p) == (i < 7 ? BYTES : 0));
	}
}

static void what_is_copied_is_not_registered_ahead(void **state)
{
	struct program p = run(register_then_copy, NULL);

	(void)state;
	assert_int_equal(p.stats.calls, 28);
	assert_int_equal(p.stats.copied, 18);
	assert_int_equal(p.stats.registered, 9 + 7);
	assert_int_equal(p.stats.late, 1);
}

/* A transfer that happens to use no registration does not end the life of the
 * buffer: the next one finds it registered. */
static void copy_now_and_then(struct program *p)
{
	for (unsigned i = 0; i < 30; i++) {
		if (i % 3 == 2)
			copy(p, 0);
		else
			transfer(p, 0);
		compute(p, MS(99));
	}
}

static void a_buffer_that_is_copied_now_and_then_is_registered_in_time(
	void **state)
{
	struct program p = run(copy_now_and_then, NULL);

	(void)state;
	assert_int_equal(p.stats.copied, 10);
	assert_int_equal(p.misses, 2);
	assert_int_equal(p.stats.late, 1);
}

/* --- what the helper may cost --------------------------------------------- */

static uint64_t ended_ns;

/* Gaps of 2 to 130 ms that nobody can foretell, over four buffers. */
static void use_at_random(struct program *p)
{
	uint64_t x = 1;

	for (unsigned i = 0; i < 400; i++) {
		x = x * UINT64_C(6364136223846793005) + 1442695040888963407;
		transfer(p, (unsigned)(x >> 60) % 4);
		compute(p, MS(2 + (x >> 40) % 128));
	}
	ended_ns = pn_device_now(p->device);
}

/* Two gaps in turn, the shorter when the longer was learned. */
static void use_in_bursts(struct program *p)
{
	for (unsigned i = 0; i < 400; i++) {
		for (unsigned b = 0; b < 8; b++)
			transfer(p, b);
		compute(p, MS(i / 20 % 2 ? 3 : 60));
	}
	ended_ns = pn_device_now(p->device);
}

/* Each buffer twice, then never again. */
static void use_twice(struct program *p)
{
	for (unsigned i = 0; i < NBUFFERS; i++) {
		transfer(p, i);
		compute(p, MS(5));
		transfer(p, i);
		compute(p, MS(5));
	}
	ended_ns = pn_device_now(p->device);
}

/* Nothing but registering buffers that do not come back: each is forgotten by
 * the time its address does. What the helper leaves alone in the second half is
 * what it has learned to fear. */
#define NONCE 6000

static uint64_t aside_late;

static void use_once_each(struct program *p)
{
	struct pinion_helper_stats half, all;

	for (unsigned i = 0; i < NONCE; i++) {
		char *addr = p->buffer + i % NBUFFERS * BYTES;
		struct pn_call call = { .copied = false };
		struct pinion_pin pin;

		if (i == NONCE / 2)
			pn_helper_query(p->helper, &half);
		pn_helper_post(p->helper, &call, 1, addr, BYTES);
		CHECK(!pn_cache_pin(p->cache, addr, BYTES,
				    PINION_ACCESS_REMOTE_WRITE, &pin));
		pn_cache_unpin(p->cache, &pin);
		pn_helper_done(p->helper, &call);
		compute(p, PN_NS_PER_US);
	}
	pn_helper_query(p->helper, &all);
	aside_late = all.aside - half.aside;
}

static void forgotten_buffers_are_no_risk(void **state)
{
	struct pn_helper_attr attr = { .loss_percent = 1, .max_buffers = 8 };
	struct pinion_helper_stats stats = run(use_once_each, &attr).stats;

	(void)state;
	printf("%llu aside, %llu of them in the second half\n",
	       (unsigned long long)stats.aside, (unsigned long long)aside_late);
	assert_true(stats.deregistered > NONCE / 2);
	assert_int_equal(aside_late, 0);
}

/* The time that a stream takes, with the helper or with an idle one. */
static uint64_t time_of(void (*stream)(struct program *program), bool helped,
			struct pinion_helper_stats *stats)
{
	/* Nothing is below the threshold but all. */
	struct pn_helper_attr attr = { .loss_percent = 1,
				       .threshold = helped ? 0 : SIZE_MAX };

	*stats = run(stream, &attr).stats;
	return ended_ns;
}

static void a_helper_costs_at_most_two_percent(void **state)
{
	static void (*const streams[])(struct program * program) = {
		use_at_random, use_in_bursts, use_twice
	};
	struct pinion_helper_stats stats;

	(void)state;
	for (size_t i = 0; i < PN_ARRAY_LEN(streams); i++) {
		uint64_t off = time_of(streams[i], false, &stats);
		uint64_t on = time_of(streams[i], true, &stats);

		printf("stream %zu: %.3f %% above, %llu late, %llu aside\n", i,
		       100.0 * ((double)on / (double)off - 1),
		       (unsigned long long)stats.late,
		       (unsigned long long)stats.aside);
		assert_true(stats.aside > 0);
		assert_true(on - off <= off / 50);
	}
}

/* --- being scheduled ------------------------------------------------------ */

/* The helper gets the only core a slice of 4 ms after it wants it. */
static void use_the_only_core(struct program *p)
{
	for (unsigned i = 0; i < 20; i++) {
		transfer(p, 0);
		compute(p, MS(40));
	}
	for (unsigned i = 0; i < 20; i++) {
		transfer(p, 1);
		compute(p, MS(2));
	}
}

static void deadlines_closer_than_being_scheduled_are_not_attempted(
	void **state)
{
	struct program p = run_on("cores=1,slice=4ms,cost=cx5,data=none",
				  use_the_only_core, NULL);

	(void)state;
	printf("wake %llu ns, %llu kept, %llu late, %llu in time\n",
	       (unsigned long long)p.stats.wake_ns,
	       (unsigned long long)p.stats.kept,
	       (unsigned long long)p.stats.late,
	       (unsigned long long)p.stats.in_time);
	assert_true(p.stats.wake_ns > 0);
	assert_true(p.stats.kept > 10);
}

/* --- sharing a core ------------------------------------------------------- */

static void use_with_neighbours(struct program *p)
{
	/* A turn comes within 3 * (4 ms + a switch). */
	pn_helper_share_core(p->helper, 3, MS(4));
	for (unsigned i = 0; i < 10; i++) {
		transfer(p, 0);
		compute(p, MS(10));
	}
	for (unsigned i = 0; i < 10; i++) {
		transfer(p, 1);
		compute(p, MS(20));
	}
}

static void buffers_used_before_the_helpers_turn_stay_registered(void **state)
{
	struct program p = run(use_with_neighbours, NULL);

	(void)state;
	assert_int_equal(p.stats.kept, 9);
	assert_int_equal(p.stats.deregistered, 1 + 10 + 0);
}

/* --- sharing cores with other helpers ------------------------------------- */

static char segment[64]; /* where members meet, children too */

/* With so many cores. */
static struct pn_helper_registry *join_registry(unsigned ncores)
{
	struct pn_helper_registry *registry = NULL;
	struct pn_cores cores = { 0 };

	for (unsigned i = 0; i < ncores; i++)
		pn_cores_add(&cores, i);
	CHECK(!pn_helper_registry_join(segment, &cores, &registry));
	return registry;
}

/* How many of 10 regular transfers, 100 ms apart, were deregistered. */
static uint64_t drops_of_ten(struct program *p)
{
	struct pinion_helper_stats before, after;

	pn_helper_query(p->helper, &before);
	for (unsigned i = 0; i < 10; i++) {
		transfer(p, 0);
		compute(p, MS(100));
	}
	pn_helper_query(p->helper, &after);
	return after.deregistered - before.deregistered;
}

/* Two cores: one for the program, one for a helper. The other member, of the
 * same process, publishes more memory, then less, then leaves. */
static void agree_about_one_core(struct program *p)
{
	struct pn_helper_registry *other = join_registry(2);

	pn_helper_registry_publish(other, BYTES + 1);
	pn_helper_join_registry(p->helper, join_registry(2), PN_SHARE_AUTO);
	CHECK(drops_of_ten(p) == 0);
	pn_helper_query(p->helper, &p->stats);
	CHECK(p->stats.idle && p->stats.members == 2);
	pn_helper_registry_publish(other, BYTES - 1);
	compute(p, MS(300)); /* it asks again at the next transfer */
	CHECK(drops_of_ten(p) == 10);
	pn_helper_registry_publish(other, BYTES + 1);
	compute(p, MS(300));
	CHECK(drops_of_ten(p) == 0);
	pn_helper_registry_leave(other);
	compute(p, MS(300));
	CHECK(drops_of_ten(p) == 10);
}

static int name_segment(void **state)
{
	(void)state;
	snprintf(segment, sizeof(segment), "/pinion-test-%d", (int)getpid());
	return 0;
}

static int forget_segment(void **state)
{
	(void)state;
	return shm_unlink(segment);
}

static void the_helper_with_more_memory_gets_the_core(void **state)
{
	struct program p = run(agree_about_one_core, NULL);

	(void)state;
	assert_int_equal(p.stats.idle, 0);
	assert_int_equal(p.stats.members, 1);
}

/* A process with more memory is killed: this helper gets the core. */
static void outlive_another(struct program *p)
{
	int ends[2], status;
	char byte;
	pid_t pid;

	CHECK(!pipe(ends));
	pid = fork();
	if (!pid) {
		pn_helper_registry_publish(join_registry(3), 2 * BYTES);
		if (write(ends[1], "x", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	CHECK(read(ends[0], &byte, 1) == 1);
	pn_helper_join_registry(p->helper, join_registry(3),
				PN_SHARE_CONSERVATIVE);
	CHECK(drops_of_ten(p) == 0);
	CHECK(!kill(pid, SIGKILL));
	CHECK(waitpid(pid, &status, 0) == pid);
	close(ends[0]);
	close(ends[1]);
	compute(p, MS(300));
	CHECK(drops_of_ten(p) == 10);
}

static void the_core_of_a_killed_process_is_taken(void **state)
{
	assert_int_equal(run(outlive_another, NULL).stats.members, 1);
	(void)state;
}

static void agree_to_take_turns(struct program *p)
{
	struct pn_helper_registry *others[2] = { join_registry(2),
						 join_registry(2) };

	pn_helper_join_registry(p->helper, join_registry(2),
				PN_SHARE_AGGRESSIVE);
	/* Three helpers on one core: a turn comes within 12 ms and switches. */
	for (unsigned i = 0; i < 10; i++) {
		transfer(p, 0);
		compute(p, MS(10));
	}
	pn_helper_registry_leave(others[0]);
	pn_helper_registry_leave(others[1]);
}

static void helpers_on_one_core_know_their_number(void **state)
{
	struct program p = run(agree_to_take_turns, NULL);

	(void)state;
	assert_int_equal(p.stats.idle, 0);
	assert_int_equal(p.stats.members, 3);
	assert_int_equal(p.stats.kept, 9);
}

/* --- sleeping and names --------------------------------------------------- */

static uint64_t steps_of_idling;

static void idle(struct program *p)
{
	uint64_t before;

	transfer(p, 0);
	compute(p, MS(10));
	before = pn_sim_steps(p->sim);
	compute(p, MS(1000000));
	steps_of_idling = pn_sim_steps(p->sim) - before;
}

static void a_helper_without_work_sleeps(void **state)
{
	(void)state;
	run(idle, NULL);
	assert_in_range(steps_of_idling, 1, 4);
}

/* The same buffer from two call sites alternately, after 20 and 80 ms. */
static void use_by_name(struct program *p)
{
	for (unsigned i = 0; i < 30; i++) {
		pn_frames_set_name(i % 2 ? "halo x" : "halo y");
		transfer(p, 0);
		compute(p, i % 2 ? MS(80) : MS(20));
		CHECK(i < 4 || registered(p) == BYTES);
	}
	pn_frames_set_name(NULL);
}

static void named_sites_have_periods_of_their_own(void **state)
{
	struct program p = run(use_by_name, NULL);

	(void)state;
	assert_int_equal(p.stats.sites, 2);
	assert_in_range(p.misses, 2, 4);
}

#define TEST_MET(name) \
	cmocka_unit_test_setup_teardown(name, name_segment, forget_segment)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST_MET(the_helper_with_more_memory_gets_the_core),
		TEST_MET(the_core_of_a_killed_process_is_taken),
		TEST_MET(helpers_on_one_core_know_their_number),
		TEST(a_buffer_used_once_is_deregistered),
		TEST(a_regular_buffer_is_registered_in_time),
		TEST(all_rails_of_a_regular_buffer_are_registered_in_time),
		TEST(a_buffer_that_one_rail_refuses_is_registered_on_none),
		TEST(a_buffer_used_again_soon_stays_registered),
		TEST(a_lease_ends_when_no_call_comes),
		TEST(a_phase_of_many_buffers_is_ready_in_time),
		TEST(deadlines_that_coincide_are_all_met),
		TEST(helper_and_program_register_posted_buffers),
		TEST(a_region_in_use_is_not_touched),
		TEST(transfers_below_the_threshold_are_ignored),
		TEST(irregular_sites_are_left_to_the_cache),
		TEST(an_idle_helper_leaves_buffers_to_the_cache),
		TEST(what_is_copied_is_not_registered_ahead),
		TEST(a_buffer_that_is_copied_now_and_then_is_registered_in_time),
		TEST(a_helper_costs_at_most_two_percent),
		TEST(forgotten_buffers_are_no_risk),
		TEST(deadlines_closer_than_being_scheduled_are_not_attempted),
		TEST(buffers_used_before_the_helpers_turn_stay_registered),
		TEST(a_helper_without_work_sleeps),
		TEST(named_sites_have_periods_of_their_own),
	};

	return RUN_TESTS(tests);
}
