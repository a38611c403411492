/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * monitor -- learns that memory was released before its address can mean
 * something else.
 *
 * Nouns
 *   release     the program gives pages back: munmap, a mapping over another,
 *               mremap, madvise(DONTNEED), a heap trim, shmdt, a thread's end.
 *               Afterwards the same address may hold other pages.
 *   subscriber  who must know (a cache). One process has one libc, so there is
 *               one monitor and any number of subscribers; each release of
 *               watched memory is told to all of them.
 *   watch       a subscriber's word that it cares about a range. Releases that
 *               touch nothing watched cost a few nanoseconds and are told to
 *               nobody.
 *   mode        how releases are learnt; the table in doc/design/monitor.md
 *               says what each sees. Every mode is tested when it is set up:
 *               one that misses a release it should see is refused, and the
 *               next is taken (patch, userfaultfd, bypass; keep, bypass).
 *               Nothing is seen in `bypass` and `none`. In `bypass` nothing
 *               can be watched, so nothing stays registered between uses;
 *               `none`, which has to be asked for by name, leaves it to the
 *               program to announce what it releases.
 *
 * Life
 *   A constructor reads PINION_MONITOR, installs `patch` while the process is
 *   still single-threaded, and tests the one release that cannot be tried
 *   beside other threads (the break). The first pn_monitor_subscribe() tests
 *   all others and starts whatever the mode needs (the reader thread of
 *   userfaultfd). The monitor is never taken down: code that libc jumps to must
 *   stay, so the library holds itself in memory.
 *   After fork() the child has no subscribers, and no kernel watches for it;
 *   patches are inherited. Subscribing starts the monitor again. Watches that
 *   the parent made stay counted, so that whoever inherited them may unwatch.
 *
 * What a subscriber is told
 *   Each release of watched memory reaches each subscriber twice, in one
 *   thread: BEFORE, then AFTER, with the same range. A release may be told
 *   although it failed or touched only neighbours of what is watched (the
 *   filter is coarse), or be told once more inside itself (two libraries'
 *   hooks), or late, when the address has a new owner (userfaultfd); it is
 *   never left out. In `patch` the thread is the releasing one and BEFORE
 *   comes while the pages are still there. In `userfaultfd` both come late,
 *   from the reader thread: see pn_monitor_settled() and pn_monitor_probe().
 *   If a range becomes watched while its release is under way, both come after
 *   it.
 *   Order: a watch that returned before the release was called is honoured.
 *
 * Threads
 *   All functions: any thread, concurrently; setup, subscribe, unsubscribe,
 *   watch and check may sleep and may not be called from a callback. The
 *   callback runs inside free(), with the allocator's locks held, perhaps
 *   recursively inside an allocation of the subscriber's own, in the last
 *   moments of a thread, or in a signal handler: it may not allocate, free,
 *   lock, wait, log, set errno or call a device.
 *
 * At rest
 *   A subscriber is subscribed once at most; no callback of a subscriber runs
 *   after its unsubscribe returned.
 *
 * Caveats
 *   What each mode does not see is one table, pn_monitor_untested(), besides
 *   what the self-test finds (pn_monitor_report()). The news of madvise() under
 *   `userfaultfd` come before the pages go, those of all else after.
 */
#ifndef PN_MONITOR_MONITOR_H
#define PN_MONITOR_MONITOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* In the order of the choices of the option `monitor`. */
enum pn_monitor_mode {
	PN_MONITOR_AUTO, /* only ever asked for: patch, or what comes next */
	PN_MONITOR_PATCH,
	PN_MONITOR_USERFAULTFD,
	PN_MONITOR_KEEP,   /* nothing seen, but malloc keeps what it has */
	PN_MONITOR_NONE,   /* nothing seen; the program announces releases */
	PN_MONITOR_BYPASS, /* nothing seen, and nothing can be watched */
	PN_MONITOR_NMODES,
};

enum pn_release_phase { PN_RELEASE_BEFORE, PN_RELEASE_AFTER };

/* Storage is the subscriber's, from subscribe to unsubscribe. */
struct pn_subscriber {
	void (*released)(void *arg, uintptr_t addr, size_t len,
			 enum pn_release_phase phase);
	void *arg;
	/* The monitor's. */
	struct pn_subscriber *_Atomic next;
	uint64_t number;
};

/* Starts the monitor if need be and begins telling `subscriber`. May sleep.
 * -EINVAL: no callback. A monitor that sees nothing is no error: ask
 * pn_monitor_mode(). */
int pn_monitor_subscribe(struct pn_subscriber *subscriber);

/* Ends it; waits for callbacks under way. A stranger is ignored. */
void pn_monitor_unsubscribe(struct pn_subscriber *subscriber);

/* From the return on, releases touching [addr, addr + len) are told. Watches
 * are counted: each wants its pn_monitor_unwatch() of the same range. Call it
 * before registering the range with a device. `patch`: some nanoseconds;
 * refuses memory of shared libraries (-EOPNOTSUPP), which dlclose() would
 * unmap unseen.
 * `userfaultfd`: has the kernel watch the whole mappings that the range lies
 * in, microseconds the first time, and refuses what the kernel cannot watch:
 * -EOPNOTSUPP (files, read-only memory, System V shared memory, what the
 * program has registered with a userfaultfd of its own): do not keep it
 * registered;
 * -EFAULT: not mapped. `bypass`: always -EOPNOTSUPP. */
int pn_monitor_watch(uintptr_t addr, size_t len);
void pn_monitor_unwatch(uintptr_t addr, size_t len);

/* Whether anything can be watched: not in `bypass`. One load. */
bool pn_monitor_watches(void);

/* Tells subscribers that [addr, addr + len) was released, in every mode,
 * watched or not: explicit invalidation and events imported from other
 * libraries. May be called from wherever free() may. */
void pn_monitor_invalidate(uintptr_t addr, size_t len);

/* Whether lookups have to ask pn_monitor_settled() or pn_monitor_probe()
 * before they trust what they found: only in userfaultfd mode. */
bool pn_monitor_needs_probe(void);

/* True when every release that happened before this call (its system call had
 * returned) has been told; false: news are being told just now, ask again or
 * call it a miss. One load. Always true in modes that tell in the releasing
 * thread. */
bool pn_monitor_settled(void);

/* As settled, but also catches releases whose system call has not returned
 * although their address may already be somebody else's: the two-thread race.
 * addr lies in a watched range. False: do not trust what was found at addr.
 * 0.8 us under userfaultfd. */
bool pn_monitor_probe(uintptr_t addr);

/* Looks whether the patches are still in place (some ten loads) and acts when
 * another library has overwritten them: tests whether releases are still seen;
 * if not, patches over it and calls through to it (possible while nothing else
 * runs), or changes to userfaultfd or bypass. Then everything watched counts as
 * released. For slow paths, as before a registration. Returns whether nothing
 * had changed. */
bool pn_monitor_check(void);

/* Chooses a mode anew. -EBUSY: there are subscribers; -EINVAL: no such mode.
 * The result is what pn_monitor_mode() says then. For tests and for children
 * after fork; the constructor does it for everybody else. */
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

/* How a kind of release is seen in the mode in force. */
enum pn_detection {
	PN_DETECTION_UNTESTED,	 /* could not be tried safely at that moment */
	PN_DETECTION_BEFORE,	 /* told while the pages were still there */
	PN_DETECTION_AFTER,	 /* told later */
	PN_DETECTION_KEPT,	 /* the allocator did not give the pages back */
	PN_DETECTION_REFUSED,	 /* such memory cannot be watched, and is not */
	PN_DETECTION_IMPOSSIBLE, /* this system refuses such a release */
	PN_DETECTION_NONE,
};

#define PN_MONITOR_REASON_BYTES 160

struct pn_monitor_report {
	enum pn_monitor_mode wanted, mode;
	enum pn_detection detection[PN_RELEASE_NKINDS];
	/* Whether an address that one thread releases while another already
	 * maps it anew is told in time, for unmapping and for madvise(). */
	bool race_unmap, race_madvise;
	bool needs_probe;
	unsigned chained; /* libc entries that another library had patched */
	/* Why a mode was refused; "" when it was not tried or not refused. */
	char refused[PN_MONITOR_NMODES][PN_MONITOR_REASON_BYTES];
};

/* Starts the monitor if it has not been. */
void pn_monitor_report(struct pn_monitor_report *out);
const char *pn_release_kind_name(enum pn_release_kind kind);
const char *pn_detection_name(enum pn_detection detection);

/* The index-th kind of release that is not tried when a mode is set up, and
 * what the mode sees of it, in words; NULL: no more. doc/design/monitor.md and
 * pinion(7) name each. */
const char *pn_monitor_untested(unsigned index, enum pn_monitor_mode mode,
				const char **seen);

#endif
