/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a receiver keeps of messages that no receive accepts is bounded
 * (allowance.h): the sender's requests wait, nothing is lost, and the order
 * stays.
 */
#include "test.h"

#include <stdlib.h>

#include "message/endpoint/endpoint.h"
#include "message/ends.h"
#include "message/party.h"

#define LIMIT ((size_t)16 << 10)
#define N     300
#define AFTER 50

/* --- a receiver that polls and posts nothing ------------------------------ */

struct flood {
	int protocol;
	size_t len;
	size_t data; /* that goes with the MATCH, while it may */
	bool to_self;
};

struct flooder {
	struct rank *rank;
	const struct flood *flood;
	struct party party;
	struct pinion_request *requests[N];
	bool ended[N];
	uint8_t *bufs;
	unsigned to, from;
};

static struct pinion_message message_to(struct flooder *f, unsigned i,
					unsigned peer)
{
	return (struct pinion_message){ .size = sizeof(struct pinion_message),
					.buf = f->bufs + i * f->flood->len,
					.len = f->flood->len,
					.tag = 5,
					.peer = f->party.peers[peer] };
}

static void send_all(struct flooder *f)
{
	for (unsigned i = 0; i < N; i++) {
		struct pinion_message m = message_to(f, i, f->to);

		pattern_fill(m.buf, m.len, i);
		RANK_CHECK(f->rank,
			   !pn_endpoint_send(f->party.ep, &m, &f->requests[i]));
	}
}

/* What is kept never grows beyond the limit: party_poll() asserts it. */
static void see_all_come(struct flooder *f)
{
	const struct pinion_endpoint *ep = f->party.ep;

	while (ep->stats.unexpected < N) {
		party_poll(&f->party);
		rank_pause(f->rank);
	}
	RANK_CHECK(f->rank, ep->matching.kept_bytes <= LIMIT);
	RANK_CHECK(f->rank, ep->matching.kept_bytes >
				    LIMIT - 2 * (f->flood->data +
						 PN_ALLOWANCE_OVERHEAD));
}

static unsigned count_ended(struct flooder *f)
{
	unsigned n = 0;

	for (unsigned i = 0; i < N; i++) {
		if (!f->ended[i] &&
		    pn_endpoint_test(f->party.ep, f->requests[i], NULL) !=
			    -EAGAIN)
			f->ended[i] = true;
		n += f->ended[i];
	}
	return n;
}

/* Of the messages that the receiver keeps whole, the sends have ended. */
static void see_requests_wait(struct flooder *f)
{
	size_t each = f->flood->data + PN_ALLOWANCE_OVERHEAD;
	unsigned most =
		f->flood->data == f->flood->len ? (unsigned)(LIMIT / each) : 0;
	unsigned ended = count_ended(f);

	RANK_CHECK(f->rank, ended <= most);
	RANK_CHECK(f->rank, !most || ended >= most - 2);
	RANK_CHECK(f->rank,
		   f->party.ep->stats.late == N - (unsigned)(LIMIT / each));
}

static void receive_all(struct flooder *f)
{
	uint8_t *buf = malloc(f->flood->len + 1);

	for (unsigned i = 0; i < N; i++) {
		RANK_CHECK(f->rank, !party_recv(&f->party, f->from, buf,
						f->flood->len, 5));
		RANK_CHECK(f->rank, pattern_holds(buf, f->flood->len, i));
	}
	RANK_CHECK(f->rank, !f->party.ep->matching.kept_bytes);
	free(buf);
}

static void wait_for_all(struct flooder *f)
{
	while (count_ended(f) < N)
		rank_pause(f->rank);
}

/* The receiver keeps up: at most one message is late, before its sender knows.
 */
static void go_on(struct flooder *f, bool sends)
{
	uint64_t late = f->party.ep->stats.late;
	uint8_t *buf = calloc(1, f->flood->len + 1);
	char go[1] = "";

	for (unsigned i = 0; i < AFTER; i++) {
		struct pinion_message m = message_to(f, 0, f->from);
		struct pinion_request *request;

		m.buf = buf;
		if (sends) {
			RANK_CHECK(f->rank,
				   !party_recv(&f->party, 1, go, 1, 6));
			RANK_CHECK(f->rank,
				   !party_send(&f->party, 1, buf, m.len, 5));
			continue;
		}
		RANK_CHECK(f->rank,
			   !pn_endpoint_recv(f->party.ep, &m, &request));
		RANK_CHECK(f->rank, !party_send(&f->party, 0, go, 1, 6));
		RANK_CHECK(f->rank,
			   !pn_endpoint_wait(f->party.ep, request, NULL));
	}
	RANK_CHECK(f->rank, f->party.ep->stats.late <= late + 1);
	free(buf);
}

static void flood_other(struct flooder *f)
{
	f->to = 1;
	if (f->rank->rank)
		see_all_come(f);
	else
		send_all(f);
	party_barrier(&f->party);
	if (!f->rank->rank)
		see_requests_wait(f);
	party_barrier(&f->party);
	if (f->rank->rank)
		receive_all(f);
	else
		wait_for_all(f);
	party_barrier(&f->party);
	go_on(f, !f->rank->rank);
	party_barrier(&f->party);
}

static void flood_self(struct flooder *f)
{
	send_all(f);
	see_all_come(f);
	see_requests_wait(f);
	receive_all(f);
	wait_for_all(f);
}

static void run_flood(struct rank *rank)
{
	struct flooder *f = calloc(1, sizeof(*f));
	struct party_attr attr = { .unexpected_limit = LIMIT,
				   .single_threaded = true };

	f->rank = rank;
	f->flood = rank->arg;
	f->bufs = malloc(N * f->flood->len + 1);
	attr.protocol = f->flood->protocol;
	if (!party_open(&f->party, rank, &attr))
		return;
	if (f->flood->to_self)
		flood_self(f);
	else
		flood_other(f);
	party_close(&f->party);
	free(f->bufs);
	free(f);
}

static void run_floods(const char *how, const char *spec)
{
	/* party.h: up to 2000 bytes go at once, and 1000 of longer ones. */
	static const struct flood floods[] = {
		{ PN_PROTOCOL_COPY, 0, 0, false },
		{ PN_PROTOCOL_COPY, 0, 0, true },
		{ PN_PROTOCOL_COPY, 1, 1, false },
		{ PN_PROTOCOL_COPY, 700, 700, false },
		{ PN_PROTOCOL_COPY, 700, 700, true },
		{ PN_PROTOCOL_COPY, 2000, 2000, false },
		{ PN_PROTOCOL_COPY, 5000, 1000, false },
		{ PN_PROTOCOL_DEMAND, 5000, 1000, false },
		{ PN_PROTOCOL_PIPELINE, 30000, 1000, false },
		{ PN_PROTOCOL_CACHING_PIPELINE, 30000, 1000, true },
		{ PN_PROTOCOL_OVERLAPPED, 30000, 1000, false },
	};

	for (unsigned i = 0; i < PN_ARRAY_LEN(floods); i++) {
		struct ranks run = { .how = how,
				     .spec = spec,
				     .nranks = floods[i].to_self ? 1 : 2,
				     .fn = run_flood,
				     .arg = (void *)(uintptr_t)&floods[i] };

		if (!ranks_run(&run))
			fail_msg("%s, number %u", spec, i);
	}
}

static void what_is_kept_is_bounded_in_virtual_time(void **state)
{
	(void)state;
	run_floods("sim", "sim:cost=cx5");
}

static void what_is_kept_is_bounded_over_several_rails(void **state)
{
	(void)state;
	run_floods("sim", "sim:cost=cx5,rails=2");
}

static void what_is_kept_is_bounded_between_threads(void **state)
{
	(void)state;
	run_floods("threads", "soft");
}

/* --- injected messages ---------------------------------------------------- */

static struct pinion_message any(void *buf, size_t len)
{
	return (struct pinion_message){ .size = sizeof(struct pinion_message),
					.buf = buf,
					.len = len,
					.tag = 7 };
}

static void receive(struct pair *pair, unsigned n, size_t len)
{
	uint8_t buf[256];

	for (unsigned i = 0; i < n; i++) {
		struct pinion_message m = any(buf, len);
		struct pinion_request *request;

		assert_ok(pinion_recv(pair->b.ep, &m, &request));
		assert_ok(finish(pair, pair->b.ep, request).status);
	}
}

/* Sends until it has been refused often in a row, but not before the first one
 * has left. */
static unsigned inject_while_possible(struct pair *pair, size_t len)
{
	uint64_t deadline = pn_clock_ns() + 60 * PN_NS_PER_S;
	uint8_t buf[256] = { 0 };
	struct pinion_message m = any(buf, len);
	unsigned n = 0;

	m.peer = pair->to_b;
	for (unsigned refused = 0; refused < 1000 || !n; refused++) {
		int ret = pinion_inject(pair->a.ep, &m);

		pair_progress(pair);
		assert_true(ret == -EAGAIN || !ret);
		if (!ret) {
			refused = 0;
			n++;
		}
		assert_true(n < 10000 && pn_clock_ns() < deadline);
	}
	return n;
}

static void messages_are_not_injected_beyond_the_limit(void **state)
{
	static const size_t lens[] = { 0, 1, 100, 200 };
	struct pair pair;

	(void)state;
	pair_open(&pair, "unexpected_limit=16K");
	for (unsigned i = 0; i < PN_ARRAY_LEN(lens); i++) {
		size_t each = lens[i] + PN_ALLOWANCE_OVERHEAD;
		unsigned n = inject_while_possible(&pair, lens[i]);

		assert_true(n <= LIMIT / each && n >= LIMIT / each - 2);
		assert_int_equal(pair.b.ep->matching.kept_bytes, n * each);
		receive(&pair, n, lens[i]);
		assert_int_equal(pair.b.ep->matching.kept_bytes, 0);
	}
	/* No more than the question and the answer were exchanged meanwhile. */
	assert_int_equal(pair.a.ep->stats.late, 0);
	pair_close(&pair);
}

/* --- requests that wait --------------------------------------------------- */

/* Injected messages of 0 bytes leave no room for another. */
static struct pinion_request *send_late(struct pair *pair, void *buf,
					size_t len, uint64_t flags)
{
	struct pinion_message m = any(buf, len);
	uint64_t before = pair->a.ep->stats.late;
	struct pinion_request *request;

	m.peer = pair->to_b;
	m.tag = 8;
	m.flags = flags;
	assert_ok(pinion_send(pair->a.ep, &m, &request));
	assert_int_equal(pair->a.ep->stats.late, before + 1);
	for (unsigned i = 0; i < 100; i++) {
		pair_progress(pair);
		assert_int_equal(pinion_test(pair->a.ep, request, NULL),
				 -EAGAIN);
	}
	return request;
}

static void a_send_that_waits_can_be_canceled(void **state)
{
	static const size_t lens[] = { 0, 200 };
	uint8_t buf[256] = { 0 };
	struct pinion_request *request, *receive_it;
	struct pair pair;

	(void)state;
	for (unsigned i = 0; i < PN_ARRAY_LEN(lens); i++) {
		struct pinion_message m = any(buf, lens[i]);
		unsigned n;

		pair_open(&pair, "unexpected_limit=16K");
		n = inject_while_possible(&pair, 0);
		request = send_late(&pair, buf, lens[i], 0);
		assert_ok(pinion_cancel(pair.a.ep, request));
		assert_int_equal(finish(&pair, pair.a.ep, request).status,
				 -ECANCELED);
		m.tag = 8;
		assert_ok(pinion_recv(pair.b.ep, &m, &receive_it));
		for (unsigned k = 0; k < 100; k++) {
			pair_progress(&pair);
			assert_int_equal(pinion_test(pair.b.ep, receive_it,
						     NULL),
					 -EAGAIN);
		}
		assert_ok(pinion_cancel(pair.b.ep, receive_it));
		finish(&pair, pair.b.ep, receive_it);
		receive(&pair, n, 0);
		pair_close(&pair);
	}
}

/* The message that asks waits for the connection, and never leaves. */
static void a_question_that_is_canceled_is_asked_again(void **state)
{
	uint8_t out[700] = { 0 }, in[700];
	struct pinion_request *asks = NULL, *send, *receive_it;
	struct pinion_message m;
	struct pair pair;

	(void)state;
	pair_open(&pair, "unexpected_limit=16K");
	m = any(out, sizeof(out));
	m.peer = pair.to_b;
	while (!pair.to_b->allowance.asking)
		assert_ok(pinion_send(pair.a.ep, &m, &asks));
	assert_ok(pinion_cancel(pair.a.ep, asks));
	assert_false(pair.to_b->allowance.asking);
	assert_int_equal(pinion_wait(pair.a.ep, asks, PINION_FOREVER, NULL),
			 -ECANCELED);
	for (unsigned i = 0; i < 100; i++) {
		m = any(in, sizeof(in));
		assert_ok(pinion_recv(pair.b.ep, &m, &receive_it));
		m = any(out, sizeof(out));
		m.peer = pair.to_b;
		assert_ok(pinion_send(pair.a.ep, &m, &send));
		assert_ok(finish(&pair, pair.a.ep, send).status);
		assert_ok(finish(&pair, pair.b.ep, receive_it).status);
	}
	assert_int_equal(pair.a.ep->stats.late, 0);
	pair_close(&pair);
}

static void a_send_that_waits_ends_with_its_receive(void **state)
{
	static const uint64_t flags[] = { 0, PINION_MESSAGE_DELIVERY_COMPLETE };
	static const size_t lens[] = { 0, 200 };
	uint8_t out[256], in[256];
	struct pair pair;

	(void)state;
	pair_open(&pair, "unexpected_limit=16K");
	for (unsigned i = 0; i < 4; i++) {
		unsigned n = inject_while_possible(&pair, 0);
		struct pinion_message m = any(in, lens[i / 2]);
		struct pinion_request *send, *receive_it;

		pattern_fill(out, 200, i);
		send = send_late(&pair, out, lens[i / 2], flags[i % 2]);
		m.tag = 8;
		assert_ok(pinion_recv(pair.b.ep, &m, &receive_it));
		assert_ok(finish(&pair, pair.a.ep, send).status);
		assert_ok(finish(&pair, pair.b.ep, receive_it).status);
		assert_true(pattern_holds(in, lens[i / 2], i));
		receive(&pair, n, 0);
	}
	pair_close(&pair);
}

static void a_send_that_waits_fails_with_its_peer(void **state)
{
	uint8_t buf[200] = { 0 };
	struct pinion_request *requests[2];
	struct pair pair;

	(void)state;
	pair_open(&pair, "unexpected_limit=16K");
	inject_while_possible(&pair, 0);
	requests[0] = send_late(&pair, buf, 0, 0);
	requests[1] = send_late(&pair, buf, 200, 0);
	end_close(&pair.b);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(pinion_wait(pair.a.ep, requests[i],
					     PINION_FOREVER, NULL),
				 -ECONNRESET);
	end_close(&pair.a);
}

/* The peer's next endpoint keeps nothing. */
static void the_next_life_of_a_peer_has_its_own_count(void **state)
{
	struct pair pair;

	(void)state;
	pair_open(&pair, "unexpected_limit=16K");
	inject_while_possible(&pair, 0);
	pinion_endpoint_close(pair.b.ep);
	assert_ok(pinion_endpoint_open(pair.b.context, NULL, &pair.b.ep));
	while (!pair.to_b->down)
		pair_progress(&pair);
	assert_ok(pinion_peer_add(pair.a.ep, &pair.b.address, &pair.to_b));
	assert_true(inject_while_possible(&pair, 0) > 10);
	pair_close(&pair);
}

/* --- without a limit, and beyond it --------------------------------------- */

static void no_limit_keeps_everything(void **state)
{
	uint8_t buf[200] = { 0 };
	struct pinion_message m = any(buf, sizeof(buf));
	struct pair pair;

	(void)state;
	pair_open(&pair, "unexpected_limit=0");
	m.peer = pair.to_b;
	for (unsigned i = 0; i < 2000; i++) {
		struct pinion_request *request;

		assert_ok(pinion_send(pair.a.ep, &m, &request));
		assert_ok(finish(&pair, pair.a.ep, request).status);
	}
	assert_int_equal(pair.a.ep->stats.late, 0);
	receive(&pair, 2000, sizeof(buf));
	pair_close(&pair);
}

/* Each message alone is longer than the limit. */
static void a_limit_of_nothing_makes_every_message_wait(void **state)
{
	uint8_t in[100], out[100];
	struct pair pair;

	(void)state;
	pair_open(&pair, "unexpected_limit=1");
	for (unsigned i = 0; i < 200; i++) {
		struct pinion_message m = any(in, i % 2 ? 100 : 0);
		struct pinion_request *send, *receive_it;

		pattern_fill(out, 100, i);
		assert_ok(pinion_recv(pair.b.ep, &m, &receive_it));
		m.buf = out;
		m.peer = pair.to_b;
		assert_ok(pinion_send(pair.a.ep, &m, &send));
		assert_ok(finish(&pair, pair.a.ep, send).status);
		assert_ok(finish(&pair, pair.b.ep, receive_it).status);
		assert_true(pattern_holds(in, m.len, i));
	}
	assert_int_equal(pair.a.ep->stats.late, 200);
	assert_int_equal(pair.b.ep->stats.unexpected, 0);
	pair_close(&pair);
}

/* A library takes such messages at once, in whatever state the program is. */
static void messages_of_libraries_do_not_count(void **state)
{
	uint8_t buf[200] = { 0 };
	struct pinion_message m = any(buf, sizeof(buf));
	struct pair pair;

	(void)state;
	pair_open(&pair, "unexpected_limit=16K");
	m.peer = pair.to_b;
	m.space = PN_SPACE_UNLIMITED;
	for (unsigned i = 0; i < 1000; i++) {
		struct pinion_request *request;

		assert_ok(pinion_send(pair.a.ep, &m, &request));
		assert_ok(finish(&pair, pair.a.ep, request).status);
	}
	assert_int_equal(pair.b.ep->matching.kept_bytes, 0);
	assert_int_equal(pair.a.ep->stats.late, 0);
	pair_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(what_is_kept_is_bounded_in_virtual_time),
		TEST(what_is_kept_is_bounded_over_several_rails),
		TEST(what_is_kept_is_bounded_between_threads),
		TEST(messages_are_not_injected_beyond_the_limit),
		TEST(a_send_that_waits_can_be_canceled),
		TEST(a_question_that_is_canceled_is_asked_again),
		TEST(a_send_that_waits_ends_with_its_receive),
		TEST(a_send_that_waits_fails_with_its_peer),
		TEST(the_next_life_of_a_peer_has_its_own_count),
		TEST(no_limit_keeps_everything),
		TEST(a_limit_of_nothing_makes_every_message_wait),
		TEST(messages_of_libraries_do_not_count),
	};

	return RUN_TESTS(tests);
}
