/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * operation -- the context of a device operation: what its `user` points to.
 *
 * The context is the first member of whatever owns the operation. It says what
 * kind of object that is and which endpoint posted it. The endpoint matters
 * because an endpoint may close before all its operations have ended (close.c):
 * their completions then come up when another endpoint polls the device.
 */
#ifndef PN_MESSAGE_OPERATION_H
#define PN_MESSAGE_OPERATION_H

struct pinion_endpoint;

enum pn_operation_kind {
	PN_OPERATION_PACKET,   /* struct pn_packet_buffer */
	PN_OPERATION_FRAGMENT, /* struct pn_rdma_fragment */
	PN_OPERATION_DIRECT,   /* struct pn_direct_slot */
	PN_OPERATION_BYE,      /* struct pn_connection, member bye */
};

struct pn_operation_context {
	enum pn_operation_kind kind;
	struct pinion_endpoint *ep;
};

#endif
