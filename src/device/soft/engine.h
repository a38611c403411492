/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * engine -- the thread that plays the adapter's DMA engine.
 *
 * Operations too large to be carried out while posting, and whatever is posted
 * to the same peer behind them, queue here, by peer. The thread goes round the
 * peers that have something, a few chunks each, so that a long put to one does
 * not hold up the others. Each peer's operations are carried out and complete
 * in order. When a peer is down, its operations complete with -ECONNRESET.
 *
 * Waking the thread takes longer than moving 100 KiB. So a caller that polls
 * and finds nothing does a chunk of the engine's work itself (`busy` says that
 * somebody is at it): one that waits has its bytes moved at once, one that
 * computes leaves them to the thread.
 *
 * The thread sleeps on a futex without using the CPU (with engine=thread it
 * spins for a little while first). While a caller is at work, or all that is
 * left waits for room in channels, it sleeps for short times instead.
 *
 * Life of an operation: pn_soft_engine_alloc() by post(), queued, done, taken
 * by poll(), freed. Storage is kept for the next ones.
 * Threads: callers' and its own; engine->lock protects the queues, `busy` the
 * staging and the operation at work.
 */
#ifndef PN_DEVICE_SOFT_ENGINE_H
#define PN_DEVICE_SOFT_ENGINE_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/list.h"
#include "base/lock.h"
#include "device/soft/move.h"

struct pn_soft_device;
struct pn_soft_peer;

struct pn_soft_op {
	struct pn_list link;
	struct pn_soft_peer *peer;
	struct pn_op op; /* its segments are those below */
	struct pn_sge sge[PN_SOFT_MAX_SGE];
	size_t len, done;
	int status;
	void *taken; /* the bytes, with PN_OP_INLINE; kept for the next use */
	size_t taken_room;
};

struct pn_soft_engine {
	struct pn_soft_device *dev;
	struct pn_mutex lock;
	struct pn_list turns; /* lock */ /* peers with operations */
	struct pn_list done;		 /* lock */
	_Atomic unsigned nqueued;	 /* not over: pollers look first */
	_Atomic unsigned busy;		 /* somebody carries out operations */
	_Atomic unsigned ndone;	   /* entries of `done`: poll looks first */
	_Atomic uint32_t doorbell; /* futex: rung when there is work */
	_Atomic uint32_t sleeping; /* the thread is, or is about to */
	_Atomic uint32_t stop;
	struct pn_list spare; /* the callers' */
	struct pn_soft_staging staging;
	pthread_t thread;
	bool running;
};

void pn_soft_engine_init(struct pn_soft_engine *engine,
			 struct pn_soft_device *dev);
/* Starts the thread if it is not running: with the first operation, so that a
 * device for messages has none. -ENOMEM: the system refuses. Callers' threads.
 */
int pn_soft_engine_start(struct pn_soft_engine *engine);
/* Stops the thread; what is queued is abandoned. */
void pn_soft_engine_stop(struct pn_soft_engine *engine);
void pn_soft_engine_fini(struct pn_soft_engine *engine);

/* NULL: no memory. Callers' threads. */
struct pn_soft_op *pn_soft_engine_alloc(struct pn_soft_engine *engine);
void pn_soft_engine_free(struct pn_soft_engine *engine, struct pn_soft_op *op);

void pn_soft_engine_queue(struct pn_soft_engine *engine, struct pn_soft_op *op);

/* Takes the oldest operation that is over, or NULL. */
struct pn_soft_op *pn_soft_engine_take(struct pn_soft_engine *engine);

/* Does a chunk of work, if there is some and nobody is at it. True: it did.
 * With engine=thread, only the thread works. */
bool pn_soft_engine_help(struct pn_soft_engine *engine);

/* Makes the thread look again: a peer went down. */
void pn_soft_engine_kick(struct pn_soft_engine *engine);

#endif
