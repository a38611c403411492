/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Several GPUs, one copier: copies to and from each, between them, and in which
 * context the default streams are. On the stand-in there are two; a machine
 * with one real GPU skips these tests.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "copy_rig.h"

#define MIB  ((size_t)1 << 20)
#define LONG (4 * MIB)
#define NGPU 2

static struct rig rig;
static struct gpu {
	pn_cu_context context;
	pn_cu_deviceptr at;
	pn_cu_stream stream;
} gpus[NGPU];

static void use(unsigned i)
{
	assert_int_equal(rig.cu->ctx_set_current(gpus[i].context), 0);
}

static void begin(bool keep)
{
	const struct rig_attr attr = { .workers = 2, .keep = keep };

	if (gpu_driver()->ndevices < NGPU)
		skip();
	rig_open(&rig, &attr);
	for (unsigned i = 0; i < NGPU; i++) {
		struct gpu *gpu = &gpus[i];

		assert_int_equal(rig.cu->primary_ctx_retain(&gpu->context,
							    (int)i),
				 0);
		use(i);
		assert_int_equal(rig.cu->mem_alloc(&gpu->at, LONG), 0);
		assert_int_equal(
			rig.cu->stream_create(&gpu->stream,
					      PN_CU_STREAM_NON_BLOCKING),
			0);
	}
	use(0);
}

static void end(void)
{
	for (unsigned i = 0; i < NGPU; i++) {
		use(i);
		assert_int_equal(rig.cu->ctx_synchronize(), 0);
		assert_int_equal(rig.cu->stream_destroy(gpus[i].stream), 0);
		assert_int_equal(rig.cu->mem_free(gpus[i].at), 0);
	}
	use(0);
	rig_close(&rig);
	for (unsigned i = 0; i < NGPU; i++)
		rig.cu->primary_ctx_release((int)i);
}

static size_t wrong_on(unsigned i, size_t bytes, uint64_t seed)
{
	size_t wrong;

	use(i);
	assert_int_equal(rig.cu->ctx_synchronize(), 0);
	wrong = gpu_wrong_there(rig.cu, gpus[i].at, bytes, seed);
	use(0);
	return wrong;
}

/* In a stream of that GPU, while the first one is current. */
static void there_and_back(unsigned i, pn_cu_stream stream, size_t bytes,
			   uint64_t seed)
{
	char *at = gpu_map(bytes);

	gpu_fill(at, bytes, seed);
	assert_int_equal(rig_copy(&rig, gpus[i].at, (uintptr_t)at, bytes,
				  stream),
			 0);
	memset(at, 0, bytes);
	assert_int_equal(wrong_on(i, bytes, seed), 0);
	assert_int_equal(rig_copy(&rig, (uintptr_t)at, gpus[i].at, bytes,
				  stream),
			 0);
	assert_int_equal(gpu_wrong(at, bytes, seed), 0);
	munmap(at, bytes);
}

static void one_copier_copies_to_and_from_every_gpu(void **state)
{
	pn_cu_context current;

	(void)state;
	for (int keep = 0; keep < 2; keep++) {
		begin(keep);
		for (unsigned i = 0; i < 8; i++) {
			there_and_back(i % NGPU, gpus[i % NGPU].stream,
				       i & 2 ? LONG : 4096, i);
			assert_int_equal(rig.cu->ctx_get_current(&current), 0);
			assert_ptr_equal(current, gpus[0].context);
		}
		assert_true(rig_stats(&rig).bounced > 0);
		end();
	}
}

/* Registered memory is so for all GPUs. */
static void memory_kept_registered_serves_every_gpu(void **state)
{
	char *at = gpu_map(LONG);

	(void)state;
	begin(true);
	if (!pn_cache_keeps(rig.cache)) {
		end();
		skip();
	}
	assert_ok(pn_cache_prefetch(rig.cache, (uintptr_t)at, LONG,
				    PINION_ACCESS_LOCAL_WRITE));
	for (unsigned i = 0; i < 6; i++) {
		unsigned to = i % NGPU;

		gpu_fill(at, LONG, i);
		assert_int_equal(rig_copy(&rig, gpus[to].at, (uintptr_t)at,
					  LONG, gpus[to].stream),
				 0);
		memset(at, 0, LONG);
		assert_int_equal(wrong_on(to, LONG, i), 0);
	}
	assert_int_equal(rig_stats(&rig).registered, 6);
	munmap(at, LONG);
	end();
}

/* Between GPUs the driver copies, in the stream that is given. */
static void copies_between_gpus_are_the_drivers(void **state)
{
	char *at = gpu_map(LONG);
	uint64_t before;

	(void)state;
	begin(false);
	for (unsigned i = 0; i < 4; i++) {
		unsigned from = i % NGPU, to = (i + 1) % NGPU;

		gpu_fill(at, LONG, i);
		assert_int_equal(rig_copy(&rig, gpus[from].at, (uintptr_t)at,
					  LONG, gpus[from].stream),
				 0);
		before = rig_stats(&rig).driver;
		assert_int_equal(rig_copy(&rig, gpus[to].at, gpus[from].at,
					  LONG, gpus[from].stream),
				 0);
		assert_int_equal(rig_stats(&rig).driver, before + 1);
		use(from);
		assert_int_equal(rig.cu->stream_synchronize(gpus[from].stream),
				 0);
		use(0);
		assert_int_equal(wrong_on(to, LONG, i), 0);
	}
	munmap(at, LONG);
	end();
}

/* --- default streams -------------------------------------------------------
 */

static void sleep_a_while(void *arg)
{
	(void)arg;
	usleep(100000);
}

/* The default stream of the second GPU is busy, and then sets the memory. */
static void set_late(pn_cu_stream stream, unsigned char byte)
{
	use(1);
	assert_int_equal(rig.cu->launch_host_func(stream, sleep_a_while, NULL),
			 0);
	assert_int_equal(rig.cu->memset_d8_async(gpus[1].at, byte, LONG,
						 stream),
			 0);
	use(0);
}

static void copy_behind(pn_cu_stream stream, char *at, size_t bytes,
			pn_cu_context current)
{
	const struct pn_copy_op op = {
		.dst = at,
		.src = (void *)(uintptr_t)gpus[1].at,
		.bytes = bytes,
		.stream = stream,
		.default_of = (void *)(uintptr_t)gpus[1].at,
	};
	struct pinion_cuda_request *request;
	pn_cu_context after;

	assert_int_equal(rig.cu->ctx_set_current(current), 0);
	assert_int_equal(pn_copier_start(rig.copier, &op, &request), 0);
	assert_int_equal(pn_copy_request_wait(request, PINION_FOREVER), 0);
	/* The thread's context is as it was. */
	assert_int_equal(rig.cu->ctx_get_current(&after), 0);
	assert_ptr_equal(after, current);
}

static void a_default_stream_can_be_that_of_the_memory(void **state)
{
	static const pn_cu_stream streams[] = { NULL, PN_CU_STREAM_LEGACY,
						PN_CU_STREAM_PER_THREAD };
	char *at = gpu_map(LONG);

	(void)state;
	begin(false);
	for (unsigned i = 0; i < 12; i++) {
		pn_cu_stream stream = streams[i % 3];
		size_t bytes = i & 1 ? LONG : 4096;
		/* The first GPU's, or none. */
		pn_cu_context current = i < 6 ? gpus[0].context : NULL;

		set_late(stream, (unsigned char)(i + 1));
		copy_behind(stream, at, bytes, current);
		for (size_t j = 0; j < bytes; j += 512)
			assert_int_equal(at[j], i + 1);
	}
	munmap(at, LONG);
	end();
}

/* Memory that the driver does not know: the current context's stream. */
static void a_default_stream_of_other_memory_is_the_current_one(void **state)
{
	char *at = gpu_map(LONG), *other = gpu_map(4096);
	struct pinion_cuda_request *request;
	struct pn_copy_op op;

	(void)state;
	begin(false);
	gpu_fill(at, LONG, 3);
	op = (struct pn_copy_op){ .dst = (void *)(uintptr_t)gpus[0].at,
				  .src = at,
				  .bytes = LONG,
				  .default_of = other };
	assert_int_equal(pn_copier_start(rig.copier, &op, &request), 0);
	assert_int_equal(pn_copy_request_wait(request, PINION_FOREVER), 0);
	assert_int_equal(wrong_on(0, LONG, 3), 0);
	munmap(at, LONG);
	munmap(other, 4096);
	end();
}

/* --- threads ---------------------------------------------------------------
 */

#define THREADS 6

static _Atomic unsigned failed, wrong;

static void *copies_to_one_gpu(void *arg)
{
	unsigned i = (unsigned)(uintptr_t)arg;
	char *at = gpu_map(MIB);
	pn_cu_deviceptr there;
	pn_cu_stream stream;

	use(i % NGPU);
	failed += rig.cu->mem_alloc(&there, MIB) != 0;
	failed +=
		rig.cu->stream_create(&stream, PN_CU_STREAM_NON_BLOCKING) != 0;
	for (unsigned n = 0; n < 10; n++) {
		gpu_fill(at, MIB, i * 100 + n);
		failed +=
			rig_copy(&rig, there, (uintptr_t)at, MIB, stream) != 0;
		memset(at, 0, MIB);
		failed +=
			rig_copy(&rig, (uintptr_t)at, there, MIB, stream) != 0;
		wrong += gpu_wrong(at, MIB, i * 100 + n) != 0;
	}
	failed += rig.cu->stream_destroy(stream) != 0;
	failed += rig.cu->mem_free(there) != 0;
	munmap(at, MIB);
	return NULL;
}

static void threads_copy_to_different_gpus_at_once(void **state)
{
	pthread_t threads[THREADS];

	(void)state;
	for (int keep = 0; keep < 2; keep++) {
		begin(keep);
		for (unsigned i = 0; i < THREADS; i++)
			assert_ok(pthread_create(&threads[i], NULL,
						 copies_to_one_gpu,
						 (void *)(uintptr_t)i));
		for (unsigned i = 0; i < THREADS; i++)
			assert_ok(pthread_join(threads[i], NULL));
		assert_int_equal(failed, 0);
		assert_int_equal(wrong, 0);
		end();
	}
}

/* What one GPU's reset takes leaves the other's copies alone. */
static void a_reset_of_one_gpu_leaves_the_other(void **state)
{
	pn_cu_result (*reset)(pn_cu_device device);

	(void)state;
	begin(false);
	*(void **)&reset = dlsym(rig.cu->library, "cuDevicePrimaryCtxReset_v2");
	there_and_back(0, gpus[0].stream, LONG, 1);
	there_and_back(1, gpus[1].stream, LONG, 2);
	assert_int_equal(reset(1), 0);
	there_and_back(0, gpus[0].stream, LONG, 3);
	assert_int_equal(rig.cu->primary_ctx_retain(&gpus[1].context, 1), 0);
	use(1);
	assert_int_equal(rig.cu->mem_alloc(&gpus[1].at, LONG), 0);
	assert_int_equal(rig.cu->stream_create(&gpus[1].stream,
					       PN_CU_STREAM_NON_BLOCKING),
			 0);
	use(0);
	there_and_back(1, gpus[1].stream, LONG, 4);
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(one_copier_copies_to_and_from_every_gpu),
		TEST(memory_kept_registered_serves_every_gpu),
		TEST(copies_between_gpus_are_the_drivers),
		TEST(a_default_stream_can_be_that_of_the_memory),
		TEST(a_default_stream_of_other_memory_is_the_current_one),
		TEST(threads_copy_to_different_gpus_at_once),
		TEST(a_reset_of_one_gpu_leaves_the_other),
	};

	/* Read when the driver is loaded. */
	setenv("STANDIN_OPTIONS", "devices=2,memory_mib=256", 0);
	gpu_driver();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
