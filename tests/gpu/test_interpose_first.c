/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What libpinion-cuda.so calls of the driver before an unmodified program has a
 * copy for it: nothing. Until then the driver sees the program's own calls, one
 * for one.
 */
#include "program.h"

static struct program p;
static uint64_t (*get)(const char *name);
static pn_cu_deviceptr there;

static uint64_t seen(void)
{
	return p.calls("*");
}

static void looking_functions_up_calls_none(void **state)
{
	(void)state;
	/* main() has looked up all functions and called cuInit(). */
	assert_int_equal(get("refused"), 0);
	assert_int_equal(seen(), 1);
	assert_int_equal(p.calls("cuInit"), 1);
}

static void calls_without_a_copy_are_the_programs_own(void **state)
{
	char *at = program_map(MIB);
	unsigned own = 1, type;
	pn_cu_context context;
	pn_cu_stream stream;
	void *pinned;

	(void)state;
#define OWN(call) (assert_int_equal(call, 0), assert_int_equal(seen(), ++own))
	OWN(p.cuDevicePrimaryCtxRetain(&context, 0));
	OWN(p.cuCtxSetCurrent(context));
	OWN(p.cuMemAlloc(&there, 2 * MIB));
	OWN(p.cuStreamCreate(&stream, 1));
	OWN(p.cuMemHostAlloc(&pinned, MIB, 0));
	OWN(p.cuMemHostRegister(at, MIB, 0));
	OWN(p.cuPointerGetAttribute(&type, PN_CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
				    (uintptr_t)at));
	OWN(p.cuMemHostUnregister(at));
	OWN(p.cuMemFreeHost(pinned));
	OWN(p.cuStreamSynchronize(stream));
	OWN(p.cuStreamDestroy(stream));
#undef OWN
	munmap(at, MIB);
}

/* Below the size from which the engine copies. */
static void short_copies_are_the_programs_own(void **state)
{
	char *at = program_map(MIB);
	uint64_t before = seen();

	(void)state;
	program_fill(at, MIB, 1);
	for (size_t bytes = 1; bytes < MIB; bytes *= 8) {
		assert_int_equal(p.cuMemcpyHtoD(there, at, bytes), 0);
		assert_int_equal(seen(), ++before);
		assert_int_equal(p.cuMemcpyDtoH(at, there, bytes), 0);
		assert_int_equal(seen(), ++before);
	}
	assert_int_equal(get("registrations"), 0);
	assert_int_equal(get("streams"), 0);
	munmap(at, MIB);
}

/* So the counts above would show it. */
static void a_long_copy_is_pinions(void **state)
{
	char *at = program_map(2 * MIB);
	uint64_t before = seen();

	(void)state;
	assert_int_equal(p.cuMemcpyHtoD(there, at, 2 * MIB), 0);
	if (p.held_pages)
		assert_true(seen() > before + 1);
	else
		assert_int_equal(seen(), before + 1);
	munmap(at, 2 * MIB);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(looking_functions_up_calls_none),
		TEST(calls_without_a_copy_are_the_programs_own),
		TEST(short_copies_are_the_programs_own),
		TEST(a_long_copy_is_pinions),
	};

	program_open(&p, argc > 1 ? argv[1] : "address");
	*(void **)&get = dlsym(p.driver, "pinion_standin_get");
	if (!p.calls || !get) {
		printf("skipped: a real driver counts no calls\n");
		return TEST_SKIP;
	}
	return RUN_TESTS(tests);
}
