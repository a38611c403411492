/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * monitor_impl -- what the files of the monitor share.
 *
 *   filter.c    which addresses are watched
 *   release.c   one release: notifies the subscribers
 *   hooks.c     the functions that libc's munmap and others jump to
 *   stub.c      the same for syscall()
 *   files.c     which memory is released when a file is truncated
 *   library.c   whether memory belongs to a library that may be unloaded
 *   patch.c     makes libc jump to the hooks; jump.c writes and reads jumps
 *   uffd.c      the userfaultfd and its reader thread
 *   maps.c      /proc/self/maps without allocating
 *   selftest.c  performs every kind of release and checks its detection
 *   untested.c  what is known of kinds that the self-test cannot perform
 *   monitor.c   modes, life, fork
 *   watched_range.c  a subscriber (watched_range.h): memory that others use
 */
#ifndef PN_MONITOR_IMPL_H
#define PN_MONITOR_IMPL_H

#include <sys/types.h>

#include "base/range.h"
#include "monitor/monitor.h"

/* --- filter.c ------------------------------------------------------------ */

void pn_filter_add(struct pn_range range);
void pn_filter_remove(struct pn_range range);
bool pn_filter_may_overlap(struct pn_range range);

/* --- release.c ----------------------------------------------------------- */

/* Further ranges of one call are notified as one that covers all of them. */
#define PN_RELEASE_RANGES 16

/* One release, on the stack of the thread that performs it: add ranges, begin,
 * release the memory, end. */
struct pn_release {
	unsigned nranges;
	unsigned epoch;	 /* in which it is counted as a reader, while open */
	bool open;	 /* BEFORE has been notified, AFTER has not */
	bool late;	 /* BEFORE has been notified after the release */
	bool failed;	 /* the call did not release what was expected */
	uint64_t newest; /* number of the newest subscriber it notifies */
	struct pn_range ranges[PN_RELEASE_RANGES];
	size_t certain[PN_RELEASE_RANGES]; /* first bytes of each that go */
};

static inline void pn_release_init(struct pn_release *release)
{
	release->nranges = 0;
	release->open = release->late = release->failed = false;
}

/* Adds the pages of [addr, addr + len). Adds nothing for an impossible range:
 * the kernel will refuse it, too. */
void pn_release_add(struct pn_release *release, uintptr_t addr, size_t len);
/* The same; only the first `certain` bytes are known to be released. */
void pn_release_add_perhaps(struct pn_release *release, uintptr_t addr,
			    size_t len, size_t certain);
/* Notifies BEFORE, if any of the ranges is watched. */
void pn_release_begin(struct pn_release *release);
/* Notifies AFTER, and BEFORE too if the range became watched only meanwhile.
 * release->failed is set before. */
void pn_release_end(struct pn_release *release);
/* BEFORE and AFTER for a release that has been performed, watched or not. */
void pn_release_notify(struct pn_range range);
/* The same if the range is watched. */
void pn_release_notify_watched(struct pn_range range);
/* BEFORE and AFTER for the whole address space: any of it may have been
 * released. */
void pn_release_notify_all(void);

/* files.c: adds the mappings of a file that loses pages. The file is `path`, or
 * `fd` when path is NULL; len: its new size. */
void pn_release_add_truncate(struct pn_release *release, int fd,
			     const char *path, off_t len);
void pn_release_add_fallocate(struct pn_release *release, int fd, int mode,
			      off_t from, off_t len);

void pn_release_subscribe(struct pn_subscriber *subscriber);
void pn_release_unsubscribe(struct pn_subscriber *subscriber);
/* Returns when every release has ended that had notified BEFORE, or was about
 * to, at the call. Not to be called from a callback. */
void pn_release_wait(void);
bool pn_release_has_subscribers(void);
/* In the child after fork: no readers, no subscribers. */
void pn_release_reset(void);

/* Bytes of a page of this system. */
size_t pn_monitor_page_bytes(void);

/* --- monitor.c ----------------------------------------------------------- */

struct pn_why;

/* Keeps the library with this code loaded for good: libc will jump into it, or
 * a thread will run in it. -EOPNOTSUPP, with `why`. */
int pn_monitor_keep_loaded(struct pn_why *why);

/* --- hooks.c ------------------------------------------------------------- */

enum pn_entry {
	PN_ENTRY_MUNMAP,
	PN_ENTRY_MREMAP,
	PN_ENTRY_MADVISE,
	PN_ENTRY_MMAP,
	PN_ENTRY_BRK,
	PN_ENTRY_SHMDT,
	PN_ENTRY_SBRK,
	PN_ENTRY_PROCESS_MADVISE,
	PN_ENTRY_REMAP_FILE_PAGES,
	PN_ENTRY_SHMAT,
	PN_ENTRY_FTRUNCATE,
	PN_ENTRY_TRUNCATE,
	PN_ENTRY_FALLOCATE,
	PN_ENTRY_SYSCALL,
	PN_NENTRIES,
};

enum pn_hook_flag {
	PN_HOOK_OPTIONAL = 1 << 0, /* libc may lack it, or it is too short */
	/* libc's own code is not patched, since it ends in another entry; only
	 * a foreign patch is replaced. */
	PN_HOOK_FOREIGN_ONLY = 1 << 1,
	/* A foreign patch is not replaced: the hook could not call it. */
	PN_HOOK_NO_CHAIN = 1 << 2,
};

struct pn_hook {
	const char *name;
	void (*function)(void);
	unsigned flags; /* enum pn_hook_flag */
};

extern const struct pn_hook pn_hooks[PN_NENTRIES];

/* Makes the hook call `next` (another library's hook); NULL: the kernel. */
void pn_hook_chain(enum pn_entry entry, void *next);
/* Where libc stores the break. */
void pn_hook_set_curbrk(void **curbrk);

/* Called by the stub in stub.c, which can reach only symbols of the same
 * library. Results as those of syscall(). */
#define PN_HIDDEN __attribute__((visibility("hidden")))
PN_HIDDEN long pn_hook_syscall(long nr, long a, long b, long c, long d, long e,
			       long f);
PN_HIDDEN long pn_hook_syscall_failed(long ret);

/* --- stub.c -------------------------------------------------------------- */

/* Replaces libc's syscall(). */
void pn_syscall_stub(void);

/* --- jump.c -------------------------------------------------------------- */

#define PN_JUMP_MAX_BYTES 24

/* Writes code that jumps to `target`, behind a copy of `entry`'s landing pad
 * (endbr64, bti). Returns its length. */
size_t pn_jump_encode(const void *entry, const void *target,
		      uint8_t code[PN_JUMP_MAX_BYTES]);
/* The target of the jump at entry; NULL: it does not start with one. */
void *pn_jump_decode(const void *entry);
/* Around several writes: opens what each of them needs, and closes it. */
void pn_jump_begin(void);
void pn_jump_end(void);
/* Replaces code of this process. No other thread may be running it. */
int pn_jump_write(void *entry, const uint8_t *code, size_t len);

/* --- patch.c ------------------------------------------------------------- */

/* Patches libc, or patches it again where another library has. Only while this
 * is the only thread. -EOPNOTSUPP, with `why`. */
int pn_patch_install(struct pn_why *why);
bool pn_patch_installed(void);
/* Whether every entry is as pinion left it. */
bool pn_patch_intact(void);
/* Whether one of the entries that move the break is not. */
bool pn_patch_break_changed(void);
/* Treats what the entries contain now as right. */
void pn_patch_accept(void);
/* How many entries call another library's hook. */
unsigned pn_patch_chained(void);

/* --- uffd.c -------------------------------------------------------------- */

int pn_uffd_open(struct pn_why *why);
void pn_uffd_close(void);
/* In the child after fork: closes the descriptors, makes no request to the
 * kernel and does not wait for the reader thread, which the child does not
 * have. */
void pn_uffd_reset(void);
bool pn_uffd_running(void);
/* Whether this process has a userfaultfd open; not to be asked while ours is.
 */
bool pn_uffd_used_by_program(void);
/* exact: only these pages, not the whole mappings they lie in. */
int pn_uffd_watch(struct pn_range range, bool exact);
bool pn_uffd_settled(void);
bool pn_uffd_probe(uintptr_t addr);

/* --- maps.c -------------------------------------------------------------- */

struct pn_mapping {
	uintptr_t start, end;
	unsigned long offset; /* in its file */
	unsigned long inode;  /* of its file; 0: none */
	bool sysv;	      /* a System V shared memory segment */
	bool file;	      /* of a file that other processes may open */
};

/* Calls fn for each mapping in order of addresses until it returns false.
 * Allocates nothing. -errno of open or read. */
int pn_maps_walk(bool (*fn)(void *arg, const struct pn_mapping *mapping),
		 void *arg);

/* --- library.c ----------------------------------------------------------- */

/* Whether an end of the range lies in a shared library. dlclose() unmaps it,
 * and patches do not detect that, since ld.so makes that system call itself.
 * The program itself stays loaded. */
bool pn_library_contains(struct pn_range range);

/* --- selftest.c ---------------------------------------------------------- */

/* Sets of kinds. */
#define PN_SELFTEST_ALL	   ((1u << PN_RELEASE_NKINDS) - 1)
#define PN_SELFTEST_THREAD (1u << PN_RELEASE_THREAD_STACK)
/* Can be tested only while this is the only thread; all others are tested when
 * there are subscribers. */
#define PN_SELFTEST_EARLY  (1u << PN_RELEASE_BRK)
#define PN_SELFTEST_FILES                                                \
	(1u << PN_RELEASE_TRUNCATE | 1u << PN_RELEASE_TRUNCATE_PRIVATE | \
	 1u << PN_RELEASE_PUNCH_HOLE)
#define PN_SELFTEST_HEAP \
	(1u << PN_RELEASE_BIG_FREE | 1u << PN_RELEASE_BIG_REALLOC)

/* Performs each kind of release in `kinds` on scratch memory and sets its
 * detection. single_threaded: no other thread of the program runs, so that the
 * break may be moved. Returns the kinds that were missed. */
unsigned pn_selftest_run(unsigned kinds, bool single_threaded,
			 enum pn_detection detection[PN_RELEASE_NKINDS]);

/* --- watched_range.c ----------------------------------------------------- */

/* How many ranges a release looks at. For tests. */
size_t pn_watched_range_count(void);

/* --- faults, for tests --------------------------------------------------- */

/* What to pretend. All zero outside tests. */
struct pn_monitor_faults {
	bool ignore_hooks;   /* hooks detect nothing */
	bool ignore_events;  /* events of the userfaultfd are dropped */
	bool no_userfaultfd; /* the kernel refuses it */
	bool no_proc_mem;    /* /proc/self/mem cannot be written */
	bool threaded;	     /* other threads run */
};

extern struct pn_monitor_faults pn_monitor_faults;

#endif
