/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_endpoints [DEVICE OTHER] -- several endpoints in a context: each has its
 * own data path, one thread each uses them at the same time, and all share the
 * registrations.
 *
 * OTHER is the device of another process. Without them `soft`, and what only
 * that has.
 */
#include "message/ends.h"

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "child.h"

#define NENDS	 3
#define MIB	 ((size_t)1 << 20)
#define KEYED	 PINION_ACCESS_ALL
#define PATIENCE (60 * PN_NS_PER_S)

/* A context and its endpoints, every other one single_threaded. */
struct group {
	struct pinion_context *context;
	struct pinion_endpoint *eps[NENDS];
	struct pinion_address addresses[NENDS];
};

static char device[128] = "device=soft", other_device[128] = "device=soft";

static struct pinion_context *context_on(const char *on, const char *option)
{
	const char *const options[] = { on, option, NULL };
	struct pinion_attr attr = { .size = sizeof(attr), .options = options };
	struct pinion_context *context;

	return pinion_open(&attr, &context) ? NULL : context;
}

static void open_endpoint(struct group *g, unsigned i)
{
	struct pinion_endpoint_attr attr = {
		.size = sizeof(attr),
		.flags = i % 2 ? PINION_ENDPOINT_SINGLE_THREADED : 0
	};

	assert_ok(pinion_endpoint_open(g->context, &attr, &g->eps[i]));
	assert_ok(pinion_endpoint_address(g->eps[i], &g->addresses[i]));
}

static void group_open(struct group *g, const char *option)
{
	g->context = context_on(device, option);
	assert_non_null(g->context);
	for (unsigned i = 0; i < NENDS; i++)
		open_endpoint(g, i);
}

static struct pinion_cache_stats stats_of(const struct group *g)
{
	struct pinion_cache_stats stats = { .size = sizeof(stats) };

	assert_ok(pinion_cache_query(g->context, &stats));
	return stats;
}

static struct pinion_peer *peer_at(struct pinion_endpoint *ep,
				   const struct pinion_address *address)
{
	struct pinion_peer *peer;

	assert_ok(pinion_peer_add(ep, address, &peer));
	return peer;
}

/* Waits for the end of a request while the other endpoints make progress. */
static int finish_in(struct group *g, unsigned i,
		     struct pinion_request *request)
{
	uint64_t deadline = pn_clock_ns() + PATIENCE;
	struct pinion_completion end;

	while (pinion_test(g->eps[i], request, &end) == -EAGAIN) {
		for (unsigned k = 0; k < NENDS; k++)
			if (g->eps[k])
				pinion_poll(g->eps[k], NULL, 0, 0);
		assert_true(pn_clock_ns() < deadline);
	}
	return end.status;
}

/* A message from one endpoint to another, both in this thread. The bytes behind
 * `buf` receive it. */
static void pass(struct group *g, unsigned from, unsigned to, char *buf,
		 size_t len)
{
	char *src = buf, *dst = buf + len;
	struct pinion_message m = { .size = sizeof(m), .buf = dst, .len = len };
	struct pinion_request *sent, *received;

	memset(src, (int)(from * 16 + to + 1), len);
	assert_ok(pinion_recv(g->eps[to], &m, &received));
	m = (struct pinion_message){
		.size = sizeof(struct pinion_message),
		.buf = src,
		.len = len,
		.peer = peer_at(g->eps[from], &g->addresses[to]),
	};
	assert_ok(pinion_send(g->eps[from], &m, &sent));
	assert_ok(finish_in(g, to, received));
	assert_ok(finish_in(g, from, sent));
	assert_memory_equal(src, dst, len);
}

/* A buffer that is used often is registered, and the adapter gathers header and
 * bytes. What it holds is another thing each time. */
static void small_messages_go_straight_from_buffers_used_often(void **state)
{
	struct pinion_endpoint_stats stats = { .size = sizeof(stats) };
	const size_t len = 2048;
	char *buf = aligned_alloc(4096, 8 * len);
	struct group g;

	(void)state;
	assert_non_null(buf);
	group_open(&g, "reuse=on");
	for (unsigned i = 0; i < 300; i++)
		pass(&g, 0, 1 + i % 2, buf + i % 2 * 4 * len, len);
	assert_ok(pinion_endpoint_query(g.eps[0], &stats));
	print_message("%d of %d messages went straight\n",
		      (int)stats.sent_direct, (int)stats.sent_eager);
	assert_int_equal(stats.sent_eager, 300);
	assert_in_range(stats.sent_direct, 150, 300);
	/* Both buffers are registered, once. */
	assert_in_range(stats_of(&g).registrations, 1, 4);
	pinion_close(g.context);
	free(buf);
}

/* --- threads -------------------------------------------------------------- */

static const size_t lens[] = { 8, 5000, 100000, MIB };

struct speaker {
	struct group *group;
	unsigned number;
	pthread_t thread;
	struct pinion_peer *peers[NENDS + 1]; /* the last in another process */
	unsigned npeers;
	unsigned failed;
};

static unsigned char pattern(unsigned from, unsigned to, unsigned round)
{
	return (unsigned char)(from * 64 + to * 16 + round + 1);
}

static bool is_all(const unsigned char *buf, unsigned char value, size_t len)
{
	return buf[0] == value && !memcmp(buf, buf + 1, len - 1);
}

/* Exchanges a message with another endpoint; number NENDS is the other process,
 * which sends back what it receives. */
static bool exchange(struct speaker *s, unsigned other, unsigned round,
		     unsigned char *buf)
{
	struct pinion_endpoint *ep = s->group->eps[s->number];
	size_t len = lens[round % PN_ARRAY_LEN(lens)];
	unsigned char there = pattern(s->number, other, round);
	unsigned char back =
		other == NENDS ? there : pattern(other, s->number, round);
	struct pinion_message in = { .size = sizeof(in),
				     .buf = buf + MIB,
				     .len = len,
				     .peer = s->peers[other],
				     .tag = round };
	struct pinion_message out = { .size = sizeof(out),
				      .buf = buf,
				      .len = len,
				      .peer = s->peers[other],
				      .tag = round };
	struct pinion_request *sent, *received;
	struct pinion_completion ends[2];

	memset(buf, there, len);
	if (pinion_recv(ep, &in, &received) || pinion_send(ep, &out, &sent) ||
	    pinion_wait(ep, received, PINION_FOREVER, &ends[0]) ||
	    pinion_wait(ep, sent, PINION_FOREVER, &ends[1]))
		return false;
	return !ends[0].status && !ends[1].status &&
	       is_all(buf + MIB, back, len);
}

#define ROUNDS 24

/* All threads go through the pairs in the same order, so that none waits in a
 * circle. */
static void *speak(void *arg)
{
	struct speaker *s = arg;
	unsigned char *buf = malloc(2 * MIB);

	for (unsigned round = 0; round < ROUNDS; round++)
		for (unsigned sum = 1; sum < 2 * NENDS; sum++) {
			unsigned other = sum - s->number;

			if (other < s->npeers && other != s->number &&
			    !exchange(s, other, round, buf))
				s->failed++;
		}
	free(buf);
	return NULL;
}

static void speak_together(struct group *g, const struct pinion_address *more)
{
	struct speaker speakers[NENDS];

	for (unsigned i = 0; i < NENDS; i++) {
		speakers[i] = (struct speaker){ .group = g,
						.number = i,
						.npeers = NENDS + !!more };
		for (unsigned k = 0; k < NENDS; k++)
			speakers[i].peers[k] =
				peer_at(g->eps[i], &g->addresses[k]);
		if (more)
			speakers[i].peers[NENDS] = peer_at(g->eps[i], more);
	}
	for (unsigned i = 0; i < NENDS; i++)
		assert_ok(pthread_create(&speakers[i].thread, NULL, speak,
					 &speakers[i]));
	for (unsigned i = 0; i < NENDS; i++)
		pthread_join(speakers[i].thread, NULL);
	for (unsigned i = 0; i < NENDS; i++)
		assert_int_equal(speakers[i].failed, 0);
}

static void endpoints_of_a_context_talk_to_each_other(void **state)
{
	struct group g;

	(void)state;
	group_open(&g, NULL);
	speak_together(&g, NULL);
	pinion_close(g.context);
}

/* --- another process ------------------------------------------------------ */

struct stage {
	_Atomic bool ready, keyed, done;
	struct pinion_address child, parents[NENDS];
	struct pinion_exposure_key key; /* of memory the second has exposed */
	unsigned added;			/* to it by the child */
};

static struct stage *stage;

static void await(const _Atomic bool *flag)
{
	while (!atomic_load(flag))
		sched_yield();
}

/* Sends every message back to its sender. */
static void echo(struct pinion_endpoint *ep, unsigned n)
{
	unsigned char *buf = malloc(MIB);

	while (n--) {
		struct pinion_message m = { .size = sizeof(m),
					    .buf = buf,
					    .len = MIB,
					    .ignore = UINT64_MAX };
		struct pinion_completion end;
		struct pinion_request *request;

		CHECK(!pinion_recv(ep, &m, &request));
		CHECK(!pinion_wait(ep, request, PINION_FOREVER, &end) &&
		      !end.status);
		m = (struct pinion_message){ .size = sizeof(
						     struct pinion_message),
					     .buf = buf,
					     .len = end.len,
					     .tag = end.tag,
					     .peer = end.peer };
		CHECK(!pinion_send(ep, &m, &request));
		CHECK(!pinion_wait(ep, request, PINION_FOREVER, &end) &&
		      !end.status);
	}
	free(buf);
}

/* Puts, gets and adds in memory of the parent's second endpoint. */
static void reach_in(struct pinion_endpoint *ep)
{
	struct pinion_remote *remote;
	struct pinion_request *request;
	struct pinion_completion end;
	struct pinion_peer *peer;
	struct pinion_move move;
	struct pinion_atomic atomic;
	char buf[4096];

	await(&stage->keyed);
	CHECK(!pinion_peer_add(ep, &stage->parents[1], &peer));
	CHECK(!pinion_remote_open(ep, peer, &stage->key, &remote));
	memset(buf, 'c', sizeof(buf));
	move = (struct pinion_move){ .size = sizeof(struct pinion_move),
				     .remote = remote,
				     .offset = 4096,
				     .buf = buf,
				     .len = sizeof(buf) };
	CHECK(!pinion_put(ep, &move, &request));
	CHECK(!pinion_wait(ep, request, PINION_FOREVER, &end) && !end.status);
	memset(buf, 0, sizeof(buf));
	CHECK(!pinion_get(ep, &move, &request));
	CHECK(!pinion_wait(ep, request, PINION_FOREVER, &end) && !end.status);
	CHECK(buf[0] == 'c' && buf[4095] == 'c');
	atomic = (struct pinion_atomic){ .size = sizeof(struct pinion_atomic),
					 .remote = remote,
					 .operand = 5 };
	/* iWARP has no atomics. */
	if (pinion_atomic_fetch_add(ep, &atomic, &request) != -EOPNOTSUPP) {
		CHECK(!pinion_wait(ep, request, PINION_FOREVER, &end) &&
		      !end.status);
		stage->added = 5;
	}
	pinion_remote_close(remote);
}

static void live_as_a_child(void)
{
	struct pinion_context *context = context_on(other_device, NULL);
	struct pinion_endpoint *ep;

	alarm(120);
	CHECK(context);
	CHECK(!pinion_endpoint_open(context, NULL, &ep));
	CHECK(!pinion_endpoint_address(ep, &stage->child));
	atomic_store(&stage->ready, true);
	echo(ep, NENDS * ROUNDS);
	reach_in(ep);
	atomic_store(&stage->done, true);
	/* Waits to be killed. */
	while (true)
		pinion_poll(ep, NULL, 0, 0);
}

static pid_t begin_child(void)
{
	pid_t pid;

	stage = mmap(NULL, sizeof(*stage), PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(stage != MAP_FAILED);
	fflush(stdout);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		live_as_a_child();
		_exit(0);
	}
	return pid;
}

/* One-sided operations of the child need no progress here. */
static void let_the_child_in(struct group *g)
{
	static char memory[8192] PN_ALIGNED(4096);
	struct pinion_exposure *exposure;

	memset(memory, 0, sizeof(memory));
	memory[0] = 37;
	memcpy(stage->parents, g->addresses, sizeof(g->addresses));
	assert_ok(pinion_exposure_open(g->eps[1], memory, sizeof(memory), KEYED,
				       &exposure));
	assert_ok(pinion_exposure_key(exposure, &stage->key));
	atomic_store(&stage->keyed, true);
	while (!atomic_load(&stage->done))
		for (unsigned i = 0; i < NENDS; i++)
			pinion_poll(g->eps[i], NULL, 0, 0);
	assert_int_equal(memory[0], 37 + stage->added);
	assert_true(memory[4096] == 'c' && memory[8191] == 'c');
	pinion_exposure_close(exposure);
}

static void each_sees_a_peer_of_another_process_and_its_death(void **state)
{
	pid_t pid = begin_child();
	struct pinion_request *requests[NENDS];
	struct group g;
	char buf[8];

	(void)state;
	await(&stage->ready);
	group_open(&g, NULL);
	speak_together(&g, &stage->child);
	let_the_child_in(&g);
	for (unsigned i = 0; i < NENDS; i++) {
		struct pinion_message m = {
			.size = sizeof(m),
			.buf = buf,
			.len = sizeof(buf),
			.peer = peer_at(g.eps[i], &stage->child),
		};

		assert_ok(pinion_recv(g.eps[i], &m, &requests[i]));
	}
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	for (unsigned i = 0; i < NENDS; i++)
		assert_int_equal(finish_in(&g, i, requests[i]), -ECONNRESET);
	/* The other endpoints still work. */
	speak_together(&g, NULL);
	pinion_close(g.context);
	munmap(stage, sizeof(*stage));
}

/* --- registrations -------------------------------------------------------- */

static void what_one_registers_serves_all(void **state)
{
	struct pinion_heap_attr attr = { .size = sizeof(attr),
					 .slab_bytes = 4 * MIB };
	struct pinion_heap *heap;
	char *own, *plain = malloc(2 * MIB);
	uint64_t before;
	struct group g;

	(void)state;
	group_open(&g, "protocol=cached");
	assert_ok(pinion_heap_open(g.context, &attr, &heap));
	own = pinion_heap_malloc(heap, 2 * MIB);
	assert_non_null(own);
	before = stats_of(&g).registrations;
	for (unsigned i = 0; i < NENDS; i++)
		pass(&g, i, (i + 1) % NENDS, own, MIB);
	assert_int_equal(stats_of(&g).registrations, before);
	/* Registrations that one endpoint has cached serve the others, too. */
	pass(&g, 0, 1, plain, MIB);
	assert_true(stats_of(&g).registrations > before);
	before = stats_of(&g).registrations;
	pass(&g, 1, 2, plain, MIB);
	pass(&g, 2, 0, plain, MIB);
	assert_int_equal(stats_of(&g).registrations, before);
	pinion_close(g.context);
	free(plain);
}

static void do_move(struct group *g, unsigned i,
		    int (*fn)(struct pinion_endpoint *,
			      const struct pinion_move *,
			      struct pinion_request **),
		    const struct pinion_move *move)
{
	struct pinion_request *request;

	assert_ok(fn(g->eps[i], move, &request));
	assert_ok(finish_in(g, i, request));
}

static void exposed_memory_is_reached_through_its_endpoint(void **state)
{
	static char memory[2 * 4096] PN_ALIGNED(4096);
	struct pinion_exposure *exposure;
	struct pinion_remote *remote;
	struct pinion_request *request;
	struct pinion_exposure_key key;
	char buf[4096];
	struct group g;

	(void)state;
	group_open(&g, NULL);
	memset(memory, 0, sizeof(memory));
	assert_ok(pinion_exposure_open(g.eps[1], memory, sizeof(memory), KEYED,
				       &exposure));
	assert_ok(pinion_exposure_key(exposure, &key));
	for (unsigned i = 0; i < NENDS; i++) {
		struct pinion_move move = { .size = sizeof(move),
					    .offset = 4096,
					    .buf = buf,
					    .len = sizeof(buf) };
		struct pinion_atomic add = { .size = sizeof(add),
					     .operand = 1 };

		assert_ok(pinion_remote_open(g.eps[i],
					     peer_at(g.eps[i], &g.addresses[1]),
					     &key, &remote));
		move.remote = add.remote = remote;
		memset(buf, 'a' + (int)i, sizeof(buf));
		do_move(&g, i, pinion_put, &move);
		assert_memory_equal(memory + 4096, buf, sizeof(buf));
		memset(buf, 0, sizeof(buf));
		do_move(&g, i, pinion_get, &move);
		assert_memory_equal(memory + 4096, buf, sizeof(buf));
		if (g.context->device->caps & PN_CAP_ATOMICS) {
			assert_ok(pinion_atomic_fetch_add(g.eps[i], &add,
							  &request));
			assert_ok(finish_in(&g, i, request));
			assert_int_equal(memory[0], i + 1);
		}
		pinion_remote_close(remote);
	}
	pinion_exposure_close(exposure);
	pinion_close(g.context);
}

/* --- life ----------------------------------------------------------------- */

static unsigned nfiles(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned n = 0;

	assert_non_null(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

static void endpoints_close_in_any_order(void **state)
{
	static const unsigned orders[][NENDS] = {
		{ 0, 1, 2 }, { 2, 1, 0 }, { 1, 0, 2 }, { 0, 2, 1 }
	};
	char *buf = malloc(2 * 5000);
	unsigned files = 0;
	struct group g;

	(void)state;
	group_open(&g, NULL);
	for (unsigned n = 0; n < PN_ARRAY_LEN(orders); n++) {
		const unsigned *order = orders[n];

		for (unsigned i = 0; i < NENDS; i++)
			pass(&g, order[i], order[(i + 1) % NENDS], buf, 5000);
		pinion_endpoint_close(g.eps[order[0]]);
		g.eps[order[0]] = NULL;
		pass(&g, order[1], order[2], buf, 5000);
		open_endpoint(&g, order[0]);
		pass(&g, order[0], order[2], buf, 5000);
		for (unsigned i = 0; i < NENDS; i++) {
			pinion_endpoint_close(g.eps[order[i]]);
			g.eps[order[i]] = NULL;
		}
		if (!n)
			files = nfiles();
		assert_int_equal(nfiles(), files);
		for (unsigned i = 0; i < NENDS; i++)
			open_endpoint(&g, i);
	}
	pinion_close(g.context);
	free(buf);
}

static void *come_and_go(void *arg)
{
	struct speaker *s = arg;
	struct pinion_context *context = s->group->context;
	char from[5000], to[5000];

	memset(from, 's', sizeof(from));
	for (unsigned i = 0; i < ROUNDS; i++) {
		struct pinion_address address;
		struct pinion_endpoint *ep;
		struct pinion_request *requests[2];
		struct pinion_message m = { .size = sizeof(m),
					    .buf = to,
					    .len = sizeof(to) };

		if (pinion_endpoint_open(context, NULL, &ep)) {
			s->failed++;
			break;
		}
		memset(to, 0, sizeof(to));
		s->failed += !!pinion_endpoint_address(ep, &address);
		s->failed += !!pinion_recv(ep, &m, &requests[0]);
		m.buf = from;
		s->failed += !!pinion_peer_add(ep, &address, &m.peer);
		s->failed += !!pinion_send(ep, &m, &requests[1]);
		s->failed +=
			!!pinion_wait(ep, requests[0], PINION_FOREVER, NULL);
		s->failed +=
			!!pinion_wait(ep, requests[1], PINION_FOREVER, NULL);
		s->failed += !!memcmp(from, to, sizeof(to));
		pinion_endpoint_close(ep);
	}
	return NULL;
}

static void threads_open_and_close_endpoints_at_once(void **state)
{
	struct speaker speakers[NENDS];
	struct group g;

	(void)state;
	g.context = context_on("device=soft", "helper=own");
	assert_non_null(g.context);
	for (unsigned i = 0; i < NENDS; i++) {
		speakers[i] = (struct speaker){ .group = &g };
		assert_ok(pthread_create(&speakers[i].thread, NULL, come_and_go,
					 &speakers[i]));
	}
	for (unsigned i = 0; i < NENDS; i++) {
		pthread_join(speakers[i].thread, NULL);
		assert_int_equal(speakers[i].failed, 0);
	}
	assert_int_equal(g.context->nendpoints, 0);
	assert_non_null(g.context->helper); /* until the context closes */
	pinion_close(g.context);
}

static void virtual_time_has_one_endpoint_in_a_context(void **state)
{
	struct pinion_context *context = context_on("device=sim", "log=none");
	struct pinion_endpoint *ep, *more;

	(void)state;
	assert_non_null(context);
	assert_ok(pinion_endpoint_open(context, NULL, &ep));
	assert_int_equal(pinion_endpoint_open(context, NULL, &more),
			 -EOPNOTSUPP);
	pinion_endpoint_close(ep);
	assert_ok(pinion_endpoint_open(context, NULL, &ep));
	pinion_close(context);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest everywhere[] = {
		/* The first test forks, before there are threads. */
		TEST(each_sees_a_peer_of_another_process_and_its_death),
		TEST(endpoints_of_a_context_talk_to_each_other),
		TEST(small_messages_go_straight_from_buffers_used_often),
		TEST(what_one_registers_serves_all),
		TEST(exposed_memory_is_reached_through_its_endpoint),
	};
	/* An endpoint that is opened again has the address of the first, whose
	 * peers verbs does not connect again. */
	const struct CMUnitTest soft[] = {
		TEST(endpoints_close_in_any_order),
		TEST(threads_open_and_close_endpoints_at_once),
		TEST(virtual_time_has_one_endpoint_in_a_context),
	};
	int failed;

	if (argc > 2) {
		snprintf(device, sizeof(device), "device=%s", argv[1]);
		snprintf(other_device, sizeof(other_device), "device=%s",
			 argv[2]);
	}
	failed = RUN_TESTS(everywhere);
	return argc > 2 ? failed : failed + RUN_TESTS(soft);
}
