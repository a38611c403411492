/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * request -- an operation that a program has posted and whose end the program
 * has not been told.
 *
 * Life: pn_request_alloc() -> posted as a receive, or listed with its peer ->
 * matched -> fragments come and go -> pn_request_end() -> pn_request_reap(),
 * called by test, wait or poll, which frees the request. A request ends only
 * when no operation of the device and no queued packet refers to its buffer any
 * more; that holds for a request that failed, too.
 *
 * Numbers. Peers name a request by its id: an index into the table and a
 * generation, so that a packet that is late, or a peer that lies, does not hit
 * the next request at that index. The immediate of an RDMA write is an index
 * and a count of announcements, for the same reason.
 *
 * At rest: a request that has not ended is in exactly one list, the posted
 * receives (matching.h) or its peer's requests. An ended request without a
 * handle is in `done`. A free one is in `free`.
 *
 * Threads: under the endpoint's lock, all of it.
 */
#ifndef PN_MESSAGE_REQUEST_H
#define PN_MESSAGE_REQUEST_H

#include <stddef.h>
#include <string.h>

#include <pinion/message.h>

#include "base/list.h"
#include "helper/helper.h"
#include "message/connection/wire.h"
#include "message/onesided/onesided.h"
#include "message/twosided/transfer.h"

struct pinion_endpoint;
struct pinion_peer;

/* Fields stand in the order in which a short message needs them, so that it
 * touches few cache lines: what is posted, the state of every request, and what
 * only long messages and one-sided operations use. */
struct pinion_request {
	struct pinion_endpoint *ep;
	/* In matching.posted, requests.done, requests.free, or the peer's
	 * onesided.fenced. */
	struct pn_list link;
	struct pn_list peer_link; /* in the peer's requests */
	struct pinion_peer *peer; /* NULL: a receive from any peer */
	uint32_t id;
	uint32_t nimmediates; /* given out by all requests of this index */

	/* As posted: written by pn_request_alloc(). */
	uint64_t data;
	bool has_data;
	uint8_t space;
	void *user;
	uint8_t *buf;
	size_t len; /* of buf */
	uint64_t tag, ignore;
	struct pinion_multi_recv *multi_recv; /* or NULL */

	/* State of every request. From here to `call` pn_request_alloc() sets
	 * everything to zero. */
	uint32_t remote_id; /* the peer's id of this message; 0: not known */
	enum pn_request_kind kind;
	int status;
	bool is_send;
	bool has_handle;
	bool ended;
	bool canceling;
	bool was_unexpected; /* receive: the message came before it */
	bool sends_fail;     /* at the end: FAIL goes to the peer */
	bool awaits_got;     /* send: the end waits for GOT */
	bool late;	     /* send: the MATCH went without data */
	bool sends_got;	     /* receive of a long message: GOT at the end */
	bool hashed;	     /* posted receive: `match` is in use */
	/* From `call` on everything but `match` is as pn_request_alloc() made
	 * it: the next user of this request need not set it again. */
	bool rest_is_clean;
	size_t message_len; /* as the sender says */
	size_t total;	    /* bytes of the message that are transferred */
	size_t moved;	    /* of these, bytes that need no more attention */

	/* What short messages do not use. */
	struct pn_call call; /* of the helper */
	/* Of a posted receive in a long queue (matching.h): in the table or
	 * among the wildcards, and how old. */
	struct {
		struct pn_list link;
		uint64_t sequence;
	} match;
	unsigned npackets; /* queued packets and direct sends from buf */
	struct pn_transfer transfer; /* two-sided */
	struct pn_onesided onesided; /* kinds other than PN_REQUEST_MESSAGE */
};

/* All requests of an endpoint. */
struct pn_requests {
	struct pinion_request **table; /* by index */
	uint32_t ntable, nrequests;
	struct pn_list free;
	struct pn_list done; /* ended, without handle: for pinion_poll() */
};

/* For pn_request_alloc() and pn_request_free() (endpoint.h): a request that was
 * never used, or NULL; what short messages do not use; the rest; and the id
 * that follows another at the same index. */
struct pinion_request *pn_request_new(struct pinion_endpoint *ep);
void pn_request_init_rest(struct pinion_request *request);

static inline void pn_request_init(struct pinion_request *request,
				   struct pinion_endpoint *ep,
				   const struct pinion_message *message)
{
	memset((char *)request + offsetof(struct pinion_request, remote_id), 0,
	       offsetof(struct pinion_request, call) -
		       offsetof(struct pinion_request, remote_id));
	request->ep = ep;
	request->peer = message->peer;
	request->buf = message->buf;
	request->len = message->len;
	request->tag = message->tag;
	request->ignore = message->ignore;
	request->data = pn_message_data(message);
	request->has_data = message->flags & PINION_MESSAGE_DATA;
	request->space = (uint8_t)message->space;
	request->user = message->user;
	request->multi_recv = message->multi_recv;
	pn_list_init(&request->peer_link);
}

#define PN_REQUEST_INDEX_BITS 20

static inline uint32_t pn_request_next_id(uint32_t id)
{
	uint32_t next = id + (UINT32_C(1) << PN_REQUEST_INDEX_BITS);

	return next >> PN_REQUEST_INDEX_BITS
		       ? next
		       : next + (UINT32_C(1) << PN_REQUEST_INDEX_BITS);
}

/* The send or the receive that a peer means by an id. NULL: there is none, the
 * packet is late or the peer lies. */
struct pinion_request *pn_request_find(struct pinion_peer *peer, uint32_t id,
				       bool is_send);
/* The same for a request of any kind. */
struct pinion_request *pn_request_by_id(struct pinion_peer *peer, uint32_t id);

/* An immediate for the next write that a receive or a grant announces; and
 * back: the request, of any kind, that has this immediate, or NULL as above. */
uint32_t pn_request_new_immediate(struct pinion_request *request);
struct pinion_request *pn_request_by_immediate(struct pinion_peer *peer,
					       uint32_t number);

/* Fills the header of a packet for the peer's side of a request, except what
 * depends on the kind of packet. */
static inline void pn_packet_header(const struct pinion_request *request,
				    struct pn_wire *wire,
				    enum pn_wire_kind kind)
{
	*wire = (struct pn_wire){ .version = PN_WIRE_VERSION,
				  .kind = (uint8_t)kind,
				  .to = request->remote_id,
				  .from = request->id };
}

/* Stores the keys that came with a packet in transfer.keys. -ENOMEM. */
int pn_request_store_keys(struct pinion_request *request,
			  const struct pn_wire *wire, const uint8_t *payload);

/* Unpins the source of a message, if it is pinned as a whole. */
void pn_request_unpin(struct pinion_request *request);

/* Ends a request if nothing refers to its buffer any more. The first status
 * that is not 0 counts. */
void pn_request_end(struct pinion_request *request, int status);

/* Ends a receive whose message came in one packet. */
void pn_request_end_short(struct pinion_request *request);

/* Writes the completion of an ended request and frees the request. */
void pn_request_reap(struct pinion_request *request,
		     struct pinion_completion *out);

/* Frees all requests when the endpoint is freed. */
void pn_requests_free(struct pinion_endpoint *ep);

#endif
