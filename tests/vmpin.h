/* SPDX-License-Identifier: BSD-2-Clause */
/* vmpin -- how much this process has pinned or locked, from the kernel. */
#ifndef PN_TESTS_VMPIN_H
#define PN_TESTS_VMPIN_H

#include "test.h"

#include <unistd.h>

#include "base/clock.h"

/* The bytes of a line in /proc/self/status. */
static inline size_t vm_bytes(const char *name)
{
	FILE *file = fopen("/proc/self/status", "re");
	size_t kib = 0;
	char line[256];

	assert_non_null(file);
	while (fgets(line, sizeof(line), file))
		if (!strncmp(line, name, strlen(name)) &&
		    sscanf(line + strlen(name), ": %zu kB", &kib) == 1)
			break;
	fclose(file);
	return kib << 10;
}

/* 0 if the device only locks pages. */
static inline size_t vmpin(void)
{
	return vm_bytes("VmPin");
}

/* Kernel 6.1 uncharges pages about a second late. */
static inline void assert_vmpin_comes_back_to(size_t bytes)
{
	uint64_t end = pn_clock_ns() + 60 * PN_NS_PER_S;

	while (vmpin() != bytes && pn_clock_ns() < end)
		usleep(10000);
	assert_int_equal(vmpin(), bytes);
}

#endif
