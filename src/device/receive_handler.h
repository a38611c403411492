/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * receive_handler -- the only interface by which a device calls up into the
 * layer that uses it (the message layer).
 *
 * Everything else that a device reports is a completion, which poll() returns.
 * A receive handler exists for speed: it copies a short message from the
 * device's memory to its receive buffer, and poll() need not lend the message
 * and take its buffer back.
 *
 * Life: the user embeds the struct in an object of its own, sets receive() and
 * stores the address in device->receive_handler while no data call is in
 * progress. It clears that pointer before the object ends.
 *
 * Who calls: the poll() of a device that is single_threaded, in the thread that
 * called poll(). A device need not call it at all (only `soft` does). Within
 * one poll() a device offers no message after one that it returns as a
 * completion, so that messages keep their order. Locks: the device holds none,
 * since a single_threaded device takes none; the user's caller may hold locks
 * of the user around poll(). What receive() may call: pn_copy() and functions
 * that do not enter the device. It must not call post, poll, wait,
 * return_buffer, attach or detach of this device, and it must not sleep.
 */
#ifndef PN_DEVICE_RECEIVE_HANDLER_H
#define PN_DEVICE_RECEIVE_HANDLER_H

#include <stdbool.h>
#include <stddef.h>

struct pn_peer;

struct pn_receive_handler {
	/* Offers a message without immediate: len bytes at data, valid during
	 * the call. The peer may change them meanwhile (soft/channel.h): read
	 * each byte once. True: the message was handled; the device consumes
	 * it. False: nothing was done; poll() returns it as a RECV completion.
	 */
	bool (*receive)(struct pn_receive_handler *handler,
			struct pn_peer *peer, const void *data, size_t len);
	/* Set by receive() when it will refuse the next message, but not one
	 * that the next poll() offers: leave it where it is. */
	bool is_full;
};

#endif
