/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Random traffic on `sim` against a naive model, the same run twice, and a
 * thousand nodes in little memory.
 *
 * Every node has, on every node, a window that only it changes, by writes and
 * atomics, and a shadow of the expected contents. Operations are posted without
 * waiting for each other; what follows a read or an atomic carries a fence,
 * since a write may otherwise overtake the read. Messages carry a number and
 * bytes made from it.
 */
#include "sim_world.h"

#include <stdio.h>
#include <time.h>

#define NODES  4
#define WINDOW 512
#define STEPS  400
#define FLIGHT 32

struct flight {
	bool busy;
	enum pn_op_kind kind;
	unsigned offset, len, slot;
	char expected[WINDOW]; /* of a read; an atomic's old value */
};

struct actor {
	struct pn_sim *sim;
	struct pn_device *device;
	unsigned node;
	uint64_t random;
	struct buffer window;  /* NODES ranges, one for each writer */
	struct buffer staging; /* FLIGHT ranges of WINDOW bytes */
	struct pn_peer *peers[NODES];
	unsigned nup;
	char shadow[NODES][WINDOW];
	bool fence[NODES]; /* the next operation needs one */
	struct flight flights[FLIGHT];
	unsigned nbusy;
	uint32_t sent[NODES], received[NODES];
	unsigned ndone; /* nodes that have finished */
};

static struct actor actors[NODES];

#define GOODBYE UINT32_MAX

static char byte_of(uint32_t number, size_t i)
{
	return (char)(number * 31 + i * 7);
}

static unsigned peer_index(const struct actor *a, const struct pn_peer *peer)
{
	for (unsigned i = 0; i < NODES; i++)
		if (a->peers[i] == peer)
			return i;
	return NODES;
}

static void take_message(struct actor *a, const struct pn_completion *c)
{
	unsigned from = peer_index(a, c->peer);
	const char *data = c->data;

	CHECK(from < NODES);
	if (c->imm == GOODBYE) {
		a->ndone++;
	} else if (from < NODES) {
		CHECK(c->imm == a->received[from]++);
		for (size_t i = 0; i < c->len; i++)
			CHECK(data[i] == byte_of(c->imm, i));
	}
	pn_device_return_buffer(a->device, c);
}

static void take_end(struct actor *a, const struct pn_completion *c)
{
	struct flight *f = c->user;

	CHECK(!c->status);
	CHECK(f->busy);
	if (f->kind != PN_OP_SEND && f->kind != PN_OP_WRITE)
		CHECK(!memcmp(a->staging.bytes + f->slot * WINDOW, f->expected,
			      f->len));
	f->busy = false;
	a->nbusy--;
}

static void take_all(struct actor *a)
{
	struct pn_completion c[5];
	int n;

	while ((n = pn_device_poll(a->device, c,
				   1 + test_below(&a->random, 5)))) {
		for (int i = 0; i < n; i++) {
			if (c[i].kind == PN_COMPLETION_RECV)
				take_message(a, &c[i]);
			else if (c[i].kind == PN_COMPLETION_OP)
				take_end(a, &c[i]);
			else
				a->nup++;
		}
	}
}

static struct flight *free_flight(struct actor *a)
{
	for (unsigned i = 0; i < FLIGHT; i++) {
		if (!a->flights[i].busy) {
			a->flights[i].slot = i;
			return &a->flights[i];
		}
	}
	return NULL;
}

/* Applies the operation to the shadow. */
static void foresee(struct actor *a, struct flight *f, unsigned to, char *bytes,
		    struct pn_op *op)
{
	char *shadow = a->shadow[to] + f->offset;
	uint64_t value;

	if (f->kind == PN_OP_SEND) {
		op->imm = a->sent[to]++;
		for (size_t i = 0; i < f->len; i++)
			bytes[i] = byte_of(op->imm, i);
	} else if (f->kind == PN_OP_WRITE) {
		for (size_t i = 0; i < f->len; i++)
			bytes[i] = (char)test_random(&a->random);
		memcpy(shadow, bytes, f->len);
	} else {
		memcpy(f->expected, shadow, f->len);
	}
	if (f->kind == PN_OP_FETCH_ADD) {
		memcpy(&value, shadow, 8);
		value += op->operand;
		memcpy(shadow, &value, 8);
	}
}

static void post_random(struct actor *a)
{
	static const enum pn_op_kind kinds[] = { PN_OP_SEND, PN_OP_WRITE,
						 PN_OP_READ, PN_OP_FETCH_ADD };
	struct flight *f = free_flight(a);
	unsigned to = (unsigned)test_below(&a->random, NODES);
	struct buffer *window = &actors[to].window;
	size_t base = a->node * WINDOW;
	char *bytes = a->staging.bytes + f->slot * WINDOW;
	struct pn_sge sge[2];
	struct pn_op op = { .sge = sge, .nsge = 2, .user = f };
	size_t cut;

	f->kind = op.kind = kinds[test_below(&a->random, 4)];
	f->offset = (unsigned)test_below(&a->random, WINDOW / 8) * 8;
	f->len = op.kind == PN_OP_FETCH_ADD
			 ? 8
			 : (unsigned)test_below(&a->random,
						WINDOW - f->offset + 1);
	op.operand = test_random(&a->random);
	op.remote_addr = (uintptr_t)window->bytes + base + f->offset;
	op.rkey = window->mr.rkey;
	op.flags = a->fence[to] ? PN_OP_FENCE : 0;
	cut = op.kind == PN_OP_FETCH_ADD ? 8
					 : test_below(&a->random, f->len + 1);
	op.nsge = op.kind == PN_OP_FETCH_ADD ? 1 : 2;
	sge[0] = (struct pn_sge){ bytes, cut, a->staging.mr.lkey };
	sge[1] = (struct pn_sge){ bytes + cut, f->len - cut,
				  a->staging.mr.lkey };
	foresee(a, f, to, bytes, &op);
	a->fence[to] = op.kind != PN_OP_SEND && op.kind != PN_OP_WRITE;
	f->busy = true;
	a->nbusy++;
	CHECK(!pn_device_post(a->device, a->peers[to], &op));
}

static void wait_until(struct actor *a, const unsigned *value, unsigned wanted,
		       bool at_most)
{
	take_all(a);
	while (at_most ? *value > wanted : *value < wanted) {
		CHECK(!pn_device_wait(a->device, PN_FOREVER));
		if (failed_line)
			return;
		take_all(a);
	}
}

static void act(void *arg)
{
	struct actor *a = arg;
	struct pn_address address;

	CHECK(!buffer_open(a->device, NODES * WINDOW, ALL_ACCESS, &a->window));
	CHECK(!buffer_open(a->device, FLIGHT * WINDOW, ALL_ACCESS,
			   &a->staging));
	for (unsigned i = 0; i < NODES; i++) {
		pn_device_address(pn_sim_device(a->sim, i), &address);
		CHECK(!pn_device_attach(a->device, &address, &a->peers[i]));
	}
	wait_until(a, &a->nup, NODES, false);
	/* Every window is registered by now. */
	pn_sim_sleep(a->sim, 1000000);
	for (unsigned i = 0; i < STEPS && !failed_line; i++) {
		post_random(a);
		take_all(a);
		if (a->nbusy == FLIGHT || test_below(&a->random, 10) == 0)
			wait_until(a, &a->nbusy, FLIGHT / 2, true);
	}
	wait_until(a, &a->nbusy, 0, true);
	for (unsigned i = 0; i < NODES; i++) {
		struct pn_op bye = { .kind = PN_OP_SEND,
				     .flags = PN_OP_SILENT,
				     .imm = GOODBYE };

		CHECK(!pn_device_post(a->device, a->peers[i], &bye));
	}
	wait_until(a, &a->ndone, NODES, false);
}

/* Runs the traffic and returns the digest. */
static uint64_t run_traffic(const char *params, uint64_t seed)
{
	struct pn_sim *sim = open_world(params, NULL);
	uint64_t digest;

	memset(actors, 0, sizeof(actors));
	for (unsigned i = 0; i < NODES; i++) {
		actors[i].sim = sim;
		actors[i].device = pn_sim_device(sim, i);
		actors[i].node = i;
		actors[i].random = seed * 1000003 + i + 1;
		assert_ok(pn_sim_spawn(sim, i, act, &actors[i]));
	}
	run_world(sim);
	for (unsigned i = 0; i < NODES; i++)
		for (unsigned to = 0; to < NODES; to++) {
			assert_memory_equal(actors[i].shadow[to],
					    actors[to].window.bytes +
						    i * WINDOW,
					    WINDOW);
			assert_int_equal(actors[i].sent[to],
					 actors[to].received[i]);
		}
	digest = pn_sim_digest(sim);
	for (unsigned i = 0; i < NODES; i++) {
		buffer_close(actors[i].device, &actors[i].window);
		buffer_close(actors[i].device, &actors[i].staging);
	}
	pn_sim_close(sim);
	return digest;
}

static void random_traffic_agrees_with_the_model(void **state)
{
	static const char *const worlds[] = {
		"nodes=4",
		"nodes=4,cost=ou2009",
		"nodes=4,cost=cx5,jitter=500",
		"nodes=4,cost=stria,inbox_slots=2",
		"nodes=4,cost=ou2009,inbox=1K,send=512,jitter=1000",
	};
	uint64_t seed = test_seed();

	(void)state;
	for (size_t i = 0; i < PN_ARRAY_LEN(worlds); i++)
		run_traffic(worlds[i], seed + i);
}

static void the_same_seed_gives_the_same_run(void **state)
{
	uint64_t digest = run_traffic("nodes=4,cost=cx5,jitter=300,seed=7", 1);
	char *elsewhere = malloc(12345); /* other addresses than before */

	(void)state;
	assert_true(digest ==
		    run_traffic("nodes=4,cost=cx5,jitter=300,seed=7", 1));
	assert_true(digest !=
		    run_traffic("nodes=4,cost=cx5,jitter=300,seed=8", 1));
	assert_true(digest !=
		    run_traffic("nodes=4,cost=cx5,jitter=300,seed=7", 2));
	assert_true(digest != run_traffic("nodes=4,cost=cx5,seed=7", 1));
	free(elsewhere);
}

/* --- many nodes ----------------------------------------------------------- */

#define CROWD 1000

struct ring_world {
	struct pn_sim *sim;
	unsigned laps, arrived;
};

struct ring_task {
	struct ring_world *world;
	unsigned node;
};

/* Passes a token on to the next node, `laps` times. */
static void pass_on(void *arg)
{
	struct ring_task *t = arg;
	struct ring_world *w = t->world;
	struct pn_device *device = pn_sim_device(w->sim, t->node);
	struct pn_peer *next = NULL;
	struct pn_address address;
	struct pn_completion c;
	unsigned laps = 0, up = 0;

	pn_device_address(pn_sim_device(w->sim, (t->node + 1) % CROWD),
			  &address);
	CHECK(!pn_device_attach(device, &address, &next));
	while (laps < w->laps) {
		CHECK(!next_completion(device, &c));
		up += c.kind == PN_COMPLETION_PEER_UP;
		/* Everybody has two neighbours and starts a token. */
		if (c.kind == PN_COMPLETION_PEER_UP && up == 2)
			CHECK(!post_send(device, next, "token", 5, 0));
		if (c.kind != PN_COMPLETION_RECV)
			continue;
		CHECK(c.len == 5 && !memcmp(c.data, "token", 5));
		pn_device_return_buffer(device, &c);
		if (++laps < w->laps)
			CHECK(!post_send(device, next, "token", 5, laps));
	}
	w->arrived++;
}

static size_t peak_resident_bytes(void)
{
	FILE *file = fopen("/proc/self/status", "re");
	char line[256];
	size_t kib = 0;

	assert_non_null(file);
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, "VmHWM: %zu kB", &kib) == 1)
			break;
	fclose(file);
	return kib << 10;
}

static void a_thousand_nodes_fit_in_a_gibibyte(void **state)
{
	struct pn_sim *sim = open_world("nodes=1000,cost=cx5", NULL);
	struct ring_world world = { .sim = sim, .laps = 50 };
	static struct ring_task tasks[CROWD];
	size_t peak, before = peak_resident_bytes();
	clock_t start = clock();

	(void)state;
	for (unsigned i = 0; i < CROWD; i++) {
		tasks[i] = (struct ring_task){ &world, i };
		assert_ok(pn_sim_spawn(sim, i, pass_on, &tasks[i]));
	}
	run_world(sim);
	assert_int_equal(world.arrived, CROWD);
	peak = peak_resident_bytes();
	printf("peak resident: %zu KiB, %zu bytes per node; %.0f steps per "
	       "second of CPU time\n",
	       peak >> 10, (peak - before) / CROWD,
	       (double)pn_sim_steps(sim) * CLOCKS_PER_SEC /
		       (double)(clock() - start + 1));
	assert_true(peak > 0 && peak < (size_t)1 << 30);
	pn_sim_close(sim);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(random_traffic_agrees_with_the_model),
		TEST(the_same_seed_gives_the_same_run),
		TEST(a_thousand_nodes_fit_in_a_gibibyte),
	};

	return RUN_TESTS(tests);
}
