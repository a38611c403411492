/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * monitor -- reports that memory was released, before its address can hold
 * other pages that a registration would not reach.
 *
 * Nouns
 *   release     the program gives pages back: munmap, a mapping over another,
 *               mremap, madvise(DONTNEED), a heap trim, shmdt, the end of a
 *               thread. Afterwards the same address may hold other pages.
 *   subscriber  whoever has to know of releases (a cache). A process has one
 *               libc, so there is one monitor with any number of subscribers;
 *               it notifies all of them of each release of watched memory.
 *   watch       a range that a subscriber wants to be notified of. A release
 *               that touches nothing watched costs a few nanoseconds and
 *               notifies nobody.
 *   mode        how releases are detected; the table in doc/design/monitor.md
 *               says what each mode detects. A mode is tested when it is set
 *               up. If it misses a release that it should detect, it is
 *               refused and the next one is tried (patch, userfaultfd, bypass;
 *               keep, bypass). `bypass` and `none` detect nothing. In `bypass`
 *               nothing can be watched, so nothing stays registered between
 *               uses. `none` has to be asked for by name: there the program
 *               announces what it releases.
 *   detection   how a mode detects one kind of release, as the test found it.
 *
 * Life
 *   A constructor reads PINION_MONITOR, installs `patch` while the process is
 *   still single-threaded, and tests the one kind of release that cannot be
 *   tested beside other threads (the break). The first pn_monitor_subscribe()
 *   tests all others and starts what the mode needs (the reader thread of
 *   userfaultfd). The monitor is never shut down: libc jumps into its code, so
 *   the library keeps itself loaded.
 *   After fork() the child has no subscribers, and the kernel watches nothing
 *   for it; patches are inherited. Subscribing starts the monitor again.
 *   Watches that the parent made stay counted, so that whoever inherited them
 *   may unwatch.
 *
 * Notifications
 *   Each release of watched memory calls each subscriber twice, in one thread:
 *   BEFORE, then AFTER, with the same range. A notification may come although
 *   the release failed or touched only neighbours of watched memory (the filter
 *   is coarse), unless the subscriber wants the outcome (wants_outcome); it may
 *   be nested in itself (two libraries have hooks); under userfaultfd it may
 *   come late, when the address has a new owner. It is never left out. In
 *   `patch` the thread is the releasing one, and BEFORE comes while the pages
 *   are still there. In `userfaultfd` both come late, from the reader thread:
 *   see pn_monitor_settled() and pn_monitor_probe(). If a range becomes watched
 *   while it is being released, both calls come after the release.
 *   Order: a watch that returned before the release was called is honoured.
 *
 * Threads
 *   All functions: any thread, concurrently. Setup, subscribe, unsubscribe,
 *   watch and check may sleep and may not be called from a callback. The
 *   callback runs inside free(), with the allocator's locks held, perhaps
 *   recursively inside an allocation of the subscriber's own, at the end of a
 *   thread, or in a signal handler: it may not allocate, free, lock, wait, log,
 *   set errno or call a device.
 *
 * At rest
 *   A subscriber is subscribed at most once. No callback of a subscriber runs
 *   after its unsubscribe returned.
 *
 * Caveats
 *   pn_monitor_untested() lists what each mode does not detect, besides what
 *   the self-test finds (pn_monitor_report()). Under `userfaultfd` the
 *   notification of madvise() comes before the pages go, all others after.
 */
#ifndef PN_MONITOR_MONITOR_H
#define PN_MONITOR_MONITOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* In the order of the choices of the option `monitor`. */
enum pn_monitor_mode {
	PN_MONITOR_AUTO, /* never in force: chooses patch or the next mode */
	PN_MONITOR_PATCH,
	PN_MONITOR_USERFAULTFD,
	PN_MONITOR_KEEP,   /* detects nothing, but malloc keeps its memory */
	PN_MONITOR_NONE,   /* detects nothing; the program announces releases */
	PN_MONITOR_BYPASS, /* detects nothing, and nothing can be watched */
	PN_MONITOR_NMODES,
};

enum pn_release_phase {
	PN_RELEASE_BEFORE,
	PN_RELEASE_AFTER,
	/* For subscribers with wants_outcome only. */
	PN_RELEASE_FAILED,
	PN_RELEASE_PERHAPS,
};

/* The storage belongs to the subscriber and stays valid from subscribe to
 * unsubscribe. */
struct pn_subscriber {
	void (*released)(void *arg, uintptr_t addr, size_t len,
			 enum pn_release_phase phase);
	void *arg;
	/* For a subscriber that may not take memory for released that is not.
	 * BEFORE and AFTER have only the range that was certainly released.
	 * FAILED, in place of AFTER: the call failed or did not move the
	 * memory; it may have released a part. PERHAPS, in place of BEFORE and
	 * of AFTER: the memory may have been released, or may be new memory at
	 * the address of a release. */
	bool wants_outcome;
	/* The monitor's. */
	struct pn_subscriber *_Atomic next;
	uint64_t number;
};

/* Starts the monitor if necessary and begins to notify `subscriber`. May sleep.
 * -EINVAL: no callback. A monitor that detects nothing is no error: see
 * pn_monitor_mode(). */
int pn_monitor_subscribe(struct pn_subscriber *subscriber);

/* Ends the notifications; waits for callbacks under way. Does nothing if the
 * subscriber is not subscribed. */
void pn_monitor_unsubscribe(struct pn_subscriber *subscriber);

/* After the return, releases that touch [addr, addr + len) are notified.
 * Watches are counted: each needs a pn_monitor_unwatch() of the same range. To
 * be called before the range is registered with a device. `patch`: some
 * nanoseconds; refuses memory of shared libraries (-EOPNOTSUPP), whose release
 * by dlclose() it would not detect. `userfaultfd`: makes the kernel watch the
 * whole mappings that the range lies in, microseconds the first time, and
 * refuses what the kernel cannot watch: -EOPNOTSUPP (files, read-only memory,
 * System V shared memory, memory that the program has registered with a
 * userfaultfd of its own): do not keep it registered; -EFAULT: not mapped.
 * `bypass`: always -EOPNOTSUPP. */
int pn_monitor_watch(uintptr_t addr, size_t len);
void pn_monitor_unwatch(uintptr_t addr, size_t len);

/* Whether anything can be watched: not in `bypass`. One load. */
bool pn_monitor_watches(void);

/* How often the detection of releases has been interrupted: another library had
 * patched over pinion's hooks, which pn_monitor_check() found, or fork() was
 * called. What was watched before may have been released unnoticed. */
unsigned pn_monitor_interruptions(void);

/* Whether every release is detected, without the program's help, of what was
 * watched when the number of interruptions was that: in `patch` while the hooks
 * are in place, and in `userfaultfd`. Some ten loads, no lock. */
bool pn_monitor_detects(unsigned interruptions);

/* Notifies subscribers that [addr, addr + len) was released, in every mode,
 * watched or not: explicit invalidation, and releases that other libraries
 * report. May be called wherever free() may. */
void pn_monitor_invalidate(uintptr_t addr, size_t len);

/* Whether a lookup has to ask pn_monitor_settled() or pn_monitor_probe() before
 * it uses what it found: only in userfaultfd mode. */
bool pn_monitor_needs_probe(void);

/* True: every release that happened before this call (its system call had
 * returned) has been notified. False: notifications are under way; ask again or
 * treat the lookup as a miss. One load. Always true in modes that notify in the
 * releasing thread. */
bool pn_monitor_settled(void);

/* As pn_monitor_settled(), but also detects a release whose system call has not
 * returned although another thread may own the address already. addr lies in a
 * watched range. False: do not use what was found at addr. 0.8 us under
 * userfaultfd. */
bool pn_monitor_probe(uintptr_t addr);

/* Checks whether the patches are still in place (some ten loads). If another
 * library has overwritten them, tests whether releases are still detected; if
 * not, patches over that library and calls through to it (possible while no
 * other thread runs), or changes to userfaultfd or bypass. Then everything
 * watched counts as released. For slow paths, as before a registration. Returns
 * whether nothing had changed. */
bool pn_monitor_check(void);

/* Chooses the mode again. -EBUSY: there are subscribers; -EINVAL: no such mode.
 * pn_monitor_mode() says which mode it became. For tests and for children after
 * fork; otherwise the constructor does it. */
int pn_monitor_setup(enum pn_monitor_mode wanted);

enum pn_monitor_mode pn_monitor_mode(void);
const char *pn_monitor_mode_name(enum pn_monitor_mode mode);

/* --- what `pinion info` shows -------------------------------------------- */

enum pn_release_kind {
	PN_RELEASE_MUNMAP,
	PN_RELEASE_MUNMAP_PART,
	PN_RELEASE_MMAP_FIXED,
	PN_RELEASE_MREMAP_OLD,
	PN_RELEASE_MREMAP_NEW,
	PN_RELEASE_MREMAP_SHRINK,
	PN_RELEASE_DONTNEED,
	PN_RELEASE_FREE,
	PN_RELEASE_REMOVE,
	PN_RELEASE_DONTNEED_LOCKED,
	PN_RELEASE_PROCESS_MADVISE,
	PN_RELEASE_BRK,
	PN_RELEASE_BIG_FREE,
	PN_RELEASE_BIG_REALLOC,
	PN_RELEASE_SHMDT,
	PN_RELEASE_THREAD_STACK,
	PN_RELEASE_HIGH_BITS,
	PN_RELEASE_GUARD_INSTALL,
	PN_RELEASE_TRUNCATE,
	PN_RELEASE_TRUNCATE_PRIVATE,
	PN_RELEASE_PUNCH_HOLE,
	PN_RELEASE_DLCLOSE,
	PN_RELEASE_NKINDS,
};

/* How the mode in force detects a kind of release. */
enum pn_detection {
	PN_DETECTION_UNTESTED,	 /* could not be tested safely at that moment */
	PN_DETECTION_BEFORE,	 /* notified while the pages were still there */
	PN_DETECTION_AFTER,	 /* notified later */
	PN_DETECTION_KEPT,	 /* the allocator did not give the pages back */
	PN_DETECTION_REFUSED,	 /* such memory cannot be watched */
	PN_DETECTION_IMPOSSIBLE, /* this system refuses such a release */
	PN_DETECTION_NONE,	 /* missed */
};

#define PN_MONITOR_REASON_BYTES 160

struct pn_monitor_report {
	enum pn_monitor_mode wanted, mode;
	enum pn_detection detection[PN_RELEASE_NKINDS];
	/* Whether the release of an address that another thread maps again
	 * before the system call returns is notified in time, for unmapping
	 * and for madvise(). */
	bool race_unmap, race_madvise;
	bool needs_probe;
	unsigned chained; /* libc entries that another library had patched */
	/* Why a mode was refused; "": it was not tried, or not refused. */
	char refused[PN_MONITOR_NMODES][PN_MONITOR_REASON_BYTES];
};

/* Starts the monitor if it has not been. */
void pn_monitor_report(struct pn_monitor_report *out);
const char *pn_release_kind_name(enum pn_release_kind kind);
const char *pn_detection_name(enum pn_detection detection);

/* The index-th kind of release that the self-test does not perform, and in
 * words how the mode detects it; NULL: no more. doc/design/monitor.md and
 * pinion(7) name each. */
const char *pn_monitor_untested(unsigned index, enum pn_monitor_mode mode,
				const char **detection);

#endif
