/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/huge.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/pages.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* linux/fs.h, since 6.7 */
struct scan_region {
	uint64_t start, end, categories;
};

struct scan {
	uint64_t size;
	uint64_t flags;
	uint64_t start, end;
	uint64_t walk_end;
	uint64_t vec, vec_len;
	uint64_t max_pages;
	uint64_t category_inverted, category_mask, category_anyof_mask;
	uint64_t return_mask;
};

#define SCAN	   _IOWR('f', 16, struct scan)
#define IS_PRESENT (1 << 3)
#define IS_HUGE	   (1 << 6)

#define HUGE_PAGES (PN_PAGES_HUGE_BYTES / PN_PAGE_BYTES)

size_t pn_huge_bound(struct pn_range pages)
{
	return pn_range_pages(pages.addr, pages.len, PN_PAGES_HUGE_BYTES).len;
}

/* Whether all pages of a block of 2 MiB are present. */
static bool block_is_present(uintptr_t page)
{
	uintptr_t block = page & ~(PN_PAGES_HUGE_BYTES - 1);
	unsigned char there[HUGE_PAGES];

	if (mincore((void *)block, PN_PAGES_HUGE_BYTES, there))
		return false;
	for (size_t i = 0; i < HUGE_PAGES; i++)
		if (!(there[i] & 1))
			return false;
	return true;
}

/* IS_PRESENT and IS_HUGE as the page tables have them; -1: unknown. */
static int look_up(int pagemap, uintptr_t page)
{
	struct scan_region found = { .categories = 0 };
	struct scan scan = {
		.size = sizeof(scan),
		.start = page,
		.end = page + PN_PAGE_BYTES,
		.vec = (uintptr_t)&found,
		.vec_len = 1,
		.category_mask = IS_PRESENT,
		.return_mask = IS_PRESENT | IS_HUGE,
	};

	return ioctl(pagemap, SCAN, &scan) < 0 ? -1 : (int)found.categories;
}

/* Whether the page is part of a huge page; true when unknown. */
static bool is_huge(int pagemap, uintptr_t page)
{
	int is = look_up(pagemap, page);

	if (is < 0 || !(is & IS_PRESENT)) {
		/* A failure is harmless: pinning will report it. */
		madvise((void *)page, PN_PAGE_BYTES, MADV_POPULATE_WRITE);
		is = look_up(pagemap, page);
	}
	return is < 0 ? block_is_present(page) : is & IS_HUGE;
}

size_t pn_huge_bytes(struct pn_range pages)
{
	struct pn_range all =
		pn_range_pages(pages.addr, pages.len, PN_PAGES_HUGE_BYTES);
	uintptr_t end = pages.addr + pages.len;
	size_t before = pages.addr - all.addr;
	size_t behind = all.addr + all.len - end;
	bool first = false, last = false;
	int pagemap;

	if (!before && !behind)
		return pages.len;
	pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	if (before)
		first = is_huge(pagemap, pages.addr);
	if (before && all.len == PN_PAGES_HUGE_BYTES)
		last = first;
	else if (behind)
		last = is_huge(pagemap, end - PN_PAGE_BYTES);
	if (pagemap >= 0)
		close(pagemap);
	return pages.len + (first ? before : 0) + (last ? behind : 0);
}

size_t pn_huge_vmpin(void)
{
	int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
	char text[4096];
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	const char *line;

	if (fd >= 0)
		close(fd);
	if (n <= 0)
		return SIZE_MAX;
	text[n] = 0;
	line = strstr(text, "VmPin:");
	return line ? strtoull(line + 6, NULL, 10) * 1024 : SIZE_MAX;
}
