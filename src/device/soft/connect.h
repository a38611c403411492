/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * connect -- how soft devices connect to each other.
 *
 * Every device listens on an abstract socket whose name is in its address. The
 * device that attaches connects and sends a hello with its version, its
 * identity and three files: the two that it shares (shared.h) and the two
 * channels of this pair. The other side checks user and version, and answers
 * with the files that it shares, or with an error. Then both are up. The files
 * are closed once they are mapped: the socket is the only descriptor that a
 * peer keeps. The socket reports that the other side has closed or died, and
 * carries the bytes that wake a sleeping thread (wait.c). If both attach at the
 * same moment, the connection of the smaller nonce is used. What a device does,
 * by the state of its peer (the rows), when a hello comes from that peer and
 * when its own hello is answered:
 *
 *                    when a hello comes         when its own is answered
 *   nothing          accepts it: up
 *   NEW              as CONNECTING
 *   CONNECTING
 *     smaller nonce  answers -EALREADY: its     0: up; else, or when the
 *                    own is there, or will be   socket ends: down
 *     greater nonce  withdraws its own,         the same, but -EALREADY:
 *                    accepts this one: up       withdraws it, NEW; sends
 *                                               it again after a while
 *   UP               down; then as with nothing, or NEW if attach() was
 *                    called again meanwhile
 *   detached, DOWN   as with nothing
 *
 * A hello is withdrawn by closing its socket before anything else is sent to
 * the other side. The other side may read it much later, when the pair is up,
 * or is detached and connecting again: a hello whose socket has ended is
 * ignored everywhere. So a valid hello from a peer that is up means that the
 * peer has ended that connection. A device that gets -EALREADY does not rely on
 * the other's hello, which may have been withdrawn, too. It retries, but only
 * as often as fits into the time that a connection may take. (Retries are
 * counted, not timed: a process that was stopped meanwhile has made few.)
 *
 * The first words of hello are the same in every version, so that a device of
 * another version can be told why it is refused.
 * A device that detaches a peer closes the peer's rings, shuts down its half of
 * the socket, and reports PEER_DOWN when the other side has closed. That side
 * closes its rings first, so none of its operations can access memory here any
 * more. Either side may attach again then, which creates another peer of the
 * same nonce.
 * A node is where abstract sockets and process numbers mean the same: a host,
 * or a container on it. Addresses name their node, so that attach() can refuse
 * a device that cannot be reached.
 * Threads: the service thread (service.h) makes all connections; attach() only
 * adds a peer to the list and wakes it.
 */
#ifndef PN_DEVICE_SOFT_CONNECT_H
#define PN_DEVICE_SOFT_CONNECT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/list.h"
#include "device/device.h"

struct pn_soft_peer;
struct pn_soft_service;

/* The contents of a soft device's address. */
struct pn_soft_address {
	uint16_t version;
	uint16_t node_top; /* a device of another node cannot be reached */
	char kind[4];	   /* "soft" */
	uint32_t node;	   /* 48 bits of the node, in two parts */
	int32_t pid;
	uint64_t nonce;
};

/* Two addresses fit into a name of libfabric. */
_Static_assert(sizeof(struct pn_soft_address) == 24, "no holes");

/* Hello and its answer. */
struct pn_soft_hello {
	uint32_t magic, version;
	int32_t status; /* of the answer: 0 or an error */
	uint32_t reserved;
	struct pn_soft_address from;
	uint64_t ring_bytes; /* of each channel; in a hello only */
};

/* A watched descriptor: the socket of a connection, before and while it belongs
 * to a peer, or one of the service's own descriptors. */
struct pn_soft_watch {
	struct pn_list link; /* in service->pending, or alone */
	enum {
		PN_SOFT_LISTEN,
		PN_SOFT_WAKE,
		PN_SOFT_SOCKET,
	} what;
	int fd;
	struct pn_soft_peer *peer; /* NULL: a pending connection */
	/* until when a pending connection must send a hello */
	uint64_t deadline_ns;
};

/* The resources of the connection to a peer. */
struct pn_soft_connection {
	struct pn_soft_watch socket; /* fd -1: none */
	uint64_t deadline_ns;	     /* until when it must be up */
	uint64_t not_before_ns;	     /* when to send hello again */
	unsigned nretries; /* answers of -EALREADY or for want of resources */
	bool over;	   /* PEER_DOWN was queued for poll() */
	/* The socket, open as long as the peer is mapped: callers write to it
	 * without the service thread. */
	int wakeup_fd;
	void *channels;
	uint64_t ring_bytes;
};

/* How long connecting may take, and how long to wait before a retry. */
#define PN_SOFT_CONNECT_NS (5 * PN_NS_PER_S)
#define PN_SOFT_RETRY_MS   20

/* The files that come with a hello and with its answer. */
#define PN_SOFT_HELLO_FDS  3
#define PN_SOFT_ANSWER_FDS 2

/* --- called by the service thread ---------------------------------------- */

/* Connects a peer that is not connected yet, ends one that detach() or poll()
 * asks to end, or gives up. True: call again soon. */
bool pn_soft_connection_advance(struct pn_soft_service *service,
				struct pn_soft_peer *peer);

/* Takes back the hello that was sent for a peer, if there is one. */
void pn_soft_connection_withdraw(struct pn_soft_service *service,
				 struct pn_soft_peer *peer);

/* The socket of a peer in state CONNECTING is readable: the answer. */
void pn_soft_answer_readable(struct pn_soft_service *service,
			     struct pn_soft_peer *peer);

/* A pending connection is readable: its hello. Ends the pending connection. */
void pn_soft_hello_readable(struct pn_soft_service *service,
			    struct pn_soft_watch *pending_socket);

/* Whether the other end of a socket is a process of our user. Others are logged
 * once only, since they can come as often as they like. */
bool pn_soft_is_same_user(struct pn_soft_service *service, int sock);

/* --- any thread ---------------------------------------------------------- */

/* The name of the abstract socket of an address. */
struct sockaddr_un;
unsigned pn_soft_socket_name(const struct pn_soft_address *address,
			     struct sockaddr_un *out);

#endif
