/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The progress thread: transfers end although one side makes no call, callers
 * and the thread share an endpoint, and what ends while the thread works.
 *
 * Both sides are endpoints of this process. "Computes" means: no call is made
 * on that endpoint. Without the thread such a test would never end.
 */
#include "message/ends.h"

#include <dirent.h>
#include <poll.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "message/endpoint/endpoint.h"

#define LEN ((size_t)1 << 20)

static uint8_t *map(void)
{
	uint8_t *p = mmap(NULL, LEN, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(p, MAP_FAILED);
	return p;
}

static void fill(uint8_t *buf, unsigned key)
{
	for (size_t i = 0; i < LEN; i++)
		buf[i] = (uint8_t)(i * 7 + (i >> 8) + key);
}

static bool holds(const uint8_t *buf, unsigned key)
{
	for (size_t i = 0; i < LEN; i++)
		if (buf[i] != (uint8_t)(i * 7 + (i >> 8) + key))
			return false;
	return true;
}

/* An endpoint with options; flags are those of its attributes. */
static void open_end(struct end *end, const char *protocol, uint64_t flags)
{
	struct pinion_endpoint_attr ep = { .size = sizeof(ep), .flags = flags };
	const char *const options[] = { "log=none", protocol, NULL };
	struct pinion_attr attr = { .size = sizeof(attr), .options = options };

	assert_ok(pinion_open(&attr, &end->context));
	assert_ok(pinion_endpoint_open(end->context, &ep, &end->ep));
	assert_ok(pinion_endpoint_address(end->ep, &end->address));
}

/* `a` has its callers alone, `b` the thread. */
static void open_pair(struct pair *pair, const char *protocol, uint64_t flags)
{
	open_end(&pair->a, protocol, 0);
	open_end(&pair->b, protocol, flags | PINION_ENDPOINT_PROGRESS_THREAD);
	assert_ok(pinion_peer_add(pair->a.ep, &pair->b.address, &pair->to_b));
	assert_ok(pinion_peer_add(pair->b.ep, &pair->a.address, &pair->to_a));
}

static struct pn_endpoint_stats stats_of(struct end *end)
{
	struct pn_endpoint_stats stats;

	pn_endpoint_query(end->ep, &stats);
	return stats;
}

static void reap(struct end *end, struct pinion_request *request)
{
	struct pinion_completion c;

	assert_ok(pinion_wait(end->ep, request, PINION_FOREVER, &c));
	assert_int_equal(c.len, LEN);
}

/* --- one side computes ---------------------------------------------------- */

static void receive_while_computing(const char *protocol, uint64_t flags)
{
	uint8_t *from = map(), *to = map();
	struct pinion_request *send, *recv;
	struct pair pair;

	open_pair(&pair, protocol, flags);
	for (unsigned i = 0; i < 3; i++) {
		struct pinion_message m = {
			.size = sizeof(m), .buf = to, .len = LEN, .tag = i
		};

		fill(from, i);
		assert_ok(pinion_recv(pair.b.ep, &m, &recv));
		m.buf = from;
		m.peer = pair.to_b;
		m.flags = PINION_MESSAGE_DELIVERY_COMPLETE;
		assert_ok(pinion_send(pair.a.ep, &m, &send));
		reap(&pair.a, send);
		assert_true(holds(to, i));
		reap(&pair.b, recv);
	}
	assert_true(stats_of(&pair.b).progress_events > 0);
	pair_close(&pair);
	munmap(from, LEN);
	munmap(to, LEN);
}

static void a_long_message_arrives_while_its_receiver_computes(void **state)
{
	(void)state;
	receive_while_computing("protocol=auto", 0);
	receive_while_computing("protocol=auto",
				PINION_ENDPOINT_SINGLE_THREADED);
}

static void every_protocol_needs_no_call_of_the_receiver(void **state)
{
	static const char *const protocols[] = {
		"protocol=copy",      "protocol=demand",
		"protocol=cached",    "protocol=pipeline",
		"protocol=read",      "protocol=caching-pipeline",
		"protocol=overlapped"
	};

	(void)state;
	for (size_t i = 0; i < PN_ARRAY_LEN(protocols); i++)
		receive_while_computing(protocols[i],
					PINION_ENDPOINT_SINGLE_THREADED);
}

static void send_while_computing(const char *protocol, uint64_t flags)
{
	uint8_t *from = map(), *to = map();
	struct pinion_request *send, *recv;
	struct pair pair;

	open_pair(&pair, protocol, flags);
	for (unsigned i = 0; i < 3; i++) {
		struct pinion_message m = { .size = sizeof(m),
					    .buf = from,
					    .len = LEN,
					    .tag = i,
					    .peer = pair.to_a };

		fill(from, i);
		assert_ok(pinion_send(pair.b.ep, &m, &send));
		m.buf = to;
		m.peer = NULL;
		assert_ok(pinion_recv(pair.a.ep, &m, &recv));
		reap(&pair.a, recv);
		assert_true(holds(to, i));
		reap(&pair.b, send);
	}
	assert_true(stats_of(&pair.b).progress_events > 0);
	pair_close(&pair);
	munmap(from, LEN);
	munmap(to, LEN);
}

static void a_long_message_leaves_while_its_sender_computes(void **state)
{
	(void)state;
	send_while_computing("protocol=pipeline", 0);
	send_while_computing("protocol=cached",
			     PINION_ENDPOINT_SINGLE_THREADED);
}

static void a_conditional_write_arrives_while_its_owner_computes(void **state)
{
	uint8_t *from = map(), *to = map();
	struct pinion_request *put, *grant;
	struct pair pair;

	(void)state;
	open_pair(&pair, "protocol=auto", PINION_ENDPOINT_SINGLE_THREADED);
	for (unsigned i = 0; i < 3; i++) {
		struct pinion_message m = { .size = sizeof(m),
					    .buf = from,
					    .len = LEN,
					    .tag = 42,
					    .peer = pair.to_a };

		fill(from, i);
		assert_ok(pinion_put_when(pair.b.ep, &m, &put));
		m.buf = to;
		m.peer = pair.to_b;
		assert_ok(pinion_grant(pair.a.ep, &m, &grant));
		reap(&pair.a, grant);
		assert_true(holds(to, i));
		reap(&pair.b, put);
	}
	pair_close(&pair);
	munmap(from, LEN);
	munmap(to, LEN);
}

static void a_grant_is_served_while_its_owner_computes(void **state)
{
	uint8_t *from = map(), *to = map();
	struct pinion_request *put, *grant;
	struct pinion_message m = {
		.size = sizeof(m), .buf = to, .len = LEN, .tag = 42
	};
	struct pair pair;

	(void)state;
	open_pair(&pair, "protocol=auto", 0);
	fill(from, 9);
	m.peer = pair.to_a;
	assert_ok(pinion_grant(pair.b.ep, &m, &grant));
	m.buf = from;
	m.peer = pair.to_b;
	assert_ok(pinion_put_when(pair.a.ep, &m, &put));
	reap(&pair.a, put);
	/* The last notification may still be on its way. */
	reap(&pair.b, grant);
	assert_true(holds(to, 9));
	pair_close(&pair);
	munmap(from, LEN);
	munmap(to, LEN);
}

/* --- callers and the thread ----------------------------------------------- */

/* Sends a long message from `b`. True: the lock was offered to the thread, or
 * the thread is inside already. */
static bool send_offers(struct pair *pair, uint8_t *from, uint8_t *to)
{
	struct pn_biased_lock *lock = &pair->b.ep->biased_lock;
	struct pinion_message m = {
		.size = sizeof(m), .buf = from, .len = LEN, .peer = pair->to_a
	};
	struct pinion_request *send, *recv;
	bool offered;

	assert_ok(pinion_send(pair->b.ep, &m, &send));
	offered = lock->several_owners ||
		  atomic_load(&lock->visitor) != PN_BIASED_FREE;
	m.buf = to;
	m.peer = NULL;
	assert_ok(pinion_recv(pair->a.ep, &m, &recv));
	reap(&pair->a, recv);
	reap(&pair->b, send);
	return offered;
}

/* So the thread need not make sure that callers are idle. An offer is lost if
 * the thread has just found the caller inside. */
static void a_caller_offers_its_endpoint_with_a_long_message(void **state)
{
	uint8_t *from = map(), *to = map();
	struct pair pair;
	unsigned i = 0;

	(void)state;
	open_pair(&pair, "protocol=cached", PINION_ENDPOINT_SINGLE_THREADED);
	while (!send_offers(&pair, from, to))
		assert_true(i++ < 100);
	pair_close(&pair);
	munmap(from, LEN);
	munmap(to, LEN);
}

#define PINGPONGS 3000

struct answer {
	struct pair *pair;
	unsigned nanswers;
	bool polls;
};

/* The other side of a ping-pong, on the endpoint with the thread. */
static void *answer(void *arg)
{
	struct answer *answer = arg;
	struct pair *pair = answer->pair;
	struct pinion_request *request;
	uint64_t value;

	for (unsigned i = 0; i < PINGPONGS; i++) {
		struct pinion_message m = { .size = sizeof(m),
					    .buf = &value,
					    .len = sizeof(value) };

		if (pinion_recv(pair->b.ep, &m, &request))
			break;
		if (answer->polls)
			while (pinion_test(pair->b.ep, request, NULL) ==
			       -EAGAIN)
				;
		else if (pinion_wait(pair->b.ep, request, PINION_FOREVER, NULL))
			break;
		m.peer = pair->to_a;
		if (value != i || pinion_send(pair->b.ep, &m, &request) ||
		    pinion_wait(pair->b.ep, request, PINION_FOREVER, NULL))
			break;
		answer->nanswers++;
	}
	return NULL;
}

static void ping_pong(uint64_t flags, bool polls)
{
	struct pair pair;
	struct answer other = { .pair = &pair, .polls = polls };
	struct pinion_request *request;
	pthread_t thread;

	open_pair(&pair, "protocol=auto", flags);
	assert_ok(pthread_create(&thread, NULL, answer, &other));
	for (uint64_t i = 0; i < PINGPONGS; i++) {
		uint64_t value = i;
		struct pinion_message m = { .size = sizeof(m),
					    .buf = &value,
					    .len = sizeof(value),
					    .peer = pair.to_b };

		assert_ok(pinion_send(pair.a.ep, &m, &request));
		assert_ok(
			pinion_wait(pair.a.ep, request, PINION_FOREVER, NULL));
		value = 0;
		assert_ok(pinion_recv(pair.a.ep, &m, &request));
		assert_ok(
			pinion_wait(pair.a.ep, request, PINION_FOREVER, NULL));
		assert_int_equal(value, i);
	}
	assert_ok(pthread_join(thread, NULL));
	assert_int_equal(other.nanswers, PINGPONGS);
	pair_close(&pair);
}

static void callers_who_poll_lose_no_message_to_the_thread(void **state)
{
	(void)state;
	ping_pong(0, true);
	ping_pong(PINION_ENDPOINT_SINGLE_THREADED, true);
}

static void callers_who_sleep_lose_no_message_to_the_thread(void **state)
{
	(void)state;
	ping_pong(0, false);
	ping_pong(PINION_ENDPOINT_SINGLE_THREADED, false);
}

/* Sleeps on the descriptor until there is a completion. What wakes it may be
 * something else, or be handled by the thread: then it arms again. */
static void sleep_for_completion(struct pinion_endpoint *ep, struct pollfd *fd,
				 struct pinion_completion *out)
{
	while (pinion_poll(ep, out, sizeof(*out), 1) != 1)
		if (!pinion_endpoint_arm(ep))
			assert_int_equal(poll(fd, 1, 60000), 1);
}

static void the_descriptor_tells_of_what_the_thread_has_ended(void **state)
{
	struct pinion_request *send;
	struct pinion_completion c;
	uint64_t value = 5, got = 0;
	struct pinion_message m = {
		.size = sizeof(m), .buf = &got, .len = sizeof(got), .user = &got
	};
	struct pollfd fd = { .events = POLLIN };
	struct pair pair;

	(void)state;
	open_pair(&pair, "protocol=auto", 0);
	fd.fd = pinion_endpoint_fd(pair.b.ep);
	assert_true(fd.fd >= 0);
	for (unsigned i = 0; i < 200; i++) {
		m.buf = &got;
		m.peer = NULL;
		assert_ok(pinion_recv(pair.b.ep, &m, NULL));
		while (pinion_endpoint_arm(pair.b.ep))
			assert_int_equal(pinion_poll(pair.b.ep, &c, sizeof(c),
						     1),
					 0);
		m.buf = &value;
		m.peer = pair.to_b;
		assert_ok(pinion_send(pair.a.ep, &m, &send));
		assert_ok(pinion_wait(pair.a.ep, send, PINION_FOREVER, NULL));
		sleep_for_completion(pair.b.ep, &fd, &c);
		assert_ptr_equal(c.user, &got);
		assert_int_equal(got, value);
		got = 0;
	}
	pair_close(&pair);
}

/* --- the thread stays awake ------------------------------------------------
 */

/* The thread has nothing to do: it has armed the devices and sleeps. */
static void let_the_thread_arm(struct end *end)
{
	uint64_t deadline = pn_clock_ns() + 60 * PN_NS_PER_S;

	while (!stats_of(end).progress_wakeups)
		assert_true(pn_clock_ns() < deadline);
	usleep(10000);
}

/* A long message that `b` has posted a receive for. Its end is waited for on
 * the side of `a` alone. */
static void send_to_computing(struct pair *pair, uint8_t *from)
{
	struct pinion_message m = { .size = sizeof(m),
				    .flags = PINION_MESSAGE_DELIVERY_COMPLETE,
				    .peer = pair->to_b,
				    .buf = from,
				    .len = LEN };
	struct pinion_request *send;

	assert_ok(pinion_send(pair->a.ep, &m, &send));
	assert_ok(pinion_wait(pair->a.ep, send, 60000000, NULL));
}

static void receive_after_a_timeout(uint64_t flags, bool arms)
{
	uint8_t *from = map(), *to = map();
	struct pinion_message m = { .size = sizeof(m), .buf = to, .len = LEN };
	struct pinion_request *recv;
	struct pair pair;

	open_pair(&pair, "protocol=auto", flags);
	fill(from, 4);
	assert_ok(pinion_recv(pair.b.ep, &m, &recv));
	let_the_thread_arm(&pair.b);
	if (arms)
		assert_ok(pinion_endpoint_arm(pair.b.ep));
	assert_int_equal(pinion_wait(pair.b.ep, recv, 1000, NULL), -ETIMEDOUT);
	send_to_computing(&pair, from);
	assert_true(holds(to, 4));
	reap(&pair.b, recv);
	pair_close(&pair);
	munmap(from, LEN);
	munmap(to, LEN);
}

/* The end of the wait disarms the devices. */
static void a_wait_that_times_out_leaves_the_thread_awake(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 10; i++) {
		receive_after_a_timeout(0, i & 1);
		receive_after_a_timeout(PINION_ENDPOINT_SINGLE_THREADED, i & 1);
	}
}

/* Posts a receive at `b`, arms, and has `a` send the message. */
static void arm_and_receive(struct pair *pair, uint64_t *got)
{
	static uint64_t value = 5;
	struct pinion_message m = { .size = sizeof(m),
				    .buf = got,
				    .len = sizeof(*got) };
	struct pinion_request *send;

	if (got)
		assert_ok(pinion_recv(pair->b.ep, &m, NULL));
	let_the_thread_arm(&pair->b);
	while (pinion_endpoint_arm(pair->b.ep))
		pinion_poll(pair->b.ep, NULL, 0, 0);
	m.buf = &value;
	m.len = sizeof(value);
	m.peer = pair->to_b;
	assert_ok(pinion_send(pair->a.ep, &m, &send));
	assert_ok(pinion_wait(pair->a.ep, send, PINION_FOREVER, NULL));
}

static void wait_for_thread_events(struct end *end)
{
	uint64_t deadline = pn_clock_ns() + 60 * PN_NS_PER_S;

	while (!stats_of(end).progress_events)
		assert_true(pn_clock_ns() < deadline);
}

/* The program computes before it looks at the descriptor. */
static void the_thread_sleeps_while_the_descriptor_is_readable(void **state)
{
	uint64_t got = 0, before;
	struct pair pair;

	(void)state;
	open_pair(&pair, "protocol=auto", 0);
	assert_true(pinion_endpoint_fd(pair.b.ep) >= 0);
	arm_and_receive(&pair, &got);
	wait_for_thread_events(&pair.b);
	before = stats_of(&pair.b).progress_wakeups;
	usleep(200 * 1000);
	assert_true(stats_of(&pair.b).progress_wakeups < before + 50);
	pair_close(&pair);
}

/* No request ends: the message is unexpected. The thread has armed the devices
 * again, so that their descriptors tell nothing. */
static void the_descriptor_tells_of_messages_that_the_thread_keeps(void **state)
{
	struct pollfd fd = { .events = POLLIN };
	struct pinion_message m = { .size = sizeof(m) };
	struct pinion_completion c;
	struct pair pair;

	(void)state;
	open_pair(&pair, "protocol=auto", 0);
	fd.fd = pinion_endpoint_fd(pair.b.ep);
	arm_and_receive(&pair, NULL);
	wait_for_thread_events(&pair.b);
	usleep(20000);
	assert_int_equal(poll(&fd, 1, 10000), 1);
	assert_ok(pinion_probe(pair.b.ep, &m, &c, NULL));
	assert_int_equal(c.message_len, sizeof(uint64_t));
	pair_close(&pair);
}

/* --- life ----------------------------------------------------------------- */

/* Threads of this process that are called pinion-progress. */
static unsigned nthreads(void)
{
	DIR *dir = opendir("/proc/self/task");
	struct dirent *entry;
	unsigned n = 0;

	assert_non_null(dir);
	while ((entry = readdir(dir))) {
		char path[300], name[32] = "";
		FILE *file;

		snprintf(path, sizeof(path), "/proc/self/task/%s/comm",
			 entry->d_name);
		file = fopen(path, "r");
		if (!file)
			continue;
		if (fgets(name, sizeof(name), file) &&
		    !strcmp(name, "pinion-progress\n"))
			n++;
		fclose(file);
	}
	closedir(dir);
	return n;
}

/* A thread that was joined may be listed for a moment longer. */
static void assert_threads(unsigned n)
{
	uint64_t deadline = pn_clock_ns() + 60 * PN_NS_PER_S;

	while (nthreads() != n)
		assert_true(pn_clock_ns() < deadline);
}

static void one_thread_serves_all_endpoints_and_ends_with_them(void **state)
{
	struct pair pairs[5];

	(void)state;
	assert_threads(0);
	for (unsigned i = 0; i < PN_ARRAY_LEN(pairs); i++)
		open_pair(&pairs[i], "protocol=auto",
			  i % 2 ? PINION_ENDPOINT_SINGLE_THREADED : 0);
	assert_threads(1);
	for (unsigned i = 0; i < PN_ARRAY_LEN(pairs); i++)
		pair_close(&pairs[i]);
	assert_threads(0);
}

static void endpoints_open_and_close_while_the_thread_works(void **state)
{
	uint8_t *from = map(), *to = map();
	struct pair pair;

	(void)state;
	for (unsigned i = 0; i < 20; i++) {
		struct pinion_message m = { .size = sizeof(m),
					    .buf = to,
					    .len = LEN };
		struct pinion_request *send, *recv;

		open_pair(&pair, "protocol=pipeline",
			  i % 2 ? PINION_ENDPOINT_SINGLE_THREADED : 0);
		assert_ok(pinion_recv(pair.b.ep, &m, &recv));
		m.buf = from;
		m.peer = pair.to_b;
		assert_ok(pinion_send(pair.a.ep, &m, &send));
		for (unsigned n = 0; n < 50 * i; n++)
			pinion_poll(pair.a.ep, NULL, 0, 0);
		/* The transfer is under way. */
		pinion_close(pair.b.context);
		pinion_close(pair.a.context);
	}
	munmap(from, LEN);
	munmap(to, LEN);
}

/* The child has a thread of its own, and its transfers work. */
static int in_child(void)
{
	uint8_t *from = map(), *to = map();
	struct pinion_request *send, *recv;
	struct pinion_message m = { .size = sizeof(m), .buf = to, .len = LEN };
	struct pair pair;

	if (nthreads())
		return 1;
	open_pair(&pair, "protocol=cached", 0);
	fill(from, 3);
	if (pinion_recv(pair.b.ep, &m, &recv))
		return 2;
	m.buf = from;
	m.peer = pair.to_b;
	m.flags = PINION_MESSAGE_DELIVERY_COMPLETE;
	if (pinion_send(pair.a.ep, &m, &send) ||
	    pinion_wait(pair.a.ep, send, PINION_FOREVER, NULL))
		return 3;
	return nthreads() == 1 && holds(to, 3) ? 0 : 4;
}

static void a_forked_child_starts_a_thread_of_its_own(void **state)
{
	struct pair pair;
	int status;
	pid_t pid;

	(void)state;
	open_pair(&pair, "protocol=auto", 0);
	for (unsigned i = 0; i < 3; i++) {
		fflush(NULL);
		pid = fork();
		assert_true(pid >= 0);
		if (!pid)
			_exit(in_child());
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(status, 0);
	}
	assert_threads(1);
	pair_close(&pair);
	receive_while_computing("protocol=auto", 0);
}

/* A peer in another process dies in the middle of a message. */
static void sender_dies(const struct pinion_address *to)
{
	struct pinion_message m = { .size = sizeof(m),
				    .buf = map(),
				    .len = LEN };
	struct pinion_request *request;
	struct end end;

	open_end(&end, "protocol=cached", 0);
	if (pinion_peer_add(end.ep, to, &m.peer) ||
	    pinion_send(end.ep, &m, &request))
		_exit(1);
	/* Until the receiver has the first packet, and nothing more. */
	m.len = 1;
	m.tag = 1;
	if (pinion_send(end.ep, &m, &request) ||
	    pinion_wait(end.ep, request, PINION_FOREVER, NULL))
		_exit(1);
	_exit(0);
}

static void the_death_of_a_peer_ends_its_requests(void **state)
{
	uint8_t *to = map(), byte;
	struct pinion_message m = { .size = sizeof(m), .buf = to, .len = LEN };
	struct pinion_request *recv, *first;
	struct pinion_completion c;
	struct end end;
	int status;
	pid_t pid;

	(void)state;
	open_end(&end, "protocol=auto", PINION_ENDPOINT_PROGRESS_THREAD);
	fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid)
		sender_dies(&end.address);
	m.buf = &byte;
	m.len = m.tag = 1;
	assert_ok(pinion_recv(end.ep, &m, &first));
	assert_ok(pinion_wait(end.ep, first, PINION_FOREVER, &c));
	m.buf = to;
	m.len = LEN;
	m.tag = 0;
	m.peer = c.peer;
	assert_ok(pinion_recv(end.ep, &m, &recv));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(pinion_wait(end.ep, recv, PINION_FOREVER, NULL),
			 -ECONNRESET);
	end_close(&end);
	munmap(to, LEN);
}

/* --- who makes progress --------------------------------------------------- */

static void a_thread_is_refused_in_virtual_time(void **state)
{
	struct pinion_endpoint_attr ep = {
		.size = sizeof(ep), .flags = PINION_ENDPOINT_PROGRESS_THREAD
	};
	const char *const options[] = { "log=none", "device=sim", NULL };
	struct pinion_attr attr = { .size = sizeof(attr), .options = options };
	struct pinion_context *context;
	struct pinion_endpoint *out;

	(void)state;
	assert_ok(pinion_open(&attr, &context));
	assert_int_equal(pinion_endpoint_open(context, &ep, &out), -EOPNOTSUPP);
	ep.flags = PINION_ENDPOINT_PROGRESS_AUTO;
	assert_ok(pinion_endpoint_open(context, &ep, &out));
	pinion_close(context);
	assert_threads(0);
}

static void the_attribute_wins_over_the_option(void **state)
{
	struct pinion_endpoint_attr ep = { .size = sizeof(ep) };
	const char *const options[] = { "log=none", "progress=thread", NULL };
	struct pinion_attr attr = { .size = sizeof(attr), .options = options };
	struct pinion_context *context;
	struct pinion_endpoint *out;

	(void)state;
	assert_ok(pinion_open(&attr, &context));
	assert_ok(pinion_endpoint_open(context, &ep, &out));
	assert_threads(1);
	pinion_endpoint_close(out);
	ep.flags = PINION_ENDPOINT_PROGRESS_CALLER;
	assert_ok(pinion_endpoint_open(context, &ep, &out));
	assert_threads(0);
	pinion_endpoint_close(out);
	ep.flags |= PINION_ENDPOINT_PROGRESS_THREAD;
	assert_int_equal(pinion_endpoint_open(context, &ep, &out), -EINVAL);
	pinion_close(context);
}

static void auto_takes_the_thread_where_a_core_is_left(void **state)
{
	(void)state;
	assert_true(pn_progress_has_core(2, 2, 1));
	assert_false(pn_progress_has_core(1, 1, 1));
	assert_false(pn_progress_has_core(2, 2, 2));
	/* Bound to one core, to a socket with others, to cores of its own. */
	assert_false(pn_progress_has_core(1, 64, 4));
	assert_false(pn_progress_has_core(16, 32, 16));
	assert_true(pn_progress_has_core(4, 64, 16));
}

/* --- a library with progress of its own ----------------------------------- */

struct layer {
	pthread_mutex_t lock;
	struct pinion_endpoint *ep;
	unsigned ncalls, nbusy;
	_Atomic unsigned ncompleted;
};

static int layer_progress(void *arg)
{
	struct layer *layer = arg;
	struct pinion_completion c;
	int ret;

	if (pthread_mutex_trylock(&layer->lock)) {
		layer->nbusy++;
		return -EBUSY;
	}
	layer->ncalls++;
	while (layer->ep && pinion_poll(layer->ep, &c, sizeof(c), 1) == 1)
		atomic_fetch_add(&layer->ncompleted, 1);
	ret = layer->ep ? pinion_endpoint_arm(layer->ep) : -EBUSY;
	pthread_mutex_unlock(&layer->lock);
	return ret;
}

static void a_library_above_makes_its_own_progress_in_the_thread(void **state)
{
	struct layer layer = { .lock = PTHREAD_MUTEX_INITIALIZER };
	struct pinion_endpoint_attr ep = {
		.size = sizeof(ep),
		.flags = PINION_ENDPOINT_SINGLE_THREADED |
			 PINION_ENDPOINT_PROGRESS_THREAD,
		.progress = layer_progress,
		.progress_arg = &layer,
	};
	uint64_t value = 1, got = 0;
	struct pinion_message m = { .size = sizeof(m),
				    .buf = &got,
				    .len = sizeof(got) };
	uint64_t deadline = pn_clock_ns() + 60 * PN_NS_PER_S;
	struct pinion_request *send;
	struct pinion_peer *peer;
	struct end a, b;

	(void)state;
	open_end(&a, "protocol=auto", 0);
	pthread_mutex_lock(&layer.lock);
	assert_ok(pinion_open(NULL, &b.context));
	assert_ok(pinion_endpoint_open(b.context, &ep, &b.ep));
	assert_ok(pinion_endpoint_address(b.ep, &b.address));
	layer.ep = b.ep;
	assert_ok(pinion_recv(b.ep, &m, NULL));
	pthread_mutex_unlock(&layer.lock);
	assert_ok(pinion_peer_add(a.ep, &b.address, &peer));
	m.buf = &value;
	m.peer = peer;
	assert_ok(pinion_send(a.ep, &m, &send));
	assert_ok(pinion_wait(a.ep, send, PINION_FOREVER, NULL));
	while (!atomic_load(&layer.ncompleted))
		assert_true(pn_clock_ns() < deadline);
	assert_int_equal(got, value);
	pinion_close(b.context);
	assert_true(layer.ncalls > 0);
	pinion_close(a.context);
}

/* A library whose work does not end, or fails. */
struct odd_layer {
	int result; /* of all calls, but the second and further ones are 0
		     * if it is -ENOMEM */
	_Atomic unsigned ncalls;
};

static int odd_progress(void *arg)
{
	struct odd_layer *layer = arg;
	unsigned n = atomic_fetch_add(&layer->ncalls, 1);

	return n && layer->result == -ENOMEM ? 0 : layer->result;
}

static void open_odd_end(struct end *end, struct odd_layer *layer)
{
	struct pinion_endpoint_attr ep = {
		.size = sizeof(ep),
		.flags = PINION_ENDPOINT_PROGRESS_THREAD,
		.progress = odd_progress,
		.progress_arg = layer,
	};
	uint64_t deadline = pn_clock_ns() + 60 * PN_NS_PER_S;

	assert_ok(pinion_open(NULL, &end->context));
	assert_ok(pinion_endpoint_open(end->context, &ep, &end->ep));
	while (!atomic_load(&layer->ncalls))
		assert_true(pn_clock_ns() < deadline);
}

static void a_busy_endpoint_does_not_starve_others(void **state)
{
	struct odd_layer layer = { .result = -EAGAIN };
	uint8_t *from = map(), *to = map();
	struct pinion_message m = { .size = sizeof(m), .buf = to, .len = LEN };
	struct pinion_request *recv;
	struct pair pair;
	struct end busy;

	(void)state;
	open_pair(&pair, "protocol=auto", 0);
	fill(from, 6);
	assert_ok(pinion_recv(pair.b.ep, &m, &recv));
	let_the_thread_arm(&pair.b);
	open_odd_end(&busy, &layer);
	send_to_computing(&pair, from);
	assert_true(holds(to, 6));
	pinion_close(busy.context);
	reap(&pair.b, recv);
	pair_close(&pair);
	munmap(from, LEN);
	munmap(to, LEN);
}

static void an_error_does_not_end_progress(void **state)
{
	struct odd_layer layer = { .result = -ENOMEM };
	uint64_t deadline = pn_clock_ns() + 60 * PN_NS_PER_S;
	struct end end;

	(void)state;
	open_odd_end(&end, &layer);
	while (atomic_load(&layer.ncalls) < 2)
		assert_true(pn_clock_ns() < deadline);
	pinion_close(end.context);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_long_message_arrives_while_its_receiver_computes),
		TEST(every_protocol_needs_no_call_of_the_receiver),
		TEST(a_long_message_leaves_while_its_sender_computes),
		TEST(a_conditional_write_arrives_while_its_owner_computes),
		TEST(a_grant_is_served_while_its_owner_computes),
		TEST(a_caller_offers_its_endpoint_with_a_long_message),
		TEST(callers_who_poll_lose_no_message_to_the_thread),
		TEST(callers_who_sleep_lose_no_message_to_the_thread),
		TEST(the_descriptor_tells_of_what_the_thread_has_ended),
		TEST(a_wait_that_times_out_leaves_the_thread_awake),
		TEST(the_thread_sleeps_while_the_descriptor_is_readable),
		TEST(the_descriptor_tells_of_messages_that_the_thread_keeps),
		TEST(one_thread_serves_all_endpoints_and_ends_with_them),
		TEST(endpoints_open_and_close_while_the_thread_works),
		TEST(a_forked_child_starts_a_thread_of_its_own),
		TEST(the_death_of_a_peer_ends_its_requests),
		TEST(a_thread_is_refused_in_virtual_time),
		TEST(the_attribute_wins_over_the_option),
		TEST(auto_takes_the_thread_where_a_core_is_left),
		TEST(a_library_above_makes_its_own_progress_in_the_thread),
		TEST(a_busy_endpoint_does_not_starve_others),
		TEST(an_error_does_not_end_progress),
	};

	return RUN_TESTS(tests);
}
