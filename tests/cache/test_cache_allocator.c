/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Blocks of whatever malloc() is in force, pinned, freed and allocated again on
 * `soft`: every put reaches the block of today. Runs with libc's allocator and
 * with others preloaded, which give memory back in ways of their own. A second
 * thread stirs the allocator meanwhile.
 */
#include "test.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

#include "cache/cache.h"
#include "monitor/monitor.h"
#include "mover.h"

#define NBLOCKS 24
#define ROUNDS	3000
#define LONGEST ((size_t)1 << 20)
#define EXPOSED (PINION_ACCESS_REMOTE_WRITE | PINION_ACCESS_LOCAL_WRITE)

static size_t some_length(uint64_t *random)
{
	size_t most = (size_t)1 << (4 + test_below(random, 17));

	return 1 + test_below(random, most < LONGEST ? most : LONGEST);
}

static _Atomic bool stop;

static void *stir(void *arg)
{
	uint64_t random = *(uint64_t *)arg;
	void *blocks[NBLOCKS] = { NULL };

	while (!stop) {
		unsigned i = (unsigned)test_below(&random, NBLOCKS);
		size_t len = some_length(&random);

		free(blocks[i]);
		blocks[i] = malloc(len);
		if (blocks[i])
			memset(blocks[i], 1, len);
	}
	for (unsigned i = 0; i < NBLOCKS; i++)
		free(blocks[i]);
	return NULL;
}

/* Pins a block twice, so that the second time it is cached; a peer puts. */
static int use(struct pn_cache *cache, struct mover *mover, void *block,
	       size_t len)
{
	struct pinion_pin pin;
	int ret = 0;

	for (unsigned i = 0; i < 2 && !ret; i++) {
		ret = pn_cache_pin(cache, block, len, EXPOSED, &pin);
		if (ret)
			break;
		ret = mover_put(mover, &pin);
		pn_cache_unpin(cache, &pin);
	}
	return ret;
}

static void churn(struct pn_cache *cache, struct mover *mover, uint64_t random)
{
	void *blocks[NBLOCKS] = { NULL };

	for (unsigned round = 0; round < ROUNDS; round++) {
		unsigned i = (unsigned)test_below(&random, NBLOCKS);
		size_t len = some_length(&random);

		blocks[i] = realloc(blocks[i], len);
		assert_non_null(blocks[i]);
		assert_ok(use(cache, mover, blocks[i], len));
		if (test_below(&random, 2)) {
			free(blocks[i]);
			blocks[i] = NULL;
		}
	}
	for (unsigned i = 0; i < NBLOCKS; i++)
		free(blocks[i]);
}

static void blocks_are_pinned_freed_and_pinned_again(void **state)
{
	struct pn_device *device;
	struct pn_budget budget;
	struct pn_cache_attr attr = { .budget = &budget };
	struct pn_cache *cache;
	struct mover mover;
	uint64_t seed = test_seed();
	pthread_t thread;

	(void)state;
	assert_ok(pn_device_open("soft", NULL, &device));
	assert_ok(mover_open(&mover, device, LONGEST));
	pn_budget_init(&budget, device, (size_t)16 << 20, 0, 1);
	attr.device = device;
	assert_ok(pn_cache_open(&attr, &cache));
	print_message("monitor: %s\n", pn_monitor_mode_name(pn_monitor_mode()));
	assert_true(pn_monitor_mode() != PN_MONITOR_NONE);
	assert_ok(pthread_create(&thread, NULL, stir, &seed));
	churn(cache, &mover, seed + 1);
	stop = true;
	assert_ok(pthread_join(thread, NULL));
	pn_cache_check(cache);
	pn_cache_close(cache);
	mover_close(&mover);
	pn_device_close(device);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(blocks_are_pinned_freed_and_pinned_again),
	};

	return RUN_TESTS(tests);
}
