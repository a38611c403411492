/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Threads on one cache: each pins memory of its own and memory that all share,
 * unmaps its own memory and maps it again, hands pins to others to unpin,
 * invalidates, flushes, resizes.
 *
 * Every pin is used through its keys. `sim` reports a stale key; on `soft` the
 * bytes get lost. One thread at a time moves bytes, since all threads use the
 * shared buffers. The areas of all threads lie side by side in one mapping, so
 * that the cache merges across them.
 *
 * test_cache_threads [STEPS]: so many steps of each thread.
 */
#include "test.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include "base/asymmetric.h"
#include "base/range.h"
#include "cache/cache.h"
#include "device/sim/sim.h"
#include "monitor/monitor.h"
#include "mover.h"

#define PAGE	 PN_PAGE_BYTES
#define NTHREADS 4
#define OWN	 24 /* pages of each thread; the last area is everybody's */
#define NHELD	 12
#define NMAIL	 8
#define FLAGS                                                     \
	(PINION_ACCESS_LOCAL_WRITE | PINION_ACCESS_REMOTE_WRITE | \
	 PINION_ACCESS_REMOTE_READ)

static unsigned steps = PN_ASYMMETRIC_FENCES ? 3000 : 10000;

struct world {
	struct pn_sim *sim; /* NULL: on soft */
	struct pn_device *device;
	struct pn_budget budget;
	struct pn_cache *cache;
	bool watched;
	char *area;
	struct mover mover;
	pthread_mutex_t moving;
	pthread_barrier_t start;
	struct pinion_pin *_Atomic mail[NMAIL]; /* for others to unpin */
};

struct held {
	bool live;
	bool gone; /* its memory was released: not to be used */
	bool own;
	struct pinion_pin pin;
};

/* What a thread has to say; the main thread judges. */
struct record {
	pthread_t thread;
	struct world *w;
	unsigned number;
	uint64_t random;
	struct held held[NHELD];
	unsigned pins, uses, releases, refused, faults, mailed;
	unsigned stale;	    /* -ESTALE, or other bytes */
	int wrong, in_step; /* the first answer that may not be */
};

static void note(struct record *r, int ret, int allowed)
{
	if (ret == -ESTALE || ret == -EILSEQ) {
		r->stale++;
	} else if (ret == -ENOBUFS) {
		r->refused++;
	} else if (ret == -EFAULT && allowed == -EFAULT) {
		r->faults++;
	} else if (ret && !r->wrong) {
		r->wrong = ret;
	}
}

static uint64_t below(struct record *r, uint64_t bound)
{
	return test_below(&r->random, bound);
}

static struct pn_range choose(struct record *r, bool own)
{
	unsigned area = own ? r->number : NTHREADS;
	size_t n = 1 + below(r, 6), first = below(r, OWN - n + 1);

	return (struct pn_range){
		(uintptr_t)r->w->area + (area * OWN + first) * PAGE, n * PAGE
	};
}

static void use(struct record *r, const struct held *h)
{
	int ret;

	if (h->gone)
		return;
	pthread_mutex_lock(&r->w->moving);
	ret = mover_put(&r->w->mover, &h->pin);
	pthread_mutex_unlock(&r->w->moving);
	note(r, ret, 0);
	r->uses++;
}

static int pin_somehow(struct record *r, struct pn_range range, unsigned flags,
		       struct pinion_pin *pin)
{
	int ret;

	if (below(r, 4))
		return pn_cache_pin(r->w->cache, (void *)range.addr, range.len,
				    flags, pin);
	ret = pn_cache_pin_start(r->w->cache, (void *)range.addr, range.len,
				 flags, pin);
	return ret == -EINPROGRESS ? pn_cache_pin_wait(r->w->cache, pin) : ret;
}

static void do_pin(struct record *r)
{
	struct held *h = &r->held[below(r, NHELD)];
	bool own = below(r, 2);
	unsigned flags = FLAGS;
	int ret;

	if (h->live)
		return;
	if (!below(r, 10))
		flags |= PINION_PIN_BYPASS;
	*h = (struct held){ .own = own };
	ret = pin_somehow(r, choose(r, own), flags, &h->pin);
	note(r, ret, -EFAULT);
	if (ret)
		return;
	h->live = true;
	r->pins++;
	use(r, h);
}

static void do_unpin(struct record *r)
{
	struct held *h = &r->held[below(r, NHELD)];

	if (!h->live)
		return;
	use(r, h);
	if (below(r, 2))
		pn_cache_unpin(r->w->cache, &h->pin);
	else
		pn_cache_unpin_now(r->w->cache, &h->pin);
	h->live = false;
}

/* Leaves a pin for whoever comes next, and unpins what lay there. */
static void do_mail(struct record *r)
{
	struct held *h = &r->held[below(r, NHELD)];
	struct pinion_pin *letter = NULL;

	if (h->live) {
		letter = malloc(sizeof(*letter));
		*letter = h->pin;
		h->live = false;
		r->mailed++;
	}
	letter = atomic_exchange(&r->w->mail[below(r, NMAIL)], letter);
	if (letter)
		pn_cache_unpin(r->w->cache, letter);
	free(letter);
}

static void announce(struct record *r, struct pn_range range)
{
	if (!r->w->watched)
		pn_cache_invalidate(r->w->cache, range.addr, range.len);
}

/* Only memory of this thread, which nobody else uses. Mapped over rather than
 * unmapped: another thread's mapping could land in the hole. */
static void do_release(struct record *r)
{
	struct pn_range range = choose(r, true);
	void *addr = (void *)range.addr;
	bool failed;

	for (unsigned i = 0; i < NHELD; i++)
		r->held[i].gone |= r->held[i].own;
	/* The device is told before the pages go: afterwards another thread,
	 * joining neighbours, may have registered the new ones already. */
	if (r->w->sim)
		pn_sim_released(r->w->sim, 0, addr, range.len);
	announce(r, range);
	if (below(r, 2))
		failed = madvise(addr, range.len, MADV_DONTNEED);
	else
		failed = mmap(addr, range.len, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
			      0) != addr;
	announce(r, range);
	if (failed)
		note(r, -errno, 0);
	r->releases++;
}

static void do_odd(struct record *r)
{
	struct pn_range range = choose(r, false);
	struct world *w = r->w;

	switch (below(r, 4)) {
	case 0:
		pn_cache_invalidate(w->cache, range.addr, range.len);
		break;
	case 1:
		pn_cache_flush(w->cache);
		break;
	case 2:
		pn_budget_resize(&w->budget, (60 + below(r, 100)) * PAGE, 0);
		pn_cache_trim(w->cache);
		break;
	default:
		pn_cache_step(w->cache);
	}
}

static void *live(void *arg)
{
	struct record *r = arg;

	pthread_barrier_wait(&r->w->start);
	for (unsigned i = 0; i < steps && !r->wrong; i++) {
		unsigned what = (unsigned)below(r, 20);

		r->in_step = (int)what;
		if (what < 8)
			do_pin(r);
		else if (what < 14)
			do_unpin(r);
		else if (what < 16)
			do_mail(r);
		else if (what < 19)
			do_release(r);
		else
			do_odd(r);
	}
	for (unsigned i = 0; i < NHELD; i++)
		if (r->held[i].live)
			pn_cache_unpin(r->w->cache, &r->held[i].pin);
	return NULL;
}

/* --- the main thread ----------------------------------------------------- */

static void open_world(struct world *w, const char *script, const char *policy)
{
	struct pn_cache_attr attr = { .policy = policy, .batch = 4 };

	if (script) {
		assert_ok(pn_sim_open("cost=none", script, &w->sim));
		w->device = pn_sim_device(w->sim, 0);
	} else {
		assert_ok(pn_device_open("soft", NULL, &w->device));
	}
	assert_ok(mover_open(&w->mover, w->device, OWN * PAGE));
	pn_budget_init(&w->budget, w->device, 80 * PAGE, 0, 1);
	w->watched = pn_monitor_mode() == PN_MONITOR_PATCH ||
		     pn_monitor_mode() == PN_MONITOR_USERFAULTFD;
	attr.device = w->device;
	attr.budget = &w->budget;
	attr.no_monitor = !w->watched;
	assert_ok(pn_cache_open(&attr, &w->cache));
	w->area =
		mmap(NULL, (NTHREADS + 1) * OWN * PAGE, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(w->area != MAP_FAILED);
	assert_ok(pthread_mutex_init(&w->moving, NULL));
	assert_ok(pthread_barrier_init(&w->start, NULL, NTHREADS));
}

static void close_world(struct world *w)
{
	struct pn_pinned pinned;

	for (unsigned i = 0; i < NMAIL; i++) {
		if (w->mail[i])
			pn_cache_unpin(w->cache, w->mail[i]);
		free(w->mail[i]);
	}
	pn_cache_check(w->cache);
	pn_cache_close(w->cache);
	assert_int_equal(atomic_load(&w->budget.bytes), 0);
	assert_int_equal(atomic_load(&w->budget.regions), 0);
	pn_device_pinned(w->device, &pinned);
	assert_int_equal(pinned.mrs, 1);
	mover_close(&w->mover);
	pthread_mutex_destroy(&w->moving);
	pthread_barrier_destroy(&w->start);
	if (w->sim)
		pn_sim_close(w->sim);
	else
		pn_device_close(w->device);
	munmap(w->area, (NTHREADS + 1) * OWN * PAGE);
}

static void judge(const struct record *r)
{
	print_message("thread %u: %u pins, %u uses, %u mailed, %u releases, "
		      "%u without room, %u faults, %u stale\n",
		      r->number, r->pins, r->uses, r->mailed, r->releases,
		      r->refused, r->faults, r->stale);
	if (r->wrong)
		print_message("in step %d\n", r->in_step);
	assert_int_equal(r->wrong, 0);
	assert_int_equal(r->stale, 0);
	assert_true(r->pins > steps / 20);
	assert_true(r->releases > steps / 20);
}

/* script NULL: on soft. */
static void live_together(const char *script, const char *policy)
{
	struct record records[NTHREADS] = { 0 };
	struct world w = { 0 };
	uint64_t seed = test_seed();
	bool faults = script && strstr(script, "EFAULT");

	open_world(&w, script, policy);
	for (unsigned i = 0; i < NTHREADS; i++) {
		records[i].w = &w;
		records[i].number = i;
		records[i].random = seed + 1000003 * i;
		assert_ok(pthread_create(&records[i].thread, NULL, live,
					 &records[i]));
	}
	for (unsigned i = 0; i < NTHREADS; i++)
		assert_ok(pthread_join(records[i].thread, NULL));
	close_world(&w);
	for (unsigned i = 0; i < NTHREADS; i++) {
		judge(&records[i]);
		assert_true(faults || !records[i].faults);
	}
}

static void threads_get_along_on_sim(void **state)
{
	(void)state;
	live_together("", "lru");
	live_together("", "mre");
}

static void threads_get_along_with_a_device_that_fails(void **state)
{
	(void)state;
	live_together("fail registrations every 7 with ENOMEM", "fmrd");
	live_together("fail registrations every 11 with EFAULT", "cost");
}

static void threads_get_along_on_soft(void **state)
{
	(void)state;
	live_together(NULL, "lru");
}

/* --- hints --------------------------------------------------------------- */

/* Page 0 is pinned all the time, page 2 never; pages 4 to 43 are pinned,
 * evicted (there is room for 15) and released, so that regions are reused
 * for other pages all the time. Asked about by threads that neither pin nor
 * release. */
struct asker {
	pthread_t thread;
	struct pn_cache *cache;
	char *mem;
	_Atomic bool *stop;
	uint64_t asked;
	unsigned wrong;
};

static void *ask(void *arg)
{
	struct asker *a = arg;
	uint64_t random = (uintptr_t)a;

	while (!atomic_load(a->stop)) {
		size_t page = 4 + test_below(&random, 40);

		a->wrong += !pn_cache_covers(a->cache, a->mem, PAGE, FLAGS);
		a->wrong += pn_cache_covers(a->cache, a->mem + 2 * PAGE, PAGE,
					    FLAGS);
		/* Either answer may be right. */
		pn_cache_covers(a->cache, a->mem + page * PAGE, 2 * PAGE,
				FLAGS);
		pn_cache_holds(a->cache, a->mem + page * PAGE);
		a->asked++;
	}
	return NULL;
}

static void churn(struct pn_cache *cache, char *mem, uint64_t *random)
{
	char *at = mem + (4 + test_below(random, 38)) * PAGE;
	struct pinion_pin pin;

	if (!test_below(random, 8))
		pn_cache_invalidate(cache, (uintptr_t)at, 2 * PAGE);
	assert_ok(pn_cache_pin(cache, at, (1 + test_below(random, 3)) * PAGE,
			       FLAGS, &pin));
	pn_cache_unpin(cache, &pin);
}

static void hints_are_right_while_regions_come_and_go(void **state)
{
	struct asker askers[2] = { 0 };
	uint64_t random = test_seed(), asked = 0;
	struct pinion_pin pin;
	_Atomic bool stop = false;
	struct world w = { 0 };

	(void)state;
	open_world(&w, "", "lru");
	pn_budget_resize(&w.budget, 16 * PAGE, 0);
	pn_cache_set_merging(w.cache, false);
	assert_ok(pn_cache_pin(w.cache, w.area, PAGE, FLAGS, &pin));
	for (unsigned i = 0; i < 2; i++) {
		askers[i].cache = w.cache;
		askers[i].mem = w.area;
		askers[i].stop = &stop;
		assert_ok(pthread_create(&askers[i].thread, NULL, ask,
					 &askers[i]));
	}
	for (unsigned i = 0; i < steps; i++)
		churn(w.cache, w.area, &random);
	atomic_store(&stop, true);
	for (unsigned i = 0; i < 2; i++) {
		assert_ok(pthread_join(askers[i].thread, NULL));
		assert_int_equal(askers[i].wrong, 0);
		asked += askers[i].asked;
	}
	print_message("asked %llu times\n", (unsigned long long)asked);
	assert_true(asked > 0);
	pn_cache_unpin(w.cache, &pin);
	close_world(&w);
}

/* --- a budget ------------------------------------------------------------ */

#define TAKES (20 * steps)

struct taker {
	struct pn_budget *budget;
	pthread_barrier_t *start;
	unsigned exceeded;
};

/* As caches on several devices do: no lock is common to them. */
static void *take_and_give(void *arg)
{
	struct taker *t = arg;

	pthread_barrier_wait(t->start);
	for (unsigned i = 0; i < TAKES; i++) {
		if (!pn_budget_charge(t->budget, PAGE, 1))
			continue;
		t->exceeded += atomic_load(&t->budget->bytes) > 3 * PAGE;
		pn_budget_uncharge(t->budget, PAGE, 1);
	}
	return NULL;
}

/* Room for three of four. */
static void what_threads_charge_to_a_budget_is_counted(void **state)
{
	struct taker takers[NTHREADS] = { 0 };
	pthread_t threads[NTHREADS];
	pthread_barrier_t start;
	struct pn_device *device;
	struct pn_budget budget;

	(void)state;
	assert_ok(pn_device_open("sim", NULL, &device));
	pn_budget_init(&budget, device, 3 * PAGE, 0, 1);
	assert_ok(pthread_barrier_init(&start, NULL, NTHREADS));
	for (unsigned i = 0; i < NTHREADS; i++) {
		takers[i].budget = &budget;
		takers[i].start = &start;
		assert_ok(pthread_create(&threads[i], NULL, take_and_give,
					 &takers[i]));
	}
	for (unsigned i = 0; i < NTHREADS; i++) {
		assert_ok(pthread_join(threads[i], NULL));
		assert_int_equal(takers[i].exceeded, 0);
	}
	assert_int_equal(atomic_load(&budget.bytes), 0);
	assert_int_equal(atomic_load(&budget.regions), 0);
	assert_in_range(atomic_load(&budget.peak_bytes), PAGE, 3 * PAGE);
	pthread_barrier_destroy(&start);
	pn_device_close(device);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(threads_get_along_on_sim),
		TEST(threads_get_along_with_a_device_that_fails),
		TEST(threads_get_along_on_soft),
		TEST(hints_are_right_while_regions_come_and_go),
		TEST(what_threads_charge_to_a_budget_is_counted),
	};

	if (argc > 1)
		steps = (unsigned)strtoul(argv[1], NULL, 0);
	setvbuf(stdout, NULL, _IOLBF, 0); /* the seed, whatever comes */
	return RUN_TESTS(tests);
}
