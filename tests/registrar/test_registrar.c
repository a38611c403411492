/* SPDX-License-Identifier: BSD-2-Clause */
/* A context over functions of the program: pins, the choice of ranges, limits,
 * costs, and refusals. */
#include "test.h"

#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "context.h"
#include "ledger.h"

#define PAGE  LEDGER_PAGE
#define LOCAL PINION_ACCESS_LOCAL_WRITE
#define PUT   (PINION_ACCESS_LOCAL_WRITE | PINION_ACCESS_REMOTE_WRITE)
#define GET   PINION_ACCESS_REMOTE_READ

struct fixture {
	struct ledger ledger;
	struct pinion_context *context;
};

static void open_with(struct fixture *f, const char *const *options)
{
	assert_ok(ledger_open(&f->ledger, options, &f->context));
}

static void start(struct fixture *f)
{
	ledger_init(&f->ledger);
	open_with(f, NULL);
}

/* No call was wrong, and no registration is left. */
static void stop(struct fixture *f)
{
	pn_cache_check(f->context->cache);
	ledger_close(&f->ledger, f->context);
	if (f->ledger.wrong)
		fail_msg("%s", f->ledger.what);
	assert_int_equal(f->ledger.nlive, 0);
	ledger_fini(&f->ledger);
}

static void pin(struct fixture *f, size_t at, size_t len, unsigned access,
		struct pinion_pin *out)
{
	const char *what;

	assert_ok(
		pinion_pin(f->context, f->ledger.area + at, len, access, out));
	what = ledger_use(&f->ledger, out, access & PINION_ACCESS_ALL);
	if (what)
		fail_msg("%s", what);
	pn_cache_check(f->context->cache);
}

/* Pins and unpins; returns the handle. */
static struct ledger_entry *touch(struct fixture *f, size_t at, size_t len,
				  unsigned access)
{
	struct pinion_pin p;

	pin(f, at, len, access, &p);
	pinion_unpin(f->context, &p);
	return p.handle;
}

static struct pinion_cache_stats stats_of(struct fixture *f)
{
	struct pinion_cache_stats stats = { .size = sizeof(stats) };

	assert_ok(pinion_cache_query(f->context, &stats));
	return stats;
}

static void assert_range(struct fixture *f, const struct ledger_entry *e,
			 size_t at, size_t len)
{
	assert_ptr_equal(e->addr, f->ledger.area + at);
	assert_int_equal(e->len, len);
}

/* --- pins ----------------------------------------------------------------- */

static void a_pin_gives_what_the_function_returned(void **state)
{
	struct fixture f;
	struct pinion_pin p;
	struct pinion_pin_segment part;

	(void)state;
	start(&f);
	pin(&f, 100, 5000, LOCAL, &p);
	assert_int_equal(f.ledger.nregister, 1);
	assert_ok(pinion_pin_segment(&p, 0, &part));
	assert_int_equal(part.local_key, p.local_key);
	assert_int_equal(part.remote_key, p.remote_key);
	pinion_unpin(f.context, &p);
	/* 0 is a valid key: the first entry has it. */
	assert_int_equal(p.local_key, 0);
	assert_ptr_equal(touch(&f, 100, 5000, LOCAL), p.handle);
	assert_int_equal(f.ledger.nregister, 1);
	assert_int_equal(stats_of(&f).hits, 1);
	stop(&f);
}

static void other_devices_have_no_handles(void **state)
{
	static const char *const options[] = { "device=sim", NULL };
	struct pinion_attr attr = { .size = sizeof(attr), .options = options };
	struct pinion_context *context;
	struct pinion_pin p = { .handle = &attr };
	char buffer[64];

	(void)state;
	assert_ok(pinion_open(&attr, &context));
	for (int i = 0; i < 2; i++) {
		assert_ok(pinion_pin(context, buffer, 64, LOCAL, &p));
		assert_null(p.handle);
		pinion_unpin(context, &p);
	}
	pinion_close(context);
}

static void a_buffer_over_cached_regions_is_registered_as_one(void **state)
{
	struct ledger_entry *a, *b, *all;
	struct pinion_pin held;
	struct fixture f;

	(void)state;
	start(&f);
	pin(&f, 0, PAGE, LOCAL, &held);
	a = held.handle;
	b = touch(&f, 4 * PAGE, PAGE, LOCAL);
	all = touch(&f, 0, 6 * PAGE, LOCAL);
	assert_range(&f, all, 0, 6 * PAGE);
	/* A registration in use lives until it is unpinned. */
	assert_false(a->dead);
	assert_null(ledger_use(&f.ledger, &held, LOCAL));
	assert_ptr_equal(touch(&f, 0, PAGE, LOCAL), all);
	assert_ptr_equal(touch(&f, 4 * PAGE, PAGE, LOCAL), all);
	pinion_unpin(f.context, &held);
	assert_ok(pinion_cache_flush(f.context));
	assert_true(a->dead && b->dead && all->dead);
	stop(&f);
}

static void the_limit_of_regions_does_not_split_a_buffer(void **state)
{
	static const char *const options[] = { "cache_max_region=16K", NULL };
	struct fixture f;

	(void)state;
	ledger_init(&f.ledger);
	open_with(&f, options);
	assert_range(&f, touch(&f, 0, 64 * PAGE, LOCAL), 0, 64 * PAGE);
	stop(&f);
}

static void windows_that_slide_end_in_one_region(void **state)
{
	struct fixture f;
	unsigned calls;

	(void)state;
	start(&f);
	for (size_t at = 0; at < 64; at += 2)
		touch(&f, at * PAGE, 8 * PAGE, LOCAL);
	calls = f.ledger.nregister;
	for (size_t at = 0; at < 64; at += 2)
		touch(&f, at * PAGE, 8 * PAGE, LOCAL);
	assert_int_equal(f.ledger.nregister, calls);
	stop(&f);
}

static void a_list_is_registered_in_one_call(void **state)
{
	struct iovec list[3];
	struct pinion_pin pins[3];
	struct fixture f;

	(void)state;
	start(&f);
	for (unsigned i = 0; i < 3; i++)
		list[i] = (struct iovec){ f.ledger.area + 8 * i * PAGE, PAGE };
	assert_ok(pinion_pin_list(f.context, list, 3, LOCAL, pins));
	assert_int_equal(f.ledger.nregister, 1);
	assert_int_equal(f.ledger.longest_batch, 3);
	for (unsigned i = 0; i < 3; i++) {
		assert_null(ledger_use(&f.ledger, &pins[i], LOCAL));
		pinion_unpin(f.context, &pins[i]);
	}
	stop(&f);
}

static void buffers_of_a_list_may_overlap(void **state)
{
	struct iovec list[4];
	struct pinion_pin pins[4];
	struct fixture f;

	(void)state;
	start(&f);
	list[0] = (struct iovec){ f.ledger.area, 2 * PAGE };
	list[1] = (struct iovec){ f.ledger.area + PAGE, 4 * PAGE };
	list[2] = (struct iovec){ f.ledger.area, 2 * PAGE };
	list[3] = (struct iovec){ f.ledger.area + 100, 7 * PAGE };
	for (unsigned round = 0; round < 3; round++) {
		unsigned access = round == 1 ? PUT : LOCAL;

		assert_ok(pinion_pin_list(f.context, list, 4, access, pins));
		for (unsigned i = 0; i < 4; i++)
			assert_null(ledger_use(&f.ledger, &pins[i], access));
		pn_cache_check(f.context->cache);
		for (unsigned i = 0; i < 4; i++)
			pinion_unpin(f.context, &pins[i]);
	}
	stop(&f);
}

static void a_pin_that_is_started_has_one_segment(void **state)
{
	struct pinion_pin p;
	struct fixture f;
	int ret;

	(void)state;
	start(&f);
	touch(&f, 0, PAGE, LOCAL);
	ret = pinion_pin_start(f.context, f.ledger.area, 4 * PAGE, LOCAL, &p);
	if (ret == -EINPROGRESS)
		ret = pinion_pin_wait(f.context, &p);
	assert_ok(ret);
	assert_null(ledger_use(&f.ledger, &p, LOCAL));
	pinion_unpin(f.context, &p);
	stop(&f);
}

static void a_pin_that_bypasses_the_cache_is_not_kept(void **state)
{
	struct ledger_entry *e;
	struct fixture f;

	(void)state;
	start(&f);
	e = touch(&f, 10, 20, LOCAL | PINION_PIN_BYPASS);
	assert_ok(pinion_cache_flush(f.context));
	assert_true(e->dead);
	stop(&f);
}

/* Two hundred times, since the worker might be the faster one by chance. */
static void a_key_of_a_pin_that_bypasses_the_cache_ends_with_its_unpin(
	void **state)
{
	struct fixture f;

	(void)state;
	start(&f);
	touch(&f, 0, PAGE, PUT);
	for (unsigned i = 0; i < 200; i++) {
		assert_true(touch(&f, 10, 20, PUT | PINION_PIN_BYPASS)->dead);
		assert_int_equal(f.ledger.nlive, 1);
	}
	stop(&f);
}

static void a_failed_end_of_a_bypassing_pin_is_tried_again(void **state)
{
	struct ledger_entry *e;
	struct fixture f;

	(void)state;
	start(&f);
	f.ledger.fail_deregister =
		(struct ledger_fault){ .first = 1, .n = 1, .error = -EIO };
	e = touch(&f, 10, 20, PUT | PINION_PIN_BYPASS);
	assert_ok(pinion_cache_flush(f.context));
	assert_true(e->dead);
	assert_int_equal(f.ledger.nderegister, 2);
	stop(&f);
}

/* A thread without memory for another slot. */
struct pn_thread_slots;
static bool no_slots;

void *__real_pn_slots_get(struct pn_thread_slots *thread);
void *__wrap_pn_slots_get(struct pn_thread_slots *thread);

void *__wrap_pn_slots_get(struct pn_thread_slots *thread)
{
	return no_slots ? NULL : __real_pn_slots_get(thread);
}

/* Peers could use what is still registered, so nobody may forget it. */
static void a_bypassing_pin_that_fails_late_is_ended_until_it_succeeds(
	void **state)
{
	struct pinion_pin p;
	struct fixture f;
	int ret;

	(void)state;
	start(&f);
	touch(&f, 0, PAGE, LOCAL);
	f.ledger.fail_deregister =
		(struct ledger_fault){ .first = 1, .n = 1, .error = -EIO };
	no_slots = true;
	ret = pinion_pin(f.context, f.ledger.area + PAGE, 20,
			 PUT | PINION_PIN_BYPASS, &p);
	no_slots = false;
	assert_int_equal(ret, -ENOMEM);
	assert_int_equal(f.ledger.nlive, 2);
	assert_int_equal(f.context->budget.regions, 2);
	assert_int_equal(f.context->budget.bytes, 2 * PAGE);
	pn_cache_check(f.context->cache);
	assert_ok(pinion_cache_flush(f.context));
	assert_int_equal(f.ledger.nlive, 0);
	assert_int_equal(f.context->budget.regions, 0);
	stop(&f);
}

/* Registering around each transfer costs what registering costs: nothing is
 * planned, and the counters are those of a plan. */
struct pn_plan;
static unsigned nplans;

int __real_pn_plan_try(struct pn_plan *plan);
int __wrap_pn_plan_try(struct pn_plan *plan);

int __wrap_pn_plan_try(struct pn_plan *plan)
{
	nplans++;
	return __real_pn_plan_try(plan);
}

static void pins_that_bypass_the_cache_need_no_plan(void **state)
{
	struct pinion_cache_stats stats;
	struct fixture f;

	(void)state;
	start(&f);
	touch(&f, 0, PAGE, LOCAL);
	nplans = 0;
	for (unsigned i = 0; i < 20; i++)
		touch(&f, 100, 5000, PUT | PINION_PIN_BYPASS);
	assert_int_equal(nplans, 0);
	stats = stats_of(&f);
	assert_int_equal(stats.misses, 21);
	assert_int_equal(stats.misses_bypass, 20);
	assert_int_equal(stats.registrations, 21);
	assert_int_equal(stats.deregistrations, 20);
	assert_int_equal(stats.registered_bytes, PAGE + 20 * 5000);
	assert_int_equal(stats.dying_bytes, 0);
	assert_int_equal(f.ledger.nregister, 21);
	stop(&f);
}

/* What is cached makes room for them; what is in use does not. */
static void pins_that_bypass_the_cache_are_in_the_budget(void **state)
{
	struct pinion_pin p[4], more;
	struct fixture f;

	(void)state;
	ledger_init(&f.ledger);
	f.ledger.registrar.max_registrations = 4;
	open_with(&f, (const char *const[]){ "max_bytes=32K", NULL });
	touch(&f, 0, 6 * PAGE, LOCAL);
	for (size_t i = 0; i < 4; i++)
		pin(&f, (10 + 2 * i) * PAGE, 2 * PAGE, PUT | PINION_PIN_BYPASS,
		    &p[i]);
	assert_int_equal(f.ledger.nlive, 4);
	assert_int_equal(pinion_pin(f.context, f.ledger.area, PAGE,
				    PUT | PINION_PIN_BYPASS, &more),
			 -ENOBUFS);
	assert_true(stats_of(&f).refused);
	pinion_unpin(f.context, &p[1]);
	pin(&f, 0, PAGE, PUT | PINION_PIN_BYPASS, &more);
	pinion_unpin(f.context, &more);
	for (size_t i = 0; i < 4; i++)
		if (i != 1)
			pinion_unpin(f.context, &p[i]);
	assert_true(f.ledger.max_live_bytes <= 8 * PAGE);
	stop(&f);
}

/* More than a thread has slots at first. */
static void many_pins_bypass_the_cache_at_once(void **state)
{
	enum { N = 300 };
	static struct pinion_pin p[N];
	struct fixture f;

	(void)state;
	start(&f);
	for (size_t i = 0; i < N; i++)
		pin(&f, i * 100, 100, PUT | PINION_PIN_BYPASS, &p[i]);
	assert_int_equal(f.ledger.nlive, N);
	for (size_t i = 0; i < N; i += 2)
		pinion_unpin(f.context, &p[i]);
	assert_int_equal(f.ledger.nlive, N / 2);
	pn_cache_check(f.context->cache);
	for (size_t i = 1; i < N; i += 2)
		pinion_unpin(f.context, &p[i]);
	stop(&f);
}

static void a_bypassing_pin_fails_as_its_registration_does(void **state)
{
	struct pinion_pin p;
	struct fixture f;

	(void)state;
	start(&f);
	touch(&f, 0, PAGE, LOCAL);
	f.ledger.fail_register =
		(struct ledger_fault){ .first = 2, .n = 1, .error = -EFAULT };
	assert_int_equal(pinion_pin(f.context, f.ledger.area, 10,
				    PUT | PINION_PIN_BYPASS, &p),
			 -EFAULT);
	assert_int_equal(f.ledger.nregister, 2);
	assert_true(touch(&f, 0, 10, PUT | PINION_PIN_BYPASS)->dead);
	stop(&f);
}

static void released_memory_is_registered_anew(void **state)
{
	struct ledger_entry *e;
	struct fixture f;

	(void)state;
	start(&f);
	e = touch(&f, 100, 100, PUT);
	ledger_remap(&f.ledger, f.ledger.area, PAGE);
	assert_ptr_not_equal(touch(&f, 100, 100, PUT), e);
	ledger_discard(&f.ledger, f.ledger.area, PAGE);
	assert_ptr_not_equal(touch(&f, 100, 100, PUT), e);
	assert_int_equal(f.ledger.nranges, 3);
	stop(&f);
}

/* --- remote access: exact ranges ------------------------------------------ */

static void a_range_with_remote_access_is_exact(void **state)
{
	struct ledger_entry *e;
	struct fixture f;

	(void)state;
	start(&f);
	e = touch(&f, 100, 3 * PAGE, PUT);
	assert_range(&f, e, 100, 3 * PAGE);
	/* A range inside is covered by it. */
	assert_ptr_equal(touch(&f, 200, PAGE, PUT), e);
	assert_ptr_equal(touch(&f, 100 + PAGE, 2 * PAGE, LOCAL), e);
	/* A range that is not inside is not. */
	assert_ptr_not_equal(touch(&f, 99, 10, LOCAL), e);
	assert_ptr_not_equal(touch(&f, 100 + 3 * PAGE, 1, GET), e);
	stop(&f);
}

static void exact_ranges_are_not_merged(void **state)
{
	struct fixture f;

	(void)state;
	start(&f);
	for (size_t i = 0; i < 8; i++)
		assert_range(&f, touch(&f, i * PAGE, PAGE, PUT), i * PAGE,
			     PAGE);
	assert_int_equal(stats_of(&f).merges, 0);
	stop(&f);
}

static void exact_ranges_share_pages(void **state)
{
	struct ledger_entry *e[32];
	struct fixture f;

	(void)state;
	start(&f);
	for (size_t i = 0; i < 32; i++)
		e[i] = touch(&f, 500 * i, 500, PUT);
	assert_int_equal(f.ledger.nranges, 32);
	for (size_t i = 0; i < 32; i++)
		assert_ptr_equal(touch(&f, 500 * i, 500, PUT), e[i]);
	assert_int_equal(f.ledger.nranges, 32);
	/* A release of a page invalidates all ranges with bytes in it. */
	ledger_remap(&f.ledger, f.ledger.area + PAGE, PAGE);
	for (size_t i = 0; i < 32; i++) {
		bool gone = 500 * (i + 1) > PAGE && 500 * i < 2 * PAGE;

		assert_true((touch(&f, 500 * i, 500, PUT) != e[i]) == gone);
	}
	stop(&f);
}

static void local_ranges_are_replaced_at_shared_pages(void **state)
{
	struct ledger_entry *remote, *local;
	struct fixture f;

	(void)state;
	start(&f);
	remote = touch(&f, 1000, 100, PUT);
	local = touch(&f, 2000, 2 * PAGE, LOCAL);
	/* Rounded to pages where there is no other range. */
	assert_range(&f, local, 2000, 3 * PAGE - 2000);
	assert_ptr_equal(touch(&f, 1000, 100, PUT), remote);
	assert_ptr_equal(touch(&f, 2000, 2 * PAGE, LOCAL), local);
	/* A range over both replaces both. */
	assert_range(&f, touch(&f, 500, PAGE, LOCAL), 0, 3 * PAGE);
	stop(&f);
}

/* As malloc() places buffers. Nothing is merged where the kernel does not tell
 * which mapping a page belongs to (before 6.11). */
static void neighbours_in_a_page_need_not_be_merged(void **state)
{
	static const char *const options[] = { "cache_merge=no", NULL };
	const size_t len = 16 * PAGE, step = len + 16;
	unsigned before;
	struct fixture f;

	(void)state;
	ledger_init(&f.ledger);
	open_with(&f, options);
	for (unsigned i = 0; i < 16; i++)
		touch(&f, 32 + i % 4 * step, len, LOCAL);
	before = f.ledger.nranges;
	for (unsigned i = 0; i < 100; i++)
		touch(&f, 32 + i % 4 * step, len, LOCAL);
	assert_int_equal(f.ledger.nranges, before);
	stop(&f);
}

static void an_exact_range_replaces_a_rounded_one(void **state)
{
	struct pinion_pin held;
	struct ledger_entry *remote;
	struct fixture f;

	(void)state;
	start(&f);
	pin(&f, 0, 100, LOCAL, &held);
	assert_range(&f, held.handle, 0, PAGE);
	remote = touch(&f, 200, 100, PUT);
	assert_range(&f, remote, 200, 100);
	assert_null(ledger_use(&f.ledger, &held, LOCAL));
	pinion_unpin(f.context, &held);
	/* It is not rounded any more, so both stay. */
	assert_range(&f, touch(&f, 0, 100, LOCAL), 0, 100);
	assert_ptr_equal(touch(&f, 200, 100, PUT), remote);
	stop(&f);
}

static void rights_of_the_same_bytes_add_up(void **state)
{
	struct ledger_entry *e;
	struct fixture f;

	(void)state;
	start(&f);
	touch(&f, 64, 64, PUT);
	e = touch(&f, 64, 64, GET);
	assert_ptr_equal(touch(&f, 64, 64, PUT), e);
	assert_ptr_equal(touch(&f, 64, 64, GET), e);
	assert_range(&f, e, 64, 64);
	assert_int_equal(f.ledger.nranges, 2);
	stop(&f);
}

/* The kernel releases whole pages, and so does an invalidation. */
static void a_release_of_a_few_bytes_invalidates_their_page(void **state)
{
	struct ledger_entry *e;
	struct fixture f;

	(void)state;
	start(&f);
	e = touch(&f, 2000, 100, PUT);
	assert_ok(munmap(f.ledger.area, 100));
	assert_ptr_equal(mmap(f.ledger.area, PAGE, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
			 f.ledger.area);
	assert_ptr_not_equal(touch(&f, 2000, 100, PUT), e);
	e = touch(&f, 2000, 100, PUT);
	pinion_invalidate(f.ledger.area + 3000, 1);
	assert_ptr_not_equal(touch(&f, 2000, 100, PUT), e);
	e = touch(&f, 2000, 100, PUT);
	pn_cache_invalidate(f.context->cache, (uintptr_t)f.ledger.area + 3000,
			    1);
	assert_ptr_not_equal(touch(&f, 2000, 100, PUT), e);
	stop(&f);
}

/* --- heaps ---------------------------------------------------------------- */

static void a_heap_block_has_its_slabs_handle(void **state)
{
	struct pinion_heap_attr attr = { .size = sizeof(attr), .access = PUT };
	struct pinion_pin a, b, c;
	struct pinion_heap *heap;
	struct fixture f;
	char *block;

	(void)state;
	start(&f);
	assert_ok(pinion_heap_open(f.context, &attr, &heap));
	block = pinion_heap_malloc(heap, 1000);
	assert_non_null(block);
	assert_int_equal(f.ledger.nregister, 1);
	assert_ok(pinion_pin(f.context, block, 1000, PUT, &a));
	assert_ok(pinion_pin(f.context, block + 10, 10, LOCAL, &b));
	assert_ok(pinion_pin(f.context, block, 1000, PUT | PINION_PIN_BYPASS,
			     &c));
	assert_null(ledger_use(&f.ledger, &a, PUT));
	assert_ptr_equal(a.handle, b.handle);
	assert_ptr_equal(a.handle, c.handle);
	assert_int_equal(f.ledger.nregister, 1);
	pinion_unpin(f.context, &a);
	pinion_unpin(f.context, &b);
	pinion_unpin(f.context, &c);
	/* Access that the slab does not grant takes a registration of its own.
	 */
	assert_ok(pinion_pin(f.context, block, 1000, GET, &a));
	assert_ptr_not_equal(a.handle, b.handle);
	pinion_unpin(f.context, &a);
	pinion_heap_free(heap, block);
	pinion_heap_close(heap);
	stop(&f);
}

/* --- limits --------------------------------------------------------------- */

static void registrations_stay_below_the_limits(void **state)
{
	struct fixture f;

	(void)state;
	ledger_init(&f.ledger);
	f.ledger.registrar.max_registrations = 5;
	f.ledger.registrar.max_pinned_bytes = 64 * PAGE;
	f.ledger.registrar.max_registration_bytes = 20 * PAGE;
	open_with(&f, (const char *const[]){ "max_bytes=1G", NULL });
	for (size_t i = 0; i < 100; i++)
		touch(&f, i * 8 * PAGE % (900 * PAGE), (i % 20 + 1) * PAGE,
		      i % 2 ? PUT : LOCAL);
	assert_true(f.ledger.max_live <= 5);
	assert_true(f.ledger.max_live_bytes <= 64 * PAGE);
	stop(&f);
}

static void a_buffer_over_the_limit_is_refused(void **state)
{
	struct pinion_pin p;
	struct fixture f;

	(void)state;
	ledger_init(&f.ledger);
	f.ledger.registrar.max_registration_bytes = 10000;
	open_with(&f, NULL);
	assert_int_equal(pinion_pin(f.context, f.ledger.area, 10001, LOCAL, &p),
			 -EINVAL);
	assert_int_equal(f.ledger.nregister, 0);
	/* Rounded, it would exceed the limit. */
	assert_range(&f, touch(&f, 100, 10000, LOCAL), 100, 10000);
	stop(&f);
}

static void pins_in_use_can_fill_the_limits(void **state)
{
	struct pinion_pin p[3], more;
	struct fixture f;

	(void)state;
	ledger_init(&f.ledger);
	f.ledger.registrar.max_registrations = 3;
	open_with(&f, NULL);
	for (size_t i = 0; i < 3; i++)
		pin(&f, 8 * i * PAGE, PAGE, LOCAL, &p[i]);
	assert_int_equal(pinion_pin(f.context, f.ledger.area + 64 * PAGE, PAGE,
				    LOCAL, &more),
			 -ENOBUFS);
	pinion_unpin(f.context, &p[1]);
	pin(&f, 64 * PAGE, PAGE, LOCAL, &more);
	pinion_unpin(f.context, &more);
	pinion_unpin(f.context, &p[0]);
	pinion_unpin(f.context, &p[2]);
	stop(&f);
}

static void long_batches_are_divided(void **state)
{
	struct iovec list[23];
	struct pinion_pin pins[23];
	struct fixture f;

	(void)state;
	ledger_init(&f.ledger);
	f.ledger.registrar.max_batch = 5;
	open_with(&f, NULL);
	for (unsigned i = 0; i < 23; i++)
		list[i] = (struct iovec){ f.ledger.area + 8 * i * PAGE, PAGE };
	assert_ok(pinion_pin_list(f.context, list, 23, PUT, pins));
	assert_int_equal(f.ledger.nregister, 5);
	for (unsigned i = 0; i < 23; i++)
		pinion_unpin(f.context, &pins[i]);
	stop(&f);
}

/* --- costs ---------------------------------------------------------------- */

static void spend(struct ledger *ledger)
{
	const struct timespec a_while = { .tv_nsec = 200000 };

	(void)ledger;
	nanosleep(&a_while, NULL);
}

static void costs_are_learned_from_the_calls_alone(void **state)
{
	const struct pn_costs *costs;
	struct fixture f;

	(void)state;
	ledger_init(&f.ledger);
	f.ledger.inside = spend;
	open_with(&f, NULL);
	costs = &f.context->device->costs;
	assert_int_equal(f.ledger.nregister, 0);
	assert_true(costs->register_ns == 0 && costs->register_page_ns == 0);
	for (size_t i = 1; i <= 8; i++)
		touch(&f, i * 64 * PAGE, i * PAGE, LOCAL);
	assert_int_equal(f.ledger.nregister, 8);
	/* Each call slept for that time, whatever its size. */
	assert_true(costs->register_ns + costs->register_page_ns >= 100000);
	assert_ok(pinion_cache_flush(f.context));
	assert_true(costs->deregister_ns + costs->deregister_page_ns > 0);
	assert_int_equal(f.ledger.nranges, 8);
	stop(&f);
}

static void given_costs_are_not_changed(void **state)
{
	struct fixture f;

	(void)state;
	ledger_init(&f.ledger);
	f.ledger.registrar.register_page_ns = 77;
	open_with(&f, NULL);
	touch(&f, 0, PAGE, LOCAL);
	assert_true(f.context->device->costs.register_page_ns == 77);
	assert_true(f.context->device->costs.register_ns == 0);
	stop(&f);
}

/* --- refusals ------------------------------------------------------------- */

static int open_changed(const struct pinion_registrar *registrar)
{
	static const char *const quiet[] = { "log=none", NULL };
	struct pinion_attr attr = { .size = sizeof(attr),
				    .options = quiet,
				    .registrar = registrar };
	struct pinion_context *context = NULL;
	int ret = pinion_open(&attr, &context);

	assert_true(!ret == !!context);
	pinion_close(context);
	return ret;
}

static void open_refuses_bad_registrars(void **state)
{
	struct {
		struct pinion_registrar registrar;
		uint64_t later;
	} newer;
	struct ledger ledger;
	struct pinion_registrar r;

	(void)state;
	ledger_init(&ledger);
#define REFUSES(error, change)                             \
	do {                                               \
		r = ledger.registrar;                      \
		change;                                    \
		assert_int_equal(open_changed(&r), error); \
	} while (0)
	REFUSES(-EINVAL, r.size = 0);
	REFUSES(-EINVAL, r.size = 4);
	REFUSES(-EINVAL, r.size = 8);
	REFUSES(-EINVAL, r.register_ranges = NULL);
	REFUSES(-EINVAL, r.deregister_ranges = NULL);
	REFUSES(-EINVAL, r.flags = 2);
	REFUSES(-EINVAL, r.reserved = 1);
	REFUSES(-EINVAL, r.register_ns = -1);
	REFUSES(-EINVAL, r.deregister_page_ns = __builtin_nan(""));
	REFUSES(0, r.size = offsetof(struct pinion_registrar, max_batch));
#undef REFUSES
	memset(&newer, 0, sizeof(newer));
	newer.registrar = ledger.registrar;
	newer.registrar.size = sizeof(newer);
	assert_int_equal(open_changed(&newer.registrar), 0);
	newer.later = 1;
	assert_int_equal(open_changed(&newer.registrar), -E2BIG);
	assert_int_equal(ledger.nregister, 0);
	ledger_fini(&ledger);
	pn_log_set_level(PN_LOG_WARN);
}

static void messages_are_refused(void **state)
{
	struct pinion_endpoint *endpoint;
	struct fixture f;

	(void)state;
	start(&f);
	pn_log_set_level(PN_LOG_NONE);
	assert_int_equal(pinion_endpoint_open(f.context, NULL, &endpoint),
			 -EOPNOTSUPP);
	pn_log_set_level(PN_LOG_WARN);
	assert_int_equal(f.ledger.nregister, 0);
	stop(&f);
}

static void the_device_is_described(void **state)
{
	struct pinion_device_info info = { .size = sizeof(info) };
	struct fixture f;

	(void)state;
	ledger_init(&f.ledger);
	f.ledger.registrar.max_registrations = 7;
	open_with(&f, NULL);
	touch(&f, 0, 3 * PAGE, LOCAL);
	assert_ok(pinion_device_query(f.context, &info));
	assert_string_equal(info.kind, "registrar");
	assert_int_equal(info.max_registrations, 7);
	assert_int_equal(info.max_pinned_bytes, SIZE_MAX);
	assert_int_equal(info.registrations, 1);
	assert_int_equal(info.pinned_bytes, 3 * PAGE);
	stop(&f);
}

static void memory_is_registered_explicitly(void **state)
{
	struct pinion_registration *reg;
	struct pinion_registration_info key = { .size = sizeof(key) };
	struct fixture f;

	(void)state;
	start(&f);
	assert_ok(pinion_device_register(f.context, f.ledger.area + 5, 10, PUT,
					 &reg));
	assert_ok(pinion_registration_query(reg, &key));
	assert_int_equal(key.addr, (uintptr_t)f.ledger.area + 5);
	pinion_device_deregister(reg);
	assert_int_equal(f.ledger.nlive, 0);
	stop(&f);
}

static void revoking_ends_registrations_that_are_not_in_use(void **state)
{
	struct pinion_pin held;
	struct ledger_entry *e;
	struct fixture f;

	(void)state;
	start(&f);
	e = touch(&f, 100, 100, PUT);
	pin(&f, 300, 100, PUT, &held);
	assert_ok(pinion_cache_revoke(f.context, f.ledger.area + 100, 100));
	assert_true(e->dead);
	assert_int_equal(pinion_cache_revoke(f.context, f.ledger.area, PAGE),
			 -EBUSY);
	assert_null(ledger_use(&f.ledger, &held, PUT));
	pinion_unpin(f.context, &held);
	assert_ok(pinion_cache_revoke(f.context, f.ledger.area, PAGE));
	assert_int_equal(f.ledger.nlive, 0);
	stop(&f);
}

/* A pin that the program forgot must not keep its domain from closing. */
static void closing_deregisters_what_is_pinned(void **state)
{
	struct pinion_pin held[3];
	struct fixture f;

	(void)state;
	start(&f);
	pin(&f, 0, 100, LOCAL, &held[0]);
	pin(&f, 3 * PAGE, 100, PUT, &held[1]);
	pin(&f, 3 * PAGE, 100, PUT, &held[2]);
	stop(&f);
}

static void pins_beyond_the_limits_are_counted(void **state)
{
	struct pinion_cache_stats stats = { .size = sizeof(stats) };
	struct pinion_pin failed;
	struct fixture f;

	(void)state;
	start(&f);
	f.ledger.fail_register =
		(struct ledger_fault){ 1, 100, -ENOMEM, false };
	assert_int_equal(pinion_pin(f.context, f.ledger.area, PAGE, LOCAL,
				    &failed),
			 -ENOBUFS);
	assert_ok(pinion_cache_query(f.context, &stats));
	assert_int_equal(stats.refused, 1);
	stop(&f);
}

/* --- the helper ----------------------------------------------------------- */

/* Steps to wait for another thread: half a minute. */
#define PATIENCE 3000

/* Under userfaultfd, as with sanitizers, the helper learns but registers
 * nothing. */
static bool has_acted(const struct pinion_helper_stats *stats)
{
	return stats->held_back ? stats->calls >= 2 && stats->buffers == 2
				: stats->deregistered && stats->registered;
}

static void the_helper_is_fed_by_pins(void **state)
{
	static const char *const options[] = { "helper=own", NULL };
	struct pinion_helper_stats stats = { .size = sizeof(stats) };
	struct fixture f;

	(void)state;
	ledger_init(&f.ledger);
	open_with(&f, options);
	for (unsigned i = 0; i < PATIENCE && !has_acted(&stats); i++) {
		touch(&f, 0, 32 * PAGE, LOCAL);
		touch(&f, 100 * PAGE + 10, 40 * PAGE, PUT);
		touch(&f, 200 * PAGE, 100, PUT); /* too short for the helper */
		usleep(10000);
		assert_ok(pinion_helper_query(f.context, &stats));
	}
	assert_true(stats.calls > 0);
	assert_int_equal(stats.buffers, 2);
	assert_true(has_acted(&stats));
	stop(&f);
}

static void pins_that_never_end_do_not_disturb_the_helper(void **state)
{
	static const char *const options[] = { "helper=own", NULL };
	struct pinion_pin p, failed;
	struct fixture f;

	(void)state;
	ledger_init(&f.ledger);
	open_with(&f, options);
	f.ledger.fail_register = (struct ledger_fault){ 2, 1, -EIO, false };
	pin(&f, 0, 32 * PAGE, LOCAL, &p);
	assert_int_equal(pinion_pin(f.context, f.ledger.area + 64 * PAGE,
				    32 * PAGE, LOCAL, &failed),
			 -EIO);
	ledger_close(&f.ledger, f.context);
	assert_int_equal(f.ledger.wrong, 0);
	ledger_fini(&f.ledger);
}

/* --- when the functions run ----------------------------------------------- */

/* It would deadlock if the caller of a function held a lock. */
static void *ask(void *arg)
{
	struct pinion_cache_stats stats = { .size = sizeof(stats) };
	struct pinion_device_info info = { .size = sizeof(info) };
	struct pinion_heap_stats heaps = { .size = sizeof(heaps) };
	void **both = arg;

	pinion_cache_query(both[0], &stats);
	pinion_device_query(both[0], &info);
	if (both[1])
		pinion_heap_query(both[1], &heaps);
	pn_lock(&((struct pinion_context *)both[0])->lock);
	pn_unlock(&((struct pinion_context *)both[0])->lock);
	return NULL;
}

static void ask_meanwhile(struct ledger *ledger)
{
	pthread_t thread;

	pthread_create(&thread, NULL, ask, ledger->inside_arg);
	pthread_join(thread, NULL);
	/* The functions may also allocate, free and unmap. */
	munmap(mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
	       PAGE);
}

static void functions_run_under_no_lock(void **state)
{
	struct pinion_registration *reg;
	struct pinion_heap *heap;
	struct fixture f;
	void *both[2];

	(void)state;
	start(&f);
	assert_ok(pinion_heap_open(f.context, NULL, &heap));
	both[0] = f.context;
	both[1] = heap;
	f.ledger.inside_arg = both;
	f.ledger.inside = ask_meanwhile;
	touch(&f, 0, PAGE, LOCAL);
	touch(&f, 0, 5 * PAGE, PUT);
	assert_ok(pinion_cache_flush(f.context));
	pinion_heap_free(heap, pinion_heap_malloc(heap, 100));
	assert_ok(pinion_heap_trim(heap));
	assert_ok(
		pinion_device_register(f.context, f.ledger.area, 1, PUT, &reg));
	pinion_device_deregister(reg);
	touch(&f, 0, PAGE, LOCAL);
	both[1] = NULL;
	pinion_heap_close(heap);
	assert_ok(pinion_cache_flush(f.context));
	f.ledger.inside = NULL;
	stop(&f);
}

static void functions_do_not_run_in_a_child(void **state)
{
	struct pinion_pin held, p;
	struct fixture f;
	int status;
	pid_t child;

	(void)state;
	start(&f);
	pin(&f, 0, PAGE, LOCAL, &held);
	touch(&f, 16 * PAGE, PAGE, PUT);
	child = fork();
	if (!child) {
		int ret = pinion_pin(f.context, f.ledger.area + 99 * PAGE, 1,
				     LOCAL, &p);

		munmap(f.ledger.area + 16 * PAGE, PAGE);
		pinion_unpin(f.context, &held);
		pinion_close(f.context);
		_exit(ret == -EPERM && !f.ledger.wrong &&
				      f.ledger.nderegister == 0
			      ? 0
			      : 1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	pinion_unpin(f.context, &held);
	stop(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_pin_gives_what_the_function_returned),
		TEST(closing_deregisters_what_is_pinned),
		TEST(pins_beyond_the_limits_are_counted),
		TEST(other_devices_have_no_handles),
		TEST(a_buffer_over_cached_regions_is_registered_as_one),
		TEST(the_limit_of_regions_does_not_split_a_buffer),
		TEST(windows_that_slide_end_in_one_region),
		TEST(a_list_is_registered_in_one_call),
		TEST(buffers_of_a_list_may_overlap),
		TEST(a_pin_that_is_started_has_one_segment),
		TEST(a_pin_that_bypasses_the_cache_is_not_kept),
		TEST(a_key_of_a_pin_that_bypasses_the_cache_ends_with_its_unpin),
		TEST(a_failed_end_of_a_bypassing_pin_is_tried_again),
		TEST(a_bypassing_pin_that_fails_late_is_ended_until_it_succeeds),
		TEST(pins_that_bypass_the_cache_need_no_plan),
		TEST(pins_that_bypass_the_cache_are_in_the_budget),
		TEST(many_pins_bypass_the_cache_at_once),
		TEST(a_bypassing_pin_fails_as_its_registration_does),
		TEST(released_memory_is_registered_anew),
		TEST(a_range_with_remote_access_is_exact),
		TEST(exact_ranges_are_not_merged),
		TEST(exact_ranges_share_pages),
		TEST(local_ranges_are_replaced_at_shared_pages),
		TEST(neighbours_in_a_page_need_not_be_merged),
		TEST(an_exact_range_replaces_a_rounded_one),
		TEST(rights_of_the_same_bytes_add_up),
		TEST(a_release_of_a_few_bytes_invalidates_their_page),
		TEST(a_heap_block_has_its_slabs_handle),
		TEST(registrations_stay_below_the_limits),
		TEST(a_buffer_over_the_limit_is_refused),
		TEST(pins_in_use_can_fill_the_limits),
		TEST(long_batches_are_divided),
		TEST(costs_are_learned_from_the_calls_alone),
		TEST(given_costs_are_not_changed),
		TEST(open_refuses_bad_registrars),
		TEST(messages_are_refused),
		TEST(the_device_is_described),
		TEST(memory_is_registered_explicitly),
		TEST(revoking_ends_registrations_that_are_not_in_use),
		TEST(the_helper_is_fed_by_pins),
		TEST(pins_that_never_end_do_not_disturb_the_helper),
		TEST(functions_run_under_no_lock),
		TEST(functions_do_not_run_in_a_child),
	};

	return RUN_TESTS(tests);
}
