/* SPDX-License-Identifier: BSD-2-Clause */
/* One process: registering, and moving bytes to oneself. */
#include "device/soft_util.h"

#include "device/soft/soft_impl.h"

#define PAGES 64
#define BYTES (PAGES * PN_PAGE_BYTES)

struct pair {
	struct pn_device *device;
	struct pn_peer *peer;
	char *from, *to;
	struct pn_mr from_mr, to_mr;
};

static void open_pair(struct pair *p, const char *spec)
{
	p->device = open_soft(spec);
	p->peer = loop_back(p->device);
	p->from = map_buffer(BYTES, 1);
	p->to = map_buffer(BYTES, 2);
	register_one(p->device, &p->from_mr, p->from, BYTES,
		     PINION_ACCESS_LOCAL_WRITE);
	register_one(p->device, &p->to_mr, p->to, BYTES, ALL);
}

static void close_pair(struct pair *p)
{
	pn_device_close(p->device);
	munmap(p->from, BYTES);
	munmap(p->to, BYTES);
}

static int put(struct pair *p, size_t from, size_t len, size_t to)
{
	struct pn_sge sge = { p->from + from, len, p->from_mr.lkey };

	return move_op(p->device, p->peer, PN_OP_WRITE, &sge,
		       (struct remote_range){ (uintptr_t)p->to + to,
					      p->to_mr.rkey });
}

static int get(struct pair *p, size_t to, size_t len, size_t from)
{
	struct pn_sge sge = { p->from + to, len, p->from_mr.lkey };

	return move_op(p->device, p->peer, PN_OP_READ, &sge,
		       (struct remote_range){ (uintptr_t)p->to + from,
					      p->to_mr.rkey });
}

static void fill(char *p, size_t len, uint64_t *seed)
{
	for (size_t i = 0; i < len; i++)
		p[i] = (char)test_random(seed);
}

/* Random puts and gets against a model of both buffers. */
static void random_moves(const char *spec, unsigned rounds)
{
	uint64_t seed = test_seed();
	char *from = malloc(BYTES), *to = malloc(BYTES);
	struct pair p;

	open_pair(&p, spec);
	for (unsigned i = 0; i < rounds; i++) {
		size_t len = test_below(&seed, i % 4 ? 9000 : BYTES);
		size_t a = test_below(&seed, BYTES - len + 1);
		size_t b = test_below(&seed, BYTES - len + 1);

		if (i % 16 == 0)
			fill(p.from, BYTES, &seed);
		memcpy(from, p.from, BYTES);
		memcpy(to, p.to, BYTES);
		if (i % 2) {
			assert_ok(put(&p, a, len, b));
			memcpy(to + b, from + a, len);
		} else {
			assert_ok(get(&p, a, len, b));
			memcpy(from + a, to + b, len);
		}
		assert_memory_equal(p.from, from, BYTES);
		assert_memory_equal(p.to, to, BYTES);
	}
	close_pair(&p);
	free(from);
	free(to);
}

static void puts_and_gets_move_exactly_the_bytes_asked_for(void **state)
{
	(void)state;
	random_moves("soft", 200);
	random_moves("soft:engine=thread,chunk=16K", 100);
	random_moves("soft:engine=inline", 100);
}

static void strict_mode_moves_the_same_bytes(void **state)
{
	(void)state;
	random_moves("soft:strict,chunk=64K", 100);
}

static void mlock_mode_moves_the_same_bytes(void **state)
{
	(void)state;
	random_moves("soft:mode=mlock", 100);
}

static void messages_arrive_in_order_with_their_bytes(void **state)
{
	struct pair p;
	uint64_t seed = test_seed();

	(void)state;
	open_pair(&p, "soft");
	for (uint32_t i = 0; i < 1000; i++) {
		size_t len = test_below(&seed, PN_SOFT_MAX_SEND + 1);
		struct pn_sge sge = { p.from, len, p.from_mr.lkey };
		struct pn_op op = { .kind = PN_OP_SEND,
				    .sge = &sge,
				    .nsge = 1,
				    .flags = PN_OP_SILENT,
				    .imm = i };
		struct pn_completion c;

		fill(p.from, len < 64 ? len : 64, &seed);
		assert_ok(pn_device_post(p.device, p.peer, &op));
		c = expect(p.device, PN_COMPLETION_RECV);
		assert_int_equal(c.imm, i);
		assert_int_equal(c.len, len);
		assert_memory_equal(c.data, p.from, len);
		pn_device_release(p.device, &c);
	}
	close_pair(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(puts_and_gets_move_exactly_the_bytes_asked_for),
		TEST(strict_mode_moves_the_same_bytes),
		TEST(mlock_mode_moves_the_same_bytes),
		TEST(messages_arrive_in_order_with_their_bytes),
	};

	return RUN_TESTS(tests);
}
