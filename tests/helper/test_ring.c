/* SPDX-License-Identifier: BSD-2-Clause */
#include "test.h"

#include <pthread.h>
#include <stdatomic.h>

#include "helper/ring.h"

static struct pn_call numbered(uint64_t n)
{
	struct pn_call call = { .time_ns = n,
				.range = { n + 1, n + 2 },
				.kind = (uint32_t)n,
				.nframes = PN_CALL_FRAMES };

	for (unsigned i = 0; i < PN_CALL_FRAMES; i++)
		call.frames[i] = n + 3 + i;
	return call;
}

static bool is_whole(const struct pn_call *call)
{
	struct pn_call same = numbered(call->time_ns);

	return !memcmp(call, &same, sizeof(same));
}

static void records_come_out_as_they_went_in(void **state)
{
	struct pn_ring ring = { 0 };
	struct pn_call call;
	uint64_t lost = 0;

	(void)state;
	assert_false(pn_ring_take(&ring, &call, &lost));
	for (uint64_t n = 0; n < PN_RING_SLOTS; n++) {
		call = numbered(n);
		pn_ring_put(&ring, &call);
	}
	for (uint64_t n = 0; n < PN_RING_SLOTS; n++) {
		assert_true(pn_ring_any(&ring));
		assert_true(pn_ring_take(&ring, &call, &lost));
		assert_int_equal(call.time_ns, n);
		assert_true(is_whole(&call));
	}
	assert_false(pn_ring_any(&ring));
	assert_int_equal(lost, 0);
}

static void the_newest_records_survive_an_absent_reader(void **state)
{
	struct pn_ring ring = { 0 };
	struct pn_call call;
	uint64_t lost = 0;

	(void)state;
	for (uint64_t n = 0; n < 5 * PN_RING_SLOTS + 7; n++) {
		call = numbered(n);
		pn_ring_put(&ring, &call);
	}
	assert_true(pn_ring_take(&ring, &call, &lost));
	assert_int_equal(call.time_ns, 4 * PN_RING_SLOTS + 7);
	assert_int_equal(lost, 4 * PN_RING_SLOTS + 7);
}

#define NRECORDS 200000

static void *write_all(void *arg)
{
	struct pn_ring *ring = arg;

	for (uint64_t n = 0; n < NRECORDS; n++) {
		struct pn_call call = numbered(n);

		pn_ring_put(ring, &call);
	}
	return NULL;
}

static void a_reader_sees_whole_records_in_order(void **state)
{
	static struct pn_ring ring;
	uint64_t lost = 0, taken = 0, expected = 0, torn = 0, unordered = 0;
	struct pn_call call;
	pthread_t thread;

	(void)state;
	assert_ok(pthread_create(&thread, NULL, write_all, &ring));
	while (taken + lost < NRECORDS) {
		if (!pn_ring_take(&ring, &call, &lost))
			continue;
		taken++;
		torn += !is_whole(&call);
		unordered += call.time_ns < expected;
		expected = call.time_ns + 1;
	}
	pthread_join(thread, NULL);
	assert_int_equal(torn, 0);
	assert_int_equal(unordered, 0);
	assert_int_equal(taken + lost, NRECORDS);
	assert_int_equal(expected, NRECORDS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(records_come_out_as_they_went_in),
		TEST(the_newest_records_survive_an_absent_reader),
		TEST(a_reader_sees_whole_records_in_order),
	};

	return RUN_TESTS(tests);
}
