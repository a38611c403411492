/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Packets that outlive a rail.
 *
 * Between endpoints that both have several rails, packets are numbered and
 * kept until the device says that they have arrived. All take one way, the
 * first that lives. When it goes down its last word has been heard (PEER_DOWN
 * comes behind all completions), and what it did not confirm is posted again,
 * in order, on the next. Some of that may have arrived, so the receiver acts on
 * each number once; and what comes over the new way may overtake what the old
 * one still has to be polled for, so the receiver parks what is too early.
 *
 * A number is never 0: that is what packets of other peers have.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "message/message_impl.h"

/* More than can be under way to one peer. */
#define MAX_PARKED 8192

static uint32_t after(uint32_t sequence)
{
	return sequence + 1 ? sequence + 1 : 1;
}

/* --- sending -------------------------------------------------------------- */

static struct pn_bounce *small_alloc(struct pinion_endpoint *ep)
{
	struct pn_list *link = pn_list_pop(&ep->smalls);
	struct pn_bounce *small;

	if (link)
		return pn_container_of(link, struct pn_bounce, link);
	small = malloc(sizeof(*small) + ep->small_bytes);
	if (!small)
		return NULL;
	*small = (struct pn_bounce){ .track = { PN_TRACK_BOUNCE, ep },
				     .data = (uint8_t *)(small + 1),
				     .small = true };
	return small;
}

static struct pn_bounce *bounce_alloc(struct pinion_endpoint *ep, size_t len)
{
	struct pn_list *link;

	if (len <= ep->small_bytes)
		return small_alloc(ep);
	link = pn_list_pop(&ep->bounces);
	return link ? pn_container_of(link, struct pn_bounce, link) : NULL;
}

/* A way that is going down refuses; it will be replaced soon. */
static int kept_post(struct pn_bounce *kept)
{
	const struct pn_way *way = kept->peer->way;
	struct pn_sge sge = { kept->data, kept->len,
			      way->rail->bounce_mr.lkey };
	struct pn_op op = { .kind = PN_OP_SEND,
			    .flags = kept->small ? PN_OP_INLINE : 0,
			    .sge = &sge,
			    .nsge = 1,
			    .imm = kept->sequence,
			    .user = kept };
	int ret = way->up ? pn_device_post(way->rail->device, way->peer, &op)
			  : -EAGAIN;

	if (ret)
		return ret == -ECONNRESET ? -EAGAIN : ret;
	kept->posted = true;
	kept->peer->ep->noperations++;
	return 0;
}

int pn_kept_send(struct pinion_peer *peer, const struct pn_wire *wire,
		 const void *payload, size_t len)
{
	struct pinion_endpoint *ep = peer->ep;
	struct pn_bounce *kept;
	int ret;

	/* Behind what was sent before. */
	if (peer->resend)
		return -EAGAIN;
	kept = bounce_alloc(ep, sizeof(*wire) + len);
	if (!kept)
		return -EAGAIN;
	pn_packet_fill(kept, wire, payload, len, ep->device);
	kept->peer = peer;
	/* Others may have sent while this was copied. */
	kept->sequence = peer->next_sequence;
	ret = peer->resend ? -EAGAIN : kept_post(kept);
	if (ret) {
		pn_bounce_put(ep, kept);
		return ret;
	}
	peer->next_sequence = after(kept->sequence);
	pn_list_append(&peer->sent, &kept->link);
	return 0;
}

void pn_kept_done(struct pn_bounce *kept, int status)
{
	struct pinion_peer *peer = kept->peer;

	kept->posted = false;
	if (!status || peer->down) {
		pn_list_remove(&kept->link);
		pn_bounce_put(peer->ep, kept);
	} else if (status != -ECONNRESET) {
		/* Refused because of another operation; the way lives. */
		peer->resend = true;
		pn_peer_busy(peer);
	}
}

bool pn_kept_pump(struct pinion_peer *peer)
{
	struct pn_list *pos;
	bool moved = false;

	if (pn_likely(!peer->resend))
		return false;
	pn_list_for_each (pos, &peer->sent) {
		struct pn_bounce *kept =
			pn_container_of(pos, struct pn_bounce, link);

		if (kept->posted)
			continue;
		if (kept_post(kept))
			return moved;
		peer->ep->stats.resent++;
		moved = true;
	}
	peer->resend = false;
	return true;
}

/* Those that the device still has come back by their completions. */
void pn_kept_drop(struct pinion_peer *peer)
{
	struct pn_list *pos, *next;

	peer->resend = false;
	pn_list_for_each_safe (pos, next, &peer->sent) {
		struct pn_bounce *kept =
			pn_container_of(pos, struct pn_bounce, link);

		if (kept->posted && peer->ep->noperations)
			continue;
		pn_list_remove(pos);
		pn_bounce_put(peer->ep, kept);
	}
	while ((pos = peer->parked.next) != &peer->parked)
		pn_claim_free(peer->ep,
			      pn_container_of(pos, struct pinion_unexpected,
					      link));
	peer->nparked = 0;
}

/* --- receiving ------------------------------------------------------------ */

/* Where a number stands among the parked: before the first larger one. NULL:
 * it is there already. */
static struct pn_list *place_of(struct pinion_peer *peer, uint32_t sequence)
{
	struct pn_list *pos;

	pn_list_for_each (pos, &peer->parked) {
		struct pinion_unexpected *claim =
			pn_container_of(pos, struct pinion_unexpected, link);
		int32_t behind = (int32_t)(sequence - claim->sequence);

		if (!behind)
			return NULL;
		if (behind < 0)
			return pos;
	}
	return pos;
}

static int park(struct pinion_peer *peer, uint32_t sequence,
		const struct pn_wire *wire, const uint8_t *payload, size_t len)
{
	struct pinion_unexpected *claim;
	struct pn_list *place = place_of(peer, sequence);

	if (!place)
		return -EALREADY;
	if (peer->nparked == MAX_PARKED)
		return -EPROTO;
	claim = pn_claim_make(peer, wire, len);
	if (!claim)
		return -ENOMEM;
	claim->sequence = sequence;
	memcpy(claim->payload, payload, len);
	pn_list_append(place, &claim->link);
	peer->nparked++;
	return -EALREADY;
}

int pn_kept_arrived(struct pinion_peer *peer, uint32_t sequence,
		    const struct pn_wire *wire, const uint8_t *payload,
		    size_t len)
{
	int32_t ahead = (int32_t)(sequence - peer->expected_sequence);

	if (ahead < 0)
		return -EALREADY;
	if (ahead > 0)
		return park(peer, sequence, wire, payload, len);
	peer->expected_sequence = after(sequence);
	return 0;
}

struct pinion_unexpected *pn_kept_next(struct pinion_peer *peer)
{
	struct pinion_unexpected *claim;

	if (pn_list_empty(&peer->parked))
		return NULL;
	claim = pn_container_of(peer->parked.next, struct pinion_unexpected,
				link);
	if (claim->sequence != peer->expected_sequence)
		return NULL;
	pn_list_remove(&claim->link);
	peer->nparked--;
	peer->expected_sequence = after(claim->sequence);
	return claim;
}
