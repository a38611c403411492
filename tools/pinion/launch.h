/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * launch -- runs a foreign launcher (mpirun) and leaves no process behind.
 *
 * Nouns
 *   launcher  our child. It starts and ends the ranks.
 *   orphan    a process of the job whose parent ended first; it becomes our
 *             child (PR_SET_CHILD_SUBREAPER). The launcher does not wait for
 *             ranks that it has killed, nor for processes that a wrapper of a
 *             rank started.
 *   inherited a child that existed before, of a shell that became this process
 *             by exec. Inherited children are ignored.
 *
 * Signals. The launcher has its own process group: a signal to our group
 * reaches only us, and we forward INT, TERM, HUP, QUIT, USR1 and USR2 once.
 * Stopping the job means stopping the launcher's group. mpirun that gets a
 * signal twice ends without cleaning up; timeout(1) signals the process and
 * then its group, so the same signal within a second counts as one. In the
 * foreground of a terminal the launcher stays in our group, since it reads that
 * terminal and gets its signals; there we forward signals that a process sent,
 * unless the launcher ends soon after, as it does when the whole group was
 * signalled.
 *
 * The end. A job that was signalled to end, or whose launcher was killed, is
 * over with the launcher: orphans have one second, get SIGTERM, have two more
 * seconds and are killed; immediately if another signal arrives. For other
 * jobs, we wait for orphans that have a statistics segment
 * (base/stats_segment.h) and leave the rest alone: a program may leave a
 * daemon. Statistics segments of ended processes are removed in either case.
 *
 * Threads: one; only this module handles signals in the process.
 */
#ifndef PN_TOOLS_LAUNCH_H
#define PN_TOOLS_LAUNCH_H

#include <sys/types.h>

#include "tools/pinion/watchdog.h"

/* Runs start(arg) in a child; start() becomes the launcher by exec or returns
 * an exit status. Returns when the job is over, with the launcher's status as a
 * shell would report it, or a negative errno if it was not started. The
 * watchdog looks at the job every half of its interval, if that is not 0. */
int pn_launch(int (*start)(const void *arg), const void *arg,
	      struct pn_watchdog *watchdog);

/* Returns the parent of a process; 0: the process has ended. */
pid_t pn_parent_of(pid_t pid);

#endif
