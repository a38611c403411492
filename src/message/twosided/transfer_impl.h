/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * transfer -- how the bytes of a message move, fragment by fragment (Woodall
 * and others 2006, section 4).
 *
 * Sender: sends MATCH with the first bytes. On ACK it sends the bytes up to the
 * offset by DATA. For each READY it pins that part of the source, writes it,
 * notifies the receiver, and unpins when the write has completed. Receiver: on
 * a match it sends ACK, pins fragments of the target up to the depth of the
 * pipeline and sends READY for each; when a fragment has been written, the
 * receiver unpins it and goes on. With `read` the sender pins the whole source
 * and sends its keys with the MATCH; the receiver reads fragment by fragment
 * and sends DONE.
 *
 * A fragment that cannot be pinned (no budget, memory that the device refuses)
 * goes by DATA: a receiver asks for DATA by a READY without keys, a sender
 * sends DATA without asking. So a lack of budget (rule 5 of CONTRIBUTING.md)
 * slows a transfer but does not fail it. A receiver without budget first waits
 * for its own fragments in flight: a shallower pipeline is faster than copying.
 *
 * The paper's FIN is a packet, sent when the write has completed. On the link
 * it follows the fragments posted meanwhile, so the receiver learns of a
 * fragment one whole pipeline later. If the device can notify with the write
 * (PN_CAP_WRITE_IMM), the last write of a fragment does: its immediate is a
 * number from the READY.
 *
 * Several rails: the receiver chooses a rail for each fragment (rail.c), pins
 * the target there alone and names the rail in the READY. failover.c handles
 * fragments whose connection goes down.
 *
 * Files
 *   transfer.c   dispatches packets to the sender's or the receiver's side
 *   sender.c     the sender's side
 *   receiver.c   the receiver's side; the two share nothing but the wire
 *   fragment.c   fragments of either side: storage, pins, operations (rdma.h)
 *   failover.c   fragments whose connection went down
 *   direct.c     eager messages sent from the program's buffer
 * These files alone include this header; others include transfer.h.
 *
 * Threads: under the endpoint's lock. In virtual time other tasks run while a
 * fragment is pinned or unpinned, and the request may end meanwhile.
 */
#ifndef PN_MESSAGE_TRANSFER_IMPL_H
#define PN_MESSAGE_TRANSFER_IMPL_H

#include "message/connection/keys.h"
#include "message/connection/packet.h"
#include "message/connection/rail.h"
#include "message/endpoint/endpoint.h"
#include "message/protocol/timing.h"
#include "message/twosided/transfer.h"

/* Whether a write notifies the receiver itself: no FIN is sent then. */
static inline bool pn_transfer_notifies(const struct pn_device *device)
{
	return device->caps & PN_CAP_WRITE_IMM;
}

/* transfer.c: fails the request; FAIL goes to the peer when the request ends.
 */
void pn_transfer_fail(struct pinion_request *request, int status);

/* fragment.c: how fragments of messages are posted and end. */
extern const struct pn_rdma_ops pn_transfer_rdma_ops;

/* fragment.c */
/* The fragment that begins with a struct pn_rdma_fragment. */
static inline struct pn_fragment *pn_fragment_of(
	const struct pn_rdma_fragment *rdma)
{
	return pn_container_of(rdma, struct pn_fragment, rdma);
}
/* A fragment on the connection that packets take, not pinned. NULL: no memory.
 */
struct pn_fragment *pn_fragment_add(struct pinion_request *request,
				    enum pn_fragment_kind kind, size_t offset,
				    size_t len);
/* Unlinks a fragment from its request; its pin stays. */
void pn_fragment_detach(struct pn_fragment *f);
/* Unpins and frees a detached fragment, whose request may be gone. */
void pn_fragment_free(struct pinion_endpoint *ep, struct pn_fragment *f);
/* Detaches and frees. */
void pn_fragment_drop(struct pn_fragment *f);
/* What a registration of a request's buffer must allow, to allow `access`. */
unsigned pn_fragment_access(const struct pinion_request *request,
			    struct pn_cache *cache, unsigned access);
/* Pins the fragment's bytes with its connection's device; errors of
 * pn_cache_pin(). */
int pn_fragment_pin(struct pn_fragment *f, unsigned access);
/* Posts the fragment by operations or packets, as its kind says (rdma.h). The
 * fragment may be gone afterwards. */
void pn_fragment_start(struct pn_fragment *f);

/* sender.c */
int pn_sender_ack(struct pinion_request *request, const struct pn_wire *wire);
int pn_sender_ready(struct pinion_request *request, const struct pn_wire *wire,
		    const uint8_t *payload);
int pn_sender_done(struct pinion_request *request, const struct pn_wire *wire);
/* Starts a fragment: by writes over a connection if it has keys and can be
 * pinned there, else by DATA. */
void pn_sender_begin(struct pn_fragment *f, struct pn_connection *conn);
/* All writes of a fragment have completed: ends the fragment. */
void pn_sender_written(struct pn_fragment *f);
/* len more bytes are sent; the request may end. */
void pn_sender_moved(struct pinion_request *request, size_t len);

/* receiver.c */
int pn_receiver_data(struct pinion_request *request, const struct pn_wire *wire,
		     const uint8_t *payload, size_t len);
int pn_receiver_fin(struct pinion_request *request, const struct pn_wire *wire);
/* Sends READY for a fragment of the target; without keys it asks for DATA. */
int pn_receiver_send_ready(struct pn_fragment *f);
/* All bytes of a fragment have arrived: ends the fragment. */
void pn_receiver_arrived(struct pn_fragment *f);

/* failover.c: all operations of a fragment have ended, some with errors. True:
 * the fragment goes on over another connection, or waits to; false: it has
 * failed. */
bool pn_failover_handles(struct pn_fragment *f);

#endif
