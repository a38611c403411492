/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * iwarp -- adds what iWARP lacks: immediate data of sends, flow control of
 * receive buffers, and completions that mean "done at the target".
 *
 * Header     Sends have no immediate data: each message begins with a header
 *            that holds it. The header, and the data of an inline operation
 *            (PN_OP_INLINE), lie in the stage of its record: registered memory
 *            of the tx queue pair.
 *
 * Confirming A write or a send of iWARP completes when it was sent, and may
 *            complete before a read that was posted earlier. Therefore only
 *            reads are signaled. The target executes the operations of a queue
 *            pair in order: when a read completes, all operations before it
 *            are done. If no read of the caller follows, the device posts a
 *            confirming read of one byte that the peer's hello named (siw
 *            mixes up responses of 0 bytes). At most one confirming read is in
 *            flight on a queue pair; the next one covers all operations that
 *            were posted meanwhile.
 *
 * Reads      siw holds back reads beyond the agreed number and sends them when
 *            TCP has room, even if an earlier read has not ended. post()
 *            therefore returns -EAGAIN for them.
 *
 * Refusal    A target that refuses an operation drops the connection and does
 *            not name the operation. The service thread reconnects (connect.h).
 *            If that succeeds, an operation was refused: the oldest unconfirmed
 *            write or read completes with -EACCES, operations before it with
 *            success, operations after it with -ECANCELED. If it fails, the
 *            peer is down.
 *
 * Death      TCP takes a quarter of an hour to give up on a machine that died.
 *            The service thread checks whether operations in flight end
 *            (progress_count); after `patience` without progress the peer is
 *            down.
 *
 * Credits    A send that finds no receive buffer ends its connection. A peer
 *            therefore sends only as many messages as it was granted. A credit
 *            counts the messages of one queue pair (generation) from its
 *            beginning. It travels in every header; in credit messages, which
 *            consist of a header alone, when there is no other message; and in
 *            the hello of a new queue pair, since messages on the old one may
 *            be lost. Credit messages need no credit: CREDIT_SPARE buffers per
 *            peer are kept for them. They are few: each grants at least half a
 *            window, or goes to a peer that has used all its credit.
 *            At rest: credits_granted - credits_used + unreturned <=
 *            CREDIT_WINDOW for every peer. `unreturned` counts messages of
 *            older queue pairs, too; a new queue pair is granted credit only
 *            when all messages of the old one have been polled.
 *
 * Threads: callers, under dev->lock, except stage_alloc and stage_free.
 */
#ifndef PN_DEVICE_VERBS_IWARP_H
#define PN_DEVICE_VERBS_IWARP_H

#include "device/verbs/verbs_impl.h"

#define PN_VERBS_CREDIT_WINDOW 16
#define PN_VERBS_CREDIT_SPARE  4
#define PN_VERBS_STAGE_INLINE  256

/* Every message begins with it. */
struct pn_verbs_message_header {
	uint32_t imm;
	uint32_t is_credit; /* a credit message: no payload */
	struct pn_verbs_credit credit;
	uint32_t unused;
};

/* siw sends up to so many bytes in one piece, and sends wrong bytes if they lie
 * in two pages. Such a segment is split. */
#define PN_VERBS_SIW_SMALL_BYTES 64

/* Registered memory of a record; lies within a page. */
struct pn_verbs_stage {
	_Alignas(512) struct pn_verbs_message_header header;
	char data[PN_VERBS_STAGE_INLINE];
};

/* The byte that all peers may read: dev->confirm_mr. */
int pn_verbs_confirm_byte_alloc(struct pn_verbs_device *dev);
void pn_verbs_confirm_byte_free(struct pn_verbs_device *dev);

int pn_verbs_stage_alloc(struct pn_verbs_device *dev, struct pn_verbs_tx *tx);
void pn_verbs_stage_free(struct pn_verbs_tx *tx);

/* Whether an operation can be posted now: a message, if there is credit; a
 * read, if the adapter does not have to hold it back. */
bool pn_verbs_may_post(const struct pn_verbs_peer *peer,
		       const struct pn_op *op);

/* An operation ended, or the first one was posted. */
void pn_verbs_count_progress(struct pn_verbs_peer *peer);

/* The peer granted credit, in a header or in a hello. */
void pn_verbs_credit_received(struct pn_verbs_device *dev,
			      struct pn_verbs_peer *peer,
			      struct pn_verbs_credit credit);

/* Grants all that can be granted now; returns it for the next header. */
struct pn_verbs_credit pn_verbs_credit_grant(struct pn_verbs_device *dev,
					     struct pn_verbs_peer *peer);

/* Sends a credit message if one is due. One that cannot be sent now is sent by
 * pn_verbs_credit_send_pending(), from progress. */
void pn_verbs_credit_send_if_due(struct pn_verbs_device *dev,
				 struct pn_verbs_peer *peer);
void pn_verbs_credit_send_pending(struct pn_verbs_device *dev);

/* A message arrived; returns its header. NULL: a credit message or garbage; the
 * caller posts the buffer again. */
const struct pn_verbs_message_header *pn_verbs_message_parse(
	struct pn_verbs_device *dev, struct pn_verbs_rx *rx, const void *data,
	size_t len);

/* How many bytes of a range can be one segment (PN_VERBS_SIW_SMALL_BYTES). */
size_t pn_verbs_siw_segment_bytes(uint64_t addr, size_t len);

/* Builds a confirming read: of the peer's byte, into the last stage. */
void pn_verbs_confirm_read(const struct pn_verbs_device *dev,
			   const struct pn_verbs_peer *peer,
			   struct ibv_send_wr *wr, struct ibv_sge *sge);

/* Makes sure that a read follows the operations in flight. */
void pn_verbs_confirm(struct pn_verbs_device *dev, struct pn_verbs_peer *peer);

#endif
