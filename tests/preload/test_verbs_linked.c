/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program that uses pinion itself and runs under `pinion run --verbs`: one
 * library, one budget and one monitor for both.
 *
 *   PINION_PROCESS_MAX_BYTES=1M pinion run --verbs test_verbs_linked ADDRESS
 *
 * Counts are the kernel's. tests/vm/suite runs it.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <pinion/pinion.h>
#include <pinion/verbs.h>

#include "cm_pair.h"
#include "test.h"

#define KIB   ((size_t)1 << 10)
#define LOCAL IBV_ACCESS_LOCAL_WRITE

static const char *address;

struct fixture {
	struct cm_pair pair;
	struct pinion_context *context; /* over the pair's domain */
	char *memory;
	size_t len;
};

static void start(struct fixture *f, size_t len)
{
	cm_pair_open(&f->pair, address);
	assert_ok(pinion_verbs_open(f->pair.pd, NULL, &f->context));
	f->len = len;
	f->memory = mmap(NULL, len, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(f->memory, MAP_FAILED);
}

static void stop(struct fixture *f)
{
	pinion_close(f->context);
	assert_ok(cm_pair_close(&f->pair));
	munmap(f->memory, f->len);
}

/* Pins with the program's own context; the key. */
static uint32_t pin_again(struct fixture *f, size_t at, size_t len)
{
	struct pinion_pin pin;
	uint32_t key;

	assert_ok(pinion_pin(f->context, f->memory + at, len, LOCAL, &pin));
	key = pinion_verbs_lkey(&pin);
	pinion_unpin(f->context, &pin);
	return key;
}

/* Registers as the rest of the program does; the key. */
static uint32_t register_again(struct fixture *f, size_t at, size_t len)
{
	struct ibv_mr *mr = ibv_reg_mr(f->pair.pd, f->memory + at, len, LOCAL);
	uint32_t key;

	assert_non_null(mr);
	key = mr->lkey;
	assert_ok(ibv_dereg_mr(mr));
	return key;
}

/* What was released is deregistered soon after. */
static void expect_registrations(size_t n)
{
	for (unsigned i = 0; i < 600 && cm_mrs(0).n != n; i++)
		usleep(100000);
	assert_int_equal(cm_mrs(0).n, n);
}

static void there_is_one_library(void **state)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[4096], first[4096] = "";
	unsigned npreload = 0;

	(void)state;
	assert_non_null(maps);
	while (fgets(line, sizeof(line), maps)) {
		const char *file = strchr(line, '/');

		npreload += file && strstr(file, "libpinion-verbs.so");
		if (!file || !strstr(file, "libpinion.so"))
			continue;
		if (!*first)
			strcpy(first, file);
		assert_string_equal(file, first);
	}
	fclose(maps);
	assert_true(npreload && *first);
}

/* What pinion registers for the program's context passes the preload: it is
 * registered once, and not kept a second time below. */
static void both_are_registered_once(void **state)
{
	struct fixture f;
	uint64_t first;

	(void)state;
	start(&f, 64 * KIB);
	first = cm_mr_number(f.pair.pd);
	for (unsigned i = 0; i < 50; i++) {
		pin_again(&f, 0, 16 * KIB);
		register_again(&f, 0, 16 * KIB);
	}
	assert_int_equal(cm_mr_number(f.pair.pd) - first - 1, 2);
	/* A flush of its context leaves what is kept below. */
	expect_registrations(2);
	pinion_cache_flush(f.context);
	expect_registrations(1);
	stop(&f);
}

static void both_see_a_release(void **state)
{
	uint32_t pinned, registered;
	struct fixture f;

	(void)state;
	start(&f, 64 * KIB);
	pinned = pin_again(&f, 0, 16 * KIB);
	registered = register_again(&f, 0, 16 * KIB);
	assert_int_equal(pin_again(&f, 0, 16 * KIB), pinned);
	assert_int_equal(register_again(&f, 0, 16 * KIB), registered);
	assert_ok(madvise(f.memory, f.len, MADV_DONTNEED));
	assert_int_not_equal(pin_again(&f, 0, 16 * KIB), pinned);
	assert_int_not_equal(register_again(&f, 0, 16 * KIB), registered);
	stop(&f);
}

/* In turns, so that each has to make room for the other. */
static void one_budget_holds_for_both(void **state)
{
	static const size_t max = 1024 * KIB;
	struct fixture f;
	size_t most = 0;

	(void)state;
	if (!getenv("PINION_PROCESS_MAX_BYTES"))
		skip();
	start(&f, 4 * max);
	for (unsigned i = 0; i < 64; i++) {
		if (i % 2)
			pin_again(&f, i * 64 * KIB, 64 * KIB);
		else
			register_again(&f, i * 64 * KIB, 64 * KIB);
		if (i % 8 == 7 && cm_mrs(0).bytes > most)
			most = cm_mrs(0).bytes;
	}
	print_message("%zu KiB at most, the limit is %zu\n", most / KIB,
		      max / KIB);
	assert_true(most <= max && most > max / 2);
	stop(&f);
}

/* --- calls of pinion's own beside those of the program --------------------
 */

struct other {
	pthread_t thread;
	struct fixture *f;
	_Atomic bool done;
	unsigned nerrors;
};

static void *makes_domains(void *arg)
{
	struct other *me = arg;

	while (!atomic_load(&me->done)) {
		struct ibv_pd *pd = ibv_alloc_pd(me->f->pair.adapter);

		me->nerrors += !pd || ibv_dealloc_pd(pd);
	}
	return NULL;
}

static void begin_other(struct other *other, void *(*fn)(void *),
			struct fixture *f)
{
	*other = (struct other){ .f = f };
	assert_ok(pthread_create(&other->thread, NULL, fn, other));
}

static void end_other(struct other *other)
{
	atomic_store(&other->done, true);
	assert_ok(pthread_join(other->thread, NULL));
	assert_int_equal(other->nerrors, 0);
}

/* With remote access, which is not kept: the room comes from elsewhere. */
static void register_remote(struct fixture *f, size_t at, size_t len)
{
	struct ibv_mr *mr = ibv_reg_mr(f->pair.pd, f->memory + at, len,
				       LOCAL | IBV_ACCESS_REMOTE_WRITE);

	assert_non_null(mr);
	assert_ok(ibv_dereg_mr(mr));
}

/* A registration of the program makes room in the program's own context, which
 * deregisters by ibv_dereg_mr(), while another thread waits to add a domain. */
static void room_is_made_while_domains_come_and_go(void **state)
{
	struct other other;
	struct fixture f;

	(void)state;
	if (!getenv("PINION_PROCESS_MAX_BYTES"))
		skip();
	start(&f, 4096 * KIB);
	begin_other(&other, makes_domains, &f);
	for (unsigned i = 0; i < 1000; i++) {
		pin_again(&f, i % 32 * 64 * KIB, 64 * KIB);
		register_remote(&f, (32 + i % 32) * 64 * KIB, 64 * KIB);
	}
	end_other(&other);
	stop(&f);
}

/* As a hook does that keeps memory for a program: it deregisters before a
 * fork(), behind the preload's own handler. */
static struct pinion_context *_Atomic flushed;

static void before_fork(void)
{
	struct pinion_context *context = atomic_load(&flushed);

	if (context)
		pinion_cache_flush(context);
}

static void *pins(void *arg)
{
	struct other *me = arg;
	struct pinion_pin pin;

	for (size_t i = 0; !atomic_load(&me->done); i++) {
		if (pinion_pin(me->f->context,
			       me->f->memory + i % 16 * 16 * KIB, 16 * KIB,
			       LOCAL | PINION_PIN_BYPASS, &pin))
			me->nerrors++;
		else
			pinion_unpin(me->f->context, &pin);
	}
	return NULL;
}

static void a_fork_waits_for_deregistrations_of_others(void **state)
{
	struct other other;
	struct fixture f;
	int status;

	(void)state;
	start(&f, 256 * KIB);
	register_again(&f, 0, 16 * KIB);
	atomic_store(&flushed, f.context);
	begin_other(&other, pins, &f);
	for (unsigned i = 0; i < 100; i++) {
		pid_t child = fork();

		if (!child)
			_exit(0);
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_int_equal(status, 0);
	}
	end_other(&other);
	atomic_store(&flushed, NULL);
	stop(&f);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(there_is_one_library),
		TEST(both_are_registered_once),
		TEST(both_see_a_release),
		TEST(one_budget_holds_for_both),
		TEST(room_is_made_while_domains_come_and_go),
		TEST(a_fork_waits_for_deregistrations_of_others),
	};

	if (argc < 2) {
		puts("skipped: name the address of an adapter");
		return TEST_SKIP;
	}
	address = argv[1];
	/* Before the preload's own handler, so it runs after it. */
	assert_ok(pthread_atfork(before_fork, NULL, NULL));
	return cmocka_run_group_tests(tests, NULL, NULL);
}
