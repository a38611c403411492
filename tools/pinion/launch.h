/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * launch -- runs a launcher of others (mpirun) and leaves nobody behind.
 *
 * Nouns
 *   launcher  our child. It starts ranks, and it ends them.
 *   orphan    a process of the job whose parent ended first; it becomes our
 *             child (PR_SET_CHILD_SUBREAPER). The launcher does not wait for
 *             ranks that it has killed, nor for what a rank's wrapper started.
 *   stranger  a child that we had before: a shell's that became us by exec. It
 *             is let be.
 *
 * Signals. The launcher has a process group of its own: whoever signals ours
 * reaches us, and INT, TERM, HUP, QUIT, USR1 and USR2 we pass on, once; a job
 * is stopped by stopping the launcher's group. Told twice, mpirun ends without
 * tidying up. timeout(1) signals the process and then its group, so the same
 * again within a second counts as one. In the foreground of a terminal the
 * launcher stays in our group, since it reads that terminal and hears its
 * signals; there, we pass on what a process sent, unless the launcher has ended
 * soon after, as it does when its group was told.
 *
 * The end. A job that was told to end, or whose launcher was killed, is over
 * with the launcher: orphans have a second, are told (SIGTERM), have two more
 * and are killed, at once when another signal comes. Of other jobs, orphans
 * that have a board (base/stats_segment.h) are waited for, and the rest is left
 * in peace: a program may leave a daemon. Boards of processes that are no more
 * are removed in either case.
 *
 * Threads: one; the process takes signals here alone.
 */
#ifndef PN_TOOLS_LAUNCH_H
#define PN_TOOLS_LAUNCH_H

/* Runs start(arg), which becomes the launcher or returns an exit status, in a
 * child. Returns when the job is over, with the launcher's status as a shell
 * would give it; or a negative errno: it was not started. */
int pn_launch(int (*start)(const void *arg), const void *arg);

#endif
