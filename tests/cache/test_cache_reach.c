/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_cache_reach [DEVICE] -- what a peer that holds a key can reach, byte by
 * byte: of memory that is exposed, of cached regions, of regions that were
 * merged, and of what shares a page with them. SECURITY.md says the same.
 *
 * The peer is another device; it uses the key as it likes.
 */
#include "test.h"

#include <errno.h>
#include <sys/mman.h>

#include <pinion/pinion.h>

#include "cache/cache_impl.h"
#include "cache/exposed_memory.h"
#include "context.h"
#include "device/blocking.h"

#define PAGE	PN_PAGE_BYTES
#define NPAGES	6
#define WRITTEN 'w'
#define CLEAN	'c'
#define OPEN	(PINION_ACCESS_REMOTE_WRITE | PINION_ACCESS_LOCAL_WRITE)

static const char *spec = "soft";

static struct {
	struct pinion_context *context;
	struct pn_device *peer; /* the other side */
	struct pn_peer *to;
	char *mem;
} f;

static void setup_with(const char *merge)
{
	char device[64];
	const char *const options[] = { device, merge, "log=none", NULL };
	const struct pinion_attr attr = { .size = sizeof(attr),
					  .options = options };
	struct pn_address address;

	snprintf(device, sizeof(device), "device=%s", spec);
	assert_ok(pinion_open(&attr, &f.context));
	assert_ok(pn_device_open(spec, NULL, &f.peer));
	pn_device_address(f.context->device, &address);
	assert_ok(pn_device_attach(f.peer, &address, &f.to));
	f.mem = mmap(NULL, NPAGES * PAGE, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(f.mem, MAP_FAILED);
	memset(f.mem, CLEAN, NPAGES * PAGE);
}

static int setup(void **state)
{
	(void)state;
	setup_with("cache_merge=yes");
	return 0;
}

static int setup_unmerged(void **state)
{
	(void)state;
	setup_with("cache_merge=no");
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	pn_device_close(f.peer);
	pinion_close(f.context);
	munmap(f.mem, NPAGES * PAGE);
	return 0;
}

/* A put of len bytes at an offset of the memory, by the key. */
static int put(size_t at, size_t len, uint64_t key)
{
	char bytes[PAGE];
	const struct pn_sge sge = { .addr = bytes, .len = len };
	const struct pn_op op = { .kind = PN_OP_WRITE,
				  .flags = PN_OP_INLINE,
				  .sge = &sge,
				  .nsge = 1,
				  .remote_addr = (uintptr_t)f.mem + at,
				  .rkey = key };
	struct pn_completion c;

	memset(bytes, WRITTEN, len);
	assert_ok(pn_blocking_post(f.peer, f.to, &op));
	return pn_blocking_poll(f.peer, PN_COMPLETION_OP, &c);
}

/* Bytes that are not as they were; they are clean again. */
static size_t take_written(void)
{
	size_t n = 0;

	for (size_t i = 0; i < NPAGES * PAGE; i++)
		n += f.mem[i] != CLEAN;
	memset(f.mem, CLEAN, NPAGES * PAGE);
	return n;
}

static void assert_reached(size_t at, size_t len, uint64_t key)
{
	assert_ok(put(at, len, key));
	assert_int_equal(f.mem[at], WRITTEN);
	assert_int_equal(f.mem[at + len - 1], WRITTEN);
	assert_int_equal(take_written(), len);
}

static void assert_refused(size_t at, size_t len, uint64_t key)
{
	assert_int_equal(put(at, len, key), -EACCES);
	assert_int_equal(take_written(), 0);
}

/* That the key opens just [from, to). */
static void assert_reach(uint64_t key, size_t from, size_t to)
{
	for (size_t at = from; at < to; at += 500)
		assert_reached(at, 1, key);
	assert_reached(from, 10, key);
	assert_reached(to - 10, 10, key);
	assert_refused(from - 1, 1, key);
	assert_refused(from - 1, 10, key);
	assert_refused(to, 1, key);
	assert_refused(to - 5, 10, key);
	assert_refused(to + PAGE - 10, 10, key);
}

static struct pinion_pin pin(size_t at, size_t len, unsigned access)
{
	struct pinion_pin p;

	assert_ok(pinion_pin(f.context, f.mem + at, len, access, &p));
	return p;
}

static void unpin(struct pinion_pin *p)
{
	pinion_unpin(f.context, p);
}

/* --- exposed -------------------------------------------------------------- */

static void expose(struct pn_exposed_memory *e, size_t at, size_t len)
{
	assert_ok(pn_cache_expose(f.context->cache, f.mem + at, len, OPEN, e));
	assert_int_equal(e->nmrs, 1);
}

static void an_exposure_opens_its_bytes_and_no_others(void **state)
{
	struct pn_exposed_memory e;

	(void)state;
	expose(&e, PAGE + 1000, 700);
	assert_reach(e.rkeys[0], PAGE + 1000, PAGE + 1700);
	pn_cache_unexpose(f.context->cache, &e);
	assert_refused(PAGE + 1000, 10, e.rkeys[0]);
}

/* The cache has its whole page open besides, by another key. */
static void what_is_cached_does_not_widen_an_exposure(void **state)
{
	struct pinion_pin before = pin(PAGE + 100, 100, OPEN), after;
	struct pn_exposed_memory e;

	(void)state;
	expose(&e, PAGE + 1000, 700);
	after = pin(PAGE + 900, 1000, OPEN);
	assert_reach(e.rkeys[0], PAGE + 1000, PAGE + 1700);
	assert_true(after.remote_key != e.rkeys[0]);
	unpin(&before);
	unpin(&after);
	pn_cache_unexpose(f.context->cache, &e);
}

/* --- cached --------------------------------------------------------------- */

static void a_cached_buffer_opens_its_whole_pages(void **state)
{
	struct pinion_pin p = pin(PAGE + 1000, 100, OPEN);

	(void)state;
	assert_reach(p.remote_key, PAGE, 2 * PAGE);
	unpin(&p);
	/* As long as the region is cached. */
	assert_reach(p.remote_key, PAGE, 2 * PAGE);
	assert_ok(pinion_cache_revoke(f.context, f.mem, NPAGES * PAGE));
	assert_refused(PAGE + 1000, 10, p.remote_key);
}

static void a_local_buffer_is_reached_by_its_page_s_key(void **state)
{
	struct pinion_pin p = pin(PAGE, 100, OPEN);
	struct pinion_pin local = pin(PAGE + 2000, 100, 0);

	(void)state;
	assert_reached(PAGE + 2000, 100, p.remote_key);
	unpin(&p);
	unpin(&local);
}

/* The neighbours are not in use, and not larger. */
static void merged_regions_open_each_other(void **state)
{
	struct pinion_pin p;

	(void)state;
	/* mlock() makes several mappings of one. */
	if (!(f.context->device->caps & PN_CAP_PINS))
		skip();
	p = pin(PAGE + 10, 100, OPEN);
	unpin(&p);
	p = pin(2 * PAGE + 10, 100, OPEN);
	assert_reach(p.remote_key, PAGE, 3 * PAGE);
	unpin(&p);
	p = pin(3 * PAGE, 2 * PAGE, OPEN);
	assert_reach(p.remote_key, PAGE, 5 * PAGE);
	unpin(&p);
}

static void what_is_local_is_not_merged_with_what_is_open(void **state)
{
	struct pinion_pin below = pin(PAGE, PAGE, PINION_ACCESS_LOCAL_WRITE);
	struct pinion_pin above =
		pin(3 * PAGE, PAGE, PINION_ACCESS_LOCAL_WRITE);
	struct pinion_pin p;

	(void)state;
	assert_int_equal(below.remote_key, 0);
	assert_int_equal(above.remote_key, 0);
	unpin(&below);
	unpin(&above);
	p = pin(2 * PAGE, PAGE, OPEN);
	assert_reach(p.remote_key, 2 * PAGE, 3 * PAGE);
	unpin(&p);
}

static void what_is_open_otherwise_is_not_merged(void **state)
{
	struct pinion_pin below = pin(PAGE, PAGE, PINION_ACCESS_REMOTE_READ);
	struct pinion_pin p;

	(void)state;
	unpin(&below);
	p = pin(2 * PAGE, PAGE, OPEN);
	assert_refused(PAGE, 10, below.remote_key);
	assert_reach(p.remote_key, 2 * PAGE, 3 * PAGE);
	unpin(&p);
}

static void without_merging_neighbours_stay_apart(void **state)
{
	struct pinion_pin first = pin(PAGE, PAGE, OPEN), second;

	(void)state;
	unpin(&first);
	second = pin(2 * PAGE, PAGE, OPEN);
	assert_reach(first.remote_key, PAGE, 2 * PAGE);
	assert_reach(second.remote_key, 2 * PAGE, 3 * PAGE);
	unpin(&second);
}

/* --- a heap --------------------------------------------------------------- */

static void a_block_s_key_opens_its_neighbours(void **state)
{
	struct pinion_heap_region region = { .size = sizeof(region) };
	struct pinion_heap *heap;
	char *blocks[2], *mem = f.mem;

	(void)state;
	assert_ok(pinion_heap_open(f.context, NULL, &heap));
	for (unsigned i = 0; i < 2; i++) {
		blocks[i] = pinion_heap_malloc(heap, 64);
		assert_non_null(blocks[i]);
		memset(blocks[i], CLEAN, 64);
	}
	assert_ok(pinion_heap_find(heap, blocks[0], &region));
	f.mem = blocks[1];
	assert_ok(put(0, 1, region.remote_key));
	assert_int_equal(blocks[1][0], WRITTEN);
	f.mem = mem;
	pinion_heap_close(heap);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		CASE(an_exposure_opens_its_bytes_and_no_others),
		CASE(what_is_cached_does_not_widen_an_exposure),
		CASE(a_cached_buffer_opens_its_whole_pages),
		CASE(a_local_buffer_is_reached_by_its_page_s_key),
		CASE(merged_regions_open_each_other),
		CASE(what_is_local_is_not_merged_with_what_is_open),
		CASE(what_is_open_otherwise_is_not_merged),
		CASE(a_block_s_key_opens_its_neighbours),
		cmocka_unit_test_setup_teardown(
			without_merging_neighbours_stay_apart, setup_unmerged,
			teardown),
	};

	if (argc > 1)
		spec = argv[1];
	return RUN_TESTS(tests);
}
