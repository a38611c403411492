/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * monitor_impl -- what the files of the monitor share.
 *
 *   filter.c    which addresses anybody watches
 *   release.c   one release on its way to the subscribers
 *   hooks.c     what runs instead of libc's munmap and its kin
 *   stub.c      the same for syscall()
 *   files.c     which memory a file takes along when it is cut
 *   library.c   whether memory belongs to a library that may be unloaded
 *   patch.c     makes libc jump there; jump.c writes and reads such jumps
 *   uffd.c      the userfaultfd and its reader thread
 *   maps.c      /proc/self/maps without allocating
 *   selftest.c  performs every kind of release and looks
 *   untested.c   what is known of kinds that it cannot perform
 *   monitor.c   modes, life, fork
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

/* More ranges than this in one call are told as one that covers the rest. */
#define PN_RELEASE_RANGES 16

/* One release, on the stack of whoever performs it: add ranges, begin, release
 * the memory, end. */
struct pn_release {
	unsigned nranges;
	unsigned epoch; /* of the gate, while open */
	bool open;
	uint64_t newest; /* of the subscribers it is told to */
	struct pn_range ranges[PN_RELEASE_RANGES];
};

static inline void pn_release_init(struct pn_release *release)
{
	release->nranges = 0;
	release->open = false;
}

/* Adds the pages of [addr, addr + len); an impossible range adds nothing,
 * since the kernel will refuse it too. */
void pn_release_add(struct pn_release *release, uintptr_t addr, size_t len);
/* Nothing but returns when no range is watched. */
void pn_release_begin(struct pn_release *release);
void pn_release_end(struct pn_release *release);
/* Both, for a release that somebody else performed; whether watched or not. */
void pn_release_notify(struct pn_range range);
void pn_release_notify_watched(struct pn_range range);
void pn_release_notify_all(void);

/* files.c: adds what is mapped of a file that loses pages. By path unless that
 * is NULL; len: its new size. */
void pn_release_add_truncate(struct pn_release *release, int fd,
			     const char *path, off_t len);
void pn_release_add_fallocate(struct pn_release *release, int fd, int mode,
			      off_t from, off_t len);

void pn_release_subscribe(struct pn_subscriber *subscriber);
void pn_release_unsubscribe(struct pn_subscriber *subscriber);
bool pn_release_has_subscribers(void);
/* In the child after fork: nobody is inside, nobody subscribes. */
void pn_release_reset(void);

/* Bytes of a page of this system. */
size_t pn_monitor_page_bytes(void);

/* --- monitor.c ----------------------------------------------------------- */

struct pn_why;

/* Keeps the library with this code loaded for good: libc will jump into it, or
 * a thread run in it. -EOPNOTSUPP, with `why`. */
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
	PN_HOOK_OPTIONAL = 1 << 0, /* libc may lack it, or have it too short */
	/* libc's own is left alone, as it ends in another entry; only a
	 * foreign patch in it is taken over. */
	PN_HOOK_FOREIGN_ONLY = 1 << 1,
	/* A foreign patch in it is left alone: the hook could not call it. */
	PN_HOOK_NO_CHAIN = 1 << 2,
};

struct pn_hook {
	const char *name;
	void (*function)(void);
	unsigned flags; /* enum pn_hook_flag */
};

extern const struct pn_hook pn_hooks[PN_NENTRIES];

/* Has the hook call `next` (another library's hook) instead of the kernel;
 * NULL: the kernel. */
void pn_hook_chain(enum pn_entry entry, void *next);
/* Where libc keeps its idea of the break. */
void pn_hook_set_curbrk(void **curbrk);

/* Called by the stub in stub.c, which can reach only what is in the same
 * library; results as those of syscall(). */
#define PN_HIDDEN __attribute__((visibility("hidden")))
PN_HIDDEN long pn_hook_syscall(long nr, long a, long b, long c, long d, long e,
			       long f);
PN_HIDDEN long pn_hook_syscall_failed(long ret);

/* --- stub.c -------------------------------------------------------------- */

/* Stands in for libc's syscall(). */
void pn_syscall_stub(void);

/* --- jump.c -------------------------------------------------------------- */

#define PN_JUMP_MAX_BYTES 24

/* Writes code that jumps to `target` and keeps `entry`'s landing pad. Returns
 * its length. */
size_t pn_jump_encode(const void *entry, const void *target,
		      uint8_t code[PN_JUMP_MAX_BYTES]);
/* Where the jump at entry leads; NULL: it does not start with one. */
void *pn_jump_decode(const void *entry);
/* Around several writes: opens what each would have to open, and closes it. */
void pn_jump_begin(void);
void pn_jump_end(void);
/* Replaces code of this process. Nothing else may be running it. */
int pn_jump_write(void *entry, const uint8_t *code, size_t len);

/* --- patch.c ------------------------------------------------------------- */

/* Patches libc, or patches it again where somebody else has. Only while this
 * thread is alone. -EOPNOTSUPP, with `why`. */
int pn_patch_install(struct pn_why *why);
bool pn_patch_installed(void);
/* Whether every entry is as we left it. */
bool pn_patch_intact(void);
/* Whether one of those that move the break is not. */
bool pn_patch_break_changed(void);
/* Takes what is there now for good. */
void pn_patch_accept(void);
unsigned pn_patch_chained(void);

/* --- uffd.c -------------------------------------------------------------- */

int pn_uffd_open(struct pn_why *why);
void pn_uffd_close(void);
/* In the child after fork. */
void pn_uffd_reset(void);
bool pn_uffd_running(void);
/* Whether this process has a userfaultfd open; not to be asked while ours is.
 */
bool pn_uffd_used_by_program(void);
/* exact: these pages only, not their whole mappings. */
int pn_uffd_watch(struct pn_range range, bool exact);
bool pn_uffd_settled(void);
bool pn_uffd_probe(uintptr_t addr);

/* --- maps.c -------------------------------------------------------------- */

struct pn_mapping {
	uintptr_t start, end;
	unsigned long offset; /* in its file */
	unsigned long inode;  /* of its file; 0: none */
	bool sysv;	      /* a System V shared memory segment */
	bool file;	      /* of a file that others may open or have open */
};

/* Calls fn for each mapping in order of addresses until it returns false.
 * Allocates nothing. -errno of open or read. */
int pn_maps_walk(bool (*fn)(void *arg, const struct pn_mapping *mapping),
		 void *arg);

/* --- library.c ----------------------------------------------------------- */

/* Whether an end of the range lies in a shared library: dlclose() unmaps it,
 * unseen by patches, since ld.so makes that system call itself. The program
 * itself stays. */
bool pn_library_contains(struct pn_range range);

/* --- selftest.c ---------------------------------------------------------- */

/* Which kinds to try. */
#define PN_SELFTEST_ALL	   ((1u << PN_RELEASE_NKINDS) - 1)
#define PN_SELFTEST_THREAD (1u << PN_RELEASE_THREAD_STACK)
/* What can be tried only while this thread is alone; all else waits until there
 * are subscribers. */
#define PN_SELFTEST_EARLY  (1u << PN_RELEASE_BRK)
#define PN_SELFTEST_FILES                                                \
	(1u << PN_RELEASE_TRUNCATE | 1u << PN_RELEASE_TRUNCATE_PRIVATE | \
	 1u << PN_RELEASE_PUNCH_HOLE)
#define PN_SELFTEST_HEAP \
	(1u << PN_RELEASE_BIG_FREE | 1u << PN_RELEASE_BIG_REALLOC)

/* Performs each kind of release in `kinds` on scratch memory and sets its
 * detection. `alone`: no other thread of the program runs, so that the break
 * may be moved. Returns the kinds that were released unseen. */
unsigned pn_selftest_run(unsigned kinds, bool alone,
			 enum pn_detection detection[PN_RELEASE_NKINDS]);

/* --- faults, for tests --------------------------------------------------- */

/* What to pretend. All zero outside tests. */
struct pn_monitor_faults {
	bool ignore_hooks;   /* hooks see nothing */
	bool ignore_events;  /* what the kernel tells is not heard */
	bool no_userfaultfd; /* the kernel refuses it */
	bool no_proc_mem;    /* /proc/self/mem cannot be written */
	bool threaded;	     /* other threads run */
};

extern struct pn_monitor_faults pn_monitor_faults;

#endif
