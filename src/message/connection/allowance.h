/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * allowance -- bounds what a receiver keeps of messages that no receive
 * accepts.
 *
 * The data of an eager message, and the first bytes of a longer one, travel
 * with the MATCH and are kept as an unexpected message if no receive is posted.
 * A sender has at most `unexpected_limit` bytes of them with a peer: data, and
 * PN_ALLOWANCE_OVERHEAD for each message. Beyond that a MATCH is *late*: it
 * goes without data, and the receiver asks for them by an ACK when it has
 * matched the message. So every MATCH goes at once and in order, and the
 * sender's request waits.
 *
 * Nouns
 *   used   the sender's upper bound of what the peer keeps: what it said last,
 *          and all that was sent since it was asked.
 *   left   what may be sent before the next look at the limit: a quarter of it.
 *   kept   what the receiver keeps of that peer, exactly.
 *
 * At the end of each quarter the sender asks, in a MATCH that it sends anyway.
 * Packets are acted on in order, so when that MATCH is there everything before
 * it is, too, kept or received already: the receiver answers by KEPT. A late
 * MATCH, or an ASK where no MATCH can be sent (pinion_inject()), is answered as
 * soon as a quarter of what is kept then has been received. One question at a
 * time is under way. The sender's option counts; the receiver has no say.
 *
 * Not counted: messages of spaces with PN_SPACE_UNLIMITED, whose receiver takes
 * them at once; a MATCH with keys; headers of late ones, of which there are as
 * many as their sender has requests.
 *
 * At rest: kept is the sum of the peer's unexpected messages that count; left
 * and used are at most the limit together.
 *
 * Threads: under the endpoint's lock.
 */
#ifndef PN_MESSAGE_ALLOWANCE_H
#define PN_MESSAGE_ALLOWANCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

struct pinion_peer;
struct pn_wire;

/* A message that is kept takes so much memory beside its data; a static
 * assertion in match.c compares. */
#define PN_ALLOWANCE_OVERHEAD 192

/* A bit of the spaces whose messages do not count. */
#define PN_SPACE_UNLIMITED 0x80

struct pn_allowance {
	/* As sender. */
	size_t left;
	size_t bound; /* used when nothing is left */
	size_t asked; /* used when the question was sent */
	bool asking;  /* a question is under way */
	/* As receiver. */
	bool tells; /* the answer is due when kept <= tell_at */
	size_t tell_at;
	size_t kept;
};

void pn_allowance_init(struct pn_allowance *allowance, size_t limit);

/* --- the sender ----------------------------------------------------------- */

/* What a MATCH with len bytes of data counts. */
static inline size_t pn_allowance_bytes(unsigned space, size_t len)
{
	return pn_unlikely(space & PN_SPACE_UNLIMITED)
		       ? 0
		       : len + PN_ALLOWANCE_OVERHEAD;
}

/* Counts a MATCH that is about to be sent when too little is left; adds
 * PN_WIRE_ASKS to *status if the peer is to be asked by it. False: over the
 * limit, nothing was counted. */
bool pn_allowance_extend(struct pinion_peer *peer, size_t bytes,
			 int32_t *status);

/* Undoes that: the MATCH was not sent. */
void pn_allowance_return(struct pn_allowance *allowance, size_t bytes,
			 int32_t status);

/* Whether such a MATCH would be over the limit. */
bool pn_allowance_is_over(const struct pinion_peer *peer, size_t bytes);

/* Over the limit: PN_WIRE_ASKS for a late MATCH, or 0. */
int32_t pn_allowance_ask(struct pinion_peer *peer);

/* Sends an ASK, if no question is under way. */
void pn_allowance_send_ask(struct pinion_peer *peer);

/* Acts on KEPT. -EPROTO: it makes no sense. */
int pn_allowance_on_kept(struct pinion_peer *peer, const struct pn_wire *wire);

/* --- the receiver --------------------------------------------------------- */

/* What a MATCH counts while it is kept. */
size_t pn_allowance_of(const struct pn_wire *wire, size_t payload_len);

/* A message that counts so much is kept; is kept no longer. */
void pn_allowance_keep(struct pinion_peer *peer, size_t bytes);
void pn_allowance_release(struct pinion_peer *peer, size_t bytes);

/* The peer asks, by ASK or by a MATCH; late: by one without its data. */
void pn_allowance_asked(struct pinion_peer *peer, bool late);

#endif
