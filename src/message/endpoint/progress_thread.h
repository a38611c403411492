/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * progress_thread -- makes progress for endpoints while the program computes
 * (option `progress`).
 *
 * A process has one progress thread, which serves all endpoints that asked for
 * it. The thread starts with the first of them and ends with the last. Each
 * endpoint is an entry of the thread, in one of these states:
 *
 *   armed    nobody calls the endpoint and nothing is there to do: the devices
 *            are armed, the thread sleeps on the endpoint's descriptor.
 *   yielded  callers are at it: the thread leaves the endpoint alone and looks
 *            again after a while, MIN_YIELD_NS at first, MAX_YIELD_NS in the
 *            end. The devices are not armed, so that peers notify nobody. While
 *            long messages come, the thread looks every MIN_YIELD_NS if nobody
 *            else needs its core, else after MAX_LONG_YIELD_NS at most: the
 *            program may begin to compute at any moment.
 *   parked   a caller sleeps in the devices: it wakes up for events itself. The
 *            thread does nothing until that caller is back.
 *
 * The thread enters an endpoint only by pn_biased_visit(): if no caller took
 * the lock for about a microsecond, or if the last one offered it. A caller
 * that begins a long message does so when it leaves. Then it handles events
 * until there are none for SPIN_NS, or until a caller wants the lock, and arms
 * the devices.
 *
 * A caller that polls an armed endpoint does not disarm it: the first message
 * costs its sender a notification, the thread wakes up, sees that callers are
 * at it, and yields. A caller pays nothing for the transition, and while it
 * polls the thread costs it nothing but two looks in a millisecond.
 *
 * A library on top of pinion that has a lock of its own gives a function
 * (`progress` of struct pinion_endpoint_attr), which the thread calls instead.
 *
 * Devices: those with PN_CAP_FD. In virtual time (`sim`) nothing runs beside
 * the tasks, and pn_progress_thread_add() refuses.
 * Threads: any. The thread's own lock protects the list of entries; it is not
 * held while an entry is worked on. It is taken after an endpoint's lock.
 * fork: the child has no progress thread, and no entries.
 */
#ifndef PN_MESSAGE_PROGRESS_THREAD_H
#define PN_MESSAGE_PROGRESS_THREAD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/list.h"

struct pinion_endpoint;
struct pn_endpoint_attr;

/* What makes the thread work on an entry again, as told above. */
enum pn_progress_state {
	PN_PROGRESS_YIELDED, /* its look_ns: also while it has more to do */
	PN_PROGRESS_ARMED,   /* its descriptor, or its look_ns */
	PN_PROGRESS_PARKED,  /* the caller that sleeps */
};

/* What an endpoint is to the progress thread. Only the thread uses it, except
 * as noted. */
struct pn_progress_entry {
	bool added;	     /* constant while the endpoint is open */
	struct pn_list link; /* the thread's lock */
	/* The devices' descriptors, without the endpoint's notifications: a
	 * program may leave these unread for long. With a function of a library
	 * above: the endpoint's descriptor, which this function arms. */
	int fd;
	uint64_t look_ns; /* when to work on it; PN_FOREVER: see state */
	/* While armed: the earliest deadline of a peer. A library above arms a
	 * descriptor that tells of it. */
	uint64_t deadline_ns;
	uint64_t yield_ns; /* how long it was yielded last */
	/* Under the endpoint's lock. With a function of a library above: always
	 * yielded, since the library's calls of pinion_endpoint_arm() are told
	 * of everything. */
	enum pn_progress_state state;
	uint64_t nyields; /* not counted in the statistics yet */
	_Atomic bool due; /* a caller is back, or the fd is readable */
	/* Long messages and RDMA operations so far: written under the
	 * endpoint's lock. As last offered to the thread by a caller, under
	 * this lock. As last seen by the thread, and when that was. */
	_Atomic uint32_t nlong;
	uint32_t noffered;
	uint32_t nlong_seen;
	uint64_t long_ns;
	int (*progress)(void *arg); /* or NULL */
	void *arg;
};

/* Makes the thread serve an endpoint that is open. -EOPNOTSUPP: a device has no
 * descriptor (logged); -EMFILE, -ENFILE, -ENOMEM; -EAGAIN: no thread could be
 * started. */
int pn_progress_thread_add(struct pinion_endpoint *ep,
			   const struct pn_endpoint_attr *attr);

/* Ends that. The thread does not use the endpoint after the return. Nothing
 * happens if the thread does not serve it. Holds no lock of the endpoint. */
void pn_progress_thread_remove(struct pinion_endpoint *ep);

/* Under the endpoint's lock: a message begins that may take long enough for the
 * program to compute meanwhile. */
static inline void pn_progress_thread_began(struct pn_progress_entry *entry)
{
	uint32_t n = atomic_load_explicit(&entry->nlong, memory_order_relaxed);

	atomic_store_explicit(&entry->nlong, n + 1, memory_order_relaxed);
}

/* Under the endpoint's lock: whether one has begun since the last question. */
static inline bool pn_progress_thread_offers(struct pn_progress_entry *entry)
{
	uint32_t n = atomic_load_explicit(&entry->nlong, memory_order_relaxed);
	bool offers = n != entry->noffered;

	entry->noffered = n;
	return offers;
}

/* Under the endpoint's lock: a caller that slept in the devices is back, or has
 * tried to arm them. They may not be armed any more. */
void pn_progress_thread_wake(struct pn_progress_entry *entry);
static inline void pn_progress_thread_resume(struct pn_progress_entry *entry)
{
	if (pn_unlikely(entry->state != PN_PROGRESS_YIELDED))
		pn_progress_thread_wake(entry);
}

/* Whether `progress=auto` takes the thread: the process may use ncores of the
 * machine's nmachine, and nprocesses of its job are there. More cores than
 * processes leave one idle. Where the machine has ncores for each of them, the
 * launcher may have bound each to cores of its own. */
static inline bool pn_progress_has_core(unsigned ncores, unsigned nmachine,
					unsigned nprocesses)
{
	return ncores > nprocesses ||
	       (ncores > 1 && ncores * nprocesses <= nmachine);
}

#endif
