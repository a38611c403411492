/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An unmodified CUDA program under libpinion-cuda.so: what it sees is what it
 * sees without. test_interpose HOW, where HOW is a way of program.h.
 *
 * The stand-in reads pinned memory late, refuses ranges that are registered in
 * part and delivers the pages that were registered. So a copy that meets a
 * registration of pinion's shows.
 */
#include <pthread.h>
#include <sys/wait.h>

#include "program.h"

/* Small, so that a limit of 8 MiB of locked memory is enough. */
#define BYTES (4 * MIB)

static struct program p;
static pn_cu_deviceptr there;
static pn_cu_stream stream;

static int setup(void **state)
{
	(void)state;
	program_context(&p);
	if (p.cuMemAlloc(&there, BYTES) || p.cuStreamCreate(&stream, 1))
		return -1;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	return p.cuStreamDestroy(stream) || p.cuMemFree(there);
}

static size_t held(void)
{
	return p.held_pages ? p.held_pages() : 0;
}

static void use_until_held(char *at, size_t bytes)
{
	size_t pages = program_use(&p, there, at, bytes);

	if (p.holds)
		assert_true(pages > 0);
}

/* --- finding ---------------------------------------------------------------
 */

static void functions_are_ours_however_they_are_found(void **state)
{
	Dl_info info;

	(void)state;
	if (!p.held_pages)
		skip();
	assert_true(dladdr((void *)p.cuMemcpyHtoD, &info));
	assert_non_null(strstr(info.dli_fname, "libpinion-cuda.so"));
	assert_true(dladdr((void *)p.cuPointerGetAttributes, &info));
	assert_non_null(strstr(info.dli_fname, "libpinion-cuda.so"));
	/* What is not taken is the driver's. */
	assert_true(dladdr((void *)p.cuMemAlloc, &info));
	assert_null(strstr(info.dli_fname, "libpinion"));
}

static void dlsym_is_libcs_for_everything_else(void **state)
{
	void *self = dlopen(NULL, RTLD_NOW);
	Dl_info info;

	(void)state;
	assert_true(dladdr(dlsym(RTLD_NEXT, "getpid"), &info));
	assert_non_null(strstr(info.dli_fname, "libc.so"));
	assert_true(dladdr(dlsym(RTLD_DEFAULT, "getpid"), &info));
	assert_non_null(strstr(info.dli_fname, "libc.so"));
	dlerror();
	assert_null(dlsym(self, "there_is_no_such_name"));
	assert_non_null(dlerror());
	assert_null(dlsym(p.driver, "cuThereIsNoSuchName"));
	assert_non_null(dlerror());
	dlclose(self);
}

/* --- copies ----------------------------------------------------------------
 */

static void copy_there(unsigned how, const char *at, size_t bytes)
{
	pn_cu_deviceptr unified = (uintptr_t)at;

	switch (how % 6) {
	case 0:
		assert_int_equal(p.cuMemcpyHtoD(there, at, bytes), 0);
		break;
	case 1:
		assert_int_equal(p.cuMemcpyHtoDAsync(there, at, bytes, stream),
				 0);
		break;
	case 2:
		assert_int_equal(p.cuMemcpyHtoDAsync(there, at, bytes, NULL),
				 0);
		break;
	case 3:
		assert_int_equal(p.cuMemcpy(there, unified, bytes), 0);
		break;
	case 4:
		assert_int_equal(p.cuMemcpyAsync(there, unified, bytes, stream),
				 0);
		break;
	case 5:
		assert_int_equal(
			p.cuMemcpyAsync(there, unified, bytes,
					(pn_cu_stream)PN_CU_STREAM_PER_THREAD),
			0);
		break;
	}
}

static void copy_back(unsigned how, char *at, size_t bytes)
{
	pn_cu_deviceptr unified = (uintptr_t)at;

	switch (how % 4) {
	case 0:
		assert_int_equal(p.cuMemcpyDtoH(at, there, bytes), 0);
		break;
	case 1:
		assert_int_equal(p.cuMemcpyDtoHAsync(at, there, bytes, stream),
				 0);
		break;
	case 2:
		assert_int_equal(p.cuMemcpy(unified, there, bytes), 0);
		break;
	case 3:
		assert_int_equal(p.cuMemcpyAsync(unified, there, bytes, stream),
				 0);
		break;
	}
}

/* The source changes as soon as the call returns, and the destination is looked
 * at as soon as the call returns: CUDA promises both for unpinned memory. */
static void unpinned_memory_is_done_with_on_return(void **state)
{
	uint64_t seed = test_seed();
	char *at = program_map(BYTES), *back = program_map(BYTES);

	(void)state;
	for (unsigned i = 0; i < 60; i++) {
		size_t bytes = 1 + test_random(&seed) %
					   (i % 3 ? BYTES / 2 : 200 * KIB);
		size_t shift = test_random(&seed) % 9000;

		program_fill(at + shift, bytes, i);
		copy_there(i, at + shift, bytes);
		memset(at + shift, 0xee, bytes);
		assert_int_equal(p.cuCtxSynchronize(), 0);
		memset(back + shift, 0xdd, bytes);
		copy_back(i / 2, back + shift, bytes);
		assert_int_equal(program_wrong(back + shift, bytes, i), 0);
	}
	munmap(at, BYTES);
	munmap(back, BYTES);
}

/* The same with memory that pinion keeps registered, and parts of it of all
 * sizes. */
static void memory_that_is_held_is_done_with_on_return(void **state)
{
	uint64_t seed = test_seed();
	char *at = program_map(BYTES);

	(void)state;
	program_fill(at, BYTES, 0);
	use_until_held(at, BYTES);
	for (unsigned i = 0; i < 60; i++) {
		size_t bytes = 1 + test_random(&seed) %
					   (i % 3 ? 100 * KIB : BYTES / 2);
		size_t shift = test_random(&seed) % (BYTES - bytes);

		program_fill(at + shift, bytes, i);
		copy_there(i, at + shift, bytes);
		memset(at + shift, 0xee, bytes);
		assert_int_equal(p.cuCtxSynchronize(), 0);
		copy_back(i / 2, at + shift, bytes);
		assert_int_equal(program_wrong(at + shift, bytes, i), 0);
	}
	munmap(at, BYTES);
}

/* A blocking call has written its destination on return, also for a stream that
 * does not wait for the default one: so the stand-in's driver. NVIDIA's returns
 * when 64 KiB are staged. */
static void blocking_copies_have_ended_on_return(void **state)
{
	char *at;
	void *back;

	(void)state;
	if (!p.calls)
		skip();
	at = program_map(BYTES);
	assert_int_equal(p.cuMemHostAlloc(&back, BYTES, 0), 0);
	for (size_t bytes = 64 * KIB, i = 0; bytes <= BYTES; bytes *= 2)
		for (unsigned turn = 0; turn < 8; turn++, i++) {
			program_fill(at, bytes, i);
			assert_int_equal(turn % 2 ? p.cuMemcpy(there,
							       (uintptr_t)at,
							       bytes)
						  : p.cuMemcpyHtoD(there, at,
								   bytes),
					 0);
			assert_int_equal(p.cuMemcpyDtoHAsync(back, there, bytes,
							     stream),
					 0);
			assert_int_equal(p.cuStreamSynchronize(stream), 0);
			assert_int_equal(program_wrong(back, bytes, i), 0);
		}
	assert_int_equal(p.cuMemFreeHost(back), 0);
	munmap(at, BYTES);
}

static void copies_of_pinned_memory_are_the_drivers(void **state)
{
	uint64_t before, after;
	void *at;

	(void)state;
	assert_int_equal(p.cuMemHostAlloc(&at, BYTES, 0), 0);
	program_fill(at, BYTES, 5);
	before = p.calls ? p.calls("cuMemcpyHtoDAsync_v2") +
				   p.calls("cuMemcpyHtoDAsync_v2_ptsz")
			 : 0;
	for (int i = 0; i < 10; i++)
		assert_int_equal(p.cuMemcpyHtoDAsync(there, at, BYTES, stream),
				 0);
	after = p.calls ? p.calls("cuMemcpyHtoDAsync_v2") +
				  p.calls("cuMemcpyHtoDAsync_v2_ptsz")
			: 10;
	assert_true(after - before >= 10);
	assert_int_equal(p.cuStreamSynchronize(stream), 0);
	assert_int_equal(program_wrong_there(&p, there, BYTES, 5), 0);
	assert_int_equal(p.cuMemFreeHost(at), 0);
}

static struct pn_cu_memcpy2d rows_of(const char *at, size_t width, size_t pitch)
{
	return (struct pn_cu_memcpy2d){
		.src_type = PN_CU_MEMORYTYPE_HOST,
		.src_host = at,
		.src_pitch = pitch,
		.dst_type = PN_CU_MEMORYTYPE_DEVICE,
		.dst_device = there,
		.dst_pitch = width,
		.width_bytes = width,
		.height = 32,
	};
}

static void rows_arrive_with_and_without_gaps(void **state)
{
	char *at = program_map(BYTES), *back = program_map(BYTES);

	(void)state;
	program_fill(at, BYTES, 1);
	use_until_held(at, BYTES);
	for (int gap = 0; gap < 2; gap++) {
		size_t width = 96 * KIB, pitch = width + (gap ? 8 * KIB : 0);
		struct pn_cu_memcpy2d copy = rows_of(at, width, pitch);

		program_fill(at, BYTES, (uint64_t)gap);
		assert_int_equal(p.cuMemcpy2DAsync(&copy, stream), 0);
		memcpy(back, at, BYTES);
		memset(at, 0xee, BYTES);
		assert_int_equal(p.cuCtxSynchronize(), 0);
		for (size_t i = 0; i < copy.height; i++) {
			char row[4096];

			assert_int_equal(p.cuMemcpyDtoH(row, there + i * width,
							sizeof(row)),
					 0);
			assert_memory_equal(row, back + i * pitch, sizeof(row));
		}
	}
	munmap(at, BYTES);
	munmap(back, BYTES);
}

/* A range that ends in another allocation, however the copy is made. */
static void assert_two_allocations_are_refused(char *at)
{
	pn_cu_deviceptr next[8];
	unsigned n = 0;

	do
		assert_int_equal(p.cuMemAlloc(&next[n], BYTES), 0);
	while (next[n++] != there + BYTES && n < PN_ARRAY_LEN(next));
	for (int i = 0; i < 8; i++) {
		assert_int_equal(p.cuMemcpyHtoD(there + BYTES / 2, at, BYTES),
				 PN_CUDA_ERROR_INVALID_VALUE);
		assert_int_equal(p.cuMemcpyDtoH(at, there + BYTES / 2, BYTES),
				 PN_CUDA_ERROR_INVALID_VALUE);
	}
	while (n)
		assert_int_equal(p.cuMemFree(next[--n]), 0);
}

static void errors_are_the_drivers(void **state)
{
	char *at = program_map(BYTES);

	(void)state;
	assert_int_equal(p.cuMemcpyHtoD(there, at, 0), 0);
	assert_two_allocations_are_refused(at);
	/* The wrong way round. */
	assert_int_equal(p.cuMemcpyHtoD((uintptr_t)at, (void *)there, BYTES),
			 PN_CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(p.cuMemcpyDtoH((void *)there, (uintptr_t)at, BYTES),
			 PN_CUDA_ERROR_INVALID_VALUE);
	/* The error does not stick. */
	program_fill(at, BYTES, 9);
	assert_int_equal(p.cuMemcpyHtoD(there, at, BYTES), 0);
	assert_int_equal(program_wrong_there(&p, there, BYTES, 9), 0);
	munmap(at, BYTES);
}

/* --- several GPUs ----------------------------------------------------------
 */

static bool are_two_gpus(void)
{
	pn_cu_result (*count)(int *n);
	int n = 0;

	*(void **)&count = dlsym(p.driver, "cuDeviceGetCount");
	return count && !count(&n) && n > 1;
}

/* Copies to and from the second GPU, current or not, and between both. */
static void memory_of_another_gpu_is_copied(void **state)
{
	pn_cu_context first, second;
	pn_cu_deviceptr other;
	pn_cu_stream its;
	char *at;

	(void)state;
	if (!are_two_gpus())
		skip();
	at = program_map(BYTES);
	first = program_context(&p);
	assert_int_equal(p.cuDevicePrimaryCtxRetain(&second, 1), 0);
	assert_int_equal(p.cuCtxSetCurrent(second), 0);
	assert_int_equal(p.cuMemAlloc(&other, BYTES), 0);
	assert_int_equal(p.cuStreamCreate(&its, 1), 0);
	for (unsigned i = 0; i < 6; i++) {
		size_t bytes = i & 1 ? BYTES : 100 * KIB;

		assert_int_equal(p.cuCtxSetCurrent(i & 2 ? first : second), 0);
		program_fill(at, bytes, i);
		assert_int_equal(p.cuMemcpyHtoDAsync(other, at, bytes, its), 0);
		memset(at, 0xee, bytes);
		assert_int_equal(p.cuMemcpyDtoHAsync(at, other, bytes, its), 0);
		assert_int_equal(program_wrong(at, bytes, i), 0);
		/* Peer memory is the driver's to copy. */
		assert_int_equal(p.cuMemcpyAsync(there, other, bytes, its), 0);
		assert_int_equal(p.cuCtxSetCurrent(second), 0);
		assert_int_equal(p.cuStreamSynchronize(its), 0);
		assert_int_equal(p.cuCtxSetCurrent(first), 0);
		assert_int_equal(program_wrong_there(&p, there, bytes, i), 0);
		assert_int_equal(p.cuMemcpy(other, there, bytes), 0);
	}
	assert_int_equal(p.cuCtxSetCurrent(second), 0);
	assert_int_equal(p.cuStreamDestroy(its), 0);
	assert_int_equal(p.cuMemFree(other), 0);
	assert_int_equal(p.cuCtxSetCurrent(first), 0);
	munmap(at, BYTES);
}

/* --- invisible -------------------------------------------------------------
 */

struct attributes {
	int ret;
	unsigned type;
	uintptr_t host, device;
	int ordinal;
};

static struct attributes attributes_of(const void *at)
{
	struct attributes a = { 0 };
	int which[] = { PN_CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
			PN_CU_POINTER_ATTRIBUTE_HOST_POINTER,
			PN_CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
			PN_CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL };
	void *out[] = { &a.type, &a.host, &a.device, &a.ordinal };

	a.ret = p.cuPointerGetAttributes(4, which, out, (uintptr_t)at);
	return a;
}

static void attributes_of_held_memory_are_those_of_unpinned(void **state)
{
	char *at = program_map(BYTES);
	struct attributes before, after;
	unsigned type, flags;
	pn_cu_deviceptr device;
	int single, code;

	(void)state;
	program_fill(at, BYTES, 1);
	before = attributes_of(at + 5000);
	single = p.cuPointerGetAttribute(&type,
					 PN_CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
					 (uintptr_t)at);
	use_until_held(at, BYTES);
	after = attributes_of(at + 5000);
	assert_memory_equal(&before, &after, sizeof(before));
	code = p.cuPointerGetAttribute(&type,
				       PN_CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
				       (uintptr_t)at);
	assert_int_equal(code, single);
	assert_int_not_equal(p.cuMemHostGetFlags(&flags, at), 0);
	assert_int_not_equal(p.cuMemHostGetDevicePointer(&device, at, 0), 0);
	munmap(at, BYTES);
}

static void a_program_registers_what_pinion_holds(void **state)
{
	char *at = program_map(BYTES);
	unsigned flags;

	(void)state;
	program_fill(at, BYTES, 1);
	use_until_held(at, BYTES);
	assert_int_equal(p.cuMemHostUnregister(at),
			 PN_CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
	use_until_held(at, BYTES);
	assert_int_equal(p.cuMemHostRegister(at + MIB, 2 * MIB, 0), 0);
	assert_int_equal(p.cuMemHostGetFlags(&flags, at + MIB), 0);
	assert_int_equal(attributes_of(at + MIB).type, PN_CU_MEMORYTYPE_HOST);
	assert_int_equal(p.cuMemHostRegister(at + MIB, 2 * MIB, 0),
			 PN_CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
	/* The program's own registration is used as it is. */
	program_fill(at + MIB, 2 * MIB, 2);
	assert_int_equal(p.cuMemcpyHtoDAsync(there, at + MIB, 2 * MIB, stream),
			 0);
	assert_int_equal(p.cuStreamSynchronize(stream), 0);
	assert_int_equal(program_wrong_there(&p, there, 2 * MIB, 2), 0);
	assert_int_equal(p.cuMemHostUnregister(at + MIB), 0);
	assert_int_equal(p.cuMemHostUnregister(at + MIB),
			 PN_CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
	munmap(at, BYTES);
}

/* --- captures --------------------------------------------------------------
 */

static void a_capture_is_left_alone(void **state)
{
	char *at = program_map(BYTES), *pinned;
	pn_cu_graph graph = NULL;
	pn_cu_stream other;
	int status;

	(void)state;
	assert_int_equal(p.cuMemHostAlloc((void **)&pinned, MIB, 0), 0);
	assert_int_equal(p.cuStreamCreate(&other, 1), 0);
	program_fill(at, BYTES, 3);
	use_until_held(at, BYTES);
	assert_int_equal(p.cuMemcpyHtoD(there, at, BYTES), 0);
	assert_int_equal(p.cuStreamBeginCapture(other, 0), 0);
	assert_int_equal(held(), 0);
	memset(pinned, 7, MIB);
	assert_int_equal(p.cuMemcpyHtoDAsync(there, pinned, MIB, other), 0);
	/* A copy elsewhere does no harm. */
	assert_int_equal(p.cuMemcpyHtoDAsync(there + BYTES / 2, at, MIB,
					     stream),
			 0);
	assert_int_equal(p.cuStreamIsCapturing(other, &status), 0);
	assert_int_equal(status, PN_CU_STREAM_CAPTURE_STATUS_ACTIVE);
	assert_int_equal(held(), 0);
	assert_int_equal(p.cuStreamEndCapture(other, &graph), 0);
	assert_non_null(graph);
	assert_int_equal(p.cuGraphDestroy(graph), 0);
	assert_int_equal(p.cuCtxSynchronize(), 0);
	/* What was captured has not run. */
	assert_int_equal(program_wrong_there(&p, there, MIB, 3), 0);
	/* Afterwards everything is as before. */
	use_until_held(at, BYTES);
	assert_int_equal(p.cuStreamDestroy(other), 0);
	assert_int_equal(p.cuMemFreeHost(pinned), 0);
	munmap(at, BYTES);
}

/* --- processes and threads -------------------------------------------------
 */

#define THREADS 16

struct copier {
	pthread_t thread;
	uint64_t seed;
	unsigned errors;
};

static void *copies(void *arg)
{
	struct copier *me = arg;
	size_t bytes = 2 * MIB;
	char *at = program_map(bytes), *back = program_map(bytes);
	pn_cu_deviceptr mine;

	program_context(&p);
	me->errors += p.cuMemAlloc(&mine, bytes) != 0;
	for (unsigned i = 0; i < 20; i++) {
		size_t n = 1 + test_random(&me->seed) % bytes;
		uint64_t mark = test_random(&me->seed);

		program_fill(at, n, mark);
		me->errors += p.cuMemcpyHtoDAsync(mine, at, n, NULL) != 0;
		memset(at, 0xee, n);
		me->errors += p.cuMemcpyDtoHAsync(back, mine, n, NULL) != 0;
		me->errors += program_wrong(back, n, mark) != 0;
	}
	me->errors += p.cuMemFree(mine) != 0;
	munmap(at, bytes);
	munmap(back, bytes);
	return NULL;
}

static void sixteen_threads_copy_at_once(void **state)
{
	struct copier threads[THREADS];
	uint64_t seed = test_seed();
	unsigned errors = 0;

	(void)state;
	for (unsigned i = 0; i < THREADS; i++) {
		threads[i] = (struct copier){ .seed = test_random(&seed) };
		assert_ok(pthread_create(&threads[i].thread, NULL, copies,
					 &threads[i]));
	}
	for (unsigned i = 0; i < THREADS; i++) {
		assert_ok(pthread_join(threads[i].thread, NULL));
		errors += threads[i].errors;
	}
	assert_int_equal(errors, 0);
}

static void a_child_gets_the_drivers_error_and_the_parent_goes_on(void **state)
{
	char *at = program_map(BYTES);
	int status;
	pid_t child;

	(void)state;
	program_fill(at, BYTES, 1);
	use_until_held(at, BYTES);
	child = fork();
	if (!child)
		_exit(p.cuMemcpyHtoD(there, at, BYTES) &&
				      p.cuMemcpyHtoD(there, at, 4096)
			      ? 0
			      : 1);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	/* Pages that the parent writes now are new ones if the child had them
	 * too. */
	program_fill(at, BYTES, 2);
	assert_int_equal(p.cuMemcpyHtoD(there, at, BYTES), 0);
	assert_int_equal(program_wrong_there(&p, there, BYTES, 2), 0);
	munmap(at, BYTES);
}

static void a_reset_leaves_nothing_and_copies_go_on(void **state)
{
	char *at = program_map(BYTES);

	(void)state;
	program_fill(at, BYTES, 1);
	use_until_held(at, BYTES);
	assert_int_equal(p.cuDevicePrimaryCtxReset(0), 0);
	assert_int_equal(held(), 0);
	assert_int_equal(setup(state), 0);
	program_fill(at, BYTES, 2);
	assert_int_equal(p.cuMemcpyHtoD(there, at, BYTES), 0);
	assert_int_equal(program_wrong_there(&p, there, BYTES, 2), 0);
	use_until_held(at, BYTES);
	munmap(at, BYTES);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(functions_are_ours_however_they_are_found),
		TEST(dlsym_is_libcs_for_everything_else),
		TEST(unpinned_memory_is_done_with_on_return),
		TEST(memory_that_is_held_is_done_with_on_return),
		TEST(blocking_copies_have_ended_on_return),
		TEST(copies_of_pinned_memory_are_the_drivers),
		TEST(rows_arrive_with_and_without_gaps),
		TEST(errors_are_the_drivers),
		TEST(memory_of_another_gpu_is_copied),
		TEST(attributes_of_held_memory_are_those_of_unpinned),
		TEST(a_program_registers_what_pinion_holds),
		TEST(a_capture_is_left_alone),
		TEST(sixteen_threads_copy_at_once),
		TEST(a_child_gets_the_drivers_error_and_the_parent_goes_on),
		TEST(a_reset_leaves_nothing_and_copies_go_on),
	};

	program_open(&p, argc > 1 ? argv[1] : "address");
	return cmocka_run_group_tests(tests, setup, teardown);
}
