/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Performs every kind of release on scratch memory, as a program would, and
 * checks whether a subscriber of the monitor's own was notified of the right
 * range, and when. Only this shows what a mode detects in this process: another
 * allocator, hooks of another library, a sandbox or the kernel may each take
 * something away.
 *
 * The tests leave no trace: blocks are larger than the size from which freeing
 * one changes malloc's own thresholds (32 MiB), the break is moved only when no
 * other thread could move it, and userfaultfd watches only the scratch pages.
 *
 * Threads: one test at a time (the monitor's lock).
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/compiler.h"
#include "monitor/monitor_impl.h"
#include "monitor/syscalls.h"

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif

#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#endif

#define SCRATCH_PAGES 4
#define BIG_BYTES     ((size_t)40 << 20)
#define STACK_BYTES   ((size_t)1 << 20)
#define PATTERN	      0xa5

/* The release under test, and which notifications came. */
static struct observed {
	struct pn_range target;
	_Atomic long releaser; /* thread that performs the release */
	_Atomic bool before, after;
	bool refused; /* the mode does not watch such memory */
} observed;

static size_t pages(size_t n)
{
	return n * pn_monitor_page_bytes();
}

/* Called inside the release: only system calls are allowed. */
static bool resident(uintptr_t addr)
{
	unsigned char vec = 0;

	return !PN_SYSCALL(SYS_mincore, (long)addr, (long)pages(1),
			   (long)&vec) &&
	       (vec & 1);
}

static void observe_release(void *arg, uintptr_t addr, size_t len,
			    enum pn_release_phase phase)
{
	struct observed *w = arg;

	if (!pn_range_covers((struct pn_range){ addr, len }, w->target))
		return;
	if (phase == PN_RELEASE_AFTER)
		atomic_store(&w->after, true);
	else if (PN_SYSCALL(SYS_gettid, 0) == atomic_load(&w->releaser) &&
		 resident(w->target.addr))
		atomic_store(&w->before, true);
}

static struct pn_subscriber subscriber = { .released = observe_release,
					   .arg = &observed };

/* --- before and after a release ------------------------------------------ */

/* Waits for notifications under way. */
static void settle(void)
{
	while (!pn_uffd_settled())
		sched_yield();
}

/* Fills the pages and watches them; this thread will release them. Waits first,
 * so that late notifications of what was at this address before do not count.
 */
static void watch_target(void *addr, size_t len)
{
	settle();
	memset(addr, PATTERN, len);
	observed.target = (struct pn_range){ (uintptr_t)addr, len };
	atomic_store(&observed.releaser, PN_SYSCALL(SYS_gettid, 0));
	atomic_store(&observed.before, false);
	atomic_store(&observed.after, false);
	pn_filter_add(observed.target);
	observed.refused = pn_uffd_running() &&
			   pn_uffd_watch(observed.target, true) == -EOPNOTSUPP;
}

static enum pn_detection detected(void)
{
	settle();
	pn_filter_remove(observed.target);
	if (!atomic_load(&observed.after))
		return observed.refused ? PN_DETECTION_REFUSED
					: PN_DETECTION_NONE;
	return atomic_load(&observed.before) ? PN_DETECTION_BEFORE
					     : PN_DETECTION_AFTER;
}

/* Whether the page at addr still holds the pattern. Asks the kernel, since the
 * page may not be mapped. */
static bool still_mapped(uintptr_t addr)
{
	unsigned char byte = 0;
	bool same = false;
	int fds[2];

	if (pipe(fds))
		return false;
	if (PN_SYSCALL(SYS_write, fds[1], (long)addr, 1) == 1 &&
	    read(fds[0], &byte, 1) == 1)
		same = byte == PATTERN;
	close(fds[0]);
	close(fds[1]);
	return same;
}

/* For releases that an allocator may put off: then no notification is right. */
static enum pn_detection detected_or_kept(void)
{
	enum pn_detection detection = detected();

	if (detection == PN_DETECTION_NONE &&
	    still_mapped(observed.target.addr))
		return PN_DETECTION_KEPT;
	return detection;
}

/* Whoever unmaps a part of it must not unmap that part again: another thread
 * may have mapped something there meanwhile. */
static char *scratch(int flags)
{
	char *p = mmap(NULL, pages(SCRATCH_PAGES), PROT_READ | PROT_WRITE,
		       flags | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

/* --- one function per kind ----------------------------------------------- */

static enum pn_detection try_munmap(void)
{
	char *p = scratch(MAP_PRIVATE);

	if (!p)
		return PN_DETECTION_IMPOSSIBLE;
	watch_target(p, pages(SCRATCH_PAGES));
	munmap(p, pages(SCRATCH_PAGES));
	return detected();
}

static enum pn_detection try_munmap_part(void)
{
	char *p = scratch(MAP_PRIVATE);
	enum pn_detection detection;

	if (!p)
		return PN_DETECTION_IMPOSSIBLE;
	watch_target(p + pages(1), pages(1));
	munmap(p + pages(1), pages(1));
	detection = detected();
	munmap(p, pages(1));
	munmap(p + pages(2), pages(SCRATCH_PAGES - 2));
	return detection;
}

static enum pn_detection try_mmap_fixed(void)
{
	char *p = scratch(MAP_PRIVATE);
	enum pn_detection detection;
	void *fresh;

	if (!p)
		return PN_DETECTION_IMPOSSIBLE;
	watch_target(p, pages(SCRATCH_PAGES));
	fresh = mmap(p, pages(SCRATCH_PAGES), PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	detection = detected();
	if (fresh == MAP_FAILED)
		detection = PN_DETECTION_IMPOSSIBLE;
	munmap(p, pages(SCRATCH_PAGES));
	return detection;
}

static enum pn_detection try_mremap_fixed(bool watch_new)
{
	size_t len = pages(SCRATCH_PAGES);
	char *from = scratch(MAP_PRIVATE), *to = scratch(MAP_PRIVATE);
	enum pn_detection detection;
	void *moved;

	if (!from || !to)
		return PN_DETECTION_IMPOSSIBLE;
	watch_target(watch_new ? to : from, len);
	moved = mremap(from, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, to);
	detection = detected();
	if (moved == MAP_FAILED) {
		munmap(from, len);
		detection = PN_DETECTION_IMPOSSIBLE;
	}
	munmap(to, len);
	return detection;
}

static enum pn_detection try_mremap_old(void)
{
	return try_mremap_fixed(false);
}

static enum pn_detection try_mremap_new(void)
{
	return try_mremap_fixed(true);
}

static enum pn_detection try_mremap_shrink(void)
{
	size_t len = pages(SCRATCH_PAGES);
	char *p = scratch(MAP_PRIVATE);
	enum pn_detection detection;

	if (!p)
		return PN_DETECTION_IMPOSSIBLE;
	watch_target(p + pages(2), pages(SCRATCH_PAGES - 2));
	if (mremap(p, pages(SCRATCH_PAGES), pages(2), 0) != MAP_FAILED)
		len = pages(2);
	detection = detected();
	munmap(p, len);
	return detection;
}

static enum pn_detection try_advice(int flags, int advice)
{
	char *p = scratch(flags);
	enum pn_detection detection;

	if (!p)
		return PN_DETECTION_IMPOSSIBLE;
	watch_target(p, pages(SCRATCH_PAGES));
	if (madvise(p, pages(SCRATCH_PAGES), advice)) {
		detected();
		detection = PN_DETECTION_IMPOSSIBLE;
	} else {
		detection = detected();
	}
	munmap(p, pages(SCRATCH_PAGES));
	return detection;
}

static enum pn_detection try_dontneed(void)
{
	return try_advice(MAP_PRIVATE, MADV_DONTNEED);
}

static enum pn_detection try_free(void)
{
	return try_advice(MAP_PRIVATE, MADV_FREE);
}

static enum pn_detection try_remove(void)
{
	return try_advice(MAP_SHARED, MADV_REMOVE);
}

static enum pn_detection try_dontneed_locked(void)
{
	return try_advice(MAP_PRIVATE, MADV_DONTNEED_LOCKED);
}

/* Kernels before 6.13 do not let a process advise itself. */
static enum pn_detection try_process_madvise(void)
{
	ssize_t (*advise)(int, const struct iovec *, size_t, int, unsigned) =
		(ssize_t(*)(int, const struct iovec *, size_t, int,
			    unsigned))dlsym(RTLD_DEFAULT, "process_madvise");
	long self = PN_SYSCALL(SYS_pidfd_open, getpid(), 0);
	char *p = scratch(MAP_PRIVATE);
	struct iovec iov = { p, pages(SCRATCH_PAGES) };
	enum pn_detection detection = PN_DETECTION_IMPOSSIBLE;

	if (advise && p && self >= 0) {
		watch_target(p, iov.iov_len);
		if (advise((int)self, &iov, 1, MADV_DONTNEED, 0) < 0)
			detected();
		else
			detection = detected();
	}
	if (p)
		munmap(p, iov.iov_len);
	if (self >= 0)
		close((int)self);
	return detection;
}

static enum pn_detection try_brk(void)
{
	uintptr_t now = (uintptr_t)sbrk(0);
	uintptr_t edge = (now + pages(1) - 1) & ~(pages(1) - 1);
	intptr_t more = (intptr_t)(edge - now + pages(SCRATCH_PAGES));

	if (sbrk(more) == (void *)-1)
		return PN_DETECTION_IMPOSSIBLE;
	watch_target((void *)edge, pages(SCRATCH_PAGES));
	sbrk(-more);
	return detected();
}

/* The page at `offset` in a block of malloc's. */
static char *inside(char *block, size_t offset)
{
	return (char *)(((uintptr_t)block + offset) & ~(pages(1) - 1));
}

static enum pn_detection try_big_free(void)
{
	char *volatile block = malloc(BIG_BYTES);

	if (!block)
		return PN_DETECTION_IMPOSSIBLE;
	watch_target(inside(block, BIG_BYTES / 2), pages(SCRATCH_PAGES));
	free(block);
	return detected_or_kept();
}

/* Shrinks the block: growing in place would release nothing. */
static enum pn_detection try_big_realloc(void)
{
	size_t more = BIG_BYTES / 4;
	char *volatile block = malloc(BIG_BYTES + more);
	char *volatile kept;
	enum pn_detection detection;

	if (!block)
		return PN_DETECTION_IMPOSSIBLE;
	watch_target(inside(block, BIG_BYTES + more / 2), pages(SCRATCH_PAGES));
	kept = realloc(block, BIG_BYTES);
	detection = detected_or_kept();
	free(kept ? kept : block);
	return detection;
}

static enum pn_detection try_shmdt(void)
{
	int id = shmget(IPC_PRIVATE, pages(SCRATCH_PAGES), IPC_CREAT | 0600);
	char *p;

	if (id < 0)
		return PN_DETECTION_IMPOSSIBLE;
	p = shmat(id, NULL, 0);
	shmctl(id, IPC_RMID, NULL);
	if (p == (void *)-1)
		return PN_DETECTION_IMPOSSIBLE;
	watch_target(p, pages(SCRATCH_PAGES));
	shmdt(p);
	return detected();
}

/* A thread that ends releases the unused part of its stack. */
static void *use_stack(void *arg)
{
	char *frame = __builtin_frame_address(0);

	(void)arg;
	watch_target(inside(frame - STACK_BYTES / 2, 0), pages(1));
	return NULL;
}

static enum pn_detection try_thread_stack(void)
{
	pthread_attr_t attr;
	pthread_t thread;
	int ret;

	if (pthread_attr_init(&attr))
		return PN_DETECTION_IMPOSSIBLE;
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	ret = pthread_create(&thread, &attr, use_stack, NULL);
	pthread_attr_destroy(&attr);
	if (ret)
		return PN_DETECTION_IMPOSSIBLE;
	pthread_join(thread, NULL);
	return detected_or_kept();
}

/* The kernel uses 32 bits of the number. */
static enum pn_detection try_high_bits(void)
{
	char *p = scratch(MAP_PRIVATE);

	if (!p)
		return PN_DETECTION_IMPOSSIBLE;
	watch_target(p, pages(SCRATCH_PAGES));
	if (!syscall(SYS_munmap | 1L << 32, p, pages(SCRATCH_PAGES)))
		return detected();
	detected();
	munmap(p, pages(SCRATCH_PAGES));
	return PN_DETECTION_IMPOSSIBLE;
}

/* Linux 6.13. */
static enum pn_detection try_guard_install(void)
{
	return try_advice(MAP_PRIVATE, MADV_GUARD_INSTALL);
}

static int truncate_file(int fd)
{
	return ftruncate(fd, 0);
}

static int punch_hole(int fd)
{
	return fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
			 (off_t)pages(SCRATCH_PAGES));
}

/* Makes `cut` take the pages of a file in memory away. */
static enum pn_detection try_file(int flags, int (*cut)(int fd))
{
	size_t len = pages(SCRATCH_PAGES);
	long fd = PN_SYSCALL(SYS_memfd_create, (long)"pinion-monitor",
			     MFD_CLOEXEC);
	enum pn_detection detection = PN_DETECTION_IMPOSSIBLE;
	char *p;

	if (pn_syscall_failed(fd))
		return detection;
	if (!PN_SYSCALL(SYS_ftruncate, fd, (long)len)) {
		p = mmap(NULL, len, PROT_READ | PROT_WRITE, flags, (int)fd, 0);
		if (p != MAP_FAILED) {
			watch_target(p, len);
			if (cut((int)fd))
				detected();
			else
				detection = detected();
			munmap(p, len);
		}
	}
	close((int)fd);
	return detection;
}

static enum pn_detection try_truncate(void)
{
	return try_file(MAP_SHARED, truncate_file);
}

static enum pn_detection try_truncate_private(void)
{
	return try_file(MAP_PRIVATE, truncate_file);
}

static enum pn_detection try_punch_hole(void)
{
	return try_file(MAP_SHARED, punch_hole);
}

/* Loads no library: checks whether the memory of one that is loaded would be
 * refused. The kernel's events include what ld.so does. */
static enum pn_detection try_dlclose(void)
{
	uintptr_t addr = (uintptr_t)dlsym(RTLD_DEFAULT, "fallocate");
	struct pn_range page = pn_range_pages(addr, 1, pages(1));

	if (pn_uffd_running())
		return PN_DETECTION_AFTER;
	return pn_library_contains(page) ? PN_DETECTION_REFUSED
					 : PN_DETECTION_NONE;
}

static enum pn_detection (*const tries[PN_RELEASE_NKINDS])(void) = {
	[PN_RELEASE_MUNMAP] = try_munmap,
	[PN_RELEASE_MUNMAP_PART] = try_munmap_part,
	[PN_RELEASE_MMAP_FIXED] = try_mmap_fixed,
	[PN_RELEASE_MREMAP_OLD] = try_mremap_old,
	[PN_RELEASE_MREMAP_NEW] = try_mremap_new,
	[PN_RELEASE_MREMAP_SHRINK] = try_mremap_shrink,
	[PN_RELEASE_DONTNEED] = try_dontneed,
	[PN_RELEASE_FREE] = try_free,
	[PN_RELEASE_REMOVE] = try_remove,
	[PN_RELEASE_DONTNEED_LOCKED] = try_dontneed_locked,
	[PN_RELEASE_PROCESS_MADVISE] = try_process_madvise,
	[PN_RELEASE_BRK] = try_brk,
	[PN_RELEASE_BIG_FREE] = try_big_free,
	[PN_RELEASE_BIG_REALLOC] = try_big_realloc,
	[PN_RELEASE_SHMDT] = try_shmdt,
	[PN_RELEASE_THREAD_STACK] = try_thread_stack,
	[PN_RELEASE_HIGH_BITS] = try_high_bits,
	[PN_RELEASE_GUARD_INSTALL] = try_guard_install,
	[PN_RELEASE_TRUNCATE] = try_truncate,
	[PN_RELEASE_TRUNCATE_PRIVATE] = try_truncate_private,
	[PN_RELEASE_PUNCH_HOLE] = try_punch_hole,
	[PN_RELEASE_DLCLOSE] = try_dlclose,
};

unsigned pn_selftest_run(unsigned kinds, bool single_threaded,
			 enum pn_detection detection[PN_RELEASE_NKINDS])
{
	unsigned missed = 0;
	int saved = errno;

	pn_release_subscribe(&subscriber);
	for (int k = 0; k < PN_RELEASE_NKINDS; k++) {
		if (!(kinds >> k & 1))
			continue;
		detection[k] = k == PN_RELEASE_BRK && !single_threaded
				       ? PN_DETECTION_UNTESTED
				       : tries[k]();
		if (detection[k] == PN_DETECTION_NONE)
			missed |= 1u << k;
	}
	pn_release_unsubscribe(&subscriber);
	errno = saved;
	return missed;
}
