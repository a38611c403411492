/* SPDX-License-Identifier: BSD-2-Clause */
/* Messages and receives find each other: the oldest that fits, on both sides.
 * Plain lists: a receive that matches is nearly always near the front. */
#include <stdlib.h>

#include "message/message_impl.h"

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

	pn_list_for_each (pos, &ep->posted) {
		struct pinion_request *receive =
			pn_container_of(pos, struct pinion_request, link);

		if (!pn_match_message(receive, peer, wire))
			continue;
		if (pn_unlikely(receive->multi_recv))
			pn_receive_rest(receive, wire->len);
		pn_list_remove(pos);
		return receive;
	}
	return NULL;
}

struct pinion_unexpected *pn_match_unexpected(
	struct pinion_endpoint *ep, const struct pinion_message *wanted)
{
	struct pn_list *pos;

	pn_list_for_each (pos, &ep->unexpected) {
		struct pinion_unexpected *claim =
			pn_container_of(pos, struct pinion_unexpected, link);

		if ((!wanted->peer || wanted->peer == claim->peer) &&
		    wanted->space == space_of(&claim->wire) &&
		    fits(claim->wire.tag, wanted->tag, wanted->ignore))
			return claim;
	}
	return NULL;
}

/* Two sizes are kept for use again; after warm-up nothing is allocated. */
static struct pinion_unexpected *claim_alloc(struct pinion_endpoint *ep,
					     size_t len)
{
	bool small = len <= PN_SMALL_CLAIM;
	size_t capacity = small ? PN_SMALL_CLAIM : ep->limits.packet_bytes;
	struct pn_list *free_one;
	struct pinion_unexpected *claim;

	if (pn_unlikely(len > capacity))
		return NULL;
	free_one = pn_list_pop(small ? &ep->small_claims : &ep->large_claims);
	if (free_one)
		return pn_container_of(free_one, struct pinion_unexpected,
				       link);
	claim = malloc(sizeof(*claim) + capacity);
	if (!claim)
		return NULL;
	claim->capacity = capacity;
	pn_list_init(&claim->link);
	return claim;
}

struct pinion_unexpected *pn_claim_make(struct pinion_peer *peer,
					const struct pn_wire *wire, size_t len)
{
	struct pinion_unexpected *claim = claim_alloc(peer->ep, len);

	if (!claim)
		return NULL;
	claim->peer = peer;
	claim->wire = *wire;
	claim->payload_len = len;
	return claim;
}

void pn_claim_free(struct pinion_endpoint *ep, struct pinion_unexpected *claim)
{
	pn_list_remove(&claim->link);
	pn_list_insert(claim->capacity == PN_SMALL_CLAIM ? &ep->small_claims
							 : &ep->large_claims,
		       &claim->link);
}
