/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * matching -- brings messages and receives together.
 *
 * A receive names a space, a tag with a mask of ignored bits, and a peer or any
 * peer. A message matches the oldest posted receive that accepts it; if there
 * is none it is kept as an unexpected message. A receive matches the oldest
 * unexpected message that it accepts; if there is none it is posted.
 *
 * At rest: no posted receive accepts an unexpected message.
 *
 * Threads: under the endpoint's lock.
 */
#ifndef PN_MESSAGE_MATCHING_H
#define PN_MESSAGE_MATCHING_H

#include "base/list.h"
#include "message/connection/wire.h"
#include "message/endpoint/request.h"

struct pinion_endpoint;
struct pinion_peer;

/* A message that came before its receive: its MATCH packet. Other packets that
 * have to be kept use the same struct: packets out of order, and grants. */
struct pinion_unexpected {
	/* In matching.unexpected or matching.probed; in peer->out_of_order; in
	 * onesided.granted; or free. */
	struct pn_list link;
	struct pinion_peer *peer;
	struct pn_wire wire;
	size_t payload_len, capacity;
	uint32_t sequence; /* of a packet out of order */
	uint8_t payload[];
};

#define PN_UNEXPECTED_SMALL_BYTES 512

/* What an endpoint has for matching. */
struct pn_endpoint_matching {
	struct pn_list posted;	   /* receives, oldest first */
	struct pn_list unexpected; /* messages, oldest first */
	struct pn_list probed;	   /* set aside by a probe */
	struct pn_list free_small; /* of PN_UNEXPECTED_SMALL_BYTES */
	struct pn_list free_large; /* of a whole packet */
};

/* Whether a receive accepts the message of a MATCH. */
static inline bool pn_match_accepts(const struct pinion_request *receive,
				    const struct pinion_peer *peer,
				    const struct pn_wire *wire)
{
	return (!receive->peer || receive->peer == peer) &&
	       receive->space == (wire->status & PN_WIRE_SPACE) &&
	       !((wire->tag ^ receive->tag) & ~receive->ignore);
}

/* The posted receive for a message, removed from the list; or NULL. */
struct pinion_request *pn_match_posted(struct pinion_endpoint *ep,
				       struct pinion_peer *peer,
				       const struct pn_wire *wire);

/* The unexpected message for a receive, still in the list; or NULL. */
struct pinion_unexpected *pn_match_unexpected(
	struct pinion_endpoint *ep, const struct pinion_message *wanted);

/* Storage for a packet; the caller copies the payload of len bytes. NULL: no
 * memory, or longer than a packet can be. */
struct pinion_unexpected *pn_unexpected_alloc(struct pinion_peer *peer,
					      const struct pn_wire *wire,
					      size_t len);
void pn_unexpected_free(struct pinion_endpoint *ep,
			struct pinion_unexpected *unexpected);

#endif
