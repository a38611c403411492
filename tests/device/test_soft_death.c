/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Processes that die at any point: their peers' operations end, their resources
 * are freed, and the others continue.
 */
#include "device/soft_util.h"

#include <stdio.h>

#include "device/soft/soft_impl.h"

#define ROUNDS	 50
#define WINDOW	 ((size_t)1 << 20)
/* device.h says 1 s; the machine may be busy. */
#define BOUND_NS (30 * PN_NS_PER_S)

/* --- at a random point --------------------------------------------------- */

/* Posts random operations, large and small, and polls. */
static void busy_step(struct pn_device *device, struct pn_peer *peer,
		      const struct pn_mr *mr, struct remote_range to,
		      uint64_t *seed)
{
	static const enum pn_op_kind kinds[] = { PN_OP_WRITE, PN_OP_READ,
						 PN_OP_SEND, PN_OP_FETCH_ADD };
	enum pn_op_kind kind = kinds[test_below(seed, 4)];
	size_t max = kind == PN_OP_SEND ? PN_SOFT_MAX_SEND : WINDOW;
	struct pn_sge sge = { mr->addr, test_below(seed, max), mr->lkey };
	struct pn_op op = { .kind = kind,
			    .sge = &sge,
			    .nsge = 1,
			    .remote_addr = to.addr,
			    .rkey = to.key };
	struct pn_completion c;

	if (kind == PN_OP_FETCH_ADD)
		sge.len = 8;
	pn_device_post(device, peer, &op);
	while (pn_device_poll(device, &c, 1))
		pn_device_return_buffer(device, &c);
}

static int victim(struct common *common, unsigned rank)
{
	struct pn_device *device = open_soft("soft:chunk=64K");
	uint64_t seed = pn_clock_ns();
	struct pn_peer *peer;
	struct pn_mr mr;

	register_one(device, &mr, map_buffer(WINDOW, 1), WINDOW, ALL);
	await(&common->rank[0].here, 1);
	peer = attach_to(device, &common->rank[0].address);
	appear(common, rank, device, &mr);
	for (;;)
		busy_step(device, peer, &mr,
			  (struct remote_range){ common->rank[0].addr,
						 common->rank[0].key },
			  &seed);
	return 1;
}

struct death {
	pid_t pid;
	uint64_t at_ns;
};

/* Posts operations to the victim until it is down; every operation ends. */
static void outlive(struct pn_peer *peer, const struct pn_mr *mr,
		    struct remote_range to, struct death death, uint64_t *seed)
{
	struct pn_device *device = peer->device;
	uint64_t died = 0;
	unsigned posted = 0, ended = 0;
	bool down = false;

	while (!down) {
		size_t len = test_below(seed, 4) ? 64 : WINDOW;
		struct pn_sge sge = { mr->addr, len, mr->lkey };
		struct pn_op op = { .kind = test_below(seed, 2) ? PN_OP_WRITE
								: PN_OP_READ,
				    .sge = &sge,
				    .nsge = 1,
				    .remote_addr = to.addr,
				    .rkey = to.key };
		struct pn_completion c;

		if (!died && pn_clock_ns() >= death.at_ns) {
			died = pn_clock_ns();
			kill(death.pid, SIGKILL);
		}
		posted += !pn_device_post(device, peer, &op);
		while (pn_device_poll(device, &c, 1)) {
			ended += c.kind == PN_COMPLETION_OP;
			down |= c.kind == PN_COMPLETION_PEER_DOWN;
			assert_true(c.kind != PN_COMPLETION_OP || !c.status ||
				    c.status == -ECONNRESET);
			pn_device_return_buffer(device, &c);
		}
		assert_true(!died || pn_clock_ns() - died < BOUND_NS);
	}
	assert_int_equal(posted, ended);
}

static void a_peer_killed_at_any_point_leaves_nothing(void **state)
{
	size_t before = vmpin_at_rest();
	uint64_t seed = test_seed();
	char *memory = map_buffer(WINDOW, 2);
	struct common *common = new_common();
	struct pn_device *device = open_soft("soft:chunk=64K");
	struct pn_peer *self = loop_back(device);
	struct pn_mr mr;
	unsigned files = 0;

	(void)state;
	register_one(device, &mr, memory, WINDOW, ALL);
	appear(common, 0, device, &mr);
	for (unsigned round = 0; round < ROUNDS; round++) {
		struct pn_sge sge = { memory, 8, mr.lkey };
		struct remote_range own = { (uintptr_t)memory, mr.rkey }, to;
		struct pn_peer *peer;
		pid_t pid;

		common->rank[1].here = 0;
		pid = start_rank(victim, common, 1);
		peer = expect(device, PN_COMPLETION_PEER_UP).peer;
		await(&common->rank[1].here, 1);
		to = (struct remote_range){ common->rank[1].addr,
					    common->rank[1].key };
		outlive(peer, &mr, to,
			(struct death){
				pid,
				pn_clock_ns() +
					test_below(&seed, 5 * PN_NS_PER_MS) },
			&seed);
		waitpid(pid, NULL, 0);
		/* The ring on which the victim may have died still works. */
		assert_ok(move_op(device, self, PN_OP_WRITE, &sge, own));
		assert_vmpin(before, device);
		if (!round)
			files = test_descriptors();
		assert_int_equal(test_descriptors(), files);
	}
	deregister_one(device, &mr);
	assert_vmpin(before, device);
	pn_device_close(device);
	munmap(memory, WINDOW);
	free_common(common);
}

/* --- holding the lock ---------------------------------------------------- */

/* What the dying process leaves in the queues of the ring it has locked. */
enum leaving { NOTHING, QUEUED, COMPLETED };

static void queue_read(struct pn_soft_ring *ring, int fd)
{
	struct pn_uring *uring = &ring->uring;
	unsigned tail = *uring->sq.tail, index = tail & *uring->sq.mask;
	struct io_uring_sqe *sqe = &uring->sqes[index];

	memset(sqe, 0, sizeof(*sqe));
	sqe->opcode = IORING_OP_READ_FIXED;
	sqe->fd = fd;
	sqe->len = 1;
	sqe->user_data = ring->page->ticket;
	uring->array[index] = index;
	__atomic_store_n(uring->sq.tail, tail + 1, __ATOMIC_RELEASE);
}

static int dies_locked(struct common *common, unsigned rank)
{
	struct pn_device *device = open_soft("soft");
	struct pn_soft_peer *peer;
	struct pn_soft_ring *ring;

	(void)rank;
	await(&common->rank[0].here, 1);
	peer = pn_soft_peer_of(attach_to(device, &common->rank[0].address));
	ring = peer->remote.rings[0];
	CHECK(ring);
	pn_soft_ring_lock(ring);
	pn_soft_robust_lock(&peer->remote.shared->atomic_lock);
	if (common->number != NOTHING)
		queue_read(ring, 0);
	if (common->number == COMPLETED)
		CHECK(pn_uring_enter(&ring->uring, 1, 0, 0) == 1);
	raise(SIGKILL);
	return 1;
}

/* Nothing is left in the queues of the device's first exposed ring. */
static void assert_at_rest(struct pn_device *device)
{
	struct pn_soft_table *table =
		pn_soft_slots_table(&pn_soft_of(device)->slots,
				    pn_soft_location(PN_SOFT_EXPOSED, 0, 0));
	struct pn_uring *uring = &table->ring.uring;

	assert_int_equal(*uring->sq.head, *uring->sq.tail);
	assert_int_equal(*uring->cq.head, *uring->cq.tail);
}

static void the_lock_of_a_killed_peer_can_be_taken(void **state)
{
	char *memory = map_buffer(PN_PAGE_BYTES, 2);

	(void)state;
	for (int leaving = NOTHING; leaving <= COMPLETED; leaving++) {
		struct common *common = new_common();
		struct pn_device *device = open_soft("soft");
		struct pn_peer *self = loop_back(device);
		struct pn_sge sge;
		struct pn_mr mr, more;
		struct pn_op add = { .kind = PN_OP_FETCH_ADD,
				     .sge = &sge,
				     .nsge = 1,
				     .operand = 1 };
		pid_t pid;

		register_one(device, &mr, memory, PN_PAGE_BYTES, ALL);
		common->number = leaving;
		appear(common, 0, device, &mr);
		pid = start_rank(dies_locked, common, 1);
		expect(device, PN_COMPLETION_PEER_UP);
		expect(device, PN_COMPLETION_PEER_DOWN);
		waitpid(pid, NULL, 0);
		memset(memory, 0, 16);
		sge = (struct pn_sge){ memory + 8, 8, mr.lkey };
		add.remote_addr = (uintptr_t)memory;
		add.rkey = mr.rkey;
		for (int i = 0; i < 10; i++)
			assert_ok(run_op(device, self, &add));
		assert_int_equal(*(uint64_t *)(void *)memory, 10);
		assert_at_rest(device);
		register_one(device, &more, memory, 100, ALL);
		deregister_one(device, &more);
		deregister_one(device, &mr);
		pn_device_close(device);
		free_common(common);
	}
	munmap(memory, PN_PAGE_BYTES);
}

/* --- in the middle of a message ------------------------------------------ */

static int dies_writing(struct common *common, unsigned rank)
{
	struct pn_device *device = open_soft("soft");
	struct pn_op op = { .kind = PN_OP_SEND, .imm = 5 };
	struct pn_soft_peer *peer;
	struct pn_soft_tx *tx;

	(void)rank;
	await(&common->rank[0].here, 1);
	peer = pn_soft_peer_of(attach_to(device, &common->rank[0].address));
	tx = &peer->tx;
	CHECK(!pn_device_post(device, &peer->peer, &op));
	/* All of a record of 10 cells except its ready word. */
	memset(tx->ring->cells + tx->ring->at * PN_SOFT_CELL + 4, 0x55,
	       10 * PN_SOFT_CELL - 4);
	raise(SIGKILL);
	return 1;
}

static void an_incomplete_message_is_not_received(void **state)
{
	struct common *common = new_common();
	struct pn_device *device = open_soft("soft");
	struct pn_completion c;
	pid_t pid;

	(void)state;
	appear(common, 0, device, NULL);
	pid = start_rank(dies_writing, common, 1);
	expect(device, PN_COMPLETION_PEER_UP);
	c = expect(device, PN_COMPLETION_RECV);
	assert_int_equal(c.imm, 5);
	expect(device, PN_COMPLETION_PEER_DOWN);
	/* Returned after PEER_DOWN, which is allowed. */
	pn_device_return_buffer(device, &c);
	assert_int_equal(pn_device_poll(device, &c, 1), 0);
	waitpid(pid, NULL, 0);
	pn_device_close(device);
	free_common(common);
}

/* --- pinned pages -------------------------------------------------------- */

#define HOARD	 ((size_t)3 << 20)
#define LOCKABLE ((size_t)4 << 20)

/* Pins most of what the user may pin, and waits to be killed. */
static int hoarder(struct common *common, unsigned rank)
{
	struct pn_device *device;
	struct pn_mr mr;

	CHECK(!become_user(common, LOCKABLE));
	CHECK(!pn_device_open("soft:mode=uring", NULL, &device));
	register_one(device, &mr, map_buffer(HOARD, 1), HOARD, ALL);
	await(&common->rank[0].here, 1);
	attach_to(device, &common->rank[0].address);
	appear(common, rank, device, &mr);
	for (;;)
		pause();
	return 1;
}

/* Has the hoarder's ring open, sees it die, and pins as much. */
static int heir(struct common *common, unsigned rank)
{
	struct pn_device *device;
	struct pn_mr mr = { .len = HOARD, .access = ALL }, *mrs[] = { &mr };
	struct pn_peer *peer;
	char byte = 1;
	struct pn_sge sge = { &byte, 1, 0 };
	struct pn_op op = { .kind = PN_OP_WRITE,
			    .flags = PN_OP_INLINE,
			    .sge = &sge,
			    .nsge = 1 };

	CHECK(!become_user(common, LOCKABLE));
	CHECK(!pn_device_open("soft:mode=uring", NULL, &device));
	mr.addr = map_buffer(HOARD, 1);
	appear(common, rank, device, NULL);
	peer = next_completion(device).peer;
	await(&common->rank[1].here, 1);
	op.remote_addr = common->rank[1].addr;
	op.rkey = common->rank[1].key;
	CHECK(!run_op(device, peer, &op));
	CHECK(pn_device_register(device, mrs, 1) == -ENOMEM);
	common->go[0] = 1;
	/* Without polling: the service thread closes the rings. */
	for (unsigned i = 0; i < 2000; i++) {
		if (!pn_device_register(device, mrs, 1))
			return 0;
		usleep(10000);
	}
	CHECK(!"the dead peer's pages are still charged");
	return 1;
}

static void pages_pinned_by_a_killed_peer_are_freed(void **state)
{
	struct common *common = new_common();
	pid_t a, b;

	(void)state;
	if (geteuid()) {
		print_message("skipped: changing the user needs root\n");
		skip();
	}
	a = start_rank(heir, common, 0);
	b = start_rank(hoarder, common, 1);
	await(&common->go[0], 1);
	kill(b, SIGKILL);
	waitpid(b, NULL, 0);
	assert_exits_well(a);
	free_common(common);
}

/* --- the other peers ----------------------------------------------------- */

static int bystander(struct common *common, unsigned rank)
{
	struct pn_device *device = open_soft("soft");
	char *memory = map_buffer(WINDOW, (int)rank);
	struct pn_peer *peer;
	struct pn_mr mr;

	register_one(device, &mr, memory, WINDOW, PINION_ACCESS_LOCAL_WRITE);
	await(&common->rank[0].here, 1);
	peer = attach_to(device, &common->rank[0].address);
	common->rank[rank].here = 1;
	while (!common->go[0]) {
		struct pn_sge sge = { memory, 100000, mr.lkey };

		CHECK(!move_op(device, peer, PN_OP_WRITE, &sge,
			       (struct remote_range){ common->rank[0].addr,
						      common->rank[0].key }));
		common->go[rank]++;
	}
	pn_device_close(device);
	return 0;
}

static int owner(struct common *common, unsigned rank)
{
	struct pn_device *device = open_soft("soft");
	unsigned ups = 0, downs = 0;
	struct pn_mr mr;

	register_one(device, &mr, map_buffer(WINDOW, 0), WINDOW, ALL);
	appear(common, rank, device, &mr);
	while (downs < 4) {
		struct pn_completion c = next_completion(device);

		ups += c.kind == PN_COMPLETION_PEER_UP;
		downs += c.kind == PN_COMPLETION_PEER_DOWN;
	}
	CHECK(ups == 4);
	pn_device_close(device);
	return 0;
}

static void the_others_go_on_when_one_dies(void **state)
{
	struct common *common = new_common();
	pid_t pids[5];
	int counts[5];

	(void)state;
	for (unsigned r = 0; r < 5; r++)
		pids[r] = start_rank(r ? bystander : owner, common, r);
	for (unsigned r = 1; r < 5; r++)
		await(&common->rank[r].here, 1);
	/* They are killed one after the other while all use the same ring. */
	for (unsigned r = 1; r < 4; r++) {
		await(&common->go[r], 20);
		kill(pids[r], SIGKILL);
		waitpid(pids[r], NULL, 0);
		for (unsigned k = r + 1; k < 5; k++) {
			counts[k] = common->go[k];
			await(&common->go[k], counts[k] + 20);
		}
	}
	common->go[0] = 1;
	assert_exits_well(pids[4]);
	assert_exits_well(pids[0]);
	free_common(common);
}

/* --- forked children ----------------------------------------------------- */

static void a_forked_child_does_not_hide_a_death(void **state)
{
	struct common *common = new_common();
	struct pn_device *device = open_soft("soft");
	struct pn_device *other = open_soft("soft");
	pid_t child;

	(void)state;
	appear(common, 0, device, NULL);
	attach_to(other, &common->rank[0].address);
	expect(device, PN_COMPLETION_PEER_UP);
	/* Holds copies of all sockets. */
	child = fork();
	if (!child)
		for (;;)
			pause();
	pn_device_close(other);
	expect(device, PN_COMPLETION_PEER_DOWN);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	loop_back(device);
	pn_device_close(device);
	free_common(common);
}

/* Its child has all its descriptors, and lives until the test ends it. */
static int leaves_a_child(struct common *common, unsigned rank)
{
	struct pn_device *device = open_soft("soft");
	pid_t pid;

	(void)rank;
	await(&common->rank[0].here, 1);
	attach_to(device, &common->rank[0].address);
	pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		await(&common->go[0], 1);
		common->go[1] = 1;
		_exit(0);
	}
	raise(SIGKILL);
	return 1;
}

/* Nobody closes the connection: the death of the process itself is detected. */
static void a_peer_is_gone_though_its_child_lives_on(void **state)
{
	struct common *common = new_common();
	struct pn_device *device = open_soft("soft");
	pid_t pid;

	(void)state;
	appear(common, 0, device, NULL);
	pid = start_rank(leaves_a_child, common, 1);
	expect(device, PN_COMPLETION_PEER_UP);
	expect(device, PN_COMPLETION_PEER_DOWN);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_int_equal(common->go[1], 0);
	common->go[0] = 1;
	await(&common->go[1], 1);
	pn_device_close(device);
	free_common(common);
}

const struct role roles[] = {
	ROLE(victim),  ROLE(dies_locked),    ROLE(dies_writing),
	ROLE(hoarder), ROLE(heir),	     ROLE(bystander),
	ROLE(owner),   ROLE(leaves_a_child), { NULL, NULL },
};

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(the_lock_of_a_killed_peer_can_be_taken),
		TEST(an_incomplete_message_is_not_received),
		TEST(pages_pinned_by_a_killed_peer_are_freed),
		TEST(the_others_go_on_when_one_dies),
		TEST(a_forked_child_does_not_hide_a_death),
		TEST(a_peer_is_gone_though_its_child_lives_on),
		TEST(a_peer_killed_at_any_point_leaves_nothing),
	};

	play_role(argc, argv);
	return RUN_TESTS(tests);
}
