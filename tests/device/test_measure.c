/* SPDX-License-Identifier: BSD-2-Clause */
/* Measuring a device, and the blocking operations that measuring uses. */
#include "test.h"

#include "base/range.h"
#include "device/blocking.h"
#include "device/measure.h"

static struct pn_device *open_device(const char *spec)
{
	struct pn_device *device;

	assert_ok(pn_device_open(spec, NULL, &device));
	return device;
}

static void median_is_the_middle(void **state)
{
	double odd[] = { 9, 1, 5 }, even[] = { 4, 1, 3, 100 }, one[] = { 7 };

	(void)state;
	assert_true(pn_median(odd, 3) == 5);
	assert_true(pn_median(even, 4) == 3.5);
	assert_true(pn_median(one, 1) == 7);
}

static void assert_all_costs_are_known(const struct pn_costs *costs)
{
	assert_true(costs->register_ns + costs->register_page_ns > 0);
	assert_true(costs->deregister_ns + costs->deregister_page_ns > 0);
	assert_true(costs->copy_byte_ns > 0);
	assert_true(costs->put_ns > 0 && costs->put_byte_ns > 0);
	assert_true(costs->get_ns > 0 && costs->get_byte_ns > 0);
	assert_true(costs->send_ns > 0);
}

static void measuring_fills_every_cost_and_leaves_nothing(void **state)
{
	struct pn_device *device = open_device("soft");
	struct pn_measure_regressions fits;
	struct pn_pinned pinned;

	(void)state;
	for (int i = 0; i < 2; i++) { /* a second time works, too */
		device->costs = (struct pn_costs){ 0 };
		assert_ok(pn_device_measure(device, &fits));
		assert_all_costs_are_known(&device->costs);
		assert_false(device->costs.emulated);
		assert_int_equal(fits.max_pages, 1024);
		pn_device_pinned(device, &pinned);
		assert_int_equal(pinned.mrs, 0);
		assert_int_equal(pinned.live_bytes, 0);
	}
	pn_device_close(device);
}

static void declared_costs_are_called_emulated(void **state)
{
	struct pn_device *device = open_device("soft:cost=cx5");

	(void)state;
	assert_ok(pn_device_measure(device, NULL));
	assert_true(device->costs.emulated);
	/* cx5 adds 16 us and 0.25 us per page; a line through noisy points
	 * may pass below them. */
	assert_true(device->costs.register_ns +
			    256 * device->costs.register_page_ns >=
		    (16 + 256 * 0.25) * 1e3 * 0.5);
	pn_device_close(device);
}

static void virtual_costs_are_left_alone(void **state)
{
	struct pn_device *device = open_device("sim:cost=ou2009");
	struct pn_measure_regressions fits;
	uint64_t now = pn_device_now(device);

	(void)state;
	assert_ok(pn_device_measure(device, &fits));
	assert_true(device->costs.register_ns == 7420);
	assert_true(device->costs.register_page_ns == 770);
	assert_int_equal(fits.max_pages, 0);
	assert_int_equal(pn_device_now(device), now);
	pn_device_close(device);
}

/* --- blocking operations -------------------------------------------------- */

#define LEN ((size_t)64 << 10)

/* A device, its peer to itself, and two halves of registered memory. */
struct loop {
	struct pn_device *device;
	struct pn_peer *self;
	struct pn_mr mr;
};

static void loop_open(struct loop *loop, const char *spec)
{
	struct pn_mr *mr = &loop->mr;
	struct pn_address address;

	loop->device = open_device(spec);
	pn_device_address(loop->device, &address);
	assert_ok(pn_device_attach(loop->device, &address, &loop->self));
	*mr = (struct pn_mr){ .addr = aligned_alloc(PN_PAGE_BYTES, 2 * LEN),
			      .len = 2 * LEN,
			      .access = PINION_ACCESS_REMOTE_WRITE |
					PINION_ACCESS_REMOTE_READ };
	assert_non_null(mr->addr);
	memset(mr->addr, 0, 2 * LEN);
	assert_ok(pn_device_register(loop->device, &mr, 1));
}

static void loop_close(struct loop *loop)
{
	struct pn_mr *mr = &loop->mr;

	pn_device_deregister(loop->device, &mr, 1);
	pn_device_close(loop->device);
	free(mr->addr);
}

static struct pn_blocking_transfer loop_move(struct loop *loop,
					     enum pn_op_kind kind, size_t len)
{
	return (struct pn_blocking_transfer){
		.kind = kind,
		.peer = loop->self,
		.local = loop->mr.addr,
		.lkey = loop->mr.lkey,
		.remote_addr = (uintptr_t)loop->mr.addr + LEN,
		.rkey = loop->mr.rkey,
		.len = len,
	};
}

static void moves_bring_every_byte(const char *spec)
{
	struct loop loop;
	char *half[2];

	loop_open(&loop, spec);
	half[0] = loop.mr.addr;
	half[1] = half[0] + LEN;
	/* Operations of 1,000 bytes: the last one is shorter, and they do not
	 * all fit into the queue. */
	loop.device->limits.max_op_bytes = 1000;
	for (int kind = PN_OP_WRITE; kind <= PN_OP_READ; kind++) {
		struct pn_blocking_transfer move = loop_move(&loop, kind, LEN);

		memset(half[kind == PN_OP_READ], 10 + kind, LEN);
		move.times = 3;
		assert_ok(pn_blocking_transfer(loop.device, &move));
		assert_memory_equal(half[0], half[1], LEN);
		assert_int_equal(half[0][LEN - 1], 10 + kind);
	}
	loop_close(&loop);
}

static void transfers_move_every_byte_on_soft(void **state)
{
	(void)state;
	moves_bring_every_byte("soft");
}

static void transfers_move_every_byte_on_sim(void **state)
{
	(void)state;
	moves_bring_every_byte("sim:cost=cx5,depth=4");
}

static void a_transfer_with_a_wrong_key_fails(void **state)
{
	static const char *const specs[] = { "soft", "sim" };

	(void)state;
	for (size_t i = 0; i < PN_ARRAY_LEN(specs); i++) {
		struct pn_blocking_transfer move;
		struct loop loop;

		loop_open(&loop, specs[i]);
		move = loop_move(&loop, PN_OP_WRITE, 64);
		move.rkey ^= UINT64_C(1) << 40;
		assert_true(pn_blocking_transfer(loop.device, &move) < 0);
		loop_close(&loop);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(median_is_the_middle),
		TEST(measuring_fills_every_cost_and_leaves_nothing),
		TEST(declared_costs_are_called_emulated),
		TEST(virtual_costs_are_left_alone),
		TEST(transfers_move_every_byte_on_soft),
		TEST(transfers_move_every_byte_on_sim),
		TEST(a_transfer_with_a_wrong_key_fails),
	};

	return RUN_TESTS(tests);
}
