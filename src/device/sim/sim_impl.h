/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * sim_impl -- declarations that the source files of `sim` share.
 *
 *   scheduler.c  time: events, tasks, cores, waiting
 *   registry.c   registrations: keys, limits, stale ranges
 *   port.c       completions and inbox of a node, as poll() sees them
 *   link.c       peers: attaching, going down
 *   operation.c  operations from post() to completion
 *   sim.c        parameters, opening and closing, the table of operations
 *
 * One lock protects a world. A thread that calls from outside every task takes
 * the lock (pn_sim_enter()) and, while it waits or uses CPU time, runs the
 * world under it. Code inside a task is run by the thread that already holds
 * the lock.
 *
 * The CPU cost of posting and polling is deferred: it adds up in the task's
 * deferred_cpu_ns and is charged at the next point where the task may be
 * switched anyway (wait, consume_cpu, copy, register, deregister, sleep, its
 * end). So post() and poll() never switch, and the task's own time is the
 * world's time plus its deferred CPU time.
 */
#ifndef PN_DEVICE_SIM_SIM_IMPL_H
#define PN_DEVICE_SIM_SIM_IMPL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "base/lock.h"
#include "device/profiles.h"
#include "device/sim/coroutine.h"
#include "device/sim/events.h"
#include "device/sim/interval.h"
#include "device/sim/script.h"
#include "device/sim/sim.h"

#define PN_SIM_INLINE_BYTES 256
#define PN_SIM_MAX_SGE	    16
#define PN_SIM_MAX_OP_BYTES ((size_t)1 << 30)
#define PN_SIM_SLOT_BITS    24

enum pn_sim_data { PN_SIM_DATA_REAL, PN_SIM_DATA_NONE };

struct pn_sim_params {
	uint64_t nodes, cores;
	char cost[PN_OPTION_TEXT_BYTES];
	int data; /* enum pn_sim_data */
	uint64_t seed, slice_ns;
	char script[PN_OPTION_TEXT_BYTES];
	uint64_t stack_bytes, jitter;
	uint64_t inbox_bytes, inbox_slots, send_bytes;
	uint64_t limit_bytes, max_mrs, depth, detect_ns;
	bool imm;
	uint64_t rails;
	char rail_bandwidth[PN_OPTION_TEXT_BYTES];
	uint64_t rail_setup_ns;
};

struct pn_sim_task {
	struct pn_sim *sim;
	struct pn_sim_node *node;
	struct pn_coroutine *co;
	struct pn_list entry; /* in sim->tasks until it ends */
	/* of tasks that are ready, waiting, blocked or wanting a core */
	struct pn_list queue;
	struct pn_sim_event timer;
	uint64_t id;
	uint64_t deferred_cpu_ns;     /* CPU time used but not charged yet */
	uint64_t cpu_ns;	      /* being charged */
	uint64_t since_ns;	      /* when it began to wait */
	const char *wait_reason;      /* why it waits, for log messages */
	int result;		      /* of wait() */
	const _Atomic uint32_t *word; /* that the task is blocked on */
	bool deadlock_reported;	      /* its wait() has returned -EDEADLK */
	void (*fn)(void *arg);
	void *arg;
};

struct pn_sim_core {
	struct pn_sim_event event; /* the task is done or its slice over */
	struct pn_sim_node *node;
	struct pn_sim_task *task; /* NULL: idle */
	uint64_t since_ns, until_ns;
};

struct pn_sim_registration {
	struct pn_interval interval; /* the range; in node->ranges */
	unsigned access;
	uint64_t lkey, rkey;
	uint64_t born_ns;
	struct pn_range *stale; /* subranges whose pages were released */
	unsigned nstale;
};

/* A port of a node: a device with a wire of its own. The first port is the
 * node's home: what belongs to the node and not to a port is kept there.
 * sim->lock protects all of it; the groups say which file writes them. */
struct pn_sim_node {
	struct pn_device device; /* first: what callers hold */

	/* constant after pn_sim_open() */
	struct pn_sim *sim;
	struct pn_sim_node *home;
	unsigned index;	 /* of the port: number + rail * nnodes */
	unsigned number; /* of the node */
	double slowness; /* of the wire, relative to the profile */

	/* link.c: life, and the peers by node index (open addressing, size a
	 * power of two) */
	bool dead;
	bool failed; /* the port has failed; the node lives */
	struct pn_sim_event fail_event;
	uint64_t noperations; /* posted here or executed here */
	struct pn_sim_link **links;
	size_t nlinks, links_capacity;
	struct pn_list link_list; /* the same links, in the order of creation */

	/* operation.c: when each direction of the wire is free again */
	uint64_t egress_free_ns, ingress_free_ns;
	/* links whose messages wait for room in the inbox */
	struct pn_list stalled;

	/* port.c: completions (a ring) and inbox */
	struct pn_completion *ring;
	size_t ring_first, ring_n, ring_capacity;
	struct pn_list inbox; /* messages whose buffers were not returned */
	size_t inbox_bytes, inbox_n;

	/* registry.c: registrations, by slot */
	struct pn_sim_registration **slots;
	size_t nslots, slots_capacity;
	uint32_t *free_slots;
	size_t nfree;
	struct pn_interval *ranges;
	size_t nmrs, live_bytes;

	/* home only, scheduler.c: CPUs and waiting tasks */
	struct pn_sim_core *cores;
	struct pn_list core_queue; /* tasks that want a core */
	struct pn_list waiters;
	struct pn_list blocked; /* tasks in block(), on words of their own */
	bool woken;		/* wake() was called while no task waited */
	unsigned empty_polls;	/* in a row */

	/* home only: counters for the script (registry.c, operation.c), and the
	 * limit that the script sets (sim.c) */
	uint64_t nregistrations, nmessages;
	size_t limit_bytes;
};

/* A fault of the script that happens at a given time. */
struct pn_sim_timed_fault {
	struct pn_sim_event event;
	struct pn_fault fault;
};

struct pn_sim {
	/* Protects everything below that is not constant, and all nodes. */
	struct pn_mutex lock;
	pthread_cond_t changed;
	atomic_uint lock_waiters; /* threads that wait for the lock */
	unsigned sleepers;	  /* threads in pthread_cond_timedwait() */

	/* constant after pn_sim_open() */
	struct pn_sim_params params;
	const struct pn_profile *profile;
	uint64_t latency_ns, message_ns;
	uint64_t id;	  /* distinguishes the worlds of this process */
	bool private;	  /* made by pn_device_open(), closed with its device */
	bool single_host; /* only one thread calls */
	unsigned nnodes, nrails;
	struct pn_sim_node *nodes; /* all ports: of rail 0, of rail 1, ... */
	struct pn_sim_core *cores; /* of all nodes */
	struct pn_script script;
	struct pn_sim_timed_fault *timed_faults;

	/* scheduler.c: time and tasks */
	uint64_t now_ns;
	uint64_t nsteps;
	struct pn_sim_event_queue events;
	struct pn_list ready; /* tasks that can run */
	struct pn_list tasks;
	uint64_t ntasks_born;
	uint64_t digest, random;
	bool deadlock;

	/* registry.c: keys and stale uses; counters for the script */
	uint64_t last_key;
	uint64_t stale_uses;
	uint64_t nregistrations, nmessages;

	/* sim.c: pn_sim_reserve() */
	struct pn_interval *reservations;
	uint64_t nreservations;
};

static inline struct pn_sim_node *pn_sim_node_of(struct pn_device *device)
{
	return pn_container_of(device, struct pn_sim_node, device);
}

/* The port of the same node on another rail. */
static inline struct pn_sim_node *pn_sim_port(const struct pn_sim_node *node,
					      unsigned rail)
{
	return &node->sim->nodes[node->number + rail * node->sim->nnodes];
}

/* How long a message occupies the wire between two ports: the slower one
 * decides. */
static inline uint64_t pn_sim_wire_ns(const struct pn_sim_node *a,
				      const struct pn_sim_node *b, size_t bytes)
{
	double slowness = a->slowness > b->slowness ? a->slowness : b->slowness;
	uint64_t ns = pn_profile_link_ns(a->sim->profile, bytes);

	return slowness == 1 ? ns : (uint64_t)((double)ns * slowness);
}

/* a + b, without overflow. */
static inline uint64_t pn_sim_after(uint64_t a, uint64_t b)
{
	return a > UINT64_MAX - 1 - b ? UINT64_MAX - 1 : a + b;
}

/* --- scheduler.c ---------------------------------------------------------- */

/* The kinds of record that enter the digest, together with time, node, key and
 * status. */
enum pn_sim_record_kind {
	PN_SIM_SPAWNED = 1,
	PN_SIM_ENDED,
	PN_SIM_CPU,
	PN_SIM_TIMER,
	PN_SIM_REGISTERED,
	PN_SIM_DEREGISTERED,
	PN_SIM_REKEYED,
	PN_SIM_RELEASED,
	PN_SIM_ATTACHED,
	PN_SIM_POSTED,
	PN_SIM_HEAD,
	PN_SIM_DELIVERED,
	PN_SIM_ANSWERED,
	PN_SIM_COMPLETED,
	PN_SIM_DIED,
	PN_SIM_LIMITED,
	PN_SIM_PORT_FAILED,
};

void pn_sim_record(struct pn_sim *sim, enum pn_sim_record_kind what,
		   unsigned node, uint64_t key, int64_t status);

/* The next number of the world's random sequence. */
uint64_t pn_sim_random(struct pn_sim *sim);

/* Takes the lock unless the caller is a task of this world. Pass the result to
 * pn_sim_leave(). */
bool pn_sim_enter(struct pn_sim *sim);
void pn_sim_leave(struct pn_sim *sim, bool entered);

/* The caller's own time: now plus its deferred CPU time. */
uint64_t pn_sim_time(const struct pn_sim *sim);

/* Charges the caller ns of CPU time. consume: now; a task may be switched.
 * defer: later; a task is not switched. */
void pn_sim_consume_cpu(struct pn_sim *sim, uint64_t ns);
void pn_sim_defer_cpu(struct pn_sim *sim, uint64_t ns);

/* Outside tasks: fires all events that are due. */
void pn_sim_progress(struct pn_sim *sim);

/* Counts an empty poll; after many in a row, lets time pass. */
void pn_sim_empty_poll(struct pn_sim_node *node);

/* There is something to poll: makes the waiting tasks ready. */
void pn_sim_notify(struct pn_sim_node *node);

int pn_sim_wait(struct pn_sim_node *node, uint64_t deadline_ns);
void pn_sim_wake(struct pn_sim_node *node);
void pn_sim_block(struct pn_sim_node *node, const _Atomic uint32_t *word,
		  uint32_t value, uint64_t deadline_ns);
void pn_sim_unblock(struct pn_sim_node *node, const _Atomic uint32_t *word);

/* Ends the tasks of a node, or all tasks with NULL, wherever they are. Not to
 * be called from one of them. */
void pn_sim_end_tasks(struct pn_sim *sim, const struct pn_sim_node *node);

void pn_sim_cores_init(struct pn_sim_node *node, struct pn_sim_core *cores);

/* --- registry.c ----------------------------------------------------------- */

int pn_sim_register(struct pn_device *device, struct pn_mr *const *mrs,
		    unsigned n);
void pn_sim_deregister(struct pn_device *device, struct pn_mr *const *mrs,
		       unsigned n);
int pn_sim_rekey(struct pn_device *device, struct pn_mr *mr);
void pn_sim_pinned(struct pn_device *device, struct pn_pinned *out);

/* Whether a key lets an operation access [addr, addr + len): 0, -EFAULT (lkey)
 * or -EACCES (rkey), or -ESTALE (counted and logged). */
int pn_sim_check_lkey(struct pn_sim_node *node, const struct pn_sge *sge,
		      unsigned access);
int pn_sim_check_rkey(struct pn_sim_node *node, uint64_t rkey, uint64_t addr,
		      size_t len, unsigned access);

/* As pn_sim_check_lkey(), without the check for staleness: for post(). */
int pn_sim_covers_lkey(struct pn_sim_node *node, const struct pn_sge *sge,
		       unsigned access);

/* Ends all registrations of a node. */
void pn_sim_registry_fini(struct pn_sim_node *node);

/* --- port.c --------------------------------------------------------------- */

/* Appends a completion for the node's program. */
void pn_sim_complete(struct pn_sim_node *node,
		     const struct pn_completion *completion);

/* Allocates memory for a message; NULL when the inbox is full. */
void *pn_sim_inbox_alloc(struct pn_sim_node *node, size_t len, void **lease);
void pn_sim_inbox_free(struct pn_sim_node *node, void *lease);

int pn_sim_poll(struct pn_device *device, struct pn_completion *out,
		unsigned max);
void pn_sim_return_buffer(struct pn_device *device,
			  const struct pn_completion *completion);
void pn_sim_port_clear(struct pn_sim_node *node);
void pn_sim_port_fini(struct pn_sim_node *node);

/* --- link.c --------------------------------------------------------------- */

enum pn_sim_link_state { PN_SIM_CONNECTING, PN_SIM_UP, PN_SIM_DOWN };

/* One node's connection to another. Created by attach() or when the other side
 * attaches; lives as long as the world. In the table a new link to the same
 * node replaces one that is down. */
struct pn_sim_link {
	struct pn_peer peer; /* first: what callers hold */
	struct pn_sim_node *self, *other;
	/* the other side's link; NULL: not connected yet */
	struct pn_sim_link *back;
	enum pn_sim_link_state state;
	int refusal;		     /* why connecting will fail, or 0 */
	struct pn_list entry;	     /* in self->link_list */
	struct pn_sim_event connect; /* the request, then the reply */
	struct pn_sim_event down;    /* self detects that other is gone */
	struct pn_list ops;	     /* in flight, in the order of posting */
	struct pn_list fenced;	     /* of ops: those behind a fence */
	/* of ops: those at other, whose inbox is full */
	struct pn_list stalled;
	/* in other->stalled while `stalled` is not empty */
	struct pn_list stall;
	unsigned nops, nreads;
	bool queue_was_full; /* a post found the queue full; its caller may wait
			      */
	uint64_t last_head_ns; /* later posts do not arrive earlier */
};

void pn_sim_address(struct pn_device *device, struct pn_address *out);
int pn_sim_attach(struct pn_device *device, const struct pn_address *address,
		  struct pn_peer **out);

void pn_sim_detach(struct pn_device *device, struct pn_peer *peer);

/* Whether the other side has died, or has taken its end down: operations sent
 * over the link are not executed there any more, and no reply comes. */
bool pn_sim_link_is_broken(const struct pn_sim_link *link);

/* Ends a node: its peers detect it, its registrations end. Its tasks go on. */
void pn_sim_node_die(struct pn_sim_node *node);

/* Counts an operation of a port; the script may make the port fail after it. */
void pn_sim_port_used(struct pn_sim_node *port);
/* The port fails: all its links go down at both ends. Completions from before
 * can still be polled, and registrations stay. */
void pn_sim_port_fail(struct pn_sim_node *port);
void pn_sim_port_fail_fire(struct pn_sim *sim, struct pn_sim_event *event);

void pn_sim_links_fini(struct pn_sim_node *node);

/* --- operation.c ---------------------------------------------------------- */

int pn_sim_post(struct pn_device *device, struct pn_peer *peer,
		const struct pn_op *op);

/* The node's inbox has room again: executes stalled operations. */
void pn_sim_resume_stalled(struct pn_sim_node *node);

/* Ends all operations of a link with status; 0: without completions. */
void pn_sim_flush(struct pn_sim_link *link, int status);

#endif
