/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Threads that are canceled inside the library. A call that sleeps until its
 * request has ended is left at once, and the endpoint goes on; all others come
 * to their end first, whatever system calls they make. Threads record, the main
 * thread asserts. A thread that does not end is found by ctest's time limit.
 */
#include "test.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/service_thread.h"
#include "message/ends.h"

#define LONG ((size_t)600 << 10)

static void nap(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
}

/* --- a thread that waits -------------------------------------------------- */

struct waiter {
	struct end *end;
	struct pinion_request *request;
	pthread_t thread;
	_Atomic int tid;
	int status; /* of pinion_wait(); 1: it did not return */
	bool cleaned;
};

static void clean(void *arg)
{
	((struct waiter *)arg)->cleaned = true;
}

static void *wait_for_request(void *arg)
{
	struct waiter *w = arg;

	w->status = 1;
	w->cleaned = false;
	pthread_cleanup_push(clean, w);
	atomic_store(&w->tid, gettid());
	w->status = pinion_wait(w->end->ep, w->request, PINION_FOREVER, NULL);
	pthread_cleanup_pop(0);
	return NULL;
}

/* Whether the kernel says that a thread sleeps. */
static bool sleeps(int tid)
{
	char path[64], text[512];
	char *state;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", tid);
	file = fopen(path, "r");
	text[fread(text, 1, sizeof(text) - 1, file)] = 0;
	fclose(file);
	state = strrchr(text, ')');
	return state && state[2] == 'S';
}

/* Starts a thread that waits; returns when that thread has slept for a while.
 */
static void begin_wait(struct waiter *w, struct end *end,
		       struct pinion_request *request)
{
	w->end = end;
	w->request = request;
	atomic_store(&w->tid, 0);
	assert_ok(pthread_create(&w->thread, NULL, wait_for_request, w));
	for (unsigned n = 0; n < 20;) {
		nap();
		n = atomic_load(&w->tid) && sleeps(w->tid) ? n + 1 : 0;
	}
}

static void cancel_wait(struct waiter *w)
{
	void *result;

	assert_ok(pthread_cancel(w->thread));
	assert_ok(pthread_join(w->thread, &result));
	assert_ptr_equal(result, PTHREAD_CANCELED);
	assert_int_equal(w->status, 1);
	assert_true(w->cleaned);
}

static void end_wait(struct waiter *w)
{
	assert_ok(pthread_join(w->thread, NULL));
	assert_int_equal(w->status, 0);
}

static struct pinion_request *receive(struct end *end, void *buf, uint64_t tag)
{
	struct pinion_message m = {
		.size = sizeof(m), .buf = buf, .len = 8, .tag = tag
	};
	struct pinion_request *request;

	assert_ok(pinion_recv(end->ep, &m, &request));
	return request;
}

static void send_to(struct end *end, struct pinion_peer *peer, uint64_t value,
		    uint64_t tag)
{
	struct pinion_message m = { .size = sizeof(m),
				    .buf = &value,
				    .len = 8,
				    .tag = tag,
				    .peer = peer };
	struct pinion_request *request;

	assert_ok(pinion_send(end->ep, &m, &request));
	assert_ok(pinion_wait(end->ep, request, PINION_FOREVER, NULL));
}

static void a_canceled_wait_leaves_its_request_to_others(void **state)
{
	struct pinion_request *request;
	struct waiter w;
	struct pair pair;
	uint64_t got = 0;

	(void)state;
	pair_open(&pair, NULL);
	request = receive(&pair.a, &got, 1);
	begin_wait(&w, &pair.a, request);
	cancel_wait(&w);
	begin_wait(&w, &pair.a, request);
	send_to(&pair.b, pair.to_a, 4711, 1);
	end_wait(&w);
	assert_int_equal(got, 4711);
	pair_close(&pair);
}

/* One thread sleeps in the device, the others wait for it. */
static void any_of_several_that_wait_can_be_canceled(void **state)
{
	struct pinion_request *requests[3];
	uint64_t got[3];
	struct waiter w[3];
	struct pair pair;

	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		pair_open(&pair, NULL);
		for (unsigned k = 0; k < 3; k++) {
			requests[k] = receive(&pair.a, &got[k], k);
			begin_wait(&w[k], &pair.a, requests[k]);
		}
		cancel_wait(&w[i]);
		for (unsigned k = 0; k < 3; k++)
			send_to(&pair.b, pair.to_a, k, k);
		for (unsigned k = 0; k < 3; k++)
			if (k != i)
				end_wait(&w[k]);
		assert_ok(pinion_wait(pair.a.ep, requests[i], PINION_FOREVER,
				      NULL));
		for (unsigned k = 0; k < 3; k++)
			assert_int_equal(got[k], k);
		pair_close(&pair);
	}
}

/* --- calls that are no cancellation points -------------------------------- */

struct story {
	struct pair pair;
	char *mem; /* 2 * LONG, of its own mapping */
	struct pinion_exposure *exposure;
	struct pinion_remote *remote;
	struct pinion_pin pin;
	const char *at; /* the call that is being made */
	bool over;
	int wrong; /* what it returned, if not 0 */
};

/* Makes a call while a cancellation is pending: the call returns. */
#define SURVIVES(s, call)                    \
	do {                                 \
		if (!(s)->wrong) {           \
			(s)->at = #call;     \
			(s)->wrong = (call); \
		}                            \
	} while (0)

static int finish_both(struct story *s, struct end *end,
		       struct pinion_request *request)
{
	while (pinion_test(end->ep, request, NULL))
		pair_progress(&s->pair);
	return 0;
}

static int exchange(struct story *s, size_t len)
{
	struct pinion_message out = { .size = sizeof(out),
				      .buf = s->mem,
				      .len = len,
				      .peer = s->pair.to_b };
	struct pinion_message in = { .size = sizeof(in),
				     .buf = s->mem + LONG,
				     .len = len };
	struct pinion_request *sending, *receiving;
	int ret = pinion_recv(s->pair.b.ep, &in, &receiving);

	if (!ret)
		ret = pinion_send(s->pair.a.ep, &out, &sending);
	if (!ret)
		ret = finish_both(s, &s->pair.a, sending);
	return ret ? ret : finish_both(s, &s->pair.b, receiving);
}

static int access_remote(struct story *s, size_t len)
{
	struct pinion_move move = { .size = sizeof(move),
				    .remote = s->remote,
				    .buf = s->mem,
				    .len = len };
	struct pinion_request *request;
	int ret = pinion_put(s->pair.a.ep, &move, &request);

	if (!ret)
		ret = finish_both(s, &s->pair.a, request);
	if (!ret)
		ret = pinion_get(s->pair.a.ep, &move, &request);
	return ret ? ret : finish_both(s, &s->pair.a, request);
}

static int add(struct story *s)
{
	struct pinion_atomic atomic = { .size = sizeof(atomic),
					.remote = s->remote,
					.operand = 1 };
	struct pinion_request *request;
	int ret = pinion_atomic_fetch_add(s->pair.a.ep, &atomic, &request);

	return ret ? ret : finish_both(s, &s->pair.a, request);
}

static int reach_b(struct story *s)
{
	struct pinion_exposure_key key;
	int ret = pinion_exposure_open(s->pair.b.ep, s->mem + LONG, LONG,
				       PINION_ACCESS_ALL, &s->exposure);

	if (!ret)
		ret = pinion_exposure_key(s->exposure, &key);
	return ret ? ret
		   : pinion_remote_open(s->pair.a.ep, s->pair.to_b, &key,
					&s->remote);
}

static int pin_and_unpin(struct story *s, size_t len)
{
	int ret = pinion_pin(s->pair.a.context, s->mem, len,
			     PINION_ACCESS_LOCAL_WRITE, &s->pin);

	if (!ret)
		pinion_unpin(s->pair.a.context, &s->pin);
	return ret;
}

/* No other thread takes part, so the test waits for none. */
static int pin_later(struct story *s)
{
	int ret = pinion_pin_start(s->pair.a.context, s->mem + 4096, 8192,
				   PINION_ACCESS_REMOTE_READ, &s->pin);

	while (ret == -EINPROGRESS)
		ret = pinion_pin_test(s->pair.a.context, &s->pin);
	if (!ret)
		pinion_unpin(s->pair.a.context, &s->pin);
	return ret;
}

static int use_heap(struct story *s)
{
	struct pinion_heap *heap;
	int ret = pinion_heap_open(s->pair.a.context, NULL, &heap);
	void *block;

	if (ret)
		return ret;
	block = pinion_heap_malloc(heap, 5000);
	pinion_heap_free(heap, block);
	pinion_heap_trim(heap);
	pinion_heap_close(heap);
	return !block;
}

/* pinion_open() logs to standard error, which nothing can be sent from. */
static int open_and_close(void)
{
	struct pinion_context *context;
	const char *const options[] = { "device=nothing", NULL };
	struct pinion_attr attr = { .size = sizeof(attr), .options = options };
	int ret = pinion_open(&attr, &context);

	return ret == -ENODEV || ret == -EINVAL ? 0 : -EIO;
}

static int use_descriptor(struct story *s)
{
	int fd = pinion_endpoint_fd(s->pair.a.ep);

	while (pinion_endpoint_arm(s->pair.a.ep))
		pinion_poll(s->pair.a.ep, NULL, 0, 0);
	return fd < 0 ? fd : exchange(s, 8); /* notifies the peer */
}

static void *live_with_request_to_end(void *arg)
{
	struct story *s = arg;

	pthread_cancel(pthread_self());
	s->at = "pair_open";
	pair_open(&s->pair, "helper=off");
	for (size_t len = 1; len <= LONG; len *= 8)
		SURVIVES(s, exchange(s, len));
	SURVIVES(s, exchange(s, LONG));
	SURVIVES(s, use_descriptor(s));
	SURVIVES(s, reach_b(s));
	for (size_t len = 8; len <= LONG; len *= 16)
		SURVIVES(s, access_remote(s, len));
	SURVIVES(s, add(s));
	SURVIVES(s, pin_and_unpin(s, 3 * 4096));
	SURVIVES(s, pin_and_unpin(s, LONG));
	SURVIVES(s, pin_later(s));
	SURVIVES(s, pinion_cache_flush(s->pair.a.context));
	SURVIVES(s, use_heap(s));
	SURVIVES(s, pinion_cache_resize(s->pair.a.context, LONG, 10));
	SURVIVES(s, open_and_close());
	s->at = s->wrong ? s->at : "closing";
	pinion_remote_close(s->remote);
	pinion_exposure_close(s->exposure);
	pair_close(&s->pair);
	s->over = true;
	pthread_testcancel();
	return NULL;
}

static void other_calls_come_to_their_end(void **state)
{
	struct story s = { .at = "nothing" };
	pthread_t thread;
	void *result;

	(void)state;
	s.mem = mmap(NULL, 2 * LONG, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(s.mem != MAP_FAILED);
	assert_ok(pthread_create(&thread, NULL, live_with_request_to_end, &s));
	assert_ok(pthread_join(thread, &result));
	if (!s.over || s.wrong)
		fail_msg("%s: %d", s.at, s.wrong);
	assert_ptr_equal(result, PTHREAD_CANCELED);
	munmap(s.mem, 2 * LONG);
}

/* The peer sleeps, so a short message makes a system call, too. */
static void *send_one(void *arg)
{
	struct pair *pair = arg;

	pthread_cancel(pthread_self());
	send_to(&pair->b, pair->to_a, 1, 1);
	return NULL;
}

static void a_canceled_thread_wakes_whom_it_sends_to(void **state)
{
	struct waiter w;
	pthread_t thread;
	struct pair pair;
	uint64_t got = 0;
	void *result;

	(void)state;
	pair_open(&pair, NULL);
	begin_wait(&w, &pair.a, receive(&pair.a, &got, 0));
	send_to(&pair.b, pair.to_a, 1, 0);
	end_wait(&w);
	begin_wait(&w, &pair.a, receive(&pair.a, &got, 1));
	assert_ok(pthread_create(&thread, NULL, send_one, &pair));
	assert_ok(pthread_join(thread, &result));
	assert_null(result);
	end_wait(&w);
	send_to(&pair.b, pair.to_a, 2, 2);
	assert_ok(pinion_wait(pair.a.ep, receive(&pair.a, &got, 2),
			      PINION_FOREVER, NULL));
	pair_close(&pair);
}

/* --- the library's own threads -------------------------------------------- */

static void *see_state(void *arg)
{
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, arg);
	return NULL;
}

static void servants_cannot_be_canceled(void **state)
{
	int was = PTHREAD_CANCEL_ENABLE;
	pthread_t thread;

	(void)state;
	assert_ok(pn_service_thread_start(&thread, "test", see_state, &was));
	assert_ok(pthread_join(thread, NULL));
	assert_int_equal(was, PTHREAD_CANCEL_DISABLE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(servants_cannot_be_canceled),
		TEST(other_calls_come_to_their_end),
		TEST(a_canceled_thread_wakes_whom_it_sends_to),
		TEST(a_canceled_wait_leaves_its_request_to_others),
		TEST(any_of_several_that_wait_can_be_canceled),
	};

	return RUN_TESTS(tests);
}
