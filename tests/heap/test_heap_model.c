/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A random program against a naive model: threads allocate, write a pattern,
 * resize, pass blocks to each other and free them. The model is a table of
 * slots that any thread empties and fills; each block carries in its slot what
 * it should contain. Wrong bytes mean that blocks overlap or were handed out
 * twice. Now and then a block's keys are tried, a slab is returned, the heap
 * checked. At the end everything is freed, the slabs return, and what is pinned
 * is what was pinned before.
 *
 *	test_heap_model [STEPS]
 */
#include "test.h"

#include <errno.h>
#include <pthread.h>
#include <unistd.h>

#include <pinion/pinion.h>

#include "base/clock.h"
#include "context.h"
#include "heap/heap_impl.h"
#include "mover.h"
#include "vmpin.h"

#define NTHREADS 3
#define NSLOTS	 400
#define MIB	 ((size_t)1 << 20)
#define BUDGET	 (18 * MIB)

struct slot {
	struct pn_mutex lock;
	unsigned char *block; /* NULL: none */
	size_t size;
	size_t align;
	unsigned char pattern;
};

static struct {
	struct pinion_context *context;
	struct pinion_heap *heap;
	struct slot slots[NSLOTS];
	struct pn_mutex mover_lock;
	struct mover mover;
	unsigned long steps;
	_Atomic size_t refused; /* allocations without room */
} w;

/* The first error, in any thread. */
static struct {
	_Atomic bool found;
	const char *what;
	int line;
} wrong;

static void complain(const char *what, int line)
{
	if (atomic_exchange(&wrong.found, true))
		return;
	wrong.what = what;
	wrong.line = line;
}

#define EXPECT(x) ((x) ? (void)0 : complain(#x, __LINE__))

static bool holds(const struct slot *slot, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (slot->block[i] != slot->pattern)
			return false;
	return true;
}

static size_t random_size(uint64_t *random)
{
	size_t bits = test_below(random, 20);

	return ((size_t)1 << bits) + test_below(random, (size_t)1 << bits);
}

static void got(struct slot *slot, uint64_t *random, void *block, size_t size,
		size_t align)
{
	slot->block = block;
	slot->size = size;
	slot->align = align;
	if (!block) {
		EXPECT(errno == ENOBUFS);
		atomic_fetch_add(&w.refused, 1);
		return;
	}
	EXPECT(!((uintptr_t)block % align));
	EXPECT(pinion_heap_usable_size(w.heap, block) >= size);
	slot->pattern = (unsigned char)test_random(random);
	memset(block, slot->pattern, size);
}

static void allocate(struct slot *slot, uint64_t *random)
{
	size_t size = random_size(random), align = 16;
	void *block;

	switch (test_below(random, 4)) {
	case 0:
		align = (size_t)1 << test_below(random, 15);
		block = pinion_heap_aligned(w.heap, align, size);
		break;
	case 1:
		block = pinion_heap_calloc(w.heap, 1, size);
		slot->block = block;
		slot->pattern = 0;
		EXPECT(!block || holds(slot, size));
		break;
	default:
		block = pinion_heap_malloc(w.heap, size);
	}
	got(slot, random, block, size, align);
}

static void resize(struct slot *slot, uint64_t *random)
{
	size_t size = random_size(random);
	size_t kept = size < slot->size ? size : slot->size;
	void *block = pinion_heap_realloc(w.heap, slot->block, size);

	if (!block) {
		EXPECT(holds(slot, slot->size));
		return;
	}
	slot->block = block;
	EXPECT(holds(slot, kept));
	got(slot, random, block, size, 16);
}

/* The keys of a block belong to memory that holds it, and work. */
static void try_keys(struct slot *slot)
{
	struct pinion_heap_region region = { .size = sizeof(region) };
	struct pinion_pin_segment part = { .addr = slot->block,
					   .len = slot->size };
	size_t most = w.mover.len;
	char *start;

	EXPECT(pinion_heap_contains(w.heap, slot->block + slot->size - 1));
	EXPECT(!pinion_heap_find(w.heap, slot->block, &region));
	start = region.addr;
	EXPECT((char *)slot->block >= start &&
	       (char *)slot->block + slot->size <= start + region.len);
	part.local_key = region.local_key;
	part.remote_key = region.remote_key;
	if (part.len > most)
		part.len = most;
	pn_lock(&w.mover_lock);
	EXPECT(!mover_move(&w.mover, MOVER_LOCAL_OUT, &part));
	EXPECT(!mover_move(&w.mover, MOVER_REMOTE_IN, &part));
	pn_unlock(&w.mover_lock);
	memset(slot->block, slot->pattern, slot->size);
}

static void act_on_block(struct slot *slot, uint64_t *random)
{
	EXPECT(holds(slot, slot->size));
	switch (test_below(random, 40)) {
	case 0:
	case 1:
	case 2:
		resize(slot, random);
		break;
	case 3:
		try_keys(slot);
		break;
	default:
		pinion_heap_free(w.heap, slot->block);
		slot->block = NULL;
	}
}

static void act_on_heap(uint64_t *random)
{
	if (!test_below(random, 50))
		pn_heap_check(w.heap);
	if (!test_below(random, 200))
		pinion_heap_trim(w.heap);
	EXPECT(atomic_load(&w.context->budget.bytes) <= BUDGET);
}

static void *run_program(void *arg)
{
	uint64_t random = *(uint64_t *)arg;

	for (unsigned long i = 0; i < w.steps && !wrong.found; i++) {
		struct slot *slot = &w.slots[test_below(&random, NSLOTS)];

		pn_lock(&slot->lock);
		if (slot->block)
			act_on_block(slot, &random);
		else
			allocate(slot, &random);
		pn_unlock(&slot->lock);
		if (!(i % 64))
			act_on_heap(&random);
	}
	return NULL;
}

/* Threads end and start, so that their stacks are returned and filled again. */
static void run_threads(uint64_t seed)
{
	pthread_t threads[NTHREADS];
	uint64_t seeds[NTHREADS];

	for (unsigned i = 0; i < NTHREADS; i++) {
		seeds[i] = seed * NTHREADS + i + 1;
		assert_ok(pthread_create(&threads[i], NULL, run_program,
					 &seeds[i]));
	}
	for (unsigned i = 0; i < NTHREADS; i++)
		assert_ok(pthread_join(threads[i], NULL));
	if (wrong.found)
		fail_msg("line %d: %s", wrong.line, wrong.what);
	pn_heap_check(w.heap);
}

static size_t pinned(void)
{
	struct pinion_device_info info = { .size = sizeof(info) };

	assert_ok(pinion_device_query(w.context, &info));
	return info.pinned_bytes;
}

static void open_world(void)
{
	const char *const options[] = { "device=soft", "max_bytes=18M", NULL };
	const struct pinion_attr attr = { .size = sizeof(attr),
					  .options = options };
	const struct pinion_heap_attr heap = { .size = sizeof(heap),
					       .return_us = 500 };

	assert_ok(pinion_open(&attr, &w.context));
	assert_ok(mover_open(&w.mover, w.context->device, 65536));
	assert_ok(pinion_heap_open(w.context, &heap, &w.heap));
	pn_mutex_init(&w.mover_lock);
	for (unsigned i = 0; i < NSLOTS; i++)
		pn_mutex_init(&w.slots[i].lock);
}

static void free_everything(void)
{
	uint64_t end = pn_clock_ns() + 60 * PN_NS_PER_S;

	for (unsigned i = 0; i < NSLOTS; i++) {
		EXPECT(!w.slots[i].block ||
		       holds(&w.slots[i], w.slots[i].size));
		pinion_heap_free(w.heap, w.slots[i].block);
	}
	assert_false(wrong.found);
	assert_ok(pinion_heap_trim(w.heap));
	/* The cache's worker may still be returning the last slabs. */
	while (w.heap->nreturned != w.heap->nregistrations &&
	       pn_clock_ns() < end)
		usleep(1000);
	pn_heap_check(w.heap);
	assert_int_equal(w.heap->nslabs, 0);
}

static void a_random_program_matches_the_model(void **state)
{
	uint64_t seed = test_seed() >> 8;
	size_t before, kernel_before;

	(void)state;
	open_world();
	before = pinned();
	kernel_before = vmpin();
	for (unsigned round = 0; round < 4; round++)
		run_threads(seed + round);
	printf("%zu slabs acquired, %zu returned, %zu allocations refused\n",
	       (size_t)w.heap->nregistrations, (size_t)w.heap->nreturned,
	       (size_t)w.refused);
	free_everything();
	assert_int_equal(w.heap->nregistrations, w.heap->nreturned);
	assert_int_equal(atomic_load(&w.context->budget.bytes), 0);
	assert_int_equal(pinned(), before);
	pinion_heap_close(w.heap);
	assert_vmpin_comes_back_to(kernel_before);
	mover_close(&w.mover);
	pinion_close(w.context);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(a_random_program_matches_the_model),
	};

	w.steps = (argc > 1 ? strtoul(argv[1], NULL, 0) : 20000) / 12;
	return RUN_TESTS(tests);
}
