/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * scheduler -- decides who runs when, in virtual time.
 *
 * The world takes one step at a time: it runs the next task that is ready or,
 * when there is none, fires the earliest event and sets the clock to its time.
 * A task that uses CPU time occupies an idle core of its node until that time
 * has passed. When other tasks want a core and none is idle, each turn ends
 * after a slice and the task goes to the end of the queue. A turn without
 * competition is one event, however long; a task that comes to the queue
 * shortens it to the next multiple of the slice.
 */
#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>

#include "base/cancel.h"
#include "base/clock.h"
#include "base/log.h"
#include "device/sim/sim_impl.h"

/* Empty polls in a row that are free, and the time that each further one takes.
 */
#define FREE_EMPTY_POLLS 16
#define SPIN_NS		 PN_NS_PER_US

/* How long, in real time, a wait outside tasks waits for other threads to
 * change something before it returns -EDEADLK. */
#define DEADLOCK_WAIT_NS (10 * PN_NS_PER_S)

/* --- the digest and the random sequence ----------------------------------- */

static uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 32) * UINT64_C(0xd6e8feb86659fd93);
	return x ^ x >> 32;
}

void pn_sim_record(struct pn_sim *sim, enum pn_sim_record_kind what,
		   unsigned node, uint64_t key, int64_t status)
{
	uint64_t d = mix(sim->digest ^ sim->now_ns);

	d = mix(d ^ ((uint64_t)what << 56 | (uint64_t)node << 24));
	d = mix(d + key);
	sim->digest = mix(d ^ (uint64_t)status);
}

/* xorshift64*. */
uint64_t pn_sim_random(struct pn_sim *sim)
{
	uint64_t x = sim->random;

	x ^= x >> 12;
	x ^= x << 25;
	x ^= x >> 27;
	sim->random = x;
	return x * UINT64_C(2685821657736338717);
}

/* --- the calling task ----------------------------------------------------- */

static _Thread_local struct pn_sim_task *running;

/* Not inlined: a task may continue in another thread than the one that
 * suspended it, and the compiler must not keep the variable's address across
 * that. */
static __attribute__((noinline)) struct pn_sim_task *running_task(
	const struct pn_sim *sim)
{
	struct pn_sim_task *task = running;

	return task && task->sim == sim ? task : NULL;
}

bool pn_sim_enter(struct pn_sim *sim) PN_NO_THREAD_SAFETY
{
	if (running_task(sim))
		return false;
	atomic_fetch_add_explicit(&sim->lock_waiters, 1, memory_order_relaxed);
	pn_lock(&sim->lock);
	atomic_fetch_sub_explicit(&sim->lock_waiters, 1, memory_order_relaxed);
	return true;
}

void pn_sim_leave(struct pn_sim *sim, bool entered) PN_NO_THREAD_SAFETY
{
	if (!entered)
		return;
	if (sim->sleepers)
		pthread_cond_broadcast(&sim->changed);
	pn_unlock(&sim->lock);
}

/* The thread that runs the world lets other threads take the lock between two
 * steps. */
static void yield_lock(struct pn_sim *sim) PN_NO_THREAD_SAFETY
{
	if (!atomic_load_explicit(&sim->lock_waiters, memory_order_relaxed))
		return;
	pn_unlock(&sim->lock);
	sched_yield();
	pn_lock(&sim->lock);
}

/* --- tasks ---------------------------------------------------------------- */

static void make_ready(struct pn_sim_task *task)
{
	pn_list_append(&task->sim->ready, &task->queue);
}

/* Suspends the running task until another makes it ready. */
static void block(struct pn_sim_task *task, const char *wait_reason)
{
	task->wait_reason = wait_reason;
	task->since_ns = task->sim->now_ns;
	pn_coroutine_suspend(task->co);
}

static void end_task(struct pn_sim_task *task)
{
	pn_sim_record(task->sim, PN_SIM_ENDED, task->node->index, task->id, 0);
	pn_sim_event_cancel(&task->sim->events, &task->timer);
	pn_list_remove(&task->queue);
	pn_list_remove(&task->entry);
	pn_coroutine_destroy(task->co);
	free(task);
}

static void run_task(struct pn_sim_task *task)
{
	struct pn_sim_task *outer = running;

	running = task;
	pn_coroutine_resume(task->co);
	running = outer;
	if (pn_coroutine_finished(task->co))
		end_task(task);
}

/* --- cores ---------------------------------------------------------------- */

static void core_begin(struct pn_sim_core *core, struct pn_sim_task *task)
{
	struct pn_sim *sim = core->node->sim;
	uint64_t turn_ns = task->cpu_ns;

	if (!pn_list_empty(&core->node->core_queue) &&
	    turn_ns > sim->params.slice_ns)
		turn_ns = sim->params.slice_ns;
	core->task = task;
	core->since_ns = sim->now_ns;
	core->until_ns = pn_sim_after(sim->now_ns, turn_ns);
	pn_sim_event_add(&sim->events, &core->event, core->until_ns);
}

/* Gives an idle core to the next task in the queue. */
static void core_next(struct pn_sim_core *core)
{
	struct pn_list *next = pn_list_pop(&core->node->core_queue);

	if (next)
		core_begin(core,
			   pn_container_of(next, struct pn_sim_task, queue));
}

static void core_fire(struct pn_sim *sim, struct pn_sim_event *event)
{
	struct pn_sim_core *core =
		pn_container_of(event, struct pn_sim_core, event);
	struct pn_sim_task *task = core->task;

	pn_sim_record(sim, PN_SIM_CPU, core->node->index, task->id, 0);
	task->cpu_ns -= sim->now_ns - core->since_ns;
	core->task = NULL;
	if (task->cpu_ns)
		pn_list_append(&core->node->core_queue, &task->queue);
	else
		make_ready(task);
	core_next(core);
}

/* Another task waits for a core: the turn ends with its current slice. */
static void core_shorten_turn(struct pn_sim *sim, struct pn_sim_core *core)
{
	uint64_t slice = sim->params.slice_ns;
	uint64_t used = sim->now_ns - core->since_ns;
	uint64_t slices = used ? (used + slice - 1) / slice : 1;
	uint64_t until_ns = pn_sim_after(core->since_ns, slices * slice);

	if (until_ns >= core->until_ns)
		return;
	core->until_ns = until_ns;
	pn_sim_event_cancel(&sim->events, &core->event);
	pn_sim_event_add(&sim->events, &core->event, until_ns);
}

static struct pn_sim_core *idle_core(struct pn_sim_node *node)
{
	for (uint64_t i = 0; i < node->sim->params.cores; i++)
		if (!node->cores[i].task)
			return &node->cores[i];
	return NULL;
}

void pn_sim_cores_init(struct pn_sim_node *node, struct pn_sim_core *cores)
{
	node->cores = cores;
	pn_list_init(&node->core_queue);
	for (uint64_t i = 0; i < node->sim->params.cores; i++) {
		cores[i].node = node;
		cores[i].event.fire = core_fire;
	}
}

/* Charges the running task's deferred CPU time. */
static void pay_deferred_cpu(struct pn_sim_task *task)
{
	struct pn_sim_node *node = task->node;
	struct pn_sim_core *core = idle_core(node);

	if (!task->deferred_cpu_ns)
		return;
	task->cpu_ns = task->deferred_cpu_ns;
	task->deferred_cpu_ns = 0;
	if (core) {
		core_begin(core, task);
	} else {
		pn_list_append(&node->core_queue, &task->queue);
		for (uint64_t i = 0; i < task->sim->params.cores; i++)
			core_shorten_turn(task->sim, &node->cores[i]);
	}
	block(task, "computing");
}

void pn_sim_end_tasks(struct pn_sim *sim, const struct pn_sim_node *node)
{
	struct pn_list *pos, *tmp;

	pn_list_for_each_safe (pos, tmp, &sim->tasks) {
		struct pn_sim_task *task =
			pn_container_of(pos, struct pn_sim_task, entry);

		if (!node || task->node == node)
			end_task(task);
	}
	if (!node)
		return;
	/* The cores have no task left to run. */
	for (uint64_t i = 0; i < sim->params.cores; i++) {
		pn_sim_event_cancel(&sim->events, &node->cores[i].event);
		node->cores[i].task = NULL;
	}
}

/* --- steps of the world --------------------------------------------------- */

/* Runs one task, or one event not later than until_ns. False: there is none. */
static bool world_step(struct pn_sim *sim, uint64_t until_ns)
{
	struct pn_list *ready = pn_list_pop(&sim->ready);
	struct pn_sim_event *event;

	if (!ready &&
	    (!sim->events.n || pn_sim_event_next_ns(&sim->events) > until_ns))
		return false;
	sim->nsteps++;
	if (ready) {
		run_task(pn_container_of(ready, struct pn_sim_task, queue));
		return true;
	}
	event = pn_sim_event_pop(&sim->events, &sim->now_ns);
	event->fire(sim, event);
	return true;
}

/* Outside tasks: advances the clock to until_ns. */
static void world_advance(struct pn_sim *sim, uint64_t until_ns)
{
	while (world_step(sim, until_ns))
		;
	if (sim->now_ns < until_ns)
		sim->now_ns = until_ns;
}

void pn_sim_progress(struct pn_sim *sim)
{
	if (!running_task(sim))
		world_advance(sim, sim->now_ns);
}

uint64_t pn_sim_time(const struct pn_sim *sim)
{
	const struct pn_sim_task *task = running_task(sim);

	return task ? pn_sim_after(sim->now_ns, task->deferred_cpu_ns)
		    : sim->now_ns;
}

void pn_sim_defer_cpu(struct pn_sim *sim, uint64_t ns)
{
	struct pn_sim_task *task = running_task(sim);

	if (task)
		task->deferred_cpu_ns = pn_sim_after(task->deferred_cpu_ns, ns);
	else if (ns)
		world_advance(sim, pn_sim_after(sim->now_ns, ns));
}

void pn_sim_consume_cpu(struct pn_sim *sim, uint64_t ns)
{
	struct pn_sim_task *task = running_task(sim);

	if (!ns)
		return;
	pn_sim_defer_cpu(sim, ns);
	if (task)
		pay_deferred_cpu(task);
}

/* --- waiting -------------------------------------------------------------- */

void pn_sim_notify(struct pn_sim_node *node)
{
	struct pn_list *entry;

	while ((entry = pn_list_pop(&node->waiters))) {
		struct pn_sim_task *task =
			pn_container_of(entry, struct pn_sim_task, queue);

		task->result = 0;
		pn_sim_event_cancel(&node->sim->events, &task->timer);
		make_ready(task);
	}
	if (node->sim->sleepers)
		pthread_cond_broadcast(&node->sim->changed);
}

void pn_sim_wake(struct pn_sim_node *port)
{
	struct pn_sim_node *node = port->home;

	if (pn_list_empty(&node->waiters))
		node->woken = true;
	else
		pn_sim_notify(node);
}

static void timer_fire(struct pn_sim *sim, struct pn_sim_event *event)
{
	struct pn_sim_task *task =
		pn_container_of(event, struct pn_sim_task, timer);

	pn_sim_record(sim, PN_SIM_TIMER, task->node->index, task->id, 0);
	task->result = -ETIMEDOUT;
	pn_list_remove(&task->queue);
	make_ready(task);
}

/* Whether any port of the node has completions. */
static bool has_completions(const struct pn_sim_node *node)
{
	for (unsigned r = 0; r < node->sim->nrails; r++)
		if (pn_sim_port(node, r)->ring_n)
			return true;
	return false;
}

/* Whether a wait would end at once; clears a wake(). */
static bool take_wakeup(struct pn_sim_node *node)
{
	bool there = node->woken || has_completions(node);

	node->woken = false;
	if (there)
		node->empty_polls = 0;
	return there;
}

static int task_wait(struct pn_sim_node *node, struct pn_sim_task *task,
		     uint64_t deadline_ns)
{
	struct pn_sim *sim = node->sim;

	pay_deferred_cpu(task);
	if (take_wakeup(node))
		return 0;
	if (deadline_ns != PN_FOREVER)
		pn_sim_event_add(&sim->events, &task->timer,
				 deadline_ns > sim->now_ns ? deadline_ns
							   : sim->now_ns);
	pn_list_append(&node->waiters, &task->queue);
	block(task, deadline_ns == PN_FOREVER ? "waiting for ever" : "waiting");
	return task->result;
}

/* Nothing is in progress in the world, but another thread may change that.
 * False: none did for a while. */
static bool wait_for_others(struct pn_sim *sim) PN_NO_THREAD_SAFETY
{
	PN_NO_CANCEL();
	struct timespec until;
	uint64_t now_ns = pn_clock_ns() + DEADLOCK_WAIT_NS;
	int ret;

	until = (struct timespec){ .tv_sec = (time_t)(now_ns / PN_NS_PER_S),
				   .tv_nsec = (long)(now_ns % PN_NS_PER_S) };
	sim->sleepers++;
	ret = pthread_cond_timedwait(&sim->changed, &sim->lock.pthread, &until);
	sim->sleepers--;
	return !ret;
}

static bool nothing_under_way(const struct pn_sim_node *node)
{
	return !has_completions(node) && !node->woken && !node->sim->events.n &&
	       pn_list_empty(&node->sim->ready);
}

static int host_wait(struct pn_sim_node *node, uint64_t deadline_ns)
{
	struct pn_sim *sim = node->sim;

	pn_sim_progress(sim);
	while (!take_wakeup(node)) {
		if (world_step(sim, deadline_ns)) {
			yield_lock(sim);
		} else if (deadline_ns != PN_FOREVER) {
			if (sim->now_ns < deadline_ns)
				sim->now_ns = deadline_ns;
			return -ETIMEDOUT;
		} else if (sim->single_host ||
			   (!wait_for_others(sim) && nothing_under_way(node))) {
			return -EDEADLK;
		}
	}
	return 0;
}

int pn_sim_wait(struct pn_sim_node *port, uint64_t deadline_ns)
{
	struct pn_sim_node *node = port->home;
	struct pn_sim_task *task = running_task(node->sim);

	/* A wait with a deadline in the past counts as an empty poll. */
	if (deadline_ns <= pn_sim_time(node->sim))
		pn_sim_empty_poll(node);
	else
		node->empty_polls = 0;
	return task ? task_wait(node, task, deadline_ns)
		    : host_wait(node, deadline_ns);
}

/* --- blocking: threads that wait for each other --------------------------- */

/* Only tasks and other threads change words: when no task can run, only another
 * thread can. */
static void host_block(struct pn_sim *sim, uint64_t deadline_ns)
{
	if (!pn_list_empty(&sim->tasks) && world_step(sim, deadline_ns))
		return;
	if (deadline_ns == PN_FOREVER)
		wait_for_others(sim);
	else if (sim->now_ns < deadline_ns)
		sim->now_ns = deadline_ns;
}

void pn_sim_block(struct pn_sim_node *port, const _Atomic uint32_t *word,
		  uint32_t value, uint64_t deadline_ns)
{
	struct pn_sim_node *node = port->home;
	struct pn_sim_task *task = running_task(node->sim);

	if (task)
		pay_deferred_cpu(task);
	/* Whoever changes the word calls unblock() afterwards, which needs the
	 * lock, or the thread, that we hold. */
	if (atomic_load(word) != value)
		return;
	if (!task) {
		host_block(node->sim, deadline_ns);
		return;
	}
	if (deadline_ns <= node->sim->now_ns)
		return;
	if (deadline_ns != PN_FOREVER)
		pn_sim_event_add(&node->sim->events, &task->timer, deadline_ns);
	task->word = word;
	pn_list_append(&node->blocked, &task->queue);
	block(task, "blocked by another task");
}

void pn_sim_unblock(struct pn_sim_node *port, const _Atomic uint32_t *word)
{
	struct pn_sim_node *node = port->home;
	struct pn_list *pos, *tmp;

	pn_list_for_each_safe (pos, tmp, &node->blocked) {
		struct pn_sim_task *task =
			pn_container_of(pos, struct pn_sim_task, queue);

		if (task->word != word)
			continue;
		pn_list_remove(&task->queue);
		pn_sim_event_cancel(&node->sim->events, &task->timer);
		make_ready(task);
	}
	if (node->sim->sleepers)
		pthread_cond_broadcast(&node->sim->changed);
}

void pn_sim_empty_poll(struct pn_sim_node *node)
{
	if (node->empty_polls < FREE_EMPTY_POLLS)
		node->empty_polls++;
	else
		pn_sim_consume_cpu(node->sim, SPIN_NS);
}

/* --- functions of sim.h --------------------------------------------------- */

static void task_body(void *arg)
{
	struct pn_sim_task *task = arg;

	task->fn(task->arg);
	pay_deferred_cpu(task);
}

static struct pn_sim_task *task_alloc(struct pn_sim *sim, unsigned node,
				      void (*fn)(void *arg), void *arg)
{
	struct pn_sim_task *task = calloc(1, sizeof(*task));

	if (!task)
		return NULL;
	*task = (struct pn_sim_task){ .sim = sim,
				      .node = &sim->nodes[node],
				      .timer.fire = timer_fire,
				      .wait_reason = "starting",
				      .fn = fn,
				      .arg = arg };
	pn_list_init(&task->queue);
	pn_list_init(&task->entry);
	if (pn_coroutine_create(sim->params.stack_bytes, task_body, task,
				&task->co)) {
		free(task);
		return NULL;
	}
	return task;
}

int pn_sim_spawn(struct pn_sim *sim, unsigned node, void (*fn)(void *arg),
		 void *arg)
{
	struct pn_sim_task *task;
	bool entered;
	int ret = 0;

	pn_assert(node < sim->nnodes);
	task = task_alloc(sim, node, fn, arg);
	if (!task)
		return -ENOMEM;
	entered = pn_sim_enter(sim);
	task->id = sim->ntasks_born++;
	task->since_ns = sim->now_ns;
	pn_list_append(&sim->tasks, &task->entry);
	make_ready(task);
	pn_sim_record(sim, PN_SIM_SPAWNED, node, task->id, 0);
	if (task->node->dead) {
		end_task(task);
		ret = -ENODEV;
	}
	pn_sim_leave(sim, entered);
	return ret;
}

/* Logs where every task waits and makes the wait() of each return -EDEADLK
 * once, so that it can end. */
static bool report_deadlock(struct pn_sim *sim)
{
	bool deadlock_reported = false;
	struct pn_list *pos;

	pn_list_for_each (pos, &sim->tasks) {
		struct pn_sim_task *task =
			pn_container_of(pos, struct pn_sim_task, entry);

		pn_error("sim: deadlock: task %" PRIu64
			 " of node %u is %s since %" PRIu64 " ns",
			 task->id, task->node->index, task->wait_reason,
			 task->since_ns);
		if (task->deadlock_reported)
			continue;
		task->deadlock_reported = deadlock_reported = true;
		task->result = -EDEADLK;
		pn_list_remove(&task->queue);
		make_ready(task);
	}
	sim->deadlock = true;
	return deadlock_reported;
}

int pn_sim_run(struct pn_sim *sim)
{
	bool entered = pn_sim_enter(sim);
	uint64_t stale_before = sim->stale_uses;
	int ret;

	pn_assert(entered);
	sim->deadlock = false;
	while (!pn_list_empty(&sim->tasks)) {
		if (!world_step(sim, UINT64_MAX) && !report_deadlock(sim))
			break;
		yield_lock(sim);
	}
	ret = sim->deadlock ? -EDEADLK : 0;
	if (sim->stale_uses != stale_before)
		ret = -ESTALE;
	pn_sim_leave(sim, entered);
	return ret;
}

void pn_sim_sleep(struct pn_sim *sim, uint64_t ns)
{
	struct pn_sim_task *task = running_task(sim);
	bool entered = pn_sim_enter(sim);

	if (task) {
		pay_deferred_cpu(task);
		pn_sim_event_add(&sim->events, &task->timer,
				 pn_sim_after(sim->now_ns, ns));
		block(task, "sleeping");
	} else {
		world_advance(sim, pn_sim_after(sim->now_ns, ns));
	}
	pn_sim_leave(sim, entered);
}
