/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * connect -- how soft devices find each other, and notice each other's death.
 *
 * Every device listens on an abstract socket whose name is in its address. The
 * one that attaches connects and says hello, with its version, its identity
 * and three files: the two that it shows (shared.h) and the two channels of
 * this pair. The other checks user and version, and answers with the files that
 * it shows, or with why not. Then both are up. The files are closed once they
 * are mapped: the socket is all that a peer takes of the descriptors. It tells
 * that the other has closed or died, and carries the bytes that wake a sleeper
 * (wait.c). If both attach at the same moment, the connection of the smaller
 * nonce counts. What a device does, by what it has of the other:
 *
 *                    when a hello comes         when its own is answered
 *   nothing          welcomes it: up
 *   NEW              as CONNECTING
 *   CONNECTING
 *     smaller nonce  answers -EALREADY: its     0: up; else, or when the
 *                    own is there, or will be   socket ends: down
 *     greater nonce  takes its own back,        the same, but -EALREADY:
 *                    welcomes this one: up      takes it back, NEW; says
 *                                               it again in a moment
 *   UP               down; then as with nothing, or NEW if attach() asked
 *                    for another meanwhile
 *   detached, DOWN   as with nothing
 *
 * A hello is taken back by ending its socket, before anything else is said to
 * the other. It may be read long after, when the pair is up, or is detached
 * and connecting anew: one whose socket has ended counts for nothing anywhere.
 * So a hello that counts, of one that we are up with, is of one that has ended
 * that connection. Whoever is told -EALREADY does not rely on the other's
 * hello, which may have been taken back meanwhile, too; but nor does he ask for
 * ever: as often as fits into the time that a connection may take. (By count: a
 * process that was stopped meanwhile has not asked often.)
 *
 * Closing and death are learnt from the socket, whose end comes at once. Where
 * a forked child of the peer holds a copy, the end does not come: so, once a
 * second, the service looks at a lock in the peer's presence, which the
 * peer's service thread holds and the kernel marks when that thread dies.
 * Either way the peer goes down: its rings are let go at once, so that its
 * pages are free, its operations fail, and PEER_DOWN comes when the messages
 * it had sent are polled.
 * A device that detaches a peer lets go of its rings, says so by shutting its
 * half of the socket, and tells PEER_DOWN when the other has closed: that one
 * lets go of its rings first, so nothing of it can touch memory here any more.
 * Either may attach anew then, which makes another peer of the same nonce.
 *
 * The first words of hello are the same in every version, so that pending
 * can be told why they are refused. Whoever connects is a stranger until its
 * hello; one of another user is hung up on at once, one that is silent after
 * a while, and when descriptors run out nobody is let in for a moment: nobody
 * can take all of the process's descriptors, or its time.
 * A node is where abstract sockets and process numbers mean the same: a host,
 * or a container on it. Addresses say of which one they are, so that attach()
 * knows at once whom this device cannot reach.
 * Threads: one service thread per device does all this; attach() only leaves a
 * peer in the list and wakes it.
 */
#ifndef PN_DEVICE_SOFT_CONNECT_H
#define PN_DEVICE_SOFT_CONNECT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "device/device.h"

struct pn_soft_device;
struct pn_soft_peer;

/* What a soft device's address holds. */
struct pn_soft_address {
	uint16_t version;
	uint16_t node_top; /* who has another node cannot be reached from */
	char kind[4];	   /* "soft" */
	uint32_t node;	   /* here; 48 bits of it, in two parts */
	int32_t pid;
	uint64_t nonce;
};

/* Two of them fit into a name of libfabric. */
_Static_assert(sizeof(struct pn_soft_address) == 24, "no holes");

/* Hello and its answer. */
struct pn_soft_hello {
	uint32_t magic, version;
	int32_t status; /* of the answer: 0 or why not */
	uint32_t reserved;
	struct pn_soft_address from;
	uint64_t ring_bytes; /* of each channel; in the hello */
};

/* A socket that is watched: a connection, before it belongs to a peer and
 * while it does, or one of the service's own descriptors. */
struct pn_soft_watch {
	struct pn_list link; /* service->pending, or alone */
	enum {
		PN_SOFT_LISTEN,
		PN_SOFT_WAKE,
		PN_SOFT_SOCKET,
	} what;
	int fd;
	struct pn_soft_peer *peer; /* NULL: a stranger */
	uint64_t deadline_ns;	   /* a stranger's, to say hello */
};

/* What a connection to a peer consists of. */
struct pn_soft_link {
	struct pn_soft_watch socket; /* fd -1: none */
	uint64_t deadline_ns;	     /* to be up */
	uint64_t not_before_ns;	     /* it says hello again */
	unsigned nretries;	     /* so often, by -EALREADY */
	bool over; /* PEER_DOWN is told, or will be by poll() */
	/* The socket, open as long as the peer is mapped: callers write to it
	 * without asking the service. */
	int wakeup_fd;
	void *channels;
	uint64_t ring_bytes;
};

struct pn_soft_service {
	struct pn_soft_device *dev;
	struct pn_soft_address address;
	int epoll;
	struct pn_soft_watch listener, waker;
	struct pn_list pending;		 /* the oldest first */
	uint64_t accept_paused_until_ns; /* no descriptors to accept with; 0:
					    not */
	unsigned nup;		    /* peers of other processes that are up */
	uint64_t deaths_checked_ns; /* when their locks were looked at */
	bool warned_user, warned_system;
	_Atomic bool stop;
	pthread_t thread;
	bool running;
};

int pn_soft_service_init(struct pn_soft_service *service,
			 struct pn_soft_device *dev);
/* Stops the thread and closes all connections; peers' memory stays. */
void pn_soft_service_stop(struct pn_soft_service *service);
void pn_soft_service_fini(struct pn_soft_service *service);

/* Makes the thread look for peers to connect to. */
void pn_soft_service_kick(struct pn_soft_service *service);

/* The peer at an address that is not down, made when there is none (then state
 * NEW). NULL: no memory. Any thread. */
struct pn_soft_peer *pn_soft_peer_get(struct pn_soft_device *dev,
				      const struct pn_soft_address *address,
				      bool *is_new);

/* Lets go of all rings of peers that are not in use just now, so that there
 * are descriptors; how many. Any thread. */
unsigned pn_soft_close_idle_rings(struct pn_soft_device *dev);

/* Unmaps what a peer that is down (or a closing device) no longer needs. */
void pn_soft_link_unmap(struct pn_soft_peer *peer);

/* The name of the abstract socket behind an address. */
struct sockaddr_un;
unsigned pn_soft_socket_name(const struct pn_soft_address *address,
			     struct sockaddr_un *out);

#endif
