/* SPDX-License-Identifier: BSD-2-Clause */
/* The public calls of pinion/message.h over `soft`: what they refuse, how
 * requests end, and what a peer that dies leaves behind. */
#include "test.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cache/cache_impl.h"
#include "message/endpoint/endpoint.h"
#include "message/ends.h"

/* --- what is refused ------------------------------------------------------ */

static void endpoints_are_opened_from_good_arguments_only(void **state)
{
	struct pinion_endpoint_attr attr = {
		.size = sizeof(attr),
		.flags = PINION_ENDPOINT_PROGRESS_AUTO << 1,
	};
	const char *const options[] = { "log=none", "segment=3000", NULL };
	struct pinion_attr odd = { .size = sizeof(odd), .options = options };
	struct pinion_endpoint *ep = NULL;
	struct pinion_context *context;
	struct end end;

	(void)state;
	assert_int_equal(pinion_endpoint_open(NULL, NULL, &ep), -EINVAL);
	assert_ok(pinion_open(&odd, &context));
	assert_int_equal(pinion_endpoint_open(context, NULL, &ep), -EINVAL);
	pinion_close(context);
	end_open(&end, NULL);
	assert_int_equal(pinion_endpoint_open(end.context, NULL, NULL),
			 -EINVAL);
	assert_int_equal(pinion_endpoint_open(end.context, &attr, &ep),
			 -EINVAL);
	assert_null(ep);
	pinion_endpoint_close(NULL);
	end_close(&end);
}

static void addresses_that_are_none_are_refused(void **state)
{
	struct pinion_peer *peer = NULL;
	struct pinion_address address;
	struct end end;

	(void)state;
	end_open(&end, NULL);
	assert_int_equal(pinion_endpoint_address(NULL, &address), -EINVAL);
	assert_int_equal(pinion_endpoint_address(end.ep, NULL), -EINVAL);
	assert_int_equal(pinion_peer_add(NULL, &end.address, &peer), -EINVAL);
	assert_int_equal(pinion_peer_add(end.ep, NULL, &peer), -EINVAL);
	assert_int_equal(pinion_peer_add(end.ep, &end.address, NULL), -EINVAL);
	address = end.address;
	address.len = 0;
	assert_int_equal(pinion_peer_add(end.ep, &address, &peer), -EINVAL);
	address.len = PINION_ADDRESS_BYTES;
	assert_int_equal(pinion_peer_add(end.ep, &address, &peer), -EINVAL);
	address = end.address;
	address.data[0]++; /* another version */
	assert_int_equal(pinion_peer_add(end.ep, &address, &peer),
			 -EPROTONOSUPPORT);
	assert_null(peer);
	assert_int_equal(pinion_peer_address(NULL, &address), -EINVAL);
	end_close(&end);
}

static void the_same_address_is_the_same_peer(void **state)
{
	struct pinion_peer *peer, *again;
	struct pinion_address address;
	struct end end;

	(void)state;
	end_open(&end, NULL);
	assert_ok(pinion_peer_add(end.ep, &end.address, &peer));
	assert_ok(pinion_peer_add(end.ep, &end.address, &again));
	assert_ptr_equal(peer, again);
	assert_ok(pinion_peer_address(peer, &address));
	assert_int_equal(address.len, end.address.len);
	assert_memory_equal(address.data, end.address.data, address.len);
	assert_int_equal(pinion_peer_address(peer, NULL), -EINVAL);
	end_close(&end);
}

static void an_address_of_another_device_is_refused_when_sent_to(void **state)
{
	struct pinion_address address = { 0 };
	struct pinion_message m = { .size = sizeof(m) };
	struct pinion_request *request;
	struct end end;

	(void)state;
	end_open(&end, NULL);
	address = end.address;
	memset(address.data + 3, 0x77, address.len - 3);
	assert_ok(pinion_peer_add(end.ep, &address, &m.peer));
	assert_int_equal(pinion_send(end.ep, &m, &request), -EINVAL);
	end_close(&end);
}

static void messages_that_make_no_sense_are_refused(void **state)
{
	struct pinion_message wraps = { .size = sizeof(wraps),
					.buf = (void *)(UINTPTR_MAX - 10),
					.len = 100 };
	struct pinion_message null = { .size = sizeof(null), .len = 1 },
			      good = { 0 };
	struct pinion_request *request = NULL;
	struct pinion_unexpected *unexpected = NULL;
	struct pinion_completion end;
	struct pair pair;

	(void)state;
	pair_open(&pair, NULL);
	wraps.peer = null.peer = pair.to_b;
	assert_int_equal(pinion_send(pair.a.ep, &wraps, &request), -EINVAL);
	assert_int_equal(pinion_recv(pair.a.ep, &wraps, &request), -EINVAL);
	assert_int_equal(pinion_send(pair.a.ep, &null, &request), -EINVAL);
	assert_int_equal(pinion_recv(pair.a.ep, &null, &request), -EINVAL);
	assert_int_equal(pinion_send(pair.a.ep, NULL, &request), -EINVAL);
	assert_int_equal(pinion_recv(pair.a.ep, NULL, &request), -EINVAL);
	assert_int_equal(pinion_send(pair.a.ep, &good, &request), -EINVAL);
	good.peer = pair.to_a; /* a peer of the other endpoint */
	assert_int_equal(pinion_send(pair.a.ep, &good, &request), -EINVAL);
	assert_int_equal(pinion_recv(pair.a.ep, &good, &request), -EINVAL);
	assert_int_equal(pinion_probe(pair.a.ep, &good, &end, &unexpected),
			 -EINVAL);
	good.peer = pair.to_b;
	assert_int_equal(pinion_send(NULL, &good, &request), -EINVAL);
	assert_int_equal(pinion_recv(NULL, &good, &request), -EINVAL);
	assert_int_equal(pinion_probe(NULL, &good, &end, &unexpected), -EINVAL);
	assert_int_equal(pinion_probe(pair.a.ep, NULL, &end, &unexpected),
			 -EINVAL);
	assert_int_equal(pinion_recv_unexpected(pair.a.ep, NULL, &good,
						&request),
			 -EINVAL);
	assert_null(request);
	assert_null(unexpected);
	pair_close(&pair);
}

static void requests_that_are_none_are_refused(void **state)
{
	struct pinion_message m = { .size = sizeof(m) };
	struct pinion_completion end;
	struct pinion_request *request;
	struct pair pair;

	(void)state;
	pair_open(&pair, NULL);
	assert_int_equal(pinion_cancel(pair.a.ep, NULL), -EINVAL);
	assert_int_equal(pinion_test(pair.a.ep, NULL, &end), -EINVAL);
	assert_int_equal(pinion_wait(pair.a.ep, NULL, PINION_FOREVER, &end),
			 -EINVAL);
	assert_int_equal(pinion_poll(NULL, &end, sizeof(end), 1), -EINVAL);
	assert_int_equal(pinion_poll(pair.a.ep, NULL, 0, 1), -EINVAL);
	assert_int_equal(pinion_endpoint_fd(NULL), -EINVAL);
	assert_int_equal(pinion_endpoint_arm(NULL), -EINVAL);
	assert_ok(pinion_recv(pair.a.ep, &m, &request));
	assert_int_equal(pinion_test(pair.b.ep, request, &end), -EINVAL);
	assert_int_equal(pinion_wait(pair.b.ep, request, PINION_FOREVER, &end),
			 -EINVAL);
	assert_int_equal(pinion_cancel(pair.b.ep, request), -EINVAL);
	assert_int_equal(pinion_test(NULL, request, &end), -EINVAL);
	assert_ok(pinion_cancel(pair.a.ep, request));
	assert_int_equal(pinion_wait(pair.a.ep, request, PINION_FOREVER, NULL),
			 -ECANCELED);
	pair_close(&pair);
}

static void a_forked_child_is_refused(void **state)
{
	struct pinion_message m = { .size = sizeof(m) };
	struct end end;
	int status;
	pid_t pid;

	(void)state;
	end_open(&end, NULL);
	assert_ok(pinion_peer_add(end.ep, &end.address, &m.peer));
	pid = fork();
	if (!pid)
		_exit(pinion_send(end.ep, &m, NULL) != -EINVAL ||
		      pinion_recv(end.ep, &m, NULL) != -EINVAL ||
		      pinion_poll(end.ep, NULL, 0, 0) != -EINVAL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	end_close(&end);
}

/* --- how requests end ----------------------------------------------------- */

static void the_queue_reports_requests_without_handles(void **state)
{
	char out[] = "hello", in[6] = "";
	struct pinion_message m = {
		.size = sizeof(m), .buf = out, .len = 6, .tag = 5
	};
	struct pinion_completion ends[3];
	unsigned n = 0;
	struct end end;

	(void)state;
	end_open(&end, NULL);
	assert_ok(pinion_peer_add(end.ep, &end.address, &m.peer));
	m.user = out;
	assert_ok(pinion_send(end.ep, &m, NULL));
	m.user = m.buf = in;
	assert_ok(pinion_recv(end.ep, &m, NULL));
	while (n < 2) {
		int ret = pinion_poll(end.ep, ends + n,
				      sizeof(struct pinion_completion), 3 - n);

		assert_true(ret >= 0);
		n += (unsigned)ret;
	}
	assert_ptr_equal(ends[0].user, out);
	assert_ptr_equal(ends[1].user, in);
	assert_int_equal(ends[1].len, 6);
	assert_int_equal(ends[1].tag, 5);
	assert_string_equal(in, "hello");
	end_close(&end);
}

static int poll_for(struct end *end, struct pinion_completion *out)
{
	int n = 0;

	while (!n)
		n = pinion_poll(end->ep, out, sizeof(*out), 1);
	return n;
}

#define MANY_LONG  100000
#define MANY_BYTES (MANY_LONG + 350)

static void pattern(char *bytes, size_t len)
{
	for (size_t i = 0; i < len; i++)
		bytes[i] = (char)(i * 7 + i / 100);
}

static void send_bytes(struct end *end, struct pinion_peer *peer, void *buf,
		       size_t len)
{
	struct pinion_message m = {
		.size = sizeof(m), .buf = buf, .len = len, .peer = peer
	};

	assert_ok(pinion_send(end->ep, &m, NULL));
}

/* Polls until n receives have ended; those of a multi-receive are recognized by
 * their place. */
static void take_receives(struct end *end, unsigned n, const char *many,
			  struct pinion_completion *out)
{
	while (n) {
		struct pinion_completion c;

		poll_for(end, &c);
		assert_ok(c.status);
		if (!c.user)
			continue;
		n--;
		if (c.user != many)
			out[4] = c;
		else if (c.buf == many)
			out[0] = c;
		else
			out[1 + ((char *)c.buf - many - MANY_LONG) / 100] = c;
	}
}

static unsigned nmore(const struct pinion_completion *ends, unsigned n)
{
	unsigned more = 0;

	while (n--)
		more += !!(ends[n].flags & PINION_COMPLETION_MORE);
	return more;
}

/* A long message, three short ones, and one that does not fit any more: the
 * next receive gets that one. */
static void many_come(bool early)
{
	char *out = malloc(MANY_LONG), *in = malloc(MANY_BYTES), last[100];
	struct pinion_multi_recv many = { .size = sizeof(many),
					  .min_bytes = 100 };
	struct pinion_message m = { .size = sizeof(m),
				    .buf = in,
				    .len = MANY_BYTES,
				    .ignore = ~UINT64_C(0),
				    .user = in,
				    .multi_recv = &many };
	struct pinion_message plain = { .size = sizeof(plain),
					.buf = last,
					.len = sizeof(last),
					.user = last };
	struct pinion_completion ends[5] = { 0 };
	struct pinion_peer *peer;
	struct end end;

	end_open(&end, NULL);
	assert_ok(pinion_peer_add(end.ep, &end.address, &peer));
	pattern(out, MANY_LONG);
	if (!early) {
		assert_ok(pinion_recv(end.ep, &m, NULL));
		assert_ok(pinion_recv(end.ep, &plain, NULL));
	}
	send_bytes(&end, peer, out, MANY_LONG);
	for (unsigned i = 0; i < 4; i++)
		send_bytes(&end, peer, out + 100 * i, 100);
	if (early) {
		while (pinion_probe(end.ep, &plain, NULL, NULL))
			;
		assert_ok(pinion_recv(end.ep, &m, NULL));
		assert_ok(pinion_recv(end.ep, &plain, NULL));
	}
	take_receives(&end, 5, in, ends);
	assert_int_equal(ends[0].len, MANY_LONG);
	for (unsigned i = 1; i < 5; i++)
		assert_int_equal(ends[i].len, 100);
	assert_ptr_equal(ends[4].buf, last);
	assert_int_equal(nmore(ends, 4), 3);
	assert_int_equal(many.internal, 0);
	assert_memory_equal(in, out, MANY_LONG);
	assert_memory_equal(in + MANY_LONG, out, 300);
	assert_memory_equal(last, out + 300, 100);
	end_close(&end);
	free(out);
	free(in);
}

static void a_multi_receive_keeps_its_place(void **state)
{
	(void)state;
	many_come(false);
}

static void a_multi_receive_takes_what_came_before(void **state)
{
	(void)state;
	many_come(true);
}

static void a_multi_receive_is_canceled_but_for_what_came(void **state)
{
	char out[10] = "0123456789", in[100];
	struct pinion_multi_recv many = { .size = sizeof(many) };
	struct pinion_message m = { .size = sizeof(m),
				    .buf = in,
				    .len = sizeof(in),
				    .user = in,
				    .multi_recv = &many };
	struct pinion_completion ends[5] = { 0 };
	struct pinion_request *handle;
	struct pinion_peer *peer;
	struct end end;

	(void)state;
	end_open(&end, NULL);
	assert_ok(pinion_peer_add(end.ep, &end.address, &peer));
	assert_int_equal(pinion_recv(end.ep, &m, &handle), -EINVAL);
	assert_int_equal(many.internal, 0);
	assert_ok(pinion_recv(end.ep, &m, NULL));
	send_bytes(&end, peer, out, sizeof(out));
	pn_endpoint_check(end.ep);
	take_receives(&end, 1, in, ends);
	assert_int_equal(nmore(ends, 1), 1);
	pn_endpoint_check(end.ep);
	assert_ok(pinion_recv_cancel(end.ep, in));
	pn_endpoint_check(end.ep);
	poll_for(&end, &ends[1]);
	assert_int_equal(ends[1].status, -ECANCELED);
	assert_int_equal(nmore(&ends[1], 1), 0);
	assert_memory_equal(in, out, sizeof(out));
	end_close(&end);
}

/* --- ends that mean that the other side has it ---------------------------- */

static unsigned ends_of(struct end *end, unsigned *n)
{
	struct pinion_completion c;

	while (pinion_poll(end->ep, &c, sizeof(c), 1) == 1) {
		assert_ok(c.status);
		++*n;
	}
	return *n;
}

static void deliver(struct pair *pair, void *out, void *in, size_t len)
{
	struct pinion_message m = { .size = sizeof(m),
				    .buf = out,
				    .len = len,
				    .peer = pair->to_b,
				    .flags = PINION_MESSAGE_DELIVERY_COMPLETE };
	unsigned sent = 0, received = 0;

	assert_ok(pinion_send(pair->a.ep, &m, NULL));
	m.buf = in;
	m.peer = NULL;
	m.flags = 0;
	assert_ok(pinion_recv(pair->b.ep, &m, NULL));
	while (!ends_of(&pair->a, &sent))
		ends_of(&pair->b, &received);
	/* The receive ended before the send did. */
	assert_int_equal(received, 1);
	assert_memory_equal(in, out, len);
}

static void delivered_means_that_the_receive_has_ended(void **state)
{
	static const char *const protocols[] = {
		"protocol=copy", "protocol=demand",   "protocol=cached",
		"protocol=read", "protocol=pipeline", "protocol=auto",
		"rdma_offset=0", "device=soft+soft",
	};
	char *out = malloc(MANY_LONG), *in = malloc(MANY_LONG);
	struct pair pair;

	(void)state;
	pattern(out, MANY_LONG);
	for (unsigned i = 0; i < PN_ARRAY_LEN(protocols); i++) {
		pair_open(&pair, protocols[i]);
		deliver(&pair, out, in, 0);
		deliver(&pair, out, in, 8);
		deliver(&pair, out, in, MANY_LONG);
		pair_close(&pair);
	}
	free(out);
	free(in);
}

/* Whether the message arrived before the peer was gone is not known; but the
 * send ends. */
static void delivered_to_one_that_goes_ends(void **state)
{
	char out[] = "hello", in[6];
	struct pinion_message m = { .size = sizeof(m),
				    .buf = out,
				    .len = 6,
				    .flags = PINION_MESSAGE_DELIVERY_COMPLETE };
	struct pinion_completion c;
	struct pair pair;

	(void)state;
	pair_open(&pair, NULL);
	deliver(&pair, out, in, 6); /* they are connected */
	m.peer = pair.to_b;
	assert_ok(pinion_send(pair.a.ep, &m, NULL));
	end_close(&pair.b);
	poll_for(&pair.a, &c);
	assert_true(!c.status || c.status == -ECONNRESET);
	end_close(&pair.a);
}

/* Polls all completions, which must be good. Returns how many. */
static unsigned take_good_ends(struct end *end)
{
	struct pinion_completion c;
	unsigned n = 0;

	while (pinion_poll(end->ep, &c, sizeof(c), 1) == 1) {
		assert_ok(c.status);
		n++;
	}
	return n;
}

/* The sender does not poll, so most of the GOT packets wait for the queue. */
static void what_was_delivered_is_told_also_by_one_that_goes(void **state)
{
	enum { N = 2000, BATCH = 50 };
	char out[8] = "hello", in[8];
	struct pinion_message m = { .size = sizeof(m),
				    .buf = out,
				    .len = 8,
				    .flags = PINION_MESSAGE_DELIVERY_COMPLETE };
	struct pinion_message r = { .size = sizeof(r), .buf = in, .len = 8 };
	struct pair pair;
	unsigned told;

	(void)state;
	pair_open(&pair, "device=soft:ring_bytes=64K");
	deliver(&pair, out, in, 6); /* they are connected */
	m.peer = pair.to_b;
	for (unsigned sent = 0; sent < N; sent += BATCH) {
		for (unsigned i = 0; i < BATCH; i++) {
			assert_ok(pinion_recv(pair.b.ep, &r, NULL));
			assert_ok(pinion_send(pair.a.ep, &m, NULL));
		}
		for (unsigned i = 0; i < BATCH;)
			i += take_good_ends(&pair.b);
	}
	told = take_good_ends(&pair.a);
	assert_true(told < N);
	end_close(&pair.b);
	while (told < N)
		told += take_good_ends(&pair.a);
	end_close(&pair.a);
}

/* Before the peer is connected a message cannot be injected, and is sent by a
 * request. */
static void a_short_message_can_be_injected(void **state)
{
	char out[] = "hello", in[6] = "";
	struct pinion_message m = {
		.size = sizeof(m), .buf = out, .len = 6, .tag = 5
	};
	struct pinion_request *request = NULL;
	struct pinion_completion end;
	struct end self;

	(void)state;
	end_open(&self, NULL);
	assert_ok(pinion_peer_add(self.ep, &self.address, &m.peer));
	pinion_peer_prefetch(
		m.peer,
		m.len); /* the address of the next message is not known yet */
	assert_int_equal(pinion_inject(self.ep, &m), -EAGAIN);
	m.user = out;
	assert_ok(pinion_send(self.ep, &m, NULL));
	assert_int_equal(poll_for(&self, &end), 1);
	assert_ptr_equal(end.user, out);
	m.data = 77;
	m.flags = PINION_MESSAGE_DATA;
	assert_ok(pinion_inject(self.ep, &m));
	memset(out, 0, sizeof(out)); /* the buffer may be reused at once */
	/* Now the address of the next message is known. */
	assert_ptr_equal(m.peer->next_send,
			 m.peer->conn->device_peer->next_send);
	assert_non_null(m.peer->next_send);
	pinion_peer_prefetch(m.peer, m.len);
	assert_ok(pinion_send(self.ep, &m, &request));
	assert_ok(pinion_wait(self.ep, request, PINION_FOREVER, NULL));
	m.user = m.buf = in;
	m.flags = 0;
	for (int i = 0; i < 2; i++) { /* in the order of sending */
		assert_ok(pinion_recv(self.ep, &m, NULL));
		assert_int_equal(poll_for(&self, &end), 1);
		assert_ptr_equal(end.user, in);
		assert_int_equal(end.flags, i ? PINION_COMPLETION_DATA : 0);
		assert_int_equal(end.data, i ? 77 : 0);
		assert_string_equal(in, "hello");
	}
	end_close(&self);
}

/* 64 bits of data arrive with messages of every protocol: injected, eager, and
 * long ones, also where the message waits for its receive. */
static void data_of_64_bits_arrives_with_messages_of_all_lengths(void **state)
{
	static const size_t lens[] = { 0, 8, 3000, 100000, 3 << 20 };
	static char out[3 << 20], in[3 << 20];
	struct pinion_message m = { .size = sizeof(m),
				    .buf = out,
				    .flags = PINION_MESSAGE_DATA,
				    .data = 0x89abcdef,
				    .data_high = 0x01234567 };
	struct pinion_message receive = { .size = sizeof(receive), .buf = in };
	struct pinion_request *sent = NULL, *received = NULL;
	struct pinion_completion end;
	struct end self;

	(void)state;
	end_open(&self, NULL);
	assert_ok(pinion_peer_add(self.ep, &self.address, &m.peer));
	for (unsigned i = 0; i < 2 * PN_ARRAY_LEN(lens); i++) {
		m.len = receive.len = lens[i / 2];
		if (i % 2)
			assert_ok(pinion_recv(self.ep, &receive, &received));
		assert_ok(pinion_send(self.ep, &m, &sent));
		if (!(i % 2)) {
			while (pinion_probe(self.ep, &receive, &end, NULL))
				;
			assert_int_equal(end.data, 0x89abcdef);
			assert_int_equal(end.data_high, 0x01234567);
			assert_ok(pinion_recv(self.ep, &receive, &received));
		}
		assert_ok(pinion_wait(self.ep, received, PINION_FOREVER, &end));
		assert_ok(pinion_wait(self.ep, sent, PINION_FOREVER, NULL));
		assert_int_equal(end.flags, PINION_COMPLETION_DATA);
		assert_int_equal(end.data, 0x89abcdef);
		assert_int_equal(end.data_high, 0x01234567);
	}
	m.len = 8;
	assert_ok(pinion_inject(self.ep, &m));
	receive.len = 8;
	assert_ok(pinion_recv(self.ep, &receive, &received));
	assert_ok(pinion_wait(self.ep, received, PINION_FOREVER, &end));
	assert_int_equal(end.data_high, 0x01234567);
	m.reserved = 1;
	assert_int_equal(pinion_send(self.ep, &m, NULL), -EINVAL);
	end_close(&self);
}

/* Injecting again is enough: the program need not poll. */
static void injecting_again_and_again_connects(void **state)
{
	uint64_t deadline = pn_clock_ns() + 60 * PN_NS_PER_S;
	char word[] = "hello";
	struct pinion_message m = { .size = sizeof(m), .buf = word, .len = 6 };
	struct end self;
	int ret;

	(void)state;
	end_open(&self, NULL);
	assert_ok(pinion_peer_add(self.ep, &self.address, &m.peer));
	while ((ret = pinion_inject(self.ep, &m)) == -EAGAIN)
		assert_true(pn_clock_ns() < deadline);
	assert_ok(ret);
	end_close(&self);
}

static void a_long_message_is_never_injected(void **state)
{
	size_t len = 1 << 20;
	char *out = calloc(2, len);
	struct pinion_message m = { .size = sizeof(m), .buf = out, .len = len };
	struct pinion_request *request, *receive;
	struct end self;

	(void)state;
	assert_non_null(out);
	end_open(&self, NULL);
	assert_ok(pinion_peer_add(self.ep, &self.address, &m.peer));
	for (int i = 0; i < 3; i++) {
		m.buf = out;
		assert_int_equal(pinion_inject(self.ep, &m), -EMSGSIZE);
		assert_ok(pinion_send(self.ep, &m, &request));
		m.buf = out + len;
		assert_ok(pinion_recv(self.ep, &m, &receive));
		assert_ok(pinion_wait(self.ep, receive, PINION_FOREVER, NULL));
		assert_ok(pinion_wait(self.ep, request, PINION_FOREVER, NULL));
	}
	end_close(&self);
	free(out);
}

static void a_send_canceled_in_the_queue_never_arrives(void **state)
{
	struct pinion_message m = {
		.size = sizeof(m), .buf = "x", .len = 1, .tag = 1
	};
	struct pinion_request *request, *other;
	struct pinion_completion seen;
	struct pair pair;

	(void)state;
	pair_open(&pair, NULL);
	m.peer = pair.to_b;
	/* Not connected yet: both wait at the peer. */
	assert_ok(pinion_send(pair.a.ep, &m, &request));
	m.tag = 2;
	assert_ok(pinion_send(pair.a.ep, &m, &other));
	assert_ok(pinion_cancel(pair.a.ep, request));
	assert_int_equal(pinion_wait(pair.a.ep, request, PINION_FOREVER, NULL),
			 -ECANCELED);
	assert_int_equal(finish(&pair, pair.a.ep, other).status, 0);
	m = (struct pinion_message){ .size = sizeof(struct pinion_message),
				     .ignore = ~UINT64_C(0) };
	while (pinion_probe(pair.b.ep, &m, &seen, NULL))
		pair_progress(&pair);
	assert_int_equal(seen.tag, 2);
	pair_close(&pair);
}

static void a_long_send_is_canceled_until_it_is_matched(void **state)
{
	static uint8_t bytes[1 << 20];
	struct pinion_message m = { .size = sizeof(m),
				    .buf = bytes,
				    .len = sizeof(bytes) };
	struct pinion_message any = { .size = sizeof(any),
				      .ignore = ~UINT64_C(0) };
	struct pinion_request *request;
	struct pinion_completion end;
	struct pair pair;

	(void)state;
	pair_open(&pair, NULL);
	m.peer = pair.to_b;
	assert_ok(pinion_send(pair.a.ep, &m, &request));
	while (pinion_probe(pair.b.ep, &any, &end, NULL))
		pair_progress(&pair);
	assert_int_equal(end.len, sizeof(bytes));
	assert_ok(pinion_cancel(pair.a.ep, request));
	assert_int_equal(finish(&pair, pair.a.ep, request).status, -ECANCELED);
	assert_int_equal(pinion_probe(pair.b.ep, &any, &end, NULL), -EAGAIN);
	pair_close(&pair);
}

static void a_claim_that_is_never_received_goes_with_its_endpoint(void **state)
{
	struct pinion_message m = { .size = sizeof(m), .buf = "x", .len = 1 };
	struct pinion_unexpected *unexpected;
	struct pinion_completion seen;
	struct end end;

	(void)state;
	end_open(&end, NULL);
	assert_ok(pinion_peer_add(end.ep, &end.address, &m.peer));
	assert_ok(pinion_send(end.ep, &m, NULL));
	while (pinion_probe(end.ep, &m, &seen, &unexpected))
		;
	assert_int_equal(pinion_probe(end.ep, &m, &seen, &unexpected), -EAGAIN);
	end_close(&end);
}

/* From a to b, so that both are connected. */
static void pass_one_byte(struct pair *pair)
{
	char out = 'o', in = 0;
	struct pinion_message m = {
		.size = sizeof(m), .buf = &out, .len = 1, .peer = pair->to_b
	};
	struct pinion_request *sending, *receiving;

	assert_ok(pinion_send(pair->a.ep, &m, &sending));
	m = (struct pinion_message){ .size = sizeof(struct pinion_message),
				     .buf = &in,
				     .len = 1 };
	assert_ok(pinion_recv(pair->b.ep, &m, &receiving));
	assert_ok(finish(pair, pair->b.ep, receiving).status);
	assert_ok(finish(pair, pair->a.ep, sending).status);
	assert_int_equal(in, 'o');
}

/* Such a small message ends while it is sent: no device signals it. */
static void an_armed_descriptor_tells_of_what_ends_at_once(void **state)
{
	static const char *const devices[] = { "device=soft",
					       "device=soft+soft" };
	uint8_t byte = 1;
	struct pair pair;
	struct pollfd fd;

	(void)state;
	for (unsigned i = 0; i < PN_ARRAY_LEN(devices); i++) {
		struct pinion_message m = { .size = sizeof(m),
					    .buf = &byte,
					    .len = 1 };
		struct pinion_completion end = { .len = 0 };

		pair_open(&pair, devices[i]);
		pass_one_byte(&pair);
		m.peer = pair.to_b;
		fd = (struct pollfd){ .fd = pinion_endpoint_fd(pair.a.ep),
				      .events = POLLIN };
		while (pinion_endpoint_arm(pair.a.ep) == -EAGAIN)
			assert_int_equal(pinion_poll(pair.a.ep, &end,
						     sizeof(end), 1),
					 0);
		assert_ok(pinion_send(pair.a.ep, &m, NULL));
		assert_int_equal(poll(&fd, 1, 10000), 1);
		assert_int_equal(pinion_poll(pair.a.ep, &end, sizeof(end), 1),
				 1);
		assert_int_equal(end.len, 1);
		pair_close(&pair);
	}
}

/* A request with a handle may end while the descriptor is armed. */
static void arming_says_when_there_is_something(void **state)
{
	struct pinion_message m = { .size = sizeof(m), .buf = "x", .len = 1 };
	struct pinion_request *request;
	struct pollfd fd;
	struct pair pair;
	char in;

	(void)state;
	pair_open(&pair, NULL);
	m.peer = pair.to_b;
	assert_ok(pinion_send(pair.a.ep, &m, NULL));
	m = (struct pinion_message){ .size = sizeof(struct pinion_message),
				     .buf = &in,
				     .len = 1 };
	assert_ok(pinion_recv(pair.b.ep, &m, &request));
	fd = (struct pollfd){ .fd = pinion_endpoint_fd(pair.b.ep),
			      .events = POLLIN };
	assert_true(fd.fd >= 0);
	for (unsigned n = 0; pinion_test(pair.b.ep, request, NULL); n++) {
		pinion_poll(pair.a.ep, NULL, 0, 0);
		while (pinion_endpoint_arm(pair.b.ep) == -EAGAIN)
			if (!pinion_test(pair.b.ep, request, NULL))
				goto received;
		pinion_poll(pair.a.ep, NULL, 0, 0);
		assert_true(poll(&fd, 1, 1000) >= 0);
		assert_true(n < 10);
	}
received:
	assert_int_equal(in, 'x');
	pair_close(&pair);
}

/* --- endings -------------------------------------------------------------- */

static void echo(struct end *end, struct pinion_peer *peer)
{
	char out = 'o', in = 0;
	struct pinion_message m = {
		.size = sizeof(m), .buf = &out, .len = 1, .peer = peer
	};
	struct pinion_request *request;

	assert_ok(pinion_send(end->ep, &m, NULL));
	m.buf = &in;
	assert_ok(pinion_recv(end->ep, &m, &request));
	assert_ok(pinion_wait(end->ep, request, PINION_FOREVER, NULL));
	assert_int_equal(in, 'o');
}

static void a_context_can_open_an_endpoint_again(void **state)
{
	struct pinion_peer *peer;
	struct end end;

	(void)state;
	end_open(&end, NULL);
	for (unsigned i = 0; i < 3; i++) {
		assert_ok(pinion_peer_add(end.ep, &end.address, &peer));
		echo(&end, peer);
		pinion_endpoint_close(end.ep);
		assert_ok(pinion_endpoint_open(end.context, NULL, &end.ep));
	}
	end_close(&end);
}

/* On `sim`, which needs packet buffers. */
static void an_endpoint_opens_where_the_cache_has_filled_the_budget(
	void **state)
{
	static const char *const options[] = { "log=none", "device=sim",
					       "max_bytes=8M", NULL };
	struct pinion_attr attr = { .size = sizeof(attr), .options = options };
	const size_t len = 32 << 10, n = 400;
	struct pinion_context *context;
	struct pinion_endpoint *ep;
	struct pinion_pin pin;
	char *bytes = mmap(NULL, 2 * n * len, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	(void)state;
	assert_ptr_not_equal(bytes, MAP_FAILED);
	assert_ok(pinion_open(&attr, &context));
	for (size_t i = 0; i < n; i++) {
		assert_ok(
			pinion_pin(context, bytes + 2 * i * len, len, 0, &pin));
		pinion_unpin(context, &pin);
	}
	assert_ok(pinion_endpoint_open(context, NULL, &ep));
	pinion_endpoint_close(ep);
	pinion_close(context);
	munmap(bytes, 2 * n * len);
}

static void closing_abandons_what_is_under_way(void **state)
{
	const size_t len = (size_t)32 << 20;
	char *bytes = mmap(NULL, 2 * len, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct pinion_message m = { .size = sizeof(m),
				    .buf = bytes,
				    .len = len };
	struct pinion_request *request;
	struct pinion_peer *peer;
	struct pair pair;

	(void)state;
	assert_ptr_not_equal(bytes, MAP_FAILED);
	pair_open(&pair, NULL);
	m.peer = pair.to_b;
	assert_ok(pinion_send(pair.a.ep, &m, &request));
	m.buf = bytes + len;
	m.peer = pair.to_a;
	assert_ok(pinion_recv(pair.b.ep, &m, &request));
	for (unsigned i = 0; i < 20; i++)
		pair_progress(&pair);
	pinion_endpoint_close(pair.a.ep);
	assert_nothing_pinned(&pair.a);
	assert_ok(pinion_endpoint_open(pair.a.context, NULL, &pair.a.ep));
	assert_ok(pinion_peer_add(pair.a.ep, &pair.a.address, &peer));
	echo(&pair.a, peer);
	pair_close(&pair);
	munmap(bytes, 2 * len);
}

/* In a child: begins to send 64 MiB to the parent, whose address comes through
 * a pipe, and waits to be killed. */
static void doomed(int in, int out)
{
	const size_t len = (size_t)64 << 20;
	struct pinion_message m = { .size = sizeof(m), .len = len };
	struct pinion_address theirs;
	struct end end;

	m.buf = mmap(NULL, len, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	end_open(&end, "protocol=pipeline");
	if (write(out, &end.address, sizeof(end.address)) < 0 ||
	    read(in, &theirs, sizeof(theirs)) != sizeof(theirs) ||
	    pinion_peer_add(end.ep, &theirs, &m.peer) ||
	    pinion_send(end.ep, &m, NULL))
		_exit(1);
	for (;;)
		pinion_poll(end.ep, NULL, 0, 0);
}

/* Lets some of the message arrive, then kills the sender. */
static void kill_amid(struct end *end, pid_t pid,
		      struct pinion_request *request)
{
	const volatile size_t *moved = &request->moved;
	uint64_t deadline = pn_clock_ns() + 60 * PN_NS_PER_S;
	struct pinion_completion c;

	while (*moved < (size_t)1 << 20) {
		assert_int_equal(pinion_test(end->ep, request, &c), -EAGAIN);
		assert_true(pn_clock_ns() < deadline);
	}
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	while (pinion_test(end->ep, request, &c) == -EAGAIN)
		assert_true(pn_clock_ns() < deadline);
	assert_int_equal(c.status, -ECONNRESET);
}

/* A request may fail before the endpoint knows that the peer is gone; so the
 * next request is refused, or fails. */
static void assert_gone(struct end *end,
			int (*begin)(struct pinion_endpoint *,
				     const struct pinion_message *,
				     struct pinion_request **),
			const struct pinion_message *m)
{
	struct pinion_request *request;
	int ret = begin(end->ep, m, &request);

	if (!ret)
		ret = pinion_wait(end->ep, request, PINION_FOREVER, NULL);
	assert_int_equal(ret, -ECONNRESET);
}

static void a_killed_peer_ends_its_requests_and_nothing_else(void **state)
{
	const size_t len = (size_t)64 << 20;
	struct pinion_message m = { .size = sizeof(m), .len = len };
	struct pinion_request *request;
	struct pinion_address theirs;
	struct pinion_peer *self;
	int up[2], down[2];
	struct end end;
	pid_t pid;

	(void)state;
	assert_ok(pipe(up));
	assert_ok(pipe(down));
	pid = fork();
	if (!pid)
		doomed(down[0], up[1]);
	end_open(&end, "protocol=pipeline");
	m.buf = mmap(NULL, len, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_int_equal(read(up[0], &theirs, sizeof(theirs)), sizeof(theirs));
	assert_ok(pinion_peer_add(end.ep, &theirs, &m.peer));
	assert_ok(pinion_recv(end.ep, &m, &request));
	assert_int_equal(write(down[1], &end.address, sizeof(end.address)),
			 sizeof(end.address));
	kill_amid(&end, pid, request);
	assert_gone(&end, pinion_send, &m);
	assert_gone(&end, pinion_recv, &m);
	assert_nothing_pinned(&end);
	assert_ok(pinion_peer_add(end.ep, &end.address, &self));
	echo(&end, self);
	end_close(&end);
	munmap(m.buf, len);
	for (unsigned i = 0; i < 2; i++)
		assert_false(close(up[i]) || close(down[i]));
}

/* Messages pin fragment by fragment, always the same fragments, and make
 * progress by themselves. */
static void a_cache_works_otherwise_while_an_endpoint_has_it(void **state)
{
	struct pn_cache *cache;
	struct end end;

	(void)state;
	end_open(&end, NULL);
	cache = end.context->cache;
	assert_true(!atomic_load(&cache->merging) &&
		    atomic_load(&cache->stepped));
	pinion_endpoint_close(end.ep);
	assert_true(atomic_load(&cache->merging) &&
		    !atomic_load(&cache->stepped));
	pinion_close(end.context);
}

static void a_closed_endpoint_leaves_no_descriptor(void **state)
{
	unsigned before = 0;
	struct end end;

	(void)state;
	/* The first endpoint may leave allocations that the process keeps. */
	for (unsigned i = 0; i < 3; i++) {
		if (i == 1)
			before = test_descriptors();
		end_open(&end, NULL);
		assert_true(pinion_endpoint_fd(end.ep) >= 0);
		end_close(&end);
	}
	assert_int_equal(test_descriptors(), before);
}

/* From the endpoint to itself; both buffers are in `mem`. */
static void send_along(struct end *end, struct pinion_peer *peer, char *from,
		       char *to, size_t len)
{
	struct pinion_message m = {
		.size = sizeof(m), .buf = to, .len = len, .peer = peer
	};
	struct pinion_request *in, *out;

	assert_ok(pinion_recv(end->ep, &m, &in));
	m.buf = from;
	assert_ok(pinion_send(end->ep, &m, &out));
	assert_ok(pinion_wait(end->ep, in, PINION_FOREVER, NULL));
	assert_ok(pinion_wait(end->ep, out, PINION_FOREVER, NULL));
}

static void an_endpoint_tells_how_messages_moved(void **state)
{
	static char from[256 << 10], to[256 << 10];
	struct pinion_endpoint_stats stats = { .size = sizeof(stats) };
	struct pinion_peer *peer;
	struct end end;
	uint64_t longer;

	(void)state;
	end_open(&end, NULL);
	assert_ok(pinion_peer_add(end.ep, &end.address, &peer));
	send_along(&end, peer, from, to, 100);
	for (unsigned i = 0; i < 5; i++)
		send_along(&end, peer, from, to, sizeof(from));
	assert_ok(pinion_endpoint_query(end.ep, &stats));
	assert_int_equal(stats.size, sizeof(stats));
	longer = stats.sent_copy + stats.sent_demand + stats.sent_cached +
		 stats.sent_pipeline + stats.sent_caching_pipeline +
		 stats.sent_read + stats.sent_overlapped;
	assert_int_equal(stats.sent_eager, 1);
	assert_int_equal(longer, 5);
	assert_int_equal(stats.received, 6);
	/* The last message may not be measured yet. */
	assert_true(stats.predictions >= 4 && stats.prediction_error >= 0);
	stats.size = offsetof(struct pinion_endpoint_stats, sent_copy);
	stats.sent_copy = 77;
	assert_ok(pinion_endpoint_query(end.ep, &stats));
	assert_int_equal(stats.sent_copy, 77);
	stats.size = 0;
	assert_int_equal(pinion_endpoint_query(end.ep, &stats), -EINVAL);
	assert_int_equal(pinion_endpoint_query(end.ep, NULL), -EINVAL);
	assert_int_equal(pinion_endpoint_query(NULL, &stats), -EINVAL);
	end_close(&end);
}

/* The largest packet that goes inline, and not one byte more. */
static void what_goes_inline_can_be_injected(void **state)
{
	struct pinion_endpoint_stats stats = { .size = sizeof(stats) };
	struct pinion_message m = { .size = sizeof(m) };
	struct pinion_request *request;
	struct pair pair;
	size_t most;
	char *buf;

	(void)state;
	pair_open(&pair, "reuse=off");
	most = pair.a.ep->device->limits.inline_bytes - sizeof(struct pn_wire);
	if (most > pair.a.ep->limits.eager_bytes)
		most = pair.a.ep->limits.eager_bytes;
	buf = calloc(1, most + 1);
	assert_non_null(buf);
	m.buf = buf;
	m.peer = pair.to_b;
	/* Connected first. */
	assert_ok(pinion_send(pair.a.ep, &m, &request));
	assert_ok(finish(&pair, pair.a.ep, request).status);
	m.len = most;
	assert_ok(pinion_inject(pair.a.ep, &m));
	m.len = most + 1;
	assert_int_equal(pinion_inject(pair.a.ep, &m), -EMSGSIZE);
	assert_ok(pinion_endpoint_query(pair.a.ep, &stats));
	assert_int_equal(stats.max_inject_bytes, most);
	pair_close(&pair);
	free(buf);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(endpoints_are_opened_from_good_arguments_only),
		TEST(addresses_that_are_none_are_refused),
		TEST(the_same_address_is_the_same_peer),
		TEST(an_address_of_another_device_is_refused_when_sent_to),
		TEST(messages_that_make_no_sense_are_refused),
		TEST(requests_that_are_none_are_refused),
		TEST(a_forked_child_is_refused),
		TEST(the_queue_reports_requests_without_handles),
		TEST(delivered_means_that_the_receive_has_ended),
		TEST(delivered_to_one_that_goes_ends),
		TEST(what_was_delivered_is_told_also_by_one_that_goes),
		TEST(what_goes_inline_can_be_injected),
		TEST(a_multi_receive_keeps_its_place),
		TEST(a_multi_receive_takes_what_came_before),
		TEST(a_multi_receive_is_canceled_but_for_what_came),
		TEST(a_short_message_can_be_injected),
		TEST(data_of_64_bits_arrives_with_messages_of_all_lengths),
		TEST(injecting_again_and_again_connects),
		TEST(a_long_message_is_never_injected),
		TEST(a_send_canceled_in_the_queue_never_arrives),
		TEST(a_long_send_is_canceled_until_it_is_matched),
		TEST(a_claim_that_is_never_received_goes_with_its_endpoint),
		TEST(an_endpoint_tells_how_messages_moved),
		TEST(an_armed_descriptor_tells_of_what_ends_at_once),
		TEST(arming_says_when_there_is_something),
		TEST(a_context_can_open_an_endpoint_again),
		TEST(an_endpoint_opens_where_the_cache_has_filled_the_budget),
		TEST(a_cache_works_otherwise_while_an_endpoint_has_it),
		TEST(a_closed_endpoint_leaves_no_descriptor),
		TEST(closing_abandons_what_is_under_way),
		TEST(a_killed_peer_ends_its_requests_and_nothing_else),
	};

	return RUN_TESTS(tests);
}
