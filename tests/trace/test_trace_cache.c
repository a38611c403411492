/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Events of a cache: the trace of a random run adds up to the cache's own
 * counters and determines at each moment what is registered.
 */
#include "trace_file.h"

#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>

#include "base/pages.h"
#include "base/range.h"
#include "cache/cache.h"
#include "device/sim/sim.h"
#include "trace/record.h"

#define PAGE   PN_PAGE_BYTES
#define NPAGES 64
#define BUDGET (24 * PAGE)
#define HELD   6
#define WRITE  PINION_ACCESS_LOCAL_WRITE

struct world {
	struct pn_sim *sim;
	struct pn_budget budget;
	struct pn_cache *cache;
	char *mem;
	struct pinion_cache_stats stats;
};

static void open_world(struct world *w, const char *policy)
{
	struct pn_cache_attr attr = { .policy = policy,
				      .no_monitor = true,
				      .batch = 4 };

	assert_ok(pn_sim_open("cost=cx5", NULL, &w->sim));
	attr.device = pn_sim_device(w->sim, 0);
	attr.budget = &w->budget;
	pn_budget_init(&w->budget, attr.device, BUDGET, 0, 1);
	assert_ok(pn_cache_open(&attr, &w->cache));
	assert_ok(pn_pages_map(NPAGES * PAGE, NULL, (void **)&w->mem));
	memset(w->mem, 1, NPAGES * PAGE);
}

static void close_world(struct world *w)
{
	pn_cache_query(w->cache, &w->stats);
	pn_cache_close(w->cache);
	pn_sim_close(w->sim);
	pn_pages_unmap(w->mem, NPAGES * PAGE, NULL);
}

/* --- a random program ----------------------------------------------------- */

struct program {
	struct world *world;
	uint64_t seed;
	struct pinion_pin held[HELD];
};

static struct iovec random_buffer(struct program *p)
{
	size_t first = test_below(&p->seed, NPAGES - 4);

	return (struct iovec){ p->world->mem + first * PAGE +
				       test_below(&p->seed, PAGE),
			       1 + test_below(&p->seed, 3 * PAGE) };
}

static void pin_one(struct program *p, struct pinion_pin *pin)
{
	struct pn_cache *cache = p->world->cache;
	struct iovec b = random_buffer(p);
	unsigned flags = WRITE;

	if (!test_below(&p->seed, 10))
		flags |= PINION_ACCESS_REMOTE_WRITE;
	if (!test_below(&p->seed, 20))
		flags |= PINION_PIN_BYPASS;
	if (pn_cache_pin(cache, b.iov_base, b.iov_len, flags, pin))
		pin->nsegments = 0;
}

static void pin_some(struct program *p)
{
	struct iovec b[3] = { random_buffer(p), random_buffer(p),
			      random_buffer(p) };
	struct pinion_pin pins[3];

	if (pn_cache_pin_list(p->world->cache, b, 3, WRITE, pins))
		return;
	for (int i = 0; i < 3; i++)
		pn_cache_unpin(p->world->cache, &pins[i]);
}

static void start_and_wait(struct program *p)
{
	struct iovec b = random_buffer(p);
	struct pinion_pin pin;
	int ret = pn_cache_pin_start(p->world->cache, b.iov_base, b.iov_len,
				     WRITE, &pin);

	if (ret == -EINPROGRESS)
		ret = pn_cache_pin_wait(p->world->cache, &pin);
	if (!ret)
		pn_cache_unpin(p->world->cache, &pin);
}

static void take_step(struct program *p)
{
	struct pn_cache *cache = p->world->cache;
	struct pinion_pin *pin = &p->held[test_below(&p->seed, HELD)];
	struct iovec b;

	switch (test_below(&p->seed, 40)) {
	case 0:
		b = random_buffer(p);
		pn_cache_invalidate(cache, (uintptr_t)b.iov_base, b.iov_len);
		return;
	case 1:
		pn_cache_flush(cache);
		return;
	case 2:
		pin_some(p);
		return;
	case 3:
		start_and_wait(p);
		return;
	case 4:
		b = random_buffer(p);
		(void)pn_cache_revoke(cache, (uintptr_t)b.iov_base, b.iov_len);
		return;
	default:
		if (pin->nsegments)
			pn_cache_unpin(cache, pin);
		else
			pin_one(p, pin);
	}
}

static void run_program(struct program *p, int nsteps)
{
	for (int i = 0; i < nsteps; i++)
		take_step(p);
	for (int i = 0; i < HELD; i++)
		if (p->held[i].nsegments)
			pn_cache_unpin(p->world->cache, &p->held[i]);
}

/* --- what its trace says -------------------------------------------------- */

struct reader {
	const struct world *world;
	bool cached[NPAGES];
	struct {
		uint64_t handle, addr, len;
	} open[64];
	unsigned nopen, registered, rest;
	uint64_t hits, misses, refused, later, ready, evicted;
};

static void mark(struct reader *r, const struct pn_trace_event *e, bool cached)
{
	size_t first = (e->addr - (uintptr_t)r->world->mem) / PAGE;

	for (size_t i = 0; i < e->len / PAGE; i++) {
		assert_int_equal(r->cached[first + i], !cached);
		r->cached[first + i] = cached;
	}
}

static bool is_cached(const struct reader *r, const struct pn_trace_event *e)
{
	size_t first = (e->addr - (uintptr_t)r->world->mem) / PAGE;
	size_t end = (e->addr + e->len - 1 - (uintptr_t)r->world->mem) / PAGE;

	while (first <= end)
		if (!r->cached[first++])
			return false;
	return true;
}

static void open_handle(struct reader *r, const struct pn_trace_event *e)
{
	assert_true(e->handle && r->nopen < PN_ARRAY_LEN(r->open));
	for (unsigned i = 0; i < r->nopen; i++)
		assert_int_not_equal(r->open[i].handle, e->handle);
	r->open[r->nopen].handle = e->handle;
	r->open[r->nopen].addr = e->addr;
	r->open[r->nopen++].len = e->len;
}

static void close_handle(struct reader *r, const struct pn_trace_event *e)
{
	for (unsigned i = 0; i < r->nopen; i++) {
		if (r->open[i].handle != e->handle)
			continue;
		assert_int_equal(r->open[i].addr, e->addr);
		assert_int_equal(r->open[i].len, e->len);
		r->open[i] = r->open[--r->nopen];
		return;
	}
	fail_msg("an unpin of what was not pinned");
}

static void read_pin(struct reader *r, const struct pn_trace_event *e)
{
	r->hits += e->decision == PN_DECIDED_HIT;
	r->misses += e->decision == PN_DECIDED_MISS;
	/* A list is refused as a whole: it counts once. */
	if (e->decision == PN_DECIDED_REFUSED && !r->rest)
		r->refused++;
	r->rest = e->more;
	r->later += e->decision == PN_DECIDED_LATER;
	if (e->decision == PN_DECIDED_HIT)
		assert_true(is_cached(r, e));
	if (e->decision == PN_DECIDED_REFUSED)
		assert_int_equal(e->reason, ENOBUFS);
	else if (e->decision != PN_DECIDED_LATER)
		open_handle(r, e);
}

static void read_event(struct reader *r, const struct pn_trace_event *e)
{
	switch (e->kind) {
	case PN_EVENT_PIN:
		read_pin(r, e);
		break;
	case PN_EVENT_READY:
		r->ready++;
		r->hits += e->decision == PN_DECIDED_HIT;
		r->misses += e->decision == PN_DECIDED_MISS;
		r->refused += e->decision == PN_DECIDED_REFUSED;
		if (e->decision != PN_DECIDED_REFUSED)
			open_handle(r, e);
		break;
	case PN_EVENT_UNPIN:
		close_handle(r, e);
		break;
	case PN_EVENT_REGISTER:
		r->registered++;
		if (e->decision == PN_DECIDED_KEPT)
			mark(r, e, true);
		break;
	case PN_EVENT_EVICT:
		mark(r, e, false);
		r->evicted += e->reason == PN_BECAUSE_BYTES ||
			      e->reason == PN_BECAUSE_FLUSHED;
		break;
	case PN_EVENT_DEREGISTER:
		r->registered--;
		break;
	case PN_EVENT_CLOSE:
		assert_int_equal(e->addr, r->world->stats.hits);
		assert_int_equal(e->len, r->world->stats.misses);
		break;
	default:
		break;
	}
}

static void check_config(struct pn_trace *trace, const char *policy)
{
	struct pn_trace_event_cache cache;

	assert_ok(pn_trace_cache_config(trace, 1, &cache));
	assert_int_equal(cache.max_bytes, BUDGET);
	assert_int_equal(cache.batch, 4);
	assert_int_equal(cache.merge, 1);
	assert_int_equal(cache.read_only, 1); /* capability of `sim` */
	assert_string_equal(cache.policy, policy);
	assert_string_equal(cache.device, "sim");
	assert_true(cache.register_ns > 15900 && cache.register_ns < 16100);
	assert_int_equal(pn_trace_cache_config(trace, 2, &cache), -ENOENT);
}

static void check_trace(const char *path, const struct world *w,
			const char *policy)
{
	struct reader r = { .world = w };
	struct pn_trace *trace;
	struct pn_trace_event e;
	int ret;

	assert_ok(pn_trace_open(path, &trace, NULL));
	while ((ret = pn_trace_next(trace, &e)) > 0)
		read_event(&r, &e);
	assert_int_equal(ret, 0);
	assert_int_equal(pn_trace_info(trace)->lost, 0);
	check_config(trace, policy);
	pn_trace_close(trace);
	assert_int_equal(r.nopen, 0);
	assert_int_equal(r.registered, 0);
	assert_int_equal(r.ready, r.later);
	assert_int_equal(r.hits, w->stats.hits);
	assert_int_equal(r.misses, w->stats.misses);
	assert_int_equal(r.refused, w->stats.refused);
	assert_true(r.hits > 100 && r.misses > 100 && r.evicted > 100);
}

static void run_with(const char *policy)
{
	struct world w;
	struct program p = { .world = &w, .seed = test_seed() };
	const char *path = trace_path(policy);

	assert_ok(pn_record_start(path, 64 << 20));
	open_world(&w, policy);
	run_program(&p, 20000);
	close_world(&w);
	pn_record_stop();
	check_trace(trace_path(policy), &w, policy);
	trace_remove(policy);
}

static void a_trace_adds_up_to_the_counters_of_lru(void **state)
{
	(void)state;
	run_with("lru");
}

static void a_trace_adds_up_to_the_counters_of_mre(void **state)
{
	(void)state;
	run_with("mre");
}

/* --- threads -------------------------------------------------------------- */

static void *run_thread(void *arg)
{
	struct program *p = arg;

	for (int i = 0; i < 4000; i++) {
		struct pinion_pin *pin = &p->held[i % 2];

		if (pin->nsegments)
			pn_cache_unpin(p->world->cache, pin);
		pin_one(p, pin);
	}
	for (int i = 0; i < 2; i++)
		if (p->held[i].nsegments)
			pn_cache_unpin(p->world->cache, &p->held[i]);
	return NULL;
}

/* The recorded outcomes are final, whatever other threads do. */
static void threads_are_recorded_with_all_their_outcomes(void **state)
{
	struct world w;
	struct program p[3];
	pthread_t threads[3];
	struct pn_trace *trace;
	struct pn_trace_event e;
	uint64_t count[PN_NDECISIONS] = { 0 };
	uint64_t seed = test_seed();

	(void)state;
	assert_ok(pn_record_start(trace_path("threads"), 64 << 20));
	open_world(&w, "lru");
	for (unsigned i = 0; i < 3; i++) {
		p[i] = (struct program){ .world = &w, .seed = seed + i };
		assert_ok(pthread_create(&threads[i], NULL, run_thread, &p[i]));
	}
	for (unsigned i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	close_world(&w);
	pn_record_stop();
	assert_ok(pn_trace_open(trace_path("threads"), &trace, NULL));
	while (pn_trace_next(trace, &e) > 0)
		if (e.kind == PN_EVENT_PIN)
			count[e.decision]++;
	pn_trace_close(trace);
	assert_int_equal(count[PN_DECIDED_HIT], w.stats.hits);
	assert_int_equal(count[PN_DECIDED_MISS], w.stats.misses);
	assert_int_equal(count[PN_DECIDED_HIT] + count[PN_DECIDED_MISS] +
				 count[PN_DECIDED_REFUSED],
			 3 * 4000);
	trace_remove("threads");
}

/* --- several caches ------------------------------------------------------- */

/* Events of upper layers on behalf of a cache have its source number and its
 * clock. */
static void events_of_upper_layers_have_the_source_of_their_cache(void **state)
{
	const struct pn_trace_event sent = { .kind = PN_EVENT_SEND,
					     .peer = PN_EVENT_NO_PEER,
					     .len = 7 };
	struct world w[2];
	struct pn_trace *trace;
	struct pn_trace_event e;
	unsigned n = 0;

	(void)state;
	assert_ok(pn_record_start(trace_path("several"), 64 << 20));
	open_world(&w[0], "lru");
	open_world(&w[1], "lru");
	pn_cache_trace_event(w[1].cache, &sent);
	pn_cache_trace_event(w[0].cache, &sent);
	close_world(&w[1]);
	close_world(&w[0]);
	pn_record_stop();
	assert_ok(pn_trace_open(trace_path("several"), &trace, NULL));
	while (pn_trace_next(trace, &e) > 0)
		if (e.kind == PN_EVENT_SEND)
			assert_int_equal(e.source, 2 - n++);
	assert_int_equal(n, 2);
	pn_trace_close(trace);
	trace_remove("several");
}

/* --- what an owner does --------------------------------------------------- */

static void fill_world(struct world *w)
{
	struct pn_range own = { (uintptr_t)w->mem, 4 * PAGE };
	const struct pn_mr *mr;
	struct pinion_pin pin;

	assert_ok(pn_cache_resident_add(w->cache, own, WRITE, &mr));
	assert_ok(pn_cache_pin(w->cache, w->mem + PAGE, PAGE,
			       WRITE | PINION_PIN_BYPASS, &pin));
	pn_cache_unpin(w->cache, &pin);
	pn_budget_resize(&w->budget, 16 * PAGE, 9);
	pn_cache_trim(w->cache);
	pn_cache_resident_remove(w->cache, mr);
}

/* Owned memory, such as slabs of a heap, is neither hit nor missed; a changed
 * budget applies to all later requests. */
static void owned_memory_and_new_budgets_are_recorded(void **state)
{
	struct pn_trace_event e, seen[PN_EVENT_NKINDS] = { 0 };
	struct pn_trace *trace;
	struct world w;

	(void)state;
	assert_ok(pn_record_start(trace_path("owner"), 64 << 20));
	open_world(&w, "lru");
	fill_world(&w);
	close_world(&w);
	pn_record_stop();
	assert_ok(pn_trace_open(trace_path("owner"), &trace, NULL));
	while (pn_trace_next(trace, &e) > 0)
		seen[e.kind] = e;
	assert_int_equal(seen[PN_EVENT_REGISTER].reason, PN_BECAUSE_OWNED);
	assert_int_equal(seen[PN_EVENT_REGISTER].len, 4 * PAGE);
	assert_int_equal(seen[PN_EVENT_PIN].reason, PN_BECAUSE_OWNED);
	assert_int_equal(seen[PN_EVENT_PIN].len, PAGE);
	assert_int_equal(seen[PN_EVENT_UNPIN].handle,
			 seen[PN_EVENT_PIN].handle);
	assert_int_equal(seen[PN_EVENT_RESIZE].len, 16 * PAGE);
	assert_int_equal(seen[PN_EVENT_RESIZE].addr, 9);
	assert_int_equal(w.stats.hits + w.stats.misses, 0);
	pn_trace_close(trace);
	trace_remove("owner");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_trace_adds_up_to_the_counters_of_lru),
		TEST(a_trace_adds_up_to_the_counters_of_mre),
		TEST(threads_are_recorded_with_all_their_outcomes),
		TEST(events_of_upper_layers_have_the_source_of_their_cache),
		TEST(owned_memory_and_new_budgets_are_recorded),
	};

	return RUN_TESTS(tests);
}
