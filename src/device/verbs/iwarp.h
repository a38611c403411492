/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * iwarp -- what iWARP lacks, made up for: immediates of sends, waiting for
 * receive buffers, and completions that mean something.
 *
 * Head       Sends have no immediate: each begins with a head that holds it.
 *            The head, and the bytes of an operation that is to take them at
 *            once (PN_OP_INLINE), lie in the stage of its record, registered
 *            memory of the lane.
 *
 * Confirming A write or a send of iWARP is complete when it is on its way, and
 *            may complete before a read posted earlier. So only reads are
 *            asked to tell. The target works through a lane in order: when a
 *            read is answered, all that was posted before it has been carried
 *            out. Where no read of the caller's follows, the device posts one
 *            of a byte that the peer's hello named (siw mixes up answers of
 *            no bytes); at most one of these is under way on a lane, and the
 *            next one covers all that was posted meanwhile.
 *
 * Reads      One beyond those that were agreed on siw would hold back, and
 *            send when TCP has room again, whether its time has come or not.
 *            So it is not given to it before: post() says -EAGAIN.
 *
 * Refusal    A target that refuses drops the connection and does not say what
 *            it refused. The service connects again at once (connect.h). If it
 *            can, something was refused: the oldest write or read that is not
 *            confirmed is blamed (-EACCES), what is behind it is -ECANCELED,
 *            what is before it has arrived. If it cannot, the peer is gone.
 *
 * Death      TCP waits for a machine that is gone for a quarter of an hour. So
 *            the service looks whether anything of what is under way ends
 *            (pulse), and after `patience` the peer is gone.
 *
 * Credits    A send that finds no receive buffer ends its connection. So each
 *            peer may send what it was granted; grants count the messages of
 *            one lane from its beginning, travel in every head, in messages of
 *            a head alone when there is nothing else to say (which need no
 *            credit: SPARE buffers per peer are kept for them), and in the
 *            hello of a new lane, for messages on the old one may be lost.
 *            At rest: granted - arrived + held <= WINDOW for every peer, where
 *            `held` are its messages that nobody has released yet, of lanes
 *            that are gone too; so a new lane is granted something only when
 *            all that came on the old one has been seen.
 *            Unread messages of a head alone are few: each grants at least
 *            half a window, or comes to a peer that has used all it knew of.
 *
 * Threads: the callers', inside, but for stage_make and stage_free.
 */
#ifndef PN_DEVICE_VERBS_IWARP_H
#define PN_DEVICE_VERBS_IWARP_H

#include "device/verbs/verbs_impl.h"

#define PN_VERBS_CREDIT_WINDOW 16
#define PN_VERBS_CREDIT_SPARE  4
#define PN_VERBS_STAGE_INLINE  256

/* What every message begins with. */
struct pn_verbs_message_header {
	uint32_t imm;
	uint32_t is_credit; /* nothing but a grant */
	struct pn_verbs_credit grant;
	uint32_t unused;
};

/* siw sends up to so many bytes as one piece, and wrongly if they lie in two
 * pages; so they go in two. */
#define PN_VERBS_SIW_SMALL_BYTES 64

/* A record's registered memory; within a page. */
struct pn_verbs_stage {
	_Alignas(512) struct pn_verbs_message_header head;
	char data[PN_VERBS_STAGE_INLINE];
};

/* The byte that all peers may read. */
int pn_verbs_confirm_byte_alloc(struct pn_verbs_device *dev);
void pn_verbs_confirm_byte_free(struct pn_verbs_device *dev);

int pn_verbs_stage_alloc(struct pn_verbs_device *dev, struct pn_verbs_tx *lane);
void pn_verbs_stage_free(struct pn_verbs_tx *lane);

/* Whether an operation can be posted now: a message if the peer will have a
 * buffer for it, a read if the adapter need not hold it back. */
bool pn_verbs_may_post(const struct pn_verbs_peer *peer,
		       const struct pn_op *op);

/* Something ended, or began where nothing was under way. */
void pn_verbs_count_progress(struct pn_verbs_peer *peer);

/* The peer granted something, in a head or in a hello. */
void pn_verbs_credit_received(struct pn_verbs_device *dev,
			      struct pn_verbs_peer *peer,
			      struct pn_verbs_credit grant);

/* What can be granted now, as the next head will say it. */
struct pn_verbs_credit pn_verbs_credit_grant(struct pn_verbs_device *dev,
					     struct pn_verbs_peer *peer);

/* Grants if that is due, by a message of its own; again in progress() if it
 * cannot be sent now. */
void pn_verbs_credit_send_if_due(struct pn_verbs_device *dev,
				 struct pn_verbs_peer *peer);
void pn_verbs_credit_send_pending(struct pn_verbs_device *dev);

/* A message came; its head. NULL: only credits, or none of ours: its buffer is
 * free again. */
const struct pn_verbs_message_header *pn_verbs_message_parse(
	struct pn_verbs_device *dev, struct pn_verbs_rx *in, const void *data,
	size_t len);

/* How much of a range siw sends rightly in one piece. */
size_t pn_verbs_siw_segment_bytes(uint64_t addr, size_t len);

/* A read of the peer's byte, into the last stage. */
void pn_verbs_confirm_read(const struct pn_verbs_device *dev,
			   const struct pn_verbs_peer *peer,
			   struct ibv_send_wr *wr, struct ibv_sge *sge);

/* Makes sure that a read follows all that is under way. */
void pn_verbs_confirm(struct pn_verbs_device *dev, struct pn_verbs_peer *peer);

#endif
