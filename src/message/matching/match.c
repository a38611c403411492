/* SPDX-License-Identifier: BSD-2-Clause */
/* Messages and receives find each other: the oldest that fits, on both sides.
 * Plain lists: a receive that matches is nearly always near the front. */
#include <stdlib.h>

#include "message/endpoint/endpoint.h"
#include "message/matching/matching.h"

static bool fits(uint64_t tag, uint64_t wanted, uint64_t ignore)
{
	return !((tag ^ wanted) & ~ignore);
}

static uint8_t space_of(const struct pn_wire *match)
{
	return match->status & PN_WIRE_SPACE;
}

struct pinion_request *pn_match_posted(struct pinion_endpoint *ep,
				       struct pinion_peer *peer,
				       const struct pn_wire *wire)
{
	struct pn_list *pos;

	pn_list_for_each (pos, &ep->matching.posted) {
		struct pinion_request *receive =
			pn_container_of(pos, struct pinion_request, link);

		if (!pn_match_accepts(receive, peer, wire))
			continue;
		if (pn_unlikely(receive->multi_recv))
			pn_multi_recv_repost(receive, wire->len);
		pn_list_remove(pos);
		return receive;
	}
	return NULL;
}

struct pinion_unexpected *pn_match_unexpected(
	struct pinion_endpoint *ep, const struct pinion_message *wanted)
{
	struct pn_list *pos;

	pn_list_for_each (pos, &ep->matching.unexpected) {
		struct pinion_unexpected *unexpected =
			pn_container_of(pos, struct pinion_unexpected, link);

		if ((!wanted->peer || wanted->peer == unexpected->peer) &&
		    wanted->space == space_of(&unexpected->wire) &&
		    fits(unexpected->wire.tag, wanted->tag, wanted->ignore))
			return unexpected;
	}
	return NULL;
}

/* Two sizes are kept for use again; after warm-up nothing is allocated. */
static struct pinion_unexpected *unexpected_storage(struct pinion_endpoint *ep,
						    size_t len)
{
	bool small = len <= PN_UNEXPECTED_SMALL_BYTES;
	size_t capacity =
		small ? PN_UNEXPECTED_SMALL_BYTES : ep->limits.packet_bytes;
	struct pn_list *free_one;
	struct pinion_unexpected *unexpected;

	if (pn_unlikely(len > capacity))
		return NULL;
	free_one = pn_list_pop(small ? &ep->matching.free_small
				     : &ep->matching.free_large);
	if (free_one)
		return pn_container_of(free_one, struct pinion_unexpected,
				       link);
	unexpected = malloc(sizeof(*unexpected) + capacity);
	if (!unexpected)
		return NULL;
	unexpected->capacity = capacity;
	pn_list_init(&unexpected->link);
	return unexpected;
}

struct pinion_unexpected *pn_unexpected_alloc(struct pinion_peer *peer,
					      const struct pn_wire *wire,
					      size_t len)
{
	struct pinion_unexpected *unexpected =
		unexpected_storage(peer->ep, len);

	if (!unexpected)
		return NULL;
	unexpected->peer = peer;
	unexpected->wire = *wire;
	unexpected->payload_len = len;
	return unexpected;
}

void pn_unexpected_free(struct pinion_endpoint *ep,
			struct pinion_unexpected *unexpected)
{
	pn_list_remove(&unexpected->link);
	pn_list_insert(unexpected->capacity == PN_UNEXPECTED_SMALL_BYTES
			       ? &ep->matching.free_small
			       : &ep->matching.free_large,
		       &unexpected->link);
}
