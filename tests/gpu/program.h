/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * program -- for tests that play an unmodified CUDA program: they know nothing
 * of pinion, and libpinion-cuda.so is preloaded. The driver's functions are
 * found in one of the ways in which programs find them:
 *   linked     the program is linked with libcuda.so.1
 *   dlsym      the program opens the driver and looks its names up
 *   address    as the CUDA runtime does: cuGetProcAddress() by dlsym(), all
 *              else by cuGetProcAddress()
 *   thread     the same for per-thread default streams
 * What pinion and the stand-in did is asked of their libraries, if they are
 * there; without libpinion-cuda.so the same tests show what the driver does.
 */
#ifndef PN_TESTS_GPU_PROGRAM_H
#define PN_TESTS_GPU_PROGRAM_H

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/range.h"
#include "preload/cuda/calls.h"
#include "test.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

/* C(name for cuGetProcAddress(), exported symbol, parameters) */
/* clang-format off */
#define PROGRAM_CALLS(C) \
	C(cuInit, cuInit, (unsigned flags)) \
	C(cuCtxGetCurrent, cuCtxGetCurrent, (pn_cu_context *context)) \
	C(cuCtxSetCurrent, cuCtxSetCurrent, (pn_cu_context context)) \
	C(cuCtxSynchronize, cuCtxSynchronize, (void)) \
	C(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, \
	  (pn_cu_context *context, pn_cu_device device)) \
	C(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2, \
	  (pn_cu_device device)) \
	C(cuMemAlloc, cuMemAlloc_v2, (pn_cu_deviceptr *at, size_t bytes)) \
	C(cuMemFree, cuMemFree_v2, (pn_cu_deviceptr at)) \
	C(cuMemHostAlloc, cuMemHostAlloc, \
	  (void **at, size_t bytes, unsigned flags)) \
	C(cuMemFreeHost, cuMemFreeHost, (void *at)) \
	C(cuMemHostRegister, cuMemHostRegister_v2, \
	  (void *at, size_t bytes, unsigned flags)) \
	C(cuMemHostUnregister, cuMemHostUnregister, (void *at)) \
	C(cuMemHostGetFlags, cuMemHostGetFlags, (unsigned *flags, void *at)) \
	C(cuMemHostGetDevicePointer, cuMemHostGetDevicePointer_v2, \
	  (pn_cu_deviceptr *out, void *at, unsigned flags)) \
	C(cuPointerGetAttribute, cuPointerGetAttribute, \
	  (void *out, int attribute, pn_cu_deviceptr at)) \
	C(cuPointerGetAttributes, cuPointerGetAttributes, \
	  (unsigned n, int *attributes, void **out, pn_cu_deviceptr at)) \
	C(cuMemcpy, cuMemcpy, \
	  (pn_cu_deviceptr dst, pn_cu_deviceptr src, size_t bytes)) \
	C(cuMemcpyAsync, cuMemcpyAsync, \
	  (pn_cu_deviceptr dst, pn_cu_deviceptr src, size_t bytes, \
	   pn_cu_stream stream)) \
	C(cuMemcpyHtoD, cuMemcpyHtoD_v2, \
	  (pn_cu_deviceptr dst, const void *src, size_t bytes)) \
	C(cuMemcpyDtoH, cuMemcpyDtoH_v2, \
	  (void *dst, pn_cu_deviceptr src, size_t bytes)) \
	C(cuMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2, \
	  (pn_cu_deviceptr dst, const void *src, size_t bytes, \
	   pn_cu_stream stream)) \
	C(cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2, \
	  (void *dst, pn_cu_deviceptr src, size_t bytes, \
	   pn_cu_stream stream)) \
	C(cuMemcpy2DAsync, cuMemcpy2DAsync_v2, \
	  (const struct pn_cu_memcpy2d *copy, pn_cu_stream stream)) \
	C(cuStreamCreate, cuStreamCreate, \
	  (pn_cu_stream *stream, unsigned flags)) \
	C(cuStreamDestroy, cuStreamDestroy_v2, (pn_cu_stream stream)) \
	C(cuStreamSynchronize, cuStreamSynchronize, (pn_cu_stream stream)) \
	C(cuStreamIsCapturing, cuStreamIsCapturing, \
	  (pn_cu_stream stream, int *status)) \
	C(cuStreamBeginCapture, cuStreamBeginCapture_v2, \
	  (pn_cu_stream stream, int mode)) \
	C(cuStreamEndCapture, cuStreamEndCapture, \
	  (pn_cu_stream stream, pn_cu_graph *graph)) \
	C(cuGraphDestroy, cuGraphDestroy, (pn_cu_graph graph))
/* clang-format on */

struct program {
	const char *how;
	void *driver; /* of dlopen() */
#define FIELD(name, symbol, params) pn_cu_result(*name) params;
	PROGRAM_CALLS(FIELD)
#undef FIELD
	/* Of libpinion.so; NULL: the program runs without pinion. */
	size_t (*held_pages)(void);
	bool (*holds)(struct pn_range range);
	/* Of libpinion-cuda.so. */
	int (*hold)(void *addr, size_t len);
	/* Of the stand-in; NULL: a real driver. */
	uint64_t (*calls)(const char *symbol);
	int (*set)(const char *text);
};

/* Declared for the program that is linked. */
#define DECLARE(name, symbol, params) pn_cu_result symbol params;
PROGRAM_CALLS(DECLARE)
#undef DECLARE

static inline void *program_find(struct program *p, const char *name,
				 const char *symbol)
{
	int (*get)(const char *, void **, int, unsigned long long, int *);
	unsigned long long flags = !strcmp(p->how, "thread")
					   ? PN_CU_GET_PROC_ADDRESS_PER_THREAD
					   : 0;
	void *found = NULL;
	int status;

	if (!strcmp(p->how, "dlsym"))
		return dlsym(p->driver, symbol);
	*(void **)&get = dlsym(p->driver, "cuGetProcAddress_v2");
	if (!get || get(name, &found, 12000, flags, &status))
		return NULL;
	return found;
}

/* Ends the program with 77 where there is no driver or no GPU. */
static inline void program_open(struct program *p, const char *how)
{
	p->how = how;
	p->driver = dlopen("libcuda.so.1", RTLD_NOW);
	if (!p->driver) {
		printf("skipped: %s\n", dlerror());
		exit(TEST_SKIP);
	}
#define FIND(name, symbol, params)                                      \
	*(void **)&p->name = !strcmp(how, "linked")                     \
				     ? (void *)symbol                   \
				     : program_find(p, #name, #symbol); \
	assert_non_null(p->name);
	PROGRAM_CALLS(FIND)
#undef FIND
	*(void **)&p->held_pages =
		dlsym(RTLD_DEFAULT, "pn_cuda_gate_held_pages");
	*(void **)&p->holds = dlsym(RTLD_DEFAULT, "pn_cuda_gate_holds");
	*(void **)&p->hold = dlsym(RTLD_DEFAULT, "pn_preload_engine_hold");
	*(void **)&p->calls = dlsym(p->driver, "pinion_standin_calls");
	*(void **)&p->set = dlsym(p->driver, "pinion_standin_set");
	if (p->cuInit(0)) {
		printf("skipped: no GPU\n");
		exit(TEST_SKIP);
	}
}

static inline pn_cu_context program_context(const struct program *p)
{
	pn_cu_context context;

	assert_int_equal(p->cuDevicePrimaryCtxRetain(&context, 0), 0);
	assert_int_equal(p->cuCtxSetCurrent(context), 0);
	return context;
}

/* At an address that was not used before: what pinion learned of an earlier
 * buffer does not count. */
static inline char *program_map(size_t bytes)
{
	static _Atomic uintptr_t next = UINT64_C(0x200000000000);
	uintptr_t hint = atomic_fetch_add(&next, bytes + 64 * MIB);
	void *at;

	at = mmap((void *)hint, bytes, PROT_READ | PROT_WRITE,
		  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(at, MAP_FAILED);
	return at;
}

/* How many of the pages of some memory pinion holds. */
static inline size_t program_held(const struct program *p, const char *at,
				  size_t bytes)
{
	size_t n = 0;

	for (size_t i = 0; p->holds && i < bytes; i += PN_PAGE_BYTES)
		n += p->holds((struct pn_range){ (uintptr_t)at + i, 1 });
	return n;
}

/* Uses a buffer, and has pinion keep it registered whether or not uses are
 * expected to follow: how many pages. Some kinds of memory are never
 * registered. */
static inline size_t program_use(const struct program *p, pn_cu_deviceptr there,
				 char *at, size_t bytes)
{
	for (int i = 0; i < 3; i++)
		assert_int_equal(p->cuMemcpyHtoD(there, at, bytes), 0);
	if (p->hold)
		p->hold(at, bytes);
	return program_held(p, at, bytes);
}

/* Bytes that depend on the seed and on their place. */
static inline void program_fill(char *at, size_t bytes, uint64_t seed)
{
	for (size_t i = 0; i < bytes; i += 8) {
		uint64_t word = test_mix(seed, i);

		memcpy(at + i, &word, bytes - i < 8 ? bytes - i : 8);
	}
}

/* How many words differ from program_fill(). */
static inline size_t program_wrong(const char *at, size_t bytes, uint64_t seed)
{
	size_t wrong = 0;

	for (size_t i = 0; i < bytes; i += 8) {
		uint64_t word = test_mix(seed, i);

		wrong += memcmp(at + i, &word, bytes - i < 8 ? bytes - i : 8) !=
			 0;
	}
	return wrong;
}

/* The same for memory of the GPU, read in pieces that go through the driver
 * alone. */
static inline size_t program_wrong_there(const struct program *p,
					 pn_cu_deviceptr at, size_t bytes,
					 uint64_t seed)
{
	static _Thread_local char piece[4096];
	size_t wrong = 0;

	for (size_t i = 0; i < bytes; i += sizeof(piece)) {
		size_t n = pn_min_size(bytes - i, sizeof(piece));

		assert_int_equal(p->cuMemcpyDtoH(piece, at + i, n), 0);
		for (size_t j = 0; j < n; j += 8) {
			uint64_t word = test_mix(seed, i + j);

			wrong += memcmp(piece + j, &word,
					n - j < 8 ? n - j : 8) != 0;
		}
	}
	return wrong;
}

#endif
