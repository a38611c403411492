/* SPDX-License-Identifier: BSD-2-Clause */
/* Structs that begin with their size, at every public call that takes one: of
 * an older header (shorter), of a newer one (longer), and invalid ones. */
#include <pinion/pinion.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "test.h"

static struct {
	struct pinion_context *context;
	struct pinion_endpoint *ep;
	struct pinion_peer *self;
	struct pinion_exposure *exposure;
	struct pinion_remote *remote;
	struct pinion_heap *heap;
	struct pinion_registration *registration;
	char memory[4096];
	char buf[64];
} f;

static int open_all(void **state)
{
	static const char *const options[] = { "log=none", NULL };
	struct pinion_attr attr = { .size = sizeof(attr), .options = options };
	struct pinion_exposure_key key;
	struct pinion_address address;

	(void)state;
	assert_ok(pinion_open(&attr, &f.context));
	assert_ok(pinion_endpoint_open(f.context, NULL, &f.ep));
	assert_ok(pinion_endpoint_address(f.ep, &address));
	assert_ok(pinion_peer_add(f.ep, &address, &f.self));
	assert_ok(pinion_exposure_open(f.ep, f.memory, sizeof(f.memory),
				       PINION_ACCESS_REMOTE_READ |
					       PINION_ACCESS_REMOTE_WRITE |
					       PINION_ACCESS_REMOTE_ATOMIC,
				       &f.exposure));
	assert_ok(pinion_exposure_key(f.exposure, &key));
	assert_ok(pinion_remote_open(f.ep, f.self, &key, &f.remote));
	assert_ok(pinion_heap_open(f.context, NULL, &f.heap));
	assert_ok(pinion_device_register(f.context, f.buf, sizeof(f.buf), 0,
					 &f.registration));
	return 0;
}

static int close_all(void **state)
{
	(void)state;
	pinion_close(f.context);
	return 0;
}

/* --- structs that the caller fills ---------------------------------------- */

/* Each function undoes what it did. */
static int finish(int ret, struct pinion_request *const *request)
{
	return ret ? ret : pinion_wait(f.ep, *request, PINION_FOREVER, NULL);
}

static int call_open(void *attr)
{
	struct pinion_context *context;
	int ret = pinion_open(attr, &context);

	if (!ret)
		pinion_close(context);
	return ret;
}

static int call_heap_open(void *attr)
{
	struct pinion_heap *heap;
	int ret = pinion_heap_open(f.context, attr, &heap);

	if (!ret)
		pinion_heap_close(heap);
	return ret;
}

/* In its own context. */
static int call_endpoint_open(void *attr)
{
	struct pinion_context *context;
	struct pinion_endpoint *ep;
	int ret;

	assert_ok(pinion_open(NULL, &context));
	ret = pinion_endpoint_open(context, attr, &ep);
	pinion_close(context);
	return ret;
}

static int call_send(void *message)
{
	struct pinion_request *request;

	return finish(pinion_send(f.ep, message, &request), &request);
}

/* Receives the message that was sent before. */
static int call_recv(void *message)
{
	struct pinion_message out = { .size = sizeof(out), .peer = f.self };
	struct pinion_request *request;
	int ret = pinion_recv(f.ep, message, &request);

	if (!ret)
		assert_ok(call_send(&out));
	return finish(ret, &request);
}

static int call_inject(void *message)
{
	return pinion_inject(f.ep, message);
}

static int call_probe(void *message)
{
	int ret = pinion_probe(f.ep, message, NULL, NULL);

	return ret == -EAGAIN ? 0 : ret;
}

/* No peer answers: cancels the request. */
static int cancel(int ret, struct pinion_request *const *request)
{
	if (ret)
		return ret;
	assert_ok(pinion_cancel(f.ep, *request));
	pinion_wait(f.ep, *request, PINION_FOREVER, NULL);
	return 0;
}

static int call_put_when(void *message)
{
	struct pinion_request *request;

	return cancel(pinion_put_when(f.ep, message, &request), &request);
}

static int call_grant(void *message)
{
	struct pinion_request *request;

	return cancel(pinion_grant(f.ep, message, &request), &request);
}

static int call_put(void *move)
{
	struct pinion_request *request;

	return finish(pinion_put(f.ep, move, &request), &request);
}

static int call_get(void *move)
{
	struct pinion_request *request;

	return finish(pinion_get(f.ep, move, &request), &request);
}

static int call_fetch_add(void *atomic)
{
	struct pinion_request *request;

	return finish(pinion_atomic_fetch_add(f.ep, atomic, &request),
		      &request);
}

static int call_explain(void *attr)
{
	struct pinion_explanation out = { .size = sizeof(out) };

	return pinion_endpoint_explain(f.ep, attr, 0, &out);
}

struct row {
	const char *name;
	int (*call)(void *arg);
	size_t size;	/* of the struct */
	size_t needed;	/* bytes that a successful call needs */
	size_t flags;	/* offset of the flags */
	uint64_t known; /* known flags */
};

#define END_OF(type, member) \
	(offsetof(type, member) + sizeof(((type *)0)->member))
#define ROW(call, type, needed, known)                           \
	{                                                        \
#call, call, sizeof(type), END_OF(type, needed), \
			offsetof(type, flags), known             \
	}

static const struct row rows[] = {
	ROW(call_open, struct pinion_attr, size, 0),
	ROW(call_heap_open, struct pinion_heap_attr, size, 31),
	ROW(call_endpoint_open, struct pinion_endpoint_attr, size, 15),
	ROW(call_send, struct pinion_message, peer, 3),
	ROW(call_inject, struct pinion_message, peer, 1),
	ROW(call_recv, struct pinion_message, tag, 0),
	ROW(call_probe, struct pinion_message, tag, 0),
	ROW(call_put_when, struct pinion_message, peer, 0),
	ROW(call_grant, struct pinion_message, peer, 0),
	ROW(call_put, struct pinion_move, len, 0),
	ROW(call_get, struct pinion_move, len, 0),
	ROW(call_fetch_add, struct pinion_atomic, offset, 0),
	ROW(call_explain, struct pinion_explain_attr, len, 1),
};

/* A struct of some length with valid contents, followed by memory that must not
 * be read. */
union any {
	size_t size;
	struct pinion_message message;
	struct pinion_move move;
	struct pinion_atomic atomic;
	char bytes[512];
};

static void fill(const struct row *row, union any *any)
{
	memset(any, 0, sizeof(*any));
	if (row->size == sizeof(struct pinion_message) &&
	    row->needed >= END_OF(struct pinion_message, tag)) {
		any->message.buf = f.buf;
		any->message.len = 1;
		any->message.peer = f.self;
	} else if (row->call == call_put || row->call == call_get) {
		any->move.remote = f.remote;
		any->move.buf = f.buf;
		any->move.len = 8;
	} else if (row->call == call_fetch_add) {
		any->atomic.remote = f.remote;
	}
	any->size = row->size;
}

static void expect(const struct row *row, const char *what, union any *any,
		   int wanted)
{
	int ret = row->call(any);

	if (ret != wanted)
		print_error("%s, %s: %d, not %d\n", row->name, what, ret,
			    wanted);
	assert_int_equal(ret, wanted);
}

static void try_row(const struct row *row)
{
	union any any;

	fill(row, &any);
	expect(row, "as it is", &any, 0);
	fill(row, &any);
	any.size = 0;
	expect(row, "size 0", &any, -EINVAL);
	any.size = sizeof(void *);
	expect(row, "size of a pointer", &any, -EINVAL);
	any.size = row->size - 1;
	expect(row, "size of no struct", &any, -EINVAL);
	any.size = SIZE_MAX;
	expect(row, "size without end", &any, -EINVAL);
	/* Older: the missing fields are not read. */
	for (size_t size = row->needed > 16 ? row->needed : 16;
	     size < row->size; size += 8) {
		fill(row, &any);
		memset(any.bytes + size, 0xff, sizeof(any) - size);
		any.size = size;
		expect(row, "older", &any, 0);
	}
	/* Newer: accepted while the unknown fields are 0. */
	fill(row, &any);
	any.size = row->size + 40;
	expect(row, "newer", &any, 0);
	any.bytes[row->size + 39] = 1;
	expect(row, "newer that wants more", &any, -E2BIG);
	for (unsigned bit = 0; bit < 64; bit++) {
		uint64_t flag = UINT64_C(1) << bit;

		if (flag & row->known)
			continue;
		fill(row, &any);
		memcpy(any.bytes + row->flags, &flag, sizeof(flag));
		expect(row, "unknown flag", &any, -EINVAL);
	}
}

static void structs_of_other_sizes_are_accepted_or_refused(void **state)
{
	(void)state;
	/* Connected, so that inject is possible. */
	for (union any any;;) {
		fill(&rows[3], &any);
		assert_ok(call_send(&any));
		if (!call_inject(&any))
			break;
	}
	for (size_t i = 0; i < PN_ARRAY_LEN(rows); i++)
		try_row(&rows[i]);
}

static void structs_that_are_null_are_refused(void **state)
{
	(void)state;
	for (size_t i = 3; i < PN_ARRAY_LEN(rows); i++)
		assert_int_equal(rows[i].call(NULL), -EINVAL);
	/* For the others NULL means the defaults. */
	for (size_t i = 0; i < 3; i++)
		assert_ok(rows[i].call(NULL));
}

/* --- structs that a query fills ------------------------------------------- */

static int ask_cache(void *out)
{
	return pinion_cache_query(f.context, out);
}

static int ask_device(void *out)
{
	return pinion_device_query(f.context, out);
}

static int ask_registration(void *out)
{
	return pinion_registration_query(f.registration, out);
}

static int ask_config(void *out)
{
	return pinion_config_query(f.context, 0, out);
}

static int ask_heap(void *out)
{
	return pinion_heap_query(f.heap, out);
}

static int ask_find(void *out)
{
	void *block = pinion_heap_malloc(f.heap, 64);
	int ret = pinion_heap_find(f.heap, block, out);

	pinion_heap_free(f.heap, block);
	return ret;
}

static int ask_helper(void *out)
{
	return pinion_helper_query(f.context, out);
}

static int ask_endpoint(void *out)
{
	return pinion_endpoint_query(f.ep, out);
}

static int ask_explain(void *out)
{
	struct pinion_explain_attr attr = { .size = sizeof(attr) };

	return pinion_endpoint_explain(f.ep, &attr, 0, out);
}

static const struct {
	int (*ask)(void *out);
	size_t size;
} queries[] = {
	{ ask_cache, sizeof(struct pinion_cache_stats) },
	{ ask_device, sizeof(struct pinion_device_info) },
	{ ask_registration, sizeof(struct pinion_registration_info) },
	{ ask_config, sizeof(struct pinion_config_option) },
	{ ask_heap, sizeof(struct pinion_heap_stats) },
	{ ask_find, sizeof(struct pinion_heap_region) },
	{ ask_helper, sizeof(struct pinion_helper_stats) },
	{ ask_endpoint, sizeof(struct pinion_endpoint_stats) },
	{ ask_explain, sizeof(struct pinion_explanation) },
};

/* The number of bytes written, from the front. */
static size_t ask(size_t i, size_t size, size_t *told)
{
	unsigned char out[1024];
	size_t n = sizeof(out);

	memset(out, 0xa5, sizeof(out));
	memcpy(out, &size, sizeof(size));
	assert_ok(queries[i].ask(out));
	memcpy(told, out, sizeof(*told));
	while (n && out[n - 1] == 0xa5)
		n--;
	return n;
}

static void queries_write_fields_that_both_sides_know(void **state)
{
	size_t told;

	(void)state;
	for (size_t i = 0; i < PN_ARRAY_LEN(queries); i++) {
		size_t size = queries[i].size;

		assert_int_equal(ask(i, size, &told), size);
		assert_int_equal(told, size);
		assert_int_equal(ask(i, size + 100, &told), size);
		assert_int_equal(told, size);
		assert_int_equal(ask(i, size - 8, &told), size - 8);
		assert_int_equal(told, size - 8);
		told = 0;
		assert_int_equal(queries[i].ask(&told), -EINVAL);
		assert_int_equal(queries[i].ask(NULL), -EINVAL);
	}
}

/* --- completions -----------------------------------------------------------
 */

/* Sends `n` messages to itself, without handles. */
static void send_some(unsigned n)
{
	struct pinion_message out = { .size = sizeof(out), .peer = f.self };
	struct pinion_message in = { .size = sizeof(in), .user = &f };

	for (unsigned i = 0; i < n; i++) {
		out.tag = in.tag = 100 + i;
		assert_ok(pinion_recv(f.ep, &in, NULL));
		assert_ok(call_send(&out));
	}
}

/* The distance of elements is their size. */
static void poll_elements(size_t bytes)
{
	enum { N = 40 };
	unsigned char *ends = calloc(N, bytes);
	unsigned n = 0;

	assert_non_null(ends);
	memset(ends, 0xa5, N * bytes);
	send_some(N);
	while (n < N) {
		int got = pinion_poll(f.ep, (void *)(ends + n * bytes), bytes,
				      N - n);

		assert_true(got >= 0);
		n += (unsigned)got;
	}
	for (unsigned i = 0; i < N; i++) {
		struct pinion_completion c = { .status = 1 };

		memcpy(&c, ends + i * bytes,
		       bytes < sizeof(c) ? bytes : sizeof(c));
		assert_ok(c.status);
		assert_int_equal(c.tag, 100 + i);
		for (size_t k = sizeof(c); k < bytes; k++)
			assert_int_equal(ends[i * bytes + k], 0);
	}
	free(ends);
}

static void completions_of_other_sizes_are_polled(void **state)
{
	struct pinion_completion c;

	(void)state;
	poll_elements(sizeof(struct pinion_completion));
	poll_elements(END_OF(struct pinion_completion, tag));
	poll_elements(sizeof(struct pinion_completion) + 24);
	assert_int_equal(pinion_poll(f.ep, &c, 0, 1), -EINVAL);
	assert_int_equal(pinion_poll(f.ep, NULL, sizeof(c), 1), -EINVAL);
	assert_int_equal(pinion_poll(f.ep, NULL, 0, 0), 0);
}

/* --- wait with a timeout ------------------------------------------------- */

static void a_wait_that_times_out_leaves_the_request_pending(void **state)
{
	struct pinion_message in = { .size = sizeof(in), .tag = 77 };
	struct pinion_message out = { .size = sizeof(out),
				      .tag = 77,
				      .peer = f.self };
	struct pinion_completion end;
	struct pinion_request *request;

	(void)state;
	assert_ok(pinion_recv(f.ep, &in, &request));
	assert_int_equal(pinion_wait(f.ep, request, 0, &end), -ETIMEDOUT);
	assert_int_equal(pinion_wait(f.ep, request, 1000, &end), -ETIMEDOUT);
	assert_ok(call_send(&out));
	assert_ok(pinion_wait(f.ep, request, UINT64_MAX - 1, &end));
	assert_int_equal(end.tag, 77);
}

/* --- explain ----------------------------------------------------------------
 */

static void explain_marks_one_protocol_and_its_reason(void **state)
{
	struct pinion_explain_attr attr = { .size = sizeof(attr) };
	struct pinion_explanation e = { .size = sizeof(e) };

	(void)state;
	for (attr.len = 1; attr.len < 64 << 20; attr.len *= 8) {
		unsigned chosen = 0, n;
		int ret;

		for (n = 0;
		     !(ret = pinion_endpoint_explain(f.ep, &attr, n, &e));
		     n++) {
			chosen += e.chosen;
			assert_true(e.first_ns > 0 && e.mean_ns > 0);
			assert_int_equal(!*e.reason, !e.chosen);
		}
		assert_int_equal(ret, -ENOENT);
		assert_true(n > 0);
		assert_int_equal(chosen, 1);
	}
	assert_int_equal(pinion_endpoint_explain(NULL, &attr, 0, &e), -EINVAL);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		TEST(structs_of_other_sizes_are_accepted_or_refused),
		TEST(structs_that_are_null_are_refused),
		TEST(queries_write_fields_that_both_sides_know),
		TEST(completions_of_other_sizes_are_polled),
		TEST(a_wait_that_times_out_leaves_the_request_pending),
		TEST(explain_marks_one_protocol_and_its_reason),
	};

	return cmocka_run_group_tests(tests, open_all, close_all);
}
