/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program with threads loads libpinion late (argument 1), where the modes
 * that are possible then are forbidden (argument 2):
 *   seccomp  userfaultfd, by a filter as containers have it
 *   no_proc  the same, and /proc is not mounted
 * Releases of memory are not detected, so nothing may stay registered: messages
 * into memory that is mapped again before each must arrive. This program itself
 * has none of pinion's code.
 */
#include "test.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <pinion/pinion.h>

#include "forbid.h"

#define MESSAGES 12
#define LEN	 ((size_t)1 << 20)

static const char *library;

#define CALLS(CALL)            \
	CALL(open)             \
	CALL(close)            \
	CALL(endpoint_open)    \
	CALL(endpoint_address) \
	CALL(peer_add)         \
	CALL(send)             \
	CALL(recv)             \
	CALL(test)             \
	CALL(pin)              \
	CALL(unpin) CALL(cache_query) CALL(heap_open) CALL(heap_malloc)

#define FIELD(name) __typeof__(&pinion_##name) name;
static struct {
	CALLS(FIELD)
} pn;

static void load(void)
{
	void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);

	assert_non_null(handle);
#define LOAD(name)                                                     \
	pn.name = (__typeof__(pn.name))dlsym(handle, "pinion_" #name); \
	assert_non_null(pn.name);
	CALLS(LOAD)
}

/* --- two ends in this process --------------------------------------------- */

struct end {
	struct pinion_context *context;
	struct pinion_endpoint *ep;
	struct pinion_peer *peer;
};

static void open_end(struct end *end)
{
	static const char *const options[] = { "device=soft", NULL };
	const struct pinion_attr attr = { .size = sizeof(attr),
					  .options = options };

	assert_ok(pn.open(&attr, &end->context));
	assert_ok(pn.endpoint_open(end->context, NULL, &end->ep));
}

static void connect_ends(struct end *from, const struct end *to)
{
	struct pinion_address address;

	assert_ok(pn.endpoint_address(to->ep, &address));
	assert_ok(pn.peer_add(from->ep, &address, &from->peer));
}

static void exchange(struct end *a, struct end *b, char *source, char *target)
{
	struct pinion_message out = {
		.size = sizeof(out), .peer = a->peer, .buf = source, .len = LEN
	};
	struct pinion_message in = { .size = sizeof(in),
				     .buf = target,
				     .len = LEN };
	struct pinion_request *sent, *received;
	int s = -EAGAIN, r = -EAGAIN;

	assert_ok(pn.recv(b->ep, &in, &received));
	assert_ok(pn.send(a->ep, &out, &sent));
	while (s == -EAGAIN || r == -EAGAIN) {
		if (s == -EAGAIN)
			s = pn.test(a->ep, sent, NULL);
		if (r == -EAGAIN)
			r = pn.test(b->ep, received, NULL);
	}
	assert_ok(s);
	assert_ok(r);
}

static char *map(void *at)
{
	char *p =
		mmap(at, LEN, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0), -1, 0);

	assert_true(p != MAP_FAILED);
	return p;
}

static bool is_filled(const char *p, char with)
{
	return p[0] == with && !memcmp(p, p + 1, LEN - 1);
}

static struct pinion_cache_stats stats_of(const struct end *end)
{
	struct pinion_cache_stats stats = { .size = sizeof(stats) };

	assert_ok(pn.cache_query(end->context, &stats));
	return stats;
}

/* --- the tests ----------------------------------------------------------- */

static struct end a, b;

static void messages_arrive_in_memory_mapped_again(void **state)
{
	char *source = map(NULL), *target = map(NULL);
	unsigned wrong = 0;

	(void)state;
	for (int i = 1; i <= MESSAGES; i++) {
		memset(source, i, LEN);
		memset(map(target), 0, LEN);
		exchange(&a, &b, source, target);
		wrong += !is_filled(target, (char)i);
	}
	assert_int_equal(wrong, 0);
	assert_int_equal(stats_of(&a).regions, 0);
	assert_int_equal(stats_of(&b).regions, 0);
	munmap(source, LEN);
	munmap(target, LEN);
}

static void nothing_stays_registered_after_a_pin(void **state)
{
	struct pinion_cache_stats before = stats_of(&a), after;
	char *p = map(NULL);
	struct pinion_pin pin;

	(void)state;
	for (int i = 0; i < 3; i++) {
		assert_ok(pn.pin(a.context, p, LEN, 0, &pin));
		pn.unpin(a.context, &pin);
	}
	after = stats_of(&a);
	assert_int_equal(after.registrations - before.registrations, 3);
	assert_int_equal(after.unkept - before.unkept, 3);
	assert_int_equal(after.hits, before.hits);
	assert_int_equal(after.regions, 0);
	munmap(p, LEN);
}

/* Only the heap unmaps it. */
static void memory_of_a_heap_stays_registered(void **state)
{
	struct pinion_cache_stats before, after;
	struct pinion_heap *heap;
	struct pinion_pin pin;
	void *block;

	(void)state;
	assert_ok(pn.heap_open(a.context, NULL, &heap));
	block = pn.heap_malloc(heap, 64 << 10);
	assert_non_null(block);
	before = stats_of(&a);
	for (int i = 0; i < 3; i++) {
		assert_ok(pn.pin(a.context, block, 64 << 10, 0, &pin));
		pn.unpin(a.context, &pin);
	}
	after = stats_of(&a);
	assert_int_equal(after.registrations, before.registrations);
	assert_int_equal(after.hits - before.hits, 3);
}

static int open_both(void **state)
{
	(void)state;
	load();
	open_end(&a);
	open_end(&b);
	connect_ends(&a, &b);
	return 0;
}

static int close_both(void **state)
{
	(void)state;
	pn.close(a.context);
	pn.close(b.context);
	return 0;
}

/* --- the machine --------------------------------------------------------- */

static void *sit_and_wait(void *arg)
{
	char byte;

	return read(*(int *)arg, &byte, 1) == 1 ? arg : NULL;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(messages_arrive_in_memory_mapped_again),
		TEST(nothing_stays_registered_after_a_pin),
		TEST(memory_of_a_heap_stays_registered),
	};
	pthread_t thread;
	int fds[2];

	if (argc != 3)
		return 2;
	library = argv[1];
	if (!strcmp(argv[2], "no_proc") && !forbid_proc())
		return forbid_skip("/proc cannot be hidden here");
	if (!forbid(__NR_userfaultfd, EPERM))
		return forbid_skip("no seccomp filters here");
	if (pipe(fds) || pthread_create(&thread, NULL, sit_and_wait, &fds[0]))
		return 2;
	return cmocka_run_group_tests(tests, open_both, close_both);
}
