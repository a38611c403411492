/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Every kind of release that the monitor knows, and pinion's own copies in a
 * context that keeps memory registered: memory that is registered is released,
 * the same address gets new pages, and copies to and from the GPU move the new
 * bytes.
 */
#include <pinion/cuda.h>
#include <pinion/pinion.h>

#include "../monitor/releases.h"
#include "device/cuda/gate.h"
#include "gpu_util.h"

#define MIB   ((size_t)1 << 20)
#define BYTES (64 * MIB)

static const struct pn_cuda_driver *cu;
static struct pinion_context *context;
static pn_cu_deviceptr there;
static pn_cu_stream stream;

static int setup(void **state)
{
	const char *const options[] = { "device=cuda", "cuda_keep=yes", NULL };
	struct pinion_attr attr = { .size = sizeof(attr), .options = options };

	(void)state;
	cu = gpu_driver();
	gpu_use_primary(cu);
	if (cu->mem_alloc(&there, BYTES) ||
	    cu->stream_create(&stream, PN_CU_STREAM_NON_BLOCKING))
		return -1;
	return pinion_open(&attr, &context);
}

static int teardown(void **state)
{
	struct standin s;

	(void)state;
	pinion_close(context);
	cu->stream_destroy(stream);
	cu->mem_free(there);
	if (gpu_standin(&s) && (s.get("registrations") || s.get("faults")))
		return -1;
	return pn_cuda_gate_held_pages() ? -1 : 0;
}

static size_t held(const char *at, size_t bytes)
{
	size_t n = 0;

	for (size_t i = 0; i < bytes; i += PN_PAGE_BYTES)
		n += pn_cuda_gate_holds(
			(struct pn_range){ (uintptr_t)at + i, 1 });
	return n;
}

/* Copies, and waits, by one of the calls. */
static void copy(void *dst, const void *src, size_t bytes, bool started)
{
	struct pinion_cuda_copy_attr attr = { .size = sizeof(attr),
					      .dst = dst,
					      .src = src,
					      .bytes = bytes,
					      .stream = stream };
	struct pinion_cuda_request *request;

	if (!started) {
		assert_ok(pinion_cuda_copy(context, dst, src, bytes, stream));
		return;
	}
	assert_ok(pinion_cuda_copy_start(context, &attr, &request));
	assert_ok(pinion_cuda_wait(request, PINION_FOREVER));
}

static size_t wrong_there(size_t bytes, uint64_t seed)
{
	assert_int_equal(cu->ctx_synchronize(), 0);
	return gpu_wrong_there(cu, there, bytes, seed);
}

/* Used, and registered; how many pages. Some kinds of memory never are. */
static size_t use(char *at, size_t bytes)
{
	struct pinion_pin pin;

	gpu_fill(at, bytes, 1);
	copy((void *)(uintptr_t)there, at, bytes, false);
	if (!pinion_pin(context, at, bytes, PINION_ACCESS_LOCAL_WRITE, &pin))
		pinion_unpin(context, &pin);
	copy((void *)(uintptr_t)there, at, bytes, false);
	assert_int_equal(wrong_there(bytes, 1), 0);
	return held(at, bytes);
}

static void new_bytes_move(char *at, size_t bytes, bool to_gpu, bool started)
{
	size_t some = bytes < 8192 ? bytes : 8192;

	for (int i = 0; i < 2; i++) {
		size_t n = i ? bytes : some;

		if (to_gpu) {
			gpu_fill(at, n, 2 + i);
			copy((void *)(uintptr_t)there, at, n, started);
			assert_int_equal(wrong_there(n, 2 + i), 0);
			continue;
		}
		/* Into pages that nobody has touched. */
		copy(at, (void *)(uintptr_t)there, n, started);
		assert_int_equal(cu->ctx_synchronize(), 0);
		assert_int_equal(gpu_wrong(at, n, 1), 0);
	}
}

/* Whether some of the memory was registered when it was released. */
static bool release_between(const struct release_case *c, bool to_gpu,
			    bool started)
{
	struct scene s = { 0 };
	size_t nheld;

	if (!c->prepare(&s))
		return false;
	nheld = use(s.target, s.len);
	if (!c->release(&s)) {
		printf("%-28s refused by this system\n", c->name);
		return false;
	}
	if (!started)
		printf("%-28s %s: %zu of %zu pages were registered\n", c->name,
		       to_gpu ? "to" : "from", nheld, s.len / PN_PAGE_BYTES);
	if (release_map_again(c, &s))
		new_bytes_move(s.target, s.len, to_gpu, started);
	else
		nheld = 0;
	release_clean(c, &s);
	return nheld;
}

static void after_every_kind_of_release_new_bytes_move(void **state)
{
	unsigned registered = 0, tried = 0;

	(void)state;
	for (size_t i = 0; i < nrelease_cases; i++) {
		const struct release_case *c = &release_cases[i];

		if (!release_is_noticed(c))
			continue;
		for (int how = 0; how < 4; how++) {
			tried++;
			registered += release_between(c, how & 1, how & 2);
		}
	}
	printf("%u of %u were registered\n", registered, tried);
	assert_true(registered > tried / 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(after_every_kind_of_release_new_bytes_move),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
