/* SPDX-License-Identifier: BSD-2-Clause */
/* driver_failures -- the calls of the driver that a test of copies can have
 * fail, and what pinion may say then. */
#ifndef PN_TESTS_GPU_DRIVER_FAILURES_H
#define PN_TESTS_GPU_DRIVER_FAILURES_H

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "device/cuda/driver.h"

/* clang-format off */
static const char *const driver_symbols[] = {
#define NAME(field, symbol, params) #symbol,
	PN_CUDA_FUNCTIONS(NAME) PN_CUDA_OPTIONAL_FUNCTIONS(NAME)
#undef NAME
};
/* clang-format on */

/* What the driver refuses to give up stays. */
static inline bool driver_ends_something(const char *symbol)
{
	return strstr(symbol, "Destroy") || strstr(symbol, "Unregister") ||
	       strstr(symbol, "Release") || strstr(symbol, "FreeHost");
}

/* An error that pinion_cuda_copy(3) lists, and no other than that of the driver
 * or one that follows from it. */
static inline bool driver_error_is_clear(int ret)
{
	return ret == -ENOMEM || ret == -ENODEV || ret == -EIO || ret == -EBUSY;
}

#endif
