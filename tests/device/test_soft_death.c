/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Processes that die, at any point: their peers' operations end, nothing of
 * theirs is left, and the others go on.
 */
#include "device/soft_util.h"

#include <stdio.h>

#include "device/soft/soft_impl.h"

#define ROUNDS	 50
#define WINDOW	 ((size_t)1 << 20)
/* The contract says 1 s; the machine may be busy with other things. */
#define BOUND_NS (30 * PN_NS_PER_S)

/* --- at a random point --------------------------------------------------- */

/* Posts what comes to mind, large and small, and looks at what came. */
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

static int victim(struct board *board, unsigned rank)
{
	struct pn_device *device = open_soft("soft:chunk=64K");
	uint64_t seed = pn_clock_ns();
	struct pn_peer *peer;
	struct pn_mr mr;

	register_one(device, &mr, map_buffer(WINDOW, 1), WINDOW, ALL);
	await(&board->rank[0].here, 1);
	peer = attach_to(device, &board->rank[0].address);
	appear(board, rank, device, &mr);
	for (;;)
		busy_step(device, peer, &mr,
			  (struct remote_range){ board->rank[0].addr,
						 board->rank[0].key },
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
	struct board *board = new_board();
	struct pn_device *device = open_soft("soft:chunk=64K");
	struct pn_peer *self = loop_back(device);
	struct pn_mr mr;
	unsigned files = 0;

	(void)state;
	register_one(device, &mr, memory, WINDOW, ALL);
	appear(board, 0, device, &mr);
	for (unsigned round = 0; round < ROUNDS; round++) {
		struct pn_sge sge = { memory, 8, mr.lkey };
		struct remote_range own = { (uintptr_t)memory, mr.rkey }, to;
		struct pn_peer *peer;
		pid_t pid;

		board->rank[1].here = 0;
		pid = start_rank(victim, board, 1);
		peer = expect(device, PN_COMPLETION_PEER_UP).peer;
		await(&board->rank[1].here, 1);
		to = (struct remote_range){ board->rank[1].addr,
					    board->rank[1].key };
		outlive(peer, &mr, to,
			(struct death){
				pid,
				pn_clock_ns() +
					test_below(&seed, 5 * PN_NS_PER_MS) },
			&seed);
		waitpid(pid, NULL, 0);
		/* The ring it may have died on still serves. */
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
	free_board(board);
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

static int dies_locked(struct board *board, unsigned rank)
{
	struct pn_device *device = open_soft("soft");
	struct pn_soft_peer *peer;
	struct pn_soft_ring *ring;

	(void)rank;
	await(&board->rank[0].here, 1);
	peer = pn_soft_peer_of(attach_to(device, &board->rank[0].address));
	ring = peer->remote.rings[0];
	CHECK(ring);
	pn_soft_ring_lock(ring);
	pn_soft_robust_lock(&peer->remote.shared->atomic_lock);
	if (board->number != NOTHING)
		queue_read(ring, 0);
	if (board->number == COMPLETED)
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

static void a_peer_killed_with_the_lock_hands_it_on(void **state)
{
	char *memory = map_buffer(PN_PAGE_BYTES, 2);

	(void)state;
	for (int leaving = NOTHING; leaving <= COMPLETED; leaving++) {
		struct board *board = new_board();
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
		board->number = leaving;
		appear(board, 0, device, &mr);
		pid = start_rank(dies_locked, board, 1);
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
		free_board(board);
	}
	munmap(memory, PN_PAGE_BYTES);
}

/* --- in the middle of a message ------------------------------------------ */

static int dies_writing(struct board *board, unsigned rank)
{
	struct pn_device *device = open_soft("soft");
	struct pn_op op = { .kind = PN_OP_SEND, .imm = 5 };
	struct pn_soft_peer *peer;
	struct pn_soft_tx *tx;

	(void)rank;
	await(&board->rank[0].here, 1);
	peer = pn_soft_peer_of(attach_to(device, &board->rank[0].address));
	tx = &peer->tx;
	CHECK(!pn_device_post(device, &peer->peer, &op));
	/* All of a record of 10 cells but its ready word. */
	memset(tx->ring->cells + tx->ring->at * PN_SOFT_CELL + 4, 0x55,
	       10 * PN_SOFT_CELL - 4);
	raise(SIGKILL);
	return 1;
}

static void half_a_message_is_no_message(void **state)
{
	struct board *board = new_board();
	struct pn_device *device = open_soft("soft");
	struct pn_completion c;
	pid_t pid;

	(void)state;
	appear(board, 0, device, NULL);
	pid = start_rank(dies_writing, board, 1);
	expect(device, PN_COMPLETION_PEER_UP);
	c = expect(device, PN_COMPLETION_RECV);
	assert_int_equal(c.imm, 5);
	expect(device, PN_COMPLETION_PEER_DOWN);
	/* Released after the end, which is allowed. */
	pn_device_return_buffer(device, &c);
	assert_int_equal(pn_device_poll(device, &c, 1), 0);
	waitpid(pid, NULL, 0);
	pn_device_close(device);
	free_board(board);
}

/* --- what was pinned ----------------------------------------------------- */

#define HOARD	 ((size_t)3 << 20)
#define LOCKABLE ((size_t)4 << 20)

/* Pins most of what the user may, and waits for the end. */
static int hoarder(struct board *board, unsigned rank)
{
	struct pn_device *device;
	struct pn_mr mr;

	CHECK(!become_user(board, LOCKABLE));
	CHECK(!pn_device_open("soft:mode=uring", NULL, &device));
	register_one(device, &mr, map_buffer(HOARD, 1), HOARD, ALL);
	await(&board->rank[0].here, 1);
	attach_to(device, &board->rank[0].address);
	appear(board, rank, device, &mr);
	for (;;)
		pause();
	return 1;
}

/* Holds the hoarder's ring, sees it die, and wants as much. */
static int heir(struct board *board, unsigned rank)
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

	CHECK(!become_user(board, LOCKABLE));
	CHECK(!pn_device_open("soft:mode=uring", NULL, &device));
	mr.addr = map_buffer(HOARD, 1);
	appear(board, rank, device, NULL);
	peer = next_completion(device).peer;
	await(&board->rank[1].here, 1);
	op.remote_addr = board->rank[1].addr;
	op.rkey = board->rank[1].key;
	CHECK(!run_op(device, peer, &op));
	CHECK(pn_device_register(device, mrs, 1) == -ENOMEM);
	board->go[0] = 1;
	/* Without polling: the service lets go by itself. */
	for (unsigned i = 0; i < 2000; i++) {
		if (!pn_device_register(device, mrs, 1))
			return 0;
		usleep(10000);
	}
	CHECK(!"the dead peer's pages are still charged");
	return 1;
}

static void what_a_killed_peer_had_pinned_is_given_back(void **state)
{
	struct board *board = new_board();
	pid_t a, b;

	(void)state;
	if (geteuid()) {
		print_message("skipped: changing the user needs root\n");
		skip();
	}
	a = start_rank(heir, board, 0);
	b = start_rank(hoarder, board, 1);
	await(&board->go[0], 1);
	kill(b, SIGKILL);
	waitpid(b, NULL, 0);
	assert_exits_well(a);
	free_board(board);
}

/* --- the others ---------------------------------------------------------- */

static int bystander(struct board *board, unsigned rank)
{
	struct pn_device *device = open_soft("soft");
	char *memory = map_buffer(WINDOW, (int)rank);
	struct pn_peer *peer;
	struct pn_mr mr;

	register_one(device, &mr, memory, WINDOW, PINION_ACCESS_LOCAL_WRITE);
	await(&board->rank[0].here, 1);
	peer = attach_to(device, &board->rank[0].address);
	board->rank[rank].here = 1;
	while (!board->go[0]) {
		struct pn_sge sge = { memory, 100000, mr.lkey };

		CHECK(!move_op(device, peer, PN_OP_WRITE, &sge,
			       (struct remote_range){ board->rank[0].addr,
						      board->rank[0].key }));
		board->go[rank]++;
	}
	pn_device_close(device);
	return 0;
}

static int owner(struct board *board, unsigned rank)
{
	struct pn_device *device = open_soft("soft");
	unsigned ups = 0, downs = 0;
	struct pn_mr mr;

	register_one(device, &mr, map_buffer(WINDOW, 0), WINDOW, ALL);
	appear(board, rank, device, &mr);
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
	struct board *board = new_board();
	pid_t pids[5];
	int counts[5];

	(void)state;
	for (unsigned r = 0; r < 5; r++)
		pids[r] = start_rank(r ? bystander : owner, board, r);
	for (unsigned r = 1; r < 5; r++)
		await(&board->rank[r].here, 1);
	/* One after the other, in full work on the same ring. */
	for (unsigned r = 1; r < 4; r++) {
		await(&board->go[r], 20);
		kill(pids[r], SIGKILL);
		waitpid(pids[r], NULL, 0);
		for (unsigned k = r + 1; k < 5; k++) {
			counts[k] = board->go[k];
			await(&board->go[k], counts[k] + 20);
		}
	}
	board->go[0] = 1;
	assert_exits_well(pids[4]);
	assert_exits_well(pids[0]);
	free_board(board);
}

/* --- forked children ----------------------------------------------------- */

static void a_forked_child_does_not_hide_a_death(void **state)
{
	struct board *board = new_board();
	struct pn_device *device = open_soft("soft");
	struct pn_device *other = open_soft("soft");
	pid_t child;

	(void)state;
	appear(board, 0, device, NULL);
	attach_to(other, &board->rank[0].address);
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
	free_board(board);
}

/* Its child has all its descriptors, and lives until the test lets it go. */
static int leaves_a_child(struct board *board, unsigned rank)
{
	struct pn_device *device = open_soft("soft");
	pid_t pid;

	(void)rank;
	await(&board->rank[0].here, 1);
	attach_to(device, &board->rank[0].address);
	pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		await(&board->go[0], 1);
		board->go[1] = 1;
		_exit(0);
	}
	raise(SIGKILL);
	return 1;
}

/* Nobody shuts the connection: it is the process that is missed. */
static void a_peer_is_gone_though_its_child_lives_on(void **state)
{
	struct board *board = new_board();
	struct pn_device *device = open_soft("soft");
	pid_t pid;

	(void)state;
	appear(board, 0, device, NULL);
	pid = start_rank(leaves_a_child, board, 1);
	expect(device, PN_COMPLETION_PEER_UP);
	expect(device, PN_COMPLETION_PEER_DOWN);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_int_equal(board->go[1], 0);
	board->go[0] = 1;
	await(&board->go[1], 1);
	pn_device_close(device);
	free_board(board);
}

const struct role roles[] = {
	ROLE(victim),  ROLE(dies_locked),    ROLE(dies_writing),
	ROLE(hoarder), ROLE(heir),	     ROLE(bystander),
	ROLE(owner),   ROLE(leaves_a_child), { NULL, NULL },
};

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(a_peer_killed_with_the_lock_hands_it_on),
		TEST(half_a_message_is_no_message),
		TEST(what_a_killed_peer_had_pinned_is_given_back),
		TEST(the_others_go_on_when_one_dies),
		TEST(a_forked_child_does_not_hide_a_death),
		TEST(a_peer_is_gone_though_its_child_lives_on),
		TEST(a_peer_killed_at_any_point_leaves_nothing),
	};

	play_role(argc, argv);
	return RUN_TESTS(tests);
}
