/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * matching -- brings messages and receives together.
 *
 * A receive names a space, a tag with a mask of ignored bits, and a peer or any
 * peer. A message matches the oldest posted receive that accepts it; if there
 * is none it is kept as an unexpected message. A receive or probe matches the
 * oldest unexpected message that it accepts; if there is none the receive is
 * posted. These are the rules of MPI and libfabric.
 *
 * Each of the two queues is a list, oldest first. Most queues are short and the
 * match is near the front: nothing is cheaper than walking then. The front of a
 * long queue is hashed as well: a search that passes more than PN_MATCH_WINDOW
 * entries without a match hashes the oldest of them, so that each entry is
 * walked past a bounded number of times, and later searches find it by its key.
 * Posting a receive costs nothing for this. An entry that cannot be hashed for
 * lack of memory is walked past as before.
 *
 *   posted      Hashed receives are in `table`, by peer (NULL: any), tag and
 *               space; or, if they ignore many bits of the tag, in `wildcards`,
 *               oldest first. match.sequence gives the order between the two.
 *   unexpected  Hashed messages are in `table`, and in `by_tag`, where the key
 *               has no peer: for receives from any peer. Receives that ignore
 *               many bits of the tag walk the whole queue.
 *
 * MPI libraries ignore some bits of every tag, which carry their protocol (Open
 * MPI: one). Such bits are left out of the hash (table.ignore), up to
 * PN_MATCH_IGNORED_BITS of them. Receives that would need more are wildcards:
 * MPI_ANY_TAG, which accepts most messages that it looks at.
 *
 * At rest: no posted receive accepts an unexpected message. The hashed entries
 * of a queue are its `nhashed` oldest ones, up to `last_hashed`.
 *
 * Threads: under the endpoint's lock.
 */
#ifndef PN_MESSAGE_MATCHING_H
#define PN_MESSAGE_MATCHING_H

#include "base/list.h"
#include "message/connection/wire.h"
#include "message/endpoint/pool.h"
#include "message/endpoint/request.h"
#include "message/matching/tag_table.h"

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
	size_t counted;		   /* what it counts (allowance.h) */
	uint32_t sequence;	   /* of a packet out of order */
	bool hashed;		   /* in the tables of unexpected messages */
	struct pn_list match_link; /* in matching.unexpected.table */
	struct pn_list tag_link;   /* in matching.by_tag */
	uint8_t payload[];
};

/* Storage for payload comes in powers of two: 64 bytes and more, up to those of
 * a packet. */
#define PN_UNEXPECTED_MIN_BYTES 64
#define PN_UNEXPECTED_SIZES	26

/* Entries that a search walks past before it hashes the oldest. */
#define PN_MATCH_WINDOW	      8
/* Bits of tags that the hash may leave out: the keys of 2^n tags are equal. */
#define PN_MATCH_IGNORED_BITS 8

struct pn_match_queue {
	struct pn_list entries;	     /* all, oldest first */
	struct pn_list *last_hashed; /* the newest hashed one, or &entries */
	uint32_t nhashed;
	struct pn_tag_table table;
};

/* What an endpoint has for matching. */
struct pn_endpoint_matching {
	struct pn_match_queue posted; /* receives */
	struct pn_list wildcards; /* hashed ones that are not in the table */
	uint64_t next_sequence;
	struct pn_match_queue unexpected; /* messages */
	struct pn_tag_table by_tag;	  /* the hashed ones, of any peer */
	struct pn_list probed;		  /* set aside by a probe */
	struct pn_pool storage[PN_UNEXPECTED_SIZES]; /* by size of payload */
	size_t max_bytes;			     /* of payload */
	size_t kept_bytes; /* of unexpected messages that count (allowance.h) */
	uint64_t npassed;  /* entries that did not match when looked at */
};

/* packet_bytes: the most that a packet has. */
void pn_matching_init(struct pn_endpoint_matching *m, size_t packet_bytes);
/* Frees the tables and the free messages. The queues' entries are not touched.
 */
void pn_matching_fini(struct pn_endpoint_matching *m);

/* The rule, for a struct pinion_request or pinion_message. */
#define PN_MATCH_ACCEPTS(wanted, from, wire)                    \
	((!(wanted)->peer || (wanted)->peer == (from)) &&       \
	 (wanted)->space == ((wire)->status & PN_WIRE_SPACE) && \
	 !(((wire)->tag ^ (wanted)->tag) & ~(wanted)->ignore))

/* Whether a receive accepts the message of a MATCH. */
static inline bool pn_match_accepts(const struct pinion_request *receive,
				    const struct pinion_peer *peer,
				    const struct pn_wire *wire)
{
	return PN_MATCH_ACCEPTS(receive, peer, wire);
}

/* Posts a receive. */
static inline void pn_match_post(struct pn_endpoint_matching *m,
				 struct pinion_request *receive)
{
	pn_list_append(&m->posted.entries, &receive->link);
}

/* Posts a receive that accepts the same messages as `earlier`, and as the next
 * oldest. */
void pn_match_post_behind(struct pn_endpoint_matching *m,
			  struct pinion_request *earlier,
			  struct pinion_request *added);

/* Removes a hashed receive from the table or the wildcards. */
void pn_match_unhash(struct pn_endpoint_matching *m,
		     struct pinion_request *receive);

/* Removes a posted receive; does nothing to a request that is not posted. */
static inline void pn_match_unpost(struct pn_endpoint_matching *m,
				   struct pinion_request *receive)
{
	if (pn_unlikely(receive->hashed))
		pn_match_unhash(m, receive);
	pn_list_remove(&receive->link);
}

/* The oldest posted receive that accepts a message, still posted; or NULL. */
struct pinion_request *pn_match_find_posted(struct pn_endpoint_matching *m,
					    const struct pinion_peer *peer,
					    const struct pn_wire *wire);

/* The posted receive for a message, removed from the queue; or NULL. What the
 * message leaves of the buffer of a multi-receive is posted. */
struct pinion_request *pn_match_take_posted(struct pinion_endpoint *ep,
					    struct pinion_peer *peer,
					    const struct pn_wire *wire);

/* The unexpected message for a receive, still in the queue; or NULL. The search
 * is for a queue that is not empty. */
struct pinion_unexpected *pn_match_search_unexpected(
	struct pn_endpoint_matching *m, const struct pinion_message *wanted);
static inline struct pinion_unexpected *pn_match_find_unexpected(
	struct pn_endpoint_matching *m, const struct pinion_message *wanted)
{
	return pn_likely(pn_list_empty(&m->unexpected.entries))
		       ? NULL
		       : pn_match_search_unexpected(m, wanted);
}

/* Storage for a packet; the caller copies the payload of len bytes. NULL: no
 * memory, or longer than a packet can be. */
struct pinion_unexpected *pn_unexpected_alloc(struct pinion_peer *peer,
					      const struct pn_wire *wire,
					      size_t len);
void pn_unexpected_free(struct pinion_endpoint *ep,
			struct pinion_unexpected *unexpected);
/* Appends a message that no receive accepts to the unexpected messages.
 * -ENOMEM. */
int pn_match_add_unexpected(struct pinion_peer *peer,
			    const struct pn_wire *wire, const uint8_t *payload,
			    size_t len);

/* Removes a message from the queue, or another packet from its list. */
void pn_unexpected_remove(struct pn_endpoint_matching *m,
			  struct pinion_unexpected *unexpected);

/* Asserts what holds at rest; slow. */
void pn_matching_check(const struct pn_endpoint_matching *m);

#endif
