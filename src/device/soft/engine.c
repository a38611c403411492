/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/soft/engine.h"

#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/service_thread.h"
#include "device/soft/soft_impl.h"

#define QUANTUM_CHUNKS 4
#define SLEEP_MIN_NS   50000
#define SLEEP_MAX_NS   1000000
#define LINGER_SLEEPS  16

/* --- storage ------------------------------------------------------------- */

struct pn_soft_op *pn_soft_engine_alloc(struct pn_soft_engine *engine)
{
	struct pn_list *spare = pn_list_pop(&engine->spare);

	if (spare)
		return pn_container_of(spare, struct pn_soft_op, link);
	return calloc(1, sizeof(struct pn_soft_op));
}

void pn_soft_engine_free(struct pn_soft_engine *engine, struct pn_soft_op *op)
{
	pn_list_insert(&engine->spare, &op->link);
}

static void free_list(struct pn_list *list)
{
	struct pn_list *pos;

	while ((pos = pn_list_pop(list))) {
		struct pn_soft_op *op =
			pn_container_of(pos, struct pn_soft_op, link);

		free(op->inline_data);
		free(op);
	}
}

/* --- queues -------------------------------------------------------------- */

void pn_soft_engine_kick(struct pn_soft_engine *engine)
{
	atomic_fetch_add(&engine->doorbell, 1);
	if (atomic_load(&engine->sleeping))
		syscall(SYS_futex, &engine->doorbell, FUTEX_WAKE_PRIVATE, 1,
			NULL, NULL, 0);
}

void pn_soft_engine_queue(struct pn_soft_engine *engine, struct pn_soft_op *op)
{
	struct pn_soft_peer *peer = op->peer;

	pn_lock(&engine->lock);
	pn_list_append(&peer->ops, &op->link);
	atomic_fetch_add(&engine->nqueued, 1);
	if (pn_list_empty(&peer->turn))
		pn_list_append(&engine->turns, &peer->turn);
	pn_unlock(&engine->lock);
	pn_soft_engine_kick(engine);
}

struct pn_soft_op *pn_soft_engine_take(struct pn_soft_engine *engine)
{
	struct pn_list *first;

	if (!atomic_load_explicit(&engine->ndone, memory_order_relaxed))
		return NULL;
	pn_lock(&engine->lock);
	first = pn_list_pop(&engine->done);
	if (first)
		atomic_fetch_sub(&engine->ndone, 1);
	pn_unlock(&engine->lock);
	return first ? pn_container_of(first, struct pn_soft_op, link) : NULL;
}

/* --- the thread ---------------------------------------------------------- */

/* The operation whose turn it is; it is not removed from its queue. */
static struct pn_soft_op *next_op(struct pn_soft_engine *engine)
{
	struct pn_soft_op *op = NULL;

	pn_lock(&engine->lock);
	if (!pn_list_empty(&engine->turns)) {
		struct pn_soft_peer *peer =
			pn_container_of(engine->turns.next, struct pn_soft_peer,
					turn);

		op = pn_container_of(peer->ops.next, struct pn_soft_op, link);
	}
	pn_unlock(&engine->lock);
	return op;
}

/* Moves the peer to the end of the list, or removes it when it has no more
 * operations. */
static void end_turn(struct pn_soft_engine *engine, struct pn_soft_op *op,
		     bool over)
{
	struct pn_soft_peer *peer = op->peer;

	pn_lock(&engine->lock);
	if (over) {
		pn_list_remove(&op->link);
		pn_list_append(&engine->done, &op->link);
		atomic_fetch_add(&engine->ndone, 1);
		atomic_fetch_sub(&engine->nqueued, 1);
	}
	pn_list_remove(&peer->turn);
	if (!pn_list_empty(&peer->ops))
		pn_list_append(&engine->turns, &peer->turn);
	pn_unlock(&engine->lock);
	if (over)
		pn_soft_notify_own(engine->dev);
}

/* Executes one operation for up to budget bytes. False: it waits for room. */
static bool execute_some(struct pn_soft_engine *engine, struct pn_soft_op *op,
			 size_t budget)
{
	int ret = -ECONNRESET;

	if (atomic_load(&op->peer->state) == PN_SOFT_UP)
		ret = pn_soft_execute(&engine->staging, op->peer, &op->transfer,
				      budget);
	if (ret == -EAGAIN) {
		end_turn(engine, op, false);
		return false;
	}
	op->status = ret;
	end_turn(engine, op, ret || op->transfer.done == op->transfer.len);
	return true;
}

enum outcome { EXECUTED, NOTHING, NO_ROOM, BUSY };

/* Executes operations of the peers in turn for up to budget bytes, unless
 * another thread is executing. Packets that queue behind a write are short:
 * one of them at a time would be lost among the polls in between. */
static enum outcome execute_turn(struct pn_soft_engine *engine, size_t budget)
{
	enum outcome outcome = NOTHING;
	struct pn_soft_op *op;

	if (atomic_exchange_explicit(&engine->busy, 1, memory_order_acquire))
		return BUSY;
	while (budget && (op = next_op(engine))) {
		size_t len = op->transfer.len - op->transfer.done;

		if (len > budget)
			len = budget;
		if (!execute_some(engine, op, budget)) {
			outcome = outcome == NOTHING ? NO_ROOM : outcome;
			break;
		}
		outcome = EXECUTED;
		budget -= len;
	}
	atomic_store_explicit(&engine->busy, 0, memory_order_release);
	return outcome;
}

bool pn_soft_engine_help(struct pn_soft_engine *engine)
{
	enum outcome outcome;

	if (!atomic_load_explicit(&engine->nqueued, memory_order_relaxed) ||
	    engine->dev->params.engine == PN_SOFT_THREAD)
		return false;
	atomic_fetch_add_explicit(&engine->nlooks, 1, memory_order_relaxed);
	outcome = execute_turn(engine, engine->staging.chunk);
	/* The thread that executes may need this core. */
	if (outcome == BUSY)
		sched_yield();
	return outcome == EXECUTED;
}

void pn_soft_engine_leave(struct pn_soft_engine *engine)
{
	if (!atomic_load(&engine->nqueued) ||
	    engine->dev->params.engine == PN_SOFT_THREAD)
		return;
	atomic_store(&engine->left, 1);
	atomic_fetch_add(&engine->doorbell, 1);
	syscall(SYS_futex, &engine->doorbell, FUTEX_WAKE_PRIVATE, 1, NULL, NULL,
		0);
}

static void sleep_on(struct pn_soft_engine *engine, uint32_t seen,
		     const struct timespec *timeout)
{
	syscall(SYS_futex, &engine->doorbell, FUTEX_WAIT_PRIVATE, seen, timeout,
		NULL, 0);
}

/* Waits until the doorbell changes. Where callers help, the thread sleeps
 * without spinning, which leaves the core and the next operation to them. */
static void idle(struct pn_soft_engine *engine, uint32_t seen)
{
	const struct pn_soft_params *params = &engine->dev->params;
	uint64_t spin = params->engine == PN_SOFT_THREAD ? params->spin : 0;
	uint64_t until = pn_clock_ns() + spin;

	while (atomic_load(&engine->doorbell) == seen && pn_clock_ns() < until)
		pn_relax();
	atomic_store(&engine->sleeping, 1);
	while (atomic_load(&engine->doorbell) == seen &&
	       !atomic_load(&engine->stop))
		sleep_on(engine, seen, NULL);
	atomic_store(&engine->sleeping, 0);
}

/* What the thread remembers between two looks. */
struct watch {
	uint32_t nlooks;  /* of callers, at the last look */
	unsigned nsleeps; /* in a row */
	unsigned nempty;  /* looks in a row at an empty queue */
};

/* Sleeps for a while, unless a caller has left operations. */
static void nap(struct pn_soft_engine *engine, long ns)
{
	uint32_t seen = atomic_load(&engine->doorbell);

	if (!atomic_load(&engine->left) && !atomic_load(&engine->stop))
		sleep_on(engine, seen, &(struct timespec){ .tv_nsec = ns });
}

/* Longer each time in a row. So a caller that executes operations is disturbed
 * little, and an operation that it leaves waits about as long as the caller was
 * at it. */
static void backoff_sleep(struct pn_soft_engine *engine, struct watch *watch)
{
	long ns = (long)SLEEP_MIN_NS << watch->nsleeps;

	if (ns < SLEEP_MAX_NS)
		watch->nsleeps++;
	nap(engine, ns);
}

/* Whether callers execute operations now: whether they look during a short
 * sleep. The thread does not ask again while none has looked. */
static bool callers_execute(struct pn_soft_engine *engine, struct watch *watch)
{
	uint32_t before = atomic_load(&engine->nlooks);

	if (before == watch->nlooks)
		return false;
	nap(engine, SLEEP_MIN_NS);
	watch->nlooks = atomic_load(&engine->nlooks);
	return !atomic_exchange(&engine->left, 0) && watch->nlooks != before;
}

/* Leaves the operations to callers that execute them. True: the thread slept,
 * and looks again. */
static bool left_to_callers(struct pn_soft_engine *engine, struct watch *watch)
{
	if (engine->dev->params.engine == PN_SOFT_THREAD)
		return false;
	if (!atomic_load(&engine->nqueued)) {
		if (watch->nempty >= LINGER_SLEEPS)
			return false;
		watch->nempty++;
		backoff_sleep(engine, watch);
		return true;
	}
	watch->nempty = 0;
	if (!callers_execute(engine, watch))
		return false;
	backoff_sleep(engine, watch);
	return true;
}

/* The next operation is a caller's: it may execute it at once. */
static void idle_until_work(struct pn_soft_engine *engine, uint32_t seen,
			    struct watch *watch)
{
	idle(engine, seen);
	*watch = (struct watch){ .nlooks = atomic_load(&engine->nlooks) - 1 };
}

static void *engine_thread(void *arg)
{
	struct pn_soft_engine *engine = arg;
	size_t budget = QUANTUM_CHUNKS * engine->staging.chunk;
	struct watch watch = { .nlooks = UINT32_MAX };
	unsigned stuck = 0;

	while (!atomic_load(&engine->stop)) {
		uint32_t seen = atomic_load(&engine->doorbell);

		if (left_to_callers(engine, &watch))
			continue;
		switch (execute_turn(engine, budget)) {
		case EXECUTED:
			stuck = watch.nsleeps = 0;
			break;
		case NOTHING:
			idle_until_work(engine, seen, &watch);
			break;
		case NO_ROOM:
			/* All peers get one turn before the thread sleeps. */
			if (++stuck <= atomic_load(&engine->nqueued))
				break;
			stuck = watch.nsleeps = 0;
			backoff_sleep(engine, &watch);
			break;
		case BUSY:
			backoff_sleep(engine, &watch);
			break;
		}
	}
	return NULL;
}

/* --- starting and stopping ----------------------------------------------- */

void pn_soft_engine_init(struct pn_soft_engine *engine,
			 struct pn_soft_device *dev)
{
	engine->dev = dev;
	pn_mutex_init(&engine->lock);
	pn_list_init(&engine->turns);
	pn_list_init(&engine->done);
	pn_list_init(&engine->spare);
	pn_soft_staging_init(&engine->staging, dev->params.chunk,
			     dev->params.strict ? &dev->domain->slots : NULL);
}

/* Not -EAGAIN, which would mean that there is no room just now. */
int pn_soft_engine_start(struct pn_soft_engine *engine)
{
	if (pn_unlikely(!engine->running))
		engine->running =
			!pn_service_thread_start(&engine->thread,
						 "pinion-engine", engine_thread,
						 engine);
	return engine->running ? 0 : -ENOMEM;
}

void pn_soft_engine_stop(struct pn_soft_engine *engine)
{
	if (!engine->running)
		return;
	atomic_store(&engine->stop, 1);
	pn_soft_engine_kick(engine);
	pthread_join(engine->thread, NULL);
	engine->running = false;
}

void pn_soft_engine_fini(struct pn_soft_engine *engine)
{
	struct pn_soft_op *op;
	struct pn_list *turn;

	pn_soft_engine_stop(engine);
	while ((op = pn_soft_engine_take(engine)))
		pn_soft_engine_free(engine, op);
	while ((turn = pn_list_pop(&engine->turns))) {
		struct pn_soft_peer *peer =
			pn_container_of(turn, struct pn_soft_peer, turn);
		struct pn_list *pos;

		while ((pos = pn_list_pop(&peer->ops)))
			pn_soft_engine_free(engine,
					    pn_container_of(pos,
							    struct pn_soft_op,
							    link));
	}
	free_list(&engine->spare);
	pn_soft_staging_fini(&engine->staging);
	pn_mutex_fini(&engine->lock);
}
