/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * gpu_facts -- prints what a CUDA driver does where its documentation does not
 * say: which bytes a registration covers, which copies it refuses, what its
 * calls cost and how long a registration holds up others. The stand-in and
 * doc/design/cuda.md rest on what this printed on hardware. One line per fact:
 * a name, then values.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "gpu_util.h"

#define MIB	((size_t)1 << 20)
#define PAGE	((size_t)4096)
#define TRIALS	5
#define MAX_LAT 400000

static const struct pn_cuda_driver *cu;
static pn_cu_deviceptr there;
static pn_cu_stream stream;

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static int type_of(const void *at)
{
	unsigned type = 0;
	int result =
		cu->pointer_get_attribute(&type,
					  PN_CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
					  (uintptr_t)at);

	return result ? -result : (int)type;
}

static char *touched(size_t bytes, int huge)
{
	char *raw = gpu_map(bytes + 2 * MIB);
	char *at = (char *)(((uintptr_t)raw + 2 * MIB - 1) & ~(2 * MIB - 1));

	madvise(at, bytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
	memset(at, 1, bytes);
	return at;
}

static size_t foll_pin(const char *which)
{
	char name[64];
	size_t value, found = 0;
	FILE *f = fopen("/proc/vmstat", "r");

	while (f && fscanf(f, "%63s %zu", name, &value) == 2)
		if (!strcmp(name, which))
			found = value;
	if (f)
		fclose(f);
	return found;
}

/* --- what a registration covers ------------------------------------------- */

static void bytes_or_pages(void)
{
	char *p = touched(4 * PAGE, 0);

	printf("register 1000 bytes at page+256: %d\n",
	       cu->mem_host_register(p + 256, 1000, 1));
	printf("type at +0 %d, +255 %d, +256 %d, +1255 %d, +1256 %d, +4095 %d, "
	       "+4096 %d (negative: error)\n",
	       type_of(p), type_of(p + 255), type_of(p + 256),
	       type_of(p + 1255), type_of(p + 1256), type_of(p + 4095),
	       type_of(p + 4096));
	printf("copy +256..1000: %d; +0..256: %d; +0..4096: %d; +256..2000: "
	       "%d; +1256..1000: %d\n",
	       cu->memcpy_htod(there, p + 256, 1000),
	       cu->memcpy_htod(there, p, 256), cu->memcpy_htod(there, p, 4096),
	       cu->memcpy_htod(there, p + 256, 2000),
	       cu->memcpy_htod(there, p + 1256, 1000));
	printf("register other bytes of the page: %d\n",
	       cu->mem_host_register(p + 2048, 1000, 1));
	printf("register bytes over the page's end: %d\n",
	       cu->mem_host_register(p + 4000, 1000, 1));
	printf("unregister: %d %d %d\n", cu->mem_host_unregister(p + 256),
	       cu->mem_host_unregister(p + 2048),
	       cu->mem_host_unregister(p + 4000));
}

/* One copy of [at + from, + bytes) by each call: their results. */
static void copies(const char *what, char *at, size_t from, size_t bytes)
{
	struct pn_cu_memcpy2d m = { .src_type = PN_CU_MEMORYTYPE_HOST,
				    .src_host = at + from,
				    .src_pitch = 2 * PAGE,
				    .dst_type = PN_CU_MEMORYTYPE_DEVICE,
				    .dst_device = there,
				    .dst_pitch = 2 * PAGE,
				    .width_bytes = PAGE,
				    .height = bytes / (2 * PAGE) };
	int async = cu->memcpy_htod_async(there, at + from, bytes, stream);
	int sync = cu->stream_synchronize(stream);
	int back = cu->memcpy_dtoh_async(at + from, there, bytes, stream);

	cu->stream_synchronize(stream);
	printf("%s: htod %d, htod_async %d/%d, dtoh_async %d, dtoh %d, "
	       "memcpy_async %d, 2d %d\n",
	       what, cu->memcpy_htod(there, at + from, bytes), async, sync,
	       back, cu->memcpy_dtoh(at + from, there, bytes),
	       cu->memcpy_async(there, (uintptr_t)(at + from), bytes, stream),
	       cu->memcpy_2d(&m));
	cu->stream_synchronize(stream);
}

static void parts(void)
{
	char *at = touched(8 * MIB, 0);

	gpu_fill(at, 8 * MIB, 5);
	cu->mem_host_register(at + 2 * MIB, 2 * MIB, 1);
	copies("begins before, ends inside", at, MIB, 2 * MIB);
	copies("begins inside, ends after", at, 3 * MIB, 2 * MIB);
	copies("contains it", at, MIB, 4 * MIB);
	copies("inside", at, 2 * MIB, 2 * MIB);
	cu->mem_host_register(at + 4 * MIB, 2 * MIB, 1);
	copies("over two adjacent", at, 3 * MIB, 2 * MIB);
	copies("all of two adjacent", at, 2 * MIB, 4 * MIB);
	printf("bytes wrong after two adjacent: %zu\n",
	       gpu_wrong_there(cu, there, MIB, 5));
	cu->mem_host_unregister(at + 2 * MIB);
	cu->mem_host_unregister(at + 4 * MIB);
}

/* --- which memory can be registered --------------------------------------- */

static void try_register(const char *what, void *at, size_t bytes)
{
	int plain = cu->mem_host_register(at, bytes, 1), read_only;

	if (!plain)
		cu->mem_host_unregister(at);
	read_only = cu->mem_host_register(at, bytes, 1 | 8);
	if (!read_only)
		cu->mem_host_unregister(at);
	printf("register %s: %d, with READ_ONLY %d\n", what, plain, read_only);
}

static void kinds(void)
{
	char *at = touched(4 * MIB, 0), name[] = "/tmp/gpu_factsXXXXXX";
	int fd = mkstemp(name), mem = memfd_create("facts", 0);
	unsigned flags = 0;

	if (ftruncate(fd, (off_t)MIB) || ftruncate(mem, (off_t)MIB))
		return;
	cu->mem_host_register(at, MIB, 1);
	cu->mem_host_get_flags(&flags, at);
	printf("flags of a registration with 1: %u\n", flags);
	cu->mem_host_unregister(at);
	mprotect(at + MIB, MIB, PROT_READ);
	try_register("read-only memory", at + MIB, MIB);
	try_register("writable and read-only", at, 2 * MIB);
	mprotect(at + MIB, MIB, PROT_NONE);
	try_register("PROT_NONE", at + MIB, MIB);
	munmap(at + 2 * MIB, MIB);
	try_register("unmapped", at + 2 * MIB, MIB);
	try_register("half unmapped", at + 5 * MIB / 2, MIB);
	try_register("private file, writable",
		     mmap(NULL, MIB, 3, MAP_PRIVATE, fd, 0), MIB);
	try_register("private file, read-only",
		     mmap(NULL, MIB, 1, MAP_PRIVATE, fd, 0), MIB);
	try_register("shared file, writable",
		     mmap(NULL, MIB, 3, MAP_SHARED, fd, 0), MIB);
	try_register("shared file, read-only",
		     mmap(NULL, MIB, 1, MAP_SHARED, fd, 0), MIB);
	try_register("memfd", mmap(NULL, MIB, 3, MAP_SHARED, mem, 0), MIB);
	try_register("device memory", (void *)(uintptr_t)there, MIB);
	unlink(name);
	close(fd);
	close(mem);
}

/* --- costs ---------------------------------------------------------------- */

static void call_costs(void)
{
	char *at = touched(2 * MIB, 0);
	const struct {
		const char *what;
		uintptr_t at;
	} what[] = { { "unregistered", (uintptr_t)at + MIB },
		     { "registered", (uintptr_t)at },
		     { "device", (uintptr_t)there } };
	int status;
	double t;

	cu->mem_host_register(at, MIB, 1);
	for (int k = 0; k < 3; k++) {
		t = now_us();
		for (int i = 0; i < 1000; i++)
			type_of((void *)what[k].at);
		printf("attribute of %s memory: %.0f ns\n", what[k].what,
		       now_us() - t);
	}
	t = now_us();
	for (int i = 0; i < 1000; i++)
		cu->stream_is_capturing(stream, &status);
	printf("stream_is_capturing: %.0f ns\n", now_us() - t);
	t = now_us();
	for (int i = 0; i < 1000; i++) {
		pn_cu_context c;

		cu->ctx_get_current(&c);
		cu->ctx_push_current(c);
		cu->ctx_pop_current(&c);
	}
	printf("get, push and pop a context: %.0f ns\n", now_us() - t);
	cu->mem_host_unregister(at);
}

/* 1 GiB in blocks: each block's time and the sum. */
static void blocks(int huge)
{
	size_t all = 1024 * MIB;
	char *at = touched(all, huge);
	size_t before_a = foll_pin("nr_foll_pin_acquired");

	for (size_t b = 2 * MIB; b <= all; b *= 2) {
		double most = 0, most_un = 0, start = now_us(), t, mid;

		for (size_t i = 0; i < all; i += b) {
			t = now_us();
			if (cu->mem_host_register(at + i, b, 1))
				printf("register failed\n");
			t = now_us() - t;
			most = t > most ? t : most;
		}
		mid = now_us();
		for (size_t i = 0; i < all; i += b) {
			t = now_us();
			cu->mem_host_unregister(at + i);
			t = now_us() - t;
			most_un = t > most_un ? t : most_un;
		}
		printf("1 GiB %s in blocks of %zu MiB: register %.1f ms (block "
		       "at most %.2f), unregister %.1f ms (%.2f)\n",
		       huge ? "huge" : "4k", b / MIB, (mid - start) / 1e3,
		       most / 1e3, (now_us() - mid) / 1e3, most_un / 1e3);
	}
	cu->mem_host_register(at, 256 * MIB, 1);
	printf("nr_foll_pin_acquired of all of that: %zu pages\n",
	       foll_pin("nr_foll_pin_acquired") - before_a);
	before_a = foll_pin("nr_foll_pin_released");
	cu->mem_host_unregister(at);
	printf("nr_foll_pin_released of 256 MiB: %zu pages\n",
	       foll_pin("nr_foll_pin_released") - before_a);
	munmap(at, all);
}

/* --- how long others are held up ------------------------------------------ */

static atomic_int stop;
static double lat[MAX_LAT];
static int nlat;
static char *small;

static void *copy_often(void *arg)
{
	pn_cu_context context = arg;
	pn_cu_deviceptr dst;
	pn_cu_stream own;

	cu->ctx_set_current(context);
	cu->mem_alloc(&dst, 65536);
	cu->stream_create(&own, PN_CU_STREAM_NON_BLOCKING);
	for (nlat = 0; !stop && nlat < MAX_LAT; nlat++) {
		double t = now_us();

		cu->memcpy_htod_async(dst, small, 65536, own);
		cu->stream_synchronize(own);
		lat[nlat] = now_us() - t;
	}
	cu->stream_destroy(own);
	cu->mem_free(dst);
	return NULL;
}

static void hold_up(pn_cu_context context, size_t block, unsigned pause_us)
{
	size_t all = 2048 * MIB;
	char *at = touched(all, 0);
	pthread_t thread;
	double t, reg;

	stop = 0;
	pthread_create(&thread, NULL, copy_often, context);
	usleep(20000);
	t = now_us();
	for (size_t i = 0; i < all; i += block) {
		cu->mem_host_register(at + i, block, 1);
		if (pause_us)
			usleep(pause_us);
	}
	reg = now_us() - t;
	for (size_t i = 0; i < all; i += block) {
		cu->mem_host_unregister(at + i);
		if (pause_us)
			usleep(pause_us);
	}
	stop = 1;
	pthread_join(thread, NULL);
	qsort(lat, (size_t)nlat, sizeof(*lat), by_value);
	printf("2 GiB registered in blocks of %zu MiB, pause %u us, %.0f ms: "
	       "64 KiB copies median %.0f us, 99.9 %% %.0f us, worst %.0f us\n",
	       block / MIB, pause_us, reg / 1e3, lat[nlat / 2],
	       lat[nlat - 1 - nlat / 1000], lat[nlat - 1]);
	munmap(at, all);
}

/* --- the end of things ---------------------------------------------------- */

static void unregister_under_copy(void)
{
	size_t all = 1024 * MIB;
	char *at = touched(all, 1);
	pn_cu_deviceptr dst;
	double t, took, copied;
	int result;

	if (cu->mem_alloc(&dst, all))
		return;
	cu->mem_host_register(at, all, 1);
	t = now_us();
	cu->memcpy_htod_async(dst, at, all, stream);
	result = cu->mem_host_unregister(at);
	took = now_us() - t;
	copied = cu->stream_synchronize(stream);
	printf("unregister under a copy of 1 GiB: result %d after %.1f ms, "
	       "stream %g, all after %.1f ms\n",
	       result, took / 1e3, copied, (now_us() - t) / 1e3);
	cu->mem_free(dst);
	munmap(at, all);
}

static void try_all(const char *when, char *at)
{
	int type = type_of(at), copy = cu->memcpy_htod(there, at, MIB);
	int unreg = cu->mem_host_unregister(at);
	int query = cu->stream_query(stream);
	int create = cu->stream_create(&stream, 1);
	int alloc = cu->mem_alloc(&there, MIB);

	printf("%s: type %d, copy %d, unregister %d, old stream %d, new stream "
	       "%d, alloc %d\n",
	       when, type, copy, unreg, query, create, alloc);
}

static void reset(void)
{
	pn_cu_result (*primary_reset)(pn_cu_device);
	char *at = touched(2 * MIB, 0);
	unsigned long long id = 0, id_after = 0;
	pn_cu_context context;
	int result;

	*(void **)&primary_reset =
		dlsym(cu->library, "cuDevicePrimaryCtxReset_v2");
	cu->mem_host_register(at, MIB, 1);
	cu->ctx_get_current(&context);
	if (cu->ctx_get_id)
		cu->ctx_get_id(context, &id);
	printf("reset: %d\n", primary_reset(0));
	if (cu->ctx_get_id)
		printf("id of the context after it: result %d\n",
		       cu->ctx_get_id(context, &id_after));
	try_all("after a reset", at);
	result = cu->primary_ctx_retain(&context, 0);
	printf("retain again: %d, set %d\n", result,
	       cu->ctx_set_current(context));
	if (cu->ctx_get_id)
		cu->ctx_get_id(context, &id_after);
	printf("id before %llu, now %llu\n", id, id_after);
	try_all("after retaining again", at);
	result = cu->mem_host_register(at, MIB, 1);
	printf("register again: %d\n", result);
}

int main(void)
{
	static const int attributes[] = { 40, 41, 92, 99, 113, 134 };
	pn_cu_context context;
	char name[128] = "";
	int value;

	cu = gpu_driver();
	context = gpu_use_primary(cu);
	cu->device_get_name(name, sizeof(name), 0);
	printf("driver %d, %s\n", cu->version, name);
	for (unsigned i = 0; i < PN_ARRAY_LEN(attributes); i++) {
		value = -1;
		cu->device_get_attribute(&value, attributes[i], 0);
		printf("device attribute %d: %d\n", attributes[i], value);
	}
	cu->mem_alloc(&there, 64 * MIB);
	cu->stream_create(&stream, PN_CU_STREAM_NON_BLOCKING);
	small = touched(MIB, 0);
	cu->mem_host_register(small, MIB, 1);
	bytes_or_pages();
	parts();
	kinds();
	call_costs();
	fflush(stdout);
	blocks(0);
	blocks(1);
	fflush(stdout);
	hold_up(context, 2048 * MIB, 0);
	hold_up(context, 64 * MIB, 0);
	hold_up(context, 32 * MIB, 0);
	hold_up(context, 16 * MIB, 0);
	hold_up(context, 16 * MIB, 50);
	hold_up(context, 4 * MIB, 0);
	hold_up(context, 4 * MIB, 50);
	fflush(stdout);
	unregister_under_copy();
	cu->mem_host_unregister(small);
	reset();
	return 0;
}
