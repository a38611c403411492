/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An endpoint without memory: every allocation of a story fails once, the
 * first, the second and so on, in whatever thread, until the story needs no
 * more than it gets. The story is all that a program does: two contexts are
 * opened, messages are sent, memory is exposed, read and written, pinned and
 * taken from a heap. Each time every call returns and every request ends, what
 * fails says -ENOMEM or -ENOBUFS or that the peer is gone, and the same works
 * afterwards. The linker puts the test in front of malloc() and its like.
 *
 *   test_memory [STEP]   every STEP-th allocation, from a random one on
 */
#include <stdatomic.h>

#include "test.h"

#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>

#include "allocations.h"
#include "message/ends.h"

#define LEN ((size_t)300 << 10)

static _Atomic unsigned
	fail_in; /* number of the allocation that fails, from now on; 0: none */
static _Atomic bool fail_all;
static unsigned step = 1;

static bool test_may_allocate(void *caller)
{
	unsigned left = atomic_load(&fail_in);

	(void)caller;
	while (left && !atomic_compare_exchange_weak(&fail_in, &left, left - 1))
		;
	return left != 1 && !atomic_load(&fail_all);
}

/* --- the story ------------------------------------------------------------ */

static struct {
	struct pair pair;
	char *mem; /* 2 * LEN */
} f;

/* The errors that a call may return if its memory, or the peer's, was refused.
 */
static int expected(int ret)
{
	if (ret && ret != -ENOMEM && ret != -ENOBUFS && ret != -ECONNREFUSED &&
	    ret != -ECONNRESET && ret != -EREMOTEIO && ret != -ECANCELED)
		fail_msg("it says %s", strerror(-ret));
	return ret;
}

static int open_end(struct end *end)
{
	const char *const options[] = { "log=none", "eager_limit=2K",
					"max_bytes=4M", NULL };
	struct pinion_attr attr = { .size = sizeof(attr), .options = options };
	int ret = 0;

	if (!end->context)
		ret = pinion_open(&attr, &end->context);
	if (!ret && !end->ep)
		ret = pinion_endpoint_open(end->context, NULL, &end->ep);
	return ret ? ret : pinion_endpoint_address(end->ep, &end->address);
}

static int open_both(void)
{
	struct pair *p = &f.pair;
	int ret = open_end(&p->a);

	if (!ret)
		ret = open_end(&p->b);
	if (!ret)
		ret = pinion_peer_add(p->a.ep, &p->b.address, &p->to_b);
	if (!ret)
		ret = pinion_peer_add(p->b.ep, &p->a.address, &p->to_a);
	return expected(ret);
}

static void close_both(void)
{
	pinion_close(f.pair.a.context);
	pinion_close(f.pair.b.context);
	memset(&f.pair, 0, sizeof(f.pair));
}

/* Waits for a request, unless `ret` says that it was not posted. */
static int ended(struct end *end, int ret, struct pinion_request *request)
{
	if (ret)
		return expected(ret);
	return expected(finish(&f.pair, end->ep, request).status);
}

static int exchange(size_t len)
{
	static uint64_t tag; /* a message that was not received is never matched
				later */
	struct pinion_message out = { .size = sizeof(out),
				      .buf = f.mem,
				      .len = len,
				      .tag = ++tag,
				      .peer = f.pair.to_b };
	struct pinion_message in = { .size = sizeof(in),
				     .buf = f.mem + LEN,
				     .len = len,
				     .tag = tag,
				     .peer = f.pair.to_a };
	struct pinion_request *sending, *receiving;
	int received, sent;

	received = pinion_recv(f.pair.b.ep, &in, &receiving);
	if (received)
		return expected(received);
	sent = pinion_send(f.pair.a.ep, &out, &sending);
	sent = ended(&f.pair.a, sent, sending);
	if (sent)
		pinion_cancel(f.pair.b.ep, receiving);
	received = ended(&f.pair.b, 0, receiving);
	return sent ? sent : received;
}

static int move(struct pinion_remote *remote, size_t len, bool put)
{
	struct pinion_move m = {
		.size = sizeof(m), .remote = remote, .buf = f.mem, .len = len
	};
	struct pinion_request *request;
	int ret = (put ? pinion_put : pinion_get)(f.pair.a.ep, &m, &request);

	return ended(&f.pair.a, ret, request);
}

static int add(struct pinion_remote *remote)
{
	struct pinion_atomic atomic = { .size = sizeof(atomic),
					.remote = remote,
					.operand = 1 };
	struct pinion_request *request;
	int ret = pinion_atomic_fetch_add(f.pair.a.ep, &atomic, &request);

	return ended(&f.pair.a, ret, request);
}

static int reach(void)
{
	struct pinion_exposure *exposure;
	struct pinion_remote *remote;
	struct pinion_exposure_key key;
	int ret = pinion_exposure_open(f.pair.b.ep, f.mem + LEN, LEN,
				       PINION_ACCESS_ALL, &exposure);

	if (ret)
		return expected(ret);
	assert_ok(pinion_exposure_key(exposure, &key));
	ret = pinion_remote_open(f.pair.a.ep, f.pair.to_b, &key, &remote);
	if (ret) {
		pinion_exposure_close(exposure);
		return expected(ret);
	}
	ret = move(remote, 100, true);
	ret = ret ? ret : move(remote, 100, false);
	ret = ret ? ret : move(remote, LEN, true);
	ret = ret ? ret : move(remote, LEN, false);
	ret = ret ? ret : add(remote);
	pinion_remote_close(remote);
	pinion_exposure_close(exposure);
	return ret;
}

static int use_memory(void)
{
	struct pinion_pin pin;
	struct pinion_heap *heap;
	void *block;
	int ret = pinion_pin(f.pair.a.context, f.mem, LEN,
			     PINION_ACCESS_LOCAL_WRITE, &pin);

	if (ret)
		return expected(ret);
	pinion_unpin(f.pair.a.context, &pin);
	ret = pinion_heap_open(f.pair.a.context, NULL, &heap);
	if (ret)
		return expected(ret);
	block = pinion_heap_malloc(heap, 1000);
	pinion_heap_free(heap, block);
	pinion_heap_close(heap);
	return block ? 0 : -ENOMEM;
}

static int story(void)
{
	int ret = open_both();

	ret = ret ? ret : exchange(8);
	ret = ret ? ret : exchange(20000);
	ret = ret ? ret : exchange(LEN);
	ret = ret ? ret : reach();
	return ret ? ret : use_memory();
}

/* A peer that could not connect is gone, and a new one is made. The other side
 * may learn of its end only during the next story. */
static void recover(void)
{
	for (unsigned i = 0; i < 3; i++)
		if (!story())
			return;
	fail_msg("it does not work any more");
}

/* --- tests ---------------------------------------------------------------- */

static void no_allocation_that_fails_stops_the_program(void **state)
{
	uint64_t seed = test_seed();
	unsigned nfailed = 0, n = 1 + (unsigned)(seed % step);

	(void)state;
	for (;; n += step) {
		bool spent;
		int ret;

		atomic_store(&fail_in, n);
		ret = story();
		spent = !atomic_load(&fail_in);
		atomic_store(&fail_in, 0);
		nfailed += !!ret;
		if (!spent)
			assert_ok(ret);
		recover();
		close_both();
		if (!spent)
			break;
	}
	printf("%u allocations, %u made the story fail\n", n, nfailed);
	assert_true(nfailed);
}

static void *pin_in_thread(void *arg)
{
	struct pinion_pin pin;
	int *ret = arg;

	*ret = pinion_pin(f.pair.a.context, f.mem, LEN,
			  PINION_ACCESS_LOCAL_WRITE, &pin);
	if (!*ret)
		pinion_unpin(f.pair.a.context, &pin);
	return NULL;
}

/* The first call of a thread allocates, even if everything is cached. */
static void a_new_thread_without_memory_is_told_so(void **state)
{
	pthread_t thread;
	int ret = 0;

	(void)state;
	assert_ok(open_both());
	pin_in_thread(&ret);
	assert_ok(ret);
	atomic_store(&fail_all, true);
	assert_ok(pthread_create(&thread, NULL, pin_in_thread, &ret));
	assert_ok(pthread_join(thread, NULL));
	atomic_store(&fail_all, false);
	assert_int_equal(ret, -ENOMEM);
	close_both();
}

static void requests_end_while_there_is_no_memory_at_all(void **state)
{
	(void)state;
	assert_ok(open_both());
	assert_ok(exchange(8));
	atomic_store(&fail_all, true);
	for (unsigned i = 0; i < 3; i++) {
		exchange(8);
		exchange(20000);
		exchange(LEN);
		reach();
	}
	atomic_store(&fail_all, false);
	recover();
	close_both();
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(a_new_thread_without_memory_is_told_so),
		TEST(requests_end_while_there_is_no_memory_at_all),
		TEST(no_allocation_that_fails_stops_the_program),
	};

	if (argc > 1)
		step = (unsigned)atoi(argv[1]);
	f.mem = mmap(NULL, 2 * LEN, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (f.mem == MAP_FAILED)
		return 1;
	return RUN_TESTS(tests);
}
