/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * soft_impl -- the soft device and its peers, as its own files see them.
 *
 * Three kinds of threads touch a device:
 *   callers   post, poll, release: one at a time (dev->lock, which a
 *             single_threaded device leaves out)
 *   engine    carries out operations too large to do while posting (engine.h)
 *   service   makes connections and notices deaths (connect.h)
 * What crosses between them: operations and their completions under the
 * engine's lock, peers coming and going as events under dev->events_lock, and
 * the state of a peer, an atomic that only the service moves on.
 *
 * Completions reach poll() on two ways, and both keep the order of a peer's
 * operations: those carried out while posting in `completed`, those of the
 * engine in its done list. An operation is carried out while posting only if
 * the peer has none with the engine whose completion was not polled yet, and
 * poll() empties `completed` first.
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
#include "device/soft/soft.h"

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
	PN_SOFT_NEW,	    /* attach() asked for it */
	PN_SOFT_CONNECTING, /* hello sent */
	PN_SOFT_UP,
	PN_SOFT_DOWN,
};

struct pn_soft_peer {
	struct pn_peer peer;
	struct pn_list link;	 /* dev->peers */
	struct pn_list up, down; /* dev->ups, dev->downs */
	uint64_t nonce;
	_Atomic int state; /* enum pn_soft_state */
	int status;	   /* why it is down; before state says so */
	_Atomic bool detach_requested; /* detach() asks the service to end it */
	_Atomic bool protocol_error; /* poll() does: its ring makes no sense */

	/* The callers'. */
	struct pn_soft_tx tx; /* the engine's while it has operations */
	struct pn_soft_rx rx;
	unsigned queued;   /* with the engine, or done there and not polled */
	unsigned inflight; /* posted, completion not polled */
	unsigned lent;	   /* messages not released */
	bool closing;	   /* is down; PEER_DOWN follows the rest */
	bool down_polled;  /* nothing follows any more */

	/* The engine's, under its lock. */
	struct pn_list ops;
	struct pn_list turn;

	/* The service's until the peer is up, then constant until down. */
	struct pn_soft_link wire;
	struct pn_soft_remote remote;
	bool mapped; /* wire's memory and remote are there */
};

/* Something for poll() to tell of an operation that is over. */
struct pn_soft_completed {
	struct pn_soft_peer *peer;
	void *user;
	int status;
};

struct pn_soft_device {
	struct pn_device device;
	struct pn_soft_params params;
	const struct pn_profile *profile;
	const char *why_mlock; /* NULL: io_uring is used */

	/* Whose registrations it uses: its own, or those of the device that it
	 * was opened to share them with, which has the slots and the file. */
	struct pn_soft_device *domain;
	struct pn_soft_shared *shared; /* the domain's */
	int shared_fd;
	struct pn_soft_presence *presence;
	int presence_fd;
	int event_fd; /* epoll: readable when somebody rang (wait.c) */
	int own_fd;   /* in it: the eventfd by which this process rings */
	struct pn_soft_slots slots;	/* of a domain */
	struct pn_soft_staging staging; /* the callers' */
	struct pn_soft_engine engine;
	struct pn_soft_service service;

	struct pn_mutex lock; /* see above; before peers_lock, events_lock */
	struct pn_soft_completed *completed; /* a ring of ncompleted_max */
	unsigned completed_head, ncompleted, ncompleted_max;
	struct pn_soft_peer **active; /* up: poll looks at their channels */
	unsigned nactive, nactive_max, next_rx;
	unsigned nclosing;    /* of them down, PEER_DOWN not told */
	bool cells_to_return; /* some have cells to give back */

	struct pn_mutex peers_lock; /* the list; any thread */
	struct pn_list peers;
	/* What `active` becomes when it is full: whoever makes a peer sees to
	 * it that there is room for all: coming up needs no memory. */
	struct pn_soft_peer *
		*next_active; /* of peers_capacity; or NULL: it is */
	unsigned npeers, peers_capacity;

	struct pn_mutex events_lock; /* the service's news */
	struct pn_list ups, downs;
	_Atomic unsigned nevents;
	_Atomic unsigned woken; /* wake() */
};

static inline struct pn_soft_device *pn_soft_of(struct pn_device *device)
{
	return pn_container_of(device, struct pn_soft_device, device);
}

static inline struct pn_soft_peer *pn_soft_peer_of(struct pn_peer *peer)
{
	return pn_container_of(peer, struct pn_soft_peer, peer);
}

/* A single-threaded device pays for no lock; the analysis of clang cannot
 * follow that. */
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

/* Wakes whoever sleeps on this device, or on a peer's, if anybody does. The
 * news to be found was written before. */
void pn_soft_wake_own(struct pn_soft_device *dev);
/* Also when a peer has taken it upon itself to: its wake-up may be lost. */
void pn_soft_wake_always(struct pn_soft_device *dev);
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

/* Carries out an operation on the thread that calls, with its staging; len is
 * its length. -EAGAIN: the peer's channel is full, nothing was done. Advances
 * *done by up to `budget` bytes; the operation is over when *done is len. */
int pn_soft_execute(struct pn_soft_staging *staging, struct pn_soft_peer *peer,
		    const struct pn_op *op, size_t len, size_t budget,
		    size_t *done);

/* post.c, poll.c, wait.c, describe.c: rows of the table of operations. */
int pn_soft_post(struct pn_device *device, struct pn_peer *peer,
		 const struct pn_op *op);
int pn_soft_send_inline(struct pn_device *device, struct pn_peer *peer,
			const struct pn_inline_header *head, const void *body,
			size_t len);
int pn_soft_poll(struct pn_device *device, struct pn_completion *out,
		 unsigned max);
void pn_soft_return_buffer(struct pn_device *device,
			   const struct pn_completion *completion);
int pn_soft_wait(struct pn_device *device, uint64_t deadline_ns);
void pn_soft_wake(struct pn_device *device);
int pn_soft_arm(struct pn_device *device);
void pn_soft_describe(struct pn_device *device, pn_fact_fn *fn, void *arg);

/* Whether poll() would return something, or a channel that was full has room
 * (told once). The caller is inside. */
bool pn_soft_has_events(struct pn_soft_device *dev);

/* Adds the completion of an operation carried out while posting. Room for it
 * first: -EAGAIN, poll() before; -ENOMEM. */
int pn_soft_completed_reserve(struct pn_soft_device *dev);
void pn_soft_completed_add(struct pn_soft_device *dev,
			   struct pn_soft_completed completed);

/* Tells poll() that a peer came up or went down (its state says which). */
void pn_soft_queue_up(struct pn_soft_device *dev, struct pn_soft_peer *peer);
void pn_soft_queue_down(struct pn_soft_device *dev, struct pn_soft_peer *peer);

#endif
