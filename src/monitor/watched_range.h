/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * watched_range -- memory that is used by its address on behalf of others, and
 * must not be used after its release.
 *
 * The libfabric provider executes RMA by copying into the memory of a region.
 * Nothing is registered, so no device says that the memory is gone: the program
 * may have unmapped it, and mapped something else there.
 *
 * Life: add -> check before each use -> remove. Once a byte of the range has
 * been released, the range stays released: what is at its address later is
 * other memory.
 *
 * A range is in one of three states:
 *   watched   a release would be noted. A check makes no system call.
 *   released  BEFORE has come from the monitor, in the releasing thread; while
 *             the call runs, and for good when it has succeeded.
 *   doubted   it may have been released, and nobody knows: the call failed and
 *             may have released a part; BEFORE or AFTER came for a release that
 *             had begun before the range was added, which may be new memory;
 *             the kernel may have released more than it was asked to (huge
 *             pages); another library had patched over the monitor's hooks.
 *             Each check asks the kernel whether the memory is there. That
 *             detects what is unmapped, but not what was mapped anew, and costs
 *             a system call. Releases that come later are noted all the same.
 * What the monitor cannot watch is doubted from the start.
 *
 * Threads: any. A notification looks at all ranges that are watched, without a
 * lock; a range that was removed is freed when no notification can be at it. A
 * check takes no lock either. Under userfaultfd it waits while the monitor's
 * reader handles events; the reader needs no lock.
 *
 * Caveats: a check and the use after it are two steps. Memory that another
 * thread releases in between is used. Under userfaultfd, a range over memory
 * that was mapped while the release of that address was under way may be marked
 * by the late notification. A check does not repair the monitor's hooks, which
 * takes milliseconds: pn_watched_range_add() and a miss of a cache do. Ranges
 * added before stay doubted, and where userfaultfd is the next mode it does not
 * watch them.
 */
#ifndef PN_MONITOR_WATCHED_RANGE_H
#define PN_MONITOR_WATCHED_RANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <pinion/config.h>

struct pn_watched_range;

/* Adds [addr, addr + len), which need not be watchable. May sleep. -ENOMEM. */
PINION_API int pn_watched_range_add(const void *addr, size_t len,
				    struct pn_watched_range **out);
/* Waits, once in many calls, for releases under way in other threads. Not to be
 * called from a callback of the monitor. */
PINION_API void pn_watched_range_remove(struct pn_watched_range *range);

/* Whether the release of any byte of the range is noted. False: each check asks
 * the kernel. */
PINION_API bool pn_watched_range_detects(const struct pn_watched_range *range);

/* Whether [addr, addr + len), a part of the range, may be used now: 0, or
 * -EFAULT. write: for writing; only the kernel is asked about that. */
PINION_API int pn_watched_range_check(struct pn_watched_range *range,
				      const void *addr, size_t len, bool write);

#endif
