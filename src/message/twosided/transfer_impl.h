/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * transfer -- the bytes of a message, fragment by fragment (paper Pipeline,
 * section 4).
 *
 * Sender: MATCH with the first bytes; on ACK the bytes up to the offset by
 * DATA; for each READY pin that part of the source, write it, tell the
 * receiver, unpin when the write has completed. Receiver: on a match send ACK,
 * pin fragments of the target up to the depth, READY for each; when one has
 * been written unpin it and go on. With `read` the sender pins all of the
 * source and says so in the MATCH; the receiver reads fragment by fragment and
 * says DONE.
 *
 * What cannot be pinned (no room, memory of a kind that the device refuses)
 * goes by DATA instead: a receiver asks for it by a READY without keys, a
 * sender just does it. So a transfer slows, but does not fail (rule 5). A
 * receiver short of room first waits for its own fragments in flight: a
 * shallower pipeline is faster than copying.
 *
 * The paper's FIN is a message of its own, sent when the write has completed;
 * on the link it stands behind the fragments posted meanwhile, and the
 * receiver learns of a fragment one whole pipeline later. Where the device can
 * notify with the write itself (PN_CAP_WRITE_IMM) the last write of a fragment
 * does: its immediate is a number that the READY gave.
 *
 * Several rails. The receiver chooses a rail for each fragment (rail.c), pins
 * the target there alone and names it in the READY. What becomes of fragments
 * whose conn goes down is told in failover.c.
 *
 * Who does what
 *   transfer.c   the door: packets and ends of operations find their side
 *   sender.c     one side
 *   receiver.c   the other; the two meet on the wire alone
 *   fragment.c   what either has under conn: storage, pins, operations
 *   failover.c   fragments whose conn went down
 *   timing.c     what a message took, for its sender's next choice
 * These files alone include this header; others enter by transfer.h.
 *
 * Threads: under the endpoint's lock. In virtual time others run while
 * something is pinned or unpinned, and a request may end meanwhile.
 */
#ifndef PN_MESSAGE_TRANSFER_IMPL_H
#define PN_MESSAGE_TRANSFER_IMPL_H

#include "message/connection/keys.h"
#include "message/connection/packet.h"
#include "message/connection/rail.h"
#include "message/endpoint/endpoint.h"
#include "message/protocol/timing.h"
#include "message/twosided/transfer.h"

/* Whether a write tells the receiver of itself: no FIN then. */
static inline bool pn_transfer_notifies(const struct pn_device *device)
{
	return device->caps & PN_CAP_WRITE_IMM;
}

/* transfer.c: this side cannot go on; the other is told at its end. */
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
			    unsigned access);
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
/* Goes by writes over a conn if it has keys and can be pinned there, else by
 * DATA. */
void pn_sender_begin(struct pn_fragment *f, struct pn_connection *conn);
/* All writes of a fragment are through: its end. */
void pn_sender_written(struct pn_fragment *f);
/* So many more bytes are out; the request may end. */
void pn_sender_moved(struct pinion_request *request, size_t len);

/* receiver.c */
int pn_receiver_data(struct pinion_request *request, const struct pn_wire *wire,
		     const uint8_t *payload, size_t len);
int pn_receiver_fin(struct pinion_request *request, const struct pn_wire *wire);
/* Announces a fragment of the target; without keys it asks for DATA. */
int pn_receiver_announce(struct pn_fragment *f);
/* A fragment of the target has its bytes: its end. */
void pn_receiver_arrived(struct pn_fragment *f);

/* failover.c: all operations of a fragment have ended, not all well. True: it
 * goes on over another conn, or waits to; false: it has failed. */
bool pn_failover_handles(struct pn_fragment *f);

#endif
