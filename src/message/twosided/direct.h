/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * direct -- eager messages straight from the program's buffer (paper Reuse,
 * section 3.1; row R1).
 *
 * The head of a packet lies in a slot of memory that is registered once for
 * all, the payload where the program has it, pinned through the cache; the
 * device gathers both into one send. So the copy into a bounce buffer is
 * spared, at the price that the request ends only when the device has read the
 * bytes. Whether a message goes so is decided elsewhere (reuse.h).
 *
 * Life of a slot: free -> taken by pn_direct_send(), which pins and posts ->
 * the operation's end unpins, ends the request and frees it. Meanwhile the
 * request counts one of npackets, so that it does not end before.
 *
 * What cannot go so (no slot, no room to pin, more parts than the device
 * gathers, the queue full or packets waiting in it) is copied as ever: nothing
 * fails for it, and nothing overtakes.
 * Endpoints with several rails do not use this: they keep packets for as long
 * as a rail may lose them (retransmit.c), which takes the copy.
 *
 * Memory: a page, taken from the budget when the first message goes so.
 * Threads: the endpoint's lock. pn_direct_send() may let others run while it
 * registers.
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

#define PN_DIRECT_HEADER_BYTES 64 /* bytes of a slot */
#define PN_DIRECT_SLOTS	       64

struct pn_direct_slot {
	struct pn_operation_context operation;
	struct pn_list link; /* in the pool while free */
	uint8_t *head;
	struct pinion_request *request; /* NULL: free */
	struct pinion_pin pin;
};

struct pn_direct_pool {
	struct pn_pool_memory memory; /* of all heads; opened when needed */
	struct pn_pool slots;
};

/* Sends a whole message with this head now. Anything but 0: it is still to be
 * sent, by copying. */
int pn_direct_send(struct pinion_request *request, const struct pn_wire *wire);

/* The operation of one ended. */
void pn_direct_done(struct pinion_endpoint *ep, struct pn_direct_slot *direct,
		    int status);

/* How much of the budget is taken. */
size_t pn_direct_bytes(const struct pinion_endpoint *ep);

void pn_direct_init(struct pinion_endpoint *ep);
/* When operations have ended or were given up. Leaves the slots, which
 * operations may still point to, for pn_direct_free(). */
void pn_direct_close(struct pinion_endpoint *ep);
void pn_direct_free(struct pinion_endpoint *ep);

#endif
