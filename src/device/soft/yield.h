/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * yield -- gives up the core while a caller polls and nothing comes.
 *
 * MPI and other programs wait by polling, without a system call. With more
 * processes than cores, the process that polls may hold the core that its peer
 * needs to send the message. The device cannot see which peer its caller waits
 * for. It knows two things: on which core each peer polled last (the presence),
 * and how long a sched_yield() took.
 *
 *   crowded   a peer polled last on the core that this thread runs on: that
 *             peer does not run. Yield.
 *   tried     otherwise a yield is tried: if it took no longer than the system
 *             call, nobody waits for this core, and the next try comes later,
 *             up to MAX_BACKOFF_NS. If it took long, another process ran. One
 *             that is no peer may keep the core for its whole time slice, so
 *             this thread then runs at least as long as it was away: it keeps
 *             its fair share against processes that never yield.
 *
 * A look (pn_device_idle()) happens after LOOK_POLLS polls in a row that were
 * empty; messages that arrive sooner cost nothing more. A program that works
 * between its polls is not waiting: the polls of a look must follow each other
 * closely.
 *
 * pn_device_wait() does not look: it yields at once, and soon sleeps.
 *
 * Threads: callers, one at a time, as for poll(). Decisions are functions of
 * the times that they are given, so that a test can check them.
 */
#ifndef PN_DEVICE_SOFT_YIELD_H
#define PN_DEVICE_SOFT_YIELD_H

#include <stdbool.h>
#include <stdint.h>

struct pn_soft_yield {
	unsigned look_after; /* empty polls in a row until the next look */
	bool was_crowded;    /* at the last look */
	uint64_t looked_ns;  /* when */
	uint64_t next_ns;    /* no yield before */
	uint64_t backoff_ns; /* after a yield to nobody */
	uint64_t nyields, nswitches; /* of which another process ran */
};

void pn_soft_yield_init(struct pn_soft_yield *yield);

/* Whether to yield now. */
bool pn_soft_yield_due(struct pn_soft_yield *yield, uint64_t now_ns,
		       bool crowded);
/* A yield began and ended. */
void pn_soft_yield_done(struct pn_soft_yield *yield, uint64_t begin_ns,
			uint64_t end_ns);

#endif
