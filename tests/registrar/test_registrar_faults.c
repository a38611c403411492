/* SPDX-License-Identifier: BSD-2-Clause */
/* Functions of the program that fail: the first, second, ... call, once or
 * always. Nothing may be left registered, and the errors are the documented
 * ones. */
#include "test.h"

#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "context.h"
#include "ledger.h"

#define PAGE  LEDGER_PAGE
#define LOCAL PINION_ACCESS_LOCAL_WRITE
#define PUT   (PINION_ACCESS_LOCAL_WRITE | PINION_ACCESS_REMOTE_WRITE)
#define LIST  20

/* Steps to wait for another thread: half a minute. */
#define PATIENCE 30000

struct fixture {
	struct ledger ledger;
	struct pinion_context *context;
	int error; /* that pins may return, besides 0 */
};

static void start(struct fixture *f)
{
	static const char *const options[] = { "max_bytes=4M", "log=none",
					       NULL };

	ledger_init(&f->ledger);
	f->ledger.registrar.max_batch = 8;
	f->error = 0;
	assert_ok(ledger_open(&f->ledger, options, &f->context));
}

static void nothing_wrong(const struct fixture *f)
{
	if (f->ledger.wrong)
		fail_msg("%s", f->ledger.what);
}

static void stop(struct fixture *f)
{
	pn_cache_check(f->context->cache);
	ledger_close(&f->ledger, f->context);
	nothing_wrong(f);
	assert_int_equal(f->ledger.nlive, 0);
	ledger_fini(&f->ledger);
	pn_log_set_level(PN_LOG_WARN);
}

static void fail_register(struct fixture *f, unsigned first, unsigned n,
			  int error)
{
	ledger_fail(&f->ledger, &f->ledger.fail_register,
		    (struct ledger_fault){ first, n, error, false });
}

static void fail_deregister(struct fixture *f, unsigned first, unsigned n,
			    bool names_one)
{
	ledger_fail(&f->ledger, &f->ledger.fail_deregister,
		    (struct ledger_fault){ first, n, -EBUSY, names_one });
}

static bool may_return(const struct fixture *f, int ret)
{
	return !ret || ret == f->error;
}

static void check_pin(struct fixture *f, const struct pinion_pin *pin,
		      unsigned access)
{
	const char *what =
		ledger_use(&f->ledger, pin, access & PINION_ACCESS_ALL);

	if (what)
		fail_msg("%s", what);
}

/* --- a program ------------------------------------------------------------ */

static void use(struct fixture *f, size_t at, size_t len, unsigned access)
{
	struct pinion_pin pin;
	int ret =
		pinion_pin(f->context, f->ledger.area + at, len, access, &pin);

	if (!may_return(f, ret))
		fail_msg("a pin returned %d", ret);
	if (ret)
		return;
	check_pin(f, &pin, access);
	pinion_unpin(f->context, &pin);
}

static void use_list(struct fixture *f)
{
	struct pinion_pin pins[LIST];
	struct iovec list[LIST];
	int ret;

	for (unsigned i = 0; i < LIST; i++)
		list[i] = (struct iovec){ f->ledger.area + (100 + 2 * i) * PAGE,
					  700 };
	ret = pinion_pin_list(f->context, list, LIST, PUT, pins);
	assert_true(may_return(f, ret));
	for (unsigned i = 0; i < LIST && !ret; i++) {
		check_pin(f, &pins[i], PUT);
		pinion_unpin(f->context, &pins[i]);
	}
}

static void use_later(struct fixture *f, size_t at)
{
	struct pinion_pin pin;
	int ret = pinion_pin_start(f->context, f->ledger.area + at, 3 * PAGE,
				   LOCAL, &pin);

	if (ret == -EINPROGRESS)
		ret = pinion_pin_wait(f->context, &pin);
	assert_true(may_return(f, ret));
	if (ret)
		return;
	check_pin(f, &pin, LOCAL);
	pinion_unpin(f->context, &pin);
}

static void use_heap(struct fixture *f)
{
	struct pinion_heap *heap;
	char *block;

	assert_ok(pinion_heap_open(f->context, NULL, &heap));
	block = pinion_heap_malloc(heap, 5000);
	assert_true(block || f->error);
	if (block) {
		memset(block, 1, 5000);
		pinion_heap_free(heap, block);
	}
	assert_ok(pinion_heap_trim(heap));
	block = pinion_heap_malloc(heap, 100);
	if (block)
		memset(block, 2, 100);
	pinion_heap_close(heap);
}

static void use_by_hand(struct fixture *f)
{
	struct pinion_registration *reg;
	int ret = pinion_device_register(f->context, f->ledger.area + 10, 100,
					 PUT, &reg);

	assert_true(may_return(f, ret) ||
		    (f->error == -ENOBUFS && ret == -ENOMEM));
	if (!ret)
		pinion_device_deregister(reg);
}

static void play(struct fixture *f)
{
	for (size_t i = 0; i < 12; i++)
		use(f, 600 * i, 600, i % 4 ? PUT : LOCAL);
	use(f, 0, 4 * PAGE, LOCAL);
	use(f, PAGE, 8 * PAGE, LOCAL);
	use_list(f);
	use_later(f, 300 * PAGE);
	use_later(f, 301 * PAGE);
	ledger_remap(&f->ledger, f->ledger.area, 2 * PAGE);
	use(f, 100, 100, PUT);
	use_heap(f);
	use_by_hand(f);
	use(f, 50 * PAGE, PAGE, LOCAL | PINION_PIN_BYPASS);
	use(f, 52 * PAGE + 10, 100, PUT | PINION_PIN_BYPASS);
	assert_ok(pinion_cache_flush(f->context));
	/* More than the budget allows. */
	for (size_t i = 0; i < 4; i++)
		use(f, i * 200 * PAGE, 512 * PAGE - 100 * i, LOCAL);
	pn_cache_check(f->context->cache);
}

/* The number of calls if none fails. */
static void count_calls(unsigned *nregister, unsigned *nderegister)
{
	struct fixture f;

	start(&f);
	play(&f);
	*nregister = f.ledger.nregister;
	*nderegister = f.ledger.nderegister + 4;
	stop(&f);
}

static void fail_registers(int given, int seen, unsigned n)
{
	unsigned nregister, nderegister;

	count_calls(&nregister, &nderegister);
	assert_in_range(nregister, 10, 500);
	for (unsigned i = 1; i <= nregister; i++) {
		struct fixture f;

		start(&f);
		f.error = seen;
		fail_register(&f, i, n, given);
		play(&f);
		stop(&f);
	}
}

static void a_register_that_fails_leaves_nothing(void **state)
{
	(void)state;
	fail_registers(-EIO, -EIO, 1);
	fail_registers(-EIO, -EIO, LEDGER_FOREVER);
}

static void a_register_without_room_leaves_nothing(void **state)
{
	(void)state;
	fail_registers(-ENOMEM, -ENOBUFS, 1);
	fail_registers(-ENOMEM, -ENOBUFS, LEDGER_FOREVER);
}

static void any_nonzero_return_of_register_is_an_error(void **state)
{
	(void)state;
	fail_registers(7, -EIO, 1);
	fail_registers(-EINPROGRESS, -EIO, 1);
}

static _Atomic bool flushing;

static void *flush(void *arg)
{
	while (atomic_load(&flushing))
		pinion_cache_flush(arg);
	return NULL;
}

/* Room that another thread makes at this moment counts: half of the budget is
 * in use at most. */
static void a_pin_finds_the_room_that_others_make(void **state)
{
	struct fixture f;
	pthread_t thread;

	(void)state;
	start(&f);
	atomic_store(&flushing, true);
	assert_int_equal(pthread_create(&thread, NULL, flush, f.context), 0);
	for (size_t i = 0; i < 5000; i++)
		use(&f, i % 4 * 200 * PAGE, 512 * PAGE - 100 * (i % 4), LOCAL);
	atomic_store(&flushing, false);
	pthread_join(thread, NULL);
	stop(&f);
}

static void a_deregister_that_fails_once_is_tried_again(void **state)
{
	unsigned nregister, nderegister;

	(void)state;
	count_calls(&nregister, &nderegister);
	for (unsigned i = 1; i <= 2 * nderegister; i++) {
		struct fixture f;

		start(&f);
		f.error = -ENOBUFS;
		fail_deregister(&f, (i + 1) / 2, 1, i % 2);
		play(&f);
		/* The last call may be the one that fails. */
		fail_deregister(&f, 0, 0, false);
		stop(&f);
	}
}

static void a_deregister_that_fails_for_ever_ends_in_close(void **state)
{
	struct fixture f;

	(void)state;
	for (unsigned i = 0; i < 4; i++) {
		start(&f);
		f.error = -ENOBUFS;
		fail_deregister(&f, 1 + i, LEDGER_FOREVER, i % 2);
		play(&f);
		pn_cache_check(f.context->cache);
		ledger_close(&f.ledger, f.context);
		nothing_wrong(&f);
		assert_true(f.ledger.nlive > 0);
		ledger_fini(&f.ledger);
		pn_log_set_level(PN_LOG_WARN);
	}
}

/* The first part of a batch is registered, the second fails, and undoing the
 * first fails, too. */
static void a_batch_that_cannot_be_undone_is_deregistered_later(void **state)
{
	struct fixture f;

	(void)state;
	for (int named = 0; named < 2; named++) {
		start(&f);
		f.error = -EIO;
		fail_register(&f, 2, 1, -EIO);
		fail_deregister(&f, 1, 1, named);
		use_list(&f);
		assert_int_equal(f.ledger.nlive, named ? 1 : 8);
		assert_true(atomic_load(&f.context->budget.regions) >=
			    f.ledger.nlive);
		assert_ok(pinion_cache_flush(f.context));
		assert_int_equal(f.ledger.nlive, 0);
		assert_int_equal(atomic_load(&f.context->budget.bytes), 0);
		stop(&f);
	}
}

/* --- deregistrations that fail -------------------------------------------- */

static unsigned live(struct ledger *ledger)
{
	unsigned n;

	pthread_mutex_lock(&ledger->lock);
	n = ledger->nlive;
	pthread_mutex_unlock(&ledger->lock);
	return n;
}

static void a_failed_deregistration_stays_in_the_budget(void **state)
{
	struct fixture f;
	size_t bytes;

	(void)state;
	start(&f);
	fail_deregister(&f, 1, LEDGER_FOREVER, false);
	use(&f, 0, 3 * PAGE, LOCAL);
	use(&f, 7000 * 3, 100, PUT);
	assert_ok(pinion_cache_flush(f.context));
	bytes = atomic_load(&f.context->budget.bytes);
	assert_int_equal(bytes, 4 * PAGE);
	/* No pin gets the old registration. */
	use(&f, 0, 3 * PAGE, LOCAL);
	assert_int_equal(f.ledger.nranges, 3);
	fail_deregister(&f, 0, 0, false);
	assert_ok(pinion_cache_flush(f.context));
	assert_int_equal(atomic_load(&f.context->budget.bytes), 0);
	stop(&f);
}

static void a_failed_deregistration_is_retried(void **state)
{
	struct fixture f;

	(void)state;
	start(&f);
	fail_deregister(&f, 1, 3, false);
	use(&f, 0, 3 * PAGE, LOCAL);
	assert_ok(pinion_cache_flush(f.context));
	assert_int_equal(live(&f.ledger), 1);
	for (unsigned i = 0; i < PATIENCE && live(&f.ledger); i++)
		usleep(1000);
	nothing_wrong(&f);
	assert_int_equal(live(&f.ledger), 0);
	stop(&f);
}

static void failed_deregistrations_are_not_retried_in_a_loop(void **state)
{
	struct pinion_pin pin;
	struct fixture f;
	unsigned ncalls;

	(void)state;
	start(&f);
	fail_deregister(&f, 1, LEDGER_FOREVER, false);
	f.error = -ENOBUFS;
	use(&f, 0, 1000 * PAGE, LOCAL);
	assert_ok(pinion_cache_flush(f.context));
	/* The whole budget is in use by them: no call waits for it. */
	assert_int_equal(pinion_pin(f.context, f.ledger.area, 200 * PAGE, PUT,
				    &pin),
			 -ENOBUFS);
	usleep(300000);
	/* About ten retries with a pause that doubles; a loop would make
	 * thousands. */
	pthread_mutex_lock(&f.ledger.lock);
	ncalls = f.ledger.nderegister;
	pthread_mutex_unlock(&f.ledger.lock);
	assert_true(ncalls < 1000);
	fail_deregister(&f, 0, 0, false);
	stop(&f);
}

static void a_key_whose_deregistration_fails_cannot_be_revoked(void **state)
{
	struct fixture f;

	(void)state;
	start(&f);
	fail_deregister(&f, 1, LEDGER_FOREVER, false);
	use(&f, 100, 100, PUT);
	assert_int_equal(pinion_cache_revoke(f.context, f.ledger.area, PAGE),
			 -EBUSY);
	fail_deregister(&f, 0, 0, false);
	assert_ok(pinion_cache_flush(f.context));
	assert_ok(pinion_cache_revoke(f.context, f.ledger.area, PAGE));
	stop(&f);
}

/* --- slabs ---------------------------------------------------------------- */

static size_t slabs(struct pinion_heap *heap)
{
	struct pinion_heap_stats stats = { .size = sizeof(stats) };

	assert_ok(pinion_heap_query(heap, &stats));
	return stats.slabs;
}

static void a_slab_that_stays_registered_stays_in_use(void **state)
{
	struct pinion_heap *heap;
	struct pinion_pin pin;
	struct fixture f;
	char *block;

	(void)state;
	start(&f);
	assert_ok(pinion_heap_open(f.context, NULL, &heap));
	block = pinion_heap_malloc(heap, 100000);
	assert_non_null(block);
	pinion_heap_free(heap, block);
	fail_deregister(&f, 1, 1, false);
	assert_ok(pinion_heap_trim(heap));
	assert_int_equal(f.ledger.nderegister, 1);
	assert_int_equal(slabs(heap), 1);
	assert_int_equal(f.ledger.nlive, 1);
	block = pinion_heap_malloc(heap, 100000);
	assert_non_null(block);
	assert_int_equal(f.ledger.nregister, 1);
	assert_ok(pinion_pin(f.context, block, 100, LOCAL, &pin));
	assert_int_equal(f.ledger.nregister, 1);
	pinion_unpin(f.context, &pin);
	pn_cache_check(f.context->cache);
	pinion_heap_free(heap, block);
	assert_ok(pinion_heap_trim(heap));
	assert_int_equal(slabs(heap), 0);
	assert_int_equal(f.ledger.nlive, 0);
	pinion_heap_close(heap);
	stop(&f);
}

static void memory_of_a_slab_that_stays_is_not_unmapped(void **state)
{
	struct pinion_heap *heap;
	struct fixture f;
	char *block;

	(void)state;
	start(&f);
	assert_ok(pinion_heap_open(f.context, NULL, &heap));
	block = pinion_heap_malloc(heap, 10000);
	assert_non_null(block);
	memset(block, 7, 10000);
	fail_deregister(&f, 1, LEDGER_FOREVER, false);
	pinion_heap_close(heap);
	assert_int_equal(live(&f.ledger), 1);
	assert_int_equal(block[9999], 7);
	fail_deregister(&f, 0, 0, false);
	stop(&f);
}

static void an_explicit_registration_is_deregistered_later(void **state)
{
	struct pinion_registration *reg;
	struct fixture f;

	(void)state;
	start(&f);
	assert_ok(pinion_device_register(f.context, f.ledger.area + 7, PAGE,
					 PUT, &reg));
	fail_deregister(&f, 1, 1, false);
	pinion_device_deregister(reg);
	pn_cache_check(f.context->cache);
	assert_ok(pinion_cache_flush(f.context));
	assert_int_equal(f.ledger.nlive, 0);
	assert_int_equal(atomic_load(&f.context->budget.bytes), 0);
	stop(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_register_that_fails_leaves_nothing),
		TEST(a_register_without_room_leaves_nothing),
		TEST(any_nonzero_return_of_register_is_an_error),
		TEST(a_pin_finds_the_room_that_others_make),
		TEST(a_deregister_that_fails_once_is_tried_again),
		TEST(a_deregister_that_fails_for_ever_ends_in_close),
		TEST(a_batch_that_cannot_be_undone_is_deregistered_later),
		TEST(a_failed_deregistration_stays_in_the_budget),
		TEST(a_failed_deregistration_is_retried),
		TEST(failed_deregistrations_are_not_retried_in_a_loop),
		TEST(a_key_whose_deregistration_fails_cannot_be_revoked),
		TEST(a_slab_that_stays_registered_stays_in_use),
		TEST(memory_of_a_slab_that_stays_is_not_unmapped),
		TEST(an_explicit_registration_is_deregistered_later),
	};

	return RUN_TESTS(tests);
}
