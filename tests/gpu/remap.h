/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * remap -- ways in which private memory loses its pages and has others, at the
 * same address, right afterwards. Those of other kinds of memory are in
 * ../monitor/releases.h.
 */
#ifndef PN_TESTS_GPU_REMAP_H
#define PN_TESTS_GPU_REMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "test.h"

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif

enum remap_bytes {
	REMAP_ZERO,	 /* all bytes are zero now */
	REMAP_PART_ZERO, /* those of one page are */
	REMAP_ANY,	 /* the old ones or zero */
};

struct remap {
	const char *name;
	enum remap_bytes bytes;
	/* For a moment nothing is mapped there. */
	bool hole;
	/* False: this system refuses, and nothing has happened. */
	bool (*fn)(char *at, size_t bytes);
};

static inline bool remap_again(void *at, size_t bytes)
{
	return mmap(at, bytes, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at;
}

static inline char *remap_elsewhere(size_t bytes)
{
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(at, MAP_FAILED);
	return at;
}

static inline bool remap_unmapped(char *at, size_t bytes)
{
	return !munmap(at, bytes) && remap_again(at, bytes);
}

static inline bool remap_unmapped_by_number(char *at, size_t bytes)
{
	return !syscall(SYS_munmap, at, bytes) && remap_again(at, bytes);
}

static inline bool remap_over(char *at, size_t bytes)
{
	return remap_again(at, bytes);
}

static inline bool remap_moved_onto(char *at, size_t bytes)
{
	return mremap(remap_elsewhere(bytes), bytes, bytes,
		      MREMAP_MAYMOVE | MREMAP_FIXED, at) == at;
}

/* Of several mappings some kernels move the first and fail then. */
static inline bool remap_moved_away(char *at, size_t bytes)
{
	char *other = remap_elsewhere(bytes);

	mremap(at, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, other);
	munmap(other, bytes);
	return remap_again(at, bytes);
}

static inline bool remap_shrunk(char *at, size_t bytes)
{
	return mremap(at, bytes, 4096, 0) == at && !munmap(at, 4096) &&
	       remap_again(at, bytes);
}

static inline bool remap_dontneed(char *at, size_t bytes)
{
	return !madvise(at, bytes, MADV_DONTNEED);
}

static inline bool remap_dontneed_locked(char *at, size_t bytes)
{
	return !madvise(at, bytes, MADV_DONTNEED_LOCKED);
}

static inline bool remap_free(char *at, size_t bytes)
{
	return !madvise(at, bytes, MADV_FREE);
}

static inline bool remap_part(char *at, size_t bytes)
{
	return remap_unmapped(at + bytes / 8192 * 4096, 4096);
}

static const struct remap remaps[] = {
	{ "munmap", REMAP_ZERO, true, remap_unmapped },
	{ "munmap by syscall()", REMAP_ZERO, true, remap_unmapped_by_number },
	{ "mmap over it", REMAP_ZERO, false, remap_over },
	{ "mremap onto it", REMAP_ZERO, false, remap_moved_onto },
	{ "mremap away", REMAP_ZERO, true, remap_moved_away },
	{ "mremap to less", REMAP_ZERO, true, remap_shrunk },
	{ "MADV_DONTNEED", REMAP_ZERO, false, remap_dontneed },
	{ "MADV_DONTNEED_LOCKED", REMAP_ZERO, false, remap_dontneed_locked },
	{ "MADV_FREE", REMAP_ANY, false, remap_free },
	{ "munmap of a page", REMAP_PART_ZERO, true, remap_part },
};

#endif
