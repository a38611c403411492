/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * gpu_util -- for tests that use a CUDA driver: the stand-in, or a real one
 * (`make check-gpu`). A test of what only the stand-in can do (failures, late
 * reads, counters) begins with standin_or_skip().
 */
#ifndef PN_TESTS_GPU_UTIL_H
#define PN_TESTS_GPU_UTIL_H

#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "device/cuda/driver.h"
#include "test.h"

struct standin {
	int (*set)(const char *text);
	uint64_t (*get)(const char *name);
	uint64_t (*calls)(const char *symbol);
	void (*after)(const char *symbol, uint64_t n, void (*fn)(void *arg),
		      void *arg);
	int (*peek)(void *to, uintptr_t at, size_t bytes);
	int (*poke)(const void *from, uintptr_t at, size_t bytes);
};

/* Ends the program with 77 where there is no driver. */
static inline const struct pn_cuda_driver *gpu_driver(void)
{
	const struct pn_cuda_driver *driver = NULL;
	const char *reason = NULL;

	if (!pn_cuda_driver_init(&driver, &reason))
		return driver;
	printf("skipped: %s\n", reason);
	exit(TEST_SKIP);
}

/* False: the driver is a real one. */
static inline bool gpu_standin(struct standin *out)
{
	void *library = gpu_driver()->library;

	*(void **)&out->set = dlsym(library, "pinion_standin_set");
	*(void **)&out->get = dlsym(library, "pinion_standin_get");
	*(void **)&out->calls = dlsym(library, "pinion_standin_calls");
	*(void **)&out->after = dlsym(library, "pinion_standin_after");
	*(void **)&out->peek = dlsym(library, "pinion_standin_peek");
	*(void **)&out->poke = dlsym(library, "pinion_standin_poke");
	return out->set && out->get && out->calls && out->after && out->peek &&
	       out->poke;
}

static inline struct standin standin_or_skip(void)
{
	struct standin s;

	if (!gpu_standin(&s)) {
		printf("a real driver: skipped\n");
		skip();
	}
	return s;
}

/* The primary context of device 0 becomes the current one. */
static inline pn_cu_context gpu_use_primary(const struct pn_cuda_driver *cu)
{
	pn_cu_context context;

	assert_int_equal(cu->primary_ctx_retain(&context, 0), 0);
	assert_int_equal(cu->ctx_set_current(context), 0);
	return context;
}

static inline char *gpu_map(size_t bytes)
{
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(at, MAP_FAILED);
	return at;
}

/* Below the addresses that the kernel gives away by itself: what a test unmaps
 * in between is not given to another thread before the test maps it again. A
 * sanitizer may not allow these addresses. */
#define GPU_LOW_ADDRESSES UINT64_C(0x200000000000)
#define GPU_LOW_END	  UINT64_C(0x300000000000)

static inline char *gpu_map_low(size_t bytes)
{
	static _Atomic uintptr_t next = GPU_LOW_ADDRESSES;
	uintptr_t step = (bytes + 8191) & ~(uintptr_t)4095;
	void *at = mmap((void *)atomic_fetch_add(&next, step), bytes,
			PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			0);

	assert_ptr_not_equal(at, MAP_FAILED);
	return at;
}

/* Whether nobody else gets addresses in between. */
static inline bool gpu_is_low(const void *at)
{
	return (uintptr_t)at >= GPU_LOW_ADDRESSES &&
	       (uintptr_t)at < GPU_LOW_END;
}

/* Bytes that depend on the seed and on their place. */
static inline void gpu_fill(char *at, size_t bytes, uint64_t seed)
{
	for (size_t i = 0; i + 8 <= bytes; i += 8) {
		uint64_t word = test_mix(seed, i);

		memcpy(at + i, &word, 8);
	}
}

/* How many bytes, in words, differ from gpu_fill(). */
static inline size_t gpu_wrong(const char *at, size_t bytes, uint64_t seed)
{
	size_t wrong = 0;

	for (size_t i = 0; i + 8 <= bytes; i += 8) {
		uint64_t word = test_mix(seed, i);

		wrong += memcmp(at + i, &word, 8) ? 8 : 0;
	}
	return wrong;
}

/* The same for the GPU's memory. */
static inline size_t gpu_wrong_there(const struct pn_cuda_driver *cu,
				     pn_cu_deviceptr at, size_t bytes,
				     uint64_t seed)
{
	char *copy = malloc(bytes);
	size_t wrong;

	assert_int_equal(cu->memcpy_dtoh(copy, at, bytes), 0);
	wrong = gpu_wrong(copy, bytes, seed);
	free(copy);
	return wrong;
}

#endif
