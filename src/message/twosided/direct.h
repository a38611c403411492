/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * direct -- eager messages sent from the program's buffer (Rashti and Afsahi
 * 2011, section 3.1).
 *
 * A slot holds the header of a packet, in memory that is registered once. The
 * payload stays in the program's buffer, pinned through the cache. The device
 * gathers both into one send. This saves the copy into a packet buffer; in
 * return the request ends only when the device has read the bytes. reuse.h
 * decides which messages are sent so.
 *
 * Life of a slot: free -> pn_direct_send() fills it, pins and posts -> the
 * completion unpins, ends the request and frees the slot. Until then the
 * request counts the slot in npackets and does not end.
 *
 * A message is copied instead if there is no slot, if the buffer cannot be
 * pinned or has more segments than the device gathers, or if packets wait for
 * the queue: no message fails for it, and none overtakes another. Endpoints
 * with several rails always copy: they keep packets until these are confirmed
 * (retransmit.c).
 *
 * Memory: one page, charged to the budget when the first message is sent so.
 * Threads: under the endpoint's lock. pn_direct_send() may let other tasks run
 * while it registers.
 */
#ifndef PN_MESSAGE_DIRECT_H
#define PN_MESSAGE_DIRECT_H

#include <stdint.h>

#include <pinion/cache.h>

#include "base/list.h"
#include "device/device.h"
#include "message/endpoint/operation.h"
#include "message/endpoint/pool.h"

struct pinion_endpoint;
struct pinion_request;
struct pn_wire;

#define PN_DIRECT_HEADER_BYTES 64 /* of a slot */
#define PN_DIRECT_SLOTS	       64

struct pn_direct_slot {
	struct pn_operation_context operation;
	struct pn_list link; /* in the pool while free */
	uint8_t *header;
	struct pinion_request *request; /* NULL: free */
	struct pinion_pin pin;
};

struct pn_direct_pool {
	struct pn_pool_memory memory; /* of all headers; opened when needed */
	struct pn_pool slots;
};

/* Sends a whole message with this header. Not 0: nothing was sent, the message
 * is to be copied. */
int pn_direct_send(struct pinion_request *request, const struct pn_wire *wire);

/* The operation of a slot ended. */
void pn_direct_done(struct pinion_endpoint *ep, struct pn_direct_slot *slot,
		    int status);

/* Bytes that are charged to the budget. */
size_t pn_direct_bytes(const struct pinion_endpoint *ep);

void pn_direct_init(struct pinion_endpoint *ep);
/* When operations have ended or were abandoned. The slots stay, since
 * operations may still point to them, until pn_direct_free(). */
void pn_direct_close(struct pinion_endpoint *ep);
void pn_direct_free(struct pinion_endpoint *ep);

#endif
