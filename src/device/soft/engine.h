/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * engine -- the thread that acts as the adapter's DMA engine.
 *
 * Operations too large to execute while posting, and all later operations to
 * the same peer, are queued here by peer. The thread visits the peers that have
 * operations in turn and moves a few chunks for each, so that a long put to one
 * does not delay the others. Each peer's operations are executed and complete
 * in order. When a peer is down, its operations complete with -ECONNRESET.
 *
 * Waking the thread takes longer than moving 100 KiB. So a caller that polls
 * and finds nothing executes a chunk itself (`busy` excludes the thread
 * meanwhile). If the caller waits, the bytes move at once; if the caller
 * computes, the thread moves them.
 *
 * The thread stays out of the way of callers that execute operations: with as
 * many polling processes as cores it would take a caller's core, and the caller
 * would find nothing while the thread holds `busy` and has no core. So the
 * thread executes only when no caller has looked (`nlooks`) for SLEEP_MIN_NS,
 * or when a caller goes to sleep and leaves operations behind (`left`). Between
 * its own looks the thread sleeps for short times, longer each time in a row;
 * after LINGER_SLEEPS of them without work it sleeps on the futex until an
 * operation is queued. So a stream of operations wakes it once. With
 * engine=thread callers do not execute, and the thread spins for a short time
 * before it sleeps.
 *
 * Life of an operation: pn_soft_engine_alloc() by post(), queued, done,
 * returned by poll(), freed. Freed storage is used again.
 * Threads: callers and the engine thread. engine->lock protects the queues,
 * `busy` protects the staging buffers and the operation being executed.
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
	struct pn_op op; /* its segments are the array below */
	struct pn_sge sge[PN_SOFT_MAX_SGE];
	struct pn_soft_transfer transfer; /* of op */
	int status;
	bool copied;	   /* counts in peer->queued_copies */
	void *inline_data; /* the bytes, with PN_OP_INLINE; kept for the next
			      use */
	size_t inline_capacity;
};

struct pn_soft_engine {
	struct pn_soft_device *dev;
	struct pn_mutex lock;
	struct pn_list turns; /* lock; peers with operations */
	struct pn_list done;  /* lock */
	/* operations that are not over; read before the lock */
	_Atomic unsigned nqueued;
	_Atomic unsigned busy;	   /* a thread executes operations */
	_Atomic unsigned ndone;	   /* entries of `done`; read before the lock */
	_Atomic uint32_t doorbell; /* futex: incremented when there is work */
	_Atomic uint32_t sleeping; /* the thread sleeps, or is about to */
	_Atomic uint32_t nlooks;   /* times that callers tried to execute */
	_Atomic uint32_t left; /* a caller went to sleep before all was done */
	_Atomic uint32_t stop;
	struct pn_list spare; /* freed operations; of the callers */
	struct pn_soft_staging staging;
	pthread_t thread;
	bool running;
};

void pn_soft_engine_init(struct pn_soft_engine *engine,
			 struct pn_soft_device *dev);
/* Starts the thread if it is not running. The first operation starts it, so
 * that a device that is used for messages has none. -ENOMEM: the system
 * refuses. Called by callers. */
int pn_soft_engine_start(struct pn_soft_engine *engine);
/* Stops the thread; queued operations are abandoned. */
void pn_soft_engine_stop(struct pn_soft_engine *engine);
void pn_soft_engine_fini(struct pn_soft_engine *engine);

/* NULL: no memory. Called by callers. */
struct pn_soft_op *pn_soft_engine_alloc(struct pn_soft_engine *engine);
void pn_soft_engine_free(struct pn_soft_engine *engine, struct pn_soft_op *op);

void pn_soft_engine_queue(struct pn_soft_engine *engine, struct pn_soft_op *op);

/* Removes and returns the oldest operation that is over, or NULL. */
struct pn_soft_op *pn_soft_engine_take(struct pn_soft_engine *engine);

/* Executes a chunk, if there is an operation and no other thread executes one.
 * True: it did. With engine=thread only the engine thread executes. */
bool pn_soft_engine_help(struct pn_soft_engine *engine);

/* The caller goes to sleep: the thread takes over what is left. */
void pn_soft_engine_leave(struct pn_soft_engine *engine);

/* Makes the thread look again, for example when a peer went down. */
void pn_soft_engine_kick(struct pn_soft_engine *engine);

#endif
