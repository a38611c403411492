/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * watchdog -- says what the ranks of a job wait for when no message moves.
 *
 * A rank whose polls find nothing writes what it waits for into its statistics
 * segment (src/message/endpoint/stall.c). The watchdog reads the segments of
 * the job's ranks on this host. A rank *waits* if it polled a moment ago and
 * nothing has happened to its messages for the interval. A rank that computes,
 * sleeps or is stopped does not poll: nobody knows whether it would answer. So
 * only if all ranks of the host wait, and at least one has a message to wait
 * for, one line names each rank's request: the last posted receive, or the
 * oldest send. The program may really wait for another of its requests, or call
 * MPI_Test() now and then. The job goes on.
 *
 * Ranks are the processes below the launcher that have a statistics segment and
 * Open MPI's OMPI_COMM_WORLD_RANK in their environment.
 *
 * Threads: one.
 */
#ifndef PN_TOOLS_WATCHDOG_H
#define PN_TOOLS_WATCHDOG_H

#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

struct pn_watchdog {
	uint64_t interval_ns;
	uint64_t said_ns; /* when the last line was printed */
};

/* Looks at the ranks below a process, and prints at most one line in an
 * interval. */
void pn_watchdog_look(struct pn_watchdog *watchdog, pid_t launcher, FILE *out);

#endif
