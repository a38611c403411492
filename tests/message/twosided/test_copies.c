/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * No byte is copied, and no range registered, more often than the protocol
 * says. A device that wraps `sim` counts, at both ends of one message, bytes
 * through pn_copy() and PN_OP_INLINE, ranges registered and bytes posted.
 */
#include "test.h"

#include "message/connection/wire.h"
#include "message/party.h"

#define LEN	 ((size_t)300000)
#define SMALL	 ((size_t)1500)
#define FRAGMENT ((size_t)64 << 10)
#define OFFSET	 ((size_t)20000)
#define MATCH	 ((size_t)1000)

struct counts {
	size_t copied;	/* payload, by pn_copy() */
	size_t inlined; /* bytes that post() took, heads apart */
	size_t written, read;
	unsigned registrations;
};

/* One for each rank. */
struct counter {
	struct pn_device *device;
	const struct pn_device_ops *inner;
	struct pn_device_ops ops;
	struct counts counts;
};

static struct counter counters[2];

static struct counter *counter_of(const struct pn_device *device)
{
	return &counters[device == counters[1].device];
}

static void count_copy(struct pn_device *device, void *dst, const void *src,
		       size_t len)
{
	counter_of(device)->counts.copied += len;
	counter_of(device)->inner->copy(device, dst, src, len);
}

static int count_register(struct pn_device *device, struct pn_mr *const *mrs,
			  unsigned n)
{
	counter_of(device)->counts.registrations += n;
	return counter_of(device)->inner->reg(device, mrs, n);
}

static void count_op(struct counts *counts, const struct pn_op *op)
{
	size_t bytes = 0;

	for (unsigned i = 0; i < op->nsge; i++)
		bytes += op->sge[i].len;
	if (op->kind == PN_OP_WRITE)
		counts->written += bytes;
	else if (op->kind == PN_OP_READ)
		counts->read += bytes;
	else if (op->flags & PN_OP_INLINE && op->nsge > 1)
		counts->inlined += bytes - sizeof(struct pn_wire);
}

static int count_post(struct pn_device *device, struct pn_peer *peer,
		      const struct pn_op *op)
{
	int ret = counter_of(device)->inner->post(device, peer, op);

	if (!ret)
		count_op(&counter_of(device)->counts, op);
	return ret;
}

/* Puts the counter between the rank and its device. */
static void interpose(struct rank *rank)
{
	struct counter *c = &counters[rank->rank];

	*c = (struct counter){ .device = rank->device,
			       .inner = rank->device->ops,
			       .ops = *rank->device->ops };
	c->ops.copy = count_copy;
	c->ops.reg = count_register;
	c->ops.post = count_post;
	rank->device->ops = &c->ops;
}

/* --- one message ---------------------------------------------------------- */

struct game {
	int protocol;
	size_t len;
	struct counts counts[2]; /* of sender and receiver */
};

/* The second message, so that the caches have what they keep. */
static void play(struct rank *rank)
{
	static const struct pn_protocol_limits limits = {
		.eager_bytes = 2000,
		.match_bytes = MATCH,
		.rdma_offset = OFFSET,
		.fragment_bytes = FRAGMENT,
		.segment_bytes = FRAGMENT,
		.depth = 3,
	};
	struct game *game = rank->arg;
	struct party_attr attr = { .protocol = game->protocol,
				   .limits = limits };
	size_t room = (game->len / FRAGMENT + 1) * FRAGMENT;
	uint8_t *buf = aligned_alloc(FRAGMENT, room);
	struct party party;

	RANK_CHECK(rank, buf);
	if (!party_open(&party, rank, &attr))
		return;
	for (unsigned i = 0; i < 2; i++) {
		party_barrier(&party);
		interpose(rank);
		if (!rank->rank)
			pattern_fill(buf, game->len, i);
		RANK_CHECK(rank, !(rank->rank ? party_recv(&party, 0, buf,
							   game->len, i)
					      : party_send(&party, 1, buf,
							   game->len, i)));
		party_barrier(&party);
		rank->device->ops = counters[rank->rank].inner;
		RANK_CHECK(rank, pattern_holds(buf, game->len, i));
	}
	game->counts[rank->rank] = counters[rank->rank].counts;
	party_close(&party);
	free(buf);
}

static struct game play_one(int protocol, size_t len)
{
	struct game game = { .protocol = protocol, .len = len };
	struct ranks run = { .how = "sim",
			     .spec = "sim:cost=cx5",
			     .nranks = 2,
			     .fn = play,
			     .arg = &game };

	assert_true(ranks_run(&run));
	return game;
}

/* Copies of payload at either end, of any kind, and bytes by RDMA. */
static void assert_moved(const struct game *game, size_t copied, size_t written,
			 size_t read)
{
	const struct counts *s = &game->counts[0], *r = &game->counts[1];

	assert_int_equal(s->copied + s->inlined, copied);
	assert_int_equal(r->copied, copied);
	assert_int_equal(s->written, written);
	assert_int_equal(r->read, read);
	assert_int_equal(s->read + r->written, 0);
}

static void assert_registered(const struct game *game, unsigned sender,
			      unsigned receiver)
{
	assert_int_equal(game->counts[0].registrations, sender);
	assert_int_equal(game->counts[1].registrations, receiver);
}

static void eager_copies_once_at_each_end(void **state)
{
	struct game game = play_one(PN_PROTOCOL_EAGER, SMALL);

	(void)state;
	assert_moved(&game, SMALL, 0, 0);
	assert_registered(&game, 0, 0);
}

static void copy_copies_once_at_each_end(void **state)
{
	struct game game = play_one(PN_PROTOCOL_COPY, LEN);

	(void)state;
	assert_moved(&game, LEN, 0, 0);
	assert_registered(&game, 0, 0);
}

static void demand_copies_what_comes_with_the_match(void **state)
{
	struct game game = play_one(PN_PROTOCOL_DEMAND, LEN);

	(void)state;
	assert_moved(&game, MATCH, LEN - MATCH, 0);
	assert_registered(&game, 1, 1);
}

static void cached_registers_nothing_again(void **state)
{
	struct game game = play_one(PN_PROTOCOL_CACHED, LEN);

	(void)state;
	assert_moved(&game, MATCH, LEN - MATCH, 0);
	assert_registered(&game, 0, 0);
}

static void pipeline_copies_up_to_the_offset(void **state)
{
	struct game game = play_one(PN_PROTOCOL_PIPELINE, LEN);
	unsigned n = (LEN - OFFSET + FRAGMENT - 1) / FRAGMENT;

	(void)state;
	assert_moved(&game, OFFSET, LEN - OFFSET, 0);
	assert_registered(&game, n, n);
}

static void caching_pipeline_registers_nothing_again(void **state)
{
	struct game game = play_one(PN_PROTOCOL_CACHING_PIPELINE, LEN);

	(void)state;
	assert_moved(&game, OFFSET, LEN - OFFSET, 0);
	assert_registered(&game, 0, 0);
}

static void read_copies_only_the_keys(void **state)
{
	struct game game = play_one(PN_PROTOCOL_READ, LEN);

	(void)state;
	/* The sender sends one key. */
	assert_int_equal(game.counts[0].inlined, sizeof(struct pn_wire_key));
	game.counts[0].inlined = 0;
	assert_moved(&game, 0, 0, LEN);
	assert_registered(&game, 0, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(eager_copies_once_at_each_end),
		TEST(copy_copies_once_at_each_end),
		TEST(demand_copies_what_comes_with_the_match),
		TEST(cached_registers_nothing_again),
		TEST(pipeline_copies_up_to_the_offset),
		TEST(caching_pipeline_registers_nothing_again),
		TEST(read_copies_only_the_keys),
	};

	return RUN_TESTS(tests);
}
