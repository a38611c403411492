/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * allocations -- makes malloc() and the like fail, in a test program that is
 * linked with --wrap of them. The program defines test_may_allocate(), which is
 * called before each allocation; if it returns false, the allocation fails.
 */
#ifndef PN_TESTS_ALLOCATIONS_H
#define PN_TESTS_ALLOCATIONS_H

#include <stdbool.h>
#include <stddef.h>

static bool test_may_allocate(void *caller);

#define TEST_CALLER __builtin_return_address(0)

/* The names of --wrap: the real function, and the one that is called. */
void *__real_malloc(size_t len);
void *__real_calloc(size_t n, size_t len);
void *__real_realloc(void *old, size_t len);
void *__real_aligned_alloc(size_t align, size_t len);
void *__wrap_malloc(size_t len);
void *__wrap_calloc(size_t n, size_t len);
void *__wrap_realloc(void *old, size_t len);
void *__wrap_aligned_alloc(size_t align, size_t len);

void *__wrap_malloc(size_t len)
{
	return test_may_allocate(TEST_CALLER) ? __real_malloc(len) : NULL;
}

void *__wrap_calloc(size_t n, size_t len)
{
	return test_may_allocate(TEST_CALLER) ? __real_calloc(n, len) : NULL;
}

void *__wrap_realloc(void *old, size_t len)
{
	return test_may_allocate(TEST_CALLER) ? __real_realloc(old, len) : NULL;
}

void *__wrap_aligned_alloc(size_t align, size_t len)
{
	return test_may_allocate(TEST_CALLER) ? __real_aligned_alloc(align, len)
					      : NULL;
}

#endif
