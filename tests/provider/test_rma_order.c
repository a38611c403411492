/* SPDX-License-Identifier: BSD-2-Clause */
/* Orders of one-sided operations and messages. The parent reads and writes the
 * memory of the child, the target, then sends messages. PINION_RMA says which
 * operations the device executes. */
#include "test.h"

#include <unistd.h>

#include "device_calls.h"
#include "side.h"

#define CAPS	   (FI_RMA | FI_MSG)
#define MAX_WRITES 1100
#define READ_BYTES ((size_t)1 << 20)

/* --- sends behind short writes -------------------------------------------- */

/* What the initiator does before the target polls. */
static const struct {
	unsigned messages, writes; /* writes before each message */
} shapes[] = { { 1, 20 }, { 1, 100 }, { 60, 2 }, { 60, 17 } };

static uint64_t slots[MAX_WRITES], heard[60];

static bool write_slot(struct side *s, const struct window *w, uint64_t i)
{
	uint64_t value = i + 1;

	NEED(!fi_inject_write(s->ep, &value, 8, s->peer, w->addr + 8 * i,
			      w->key));
	return true;
}

static bool write_then_send(struct side *s)
{
	unsigned shape = (unsigned)s->setup->seed, writes = 0;
	struct fi_cq_tagged_entry end;
	uint64_t none = 0;
	struct window w;
	char go = 1;

	NEED(get_window(s, &w));
	NEED(!fi_write(s->ep, &none, 8, NULL, s->peer, w.addr, w.key, NULL));
	NEED(next_entry(s->tx, &end) && sync_up(s));
	for (unsigned m = 0; m < shapes[shape].messages; m++) {
		for (unsigned i = 0; i < shapes[shape].writes; i++)
			NEED(write_slot(s, &w, writes++));
		NEED(!fi_inject(s->ep, &none, 8, s->peer));
	}
	NEED(write(s->pipe, &go, 1) == 1);
	return sync_up(s);
}

/* A message that has completed came behind its writes. */
static bool hear(struct side *s)
{
	unsigned shape = (unsigned)s->setup->seed, writes = 0;
	struct fi_cq_tagged_entry end;

	for (unsigned m = 0; m < shapes[shape].messages; m++) {
		NEED(next_entry(s->rx, &end) && end.op_context == &heard[m]);
		writes += shapes[shape].writes;
		for (unsigned i = 0; i < writes; i++)
			NEED(slots[i] == i + 1);
	}
	return true;
}

static bool poll_late(struct side *s)
{
	unsigned shape = (unsigned)s->setup->seed;
	struct window mine, none;
	struct fid_mr *mr;
	char go;

	NEED(register_region(s,
			     (struct region){ slots, sizeof(slots), ACCESS, 1 },
			     &mr));
	for (unsigned m = 0; m < shapes[shape].messages; m++)
		NEED(!fi_recv(s->ep, &heard[m], 8, NULL, s->peer, &heard[m]));
	mine = window_of(s, slots, mr);
	NEED(swap_bytes(s, &mine, &none, sizeof(mine)) && sync_up(s));
	NEED(read(s->pipe, &go, 1) == 1 && hear(s));
	NEED(sync_up(s) && close_region(mr));
	return true;
}

static void messages_complete_behind_the_writes_before_them(void **state)
{
	(void)state;
	for (unsigned i = 0; i < PN_ARRAY_LEN(shapes); i++)
		run_with(write_then_send, poll_late,
			 &(struct setup){ .caps = CAPS | FI_DIRECTED_RECV,
					  .msg_order = FI_ORDER_SAW,
					  .seed = i });
}

/* --- writes of all lengths that have an order ------------------------------
 */

#define ORDERED_BYTES 2048
#define NORDERED      8

/* A short write behind a long one to the same bytes, then a message. */
static bool write_twice(struct side *s)
{
	uint8_t *buf = malloc(ORDERED_BYTES), head[8];
	struct fi_cq_tagged_entry end;
	struct window w;

	memset(head, 255, sizeof(head));
	fill(buf, ORDERED_BYTES, 1);
	NEED(get_window(s, &w));
	for (int i = 0; i < NORDERED; i++) {
		NEED(!fi_write(s->ep, buf, ORDERED_BYTES, NULL, s->peer, w.addr,
			       w.key, buf));
		NEED(!fi_inject_write(s->ep, head, sizeof(head), s->peer,
				      w.addr, w.key));
		w.addr += ORDERED_BYTES;
	}
	NEED(!fi_inject(s->ep, head, sizeof(head), s->peer));
	for (int i = 0; i < NORDERED; i++)
		NEED(next_entry(s->tx, &end));
	free(buf);
	return sync_up(s);
}

static bool see_writes(struct side *s)
{
	uint8_t *buf = calloc(NORDERED, ORDERED_BYTES), head[8], want[8];
	struct fi_cq_tagged_entry end;
	struct window mine, none;
	struct fid_mr *mr;

	memset(want, 255, sizeof(want));
	NEED(register_region(s,
			     (struct region){ buf, NORDERED * ORDERED_BYTES,
					      ACCESS, 1 },
			     &mr));
	NEED(!fi_recv(s->ep, head, 8, NULL, FI_ADDR_UNSPEC, NULL));
	mine = window_of(s, buf, mr);
	NEED(swap_bytes(s, &mine, &none, sizeof(mine)));
	NEED(next_entry(s->rx, &end));
	for (int i = 0; i < NORDERED; i++) {
		uint8_t *at = buf + (size_t)i * ORDERED_BYTES;

		NEED(!memcmp(at, want, sizeof(want)));
		fill(at, sizeof(want), 1);
		NEED(is_filled(at, ORDERED_BYTES, 1));
	}
	NEED(sync_up(s) && close_region(mr));
	free(buf);
	return true;
}

static void writes_keep_their_order_with_any_eager_limit(void **state)
{
	static const char *const limits[] = { "0", "1K", "16K" };

	(void)state;
	/* Others send 4 KiB with the first packet. */
	setenv("PINION_PROTOCOL", "read", 1);
	for (unsigned i = 0; i < PN_ARRAY_LEN(limits); i++) {
		setenv("PINION_EAGER_LIMIT", limits[i], 1);
		run_with(write_twice, see_writes,
			 &(struct setup){ .caps = CAPS,
					  .msg_order = FI_ORDER_SAW |
						       FI_ORDER_WAW });
	}
	unsetenv("PINION_EAGER_LIMIT");
	unsetenv("PINION_PROTOCOL");
}

/* --- writes of both ways ---------------------------------------------------
 */

#define ROUNDS	    60
#define PER_ROUND   6
#define AREA	    ((size_t)8 << 10)
#define ROUND_BYTES (PER_ROUND * AREA)

/* What the n-th write of all leaves in its area: longer ones may go by the
 * device, shorter ones are requests. */
static size_t len_of(unsigned n)
{
	static const size_t lens[] = { 8000, 8, 2048, 4096, 100, 2049, 6000 };

	return lens[n % PN_ARRAY_LEN(lens)];
}

/* Writes area n; a short one twice, of which the second counts. */
static bool write_area(struct side *s, const struct window *w, unsigned n,
		       uint8_t *bufs)
{
	uint64_t at = w->addr + n * AREA;
	size_t len = len_of(n);
	uint8_t *buf = bufs + n * AREA;
	int twice = len <= 2048;

	for (int i = 0; i <= twice; i++) {
		ssize_t ret;

		fill(buf + i * AREA / 2, len, n + 1 + (unsigned)(twice - i));
		while ((ret = fi_write(s->ep, buf + i * AREA / 2, len, NULL,
				       s->peer, at, w->key, buf)) == -FI_EAGAIN)
			fi_cq_read(s->rx, NULL, 0);
		NEED(!ret);
	}
	return true;
}

static bool drain(struct side *s, unsigned *nended)
{
	struct fi_cq_tagged_entry ends[16];
	ssize_t n = fi_cq_read(s->tx, ends, PN_ARRAY_LEN(ends));

	NEED(n > 0 || n == -FI_EAGAIN);
	*nended += n > 0 ? (unsigned)n : 0;
	return true;
}

static unsigned nwrites(void)
{
	unsigned n = 0;

	for (unsigned i = 0; i < ROUNDS * PER_ROUND; i++)
		n += len_of(i) <= 2048 ? 2 : 1;
	return n;
}

/* A message behind the writes of each round, without a wait for any. */
static bool write_both_ways(struct side *s)
{
	uint8_t *bufs = malloc(ROUNDS * ROUND_BYTES);
	unsigned before = ndevice_calls, nended = 0;
	struct window w;
	ssize_t ret;

	NEED(get_window(s, &w));
	for (uint32_t round = 0; round < ROUNDS; round++) {
		for (unsigned i = 0; i < PER_ROUND; i++)
			NEED(write_area(s, &w, round * PER_ROUND + i, bufs));
		while ((ret = fi_inject(s->ep, &round, sizeof(round),
					s->peer)) == -FI_EAGAIN)
			NEED(drain(s, &nended));
		NEED(!ret);
	}
	while (nended < nwrites())
		NEED(drain(s, &nended));
	NEED(device_was_used_since(before));
	free(bufs);
	return sync_up(s);
}

static bool is_round_whole(const uint8_t *buf, unsigned round)
{
	for (unsigned n = round * PER_ROUND; n < (round + 1) * PER_ROUND; n++)
		NEED(is_filled(buf + n * AREA, len_of(n), n + 1));
	return true;
}

static bool hear_both_ways(struct side *s)
{
	uint8_t *buf = calloc(ROUNDS, ROUND_BYTES);
	struct fi_cq_tagged_entry end;
	static uint32_t heard_round;
	struct window mine, none;
	struct fid_mr *mr;

	NEED(register_region(s,
			     (struct region){ buf, ROUNDS * ROUND_BYTES, ACCESS,
					      1 },
			     &mr));
	mine = window_of(s, buf, mr);
	NEED(swap_bytes(s, &mine, &none, sizeof(mine)));
	for (uint32_t round = 0; round < ROUNDS; round++) {
		NEED(!fi_recv(s->ep, &heard_round, sizeof(heard_round), NULL,
			      FI_ADDR_UNSPEC, NULL));
		NEED(next_entry(s->rx, &end) && heard_round == round);
		NEED(is_round_whole(buf, round));
	}
	NEED(sync_up(s) && close_region(mr));
	free(buf);
	return true;
}

static void messages_complete_behind_writes_of_both_ways(void **state)
{
	static const struct setup setup = { .caps = CAPS,
					    .msg_order = FI_ORDER_SAW |
							 FI_ORDER_WAW |
							 FI_ORDER_SAS };

	(void)state;
	run_with(write_both_ways, hear_both_ways, &setup);
}

/* --- sends behind long reads ---------------------------------------------- */

/* With FI_ORDER_SAR a message is not sent before the read has ended. */
static bool read_then_send(struct side *s)
{
	uint8_t *buf = malloc(READ_BYTES), byte = 1;
	struct fi_cq_tagged_entry end;
	bool waits = s->setup->msg_order & FI_ORDER_SAR;
	unsigned before = 0;
	struct window w;
	ssize_t ret;

	NEED(get_window(s, &w));
	/* The first ones are requests. */
	for (int i = 0; i < 4; i++) {
		before = ndevice_calls;
		NEED(!fi_read(s->ep, buf, READ_BYTES, NULL, s->peer, w.addr,
			      w.key, buf));
		NEED(i == 3 ||
		     (next_entry(s->tx, &end) && end.op_context == buf));
	}
	NEED(device_was_used_since(before));
	ret = fi_inject(s->ep, &byte, 1, s->peer);
	NEED(ret == (waits ? -FI_EAGAIN : 0));
	NEED(next_entry(s->tx, &end) && end.op_context == buf);
	NEED(!waits || !fi_inject(s->ep, &byte, 1, s->peer));
	NEED(!waits || is_filled(buf, READ_BYTES, 3));
	free(buf);
	return sync_up(s);
}

static bool overwrite_when_told(struct side *s)
{
	uint8_t *buf = malloc(READ_BYTES), byte;
	struct fi_cq_tagged_entry end;
	struct window mine, none;
	struct fid_mr *mr;

	fill(buf, READ_BYTES, 3);
	NEED(register_region(s, (struct region){ buf, READ_BYTES, ACCESS, 1 },
			     &mr));
	NEED(!fi_recv(s->ep, &byte, 1, NULL, FI_ADDR_UNSPEC, NULL));
	mine = window_of(s, buf, mr);
	NEED(swap_bytes(s, &mine, &none, sizeof(mine)));
	NEED(next_entry(s->rx, &end));
	memset(buf, 9, READ_BYTES);
	NEED(sync_up(s) && close_region(mr));
	free(buf);
	return true;
}

static void sends_wait_for_long_reads_if_that_order_was_asked_for(void **state)
{
	const struct setup setups[] = {
		{ .caps = CAPS, .msg_order = FI_ORDER_SAR },
		{ .caps = CAPS },
	};

	(void)state;
	for (size_t i = 0; i < PN_ARRAY_LEN(setups); i++)
		run_with(read_then_send, overwrite_when_told, &setups[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(messages_complete_behind_the_writes_before_them),
		TEST(writes_keep_their_order_with_any_eager_limit),
		TEST(messages_complete_behind_writes_of_both_ways),
		TEST(sends_wait_for_long_reads_if_that_order_was_asked_for),
	};

	return RUN_TESTS(tests);
}
