/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What happens to a process while it copies: the GPU has no memory left, comes
 * and goes; the process forks. Right bytes or a clear error, and afterwards
 * copies go on as before. On the stand-in and on a GPU.
 */
#include <pthread.h>
#include <stdatomic.h>

#include <pinion/cuda.h>
#include <pinion/pinion.h>

#include "child.h"
#include "copy_rig.h"

#define MIB    ((size_t)1 << 20)
#define BYTES  (2 * MIB)
#define NPARTS 3 /* of the GPU's memory, with so many bytes each */

static struct rig rig;
static struct standin standin;
static bool has_standin;
static pn_cu_deviceptr there;
static pn_cu_stream stream;

static void begin(bool keep)
{
	const struct rig_attr attr = { .workers = 3, .keep = keep };

	has_standin = gpu_standin(&standin);
	rig_open(&rig, &attr);
	assert_int_equal(rig.cu->mem_alloc(&there, NPARTS * BYTES), 0);
	assert_int_equal(rig.cu->stream_create(&stream,
					       PN_CU_STREAM_NON_BLOCKING),
			 0);
}

static void end(void)
{
	assert_int_equal(rig.cu->stream_destroy(stream), 0);
	assert_int_equal(rig.cu->mem_free(there), 0);
	rig_close(&rig);
	if (has_standin) {
		assert_int_equal(standin.get("registrations"), 0);
		assert_int_equal(standin.get("faults"), 0);
		assert_int_equal(standin.get("events"), 0);
	}
}

/* --- a GPU without memory ------------------------------------------------- */

#define MAX_FILL 16384

static pn_cu_deviceptr filled[MAX_FILL];
static unsigned nfilled;

/* All of it, down to the smallest allocation. The stand-in refuses what a GPU
 * without memory cannot create: streams, events, registrations. */
static void fill_gpu(void)
{
	size_t bytes = (size_t)64 << 30;

	if (has_standin) {
		assert_int_equal(standin.set("reserve_kib=1000000000"), 0);
		return;
	}
	while (bytes >= 512 && nfilled < MAX_FILL)
		if (rig.cu->mem_alloc(&filled[nfilled], bytes))
			bytes /= 2;
		else
			nfilled++;
}

static void empty_gpu(void)
{
	if (has_standin)
		assert_int_equal(standin.set("reserve_kib=0"), 0);
	while (nfilled)
		assert_int_equal(rig.cu->mem_free(filled[--nfilled]), 0);
}

static int start_and_wait(uintptr_t dst, uintptr_t src)
{
	const struct pn_copy_op op = { .dst = (void *)dst,
				       .src = (const void *)src,
				       .bytes = BYTES,
				       .stream = stream };
	struct pinion_cuda_request *request;
	int ret = pn_copier_start(rig.copier, &op, &request);

	return ret ? ret : pn_copy_request_wait(request, PINION_FOREVER);
}

/* 0, and the bytes were right; or -ENOMEM. */
static int copy_there_and_back(char *at, uint64_t seed, bool request)
{
	uintptr_t host = (uintptr_t)at, gpu = there;
	int ret;

	gpu_fill(at, BYTES, seed);
	ret = request ? start_and_wait(gpu, host)
		      : rig_copy(&rig, gpu, host, BYTES, stream);
	if (!ret) {
		memset(at, 0, BYTES);
		ret = request ? start_and_wait(host, gpu)
			      : rig_copy(&rig, host, gpu, BYTES, stream);
	}
	if (ret)
		assert_int_equal(ret, -ENOMEM);
	else
		assert_int_equal(gpu_wrong(at, BYTES, seed), 0);
	return ret;
}

/* A first copy needs streams, buffers, words; later ones have them. */
static void copies_arrive_while_the_gpu_is_full(void **state)
{
	char *at = gpu_map(BYTES);

	(void)state;
	for (unsigned copied = 0; copied < 2; copied++) {
		begin(true);
		if (copied)
			assert_ok(copy_there_and_back(at, 1, false));
		fill_gpu();
		for (unsigned i = 0; i < 6; i++) {
			int ret = copy_there_and_back(at, 10 + i, i % 2);

			/* What the driver copies needs no memory. */
			if (has_standin)
				assert_ok(ret);
			assert_true(rig.budget.bytes <= rig.budget.max_bytes);
		}
		empty_gpu();
		end();
	}
	munmap(at, BYTES);
}

/* A refusal is not for ever: bounce buffers are asked for again. */
static void the_engine_copies_again_when_there_is_memory(void **state)
{
	char *at = gpu_map(BYTES);

	(void)state;
	begin(false);
	fill_gpu();
	(void)copy_there_and_back(at, 1, false);
	empty_gpu();
	for (unsigned i = 0; !rig_stats(&rig).bounced && i < 1000; i++)
		assert_ok(copy_there_and_back(at, i, false));
	assert_true(rig_stats(&rig).bounced);
	munmap(at, BYTES);
	end();
}

static _Atomic bool stop;
static _Atomic unsigned nwrong, ncopies;

/* arg: its part of the GPU's memory. */
static void *copy_until_stopped(void *arg)
{
	pn_cu_deviceptr mine = (uintptr_t)arg;
	char *at = mmap(NULL, BYTES, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t i = 0;

	rig.cu->ctx_set_current(rig.context);
	for (; !stop || i < 20; i++) {
		int ret;

		gpu_fill(at, BYTES, i);
		ret = rig_copy(&rig, mine, (uintptr_t)at, BYTES, stream);
		if (!ret) {
			memset(at, 0, BYTES);
			ret = rig_copy(&rig, (uintptr_t)at, mine, BYTES,
				       stream);
		}
		nwrong += ret ? ret != -ENOMEM : gpu_wrong(at, BYTES, i) != 0;
		ncopies++;
		if (i % 4 == 3)
			madvise(at, BYTES, MADV_DONTNEED);
	}
	munmap(at, BYTES);
	return NULL;
}

static void memory_of_the_gpu_comes_and_goes_under_copies(void **state)
{
	pthread_t threads[NPARTS];

	(void)state;
	begin(true);
	stop = false;
	nwrong = ncopies = 0;
	for (unsigned i = 0; i < NPARTS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL,
						copy_until_stopped,
						(void *)(there + i * BYTES)),
				 0);
	for (unsigned i = 0; i < 20; i++) {
		unsigned until = ncopies + 5;

		while (ncopies < until && !nwrong)
			usleep(200);
		if (i % 2)
			empty_gpu();
		else
			fill_gpu();
	}
	stop = true;
	for (unsigned i = 0; i < NPARTS; i++)
		pthread_join(threads[i], NULL);
	empty_gpu();
	assert_int_equal(nwrong, 0);
	end();
}

/* --- fork ----------------------------------------------------------------- */

static struct pinion_context *context;
static pn_cu_stream other_stream;

static void *copy_by_public_calls(void *arg)
{
	char *at = mmap(NULL, BYTES, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	(void)arg;
	rig.cu->ctx_set_current(rig.context);
	for (uint64_t i = 0; !stop || i < 10; i++) {
		int ret;

		gpu_fill(at, BYTES, i);
		ret = pinion_cuda_copy(context, (void *)(uintptr_t)there, at,
				       BYTES, stream);
		memset(at, 0, BYTES);
		if (!ret)
			ret = pinion_cuda_copy(context, at,
					       (void *)(uintptr_t)there, BYTES,
					       stream);
		nwrong += ret || gpu_wrong(at, BYTES, i);
		ncopies++;
	}
	munmap(at, BYTES);
	return NULL;
}

/* In the child. The request is the parent's. */
static void use_in_child(struct pinion_cuda_request *request)
{
	struct pinion_cuda_stats stats = { .size = sizeof(stats) };
	static char here[4096];

	CHECK(pinion_cuda_copy(context, here, (void *)(uintptr_t)there,
			       sizeof(here), NULL) == -EPERM);
	CHECK(pinion_cuda_query(context, &stats) == -EPERM);
	CHECK(pinion_cuda_test(request) == -EPERM);
	CHECK(pinion_cuda_wait(request, 0) == -EPERM);
	pinion_close(context);
	_exit(0);
}

/* Another thread copies meanwhile, and a request is under way. */
static void fork_once(char *at, uint64_t seed)
{
	struct pinion_cuda_copy_attr attr = {
		.size = sizeof(attr),
		.dst = (void *)(uintptr_t)(there + BYTES),
		.src = at,
		.bytes = BYTES,
		.stream = other_stream,
	};
	struct pinion_cuda_request *request;
	int status;
	pid_t child;

	gpu_fill(at, BYTES, seed);
	assert_ok(pinion_cuda_copy_start(context, &attr, &request));
	fflush(NULL);
	child = fork();
	if (!child)
		use_in_child(request);
	assert_true(child > 0);
	assert_ok(pinion_cuda_wait(request, PINION_FOREVER));
	assert_int_equal(rig.cu->ctx_synchronize(), 0);
	assert_int_equal(gpu_wrong_there(rig.cu, there + BYTES, BYTES, seed),
			 0);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

static void a_fork_during_copies_disturbs_nothing(void **state)
{
	const char *const options[] = { "device=cuda", "cuda_keep=yes", NULL };
	struct pinion_attr attr = { .size = sizeof(attr), .options = options };
	char *at = gpu_map(BYTES);
	pthread_t thread;

	(void)state;
	rig = (struct rig){ .cu = gpu_driver() };
	rig.context = gpu_use_primary(rig.cu);
	assert_int_equal(rig.cu->mem_alloc(&there, 2 * BYTES), 0);
	assert_int_equal(rig.cu->stream_create(&stream,
					       PN_CU_STREAM_NON_BLOCKING),
			 0);
	assert_int_equal(rig.cu->stream_create(&other_stream,
					       PN_CU_STREAM_NON_BLOCKING),
			 0);
	assert_ok(pinion_open(&attr, &context));
	stop = false;
	nwrong = ncopies = 0;
	assert_int_equal(pthread_create(&thread, NULL, copy_by_public_calls,
					NULL),
			 0);
	for (unsigned i = 0; i < 8; i++) {
		unsigned until = ncopies + 2;

		while (ncopies < until && !nwrong)
			usleep(200);
		fork_once(at, i);
	}
	stop = true;
	pthread_join(thread, NULL);
	assert_int_equal(nwrong, 0);
	pinion_close(context);
	rig.cu->stream_destroy(other_stream);
	rig.cu->stream_destroy(stream);
	rig.cu->mem_free(there);
	rig.cu->primary_ctx_release(0);
	munmap(at, BYTES);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(copies_arrive_while_the_gpu_is_full),
		TEST(the_engine_copies_again_when_there_is_memory),
		TEST(memory_of_the_gpu_comes_and_goes_under_copies),
		TEST(a_fork_during_copies_disturbs_nothing),
	};

	return RUN_TESTS(tests);
}
