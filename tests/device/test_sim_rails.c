/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Nodes with several ports: wires of their own, one wait for all, and failures
 * of a single port.
 */
#include "sim_world.h"

#include <stdio.h>

#include "base/log.h"

/* Connects a's port to b's port of the same rail; it is up at both ends. */
static struct pn_peer *connect_rail(struct pn_sim *sim, unsigned rail)
{
	return connect_devices(pn_sim_rail(sim, 0, rail),
			       pn_sim_rail(sim, 1, rail));
}

/* Posts a write of 1 MiB on each given rail at once; returns when the last has
 * ended. */
static uint64_t time_writes(const char *params, unsigned nrails)
{
	struct pn_sim *sim = open_world(params, NULL);
	struct buffer from[2], to[2];
	struct pn_completion c;
	uint64_t begin;

	for (unsigned r = 0; r < nrails; r++) {
		assert_ok(buffer_open(pn_sim_rail(sim, 0, r), 1 << 20, 0,
				      &from[r]));
		assert_ok(buffer_open(pn_sim_rail(sim, 1, r), 1 << 20,
				      ALL_ACCESS, &to[r]));
	}
	for (unsigned r = 0; r < nrails; r++) {
		struct pn_peer *peer = connect_rail(sim, r);
		struct pn_sge sge = whole(&from[r], 1 << 20);
		struct pn_op op = remote_op(PN_OP_WRITE, &sge, &to[r]);

		if (!r)
			begin = pn_sim_now(sim);
		assert_ok(pn_device_post(pn_sim_rail(sim, 0, r), peer, &op));
	}
	for (unsigned r = 0; r < nrails; r++) {
		assert_ok(next_completion(pn_sim_rail(sim, 0, r), &c));
		assert_int_equal(c.kind, PN_COMPLETION_OP);
		assert_int_equal(c.status, 0);
	}
	begin = pn_sim_now(sim) - begin;
	for (unsigned r = 0; r < nrails; r++) {
		buffer_close(pn_sim_rail(sim, 0, r), &from[r]);
		buffer_close(pn_sim_rail(sim, 1, r), &to[r]);
	}
	pn_sim_close(sim);
	return begin;
}

static void each_port_has_a_wire_of_its_own(void **state)
{
	uint64_t one = time_writes("rails=2,cost=cx5", 1);
	uint64_t two = time_writes("rails=2,cost=cx5", 2);

	(void)state;
	/* Connecting the second takes two latencies and the posts. */
	assert_in_range(two - one, 0, 3000);
}

static void bandwidths_are_in_proportion(void **state)
{
	uint64_t same = time_writes("rails=2,cost=cx5", 2);
	uint64_t third = time_writes("rails=2,cost=cx5,rail_bandwidth=3:1", 2);
	struct pn_sim *sim =
		open_world("rails=2,cost=cx5,rail_bandwidth=3:1", NULL);
	const struct pn_costs *fast = &pn_sim_rail(sim, 0, 0)->costs;
	const struct pn_costs *slow = &pn_sim_rail(sim, 0, 1)->costs;

	(void)state;
	assert_in_range(third, 2.8 * (double)same, 3 * (double)same);
	assert_true(slow->put_byte_ns > 2.999 * fast->put_byte_ns &&
		    slow->put_byte_ns < 3.001 * fast->put_byte_ns);
	pn_sim_close(sim);
}

static void malformed_bandwidths_are_refused(void **state)
{
	static const char *const bad[] = { "3",	  "3:1:1", "3:0", "3:-1",
					   "3:x", "3:1x",  ":",	  "inf:1" };
	struct pn_sim *sim;
	char params[64];

	(void)state;
	for (size_t i = 0; i < PN_ARRAY_LEN(bad); i++) {
		snprintf(params, sizeof(params), "rails=2,rail_bandwidth=%s",
			 bad[i]);
		assert_int_equal(pn_sim_open(params, NULL, &sim), -EINVAL);
	}
}

/* --- waiting -------------------------------------------------------------- */

static void sleeper(void *arg)
{
	struct pn_sim *sim = arg;
	struct pn_device *rails[] = { pn_sim_rail(sim, 1, 0),
				      pn_sim_rail(sim, 1, 1) };
	struct pn_completion c;

	CHECK(!pn_device_wait_any(rails, 2, PN_FOREVER));
	CHECK(!pn_device_poll(rails[0], &c, 1));
	CHECK(pn_device_poll(rails[1], &c, 1) == 1);
	CHECK(c.kind == PN_COMPLETION_PEER_UP);
	CHECK(pn_device_wait_any(rails, 2, pn_sim_now(sim) + 5000) ==
	      -ETIMEDOUT);
}

static void caller(void *arg)
{
	struct pn_sim *sim = arg;
	struct pn_address address;
	struct pn_peer *peer;

	pn_sim_sleep(sim, 1000);
	pn_device_address(pn_sim_rail(sim, 1, 1), &address);
	CHECK(!pn_device_attach(pn_sim_rail(sim, 0, 1), &address, &peer));
}

static void a_completion_of_any_port_ends_the_wait(void **state)
{
	struct pn_sim *sim = open_world("rails=2,cost=cx5", NULL);

	(void)state;
	assert_ok(pn_sim_spawn(sim, 1, sleeper, sim));
	assert_ok(pn_sim_spawn(sim, 0, caller, sim));
	run_world(sim);
	pn_sim_close(sim);
}

static void the_limit_is_the_nodes(void **state)
{
	struct pn_sim *sim = open_world("rails=2,limit=8K", NULL);
	struct buffer first, second;

	(void)state;
	assert_ok(buffer_open(pn_sim_rail(sim, 0, 0), 4096, 0, &first));
	assert_int_equal(buffer_open(pn_sim_rail(sim, 0, 1), 8192, 0, &second),
			 -ENOMEM);
	free(second.bytes);
	assert_ok(buffer_open(pn_sim_rail(sim, 0, 1), 4096, 0, &second));
	buffer_close(pn_sim_rail(sim, 0, 0), &first);
	buffer_close(pn_sim_rail(sim, 0, 1), &second);
	pn_sim_close(sim);
}

/* --- failures ------------------------------------------------------------- */

static void expect_down(struct pn_device *device, struct pn_peer *peer)
{
	struct pn_completion c;

	assert_ok(next_completion(device, &c));
	assert_int_equal(c.kind, PN_COMPLETION_PEER_DOWN);
	assert_int_equal(c.status, -ECONNRESET);
	if (peer) {
		assert_ptr_equal(c.peer, peer);
		assert_int_equal(peer->down, -ECONNRESET);
		assert_int_equal(post_send(device, peer, "x", 1, 0),
				 -ECONNRESET);
	}
}

static void a_port_fails_at_both_ends_and_alone(void **state)
{
	struct pn_sim *sim = open_world("rails=2,cost=cx5,detect=50us",
					"drop rail 1 of node 1 at 20 us");
	struct pn_peer *good = connect_rail(sim, 0);
	struct pn_peer *bad = connect_rail(sim, 1);
	struct pn_completion c;

	(void)state;
	expect_down(pn_sim_rail(sim, 1, 1), NULL);
	assert_int_equal(pn_sim_now(sim), 20000);
	expect_down(pn_sim_rail(sim, 0, 1), bad);
	assert_int_equal(pn_sim_now(sim), 70000);
	assert_ok(post_send(pn_sim_rail(sim, 0, 0), good, "x", 1, 7));
	assert_ok(next_completion(pn_sim_rail(sim, 1, 0), &c));
	assert_int_equal(c.imm, 7);
	pn_device_return_buffer(pn_sim_rail(sim, 1, 0), &c);
	pn_sim_close(sim);
}

/* The second operation at node 1's port is the second arrival: two messages are
 * there, and their sender gets no completion. */
static void what_arrived_before_can_be_polled(void **state)
{
	struct pn_sim *sim =
		open_world("rails=2,cost=cx5",
			   "drop rail 1 of node 1 after 2 operations");
	struct pn_device *a = pn_sim_rail(sim, 0, 1);
	struct pn_device *b = pn_sim_rail(sim, 1, 1);
	struct pn_peer *peer = connect_rail(sim, 1);
	struct pn_completion c;

	(void)state;
	for (uint32_t i = 0; i < 3; i++)
		assert_ok(post_send(a, peer, "x", 1, i));
	for (uint32_t i = 0; i < 3; i++) {
		assert_ok(next_completion(a, &c));
		assert_int_equal(c.kind, PN_COMPLETION_OP);
		assert_int_equal(c.status, -ECONNRESET);
	}
	expect_down(a, peer);
	for (uint32_t i = 0; i < 2; i++) {
		assert_int_equal(pn_device_poll(b, &c, 1), 1);
		assert_int_equal(c.kind, PN_COMPLETION_RECV);
		assert_int_equal(c.imm, i);
		pn_device_return_buffer(b, &c);
	}
	expect_down(b, NULL);
	pn_sim_close(sim);
}

/* Two lines of a script that fail one port, the second while the first one's
 * event is queued: both messages are posted at once. */
static void a_port_may_fail_twice(void **state)
{
	struct pn_sim *sim =
		open_world("rails=2",
			   "drop rail 1 of node 0 after 1 operations\n"
			   "drop rail 1 of node 0 after 2 operations");
	struct pn_device *a = pn_sim_rail(sim, 0, 1);
	struct pn_peer *peer = connect_rail(sim, 1);
	struct pn_completion c;

	(void)state;
	for (uint32_t i = 0; i < 2; i++)
		assert_ok(post_send(a, peer, "x", 1, i));
	for (uint32_t i = 0; i < 2; i++) {
		assert_ok(next_completion(a, &c));
		assert_int_equal(c.kind, PN_COMPLETION_OP);
	}
	expect_down(a, peer);
	pn_sim_close(sim);
}

static void nothing_arrives_after_peer_down(void **state)
{
	struct pn_sim *sim = open_world("rails=2,cost=cx5", NULL);
	struct pn_device *a = pn_sim_rail(sim, 0, 0);
	struct pn_device *b = pn_sim_rail(sim, 1, 0);
	struct pn_peer *peer = connect_rail(sim, 0), *back;
	struct pn_address address;
	struct buffer from, to;
	struct pn_completion c;
	struct pn_sge sge;
	struct pn_op op;

	(void)state;
	assert_ok(buffer_open(a, 4096, 0, &from));
	assert_ok(buffer_open(b, 4096, ALL_ACCESS, &to));
	memset(from.bytes, 'x', 4096);
	sge = whole(&from, 4096);
	op = remote_op(PN_OP_WRITE, &sge, &to);
	pn_device_address(a, &address);
	assert_ok(pn_device_attach(b, &address, &back));
	assert_ok(pn_device_post(a, peer, &op));
	assert_ok(pn_device_detach(b, back));
	expect_down(b, back);
	assert_ok(next_completion(a, &c));
	assert_int_equal(c.kind, PN_COMPLETION_OP);
	assert_int_equal(c.status, -ECONNRESET);
	expect_down(a, peer);
	assert_int_equal(to.bytes[0], 0);
	buffer_close(a, &from);
	buffer_close(b, &to);
	pn_sim_close(sim);
}

static void stalled_messages_do_not_arrive_after_peer_down(void **state)
{
	struct pn_sim *sim = open_world("cost=cx5,inbox_slots=2", NULL);
	struct pn_device *a = pn_sim_device(sim, 0), *b = pn_sim_device(sim, 1);
	struct pn_peer *peer = connect_nodes(sim, 0, 1);
	struct pn_completion c, first;

	(void)state;
	for (uint32_t i = 0; i < 6; i++)
		assert_ok(post_send(a, peer, "x", 1, i));
	pn_sim_sleep(sim, 1000000);
	assert_int_equal(pn_device_poll(b, &first, 1), 1);
	assert_int_equal(pn_device_poll(b, &c, 1), 1);
	assert_int_equal(c.kind, PN_COMPLETION_RECV);
	assert_ok(pn_device_detach(b, c.peer));
	expect_down(b, c.peer);
	/* Makes room for messages that arrived in time but must not be returned
	 * any more. */
	pn_device_return_buffer(b, &first);
	pn_device_return_buffer(b, &c);
	assert_int_equal(pn_device_poll(b, &c, 1), 0);
	for (unsigned i = 0; i < 6; i++) {
		assert_ok(next_completion(a, &c));
		assert_int_equal(c.kind, PN_COMPLETION_OP);
		assert_int_equal(c.status, i < 2 ? 0 : -ECONNRESET);
	}
	expect_down(a, peer);
	assert_int_equal(pn_device_poll(b, &c, 1), 0);
	pn_sim_close(sim);
}

static void a_port_that_failed_connects_to_nobody(void **state)
{
	struct pn_sim *sim =
		open_world("rails=2,cost=cx5", "drop rail 0 of node 1 at 0 us");
	struct pn_address address;
	struct pn_peer *peer;

	(void)state;
	pn_sim_sleep(sim, 1000);
	pn_device_address(pn_sim_rail(sim, 1, 0), &address);
	assert_ok(pn_device_attach(pn_sim_rail(sim, 0, 0), &address, &peer));
	expect_down(pn_sim_rail(sim, 0, 0), peer);
	pn_sim_close(sim);
}

static void scripts_name_ports_that_exist(void **state)
{
	struct pn_sim *sim;

	(void)state;
	assert_int_equal(pn_sim_open("rails=2", "drop rail 2 of node 0 at 1 us",
				     &sim),
			 -EINVAL);
	assert_int_equal(pn_sim_open("", "drop rail 0 of node 2 at 1 us", &sim),
			 -EINVAL);
	assert_int_equal(pn_sim_open("",
				     "drop rail 0 of node 1 after 0 "
				     "operations",
				     &sim),
			 -EINVAL);
}

/* --- opening -------------------------------------------------------------- */

static void a_spec_opens_all_its_rails(void **state)
{
	struct pn_device *rails[PN_RAILS_MAX];
	unsigned n;

	(void)state;
	assert_ok(
		pn_device_open_rails("sim:rails=3,cost=cx5", NULL, rails, &n));
	assert_int_equal(n, 3);
	while (n)
		pn_device_close(rails[--n]);
	assert_ok(pn_device_open_rails("soft+soft", NULL, rails, &n));
	assert_int_equal(n, 2);
	assert_ptr_not_equal(rails[0], rails[1]);
	while (n)
		pn_device_close(rails[--n]);
	assert_int_equal(pn_device_open_rails("soft+sim", NULL, rails, &n),
			 -EINVAL);
	/* Two worlds: no event of one ever ends a wait in the other. */
	assert_int_equal(pn_device_open_rails("sim+sim", NULL, rails, &n),
			 -EINVAL);
	assert_int_equal(pn_device_open_rails("sim:rails=2+sim", NULL, rails,
					      &n),
			 -EINVAL);
	assert_int_equal(pn_device_open_rails("soft+", NULL, rails, &n),
			 -ENODEV);
	assert_ok(pn_device_open_rails("soft:node=a/soft", NULL, rails, &n));
	assert_int_equal(n, 2);
	while (n)
		pn_device_close(rails[--n]);
	assert_int_equal(pn_device_open_rails("soft/soft+soft", NULL, rails,
					      &n),
			 -EINVAL);
	assert_true(pn_device_spec_is_alternatives("soft/verbs:mlx5_0/1"));
	assert_false(pn_device_spec_is_alternatives("verbs:mlx5_0/1"));
	assert_false(pn_device_spec_is_alternatives(
		"verbs:mlx5_0/1+verbs:mlx5_1/1"));
	assert_int_equal(pn_device_open_rails("sim:rails=4+sim", NULL, rails,
					      &n),
			 -EINVAL);
}

static void take_port(void *arg, const char *name, const char *text)
{
	if (!strcmp(name, "port"))
		snprintf(arg, 16, "%s", text);
}

/* In virtual time there is no descriptor for poll(2). */
static void a_port_says_which_it_is_and_has_no_descriptor(void **state)
{
	struct pn_sim *sim = open_world("rails=2", NULL);
	struct pn_device *second = pn_sim_rail(sim, 1, 1);
	char port[16] = "";

	(void)state;
	second->ops->describe(second, take_port, port);
	assert_string_equal(port, "1 of 2");
	assert_int_equal(pn_device_fd(second), -EOPNOTSUPP);
	pn_sim_close(sim);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(each_port_has_a_wire_of_its_own),
		TEST(bandwidths_are_in_proportion),
		TEST(malformed_bandwidths_are_refused),
		TEST(a_completion_of_any_port_ends_the_wait),
		TEST(the_limit_is_the_nodes),
		TEST(a_port_fails_at_both_ends_and_alone),
		TEST(what_arrived_before_can_be_polled),
		TEST(a_port_may_fail_twice),
		TEST(nothing_arrives_after_peer_down),
		TEST(stalled_messages_do_not_arrive_after_peer_down),
		TEST(a_port_that_failed_connects_to_nobody),
		TEST(scripts_name_ports_that_exist),
		TEST(a_spec_opens_all_its_rails),
		TEST(a_port_says_which_it_is_and_has_no_descriptor),
	};

	pn_log_set_level(PN_LOG_NONE);
	return RUN_TESTS(tests);
}
