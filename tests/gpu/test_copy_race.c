/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Copies, registrations and releases that meet at the worst moment. The
 * stand-in calls the test at the end of a driver function, so each order of
 * events is the same in every run. What each test looks for has delivered wrong
 * bytes once.
 *
 * Run with PINION_MONITOR=userfaultfd, too, where the notice of a madvise()
 * comes before its pages go.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "copy_rig.h"

#define BYTES  (16 * RIG_BLOCK)
#define ACCESS PINION_ACCESS_LOCAL_WRITE
#define OLD    1
#define NEW    2

static struct rig rig;
static struct standin standin;
static pn_cu_deviceptr there;
static pn_cu_stream stream;

static void begin(void)
{
	const struct rig_attr attr = { .workers = 2, .keep = true };

	standin = standin_or_skip();
	rig_open(&rig, &attr);
	assert_int_equal(rig.cu->mem_alloc(&there, BYTES), 0);
	assert_int_equal(rig.cu->stream_create(&stream,
					       PN_CU_STREAM_NON_BLOCKING),
			 0);
}

static void end(void)
{
	assert_int_equal(rig.cu->stream_destroy(stream), 0);
	rig.cu->mem_free(there);
	rig_close(&rig);
	assert_int_equal(standin.get("registrations"), 0);
	assert_int_equal(standin.get("faults"), 0);
}

static int to_gpu(const char *at)
{
	return rig_copy(&rig, (uintptr_t)there, (uintptr_t)at, BYTES, stream);
}

static size_t wrong_there(uint64_t seed)
{
	assert_int_equal(rig.cu->ctx_synchronize(), 0);
	return gpu_wrong_there(rig.cu, there, BYTES, seed);
}

/* New pages with new bytes at the same address. */
static void replace(char *at)
{
	assert_ptr_equal(mmap(at, BYTES, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
			 at);
	gpu_fill(at, BYTES, NEW);
}

/* --- a release while the driver registers --------------------------------- */

static void replace_and_tell(void *at)
{
	replace(at);
	pn_device_released(rig.device, (uintptr_t)at, BYTES);
}

/* The driver has pinned the old pages, and the block is in no table yet: what
 * is registered there next must not share it. */
static void a_release_while_the_driver_registers_is_not_forgotten(void **state)
{
	struct pn_mr first, second, *one = &first, *two = &second;

	(void)state;
	begin();
	first = (struct pn_mr){ .addr = gpu_map(BYTES),
				.len = BYTES,
				.access = ACCESS };
	second = first;
	gpu_fill(first.addr, BYTES, OLD);
	standin.after("cuMemHostRegister_v2", 1, replace_and_tell, first.addr);
	assert_int_equal(pn_device_register(rig.device, &one, 1), 0);
	assert_int_equal(pn_device_register(rig.device, &two, 1), -EBUSY);
	pn_device_deregister(rig.device, &one, 1);
	assert_int_equal(pn_device_register(rig.device, &two, 1), 0);
	pn_device_deregister(rig.device, &two, 1);
	munmap(first.addr, BYTES);
	end();
}

static void replace_it(void *at)
{
	replace(at);
}

/* The same from above: the monitor tells. A pin that the cache does not keep
 * is registered while its memory goes; the next copies deliver what is there
 * now, while the pin lasts and afterwards. */
static void a_release_while_a_pin_registers_is_not_forgotten(void **state)
{
	const unsigned kinds[] = { ACCESS, ACCESS | PINION_PIN_BYPASS };
	struct pinion_pin pin;
	char *at;

	(void)state;
	begin();
	for (unsigned i = 0; i < PN_ARRAY_LEN(kinds); i++) {
		at = gpu_map(BYTES);
		gpu_fill(at, BYTES, OLD);
		standin.after("cuMemHostRegister_v2", 1, replace_it, at);
		assert_int_equal(pn_cache_pin(rig.cache, at, BYTES, kinds[i],
					      &pin),
				 0);
		assert_int_equal(to_gpu(at), 0);
		assert_int_equal(wrong_there(NEW), 0);
		pn_cache_prefetch(rig.cache, (uintptr_t)at, BYTES, ACCESS);
		assert_int_equal(to_gpu(at), 0);
		assert_int_equal(wrong_there(NEW), 0);
		pn_cache_unpin(rig.cache, &pin);
		pn_cache_prefetch(rig.cache, (uintptr_t)at, BYTES, ACCESS);
		assert_int_equal(to_gpu(at), 0);
		assert_int_equal(wrong_there(NEW), 0);
		munmap(at, BYTES);
	}
	end();
}

/* --- a registration during a copy ----------------------------------------- */

static void register_it(void *at)
{
	assert_int_equal(pn_cache_prefetch(rig.cache, (uintptr_t)at, BYTES,
					   ACCESS),
			 0);
}

/* The copy has found that it is the driver's; then its source is registered,
 * and the gate refuses the copy. */
static void a_copy_refused_by_the_gate_is_done_all_the_same(void **state)
{
	struct pinion_cuda_request *request;
	struct pn_copy_op op = { .bytes = BYTES };
	char *at, *other;

	(void)state;
	begin();
	at = gpu_map(BYTES);
	other = gpu_map(BYTES);
	gpu_fill(at, BYTES, NEW);
	standin.after("cuPointerGetAttributes", 2, register_it, at);
	assert_int_equal(rig_copy(&rig, (uintptr_t)other, (uintptr_t)at, BYTES,
				  stream),
			 0);
	assert_int_equal(rig.cu->ctx_synchronize(), 0);
	assert_int_equal(gpu_wrong(other, BYTES, NEW), 0);
	memset(other, 0, BYTES);
	op.dst = other;
	op.src = at;
	op.stream = stream;
	standin.after("cuPointerGetAttributes", 2, register_it, at);
	assert_int_equal(pn_copier_start(rig.copier, &op, &request), 0);
	assert_int_equal(pn_copy_request_wait(request, PINION_FOREVER), 0);
	assert_int_equal(gpu_wrong(other, BYTES, NEW), 0);
	munmap(other, BYTES);
	munmap(at, BYTES);
	end();
}

/* A copy to the GPU asks for the kind of both ends: its source is registered,
 * or released, after each question. */
static void memory_may_change_after_every_question(void **state)
{
	char *at;

	(void)state;
	begin();
	for (unsigned n = 1; n <= 2; n++) {
		at = gpu_map(BYTES);
		gpu_fill(at, BYTES, NEW);
		standin.after("cuPointerGetAttributes", n, register_it, at);
		assert_int_equal(to_gpu(at), 0);
		assert_int_equal(wrong_there(NEW), 0);
		gpu_fill(at, BYTES, OLD);
		standin.after("cuPointerGetAttributes", n, replace_it, at);
		assert_int_equal(to_gpu(at), 0);
		replace(at);
		assert_int_equal(to_gpu(at), 0);
		assert_int_equal(wrong_there(NEW), 0);
		munmap(at, BYTES);
	}
	end();
}

/* --- a release during a copy ---------------------------------------------- */

static void wait_for_flag(void *flag)
{
	while (!atomic_load((_Atomic bool *)flag))
		usleep(100);
}

/* The GPU may read the old pages until the copy ends; what is copied next is
 * new. A fault of the stand-in would be a registration that ended under the
 * copy. */
static void memory_may_go_while_a_copy_is_under_way(void **state)
{
	struct pinion_cuda_request *request;
	struct pn_copy_op op;
	_Atomic bool flag = false;
	char *at;

	(void)state;
	begin();
	at = gpu_map(BYTES);
	gpu_fill(at, BYTES, OLD);
	register_it(at);
	assert_int_equal(rig.cu->launch_host_func(stream, wait_for_flag,
						  (void *)&flag),
			 0);
	op = (struct pn_copy_op){ .dst = (void *)(uintptr_t)there,
				  .src = at,
				  .bytes = BYTES,
				  .stream = stream };
	assert_int_equal(pn_copier_start(rig.copier, &op, &request), 0);
	assert_int_equal(pn_copy_request_test(request), -EAGAIN);
	replace(at);
	flag = true;
	assert_int_equal(pn_copy_request_wait(request, PINION_FOREVER), 0);
	assert_int_equal(to_gpu(at), 0);
	assert_int_equal(wrong_there(NEW), 0);
	munmap(at, BYTES);
	end();
}

/* --- a context that cannot be entered ------------------------------------- */

/* A handle stays good while nobody knows whether its copy has ended. With its
 * context the copy is gone, and nothing stays pinned. */
static void a_request_ends_with_its_context_alone(void **state)
{
	struct pinion_cuda_request *request;
	struct pn_copy_op op = { .bytes = BYTES };
	char *at;

	(void)state;
	begin();
	at = gpu_map(BYTES);
	gpu_fill(at, BYTES, OLD);
	op.dst = (void *)(uintptr_t)there;
	op.src = at;
	op.stream = stream;
	for (unsigned i = 0; i < 2; i++) {
		register_it(at);
		assert_int_equal(pn_copier_start(rig.copier, &op, &request), 0);
		assert_int_equal(rig.cu->ctx_synchronize(), 0);
		assert_int_equal(standin.set("fail=cuCtxPushCurrent_v2/1/2"),
				 0);
		assert_int_equal(pn_copy_request_test(request), -EAGAIN);
		assert_int_equal(standin.set("fail=cuCtxPushCurrent_v2/1/2"),
				 0);
		assert_int_equal(pn_copy_request_wait(request, PINION_FOREVER),
				 -ETIMEDOUT);
		if (i)
			assert_int_equal(
				standin.set("fail=cuCtxPushCurrent_v2/1/709"),
				0);
		assert_int_equal(pn_copy_request_wait(request, PINION_FOREVER),
				 i ? -ENODEV : 0);
		assert_int_equal(standin.set("fail=none"), 0);
		pn_cache_flush(rig.cache);
		assert_int_equal(rig.budget.regions, 0);
	}
	munmap(at, BYTES);
	end();
}

/* --- early notices -------------------------------------------------------- */

/* Between the notice and the end of a release the background would register
 * the old pages, and no further notice comes. */
static void with_early_notices_the_background_registers_nothing(void **state)
{
	char *at;

	(void)state;
	begin();
	if (!pn_cache_notices_early(rig.cache)) {
		end();
		skip();
	}
	at = gpu_map(BYTES);
	for (unsigned i = 0; i < 12; i++) {
		gpu_fill(at, BYTES, i);
		assert_int_equal(to_gpu(at), 0);
		assert_int_equal(wrong_there(i), 0);
		pn_copier_settle(rig.copier);
	}
	assert_int_equal(rig_stats(&rig).background_blocks, 0);
	assert_int_equal(pn_cuda_gate_held_pages(), 0);
	munmap(at, BYTES);
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_release_while_the_driver_registers_is_not_forgotten),
		TEST(a_release_while_a_pin_registers_is_not_forgotten),
		TEST(a_copy_refused_by_the_gate_is_done_all_the_same),
		TEST(memory_may_change_after_every_question),
		TEST(memory_may_go_while_a_copy_is_under_way),
		TEST(a_request_ends_with_its_context_alone),
		TEST(with_early_notices_the_background_registers_nothing),
	};

	return RUN_TESTS(tests);
}
