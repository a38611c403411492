/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Faults on `sim`: scripted faults, dying nodes, limits, and registrations that
 * have outlived their pages.
 */
#include "sim_world.h"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

/* --- registrations -------------------------------------------------------- */

static int try_register(struct pn_device *device)
{
	static char memory[64];
	struct pn_mr mr = { .addr = memory, .len = sizeof(memory) };
	struct pn_mr *mrs = &mr;
	int ret = pn_device_register(device, &mrs, 1);

	if (!ret)
		pn_device_deregister(device, &mrs, 1);
	return ret;
}

static void the_third_registration_fails(void **state)
{
	struct pn_sim *sim = open_world("", "fail registration 3 with ENOMEM");

	(void)state;
	assert_ok(try_register(pn_sim_device(sim, 0)));
	assert_ok(try_register(pn_sim_device(sim, 1)));
	assert_int_equal(try_register(pn_sim_device(sim, 0)), -ENOMEM);
	assert_ok(try_register(pn_sim_device(sim, 0)));
	pn_sim_close(sim);
}

static void every_second_registration_of_a_node_fails(void **state)
{
	struct pn_sim *sim =
		open_world("",
			   "fail registrations every 2 with EAGAIN on node 1");

	(void)state;
	for (unsigned i = 1; i <= 6; i++) {
		assert_ok(try_register(pn_sim_device(sim, 0)));
		assert_int_equal(try_register(pn_sim_device(sim, 1)),
				 i % 2 ? 0 : -EAGAIN);
	}
	pn_sim_close(sim);
}

static void a_failing_range_fails_its_batch_and_changes_nothing(void **state)
{
	struct pn_sim *sim =
		open_world("cost=ou2009", "fail registration 2 with ENOMEM");
	struct pn_device *device = pn_sim_device(sim, 0);
	char memory[3];
	struct pn_mr mr[3];
	struct pn_mr *mrs[] = { &mr[0], &mr[1], &mr[2] };
	struct pn_pinned pinned;

	(void)state;
	for (unsigned i = 0; i < 3; i++)
		mr[i] = (struct pn_mr){ .addr = &memory[i], .len = 1 };
	assert_int_equal(pn_device_register(device, mrs, 3), -ENOMEM);
	pn_device_pinned(device, &pinned);
	assert_int_equal(pinned.mrs, 0);
	assert_int_equal(pinned.live_bytes, 0);
	assert_int_equal(pn_sim_now(sim), 0);
	assert_ok(pn_device_register(device, mrs, 3));
	pn_device_deregister(device, mrs, 3);
	pn_sim_close(sim);
}

static void the_second_registration_takes_longer(void **state)
{
	struct pn_sim *sim = open_world("", "delay registration 2 by 10 ms");

	(void)state;
	assert_ok(try_register(pn_sim_device(sim, 0)));
	assert_int_equal(pn_sim_now(sim), 0);
	assert_ok(try_register(pn_sim_device(sim, 0)));
	assert_int_equal(pn_sim_now(sim), 10000000);
	pn_sim_close(sim);
}

static void limits_are_kept_and_can_shrink(void **state)
{
	struct pn_sim *sim =
		open_world("limit=8K,max_mrs=2", "limit node 1 to 4K at 2 ms");
	struct buffer a, b, c;

	(void)state;
	for (unsigned node = 0; node < 2; node++) {
		struct pn_device *device = pn_sim_device(sim, node);

		assert_int_equal(buffer_open(device, 3 * PAGE, 0, &a), -ENOMEM);
		free(a.bytes);
		assert_ok(buffer_open(device, PAGE, 0, &a));
		assert_ok(buffer_open(device, PAGE, 0, &b));
		assert_int_equal(buffer_open(device, 1, 0, &c), -ENOMEM);
		free(c.bytes);
		buffer_close(device, &a);
		buffer_close(device, &b);
	}
	pn_sim_sleep(sim, 2000000);
	assert_ok(buffer_open(pn_sim_device(sim, 0), 2 * PAGE, 0, &a));
	buffer_close(pn_sim_device(sim, 0), &a);
	assert_int_equal(buffer_open(pn_sim_device(sim, 1), 2 * PAGE, 0, &a),
			 -ENOMEM);
	free(a.bytes);
	pn_sim_close(sim);
}

/* --- messages ------------------------------------------------------------- */

/* Records when three messages, posted together at time 0, arrive. */
static void arrivals(const char *params, const char *script, uint64_t *times)
{
	struct pn_sim *sim = open_world(params, script);
	struct pn_device *b = pn_sim_device(sim, 1);
	struct pn_peer *peer = connect_nodes(sim, 0, 1);
	uint64_t start = pn_sim_now(sim);
	struct pn_completion c;

	for (uint32_t i = 0; i < 3; i++)
		assert_ok(post_send(pn_sim_device(sim, 0), peer, "x", 1, i));
	for (uint32_t i = 0; i < 3; i++) {
		assert_ok(pn_device_wait(b, PN_FOREVER));
		times[i] = pn_sim_now(sim) - start;
		assert_int_equal(pn_device_poll(b, &c, 1), 1);
		assert_int_equal(c.imm, i);
		pn_device_return_buffer(b, &c);
	}
	pn_sim_close(sim);
}

static void delayed_messages_keep_their_order(void **state)
{
	uint64_t times[3];

	(void)state;
	arrivals("", "delay 5 us", times);
	assert_int_equal(times[0], 5000);
	assert_int_equal(times[2], 5000);
	arrivals("", "delay message 2 by 3 us", times);
	assert_int_equal(times[0], 0);
	assert_int_equal(times[1], 3000);
	assert_int_equal(times[2], 3000);
}

/* --- dying ---------------------------------------------------------------- */

struct survivor {
	struct pn_sim *sim;
	uint64_t reset, down, down_ns;
	int late_post;
	bool bystander_ok;
};

struct doom {
	struct pn_sim *sim;
	unsigned steps;
};

static void doomed(void *arg)
{
	struct doom *doom = arg;

	for (;; doom->steps++)
		pn_sim_sleep(doom->sim, 300000);
}

/* Keeps sending to node 2, which dies, and to node 1, which does not. */
static void survive(void *arg)
{
	struct survivor *s = arg;
	struct pn_device *device = pn_sim_device(s->sim, 0);
	struct pn_peer *dying = task_connect(s->sim, 0, 2);
	struct pn_peer *other = task_connect(s->sim, 0, 1);
	struct pn_completion c;

	while (!s->down) {
		int ret = post_send(device, dying, "x", 1, 0);

		/* The peer may be down already, though PEER_DOWN was not polled
		 * yet. */
		CHECK(!ret || ret == -EAGAIN || ret == -ECONNRESET);
		pn_device_wait(device, pn_sim_now(s->sim) + 100000);
		while (pn_device_poll(device, &c, 1)) {
			s->reset += c.kind == PN_COMPLETION_OP &&
				    c.status == -ECONNRESET;
			if (c.kind != PN_COMPLETION_PEER_DOWN)
				continue;
			CHECK(c.peer == dying && c.status == -ECONNRESET);
			s->down++;
			s->down_ns = pn_sim_now(s->sim);
		}
		pn_sim_sleep(s->sim, 10000);
	}
	s->late_post = post_send(device, dying, "x", 1, 0);
	CHECK(!post_send(device, other, "x", 1, 0));
	CHECK(!next_completion(device, &c));
	s->bystander_ok = c.peer == other && !c.status;
}

static void peers_of_a_dead_node_detect_it_in_bounded_time(void **state)
{
	struct pn_sim *sim = open_world("nodes=3,cost=ou2009,detect=1ms",
					"drop peer 2 at 1 ms");
	struct survivor s = { .sim = sim };
	struct doom doom = { .sim = sim };

	(void)state;
	assert_ok(pn_sim_spawn(sim, 0, survive, &s));
	assert_ok(pn_sim_spawn(sim, 2, doomed, &doom));
	run_world(sim);
	assert_int_equal(doom.steps, 3);
	assert_int_equal(s.down, 1);
	assert_true(s.reset > 0);
	assert_true(s.down_ns >= 2000000 && s.down_ns < 2200000);
	assert_int_equal(s.late_post, -ECONNRESET);
	assert_true(s.bystander_ok);
	pn_sim_close(sim);
}

static void a_dead_node_has_no_registrations_and_takes_none(void **state)
{
	struct pn_sim *sim = open_world("", "drop peer 1 at 1 ms");
	struct pn_device *device = pn_sim_device(sim, 1);
	struct pn_address address;
	struct pn_completion c;
	struct pn_pinned pinned;
	struct pn_peer *peer;
	struct buffer b, d;

	(void)state;
	assert_ok(buffer_open(device, PAGE, ALL_ACCESS, &b));
	pn_sim_sleep(sim, 1000000);
	pn_device_pinned(device, &pinned);
	assert_int_equal(pinned.mrs, 0);
	assert_int_equal(pinned.live_bytes, 0);
	assert_int_equal(buffer_open(device, PAGE, 0, &d), -ENODEV);
	free(d.bytes);
	buffer_close(device, &b);
	assert_int_equal(pn_sim_spawn(sim, 1, doomed, NULL), -ENODEV);
	pn_device_address(device, &address);
	assert_int_equal(pn_device_attach(device, &address, &peer), -ENODEV);
	assert_ok(pn_device_attach(pn_sim_device(sim, 0), &address, &peer));
	assert_ok(next_completion(pn_sim_device(sim, 0), &c));
	assert_int_equal(c.kind, PN_COMPLETION_PEER_DOWN);
	assert_int_equal(c.status, -ECONNRESET);
	pn_sim_close(sim);
}

static void operations_end_in_order_when_their_peer_dies(void **state)
{
	struct pn_sim *sim = open_world("cost=ou2009", NULL);
	struct pn_device *device = pn_sim_device(sim, 0);
	struct pn_peer *peer = connect_nodes(sim, 0, 1);
	struct pn_completion c;
	char marks[5];

	(void)state;
	for (unsigned i = 0; i < 5; i++) {
		struct pn_op op = { .kind = PN_OP_SEND, .user = &marks[i] };

		op.flags = i % 2 ? PN_OP_SILENT : 0;
		assert_ok(pn_device_post(device, peer, &op));
	}
	pn_device_close(pn_sim_device(sim, 1));
	for (unsigned i = 0; i < 5; i++) {
		assert_ok(next_completion(device, &c));
		assert_int_equal(c.status, -ECONNRESET);
		assert_ptr_equal(c.user, &marks[i]);
	}
	assert_ok(next_completion(device, &c));
	assert_int_equal(c.kind, PN_COMPLETION_PEER_DOWN);
	assert_int_equal(pn_device_poll(device, &c, 1), 0);
	pn_sim_close(sim);
}

static void stalled_messages_of_a_dead_node_are_dropped(void **state)
{
	struct pn_sim *sim = open_world("nodes=3,inbox_slots=1", NULL);
	struct pn_device *b = pn_sim_device(sim, 1);
	struct pn_peer *dying = connect_nodes(sim, 0, 1);
	struct pn_peer *other = connect_nodes(sim, 2, 1);
	struct pn_completion c;

	(void)state;
	for (uint32_t i = 0; i < 3; i++)
		assert_ok(post_send(pn_sim_device(sim, 0), dying, "x", 1, i));
	assert_int_equal(pn_device_poll(b, &c, 1), 1);
	assert_int_equal(c.imm, 0);
	assert_ok(post_send(pn_sim_device(sim, 2), other, "y", 1, 7));
	pn_device_close(pn_sim_device(sim, 0));
	pn_device_return_buffer(b, &c);
	assert_ok(next_completion(b, &c));
	assert_int_equal(c.kind, PN_COMPLETION_RECV);
	assert_int_equal(c.imm, 7);
	pn_device_return_buffer(b, &c);
	assert_ok(next_completion(b, &c));
	assert_int_equal(c.kind, PN_COMPLETION_PEER_DOWN);
	pn_sim_close(sim);
}

/* --- staleness ------------------------------------------------------------ */

/* A put from one page to another of the same node, and its status. */
struct stale_world {
	struct pn_sim *sim;
	struct pn_peer *self;
	char *from;
	struct buffer to;
	struct pn_mr mr;
};

static void stale_open(struct stale_world *w)
{
	struct pn_mr *mr = &w->mr;

	w->sim = open_world("", NULL);
	w->self = connect_nodes(w->sim, 0, 0);
	assert_ok(buffer_open(pn_sim_device(w->sim, 0), 4 * PAGE, ALL_ACCESS,
			      &w->to));
	w->from = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(w->from != MAP_FAILED);
	w->mr = (struct pn_mr){ .addr = w->from,
				.len = 4 * PAGE,
				.access = ALL_ACCESS };
	assert_ok(pn_device_register(pn_sim_device(w->sim, 0), &mr, 1));
}

static void stale_close(struct stale_world *w)
{
	buffer_close(pn_sim_device(w->sim, 0), &w->to);
	munmap(w->from, 4 * PAGE);
	pn_sim_close(w->sim);
}

static int stale_op(struct stale_world *w, enum pn_op_kind kind, size_t page)
{
	struct pn_sge sge = { w->from + page * PAGE, PAGE, w->mr.lkey };
	struct pn_op op = remote_op(kind, &sge, &w->to);
	struct pn_completion c;

	assert_ok(pn_device_post(pn_sim_device(w->sim, 0), w->self, &op));
	assert_ok(next_completion(pn_sim_device(w->sim, 0), &c));
	return c.status;
}

/* Unmaps a page and maps another at its address. */
static void replace_page(struct stale_world *w, size_t page)
{
	char *addr = w->from + page * PAGE;

	assert_ok(munmap(addr, PAGE));
	assert_ptr_equal(mmap(addr, PAGE, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
			 addr);
	memset(addr, 'n', PAGE);
}

static void an_announced_release_makes_the_key_stale_there_alone(void **state)
{
	struct stale_world w;

	(void)state;
	stale_open(&w);
	replace_page(&w, 1);
	pn_sim_released(w.sim, 0, w.from + PAGE, PAGE);
	assert_ok(stale_op(&w, PN_OP_WRITE, 0));
	assert_ok(stale_op(&w, PN_OP_READ, 2));
	assert_int_equal(pn_sim_stale_uses(w.sim), 0);
	assert_int_equal(stale_op(&w, PN_OP_WRITE, 1), -ESTALE);
	assert_int_equal(w.to.bytes[0], 0);
	assert_int_equal(stale_op(&w, PN_OP_READ, 1), -ESTALE);
	assert_int_equal(w.from[PAGE], 'n');
	assert_int_equal(pn_sim_stale_uses(w.sim), 2);
	stale_close(&w);
}

static void released_memory_is_not_accessed(void **state)
{
	struct stale_world w;

	(void)state;
	stale_open(&w);
	pn_sim_released(w.sim, PN_SIM_ALL_NODES, w.from + PAGE, PAGE);
	assert_ok(munmap(w.from + PAGE, PAGE));
	assert_int_equal(stale_op(&w, PN_OP_WRITE, 1), -ESTALE);
	stale_close(&w);
}

static void a_new_registration_is_not_stale(void **state)
{
	struct stale_world w;
	struct pn_mr *mr = &w.mr;

	(void)state;
	stale_open(&w);
	replace_page(&w, 1);
	pn_sim_released(w.sim, 0, w.from + PAGE, PAGE);
	pn_device_deregister(pn_sim_device(w.sim, 0), &mr, 1);
	assert_ok(pn_device_register(pn_sim_device(w.sim, 0), &mr, 1));
	assert_ok(stale_op(&w, PN_OP_WRITE, 1));
	assert_int_equal(w.to.bytes[0], 'n');
	assert_int_equal(pn_sim_stale_uses(w.sim), 0);
	stale_close(&w);
}

/* The device knows only announced releases: others go unnoticed, as on an
 * adapter (where the bytes would be lost). */
/* One task registers, which takes 80 us with `cx5`, another one releases
 * meanwhile. */
struct overlap {
	struct pn_sim *sim;
	struct buffer buffer;
	uint64_t release_at_ns;
	int status; /* of a write through the key */
};

static void register_and_use(void *arg)
{
	struct overlap *o = arg;
	struct pn_device *device = pn_sim_device(o->sim, 0);
	struct pn_peer *self = task_connect(o->sim, 0, 0);
	struct pn_sge sge = { "x", 1, 0 };
	struct pn_completion c = { .status = 0 };
	struct pn_op op;

	pn_sim_sleep(o->sim, 1000000 - pn_sim_now(o->sim));
	CHECK(!buffer_open(device, 256 * PAGE, ALL_ACCESS, &o->buffer));
	op = remote_op(PN_OP_WRITE, &sge, &o->buffer);
	op.flags = PN_OP_INLINE;
	CHECK(!pn_device_post(device, self, &op));
	CHECK(!next_completion(device, &c));
	o->status = c.status;
}

static void release_meanwhile(void *arg)
{
	struct overlap *o = arg;

	pn_sim_sleep(o->sim, o->release_at_ns);
	pn_sim_released(o->sim, 0, o->buffer.bytes, 256 * PAGE);
}

static int status_when_released_at(uint64_t ns)
{
	struct overlap o = { .release_at_ns = ns };
	int ret;

	o.sim = open_world("nodes=1,cores=2,cost=cx5", NULL);
	pn_sim_spawn(o.sim, 0, register_and_use, &o);
	pn_sim_spawn(o.sim, 0, release_meanwhile, &o);
	ret = pn_sim_run(o.sim);
	assert_int_equal(ret, o.status);
	assert_int_equal(failed_line, 0);
	buffer_close(pn_sim_device(o.sim, 0), &o.buffer);
	pn_sim_close(o.sim);
	return o.status;
}

static void a_release_while_registering_makes_the_key_stale(void **state)
{
	(void)state;
	assert_int_equal(status_when_released_at(1030000), -ESTALE);
	assert_int_equal(status_when_released_at(2000000), 0);
}

static void an_unannounced_release_is_not_seen(void **state)
{
	struct stale_world w;

	(void)state;
	stale_open(&w);
	replace_page(&w, 1);
	assert_ok(stale_op(&w, PN_OP_WRITE, 1));
	assert_int_equal(pn_sim_stale_uses(w.sim), 0);
	stale_close(&w);
}

static void release_concerns_its_node_alone(void **state)
{
	struct stale_world w;

	(void)state;
	stale_open(&w);
	pn_sim_released(w.sim, 1, w.from, 4 * PAGE);
	assert_ok(stale_op(&w, PN_OP_WRITE, 0));
	pn_sim_released(w.sim, PN_SIM_ALL_NODES, w.from, 1);
	assert_int_equal(stale_op(&w, PN_OP_WRITE, 0), -ESTALE);
	stale_close(&w);
}

static void use_stale_key(void *arg)
{
	struct stale_world *w = arg;

	pn_sim_released(w->sim, 0, w->from, PAGE);
	CHECK(stale_op(w, PN_OP_WRITE, 0) == -ESTALE);
}

static void a_stale_use_fails_the_run(void **state)
{
	struct stale_world w;

	(void)state;
	stale_open(&w);
	assert_ok(pn_sim_spawn(w.sim, 0, use_stale_key, &w));
	assert_int_equal(pn_sim_run(w.sim), -ESTALE);
	assert_int_equal(failed_line, 0);
	stale_close(&w);
}

/* --- bad input ------------------------------------------------------------ */

static void bad_parameters_and_scripts_are_refused(void **state)
{
	static const char *const params[] = {
		"nodes=0",   "nodes=99999999",
		"cost=gold", "data=some",
		"slice=0",   "inbox=1K,send=4K",
		"max_mrs=0", "script=/nonexistent",
		"jitter=-1", "nodes=2,bad",
		"stack=1",
	};
	struct pn_sim *sim = NULL;
	struct pn_device *device = NULL;
	char spec[64];

	(void)state;
	for (size_t i = 0; i < PN_ARRAY_LEN(params); i++) {
		assert_int_equal(pn_sim_open(params[i], NULL, &sim), -EINVAL);
		snprintf(spec, sizeof(spec), "sim:%s", params[i]);
		assert_int_equal(pn_device_open(spec, NULL, &device), -EINVAL);
	}
	assert_int_equal(pn_sim_open("", "nonsense", &sim), -EINVAL);
	assert_int_equal(pn_sim_open("nodes=2", "drop peer 2 at 1 s", &sim),
			 -EINVAL);
	assert_null(sim);
	assert_null(device);
}

static void a_script_file_is_read(void **state)
{
	char path[] = "/tmp/pinion-script-XXXXXX", spec[64];
	int fd = mkstemp(path);
	struct pn_device *device;

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(write(fd, "fail registration 1 with EIO\n", 29), 29);
	close(fd);
	snprintf(spec, sizeof(spec), "sim:script=%s", path);
	assert_ok(pn_device_open(spec, NULL, &device));
	assert_int_equal(try_register(device), -EIO);
	assert_ok(try_register(device));
	pn_device_close(device);
	unlink(path);
}

static void foreign_addresses_are_refused(void **state)
{
	struct pn_sim *a = open_world("", NULL), *b = open_world("", NULL);
	struct pn_address address;
	struct pn_peer *peer = NULL;

	(void)state;
	pn_device_address(pn_sim_device(b, 0), &address);
	assert_int_equal(pn_device_attach(pn_sim_device(a, 0), &address, &peer),
			 -EINVAL);
	pn_device_address(pn_sim_device(a, 1), &address);
	address.len--;
	assert_int_equal(pn_device_attach(pn_sim_device(a, 0), &address, &peer),
			 -EINVAL);
	address.len++;
	for (uint32_t i = 0; i < address.len; i++) {
		address.data[i] ^= 0x40;
		assert_int_equal(pn_device_attach(pn_sim_device(a, 0), &address,
						  &peer),
				 -EINVAL);
		address.data[i] ^= 0x40;
	}
	pn_sim_close(a);
	pn_sim_close(b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(the_third_registration_fails),
		TEST(every_second_registration_of_a_node_fails),
		TEST(a_failing_range_fails_its_batch_and_changes_nothing),
		TEST(the_second_registration_takes_longer),
		TEST(limits_are_kept_and_can_shrink),
		TEST(delayed_messages_keep_their_order),
		TEST(peers_of_a_dead_node_detect_it_in_bounded_time),
		TEST(a_dead_node_has_no_registrations_and_takes_none),
		TEST(operations_end_in_order_when_their_peer_dies),
		TEST(stalled_messages_of_a_dead_node_are_dropped),
		TEST(an_announced_release_makes_the_key_stale_there_alone),
		TEST(released_memory_is_not_accessed),
		TEST(a_new_registration_is_not_stale),
		TEST(a_release_while_registering_makes_the_key_stale),
		TEST(an_unannounced_release_is_not_seen),
		TEST(release_concerns_its_node_alone),
		TEST(a_stale_use_fails_the_run),
		TEST(bad_parameters_and_scripts_are_refused),
		TEST(a_script_file_is_read),
		TEST(foreign_addresses_are_refused),
	};

	return RUN_TESTS(tests);
}
