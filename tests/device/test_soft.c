/* SPDX-License-Identifier: BSD-2-Clause */
/* One process: registering, and moving bytes to itself. */
#include "device/soft_util.h"

#include <poll.h>
#include <pthread.h>

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

static void a_single_threaded_device_does_the_same(void **state)
{
	struct pn_device_attr attr = { .single_threaded = true,
				       .pages = { .numa_node = -1 } };
	struct pn_device *device;
	struct pn_peer *peer;
	struct pn_mr mr;
	char *memory = map_buffer(2 * BYTES, 1);

	(void)state;
	assert_ok(pn_device_open("soft:inline_max=4K", &attr, &device));
	peer = loop_back(device);
	register_one(device, &mr, memory, 2 * BYTES, ALL);
	for (unsigned i = 0; i < 100; i++) {
		size_t len = i % 2 ? BYTES : 100;
		struct pn_sge sge = { memory, len, mr.lkey };

		memset(memory, (int)i, len);
		assert_ok(
			move_op(device, peer, PN_OP_WRITE, &sge,
				(struct remote_range){
					(uintptr_t)memory + BYTES, mr.rkey }));
		assert_memory_equal(memory, memory + BYTES, len);
	}
	pn_device_close(device);
	munmap(memory, 2 * BYTES);
}

struct poster {
	struct pair *pair;
	unsigned failures;
};

/* Posts without ever polling. */
static void *post_often(void *arg)
{
	struct poster *poster = arg;
	struct pair *p = poster->pair;

	for (unsigned i = 0; i < 500; i++) {
		struct pn_sge sge = { p->from, i % 10 ? 64 : 30000,
				      p->from_mr.lkey };
		struct pn_op op = { .kind = i % 3 ? PN_OP_WRITE : PN_OP_SEND,
				    .sge = &sge,
				    .nsge = 1,
				    .remote_addr = (uintptr_t)p->to,
				    .rkey = p->to_mr.rkey };
		int ret;

		if (op.kind == PN_OP_SEND)
			sge.len = 100;
		while ((ret = pn_device_post(p->device, p->peer, &op)) ==
		       -EAGAIN)
			usleep(100);
		poster->failures += ret != 0;
	}
	return NULL;
}

static void threads_post_while_one_polls(void **state)
{
	enum { N = 3 };
	struct poster posters[N];
	pthread_t threads[N];
	unsigned ops = 0, messages = 0;
	struct pair p;

	(void)state;
	open_pair(&p, "soft:inline_max=8K,queue_depth=64");
	for (unsigned i = 0; i < N; i++) {
		posters[i] = (struct poster){ .pair = &p };
		pthread_create(&threads[i], NULL, post_often, &posters[i]);
	}
	while (ops < N * 500 || messages < N * 167) {
		struct pn_completion c = next_completion(p.device);

		assert_ok(c.status);
		ops += c.kind == PN_COMPLETION_OP;
		messages += c.kind == PN_COMPLETION_RECV;
		pn_device_return_buffer(p.device, &c);
	}
	for (unsigned i = 0; i < N; i++) {
		pthread_join(threads[i], NULL);
		assert_int_equal(posters[i].failures, 0);
	}
	close_pair(&p);
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
		pn_device_return_buffer(p.device, &c);
	}
	close_pair(&p);
}

/* --- the channel alone, against a list of what was put -------------------- */

#define CHANNEL_RING PN_SOFT_MIN_RING
#define MAX_RECORDS  4096

struct channel {
	struct pn_soft_tx tx;
	struct pn_soft_rx rx;
	uint64_t random;
	size_t lens[MAX_RECORDS]; /* by number, modulo */
	unsigned put, taken, refused, switches;
	unsigned in_place;	   /* records that were taken in place */
	void *leases[MAX_RECORDS]; /* taken, not consumed */
	unsigned nleases;
};

/* Mostly small; sometimes too long for the short ring. */
static size_t some_length(struct channel *c)
{
	return test_below(&c->random,
			  c->put / 500 % 2 ? 100 : PN_SOFT_MAX_SEND);
}

/* Every second record has an immediate. */
static uint32_t imm_of(unsigned number)
{
	return number % 2 ? number : 0;
}

static void put_one(struct channel *c)
{
	static char bytes[PN_SOFT_MAX_SEND];
	size_t len = some_length(c);
	struct pn_sge sge = { bytes, len, 0 };
	struct pn_soft_cells *before = c->tx.ring;

	if (c->put - c->taken == MAX_RECORDS || !pn_soft_tx_room(&c->tx, len)) {
		c->refused++;
		return;
	}
	memset(bytes, (int)c->put, len);
	c->lens[c->put % MAX_RECORDS] = len;
	pn_soft_tx_put(&c->tx,
		       &(struct pn_soft_record_attr){ .kind = PN_SOFT_SEND,
						      .imm = imm_of(c->put),
						      .sge = &sge,
						      .nsge = 1,
						      .len = len });
	c->put++;
	c->switches += c->tx.ring != before;
}

static void check_record(struct channel *c, const char *data, size_t len)
{
	assert_int_equal(len, c->lens[c->taken % MAX_RECORDS]);
	for (size_t i = 0; i < len; i++)
		assert_int_equal(data[i], (char)c->taken);
	c->taken++;
}

/* Takes a record in place, which is possible only without an immediate. */
static bool take_in_place(struct channel *c)
{
	const void *data;
	size_t len;

	if (!pn_soft_rx_ready(&c->rx))
		return false;
	data = pn_soft_rx_peek(&c->rx, &len);
	if (!data)
		return false;
	assert_false(imm_of(c->taken));
	check_record(c, data, len);
	pn_soft_rx_consume_next(&c->rx, len);
	c->in_place++;
	return true;
}

static void take_one(struct channel *c)
{
	struct pn_soft_message m;

	if (test_below(&c->random, 2) && take_in_place(c))
		return;

	if (c->nleases == MAX_RECORDS || !pn_soft_rx_ready(&c->rx) ||
	    !pn_soft_rx_take(&c->rx, &m)) {
		pn_soft_rx_return_pending(&c->rx);
		return;
	}
	assert_int_equal(m.imm, imm_of(c->taken));
	check_record(c, m.data, m.len);
	c->leases[c->nleases++] = m.lease;
}

static void release_one(struct channel *c)
{
	size_t i;

	if (!c->nleases)
		return;
	i = test_below(&c->random, c->nleases);
	pn_soft_rx_consumed(&c->rx, c->leases[i]);
	c->leases[i] = c->leases[--c->nleases];
}

static void records_come_in_order_from_both_rings(void **state)
{
	size_t bytes = pn_soft_channel_bytes(CHANNEL_RING);
	struct channel *c = calloc(1, sizeof(*c));
	void *memory = aligned_alloc(PN_CACHELINE, bytes);

	(void)state;
	assert_true(c && memory);
	memset(memory, 0, bytes);
	c->random = test_seed();
	pn_soft_tx_init(&c->tx, memory, CHANNEL_RING);
	assert_ok(pn_soft_rx_init(&c->rx, memory, CHANNEL_RING));
	for (unsigned i = 0; i < 200000; i++) {
		/* The producer and the consumer are the faster side in turns.
		 */
		if (test_below(&c->random, 10) < (i / 3000 % 2 ? 3 : 5)) {
			put_one(c);
		} else {
			take_one(c);
			release_one(c);
		}
	}
	while (c->taken != c->put)
		take_one(c);
	while (c->nleases)
		release_one(c);
	pn_soft_rx_return_pending(&c->rx);
	assert_true(c->refused && c->switches > 20 && c->in_place);
	for (unsigned r = 0; r < PN_SOFT_NRINGS; r++)
		assert_int_equal(c->rx.rings[r].head, c->tx.rings[r].at);
	pn_soft_rx_fini(&c->rx);
	free(memory);
	free(c);
}

/* Wherever an empty ring begins, which is at every cell in turn. */
static void the_longest_record_fits_into_the_smallest_ring(void **state)
{
	size_t bytes = pn_soft_channel_bytes(PN_SOFT_MIN_RING);
	static char longest[PN_SOFT_MAX_SEND];
	void *memory = aligned_alloc(PN_CACHELINE, bytes);
	struct pn_soft_message m = { 0 };
	struct pn_soft_tx tx;
	struct pn_soft_rx rx;

	(void)state;
	assert_non_null(memory);
	memset(memory, 0, bytes);
	pn_soft_tx_init(&tx, memory, PN_SOFT_MIN_RING);
	assert_ok(pn_soft_rx_init(&rx, memory, PN_SOFT_MIN_RING));
	for (unsigned i = 0; i < 4 * PN_SOFT_MIN_RING / PN_SOFT_CELL; i++) {
		size_t len = i % 2 ? 1 : PN_SOFT_MAX_SEND;
		struct pn_sge sge = { longest, len, 0 };

		assert_true(pn_soft_tx_room(&tx, len));
		pn_soft_tx_put(&tx, &(struct pn_soft_record_attr){
					    .kind = PN_SOFT_SEND,
					    .sge = &sge,
					    .nsge = 1,
					    .len = len });
		assert_true(pn_soft_rx_ready(&rx) && pn_soft_rx_take(&rx, &m));
		assert_int_equal(m.len, len);
		pn_soft_rx_consumed(&rx, m.lease);
		pn_soft_rx_return_pending(&rx);
	}
	pn_soft_rx_fini(&rx);
	free(memory);
}

static void full_channel_refuses_and_loses_nothing(void **state)
{
	struct pn_completion c[256];
	unsigned sent = 0, seen = 0, refused = 0;
	struct pair p;

	(void)state;
	open_pair(&p, "soft:ring_bytes=64K,queue_depth=1000");
	while (seen < 500) {
		struct pn_sge sge = { p.from, 1000, p.from_mr.lkey };
		struct pn_op op = { .kind = PN_OP_SEND,
				    .flags = PN_OP_SILENT,
				    .sge = &sge,
				    .nsge = 1,
				    .imm = sent };
		int ret = pn_device_post(p.device, p.peer, &op);
		int n;

		if (!ret) {
			sent++;
			continue;
		}
		assert_int_equal(ret, -EAGAIN);
		refused++;
		n = pn_device_poll(p.device, c, PN_ARRAY_LEN(c));
		/* The newest first: any order is allowed. */
		for (int i = 0; i < n; i++)
			assert_int_equal(c[i].imm, seen++);
		while (n-- > 0)
			pn_device_return_buffer(p.device, &c[n]);
	}
	assert_true(refused > 0);
	while (pn_device_poll(p.device, c, 1))
		pn_device_return_buffer(p.device, c), seen++;
	assert_int_equal(seen, sent);
	close_pair(&p);
}

/* A receive handler that takes messages which begin with an even number. */
struct even_handler {
	struct pn_receive_handler handler;
	struct pn_peer *from;
	unsigned seen; /* messages so far, lent ones included */
	unsigned taken;
};

static bool receive_even(struct pn_receive_handler *handler,
			 struct pn_peer *peer, const void *data, size_t len)
{
	struct even_handler *t = (struct even_handler *)handler;
	uint64_t number;

	assert_ptr_equal(peer, t->from);
	assert_int_equal(len, sizeof(struct pn_inline_header) + 3);
	memcpy(&number, data, sizeof(number));
	if (number % 2)
		return false;
	assert_int_equal(number, t->seen);
	t->seen++;
	t->taken++;
	return true;
}

/* Lent messages were sent before those that the handler is offered next. */
static void see_all(struct pair *p, struct even_handler *t, unsigned sent)
{
	struct pn_completion c[8];

	while (t->seen < sent) {
		int n = pn_device_poll(p->device, c, PN_ARRAY_LEN(c));

		for (int i = 0; i < n; i++) {
			assert_int_equal(c[i].kind, PN_COMPLETION_RECV);
			assert_int_equal(*(const uint64_t *)c[i].data, t->seen);
			t->seen++;
			pn_device_return_buffer(p->device, &c[i]);
		}
	}
}

static void messages_handled_in_place_keep_their_order(void **state)
{
	struct even_handler t = { .handler = { .receive = receive_even } };
	struct pair p;
	unsigned sent = 0;

	(void)state;
	open_pair(&p, "soft");
	t.from = p.peer;
	p.device->single_threaded = true;
	p.device->receive_handler = &t.handler;
	for (unsigned burst = 1; burst < 100; burst++) {
		for (unsigned i = 0; i < burst; i++, sent++) {
			struct pn_inline_header head = { { sent } };

			assert_ok(pn_device_send_inline(p.device, p.peer, &head,
							"abc", 3));
		}
		see_all(&p, &t, sent);
	}
	assert_true(t.taken > 20 && t.taken < sent);
	p.device->receive_handler = NULL;
	p.device->single_threaded = false;
	close_pair(&p);
}

#define ROOM 3

/* Has room for so many messages a poll. */
struct small_handler {
	struct pn_receive_handler handler;
	unsigned taken, room;
};

static bool receive_while_room(struct pn_receive_handler *handler,
			       struct pn_peer *peer, const void *data,
			       size_t len)
{
	struct small_handler *t =
		pn_container_of(handler, struct small_handler, handler);

	(void)peer, (void)data, (void)len;
	if (!t->room)
		return false;
	t->taken++;
	handler->is_full = !--t->room;
	return true;
}

static void a_full_handler_leaves_messages_to_the_next_poll(void **state)
{
	struct small_handler t = { .handler = { .receive =
							receive_while_room } };
	const struct pn_inline_header head = { { 0 } };
	struct pn_completion c[8];
	struct pair p;
	unsigned most = 0;

	(void)state;
	open_pair(&p, "soft");
	p.device->single_threaded = true;
	p.device->receive_handler = &t.handler;
	for (unsigned i = 0; i < 20; i++)
		assert_ok(pn_device_send_inline(p.device, p.peer, &head, "abc",
						3));
	while (t.taken < 20) {
		unsigned before = t.taken;

		t.room = ROOM;
		t.handler.is_full = false;
		assert_int_equal(pn_device_poll(p.device, c, PN_ARRAY_LEN(c)),
				 0);
		if (t.taken - before > most)
			most = t.taken - before;
	}
	assert_int_equal(most, ROOM);
	p.device->receive_handler = NULL;
	p.device->single_threaded = false;
	close_pair(&p);
}

static void a_send_behind_a_queued_write_sees_its_bytes(void **state)
{
	struct pair p;

	(void)state;
	open_pair(&p, "soft:engine=thread,chunk=16K");
	for (int round = 0; round < 50; round++) {
		struct pn_sge sge = { p.from, BYTES, p.from_mr.lkey };
		struct pn_op write = { .kind = PN_OP_WRITE,
				       .flags = PN_OP_SILENT,
				       .sge = &sge,
				       .nsge = 1,
				       .remote_addr = (uintptr_t)p.to,
				       .rkey = p.to_mr.rkey };
		struct pn_op send = { .kind = PN_OP_SEND,
				      .flags = PN_OP_SILENT | PN_OP_INLINE };
		struct pn_completion c;

		memset(p.from, round, BYTES);
		assert_ok(pn_device_post(p.device, p.peer, &write));
		assert_ok(pn_device_post(p.device, p.peer, &send));
		c = expect(p.device, PN_COMPLETION_RECV);
		assert_memory_equal(p.to, p.from, BYTES);
		pn_device_return_buffer(p.device, &c);
	}
	close_pair(&p);
}

/* How many inline sends of len bytes are accepted behind a queued write. */
static unsigned sends_behind_a_write(struct pair *p, size_t len, unsigned most)
{
	struct pn_sge sge = { p->from, BYTES, p->from_mr.lkey };
	struct pn_op op = { .kind = PN_OP_WRITE,
			    .sge = &sge,
			    .nsge = 1,
			    .remote_addr = (uintptr_t)p->to,
			    .rkey = p->to_mr.rkey };
	unsigned n = 0, ops = 0, messages = 0;

	assert_ok(pn_device_post(p->device, p->peer, &op));
	op = (struct pn_op){ .kind = PN_OP_SEND,
			     .sge = &sge,
			     .nsge = 1,
			     .flags = PN_OP_INLINE };
	sge.len = len;
	while (n < most && !pn_device_post(p->device, p->peer, &op))
		n++;
	while (ops < n + 1 || messages < n) {
		struct pn_completion c = next_completion(p->device);

		assert_ok(c.status);
		ops += c.kind == PN_COMPLETION_OP;
		messages += c.kind == PN_COMPLETION_RECV;
		pn_device_return_buffer(p->device, &c);
	}
	return n;
}

/* What is copied for the queue is bounded; when the queue is empty, sends go
 * again. An operation counts as queued until it is polled. */
static void few_long_sends_are_copied_behind_a_write(void **state)
{
	struct pair p;

	(void)state;
	open_pair(&p, "soft:inline_max=4K,engine=thread");
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(sends_behind_a_write(&p, 4096, 8), 4);
		assert_int_equal(sends_behind_a_write(&p, 64, 8), 8);
	}
	close_pair(&p);
}

static void write_with_immediate_notifies_after_its_bytes(void **state)
{
	static const size_t sizes[] = { 0, 8, 5000, BYTES };
	struct pair p;

	(void)state;
	open_pair(&p, "soft:inline_max=4K");
	for (unsigned i = 0; i < PN_ARRAY_LEN(sizes); i++) {
		struct pn_sge sge = { p.from, sizes[i], p.from_mr.lkey };
		struct pn_op op = { .kind = PN_OP_WRITE,
				    .flags = PN_OP_SILENT | PN_OP_IMM,
				    .imm = 77 + i,
				    .sge = &sge,
				    .nsge = 1,
				    .remote_addr = (uintptr_t)p.to,
				    .rkey = p.to_mr.rkey };
		struct pn_completion c;

		memset(p.from, 'a' + (int)i, BYTES);
		assert_ok(pn_device_post(p.device, p.peer, &op));
		c = expect(p.device, PN_COMPLETION_IMM);
		assert_int_equal(c.imm, 77 + i);
		assert_int_equal(c.len, sizes[i]);
		assert_memory_equal(p.to, p.from, sizes[i]);
	}
	close_pair(&p);
}

static void a_refused_write_notifies_nobody(void **state)
{
	struct pn_completion c;
	struct pair p;

	(void)state;
	open_pair(&p, "soft");
	for (size_t len = 8; len <= BYTES; len *= 512) {
		struct pn_sge sge = { p.from, len, p.from_mr.lkey };
		struct pn_op op = { .kind = PN_OP_WRITE,
				    .flags = PN_OP_IMM,
				    .sge = &sge,
				    .nsge = 1,
				    .remote_addr = (uintptr_t)p.to,
				    .rkey = p.to_mr.rkey + 1 };

		assert_int_equal(run_op(p.device, p.peer, &op), -EACCES);
		assert_int_equal(pn_device_poll(p.device, &c, 1), 0);
		assert_int_equal(p.to[0], 2);
	}
	close_pair(&p);
}

static void atomics_change_what_they_should(const char *spec)
{
	uint64_t *word;
	struct pn_sge sge;
	struct pair p;
	struct pn_op op = { .sge = &sge, .nsge = 1 };

	open_pair(&p, spec);
	word = (uint64_t *)(void *)p.to;
	sge = (struct pn_sge){ p.from, 8, p.from_mr.lkey };
	op.remote_addr = (uintptr_t)word;
	op.rkey = p.to_mr.rkey;
	*word = 40;
	op.kind = PN_OP_FETCH_ADD;
	op.operand = 2;
	assert_ok(run_op(p.device, p.peer, &op));
	assert_int_equal(*word, 42);
	assert_int_equal(*(uint64_t *)(void *)p.from, 40);
	op.kind = PN_OP_SWAP;
	op.operand = 7;
	assert_ok(run_op(p.device, p.peer, &op));
	assert_int_equal(*word, 7);
	assert_int_equal(*(uint64_t *)(void *)p.from, 42);
	op.kind = PN_OP_COMPARE_SWAP;
	op.compare = 8;
	op.operand = 9;
	assert_ok(run_op(p.device, p.peer, &op));
	assert_int_equal(*word, 7);
	op.compare = 7;
	assert_ok(run_op(p.device, p.peer, &op));
	assert_int_equal(*word, 9);
	op.remote_addr += 4;
	assert_int_equal(pn_device_post(p.device, p.peer, &op), -EINVAL);
	close_pair(&p);
}

static void atomics_return_the_old_value(void **state)
{
	(void)state;
	atomics_change_what_they_should("soft");
	atomics_change_what_they_should("soft:mode=mlock");
	atomics_change_what_they_should("soft:strict");
}

static void segments_are_gathered_and_scattered(void **state)
{
	struct pn_sge sge[PN_SOFT_MAX_SGE];
	char *expected = malloc(BYTES);
	uint64_t seed = test_seed();
	struct pair p;
	size_t len = 0;
	struct pn_op op = { .kind = PN_OP_WRITE, .sge = sge };

	(void)state;
	open_pair(&p, "soft:chunk=32K");
	fill(p.from, BYTES, &seed);
	for (unsigned i = 0; i < PN_SOFT_MAX_SGE; i++) {
		size_t n = test_below(&seed, BYTES / PN_SOFT_MAX_SGE);
		size_t at = test_below(&seed, BYTES - n);

		sge[i] = (struct pn_sge){ p.from + at, n, p.from_mr.lkey };
		memcpy(expected + len, p.from + at, n);
		len += n;
	}
	op.nsge = PN_SOFT_MAX_SGE;
	op.remote_addr = (uintptr_t)p.to;
	op.rkey = p.to_mr.rkey;
	assert_ok(run_op(p.device, p.peer, &op));
	assert_memory_equal(p.to, expected, len);
	op.kind = PN_OP_READ;
	assert_ok(run_op(p.device, p.peer, &op));
	op.nsge++;
	assert_int_equal(pn_device_post(p.device, p.peer, &op), -EINVAL);
	close_pair(&p);
	free(expected);
}

static void inline_bytes_are_copied_before_post_returns(void **state)
{
	char bytes[100], expected[100];
	struct pn_sge big, sge = { bytes, sizeof(bytes), 0 };
	struct pn_op write, op = { .kind = PN_OP_WRITE,
				   .flags = PN_OP_INLINE,
				   .sge = &sge,
				   .nsge = 1 };
	struct pair p;

	(void)state;
	open_pair(&p, "soft:engine=thread");
	big = (struct pn_sge){ p.from, BYTES, p.from_mr.lkey };
	write = (struct pn_op){ .kind = PN_OP_WRITE,
				.sge = &big,
				.nsge = 1,
				.remote_addr = (uintptr_t)p.to,
				.rkey = p.to_mr.rkey };
	op.remote_addr = (uintptr_t)p.to + 50;
	op.rkey = p.to_mr.rkey;
	memset(bytes, 'x', sizeof(bytes));
	memset(expected, 'x', sizeof(expected));
	assert_ok(pn_device_post(p.device, p.peer, &write));
	assert_ok(pn_device_post(p.device, p.peer, &op));
	memset(bytes, 'y', sizeof(bytes));
	expect(p.device, PN_COMPLETION_OP);
	expect(p.device, PN_COMPLETION_OP);
	assert_memory_equal(p.to + 50, expected, sizeof(expected));
	close_pair(&p);
}

static void operations_complete_in_the_order_of_posting(void **state)
{
	uint64_t seed = test_seed();
	uintptr_t posted = 0, seen = 0;
	struct pair p;

	(void)state;
	open_pair(&p, "soft:inline_max=2K,chunk=16K");
	while (seen < 2000) {
		size_t len = test_below(&seed, 8) ? 64 : 20000;
		struct pn_sge sge = { p.from, len, p.from_mr.lkey };
		struct pn_op op = { .kind = test_below(&seed, 2) ? PN_OP_READ
								 : PN_OP_WRITE,
				    .sge = &sge,
				    .nsge = 1,
				    .remote_addr = (uintptr_t)p.to,
				    .rkey = p.to_mr.rkey,
				    .user = (void *)posted };

		if (posted - seen < 100 && test_below(&seed, 3)) {
			assert_ok(pn_device_post(p.device, p.peer, &op));
			posted++;
		} else if (posted > seen) {
			struct pn_completion c =
				expect(p.device, PN_COMPLETION_OP);

			assert_int_equal((uintptr_t)c.user, seen++);
			assert_ok(c.status);
		}
	}
	close_pair(&p);
}

static void more_than_the_queue_depth_is_refused(void **state)
{
	struct pn_op op = { .kind = PN_OP_SEND };
	struct pn_completion c;
	struct pair p;

	(void)state;
	open_pair(&p, "soft:queue_depth=3");
	for (int i = 0; i < 3; i++)
		assert_ok(pn_device_post(p.device, p.peer, &op));
	assert_int_equal(pn_device_post(p.device, p.peer, &op), -EAGAIN);
	expect(p.device, PN_COMPLETION_OP);
	assert_ok(pn_device_post(p.device, p.peer, &op));
	for (int i = 0; i < 3; i++)
		expect(p.device, PN_COMPLETION_OP);
	for (int i = 0; i < 4; i++) {
		c = expect(p.device, PN_COMPLETION_RECV);
		assert_int_equal(c.len, 0);
		pn_device_return_buffer(p.device, &c);
	}
	close_pair(&p);
}

static void operations_of_no_bytes_need_no_key(void **state)
{
	struct pn_op op = { .kind = PN_OP_WRITE };
	struct pair p;

	(void)state;
	open_pair(&p, "soft");
	assert_ok(run_op(p.device, p.peer, &op));
	op.kind = PN_OP_READ;
	assert_ok(run_op(p.device, p.peer, &op));
	close_pair(&p);
}

static void local_segments_need_a_key_that_covers_them(void **state)
{
	struct pn_sge sge;
	struct pn_op op = { .kind = PN_OP_WRITE, .sge = &sge, .nsge = 1 };
	struct pair p;

	(void)state;
	open_pair(&p, "soft");
	op.remote_addr = (uintptr_t)p.to;
	op.rkey = p.to_mr.rkey;
	sge = (struct pn_sge){ p.from + 1, BYTES, p.from_mr.lkey };
	assert_int_equal(pn_device_post(p.device, p.peer, &op), -EFAULT);
	sge = (struct pn_sge){ p.from, 8, p.from_mr.lkey + 1 };
	assert_int_equal(pn_device_post(p.device, p.peer, &op), -EFAULT);
	sge = (struct pn_sge){ p.from, 8, 0 };
	assert_int_equal(pn_device_post(p.device, p.peer, &op), -EFAULT);
	/* A get needs LOCAL_WRITE. */
	deregister_one(p.device, &p.from_mr);
	register_one(p.device, &p.from_mr, p.from, BYTES, 0);
	sge = (struct pn_sge){ p.from, 8, p.from_mr.lkey };
	assert_ok(run_op(p.device, p.peer, &op));
	op.kind = PN_OP_READ;
	assert_int_equal(pn_device_post(p.device, p.peer, &op), -EFAULT);
	close_pair(&p);
}

static void malformed_operations_are_refused(void **state)
{
	struct pn_sge sge = { NULL, 0, 0 };
	struct pn_op op = { .kind = PN_OP_SEND, .sge = &sge, .nsge = 1 };
	struct pair p;

	(void)state;
	open_pair(&p, "soft");
	sge.len = PN_SOFT_MAX_SEND + 1;
	assert_int_equal(pn_device_post(p.device, p.peer, &op), -EINVAL);
	sge.len = 0;
	op.flags = PN_OP_IMM;
	assert_int_equal(pn_device_post(p.device, p.peer, &op), -EINVAL);
	op.flags = 1 << 9;
	assert_int_equal(pn_device_post(p.device, p.peer, &op), -EINVAL);
	op.flags = 0;
	op.kind = (enum pn_op_kind)99;
	assert_int_equal(pn_device_post(p.device, p.peer, &op), -EINVAL);
	op.kind = PN_OP_FETCH_ADD;
	assert_int_equal(pn_device_post(p.device, p.peer, &op), -EINVAL);
	close_pair(&p);
}

static void *wake_later(void *device)
{
	usleep(20000);
	pn_device_wake(device);
	return NULL;
}

static void wait_ends_at_the_deadline_or_by_wake(void **state)
{
	struct pn_device *device = open_soft("soft");
	uint64_t deadline = pn_device_now(device) + 30 * PN_NS_PER_MS;
	pthread_t thread;

	(void)state;
	assert_int_equal(pn_device_wait(device, deadline), -ETIMEDOUT);
	assert_true(pn_device_now(device) >= deadline);
	pn_device_wake(device);
	assert_ok(pn_device_wait(device, PN_FOREVER));
	assert_int_equal(pn_device_wait(device, pn_device_now(device)),
			 -ETIMEDOUT);
	pthread_create(&thread, NULL, wake_later, device);
	assert_ok(pn_device_wait(device, PN_FOREVER));
	pthread_join(thread, NULL);
	pn_device_close(device);
}

static int readable(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, 0);
}

static void assert_armed(struct pair *p)
{
	assert_ok(pn_device_arm(p->device));
	assert_int_equal(readable(pn_device_fd(p->device)), 0);
}

static void assert_told(struct pair *p)
{
	assert_int_equal(readable(pn_device_fd(p->device)), 1);
	assert_int_equal(pn_device_arm(p->device), -EAGAIN);
}

static void armed_descriptor_reports_events(void **state)
{
	struct pn_op op = { .kind = PN_OP_SEND, .flags = PN_OP_SILENT };
	struct pn_completion c;
	struct pair p;

	(void)state;
	open_pair(&p, "soft");
	assert_armed(&p);
	assert_ok(pn_device_post(p.device, p.peer, &op));
	assert_told(&p);
	c = expect(p.device, PN_COMPLETION_RECV);
	pn_device_return_buffer(p.device, &c);
	assert_armed(&p);
	close_pair(&p);
}

/* Eight bytes, executed by the posting thread. */
static void post_small(struct pair *p)
{
	struct pn_sge sge = { p->from, 8, p->from_mr.lkey };
	struct pn_op op = { .kind = PN_OP_WRITE,
			    .sge = &sge,
			    .nsge = 1,
			    .remote_addr = (uintptr_t)p->to,
			    .rkey = p->to_mr.rkey };

	assert_ok(pn_device_post(p->device, p->peer, &op));
}

static void armed_descriptor_reports_what_was_executed_while_posting(
	void **state)
{
	struct pair p;

	(void)state;
	open_pair(&p, "soft");
	assert_armed(&p);
	post_small(&p);
	assert_told(&p);
	expect(p.device, PN_COMPLETION_OP);
	assert_armed(&p);
	close_pair(&p);
}

struct sleeper {
	struct pn_device *device;
	int ret;
};

static void *sleep_for_news(void *arg)
{
	struct sleeper *sleeper = arg;
	uint64_t deadline = pn_device_now(sleeper->device) + TIMEOUT_NS;

	sleeper->ret = pn_device_wait(sleeper->device, deadline);
	/* The last look, at the deadline, is too late here. */
	if (pn_device_now(sleeper->device) >= deadline)
		sleeper->ret = -ETIMEDOUT;
	return NULL;
}

static void wait_ends_when_another_thread_posts(void **state)
{
	struct sleeper sleeper;
	pthread_t thread;
	struct pair p;

	(void)state;
	open_pair(&p, "soft:spin=0");
	sleeper.device = p.device;
	pthread_create(&thread, NULL, sleep_for_news, &sleeper);
	usleep(20000); /* most likely the thread sleeps now */
	post_small(&p);
	pthread_join(thread, NULL);
	assert_ok(sleeper.ret);
	expect(p.device, PN_COMPLETION_OP);
	close_pair(&p);
}

static void two_devices_of_one_process_talk(void **state)
{
	struct pn_address address;
	struct pn_device *other = open_soft("soft");
	struct pn_completion c;
	struct pn_peer *peer, *again;
	struct pn_sge sge;
	struct pair p;

	(void)state;
	open_pair(&p, "soft");
	pn_device_address(p.device, &address);
	peer = attach_to(other, &address);
	assert_ok(pn_device_attach(other, &address, &again));
	assert_ptr_equal(peer, again);
	expect(p.device, PN_COMPLETION_PEER_UP);
	sge = (struct pn_sge){ "hello", 5, 0 };
	assert_ok(run_op(other, peer,
			 &(struct pn_op){ .kind = PN_OP_WRITE,
					  .flags = PN_OP_INLINE,
					  .sge = &sge,
					  .nsge = 1,
					  .remote_addr = (uintptr_t)p.to,
					  .rkey = p.to_mr.rkey }));
	assert_memory_equal(p.to, "hello", 5);
	pn_device_close(other);
	c = expect(p.device, PN_COMPLETION_PEER_DOWN);
	assert_int_equal(c.status, -ECONNRESET);
	close_pair(&p);
}

static void closing_keeps_what_was_mapped_after_a_peer_left(void **state)
{
	enum { N = 8 };
	size_t len = 2 * pn_soft_channel_bytes(256 << 10);
	struct pn_device *device = open_soft("soft"),
			 *other = open_soft("soft");
	struct pn_address address;
	void *maps[N];

	(void)state;
	pn_device_address(other, &address);
	attach_to(device, &address);
	pn_device_close(other);
	expect(device, PN_COMPLETION_PEER_DOWN);
	/* One of these is mapped where the channels were. */
	for (unsigned i = 0; i < N; i++)
		maps[i] = map_buffer(len, 1);
	pn_device_close(device);
	for (unsigned i = 0; i < N; i++) {
		assert_ok(msync(maps[i], len, MS_ASYNC));
		munmap(maps[i], len);
	}
}

static void fact(void *arg, const char *name, const char *text)
{
	unsigned *seen = arg;

	assert_true(*name && *text);
	if (!strcmp(name, "mode"))
		*seen |= strstr(text, "mlock") ? 2 : 1;
	if (!strcmp(name, "strict"))
		*seen |= 4;
}

static void facts_name_the_mode(void **state)
{
	struct pn_device *device = open_soft("soft");
	unsigned seen = 0;

	(void)state;
	device->ops->describe(device, fact, &seen);
	/* This program also runs where io_uring is refused. */
	assert_int_equal(seen, device->caps & PN_CAP_PINS ? 1 | 4 : 2 | 4);
	pn_device_close(device);
	device = open_soft("soft:mode=mlock");
	seen = 0;
	device->ops->describe(device, fact, &seen);
	assert_int_equal(seen, 2 | 4);
	assert_false(device->caps & PN_CAP_PINS);
	pn_device_close(device);
}

static void addresses_of_others_are_refused(void **state)
{
	struct pn_device *device = open_soft("soft");
	struct pn_address address;
	struct pn_peer *peer = NULL;

	(void)state;
	pn_device_address(device, &address);
	address.data[0]++;
	assert_int_equal(pn_device_attach(device, &address, &peer), -EINVAL);
	address.data[0]--;
	address.data[4] = 'h';
	assert_int_equal(pn_device_attach(device, &address, &peer), -EINVAL);
	address.len--;
	assert_int_equal(pn_device_attach(device, &address, &peer), -EINVAL);
	assert_null(peer);
	pn_device_close(device);
}

const struct role roles[] = { { NULL, NULL } };

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(puts_and_gets_move_exactly_the_bytes_asked_for),
		TEST(a_single_threaded_device_does_the_same),
		TEST(threads_post_while_one_polls),
		TEST(strict_mode_moves_the_same_bytes),
		TEST(mlock_mode_moves_the_same_bytes),
		TEST(messages_arrive_in_order_with_their_bytes),
		TEST(records_come_in_order_from_both_rings),
		TEST(the_longest_record_fits_into_the_smallest_ring),
		TEST(full_channel_refuses_and_loses_nothing),
		TEST(messages_handled_in_place_keep_their_order),
		TEST(a_full_handler_leaves_messages_to_the_next_poll),
		TEST(a_send_behind_a_queued_write_sees_its_bytes),
		TEST(few_long_sends_are_copied_behind_a_write),
		TEST(write_with_immediate_notifies_after_its_bytes),
		TEST(a_refused_write_notifies_nobody),
		TEST(atomics_return_the_old_value),
		TEST(segments_are_gathered_and_scattered),
		TEST(inline_bytes_are_copied_before_post_returns),
		TEST(operations_complete_in_the_order_of_posting),
		TEST(more_than_the_queue_depth_is_refused),
		TEST(operations_of_no_bytes_need_no_key),
		TEST(local_segments_need_a_key_that_covers_them),
		TEST(malformed_operations_are_refused),
		TEST(wait_ends_at_the_deadline_or_by_wake),
		TEST(armed_descriptor_reports_events),
		TEST(armed_descriptor_reports_what_was_executed_while_posting),
		TEST(wait_ends_when_another_thread_posts),
		TEST(two_devices_of_one_process_talk),
		TEST(closing_keeps_what_was_mapped_after_a_peer_left),
		TEST(facts_name_the_mode),
		TEST(addresses_of_others_are_refused),
	};

	return RUN_TESTS(tests);
}
