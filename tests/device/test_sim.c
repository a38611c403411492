/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Time on `sim`: how long registering, copying, messages, CPU time and waiting
 * take, to the nanosecond. Profile ou2009: register 7420 + 770 per page,
 * deregister 1100 + 220 per page, wire 1/0.9 ns per byte, latency 6000, message
 * 500, copy 1/1.5 ns per byte.
 */
#include "sim_world.h"

#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#define LATENCY	 6000
#define MESSAGE	 500
#define WIRE_900 1000 /* 900 bytes */

/* --- CPU time ------------------------------------------------------------- */

static void registering_takes_what_the_profile_says(void **state)
{
	struct pn_sim *sim = open_world("cost=ou2009", NULL);
	struct pn_device *device = pn_sim_device(sim, 0);
	struct buffer b;

	(void)state;
	assert_ok(buffer_open(device, 10 * PAGE, 0, &b));
	assert_int_equal(pn_sim_now(sim), 7420 + 10 * 770);
	buffer_close(device, &b);
	assert_int_equal(pn_sim_now(sim), 7420 + 10 * 770 + 1100 + 10 * 220);
	pn_sim_close(sim);
}

static void batches_pay_one_fixed_part_for_deregistering_alone(void **state)
{
	struct pn_sim *sim = open_world("cost=ou2009", NULL);
	struct pn_device *device = pn_sim_device(sim, 0);
	char *memory = aligned_alloc(PAGE, 4 * PAGE);
	struct pn_mr a = { .addr = memory, .len = PAGE };
	struct pn_mr b = { .addr = memory + PAGE, .len = 3 * PAGE };
	struct pn_mr *mrs[] = { &a, &b };

	(void)state;
	memset(memory, 0, 4 * PAGE);
	assert_ok(pn_device_register(device, mrs, 2));
	assert_int_equal(pn_sim_now(sim), 2 * 7420 + 4 * 770);
	pn_device_deregister(device, mrs, 2);
	assert_int_equal(pn_sim_now(sim), 2 * 7420 + 4 * 770 + 1100 + 4 * 220);
	pn_sim_close(sim);
	free(memory);
}

static void copying_takes_time_and_copies(void **state)
{
	struct pn_sim *sim = open_world("cost=ou2009", NULL);
	char from[1500], to[1500] = "";

	(void)state;
	memset(from, 7, sizeof(from));
	pn_copy(pn_sim_device(sim, 0), to, from, sizeof(from));
	assert_int_equal(pn_sim_now(sim), 1000);
	assert_memory_equal(from, to, sizeof(from));
	pn_sim_close(sim);
}

/* --- messages ------------------------------------------------------------- */

struct traffic {
	struct pn_sim *sim;
	unsigned node, to, rounds;
	size_t bytes;
	uint64_t times[8]; /* that the task recorded, in order */
	unsigned ntimes;
};

static void note_time(struct traffic *t)
{
	t->times[t->ntimes++] = pn_sim_now(t->sim);
}

/* Sends `rounds` messages of `bytes` at once and records when each has
 * completed. */
static void sender(void *arg)
{
	struct traffic *t = arg;
	struct pn_device *device = pn_sim_device(t->sim, t->node);
	struct pn_peer *peer = task_connect(t->sim, t->node, t->to);
	struct pn_completion c;
	struct buffer b;
	struct pn_sge sge;
	struct pn_op op = { .kind = PN_OP_SEND, .sge = &sge, .nsge = 1 };

	CHECK(!buffer_open(device, t->bytes, 0, &b));
	sge = whole(&b, t->bytes);
	pn_sim_sleep(t->sim, 1000000 - pn_sim_now(t->sim));
	for (unsigned i = 0; i < t->rounds; i++)
		CHECK(!pn_device_post(device, peer, &op));
	for (unsigned i = 0; i < t->rounds; i++) {
		CHECK(!next_completion(device, &c));
		CHECK(c.kind == PN_COMPLETION_OP && !c.status);
		note_time(t);
	}
	buffer_close(device, &b);
}

/* Records when each of `rounds` messages arrives. */
static void receiver(void *arg)
{
	struct traffic *t = arg;
	struct pn_device *device = pn_sim_device(t->sim, t->node);
	struct pn_completion c;

	while (t->ntimes < t->rounds) {
		CHECK(!pn_device_wait(device, PN_FOREVER));
		if (pn_sim_now(t->sim) < 1000000) {
			CHECK(pn_device_poll(device, &c, 1) == 1);
			CHECK(c.kind == PN_COMPLETION_PEER_UP);
			continue;
		}
		note_time(t);
		CHECK(pn_device_poll(device, &c, 1) == 1);
		CHECK(c.kind == PN_COMPLETION_RECV && c.len == t->bytes);
		pn_device_return_buffer(device, &c);
	}
}

#define START 1000000

static void one_message_takes_latency_and_its_bytes(void **state)
{
	struct pn_sim *sim = open_world("cost=ou2009", NULL);
	struct traffic a = { sim, 0, 1, 1, 900, { 0 }, 0 };
	struct traffic b = { sim, 1, 0, 1, 900, { 0 }, 0 };
	uint64_t arrival = START + MESSAGE + LATENCY + WIRE_900;

	(void)state;
	assert_ok(pn_sim_spawn(sim, 0, sender, &a));
	assert_ok(pn_sim_spawn(sim, 1, receiver, &b));
	run_world(sim);
	assert_int_equal(b.times[0], arrival);
	assert_int_equal(a.times[0], arrival + LATENCY);
	pn_sim_close(sim);
}

static void messages_share_the_wire_of_one_sender(void **state)
{
	struct pn_sim *sim = open_world("cost=ou2009", NULL);
	struct traffic a = { sim, 0, 1, 2, 9000, { 0 }, 0 };
	struct traffic b = { sim, 1, 0, 2, 9000, { 0 }, 0 };
	uint64_t arrival = START + MESSAGE + LATENCY + 10000;

	(void)state;
	assert_ok(pn_sim_spawn(sim, 0, sender, &a));
	assert_ok(pn_sim_spawn(sim, 1, receiver, &b));
	run_world(sim);
	assert_int_equal(b.times[0], arrival);
	assert_int_equal(b.times[1], arrival + 10000);
	assert_int_equal(a.times[1], arrival + 10000 + LATENCY);
	pn_sim_close(sim);
}

static void incast_shares_the_wire_of_the_receiver(void **state)
{
	struct pn_sim *sim = open_world("nodes=4,cost=ou2009", NULL);
	struct traffic senders[3];
	struct traffic b = { sim, 0, 0, 3, 9000, { 0 }, 0 };
	uint64_t arrival = START + MESSAGE + LATENCY + 10000;

	(void)state;
	assert_ok(pn_sim_spawn(sim, 0, receiver, &b));
	for (unsigned i = 0; i < 3; i++) {
		senders[i] =
			(struct traffic){ sim, i + 1, 0, 1, 9000, { 0 }, 0 };
		assert_ok(pn_sim_spawn(sim, i + 1, sender, &senders[i]));
	}
	run_world(sim);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(b.times[i], arrival + i * 10000);
		assert_int_equal(senders[i].times[0],
				 arrival + i * 10000 + LATENCY);
	}
	pn_sim_close(sim);
}

/* One side of a ping-pong; node 0 begins. */
static void player(void *arg)
{
	struct traffic *t = arg;
	struct pn_device *device = pn_sim_device(t->sim, t->node);
	struct pn_peer *peer = task_connect(t->sim, t->node, 1 - t->node);
	struct pn_completion c;
	char ball[180] = "";

	pn_sim_sleep(t->sim, START - pn_sim_now(t->sim));
	for (unsigned i = 0; i < t->rounds; i++) {
		if (t->node == 0)
			CHECK(!post_send(device, peer, ball, sizeof(ball), i));
		do {
			CHECK(!next_completion(device, &c));
		} while (c.kind == PN_COMPLETION_OP);
		CHECK(c.kind == PN_COMPLETION_RECV && c.imm == i);
		pn_device_return_buffer(device, &c);
		if (t->node == 1)
			CHECK(!post_send(device, peer, ball, sizeof(ball), i));
	}
	note_time(t);
}

static void half_a_round_trip_is_latency_bytes_and_two_message_costs(
	void **state)
{
	struct pn_sim *sim = open_world("cost=ou2009", NULL);
	struct traffic t[2] = { { sim, 0, 1, 100, 0, { 0 }, 0 },
				{ sim, 1, 0, 100, 0, { 0 }, 0 } };

	(void)state;
	assert_ok(pn_sim_spawn(sim, 0, player, &t[0]));
	assert_ok(pn_sim_spawn(sim, 1, player, &t[1]));
	run_world(sim);
	assert_int_equal(t[0].times[0] - START,
			 200 * (LATENCY + 200 + 2 * MESSAGE));
	pn_sim_close(sim);
}

static void attaching_takes_a_round_trip(void **state)
{
	struct pn_sim *sim = open_world("cost=ou2009", NULL);

	(void)state;
	connect_nodes(sim, 0, 1);
	assert_int_equal(pn_sim_now(sim), 2 * LATENCY);
	connect_nodes(sim, 0, 0);
	assert_int_equal(pn_sim_now(sim), 4 * LATENCY);
	pn_sim_close(sim);
}

/* Posts one operation outside tasks and returns the time until it completed. */
static uint64_t time_of(struct pn_sim *sim, struct pn_peer *peer,
			const struct pn_op *op)
{
	uint64_t start = pn_sim_now(sim);
	struct pn_completion c;

	assert_ok(pn_device_post(pn_sim_device(sim, 0), peer, op));
	assert_ok(next_completion(pn_sim_device(sim, 0), &c));
	assert_int_equal(c.kind, PN_COMPLETION_OP);
	assert_int_equal(c.status, 0);
	return pn_sim_now(sim) - start;
}

static void writes_and_reads_take_what_the_costs_say(void **state)
{
	struct pn_sim *sim = open_world("cost=ou2009", NULL);
	struct pn_device *device = pn_sim_device(sim, 0);
	struct pn_peer *peer = connect_nodes(sim, 0, 1);
	struct buffer local, remote;
	struct pn_sge sge;
	struct pn_op op;

	(void)state;
	assert_ok(buffer_open(device, 9000, ALL_ACCESS, &local));
	assert_ok(
		buffer_open(pn_sim_device(sim, 1), 9000, ALL_ACCESS, &remote));
	sge = whole(&local, 9000);
	op = remote_op(PN_OP_WRITE, &sge, &remote);
	assert_int_equal(time_of(sim, peer, &op),
			 MESSAGE + 2 * LATENCY + 10000);
	assert_true(device->costs.put_ns == MESSAGE + 2 * LATENCY);
	op = remote_op(PN_OP_READ, &sge, &remote);
	assert_int_equal(time_of(sim, peer, &op),
			 MESSAGE + 2 * LATENCY + 10000);
	assert_true(device->costs.get_ns == MESSAGE + 2 * LATENCY);
	assert_true(device->costs.emulated && device->emulated);
	buffer_close(device, &local);
	buffer_close(pn_sim_device(sim, 1), &remote);
	pn_sim_close(sim);
}

/* --- cores ---------------------------------------------------------------- */

struct work {
	struct pn_sim *sim;
	uint64_t begin_ns, cpu_ns, end_ns;
};

static void worker(void *arg)
{
	struct work *w = arg;

	pn_sim_sleep(w->sim, w->begin_ns);
	pn_device_consume_cpu(pn_sim_device(w->sim, 0), w->cpu_ns);
	w->end_ns = pn_sim_now(w->sim);
}

static void run_workers(const char *params, struct work *works, unsigned n)
{
	struct pn_sim *sim = open_world(params, NULL);

	for (unsigned i = 0; i < n; i++) {
		works[i].sim = sim;
		assert_ok(pn_sim_spawn(sim, 0, worker, &works[i]));
	}
	run_world(sim);
	pn_sim_close(sim);
}

static void tasks_take_turns_on_one_core(void **state)
{
	struct work w[2] = { { .cpu_ns = 10000000 }, { .cpu_ns = 10000000 } };

	(void)state;
	run_workers("cores=1,slice=1ms", w, 2);
	assert_int_equal(w[0].end_ns, 19000000);
	assert_int_equal(w[1].end_ns, 20000000);
}

static void tasks_on_cores_of_their_own_do_not_slow_each_other(void **state)
{
	struct work w[2] = { { .cpu_ns = 10000000 }, { .cpu_ns = 10000000 } };

	(void)state;
	run_workers("cores=2", w, 2);
	assert_int_equal(w[0].end_ns, 10000000);
	assert_int_equal(w[1].end_ns, 10000000);
}

static void newcomer_waits_for_the_end_of_a_slice(void **state)
{
	struct work w[2] = { { .cpu_ns = 10000000 },
			     { .begin_ns = 2500000, .cpu_ns = 100000 } };

	(void)state;
	run_workers("cores=1,slice=1ms", w, 2);
	assert_int_equal(w[1].end_ns, 3100000);
	assert_int_equal(w[0].end_ns, 10100000);
}

static void three_tasks_on_two_cores_share_them(void **state)
{
	struct work w[3] = { { .cpu_ns = 2000000 },
			     { .cpu_ns = 2000000 },
			     { .cpu_ns = 2000000 } };

	(void)state;
	run_workers("cores=2,slice=1ms", w, 3);
	/* 0 and 1; 2 and 0; 1 and 2. */
	assert_int_equal(w[0].end_ns, 2000000);
	assert_int_equal(w[1].end_ns, 3000000);
	assert_int_equal(w[2].end_ns, 3000000);
}

/* --- waiting -------------------------------------------------------------- */

static void waiting_outside_tasks_runs_to_the_deadline(void **state)
{
	struct pn_sim *sim = open_world("", NULL);
	struct pn_device *device = pn_sim_device(sim, 0);

	(void)state;
	assert_int_equal(pn_device_wait(device, 5000), -ETIMEDOUT);
	assert_int_equal(pn_device_now(device), 5000);
	pn_device_wake(device);
	assert_ok(pn_device_wait(device, 6000));
	assert_int_equal(pn_device_now(device), 5000);
	assert_int_equal(pn_device_wait(device, 6000), -ETIMEDOUT);
	pn_sim_close(sim);
}

static void empty_polls_let_time_pass(void **state)
{
	struct pn_sim *sim = open_world("cost=ou2009", NULL);
	struct pn_device *device = pn_sim_device(sim, 0);
	struct pn_address address;
	struct pn_completion c;
	struct pn_peer *peer;
	unsigned polls = 0;

	(void)state;
	pn_device_address(device, &address);
	assert_ok(pn_device_attach(device, &address, &peer));
	while (!pn_device_poll(device, &c, 1))
		assert_true(++polls < 1000);
	assert_int_equal(c.kind, PN_COMPLETION_PEER_UP);
	assert_true(pn_device_now(device) >= 2 * LATENCY);
	pn_sim_close(sim);
}

struct waiter {
	struct pn_sim *sim;
	int ret;
	uint64_t end_ns;
};

static void wait_for_a_millisecond(void *arg)
{
	struct waiter *w = arg;

	w->ret = pn_device_wait(pn_sim_device(w->sim, 0), 1000000);
	w->end_ns = pn_sim_now(w->sim);
}

static void wake_later(void *arg)
{
	struct waiter *w = arg;

	pn_sim_sleep(w->sim, 300);
	pn_device_wake(pn_sim_device(w->sim, 0));
}

static void a_task_waits_until_the_deadline_or_a_wake(void **state)
{
	struct pn_sim *sim = open_world("", NULL);
	struct waiter w = { .sim = sim };

	(void)state;
	assert_ok(pn_sim_spawn(sim, 0, wait_for_a_millisecond, &w));
	run_world(sim);
	assert_int_equal(w.ret, -ETIMEDOUT);
	assert_int_equal(w.end_ns, 1000000);
	pn_sim_close(sim);

	sim = w.sim = open_world("", NULL);
	assert_ok(pn_sim_spawn(sim, 0, wait_for_a_millisecond, &w));
	assert_ok(pn_sim_spawn(sim, 1, wake_later, &w));
	run_world(sim);
	assert_int_equal(w.ret, 0);
	assert_int_equal(w.end_ns, 300);
	pn_sim_close(sim);
}

static void wait_for_ever(void *arg)
{
	struct waiter *w = arg;

	w->ret = pn_device_wait(pn_sim_device(w->sim, 0), PN_FOREVER);
}

static void wait_without_listening(void *arg)
{
	struct waiter *w = arg;

	for (;;)
		w->ret = pn_device_wait(pn_sim_device(w->sim, 1), PN_FOREVER);
}

static void deadlock_is_detected_and_reported_to_every_task_once(void **state)
{
	struct pn_sim *sim = open_world("", NULL);
	struct waiter polite = { .sim = sim }, deaf = { .sim = sim };

	(void)state;
	assert_ok(pn_sim_spawn(sim, 0, wait_for_ever, &polite));
	assert_ok(pn_sim_spawn(sim, 1, wait_without_listening, &deaf));
	assert_int_equal(pn_sim_run(sim), -EDEADLK);
	assert_int_equal(polite.ret, -EDEADLK);
	assert_int_equal(deaf.ret, -EDEADLK);
	pn_sim_close(sim);
}

static void *wake_device(void *arg)
{
	pn_device_wake(arg);
	return NULL;
}

static void another_thread_can_wake_a_wait_for_ever(void **state)
{
	struct pn_device *device;
	pthread_t thread;

	(void)state;
	assert_ok(pn_device_open("sim", NULL, &device));
	assert_ok(pthread_create(&thread, NULL, wake_device, device));
	assert_ok(pn_device_wait(device, PN_FOREVER));
	assert_ok(pthread_join(thread, NULL));
	pn_device_close(device);
}

static void single_threaded_device_detects_a_deadlock(void **state)
{
	struct pn_device_attr attr = { .single_threaded = true };
	struct pn_device *device;

	(void)state;
	assert_ok(pn_device_open("sim", &attr, &device));
	assert_int_equal(pn_device_wait(device, PN_FOREVER), -EDEADLK);
	pn_device_close(device);
}

/* --- blocking ------------------------------------------------------------- */

struct door {
	struct pn_device *device;
	_Atomic uint32_t open, other;
	uint64_t passed_ns;
};

static void pass_door(void *arg)
{
	struct door *door = arg;

	while (!door->open)
		pn_device_futex_wait(door->device, &door->open, 0);
	door->passed_ns = pn_device_now(door->device);
}

static void open_door(void *arg)
{
	struct door *door = arg;

	pn_device_consume_cpu(door->device, 1000);
	door->other = 1;
	pn_device_futex_wake(door->device, &door->other);
	pn_device_consume_cpu(door->device, 4000);
	door->open = 1;
	pn_device_futex_wake(door->device, &door->open);
}

static void *open_door_in_thread(void *arg)
{
	open_door(arg);
	return NULL;
}

static void a_task_blocks_until_another_unblocks_it(void **state)
{
	struct pn_sim *sim = open_world("cores=2", NULL);
	struct door door = { .device = pn_sim_device(sim, 0) };

	(void)state;
	assert_ok(pn_sim_spawn(sim, 0, pass_door, &door));
	assert_ok(pn_sim_spawn(sim, 0, pass_door, &door));
	assert_ok(pn_sim_spawn(sim, 0, open_door, &door));
	run_world(sim);
	assert_int_equal(door.passed_ns, 5000);
	pn_device_futex_wait(door.device, &door.open, 0); /* returns at once */
	pn_sim_close(sim);
}

static void pass_door_or_give_up(void *arg)
{
	struct door *door = arg;

	pn_device_futex_wait_until(door->device, &door->open, 0, 3000);
	door->passed_ns = pn_device_now(door->device);
}

static void a_block_with_a_deadline_ends_there(void **state)
{
	struct pn_sim *sim = open_world("cores=2", NULL);
	struct door late = { .device = pn_sim_device(sim, 0) };
	struct door soon = late;

	(void)state;
	assert_ok(pn_sim_spawn(sim, 0, pass_door_or_give_up, &late));
	run_world(sim);
	assert_int_equal(late.passed_ns, 3000);
	/* After its deadline it does not block at all. */
	assert_ok(pn_sim_spawn(sim, 0, pass_door_or_give_up, &soon));
	run_world(sim);
	assert_int_equal(soon.passed_ns, 3000);
	/* The same outside tasks. */
	pn_device_futex_wait_until(late.device, &late.other, 0, 9000);
	assert_int_equal(pn_sim_now(sim), 9000);
	pn_sim_close(sim);
}

/* The timer ends with the block: it does not end the task's next sleep. */
static void an_unblock_in_time_leaves_no_timer(void **state)
{
	struct pn_sim *sim = open_world("cores=2", NULL);
	struct door door = { .device = pn_sim_device(sim, 0) };

	(void)state;
	assert_ok(pn_sim_spawn(sim, 0, open_door, &door));
	pn_device_futex_wait_until(door.device, &door.open, 0, 4000);
	assert_ok(pn_sim_spawn(sim, 0, pass_door, &door));
	run_world(sim);
	assert_int_equal(door.passed_ns, 5000);
	assert_int_equal(pn_sim_now(sim), 5000);
	pn_sim_close(sim);
}

static void a_block_that_nobody_ends_is_a_deadlock(void **state)
{
	struct pn_sim *sim = open_world("", NULL);
	struct door door = { .device = pn_sim_device(sim, 0) };

	(void)state;
	assert_ok(pn_sim_spawn(sim, 0, pass_door, &door));
	assert_int_equal(pn_sim_run(sim), -EDEADLK);
	pn_sim_close(sim);
}

/* A host waits for a task, and for another thread. */
static void hosts_block_for_tasks_and_threads(void **state)
{
	struct pn_sim *sim = open_world("", NULL);
	struct door door = { .device = pn_sim_device(sim, 0) };
	pthread_t thread;

	(void)state;
	assert_ok(pn_sim_spawn(sim, 0, open_door, &door));
	pass_door(&door);
	assert_int_equal(door.passed_ns, 5000);
	door.open = 0;
	assert_ok(pthread_create(&thread, NULL, open_door_in_thread, &door));
	pass_door(&door);
	assert_ok(pthread_join(thread, NULL));
	assert_int_equal(door.passed_ns, 10000);
	pn_sim_close(sim);
}

/* --- a plain program ------------------------------------------------------ */

static void plain_program_puts_to_itself(void **state)
{
	struct pn_device *device;
	struct pn_address address;
	struct pn_completion c;
	struct pn_peer *peer;
	struct buffer from, to;
	struct pn_sge sge;
	struct pn_op op;
	uint64_t start;

	(void)state;
	assert_ok(pn_device_open("sim:cost=ou2009", NULL, &device));
	assert_true(device->caps & PN_CAP_VIRTUAL_TIME);
	pn_device_address(device, &address);
	assert_ok(pn_device_attach(device, &address, &peer));
	assert_ok(next_completion(device, &c));
	assert_int_equal(c.kind, PN_COMPLETION_PEER_UP);
	assert_ok(buffer_open(device, PAGE, 0, &from));
	assert_ok(buffer_open(device, PAGE, ALL_ACCESS, &to));
	memset(from.bytes, 'x', PAGE);
	sge = whole(&from, PAGE);
	op = remote_op(PN_OP_WRITE, &sge, &to);
	op.user = &op;
	start = pn_device_now(device);
	assert_ok(pn_device_post(device, peer, &op));
	assert_ok(next_completion(device, &c));
	assert_ptr_equal(c.user, &op);
	assert_int_equal(c.status, 0);
	assert_memory_equal(from.bytes, to.bytes, PAGE);
	assert_true(pn_device_now(device) > start);
	buffer_close(device, &from);
	buffer_close(device, &to);
	pn_device_close(device);
}

#define THREADS	 4
#define REPEATS	 200
#define ONE_COST (7420 + 770 + 1100 + 220)

static void *register_many(void *arg)
{
	struct pn_device *device = arg;
	uintptr_t failures = 0;
	struct buffer b;

	for (unsigned i = 0; i < REPEATS; i++) {
		failures += buffer_open(device, PAGE, ALL_ACCESS, &b) != 0;
		failures += b.mr.rkey == 0 || b.mr.lkey == 0;
		buffer_close(device, &b);
	}
	return (void *)failures;
}

static void threads_register_at_once_and_their_cpu_times_add_up(void **state)
{
	struct pn_device *device;
	struct pn_pinned pinned;
	pthread_t threads[THREADS];
	void *failures;

	(void)state;
	assert_ok(pn_device_open("sim:cost=ou2009", NULL, &device));
	for (unsigned i = 0; i < THREADS; i++)
		assert_ok(pthread_create(&threads[i], NULL, register_many,
					 device));
	for (unsigned i = 0; i < THREADS; i++) {
		assert_ok(pthread_join(threads[i], &failures));
		assert_null(failures);
	}
	assert_int_equal(pn_device_now(device), THREADS * REPEATS * ONE_COST);
	pn_device_pinned(device, &pinned);
	assert_int_equal(pinned.live_bytes, 0);
	assert_int_equal(pinned.mrs, 0);
	pn_device_close(device);
}

#define PARCELS 300

struct post_office {
	struct pn_device *device;
	struct pn_peer *peer;
	unsigned failures;
};

static void *post_parcels(void *arg)
{
	struct post_office *office = arg;
	struct pn_completion c;

	for (uint32_t i = 0; i < PARCELS; i++) {
		while (post_send(office->device, office->peer, &i, sizeof(i),
				 i) == -EAGAIN)
			office->failures +=
				next_completion(office->device, &c) != 0;
	}
	return NULL;
}

static void one_thread_waits_while_another_posts(void **state)
{
	struct pn_sim *sim = open_world("cost=cx5,depth=8", NULL);
	struct post_office office = { .device = pn_sim_device(sim, 0) };
	struct pn_completion c;
	pthread_t thread;

	(void)state;
	office.peer = connect_nodes(sim, 0, 1);
	assert_ok(pthread_create(&thread, NULL, post_parcels, &office));
	for (uint32_t i = 0; i < PARCELS; i++) {
		assert_ok(next_completion(pn_sim_device(sim, 1), &c));
		assert_int_equal(c.kind, PN_COMPLETION_RECV);
		assert_memory_equal(c.data, &i, sizeof(i));
		pn_device_return_buffer(pn_sim_device(sim, 1), &c);
	}
	assert_ok(pthread_join(thread, NULL));
	assert_int_equal(office.failures, 0);
	pn_sim_close(sim);
}

struct crier {
	struct pn_sim *sim;
	_Atomic bool done;
	unsigned naps;
};

static void *announce_releases(void *arg)
{
	struct crier *crier = arg;

	for (unsigned i = 0; i < 100; i++)
		pn_sim_released(crier->sim, 0, crier, 1);
	crier->done = true;
	return NULL;
}

static void nap_until_done(void *arg)
{
	struct crier *crier = arg;

	while (!crier->done) {
		pn_sim_sleep(crier->sim, 1000);
		crier->naps++;
	}
}

static void other_threads_get_the_lock_while_the_world_runs(void **state)
{
	struct pn_sim *sim = open_world("", NULL);
	struct crier crier = { .sim = sim };
	pthread_t thread;

	(void)state;
	assert_ok(pn_sim_spawn(sim, 0, nap_until_done, &crier));
	assert_ok(pthread_create(&thread, NULL, announce_releases, &crier));
	run_world(sim);
	assert_ok(pthread_join(thread, NULL));
	assert_int_equal(pn_sim_now(sim), 1000 * (uint64_t)crier.naps);
	pn_sim_close(sim);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(registering_takes_what_the_profile_says),
		TEST(batches_pay_one_fixed_part_for_deregistering_alone),
		TEST(copying_takes_time_and_copies),
		TEST(one_message_takes_latency_and_its_bytes),
		TEST(messages_share_the_wire_of_one_sender),
		TEST(incast_shares_the_wire_of_the_receiver),
		TEST(half_a_round_trip_is_latency_bytes_and_two_message_costs),
		TEST(attaching_takes_a_round_trip),
		TEST(writes_and_reads_take_what_the_costs_say),
		TEST(tasks_take_turns_on_one_core),
		TEST(tasks_on_cores_of_their_own_do_not_slow_each_other),
		TEST(newcomer_waits_for_the_end_of_a_slice),
		TEST(three_tasks_on_two_cores_share_them),
		TEST(waiting_outside_tasks_runs_to_the_deadline),
		TEST(empty_polls_let_time_pass),
		TEST(a_task_waits_until_the_deadline_or_a_wake),
		TEST(deadlock_is_detected_and_reported_to_every_task_once),
		TEST(another_thread_can_wake_a_wait_for_ever),
		TEST(single_threaded_device_detects_a_deadlock),
		TEST(a_task_blocks_until_another_unblocks_it),
		TEST(a_block_with_a_deadline_ends_there),
		TEST(an_unblock_in_time_leaves_no_timer),
		TEST(a_block_that_nobody_ends_is_a_deadlock),
		TEST(hosts_block_for_tasks_and_threads),
		TEST(plain_program_puts_to_itself),
		TEST(threads_register_at_once_and_their_cpu_times_add_up),
		TEST(one_thread_waits_while_another_posts),
		TEST(other_threads_get_the_lock_while_the_world_runs),
	};

	return RUN_TESTS(tests);
}
