/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fuzz_cache -- operations on a cache, drawn from the input, compared with the
 * naive model of the tests (tests/cache/cache_model.h), which aborts on a
 * difference. No stale key may be used.
 */
#include "fuzz.h"

#include "cache_model.h"

/* Maximum number of operations of an input. */
#define OPERATIONS 10000

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct choices choices = { .bytes = data, .left = size };
	struct cache_model_attr attr = { .choices = &choices };
	struct cache_model_result result = { 0 };

	if (!size)
		return 0;
	cache_model_run(&attr, OPERATIONS, &result);
	FUZZ_ASSERT(!result.stale);
	return 0;
}
