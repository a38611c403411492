/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_scale [PEERS LIMIT] -- many endpoints in a process, and many peers of
 * one endpoint whose process may have LIMIT descriptors in all.
 *
 * The peers live in a few processes with more descriptors, the hosts; the hub
 * is the one with few. Both are children, which report by their exit status.
 */
#include "message/ends.h"

#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define PATIENCE_S    120
#define NHOSTS	      4
#define MOST_PEERS    1024
#define LONG_BYTES    ((size_t)100 << 10)
#define EXPOSED_BYTES ((size_t)8 << 10)
#define KEYED	      (PINION_ACCESS_REMOTE_WRITE | PINION_ACCESS_REMOTE_READ)

/* Sanitizers take twenty times as long. */
#ifdef TEST_SANITIZED
#define NENDS 200
static unsigned npeers = 60, limit = 96;
#else
#define NENDS 1024
static unsigned npeers = 200, limit = 256;
#endif

/* In a child: no cmocka. */
#define CHECK(x) ((x) ? (void)0 : child_failed(#x, __LINE__))

static void child_failed(const char *what, int line)
{
	fprintf(stderr, "child, line %d: %s\n", line, what);
	_exit(1);
}

static bool raise_limit(rlim_t n)
{
	struct rlimit now;

	if (getrlimit(RLIMIT_NOFILE, &now) || now.rlim_max < n)
		return false;
	if (now.rlim_cur < n)
		now.rlim_cur = n;
	return !setrlimit(RLIMIT_NOFILE, &now);
}

static void open_end(struct end *end)
{
	CHECK(!pinion_open(NULL, &end->context));
	CHECK(!pinion_endpoint_open(end->context, NULL, &end->ep));
	CHECK(!pinion_endpoint_address(end->ep, &end->address));
}

static void close_end(struct end *end)
{
	pinion_endpoint_close(end->ep);
	pinion_close(end->context);
}

static char pattern(unsigned peer, size_t at)
{
	return (char)(peer * 31 + at * 7 + 1);
}

static void fill(char *buf, size_t len, unsigned peer)
{
	for (size_t i = 0; i < len; i++)
		buf[i] = pattern(peer, i);
}

static bool is_filled(const char *buf, size_t len, unsigned peer)
{
	for (size_t i = 0; i < len; i++)
		if (buf[i] != pattern(peer, i))
			return false;
	return true;
}

/* --- many endpoints in one process ---------------------------------------- */

#define FILES_EACH  12 /* of an endpoint, and of its two connections */
#define OTHER_FILES 100

static void pass_on(struct end *from, struct end *to, unsigned number)
{
	unsigned got = 0;
	struct pinion_message in = { .size = sizeof(in),
				     .buf = &got,
				     .len = sizeof(got) };
	struct pinion_message out = { .size = sizeof(out),
				      .buf = &number,
				      .len = sizeof(number) };
	struct pinion_request *sent, *received;
	struct pinion_completion c;
	bool there = false, gone = false;

	CHECK(!pinion_peer_add(from->ep, &to->address, &out.peer));
	CHECK(!pinion_recv(to->ep, &in, &received));
	CHECK(!pinion_send(from->ep, &out, &sent));
	while (!there || !gone) {
		if (!gone && !pinion_test(from->ep, sent, &c))
			gone = !c.status;
		if (!there && !pinion_test(to->ep, received, &c))
			there = !c.status;
	}
	CHECK(got == number);
}

/* Each context has a cache that is notified of releases. */
static void release_pinned(struct end *ends)
{
	struct pinion_pin pin;
	void *mem = mmap(NULL, 4 * PN_PAGE_BYTES, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(mem != MAP_FAILED);
	for (unsigned i = 0; i < NENDS; i += NENDS / 4) {
		CHECK(!pinion_pin(ends[i].context, mem, PN_PAGE_BYTES, 0,
				  &pin));
		pinion_unpin(ends[i].context, &pin);
		CHECK(pn_cache_holds(ends[i].context->cache, mem));
	}
	pinion_invalidate(mem, PN_PAGE_BYTES);
	for (unsigned i = 0; i < NENDS; i += NENDS / 4)
		CHECK(!pn_cache_holds(ends[i].context->cache, mem));
	munmap(mem, 4 * PN_PAGE_BYTES);
}

static void live_with_many(void)
{
	struct end *ends = calloc(NENDS, sizeof(*ends));

	CHECK(ends);
	for (unsigned i = 0; i < NENDS; i++)
		open_end(&ends[i]);
	for (unsigned i = 0; i < NENDS; i++)
		pass_on(&ends[i], &ends[(i + 1) % NENDS], i);
	release_pinned(ends);
	for (unsigned i = 0; i < NENDS; i++)
		close_end(&ends[i]);
	free(ends);
}

static pid_t start(void (*fn)(unsigned rank), unsigned rank)
{
	pid_t pid;

	fflush(stdout);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		alarm(PATIENCE_S);
		fn(rank);
		_exit(0);
	}
	return pid;
}

static void assert_ends_well(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void many_role(unsigned rank)
{
	(void)rank;
	live_with_many();
}

static void a_process_has_a_thousand_endpoints(void **state)
{
	(void)state;
	if (!raise_limit(NENDS * FILES_EACH + OTHER_FILES))
		skip();
	assert_ends_well(start(many_role, 0));
}

/* --- many peers of one endpoint ------------------------------------------- */

/* Shared between the processes. */
static struct {
	_Atomic unsigned nhere; /* peers that can be reached */
	_Atomic bool over;	/* the hub has done all */
	struct pinion_address hub, peers[MOST_PEERS];
	struct pinion_exposure_key keys[MOST_PEERS];
	_Atomic pid_t hosts[NHOSTS];
} * board;

enum { ASK, ANSWER, LONG_ASK, LONG_ANSWER };

/* One peer of the hub, in its host. */
struct peer {
	struct end end;
	unsigned number;
	struct pinion_peer *hub;
	struct pinion_exposure *exposure;
	struct pinion_request *receive, *answer;
	char *exposed, *buf;
	unsigned step;
};

static void expect_next(struct peer *p)
{
	struct pinion_message in = { .size = sizeof(in),
				     .buf = p->buf,
				     .len = LONG_BYTES,
				     .tag = p->step };

	CHECK(!pinion_recv(p->end.ep, &in, &p->receive));
}

static void peer_open(struct peer *p, unsigned number)
{
	p->number = number;
	p->exposed = calloc(1, EXPOSED_BYTES);
	p->buf = malloc(LONG_BYTES);
	CHECK(p->exposed && p->buf);
	open_end(&p->end);
	CHECK(!pinion_exposure_open(p->end.ep, p->exposed, EXPOSED_BYTES, KEYED,
				    &p->exposure));
	CHECK(!pinion_exposure_key(p->exposure, &board->keys[number]));
	board->peers[number] = p->end.address;
	expect_next(p);
	atomic_fetch_add(&board->nhere, 1);
}

static void peer_answer(struct peer *p, size_t len)
{
	struct pinion_message out = { .size = sizeof(out),
				      .buf = p->buf,
				      .len = len,
				      .tag = p->step + 1 };

	CHECK(is_filled(p->buf, len, p->number));
	if (!p->hub)
		CHECK(!pinion_peer_add(p->end.ep, &board->hub, &p->hub));
	out.peer = p->hub;
	CHECK(!pinion_send(p->end.ep, &out, &p->answer));
	p->receive = NULL;
}

/* Sends every message back. */
static void peer_step(struct peer *p)
{
	struct pinion_completion c;

	if (p->receive && !pinion_test(p->end.ep, p->receive, &c)) {
		CHECK(!c.status);
		peer_answer(p, c.len);
	}
	if (p->answer && !pinion_test(p->end.ep, p->answer, &c)) {
		CHECK(!c.status);
		p->answer = NULL;
		p->step += 2;
		if (p->step < LONG_ANSWER)
			expect_next(p);
	}
	pinion_poll(p->end.ep, NULL, 0, 0);
}

static void peer_close(struct peer *p)
{
	CHECK(is_filled(p->exposed, EXPOSED_BYTES, p->number));
	pinion_exposure_close(p->exposure);
	close_end(&p->end);
	free(p->exposed);
	free(p->buf);
}

static void host_role(unsigned rank)
{
	unsigned n = 0;
	struct peer *peers = calloc(MOST_PEERS, sizeof(*peers));

	CHECK(peers);
	atomic_store(&board->hosts[rank], getpid());
	for (unsigned i = rank; i < npeers; i += NHOSTS)
		peer_open(&peers[n++], i);
	while (!atomic_load(&board->over)) {
		for (unsigned i = 0; i < n; i++)
			peer_step(&peers[i]);
		sched_yield();
	}
	while (n)
		peer_close(&peers[--n]);
	free(peers);
}

/* --- the hub -------------------------------------------------------------- */

/* Sends to all peers, then receives all answers. */
static void ask_all(struct end *hub, struct pinion_peer **peers, unsigned tag,
		    size_t len, char *buf)
{
	struct pinion_request *receive, **sent = calloc(npeers, sizeof(*sent));

	CHECK(sent);
	for (unsigned i = 0; i < npeers; i++) {
		char *out = buf + (len < 1000 ? i * len : 0);
		struct pinion_message m = { .size = sizeof(m),
					    .buf = out,
					    .len = len,
					    .tag = tag,
					    .peer = peers[i] };

		fill(out, len, i);
		CHECK(!pinion_send(hub->ep, &m, &sent[i]));
		if (len >= 1000) /* one buffer for all */
			CHECK(!pinion_wait(hub->ep, sent[i], PINION_FOREVER,
					   NULL));
	}
	for (unsigned i = 0; i < npeers; i++) {
		struct pinion_message m = { .size = sizeof(m),
					    .buf = buf,
					    .len = len,
					    .tag = tag + 1,
					    .peer = peers[i] };

		if (len < 1000)
			CHECK(!pinion_wait(hub->ep, sent[i], PINION_FOREVER,
					   NULL));
		CHECK(!pinion_recv(hub->ep, &m, &receive));
		CHECK(!pinion_wait(hub->ep, receive, PINION_FOREVER, NULL));
		CHECK(is_filled(buf, len, i));
	}
	free(sent);
}

static void put_to(struct end *hub, struct pinion_peer *peer, unsigned number,
		   char *buf)
{
	struct pinion_move move = { .size = sizeof(move),
				    .buf = buf,
				    .len = EXPOSED_BYTES };
	struct pinion_request *request;

	CHECK(!pinion_remote_open(hub->ep, peer, &board->keys[number],
				  &move.remote));
	fill(buf, EXPOSED_BYTES, number);
	CHECK(!pinion_put(hub->ep, &move, &request));
	CHECK(!pinion_wait(hub->ep, request, PINION_FOREVER, NULL));
	memset(buf, 0, EXPOSED_BYTES);
	CHECK(!pinion_get(hub->ep, &move, &request));
	CHECK(!pinion_wait(hub->ep, request, PINION_FOREVER, NULL));
	CHECK(is_filled(buf, EXPOSED_BYTES, number));
	pinion_remote_close(move.remote);
}

/* The end of a process is noticed for all peers in it. */
static void lose_a_host(struct end *hub, struct pinion_peer **peers, char *buf)
{
	pid_t pid = atomic_load(&board->hosts[0]);
	struct pinion_message m = {
		.size = sizeof(m), .buf = buf, .len = LONG_BYTES, .tag = 99
	};

	CHECK(!kill(pid, SIGKILL));
	for (unsigned i = 0; i < npeers; i += NHOSTS) {
		struct pinion_request *request;
		int ret;

		m.peer = peers[i];
		ret = pinion_send(hub->ep, &m, &request);
		if (!ret)
			ret = pinion_wait(hub->ep, request, PINION_FOREVER,
					  NULL);
		CHECK(ret == -ECONNRESET);
	}
}

static void hub_role(unsigned rank)
{
	struct rlimit few = { limit, limit };
	struct pinion_peer **peers =
		calloc(npeers, sizeof(struct pinion_peer *));
	char *buf = malloc(LONG_BYTES);
	struct end hub;

	(void)rank;
	CHECK(peers && buf);
	/* Descriptors left open by others do not count. */
	CHECK(!close_range(STDERR_FILENO + 1, UINT_MAX, 0));
	CHECK(!setrlimit(RLIMIT_NOFILE, &few));
	open_end(&hub);
	board->hub = hub.address;
	while (atomic_load(&board->nhere) < npeers)
		usleep(1000);
	for (unsigned i = 0; i < npeers; i++)
		CHECK(!pinion_peer_add(hub.ep, &board->peers[i], &peers[i]));
	ask_all(&hub, peers, ASK, 16, buf);
	for (unsigned i = 0; i < npeers; i++)
		put_to(&hub, peers[i], i, buf);
	ask_all(&hub, peers, LONG_ASK, LONG_BYTES, buf);
	lose_a_host(&hub, peers, buf);
	atomic_store(&board->over, true);
	close_end(&hub);
	free(peers);
	free(buf);
}

static void many_peers_need_few_descriptors(void **state)
{
	pid_t hosts[NHOSTS], hub;
	int status;

	(void)state;
	if (!raise_limit(npeers / NHOSTS * FILES_EACH + OTHER_FILES))
		skip();
	board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(board, MAP_FAILED);
	hub = start(hub_role, 0);
	for (unsigned i = 0; i < NHOSTS; i++)
		hosts[i] = start(host_role, i);
	assert_int_equal(waitpid(hub, &status, 0), hub);
	if (status) /* no one else kills them */
		for (unsigned i = 0; i < NHOSTS; i++)
			kill(hosts[i], SIGKILL);
	assert_int_equal(status, 0);
	assert_int_equal(waitpid(hosts[0], &status, 0), hosts[0]);
	assert_int_equal(WTERMSIG(status), SIGKILL);
	for (unsigned i = 1; i < NHOSTS; i++)
		assert_ends_well(hosts[i]);
	munmap(board, sizeof(*board));
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(a_process_has_a_thousand_endpoints),
		TEST(many_peers_need_few_descriptors),
	};
	const struct CMUnitTest peers[] = {
		TEST(many_peers_need_few_descriptors),
	};

	if (argc < 3)
		return RUN_TESTS(tests);
	npeers = (unsigned)atoi(argv[1]);
	limit = (unsigned)atoi(argv[2]);
	assert_in_range(npeers, NHOSTS, MOST_PEERS);
	return RUN_TESTS(peers);
}
