/* SPDX-License-Identifier: BSD-2-Clause */
#include "releases.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/compiler.h"
#include "base/range.h"
#include "map_below.h"
#include "recorder.h"

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif

#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#define MADV_GUARD_REMOVE  103
#endif

/* Tests of what only large memory goes through want more. */
#ifndef RELEASES_PAGES
#define RELEASES_PAGES 8
#endif

#define LEN (RELEASES_PAGES * PN_PAGE_BYTES)
#define BIG ((size_t)48 << 20)

static char *map_out_of_the_way(size_t bytes, int flags, int fd, off_t offset)
{
	char *p = mmap(map_below_place(), bytes, PROT_READ | PROT_WRITE,
		       flags | MAP_FIXED_NOREPLACE, fd, offset);

	return p == MAP_FAILED ? NULL : memset(p, 1, bytes);
}

static char *map(int flags)
{
	return map_out_of_the_way(LEN, flags | MAP_ANONYMOUS, -1, 0);
}

static bool prepare_private(struct scene *s)
{
	s->base = s->target = map(MAP_PRIVATE);
	s->len = LEN;
	return s->base;
}

static bool prepare_shared(struct scene *s)
{
	s->base = s->target = map(MAP_SHARED);
	s->len = LEN;
	return s->base;
}

static void unmap_base(struct scene *s)
{
	munmap(s->base, LEN);
}

/* Of base, what is not the target. */
static void unmap_rest(struct scene *s)
{
	char *end = s->target + s->len;

	munmap(s->base, (size_t)(s->target - s->base));
	if (end < s->base + LEN)
		munmap(end, (size_t)(s->base + LEN - end));
}

static bool release_whole(struct scene *s)
{
	return !munmap(s->base, LEN);
}

static bool release_by_number(struct scene *s)
{
	return !syscall(SYS_munmap, s->base, LEN);
}

static bool release_with_high_bits(struct scene *s)
{
	return !syscall(SYS_munmap | (long)0xabcd << 32, s->base, LEN);
}

static bool prepare_middle(struct scene *s)
{
	bool ok = prepare_private(s);

	s->target = s->base + 2 * PN_PAGE_BYTES;
	s->len = LEN / 8;
	return ok;
}

static bool release_middle(struct scene *s)
{
	return !munmap(s->target, s->len);
}

static bool release_by_mapping_over(struct scene *s)
{
	return mmap(s->base, LEN, PROT_READ,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == s->base;
}

static bool prepare_move(struct scene *s)
{
	s->other = map(MAP_PRIVATE);
	return prepare_private(s) && s->other;
}

static bool release_by_moving(struct scene *s)
{
	return mremap(s->base, LEN, LEN, MREMAP_MAYMOVE | MREMAP_FIXED,
		      s->other) == s->other;
}

static bool prepare_move_target(struct scene *s)
{
	bool ok = prepare_move(s);

	s->target = s->other;
	return ok;
}

static void unmap_other(struct scene *s)
{
	munmap(s->other, LEN);
}

static bool prepare_tail(struct scene *s)
{
	bool ok = prepare_private(s);

	s->target = s->base + 3 * PN_PAGE_BYTES;
	s->len = LEN - 3 * PN_PAGE_BYTES;
	return ok;
}

static bool release_by_shrinking(struct scene *s)
{
	return mremap(s->base, LEN, 3 * PN_PAGE_BYTES, 0) == s->base;
}

static bool advise_dontneed(struct scene *s)
{
	return !madvise(s->base, LEN, MADV_DONTNEED);
}

static bool advise_free(struct scene *s)
{
	return !madvise(s->base, LEN, MADV_FREE);
}

static bool advise_remove(struct scene *s)
{
	return !madvise(s->base, LEN, MADV_REMOVE);
}

/* Makes the memory usable again, with new pages. */
static bool advise_guard(struct scene *s)
{
	return !madvise(s->base, LEN, MADV_GUARD_INSTALL) &&
	       !madvise(s->base, LEN, MADV_GUARD_REMOVE);
}

static bool advise_dontneed_locked(struct scene *s)
{
	return !madvise(s->base, LEN, MADV_DONTNEED_LOCKED);
}

static bool advise_by_process(struct scene *s)
{
	ssize_t (*advise)(int, const struct iovec *, size_t, int, unsigned) =
		(ssize_t(*)(int, const struct iovec *, size_t, int,
			    unsigned))dlsym(RTLD_DEFAULT, "process_madvise");
	int self = (int)syscall(SYS_pidfd_open, getpid(), 0);
	struct iovec iov = { s->base, LEN };
	bool ok = advise && self >= 0 &&
		  advise(self, &iov, 1, MADV_DONTNEED, 0) == LEN;

	close(self);
	return ok;
}

/* malloc() of another thread must not move the break while the scene has it:
 * gives the heap free memory. */
static void reserve_heap(void)
{
	void *blocks[64];

	mallopt(M_TRIM_THRESHOLD, 64 << 20);
	mallopt(M_MMAP_THRESHOLD, 128 << 10);
	for (size_t i = 0; i < PN_ARRAY_LEN(blocks); i++)
		blocks[i] = malloc(64 << 10);
	for (size_t i = 0; i < PN_ARRAY_LEN(blocks); i++)
		free(blocks[i]);
}

static bool prepare_break(struct scene *s)
{
	uintptr_t now;
	size_t pad;

	reserve_heap();
	now = (uintptr_t)sbrk(0);
	pad = -now & (PN_PAGE_BYTES - 1);
	s->base = (char *)now;
	s->target = s->base + pad;
	s->len = LEN;
	if (sbrk((intptr_t)(pad + LEN)) == (void *)-1)
		return false;
	memset(s->target, 1, LEN);
	return true;
}

static bool release_break(struct scene *s)
{
	return !brk(s->base);
}

static bool release_break_by_sbrk(struct scene *s)
{
	return sbrk(s->base - (char *)sbrk(0)) != (void *)-1;
}

/* Some of the last quarter of a big block. */
static bool prepare_block(struct scene *s)
{
	s->base = malloc(BIG);
	if (!s->base)
		return false;
	s->target = (char *)(((uintptr_t)s->base + BIG / 8 * 7) &
			     ~(PN_PAGE_BYTES - 1));
	s->len = LEN / 8;
	memset(s->target, 1, s->len);
	return true;
}

static bool release_block(struct scene *s)
{
	free(s->base);
	return true;
}

static bool shrink_block(struct scene *s)
{
	s->base = realloc(s->base, BIG / 4 * 3);
	return s->base;
}

static void free_block(struct scene *s)
{
	free(s->base);
}

static bool prepare_segment(struct scene *s)
{
	s->id = shmget(IPC_PRIVATE, LEN, IPC_CREAT | 0600);
	if (s->id < 0)
		return false;
	s->base = s->target = shmat(s->id, map_below_place(), 0);
	shmctl(s->id, IPC_RMID, NULL);
	if (s->base == (void *)-1)
		return false;
	memset(s->base, 1, LEN);
	s->len = LEN;
	return true;
}

static bool release_segment(struct scene *s)
{
	return !shmdt(s->base);
}

/* --- files ---------------------------------------------------------------- */

/* The target is the second half of a file, mapped from its second page on. */
static bool map_file(struct scene *s, int flags)
{
	s->id = memfd_create("releases", MFD_CLOEXEC);
	if (s->id < 0 || ftruncate(s->id, 2 * LEN))
		return false;
	s->base = map_out_of_the_way(2 * LEN - PN_PAGE_BYTES, flags, s->id,
				     PN_PAGE_BYTES);
	if (!s->base)
		return false;
	s->target = s->base + LEN - PN_PAGE_BYTES;
	s->len = LEN;
	return true;
}

static bool prepare_file(struct scene *s)
{
	return map_file(s, MAP_SHARED);
}

static bool prepare_private_file(struct scene *s)
{
	return map_file(s, MAP_PRIVATE);
}

/* Makes the file as long as it was: the memory is usable again, with new pages.
 */
static bool cut_and_grown(struct scene *s, int ret)
{
	return !ret && !ftruncate(s->id, 2 * LEN);
}

static bool truncate_file(struct scene *s)
{
	return cut_and_grown(s, ftruncate(s->id, LEN));
}

static bool truncate_file_by_number(struct scene *s)
{
	return cut_and_grown(s, (int)syscall(SYS_ftruncate, s->id, LEN));
}

static bool truncate_file_by_path(struct scene *s)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", s->id);
	return cut_and_grown(s, truncate(path, LEN));
}

static bool punch_hole(struct scene *s)
{
	return !fallocate(s->id, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			  LEN, LEN);
}

static void close_file(struct scene *s)
{
	munmap(s->base, 2 * LEN - PN_PAGE_BYTES);
	close(s->id);
}

#define K(kind) PN_RELEASE_##kind

const struct release_case release_cases[] = {
	{ "munmap", K(MUNMAP), true, prepare_private, release_whole, NULL },
	{ "munmap of shared memory", K(MUNMAP), true, prepare_shared,
	  release_whole, NULL },
	{ "munmap by syscall()", K(MUNMAP), true, prepare_private,
	  release_by_number, NULL },
	{ "munmap of a part", K(MUNMAP_PART), true, prepare_middle,
	  release_middle, unmap_rest },
	{ "mmap over it", K(MMAP_FIXED), true, prepare_private,
	  release_by_mapping_over, unmap_base },
	{ "mremap away", K(MREMAP_OLD), true, prepare_move, release_by_moving,
	  unmap_other },
	{ "mremap onto it", K(MREMAP_NEW), true, prepare_move_target,
	  release_by_moving, unmap_other },
	{ "mremap to less", K(MREMAP_SHRINK), true, prepare_tail,
	  release_by_shrinking, unmap_rest },
	{ "MADV_DONTNEED", K(DONTNEED), true, prepare_private, advise_dontneed,
	  unmap_base },
	{ "MADV_FREE", K(FREE), true, prepare_private, advise_free,
	  unmap_base },
	{ "MADV_REMOVE", K(REMOVE), true, prepare_shared, advise_remove,
	  unmap_base },
	{ "MADV_DONTNEED_LOCKED", K(DONTNEED_LOCKED), true, prepare_private,
	  advise_dontneed_locked, unmap_base },
	{ "process_madvise", K(PROCESS_MADVISE), true, prepare_private,
	  advise_by_process, unmap_base },
	{ "brk", K(BRK), true, prepare_break, release_break, NULL },
	{ "sbrk", K(BRK), true, prepare_break, release_break_by_sbrk, NULL },
	{ "free", K(BIG_FREE), false, prepare_block, release_block, NULL },
	{ "realloc", K(BIG_REALLOC), false, prepare_block, shrink_block,
	  free_block },
	{ "shmdt", K(SHMDT), true, prepare_segment, release_segment, NULL },
	{ "munmap with high bits", K(HIGH_BITS), true, prepare_private,
	  release_with_high_bits, NULL },
	{ "MADV_GUARD_INSTALL", K(GUARD_INSTALL), true, prepare_private,
	  advise_guard, unmap_base },
	{ "ftruncate", K(TRUNCATE), true, prepare_file, truncate_file,
	  close_file },
	{ "ftruncate by syscall()", K(TRUNCATE), true, prepare_file,
	  truncate_file_by_number, close_file },
	{ "truncate", K(TRUNCATE), true, prepare_file, truncate_file_by_path,
	  close_file },
	{ "ftruncate of a private mapping", K(TRUNCATE_PRIVATE), true,
	  prepare_private_file, truncate_file, close_file },
	{ "a hole punched", K(PUNCH_HOLE), true, prepare_file, punch_hole,
	  close_file },
};

const size_t nrelease_cases = PN_ARRAY_LEN(release_cases);

/* --- after the release ---------------------------------------------------- */

/* Nothing is mapped at the target, unless another thread took the place. */
static bool frees_addresses(enum pn_release_kind kind)
{
	switch (kind) {
	case PN_RELEASE_MUNMAP:
	case PN_RELEASE_MUNMAP_PART:
	case PN_RELEASE_HIGH_BITS:
	case PN_RELEASE_MREMAP_OLD:
	case PN_RELEASE_MREMAP_SHRINK:
	case PN_RELEASE_BRK:
	case PN_RELEASE_BIG_FREE:
	case PN_RELEASE_BIG_REALLOC:
	case PN_RELEASE_SHMDT:
		return true;
	default:
		return false;
	}
}

bool release_map_again(const struct release_case *c, struct scene *s)
{
	s->mapped_again =
		mmap(s->target, s->len, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1,
		     0) == s->target;
	return s->mapped_again ||
	       (!frees_addresses(c->kind) &&
		!mprotect(s->target, s->len, PROT_READ | PROT_WRITE));
}

void release_clean(const struct release_case *c, struct scene *s)
{
	if (s->mapped_again)
		munmap(s->target, s->len);
	if (c->clean)
		c->clean(s);
}

bool release_is_noticed(const struct release_case *c)
{
	return !RECORDER_SANITIZED ||
	       (c->exact && c->kind != PN_RELEASE_GUARD_INSTALL);
}
