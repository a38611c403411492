/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Every kind of release that the monitor knows, in an unmodified CUDA program
 * under libpinion-cuda.so: memory that pinion keeps registered is released, the
 * same address gets new pages and new bytes, and the program's own copy, of the
 * whole and of some bytes, delivers the new bytes.
 */
#include "../monitor/releases.h"
#include "program.h"

static struct program p;
static pn_cu_deviceptr there;

/* Whether pinion held some of the memory. */
static bool new_bytes_arrive(const struct release_case *c)
{
	struct scene s = { 0 };
	size_t nheld, some;
	char *at;

	if (!c->prepare(&s))
		return false;
	at = s.target;
	some = pn_min_size(s.len, 8 * KIB);
	program_fill(at, s.len, 1);
	nheld = program_use(&p, there, at, s.len);
	if (!c->release(&s)) {
		printf("%-28s refused by this system\n", c->name);
		return false;
	}
	printf("%-28s %5zu pages were held\n", c->name, nheld);
	if (release_map_again(c, &s)) {
		program_fill(at, s.len, 2);
		assert_int_equal(p.cuMemcpyHtoD(there, at, some), 0);
		assert_int_equal(program_wrong_there(&p, there, some, 2), 0);
		assert_int_equal(p.cuMemcpyHtoD(there, at, s.len), 0);
		assert_int_equal(program_wrong_there(&p, there, s.len, 2), 0);
	} else {
		nheld = 0;
	}
	release_clean(c, &s);
	return nheld;
}

static void after_every_kind_of_release_new_bytes_arrive(void **state)
{
	size_t held = 0, tried = 0;

	(void)state;
	for (size_t i = 0; i < nrelease_cases; i++) {
		const struct release_case *c = &release_cases[i];

		if (!release_is_noticed(c))
			continue;
		tried++;
		held += new_bytes_arrive(c);
	}
	if (p.holds)
		assert_true(held > tried / 2);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(after_every_kind_of_release_new_bytes_arrive),
	};

	program_open(&p, argc > 1 ? argv[1] : "address");
	program_context(&p);
	if (p.cuMemAlloc(&there, 64 * MIB))
		return 1;
	return RUN_TESTS(tests);
}
