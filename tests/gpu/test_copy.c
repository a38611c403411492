/* SPDX-License-Identifier: BSD-2-Clause */
/* Copies of unpinned memory: bytes, order, methods, what stays registered. */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>

#include "copy/choose.h"
#include "copy_rig.h"
#include "remap.h"

#define MIB ((size_t)1 << 20)

static struct rig rig;
static pn_cu_deviceptr there;
static pn_cu_stream stream;

#define THERE_BYTES (64 * MIB)
#define KEPT_BYTES  (16 * RIG_BLOCK)

static void begin(const struct rig_attr *attr)
{
	rig_open(&rig, attr);
	assert_int_equal(rig.cu->mem_alloc(&there, THERE_BYTES), 0);
	assert_int_equal(rig.cu->stream_create(&stream,
					       PN_CU_STREAM_NON_BLOCKING),
			 0);
}

static void end(void)
{
	assert_int_equal(rig.cu->stream_destroy(stream), 0);
	rig.cu->mem_free(there);
	rig_close(&rig);
}

/* Sets the options of the stand-in; nothing on a real GPU. */
static void set_standin(const char *text)
{
	struct standin s;

	if (gpu_standin(&s))
		assert_int_equal(s.set(text), 0);
}

static int to_gpu(const char *at, size_t bytes)
{
	return rig_copy(&rig, (uintptr_t)there, (uintptr_t)at, bytes, stream);
}

static int from_gpu(char *at, size_t bytes)
{
	return rig_copy(&rig, (uintptr_t)at, (uintptr_t)there, bytes, stream);
}

/* The driver's copy has read the source on return, and may not have arrived. */
static size_t wrong_there(pn_cu_deviceptr at, size_t bytes, uint64_t seed)
{
	assert_int_equal(rig.cu->ctx_synchronize(), 0);
	return gpu_wrong_there(rig.cu, at, bytes, seed);
}

static void copy_there_and_back(char *at, size_t bytes, uint64_t seed)
{
	gpu_fill(at, bytes, seed);
	assert_int_equal(to_gpu(at, bytes), 0);
	/* The source has been read. */
	memset(at, 0, bytes);
	assert_int_equal(wrong_there(there, bytes, seed), 0);
	assert_int_equal(from_gpu(at, bytes), 0);
	assert_int_equal(gpu_wrong(at, bytes, seed), 0);
}

/* --- bytes ---------------------------------------------------------------- */

static const size_t sizes[] = {
	8, 4096, 64 << 10, (64 << 10) + 8, 1 << 20, 5 << 20, (9 << 20) + 4096
};

static void bytes_arrive_whatever_the_size(void **state)
{
	const struct rig_attr attr = { .workers = 4 };

	(void)state;
	begin(&attr);
	for (unsigned i = 0; i < PN_ARRAY_LEN(sizes); i++) {
		size_t bytes = sizes[i];
		char *map = gpu_map(bytes + 4096), *at = map + 24;

		copy_there_and_back(at, bytes, i);
		munmap(map, bytes + 4096);
	}
	assert_true(rig_stats(&rig).bounced > 0);
	assert_int_equal(rig_stats(&rig).registered, 0);
	end();
}

static void a_destination_never_touched_is_written(void **state)
{
	const struct rig_attr attr = { .workers = 4 };
	const size_t bytes = 6 * MIB;
	char *at;

	(void)state;
	begin(&attr);
	at = gpu_map(bytes);
	gpu_fill(at, bytes, 7);
	assert_int_equal(to_gpu(at, bytes), 0);
	munmap(at, bytes);
	at = gpu_map(bytes);
	assert_int_equal(from_gpu(at, bytes), 0);
	assert_int_equal(gpu_wrong(at, bytes, 7), 0);
	munmap(at, bytes);
	end();
}

/* --- order with the stream ------------------------------------------------ */

/* Each stream has slow work before the copy. */
static void order_is_kept_in(pn_cu_stream in)
{
	const size_t bytes = 8 * MIB;
	char *at = gpu_map(bytes);

	gpu_fill(at, bytes, 3);
	assert_int_equal(rig.cu->memset_d8_async(there, 1, bytes, in), 0);
	assert_int_equal(rig_copy(&rig, (uintptr_t)there, (uintptr_t)at, bytes,
				  in),
			 0);
	assert_int_equal(wrong_there(there, bytes, 3), 0);
	assert_int_equal(rig.cu->memset_d8_async(there, 9, bytes, in), 0);
	assert_int_equal(rig_copy(&rig, (uintptr_t)at, (uintptr_t)there, bytes,
				  in),
			 0);
	for (size_t i = 0; i < bytes; i += 4096)
		assert_int_equal(at[i], 9);
	munmap(at, bytes);
}

static void copies_begin_after_what_the_stream_had(void **state)
{
	const struct rig_attr attr = { .workers = 3 };

	(void)state;
	begin(&attr);
	set_standin("copy_us=3000");
	order_is_kept_in(stream);
	order_is_kept_in(NULL);
	order_is_kept_in(PN_CU_STREAM_LEGACY);
	order_is_kept_in(PN_CU_STREAM_PER_THREAD);
	set_standin("copy_us=0");
	end();
}

/* The legacy stream waits for streams that are not non-blocking. */
static void a_copy_in_the_legacy_stream_waits_for_others(void **state)
{
	const struct rig_attr attr = { .workers = 3 };
	const size_t bytes = 4 * MIB;
	pn_cu_stream blocking;
	char *at;

	(void)state;
	begin(&attr);
	at = gpu_map(bytes);
	assert_int_equal(rig.cu->stream_create(&blocking, 0), 0);
	set_standin("copy_us=3000");
	assert_int_equal(rig.cu->memset_d8_async(there, 5, bytes, blocking), 0);
	assert_int_equal(rig_copy(&rig, (uintptr_t)at, (uintptr_t)there, bytes,
				  NULL),
			 0);
	assert_int_equal(at[bytes - 1], 5);
	set_standin("copy_us=0");
	rig.cu->stream_destroy(blocking);
	munmap(at, bytes);
	end();
}

static void a_request_orders_what_the_stream_gets_later(void **state)
{
	const struct rig_attr attr = { .workers = 3 };
	const size_t bytes = 8 * MIB;
	struct pinion_cuda_request *request;
	struct pn_copy_op op;
	char *at;

	(void)state;
	begin(&attr);
	at = gpu_map(bytes);
	gpu_fill(at, bytes, 5);
	op = (struct pn_copy_op){ .dst = (void *)(uintptr_t)there,
				  .src = at,
				  .bytes = bytes,
				  .stream = stream };
	for (int i = 0; i < 3; i++) {
		assert_int_equal(pn_copier_start(rig.copier, &op, &request), 0);
		assert_int_equal(rig.cu->memcpy_dtod_async(there + 16 * MIB,
							   there, bytes,
							   stream),
				 0);
		assert_int_equal(pn_copy_request_wait(request, PINION_FOREVER),
				 0);
		assert_int_equal(rig.cu->stream_synchronize(stream), 0);
		assert_int_equal(wrong_there(there + 16 * MIB, bytes, 5), 0);
	}
	/* And the way back, polled. */
	memset(at, 0, bytes);
	op = (struct pn_copy_op){ .dst = at,
				  .src = (void *)(uintptr_t)there,
				  .bytes = bytes,
				  .stream = stream };
	assert_int_equal(pn_copier_start(rig.copier, &op, &request), 0);
	assert_int_equal(rig.cu->memset_d8_async(there, 0, bytes, stream), 0);
	while (pn_copy_request_test(request) == -EAGAIN)
		sched_yield();
	assert_int_equal(gpu_wrong(at, bytes, 5), 0);
	assert_int_equal(rig_stats(&rig).bounced, 4);
	munmap(at, bytes);
	end();
}

/* The copy stands in the stream behind the request, whose job has not been
 * joined yet: it must not take what the request needs. The budget has room for
 * one staging set. */
static void a_copy_behind_a_request_leaves_it_what_it_needs(void **state)
{
	const struct rig_attr attr = { .workers = 1, .max_bytes = 200 << 10 };
	const size_t bytes = 2 * MIB;
	struct pinion_cuda_request *request;
	char *at = gpu_map(bytes), *back = gpu_map(bytes);
	struct pn_copy_op op;

	(void)state;
	begin(&attr);
	alarm(120); /* ends a test that hangs */
	op = (struct pn_copy_op){ .dst = (void *)(uintptr_t)there,
				  .src = at,
				  .bytes = bytes,
				  .stream = stream };
	for (unsigned i = 0; i < 50; i++) {
		gpu_fill(at, bytes, i);
		assert_int_equal(pn_copier_start(rig.copier, &op, &request), 0);
		assert_int_equal(from_gpu(back, bytes), 0);
		assert_int_equal(gpu_wrong(back, bytes, i), 0);
		assert_int_equal(pn_copy_request_wait(request, PINION_FOREVER),
				 0);
	}
	alarm(0);
	munmap(back, bytes);
	munmap(at, bytes);
	end();
}

static void requests_work_without_stream_memory_operations(void **state)
{
	const struct rig_attr attr = { .workers = 2 };
	const size_t bytes = 8 * MIB;
	struct pinion_cuda_request *request;
	struct pn_copy_op op;
	char *at;

	(void)state;
	(void)standin_or_skip();
	begin(&attr);
	set_standin("memops=0");
	at = gpu_map(bytes);
	gpu_fill(at, bytes, 6);
	op = (struct pn_copy_op){ .dst = (void *)(uintptr_t)there,
				  .src = at,
				  .bytes = bytes,
				  .stream = stream };
	assert_int_equal(pn_copier_start(rig.copier, &op, &request), 0);
	assert_int_equal(pn_copy_request_wait(request, PINION_FOREVER), 0);
	assert_int_equal(wrong_there(there, bytes, 6), 0);
	set_standin("memops=1");
	munmap(at, bytes);
	end();
}

/* --- what stays registered ------------------------------------------------ */

static void nothing_stays_registered_unless_asked_for(void **state)
{
	const struct rig_attr attr = { .workers = 2 };
	struct pinion_cache_stats stats = { .size = sizeof(stats) };
	const size_t bytes = 8 * MIB;
	char *at;

	(void)state;
	begin(&attr);
	at = gpu_map(bytes);
	gpu_fill(at, bytes, 1);
	for (int i = 0; i < 20; i++)
		assert_int_equal(to_gpu(at, bytes), 0);
	pn_cache_query(rig.cache, &stats);
	assert_int_equal(stats.regions, 0);
	assert_int_equal(rig_stats(&rig).background_blocks, 0);
	munmap(at, bytes);
	end();
}

/* Where notices of releases come early nothing is registered in the background.
 */
static void begin_background(const struct rig_attr *attr)
{
	begin(attr);
	if (pn_cache_notices_early(rig.cache)) {
		end();
		skip();
	}
}

static void a_buffer_that_comes_again_is_registered_in_blocks(void **state)
{
	const struct rig_attr attr = { .workers = 2, .keep = true };
	const size_t bytes = 10 * RIG_BLOCK;
	char *at;

	(void)state;
	begin_background(&attr);
	at = gpu_map(bytes);
	for (unsigned i = 0; i < 6; i++) {
		gpu_fill(at, bytes, i);
		assert_int_equal(to_gpu(at, bytes), 0);
		assert_int_equal(wrong_there(there, bytes, i), 0);
		pn_copier_settle(rig.copier);
	}
	assert_true(rig_stats(&rig).registered >= 2);
	/* 256, 256 and 128 KiB; shorter where the machine is slow. */
	assert_true(rig_stats(&rig).background_blocks >= 3);
	munmap(at, bytes);
	end();
}

/* Copies while blocks become registered. */
static void use_and_settle(char *at, unsigned times)
{
	for (unsigned i = 0; i < times; i++) {
		assert_int_equal(to_gpu(at, KEPT_BYTES), 0);
		pn_copier_settle(rig.copier);
	}
}

/* A buffer that is registered, and filled. */
static char *map_registered(uint64_t seed)
{
	char *at = gpu_map(KEPT_BYTES);

	gpu_fill(at, KEPT_BYTES, seed);
	assert_int_equal(pn_cache_prefetch(rig.cache, (uintptr_t)at, KEPT_BYTES,
					   PINION_ACCESS_LOCAL_WRITE),
			 0);
	return at;
}

/* What is asked of the driver before the copy delays it. */
static void registered_memory_is_copied_without_questions(void **state)
{
	const struct rig_attr attr = { .workers = 2, .keep = true };
	struct standin s = standin_or_skip();
	uint64_t asked, copies, events;
	char *at;

	(void)state;
	begin(&attr);
	at = map_registered(5);
	asked = s.calls("cuPointerGetAttributes");
	copies = s.calls("cuMemcpyHtoDAsync_v2");
	events = s.calls("cuEventRecord");
	assert_int_equal(to_gpu(at, KEPT_BYTES), 0);
	assert_int_equal(s.calls("cuPointerGetAttributes"), asked);
	assert_int_equal(s.calls("cuMemcpyHtoDAsync_v2"), copies + 1);
	assert_int_equal(s.calls("cuEventRecord"), events);
	assert_int_equal(wrong_there(there, KEPT_BYTES, 5), 0);
	assert_int_equal(rig_stats(&rig).registered, 1);
	assert_int_equal(rig_stats(&rig).registered_bytes, KEPT_BYTES);
	munmap(at, KEPT_BYTES);
	end();
}

/* The driver refuses a copy that is not what it seems; then it is looked at. */
static void a_copy_between_registered_and_other_host_memory(void **state)
{
	const struct rig_attr attr = { .workers = 2, .keep = true };
	char *at, *other;

	(void)state;
	begin(&attr);
	at = map_registered(6);
	other = gpu_map(KEPT_BYTES);
	assert_int_equal(rig_copy(&rig, (uintptr_t)other, (uintptr_t)at,
				  KEPT_BYTES, stream),
			 0);
	assert_int_equal(rig.cu->ctx_synchronize(), 0);
	assert_int_equal(gpu_wrong(other, KEPT_BYTES, 6), 0);
	munmap(other, KEPT_BYTES);
	munmap(at, KEPT_BYTES);
	end();
}

/* Threads that copy at the same time. None of them maps or unmaps memory
 * meanwhile: a copy during a release takes another path. */
static pthread_barrier_t copiers;

/* Copies registered memory to a part of the GPU's memory and back. */
static void *copy_registered_often(void *arg)
{
	uintptr_t part = (uintptr_t)there + (uintptr_t)arg * KEPT_BYTES;
	char *at = map_registered(part);
	size_t wrong = 0;

	rig.cu->ctx_set_current(rig.context);
	pthread_barrier_wait(&copiers);
	for (unsigned i = 0; i < 20; i++) {
		wrong += (size_t)rig_copy(&rig, part, (uintptr_t)at, KEPT_BYTES,
					  PN_CU_STREAM_PER_THREAD);
		memset(at, 0, KEPT_BYTES);
		wrong += (size_t)rig_copy(&rig, (uintptr_t)at, part, KEPT_BYTES,
					  PN_CU_STREAM_PER_THREAD);
		wrong += gpu_wrong(at, KEPT_BYTES, part);
	}
	pthread_barrier_wait(&copiers);
	munmap(at, KEPT_BYTES);
	return (void *)wrong;
}

static void threads_copy_registered_memory(void **state)
{
	const struct rig_attr attr = { .workers = 2, .keep = true };
	pthread_t threads[4];
	void *wrong;

	(void)state;
	begin(&attr);
	pthread_barrier_init(&copiers, NULL, 4);
	for (uintptr_t i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, copy_registered_often,
			       (void *)i);
	for (unsigned i = 0; i < 4; i++) {
		pthread_join(threads[i], &wrong);
		assert_null(wrong);
	}
	pthread_barrier_destroy(&copiers);
	assert_int_equal(rig_stats(&rig).registered, 4 * 20 * 2);
	end();
}

/* A host function of a stream, which waits as long as it runs. */
static void wait_for_flag(void *flag)
{
	while (!atomic_load((_Atomic bool *)flag))
		usleep(100);
}

static void *copy_once(void *at)
{
	rig.cu->ctx_set_current(rig.context);
	return (void *)(intptr_t)to_gpu(at, KEPT_BYTES);
}

/* Another buffer of that size is registered by its third use. */
static void expect_that_others_are_registered(void)
{
	uint64_t before = rig_stats(&rig).registered;
	char *at = gpu_map(KEPT_BYTES);

	use_and_settle(at, 3);
	assert_int_equal(rig_stats(&rig).registered, before + 1);
	munmap(at, KEPT_BYTES);
}

static void registering_may_end_during_a_copy(void **state)
{
	const struct rig_attr attr = { .workers = 2, .keep = true };
	_Atomic bool flag = false;
	pthread_t thread;
	void *ret;
	char *at;

	(void)state;
	standin_or_skip();
	begin_background(&attr);
	at = gpu_map(KEPT_BYTES);
	assert_int_equal(to_gpu(at, KEPT_BYTES), 0);
	set_standin("register_us=100000");
	/* The second use wants it registered. The third finds nothing
	 * registered yet, and ends after all of it is. */
	assert_int_equal(to_gpu(at, KEPT_BYTES), 0);
	assert_int_equal(rig.cu->launch_host_func(stream, wait_for_flag,
						  (void *)&flag),
			 0);
	pthread_create(&thread, NULL, copy_once, at);
	pn_copier_settle(rig.copier);
	set_standin("register_us=0");
	flag = true;
	pthread_join(thread, &ret);
	assert_null(ret);
	expect_that_others_are_registered();
	munmap(at, KEPT_BYTES);
	end();
}

static void a_refused_registration_concerns_no_other_buffer(void **state)
{
	const struct rig_attr attr = { .workers = 2, .keep = true };
	struct standin s = standin_or_skip();
	char *at;

	(void)state;
	begin_background(&attr);
	at = gpu_map(KEPT_BYTES);
	assert_int_equal(to_gpu(at, KEPT_BYTES), 0);
	assert_int_equal(s.set("fail=cuMemHostRegister_v2/0/1"), 0);
	use_and_settle(at, 2);
	assert_int_equal(s.set("fail=none"), 0);
	assert_int_equal(rig_stats(&rig).background_blocks, 0);
	expect_that_others_are_registered();
	munmap(at, KEPT_BYTES);
	end();
}

static void a_range_registered_in_part_is_copied(void **state)
{
	const struct rig_attr attr = { .workers = 2, .keep = true };
	const size_t bytes = 3 * MIB;
	char *at;

	(void)state;
	begin(&attr);
	at = gpu_map(bytes);
	assert_int_equal(pn_cache_prefetch(rig.cache, (uintptr_t)at + MIB, MIB,
					   PINION_ACCESS_LOCAL_WRITE),
			 0);
	gpu_fill(at, bytes, 2);
	assert_int_equal(to_gpu(at, bytes), 0);
	memset(at, 0, bytes);
	assert_int_equal(from_gpu(at, bytes), 0);
	assert_int_equal(gpu_wrong(at, bytes, 2), 0);
	assert_true(rig_stats(&rig).mixed >= 1);
	/* Small ones, too: inside and across the edge. */
	gpu_fill(at, bytes, 3);
	assert_int_equal(to_gpu(at + MIB, 4096), 0);
	assert_int_equal(wrong_there(there, 8, 0), 8);
	gpu_fill(at + MIB - 4096, 8192, 4);
	assert_int_equal(to_gpu(at + MIB - 4096, 8192), 0);
	assert_int_equal(wrong_there(there, 8192, 4), 0);
	munmap(at, bytes);
	end();
}

/* --- explaining ----------------------------------------------------------- */

enum { DRIVER, BOUNCE, PIPELINE, BACKGROUND, NMETHODS };

/* The method that is chosen; the means of all of them. */
static unsigned explain(size_t bytes, uint64_t reuse, double mean[NMETHODS])
{
	const struct pinion_explain_attr attr = { .len = bytes,
						  .reuse = reuse };
	struct pinion_explanation e;
	unsigned chosen = NMETHODS;

	for (unsigned i = 0; i < NMETHODS; i++) {
		assert_ok(pn_copier_explain(rig.copier, &attr, i, &e));
		mean[i] = e.mean_ns;
		if (e.chosen)
			chosen = i;
	}
	assert_int_equal(pn_copier_explain(rig.copier, &attr, NMETHODS, &e),
			 -ENOENT);
	return chosen;
}

static void assert_near(double a, double b)
{
	assert_true(a > 0.9999 * b && a < 1.0001 * b);
}

/* Bounce buffers reach 55 GB/s here, registered memory 200. */
static void the_reuse_of_a_buffer_decides_how_it_is_copied(void **state)
{
	const struct rig_attr attr = { .workers = 4, .keep = true };
	const size_t bytes = 64 * MIB;
	const double bounce = (double)bytes / 55, kept = (double)bytes / 200;
	double mean[NMETHODS];

	(void)state;
	begin(&attr);
	rig.device->costs.put_byte_ns = 1 / 200.0;
	rig.device->costs.put_ns = 0;
	/* The cost of one use, if there is no second. 0 stands for 1. */
	for (unsigned reuse = 0; reuse < 2; reuse++) {
		assert_int_equal(explain(bytes, reuse, mean), BOUNCE);
		assert_near(mean[BACKGROUND], bounce);
	}
	assert_int_equal(explain(bytes, 2, mean), BACKGROUND);
	assert_near(mean[BACKGROUND], (bounce + kept) / 2);
	for (unsigned reuse = 3; reuse < 1000; reuse *= 3) {
		assert_int_equal(explain(bytes, reuse, mean), BACKGROUND);
		assert_near(mean[BACKGROUND],
			    (2 * bounce + (reuse - 2) * kept) / reuse);
		assert_near(mean[BOUNCE], bounce);
		assert_near(mean[DRIVER], (double)bytes / 7);
	}
	/* Below the size from which the engine copies. */
	assert_int_equal(explain(RIG_BLOCK - 1, 100, mean), DRIVER);
	end();
}

static void without_keeping_no_reuse_registers_a_buffer(void **state)
{
	const struct rig_attr attr = { .workers = 4 };
	double mean[NMETHODS];

	(void)state;
	begin(&attr);
	rig.device->costs.put_byte_ns = 1 / 200.0;
	assert_int_equal(explain(64 * MIB, 1000, mean), BOUNCE);
	assert_true(mean[BACKGROUND] < mean[BOUNCE]);
	end();
}

/* --- releases ------------------------------------------------------------- */

static void new_bytes_arrive_after_every_kind_of_release(void **state)
{
	const struct rig_attr attr = { .workers = 2, .keep = true };
	const size_t bytes = 2 * MIB;
	char *at;

	(void)state;
	begin(&attr);
	if (!pn_cache_keeps(rig.cache)) {
		end();
		skip();
	}
	at = gpu_map(bytes);
	for (unsigned i = 0; i < PN_ARRAY_LEN(remaps); i++) {
		gpu_fill(at, bytes, 100 + i);
		assert_int_equal(pn_cache_prefetch(rig.cache, (uintptr_t)at,
						   bytes,
						   PINION_ACCESS_LOCAL_WRITE),
				 0);
		assert_int_equal(to_gpu(at, bytes), 0);
		assert_int_equal(rig_stats(&rig).registered, i + 1);
		assert_true(remaps[i].fn(at, bytes));
		gpu_fill(at, bytes, 200 + i);
		assert_int_equal(to_gpu(at, bytes), 0);
		assert_int_equal(wrong_there(there, bytes, 200 + i), 0);
		memset(at, 0, bytes);
		assert_int_equal(from_gpu(at, bytes), 0);
		assert_int_equal(gpu_wrong(at, bytes, 200 + i), 0);
		/* The program's own copy finds no registration of ours. */
		pn_cache_settle(rig.cache);
		gpu_fill(at, 4096, 300 + i);
		pn_cache_flush(rig.cache);
		assert_int_equal(rig.cu->memcpy_htod(there, at, 4096), 0);
		assert_int_equal(wrong_there(there, 4096, 300 + i), 0);
	}
	munmap(at, bytes);
	end();
}

/* --- what goes wrong ------------------------------------------------------ */

/* A registration that the cache does not keep, as those of the pipeline, is
 * still there: what is registered next must not share its pages. */
static void what_was_released_is_shared_with_nobody(void **state)
{
	const struct rig_attr attr = { .workers = 2, .keep = true };
	const unsigned access = PINION_ACCESS_LOCAL_WRITE;
	const size_t bytes = MIB;
	struct pinion_pin pin;
	char *at;

	(void)state;
	begin(&attr);
	if (!pn_cache_keeps(rig.cache)) {
		end();
		skip();
	}
	for (unsigned i = 0; i < PN_ARRAY_LEN(remaps); i++) {
		at = gpu_map(bytes);
		gpu_fill(at, bytes, 1);
		assert_int_equal(pn_cache_pin(rig.cache, at, bytes,
					      access | PINION_PIN_BYPASS, &pin),
				 0);
		assert_true(remaps[i].fn(at, bytes));
		gpu_fill(at, bytes, 2 + i);
		assert_int_equal(pn_cache_prefetch(rig.cache, (uintptr_t)at,
						   bytes, access),
				 -ENOBUFS);
		assert_int_equal(to_gpu(at, bytes), 0);
		assert_int_equal(wrong_there(there, bytes, 2 + i), 0);
		pn_cache_unpin(rig.cache, &pin);
		assert_int_equal(pn_cache_prefetch(rig.cache, (uintptr_t)at,
						   bytes, access),
				 0);
		assert_int_equal(to_gpu(at, bytes), 0);
		assert_int_equal(wrong_there(there, bytes, 2 + i), 0);
		munmap(at, bytes);
	}
	end();
}

static void one_disturbed_copy_does_not_decide(void **state)
{
	const struct pn_costs costs = { 0 };
	const struct pn_copy_question question = {
		.direction = PN_COPY_TO_GPU,
		.bytes = 16 * MIB,
		.participants = 8,
		.wanted = 8,
		.may_register = true,
		.measured = true,
	};
	const double ns[PN_COPY_NMETHODS] = { 1.8e6, 0.6e6, 1.5e6 };
	unsigned count[PN_COPY_NMETHODS] = { 0 };
	struct pn_copy_times times;

	(void)state;
	pn_copy_times_init(&times, &costs);
	/* The first copies of a process. */
	pn_copy_times_took(&times, &question, PN_COPY_BOUNCE, 5e6);
	pn_copy_times_took(&times, &question, PN_COPY_PIPELINE, 1.5e6);
	for (unsigned i = 0; i < 32; i++) {
		enum pn_copy_method method =
			pn_copy_times_choose(&times, &question);

		pn_copy_times_took(&times, &question, method, ns[method]);
		count[method]++;
	}
	assert_true(count[PN_COPY_BOUNCE] >= 24);
	/* And later: ten times as long, once. */
	pn_copy_times_took(&times, &question, PN_COPY_BOUNCE, 6e6);
	assert_true(pn_copy_times_expect(&times, &question, PN_COPY_BOUNCE) <
		    0.7e6);
}

static void a_tiny_budget_leaves_it_to_the_driver(void **state)
{
	const struct rig_attr attr = { .max_bytes = 64 << 10, .keep = true };
	const size_t bytes = 16 * MIB;
	char *at;

	(void)state;
	begin(&attr);
	at = gpu_map(bytes);
	for (unsigned i = 0; i < 5; i++) {
		gpu_fill(at, bytes, i);
		assert_int_equal(to_gpu(at, bytes), 0);
		memset(at, 0, bytes);
		assert_int_equal(from_gpu(at, bytes), 0);
		assert_int_equal(gpu_wrong(at, bytes, i), 0);
		assert_true(rig.budget.bytes <= 64 << 10);
	}
	assert_int_equal(rig_stats(&rig).bounced, 0);
	assert_int_equal(rig_stats(&rig).driver, 10);
	munmap(at, bytes);
	end();
}

/* Pins of the program take the whole budget: no bounce buffers, and what they
 * cover stays registered, which the driver refuses to copy with the rest. */
static void a_pinned_part_is_copied_without_a_budget(void **state)
{
	const struct rig_attr attr = { .max_bytes = 64 << 10, .keep = true };
	const size_t bytes = MIB;
	struct pinion_pin pin;
	char *at, *other;

	(void)state;
	begin(&attr);
	at = gpu_map(bytes);
	other = gpu_map(bytes);
	assert_int_equal(pn_cache_pin(rig.cache, at + 300000, 60000,
				      PINION_ACCESS_LOCAL_WRITE, &pin),
			 0);
	for (unsigned i = 0; i < 3; i++) {
		copy_there_and_back(at, bytes, i);
		assert_int_equal(rig_copy(&rig, (uintptr_t)other, (uintptr_t)at,
					  bytes, stream),
				 0);
		assert_int_equal(rig.cu->ctx_synchronize(), 0);
		assert_int_equal(gpu_wrong(other, bytes, i), 0);
	}
	assert_int_equal(rig_stats(&rig).bounced, 0);
	pn_cache_unpin(rig.cache, &pin);
	munmap(other, bytes);
	munmap(at, bytes);
	end();
}

static void errors_of_the_driver_are_returned(void **state)
{
	static const char *const failures[] = {
		"fail=cuMemcpyHtoDAsync_v2/1/2",
		"fail=cuMemcpyHtoDAsync_v2/3/2",
		"fail=cuStreamWriteValue32_v2/2/2",
		"fail=cuStreamWaitEvent/1/2",
	};
	const struct rig_attr attr = { .workers = 3 };
	const size_t bytes = 2 * MIB;
	char *at;

	(void)state;
	(void)standin_or_skip();
	at = gpu_map(bytes);
	for (unsigned i = 0; i < PN_ARRAY_LEN(failures); i++) {
		begin(&attr);
		gpu_fill(at, bytes, i);
		set_standin(failures[i]);
		assert_int_equal(rig_copy(&rig, (uintptr_t)there, (uintptr_t)at,
					  bytes, NULL),
				 -ENOMEM);
		assert_int_equal(to_gpu(at, bytes), 0);
		assert_int_equal(wrong_there(there, bytes, i), 0);
		end();
	}
	munmap(at, bytes);
}

/* A GPU without memory: the engine has no streams of its own. */
static void without_streams_the_driver_copies(void **state)
{
	const struct rig_attr attr = { .workers = 3 };
	const size_t bytes = 2 * MIB;
	char *at;

	(void)state;
	(void)standin_or_skip();
	begin(&attr);
	at = gpu_map(bytes);
	set_standin("fail=cuStreamCreate/0/2");
	copy_there_and_back(at, bytes, 1);
	assert_int_equal(rig_stats(&rig).bounced, 0);
	set_standin("fail=none");
	munmap(at, bytes);
	end();
}

static void a_captured_stream_is_left_to_the_driver(void **state)
{
	const struct rig_attr attr = { .workers = 2 };
	const size_t bytes = 8 * MIB;
	pn_cu_result (*begin_capture)(pn_cu_stream, int);
	pn_cu_result (*end_capture)(pn_cu_stream, pn_cu_graph *);
	pn_cu_result (*destroy)(pn_cu_graph);
	pn_cu_graph graph = NULL;
	char *at;

	(void)state;
	begin(&attr);
	*(void **)&begin_capture =
		dlsym(rig.cu->library, "cuStreamBeginCapture_v2");
	*(void **)&end_capture = dlsym(rig.cu->library, "cuStreamEndCapture");
	*(void **)&destroy = dlsym(rig.cu->library, "cuGraphDestroy");
	at = gpu_map(bytes);
	/* Another thread's global capture is not disturbed either. */
	assert_int_equal(to_gpu(at, bytes), 0);
	assert_int_equal(begin_capture(stream,
				       PN_CU_STREAM_CAPTURE_MODE_RELAXED),
			 0);
	uint64_t driver = rig_stats(&rig).driver;
	(void)to_gpu(at, bytes);
	assert_int_equal(rig_stats(&rig).driver, driver + 1);
	(void)end_capture(stream, &graph);
	if (graph)
		assert_int_equal(destroy(graph), 0);
	munmap(at, bytes);
	end();
}

/* What cudaDeviceReset() does; then the program begins anew. */
static void reset_context(void)
{
	pn_cu_result (*reset)(pn_cu_device);

	*(void **)&reset = dlsym(rig.cu->library, "cuDevicePrimaryCtxReset_v2");
	assert_int_equal(reset(0), 0);
	rig.context = gpu_use_primary(rig.cu);
	assert_int_equal(rig.cu->mem_alloc(&there, THERE_BYTES), 0);
	assert_int_equal(rig.cu->stream_create(&stream,
					       PN_CU_STREAM_NON_BLOCKING),
			 0);
}

static void start_and_wait(void *dst, const void *src, size_t bytes)
{
	const struct pn_copy_op op = {
		.dst = dst, .src = src, .bytes = bytes, .stream = stream
	};
	struct pinion_cuda_request *request;

	assert_int_equal(pn_copier_start(rig.copier, &op, &request), 0);
	assert_int_equal(pn_copy_request_wait(request, PINION_FOREVER), 0);
}

static void copy_all_ways(char *at, size_t bytes, uint64_t seed)
{
	gpu_fill(at, bytes, seed);
	assert_int_equal(to_gpu(at, bytes), 0);
	assert_int_equal(wrong_there(there, bytes, seed), 0);
	memset(at, 0, bytes);
	assert_int_equal(from_gpu(at, bytes), 0);
	assert_int_equal(gpu_wrong(at, bytes, seed), 0);
	gpu_fill(at, bytes, seed + 1);
	start_and_wait((void *)(uintptr_t)there, at, bytes);
	assert_int_equal(wrong_there(there, bytes, seed + 1), 0);
}

/* What the engine made in the context before is made anew. */
static void copies_go_on_after_a_context_was_reset(void **state)
{
	const struct rig_attr attr = { .workers = 3, .keep = true };
	const size_t bytes = 2 * MIB;
	uint64_t mixed, registered;
	struct standin s;
	char *at[4], *kept;

	(void)state;
	begin(&attr);
	at[0] = gpu_map(bytes);
	kept = map_registered(1);
	copy_all_ways(at[0], bytes, 10);
	copy_all_ways(kept, KEPT_BYTES, 20);
	for (unsigned i = 1; i < 4; i++) {
		reset_context();
		at[i] = gpu_map(bytes);
		copy_all_ways(at[i], bytes, 100 * i);
		copy_all_ways(kept, KEPT_BYTES, 100 * i + 10);
		/* Also memory that was registered comes again. */
		pn_cache_flush(rig.cache);
		assert_int_equal(pn_cache_prefetch(rig.cache, (uintptr_t)kept,
						   KEPT_BYTES,
						   PINION_ACCESS_LOCAL_WRITE),
				 0);
		registered = rig_stats(&rig).registered;
		copy_all_ways(kept, KEPT_BYTES, 100 * i + 20);
		assert_true(rig_stats(&rig).registered > registered);
		/* And the bounce buffers: the driver refuses this one. */
		assert_int_equal(pn_cache_prefetch(rig.cache,
						   (uintptr_t)at[i] + MIB,
						   RIG_BLOCK,
						   PINION_ACCESS_LOCAL_WRITE),
				 0);
		mixed = rig_stats(&rig).mixed;
		copy_all_ways(at[i], bytes, 100 * i + 30);
		assert_true(rig_stats(&rig).mixed > mixed);
	}
	reset_context();
	munmap(kept, KEPT_BYTES);
	for (unsigned i = 0; i < 4; i++)
		munmap(at[i], bytes);
	end();
	if (gpu_standin(&s)) {
		assert_int_equal(s.get("registrations"), 0);
		assert_int_equal(s.get("faults"), 0);
		assert_int_equal(s.get("events"), 0);
	}
}

/* --- threads -------------------------------------------------------------- */

#define NTHREADS 16
#define SHARE	 MIB

static _Atomic unsigned wrong;
static _Atomic int failed; /* the last error */

static void copy_here(uintptr_t dst, uintptr_t src, size_t bytes,
		      pn_cu_stream in)
{
	int ret = rig_copy(&rig, dst, src, bytes, in);

	if (ret)
		failed = ret;
}

static void *copy_to_and_fro(void *arg)
{
	uintptr_t n = (uintptr_t)arg;
	const size_t bytes = SHARE - 4096 * (n % 3);
	pn_cu_deviceptr mine = there + n * SHARE;
	char *at = mmap(NULL, SHARE, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pn_cu_stream own = NULL;

	rig.cu->ctx_set_current(rig.context);
	if (n % 2)
		rig.cu->stream_create(&own, PN_CU_STREAM_NON_BLOCKING);
	for (unsigned i = 0; i < 6; i++) {
		gpu_fill(at, bytes, n * 100 + i);
		copy_here((uintptr_t)mine, (uintptr_t)at, bytes, own);
		memset(at, 0, bytes);
		copy_here((uintptr_t)at, (uintptr_t)mine, bytes, own);
		wrong += gpu_wrong(at, bytes, n * 100 + i) != 0;
		if (i % 2)
			madvise(at, SHARE, MADV_DONTNEED);
	}
	if (own)
		rig.cu->stream_destroy(own);
	munmap(at, SHARE);
	return NULL;
}

static void many_threads_copy(bool keep, size_t max_bytes)
{
	const struct rig_attr attr = { .workers = 4,
				       .keep = keep,
				       .max_bytes = max_bytes };
	pthread_t threads[NTHREADS];

	begin(&attr);
	wrong = 0;
	failed = 0;
	for (uintptr_t i = 0; i < NTHREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL,
						copy_to_and_fro, (void *)i),
				 0);
	for (unsigned i = 0; i < NTHREADS; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(failed, 0);
	assert_int_equal(wrong, 0);
	end();
}

static void sixteen_threads_copy_at_once(void **state)
{
	(void)state;
	many_threads_copy(false, 0);
	many_threads_copy(true, 0);
	many_threads_copy(true, MIB);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bytes_arrive_whatever_the_size),
		cmocka_unit_test(a_destination_never_touched_is_written),
		cmocka_unit_test(copies_begin_after_what_the_stream_had),
		cmocka_unit_test(a_copy_in_the_legacy_stream_waits_for_others),
		cmocka_unit_test(a_request_orders_what_the_stream_gets_later),
		cmocka_unit_test(
			a_copy_behind_a_request_leaves_it_what_it_needs),
		cmocka_unit_test(
			requests_work_without_stream_memory_operations),
		cmocka_unit_test(nothing_stays_registered_unless_asked_for),
		cmocka_unit_test(
			a_buffer_that_comes_again_is_registered_in_blocks),
		cmocka_unit_test(registered_memory_is_copied_without_questions),
		cmocka_unit_test(
			a_copy_between_registered_and_other_host_memory),
		cmocka_unit_test(threads_copy_registered_memory),
		cmocka_unit_test(registering_may_end_during_a_copy),
		cmocka_unit_test(
			a_refused_registration_concerns_no_other_buffer),
		cmocka_unit_test(a_range_registered_in_part_is_copied),
		cmocka_unit_test(
			the_reuse_of_a_buffer_decides_how_it_is_copied),
		cmocka_unit_test(without_keeping_no_reuse_registers_a_buffer),
		cmocka_unit_test(new_bytes_arrive_after_every_kind_of_release),
		cmocka_unit_test(what_was_released_is_shared_with_nobody),
		cmocka_unit_test(one_disturbed_copy_does_not_decide),
		cmocka_unit_test(a_tiny_budget_leaves_it_to_the_driver),
		cmocka_unit_test(a_pinned_part_is_copied_without_a_budget),
		cmocka_unit_test(errors_of_the_driver_are_returned),
		cmocka_unit_test(without_streams_the_driver_copies),
		cmocka_unit_test(a_captured_stream_is_left_to_the_driver),
		cmocka_unit_test(copies_go_on_after_a_context_was_reset),
		cmocka_unit_test(sixteen_threads_copy_at_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
