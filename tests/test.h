/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test -- included by every test program: cmocka, and a few functions of ours.
 *
 * A test is `static void a_sentence_that_is_true(void **state)`; TEST() lists
 * it. Random tests take their seed from test_seed(), which prints it, so that
 * PINION_TEST_SEED=... runs the same again. Threads record, the main thread
 * asserts.
 */
#ifndef PN_TESTS_TEST_H
#define PN_TESTS_TEST_H

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include <cmocka.h>

#include "base/compiler.h"

#define TEST(name) cmocka_unit_test(name)

/* The exit status that ctest counts as skipped. */
#define TEST_SKIP 77

#define RUN_TESTS(tests) cmocka_run_group_tests(tests, NULL, NULL)

/* A call that returns 0 or negative errno. */
#define assert_ok(call) assert_int_equal(call, 0)

static inline uint64_t test_seed(void)
{
	const char *given = getenv("PINION_TEST_SEED");
	uint64_t seed = 0;

	if (given)
		seed = strtoull(given, NULL, 0);
	else if (getrandom(&seed, sizeof(seed), 0) != sizeof(seed))
		seed = 1;
	printf("seed: PINION_TEST_SEED=%llu\n", (unsigned long long)seed);
	return seed;
}

/* xorshift64*: small, good enough, and the same on every machine. */
static inline uint64_t test_random(uint64_t *state)
{
	uint64_t x = *state ? *state : 1;

	x ^= x >> 12;
	x ^= x << 25;
	x ^= x >> 27;
	*state = x;
	return x * UINT64_C(2685821657736338717);
}

/* A hash of both. */
static inline uint64_t test_mix(uint64_t a, uint64_t b)
{
	uint64_t x = a ^ (b + UINT64_C(0x9e3779b97f4a7c15)) *
				 UINT64_C(0xbf58476d1ce4e5b9);

	return test_random(&x);
}

static inline uint64_t test_below(uint64_t *state, uint64_t bound)
{
	return test_random(state) % bound;
}

/* One of n, as often as their weights say. */
static inline unsigned test_weighted(uint64_t *state, const unsigned *weights,
				     unsigned n)
{
	unsigned all = 0, one = 0;
	uint64_t at;

	for (unsigned i = 0; i < n; i++)
		all += weights[i];
	at = test_below(state, all);
	while (at >= weights[one])
		at -= weights[one++];
	return one;
}

/* The address space of this process, in pages. */
static inline size_t test_mapped_pages(void)
{
	FILE *file = fopen("/proc/self/statm", "r");
	size_t n = 0;

	assert_non_null(file);
	assert_int_equal(fscanf(file, "%zu", &n), 1);
	fclose(file);
	return n;
}

/* The number of open descriptors of this process. */
static inline unsigned test_descriptors(void)
{
	DIR *folder = opendir("/proc/self/fd");
	unsigned n = 0;

	assert_non_null(folder);
	while (readdir(folder))
		n++;
	closedir(folder);
	return n;
}

#endif
