/* SPDX-License-Identifier: BSD-2-Clause */
/* What a program pinned through a registrar can be replayed: the same hits and
 * misses, regions and merges. */
#include "test.h"

#include <unistd.h>

#include "base/range.h"
#include "device/profiles.h"
#include "ledger.h"
#include "tools/trace/replay.h"
#include "trace/record.h"
#include "trace/trace_file.h"

#define PAGE  LEDGER_PAGE
#define STEPS 3000
#define HELD  6

static const unsigned accesses[] = {
	PINION_ACCESS_LOCAL_WRITE,
	PINION_ACCESS_LOCAL_WRITE | PINION_ACCESS_REMOTE_WRITE,
	PINION_ACCESS_REMOTE_READ,
	0,
};

/* One of some buffers, small ones among them. */
static void pin_some(struct ledger *ledger, struct pinion_context *context,
		     uint64_t *seed, struct pinion_pin *pin)
{
	unsigned access = accesses[test_below(seed, PN_ARRAY_LEN(accesses))];
	size_t i = test_below(seed, 40);
	char *addr = ledger->area + 700 * i;
	size_t len = 700;

	if (test_below(seed, 2)) {
		addr = ledger->area + (16 + 3 * i) * PAGE + 10 * i;
		len = (1 + i % 7) * PAGE;
	}
	assert_ok(pinion_pin(context, addr, len, access, pin));
	assert_null(ledger_use(ledger, pin, access));
}

static void play(struct ledger *ledger, struct pinion_context *context)
{
	struct pinion_pin held[HELD] = { { 0 } };
	uint64_t seed = test_seed();

	for (unsigned step = 0; step < STEPS; step++) {
		struct pinion_pin *pin = &held[test_below(&seed, HELD)];

		if (pin->nsegments)
			pinion_unpin(context, pin);
		else
			pin_some(ledger, context, &seed, pin);
		if (!test_below(&seed, 20))
			ledger_remap(ledger,
				     ledger->area +
					     test_below(&seed, 100) * PAGE,
				     2 * PAGE);
	}
	for (unsigned i = 0; i < HELD; i++)
		if (held[i].nsegments)
			pinion_unpin(context, &held[i]);
}

static void a_run_over_a_registrar_is_replayed_exactly(void **state)
{
	struct pinion_cache_stats stats = { .size = sizeof(stats) };
	struct pn_replay_result result;
	struct pn_replay_attr attr;
	struct pinion_context *context;
	struct pn_why why = { "" };
	struct pn_workload workload;
	struct ledger ledger;

	(void)state;
	assert_ok(pn_record_start(trace_path("run"), 64 << 20));
	ledger_init(&ledger);
	assert_ok(ledger_open(&ledger, NULL, &context));
	play(&ledger, context);
	assert_ok(pinion_cache_query(context, &stats));
	ledger_close(&ledger, context);
	assert_int_equal(ledger.wrong, 0);
	ledger_fini(&ledger);
	pn_record_stop();
	assert_ok(pn_workload_init(&workload));
	assert_ok(pn_workload_read(&workload, trace_path("run"), 0, &why));
	assert_true(workload.one_segment);
	attr = (struct pn_replay_attr){
		.policy = workload.policy,
		.max_bytes = workload.max_bytes,
		.max_regions = workload.max_regions,
		.max_region_bytes = workload.max_region_bytes,
		.batch = workload.batch,
		.profile = pn_profile_find("ou2009"),
	};
	assert_ok(pn_replay(&workload, &attr, &result));
	assert_true(stats.hits > STEPS / 20);
	assert_int_equal(result.hits, stats.hits);
	assert_int_equal(result.misses, stats.misses);
	assert_int_equal(result.registrations, stats.registrations);
	assert_int_equal(result.merges, stats.merges);
	pn_workload_fini(&workload);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_run_over_a_registrar_is_replayed_exactly),
	};

	return RUN_TESTS(tests);
}
