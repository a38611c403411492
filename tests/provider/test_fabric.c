/* SPDX-License-Identifier: BSD-2-Clause */
/* Messages, completion queues and discovery through libfabric's calls. */
#include "test.h"

#include <poll.h>
#include <unistd.h>

#include "side.h"
#include "vmpin.h"

/* --- tagged messages of all sizes ----------------------------------------- */

static const size_t sizes[] = { 0,    1,     64,     128,	129,
				4096, 65536, 300000, LONG_BYTES };

static bool send_sizes(struct side *s)
{
	uint8_t *buf = malloc(LONG_BYTES);
	struct fi_cq_tagged_entry end;

	for (unsigned i = 0; i < PN_ARRAY_LEN(sizes); i++) {
		fill(buf, sizes[i], i);
		NEED(!fi_tsenddata(s->ep, buf, sizes[i], NULL, 1000 + i,
				   s->peer, i, buf + i));
		NEED(next_entry(s->tx, &end));
		NEED(end.op_context == buf + i);
		NEED((end.flags & (FI_SEND | FI_TAGGED)) ==
		     (FI_SEND | FI_TAGGED));
	}
	free(buf);
	return true;
}

static bool receive_sizes(struct side *s)
{
	uint8_t *buf = malloc(LONG_BYTES);
	struct fi_cq_tagged_entry end;
	fi_addr_t from;
	ssize_t n;

	for (unsigned i = 0; i < PN_ARRAY_LEN(sizes); i++) {
		NEED(!fi_trecv(s->ep, buf, LONG_BYTES, NULL,
			       i % 2 ? s->peer : FI_ADDR_UNSPEC, i, 0, &end));
		while ((n = fi_cq_readfrom(s->rx, &end, 1, &from)) ==
		       -FI_EAGAIN)
			;
		NEED(n == 1 && from == s->peer);
		NEED(end.len == sizes[i] && end.tag == i && end.buf == buf);
		NEED(end.flags & FI_REMOTE_CQ_DATA && end.data == 1000 + i);
		NEED(is_filled(buf, sizes[i], i));
	}
	free(buf);
	return true;
}

static void tagged_messages_of_all_sizes_arrive(void **state)
{
	(void)state;
	run(receive_sizes, send_sizes, FI_AV_MAP, 0);
	run(receive_sizes, send_sizes, FI_AV_TABLE, 0);
}

/* --- the two kinds, and senders, are kept apart --------------------------- */

static bool send_kinds(struct side *s)
{
	struct fi_cq_tagged_entry end;

	NEED(!fi_send(s->ep, "msg", 4, NULL, s->peer, NULL));
	NEED(!fi_tsend(s->ep, "tag", 4, NULL, s->peer, 0, NULL));
	NEED(next_entry(s->tx, &end) && next_entry(s->tx, &end));
	return true;
}

static bool receive_kinds(struct side *s)
{
	char tagged[8] = "", msg[8] = "", own[8] = "";
	struct fi_cq_tagged_entry end;

	/* Its source is this endpoint: messages of the peer do not match. */
	NEED(!fi_trecv(s->ep, own, 8, NULL, s->self, 0, ~UINT64_C(0), own));
	NEED(!fi_trecv(s->ep, tagged, 8, NULL, FI_ADDR_UNSPEC, 0, ~UINT64_C(0),
		       tagged));
	NEED(!fi_recv(s->ep, msg, 8, NULL, FI_ADDR_UNSPEC, msg));
	for (int i = 0; i < 2; i++) {
		NEED(next_entry(s->rx, &end));
		NEED(end.flags & (end.op_context == msg ? FI_MSG : FI_TAGGED));
		NEED(end.op_context != own);
		NEED(!(end.flags & FI_REMOTE_CQ_DATA));
	}
	NEED(!strcmp(tagged, "tag") && !strcmp(msg, "msg"));
	NEED(!fi_tinject(s->ep, "own", 4, s->self, 5));
	NEED(next_entry(s->rx, &end) && end.op_context == own);
	NEED(!strcmp(own, "own") && end.tag == 5);
	return true;
}

static void kinds_and_senders_are_kept_apart(void **state)
{
	(void)state;
	run(receive_kinds, send_kinds, FI_AV_MAP, 0);
}

/* --- inject and selective completion -------------------------------------- */

static size_t injected(unsigned i)
{
	static const size_t lens[] = { 128, 4096, 129, 0 };

	return lens[i % 4];
}

static bool send_unselected(struct side *s)
{
	struct fi_cq_tagged_entry end;
	uint8_t buf[4097];
	struct iovec iov = { buf, 64 };
	struct fi_msg_tagged m = { .msg_iov = &iov,
				   .iov_count = 1,
				   .addr = s->peer,
				   .tag = 1001,
				   .context = &iov };

	/* The first messages arrive before the peer is up and are queued. */
	for (unsigned i = 0; i < 1000; i++) {
		size_t len = injected(i);

		fill(buf, len, i);
		NEED(!fi_tinjectdata(s->ep, buf, len, i, s->peer, i));
		memset(buf, 0, sizeof(buf)); /* the buffer may be reused */
	}
	NEED(fi_tinject(s->ep, buf, 4097, s->peer, 0) == -FI_EINVAL);
	fill(buf, 64, 9);
	NEED(!fi_tsend(s->ep, buf, 64, NULL, s->peer, 1000, NULL));
	NEED(!fi_tsendmsg(s->ep, &m, FI_COMPLETION));
	NEED(next_entry(s->tx, &end) && end.op_context == &iov);
	NEED(fi_cq_read(s->tx, &end, 1) == -FI_EAGAIN);
	return sync_up(s);
}

static bool receive_unselected(struct side *s)
{
	struct fi_cq_tagged_entry end;
	uint8_t buf[4096];

	for (unsigned i = 0; i < 1002; i++) {
		NEED(!fi_trecv(s->ep, buf, 4096, NULL, s->peer, i, 0, NULL));
		NEED(next_entry(s->rx, &end) && end.tag == i);
		if (i < 1000)
			NEED(end.data == i && end.len == injected(i) &&
			     is_filled(buf, end.len, i));
		else
			NEED(end.len == 64 && is_filled(buf, 64, 9));
	}
	return sync_up(s);
}

static void injected_and_unselected_sends_write_no_entry(void **state)
{
	(void)state;
	run(receive_unselected, send_unselected, FI_AV_TABLE,
	    FI_SELECTIVE_COMPLETION);
}

/* --- peek, claim, discard ------------------------------------------------- */

static bool send_for_peek(struct side *s)
{
	struct fi_cq_tagged_entry end;
	uint8_t *buf = malloc(300000);

	fill(buf, 300000, 1);
	NEED(!fi_tsenddata(s->ep, buf, 300000, NULL, 77, s->peer, 7, NULL));
	NEED(!fi_tsend(s->ep, buf, 100, NULL, s->peer, 7, NULL));
	NEED(!fi_tsend(s->ep, buf, 50, NULL, s->peer, 8, NULL));
	for (int i = 0; i < 3; i++)
		NEED(next_entry(s->tx, &end));
	free(buf);
	return sync_up(s);
}

static ssize_t look(struct side *s, uint64_t tag, uint64_t flags,
		    struct fi_context *context)
{
	struct fi_msg_tagged m = { .addr = FI_ADDR_UNSPEC,
				   .tag = tag,
				   .context = context };

	return fi_trecvmsg(s->ep, &m, flags | FI_COMPLETION);
}

/* Peeks until the message has arrived. */
static bool peek_until_found(struct side *s, uint64_t tag, uint64_t flags,
			     struct fi_context *context,
			     struct fi_cq_tagged_entry *out)
{
	struct fi_cq_err_entry error;
	ssize_t n;

	for (;;) {
		NEED(!look(s, tag, flags, context));
		while ((n = fi_cq_read(s->rx, out, 1)) == -FI_EAGAIN)
			;
		if (n == 1)
			return true;
		NEED(n == -FI_EAVAIL && fi_cq_readerr(s->rx, &error, 0) == 1);
		NEED(error.err == FI_ENOMSG && error.op_context == context);
	}
}

static bool receive_by_peek(struct side *s)
{
	uint8_t *buf = calloc(1, 300000);
	struct iovec iov = { buf, 300000 };
	struct fi_context context;
	struct fi_msg_tagged m = { .msg_iov = &iov,
				   .iov_count = 1,
				   .context = &context };
	struct fi_cq_tagged_entry end;
	struct fi_cq_err_entry error;

	NEED(!look(s, 99, FI_PEEK, &context));
	NEED(next_error(s->rx, &error) && error.err == FI_ENOMSG);
	NEED(peek_until_found(s, 7, FI_PEEK, &context, &end) &&
	     end.len == 300000);
	NEED(peek_until_found(s, 7, FI_PEEK | FI_CLAIM, &context, &end));
	NEED(end.len == 300000 && end.data == 77);
	/* The second message with the tag is the first that others find. */
	NEED(!fi_trecv(s->ep, buf, 300000, NULL, s->peer, 7, 0, NULL));
	NEED(next_entry(s->rx, &end) && end.len == 100);
	NEED(!fi_trecvmsg(s->ep, &m, FI_CLAIM | FI_COMPLETION));
	NEED(next_entry(s->rx, &end) && end.len == 300000 && end.data == 77);
	NEED(is_filled(buf, 300000, 1));
	NEED(peek_until_found(s, 8, FI_PEEK | FI_DISCARD, &context, &end));
	NEED(end.len == 50);
	NEED(!look(s, 8, FI_PEEK, &context));
	NEED(next_error(s->rx, &error) && error.err == FI_ENOMSG);
	free(buf);
	return sync_up(s);
}

static void a_claimed_message_is_received_by_its_claim(void **state)
{
	(void)state;
	run(receive_by_peek, send_for_peek, FI_AV_MAP, 0);
}

/* --- multi-receive, truncation, cancel ------------------------------------ */

static bool send_small(struct side *s)
{
	struct fi_cq_tagged_entry end;
	uint8_t buf[100];

	NEED(sync_up(s));
	for (unsigned i = 0; i < 20; i++) {
		fill(buf, 100, i);
		NEED(!fi_send(s->ep, buf, 100, NULL, s->peer, NULL));
		NEED(next_entry(s->tx, &end));
	}
	return true;
}

static bool receive_multi(struct side *s)
{
	static uint8_t buf[1050], rest[1100];
	struct iovec iov[2] = { { buf, 1050 }, { rest, 1100 } };
	struct fi_cq_tagged_entry end;
	size_t min = 100;
	unsigned done = 0;

	NEED(!fi_setopt(&s->ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV,
			&min, sizeof(min)));
	for (int i = 0; i < 2; i++) {
		struct fi_msg m = { .msg_iov = &iov[i],
				    .iov_count = 1,
				    .addr = FI_ADDR_UNSPEC,
				    .context = &iov[i] };

		NEED(!fi_recvmsg(s->ep, &m, FI_MULTI_RECV | FI_COMPLETION));
	}
	NEED(sync_up(s));
	for (unsigned i = 0; i < 20; i++) {
		NEED(next_entry(s->rx, &end));
		NEED(end.len == 100 && is_filled(end.buf, 100, i));
		done += !!(end.flags & FI_MULTI_RECV);
	}
	NEED(done == 1); /* the second buffer has room for one more */
	return true;
}

static void a_multi_receive_takes_several_messages(void **state)
{
	(void)state;
	run(receive_multi, send_small, FI_AV_TABLE, 0);
}

/* --- delivery complete ---------------------------------------------------- */

static bool send_one(struct side *s, uint64_t flags, uint8_t *buf, size_t len,
		     bool tagged)
{
	struct iovec iov = { buf, len };
	struct fi_msg_tagged t = {
		.msg_iov = &iov, .iov_count = 1, .addr = s->peer, .context = buf
	};
	struct fi_msg m = {
		.msg_iov = &iov, .iov_count = 1, .addr = s->peer, .context = buf
	};

	NEED(!(tagged ? fi_tsendmsg(s->ep, &t, flags)
		      : fi_sendmsg(s->ep, &m, flags)));
	return true;
}

/* The other side makes no progress until it has read from the pipe. */
static bool send_delivery_complete(struct side *s)
{
	uint64_t sure = FI_COMPLETION | FI_DELIVERY_COMPLETE;
	struct fi_cq_tagged_entry end;
	uint8_t *buf = calloc(1, LONG_BYTES), one = 1;

	NEED(send_one(s, FI_COMPLETION, buf, 8, true));
	NEED(next_entry(s->tx, &end)); /* the peers are connected */
	for (int i = 0; i < 2; i++) {
		NEED(sync_up(s));
		NEED(send_one(s, sure | (i ? FI_INJECT : 0), buf, 8, i));
		for (int k = 0; k < 1000; k++)
			NEED(fi_cq_read(s->tx, &end, 1) == -FI_EAGAIN);
		NEED(write(s->pipe, &one, 1) == 1);
		NEED(next_entry(s->tx, &end) && end.op_context == buf);
	}
	for (unsigned i = 0; i < PN_ARRAY_LEN(sizes); i++) {
		NEED(send_one(s, sure, buf, sizes[i], i % 2));
		NEED(next_entry(s->tx, &end) && end.op_context == buf);
	}
	free(buf);
	return true;
}

static bool receive_late(struct side *s)
{
	struct fi_cq_tagged_entry end;
	uint8_t *buf = malloc(LONG_BYTES), one;

	NEED(!fi_trecv(s->ep, buf, 8, NULL, s->peer, 0, 0, NULL));
	NEED(next_entry(s->rx, &end));
	for (int i = 0; i < 2; i++) {
		NEED(sync_up(s));
		NEED(read(s->pipe, &one, 1) == 1);
		/* A message that is stored as unexpected is delivered. */
		NEED(fi_cq_read(s->rx, &end, 1) == -FI_EAGAIN);
	}
	NEED(!fi_recv(s->ep, buf, 8, NULL, s->peer, NULL));
	NEED(!fi_trecv(s->ep, buf, 8, NULL, s->peer, 0, 0, NULL));
	NEED(next_entry(s->rx, &end) && next_entry(s->rx, &end));
	for (unsigned i = 0; i < PN_ARRAY_LEN(sizes); i++) {
		NEED(!(i % 2 ? fi_trecv(s->ep, buf, LONG_BYTES, NULL, s->peer,
					0, 0, NULL)
			     : fi_recv(s->ep, buf, LONG_BYTES, NULL, s->peer,
				       NULL)));
		NEED(next_entry(s->rx, &end) && end.len == sizes[i]);
	}
	free(buf);
	return true;
}

static void delivery_complete_waits_for_the_target(void **state)
{
	(void)state;
	/* The progress thread of the target does not wait. */
	if (getenv("PINION_PROGRESS"))
		skip();
	run(receive_late, send_delivery_complete, FI_AV_TABLE, 0);
}

/* --- multi-receive keeps its place ---------------------------------------- */

#define PLACE_LONG 200000

static bool send_in_order(struct side *s)
{
	uint8_t *buf = calloc(1, PLACE_LONG), brief[3][100];
	struct fi_cq_tagged_entry end;

	NEED(sync_up(s));
	NEED(!fi_send(s->ep, buf, PLACE_LONG, NULL, s->peer, NULL));
	for (unsigned i = 0; i < 3; i++) {
		fill(brief[i], 100, i);
		NEED(!fi_send(s->ep, brief[i], 100, NULL, s->peer, NULL));
	}
	for (int i = 0; i < 4; i++)
		NEED(next_entry(s->tx, &end));
	free(buf);
	return true;
}

/* A receive that is posted after the buffer gets only the message that the
 * buffer has no room for. */
static bool receive_in_order(struct side *s)
{
	uint8_t *buf = malloc(PLACE_LONG + 200), last[100];
	struct iovec iov = { buf, PLACE_LONG + 200 };
	struct fi_msg m = { .msg_iov = &iov,
			    .iov_count = 1,
			    .addr = FI_ADDR_UNSPEC,
			    .context = buf };
	struct fi_cq_tagged_entry end;
	unsigned lasts = 0;

	NEED(!fi_recvmsg(s->ep, &m, FI_MULTI_RECV | FI_COMPLETION));
	NEED(!fi_recv(s->ep, last, sizeof(last), NULL, FI_ADDR_UNSPEC, last));
	NEED(sync_up(s));
	for (int i = 0; i < 4; i++) {
		NEED(next_entry(s->rx, &end));
		NEED(end.len == (end.buf == buf ? PLACE_LONG : 100));
		NEED((end.op_context == last) == (end.buf == last));
		lasts += !!(end.flags & FI_MULTI_RECV);
	}
	NEED(lasts == 1);
	NEED(is_filled(buf + PLACE_LONG, 100, 0));
	NEED(is_filled(buf + PLACE_LONG + 100, 100, 1));
	NEED(is_filled(last, 100, 2));
	free(buf);
	return true;
}

static void a_multi_receive_keeps_its_place(void **state)
{
	(void)state;
	run(receive_in_order, send_in_order, FI_AV_TABLE, 0);
}

static bool send_too_much(struct side *s)
{
	uint8_t *buf = calloc(1, 100000);
	struct fi_cq_tagged_entry end;

	NEED(!fi_tsend(s->ep, buf, 200, NULL, s->peer, 1, NULL));
	NEED(!fi_tsend(s->ep, buf, 100000, NULL, s->peer, 2, NULL));
	NEED(next_entry(s->tx, &end) && next_entry(s->tx, &end));
	free(buf);
	return true;
}

static bool receive_too_little(struct side *s)
{
	struct fi_cq_err_entry error;
	uint8_t buf[150];
	int context;

	NEED(!fi_trecv(s->ep, buf, 150, NULL, s->peer, 3, 0, &context));
	NEED(fi_cancel(&s->ep->fid, buf) == -FI_ENOENT);
	NEED(!fi_cancel(&s->ep->fid, &context));
	NEED(next_error(s->rx, &error));
	NEED(error.err == FI_ECANCELED && error.op_context == &context);
	for (unsigned tag = 1; tag <= 2; tag++) {
		NEED(!fi_trecv(s->ep, buf, 150, NULL, s->peer, tag, 0, buf));
		NEED(next_error(s->rx, &error) && error.err == FI_ETRUNC);
		NEED(error.len == 150 && error.op_context == buf);
		NEED(error.olen == (tag == 1 ? 50 : 100000 - 150));
	}
	return true;
}

static void truncated_and_cancelled_receives_end_with_an_error(void **state)
{
	(void)state;
	run(receive_too_little, send_too_much, FI_AV_MAP, 0);
}

/* --- waiting -------------------------------------------------------------- */

static bool send_late(struct side *s)
{
	struct fi_cq_tagged_entry end;

	for (int i = 0; i < 2; i++) {
		NEED(sync_up(s));
		usleep(20000);
		NEED(!fi_tsend(s->ep, "late", 5, NULL, s->peer, 1, NULL));
		NEED(next_entry(s->tx, &end));
	}
	return true;
}

static bool receive_sleeping(struct side *s)
{
	struct fid *fids[] = { &s->rx->fid };
	struct pollfd ready = { .events = POLLIN };
	struct fi_cq_tagged_entry end;
	char buf[8];
	ssize_t n;
	int ret;

	NEED(fi_cq_sread(s->rx, &end, 1, NULL, 1) == -FI_EAGAIN);
	NEED(!fi_trecv(s->ep, buf, 8, NULL, s->peer, 1, 0, NULL));
	NEED(sync_up(s));
	NEED(fi_cq_sread(s->rx, &end, 1, NULL, -1) == 1 && end.len == 5);
	NEED(!fi_control(&s->rx->fid, FI_GETWAIT, &ready.fd));
	NEED(!fi_trecv(s->ep, buf, 8, NULL, s->peer, 1, 0, NULL));
	NEED(sync_up(s));
	while ((n = fi_cq_read(s->rx, &end, 1)) == -FI_EAGAIN) {
		ret = fi_trywait(s->fabric, fids, 1);
		NEED(!ret || ret == -FI_EAGAIN);
		if (!ret)
			NEED(poll(&ready, 1, 60000) == 1);
	}
	NEED(n == 1 && end.len == 5);
	NEED(!fi_cq_signal(s->rx));
	NEED(fi_cq_sread(s->rx, &end, 1, NULL, -1) == -FI_EAGAIN);
	return true;
}

static void a_reader_sleeps_until_an_entry_arrives(void **state)
{
	(void)state;
	run(receive_sleeping, send_late, FI_AV_MAP, 0);
}

/* --- two endpoints in a process ------------------------------------------- */

#define BUDGET ((size_t)2 << 20)

static bool send_to_self(struct side *s, uint8_t *from, uint8_t *to, size_t len)
{
	struct fi_cq_tagged_entry end;

	fill(from, len, (unsigned)len);
	NEED(!fi_trecv(s->ep, to, len, NULL, s->self, 1, 0, to));
	NEED(!fi_tsend(s->ep, from, len, NULL, s->self, 1, from));
	NEED(next_entry(s->rx, &end) && next_entry(s->tx, &end));
	NEED(is_filled(to, len, (unsigned)len));
	return true;
}

static bool know_self(struct side *s)
{
	char name[NAME_BYTES];
	size_t len = sizeof(name);

	NEED(!fi_getname(&s->ep->fid, name, &len));
	NEED(fi_av_insert(s->av, name, 1, &s->self, 0, NULL) == 1);
	return true;
}

/* Each endpoint has its own context; the budget is one for the process. */
static void endpoints_share_the_budget(void **state)
{
	static const struct setup plain;
	struct side sides[2] = { { .setup = &plain }, { .setup = &plain } };
	uint8_t *memory = malloc(4 * BUDGET);
	size_t most = 0;

	(void)state;
	assert_int_equal(setenv("PINION_PROCESS_MAX_BYTES", "2M", 1), 0);
	assert_int_equal(setenv("PINION_PROTOCOL", "cached", 1), 0);
	for (unsigned i = 0; i < 2; i++)
		assert_true(open_side(&sides[i]) && know_self(&sides[i]));
	for (unsigned i = 0; i < 16; i++) {
		uint8_t *from = memory + i % 8 * (BUDGET / 4);

		assert_true(send_to_self(&sides[i % 2], from, from + 2 * BUDGET,
					 BUDGET / 4));
		if (vmpin() > most)
			most = vmpin();
	}
	assert_in_range(most, BUDGET / 4, BUDGET);
	for (unsigned i = 0; i < 2; i++)
		assert_true(close_side(&sides[i]));
	unsetenv("PINION_PROCESS_MAX_BYTES");
	unsetenv("PINION_PROTOCOL");
	free(memory);
}

static void unsupported_hints_find_no_provider(void **state)
{
	static const uint64_t caps[] = { FI_TRIGGER, FI_FENCE, FI_COLLECTIVE,
					 FI_TAGGED | FI_HMEM };
	struct fi_info *hints, *info;

	(void)state;
	for (size_t i = 0; i < PN_ARRAY_LEN(caps); i++) {
		hints = hints_for(caps[i]);
		assert_int_equal(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0,
					    hints, &info),
				 -FI_ENODATA);
		fi_freeinfo(hints);
	}
	hints = hints_for(FI_TAGGED);
	hints->tx_attr->op_flags = FI_COMPLETION;
	hints->domain_attr->cq_data_size = 4;
	hints->domain_attr->threading = FI_THREAD_DOMAIN;
	assert_ok(fi_getinfo(FI_VERSION(1, 5), NULL, NULL, 0, hints, &info));
	assert_int_equal(info->caps & FI_TAGGED, FI_TAGGED);
	assert_int_equal(info->domain_attr->mr_mode, 0);
	assert_int_equal(info->domain_attr->threading, FI_THREAD_DOMAIN);
	fi_freeinfo(info);
	fi_freeinfo(hints);
}

static void an_event_queue_keeps_written_events(void **state)
{
	struct fi_eq_attr attr = { .flags = FI_WRITE, .wait_obj = FI_WAIT_FD };
	struct fi_info *hints = hints_for(FI_TAGGED), *info;
	struct fi_eq_entry entry = { .data = 42 };
	struct fid_fabric *fabric;
	struct fid_eq *eq;
	uint32_t event;

	(void)state;
	assert_ok(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info));
	assert_ok(fi_fabric(info->fabric_attr, &fabric, NULL));
	assert_ok(fi_eq_open(fabric, &attr, &eq, NULL));
	assert_int_equal(fi_eq_read(eq, &event, &entry, sizeof(entry), 0),
			 -FI_EAGAIN);
	assert_int_equal(fi_eq_write(eq, FI_NOTIFY, &entry, sizeof(entry), 0),
			 sizeof(entry));
	assert_int_equal(fi_eq_sread(eq, &event, &entry, sizeof(entry), -1,
				     FI_PEEK),
			 sizeof(entry));
	assert_int_equal(fi_eq_read(eq, &event, &entry, sizeof(entry), 0),
			 sizeof(entry));
	assert_int_equal(event, FI_NOTIFY);
	assert_int_equal(entry.data, 42);
	assert_int_equal(fi_eq_sread(eq, &event, &entry, sizeof(entry), 0, 0),
			 -FI_EAGAIN);
	assert_int_equal(fi_close(&fabric->fid), -FI_EBUSY);
	assert_ok(fi_close(&eq->fid));
	assert_ok(fi_close(&fabric->fid));
	fi_freeinfo(info);
	fi_freeinfo(hints);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(tagged_messages_of_all_sizes_arrive),
		TEST(kinds_and_senders_are_kept_apart),
		TEST(injected_and_unselected_sends_write_no_entry),
		TEST(a_claimed_message_is_received_by_its_claim),
		TEST(delivery_complete_waits_for_the_target),
		TEST(a_multi_receive_takes_several_messages),
		TEST(a_multi_receive_keeps_its_place),
		TEST(truncated_and_cancelled_receives_end_with_an_error),
		TEST(a_reader_sleeps_until_an_entry_arrives),
		TEST(endpoints_share_the_budget),
		TEST(unsupported_hints_find_no_provider),
		TEST(an_event_queue_keeps_written_events),
	};

	return RUN_TESTS(tests);
}
