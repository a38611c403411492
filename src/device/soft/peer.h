/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * peer -- the peers of a soft device: the list of them, their memory, and how
 * they come up and go down.
 *
 * Life: pn_soft_peer_get() creates a peer (attach(), or a hello of the other
 * side). The service thread connects (connect.h), maps the peer's memory and
 * takes the peer up; poll() then returns PEER_UP. A peer goes down for good:
 * its rings are closed at once, so that its pages can be freed, its operations
 * fail, and poll() returns PEER_DOWN after the messages that the peer had sent.
 * Then its memory is unmapped. The struct lives until the device is closed.
 * Threads: the service thread, except where said.
 */
#ifndef PN_DEVICE_SOFT_PEER_H
#define PN_DEVICE_SOFT_PEER_H

#include "device/soft/connect.h"

struct pn_soft_device;

/* Returns the peer at an address that is not down; creates it (state NEW) if
 * there is none. NULL: no memory. Any thread. */
struct pn_soft_peer *pn_soft_peer_get(struct pn_soft_device *dev,
				      const struct pn_soft_address *address,
				      bool *is_new);

/* Closes all rings of peers that are not in use, to free descriptors; returns
 * their number. Any thread. */
unsigned pn_soft_close_idle_rings(struct pn_soft_device *dev);

/* Maps what a peer needs. fds: the files that it shares (and the channels when
 * they are not ours); they are closed. */
int pn_soft_peer_map(struct pn_soft_peer *peer,
		     const struct pn_soft_hello *hello, const int *fds,
		     bool ours);

/* Undoes pn_soft_peer_map() for a peer that does not come up. */
void pn_soft_peer_undo_map(struct pn_soft_peer *peer);

/* Unmaps what a peer that is down (or a closing device) no longer needs.
 * Callers' threads. */
void pn_soft_peer_unmap(struct pn_soft_peer *peer);
void pn_soft_channels_unmap(struct pn_soft_connection *connection);

/* The peer is mapped, its socket watched, and the other side knows that it may
 * come up: from here on one of the peer's callers may write to the socket
 * first. On error the peer is unmapped. */
int pn_soft_peer_up(struct pn_soft_service *service, struct pn_soft_peer *peer);

/* Closes the peer's rings: from the return on this process does not access the
 * peer's memory. */
void pn_soft_peer_disconnect(struct pn_soft_service *service,
			     struct pn_soft_peer *peer, int status);

/* Disconnects, ends the socket and queues PEER_DOWN. Does nothing when that was
 * done before. */
void pn_soft_peer_down(struct pn_soft_service *service,
		       struct pn_soft_peer *peer, int status);

void pn_soft_close_fds(const int *fds, unsigned n);

#endif
