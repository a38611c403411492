/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Several threads on one endpoint over `soft`: each exchanges messages of its
 * own tag, all sleep in pinion_wait(), and what one thread polls may end the
 * request that another one sleeps for. Threads count what went wrong, the main
 * thread asserts. A wait that never returns is found by ctest's time limit.
 */
#include "test.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

#include <pinion/pinion.h>

#include "message/endpoint/endpoint.h"
#include "message/party.h"

#define NTHREADS  4
#define NMESSAGES 60
#define MAX_LEN	  ((size_t)300 << 10)

struct place {
	struct pinion_context *context;
	struct pinion_endpoint *ep;
	struct pinion_peer *peer;
};

static void place_open(struct place *place, const char *option)
{
	const char *const options[] = { option, "eager_limit=2K", NULL };
	struct pinion_attr attr = { .size = sizeof(attr), .options = options };

	assert_ok(pinion_open(&attr, &place->context));
	assert_ok(pinion_endpoint_open(place->context, NULL, &place->ep));
}

static void place_meet(struct place *place, struct place *other)
{
	struct pinion_address address;

	assert_ok(pinion_endpoint_address(other->ep, &address));
	assert_ok(pinion_peer_add(place->ep, &address, &place->peer));
}

static void place_close(struct place *place)
{
	pn_endpoint_check(place->ep);
	pinion_endpoint_close(place->ep);
	pinion_close(place->context);
}

struct worker {
	struct place *place;
	unsigned index, other; /* tags: what is sent, what is received */
	uint64_t seed;
	_Atomic unsigned *wrong;
};

static size_t len_of(uint64_t seed, unsigned from, unsigned n)
{
	uint64_t random = seed + from * 1000 + n;

	test_random(&random);
	return test_below(&random, n % 4 ? 3000 : MAX_LEN);
}

/* Sends and receives one message at a time, both in flight together. */
static bool exchange(struct worker *w, unsigned n, uint8_t *out, uint8_t *in)
{
	size_t len = len_of(w->seed, w->index, n);
	size_t want = len_of(w->seed, w->other, n);
	struct pinion_message send = { .size = sizeof(send),
				       .buf = out,
				       .len = len,
				       .tag = w->index,
				       .peer = w->place->peer };
	struct pinion_message recv = { .size = sizeof(recv),
				       .buf = in,
				       .len = MAX_LEN,
				       .tag = w->other,
				       .peer = w->place->peer };
	struct pinion_request *sending, *receiving;
	struct pinion_completion end;

	pattern_fill(out, len, w->seed + w->index * 1000 + n);
	return !pinion_recv(w->place->ep, &recv, &receiving) &&
	       !pinion_send(w->place->ep, &send, &sending) &&
	       !pinion_wait(w->place->ep, receiving, PINION_FOREVER, &end) &&
	       !pinion_wait(w->place->ep, sending, PINION_FOREVER, NULL) &&
	       end.len == want &&
	       pattern_holds(in, want, w->seed + w->other * 1000 + n);
}

static void *work(void *arg)
{
	struct worker *w = arg;
	uint8_t *out = malloc(MAX_LEN), *in = malloc(MAX_LEN);

	for (unsigned n = 0; out && in && n < NMESSAGES; n++)
		if (!exchange(w, n, out, in))
			atomic_fetch_add(w->wrong, 1);
	if (!out || !in)
		atomic_fetch_add(w->wrong, 1);
	free(out);
	free(in);
	return NULL;
}

/* Polls the completions that others sleep for. */
struct thief {
	struct place *place;
	_Atomic bool stop;
};

static void *steal(void *arg)
{
	struct thief *thief = arg;

	while (!atomic_load(&thief->stop)) {
		pinion_poll(thief->place->ep, NULL, 0, 0);
		sched_yield();
	}
	return NULL;
}

static void run_workers(struct worker *workers, unsigned n)
{
	pthread_t threads[2 * NTHREADS];

	for (unsigned i = 0; i < n; i++)
		assert_ok(pthread_create(&threads[i], NULL, work, &workers[i]));
	for (unsigned i = 0; i < n; i++)
		assert_ok(pthread_join(threads[i], NULL));
}

static void threads_talk_to_those_of_another_endpoint(void **state)
{
	uint64_t seed = test_seed();
	struct worker workers[2 * NTHREADS];
	struct place places[2];
	_Atomic unsigned wrong = 0;

	(void)state;
	place_open(&places[0], "protocol=caching-pipeline");
	place_open(&places[1], "protocol=read");
	place_meet(&places[0], &places[1]);
	place_meet(&places[1], &places[0]);
	for (unsigned i = 0; i < 2 * NTHREADS; i++)
		workers[i] = (struct worker){ .place = &places[i / NTHREADS],
					      .index = i,
					      .other = (i + NTHREADS) %
						       (2 * NTHREADS),
					      .seed = seed,
					      .wrong = &wrong };
	run_workers(workers, 2 * NTHREADS);
	assert_int_equal(wrong, 0);
	place_close(&places[0]);
	place_close(&places[1]);
}

static void threads_talk_to_each_other_over_one_endpoint(void **state)
{
	uint64_t seed = test_seed();
	struct worker workers[NTHREADS];
	struct place place;
	struct thief thief = { .place = &place };
	_Atomic unsigned wrong = 0;
	pthread_t thread;

	(void)state;
	place_open(&place, "protocol=pipeline");
	place_meet(&place, &place);
	for (unsigned i = 0; i < NTHREADS; i++)
		workers[i] = (struct worker){ .place = &place,
					      .index = i,
					      .other = i ^ 1,
					      .seed = seed,
					      .wrong = &wrong };
	assert_ok(pthread_create(&thread, NULL, steal, &thief));
	run_workers(workers, NTHREADS);
	atomic_store(&thief.stop, true);
	assert_ok(pthread_join(thread, NULL));
	assert_int_equal(wrong, 0);
	place_close(&place);
}

/* --- a loop and waits on one endpoint --------------------------------------
 */

#define ROUNDS	   300
#define TAG_ASK	   1
#define TAG_ANSWER 2
#define TAG_LOOP   3

static bool pass(struct worker *w, bool send, unsigned tag)
{
	char byte = 'x';
	struct pinion_message m = {
		.size = sizeof(m), .buf = &byte, .len = 1, .tag = tag
	};
	struct pinion_request *request;

	m.peer = w->place->peer;
	return !(send ? pinion_send : pinion_recv)(w->place->ep, &m,
						   &request) &&
	       !pinion_wait(w->place->ep, request, PINION_FOREVER, NULL);
}

/* Nothing else happens: an event that is lost is lost for ever. */
static void *ask(void *arg)
{
	struct worker *w = arg;

	for (unsigned n = 0; n < ROUNDS; n++)
		if (!pass(w, true, TAG_ASK) || !pass(w, false, TAG_ANSWER))
			atomic_fetch_add(w->wrong, 1);
	return NULL;
}

static void *answer(void *arg)
{
	struct worker *w = arg;

	for (unsigned n = 0; n < ROUNDS; n++)
		if (!pass(w, false, TAG_ASK) || !pass(w, true, TAG_ANSWER) ||
		    !pass(w, true, TAG_LOOP))
			atomic_fetch_add(w->wrong, 1);
	return NULL;
}

/* Sleeps on the descriptor of the endpoint on which another thread waits. */
static void *loop(void *arg)
{
	struct worker *w = arg;
	char in;
	struct pinion_message m = {
		.size = sizeof(m), .buf = &in, .len = 1, .tag = TAG_LOOP
	};
	struct pollfd fd = { .fd = pinion_endpoint_fd(w->place->ep),
			     .events = POLLIN };
	struct pinion_completion end;
	unsigned n = 0;

	if (pinion_recv(w->place->ep, &m, NULL))
		atomic_fetch_add(w->wrong, 1);
	while (n < ROUNDS) {
		if (pinion_poll(w->place->ep, &end, sizeof(end), 1) == 1) {
			if (++n < ROUNDS)
				pinion_recv(w->place->ep, &m, NULL);
		} else if (!pinion_endpoint_arm(w->place->ep) &&
			   !poll(&fd, 1, 60000)) {
			atomic_fetch_add(w->wrong, 1);
			break;
		}
	}
	return NULL;
}

static void waits_and_a_loop_share_an_endpoint(const char *device)
{
	static void *(*const fns[])(void *) = { loop, ask, answer };
	struct timespec patience;
	struct place places[2];
	_Atomic unsigned wrong = 0;
	struct worker near = { .place = &places[0], .wrong = &wrong };
	struct worker far = { .place = &places[1], .wrong = &wrong };
	pthread_t threads[3];

	place_open(&places[0], device);
	place_open(&places[1], device);
	place_meet(&places[0], &places[1]);
	place_meet(&places[1], &places[0]);
	for (unsigned i = 0; i < 3; i++)
		assert_ok(pthread_create(&threads[i], NULL, fns[i],
					 i < 2 ? &near : &far));
	clock_gettime(CLOCK_REALTIME, &patience);
	patience.tv_sec += 120;
	for (unsigned i = 0; i < 3; i++)
		assert_ok(pthread_timedjoin_np(threads[i], NULL, &patience));
	assert_int_equal(wrong, 0);
	place_close(&places[0]);
	place_close(&places[1]);
}

static void waits_do_not_take_the_news_of_a_loop(void **state)
{
	(void)state;
	waits_and_a_loop_share_an_endpoint("device=soft:spin=0");
	waits_and_a_loop_share_an_endpoint("device=soft:spin=0+soft:spin=0");
}

/* --- waits that somebody else ends ---------------------------------------- */

struct waiter {
	struct place *place;
	struct pinion_request *request;
	int status;
};

static void *wait_for(void *arg)
{
	struct waiter *w = arg;

	w->status = pinion_wait(w->place->ep, w->request, PINION_FOREVER, NULL);
	return NULL;
}

static void a_wait_ends_when_another_thread_cancels(void **state)
{
	struct pinion_message m = { .size = sizeof(m), .tag = 1 };
	struct waiter waiters[NTHREADS];
	pthread_t threads[NTHREADS];
	struct place place;

	(void)state;
	place_open(&place, "protocol=copy");
	for (unsigned i = 0; i < NTHREADS; i++) {
		waiters[i].place = &place;
		assert_ok(pinion_recv(place.ep, &m, &waiters[i].request));
		assert_ok(pthread_create(&threads[i], NULL, wait_for,
					 &waiters[i]));
	}
	/* Whether they sleep already depends on the scheduler: both are fine.
	 */
	for (unsigned i = 0; i < NTHREADS; i++) {
		sched_yield();
		assert_ok(pinion_cancel(place.ep, waiters[i].request));
		assert_ok(pthread_join(threads[i], NULL));
		assert_int_equal(waiters[i].status, -ECANCELED);
	}
	place_close(&place);
}

/* --- several threads arm one descriptor ----------------------------------- */

static int arm(struct pinion_endpoint *ep)
{
	int ret;

	while ((ret = pinion_endpoint_arm(ep)) == -EAGAIN)
		sched_yield();
	return ret;
}

/* Arms the descriptor, polls, and ends a receive that another thread waits for.
 */
static void *arm_look_and_cancel(void *arg)
{
	struct pinion_completion end;
	struct waiter *w = arg;

	w->status = arm(w->place->ep);
	if (!w->status)
		w->status = pinion_poll(w->place->ep, &end, sizeof(end), 1);
	if (!w->status)
		w->status = pinion_recv_cancel(w->place->ep, w);
	return NULL;
}

static void who_arms_does_not_disarm_others(void **state)
{
	struct pinion_message m = { .size = sizeof(m), .tag = 1 };
	struct waiter other;
	struct pollfd fd = { .events = POLLIN };
	struct pinion_completion end;
	struct place place;
	pthread_t thread;

	(void)state;
	place_open(&place, "device=soft");
	fd.fd = pinion_endpoint_fd(place.ep);
	other.place = &place;
	m.user = &other;
	assert_ok(pinion_recv(place.ep, &m, NULL));
	assert_ok(arm(place.ep));
	assert_ok(pthread_create(&thread, NULL, arm_look_and_cancel, &other));
	assert_ok(pthread_join(thread, NULL));
	assert_ok(other.status);
	assert_int_equal(poll(&fd, 1, 0), 1);
	assert_int_equal(pinion_poll(place.ep, &end, sizeof(end), 1), 1);
	assert_int_equal(end.status, -ECANCELED);
	place_close(&place);
}

/* A message arrives while a device is being armed. */
static const struct pn_device_ops *real_ops;
static struct pinion_message late;
static struct pinion_endpoint *late_from;

static int arm_too_late(struct pn_device *device)
{
	if (late.buf)
		assert_ok(pinion_inject(late_from, &late));
	late.buf = NULL;
	return real_ops->arm(device);
}

/* Arming fails with -EAGAIN; polls the message, and ends. */
static void *arm_in_vain(void *arg)
{
	struct pinion_completion end;
	struct waiter *w = arg;

	w->status = pinion_endpoint_arm(w->place->ep) == -EAGAIN &&
				    pinion_poll(w->place->ep, &end, sizeof(end),
						1) == 1
			    ? 0
			    : -EPROTO;
	return NULL;
}

static void introduce(struct place *from, struct place *to,
		      struct pinion_message *m)
{
	struct pinion_request *request;
	struct pinion_address address;
	struct pinion_completion end;
	bool out = false, in = false;

	assert_ok(pinion_endpoint_address(to->ep, &address));
	assert_ok(pinion_peer_add(from->ep, &address, &m->peer));
	assert_ok(pinion_send(from->ep, m, &request));
	while (!out || !in) {
		out = out || !pinion_test(from->ep, request, NULL);
		in = in || pinion_poll(to->ep, &end, sizeof(end), 1) == 1;
	}
}

static void who_arms_in_vain_takes_nobodys_bell(void **state)
{
	struct pn_device_ops ops;
	struct pollfd fd = { .events = POLLIN };
	struct place place, sender;
	struct waiter other = { .place = &place };
	char in[2][8], out[8] = "late";
	pthread_t thread;

	(void)state;
	place_open(&place, "device=soft");
	place_open(&sender, "device=soft");
	fd.fd = pinion_endpoint_fd(place.ep);
	for (unsigned i = 0; i < 2; i++) {
		struct pinion_message m = { .size = sizeof(m),
					    .buf = in[i],
					    .len = 8 };

		assert_ok(pinion_recv(place.ep, &m, NULL));
	}
	late = (struct pinion_message){ .size = sizeof(struct pinion_message),
					.buf = out,
					.len = 8 };
	late_from = sender.ep;
	introduce(&sender, &place, &late);
	assert_ok(arm(place.ep));
	real_ops = place.ep->device->ops;
	ops = *real_ops;
	ops.arm = arm_too_late;
	place.ep->device->ops = &ops;
	assert_ok(pthread_create(&thread, NULL, arm_in_vain, &other));
	assert_ok(pthread_join(thread, NULL));
	place.ep->device->ops = real_ops;
	assert_ok(other.status);
	assert_int_equal(poll(&fd, 1, 0), 1);
	place_close(&sender);
	place_close(&place);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(threads_talk_to_those_of_another_endpoint),
		TEST(threads_talk_to_each_other_over_one_endpoint),
		TEST(waits_do_not_take_the_news_of_a_loop),
		TEST(a_wait_ends_when_another_thread_cancels),
		TEST(who_arms_does_not_disarm_others),
		TEST(who_arms_in_vain_takes_nobodys_bell),
	};

	return RUN_TESTS(tests);
}
