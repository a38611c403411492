/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/sized.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/log.h"

/* The longest possible struct: an uninitialised size is recognised before
 * memory behind the struct is read. */
#define MAX_BYTES 4096

static int refuse_size(size_t size)
{
	static atomic_flag said = ATOMIC_FLAG_INIT;

	if (!atomic_flag_test_and_set(&said))
		pn_error("a struct has the size %zu: start from zero and set "
			 ".size to its sizeof",
			 size);
	return -EINVAL;
}

static bool is_zero(const char *bytes, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (bytes[i])
			return false;
	return true;
}

int pn_sized_copy(void *ours, size_t bytes, const void *theirs)
{
	size_t size;

	if (!theirs)
		return -EINVAL;
	memcpy(&size, theirs, sizeof(size));
	/* A struct with nothing but its size has the size of a pointer. */
	if (size < 2 * sizeof(size) || size > MAX_BYTES ||
	    size % sizeof(uint32_t))
		return refuse_size(size);
	if (size > bytes &&
	    !is_zero((const char *)theirs + bytes, size - bytes))
		return -E2BIG;
	memset(ours, 0, bytes);
	memcpy(ours, theirs, size < bytes ? size : bytes);
	memcpy(ours, &bytes, sizeof(bytes));
	return 0;
}
