/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Endpoints that are closed, and others opened in their place: requests in
 * flight end at both ends, and nothing of one endpoint reaches the next.
 */
#include "test.h"

#include <poll.h>
#include <unistd.h>

#include "base/log.h"
#include "device/sim/sim.h"
#include "message/endpoint/endpoint.h"
#include "message/ends.h"
#include "message/party.h"

#define LONG  ((size_t)600 << 10)
#define LIVES 4

/* --- over soft, by the public calls --------------------------------------- */

static struct pinion_message any(void *buf, size_t len)
{
	return (struct pinion_message){ .size = sizeof(struct pinion_message),
					.buf = buf,
					.len = len,
					.tag = 7 };
}

/* Sends one message from a to b, or back. Returns its sender, as the receiver
 * knows it. */
static struct pinion_peer *pass(struct pair *pair, bool from_a, size_t len,
				uint64_t key)
{
	struct pinion_endpoint *from = from_a ? pair->a.ep : pair->b.ep;
	struct pinion_endpoint *to = from_a ? pair->b.ep : pair->a.ep;
	uint8_t *out = malloc(len), *in = malloc(len);
	struct pinion_message m = any(in, len);
	struct pinion_request *send, *receive;
	struct pinion_completion end;

	pattern_fill(out, len, key);
	assert_ok(pinion_recv(to, &m, &receive));
	m = any(out, len);
	m.peer = from_a ? pair->to_b : pair->to_a;
	assert_ok(pinion_send(from, &m, &send));
	assert_ok(finish(pair, from, send).status);
	end = finish(pair, to, receive);
	assert_ok(end.status);
	assert_true(pattern_holds(in, len, key));
	free(out);
	free(in);
	return end.peer;
}

static void reopen(struct end *end)
{
	pn_endpoint_check(end->ep);
	pinion_endpoint_close(end->ep);
	assert_ok(pinion_endpoint_open(end->context, NULL, &end->ep));
}

/* The endpoint that was opened again sends first. */
static void pass_after_reopening(const char *device)
{
	static const size_t lens[] = { 8, LONG, 100, LONG };
	struct pair pair;

	pair_open(&pair, device);
	for (unsigned life = 0; life < LIVES; life++) {
		assert_ok(pinion_peer_add(pair.a.ep, &pair.b.address,
					  &pair.to_b));
		for (unsigned i = 0; i < PN_ARRAY_LEN(lens); i++) {
			pair.to_a = pass(&pair, true, lens[i], 10 * life + i);
			pass(&pair, false, lens[i], 100 * life + i);
		}
		reopen(&pair.a);
	}
	pair_close(&pair);
}

static void an_endpoint_opened_again_exchanges_messages(void **state)
{
	(void)state;
	pass_after_reopening("device=soft");
}

static void one_with_several_rails_does_so_too(void **state)
{
	(void)state;
	pass_after_reopening("device=soft+soft");
}

/* Waits until an endpoint knows that a peer is gone. */
static void see_gone(struct pair *pair, struct pinion_endpoint *ep,
		     struct pinion_peer *peer)
{
	struct pinion_message m = any(NULL, 0);
	struct pinion_request *request;

	m.peer = peer;
	if (pinion_recv(ep, &m, &request) == 0)
		assert_int_equal(finish(pair, ep, request).status, -ECONNRESET);
	assert_int_equal(pinion_send(ep, &m, &request), -ECONNRESET);
}

/* The other endpoint sends first: it adds the peer again. */
static void a_peer_that_was_opened_again_can_be_added_again(void **state)
{
	static const char *const devices[] = { "device=soft",
					       "device=soft+soft" };
	struct pinion_peer *again;
	struct pair pair;

	(void)state;
	for (unsigned d = 0; d < PN_ARRAY_LEN(devices); d++) {
		pair_open(&pair, devices[d]);
		pair.to_a = pass(&pair, true, LONG, 1);
		for (unsigned life = 0; life < LIVES; life++) {
			reopen(&pair.a);
			see_gone(&pair, pair.b.ep, pair.to_a);
			assert_ok(pinion_peer_add(pair.b.ep, &pair.a.address,
						  &again));
			assert_ptr_not_equal(again, pair.to_a);
			pair.to_a = again;
			pair.to_b = pass(&pair, false, LONG, life);
			pass(&pair, true, 8, life);
		}
		pair_close(&pair);
	}
}

static void what_was_under_way_ends_at_the_other_side(void **state)
{
	uint8_t *in = malloc(LONG), *out = malloc(LONG);
	struct pinion_request *receive, *send;
	struct pinion_message m;
	struct pair pair;

	(void)state;
	pair_open(&pair, NULL);
	/* A peer that is not connected yet connects to the new endpoint. */
	pair.to_a = pass(&pair, true, 8, 1);
	m = any(in, LONG);
	m.peer = pair.to_a;
	assert_ok(pinion_recv(pair.b.ep, &m, &receive));
	m.buf = out;
	assert_ok(pinion_send(pair.b.ep, &m, &send));
	m.peer = pair.to_b;
	m.buf = out;
	assert_ok(pinion_send(pair.a.ep, &m, NULL));
	for (unsigned i = 0; i < 3; i++)
		pair_progress(&pair);
	reopen(&pair.a);
	assert_int_equal(finish(&pair, pair.b.ep, send).status, -ECONNRESET);
	finish(&pair, pair.b.ep,
	       receive); /* fails, or not, depending on how far it came */
	pair_close(&pair);
	free(in);
	free(out);
}

static void what_was_sent_arrives_though_its_sender_closes(void **state)
{
	char in[8], out[8] = "goodbye";
	struct pinion_message m = any(out, 8);
	struct pinion_request *request;
	struct pair pair;

	(void)state;
	pair_open(&pair, NULL);
	m.peer = pair.to_b;
	assert_ok(pinion_send(pair.a.ep, &m, &request));
	assert_ok(finish(&pair, pair.a.ep, request).status);
	reopen(&pair.a);
	m = any(in, 8);
	assert_ok(pinion_recv(pair.b.ep, &m, &request));
	assert_ok(finish(&pair, pair.b.ep, request).status);
	assert_string_equal(in, "goodbye");
	pair_close(&pair);
}

/* A receive that names a peer does not connect to it. So the peer need not be
 * there yet: here its endpoint is opened again before it sends. */
static void a_receive_waits_for_a_peer_that_is_not_there_yet(void **state)
{
	char in[8] = "", out[8] = "hello";
	struct pinion_message m = any(in, 8);
	struct pinion_request *receive, *send;
	struct pair pair;

	(void)state;
	pair_open(&pair, NULL);
	m.peer = pair.to_b;
	assert_ok(pinion_recv(pair.a.ep, &m, &receive));
	reopen(&pair.b);
	assert_ok(pinion_peer_add(pair.b.ep, &pair.a.address, &pair.to_a));
	m = any(out, 8);
	m.peer = pair.to_a;
	assert_ok(pinion_send(pair.b.ep, &m, &send));
	assert_ok(finish(&pair, pair.b.ep, send).status);
	assert_ok(finish(&pair, pair.a.ep, receive).status);
	assert_string_equal(in, "hello");
	pair_close(&pair);
}

/* For the same reason it does not learn that the peer is gone, until something
 * is sent there. */
static void a_receive_ends_when_a_send_finds_the_peer_gone(void **state)
{
	char in[8];
	struct pinion_message m = any(in, 8);
	struct pinion_request *receive, *send;
	struct pair pair;

	(void)state;
	pair_open(&pair, NULL);
	m.peer = pair.to_b;
	assert_ok(pinion_recv(pair.a.ep, &m, &receive));
	pinion_endpoint_close(pair.b.ep);
	pinion_close(pair.b.context);
	for (unsigned i = 0; i < 100; i++)
		assert_int_equal(pinion_test(pair.a.ep, receive, NULL),
				 -EAGAIN);
	assert_false(pair.to_b->connected);
	m = any(NULL, 0);
	m.peer = pair.to_b;
	assert_ok(pinion_send(pair.a.ep, &m, &send));
	assert_int_equal(pinion_wait(pair.a.ep, send, PINION_FOREVER, NULL),
			 -ECONNRESET);
	assert_int_equal(pinion_wait(pair.a.ep, receive, PINION_FOREVER, NULL),
			 -ECONNRESET);
	end_close(&pair.a);
}

/* --- on sim --------------------------------------------------------------- */

/* Rank 1 stays open while rank 0 closes and opens its endpoint again and again.
 */
static bool live_again(struct party *party, struct rank *rank,
		       const struct party_attr *attr)
{
	struct pinion_address mine, all[RANKS_MAX];

	if (!rank->rank) {
		party_close(party);
		return party_open(party, rank, attr);
	}
	pn_endpoint_address(party->ep, &mine);
	return rank_exchange(rank, &mine, sizeof(mine), all);
}

static void live(struct rank *rank)
{
	struct party_attr attr = { .protocol = *(int *)rank->arg };
	uint8_t *buf = malloc(LONG);
	struct pinion_message m = any(buf, LONG);
	struct pinion_completion end;
	struct pinion_request *r;
	struct party party;

	if (!party_open(&party, rank, &attr))
		return;
	for (unsigned life = 0; life < LIVES; life++) {
		if (!rank->rank) {
			pattern_fill(buf, LONG, life);
			RANK_CHECK(rank, !party_send(&party, 1, buf, LONG, 7));
			RANK_CHECK(rank, !party_recv(&party, 1, buf, LONG, 7));
		} else {
			m.peer = NULL;
			RANK_CHECK(rank, !pn_endpoint_recv(party.ep, &m, &r));
			RANK_CHECK(rank, !pn_endpoint_wait(party.ep, r, &end));
			m.peer = end.peer;
			RANK_CHECK(rank, !pn_endpoint_send(party.ep, &m, &r));
			RANK_CHECK(rank, !pn_endpoint_wait(party.ep, r, NULL));
		}
		RANK_CHECK(rank, pattern_holds(buf, LONG, life));
		party_barrier(&party);
		if (!live_again(&party, rank, &attr))
			return;
	}
	party_barrier(&party);
	party_close(&party);
	free(buf);
}

static void every_protocol_outlives_its_endpoint(void **state)
{
	static const char *const specs[] = { "sim:cost=cx5",
					     "sim:cost=cx5,rails=2" };

	(void)state;
	for (unsigned i = 0; i < PN_ARRAY_LEN(specs); i++)
		for (int p = 0; p < PN_PROTOCOL_COUNT; p++) {
			struct ranks run = { .how = "sim",
					     .spec = specs[i],
					     .nranks = 2,
					     .fn = live,
					     .arg = &p };

			assert_true(ranks_run(&run));
		}
}

/* A rail that one endpoint attached may come up in the next. */
static void rails_that_are_late_lead_to_the_right_life(void **state)
{
	static const char *const late[] = { "1us",   "2us",   "3us",  "5us",
					    "8us",   "12us",  "20us", "40us",
					    "100us", "300us", "1ms" };

	(void)state;
	for (unsigned i = 0; i < PN_ARRAY_LEN(late); i++)
		for (int p = 0; p < PN_PROTOCOL_COUNT; p++) {
			char spec[64];
			struct ranks run = { .how = "sim",
					     .spec = spec,
					     .nranks = 2,
					     .fn = live,
					     .arg = &p };

			snprintf(spec, sizeof(spec),
				 "sim:cost=cx5,rails=2,rail_setup=%s", late[i]);
			if (!ranks_run(&run))
				fail_msg("protocol %d, %s", p, spec);
		}
}

/* Rank 0 polls for the first time when rank 1 is gone. */
static void come_and_go(struct rank *rank)
{
	struct party_attr attr = { .protocol = PN_PROTOCOL_CACHED };
	char text[8] = "goodbye";
	struct party party;

	if (!party_open(&party, rank, &attr))
		return;
	if (rank->rank) {
		RANK_CHECK(rank, !party_send(&party, 0, text, 8, 7));
	} else {
		rank->idle = NULL;
		pn_sim_sleep(rank->sim, 100 * PN_NS_PER_MS);
		memset(text, 0, sizeof(text));
		RANK_CHECK(rank, !party_recv(&party, 1, text, 8, 7));
		RANK_CHECK(rank, !strcmp(text, "goodbye"));
		RANK_CHECK(rank,
			   party_recv(&party, 1, text, 8, 7) == -ECONNRESET);
	}
	party_close(&party);
}

static void who_came_and_went_unseen_is_known_to_be_gone(void **state)
{
	static const char *const specs[] = { "sim:cost=cx5",
					     "sim:cost=cx5,rails=2" };

	(void)state;
	for (unsigned i = 0; i < PN_ARRAY_LEN(specs); i++) {
		struct ranks run = { .how = "sim",
				     .spec = specs[i],
				     .nranks = 2,
				     .fn = come_and_go };

		assert_true(ranks_run(&run));
	}
}

/* --- no connection is up -------------------------------------------------- */

#define FAILS_NS   (4 * PN_NS_PER_MS)
#define TIMEOUT_NS (200 * PN_NS_PER_MS)

/* How rank 0 waits for the end of its request. */
enum waiting { BY_WAIT, BY_TEST, BY_TWO };

struct lost_bye {
	int protocol;
	enum waiting waiting;
	struct party *party; /* rank 0's, for its second task */
	struct pinion_request *second;
	bool second_ended;
};

/* Polls, and sleeps in the devices as a program does. */
static int test_until_end(struct party *party, struct pinion_request *request)
{
	struct pinion_completion end;
	uint64_t until = pn_device_now(party->rank->device) + 4 * TIMEOUT_NS;

	while (pn_endpoint_test(party->ep, request, &end)) {
		if (pn_device_now(party->rank->device) > until)
			return -ETIMEDOUT;
		rank_wait(party->rank,
			  pn_device_now(party->rank->device) + PN_NS_PER_MS);
	}
	return end.status;
}

static void wait_as_second(void *arg)
{
	struct lost_bye *lost = arg;

	lost->second_ended = pn_endpoint_wait(lost->party->ep, lost->second,
					      NULL) == -ECONNRESET;
}

static int start(struct party *party, struct pinion_request **out, bool send)
{
	static uint8_t bufs[2][LONG];
	struct pinion_message m = any(bufs[send], LONG);

	m.peer = party->peers[1];
	return send ? pn_endpoint_send(party->ep, &m, out)
		    : pn_endpoint_recv(party->ep, &m, out);
}

static void lose_the_peer(struct rank *rank, struct party *party,
			  struct lost_bye *lost)
{
	struct pinion_request *send;
	uint64_t now;
	int ret;

	lost->party = party;
	RANK_CHECK(rank, !start(party, &send, true));
	RANK_CHECK(rank, !start(party, &lost->second, false));
	if (lost->waiting == BY_TWO)
		RANK_CHECK(rank,
			   !pn_sim_spawn(rank->sim, 0, wait_as_second, lost));
	ret = lost->waiting == BY_TEST
		      ? test_until_end(party, send)
		      : pn_endpoint_wait(party->ep, send, NULL);
	RANK_CHECK(rank, ret == -ECONNRESET);
	now = pn_device_now(rank->device);
	RANK_CHECK(rank, now >= FAILS_NS + TIMEOUT_NS);
	RANK_CHECK(rank, now < FAILS_NS + TIMEOUT_NS + 2 * PN_NS_PER_MS);
	if (lost->waiting != BY_TWO)
		wait_as_second(lost);
	while (lost->waiting == BY_TWO && !lost->second_ended)
		rank_pause(rank);
	RANK_CHECK(rank, lost->second_ended);
}

/* Rail 0 fails when rank 1 closes, and no BYE comes; rail 1 is not up yet. The
 * devices of rank 1 stay. */
static void lose_the_bye(struct rank *rank)
{
	struct lost_bye *lost = rank->arg;
	struct party_attr attr = { .protocol = lost->protocol,
				   .rail_timeout_ns = TIMEOUT_NS };
	char text[8] = "hello";
	struct party party;

	if (!party_open(&party, rank, &attr))
		return;
	rank->idle = NULL;
	if (rank->rank) {
		RANK_CHECK(rank, !party_recv(&party, 0, text, 8, 7));
		pn_sim_sleep(rank->sim, FAILS_NS + PN_NS_PER_US -
						pn_device_now(rank->device));
		party_close(&party);
		pn_sim_sleep(rank->sim, 10 * TIMEOUT_NS);
	} else {
		RANK_CHECK(rank, !party_send(&party, 1, text, 8, 7));
		lose_the_peer(rank, &party, lost);
		party_close(&party);
	}
}

/* Without a bound rank 0 sleeps for ever, which ends the simulation. */
static void a_peer_that_closed_unheard_is_given_up(void **state)
{
	(void)state;
	for (int p = 1; p < PN_PROTOCOL_COUNT; p++)
		for (enum waiting w = BY_WAIT; w <= BY_TWO; w++) {
			struct lost_bye lost = { .protocol = p, .waiting = w };
			struct ranks run = {
				.how = "sim",
				.spec = "sim:cost=cx5,rails=2,rail_setup=30ms",
				.script = "drop rail 0 of node 1 at 4 ms",
				.nranks = 2,
				.fn = lose_the_bye,
				.arg = &lost
			};

			if (!ranks_run(&run))
				fail_msg("protocol %d, waiting %d", p, (int)w);
		}
}

/* The last connection that was up is gone; the other is as if no HELLO had come
 * over it. The peer makes no call. */
static void cut_off(struct pair *pair)
{
	struct pinion_peer *peer = pair->to_b;

	pn_endpoint_lock(pair->a.ep);
	assert_true(peer->conns[0].up && peer->conns[1].up);
	peer->conns[1].up = peer->conns[1].hello_received = false;
	pn_connection_break(&peer->conns[0]);
	pn_endpoint_unlock(pair->a.ep);
}

static bool both_rails_are_up(struct pinion_peer *peer)
{
	bool up;

	pn_endpoint_lock(peer->ep);
	up = peer->conns[0].up && peer->conns[1].up;
	pn_endpoint_unlock(peer->ep);
	return up;
}

static void open_two_rails(struct pair *pair, uint64_t flags)
{
	const char *const options[] = { "log=none", "device=soft+soft",
					"rail_timeout=200ms", NULL };
	struct pinion_attr attr = { .size = sizeof(attr), .options = options };
	struct pinion_endpoint_attr ep = { .size = sizeof(ep), .flags = flags };

	end_open(&pair->b, options[1]);
	assert_ok(pinion_open(&attr, &pair->a.context));
	assert_ok(pinion_endpoint_open(pair->a.context, &ep, &pair->a.ep));
	assert_ok(pinion_endpoint_address(pair->a.ep, &pair->a.address));
	assert_ok(pinion_peer_add(pair->a.ep, &pair->b.address, &pair->to_b));
	pair->to_a = pass(pair, true, 8, 1);
	while (!both_rails_are_up(pair->to_b))
		pair_progress(pair);
}

/* NULL: this process did not run for so long that the peer is given up. */
static struct pinion_request *send_to_lost_peer(struct pair *pair, void *buf)
{
	struct pinion_message m = any(buf, LONG);
	struct pinion_request *request;
	int ret;

	m.peer = pair->to_b;
	ret = pinion_send(pair->a.ep, &m, &request);
	if (ret == -ECONNRESET)
		return NULL;
	assert_ok(ret);
	return request;
}

static void wait_for_reset(struct pair *pair, struct pinion_request *request)
{
	if (request)
		assert_int_equal(pinion_wait(pair->a.ep, request,
					     PINION_FOREVER, NULL),
				 -ECONNRESET);
}

static void who_waits_is_woken_when_a_peer_is_given_up(void **state)
{
	static const uint64_t flags[] = { 0, PINION_ENDPOINT_SINGLE_THREADED,
					  PINION_ENDPOINT_PROGRESS_THREAD };
	uint8_t *buf = calloc(1, LONG);

	(void)state;
	for (unsigned i = 0; i < PN_ARRAY_LEN(flags); i++) {
		struct pinion_request *request;
		struct pair pair;

		open_two_rails(&pair, flags[i]);
		cut_off(&pair);
		request = send_to_lost_peer(&pair, buf);
		wait_for_reset(&pair, request);
		pair_close(&pair);
	}
	free(buf);
}

/* Sleeps on the descriptor alone. */
static void the_descriptor_tells_that_a_peer_is_given_up(void **state)
{
	uint8_t *buf = calloc(1, LONG);
	struct pinion_request *request;
	struct pollfd ready = { .events = POLLIN };
	struct pair pair;
	int ret;

	(void)state;
	open_two_rails(&pair, PINION_ENDPOINT_SINGLE_THREADED);
	ready.fd = pinion_endpoint_fd(pair.a.ep);
	assert_true(ready.fd >= 0);
	cut_off(&pair);
	request = send_to_lost_peer(&pair, buf);
	while (request &&
	       (ret = pinion_test(pair.a.ep, request, NULL)) == -EAGAIN)
		if (!pinion_endpoint_arm(pair.a.ep))
			assert_int_equal(poll(&ready, 1, 60000), 1);
	assert_int_equal(pinion_send(pair.a.ep,
				     &(struct pinion_message){
					     .size = sizeof(
						     struct pinion_message),
					     .peer = pair.to_b },
				     NULL),
			 -ECONNRESET);
	pair_close(&pair);
	free(buf);
}

/* Without progress. */
static int why_down(struct pinion_peer *peer)
{
	int down;

	pn_endpoint_lock(peer->ep);
	down = peer->down;
	pn_endpoint_unlock(peer->ep);
	return down;
}

/* The program makes no progress: the thread gives the peer up. */
static void the_progress_thread_gives_a_peer_up(void **state)
{
	uint64_t until = pn_clock_ns() + 60 * PN_NS_PER_S;
	uint8_t *buf = calloc(1, LONG);
	struct pinion_request *request;
	struct pair pair;

	(void)state;
	open_two_rails(&pair, PINION_ENDPOINT_PROGRESS_THREAD);
	cut_off(&pair);
	request = send_to_lost_peer(&pair, buf);
	while (!why_down(pair.to_b)) {
		assert_true(pn_clock_ns() < until);
		usleep(20000);
	}
	wait_for_reset(&pair, request);
	pair_close(&pair);
	free(buf);
}

/* --- what is left behind -------------------------------------------------- */

/* As party_close(), with requests in flight. */
static void close_unsettled(struct party *party)
{
	party->rank->idle = NULL;
	pn_cache_flush(party->cache);
	pn_endpoint_check(party->ep);
	pn_endpoint_close(party->ep);
	pn_cache_close(party->cache);
	RANK_CHECK(party->rank, !atomic_load(&party->budget.bytes));
}

/* Every message leaves three seconds late: an endpoint's messages to itself
 * cannot end while it closes, and arrive at the endpoint opened after it. */
static void leave_behind(struct rank *rank)
{
	struct party_attr attr = { .protocol = PN_PROTOCOL_CACHED };
	uint8_t *out = malloc(LONG), *in = malloc(LONG);
	struct pinion_message m = any(in, LONG);
	struct pinion_request *r;
	struct party party;
	uint64_t late;

	for (unsigned life = 0; life < LIVES; life++) {
		if (!party_open(&party, rank, &attr))
			return;
		m.peer = party.peers[0];
		m.buf = in;
		RANK_CHECK(rank, !pn_endpoint_recv(party.ep, &m, &r));
		m.buf = out;
		pattern_fill(out, LONG, life);
		RANK_CHECK(rank, !pn_endpoint_send(party.ep, &m, &r));
		/* The last endpoint waits until everything has ended. */
		while (life == LIVES - 1 &&
		       pn_endpoint_test(party.ep, r, NULL) == -EAGAIN)
			rank_pause(rank);
		for (unsigned i = 0; i < 10 + 1000 * life; i++) {
			party_poll(&party);
			rank_pause(rank);
		}
		close_unsettled(&party);
	}
	RANK_CHECK(rank, pattern_holds(in, LONG, LIVES - 1));
	/* An endpoint that sends nothing takes the completions that the last
	 * one left. */
	if (!party_open(&party, rank, &attr))
		return;
	late = pn_device_now(rank->device) + 20 * PN_NS_PER_S;
	while (pn_device_now(rank->device) < late) {
		party_poll(&party);
		rank_wait(rank, late);
	}
	close_unsettled(&party);
	free(in);
	free(out);
}

static void operations_left_behind_harm_nobody(void **state)
{
	struct ranks run = { .how = "sim",
			     .spec = "sim:cost=cx5",
			     .script = "delay 3 s",
			     .nranks = 1,
			     .fn = leave_behind };

	(void)state;
	pn_log_set_level(PN_LOG_NONE);
	assert_true(ranks_run(&run));
	pn_log_set_level(PN_LOG_WARN);
}

/* The device closes with the operations: their memory is freed, says the
 * leak checker. */
static void leave_behind_for_good(struct rank *rank)
{
	struct party_attr attr = { .protocol = PN_PROTOCOL_CACHED };
	uint8_t buf[64] = { 0 };
	struct pinion_message m = any(buf, sizeof(buf));
	struct pinion_request *r;
	struct party party;

	for (unsigned life = 0; life < LIVES; life++) {
		if (!party_open(&party, rank, &attr))
			return;
		m.peer = party.peers[0];
		RANK_CHECK(rank, !pn_endpoint_send(party.ep, &m, &r));
		close_unsettled(&party);
	}
}

static void operations_end_with_their_device(void **state)
{
	struct ranks run = { .how = "sim",
			     .spec = "sim:cost=cx5",
			     .script = "delay 30 s",
			     .nranks = 1,
			     .fn = leave_behind_for_good };

	(void)state;
	pn_log_set_level(PN_LOG_NONE);
	assert_true(ranks_run(&run));
	pn_log_set_level(PN_LOG_WARN);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(an_endpoint_opened_again_exchanges_messages),
		TEST(one_with_several_rails_does_so_too),
		TEST(a_peer_that_was_opened_again_can_be_added_again),
		TEST(what_was_under_way_ends_at_the_other_side),
		TEST(what_was_sent_arrives_though_its_sender_closes),
		TEST(a_receive_waits_for_a_peer_that_is_not_there_yet),
		TEST(a_receive_ends_when_a_send_finds_the_peer_gone),
		TEST(every_protocol_outlives_its_endpoint),
		TEST(rails_that_are_late_lead_to_the_right_life),
		TEST(who_came_and_went_unseen_is_known_to_be_gone),
		TEST(a_peer_that_closed_unheard_is_given_up),
		TEST(who_waits_is_woken_when_a_peer_is_given_up),
		TEST(the_descriptor_tells_that_a_peer_is_given_up),
		TEST(the_progress_thread_gives_a_peer_up),
		TEST(operations_left_behind_harm_nobody),
		TEST(operations_end_with_their_device),
	};

	return RUN_TESTS(tests);
}
