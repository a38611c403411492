/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * background -- registers memory that will be copied again (row G6).
 *
 * A registration stops other CUDA calls of the process while it lasts. So
 * memory is registered in blocks of at most BLOCK_BYTES by the cache's service
 * thread, and after each block the background pauses as long as the block took
 * (others get between). A block that took more than MAX_HOLD_NS halves the
 * length of the next ones, one that took less than a quarter of that doubles it
 * again.
 *
 * What to register says the history of the buffer (message/protocol/history.h):
 * the uses that are expected to follow would take more CPU time through bounce
 * buffers than registering and deregistering take. CPU time, not elapsed time,
 * since the background works while the program does something else; a buffer
 * is never registered on its first use.
 *
 * The history learns whether a registration served as many uses as expected.
 * Registering goes on during copies. So whether a buffer is registered is
 * looked up when its use is counted, at the end of the copy, and not when the
 * copy began: a registration that the copy came too early for is not a lost
 * one.
 *
 * Life of a range: wanted -> its blocks are registered one by one -> gone from
 * the queue. When a block is refused (budget, a mapping that cannot be
 * registered, a call of the program in the way) the range leaves the queue, and
 * is tried again only after its history asks for it RETRY times as often. The
 * history then does not count it as registered.
 *
 * Threads: any; `lock` is a leaf.
 */
#ifndef PN_COPY_BACKGROUND_H
#define PN_COPY_BACKGROUND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/lock.h"
#include "base/range.h"
#include "cache/cache.h"
#include "message/protocol/history.h"

#define PN_BACKGROUND_QUEUE 32

struct pn_background_range {
	struct pn_range whole, rest; /* rest: not registered yet */
	enum pn_end end;	     /* of the use that asked for it */
};

struct pn_background_refusal {
	struct pn_range range;
	uint32_t requests, skip; /* since then; until the next try */
};

struct pn_background {
	struct pn_cache *cache; /* NULL: nothing is ever registered */
	struct pn_device *device;
	struct pn_background_task task;
	struct pn_mutex lock;
	struct pn_history *history;			       /* lock */
	struct pn_background_range queue[PN_BACKGROUND_QUEUE]; /* lock */
	unsigned nqueued;				       /* lock */
	bool running; /* lock: a block of the first one is being registered */
	struct pn_background_refusal refusals[PN_BACKGROUND_QUEUE]; /* lock */
	unsigned next_refusal;					    /* lock */
	size_t block_bytes, max_block_bytes;			    /* lock */
	_Atomic uint64_t blocks, bytes; /* registered so far */
};

/* cache NULL: nothing is ever registered. -ENOMEM. */
int pn_background_init(struct pn_background *background,
		       struct pn_device *device, struct pn_cache *cache);
void pn_background_fini(struct pn_background *background);

/* Counts a use of host memory by a copy, and decides whether to register.
 * bounce_ns: CPU time of a copy through bounce buffers. */
struct pn_background_use {
	struct pn_range range;
	enum pn_end end;
	double bounce_ns;
};

void pn_background_use(struct pn_background *background,
		       const struct pn_background_use *use);

/* What overlaps is not registered any more, unless it is used again. */
void pn_background_forget(struct pn_background *background,
			  struct pn_range range);

/* Waits until nothing is queued. For tests. */
void pn_background_settle(struct pn_background *background);

#endif
