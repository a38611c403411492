/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * soft_impl -- the soft device and its peers, as its own files see them.
 *
 * Three kinds of threads use a device:
 *   callers   post, poll, return_buffer: one at a time (dev->lock, which a
 *             single_threaded device does not take)
 *   engine    executes operations too large to execute while posting (engine.h)
 *   service   makes connections and detects deaths (service.h)
 * What they share: operations and their completions under the engine's lock;
 * peers that came up or went down as events under dev->events_lock; and the
 * state of a peer, an atomic that only the service thread advances.
 *
 * Completions reach poll() in two lists, and both keep the order of a peer's
 * operations: those executed while posting in `completed`, those of the engine
 * in its done list. An operation is executed while posting only if all
 * operations of its peer that went to the engine have been polled, and poll()
 * empties `completed` first.
 */
#ifndef PN_DEVICE_SOFT_IMPL_H
#define PN_DEVICE_SOFT_IMPL_H

#include "base/list.h"
#include "base/lock.h"
#include "device/profiles.h"
#include "device/soft/channel.h"
#include "device/soft/connect.h"
#include "device/soft/engine.h"
#include "device/soft/move.h"
#include "device/soft/peer.h"
#include "device/soft/service.h"
#include "device/soft/soft.h"
#include "device/soft/yield.h"

enum pn_soft_mode { PN_SOFT_AUTO, PN_SOFT_URING, PN_SOFT_MLOCK };
enum pn_soft_engine_use { PN_SOFT_BY_SIZE, PN_SOFT_THREAD, PN_SOFT_INLINE };

struct pn_soft_params {
	int mode;   /* enum pn_soft_mode */
	int engine; /* enum pn_soft_engine_use */
	bool strict;
	uint64_t inline_max, chunk, slots, rings, ring_bytes, queue_depth;
	uint64_t spin;
	char cost[PN_OPTION_TEXT_BYTES];
	char node[PN_OPTION_TEXT_BYTES];
};

enum pn_soft_state {
	PN_SOFT_NEW,	    /* attach() was called */
	PN_SOFT_CONNECTING, /* hello was sent */
	PN_SOFT_UP,
	PN_SOFT_DOWN,
};

struct pn_soft_peer {
	struct pn_peer peer;
	struct pn_list link;	 /* dev->peers */
	struct pn_list up, down; /* in dev->up_events, dev->down_events */
	uint64_t nonce;
	_Atomic int state; /* enum pn_soft_state */
	int status;	   /* why it is down; written before state */
	/* set by detach(): the service thread ends it */
	_Atomic bool detach_requested;
	/* set by poll(): its ring holds an invalid record */
	_Atomic bool protocol_error;

	/* Written by callers under dev->lock. */
	struct pn_soft_tx tx; /* used by the engine while it has operations */
	struct pn_soft_rx rx;
	/* operations with the engine, or done there but not polled */
	unsigned queued;
	unsigned queued_copies; /* of these, sends whose bytes were copied */
	/* operations posted whose completion was not polled */
	unsigned inflight;
	unsigned lent; /* messages whose buffers were not returned */
	/* the peer is down; PEER_DOWN follows the other completions */
	bool closing;
	bool down_polled; /* PEER_DOWN was polled */

	/* Written under the engine's lock. */
	struct pn_list ops;
	struct pn_list turn;

	/* Written by the service thread until the peer is up, then constant
	 * until the peer is down. */
	struct pn_soft_connection connection;
	struct pn_soft_remote remote;
	bool mapped; /* the channels and `remote` are mapped */
};

/* The completion of an operation that was executed while posting. */
struct pn_soft_completed {
	struct pn_soft_peer *peer;
	void *user;
	int status;
};

struct pn_soft_device {
	struct pn_device device; /* first: what callers hold */

	/* Constant after open(). */
	struct pn_soft_params params;
	const struct pn_profile *profile;
	const char *why_mlock; /* NULL: io_uring is used */
	/* The device whose registrations this one uses: itself, or the device
	 * that it was opened to share them with. The domain has the slots and
	 * the shared file. */
	struct pn_soft_device *domain;
	struct pn_soft_shared *shared; /* the domain's */
	int shared_fd;
	struct pn_soft_presence *presence;
	int presence_fd;
	int event_fd; /* epoll: readable after a notification (wait.c) */
	int own_fd; /* the eventfd in event_fd by which this process notifies */

	/* Modules with locks and threads of their own. */
	struct pn_soft_slots slots; /* used if this device is its own domain */
	struct pn_soft_engine engine;
	struct pn_soft_service service;

	/* Callers, under lock, which is taken before the other two. */
	struct pn_mutex lock;
	struct pn_soft_staging staging;
	struct pn_soft_completed *completed; /* a ring of ncompleted_max */
	unsigned completed_head, ncompleted, ncompleted_max;
	/* peers that are up: poll() looks at their channels */
	struct pn_soft_peer **active;
	unsigned nactive, nactive_max, next_rx;
	/* active peers that are down, PEER_DOWN not polled */
	unsigned nclosing;
	bool cells_to_return; /* some peer has consumed cells */
	struct pn_soft_yield yield;

	/* Any thread, under peers_lock. */
	struct pn_mutex peers_lock;
	struct pn_list peers;
	/* Replaces `active` when that is full; NULL: `active` has
	 * peers_capacity. Whoever creates a peer makes sure that there is room
	 * for all, so that a peer that comes up needs no memory. */
	struct pn_soft_peer **next_active;
	unsigned npeers, peers_capacity;

	/* Events from the service thread to poll(), under events_lock. */
	struct pn_mutex events_lock;
	struct pn_list up_events, down_events;
	_Atomic unsigned nevents; /* read without the lock */

	_Atomic unsigned woken; /* set by wake(), any thread */
	/* A thread sleeps, or the program has armed the descriptor. Unlike
	 * presence->sleeping, no peer can clear it. */
	_Atomic bool asleep;
};

static inline struct pn_soft_device *pn_soft_of(struct pn_device *device)
{
	return pn_container_of(device, struct pn_soft_device, device);
}

static inline struct pn_soft_peer *pn_soft_peer_of(struct pn_peer *peer)
{
	return pn_container_of(peer, struct pn_soft_peer, peer);
}

/* A single-threaded device takes no lock; clang's thread safety analysis cannot
 * model that. */
static inline void pn_soft_enter(struct pn_soft_device *dev) PN_NO_THREAD_SAFETY
{
	if (!dev->device.single_threaded)
		pn_lock(&dev->lock);
}

static inline void pn_soft_leave(struct pn_soft_device *dev) PN_NO_THREAD_SAFETY
{
	if (!dev->device.single_threaded)
		pn_unlock(&dev->lock);
}

/* Wakes the thread that sleeps on this device, or on a peer's device, if any
 * does. The caller has already written what there is to find. */
void pn_soft_wake_own(struct pn_soft_device *dev);
/* Wakes also when a peer has already cleared `sleeping`: the peer's wake-up may
 * be lost. */
void pn_soft_wake_always(struct pn_soft_device *dev);
/* Called by the service thread now and then. */
void pn_soft_wake_overlooked(struct pn_soft_device *dev);
void pn_soft_wake_peer(struct pn_soft_peer *peer);

static inline void pn_soft_notify_own(struct pn_soft_device *dev)
{
	if (pn_unlikely(atomic_load(&dev->presence->sleeping)))
		pn_soft_wake_own(dev);
}

static inline void pn_soft_notify_peer(struct pn_soft_peer *peer)
{
	if (pn_unlikely(atomic_load(&peer->remote.presence->sleeping)))
		pn_soft_wake_peer(peer);
}
/* The same after a record was put into the channel. */
static inline void pn_soft_notify_record(struct pn_soft_peer *peer)
{
	/* Orders the record before the load of `sleeping`; pairs with the fence
	 * between the sleeper's store and its look at the channel. */
	atomic_thread_fence(memory_order_seq_cst);
	pn_soft_notify_peer(peer);
}

/* Executes up to `budget` bytes of an operation in the calling thread, with its
 * staging, and advances transfer->done; the operation is over when done is len.
 * -EAGAIN: the peer's channel is full, nothing was done. */
int pn_soft_execute(struct pn_soft_staging *staging, struct pn_soft_peer *peer,
		    struct pn_soft_transfer *transfer, size_t budget);

/* Entries of the table of operations: post.c, poll.c, wait.c, describe.c. */
int pn_soft_post(struct pn_device *device, struct pn_peer *peer,
		 const struct pn_op *op);
int pn_soft_send_inline(struct pn_device *device, struct pn_peer *peer,
			const struct pn_inline_header *header, const void *body,
			size_t len);
int pn_soft_poll(struct pn_device *device, struct pn_completion *out,
		 unsigned max);
void pn_soft_return_buffer(struct pn_device *device,
			   const struct pn_completion *completion);
unsigned pn_soft_idle(struct pn_device *device);
int pn_soft_wait(struct pn_device *device, uint64_t deadline_ns);
void pn_soft_wake(struct pn_device *device);
int pn_soft_arm(struct pn_device *device);
void pn_soft_describe(struct pn_device *device, pn_fact_fn *fn, void *arg);

/* Whether poll() would return something, or a channel that was full has room
 * (reported once). The caller has called pn_soft_enter(). */
bool pn_soft_has_events(struct pn_soft_device *dev);

/* Adds the completion of an operation that was executed while posting. Reserve
 * room first: -EAGAIN, call poll() before; -ENOMEM. */
int pn_soft_completed_reserve(struct pn_soft_device *dev);
void pn_soft_completed_add(struct pn_soft_device *dev,
			   struct pn_soft_completed completed);

/* Queues an event for poll(): a peer came up or went down. */
void pn_soft_queue_up(struct pn_soft_device *dev, struct pn_soft_peer *peer);
void pn_soft_queue_down(struct pn_soft_device *dev, struct pn_soft_peer *peer);

#endif
