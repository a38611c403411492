/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Batches, and copies that pass to the driver while another copy uses their
 * memory, in an unmodified CUDA program under libpinion-cuda.so. The
 * interposer's pauses are short here, so that all its tries fit into a test.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "program.h"

#define BYTES (4 * MIB)
#define LARGE (2 * MIB) /* of a batch: long enough for the engine */
#define TRIES 10000	/* of preload/cuda/copy.c */

typedef pn_cu_result batch_fn(pn_cu_deviceptr *dsts, pn_cu_deviceptr *srcs,
			      size_t *bytes, size_t n, void *attrs,
			      size_t *indexes, size_t nattrs, size_t *failed,
			      pn_cu_stream stream);

static struct program p;
static batch_fn *driver_batch;
static pn_cu_deviceptr there;
static pn_cu_stream stream;

/* --- pauses ----------------------------------------------------------------
 */

static _Atomic unsigned pauses;

/* The interposer's, since the program comes first. */
__attribute__((visibility("default"))) int usleep(useconds_t us)
{
	const struct timespec pause = { .tv_nsec = us * 1000L };
	const struct timespec moment = { .tv_nsec = 1000 };

	atomic_fetch_add(&pauses, us == 1000);
	return nanosleep(us == 1000 ? &moment : &pause, NULL);
}

/* --- copies that meet ------------------------------------------------------
 */

struct meeting {
	char *at;
	bool rows; /* else a batch */
	_Atomic bool let_go, returned;
	bool early; /* returned while the copy was under way */
	int copied, passed;
};

static void wait_to_be_let_go(void *arg)
{
	struct meeting *m = arg;

	while (!atomic_load(&m->let_go))
		usleep(100);
}

static void *copies_what_is_held(void *arg)
{
	struct meeting *m = arg;

	program_context(&p);
	m->copied = p.cuMemcpyHtoDAsync(there, m->at, BYTES, stream);
	return NULL;
}

static int pass(struct meeting *m, pn_cu_deviceptr dst, pn_cu_stream in)
{
	struct pn_cu_memcpy2d rows = {
		.src_type = PN_CU_MEMORYTYPE_HOST,
		.src_host = m->at,
		.src_pitch = 64 * KIB,
		.dst_type = PN_CU_MEMORYTYPE_DEVICE,
		.dst_device = dst,
		.dst_pitch = 32 * KIB,
		.width_bytes = 32 * KIB,
		.height = 2,
	};
	pn_cu_deviceptr src = (uintptr_t)m->at;
	size_t bytes = 64 * KIB, failed;

	return m->rows ? p.cuMemcpy2DAsync(&rows, in)
		       : driver_batch(&dst, &src, &bytes, 1, NULL, NULL, 0,
				      &failed, in);
}

/* A copy that is the driver's, of some of that memory. */
static void *passes(void *arg)
{
	struct meeting *m = arg;
	pn_cu_stream other = NULL;
	pn_cu_deviceptr dst = 0;

	program_context(&p);
	m->passed = p.cuMemAlloc(&dst, BYTES) || p.cuStreamCreate(&other, 1) ||
		    pass(m, dst, other);
	m->early = !atomic_load(&m->let_go);
	atomic_store(&m->returned, true);
	m->passed |= p.cuStreamSynchronize(other) ||
		     program_wrong_there(&p, dst, 32 * KIB, 1) ||
		     p.cuStreamDestroy(other) || p.cuMemFree(dst);
	return NULL;
}

static void one_waits_for_the_other(bool rows)
{
	struct meeting m = { .at = program_map(BYTES), .rows = rows };
	pn_cu_result (*launch)(pn_cu_stream, void (*)(void *), void *);
	pthread_t copy, other;
	uint64_t before;

	if (!p.held_pages || !p.calls)
		skip();
	program_fill(m.at, BYTES, 1);
	assert_true(program_use(&p, there, m.at, BYTES) > 0);
	*(void **)&launch = dlsym(p.driver, "cuLaunchHostFunc");
	assert_int_equal(launch(stream, wait_to_be_let_go, &m), 0);
	before = p.calls("cuMemcpyHtoDAsync_v2");
	assert_ok(pthread_create(&copy, NULL, copies_what_is_held, &m));
	while (p.calls("cuMemcpyHtoDAsync_v2") == before)
		usleep(100);
	atomic_store(&pauses, 0);
	assert_ok(pthread_create(&other, NULL, passes, &m));
	while (!atomic_load(&m.returned) &&
	       atomic_load(&pauses) < TRIES + TRIES / 2)
		usleep(100);
	atomic_store(&m.let_go, true);
	assert_ok(pthread_join(copy, NULL));
	assert_ok(pthread_join(other, NULL));
	assert_int_equal(m.copied, 0);
	assert_int_equal(m.passed, 0);
	assert_false(m.early);
	assert_int_equal(p.cuStreamSynchronize(stream), 0);
	munmap(m.at, BYTES);
}

static void rows_wait_for_a_copy_of_their_memory_however_long(void **state)
{
	(void)state;
	one_waits_for_the_other(true);
}

static void a_batch_waits_for_a_copy_of_its_memory_however_long(void **state)
{
	(void)state;
	one_waits_for_the_other(false);
}

/* --- large batches ---------------------------------------------------------
 */

#define NCOPIES 3

struct batch {
	pn_cu_deviceptr dst[NCOPIES], src[NCOPIES];
	size_t bytes[NCOPIES];
	size_t failed;
	char *at;	 /* all sources, or destinations, of the host */
	uint64_t passed; /* calls of the driver so far */
};

static uint64_t driver_batches(void)
{
	return p.calls ? p.calls("cuMemcpyBatchAsync") : 0;
}

static struct batch batch_of(bool to_gpu, uint64_t seed)
{
	struct batch b = { .at = program_map(NCOPIES * LARGE),
			   .passed = driver_batches(),
			   .failed = SIZE_MAX };

	program_fill(b.at, NCOPIES * LARGE, seed);
	for (size_t i = 0; i < NCOPIES; i++) {
		pn_cu_deviceptr host = (uintptr_t)b.at + i * LARGE;

		b.dst[i] = to_gpu ? there + i * LARGE : host;
		b.src[i] = to_gpu ? host : there + i * LARGE;
		b.bytes[i] = LARGE;
	}
	return b;
}

static pn_cu_result run(struct batch *b)
{
	return driver_batch(b->dst, b->src, b->bytes, NCOPIES, NULL, NULL, 0,
			    &b->failed, stream);
}

/* Of copies that the engine takes the driver sees no batch. */
static void assert_taken(const struct batch *b)
{
	if (p.held_pages && p.calls)
		assert_int_equal(driver_batches(), b->passed);
}

static void assert_passed(const struct batch *b)
{
	if (p.calls)
		assert_int_equal(driver_batches(), b->passed + 1);
}

static void a_batch_of_large_copies_is_pinions(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 5; i++) {
		struct batch to = batch_of(true, i), from = batch_of(false, 99);

		assert_int_equal(run(&to), 0);
		assert_taken(&to);
		/* The sources have been read. */
		memset(to.at, 0xee, NCOPIES * LARGE);
		assert_int_equal(run(&from), 0);
		assert_taken(&from);
		assert_int_equal(program_wrong(from.at, NCOPIES * LARGE, i), 0);
		munmap(to.at, NCOPIES * LARGE);
		munmap(from.at, NCOPIES * LARGE);
	}
}

/* The engine has done the first copy when it finds the second one, of pinned
 * memory, which is not its. */
static void a_batch_with_pinned_memory_is_the_drivers(void **state)
{
	struct batch b = batch_of(true, 5);
	void *pinned;

	(void)state;
	assert_int_equal(p.cuMemHostAlloc(&pinned, LARGE, 0), 0);
	program_fill(pinned, LARGE, 6);
	b.src[1] = (uintptr_t)pinned;
	assert_int_equal(run(&b), 0);
	assert_passed(&b);
	assert_int_equal(p.cuStreamSynchronize(stream), 0);
	assert_int_equal(program_wrong_there(&p, there, LARGE, 5), 0);
	assert_int_equal(program_wrong_there(&p, there + LARGE, LARGE, 6), 0);
	assert_int_equal(p.cuMemFreeHost(pinned), 0);
	munmap(b.at, NCOPIES * LARGE);
}

static void a_copy_that_fails_in_a_batch_is_the_drivers_error(void **state)
{
	struct batch b = batch_of(true, 7);

	(void)state;
	/* Beyond the allocation. */
	b.dst[2] = there + NCOPIES * LARGE - LARGE / 2;
	assert_int_not_equal(run(&b), 0);
	assert_passed(&b);
	if (p.calls)
		assert_int_equal(b.failed, 2);
	/* The error does not stick. */
	b.dst[2] = there + 2 * LARGE;
	assert_int_equal(run(&b), 0);
	assert_int_equal(p.cuStreamSynchronize(stream), 0);
	assert_int_equal(program_wrong_there(&p, there, LARGE, 7), 0);
	munmap(b.at, NCOPIES * LARGE);
}

/* Memory of the program that is kept registered is copied as it is. */
static void a_batch_of_memory_that_is_held_is_pinions(void **state)
{
	struct batch b = batch_of(true, 8);

	(void)state;
	if (!p.held_pages)
		skip();
	assert_true(program_use(&p, there, b.at, NCOPIES * LARGE) > 0);
	program_fill(b.at, NCOPIES * LARGE, 9);
	b.passed = driver_batches();
	assert_int_equal(run(&b), 0);
	assert_taken(&b);
	memset(b.at, 0xee, NCOPIES * LARGE);
	assert_int_equal(p.cuStreamSynchronize(stream), 0);
	assert_int_equal(program_wrong_there(&p, there, NCOPIES * LARGE, 9), 0);
	munmap(b.at, NCOPIES * LARGE);
}

/* --- captures --------------------------------------------------------------
 */

/* The graph reads the second copy's memory at each launch: a registration that
 * came later would change that. Last, since nothing is kept from here on. */
static void after_a_captured_batch_of_unpinned_memory_nothing_is_kept(
	void **state)
{
	struct batch b = batch_of(true, 10);
	char *at = program_map(BYTES);
	pn_cu_graph graph = NULL;
	void *pinned;
	int ret;

	(void)state;
	program_fill(at, BYTES, 1);
	if (!p.held_pages || !program_use(&p, there, at, BYTES))
		skip();
	assert_int_equal(p.cuMemHostAlloc(&pinned, LARGE, 0), 0);
	b.src[0] = (uintptr_t)pinned;
	assert_int_equal(p.cuStreamBeginCapture(stream, 2), 0);
	ret = run(&b);
	p.cuStreamEndCapture(stream, &graph);
	if (ret) {
		printf("this driver captures no batches\n");
		skip();
	}
	assert_int_equal(program_use(&p, there, at, BYTES), 0);
	assert_int_equal(p.held_pages(), 0);
	assert_int_equal(p.cuGraphDestroy(graph), 0);
	assert_int_equal(p.cuMemFreeHost(pinned), 0);
	munmap(at, BYTES);
	munmap(b.at, NCOPIES * LARGE);
}

static int setup(void **state)
{
	(void)state;
	program_context(&p);
	/* The next allocation is not behind it, so that its end is an end. */
	if (p.cuMemAlloc(&there, NCOPIES * LARGE) ||
	    p.cuStreamCreate(&stream, 1))
		return -1;
	return 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(rows_wait_for_a_copy_of_their_memory_however_long),
		TEST(a_batch_waits_for_a_copy_of_its_memory_however_long),
		TEST(a_batch_of_large_copies_is_pinions),
		TEST(a_batch_with_pinned_memory_is_the_drivers),
		TEST(a_copy_that_fails_in_a_batch_is_the_drivers_error),
		TEST(a_batch_of_memory_that_is_held_is_pinions),
		TEST(after_a_captured_batch_of_unpinned_memory_nothing_is_kept),
	};

	program_open(&p, argc > 1 ? argv[1] : "address");
	*(void **)&driver_batch = dlsym(p.driver, "cuMemcpyBatchAsync");
	if (!driver_batch) {
		printf("skipped: this driver has no batches\n");
		return TEST_SKIP;
	}
	return cmocka_run_group_tests(tests, setup, NULL);
}
