/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * FI_PROGRESS_AUTO: one side makes no libfabric call at all, it reads a pipe,
 * while the other completes RMA, atomics and long messages with it. Without
 * the progress thread the other side would wait for ever.
 */
#include "side.h"

#include "test.h"

#include <sys/uio.h>
#include <unistd.h>

#define TAG 7

static const struct setup setups[] = {
	{ .caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC,
	  .mr_mode = FI_MR_VIRT_ADDR | FI_MR_PROV_KEY,
	  .progress = FI_PROGRESS_AUTO },
	{ .caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC,
	  .mr_mode = FI_MR_VIRT_ADDR | FI_MR_PROV_KEY,
	  .progress = FI_PROGRESS_AUTO,
	  .threading = FI_THREAD_DOMAIN },
};

/* --- the side that computes ----------------------------------------------- */

static bool compute(struct side *s, struct window *mine)
{
	struct window none;
	char done;

	NEED(s->info->domain_attr->data_progress == FI_PROGRESS_AUTO);
	NEED(swap_bytes(s, mine, &none, sizeof(none)));
	NEED(read(s->pipe, &done, 1) == 1);
	return true;
}

static bool expose_and_compute(struct side *s)
{
	uint8_t *buf = calloc(1, LONG_BYTES);
	struct window mine = { .addr = (uintptr_t)buf };
	struct fid_mr *mr;

	NEED(!fi_mr_reg(s->domain, buf, LONG_BYTES, ACCESS, 0, 0, 0, &mr,
			NULL));
	mine.key = fi_mr_key(mr);
	NEED(compute(s, &mine));
	NEED(is_filled(buf + 8, LONG_BYTES - 8, 3));
	NEED(close_region(mr));
	free(buf);
	return true;
}

static bool receive_and_compute(struct side *s)
{
	uint8_t *buf = calloc(1, LONG_BYTES);
	struct fi_cq_tagged_entry end;
	struct window none = { 0 };

	NEED(!fi_trecv(s->ep, buf, LONG_BYTES, NULL, s->peer, TAG, 0, buf));
	NEED(compute(s, &none));
	/* It arrived without a call; the entry is in the queue. */
	NEED(is_filled(buf, LONG_BYTES, 5));
	NEED(next_entry(s->rx, &end) && end.op_context == buf);
	free(buf);
	return true;
}

/* --- the side that works -------------------------------------------------- */

static bool meet(struct side *s, struct window *w)
{
	struct window none = { 0 };

	return swap_bytes(s, &none, w, sizeof(*w));
}

static bool access_all(struct side *s)
{
	uint8_t *buf = malloc(LONG_BYTES), *back = malloc(LONG_BYTES);
	uint64_t one = 1, before = 9;
	struct fi_cq_tagged_entry end;
	struct window w;

	fill(buf, LONG_BYTES, 3);
	NEED(meet(s, &w));
	for (uint64_t i = 0; i < 5; i++) {
		NEED(!fi_write(s->ep, buf, LONG_BYTES - 8, NULL, s->peer,
			       w.addr + 8, w.key, buf));
		NEED(next_entry(s->tx, &end));
		NEED(!fi_read(s->ep, back, LONG_BYTES - 8, NULL, s->peer,
			      w.addr + 8, w.key, back));
		NEED(next_entry(s->tx, &end));
		NEED(is_filled(back, LONG_BYTES - 8, 3));
		NEED(!fi_fetch_atomic(s->ep, &one, 1, NULL, &before, NULL,
				      s->peer, w.addr, w.key, FI_UINT64, FI_SUM,
				      &one));
		NEED(next_entry(s->tx, &end) && before == i);
	}
	NEED(write(s->pipe, "", 1) == 1);
	free(buf);
	free(back);
	return true;
}

static bool send_long(struct side *s)
{
	uint8_t *buf = malloc(LONG_BYTES);
	struct iovec iov = { buf, LONG_BYTES };
	struct fi_msg_tagged m = { .msg_iov = &iov,
				   .iov_count = 1,
				   .addr = s->peer,
				   .tag = TAG,
				   .context = buf };
	struct fi_cq_tagged_entry end;
	struct window w;

	fill(buf, LONG_BYTES, 5);
	NEED(meet(s, &w));
	NEED(!fi_tsendmsg(s->ep, &m, FI_COMPLETION | FI_DELIVERY_COMPLETE));
	NEED(next_entry(s->tx, &end));
	NEED(write(s->pipe, "", 1) == 1);
	free(buf);
	return true;
}

/* --- tests ---------------------------------------------------------------- */

static void rma_and_atomics_end_while_their_target_computes(void **state)
{
	(void)state;
	for (size_t i = 0; i < PN_ARRAY_LEN(setups); i++)
		run_with(access_all, expose_and_compute, &setups[i]);
}

static void a_long_message_arrives_while_its_receiver_computes(void **state)
{
	struct setup directed;

	(void)state;
	for (size_t i = 0; i < PN_ARRAY_LEN(setups); i++) {
		directed = setups[i];
		directed.caps = FI_TAGGED | FI_DIRECTED_RECV;
		run_with(send_long, receive_and_compute, &directed);
	}
}

/* A thread sleeps for an entry that the progress thread writes. */
static bool receive_asleep(struct side *s)
{
	uint8_t *buf = calloc(1, LONG_BYTES);
	struct fi_cq_tagged_entry end;
	struct window none = { 0 }, theirs;

	NEED(!fi_trecv(s->ep, buf, LONG_BYTES, NULL, s->peer, TAG, 0, buf));
	NEED(swap_bytes(s, &none, &theirs, sizeof(none)));
	NEED(fi_cq_sread(s->rx, &end, 1, NULL, -1) == 1);
	NEED(end.op_context == buf && is_filled(buf, LONG_BYTES, 5));
	NEED(read(s->pipe, buf, 1) == 1);
	free(buf);
	return true;
}

static void a_thread_that_sleeps_is_woken_for_its_entry(void **state)
{
	struct setup directed;

	(void)state;
	for (size_t i = 0; i < PN_ARRAY_LEN(setups); i++) {
		directed = setups[i];
		directed.caps = FI_TAGGED | FI_DIRECTED_RECV;
		run_with(send_long, receive_asleep, &directed);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(rma_and_atomics_end_while_their_target_computes),
		TEST(a_long_message_arrives_while_its_receiver_computes),
		TEST(a_thread_that_sleeps_is_woken_for_its_entry),
	};

	return RUN_TESTS(tests);
}
