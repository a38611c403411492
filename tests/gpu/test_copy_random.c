/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Random copies, requests, releases of every kind, pins, copies of the
 * program's own and failures of the driver, against a model that knows no more
 * than two arrays of bytes: what the host memory and what the GPU's memory must
 * hold. Each round has a budget, a number of workers, the option keep and the
 * stand-in's options of its own.
 *
 * A copy that fails leaves in each byte of its destination what was there or
 * what should have come, and nothing else anywhere; the model goes on with what
 * is there then.
 *
 * test_copy_random [ROUNDS]
 * The stand-in driver only. PINION_TEST_SEED repeats a run.
 */
#include "base/clock.h"
#include "copy_rig.h"
#include "driver_failures.h"
#include "remap.h"

#define BYTES	  ((size_t)2 << 20) /* of host memory, and of the GPU's */
#define PAGE	  ((size_t)4096)
#define STEPS	  300
#define MAX_UNITS 4 /* requests, and pins, at a time */
#define ACCESS	  PINION_ACCESS_LOCAL_WRITE

struct range {
	size_t at, len; /* len 0: nothing */
};

static struct standin standin;
static struct rig rig;
static uint64_t seed; /* of the round's choices */
static unsigned round_now, step_now;
static pn_cu_stream stream;
static pn_cu_deviceptr there;
static char *host;
static char host_model[BYTES], there_model[BYTES], copy_of_there[BYTES];

/* The host memory of a request belongs to it until it has ended. */
static struct {
	struct pinion_cuda_request *request;
	struct range range;
} requests[MAX_UNITS];
static struct {
	struct pinion_pin pin;
	struct range range;
} pins[MAX_UNITS];

/* --- ranges --------------------------------------------------------------- */

static struct range any_range(void)
{
	size_t max = test_below(&seed, 3) ? BYTES : 8 * PAGE;
	struct range range;

	range.len = 1 + test_below(&seed, max);
	range.at = test_below(&seed, BYTES - range.len + 1);
	return range;
}

static struct range any_pages(void)
{
	struct range range = any_range();

	range.len += range.at % PAGE;
	range.at -= range.at % PAGE;
	range.len = (range.len + PAGE - 1) / PAGE * PAGE;
	return range;
}

static bool meet(struct range a, struct range b)
{
	return a.len && b.len && a.at < b.at + b.len && b.at < a.at + a.len;
}

static bool meets_request(struct range range)
{
	for (int i = 0; i < MAX_UNITS; i++)
		if (requests[i].request && meet(range, requests[i].range))
			return true;
	return false;
}

static bool meets_pin(struct range range)
{
	for (int i = 0; i < MAX_UNITS; i++)
		if (meet(range, pins[i].range))
			return true;
	return false;
}

/* A request that the driver did not let wait: its memory stays pinned until the
 * copier is closed, since nobody knows when the copy ends. */
static bool has_lost_request;

/* Something is, by a pin or by a request. */
static bool is_pinned(void)
{
	const struct range all = { .len = BYTES };

	return has_lost_request || meets_pin(all) || meets_request(all);
}

/* --- what a step does ----------------------------------------------------- */

static void check(const char *what, const char *is, const char *model,
		  struct range range)
{
	for (size_t i = range.at; i < range.at + range.len; i++)
		if (is[i] != model[i])
			fail_msg("round %u, step %u, %s: byte %zu is %d, "
				 "not %d",
				 round_now, step_now, what, i, is[i], model[i]);
}

static void end_request(int i)
{
	if (!requests[i].request)
		return;
	assert_ok(pn_copy_request_wait(requests[i].request, PINION_FOREVER));
	requests[i].request = NULL;
	check("request", host, host_model, requests[i].range);
}

static void end_pin(int i)
{
	if (!pins[i].range.len)
		return;
	pn_cache_unpin(rig.cache, &pins[i].pin);
	pins[i].range.len = 0;
}

/* --- copies --------------------------------------------------------------- */

struct copy {
	struct pn_copy_op op;
	struct range range; /* of the host memory */
	size_t there_at;
	bool to_gpu;
};

static struct copy any_copy(void)
{
	struct copy copy = { .range = any_range(),
			     .to_gpu = test_below(&seed, 2) };
	char *at = host + copy.range.at;
	void *gpu;

	copy.there_at = test_below(&seed, BYTES - copy.range.len + 1);
	gpu = (void *)(uintptr_t)(there + copy.there_at);
	copy.op = (struct pn_copy_op){ .dst = copy.to_gpu ? gpu : at,
				       .src = copy.to_gpu ? at : gpu,
				       .bytes = copy.range.len,
				       .stream = stream };
	return copy;
}

/* A call of the driver that failed, or should have, lately. */
static char failure[128] = "none";

static void expect_ok(int ret)
{
	if (ret)
		fail_msg("round %u, step %u: %s; the driver's last failure: %s",
			 round_now, step_now, strerror(-ret), failure);
}

static void note_copy(const struct copy *copy)
{
	char *host_at = host_model + copy->range.at;
	char *there_at = there_model + copy->there_at;

	if (copy->to_gpu)
		memcpy(there_at, host_at, copy->range.len);
	else
		memcpy(host_at, there_at, copy->range.len);
}

/* Copies of pinned memory are under way on return. */
static void do_copy(void)
{
	struct copy copy = any_copy();

	if (meets_request(copy.range))
		return;
	expect_ok(pn_copier_copy(rig.copier, &copy.op, NULL));
	note_copy(&copy);
	if (meets_pin(copy.range))
		assert_int_equal(rig.cu->stream_synchronize(stream), 0);
	if (!copy.to_gpu)
		check("copy", host, host_model, copy.range);
}

static void do_request(void)
{
	int i = (int)test_below(&seed, MAX_UNITS);
	struct copy copy;

	end_request(i);
	copy = any_copy();
	if (meets_request(copy.range))
		return;
	expect_ok(pn_copier_start(rig.copier, &copy.op, &requests[i].request));
	note_copy(&copy);
	requests[i].range = copy.range;
}

static void do_end_request(void)
{
	end_request((int)test_below(&seed, MAX_UNITS));
}

static void write_range(struct range range)
{
	int byte = (int)test_below(&seed, 256);

	for (size_t i = range.at; i < range.at + range.len; i++)
		host[i] = host_model[i] = (char)(byte + (int)(i % 251));
}

static void do_write(void)
{
	struct range range = any_range();

	if (!meets_request(range))
		write_range(range);
}

/* Other pages at the same place. A pinned range may not be released. */
static void do_release(void)
{
	const struct remap *how =
		&remaps[test_below(&seed, PN_ARRAY_LEN(remaps))];
	struct range range = any_pages();

	if (how->bytes == REMAP_PART_ZERO)
		range.len = PAGE;
	if ((how->hole && !gpu_is_low(host)) || meets_request(range) ||
	    meets_pin(range))
		return;
	if (!how->fn(host + range.at, range.len))
		fail_msg("%s: %s", how->name, strerror(errno));
	if (how->bytes == REMAP_ANY)
		write_range(range);
	else
		memset(host_model + range.at, 0, range.len);
}

static void do_pin(void)
{
	int i = (int)test_below(&seed, MAX_UNITS);
	struct range range = any_range();
	int ret;

	end_pin(i);
	ret = pn_cache_pin(rig.cache, host + range.at, range.len, ACCESS,
			   &pins[i].pin);
	if (ret) /* other pins hold the budget */
		assert_int_equal(ret, -ENOBUFS);
	else
		pins[i].range = range;
}

static void do_unpin(void)
{
	end_pin((int)test_below(&seed, MAX_UNITS));
}

static void do_prefetch(void)
{
	struct range range = any_range();
	int ret = pn_cache_prefetch(rig.cache, (uintptr_t)host + range.at,
				    range.len, ACCESS);

	assert_true(!ret || ret == -ENOBUFS);
}

/* What is being deregistered goes by itself, after some time. */
static int yield(const void *at, size_t len)
{
	uint64_t end = pn_clock_ns() + 60 * PN_NS_PER_S;
	int ret;

	pn_copier_settle(rig.copier);
	while ((ret = pn_copier_yield(rig.copier, at, len)) == -EBUSY &&
	       !is_pinned() && pn_clock_ns() < end)
		usleep(1000);
	return ret;
}

/* The program's own copy, which knows nothing of pinion. A pin that is held and
 * a request keep whole regions, also what lies beside their memory. */
static void do_driver_copy(void)
{
	struct copy copy = any_copy();
	pn_cu_deviceptr at = there + copy.there_at;
	char *host_at = host + copy.range.at;
	size_t len = copy.range.len;
	int ret;

	if (meets_request(copy.range) || meets_pin(copy.range))
		return;
	ret = yield(host_at, len);
	if (ret) {
		assert_int_equal(ret, -EBUSY);
		assert_true(is_pinned());
		return;
	}
	assert_int_equal(rig.cu->stream_synchronize(stream), 0);
	note_copy(&copy);
	if (copy.to_gpu)
		assert_int_equal(rig.cu->memcpy_htod(at, host_at, len), 0);
	else
		assert_int_equal(rig.cu->memcpy_dtoh(host_at, at, len), 0);
}

static void do_settle(void)
{
	pn_copier_settle(rig.copier);
}

/* --- failures of the driver ----------------------------------------------- */

/* Each CUDA context that stays on a thread's stack is one too much for ever. */
static bool leaves_a_context(const char *symbol)
{
	return strstr(symbol, "PopCurrent");
}

static void fail_some_call(void)
{
	static const int codes[] = { PN_CUDA_ERROR_OUT_OF_MEMORY,
				     PN_CUDA_ERROR_UNKNOWN };
	const char *symbol;

	do
		symbol = driver_symbols[test_below(
			&seed, PN_ARRAY_LEN(driver_symbols))];
	while (driver_ends_something(symbol) || leaves_a_context(symbol));
	snprintf(failure, sizeof(failure), "fail=%s/%d%s/%d", symbol,
		 1 + (int)test_below(&seed, 3), test_below(&seed, 2) ? "+" : "",
		 codes[test_below(&seed, PN_ARRAY_LEN(codes))]);
	assert_int_equal(standin.set(failure), 0);
}

/* Each byte is the old or the new one; the model takes over what is there. */
static void adopt(const struct copy *copy)
{
	static char is[BYTES];
	const char *new = copy->to_gpu ? host_model + copy->range.at
				       : there_model + copy->there_at;
	char *old = copy->to_gpu ? there_model + copy->there_at
				 : host_model + copy->range.at;

	if (copy->to_gpu)
		assert_ok(standin.peek(is, there + copy->there_at,
				       copy->range.len));
	else
		memcpy(is, host + copy->range.at, copy->range.len);
	for (size_t i = 0; i < copy->range.len; i++)
		if (is[i] != old[i] && is[i] != new[i])
			fail_msg("round %u, step %u, a copy that failed: byte "
				 "%zu is %d, not %d or %d",
				 round_now, step_now, i, is[i], old[i], new[i]);
	memcpy(old, is, copy->range.len);
}

/* Where the driver could not be asked, the request is asked again when the
 * driver works. */
static int start_and_wait(const struct copy *copy)
{
	struct pinion_cuda_request *request;
	int ret = pn_copier_start(rig.copier, &copy->op, &request);

	if (ret)
		return ret;
	ret = pn_copy_request_wait(request, PINION_FOREVER);
	if (ret == -ETIMEDOUT) {
		assert_int_equal(standin.set("fail=none"), 0);
		ret = pn_copy_request_wait(request, PINION_FOREVER);
	}
	has_lost_request |= ret;
	return ret;
}

static int copy_or_start_and_wait(const struct copy *copy)
{
	return test_below(&seed, 2)
		       ? pn_copier_copy(rig.copier, &copy->op, NULL)
		       : start_and_wait(copy);
}

static uint64_t nfailed; /* copies, of all rounds */

static void do_failing_copy(void)
{
	struct copy copy;
	int ret;

	for (int i = 0; i < MAX_UNITS; i++)
		end_request(i);
	copy = any_copy();
	fail_some_call();
	ret = copy_or_start_and_wait(&copy);
	assert_int_equal(standin.set("fail=none"), 0);
	assert_int_equal(rig.cu->ctx_synchronize(), 0);
	if (!ret) {
		note_copy(&copy);
		return;
	}
	if (!driver_error_is_clear(ret))
		expect_ok(ret);
	adopt(&copy);
	nfailed++;
}

static void do_failing_prefetch(void)
{
	struct range range = any_range();
	int ret;

	for (int i = 0; i < MAX_UNITS; i++)
		end_request(i);
	fail_some_call();
	ret = pn_cache_prefetch(rig.cache, (uintptr_t)host + range.at,
				range.len, ACCESS);
	pn_copier_settle(rig.copier);
	assert_int_equal(standin.set("fail=none"), 0);
	assert_true(!ret || ret == -ENOBUFS || ret == -ENOMEM ||
		    ret == -EFAULT);
}

static const struct {
	void (*fn)(void);
	unsigned weight;
} steps[] = {
	{ do_copy, 10 },  { do_request, 6 },	  { do_end_request, 4 },
	{ do_write, 5 },  { do_release, 5 },	  { do_pin, 2 },
	{ do_unpin, 2 },  { do_prefetch, 1 },	  { do_driver_copy, 2 },
	{ do_settle, 1 }, { do_failing_copy, 3 }, { do_failing_prefetch, 1 },
};

static void do_step(void)
{
	uint64_t total = 0;
	uint64_t pick;

	for (size_t i = 0; i < sizeof(steps) / sizeof(*steps); i++)
		total += steps[i].weight;
	pick = test_below(&seed, total);
	for (size_t i = 0; i < sizeof(steps) / sizeof(*steps); i++) {
		if (pick < steps[i].weight) {
			steps[i].fn();
			return;
		}
		pick -= steps[i].weight;
	}
}

/* --- a round -------------------------------------------------------------- */

static void compare(void)
{
	for (int i = 0; i < MAX_UNITS; i++)
		end_request(i);
	assert_int_equal(rig.cu->stream_synchronize(stream), 0);
	check("host", host, host_model, (struct range){ .len = BYTES });
	assert_ok(standin.peek(copy_of_there, there, BYTES));
	check("GPU", copy_of_there, there_model,
	      (struct range){ .len = BYTES });
}

static void begin_round(void)
{
	static const size_t budgets[] = { 512 << 10, 2 << 20, 64 << 20 };
	const struct rig_attr attr = {
		.workers = 1 + (unsigned)test_below(&seed, 3),
		.keep = test_below(&seed, 4),
		.max_bytes = budgets[test_below(&seed, 3)],
	};
	char text[64];

	snprintf(text, sizeof(text), "memops=%d,late_us=%d",
		 (int)test_below(&seed, 2), (int)test_below(&seed, 2) * 50);
	assert_int_equal(standin.set(text), 0);
	rig_open(&rig, &attr);
	assert_int_equal(rig.cu->mem_alloc(&there, BYTES), 0);
	assert_int_equal(rig.cu->stream_create(&stream,
					       PN_CU_STREAM_NON_BLOCKING),
			 0);
	host = gpu_map_low(BYTES);
	memset(host_model, 0, BYTES);
	memset(there_model, 0, BYTES);
	has_lost_request = false;
	assert_ok(standin.poke(there_model, there, BYTES));
}

static void end_round(void)
{
	for (int i = 0; i < MAX_UNITS; i++)
		end_pin(i);
	munmap(host, BYTES);
	assert_int_equal(rig.cu->stream_destroy(stream), 0);
	assert_int_equal(rig.cu->mem_free(there), 0);
	rig_close(&rig);
	assert_int_equal(standin.get("registrations"), 0);
	assert_int_equal(standin.get("faults"), 0);
}

static unsigned rounds = 12;

static void bytes_are_those_of_the_model(void **state)
{
	uint64_t run = test_seed();

	(void)state;
	standin = standin_or_skip();
	for (round_now = 0; round_now < rounds; round_now++) {
		seed = test_mix(run, round_now);
		begin_round();
		for (step_now = 0; step_now < STEPS; step_now++) {
			do_step();
			assert_true(rig.budget.bytes <= rig.budget.max_bytes);
		}
		compare();
		end_round();
	}
	/* Else the failures are of calls that copies do not make. */
	assert_true(nfailed);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bytes_are_those_of_the_model),
	};

	if (argc > 1)
		rounds = (unsigned)strtoul(argv[1], NULL, 0);
	return RUN_TESTS(tests);
}
