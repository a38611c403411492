/* SPDX-License-Identifier: BSD-2-Clause */
/* What programs other than Open MPI ask of a provider: hints, several segments,
 * wide CQ data, orders, and a transmit queue that fills. One endpoint sends to
 * itself, so that nothing moves unless the test polls. */
#include "test.h"

#include <rdma/fi_collective.h>
#include <rdma/fi_ext.h>

#include "device_calls.h"
#include "side.h"

#define LEN   6000 /* longer than the payload of a request */
#define SHORT 1500
#define WIDE  UINT64_C(0x0123456789abcdef)
#define ORDERS                                                             \
	(FI_ORDER_RAR | FI_ORDER_RAW | FI_ORDER_WAR | FI_ORDER_WAW |       \
	 FI_ORDER_SAW | FI_ORDER_WAS | FI_ORDER_SAS | FI_ORDER_RMA_WAW |   \
	 FI_ORDER_ATOMIC_WAW | FI_ORDER_ATOMIC_RAW | FI_ORDER_ATOMIC_RAR | \
	 FI_ORDER_ATOMIC_WAR | FI_ORDER_RMA_RAW | FI_ORDER_RMA_RAR |       \
	 FI_ORDER_RMA_WAR)
#define TX_SIZE 16

/* main() takes back the orders that keep the device from executing operations,
 * where PINION_RMA asks for it. */
static struct setup everything = {
	.caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_SOURCE,
	.mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY,
	.msg_order = ORDERS,
	.tx_size = TX_SIZE,
};

static struct side s;
static uint8_t out[LEN], in[LEN], window[2 * LEN], bufs[5][LEN];
static char name[NAME_BYTES];
static struct fid_mr *mr;
static uint64_t at, key;

static int open_self(void **state)
{
	size_t len = sizeof(name);

	(void)state;
	s = (struct side){ .setup = &everything };
	if (!open_side(&s) || fi_getname(&s.ep->fid, name, &len) ||
	    fi_av_insert(s.av, name, 1, &s.self, 0, NULL) != 1 ||
	    fi_mr_reg(s.domain, window, sizeof(window),
		      FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 0, 0, &mr, NULL))
		return -1;
	s.peer = s.self;
	at = (uintptr_t)window;
	key = fi_mr_key(mr);
	memset(window, 0, sizeof(window));
	memset(in, 0, sizeof(in));
	return 0;
}

static int close_self(void **state)
{
	(void)state;
	return close_region(mr) && close_side(&s) ? 0 : -1;
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

static void assert_sent(void *context)
{
	assert_ptr_equal(end_of(s.tx, s.rx).op_context, context);
}

static void assert_came(size_t len)
{
	assert_int_equal(end_of(s.rx, s.tx).len, len);
}

/* Cuts a buffer into three segments, one of them empty, and one more. */
static void cut(struct iovec iov[4], uint8_t *buf, size_t len)
{
	iov[0] = (struct iovec){ buf, 7 };
	iov[1] = (struct iovec){ buf + 7, 0 };
	iov[2] = (struct iovec){ buf + 7, len / 2 };
	iov[3] = (struct iovec){ buf + 7 + len / 2, len - 7 - len / 2 };
}

/* --- hints ---------------------------------------------------------------- */

static void hints_of_other_providers_are_accepted(void **state)
{
	struct fi_info *hints, *info;

	(void)state;
	hints = hints_for(FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC);
	hints->domain_attr->cq_data_size = 8;
	hints->tx_attr->iov_limit = hints->rx_attr->iov_limit = 4;
	hints->tx_attr->rma_iov_limit = 4;
	hints->tx_attr->inject_size = 256;
	hints->tx_attr->size = 1024;
	hints->tx_attr->msg_order = hints->rx_attr->msg_order = ORDERS;
	/* The version of the library, whatever the provider was built with. */
	assert_ok(fi_getinfo(fi_version(), NULL, NULL, 0, hints, &info));
	assert_int_equal(info->domain_attr->cq_data_size, 8);
	assert_true(info->tx_attr->iov_limit >= 4);
	assert_true(info->rx_attr->iov_limit >= 4);
	assert_true(info->tx_attr->rma_iov_limit >= 4);
	assert_true(info->tx_attr->inject_size >= 256);
	assert_int_equal(info->tx_attr->size, 1024);
	assert_int_equal(info->tx_attr->msg_order, ORDERS);
	assert_true(info->ep_attr->max_order_raw_size >= SHORT);
	assert_true(info->ep_attr->max_order_waw_size >= SHORT);
	assert_true(info->ep_attr->max_order_war_size >= SHORT);
	fi_freeinfo(info);
	/* No order is promised that was not asked for. */
	hints->tx_attr->msg_order = hints->rx_attr->msg_order = 0;
	assert_ok(fi_getinfo(fi_version(), NULL, NULL, 0, hints, &info));
	assert_int_equal(info->tx_attr->msg_order, FI_ORDER_SAS);
	assert_int_equal(info->ep_attr->max_order_raw_size, 0);
	fi_freeinfo(info);
	fi_freeinfo(hints);
}

static void collective_calls_return_enosys(void **state)
{
	struct fid_mc *group;

	(void)state;
	assert_int_equal(fi_barrier(s.ep, 0, NULL), -FI_ENOSYS);
	assert_int_equal(fi_barrier2(s.ep, 0, 1, NULL), -FI_ENOSYS);
	assert_int_equal(fi_broadcast(s.ep, in, 1, NULL, 0, 0, FI_UINT8, 0,
				      NULL),
			 -FI_ENOSYS);
	assert_int_equal(fi_allreduce(s.ep, in, 1, NULL, out, NULL, 0, FI_UINT8,
				      FI_SUM, 0, NULL),
			 -FI_ENOSYS);
	assert_int_equal(fi_gather(s.ep, in, 1, NULL, out, NULL, 0, 0, FI_UINT8,
				   0, NULL),
			 -FI_ENOSYS);
	assert_int_equal(fi_query_collective(s.domain, FI_BARRIER, NULL, 0),
			 -FI_ENOSYS);
	assert_true(fi_join(s.ep, name, 0, &group, NULL) < 0);
}

/* --- CQ data -------------------------------------------------------------- */

static void cq_data_of_8_bytes_arrives(void **state)
{
	static const size_t lens[] = { 0, 64, LEN };
	struct fi_cq_tagged_entry end;

	(void)state;
	for (size_t i = 0; i < PN_ARRAY_LEN(lens); i++) {
		assert_ok(fi_recv(s.ep, in, LEN, NULL, s.self, in));
		assert_ok(fi_senddata(s.ep, out, lens[i], NULL, WIDE + i,
				      s.self, out));
		assert_true(end_of(s.rx, s.tx).data == WIDE + i);
		assert_sent(out);
		assert_ok(fi_tsenddata(s.ep, out, lens[i], NULL, WIDE - i,
				       s.self, ~UINT64_C(0), out));
		assert_ok(fi_trecv(s.ep, in, LEN, NULL, s.self, ~UINT64_C(0), 0,
				   in));
		end = end_of(s.rx, s.tx);
		assert_true(end.data == WIDE - i && end.tag == ~UINT64_C(0));
		assert_sent(out);
		assert_ok(fi_writedata(s.ep, out, lens[i], NULL, ~WIDE, s.self,
				       at, key, out));
		assert_true(end_of(s.rx, s.tx).data == ~WIDE);
		assert_sent(out);
	}
	assert_ok(fi_recv(s.ep, in, LEN, NULL, s.self, in));
	assert_ok(fi_injectdata(s.ep, out, 8, WIDE, s.self));
	assert_true(end_of(s.rx, s.tx).data == WIDE);
}

static void cq_data_travels_without_segments(void **state)
{
	const struct fi_msg message = { .addr = s.self,
					.context = out,
					.data = WIDE };
	const struct fi_msg_rma write = { .addr = s.self,
					  .context = out,
					  .data = WIDE };
	struct fi_cq_tagged_entry end;

	(void)state;
	assert_ok(fi_writemsg(s.ep, &write, FI_REMOTE_CQ_DATA | FI_COMPLETION));
	end = end_of(s.rx, s.tx);
	assert_true(end.data == WIDE && !end.len &&
		    end.flags & FI_REMOTE_WRITE);
	assert_sent(out);
	assert_int_equal(fi_readmsg(s.ep, &write, 0), -FI_EINVAL);
	assert_ok(fi_recv(s.ep, in, LEN, NULL, s.self, in));
	assert_ok(
		fi_sendmsg(s.ep, &message, FI_REMOTE_CQ_DATA | FI_COMPLETION));
	end = end_of(s.rx, s.tx);
	assert_true(end.data == WIDE && !end.len);
	assert_sent(out);
}

/* --- segments ------------------------------------------------------------- */

static void messages_of_several_segments_arrive(void **state)
{
	static const size_t lens[] = { 100, SHORT, LEN };
	struct iovec from[4], to[4];

	(void)state;
	for (unsigned i = 0; i < PN_ARRAY_LEN(lens); i++) {
		fill(out, LEN, i);
		memset(in, 0, LEN);
		cut(from, out, lens[i]);
		cut(to, in, lens[i]);
		assert_ok(fi_recvv(s.ep, to, NULL, 4, s.self, in));
		assert_ok(fi_sendv(s.ep, from, NULL, 4, s.self, out));
		assert_came(lens[i]);
		assert_sent(out);
		assert_true(is_filled(in, lens[i], i));
		/* The other way round, and before the receive. */
		memset(in, 0, LEN);
		assert_ok(fi_tsendv(s.ep, from, NULL, 4, s.self, 5, out));
		assert_ok(fi_trecvv(s.ep, to, NULL, 4, s.self, 5, 0, in));
		assert_came(lens[i]);
		assert_sent(out);
		assert_true(is_filled(in, lens[i], i));
	}
	assert_int_equal(fi_sendv(s.ep, from, NULL, 5, s.self, out),
			 -FI_EINVAL);
	assert_int_equal(fi_recvv(s.ep, to, NULL, 5, s.self, in), -FI_EINVAL);
}

static void a_message_longer_than_all_segments_is_truncated(void **state)
{
	struct fi_cq_err_entry error = { .err_data_size = 99 };
	struct iovec to[4];

	(void)state;
	fill(out, LEN, 9);
	cut(to, in, SHORT);
	assert_ok(fi_recvv(s.ep, to, NULL, 4, s.self, in));
	assert_ok(fi_send(s.ep, out, LEN, NULL, s.self, out));
	assert_true(next_error(s.rx, &error));
	assert_int_equal(error.err, FI_ETRUNC);
	assert_int_equal(error.olen, LEN - SHORT);
	assert_int_equal(error.err_data_size, 0); /* bytes that were copied */
	assert_true(is_filled(in, SHORT, 9) && !in[SHORT]);
	assert_sent(out);
}

/* A receive of several segments that is cancelled writes nothing. */
static void a_receive_of_several_segments_can_be_cancelled(void **state)
{
	struct fi_cq_err_entry error = { 0 };
	struct iovec to[4];

	(void)state;
	cut(to, in, SHORT);
	assert_ok(fi_recvv(s.ep, to, NULL, 4, s.self, in));
	assert_ok(fi_cancel(&s.ep->fid, in));
	assert_true(next_error(s.rx, &error));
	assert_int_equal(error.err, FI_ECANCELED);
	assert_true(!in[0]);
}

/* Four local and three remote segments; the last remote one lies apart. */
static void move(size_t len, unsigned seed, uint64_t flags)
{
	struct iovec local[4];
	struct fi_rma_iov remote[3] = {
		{ at, 3, key },
		{ at + 3, len - 503, key },
		{ at + LEN, 500, key },
	};
	struct fi_msg_rma m = { .msg_iov = local,
				.iov_count = 4,
				.addr = s.self,
				.rma_iov = remote,
				.rma_iov_count = 3,
				.context = out,
				.data = WIDE };

	fill(out, len, seed);
	cut(local, out, len);
	assert_ok(fi_writemsg(s.ep, &m, flags | FI_COMPLETION));
	if (flags & FI_REMOTE_CQ_DATA) {
		struct fi_cq_tagged_entry end = end_of(s.rx, s.tx);

		assert_true(end.data == WIDE && end.len == len);
	}
	assert_sent(out);
	assert_memory_equal(window, out, len - 500);
	assert_memory_equal(window + LEN, out + len - 500, 500);
	memset(in, 0, LEN);
	cut(local, in, len);
	assert_ok(fi_readmsg(s.ep, &m, FI_COMPLETION));
	assert_sent(out);
	assert_true(is_filled(in, len, seed));
}

static void reads_and_writes_have_several_segments(void **state)
{
	struct fi_rma_iov remote[2] = { { at, 5, key }, { at, 5, ~key } };
	struct iovec local = { out, 10 };
	struct fi_msg_rma m = { .msg_iov = &local,
				.iov_count = 1,
				.addr = s.self,
				.rma_iov = remote,
				.rma_iov_count = 2,
				.context = out };
	struct fi_cq_err_entry error = { 0 };
	struct iovec five[5] = { { out, 1 } };

	(void)state;
	move(SHORT, 1, 0);
	move(LEN, 2, 0);
	move(SHORT, 3, FI_REMOTE_CQ_DATA);
	move(LEN, 4, FI_REMOTE_CQ_DATA);
	/* One bad key refuses all of it. */
	memset(window, 0, 5);
	memset(out, 1, 5);
	assert_ok(fi_writemsg(s.ep, &m, FI_COMPLETION));
	assert_true(next_error(s.tx, &error));
	assert_int_equal(error.err, FI_EACCES);
	assert_true(!window[0]);
	remote[1].len = 6; /* more than the local segments have */
	assert_int_equal(fi_writemsg(s.ep, &m, FI_COMPLETION), -FI_EINVAL);
	assert_int_equal(fi_readv(s.ep, five, NULL, 5, s.self, at, key, in),
			 -FI_EINVAL);
	m.rma_iov_count = 5;
	assert_int_equal(fi_writemsg(s.ep, &m, FI_COMPLETION), -FI_EINVAL);
}

static void atomics_have_several_segments(void **state)
{
	uint64_t *cells = (uint64_t *)(void *)window;
	uint64_t operands[4] = { 1, 2, 3, 4 }, old[4] = { 0 };
	struct fi_ioc from[2] = { { operands, 1 }, { operands + 1, 3 } };
	struct fi_ioc to[2] = { { old, 3 }, { old + 3, 1 } };
	struct fi_rma_ioc target[2] = { { at, 2, key }, { at + 800, 2, key } };
	struct fi_msg_atomic m = { .msg_iov = from,
				   .iov_count = 2,
				   .addr = s.self,
				   .rma_iov = target,
				   .rma_iov_count = 2,
				   .datatype = FI_UINT64,
				   .op = FI_SUM,
				   .context = out };

	(void)state;
	cells[0] = cells[1] = cells[100] = cells[101] = 10;
	assert_ok(fi_atomicmsg(s.ep, &m, FI_COMPLETION));
	assert_sent(out);
	assert_true(cells[0] == 11 && cells[1] == 12 && cells[100] == 13 &&
		    cells[101] == 14);
	assert_ok(fi_fetch_atomicmsg(s.ep, &m, to, NULL, 2, FI_COMPLETION));
	assert_sent(out);
	assert_true(old[0] == 11 && old[1] == 12 && old[2] == 13 &&
		    old[3] == 14 && cells[101] == 18);
	m.op = FI_CSWAP;
	operands[0] = 77;
	old[0] = 12; /* to compare with: only the first one is there */
	assert_ok(fi_compare_atomicmsg(s.ep, &m, to, NULL, 2, to, NULL, 2,
				       FI_COMPLETION));
	assert_sent(out);
	assert_true(cells[0] == 77 && cells[1] == 14 && old[1] == 14);
	to[1].count = 2; /* more than the target's values */
	assert_int_equal(fi_fetch_atomicmsg(s.ep, &m, to, NULL, 2, 0),
			 -FI_EINVAL);
}

static void writes_of_256_bytes_are_injected(void **state)
{
	struct fi_cq_tagged_entry end;

	(void)state;
	fill(out, 256, 8);
	assert_ok(fi_inject_write(s.ep, out, 256, s.self, at, key));
	memset(out, 0, 256); /* the buffer may be reused at once */
	while (!is_filled(window, 256, 8))
		fi_cq_read(s.rx, &end, 0);
	assert_int_equal(fi_inject_write(s.ep, out, 257, s.self, at, key),
			 -FI_EINVAL);
	assert_ok(fi_recv(s.ep, in, LEN, NULL, s.self, in));
	fill(out, 256, 7);
	assert_ok(fi_inject(s.ep, out, 256, s.self));
	memset(out, 0, 256);
	assert_came(256);
	assert_true(is_filled(in, 256, 7));
}

/* --- counters, regions, sources ------------------------------------------- */

static void counters_bound_to_an_enabled_endpoint_count(void **state)
{
	struct fi_cntr_attr attr = { .wait_obj = FI_WAIT_UNSPEC };
	struct fid_cntr *counter;

	(void)state;
	assert_ok(fi_cntr_open(s.domain, &attr, &counter, NULL));
	assert_ok(fi_ep_bind(s.ep, &counter->fid, FI_WRITE));
	assert_int_equal(fi_ep_bind(s.ep, &counter->fid, FI_WRITE), -FI_EINVAL);
	for (int i = 0; i < 3; i++) {
		assert_ok(fi_write(s.ep, out, 8, NULL, s.self, at, key, out));
		assert_sent(out);
	}
	assert_int_equal(fi_cntr_read(counter), 3);
	assert_int_equal(fi_close(&counter->fid), -FI_EBUSY);
	assert_ok(fi_close(&s.ep->fid));
	assert_ok(fi_close(&counter->fid));
	/* For close_self(). */
	assert_ok(fi_endpoint(s.domain, s.info, &s.ep, NULL));
	assert_ok(fi_ep_bind(s.ep, &s.av->fid, 0));
	assert_ok(fi_ep_bind(s.ep, &s.tx->fid, FI_TRANSMIT));
	assert_ok(fi_ep_bind(s.ep, &s.rx->fid, FI_RECV));
}

/* Without FI_HMEM the kind of memory is not looked at. */
static void the_kind_of_memory_is_ignored(void **state)
{
	struct iovec iov = { window, 8 };
	struct fi_mr_attr attr = { .mr_iov = &iov,
				   .iov_count = 1,
				   .access = FI_REMOTE_READ,
				   .iface = FI_HMEM_CUDA };
	struct fid_mr *other;

	(void)state;
	assert_ok(fi_mr_regattr(s.domain, &attr, 0, &other));
	assert_ok(fi_close(&other->fid));
}

#define KEYS 100

/* A peer that was not told a key could try others. */
static void keys_cannot_be_guessed(void **state)
{
	struct fid_mr *mrs[KEYS];
	uint64_t keys[2 * KEYS];

	(void)state;
	for (unsigned i = 0; i < 2 * KEYS; i++) {
		/* In the second half those of the first have ended. */
		if (i >= KEYS)
			assert_ok(fi_close(&mrs[i - KEYS]->fid));
		assert_ok(fi_mr_reg(s.domain, window, 8, FI_REMOTE_READ, 0, 0,
				    0, &mrs[i % KEYS], NULL));
		keys[i] = fi_mr_key(mrs[i % KEYS]);
		assert_true(keys[i] > UINT64_C(1) << 32);
		for (unsigned j = 0; j < i; j++)
			assert_true(keys[i] - keys[j] + (1 << 20) > 1 << 21);
	}
	for (unsigned i = 0; i < KEYS; i++)
		assert_ok(fi_close(&mrs[i]->fid));
}

static fi_addr_t source_of_next(void)
{
	struct fi_cq_tagged_entry end;
	fi_addr_t from = 0;
	ssize_t n;

	assert_ok(fi_recv(s.ep, in, LEN, NULL, FI_ADDR_UNSPEC, in));
	assert_ok(fi_inject(s.ep, out, 8, s.self));
	while ((n = fi_cq_readfrom(s.rx, &end, 1, &from)) == -FI_EAGAIN)
		;
	assert_int_equal(n, 1);
	return from;
}

/* Other names share the prefix; the own name is there several times. */
static void a_source_is_found_among_many_addresses(void **state)
{
	enum { NAMES = 4000 };
	static char names[NAMES][NAME_BYTES];
	static fi_addr_t addrs[NAMES];
	fi_addr_t first = s.self;

	(void)state;
	for (int i = 0; i < NAMES; i++) {
		memcpy(names[i], name, NAME_BYTES);
		if (i % 1000)
			memcpy(names[i] + 20, &i, sizeof(i));
	}
	assert_int_equal(fi_av_insert(s.av, names, NAMES, addrs, 0, NULL),
			 NAMES);
	assert_int_equal(source_of_next(), s.self);
	assert_int_equal(source_of_next(), s.self);
	s.self = addrs[0];
	assert_int_equal(source_of_next(), first); /* the lowest number */
	assert_ok(fi_av_remove(s.av, &first, 1, 0));
	assert_int_equal(source_of_next(), addrs[0]);
	s.self = addrs[1000];
	assert_ok(fi_av_remove(s.av, addrs, 1000, 0));
	assert_int_equal(source_of_next(), addrs[1000]);
}

/* --- orders --------------------------------------------------------------- */

/* Nothing is waited for between the operations. */
static void short_operations_take_effect_in_order(void **state)
{
	uint64_t one = 1, seen = 0, value;
	uint8_t second[SHORT];

	(void)state;
	for (unsigned i = 0; i < 200; i++) {
		fill(out, SHORT, i);
		fill(second, SHORT, i + 1);
		memset(in, 0, SHORT);
		value = i;
		assert_ok(fi_write(s.ep, out, SHORT, NULL, s.self, at, key,
				   out)); /* WAW, RAW, WAR */
		assert_ok(fi_write(s.ep, second, SHORT, NULL, s.self, at, key,
				   out));
		assert_ok(fi_read(s.ep, in, SHORT, NULL, s.self, at, key, out));
		assert_ok(
			fi_write(s.ep, &value, 8, NULL, s.self, at, key, out));
		assert_ok(fi_atomic(s.ep, &one, 1, NULL, s.self, at, key,
				    FI_UINT64, FI_SUM, out));
		assert_ok(fi_read(s.ep, &seen, 8, NULL, s.self, at, key, out));
		for (int n = 0; n < 6; n++)
			assert_sent(out);
		assert_true(is_filled(in, SHORT, i + 1));
		assert_int_equal(seen, i + 1);
	}
}

/* A send behind a long write is refused until the write has ended, so that the
 * receiver of the message finds the data. */
static void a_send_waits_for_a_long_write(void **state)
{
	unsigned refused = 0, before = ndevice_calls;
	ssize_t ret;

	(void)state;
	for (int i = 0; i < 3; i++) {
		assert_ok(fi_write(s.ep, out, LEN, NULL, s.self, at, key, out));
		assert_sent(out);
	}
	fill(out, LEN, 3);
	assert_ok(fi_recv(s.ep, in, LEN, NULL, s.self, in));
	assert_ok(fi_write(s.ep, out, LEN, NULL, s.self, at, key, out));
	while ((ret = fi_send(s.ep, out, 8, NULL, s.self, in)) == -FI_EAGAIN) {
		refused++;
		assert_int_equal(fi_inject(s.ep, out, 8, s.self), -FI_EAGAIN);
		fi_cq_read(s.rx, NULL, 0);
	}
	assert_ok(ret);
	assert_true(refused);
	assert_true(device_was_used_since(before));
	assert_came(8);
	assert_true(is_filled(window, LEN, 3));
	assert_sent(out);
	assert_sent(in);
}

/* The first uses of a region are requests. */
static void operations_go_as_the_option_says(void **state)
{
	unsigned before = ndevice_calls;

	(void)state;
	for (unsigned i = 0; i < 10; i++) {
		fill(out, LEN, i);
		assert_ok(fi_write(s.ep, out, LEN, NULL, s.self, at, key, out));
		assert_sent(out);
		memset(in, 0, LEN);
		assert_ok(fi_read(s.ep, in, LEN, NULL, s.self, at, key, in));
		assert_sent(in);
		assert_true(is_filled(in, LEN, i));
	}
	assert_true(device_was_used_since(before));
}

/* --- the transmit queue --------------------------------------------------- */

static void a_full_transmit_queue_refuses_operations(void **state)
{
	static uint8_t copies[TX_SIZE][LEN];
	struct fi_cq_tagged_entry end;

	(void)state;
	for (int i = 0; i < TX_SIZE; i++)
		assert_ok(fi_read(s.ep, copies[i], LEN, NULL, s.self, at, key,
				  copies[i]));
	assert_int_equal(fi_read(s.ep, in, 1, NULL, s.self, at, key, in),
			 -FI_EAGAIN);
	assert_int_equal(fi_write(s.ep, in, 1, NULL, s.self, at, key, in),
			 -FI_EAGAIN);
	/* What is received needs no place in it. */
	assert_ok(fi_recv(s.ep, in, LEN, NULL, s.self, in));
	assert_sent(copies[0]);
	assert_ok(fi_read(s.ep, in, 1, NULL, s.self, at, key, in));
	for (int i = 1; i < TX_SIZE; i++)
		assert_sent(copies[i]);
	assert_sent(in);
	assert_int_equal(fi_cq_read(s.tx, &end, 1), -FI_EAGAIN);
}

/* Messages that leave in the call take no place, but a peer that never polls
 * has room for a bounded number only. */
static void a_peer_that_never_polls_takes_a_bounded_number(void **state)
{
	enum { MAX = 1000000 };
	struct fi_cq_tagged_entry end;
	unsigned sent = 0;
	ssize_t ret;

	(void)state;
	while (!(ret = fi_inject(s.ep, out, 256, s.self)) && sent < MAX)
		sent++;
	assert_int_equal(ret, -FI_EAGAIN);
	assert_true(sent >= TX_SIZE && sent < MAX);
	for (unsigned i = 0; i < sent; i++) {
		assert_ok(fi_recv(s.ep, in, LEN, NULL, s.self, in));
		assert_came(256);
	}
	assert_int_equal(fi_cq_read(s.rx, &end, 1), -FI_EAGAIN);
	assert_ok(fi_inject(s.ep, out, 256, s.self));
}

/* A peer that polls but posts no receives keeps a bounded amount: then sends
 * wait, the transmit queue fills, and nothing is lost or changes its order. */
static void assert_sends_are_refused(const size_t *lens, unsigned nlens)
{
	enum { MAX = 10000, OFTEN = 1000, KEPT = 64 << 10, OVERHEAD = 192 };
	struct fi_cq_tagged_entry end;
	unsigned sent = 0, ended = 0, refused = 0;
	size_t sum = 0;

	while (refused < OFTEN) {
		ssize_t ret =
			fi_tsend(s.ep, bufs[sent % nlens], lens[sent % nlens],
				 NULL, s.self, sent, bufs[sent % nlens]);

		assert_true(!ret || ret == -FI_EAGAIN);
		refused = ret ? refused + 1 : 0;
		sum += ret ? 0 : lens[sent % nlens] + OVERHEAD;
		sent += !ret;
		assert_true(sent < MAX);
		ended += fi_cq_read(s.tx, &end, 1) == 1;
		fi_cq_read(s.rx, NULL, 0);
	}
	assert_true(sent - ended == TX_SIZE);
	assert_true(sum <= KEPT + TX_SIZE * (LEN + OVERHEAD));
	for (unsigned i = 0; i < sent; i++) {
		assert_ok(fi_trecv(s.ep, in, LEN, NULL, s.self, 0, ~UINT64_C(0),
				   in));
		end = end_of(s.rx, s.tx);
		assert_int_equal(end.tag, i);
		assert_int_equal(end.len, lens[i % nlens]);
		assert_true(is_filled(in, end.len, i % nlens));
	}
	for (; ended < sent; ended++)
		end_of(s.tx, s.rx);
	assert_int_equal(fi_cq_read(s.rx, &end, 1), -FI_EAGAIN);
}

static void a_peer_that_posts_nothing_keeps_a_bounded_amount(void **state)
{
	static const size_t lens[] = { 0, 8, 200, 3000, LEN };

	(void)state;
	for (unsigned i = 0; i < PN_ARRAY_LEN(lens); i++) {
		fill(bufs[0], LEN, 0);
		assert_sends_are_refused(&lens[i], 1);
	}
	for (unsigned i = 0; i < PN_ARRAY_LEN(lens); i++)
		fill(bufs[i], LEN, (int)i);
	assert_sends_are_refused(lens, PN_ARRAY_LEN(lens));
	assert_ok(fi_inject(s.ep, out, 8, s.self));
	assert_ok(fi_recv(s.ep, in, LEN, NULL, s.self, in));
	assert_came(8);
}

static int open_limited(void **state)
{
	setenv("PINION_UNEXPECTED_LIMIT", "64K", 1);
	return open_self(state);
}

static int close_limited(void **state)
{
	unsetenv("PINION_UNEXPECTED_LIMIT");
	return close_self(state);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, open_self, close_self)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(hints_of_other_providers_are_accepted),
		CASE(collective_calls_return_enosys),
		CASE(cq_data_of_8_bytes_arrives),
		CASE(cq_data_travels_without_segments),
		CASE(messages_of_several_segments_arrive),
		CASE(a_message_longer_than_all_segments_is_truncated),
		CASE(a_receive_of_several_segments_can_be_cancelled),
		CASE(reads_and_writes_have_several_segments),
		CASE(atomics_have_several_segments),
		CASE(writes_of_256_bytes_are_injected),
		CASE(counters_bound_to_an_enabled_endpoint_count),
		CASE(the_kind_of_memory_is_ignored),
		CASE(keys_cannot_be_guessed),
		CASE(a_source_is_found_among_many_addresses),
		CASE(short_operations_take_effect_in_order),
		CASE(operations_go_as_the_option_says),
		CASE(a_send_waits_for_a_long_write),
		CASE(a_full_transmit_queue_refuses_operations),
		CASE(a_peer_that_never_polls_takes_a_bounded_number),
		cmocka_unit_test_setup_teardown(
			a_peer_that_posts_nothing_keeps_a_bounded_amount,
			open_limited, close_limited),
	};

	if (rma_is("device"))
		everything.msg_order &=
			~(uint64_t)(FI_ORDER_RAS | FI_ORDER_WAS);
	return RUN_TESTS(tests);
}
