/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Records: random events survive encoding and decoding; truncated records are
 * refused.
 */
#include "trace_file.h"

#include "trace/format.h"

#define EVENTS 20000

static struct pn_trace_event model[EVENTS];

static size_t encode_all(uint8_t *bytes, uint64_t *seed)
{
	struct pn_trace_event e = { .time_ns = 77 }, before = { 0 };
	uint8_t *to = bytes;

	for (int i = 0; i < EVENTS; i++) {
		uint8_t *from = to;

		trace_random(seed, &e);
		e.thread = (uint32_t)test_random(seed);
		e.op = (uint8_t)test_random(seed);
		model[i] = e;
		to = pn_event_encode(to, &e, &before);
		assert_true(to - from <= PN_RECORD_PLAIN_MAX);
	}
	return (size_t)(to - bytes);
}

static void random_events_survive_encoding(void **state)
{
	uint8_t *bytes = malloc(EVENTS * PN_RECORD_PLAIN_MAX);
	uint64_t seed = test_seed();
	size_t len = encode_all(bytes, &seed);
	const uint8_t *at = bytes;
	struct pn_trace_event before = { 0 };
	struct pn_record record;

	(void)state;
	for (int i = 0; i < EVENTS; i++) {
		at = pn_record_decode(at, bytes + len, &record, &before);
		assert_non_null(at);
		assert_int_equal(record.event.time_ns, model[i].time_ns);
		assert_true(trace_same(&record.event, &model[i]));
		assert_int_equal(record.nblob, 0);
	}
	assert_ptr_equal(at, bytes + len);
	free(bytes);
}

static void a_truncated_record_is_refused(void **state)
{
	struct pn_trace_event none = { 0 };
	uint8_t bytes[PN_RECORD_MAX];
	char blob[100] = "blob";
	struct pn_record out, in = { .event = { .kind = PN_EVENT_OPEN,
						.addr = UINT64_MAX / 3,
						.len = 12345678 },
				     .blob = blob,
				     .nblob = sizeof(blob) };
	struct pn_trace_event before = none;
	size_t len = (size_t)(pn_record_encode(bytes, &in, &before) - bytes);

	(void)state;
	for (size_t cut = 0; cut < len; cut++) {
		/* Separate memory, so that a read past the end is detected. */
		uint8_t *part = malloc(cut ? cut : 1);

		memcpy(part, bytes, cut);
		before = none;
		assert_null(pn_record_decode(part, part + cut, &out, &before));
		free(part);
	}
	before = none;
	assert_ptr_equal(pn_record_decode(bytes, bytes + len, &out, &before),
			 bytes + len);
	assert_int_equal(out.nblob, sizeof(blob));
	assert_memory_equal(out.blob, blob, sizeof(blob));
}

static void a_varint_without_end_is_refused(void **state)
{
	uint8_t bytes[64];
	struct pn_trace_event before = { 0 };
	struct pn_record out;

	(void)state;
	memset(bytes, 0xff, sizeof(bytes));
	bytes[0] = PN_EVENT_PIN;
	assert_null(
		pn_record_decode(bytes, bytes + sizeof(bytes), &out, &before));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(random_events_survive_encoding),
		TEST(a_truncated_record_is_refused),
		TEST(a_varint_without_end_is_refused),
	};

	return RUN_TESTS(tests);
}
