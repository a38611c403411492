/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * track -- what a device operation's `user` points to.
 *
 * It says what the operation is of, and whose: operations that an endpoint
 * could not wait for when it closed come up in the device when another endpoint
 * polls it (close.c).
 */
#ifndef PN_MESSAGE_TRACK_H
#define PN_MESSAGE_TRACK_H

struct pinion_endpoint;

enum pn_tracked {
	PN_TRACK_BOUNCE,
	PN_TRACK_FRAGMENT,
	PN_TRACK_PIECE,
	PN_TRACK_DIRECT,
	PN_TRACK_BYE,
};

/* The first member of whatever is tracked. */
struct pn_track {
	enum pn_tracked kind;
	struct pinion_endpoint *ep;
};

#endif
