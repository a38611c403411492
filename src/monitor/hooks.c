/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The functions that replace libc's munmap, mremap, madvise, mmap, brk, shmdt
 * and the rarer calls that release memory. libc's are thin wrappers around one
 * system call, so the hooks make the call themselves: no instruction of libc is
 * moved or decoded. If another library had patched an entry before pinion, the
 * hook calls that library's hook instead of the kernel.
 *
 * Each hook determines which ranges the call may release, notifies BEFORE,
 * makes the call, notifies AFTER. It determines them from number and arguments
 * of the system call alone, since what the call really does is known only
 * afterwards. So a growing mremap that could stay in place counts as a move,
 * and a call that fails has been notified all the same. For a cache that costs
 * only the time to register a region again. Other subscribers could not use
 * their memory any more; they are told afterwards that the call failed, and
 * which part of a range was notified to be on the safe side.
 *
 * What comes through syscall() always goes to the kernel: hooks of other
 * libraries end there, and calling them from there would be an endless loop.
 *
 * errno is set as libc sets it: on failure only.
 */
#include <errno.h>
#include <stdatomic.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "base/compiler.h"
#include "monitor/monitor_impl.h"
#include "monitor/syscalls.h"

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif
#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#endif
#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif
#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

#define MAX_IOVECS 1024 /* the kernel's UIO_MAXIOV */

typedef long next_fn(long a, long b, long c, long d, long e, long f);

static _Atomic(next_fn *) chain[PN_NENTRIES];
static void **libc_curbrk;

void pn_hook_chain(enum pn_entry entry, void *next)
{
	atomic_store(&chain[entry], (next_fn *)next);
}

void pn_hook_set_curbrk(void **curbrk)
{
	libc_curbrk = curbrk;
}

/* --- what a system call releases ----------------------------------------- */

/* For huge pages mmap and mremap round lengths up to whole ones. A range can be
 * in huge pages only if its address is a multiple of their size. */
static size_t huge_span(uintptr_t addr, size_t len)
{
	static const size_t huge[] = { (size_t)1 << 30, (size_t)2 << 20 };

	for (size_t i = 0; i < PN_ARRAY_LEN(huge); i++)
		if (!(addr & (huge[i] - 1)) && len <= SIZE_MAX - huge[i])
			return (len + huge[i] - 1) & ~(huge[i] - 1);
	return len;
}

/* What is mapped there may be in huge pages. */
static void add_huge(struct pn_release *release, uintptr_t addr, size_t len)
{
	if (len)
		pn_release_add_perhaps(release, addr, huge_span(addr, len),
				       len);
}

static void add_mmap(struct pn_release *release, uintptr_t addr, size_t len,
		     int flags)
{
	if (!(flags & MAP_FIXED) || (flags & MAP_FIXED_NOREPLACE))
		return;
	if ((flags & MAP_ANONYMOUS) && !(flags & MAP_HUGETLB))
		pn_release_add(release, addr, len);
	else
		add_huge(release, addr, len);
}

/* The end of a mapping that becomes shorter, from the first whole page on. */
static void add_shrink(struct pn_release *release, uintptr_t old,
		       size_t old_len, size_t len)
{
	size_t page = pn_monitor_page_bytes(), span = huge_span(old, old_len);
	size_t kept = (len + page - 1) & ~(page - 1);

	if (kept >= len && kept < span)
		pn_release_add_perhaps(release, old + kept, span - kept,
				       kept < old_len ? old_len - kept : 0);
}

/* The fifth argument is used only with flags that ask for it. */
static void add_mremap(struct pn_release *release, const struct pn_args *args)
{
	uintptr_t old = (uintptr_t)args->v[0], to = (uintptr_t)args->v[4];
	size_t old_len = (size_t)args->v[1], len = (size_t)args->v[2];
	int flags = (int)args->v[3];

	if (flags & MREMAP_FIXED)
		add_huge(release, to, len);
	if ((flags & (MREMAP_FIXED | MREMAP_DONTUNMAP)) ||
	    (len > old_len && (flags & MREMAP_MAYMOVE)))
		add_huge(release, old, old_len);
	else if (len < old_len)
		add_shrink(release, old, old_len, len);
}

static bool advice_releases(int advice)
{
	return advice == MADV_DONTNEED || advice == MADV_FREE ||
	       advice == MADV_REMOVE || advice == MADV_DONTNEED_LOCKED ||
	       advice == MADV_GUARD_INSTALL || advice == MADV_HWPOISON;
}

/* Reads one element of a caller's array as the kernel would: a bad pointer is
 * an error, not a crash. Where process_vm_readv is forbidden, the pointer is
 * trusted. */
static bool fetch_iovec(const struct iovec *from, struct iovec *out)
{
	struct iovec local = { out, sizeof(*out) };
	struct iovec remote = { (void *)from, sizeof(*from) };
	long pid = PN_SYSCALL(SYS_getpid, 0);
	long ret = PN_SYSCALL(SYS_process_vm_readv, pid, (long)&local, 1,
			      (long)&remote, 1, 0);

	if (ret == -EPERM || ret == -ENOSYS)
		*out = *from;
	return ret != -EFAULT;
}

/* Ranges of another process count as ours. */
static void add_iovecs(struct pn_release *release, const struct iovec *iov,
		       size_t n)
{
	struct iovec one;

	if (n > MAX_IOVECS)
		return;
	for (size_t i = 0; i < n && fetch_iovec(&iov[i], &one); i++)
		pn_release_add_perhaps(release, (uintptr_t)one.iov_base,
				       one.iov_len, 0);
}

static void add_break(struct pn_release *release, uintptr_t addr)
{
	uintptr_t now = (uintptr_t)PN_SYSCALL(SYS_brk, 0);
	size_t page = pn_monitor_page_bytes();
	uintptr_t end = (addr + page - 1) & ~(page - 1);

	if (addr && end >= addr && end < now)
		pn_release_add(release, end, now - end);
}

struct attachment {
	uintptr_t addr, end;
};

/* The kernel detaches every mapping of the segment that is where attaching at
 * addr would have put it. Other mappings that look like that are included. */
static bool extend_attachment(void *arg, const struct pn_mapping *m)
{
	struct attachment *a = arg;

	if (m->start >= a->addr && m->start - a->addr == m->offset)
		a->end = m->end;
	return true;
}

static void add_shmdt(struct pn_release *release, uintptr_t addr)
{
	struct attachment a = { .addr = addr };

	if (pn_maps_walk(extend_attachment, &a))
		pn_release_add_perhaps(release, addr, UINTPTR_MAX / 2 - addr,
				       0);
	else if (a.end)
		pn_release_add(release, addr, a.end - addr);
}

static void add_shmat(struct pn_release *release, int id, uintptr_t addr,
		      int flags)
{
	struct shmid_ds ds;

	if (!(flags & SHM_REMAP) || !addr)
		return;
	if (flags & SHM_RND)
		addr &= ~(uintptr_t)(SHMLBA - 1);
	if (PN_SYSCALL(SYS_shmctl, id, IPC_STAT, (long)&ds))
		pn_release_add_perhaps(release, addr, UINTPTR_MAX / 2 - addr,
				       0);
	else
		pn_release_add(release, addr, ds.shm_segsz);
}

static inline void add_call(struct pn_release *release, long nr,
			    const struct pn_args *args)
{
	const long *v = args->v;

	switch (nr) {
	case SYS_munmap:
	case SYS_remap_file_pages:
		pn_release_add(release, (uintptr_t)v[0], (size_t)v[1]);
		return;
	case SYS_mmap:
		add_mmap(release, (uintptr_t)v[0], (size_t)v[1], (int)v[3]);
		return;
	case SYS_mremap:
		add_mremap(release, args);
		return;
	case SYS_madvise:
		if (advice_releases((int)v[2]))
			pn_release_add(release, (uintptr_t)v[0], (size_t)v[1]);
		return;
	case SYS_process_madvise:
		if (advice_releases((int)v[3]))
			add_iovecs(release, (const struct iovec *)v[1],
				   (size_t)v[2]);
		return;
	case SYS_brk:
		add_break(release, (uintptr_t)v[0]);
		return;
	case SYS_shmdt:
		add_shmdt(release, (uintptr_t)v[0]);
		return;
	case SYS_shmat:
		add_shmat(release, (int)v[0], (uintptr_t)v[1], (int)v[2]);
		return;
	case SYS_ftruncate:
		pn_release_add_truncate(release, (int)v[0], NULL, v[1]);
		return;
	case SYS_truncate:
		pn_release_add_truncate(release, -1, (const char *)v[0], v[1]);
		return;
	case SYS_fallocate:
		pn_release_add_fallocate(release, (int)v[0], (int)v[1], v[2],
					 v[3]);
		return;
	}
}

/* Whether the break is above addr: it could not be moved down. Neither brk()
 * nor the system call says so. */
static bool break_is_above(uintptr_t addr)
{
	return (uintptr_t)PN_SYSCALL(SYS_brk, 0) > addr;
}

/* Whether the call released what its arguments let expect. A call that fails
 * may have released a part. */
static bool has_released(long nr, const struct pn_args *args, long ret)
{
	const long *v = args->v;

	if (nr == SYS_brk)
		return !break_is_above((uintptr_t)v[0]);
	if (nr == SYS_mremap && ret == v[0] && (size_t)v[2] >= (size_t)v[1])
		return false; /* grown in place */
	return !pn_syscall_failed(ret);
}

/* --- making the call ----------------------------------------------------- */

/* As libc's wrappers do. */
static long with_errno(long ret)
{
	if (pn_likely(!pn_syscall_failed(ret)))
		return ret;
	errno = (int)-ret;
	return -1;
}

/* libc's malloc and sbrk() use libc's copy of the break, so whoever moves the
 * break has to update the copy. */
static long kernel_brk(void *addr)
{
	void *now = (void *)PN_SYSCALL(SYS_brk, (long)addr);

	*libc_curbrk = now;
	if (now >= addr)
		return 0;
	errno = ENOMEM;
	return -1;
}

/* Makes the call: the kernel's, or the hook that was here before pinion's. */
static inline long perform(enum pn_entry entry, long nr,
			   const struct pn_args *args)
{
	next_fn *next =
		atomic_load_explicit(&chain[entry], memory_order_relaxed);
	const long *v = args->v;

	if (pn_unlikely(next != NULL))
		return next(v[0], v[1], v[2], v[3], v[4], v[5]);
	if (nr == SYS_brk)
		return kernel_brk((void *)v[0]);
	return with_errno(pn_syscall(nr, *args));
}

static inline long call(enum pn_entry entry, long nr, struct pn_args args)
{
	struct pn_release release;
	long ret;

	pn_release_init(&release);
	add_call(&release, nr, &args);
	pn_release_begin(&release);
	ret = perform(entry, nr, &args);
	if (pn_unlikely(release.open))
		release.failed = !has_released(nr, &args, ret);
	pn_release_end(&release);
	return ret;
}

/* --- the hooks ----------------------------------------------------------- */

static int hook_munmap(void *addr, size_t len)
{
	return (int)call(PN_ENTRY_MUNMAP, SYS_munmap,
			 PN_ARGS((long)addr, (long)len));
}

static void *hook_mmap(void *addr, size_t len, int prot, int flags, int fd,
		       off_t offset)
{
	return (void *)call(PN_ENTRY_MMAP, SYS_mmap,
			    PN_ARGS((long)addr, (long)len, prot, flags, fd,
				    offset));
}

/* libc's function is variadic; the fifth argument is in the same register. */
static void *hook_mremap(void *old, size_t old_len, size_t len, int flags,
			 void *to)
{
	if (!(flags & (MREMAP_FIXED | MREMAP_DONTUNMAP)))
		to = NULL;
	return (void *)call(PN_ENTRY_MREMAP, SYS_mremap,
			    PN_ARGS((long)old, (long)old_len, (long)len, flags,
				    (long)to));
}

static int hook_madvise(void *addr, size_t len, int advice)
{
	return (int)call(PN_ENTRY_MADVISE, SYS_madvise,
			 PN_ARGS((long)addr, (long)len, advice));
}

static ssize_t hook_process_madvise(int pidfd, const struct iovec *iov,
				    size_t n, int advice, unsigned flags)
{
	return call(PN_ENTRY_PROCESS_MADVISE, SYS_process_madvise,
		    PN_ARGS(pidfd, (long)iov, (long)n, advice, (long)flags));
}

static int hook_remap_file_pages(void *addr, size_t len, int prot, size_t page,
				 int flags)
{
	return (int)call(PN_ENTRY_REMAP_FILE_PAGES, SYS_remap_file_pages,
			 PN_ARGS((long)addr, (long)len, prot, (long)page,
				 flags));
}

static int hook_brk(void *addr)
{
	return (int)call(PN_ENTRY_BRK, SYS_brk, PN_ARGS((long)addr));
}

/* Installed only over another library's sbrk, which may call the kernel itself;
 * libc's own sbrk ends in brk(). */
static void *hook_sbrk(intptr_t increment)
{
	struct pn_release release;
	uintptr_t now = (uintptr_t)*libc_curbrk;
	uintptr_t then = now + (uintptr_t)increment;
	void *ret;

	pn_release_init(&release);
	if (increment < 0 && now > -(uintptr_t)increment)
		add_break(&release, then);
	pn_release_begin(&release);
	ret = (void *)atomic_load(&chain[PN_ENTRY_SBRK])(increment, 0, 0, 0, 0,
							 0);
	if (pn_unlikely(release.open))
		release.failed = break_is_above(then);
	pn_release_end(&release);
	return ret;
}

static int hook_shmdt(const void *addr)
{
	return (int)call(PN_ENTRY_SHMDT, SYS_shmdt, PN_ARGS((long)addr));
}

static void *hook_shmat(int id, const void *addr, int flags)
{
	return (void *)call(PN_ENTRY_SHMAT, SYS_shmat,
			    PN_ARGS(id, (long)addr, flags));
}

static int hook_ftruncate(int fd, off_t len)
{
	return (int)call(PN_ENTRY_FTRUNCATE, SYS_ftruncate, PN_ARGS(fd, len));
}

static int hook_truncate(const char *path, off_t len)
{
	return (int)call(PN_ENTRY_TRUNCATE, SYS_truncate,
			 PN_ARGS((long)path, len));
}

static int hook_fallocate(int fd, int mode, off_t from, off_t len)
{
	return (int)call(PN_ENTRY_FALLOCATE, SYS_fallocate,
			 PN_ARGS(fd, mode, from, len));
}

/* The kernel uses 32 bits of the number. On x86-64 one of them selects the
 * calls with 32-bit pointers; those that release memory have the same numbers.
 */
static long syscall_number(long nr)
{
#ifdef __x86_64__
	return nr & 0xbfffffff;
#else
	return nr & 0xffffffff;
#endif
}

/* The stub jumps here with the numbers that release memory. brk: libc does not
 * update its copy of the break for this one, and neither does the hook. */
long pn_hook_syscall(long nr, long a, long b, long c, long d, long e, long f)
{
	struct pn_args args = PN_ARGS(a, b, c, d, e, f);
	struct pn_release release;
	long ret;

	pn_release_init(&release);
	add_call(&release, syscall_number(nr), &args);
	pn_release_begin(&release);
	ret = pn_syscall(nr, args);
	if (pn_unlikely(release.open))
		release.failed = !has_released(syscall_number(nr), &args, ret);
	pn_release_end(&release);
	return with_errno(ret);
}

long pn_hook_syscall_failed(long ret)
{
	return with_errno(ret);
}

#define HOOK(name) #name, (void (*)(void))hook_##name

const struct pn_hook pn_hooks[PN_NENTRIES] = {
	[PN_ENTRY_MUNMAP] = { HOOK(munmap), 0 },
	[PN_ENTRY_MREMAP] = { HOOK(mremap), 0 },
	[PN_ENTRY_MADVISE] = { HOOK(madvise), 0 },
	[PN_ENTRY_MMAP] = { HOOK(mmap), 0 },
	[PN_ENTRY_BRK] = { HOOK(brk), 0 },
	[PN_ENTRY_SHMDT] = { HOOK(shmdt), 0 },
	[PN_ENTRY_SBRK] = { HOOK(sbrk), PN_HOOK_FOREIGN_ONLY },
	[PN_ENTRY_PROCESS_MADVISE] = { HOOK(process_madvise),
				       PN_HOOK_OPTIONAL },
	[PN_ENTRY_REMAP_FILE_PAGES] = { HOOK(remap_file_pages),
					PN_HOOK_OPTIONAL },
	[PN_ENTRY_SHMAT] = { HOOK(shmat), PN_HOOK_OPTIONAL },
	[PN_ENTRY_FTRUNCATE] = { HOOK(ftruncate), PN_HOOK_OPTIONAL },
	[PN_ENTRY_TRUNCATE] = { HOOK(truncate), PN_HOOK_OPTIONAL },
	[PN_ENTRY_FALLOCATE] = { HOOK(fallocate), PN_HOOK_OPTIONAL },
	[PN_ENTRY_SYSCALL] = { "syscall", pn_syscall_stub, PN_HOOK_NO_CHAIN },
};
