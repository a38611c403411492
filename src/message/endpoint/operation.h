/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * operation -- what a device operation's `user` points to.
 *
 * It says what the operation is of, and whose: operations that an endpoint
 * could not wait for when it closed come up in the device when another endpoint
 * polls it (close.c).
 */
#ifndef PN_MESSAGE_TRACK_H
#define PN_MESSAGE_TRACK_H

struct pinion_endpoint;

enum pn_operation_kind {
	PN_OPERATION_PACKET,
	PN_OPERATION_FRAGMENT,
	PN_OPERATION_ONESIDED,
	PN_OPERATION_DIRECT,
	PN_OPERATION_BYE,
};

/* The first member of whatever is tracked. */
struct pn_operation_context {
	enum pn_operation_kind kind;
	struct pinion_endpoint *ep;
};

#endif
