/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Copies over a driver that fails. In a short life of the copy engine each call
 * of the driver fails once, at its n-th time, and in another life from then on.
 * After every copy the right bytes are there or a clear error was returned, and
 * never is more pinned than the budget allows. When the driver works again
 * copies do, too, and after close nothing is left.
 *
 * The life has a device, a cache and a copier. What the test needs beside it is
 * made before, or is no call of the driver: see pinion_standin_peek().
 *
 * test_copy_failures [long]
 * The stand-in driver only.
 */
#include <unistd.h>

#include "copy_rig.h"
#include "device/cuda/cuda.h"
#include "driver_failures.h"

#define BYTES	    (8 * RIG_BLOCK)
#define THERE_BYTES (4 * BYTES)
#define MAX_BYTES   ((size_t)2 << 20) /* the budget */

static const struct pn_cuda_driver *cu;
static struct standin standin;
static pn_cu_deviceptr there;
static pn_cu_stream stream; /* of the program */
static char what[160];	    /* fails */
static unsigned nwrong;
static bool is_long;

#define CHECK(fact, ...)                                         \
	do {                                                     \
		if (!(fact)) {                                   \
			fprintf(stderr, "%s: %s: ", what, step); \
			fprintf(stderr, __VA_ARGS__);            \
			fprintf(stderr, "\n");                   \
			nwrong++;                                \
		}                                                \
	} while (0)

/* --- the world around ----------------------------------------------------- */

static void make_world(void)
{
	pn_cu_context context;

	assert_ok(cu->primary_ctx_retain(&context, 0));
	assert_ok(cu->ctx_set_current(context));
	assert_ok(cu->mem_alloc(&there, THERE_BYTES));
	assert_ok(cu->stream_create(&stream, PN_CU_STREAM_NON_BLOCKING));
}

/* Everything of the context goes, also what a life has left. */
static void remake_world(void)
{
	pn_cu_result (*reset)(pn_cu_device);

	*(void **)&reset = dlsym(cu->library, "cuDevicePrimaryCtxReset_v2");
	assert_ok(reset(0));
	make_world();
}

/* --- a life --------------------------------------------------------------- */

struct life {
	struct pn_device *device;
	struct pn_budget budget;
	struct pn_cache *cache;
	struct pn_copier *copier;
	char *at;
	uint64_t seed; /* of the bytes that were written last */
};

static int open_life(struct life *life)
{
	struct pn_cache_attr cache = { .budget = &life->budget,
				       .keep_by_address = true };
	struct pn_copier_attr copier = {
		.driver = cu,
		.keep = true,
		.max_workers = 2,
		.block_bytes = RIG_BLOCK,
		.background_bytes = 2 * RIG_BLOCK,
		.min_bytes = RIG_BLOCK,
	};
	const char *step = "open";
	int ret = pn_device_open("cuda", NULL, &life->device);

	if (ret) {
		CHECK(ret == -ENOMEM || ret == -ENODEV, "%s", strerror(-ret));
		return ret;
	}
	pn_budget_init(&life->budget, life->device, MAX_BYTES, 0, 1);
	cache.device = life->device;
	assert_ok(pn_cache_open(&cache, &life->cache));
	copier.device = life->device;
	copier.primary = pn_cuda_context_of(life->device);
	copier.cache = life->cache;
	assert_ok(pn_copier_open(&copier, &life->copier));
	return 0;
}

static void close_life(struct life *life)
{
	const char *step = "close";

	pn_copier_close(life->copier);
	pn_cache_close(life->cache);
	CHECK(!life->budget.bytes, "%zu bytes are charged",
	      (size_t)life->budget.bytes);
	pn_device_close(life->device);
}

static void judge(struct life *life, int ret, const char *step)
{
	CHECK(!ret || driver_error_is_clear(ret), "%s", strerror(-ret));
	CHECK(life->budget.bytes <= MAX_BYTES, "%zu bytes are charged",
	      (size_t)life->budget.bytes);
}

static bool is_there(pn_cu_deviceptr at, size_t bytes, uint64_t seed)
{
	static char copy[BYTES];

	return !standin.peek(copy, at, bytes) && !gpu_wrong(copy, bytes, seed);
}

static struct pn_copy_op op_to(struct life *life, size_t bytes)
{
	gpu_fill(life->at, bytes, ++life->seed);
	return (struct pn_copy_op){ .dst = (void *)(uintptr_t)there,
				    .src = life->at,
				    .bytes = bytes,
				    .stream = stream };
}

static struct pn_copy_op op_from(struct life *life, size_t bytes)
{
	static char copy[BYTES];

	gpu_fill(copy, bytes, ++life->seed);
	assert_ok(standin.poke(copy, there, bytes));
	memset(life->at, 0, bytes);
	return (struct pn_copy_op){ .dst = life->at,
				    .src = (void *)(uintptr_t)there,
				    .bytes = bytes,
				    .stream = stream };
}

static int copy_to(struct life *life, size_t bytes, const char *step)
{
	struct pn_copy_op op = op_to(life, bytes);
	int ret = pn_copier_copy(life->copier, &op, NULL);

	judge(life, ret, step);
	if (!ret)
		CHECK(is_there(there, bytes, life->seed), "wrong bytes");
	return ret;
}

static int copy_from(struct life *life, size_t bytes, const char *step)
{
	struct pn_copy_op op = op_from(life, bytes);
	int ret = pn_copier_copy(life->copier, &op, NULL);

	judge(life, ret, step);
	if (!ret)
		CHECK(!gpu_wrong(life->at, bytes, life->seed), "wrong bytes");
	return ret;
}

static void start_and_wait(struct life *life, bool to, const char *step)
{
	struct pn_copy_op op = to ? op_to(life, BYTES) : op_from(life, BYTES);
	struct pinion_cuda_request *request;
	int ret = pn_copier_start(life->copier, &op, &request);

	if (!ret)
		ret = pn_copy_request_wait(request, PINION_FOREVER);
	/* The driver could not be asked: once, or the close ends it. */
	if (ret == -ETIMEDOUT)
		ret = pn_copy_request_wait(request, PINION_FOREVER);
	if (ret == -ETIMEDOUT)
		return;
	judge(life, ret, step);
	if (!ret && to)
		CHECK(is_there(there, BYTES, life->seed), "wrong bytes");
	else if (!ret)
		CHECK(!gpu_wrong(life->at, BYTES, life->seed), "wrong bytes");
}

static void prefetch(struct life *life, size_t bytes, const char *step)
{
	int ret = pn_cache_prefetch(life->cache, (uintptr_t)life->at, bytes,
				    PINION_ACCESS_LOCAL_WRITE);

	CHECK(!ret || ret == -ENOMEM || ret == -ENOBUFS || ret == -EFAULT, "%s",
	      strerror(-ret));
}

static void release(struct life *life)
{
	assert_ptr_equal(mmap(life->at, BYTES, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
			 life->at);
}

/* Every way a copy can go. */
static void use_life(struct life *life)
{
	copy_to(life, BYTES, "to the GPU");
	copy_from(life, BYTES, "from the GPU");
	start_and_wait(life, true, "request to the GPU");
	start_and_wait(life, false, "request from the GPU");
	copy_to(life, 4096, "small, to the GPU");
	prefetch(life, BYTES / 2, "register a half");
	copy_to(life, BYTES, "a half registered, to the GPU");
	copy_from(life, BYTES, "a half registered, from the GPU");
	prefetch(life, BYTES, "register");
	copy_to(life, BYTES, "registered, to the GPU");
	copy_from(life, BYTES, "registered, from the GPU");
	start_and_wait(life, true, "registered, request");
	release(life);
	copy_to(life, BYTES, "released, to the GPU");
	prefetch(life, BYTES, "register again");
	copy_from(life, 4096, "registered, small, from the GPU");
	pn_copier_yield(life->copier, life->at, BYTES);
	cu->ctx_set_current(NULL);
	copy_from(life, BYTES, "without a context, from the GPU");
}

/* --- failures ------------------------------------------------------------- */

static bool is_clean(void)
{
	return !standin.get("registrations") && !standin.get("events") &&
	       standin.get("streams") == 1 && standin.get("allocations") == 1;
}

/* The driver works again. */
static void recover(struct life *life, pn_cu_context context)
{
	const char *step = "afterwards";
	int ret;

	assert_ok(standin.set("fail=none"));
	assert_ok(cu->ctx_set_current(context));
	ret = copy_to(life, BYTES, "afterwards, to the GPU");
	CHECK(!ret, "%s", strerror(-ret));
	ret = copy_from(life, BYTES, "afterwards, from the GPU");
	CHECK(!ret, "%s", strerror(-ret));
}

static void live(const char *failures, bool leaves)
{
	struct life life = { .at = gpu_map(BYTES) };
	uint64_t faults = standin.get("faults");
	const char *step = "after close";
	unsigned before = nwrong;
	pn_cu_context context;

	assert_ok(cu->ctx_get_current(&context));
	assert_ok(standin.set(failures));
	if (!open_life(&life)) {
		use_life(&life);
		recover(&life, context);
		close_life(&life);
	}
	assert_ok(standin.set("fail=none"));
	munmap(life.at, BYTES);
	CHECK(!pn_cuda_gate_held_pages(), "%zu pages are held",
	      pn_cuda_gate_held_pages());
	CHECK(standin.get("faults") == faults, "unregistered under a copy");
	CHECK(leaves || is_clean(),
	      "left: %u registrations, %u streams, %u events",
	      (unsigned)standin.get("registrations"),
	      (unsigned)standin.get("streams") - 1,
	      (unsigned)standin.get("events"));
	/* An error of the stream must not show in the next life, too. */
	if (!is_clean() || nwrong != before)
		remake_world();
}

static void fail_at(const char *symbol, unsigned n, bool for_ever)
{
	static const int codes[] = { PN_CUDA_ERROR_OUT_OF_MEMORY,
				     PN_CUDA_ERROR_UNKNOWN };

	for (unsigned i = 0; i < PN_ARRAY_LEN(codes); i++) {
		if (!is_long && i != n % PN_ARRAY_LEN(codes))
			continue;
		snprintf(what, sizeof(what), "fail=%s/%u%s/%d", symbol, n,
			 for_ever ? "+" : "", codes[i]);
		alarm(60);
		live(what, driver_ends_something(symbol));
		if (getenv("VERBOSE"))
			printf("%s\n", what);
	}
}

/* In `make check` the first calls, then fewer and fewer. */
static unsigned next(unsigned n)
{
	return is_long || n < 4 ? n + 1 : n + n / 2;
}

static uint64_t calls_of_a_life(const char *symbol)
{
	static uint64_t counts[PN_ARRAY_LEN(driver_symbols)];
	static bool counted;
	unsigned at = 0;

	for (unsigned i = 0; i < PN_ARRAY_LEN(driver_symbols); i++)
		at = strcmp(driver_symbols[i], symbol) ? at : i;
	if (counted)
		return counts[at];
	counted = true;
	for (unsigned i = 0; i < PN_ARRAY_LEN(driver_symbols); i++)
		counts[i] = standin.calls(driver_symbols[i]);
	live("fail=none", false);
	for (unsigned i = 0; i < PN_ARRAY_LEN(driver_symbols); i++)
		counts[i] = standin.calls(driver_symbols[i]) - counts[i];
	return counts[at];
}

static int setup(void **state)
{
	(void)state;
	cu = gpu_driver();
	assert_ok(standin.set("late_us=10"));
	make_world();
	live("fail=none", false);
	return nwrong ? -1 : 0;
}

static void failing(bool for_ever)
{
	unsigned nlives = 0;

	nwrong = 0;
	for (unsigned i = 0; i < PN_ARRAY_LEN(driver_symbols); i++)
		for (unsigned n = 1; n <= calls_of_a_life(driver_symbols[i]);
		     n = next(n), nlives++)
			fail_at(driver_symbols[i], n, for_ever);
	printf("%u lives\n", nlives);
	assert_int_equal(nwrong, 0);
}

static void a_call_that_fails_once(void **state)
{
	(void)state;
	failing(false);
}

static void a_call_that_fails_from_then_on(void **state)
{
	(void)state;
	failing(true);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(a_call_that_fails_once),
		TEST(a_call_that_fails_from_then_on),
	};

	is_long = argc > 1 && !strcmp(argv[1], "long");
	if (!gpu_standin(&standin)) {
		printf("a real driver: skipped\n");
		return TEST_SKIP;
	}
	return cmocka_run_group_tests(tests, setup, NULL);
}
