/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * sim_impl -- what the source files of `sim` share.
 *
 *   scheduler.c  time: events, tasks, cores, waiting (and who runs the world)
 *   registry.c   registrations: keys, limits, stale ranges
 *   port.c       a node's completions and inbox, as poll() and release() see it
 *   link.c       peers: attaching, going down
 *   operation.c  operations from post() to completion
 *   sim.c        parameters, opening and closing, the table of operations
 *
 * One lock guards a world. A thread that calls from outside every task takes
 * it (pn_sim_enter()) and, while it waits or is charged, runs the world under
 * it; code inside a task is run by the thread that holds it already.
 *
 * A task owes: the CPU cost of posting and polling adds up in its
 * deferred_cpu_ns and is paid at the next point where it may be switched anyway
 * (wait, consume_cpu, copy, register, deregister, sleep, its end). So post()
 * and poll() never switch, and the task's own time is the world's plus what it
 * owes.
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
	struct pn_list queue; /* ready, waiting, blocked or wanting a core */
	struct pn_sim_event timer;
	uint64_t id;
	uint64_t deferred_cpu_ns;     /* CPU time used but not paid for yet */
	uint64_t cpu_ns;	      /* being paid for */
	uint64_t since_ns;	      /* when it began what it is wait_reason */
	const char *wait_reason;      /* where it waits, for a person */
	int result;		      /* of wait() */
	const _Atomic uint32_t *word; /* that it is blocked on */
	bool told;		      /* that nothing can ever happen again */
	void (*fn)(void *arg);
	void *arg;
};

struct pn_sim_core {
	struct pn_sim_event event; /* its task is done or its slice over */
	struct pn_sim_node *node;
	struct pn_sim_task *task; /* NULL: idle */
	uint64_t since_ns, until_ns;
};

struct pn_sim_registration {
	struct pn_interval interval; /* its range; in node->ranges */
	unsigned access;
	uint64_t lkey, rkey;
	uint64_t born_ns;
	struct pn_range *stale; /* parts whose pages are gone */
	unsigned nstale;
};

/* A port of a node: a device with a wire of its own. The first one is the
 * node's home: its CPUs, its sleepers and what is counted of it are there. */
struct pn_sim_node {
	struct pn_device device; /* first: what callers hold */
	struct pn_sim *sim;
	struct pn_sim_node *home;
	unsigned index;	 /* of the port: number + rail * nnodes */
	unsigned number; /* of the node */
	bool dead;
	bool cut; /* the port is; the node lives */
	struct pn_sim_event fail_event;
	uint64_t noperations; /* posted here or carried out here */
	double slowness;      /* of the wire, against the profile's */

	/* CPU */
	struct pn_sim_core *cores;
	struct pn_list core_queue; /* tasks that want one */

	/* wire: when each direction is free again */
	uint64_t egress_free_ns, ingress_free_ns;

	/* peers, by node index: open addressing, a power of two */
	struct pn_sim_link **links;
	size_t nlinks, links_capacity;
	struct pn_list link_list; /* the same, in the order of birth */

	/* completions: a ring */
	struct pn_completion *ring;
	size_t ring_first, ring_n, ring_capacity;
	struct pn_list waiters;
	struct pn_list blocked; /* tasks, on words of their own choice */
	bool woken;		/* by wake(), with nobody waiting */
	unsigned empty_polls;	/* in a row */
	struct pn_list inbox;	/* messages not released */
	size_t inbox_bytes, inbox_n;
	struct pn_list stalled; /* links whose messages wait for the inbox */

	/* registrations, by slot */
	struct pn_sim_registration **slots;
	size_t nslots, slots_capacity;
	uint32_t *free_slots;
	size_t nfree;
	struct pn_interval *ranges;
	size_t nmrs, live_bytes, limit_bytes;

	/* counted for the script */
	uint64_t nregistrations, nmessages;
};

/* A fault that happens at its time. */
struct pn_sim_timed_fault {
	struct pn_sim_event event;
	struct pn_fault fault;
};

struct pn_sim {
	struct pn_mutex lock; /* everything below */
	pthread_cond_t changed;
	atomic_uint lock_waiters; /* threads that want the lock */
	unsigned sleepers;	  /* threads in pthread_cond_timedwait() */

	struct pn_sim_params params;
	const struct pn_profile *profile;
	uint64_t latency_ns, message_ns;
	uint64_t id;	  /* tells worlds of this process apart */
	bool private;	  /* made by pn_device_open(), dies with its device */
	bool single_host; /* no second thread will ever call */

	uint64_t now_ns;
	uint64_t nsteps;
	struct pn_sim_event_queue events;
	struct pn_list ready; /* tasks that can go on */
	struct pn_list tasks;
	uint64_t ntasks_born;

	struct pn_sim_node *nodes; /* all ports: of rail 0, of rail 1, ... */
	struct pn_sim_core *cores; /* of all nodes */
	unsigned nnodes, nrails;

	struct pn_script script;
	struct pn_sim_timed_fault *timed_faults;
	uint64_t nregistrations, nmessages;

	uint64_t digest, random, last_key;
	uint64_t stale_uses;
	bool deadlock;
	struct pn_interval *reservations;
	uint64_t nreservations;
};

static inline struct pn_sim_node *pn_sim_node_of(struct pn_device *device)
{
	return pn_container_of(device, struct pn_sim_node, device);
}

/* The port of the same node on a rail. */
static inline struct pn_sim_node *pn_sim_port(const struct pn_sim_node *node,
					      unsigned rail)
{
	return &node->sim->nodes[node->number + rail * node->sim->nnodes];
}

/* How long a message is on the wire between two ports: the slower's time. */
static inline uint64_t pn_sim_wire_ns(const struct pn_sim_node *a,
				      const struct pn_sim_node *b, size_t bytes)
{
	double slowness = a->slowness > b->slowness ? a->slowness : b->slowness;
	uint64_t ns = pn_profile_link_ns(a->sim->profile, bytes);

	return slowness == 1 ? ns : (uint64_t)((double)ns * slowness);
}

/* a + b, but never past the end of time. */
static inline uint64_t pn_sim_after(uint64_t a, uint64_t b)
{
	return a > UINT64_MAX - 1 - b ? UINT64_MAX - 1 : a + b;
}

/* --- scheduler.c ---------------------------------------------------------- */

/* What a digest is made of, besides time, node, key and status. */
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

/* The next number of the world's own sequence. */
uint64_t pn_sim_random(struct pn_sim *sim);

/* Locks unless the caller is a task of this world; gives back what leave()
 * must be told. */
bool pn_sim_enter(struct pn_sim *sim);
void pn_sim_leave(struct pn_sim *sim, bool entered);

/* The caller's own time: now and what it owes. */
uint64_t pn_sim_time(const struct pn_sim *sim);

/* Takes ns of CPU time from the caller, now (a task may be switched) or with
 * what it owes (it is not). */
void pn_sim_consume_cpu(struct pn_sim *sim, uint64_t ns);
void pn_sim_defer_cpu(struct pn_sim *sim, uint64_t ns);

/* Outside tasks: lets everything due by now happen. */
void pn_sim_progress(struct pn_sim *sim);

/* Somebody polled in vain, again and again: lets time pass. */
void pn_sim_empty_poll(struct pn_sim_node *node);

/* There is something to poll: lets those who wait go on. */
void pn_sim_notify(struct pn_sim_node *node);

int pn_sim_wait(struct pn_sim_node *node, uint64_t deadline_ns);
void pn_sim_wake(struct pn_sim_node *node);
void pn_sim_block(struct pn_sim_node *node, const _Atomic uint32_t *word,
		  uint32_t value, uint64_t deadline_ns);
void pn_sim_unblock(struct pn_sim_node *node, const _Atomic uint32_t *word);

/* Ends the tasks of a node, or of all with NULL, where they stand. Not from
 * one of them. */
void pn_sim_end_tasks(struct pn_sim *sim, const struct pn_sim_node *node);

void pn_sim_cores_init(struct pn_sim_node *node, struct pn_sim_core *cores);

/* --- registry.c ----------------------------------------------------------- */

int pn_sim_register(struct pn_device *device, struct pn_mr *const *mrs,
		    unsigned n);
void pn_sim_deregister(struct pn_device *device, struct pn_mr *const *mrs,
		       unsigned n);
int pn_sim_rekey(struct pn_device *device, struct pn_mr *mr);
void pn_sim_pinned(struct pn_device *device, struct pn_pinned *out);

/* Whether a key lets an operation touch [addr, addr + len): 0, -EFAULT (lkey)
 * or -EACCES (rkey), -ESTALE (counted and logged). */
int pn_sim_check_lkey(struct pn_sim_node *node, const struct pn_sge *sge,
		      unsigned access);
int pn_sim_check_rkey(struct pn_sim_node *node, uint64_t rkey, uint64_t addr,
		      size_t len, unsigned access);

/* As pn_sim_check_lkey(), but blind to staleness: for post(). */
int pn_sim_covers_lkey(struct pn_sim_node *node, const struct pn_sge *sge,
		       unsigned access);

/* Ends all registrations of a node. */
void pn_sim_registry_fini(struct pn_sim_node *node);

/* --- port.c --------------------------------------------------------------- */

/* Says something to the node's program. */
void pn_sim_complete(struct pn_sim_node *node,
		     const struct pn_completion *completion);

/* Memory for a message; NULL when the inbox is full. */
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

/* One node's way to another. Born in attach() or when the other attaches; dies
 * with the world. The next one to the same node takes the place of one that is
 * down in the table. */
struct pn_sim_link {
	struct pn_peer peer; /* first: what callers hold */
	struct pn_sim_node *self, *other;
	struct pn_sim_link *back; /* the other's end; NULL: not connected yet */
	enum pn_sim_link_state state;
	int refusal;		     /* why connecting will fail */
	struct pn_list entry;	     /* in self->link_list */
	struct pn_sim_event connect; /* the request, then the answer */
	struct pn_sim_event down;    /* self learns that other is gone */
	struct pn_list ops;	     /* in flight, in the order of posting */
	struct pn_list held;	     /* of those: behind a fence */
	struct pn_list stalled; /* of those: at other, whose inbox is full */
	struct pn_list stall;	/* in other->stalled while any is */
	unsigned nops, nreads;
	bool refused; /* a post found the queue full: someone may wait */
	uint64_t last_head_ns; /* nothing posted later arrives earlier */
};

void pn_sim_address(struct pn_device *device, struct pn_address *out);
int pn_sim_attach(struct pn_device *device, const struct pn_address *address,
		  struct pn_peer **out);

void pn_sim_detach(struct pn_device *device, struct pn_peer *peer);

/* Whether the other side of a link has gone, or given the link up: nothing
 * that was sent over it is carried out there any more, no answer comes. */
bool pn_sim_link_is_broken(const struct pn_sim_link *link);

/* The node is gone: its peers will learn it, its registrations end. Its tasks
 * are left alone. */
void pn_sim_node_die(struct pn_sim_node *node);

/* Counts an operation of a port; the script may have it fail after that. */
void pn_sim_port_used(struct pn_sim_node *port);
/* The port fails: all its links go down at both ends. What it said before can
 * still be polled, and registrations stay. */
void pn_sim_port_fail(struct pn_sim_node *port);
void pn_sim_port_fail_fire(struct pn_sim *sim, struct pn_sim_event *event);

void pn_sim_links_fini(struct pn_sim_node *node);

/* --- operation.c ---------------------------------------------------------- */

int pn_sim_post(struct pn_device *device, struct pn_peer *peer,
		const struct pn_op *op);

/* The node's inbox has room again. */
void pn_sim_resume_stalled(struct pn_sim_node *node);

/* Ends all operations of a link with status; 0: without a word. */
void pn_sim_flush(struct pn_sim_link *link, int status);

#endif
