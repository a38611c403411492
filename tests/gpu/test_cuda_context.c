/* SPDX-License-Identifier: BSD-2-Clause */
/* Contexts on a GPU through the public calls: what stays registered when, that
 * no copy of the process ever sees old bytes, heaps, budget, helper, fork. */
#include <fcntl.h>
#include <pthread.h>
#include <sys/wait.h>

#include <pinion/pinion.h>

#include "context.h"
#include "device/cuda/cuda.h"
#include "device/cuda/gate.h"
#include "gpu_util.h"
#include "remap.h"

#define MIB   ((size_t)1 << 20)
#define BYTES (4 * MIB)

static const struct pn_cuda_driver *cu;
static pn_cu_deviceptr there;

static int setup(void **state)
{
	(void)state;
	cu = gpu_driver();
	gpu_use_primary(cu);
	return cu->mem_alloc(&there, BYTES);
}

static int teardown(void **state)
{
	struct standin s;

	(void)state;
	cu->mem_free(there);
	if (gpu_standin(&s) && (s.get("registrations") || s.get("faults")))
		return -1;
	return pn_cuda_gate_held_pages() ? -1 : 0;
}

static struct pinion_context *open_with(const char *a, const char *b)
{
	const char *const options[] = { "device=cuda", a, b, NULL };
	struct pinion_attr attr = { .size = sizeof(attr), .options = options };
	struct pinion_context *context;

	assert_ok(pinion_open(&attr, &context));
	return context;
}

static bool is_registered(const void *at)
{
	unsigned type = 0;

	return !cu->pointer_get_attribute(&type,
					  PN_CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
					  (uintptr_t)at);
}

static struct pinion_pin pin_ok(struct pinion_context *context, void *at,
				size_t bytes)
{
	struct pinion_pin pin;

	assert_ok(pinion_pin(context, at, bytes, PINION_ACCESS_LOCAL_WRITE,
			     &pin));
	return pin;
}

/* --- what stays registered --------------------------------------------------
 */

static void a_pin_ends_its_registration(void **state)
{
	struct pinion_context *context = open_with(NULL, NULL);
	char *at = gpu_map(BYTES);
	struct pinion_pin a, b;

	(void)state;
	memset(at, 1, BYTES);
	a = pin_ok(context, at + 100, MIB);
	assert_true(is_registered(at + 100));
	assert_false(is_registered(at + 99));
	assert_false(is_registered(at + 100 + MIB));
	b = pin_ok(context, at + 100, MIB);
	pinion_unpin(context, &a);
	assert_true(is_registered(at + 100));
	pinion_unpin(context, &b);
	assert_false(is_registered(at + 100));
	/* One that contains it, and one after the other. */
	a = pin_ok(context, at + MIB, MIB);
	b = pin_ok(context, at, BYTES);
	pinion_unpin(context, &a);
	assert_true(is_registered(at + MIB));
	pinion_unpin(context, &b);
	assert_false(is_registered(at + MIB));
	assert_false(is_registered(at));
	munmap(at, BYTES);
	pinion_close(context);
}

/* The program's own call copies a pinned buffer of any length. */
static void a_pinned_buffer_is_one_registration(void **state)
{
	struct pinion_context *context =
		open_with("cache_max_region=1M", "cuda_keep=no");
	char *at = gpu_map(BYTES);
	struct pinion_pin pin;

	(void)state;
	gpu_fill(at, BYTES, 5);
	pin = pin_ok(context, at, BYTES);
	assert_int_equal(cu->memcpy_htod(there, at, BYTES), 0);
	assert_int_equal(gpu_wrong_there(cu, there, BYTES, 5), 0);
	pinion_unpin(context, &pin);
	munmap(at, BYTES);
	pinion_close(context);
}

static void with_cuda_keep_memory_stays_registered(void **state)
{
	struct pinion_context *context = open_with("cuda_keep=yes", NULL);
	char *at = gpu_map(BYTES);
	struct pinion_cache_stats stats = { .size = sizeof(stats) };
	struct pinion_pin pin;

	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		pin = pin_ok(context, at, BYTES);
		pinion_unpin(context, &pin);
	}
	assert_true(is_registered(at));
	assert_true(
		pn_cuda_gate_holds((struct pn_range){ (uintptr_t)at, BYTES }));
	assert_ok(pinion_cache_query(context, &stats));
	assert_int_equal(stats.registrations, 1);
	assert_int_equal(stats.hits, 2);
	pinion_close(context);
	assert_false(is_registered(at));
	munmap(at, BYTES);
}

static void heaps_stay_registered(void **state)
{
	struct pinion_context *context = open_with(NULL, NULL);
	struct pinion_heap *heap;
	char *at;

	(void)state;
	assert_ok(pinion_heap_open(context, NULL, &heap));
	at = pinion_heap_malloc(heap, BYTES);
	assert_non_null(at);
	assert_true(is_registered(at));
	assert_true(is_registered(at + BYTES - 1));
	gpu_fill(at, BYTES, 8);
	/* In one call of the program. */
	assert_int_equal(cu->memcpy_htod(there, at, BYTES), 0);
	assert_int_equal(gpu_wrong_there(cu, there, BYTES, 8), 0);
	/* Not in the gate: no memory of the program. */
	assert_int_equal(pn_cuda_gate_held_pages(), 0);
	pinion_heap_free(heap, at);
	pinion_heap_close(heap);
	pinion_close(context);
}

/* --- staleness ---------------------------------------------------------------
 */

/* Kept registered, released, pinned again: the copy has the new bytes. */
static void no_release_delivers_old_bytes(void **state)
{
	struct pinion_context *context = open_with("cuda_keep=yes", NULL);
	struct pinion_pin pin;

	(void)state;
	for (unsigned how = 0; how < PN_ARRAY_LEN(remaps); how++) {
		char *at = gpu_map(BYTES);

		gpu_fill(at, BYTES, 1);
		pin = pin_ok(context, at, BYTES);
		pinion_unpin(context, &pin);
		assert_true(remaps[how].fn(at, BYTES));
		gpu_fill(at, BYTES, 2 + how);
		pin = pin_ok(context, at, BYTES);
		assert_int_equal(cu->memcpy_htod(there, at, BYTES), 0);
		pinion_unpin(context, &pin);
		assert_int_equal(gpu_wrong_there(cu, there, BYTES, 2 + how), 0);
		munmap(at, BYTES);
	}
	pinion_close(context);
}

/* Without cuda_keep not even the program's own copies can meet anything. */
static void own_copies_of_the_program_are_sound(void **state)
{
	struct pinion_context *context = open_with(NULL, NULL);
	struct pinion_pin pin;

	(void)state;
	for (unsigned how = 0; how < PN_ARRAY_LEN(remaps); how++) {
		char *at = gpu_map(BYTES);

		gpu_fill(at, BYTES, 1);
		pin = pin_ok(context, at, BYTES);
		pinion_unpin(context, &pin);
		assert_true(remaps[how].fn(at, BYTES));
		gpu_fill(at, BYTES, 2 + how);
		assert_int_equal(cu->memcpy_htod(there, at, BYTES), 0);
		assert_int_equal(gpu_wrong_there(cu, there, BYTES, 2 + how), 0);
		munmap(at, BYTES);
	}
	pinion_close(context);
}

/* Released while it is pinned: nothing new can be registered there until the
 * pin ends, and then the registration is gone. */
static void memory_released_under_a_pin_is_refused(void **state)
{
	struct pinion_context *context = open_with(NULL, NULL);
	char *at = gpu_map(BYTES);
	struct pinion_pin old, pin;

	(void)state;
	gpu_fill(at, BYTES, 1);
	old = pin_ok(context, at, BYTES);
	assert_true(remap_over(at, BYTES));
	gpu_fill(at, BYTES, 2);
	assert_int_equal(pinion_pin(context, at, BYTES,
				    PINION_ACCESS_LOCAL_WRITE, &pin),
			 -ENOBUFS);
	pinion_unpin(context, &old);
	assert_false(is_registered(at));
	pin = pin_ok(context, at, BYTES);
	assert_int_equal(cu->memcpy_htod(there, at, BYTES), 0);
	pinion_unpin(context, &pin);
	assert_int_equal(gpu_wrong_there(cu, there, BYTES, 2), 0);
	munmap(at, BYTES);
	pinion_close(context);
}

/* --- budget
 * ------------------------------------------------------------------- */

static void nothing_exceeds_the_budget(void **state)
{
	struct pinion_context *context =
		open_with("cuda_keep=yes", "max_bytes=8M");
	struct standin s;
	char *at = gpu_map(64 * MIB);
	struct pinion_pin pin;

	(void)state;
	for (unsigned i = 0; i < 32; i++) {
		pin = pin_ok(context, at + 2 * i * MIB, 2 * MIB);
		if (gpu_standin(&s))
			assert_true(s.get("registered_bytes") <= 8 * MIB);
		pinion_unpin(context, &pin);
	}
	assert_int_equal(pinion_pin(context, at, 64 * MIB, 0, &pin), -ENOBUFS);
	pinion_close(context);
	munmap(at, 64 * MIB);
}

static void a_gpu_out_of_memory_is_a_clear_error(void **state)
{
	struct standin s = standin_or_skip();
	struct pinion_context *context = open_with("cuda_keep=yes", NULL);
	char *at = gpu_map(BYTES);
	struct pinion_pin pin;

	(void)state;
	assert_ok(s.set("fail=cuMemHostRegister_v2/0/2"));
	assert_int_equal(pinion_pin(context, at, BYTES, 0, &pin), -ENOBUFS);
	assert_ok(s.set("fail=none"));
	pin = pin_ok(context, at, BYTES);
	pinion_unpin(context, &pin);
	pinion_close(context);
	munmap(at, BYTES);
}

/* --- the rest
 * ------------------------------------------------------------------ */

static void messages_are_refused(void **state)
{
	struct pinion_context *context = open_with(NULL, NULL), *other;
	const char *const rails[] = { "device=cuda+soft", NULL };
	struct pinion_attr attr = { .size = sizeof(attr), .options = rails };
	struct pinion_endpoint *ep;

	(void)state;
	assert_int_equal(pinion_endpoint_open(context, NULL, &ep), -EOPNOTSUPP);
	assert_int_equal(pinion_open(&attr, &other), -EINVAL);
	pinion_close(context);
}

static void unused_registrations_are_given_up_before_fork(void **state)
{
	struct pinion_context *context = open_with("cuda_keep=yes", NULL);
	char *kept = gpu_map(BYTES), *pinned = gpu_map(BYTES);
	struct pinion_pin pin, held;
	int status;
	pid_t child;

	(void)state;
	held = pin_ok(context, pinned, BYTES);
	pin = pin_ok(context, kept, BYTES);
	pinion_unpin(context, &pin);
	assert_true(is_registered(kept));
	child = fork();
	if (!child) {
		struct pinion_context *mine;
		const char *const options[] = { "device=cuda", NULL };
		struct pinion_attr attr = { .size = sizeof(attr),
					    .options = options };
		bool refused =
			pinion_pin(context, kept, BYTES, 0, &pin) == -EPERM &&
			pinion_open(&attr, &mine) == -ENODEV;

		pinion_close(context);
		_exit(!refused);
	}
	assert_false(is_registered(kept));
	assert_true(is_registered(pinned));
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	/* The parent's writes after the fork arrive. */
	gpu_fill(pinned, BYTES, 12);
	assert_int_equal(cu->memcpy_htod(there, pinned, BYTES), 0);
	assert_int_equal(gpu_wrong_there(cu, there, BYTES, 12), 0);
	pinion_unpin(context, &held);
	pinion_close(context);
	munmap(kept, BYTES);
	munmap(pinned, BYTES);
}

static void the_helper_works_on_pins(void **state)
{
	struct pinion_context *context =
		open_with("cuda_keep=yes", "helper=own");
	struct pinion_helper_stats stats = { .size = sizeof(stats) };
	char *at = gpu_map(BYTES);
	struct pinion_pin pin;

	(void)state;
	for (unsigned i = 0; i < 40; i++) {
		pin = pin_ok(context, at, BYTES);
		gpu_fill(at, 4096, i);
		assert_int_equal(cu->memcpy_htod(there, at, 4096), 0);
		pinion_unpin(context, &pin);
		usleep(5000);
	}
	assert_ok(pinion_helper_query(context, &stats));
	assert_int_equal(stats.calls + stats.lost, 40);
	pinion_close(context);
	assert_false(is_registered(at));
	munmap(at, BYTES);
}

static void a_trace_of_pins_is_recorded(void **state)
{
	char path[] = "/tmp/cuda_traceXXXXXX", option[64];
	int fd = mkstemp(path);
	struct pinion_context *context;
	char *at = gpu_map(BYTES);
	struct pinion_pin pin;

	(void)state;
	snprintf(option, sizeof(option), "trace=%s", path);
	context = open_with("cuda_keep=yes", option);
	for (unsigned i = 0; i < 4; i++) {
		pin = pin_ok(context, at, BYTES);
		pinion_unpin(context, &pin);
	}
	pinion_close(context);
	assert_true(lseek(fd, 0, SEEK_END) > 0);
	close(fd);
	unlink(path);
	munmap(at, BYTES);
}

/* --- threads
 * --------------------------------------------------------------------- */

static struct pinion_context *shared;
static char *buffer;
static _Atomic unsigned nwrong;

static void *pin_often(void *arg)
{
	uint64_t random = (uintptr_t)arg + 1;
	pn_cu_context context;

	cu->primary_ctx_retain(&context, 0);
	cu->ctx_set_current(context);
	for (unsigned i = 0; i < 60; i++) {
		size_t at = test_below(&random, 4) * MIB;
		size_t len = (1 + test_below(&random, 4 - at / MIB)) * MIB;
		struct pinion_pin pin;

		if (pinion_pin(shared, buffer + at, len, 0, &pin)) {
			nwrong++;
			continue;
		}
		if (!is_registered(buffer + at))
			nwrong++;
		pinion_unpin(shared, &pin);
	}
	cu->primary_ctx_release(0);
	return NULL;
}

static void pin_in_threads(const char *option)
{
	pthread_t threads[8];

	shared = open_with(option, NULL);
	buffer = gpu_map(BYTES);
	nwrong = 0;
	for (uintptr_t i = 0; i < 8; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, pin_often,
						(void *)i),
				 0);
	for (unsigned i = 0; i < 8; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(nwrong, 0);
	pinion_close(shared);
	assert_false(is_registered(buffer));
	munmap(buffer, BYTES);
}

static void threads_pin_the_same_memory(void **state)
{
	(void)state;
	pin_in_threads("cuda_keep=no");
	pin_in_threads("cuda_keep=yes");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_pin_ends_its_registration),
		TEST(a_pinned_buffer_is_one_registration),
		TEST(with_cuda_keep_memory_stays_registered),
		TEST(heaps_stay_registered),
		TEST(no_release_delivers_old_bytes),
		TEST(own_copies_of_the_program_are_sound),
		TEST(memory_released_under_a_pin_is_refused),
		TEST(nothing_exceeds_the_budget),
		TEST(a_gpu_out_of_memory_is_a_clear_error),
		TEST(messages_are_refused),
		TEST(unused_registrations_are_given_up_before_fork),
		TEST(the_helper_works_on_pins),
		TEST(a_trace_of_pins_is_recorded),
		TEST(threads_pin_the_same_memory),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
