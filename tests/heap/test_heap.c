/* SPDX-License-Identifier: BSD-2-Clause */
/* The heap by its public calls: what is allocated, what is registered for it,
 * what is returned, and what is refused. Runs on each device in turn. */
#include "test.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

#include <pinion/pinion.h>

#include "base/clock.h"
#include "cache/cache_impl.h"
#include "context.h"
#include "heap/heap_impl.h"
#include "mover.h"

#define MIB ((size_t)1 << 20)

static const char *device = "device=soft";

struct fixture {
	struct pinion_context *context;
	struct pinion_heap *heap;
};

static struct pinion_context *open_context(const char *budget)
{
	const char *const options[] = { device, "log=none", budget, NULL };
	const struct pinion_attr attr = { .size = sizeof(attr),
					  .options = options };
	struct pinion_context *context;

	assert_ok(pinion_open(&attr, &context));
	return context;
}

/* For tests that count: on however slow a machine, no slab returns by itself.
 */
static const struct pinion_heap_attr keep = { .size = sizeof(keep),
					      .return_us = PINION_HEAP_KEEP };

static struct fixture open_heap(const char *budget,
				const struct pinion_heap_attr *attr)
{
	struct fixture f = { .context = open_context(budget) };

	assert_ok(pinion_heap_open(f.context, attr, &f.heap));
	return f;
}

static void close_heap(struct fixture *f)
{
	pn_heap_check(f->heap);
	pinion_heap_close(f->heap);
	pinion_cache_flush(f->context);
	assert_int_equal(atomic_load(&f->context->budget.bytes), 0);
	pinion_close(f->context);
}

static struct pinion_heap_stats query(struct pinion_heap *heap)
{
	struct pinion_heap_stats stats = { .size = sizeof(stats) };

	pn_heap_check(heap);
	assert_ok(pinion_heap_query(heap, &stats));
	return stats;
}

static size_t registrations(struct pinion_context *context)
{
	struct pinion_device_info info = { .size = sizeof(info) };

	assert_ok(pinion_device_query(context, &info));
	return info.registrations;
}

/* --- classes -------------------------------------------------------------- */

static void a_class_is_the_smallest_that_is_long_enough(void **state)
{
	(void)state;
	assert_int_equal(pn_heap_class_bytes(PN_HEAP_NCLASSES),
			 PN_HEAP_SMALL_BYTES);
	for (size_t size = 1; size <= PN_HEAP_SMALL_BYTES; size++) {
		unsigned class = pn_heap_class(size);

		assert_in_range(class, 1, PN_HEAP_NCLASSES);
		assert_true(pn_heap_class_bytes(class) >= size);
		assert_true(class == 1 ||
			    pn_heap_class_bytes(class - 1) < size);
		assert_int_equal(pn_heap_class_bytes(class) % 16, 0);
	}
}

/* --- blocks --------------------------------------------------------------- */

static void blocks_of_every_size_hold_what_was_asked_for(void **state)
{
	struct fixture f = open_heap(NULL, &keep);
	char *blocks[64];
	size_t size = 1;

	(void)state;
	for (unsigned i = 0; i < 64; i++, size += size / 3 + 1) {
		blocks[i] = pinion_heap_malloc(f.heap, size);
		assert_non_null(blocks[i]);
		assert_int_equal((uintptr_t)blocks[i] % 16, 0);
		assert_true(pinion_heap_usable_size(f.heap, blocks[i]) >= size);
		memset(blocks[i], (int)i, size);
		if (size > 4 * MIB)
			size = 3;
	}
	size = 1;
	for (unsigned i = 0; i < 64; i++, size += size / 3 + 1) {
		assert_int_equal(blocks[i][0], i);
		assert_int_equal(blocks[i][size - 1], i);
		pinion_heap_free(f.heap, blocks[i]);
		if (size > 4 * MIB)
			size = 3;
	}
	close_heap(&f);
}

static void calloc_clears_memory_that_was_used_before(void **state)
{
	struct fixture f = open_heap(NULL, &keep);
	char *block = pinion_heap_malloc(f.heap, 1000);
	char *again;

	(void)state;
	memset(block, 0xff, 1000);
	pinion_heap_free(f.heap, block);
	again = pinion_heap_calloc(f.heap, 10, 100);
	assert_ptr_equal(again, block);
	for (unsigned i = 0; i < 1000; i++)
		assert_int_equal(again[i], 0);
	close_heap(&f);
}

static void realloc_keeps_contents_and_moves_only_when_it_must(void **state)
{
	struct fixture f = open_heap(NULL, &keep);
	char *block = pinion_heap_realloc(f.heap, NULL, 1000), *longer;

	(void)state;
	memset(block, 7, 1000);
	assert_ptr_equal(pinion_heap_realloc(f.heap, block, 1020), block);
	longer = pinion_heap_realloc(f.heap, block, 3 * MIB);
	assert_non_null(longer);
	for (unsigned i = 0; i < 1000; i++)
		assert_int_equal(longer[i], 7);
	block = pinion_heap_realloc(f.heap, longer, 10);
	assert_non_null(block);
	assert_ptr_not_equal(block, longer);
	assert_int_equal(block[9], 7);
	pinion_heap_free(f.heap, block);
	close_heap(&f);
}

static void aligned_blocks_are_aligned(void **state)
{
	struct fixture f = open_heap(NULL, &keep);

	(void)state;
	for (size_t align = 1; align <= 2 * MIB; align *= 2) {
		for (size_t size = 1; size <= 2 * MIB; size = size * 5 + 3) {
			char *block = pinion_heap_aligned(f.heap, align, size);

			assert_non_null(block);
			assert_int_equal((uintptr_t)block % align, 0);
			assert_true(pinion_heap_usable_size(f.heap, block) >=
				    size);
			memset(block, 1, size);
			pinion_heap_free(f.heap, block);
		}
	}
	close_heap(&f);
}

/* --- registering ---------------------------------------------------------- */

static void a_thousand_blocks_take_one_registration(void **state)
{
	struct fixture f = open_heap(NULL, &keep);
	size_t before = registrations(f.context);

	(void)state;
	for (unsigned i = 0; i < 1000; i++)
		assert_non_null(pinion_heap_malloc(f.heap, 128));
	assert_int_equal(registrations(f.context) - before, 1);
	assert_int_equal(query(f.heap).slab_bytes, MIB);
	assert_int_equal(atomic_load(&f.context->budget.bytes), MIB);
	close_heap(&f);
}

static void reusing_blocks_never_registers(void **state)
{
	struct fixture f = open_heap(NULL, &keep);
	uint64_t before = 0;

	(void)state;
	for (unsigned i = 0; i < 4096; i++) {
		if (i == 2048)
			before = query(f.heap).registrations;
		pinion_heap_free(f.heap, pinion_heap_malloc(f.heap, 3 * MIB));
		pinion_heap_free(f.heap,
				 pinion_heap_malloc(f.heap, 1 + i % 2048 * 32));
	}
	assert_int_equal(query(f.heap).registrations, before);
	close_heap(&f);
}

static void every_block_has_keys_that_work(void **state)
{
	struct fixture f = open_heap(NULL, &keep);
	struct pinion_heap_region region = { .size = sizeof(region) };
	struct mover mover;

	(void)state;
	if (f.context->device->caps & PN_CAP_VIRTUAL_TIME) {
		/* Its operations need a task of the simulated world. */
		close_heap(&f);
		skip();
	}
	assert_ok(mover_open(&mover, f.context->device, 2 * MIB));
	for (size_t size = 16; size <= 2 * MIB; size *= 4) {
		char *block = pinion_heap_malloc(f.heap, size);
		struct pinion_pin_segment part;

		assert_ok(pinion_heap_find(f.heap, block + size - 1, &region));
		assert_true((char *)region.addr <= block);
		assert_true(block + size <= (char *)region.addr + region.len);
		part = (struct pinion_pin_segment){ .addr = block,
						    .len = size,
						    .local_key =
							    region.local_key,
						    .remote_key =
							    region.remote_key };
		for (int way = 0; way < MOVER_NWAYS; way++)
			assert_ok(mover_move(&mover, way, &part));
	}
	mover_close(&mover);
	close_heap(&f);
}

static void the_heap_recognises_its_memory(void **state)
{
	struct fixture f = open_heap(NULL, &keep);
	struct pinion_heap_region region = { .size = sizeof(region) };
	char *small = pinion_heap_malloc(f.heap, 100);
	char *large = pinion_heap_malloc(f.heap, 5 * MIB);
	int here;

	(void)state;
	assert_true(pinion_heap_contains(f.heap, small));
	assert_true(pinion_heap_contains(f.heap, small + 99));
	assert_true(pinion_heap_contains(f.heap, large + 5 * MIB - 1));
	assert_false(pinion_heap_contains(f.heap, &here));
	assert_false(pinion_heap_contains(f.heap, NULL));
	assert_false(pinion_heap_contains(f.heap, (void *)UINTPTR_MAX));
	assert_int_equal(pinion_heap_find(f.heap, &here, &region), -ENOENT);
	pinion_heap_free(f.heap, large);
	assert_false(pinion_heap_contains(f.heap, large));
	close_heap(&f);
}

static void heaps_do_not_share_memory(void **state)
{
	struct fixture f = open_heap(NULL, &keep);
	struct pinion_heap *heaps[100];

	(void)state;
	for (unsigned i = 0; i < 100; i++) {
		const struct pinion_heap_attr attr = { .size = sizeof(attr),
						       .max_bytes = MIB };

		assert_ok(pinion_heap_open(f.context, &attr, &heaps[i]));
	}
	for (unsigned i = 0; i < 6; i++) {
		void *block = pinion_heap_malloc(heaps[i * 7], 1000);

		assert_non_null(block);
		for (unsigned j = 0; j < 100; j++)
			assert_int_equal(pinion_heap_contains(heaps[j], block),
					 j == i * 7);
	}
	for (unsigned i = 0; i < 50; i++)
		pinion_heap_close(heaps[i]);
	close_heap(&f); /* and with the context the others */
}

/* --- pins ----------------------------------------------------------------- */

static void pins_of_heap_memory_use_its_keys(void **state)
{
	struct fixture f = open_heap(NULL, &keep);
	const unsigned access = PINION_ACCESS_REMOTE_WRITE;
	struct pinion_heap_region region = { .size = sizeof(region) };
	struct pinion_cache_stats before = { .size = sizeof(before) };
	struct pinion_cache_stats after = { .size = sizeof(after) };
	char *block = pinion_heap_malloc(f.heap, 40000);
	struct pinion_pin pin;

	(void)state;
	assert_ok(pinion_heap_find(f.heap, block, &region));
	assert_ok(pinion_cache_query(f.context, &before));
	for (unsigned i = 0; i < 200; i++) {
		unsigned bypass = i % 2 ? PINION_PIN_BYPASS : 0;

		assert_ok(pinion_pin(f.context, block + i, 30000,
				     access | bypass, &pin));
		assert_int_equal(pin.nsegments, 1);
		assert_int_equal(pin.local_key, region.local_key);
		assert_int_equal(pin.remote_key, region.remote_key);
		pinion_unpin(f.context, &pin);
	}
	assert_ok(pinion_pin_start(f.context, block, 100, access, &pin));
	assert_int_equal(pin.local_key, region.local_key);
	pinion_unpin(f.context, &pin);
	assert_int_equal(pinion_cache_revoke(f.context, block, 100), -EBUSY);
	/* A release that is announced by mistake. */
	pinion_invalidate(block, 40000);
	assert_ok(pinion_pin(f.context, block, 100, access, &pin));
	assert_int_equal(pin.local_key, region.local_key);
	pinion_unpin(f.context, &pin);
	pinion_cache_flush(f.context);
	assert_ok(pinion_cache_query(f.context, &after));
	assert_int_equal(after.registrations, before.registrations);
	assert_int_equal(after.misses, before.misses);
	assert_int_equal(after.regions, 0);
	pn_cache_check(f.context->cache);
	close_heap(&f);
}

static void the_helper_cannot_drop_heap_memory(void **state)
{
	struct fixture f = open_heap(NULL, &keep);
	char *block = pinion_heap_malloc(f.heap, 2 * MIB);
	struct pinion_heap_region region = { .size = sizeof(region) };
	struct pinion_pin pin;
	struct pn_dropped dropped;

	(void)state;
	assert_ok(pinion_heap_find(f.heap, block, &region));
	assert_int_equal(region.len, 2 * MIB);
	assert_int_equal(pn_cache_drop(f.context->cache, (uintptr_t)block,
				       2 * MIB, &dropped),
			 0);
	assert_ok(pinion_pin(f.context, block, 2 * MIB, 0, &pin));
	assert_int_equal(pin.local_key, region.local_key);
	pinion_unpin(f.context, &pin);
	close_heap(&f);
}

static void pins_with_more_access_are_registered_separately(void **state)
{
	const struct pinion_heap_attr attr = {
		.size = sizeof(attr), .access = PINION_ACCESS_LOCAL_WRITE
	};
	struct fixture f = open_heap(NULL, &attr);
	char *block = pinion_heap_malloc(f.heap, 8192);
	struct pinion_heap_region region = { .size = sizeof(region) };
	struct pinion_pin pin;

	(void)state;
	assert_ok(pinion_heap_find(f.heap, block, &region));
	assert_int_equal(region.remote_key, 0);
	for (unsigned i = 0; i < 3; i++) {
		assert_ok(pinion_pin(f.context, block, 8192,
				     PINION_ACCESS_REMOTE_READ, &pin));
		assert_int_equal(pin.nsegments, 1);
		assert_int_not_equal(pin.remote_key, 0);
		assert_int_not_equal(pin.local_key, region.local_key);
		pinion_unpin(f.context, &pin);
		assert_ok(pinion_pin(f.context, block, 8192, 0, &pin));
		assert_int_equal(pin.local_key, region.local_key);
		pinion_unpin(f.context, &pin);
	}
	close_heap(&f);
}

static void a_slab_in_use_is_deregistered_when_unpinned(void **state)
{
	struct fixture f = open_heap(NULL, &keep);
	size_t before = registrations(f.context);
	char *block = pinion_heap_malloc(f.heap, 2 * MIB);
	uint64_t end = pn_clock_ns() + 60 * PN_NS_PER_S;
	struct pinion_pin pin;

	(void)state;
	assert_ok(pinion_pin(f.context, block, 100, 0, &pin));
	pinion_heap_free(f.heap, block);
	assert_ok(pinion_heap_trim(f.heap));
	assert_int_equal(query(f.heap).slabs, 0);
	assert_int_equal(registrations(f.context) - before, 1);
	pinion_unpin(f.context, &pin);
	while (registrations(f.context) != before && pn_clock_ns() < end)
		usleep(1000);
	assert_int_equal(registrations(f.context), before);
	close_heap(&f);
}

/* --- returning slabs ------------------------------------------------------ */

static void trimming_returns_empty_slabs(void **state)
{
	struct fixture f = open_heap(NULL, &keep);
	size_t before = registrations(f.context);
	void *blocks[300], *kept;

	(void)state;
	kept = pinion_heap_malloc(f.heap, 200000);
	for (unsigned i = 0; i < 300; i++)
		blocks[i] = pinion_heap_malloc(f.heap, 10000 + 100 * i);
	for (unsigned i = 0; i < 300; i++)
		pinion_heap_free(f.heap, blocks[i]);
	assert_true(query(f.heap).slabs > 7);
	assert_ok(pinion_heap_trim(f.heap));
	assert_int_equal(query(f.heap).slabs, 1);
	assert_int_equal(registrations(f.context) - before, 1);
	pinion_heap_free(f.heap, kept);
	assert_ok(pinion_heap_trim(f.heap));
	assert_int_equal(query(f.heap).slabs, 0);
	assert_int_equal(registrations(f.context), before);
	assert_int_equal(atomic_load(&f.context->budget.bytes), 0);
	close_heap(&f);
}

static void empty_slabs_return_by_themselves_after_a_while(void **state)
{
	const struct pinion_heap_attr attr = { .size = sizeof(attr),
					       .return_us = 20000 };
	struct fixture f = open_heap(NULL, &attr);
	uint64_t end = pn_clock_ns() + 60 * PN_NS_PER_S;

	(void)state;
	pinion_heap_free(f.heap, pinion_heap_malloc(f.heap, 2 * MIB));
	if (f.context->device->caps & PN_CAP_VIRTUAL_TIME) {
		/* Nothing calls the cache's step, and time stands still. */
		assert_int_equal(query(f.heap).slabs, 1);
		f.heap->attr.return_ns = 0;
		pn_cache_step(f.context->cache);
		assert_int_equal(pn_heap_step(f.heap), PN_FOREVER);
	}
	/* The slab is uncounted before its pages are returned. */
	while (!query(f.heap).returned && pn_clock_ns() < end)
		usleep(1000);
	assert_int_equal(query(f.heap).returned, 1);
	assert_int_equal(query(f.heap).slabs, 0);
	close_heap(&f);
}

static void slabs_stay_with_an_endless_return_time(void **state)
{
	const struct pinion_heap_attr attr = { .size = sizeof(attr),
					       .return_us = PINION_HEAP_KEEP };
	struct fixture f = open_heap(NULL, &attr);

	(void)state;
	pinion_heap_free(f.heap, pinion_heap_malloc(f.heap, 2 * MIB));
	assert_int_equal(pn_heap_step(f.heap), PN_FOREVER);
	assert_int_equal(query(f.heap).slabs, 1);
	assert_ok(pinion_heap_trim(f.heap));
	assert_int_equal(query(f.heap).slabs, 0);
	close_heap(&f);
}

static void *leave_blocks_behind(void *arg)
{
	struct pinion_heap *heap = arg;
	void *block = pinion_heap_malloc(heap, 500);

	pinion_heap_free(heap, pinion_heap_malloc(heap, 100));
	return block;
}

static void a_thread_that_ends_gives_its_blocks_back(void **state)
{
	struct fixture f = open_heap(NULL, &keep);
	pthread_t thread;
	void *block;

	(void)state;
	if (f.context->device->caps & PN_CAP_VIRTUAL_TIME) {
		close_heap(&f);
		skip();
	}
	for (unsigned i = 0; i < 10; i++) {
		assert_ok(pthread_create(&thread, NULL, leave_blocks_behind,
					 f.heap));
		assert_ok(pthread_join(thread, &block));
		pinion_heap_free(f.heap, block);
		assert_true(pn_list_empty(&f.heap->thread_caches) ||
			    f.heap->thread_caches.next->next ==
				    &f.heap->thread_caches);
	}
	assert_ok(pinion_heap_trim(f.heap));
	assert_int_equal(query(f.heap).slabs, 0);
	close_heap(&f);
}

/* --- limits --------------------------------------------------------------- */

static void with_a_full_budget_allocation_fails_and_the_heap_works_on(
	void **state)
{
	struct fixture f = open_heap("max_bytes=4M", &keep);
	void *blocks[100], *small;
	unsigned n = 0;

	(void)state;
	small = pinion_heap_malloc(f.heap, 10);
	errno = 0;
	while ((blocks[n] = pinion_heap_malloc(f.heap, 100000)))
		assert_in_range(++n, 1, 99);
	assert_int_equal(errno, ENOBUFS);
	assert_true(n >= 30); /* 3 MiB of them at least, and more mixed in */
	assert_true(atomic_load(&f.context->budget.bytes) <= 4 * MIB);
	assert_null(pinion_heap_malloc(f.heap, 5 * MIB));
	assert_int_equal(errno, ENOBUFS);
	assert_non_null(pinion_heap_malloc(f.heap, 16));
	pn_heap_check(f.heap);
	while (n)
		pinion_heap_free(f.heap, blocks[--n]);
	/* Empty slabs return to make room for a longer one. */
	assert_non_null(pinion_heap_malloc(f.heap, 3 * MIB));
	pinion_heap_free(f.heap, small);
	close_heap(&f);
}

static void cached_regions_make_room_for_slabs(void **state)
{
	struct fixture f = open_heap("max_bytes=2M", &keep);
	char *memory = aligned_alloc(4096, 2 * MIB);
	struct pinion_pin pin;

	(void)state;
	memset(memory, 0, 2 * MIB);
	assert_ok(pinion_pin(f.context, memory, 2 * MIB, 0, &pin));
	assert_null(pinion_heap_malloc(f.heap, 100));
	assert_int_equal(errno, ENOBUFS);
	pinion_unpin(f.context, &pin);
	assert_non_null(pinion_heap_malloc(f.heap, 100));
	assert_ok(pinion_pin(f.context, memory, MIB / 2, 0, &pin));
	pinion_unpin(f.context, &pin);
	close_heap(&f);
	free(memory);
}

static void empty_slabs_make_room_for_pins_and_other_heaps(void **state)
{
	struct fixture f = open_heap("max_bytes=4M", &keep);
	char *memory = aligned_alloc(4096, 3 * MIB);
	struct pinion_heap *other;
	struct pinion_pin pin;

	(void)state;
	memset(memory, 0, 3 * MIB);
	assert_ok(pinion_heap_open(f.context, &keep, &other));
	pinion_heap_free(f.heap, pinion_heap_malloc(f.heap, 3 * MIB));
	assert_ok(pinion_pin(f.context, memory, 2 * MIB, 0, &pin));
	assert_int_equal(query(f.heap).slabs, 0);
	pinion_unpin(f.context, &pin);
	pinion_heap_free(f.heap, pinion_heap_malloc(f.heap, 3 * MIB));
	assert_non_null(pinion_heap_malloc(other, 2 * MIB));
	assert_int_equal(query(f.heap).slabs, 0);
	/* A slab in use does not. */
	assert_int_equal(pinion_pin(f.context, memory, 3 * MIB, 0, &pin),
			 -ENOBUFS);
	pinion_heap_close(other);
	close_heap(&f);
	free(memory);
}

static void a_heap_keeps_to_its_own_limit(void **state)
{
	const struct pinion_heap_attr attr = { .size = sizeof(attr),
					       .max_bytes = 2 * MIB };
	struct fixture f = open_heap(NULL, &attr);

	(void)state;
	assert_null(pinion_heap_malloc(f.heap, 2 * MIB + 1));
	assert_int_equal(errno, ENOMEM);
	assert_non_null(pinion_heap_malloc(f.heap, MIB));
	assert_non_null(pinion_heap_malloc(f.heap, MIB));
	assert_null(pinion_heap_malloc(f.heap, MIB));
	assert_int_equal(errno, ENOMEM);
	close_heap(&f);
}

/* --- what is refused ------------------------------------------------------ */

static void assert_refused(const void *block, int why)
{
	assert_null(block);
	assert_int_equal(errno, why);
	errno = 0;
}

static void bad_input_is_refused_and_changes_nothing(void **state)
{
	struct fixture f = open_heap(NULL, &keep);
	char *block = pinion_heap_malloc(f.heap, 100);
	struct pinion_heap_stats before = query(f.heap), after;

	(void)state;
	assert_refused(pinion_heap_malloc(f.heap, 0), EINVAL);
	assert_refused(pinion_heap_malloc(NULL, 1), EINVAL);
	assert_refused(pinion_heap_malloc(f.heap, SIZE_MAX), ENOMEM);
	assert_refused(pinion_heap_malloc(f.heap, SIZE_MAX / 2), ENOMEM);
	assert_refused(pinion_heap_calloc(f.heap, SIZE_MAX / 2, 3), ENOMEM);
	assert_refused(pinion_heap_calloc(f.heap, 0, 3), EINVAL);
	assert_refused(pinion_heap_realloc(f.heap, block, 0), EINVAL);
	assert_refused(pinion_heap_realloc(f.heap, block, SIZE_MAX), ENOMEM);
	assert_refused(pinion_heap_realloc(f.heap, &block, 10), EINVAL);
	assert_refused(pinion_heap_aligned(f.heap, 0, 10), EINVAL);
	assert_refused(pinion_heap_aligned(f.heap, 24, 10), EINVAL);
	assert_refused(pinion_heap_aligned(f.heap, 4 * MIB, 10), EINVAL);
	assert_refused(pinion_heap_aligned(f.heap, SIZE_MAX, 10), EINVAL);
	assert_refused(pinion_heap_aligned(f.heap, 64, 0), EINVAL);
	assert_refused(pinion_heap_aligned(NULL, 64, 10), EINVAL);
	pinion_heap_free(f.heap, NULL);
	pinion_heap_free(NULL, NULL);
	pinion_heap_close(NULL);
	assert_int_equal(pinion_heap_usable_size(f.heap, &block), 0);
	assert_int_equal(pinion_heap_trim(NULL), -EINVAL);
	assert_int_equal(pinion_heap_query(NULL, &after), -EINVAL);
	assert_int_equal(pinion_heap_find(f.heap, block, NULL), -EINVAL);
	after = query(f.heap);
	assert_memory_equal(&before, &after, sizeof(before));
	close_heap(&f);
}

static void invalid_attributes_are_refused(void **state)
{
	struct pinion_context *context = open_context(NULL);
	const struct pinion_heap_attr bad[] = {
		{ .size = 1 },
		{ .size = sizeof(bad[0]), .slab_bytes = 4096 },
		{ .size = sizeof(bad[0]), .access = 1 << 9 },
		{ .size = sizeof(bad[0]), .flags = 1 << 9 },
		{ .size = sizeof(bad[0]), .max_bytes = SIZE_MAX },
		{ .size = sizeof(bad[0]),
		  .flags = PINION_HEAP_NORMAL_PAGES |
			   PINION_HEAP_HUGE_RESERVED },
		{ .size = sizeof(bad[0]),
		  .flags = PINION_HEAP_ON_NODE,
		  .numa_node = 5000 },
	};
	struct pinion_heap *heap = NULL;

	(void)state;
	for (unsigned i = 0; i < PN_ARRAY_LEN(bad); i++)
		assert_int_equal(pinion_heap_open(context, &bad[i], &heap),
				 -EINVAL);
	assert_int_equal(pinion_heap_open(NULL, NULL, &heap), -EINVAL);
	assert_int_equal(pinion_heap_open(context, NULL, NULL), -EINVAL);
	assert_null(heap);
	pinion_close(context);
}

static void more_than_there_are_addresses_is_refused(void **state)
{
	struct pinion_context *context = open_context(NULL);
	const struct pinion_heap_attr attr = { .size = sizeof(attr),
					       .max_bytes = (size_t)1 << 60 };
	struct pinion_heap *heap = NULL;

	(void)state;
	assert_int_equal(pinion_heap_open(context, &attr, &heap), -ENOMEM);
	assert_null(heap);
	pinion_close(context);
}

static void a_node_that_does_not_exist_fails_the_allocation(void **state)
{
	const struct pinion_heap_attr attr = { .size = sizeof(attr),
					       .flags = PINION_HEAP_ON_NODE,
					       .numa_node = 1000 };
	struct fixture f = open_heap(NULL, &attr);

	(void)state;
	assert_null(pinion_heap_malloc(f.heap, 100));
	assert_true(errno == EINVAL || errno == EOPNOTSUPP);
	assert_int_equal(query(f.heap).slabs, 0);
	close_heap(&f);
}

static void huge_pages_make_longer_slabs(void **state)
{
	const struct pinion_heap_attr attr = {
		.size = sizeof(attr), .flags = PINION_HEAP_HUGE_PREFERRED
	};
	struct fixture f = open_heap(NULL, &attr);
	char *block = pinion_heap_malloc(f.heap, 100);
	struct pinion_heap_region region = { .size = sizeof(region) };

	(void)state;
	assert_non_null(block);
	assert_ok(pinion_heap_find(f.heap, block, &region));
	assert_int_equal(region.len, 2 * MIB);
	assert_int_equal((uintptr_t)region.addr % (2 * MIB), 0);
	close_heap(&f);
}

static unsigned long number_in(const char *path)
{
	FILE *file = fopen(path, "r");
	unsigned long n = 0;

	if (file && fscanf(file, "%lu", &n) != 1)
		n = 0;
	if (file)
		fclose(file);
	return n;
}

/* Where none are reserved the program gets an error, since it asked for them.
 */
static void reserved_huge_pages_are_used_or_an_error(void **state)
{
	const struct pinion_heap_attr attr = {
		.size = sizeof(attr), .flags = PINION_HEAP_HUGE_RESERVED
	};
	struct fixture f = open_heap(NULL, &attr);
	char *block = pinion_heap_malloc(f.heap, 100);

	(void)state;
	if (!number_in("/proc/sys/vm/nr_hugepages") &&
	    !number_in("/proc/sys/vm/nr_overcommit_hugepages")) {
		assert_null(block);
		assert_int_equal(errno, ENOMEM);
		assert_int_equal(query(f.heap).slabs, 0);
	} else if (block) {
		memset(block, 1, 100);
	}
	close_heap(&f);
}

/* Whether the mapping of a block has a flag, in the words of smaps. */
static bool is_mapped_with(const void *block, const char *flag)
{
	FILE *file = fopen("/proc/self/smaps", "r");
	unsigned long from, to;
	bool here = false, found = false;
	char line[512];

	assert_non_null(file);
	while (fgets(line, sizeof(line), file)) {
		if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
			here = (uintptr_t)block >= from &&
			       (uintptr_t)block < to;
		else if (here && !strncmp(line, "VmFlags:", 8))
			found = strstr(line, flag);
	}
	fclose(file);
	return found;
}

/* A kernel without transparent huge pages has no such flags either. */
static void normal_pages_stay_normal(void **state)
{
	const struct pinion_heap_attr normal = {
		.size = sizeof(normal), .flags = PINION_HEAP_NORMAL_PAGES
	};
	struct fixture f = open_heap(NULL, &normal);
	char *block = pinion_heap_malloc(f.heap, 100);

	(void)state;
	assert_non_null(block);
	assert_false(is_mapped_with(block, " hg"));
	if (!access("/sys/kernel/mm/transparent_hugepage/enabled", F_OK))
		assert_true(is_mapped_with(block, " nh"));
	close_heap(&f);
}

#ifdef PINION_CHECK

static int stray; /* not of any heap */

/* The signal that ends a child which makes an invalid free. */
static int end_of(struct pinion_heap *heap, void *first, void *second)
{
	pid_t pid = fork();
	int status;

	if (!pid) {
		/* As if the heap were the child's own. */
		heap->process = pn_process_number();
		/* libpsm2, which libfabric loads, has a handler that exits. */
		signal(SIGABRT, SIG_DFL);
		freopen("/dev/null", "w", stderr);
		pinion_heap_free(heap, first);
		pinion_heap_free(heap, second);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void invalid_frees_are_detected(void **state)
{
	struct fixture f = open_heap(NULL, &keep);
	char *a = pinion_heap_malloc(f.heap, 100);
	char *large = pinion_heap_malloc(f.heap, MIB);

	(void)state;
	assert_int_equal(end_of(f.heap, NULL, NULL), 0);
	assert_int_equal(end_of(f.heap, a, a), SIGABRT);
	assert_int_equal(end_of(f.heap, large, large), SIGABRT);
	assert_int_equal(end_of(f.heap, a + 16, NULL), SIGABRT);
	assert_int_equal(end_of(f.heap, large + 4096, NULL), SIGABRT);
	assert_int_equal(end_of(f.heap, &stray, NULL), SIGABRT);
	close_heap(&f);
}

#else

static void a_foreign_pointer_is_logged_and_not_freed(void **state)
{
	struct fixture f = open_heap(NULL, &keep);
	struct pinion_heap_stats before, after;
	int here;

	(void)state;
	assert_non_null(pinion_heap_malloc(f.heap, 100));
	before = query(f.heap);
	pinion_heap_free(f.heap, &here);
	pinion_heap_free(f.heap, (void *)UINTPTR_MAX);
	after = query(f.heap);
	assert_memory_equal(&before, &after, sizeof(before));
	close_heap(&f);
}

#endif

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(a_class_is_the_smallest_that_is_long_enough),
		TEST(blocks_of_every_size_hold_what_was_asked_for),
		TEST(calloc_clears_memory_that_was_used_before),
		TEST(realloc_keeps_contents_and_moves_only_when_it_must),
		TEST(aligned_blocks_are_aligned),
		TEST(a_thousand_blocks_take_one_registration),
		TEST(reusing_blocks_never_registers),
		TEST(every_block_has_keys_that_work),
		TEST(the_heap_recognises_its_memory),
		TEST(heaps_do_not_share_memory),
		TEST(pins_of_heap_memory_use_its_keys),
		TEST(the_helper_cannot_drop_heap_memory),
		TEST(pins_with_more_access_are_registered_separately),
		TEST(a_slab_in_use_is_deregistered_when_unpinned),
		TEST(trimming_returns_empty_slabs),
		TEST(empty_slabs_return_by_themselves_after_a_while),
		TEST(slabs_stay_with_an_endless_return_time),
		TEST(a_thread_that_ends_gives_its_blocks_back),
		TEST(with_a_full_budget_allocation_fails_and_the_heap_works_on),
		TEST(cached_regions_make_room_for_slabs),
		TEST(empty_slabs_make_room_for_pins_and_other_heaps),
		TEST(a_heap_keeps_to_its_own_limit),
		TEST(bad_input_is_refused_and_changes_nothing),
		TEST(invalid_attributes_are_refused),
		TEST(more_than_there_are_addresses_is_refused),
		TEST(a_node_that_does_not_exist_fails_the_allocation),
		TEST(huge_pages_make_longer_slabs),
		TEST(reserved_huge_pages_are_used_or_an_error),
		TEST(normal_pages_stay_normal),
#ifdef PINION_CHECK
		TEST(invalid_frees_are_detected),
#else
		TEST(a_foreign_pointer_is_logged_and_not_freed),
#endif
	};

	if (argc > 1)
		device = argv[1];
	return RUN_TESTS(tests);
}
