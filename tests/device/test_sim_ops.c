/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Operations on `sim` where it guarantees more than every device, or differs;
 * the conformance suite tests the rest.
 */
#include "sim_world.h"

#include <sys/mman.h>

/* Node 0 attached to node 1, with a buffer on each. */
struct pair {
	struct pn_sim *sim;
	struct pn_device *a, *b;
	struct pn_peer *peer;
	struct buffer local, remote;
};

static void pair_open(struct pair *p, const char *params, size_t bytes)
{
	p->sim = open_world(params, NULL);
	p->a = pn_sim_device(p->sim, 0);
	p->b = pn_sim_device(p->sim, 1);
	p->peer = connect_nodes(p->sim, 0, 1);
	assert_ok(buffer_open(p->a, bytes, ALL_ACCESS, &p->local));
	assert_ok(buffer_open(p->b, bytes, ALL_ACCESS, &p->remote));
}

static void pair_close(struct pair *p)
{
	buffer_close(p->a, &p->local);
	buffer_close(p->b, &p->remote);
	pn_sim_close(p->sim);
}

/* --- queues --------------------------------------------------------------- */

static void a_full_queue_refuses_until_completions_are_there(void **state)
{
	struct pn_sim *sim = open_world("cost=ou2009,depth=3", NULL);
	struct pn_device *device = pn_sim_device(sim, 0);
	struct pn_peer *peer = connect_nodes(sim, 0, 1);
	struct pn_completion c;

	(void)state;
	for (unsigned i = 0; i < 3; i++)
		assert_ok(post_send(device, peer, "x", 1, 0));
	assert_int_equal(post_send(device, peer, "x", 1, 0), -EAGAIN);
	assert_ok(next_completion(device, &c));
	assert_ok(post_send(device, peer, "x", 1, 0));
	pn_sim_close(sim);
}

static int post_silent(struct pn_device *device, struct pn_peer *peer)
{
	struct pn_op op = { .kind = PN_OP_SEND,
			    .flags = PN_OP_INLINE | PN_OP_SILENT };

	return pn_device_post(device, peer, &op);
}

static void a_wait_ends_when_silent_operations_leave_room(void **state)
{
	struct pn_sim *sim = open_world("cost=ou2009,depth=3", NULL);
	struct pn_device *device = pn_sim_device(sim, 0);
	struct pn_peer *peer = connect_nodes(sim, 0, 1);
	struct pn_completion c;

	(void)state;
	for (unsigned i = 0; i < 3; i++)
		assert_ok(post_silent(device, peer));
	assert_int_equal(post_silent(device, peer), -EAGAIN);
	assert_ok(pn_device_wait(device, PN_FOREVER));
	assert_int_equal(pn_device_poll(device, &c, 1), 0);
	assert_ok(post_silent(device, peer));
	pn_sim_close(sim);
}

static void nothing_is_posted_while_connecting(void **state)
{
	struct pn_sim *sim = open_world("cost=ou2009", NULL);
	struct pn_device *device = pn_sim_device(sim, 0);
	struct pn_address address;
	struct pn_peer *peer, *again;

	(void)state;
	pn_device_address(pn_sim_device(sim, 1), &address);
	assert_ok(pn_device_attach(device, &address, &peer));
	assert_ok(pn_device_attach(device, &address, &again));
	assert_ptr_equal(peer, again);
	assert_int_equal(post_send(device, peer, "x", 1, 0), -EAGAIN);
	pn_sim_close(sim);
}

/* Both attach at the same moment: each polls PEER_UP once. */
static void peers_that_attach_to_each_other_come_up_once(void **state)
{
	struct pn_sim *sim = open_world("cost=ou2009", NULL);
	struct pn_address address;
	struct pn_completion c;
	struct pn_peer *peers[2];

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		pn_device_address(pn_sim_device(sim, 1 - i), &address);
		assert_ok(pn_device_attach(pn_sim_device(sim, i), &address,
					   &peers[i]));
	}
	pn_sim_sleep(sim, 1000000);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(pn_device_poll(pn_sim_device(sim, i), &c, 1),
				 1);
		assert_int_equal(c.kind, PN_COMPLETION_PEER_UP);
		assert_ptr_equal(c.peer, peers[i]);
		assert_int_equal(pn_device_poll(pn_sim_device(sim, i), &c, 1),
				 0);
	}
	pn_sim_close(sim);
}

/* --- flow control --------------------------------------------------------- */

static void what_follows_a_stalled_send_waits_behind_it(void **state)
{
	struct pn_completion first, c;
	struct pn_sge sge;
	struct pn_op op;
	struct pair p;

	(void)state;
	pair_open(&p, "inbox_slots=1", 8);
	memcpy(p.local.bytes, "written", 8);
	sge = whole(&p.local, 8);
	op = remote_op(PN_OP_WRITE, &sge, &p.remote);
	assert_ok(post_send(p.a, p.peer, "1", 1, 1));
	assert_ok(post_send(p.a, p.peer, "2", 1, 2));
	assert_ok(pn_device_post(p.a, p.peer, &op));
	pn_sim_sleep(p.sim, 1000000);
	assert_int_equal(pn_device_poll(p.b, &first, 1), 1);
	assert_int_equal(pn_device_poll(p.b, &c, 1), 0);
	assert_int_equal(p.remote.bytes[0], 0);
	pn_device_return_buffer(p.b, &first);
	assert_string_equal(p.remote.bytes, "written");
	assert_int_equal(pn_device_poll(p.b, &c, 1), 1);
	assert_int_equal(c.imm, 2);
	pn_device_return_buffer(p.b, &c);
	for (unsigned i = 0; i < 3; i++) {
		assert_ok(next_completion(p.a, &c));
		assert_int_equal(c.status, 0);
	}
	pair_close(&p);
}

static void stalled_senders_take_turns_and_keep_their_order(void **state)
{
	struct pn_sim *sim = open_world("nodes=3,inbox=8,send=4", NULL);
	struct pn_device *b = pn_sim_device(sim, 0);
	static const uint32_t expected[] = { 10, 11, 12, 20, 13, 21, 22, 23 };
	struct pn_completion held[2], c;
	unsigned n = 0;

	(void)state;
	for (unsigned i = 1; i < 3; i++) {
		struct pn_peer *peer = connect_nodes(sim, i, 0);

		for (uint32_t k = 0; k < 4; k++)
			assert_ok(post_send(pn_sim_device(sim, i), peer, "abcd",
					    4, 10 * i + k));
	}
	while (n < 2 && pn_device_poll(b, &c, 1))
		if (c.kind == PN_COMPLETION_RECV)
			held[n++] = c;
	assert_int_equal(n, 2);
	assert_int_equal(pn_device_poll(b, &c, 1), 0);
	for (unsigned i = 0; i < 8; i++) {
		assert_int_equal(held[i % 2].imm, expected[i]);
		pn_device_return_buffer(b, &held[i % 2]);
		assert_int_equal(pn_device_poll(b, &held[i % 2], 1), i < 6);
	}
	pn_sim_close(sim);
}

/* --- order ---------------------------------------------------------------- */

/* A long read, then a short write: the write takes effect long before the
 * read's bytes arrive, but its completion comes second. */
static void completions_wait_for_earlier_ones(void **state)
{
	struct pn_completion c;
	struct buffer flag;
	struct pn_sge sge;
	struct pn_op op;
	struct pair p;
	uint64_t posted;

	(void)state;
	pair_open(&p, "cost=ou2009", 1 << 20);
	assert_ok(buffer_open(p.b, 8, ALL_ACCESS, &flag));
	posted = pn_sim_now(p.sim);
	sge = whole(&p.local, 1 << 20);
	op = remote_op(PN_OP_READ, &sge, &p.remote);
	op.user = &p;
	assert_ok(pn_device_post(p.a, p.peer, &op));
	sge = whole(&p.local, 8);
	p.local.bytes[0] = 'f';
	op = remote_op(PN_OP_WRITE, &sge, &flag);
	assert_ok(pn_device_post(p.a, p.peer, &op));
	pn_sim_sleep(p.sim, 20000);
	assert_int_equal(flag.bytes[0], 'f');
	assert_int_equal(pn_device_poll(p.a, &c, 1), 0);
	assert_ok(next_completion(p.a, &c));
	assert_ptr_equal(c.user, &p);
	/* 500 + 12000 and 2^20 bytes at 0.9 per ns. */
	assert_int_equal(pn_sim_now(p.sim) - posted, 12500 + 1165084);
	assert_int_equal(pn_device_poll(p.a, &c, 1), 1);
	assert_null(c.user);
	buffer_close(p.b, &flag);
	pair_close(&p);
}

static void a_fence_waits_for_reads_and_holds_what_follows(void **state)
{
	struct pn_op fenced = { .kind = PN_OP_SEND,
				.flags = PN_OP_FENCE | PN_OP_SILENT };
	struct pn_completion c;
	struct pn_sge sge;
	struct pn_op op;
	struct pair p;

	(void)state;
	pair_open(&p, "cost=ou2009", 9000);
	memset(p.remote.bytes, 'o', 9000);
	sge = whole(&p.local, 9000);
	op = remote_op(PN_OP_READ, &sge, &p.remote);
	assert_ok(pn_device_post(p.a, p.peer, &op));
	assert_ok(pn_device_post(p.a, p.peer, &fenced));
	assert_ok(post_send(p.a, p.peer, "", 0, 5));
	assert_ok(next_completion(p.a, &c));
	assert_memory_equal(p.local.bytes, p.remote.bytes, 9000);
	assert_int_equal(pn_device_poll(p.b, &c, 1), 0);
	pn_sim_sleep(p.sim, 6000);
	assert_int_equal(pn_device_poll(p.b, &c, 1), 1);
	assert_int_equal(c.imm, 0);
	assert_int_equal(pn_device_poll(p.b, &c, 1), 1);
	assert_int_equal(c.imm, 5);
	pair_close(&p);
}

/* --- keys ----------------------------------------------------------------- */

static int put_status(struct pn_sim *sim, struct pn_peer *peer,
		      const struct pn_sge *sge, const struct buffer *remote)
{
	struct pn_op op = remote_op(PN_OP_WRITE, sge, remote);
	struct pn_device *device = pn_sim_device(sim, 0);
	struct pn_completion c;
	int ret = pn_device_post(device, peer, &op);

	if (!ret)
		ret = next_completion(device, &c);
	return ret ? ret : c.status;
}

static void keys_of_other_nodes_and_other_kinds_are_refused(void **state)
{
	struct pn_sim *sim = open_world("nodes=3", NULL);
	struct pn_peer *peer = connect_nodes(sim, 0, 1);
	struct buffer local, remote, foreign;
	struct pn_sge sge;

	(void)state;
	assert_ok(buffer_open(pn_sim_device(sim, 0), 8, ALL_ACCESS, &local));
	assert_ok(buffer_open(pn_sim_device(sim, 1), 8, ALL_ACCESS, &remote));
	assert_ok(buffer_open(pn_sim_device(sim, 2), 8, ALL_ACCESS, &foreign));
	sge = whole(&local, 8);
	assert_ok(put_status(sim, peer, &sge, &remote));
	assert_int_equal(put_status(sim, peer, &sge, &foreign), -EACCES);
	assert_int_equal(put_status(sim, peer, &sge, &local), -EACCES);
	sge.lkey = local.mr.rkey;
	assert_int_equal(put_status(sim, peer, &sge, &remote), -EFAULT);
	sge.lkey = remote.mr.lkey;
	assert_int_equal(put_status(sim, peer, &sge, &remote), -EFAULT);
	buffer_close(pn_sim_device(sim, 0), &local);
	buffer_close(pn_sim_device(sim, 1), &remote);
	buffer_close(pn_sim_device(sim, 2), &foreign);
	pn_sim_close(sim);
}

/* The registration ends while the message is on its way. */
static void keys_are_checked_when_the_bytes_move(void **state)
{
	struct pn_completion c;
	struct buffer brief;
	struct pn_sge sge;
	struct pn_op op;
	struct pair p;

	(void)state;
	pair_open(&p, "cost=ou2009", 8);
	assert_ok(buffer_open(p.a, 8, 0, &brief));
	brief.bytes[0] = 'x';
	sge = whole(&brief, 8);
	op = remote_op(PN_OP_WRITE, &sge, &p.remote);
	assert_ok(pn_device_post(p.a, p.peer, &op));
	buffer_close(p.a, &brief);
	assert_ok(next_completion(p.a, &c));
	assert_int_equal(c.status, -EFAULT);
	assert_int_equal(p.remote.bytes[0], 0);
	pair_close(&p);
}

static void read_only_memory_can_be_registered_for_reading(void **state)
{
	struct pn_sim *sim = open_world("", NULL);
	struct pn_device *device = pn_sim_device(sim, 0);
	struct pn_mr mr = { .len = PAGE, .access = PINION_ACCESS_REMOTE_READ };
	struct pn_mr *mrs = &mr;
	char *memory =
		mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	(void)state;
	assert_true(memory != MAP_FAILED);
	assert_true(device->caps & PN_CAP_READ_ONLY);
	mr.addr = memory;
	assert_ok(pn_device_register(device, &mrs, 1));
	pn_device_deregister(device, &mrs, 1);
	munmap(memory, PAGE);
	assert_int_equal(pn_device_register(device, &mrs, 1), -EFAULT);
	pn_sim_close(sim);
}

static void read_only_memory_is_refused_for_writing(void **state)
{
	struct pn_sim *sim = open_world("", NULL);
	struct pn_mr mr = { .len = PAGE, .access = PINION_ACCESS_LOCAL_WRITE };
	struct pn_mr *mrs = &mr;
	struct pn_pinned pinned;

	(void)state;
	mr.addr =
		mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(mr.addr != MAP_FAILED);
	if (!madvise(mr.addr, PAGE, MADV_POPULATE_WRITE)) {
		print_message("skipped: madvise(MADV_POPULATE_WRITE) is "
			      "ignored here, as by qemu's user mode\n");
		pn_sim_close(sim);
		skip();
	}
	assert_int_equal(pn_device_register(pn_sim_device(sim, 0), &mrs, 1),
			 -EFAULT);
	pn_device_pinned(pn_sim_device(sim, 0), &pinned);
	assert_int_equal(pinned.mrs, 0);
	assert_int_equal(pinned.live_bytes, 0);
	munmap(mr.addr, PAGE);
	pn_sim_close(sim);
}

/* --- data=none ------------------------------------------------------------ */

static void without_data_addresses_need_no_memory(void **state)
{
	struct pn_sim *sim = open_world("cost=cx5,data=none", NULL);
	struct pn_device *a = pn_sim_device(sim, 0), *b = pn_sim_device(sim, 1);
	struct pn_peer *peer = connect_nodes(sim, 0, 1);
	size_t len = (size_t)64 << 30;
	char *memory = pn_sim_reserve(sim, len);
	struct pn_mr from = { .addr = memory, .len = len };
	struct pn_mr to = { .addr = memory, .len = len, .access = ALL_ACCESS };
	struct pn_mr *mrs[] = { &from, &to };
	struct pn_sge sge = { .addr = memory, .len = 1 << 30 };
	struct pn_op op = { .kind = PN_OP_WRITE, .sge = &sge, .nsge = 1 };
	struct pn_completion c;
	uint64_t start;

	(void)state;
	assert_non_null(memory);
	assert_ok(pn_device_register(a, mrs, 1));
	assert_ok(pn_device_register(b, mrs + 1, 1));
	sge.lkey = from.lkey;
	op.remote_addr = (uintptr_t)memory;
	op.rkey = to.rkey;
	start = pn_sim_now(sim);
	assert_ok(pn_device_post(a, peer, &op));
	assert_ok(next_completion(a, &c));
	assert_int_equal(c.status, 0);
	/* 100 + 2000 and 2^30 bytes at 12.5 per ns. */
	assert_int_equal(pn_sim_now(sim) - start, 2100 + 85899346);
	pn_copy(a, memory, memory + (1 << 20), 1 << 20);
	op.remote_addr += len;
	assert_ok(pn_device_post(a, peer, &op));
	assert_ok(next_completion(a, &c));
	assert_int_equal(c.status, -EACCES);
	pn_device_deregister(a, mrs, 1);
	pn_device_deregister(b, mrs + 1, 1);
	pn_sim_close(sim);
}

/* Headers are real even where payload is not. */
static void without_data_sends_still_carry_their_bytes(void **state)
{
	struct pn_sim *sim = open_world("data=none", NULL);
	struct pn_device *a = pn_sim_device(sim, 0), *b = pn_sim_device(sim, 1);
	struct pn_peer *peer = connect_nodes(sim, 0, 1);
	char *payload = pn_sim_reserve(sim, PAGE);
	struct pn_mr mr = { .addr = payload, .len = PAGE };
	struct pn_mr *mrs = &mr;
	struct buffer header;
	struct pn_sge sge[2];
	struct pn_op op = { .kind = PN_OP_SEND, .sge = sge, .nsge = 2 };
	struct pn_completion c;
	char zeros[100] = "";

	(void)state;
	assert_ok(buffer_open(a, 6, 0, &header));
	assert_ok(pn_device_register(a, &mrs, 1));
	memcpy(header.bytes, "header", 6);
	sge[0] = whole(&header, 6);
	sge[1] = (struct pn_sge){ payload, sizeof(zeros), mr.lkey };
	assert_ok(pn_device_post(a, peer, &op));
	assert_ok(next_completion(b, &c));
	assert_int_equal(c.len, 6 + sizeof(zeros));
	assert_memory_equal(c.data, "header", 6);
	assert_memory_equal((const char *)c.data + 6, zeros, sizeof(zeros));
	pn_device_return_buffer(b, &c);
	pn_device_deregister(a, &mrs, 1);
	buffer_close(a, &header);
	pn_sim_close(sim);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_full_queue_refuses_until_completions_are_there),
		TEST(a_wait_ends_when_silent_operations_leave_room),
		TEST(nothing_is_posted_while_connecting),
		TEST(peers_that_attach_to_each_other_come_up_once),
		TEST(what_follows_a_stalled_send_waits_behind_it),
		TEST(stalled_senders_take_turns_and_keep_their_order),
		TEST(completions_wait_for_earlier_ones),
		TEST(a_fence_waits_for_reads_and_holds_what_follows),
		TEST(keys_of_other_nodes_and_other_kinds_are_refused),
		TEST(keys_are_checked_when_the_bytes_move),
		TEST(read_only_memory_can_be_registered_for_reading),
		TEST(read_only_memory_is_refused_for_writing),
		TEST(without_data_addresses_need_no_memory),
		TEST(without_data_sends_still_carry_their_bytes),
	};

	return RUN_TESTS(tests);
}
