/* SPDX-License-Identifier: BSD-2-Clause */
/* What pinion relies on in a CUDA driver, and that the stand-in behaves so. The
 * same tests run on a real driver: they are the facts that the stand-in
 * assumes. */
#include <pthread.h>
#include <sys/wait.h>

#include "gpu_util.h"

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
	(void)state;
	cu->mem_free(there);
	return cu->primary_ctx_release(0);
}

static void bytes_go_there_and_back(void **state)
{
	char *at = gpu_map(BYTES), *back = gpu_map(BYTES);
	pn_cu_stream stream;

	(void)state;
	gpu_fill(at, BYTES, 1);
	assert_int_equal(cu->memcpy_htod(there, at, BYTES), 0);
	assert_int_equal(cu->memcpy_dtoh(back, there, BYTES), 0);
	assert_int_equal(gpu_wrong(back, BYTES, 1), 0);
	assert_int_equal(cu->mem_host_register(at, BYTES, 1), 0);
	assert_int_equal(cu->mem_host_register(back, BYTES, 1), 0);
	gpu_fill(at, BYTES, 2);
	assert_int_equal(cu->stream_create(&stream, PN_CU_STREAM_NON_BLOCKING),
			 0);
	assert_int_equal(cu->memcpy_htod_async(there, at, BYTES, stream), 0);
	assert_int_equal(cu->memcpy_dtoh_async(back, there, BYTES, stream), 0);
	assert_int_equal(cu->stream_synchronize(stream), 0);
	assert_int_equal(gpu_wrong(back, BYTES, 2), 0);
	assert_int_equal(cu->mem_host_unregister(at), 0);
	assert_int_equal(cu->mem_host_unregister(back), 0);
	assert_int_equal(cu->stream_destroy(stream), 0);
	munmap(at, BYTES);
	munmap(back, BYTES);
}

/* The reason for the rules of doc/design/cuda.md. */
static void a_stale_registration_delivers_old_bytes(void **state)
{
	char *at = gpu_map(BYTES);

	(void)state;
	gpu_fill(at, BYTES, 1);
	assert_int_equal(cu->mem_host_register(at, BYTES, 1), 0);
	munmap(at, BYTES);
	assert_ptr_equal(mmap(at, BYTES, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
			 at);
	gpu_fill(at, BYTES, 2);
	assert_int_equal(cu->memcpy_htod(there, at, BYTES), 0);
	assert_int_equal(gpu_wrong_there(cu, there, BYTES, 1), 0);
	assert_int_equal(cu->mem_host_register(at, BYTES, 1),
			 PN_CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
	assert_int_equal(cu->mem_host_unregister(at), 0);
	assert_int_equal(cu->memcpy_htod(there, at, BYTES), 0);
	assert_int_equal(gpu_wrong_there(cu, there, BYTES, 2), 0);
	munmap(at, BYTES);
}

static void overlapping_registrations_are_refused(void **state)
{
	char *at = gpu_map(BYTES);

	(void)state;
	memset(at, 1, BYTES);
	assert_int_equal(cu->mem_host_register(at + MIB, MIB, 1), 0);
	assert_int_equal(cu->mem_host_register(at, BYTES, 1), 712);
	assert_int_equal(cu->mem_host_register(at, 2 * MIB, 1), 712);
	assert_int_equal(cu->mem_host_register(at + MIB, MIB, 1), 712);
	assert_int_equal(cu->mem_host_register(at + 3 * MIB / 2, MIB, 1), 712);
	assert_int_equal(cu->mem_host_register(at, MIB, 1), 0);
	assert_int_equal(cu->mem_host_register(at + 2 * MIB, MIB, 1), 0);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(cu->mem_host_unregister(at + i * MIB), 0);
	assert_int_equal(cu->mem_host_unregister(at), 713);
	munmap(at, BYTES);
}

static void a_range_registered_in_part_cannot_be_copied(void **state)
{
	char *at = gpu_map(BYTES);

	(void)state;
	memset(at, 1, BYTES);
	assert_int_equal(cu->mem_host_register(at + MIB, MIB, 1), 0);
	/* It begins inside. */
	assert_int_equal(cu->memcpy_htod(there, at + MIB, 2 * MIB), 1);
	assert_int_equal(cu->memcpy_htod(there, at + MIB, MIB), 0);
	/* It begins before: as if nothing were registered. */
	gpu_fill(at, BYTES, 3);
	assert_int_equal(cu->memcpy_htod(there, at, BYTES), 0);
	assert_int_equal(gpu_wrong_there(cu, there, BYTES, 3), 0);
	/* Over two that touch. */
	assert_int_equal(cu->mem_host_register(at + 2 * MIB, MIB, 1), 0);
	assert_int_equal(cu->memcpy_htod(there, at + MIB, 2 * MIB), 1);
	assert_int_equal(cu->mem_host_unregister(at + MIB), 0);
	assert_int_equal(cu->mem_host_unregister(at + 2 * MIB), 0);
	munmap(at, BYTES);
}

/* Two registrations may share a page. */
static void registrations_have_bytes_not_pages(void **state)
{
	char *at = gpu_map(BYTES);
	unsigned type;

	(void)state;
	memset(at, 1, BYTES);
	assert_int_equal(cu->mem_host_register(at + 256, 1000, 1), 0);
	assert_int_equal(cu->mem_host_register(at + 1256, 4000, 1), 0);
	assert_int_equal(cu->pointer_get_attribute(
				 &type, PN_CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
				 (uintptr_t)at + 255),
			 1);
	assert_int_equal(cu->memcpy_htod(there, at, BYTES), 0);
	assert_int_equal(cu->mem_host_unregister(at + 256), 0);
	assert_int_equal(cu->mem_host_unregister(at + 1256), 0);
	munmap(at, BYTES);
}

static void attributes_tell_registered_memory(void **state)
{
	char *at = gpu_map(BYTES);
	pn_cu_deviceptr p = (uintptr_t)at;
	unsigned type = 0, flags = 0;
	size_t size = 0;

	(void)state;
	memset(at, 1, BYTES);
	assert_int_equal(cu->pointer_get_attribute(
				 &type, PN_CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p),
			 1);
	assert_int_equal(cu->mem_host_register(at, 2 * MIB, 1), 0);
	assert_int_equal(cu->pointer_get_attribute(
				 &type, PN_CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
				 p + MIB),
			 0);
	assert_int_equal(type, PN_CU_MEMORYTYPE_HOST);
	assert_int_equal(cu->pointer_get_attribute(
				 &size, PN_CU_POINTER_ATTRIBUTE_RANGE_SIZE, p),
			 0);
	assert_int_equal(size, 2 * MIB);
	assert_int_equal(cu->mem_host_get_flags(&flags, at), 0);
	assert_true(flags & PN_CU_MEMHOSTREGISTER_PORTABLE);
	assert_int_equal(cu->pointer_get_attribute(
				 &type, PN_CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
				 there),
			 0);
	assert_int_equal(type, PN_CU_MEMORYTYPE_DEVICE);
	assert_int_equal(cu->mem_host_unregister(at), 0);
	munmap(at, BYTES);
}

/* The copy of the pageable one has read its source; that of the registered one
 * reads when its turn comes. */
static void registered_sources_are_read_late(void **state)
{
	struct standin s = standin_or_skip();
	char *at = gpu_map(2 * MIB);
	pn_cu_stream stream;

	(void)state;
	assert_ok(s.set("late_us=20000"));
	assert_int_equal(cu->stream_create(&stream, PN_CU_STREAM_NON_BLOCKING),
			 0);
	gpu_fill(at, 2 * MIB, 1);
	assert_int_equal(cu->memcpy_htod_async(there, at, MIB, stream), 0);
	gpu_fill(at, 2 * MIB, 2);
	assert_int_equal(cu->stream_synchronize(stream), 0);
	assert_int_equal(gpu_wrong_there(cu, there, MIB, 1), 0);
	assert_int_equal(cu->mem_host_register(at, 2 * MIB, 1), 0);
	assert_int_equal(cu->memcpy_htod_async(there, at, MIB, stream), 0);
	gpu_fill(at, 2 * MIB, 3);
	assert_int_equal(cu->stream_synchronize(stream), 0);
	assert_int_equal(gpu_wrong_there(cu, there, MIB, 3), 0);
	assert_ok(s.set("late_us=200"));
	assert_int_equal(cu->mem_host_unregister(at), 0);
	assert_int_equal(cu->stream_destroy(stream), 0);
	munmap(at, 2 * MIB);
}

static void set_flag(void *arg)
{
	usleep(20000);
	__atomic_store_n((int *)arg, 1, __ATOMIC_RELEASE);
}

static void the_legacy_stream_waits_for_blocking_ones(void **state)
{
	pn_cu_stream blocking, other;
	int done = 0, other_done = 0;
	char byte = 7;

	(void)state;
	assert_int_equal(cu->stream_create(&blocking, 0), 0);
	assert_int_equal(cu->stream_create(&other, PN_CU_STREAM_NON_BLOCKING),
			 0);
	assert_int_equal(cu->launch_host_func(blocking, set_flag, &done), 0);
	assert_int_equal(cu->memcpy_htod(there, &byte, 1), 0);
	assert_int_equal(__atomic_load_n(&done, __ATOMIC_ACQUIRE), 1);
	assert_int_equal(cu->launch_host_func(other, set_flag, &other_done), 0);
	assert_int_equal(cu->stream_query(NULL), 0);
	assert_int_equal(cu->stream_query(other), PN_CUDA_ERROR_NOT_READY);
	assert_int_equal(cu->stream_synchronize(other), 0);
	assert_int_equal(cu->stream_destroy(blocking), 0);
	assert_int_equal(cu->stream_destroy(other), 0);
}

static void events_and_values_order_streams(void **state)
{
	pn_cu_stream a, b;
	pn_cu_event event;
	uint32_t *word;
	int done = 0;

	(void)state;
	assert_int_equal(cu->stream_create(&a, PN_CU_STREAM_NON_BLOCKING), 0);
	assert_int_equal(cu->stream_create(&b, PN_CU_STREAM_NON_BLOCKING), 0);
	assert_int_equal(cu->event_create(&event, PN_CU_EVENT_DISABLE_TIMING),
			 0);
	assert_int_equal(cu->launch_host_func(a, set_flag, &done), 0);
	assert_int_equal(cu->event_record(event, a), 0);
	assert_int_equal(cu->event_query(event), PN_CUDA_ERROR_NOT_READY);
	assert_int_equal(cu->stream_wait_event(b, event, 0), 0);
	assert_int_equal(cu->stream_synchronize(b), 0);
	assert_int_equal(__atomic_load_n(&done, __ATOMIC_ACQUIRE), 1);
	assert_int_equal(cu->event_query(event), 0);
	assert_int_equal(cu->mem_host_alloc((void **)&word, 4096, 1), 0);
	*word = 0;
	assert_int_equal(cu->stream_wait_value32(b, (uintptr_t)word, 3,
						 PN_CU_STREAM_WAIT_VALUE_GEQ),
			 0);
	assert_int_equal(cu->stream_query(b), PN_CUDA_ERROR_NOT_READY);
	__atomic_store_n(word, 3, __ATOMIC_RELEASE);
	assert_int_equal(cu->stream_synchronize(b), 0);
	assert_int_equal(cu->mem_free_host(word), 0);
	assert_int_equal(cu->event_destroy(event), 0);
	assert_int_equal(cu->stream_destroy(a), 0);
	assert_int_equal(cu->stream_destroy(b), 0);
}

static pn_cu_result (*begin_capture)(pn_cu_stream, int);
static pn_cu_result (*end_capture)(pn_cu_stream, pn_cu_graph *);
static pn_cu_result (*destroy_graph)(pn_cu_graph);

static void find_captures(void)
{
	*(void **)&begin_capture =
		dlsym(cu->library, "cuStreamBeginCapture_v2");
	*(void **)&end_capture = dlsym(cu->library, "cuStreamEndCapture");
	*(void **)&destroy_graph = dlsym(cu->library, "cuGraphDestroy");
	assert_non_null(begin_capture);
	assert_non_null(end_capture);
	assert_non_null(destroy_graph);
}

static void a_global_capture_forbids_unsafe_calls(void **state)
{
	int mode = PN_CU_STREAM_CAPTURE_MODE_RELAXED, status;
	char *at = gpu_map(MIB);
	pn_cu_deviceptr more;
	pn_cu_stream stream;
	pn_cu_graph graph;

	(void)state;
	find_captures();
	memset(at, 1, MIB);
	assert_int_equal(cu->stream_create(&stream, 0), 0);
	assert_int_equal(begin_capture(stream,
				       PN_CU_STREAM_CAPTURE_MODE_GLOBAL),
			 0);
	assert_int_equal(cu->stream_is_capturing(stream, &status), 0);
	assert_int_equal(status, PN_CU_STREAM_CAPTURE_STATUS_ACTIVE);
	/* In relaxed mode it is allowed. */
	assert_int_equal(cu->exchange_capture_mode(&mode), 0);
	assert_int_equal(cu->mem_host_register(at, MIB, 1), 0);
	assert_int_equal(cu->mem_host_unregister(at), 0);
	assert_int_equal(cu->exchange_capture_mode(&mode), 0);
	assert_int_equal(end_capture(stream, &graph), 0);
	assert_int_equal(destroy_graph(graph), 0);
	assert_int_equal(begin_capture(stream,
				       PN_CU_STREAM_CAPTURE_MODE_GLOBAL),
			 0);
	assert_int_equal(cu->mem_alloc(&more, MIB), 900);
	assert_int_equal(end_capture(stream, &graph), 901);
	assert_int_equal(cu->stream_destroy(stream), 0);
	munmap(at, MIB);
}

/* Contexts are per thread: another thread has none until it sets one. */
static void *look_for_context(void *arg)
{
	pn_cu_context *out = arg;
	pn_cu_deviceptr at;

	cu->ctx_get_current(out);
	return (void *)(intptr_t)cu->mem_alloc(&at, MIB);
}

static void a_thread_has_no_context_at_first(void **state)
{
	pn_cu_context found = (void *)1, mine, popped;
	pthread_t thread;
	void *result;

	(void)state;
	assert_int_equal(cu->ctx_get_current(&mine), 0);
	assert_int_equal(pthread_create(&thread, NULL, look_for_context,
					&found),
			 0);
	pthread_join(thread, &result);
	assert_null(found);
	assert_int_equal((intptr_t)result, PN_CUDA_ERROR_INVALID_CONTEXT);
	assert_int_equal(cu->ctx_push_current(mine), 0);
	assert_int_equal(cu->ctx_pop_current(&popped), 0);
	assert_ptr_equal(popped, mine);
}

static void a_child_has_no_driver(void **state)
{
	const struct pn_cuda_driver *driver;
	const char *reason = "";
	int status;
	pid_t child = fork();

	(void)state;
	if (!child)
		_exit(pn_cuda_driver_init(&driver, &reason) == -ENODEV &&
				      strstr(reason, "child")
			      ? 0
			      : 1);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

static void failures_come_on_demand(void **state)
{
	struct standin s = standin_or_skip();
	char *at = gpu_map(MIB);
	uint64_t before = s.calls("cuMemHostRegister_v2");

	(void)state;
	assert_ok(s.set("fail=cuMemHostRegister_v2/2/2"));
	assert_int_equal(cu->mem_host_register(at, MIB, 1), 0);
	assert_int_equal(cu->mem_host_unregister(at), 0);
	assert_int_equal(cu->mem_host_register(at, MIB, 1), 2);
	assert_int_equal(cu->mem_host_register(at, MIB, 1), 0);
	assert_int_equal(cu->mem_host_unregister(at), 0);
	assert_int_equal(s.calls("cuMemHostRegister_v2") - before, 3);
	assert_ok(s.set("fail=none"));
	assert_int_not_equal(s.set("nonsense=1"), 0);
	munmap(at, MIB);
}

static void unregistering_under_a_copy_is_a_fault(void **state)
{
	struct standin s = standin_or_skip();
	uint64_t faults = s.get("faults");
	char *at = gpu_map(MIB);
	pn_cu_stream stream;

	(void)state;
	memset(at, 1, MIB);
	assert_ok(s.set("late_us=20000"));
	assert_int_equal(cu->stream_create(&stream, PN_CU_STREAM_NON_BLOCKING),
			 0);
	assert_int_equal(cu->mem_host_register(at, MIB, 1), 0);
	assert_int_equal(cu->memcpy_htod_async(there, at, MIB, stream), 0);
	assert_int_equal(cu->mem_host_unregister(at), 0);
	assert_int_equal(cu->stream_synchronize(stream), 700);
	assert_int_equal(s.get("faults"), faults + 1);
	assert_ok(s.set("late_us=200"));
	assert_int_equal(cu->stream_destroy(stream), 0);
	munmap(at, MIB);
}

static void names_have_functions(void **state)
{
	void *at = NULL;
	int status = -1;

	(void)state;
	assert_int_equal(cu->get_proc_address_v2("cuMemcpyHtoDAsync", &at,
						 12000, 0, &status),
			 0);
	assert_int_equal(status, PN_CU_GET_PROC_ADDRESS_SUCCESS);
	assert_ptr_equal(at, (void *)cu->memcpy_htod_async);
	assert_string_equal(pn_cuda_error_name(cu, 712),
			    "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(bytes_go_there_and_back),
		TEST(a_stale_registration_delivers_old_bytes),
		TEST(overlapping_registrations_are_refused),
		TEST(a_range_registered_in_part_cannot_be_copied),
		TEST(registrations_have_bytes_not_pages),
		TEST(attributes_tell_registered_memory),
		TEST(registered_sources_are_read_late),
		TEST(the_legacy_stream_waits_for_blocking_ones),
		TEST(events_and_values_order_streams),
		TEST(a_global_capture_forbids_unsafe_calls),
		TEST(a_thread_has_no_context_at_first),
		TEST(a_child_has_no_driver),
		TEST(failures_come_on_demand),
		TEST(unregistering_under_a_copy_is_a_fault),
		TEST(names_have_functions),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
