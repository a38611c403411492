/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/sized.h"

#include <errno.h>
#include <string.h>

int pn_struct_take(void *ours, size_t our_bytes, const void *theirs)
{
	const unsigned char *bytes = theirs;
	size_t size;

	memcpy(&size, theirs, sizeof(size));
	if (size < sizeof(size))
		return -EINVAL;
	for (size_t i = our_bytes; i < size; i++)
		if (bytes[i])
			return -E2BIG;
	memset(ours, 0, our_bytes);
	memcpy(ours, theirs, size < our_bytes ? size : our_bytes);
	memcpy(ours, &our_bytes, sizeof(our_bytes));
	return 0;
}
