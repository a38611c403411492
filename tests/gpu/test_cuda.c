/* SPDX-License-Identifier: BSD-2-Clause */
/* The device `cuda` behind device.h, and cache, heap and budget on it. Runs on
 * the stand-in, and on a GPU. */
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#include <pinion/pinion.h>

#include "base/clock.h"
#include "context.h"
#include "device/blocking.h"
#include "device/cuda/blocks.h"
#include "device/cuda/cuda.h"
#include "device/cuda/gate.h"
#include "device/measure.h"
#include "gpu_util.h"
#include "pinned_pages.h"

#define MIB   ((size_t)1 << 20)
#define PAGE  ((size_t)4096)
#define BYTES (4 * MIB)

static const struct pn_cuda_driver *cu;
static struct pn_device *device;
static struct pn_peer *peer;
static uint64_t there, rkey;

static int open_device(void **state)
{
	struct pn_address address;

	(void)state;
	cu = gpu_driver();
	if (pn_device_open("cuda", NULL, &device))
		return -1;
	pn_device_address(device, &address);
	return pn_device_attach(device, &address, &peer) ||
	       device->ops->scratch(device, BYTES, &there, &rkey);
}

static int close_device(void **state)
{
	struct standin s;

	(void)state;
	device->ops->scratch_free(device, there);
	pn_device_close(device);
	/* Nothing is left. */
	if (gpu_standin(&s) &&
	    (s.get("registrations") || s.get("allocations") || s.get("faults")))
		return -1;
	return pn_cuda_gate_held_pages() ? -1 : 0;
}

static struct pn_mr reg_ok(void *at, size_t bytes)
{
	struct pn_mr mr = { .addr = at,
			    .len = bytes,
			    .access = PINION_ACCESS_LOCAL_WRITE },
		     *one = &mr;

	assert_ok(pn_device_register(device, &one, 1));
	assert_int_not_equal(mr.lkey, 0);
	return mr;
}

static int try_reg(void *at, size_t bytes)
{
	struct pn_mr mr = { .addr = at, .len = bytes }, *one = &mr;
	int ret = pn_device_register(device, &one, 1);

	if (!ret)
		pn_device_deregister(device, &one, 1);
	return ret;
}

static void dereg(struct pn_mr *mr)
{
	pn_device_deregister(device, &mr, 1);
}

static int move(enum pn_op_kind kind, const struct pn_mr *mr, size_t offset,
		size_t len)
{
	struct pn_blocking_transfer transfer = { .kind = kind,
						 .peer = peer,
						 .local = (char *)mr->addr +
							  offset,
						 .lkey = mr->lkey,
						 .remote_addr = there + offset,
						 .rkey = rkey,
						 .len = len };

	return pn_blocking_transfer(device, &transfer);
}

static bool is_registered(const void *at)
{
	unsigned type = 0;
	struct pn_cuda_scope scope;
	bool known;

	assert_ok(pn_cuda_enter(device, &scope));
	known = !cu->pointer_get_attribute(&type,
					   PN_CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
					   (uintptr_t)at);
	pn_cuda_leave(device, &scope);
	return known;
}

/* --- moving bytes ----------------------------------------------------------
 */

static void bytes_go_there_and_back(void **state)
{
	char *at = gpu_map(BYTES), *back = gpu_map(BYTES);
	struct pn_mr a, b;

	(void)state;
	a = reg_ok(at, BYTES);
	b = reg_ok(back, BYTES);
	gpu_fill(at, BYTES, 7);
	assert_ok(move(PN_OP_WRITE, &a, 0, BYTES));
	assert_ok(move(PN_OP_READ, &b, 0, BYTES));
	assert_int_equal(gpu_wrong(back, BYTES, 7), 0);
	dereg(&a);
	dereg(&b);
	munmap(at, BYTES);
	munmap(back, BYTES);
}

static void operations_end_in_order(void **state)
{
	char *at = gpu_map(BYTES);
	struct pn_mr mr = reg_ok(at, BYTES);
	struct pn_sge sge = { at, 4096, mr.lkey };
	struct pn_op op = { .kind = PN_OP_WRITE,
			    .sge = &sge,
			    .nsge = 1,
			    .remote_addr = there,
			    .rkey = rkey };
	struct pn_completion c;

	(void)state;
	for (uintptr_t i = 1; i <= 20; i++) {
		op.user = (void *)i;
		op.flags = i % 3 ? 0 : PN_OP_SILENT;
		op.kind = i % 2 ? PN_OP_WRITE : PN_OP_READ;
		assert_ok(pn_blocking_post(device, peer, &op));
		/* The rest of blocking_post() may have polled nothing. */
	}
	for (uintptr_t i = 1; i <= 20; i++) {
		if (i % 3 == 0)
			continue;
		while (pn_device_poll(device, &c, 1) != 1)
			assert_ok(pn_device_wait(device, PN_FOREVER));
		if (c.kind == PN_COMPLETION_PEER_UP) {
			i--;
			continue;
		}
		assert_int_equal(c.kind, PN_COMPLETION_OP);
		assert_int_equal((uintptr_t)c.user, i);
		assert_int_equal(c.status, 0);
	}
	dereg(&mr);
	munmap(at, BYTES);
}

static void bad_operations_are_refused(void **state)
{
	char *at = gpu_map(BYTES);
	struct pn_mr mr = reg_ok(at, MIB);
	struct pn_sge sge = { at, MIB, mr.lkey };
	struct pn_op op = { .kind = PN_OP_WRITE,
			    .sge = &sge,
			    .nsge = 1,
			    .remote_addr = there,
			    .rkey = rkey };
	struct pn_completion c;
	int ret;

	(void)state;
	op.rkey = rkey + 1;
	assert_int_equal(pn_device_post(device, peer, &op), -EACCES);
	op.rkey = rkey;
	sge.len = MIB + 1;
	assert_int_equal(pn_device_post(device, peer, &op), -EFAULT);
	sge.len = MIB;
	sge.lkey++;
	assert_int_equal(pn_device_post(device, peer, &op), -EFAULT);
	sge.lkey = mr.lkey;
	op.remote_addr = there + BYTES - 1; /* beyond the allocation */
	ret = pn_device_post(device, peer, &op);
	if (!ret)
		ret = pn_blocking_poll(device, PN_COMPLETION_OP, &c);
	assert_int_equal(ret, -EACCES);
	op.remote_addr = there;
	op.kind = PN_OP_SEND;
	assert_int_equal(pn_device_post(device, peer, &op), -EOPNOTSUPP);
	op.kind = PN_OP_FETCH_ADD;
	assert_int_equal(pn_device_post(device, peer, &op), -EINVAL);
	op.kind = PN_OP_WRITE;
	dereg(&mr);
	assert_int_equal(pn_device_post(device, peer, &op), -EFAULT);
	munmap(at, BYTES);
}

static void a_queue_that_is_full_says_so(void **state)
{
	char *at = gpu_map(BYTES);
	struct pn_mr mr = reg_ok(at, BYTES);
	struct pn_sge sge = { at, BYTES, mr.lkey };
	struct pn_op op = { .kind = PN_OP_WRITE,
			    .sge = &sge,
			    .nsge = 1,
			    .remote_addr = there,
			    .rkey = rkey };
	struct pn_completion c;
	unsigned posted = 0, ended = 0;
	int ret = 0;

	(void)state;
	while (!ret && posted < 1000)
		if (!(ret = pn_device_post(device, peer, &op)))
			posted++;
	assert_int_equal(ret, -EAGAIN);
	assert_int_equal(posted, device->limits.queue_depth);
	/* Memory of operations in flight: they end first. */
	dereg(&mr);
	while (ended < posted) {
		if (pn_device_poll(device, &c, 1) == 1)
			ended += c.kind == PN_COMPLETION_OP && !c.status;
		else
			assert_ok(pn_device_wait(device, PN_FOREVER));
	}
	munmap(at, BYTES);
}

static void *wake_soon(void *arg)
{
	(void)arg;
	usleep(20000);
	pn_device_wake(device);
	return NULL;
}

static void a_wait_ends_by_wake_or_deadline(void **state)
{
	struct pn_completion c;
	pthread_t thread;

	(void)state;
	while (pn_device_poll(device, &c, 1))
		;
	assert_int_equal(pn_device_wait(device, pn_device_now(device) +
							5 * PN_NS_PER_MS),
			 -ETIMEDOUT);
	assert_int_equal(pthread_create(&thread, NULL, wake_soon, NULL), 0);
	assert_ok(pn_device_wait(device, PN_FOREVER));
	pthread_join(thread, NULL);
}

/* --- registrations ---------------------------------------------------------
 */

/* The driver refuses to register a byte twice; the device shares. */
/* Other processes pin memory, too, so the kernel counts at least ours, and
 * sometimes ours alone. A stand-in that stops pinning, or a driver whose pages
 * the kernel does not see, is never equal. */
#define ATTEMPTS 200

/* Pages that the kernel counted beside ours while BYTES were registered;
 * negative: less than ours. */
static int64_t acquired_beside(char *at, struct pn_mr *mr)
{
	struct pinned_pages before, after;

	assert_true(pinned_pages_read(&before));
	*mr = reg_ok(at, BYTES);
	assert_true(pinned_pages_read(&after));
	return (int64_t)(after.acquired - before.acquired) -
	       (int64_t)(BYTES / PAGE);
}

/* The same while they were deregistered. Old kernels release a buffer of an
 * io_uring, as the stand-in has them, about a second late. */
static int64_t released_beside(struct pn_mr *mr, int64_t slack)
{
	uint64_t end = pn_clock_ns() + 60 * PN_NS_PER_S;
	struct pinned_pages before, after;
	int64_t beside;

	assert_true(pinned_pages_read(&before));
	dereg(mr);
	do {
		assert_true(pinned_pages_read(&after));
		beside = (int64_t)(after.released - before.released) -
			 (int64_t)(BYTES / PAGE);
	} while (beside < -slack && pn_clock_ns() < end);
	return beside;
}

static void the_kernel_counts_the_pages_that_we_register(void **state)
{
	int64_t slack, acquired = INT64_MAX, released = INT64_MAX, n;
	struct pinned_pages now;
	struct pn_mr mr;
	char *at;

	(void)state;
	if (!pinned_pages_read(&now)) {
		print_message("no nr_foll_pin_acquired in /proc/vmstat\n");
		skip();
	}
	slack = (int64_t)pinned_pages_slack();
	at = gpu_map(BYTES);
	/* Of a huge page an io_uring keeps one page pinned. */
	madvise(at, BYTES, MADV_NOHUGEPAGE);
	memset(at, 1, BYTES);
	for (unsigned i = 0;
	     i < ATTEMPTS && (acquired > slack || released > slack); i++) {
		n = acquired_beside(at, &mr);
		assert_true(n >= -slack);
		acquired = n < acquired ? n : acquired;
		n = released_beside(&mr, slack);
		assert_true(n >= -slack);
		released = n < released ? n : released;
	}
	printf("pages beside ours: %lld acquired, %lld released\n",
	       (long long)acquired, (long long)released);
	assert_true(acquired <= slack);
	assert_true(released <= slack);
	munmap(at, BYTES);
}

static void overlapping_registrations_share(void **state)
{
	char *at = gpu_map(BYTES);
	struct pn_mr a, b, c;

	(void)state;
	gpu_fill(at, BYTES, 9);
	a = reg_ok(at, 2 * MIB);
	b = reg_ok(at + MIB, 3 * MIB);
	c = reg_ok(at, BYTES);
	dereg(&a);
	assert_true(is_registered(at));
	assert_ok(move(PN_OP_WRITE, &c, 0, BYTES));
	dereg(&c);
	assert_true(is_registered(at + MIB));
	dereg(&b);
	assert_false(is_registered(at));
	assert_false(is_registered(at + MIB));
	assert_false(is_registered(at + 3 * MIB));
	munmap(at, BYTES);
}

/* The program's copies of the memory beside are not concerned. */
static void exactly_the_bytes_are_registered(void **state)
{
	char *at = gpu_map(BYTES);
	struct pn_mr a, b;

	(void)state;
	memset(at, 1, BYTES);
	a = reg_ok(at + 100, 5000);
	b = reg_ok(at + 5200, 100);
	assert_false(is_registered(at + 99));
	assert_true(is_registered(at + 100));
	assert_true(is_registered(at + 5099));
	assert_false(is_registered(at + 5100));
	dereg(&a);
	assert_true(is_registered(at + 5200));
	dereg(&b);
	munmap(at, BYTES);
}

#define LONG_BYTES (5 * PN_CUDA_BLOCK_BYTES / 2)

static void long_registrations_are_divided_if_allowed(void **state)
{
	struct standin s = standin_or_skip();
	char *at = gpu_map(LONG_BYTES);
	/* Around the end of a block. */
	char *middle = (char *)(((uintptr_t)at + PN_CUDA_BLOCK_BYTES) &
				~(PN_CUDA_BLOCK_BYTES - 1)) -
		       MIB;
	struct pn_mr mr;
	uint64_t before;

	(void)state;
	before = s.calls("cuMemHostRegister_v2");
	mr = reg_ok(at, LONG_BYTES);
	assert_int_equal(s.calls("cuMemHostRegister_v2") - before, 1);
	dereg(&mr);
	device->divides = true;
	before = s.calls("cuMemHostRegister_v2");
	mr = reg_ok(at, LONG_BYTES);
	assert_in_range(s.calls("cuMemHostRegister_v2") - before, 3, 4);
	middle = middle < at ? at : middle;
	gpu_fill(middle, 2 * MIB, 3);
	assert_ok(pn_blocking_transfer(device, &(struct pn_blocking_transfer){
						       .kind = PN_OP_WRITE,
						       .peer = peer,
						       .local = middle,
						       .lkey = mr.lkey,
						       .remote_addr = there,
						       .rkey = rkey,
						       .len = 2 * MIB }));
	dereg(&mr);
	device->divides = false;
	assert_int_equal(s.get("registrations"), 0);
	munmap(at, LONG_BYTES);
}

static void what_cannot_be_registered_is_refused(void **state)
{
	char *at = gpu_map(BYTES);

	(void)state;
	munmap(at + MIB, MIB);
	assert_int_equal(try_reg(at + MIB, MIB), -EFAULT);
	assert_int_equal(try_reg(at, 2 * MIB), -EFAULT);
	assert_int_equal(try_reg(at, 0), -EINVAL);
	assert_int_equal(try_reg((void *)(uintptr_t)there, MIB), -EFAULT);
	assert_ok(try_reg(at + 2 * MIB, MIB));
	munmap(at, MIB);
	munmap(at + 2 * MIB, 2 * MIB);
}

static void a_batch_is_registered_whole_or_not(void **state)
{
	char *at = gpu_map(BYTES);
	struct pn_mr a = { .addr = at, .len = MIB };
	struct pn_mr b = { .addr = at + 2 * MIB, .len = MIB };
	struct pn_mr *both[] = { &a, &b };

	(void)state;
	munmap(at + 2 * MIB, MIB);
	assert_int_equal(pn_device_register(device, both, 2), -EFAULT);
	assert_false(is_registered(at));
	munmap(at, 2 * MIB);
	munmap(at + 3 * MIB, MIB);
}

/* --- registrations of the program ------------------------------------------
 */

static void registrations_of_the_program_are_left_alone(void **state)
{
	char *at = gpu_map(BYTES);
	struct pn_cuda_scope scope;
	struct pn_mr mr;

	(void)state;
	gpu_fill(at, BYTES, 4);
	assert_ok(pn_cuda_enter(device, &scope));
	assert_int_equal(cu->mem_host_register(at + MIB, MIB, 1), 0);
	pn_cuda_leave(device, &scope);
	mr = reg_ok(at, BYTES);
	assert_true(is_registered(at));
	assert_true(is_registered(at + 3 * MIB));
	assert_ok(move(PN_OP_WRITE, &mr, 0, BYTES));
	dereg(&mr);
	assert_false(is_registered(at));
	assert_true(is_registered(at + MIB));
	assert_ok(pn_cuda_enter(device, &scope));
	assert_int_equal(gpu_wrong_there(cu, there, BYTES, 4), 0);
	assert_int_equal(cu->mem_host_unregister(at + MIB), 0);
	pn_cuda_leave(device, &scope);
	munmap(at, BYTES);
}

/* --- staleness -------------------------------------------------------------
 */

static void released_memory_is_not_shared(void **state)
{
	char *at = gpu_map(MIB);
	struct pn_mr old;

	(void)state;
	gpu_fill(at, MIB, 1);
	old = reg_ok(at, MIB);
	assert_ptr_equal(mmap(at, MIB, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
			 at);
	gpu_fill(at, MIB, 2);
	pn_device_released(device, (uintptr_t)at, MIB);
	assert_int_equal(try_reg(at, MIB), -EBUSY);
	dereg(&old);
	old = reg_ok(at, MIB);
	assert_ok(move(PN_OP_WRITE, &old, 0, MIB));
	{
		struct pn_cuda_scope scope;

		assert_ok(pn_cuda_enter(device, &scope));
		assert_int_equal(gpu_wrong_there(cu, there, MIB, 2), 0);
		pn_cuda_leave(device, &scope);
	}
	dereg(&old);
	munmap(at, MIB);
}

/* --- contexts ---------------------------------------------------------------
 */

static void the_callers_context_is_used_and_restored(void **state)
{
	pn_cu_context before, after;
	struct pn_device *other;
	char *at = gpu_map(MIB);

	(void)state;
	assert_int_equal(cu->ctx_get_current(&before), 0);
	assert_ok(try_reg(at, MIB));
	assert_int_equal(cu->ctx_get_current(&after), 0);
	assert_ptr_equal(before, after);
	assert_int_equal(cu->ctx_push_current(pn_cuda_context_of(device)), 0);
	assert_ok(pn_device_open("cuda", NULL, &other));
	assert_ptr_equal(pn_cuda_context_of(other), pn_cuda_context_of(device));
	pn_device_close(other);
	assert_int_equal(cu->ctx_pop_current(&after), 0);
	assert_int_equal(pn_device_open("cuda:99", NULL, &other), -ENODEV);
	assert_int_equal(pn_device_open("cuda:x", NULL, &other), -EINVAL);
	munmap(at, MIB);
}

static void a_global_capture_survives_registering(void **state)
{
	pn_cu_result (*begin)(pn_cu_stream, int);
	pn_cu_result (*end)(pn_cu_stream, pn_cu_graph *);
	pn_cu_result (*destroy)(pn_cu_graph);
	struct pn_cuda_scope scope;
	char *at = gpu_map(MIB);
	pn_cu_stream stream;
	pn_cu_graph graph;
	struct pn_mr mr;

	(void)state;
	*(void **)&begin = dlsym(cu->library, "cuStreamBeginCapture_v2");
	*(void **)&end = dlsym(cu->library, "cuStreamEndCapture");
	*(void **)&destroy = dlsym(cu->library, "cuGraphDestroy");
	assert_ok(pn_cuda_enter(device, &scope));
	assert_int_equal(cu->stream_create(&stream, 0), 0);
	assert_int_equal(begin(stream, PN_CU_STREAM_CAPTURE_MODE_GLOBAL), 0);
	pn_cuda_leave(device, &scope);
	mr = reg_ok(at, MIB);
	assert_ok(move(PN_OP_WRITE, &mr, 0, MIB));
	dereg(&mr);
	assert_ok(pn_cuda_enter(device, &scope));
	assert_int_equal(end(stream, &graph), 0);
	assert_int_equal(destroy(graph), 0);
	assert_int_equal(cu->stream_destroy(stream), 0);
	pn_cuda_leave(device, &scope);
	munmap(at, MIB);
}

static void failures_of_the_driver_become_errors(void **state)
{
	struct standin s = standin_or_skip();
	char *at = gpu_map(BYTES);
	struct pn_mr mr;

	(void)state;
	assert_ok(s.set("fail=cuMemHostRegister_v2/1/2"));
	assert_int_equal(try_reg(at, MIB), -ENOMEM);
	assert_ok(s.set("fail=cuMemHostRegister_v2/1/999"));
	assert_int_equal(try_reg(at, MIB), -EFAULT);
	/* The second block of a divided one: the first is given back. */
	device->divides = true;
	assert_ok(s.set("fail=none"));
	assert_ok(s.set("fail=cuMemHostRegister_v2/2/2"));
	{
		char *more = gpu_map(LONG_BYTES);

		assert_int_equal(try_reg(more, LONG_BYTES), -ENOMEM);
		munmap(more, LONG_BYTES);
	}
	device->divides = false;
	assert_int_equal(s.get("registrations"), 0);
	assert_ok(s.set("fail=none"));
	mr = reg_ok(at, BYTES);
	assert_ok(s.set("fail=cuMemcpyHtoDAsync_v2/1/2"));
	assert_int_equal(move(PN_OP_WRITE, &mr, 0, BYTES), -ENOMEM);
	assert_ok(s.set("fail=none"));
	assert_ok(move(PN_OP_WRITE, &mr, 0, BYTES));
	dereg(&mr);
	munmap(at, BYTES);
}

/* The driver refuses the first of two for ever. */
static void a_block_that_never_ends_keeps_no_other(void **state)
{
	struct standin s = standin_or_skip();
	struct pn_mr first, second, *mr;
	char *at = gpu_map(BYTES);

	(void)state;
	first = reg_ok(at, MIB);
	second = reg_ok(at + 2 * MIB, MIB);
	assert_ok(s.set("fail=cuMemHostUnregister/0/999"));
	mr = &second;
	pn_device_deregister(device, &mr, 1);
	mr = &first;
	pn_device_deregister(device, &mr, 1);
	assert_true(pn_device_still_registered(device, &first));
	assert_true(pn_device_still_registered(device, &second));
	assert_ok(s.set("fail=none"));
	assert_ok(s.set("fail=cuMemHostUnregister/1/999"));
	mr = &second;
	pn_device_deregister(device, &mr, 1);
	assert_false(pn_device_still_registered(device, &second));
	assert_int_equal(s.get("registrations"), 1);
	assert_ok(s.set("fail=none"));
	mr = &first;
	pn_device_deregister(device, &mr, 1);
	assert_false(pn_device_still_registered(device, &first));
	assert_int_equal(s.get("registrations"), 0);
	munmap(at, BYTES);
}

static void costs_are_measured(void **state)
{
	struct pn_measure_regressions fits;

	(void)state;
	assert_ok(pn_device_measure(device, &fits));
	assert_true(device->costs.register_ns + device->costs.register_page_ns >
		    0);
	assert_true(device->costs.put_ns + device->costs.put_byte_ns > 0);
	assert_true(device->costs.get_ns + device->costs.get_byte_ns > 0);
	assert_int_equal(fits.max_pages, 1024);
}

/* --- threads ----------------------------------------------------------------
 */

#define NTHREADS 8

static char *shared_buffer;
static _Atomic unsigned nerrors;

static void *register_often(void *arg)
{
	uint64_t random = (uintptr_t)arg + 1;

	for (unsigned i = 0; i < 50; i++) {
		size_t at = test_below(&random, 8 * MIB);
		size_t len = 1 + test_below(&random, 8 * MIB - at);
		struct pn_mr mr = { .addr = shared_buffer + at, .len = len };
		struct pn_mr *one = &mr;
		struct pn_cuda_scope scope;
		pn_cu_deviceptr to = there;
		size_t n = len < 4096 ? len : 4096;

		if (pn_device_register(device, &one, 1)) {
			nerrors++;
			continue;
		}
		if (pn_cuda_enter(device, &scope) ||
		    cu->memcpy_htod(to, mr.addr, 1) || n == 0)
			nerrors++;
		pn_cuda_leave(device, &scope);
		pn_device_deregister(device, &one, 1);
	}
	return NULL;
}

static void threads_register_overlapping_ranges(void **state)
{
	pthread_t threads[NTHREADS];

	(void)state;
	shared_buffer = gpu_map(8 * MIB);
	nerrors = 0;
	for (uintptr_t i = 0; i < NTHREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL,
						register_often, (void *)i),
				 0);
	for (unsigned i = 0; i < NTHREADS; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(nerrors, 0);
	assert_false(is_registered(shared_buffer + 4 * MIB));
	munmap(shared_buffer, 8 * MIB);
}

/* Last: everything of the context is gone. */
static void a_context_that_was_reset_is_replaced(void **state)
{
	pn_cu_result (*reset)(pn_cu_device);
	char *at = gpu_map(MIB);
	struct pn_mr old = reg_ok(at, MIB), mr;

	(void)state;
	gpu_fill(at, MIB, 6);
	*(void **)&reset = dlsym(cu->library, "cuDevicePrimaryCtxReset_v2");
	assert_int_equal(reset(0), 0);
	assert_ok(device->ops->scratch(device, BYTES, &there, &rkey));
	/* It is registered anew for the new one; the old one shares it. */
	mr = reg_ok(at, MIB);
	assert_ok(move(PN_OP_WRITE, &mr, 0, MIB));
	dereg(&old);
	assert_true(is_registered(at));
	dereg(&mr);
	assert_false(is_registered(at));
	munmap(at, MIB);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(bytes_go_there_and_back),
		TEST(operations_end_in_order),
		TEST(bad_operations_are_refused),
		TEST(a_queue_that_is_full_says_so),
		TEST(a_wait_ends_by_wake_or_deadline),
		TEST(the_kernel_counts_the_pages_that_we_register),
		TEST(overlapping_registrations_share),
		TEST(exactly_the_bytes_are_registered),
		TEST(long_registrations_are_divided_if_allowed),
		TEST(what_cannot_be_registered_is_refused),
		TEST(a_batch_is_registered_whole_or_not),
		TEST(registrations_of_the_program_are_left_alone),
		TEST(released_memory_is_not_shared),
		TEST(the_callers_context_is_used_and_restored),
		TEST(a_global_capture_survives_registering),
		TEST(failures_of_the_driver_become_errors),
		TEST(a_block_that_never_ends_keeps_no_other),
		TEST(costs_are_measured),
		TEST(threads_register_overlapping_ranges),
		TEST(a_context_that_was_reset_is_replaced),
	};

	return cmocka_run_group_tests(tests, open_device, close_device);
}
