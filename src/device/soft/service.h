/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * service -- the service thread of a soft device: accepts connections, drives
 * those that are being made (connect.h) and detects the death of peers.
 *
 * A connection is pending from accept() until its hello. A pending connection
 * of another user is closed at once; a pending connection that sends nothing is
 * closed after a while. When descriptors run out, the thread accepts nothing
 * for a moment. So nobody can use up the process's descriptors or its time.
 *
 * The end of a peer's socket reports at once that the peer closed or died. The
 * socket does not end while a forked child of the peer holds a copy of it. So,
 * once a second, the thread checks a lock in the peer's presence, which the
 * peer's service thread holds and the kernel marks when that thread dies. It
 * also wakes a thread that a peer should have woken and did not.
 *
 * Life: pn_soft_service_init() starts the thread; pn_soft_service_stop() ends
 * it and all connections; pn_soft_service_fini() closes the descriptors.
 * Threads: the fields belong to the service thread, except where said.
 */
#ifndef PN_DEVICE_SOFT_SERVICE_H
#define PN_DEVICE_SOFT_SERVICE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "device/soft/connect.h"

struct pn_soft_device;

struct pn_soft_service {
	/* constant once running */
	struct pn_soft_device *dev;
	struct pn_soft_address address;
	int epoll;

	/* of the service thread */
	struct pn_soft_watch listener, waker;
	struct pn_list pending; /* accepted, no hello yet; the oldest first */
	/* no descriptors to accept with; 0: not paused */
	uint64_t accept_paused_until_ns;
	unsigned nup;	     /* peers that are up, but for loopback */
	uint64_t checked_ns; /* when they were checked last */
	bool warned_user, warned_system;

	/* of the thread that opens and closes the device */
	_Atomic bool stop;
	pthread_t thread;
	bool running;
};

int pn_soft_service_init(struct pn_soft_service *service,
			 struct pn_soft_device *dev);
/* Stops the thread and closes all connections; the peers stay mapped. */
void pn_soft_service_stop(struct pn_soft_service *service);
void pn_soft_service_fini(struct pn_soft_service *service);

/* Makes the thread look for peers to connect to. Any thread. */
void pn_soft_service_kick(struct pn_soft_service *service);

/* Watches a descriptor; peer: whose it is, or NULL. */
int pn_soft_watch_add(struct pn_soft_service *service, struct pn_soft_watch *w,
		      int what, int fd, struct pn_soft_peer *peer);
/* Ends the watch and closes the descriptor, if there is one. */
void pn_soft_watch_remove(struct pn_soft_service *service,
			  struct pn_soft_watch *w);

/* Ends a pending connection and frees its watch. */
void pn_soft_pending_close(struct pn_soft_service *service,
			   struct pn_soft_watch *w);

#endif
