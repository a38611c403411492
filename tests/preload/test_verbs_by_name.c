/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A verbs program that is not linked with libibverbs:
 *
 *   test_verbs_by_name plain|kept
 *
 * Like NCCL it opens the library when it runs, finds each function by dlvsym()
 * under the version that it was written for, and registers around each
 * transfer. It counts the keys that it gets for one buffer: under
 * libpinion-verbs.so (`kept`) all registrations have the same.
 */
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <sys/mman.h>

#include "test.h"

/* The macros would call functions that this program is not linked with. */
#undef ibv_reg_mr

enum { NTIMES = 50 };

static bool is_preloaded;
static void *library;

/* As NCCL's ibvsymbols.cc. */
static struct {
	struct ibv_device **(*get_device_list)(int *);
	void (*free_device_list)(struct ibv_device **);
	struct ibv_context *(*open_device)(struct ibv_device *);
	int (*close_device)(struct ibv_context *);
	struct ibv_pd *(*alloc_pd)(struct ibv_context *);
	int (*dealloc_pd)(struct ibv_pd *);
	struct ibv_mr *(*reg_mr)(struct ibv_pd *, void *, size_t, int);
	struct ibv_mr *(*reg_mr_iova2)(struct ibv_pd *, void *, size_t,
				       uint64_t, unsigned);
	int (*dereg_mr)(struct ibv_mr *);
} verbs;

static void find(void *function, const char *name, const char *version)
{
	*(void **)function = dlvsym(library, name, version);
	assert_non_null(*(void **)function);
}

static int open_library(void **state)
{
	(void)state;
	library = dlopen("libibverbs.so.1", RTLD_NOW);
	assert_non_null(library);
	find(&verbs.get_device_list, "ibv_get_device_list", "IBVERBS_1.1");
	find(&verbs.free_device_list, "ibv_free_device_list", "IBVERBS_1.1");
	find(&verbs.open_device, "ibv_open_device", "IBVERBS_1.1");
	find(&verbs.close_device, "ibv_close_device", "IBVERBS_1.1");
	find(&verbs.alloc_pd, "ibv_alloc_pd", "IBVERBS_1.1");
	find(&verbs.dealloc_pd, "ibv_dealloc_pd", "IBVERBS_1.1");
	find(&verbs.reg_mr, "ibv_reg_mr", "IBVERBS_1.1");
	find(&verbs.reg_mr_iova2, "ibv_reg_mr_iova2", "IBVERBS_1.8");
	find(&verbs.dereg_mr, "ibv_dereg_mr", "IBVERBS_1.1");
	return 0;
}

static struct ibv_context *open_first(void)
{
	struct ibv_device **list = verbs.get_device_list(NULL);
	struct ibv_context *adapter;

	assert_true(list && *list);
	adapter = verbs.open_device(*list);
	assert_non_null(adapter);
	verbs.free_device_list(list);
	return adapter;
}

/* How often the key changed from one registration to the next. */
static unsigned nkeys(struct ibv_pd *pd, char *buffer, bool by_iova)
{
	unsigned n = 0;
	uint32_t last = 0;

	for (unsigned i = 0; i < NTIMES; i++) {
		struct ibv_mr *mr =
			by_iova ? verbs.reg_mr_iova2(pd, buffer, 4096,
						     (uintptr_t)buffer,
						     IBV_ACCESS_LOCAL_WRITE)
				: verbs.reg_mr(pd, buffer, 4096,
					       IBV_ACCESS_LOCAL_WRITE);

		assert_non_null(mr);
		n += mr->lkey != last;
		last = mr->lkey;
		assert_ok(verbs.dereg_mr(mr));
	}
	return n;
}

static void calls_that_are_found_by_version_are_kept(void **state)
{
	char *buffer = mmap(NULL, 8192, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_context *adapter = open_first();
	struct ibv_pd *pd = verbs.alloc_pd(adapter);

	(void)state;
	assert_non_null(pd);
	for (unsigned i = 0; i < 2; i++) {
		unsigned n = nkeys(pd, buffer + i * 4096, i);

		print_message("%u keys in %u registrations\n", n, NTIMES);
		assert_true(is_preloaded ? n == 1 : n > 1);
	}
	assert_ok(verbs.dealloc_pd(pd));
	assert_ok(verbs.close_device(adapter));
	munmap(buffer, 8192);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(calls_that_are_found_by_version_are_kept),
	};

	if (argc < 2) {
		puts("skipped: needs an adapter (tests/vm/suite)");
		return TEST_SKIP;
	}
	is_preloaded = !strcmp(argv[1], "kept");
	return cmocka_run_group_tests(tests, open_library, NULL);
}
