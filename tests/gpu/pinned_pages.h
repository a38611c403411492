/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pinned_pages -- the kernel's count of pages that are pinned for a device:
 * nr_foll_pin_acquired less nr_foll_pin_released of /proc/vmstat. It counts
 * those of all processes, and each CPU keeps some pages back, which only root
 * can have added.
 */
#ifndef PN_TESTS_GPU_PINNED_PAGES_H
#define PN_TESTS_GPU_PINNED_PAGES_H

#include <fcntl.h>
#include <stdbool.h>
#include <unistd.h>

#include "test.h"

/* The kernel's limit of what a CPU keeps back. */
#define PINNED_PAGES_OF_A_CPU 128

struct pinned_pages {
	uint64_t acquired, released; /* since the start of the machine */
};

/* False: only up to pinned_pages_slack() is known. */
static inline bool pinned_pages_exact(void)
{
	int fd = open("/proc/sys/vm/stat_refresh", O_RDONLY | O_CLOEXEC);
	char some[16];
	bool ok = fd >= 0 && read(fd, some, sizeof(some)) >= 0;

	if (fd >= 0)
		close(fd);
	return ok;
}

static inline uint64_t pinned_pages_slack(void)
{
	return pinned_pages_exact()
		       ? 0
		       : PINNED_PAGES_OF_A_CPU *
				 (uint64_t)sysconf(_SC_NPROCESSORS_CONF);
}

/* False: this kernel does not count. */
static inline bool pinned_pages_read(struct pinned_pages *out)
{
	unsigned long long value;
	unsigned found = 0;
	char line[128];
	FILE *file;

	*out = (struct pinned_pages){ 0 };
	pinned_pages_exact();
	file = fopen("/proc/vmstat", "re");
	while (file && fgets(line, sizeof(line), file)) {
		if (sscanf(line, "nr_foll_pin_acquired %llu", &value) == 1) {
			out->acquired = value;
			found++;
		}
		if (sscanf(line, "nr_foll_pin_released %llu", &value) == 1) {
			out->released = value;
			found++;
		}
	}
	if (file)
		fclose(file);
	return found == 2;
}

/* Now; 0 where the kernel does not count. */
static inline uint64_t pinned_pages(void)
{
	struct pinned_pages now;

	return pinned_pages_read(&now) ? now.acquired - now.released : 0;
}

#endif
