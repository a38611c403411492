/* SPDX-License-Identifier: BSD-2-Clause */
/* The less usual forms of libfabric's calls. Each must have the same effect as
 * the plain one. One endpoint sends to itself. */
#include "test.h"

#include <rdma/fi_ext.h>
#include <unistd.h>

#include "side.h"

#define LEN 3000

static const struct setup everything = {
	.caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_SOURCE,
	.mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY,
};

static struct side s;
static uint8_t out[LEN], in[LEN];
static char name[NAME_BYTES];

static int open_self(void **state)
{
	size_t len = sizeof(name);

	(void)state;
	s = (struct side){ .setup = &everything };
	if (!open_side(&s) || fi_getname(&s.ep->fid, name, &len) ||
	    fi_av_insert(s.av, name, 1, &s.self, 0, NULL) != 1)
		return -1;
	s.peer = s.self;
	return 0;
}

static int close_self(void **state)
{
	(void)state;
	return close_side(&s) ? 0 : -1;
}

/* The next entry of a queue; the other queue makes progress, too. */
static struct fi_cq_tagged_entry end_of(struct fid_cq *cq, struct fid_cq *other)
{
	struct fi_cq_tagged_entry end;
	ssize_t n;

	while ((n = fi_cq_read(cq, &end, 1)) == -FI_EAGAIN)
		fi_cq_read(other, NULL, 0);
	assert_int_equal(n, 1);
	return end;
}

static struct iovec buffer(void *buf)
{
	return (struct iovec){ buf, LEN };
}

/* The message with this seed arrived, and its entry is right. */
static void assert_came(unsigned seed, void *context)
{
	struct fi_cq_tagged_entry end = end_of(s.rx, s.tx);

	assert_ptr_equal(end.op_context, context);
	assert_int_equal(end.len, LEN);
	assert_true(is_filled(in, LEN, seed));
	memset(in, 0, LEN);
}

/* --- messages ------------------------------------------------------------- */

static void calls_with_one_iovec_work_like_buffers(void **state)
{
	struct iovec from = buffer(out), to = buffer(in);

	(void)state;
	fill(out, LEN, 1);
	assert_ok(fi_recvv(s.ep, &to, NULL, 1, s.self, in));
	assert_ok(fi_sendv(s.ep, &from, NULL, 1, s.self, out));
	assert_came(1, in);
	assert_ptr_equal(end_of(s.tx, s.rx).op_context, out);
	fill(out, LEN, 2);
	assert_ok(fi_trecvv(s.ep, &to, NULL, 1, s.self, 7, 0, in));
	assert_ok(fi_tsendv(s.ep, &from, NULL, 1, s.self, 7, out));
	assert_came(2, in);
	assert_ptr_equal(end_of(s.tx, s.rx).op_context, out);
}

static void remote_cq_data_arrives_with_the_message(void **state)
{
	struct fi_cq_tagged_entry end;

	(void)state;
	fill(out, LEN, 3);
	assert_ok(fi_recv(s.ep, in, LEN, NULL, s.self, in));
	assert_ok(fi_senddata(s.ep, out, LEN, NULL, 77, s.self, out));
	end = end_of(s.rx, s.tx);
	assert_true(end.flags & FI_REMOTE_CQ_DATA);
	assert_int_equal(end.data, 77);
	assert_true(is_filled(in, LEN, 3));
	assert_ptr_equal(end_of(s.tx, s.rx).op_context, out);
	assert_ok(fi_recv(s.ep, in, LEN, NULL, s.self, in));
	fill(out, LEN, 4);
	assert_ok(fi_injectdata(s.ep, out, 100, 78, s.self));
	end = end_of(s.rx, s.tx);
	assert_int_equal(end.data, 78);
	assert_int_equal(end.len, 100);
	assert_true(is_filled(in, 100, 4));
	/* Inject writes no entry. */
	assert_int_equal(fi_cq_read(s.tx, &end, 1), -FI_EAGAIN);
}

/* More messages than the initial capacity of the queue, read when all have
 * arrived. */
static void queued_entries_are_read_with_their_source(void **state)
{
	enum { MESSAGES = 100 };
	struct fi_cq_tagged_entry ends[MESSAGES];
	fi_addr_t from[MESSAGES];
	size_t n = 0;

	(void)state;
	for (unsigned i = 0; i < MESSAGES; i++) {
		assert_ok(
			fi_recv(s.ep, in + i, 1, NULL, FI_ADDR_UNSPEC, in + i));
		assert_ok(fi_send(s.ep, out + i, 1, NULL, s.self, out + i));
		/* Makes progress of both queues, and reads one. */
		assert_ptr_equal(end_of(s.tx, s.tx).op_context, out + i);
		while (fi_cq_read(s.tx, ends, 1) != -FI_EAGAIN)
			;
	}
	while (n < MESSAGES) {
		ssize_t got =
			fi_cq_readfrom(s.rx, ends + n, MESSAGES - n, from + n);

		assert_true(got > 0 || got == -FI_EAGAIN);
		n += got > 0 ? (size_t)got : 0;
	}
	for (unsigned i = 0; i < MESSAGES; i++) {
		assert_ptr_equal(ends[i].op_context, in + i);
		assert_int_equal(from[i], s.self);
	}
}

/* Peeks until the message has arrived, and claims it. */
static void claim(uint64_t tag, struct fi_context *context)
{
	const struct fi_msg_tagged m = { .addr = s.self,
					 .tag = tag,
					 .context = context };
	struct fi_cq_tagged_entry end;
	struct fi_cq_err_entry error;
	ssize_t n;

	do {
		assert_ok(fi_trecvmsg(s.ep, &m,
				      FI_PEEK | FI_CLAIM | FI_COMPLETION));
		while ((n = fi_cq_read(s.rx, &end, 1)) == -FI_EAGAIN)
			fi_cq_read(s.tx, NULL, 0);
		if (n != 1)
			assert_int_equal(fi_cq_readerr(s.rx, &error, 0), 1);
	} while (n != 1);
	assert_int_equal(end.len, LEN);
}

static void a_claimed_message_may_be_discarded(void **state)
{
	struct fi_context context;
	struct fi_msg_tagged m = { .addr = s.self,
				   .tag = 5,
				   .context = &context };
	struct fi_cq_tagged_entry end;

	(void)state;
	assert_ok(fi_tsend(s.ep, out, LEN, NULL, s.self, 5, out));
	claim(5, &context);
	assert_ok(fi_trecvmsg(s.ep, &m, FI_CLAIM | FI_DISCARD | FI_COMPLETION));
	end = end_of(s.rx, s.tx);
	assert_ptr_equal(end.op_context, &context);
	assert_int_equal(end.len, 0);
	assert_ptr_equal(end_of(s.tx, s.rx).op_context, out);
}

/* --- reading until nothing is left ---------------------------------------- */

static void pass_one(void)
{
	assert_ok(fi_recv(s.ep, in, LEN, NULL, s.self, in));
	assert_ok(fi_inject(s.ep, out, 8, s.self));
}

static ssize_t ask(void)
{
	struct fi_cq_tagged_entry ends[4];

	return fi_cq_read(s.rx, ends, PN_ARRAY_LEN(ends));
}

/* Messages, each followed by an empty read. */
static void ask_in_vain(unsigned times)
{
	pass_one();
	end_of(s.rx, s.tx);
	while (times--) {
		pass_one();
		assert_int_equal(ask(), 1);
		assert_int_equal(ask(), -FI_EAGAIN);
	}
}

/* So often that the counter of empty polls wraps around. */
static void repeated_empty_reads_return_without_polling(void **state)
{
	(void)state;
	ask_in_vain(600);
	pass_one();
	assert_int_equal(ask(), 1);
	pass_one();
	assert_int_equal(ask(), -FI_EAGAIN);
	assert_int_equal(ask(), 1);
}

/* Then there is an entry to read. */
static void a_read_of_no_entries_makes_progress(void **state)
{
	(void)state;
	ask_in_vain(40);
	pass_one();
	assert_int_equal(ask(), 1);
	fill(out, 8, 9);
	pass_one();
	assert_int_equal(fi_cq_read(s.rx, NULL, 0), -FI_EAGAIN);
	assert_true(is_filled(in, 8, 9));
	assert_int_equal(ask(), 1);
}

static void a_read_that_finds_more_entries_polls_again(void **state)
{
	(void)state;
	ask_in_vain(0);
	for (unsigned i = 0; i < 600; i++) {
		pass_one();
		assert_int_equal(ask(), 1);
	}
}

/* --- RMA ------------------------------------------------------------------ */

static void reads_and_writes_take_one_iovec(void **state)
{
	static uint8_t window[LEN];
	struct iovec from = buffer(out), to = buffer(in);
	uint64_t at = (uintptr_t)window, key;
	struct fid_mr *mr;

	(void)state;
	assert_ok(fi_mr_reg(s.domain, window, LEN,
			    FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 0, 0, &mr,
			    NULL));
	key = fi_mr_key(mr);
	fill(out, LEN, 5);
	assert_ok(fi_writev(s.ep, &from, NULL, 1, s.self, at, key, out));
	assert_ptr_equal(end_of(s.tx, s.rx).op_context, out);
	assert_true(is_filled(window, LEN, 5));
	assert_ok(fi_readv(s.ep, &to, NULL, 1, s.self, at, key, in));
	assert_ptr_equal(end_of(s.tx, s.rx).op_context, in);
	assert_true(is_filled(in, LEN, 5));
	assert_ok(fi_close(&mr->fid));
}

/* --- queries -------------------------------------------------------------- */

static void counters_are_set_and_added_to(void **state)
{
	struct fi_cntr_attr attr = { .wait_obj = FI_WAIT_UNSPEC };
	struct fid_cntr *counter;

	(void)state;
	assert_ok(fi_cntr_open(s.domain, &attr, &counter, NULL));
	assert_ok(fi_cntr_set(counter, 5));
	assert_ok(fi_cntr_add(counter, 3));
	assert_int_equal(fi_cntr_read(counter), 8);
	assert_ok(fi_cntr_seterr(counter, 2));
	assert_ok(fi_cntr_adderr(counter, 1));
	assert_int_equal(fi_cntr_readerr(counter), 3);
	assert_int_equal(fi_cntr_read(counter), 8);
	assert_ok(fi_close(&counter->fid));
}

static void a_poll_set_names_members_with_events(void **state)
{
	struct fi_cntr_attr attr = { .wait_obj = FI_WAIT_UNSPEC };
	struct fi_poll_attr none = { 0 };
	char mine[] = "counter";
	struct fid_cntr *counter;
	struct fid_poll *set;
	void *who[4];

	(void)state;
	assert_ok(fi_cntr_open(s.domain, &attr, &counter, mine));
	assert_ok(fi_poll_open(s.domain, &none, &set));
	assert_ok(fi_poll_add(set, &counter->fid, 0));
	assert_ok(fi_poll_add(set, &s.rx->fid, 0));
	assert_int_equal(fi_poll(set, who, 4), 0);
	assert_ok(fi_cntr_add(counter, 1));
	assert_int_equal(fi_poll(set, who, 4), 1);
	assert_ptr_equal(who[0], mine);
	assert_int_equal(fi_poll(set, who, 4), 0); /* it was reported */
	assert_ok(fi_recv(s.ep, in, LEN, NULL, s.self, in));
	assert_ok(fi_inject(s.ep, out, 10, s.self));
	while (!fi_poll(set, who, 4))
		;
	assert_int_equal(end_of(s.rx, s.tx).len, 10);
	assert_ok(fi_poll_del(set, &counter->fid, 0));
	assert_int_equal(fi_poll_del(set, &counter->fid, 0), -FI_EINVAL);
	assert_ok(fi_cntr_add(counter, 1));
	assert_int_equal(fi_poll(set, who, 4), 0);
	assert_ok(fi_close(&set->fid)); /* with a member in it */
	assert_ok(fi_close(&counter->fid));
}

static void names_and_errors_have_a_text(void **state)
{
	char text[200], few[4];
	size_t len = sizeof(text);

	(void)state;
	assert_ptr_equal(fi_av_straddr(s.av, name, text, &len), text);
	assert_int_equal(strncmp(text, "pinion:", 7), 0);
	assert_int_equal(len, strlen(text) + 1);
	len = sizeof(few);
	fi_av_straddr(s.av, name, few, &len);
	assert_string_equal(few, "pin");
	assert_int_equal(len, strlen(text) + 1); /* the length that it needs */
	assert_string_equal(fi_cq_strerror(s.tx, FI_EINVAL, NULL, few, 4),
			    "Inv");
	assert_string_equal(fi_cq_strerror(s.tx, FI_EINVAL, NULL, NULL, 0),
			    fi_strerror(FI_EINVAL));
}

/* Several names at a time, each with its own error if FI_SYNC_ERR is set. */
static void av_insert_reports_the_error_of_each_name(void **state)
{
	enum { NAMES = 40, BAD = 3 };
	static char names[NAMES][NAME_BYTES];
	fi_addr_t addrs[NAMES];
	int errors[NAMES];

	(void)state;
	for (unsigned i = 0; i < NAMES; i++)
		memcpy(names[i], name, NAME_BYTES);
	memset(names[BAD], 0, NAME_BYTES);
	memset(errors, -1, sizeof(errors));
	assert_int_equal(fi_av_insert(s.av, names, NAMES, addrs, FI_SYNC_ERR,
				      errors),
			 NAMES - 1);
	for (unsigned i = 0; i < NAMES; i++) {
		assert_int_equal(errors[i], i == BAD ? FI_EINVAL : 0);
		assert_true((addrs[i] == FI_ADDR_NOTAVAIL) == (i == BAD));
	}
	/* All of them name this endpoint. */
	assert_ok(fi_recv(s.ep, in, LEN, NULL, FI_ADDR_UNSPEC, in));
	fill(out, LEN, 9);
	assert_ok(fi_send(s.ep, out, LEN, NULL, addrs[NAMES - 1], out));
	assert_came(9, in);
	assert_ptr_equal(end_of(s.tx, s.rx).op_context, out);
}

static void a_service_is_converted_to_text(void **state)
{
	struct fi_info *hints = hints_for(FI_MSG), *info;
	size_t len = 100;
	char text[100];

	(void)state;
	assert_ok(fi_getinfo(FI_VERSION(1, 17), "127.0.0.1", "forms", 0, hints,
			     &info));
	fi_av_straddr(s.av, info->dest_addr, text, &len);
	assert_string_equal(text, "pinion:service:forms");
	assert_int_equal(len, sizeof("pinion:service:forms"));
	fi_freeinfo(info);
	fi_freeinfo(hints);
}

static void hints_without_capabilities_mean_messages(void **state)
{
	struct fi_info *hints = hints_for(FI_SOURCE), *info;

	(void)state;
	assert_ok(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info));
	assert_true(info->caps & FI_SOURCE);
	assert_int_equal(info->caps & (FI_MSG | FI_TAGGED), FI_MSG | FI_TAGGED);
	assert_false(info->caps & FI_RMA);
	fi_freeinfo(info);
	fi_freeinfo(hints);
}

static void queues_of_every_format_open(void **state)
{
	static const enum fi_cq_format formats[] = { FI_CQ_FORMAT_CONTEXT,
						     FI_CQ_FORMAT_MSG,
						     FI_CQ_FORMAT_DATA,
						     FI_CQ_FORMAT_TAGGED };
	enum fi_wait_obj kind;

	(void)state;
	for (unsigned i = 0; i < PN_ARRAY_LEN(formats); i++) {
		struct fi_cq_attr attr = { .format = formats[i],
					   .wait_obj = i % 2 ? FI_WAIT_FD
							     : FI_WAIT_NONE };
		struct fid_cq *cq;

		assert_ok(fi_cq_open(s.domain, &attr, &cq, NULL));
		assert_ok(fi_control(&cq->fid, FI_GETWAITOBJ, &kind));
		assert_int_equal(kind, attr.wait_obj);
		assert_ok(fi_close(&cq->fid));
	}
}

static void an_endpoint_keeps_its_options(void **state)
{
	size_t value = 5000, len = sizeof(value);
	uint64_t flags = FI_TRANSMIT | FI_COMPLETION;

	(void)state;
	assert_ok(fi_setopt(&s.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV,
			    &value, len));
	value = 0;
	assert_ok(fi_getopt(&s.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV,
			    &value, &len));
	assert_int_equal(value, 5000);
	len = 2;
	assert_int_equal(fi_getopt(&s.ep->fid, FI_OPT_ENDPOINT,
				   FI_OPT_MIN_MULTI_RECV, &value, &len),
			 -FI_ETOOSMALL);
	assert_int_equal(fi_getopt(&s.ep->fid, FI_OPT_ENDPOINT, 77, &value,
				   &len),
			 -FI_ENOPROTOOPT);
	assert_ok(fi_control(&s.ep->fid, FI_SETOPSFLAG, &flags));
	flags = FI_TRANSMIT;
	assert_ok(fi_control(&s.ep->fid, FI_GETOPSFLAG, &flags));
	assert_int_equal(flags, FI_COMPLETION);
}

static void an_event_queue_has_a_descriptor(void **state)
{
	struct fi_eq_attr attr = { .flags = FI_WRITE, .wait_obj = FI_WAIT_FD };
	struct fi_eq_err_entry error;
	struct fid *fids[1];
	struct fid_eq *eq;
	void *ops;
	char few[4];
	int fd = -1;

	(void)state;
	assert_ok(fi_eq_open(s.fabric, &attr, &eq, NULL));
	assert_ok(fi_control(&eq->fid, FI_GETWAIT, &fd));
	assert_true(fd >= 0);
	fids[0] = &eq->fid;
	assert_ok(fi_trywait(s.fabric, fids, 1));
	assert_int_equal(fi_eq_readerr(eq, &error, 0), -FI_EAGAIN);
	assert_string_equal(fi_eq_strerror(eq, FI_EINVAL, NULL, few, 4), "Inv");
	assert_int_equal(fi_eq_write(eq, FI_NOTIFY, few, 4, 0), 4);
	assert_int_equal(fi_trywait(s.fabric, fids, 1), -FI_EAGAIN);
	assert_int_equal(fi_open_ops(&eq->fid, "none", 0, &ops, NULL),
			 -FI_ENOSYS);
	assert_ok(fi_domain_bind(s.domain, &eq->fid, 0));
	assert_ok(fi_close(&eq->fid)); /* with an event in it */
}

/* Calls for connected endpoints, scalable endpoints and wait sets. */
static void unsupported_calls_return_enosys(void **state)
{
	struct fi_wait_attr wait = { .wait_obj = FI_WAIT_FD };
	size_t len = sizeof(name);
	struct fid_wait *set;
	struct fid_ep *other;
	void *ops;

	(void)state;
	assert_int_equal(fi_open_ops(&s.domain->fid, "none", 0, &ops, NULL),
			 -FI_ENOSYS);
	assert_int_equal(fi_open_ops(&s.fabric->fid, "none", 0, &ops, NULL),
			 -FI_ENOSYS);
	assert_int_equal(fi_control(&s.fabric->fid, 999, NULL), -FI_ENOSYS);
	assert_int_equal(fi_av_bind(s.av, &s.tx->fid, 0), -FI_ENOSYS);
	assert_int_equal(fi_getpeer(s.ep, name, &len), -FI_ENOSYS);
	assert_int_equal(fi_setname(&s.ep->fid, name, len), -FI_ENOSYS);
	assert_int_equal(fi_accept(s.ep, NULL, 0), -FI_ENOSYS);
	assert_int_equal(fi_shutdown(s.ep, 0), -FI_ENOSYS);
	assert_int_equal(fi_tx_context(s.ep, 0, NULL, &other, NULL),
			 -FI_ENOSYS);
	assert_int_equal(fi_rx_context(s.ep, 0, NULL, &other, NULL),
			 -FI_ENOSYS);
	assert_int_equal(fi_wait_open(s.fabric, &wait, &set), -FI_ENOSYS);
	assert_int_equal(fi_av_insertsym(s.av, "node", 1, "1", 1, NULL, 0,
					 NULL),
			 -FI_ENOSYS);
}

/* One unsupported attribute at a time. */
static bool spoil(struct fi_info *hints, unsigned which)
{
	switch (which) {
	case 0:
		hints->tx_attr->caps = FI_COLLECTIVE;
		return true;
	case 1:
		hints->tx_attr->op_flags = FI_FENCE;
		return true;
	case 2:
		hints->rx_attr->caps = FI_COLLECTIVE;
		return true;
	case 3:
		hints->rx_attr->op_flags = FI_FENCE;
		return true;
	case 4:
		hints->rx_attr->comp_order = ORDER_STRICT;
		return true;
	case 5:
		hints->rx_attr->size = SIZE_MAX;
		return true;
	case 6:
		hints->ep_attr->protocol = FI_PROTO_PSMX;
		return true;
	case 7:
		hints->domain_attr->caps = FI_COLLECTIVE;
		return true;
	case 8:
		hints->fabric_attr->name = strdup("nowhere");
		return true;
	}
	return false;
}

static void attributes_beyond_the_limits_find_nothing(void **state)
{
	bool more = true;

	(void)state;
	for (unsigned i = 0; more; i++) {
		struct fi_info *hints = hints_for(FI_MSG), *found = NULL;

		more = spoil(hints, i);
		assert_int_equal(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0,
					    hints, &found),
				 more ? -FI_ENODATA : 0);
		fi_freeinfo(found);
		fi_freeinfo(hints);
	}
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, open_self, close_self)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(calls_with_one_iovec_work_like_buffers),
		CASE(remote_cq_data_arrives_with_the_message),
		CASE(queued_entries_are_read_with_their_source),
		CASE(a_claimed_message_may_be_discarded),
		CASE(repeated_empty_reads_return_without_polling),
		CASE(a_read_of_no_entries_makes_progress),
		CASE(a_read_that_finds_more_entries_polls_again),
		CASE(reads_and_writes_take_one_iovec),
		CASE(counters_are_set_and_added_to),
		CASE(a_poll_set_names_members_with_events),
		CASE(names_and_errors_have_a_text),
		CASE(av_insert_reports_the_error_of_each_name),
		CASE(a_service_is_converted_to_text),
		TEST(hints_without_capabilities_mean_messages),
		CASE(queues_of_every_format_open),
		CASE(an_endpoint_keeps_its_options),
		CASE(an_event_queue_has_a_descriptor),
		CASE(unsupported_calls_return_enosys),
		TEST(attributes_beyond_the_limits_find_nothing),
	};

	return RUN_TESTS(tests);
}
