/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Packets: head and payload in one send of the device.
 *
 * A packet that the device takes inline is gathered straight from where it
 * lies: one copy, by the device. Longer ones are copied into a registered
 * bounce buffer first (the copy that the papers' copy-in/out pays). When the
 * device's queue is full the packet waits at its peer, and everything behind
 * it too, so that messages match in the order they were sent.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "message/message_impl.h"

#define NBOUNCES 64

static size_t bounce_bytes(const struct pinion_endpoint *ep)
{
	return sizeof(struct pn_wire) + ep->limits.packet_bytes;
}

/* A device that takes every packet inline needs none. */
static bool need_bounces(const struct pinion_endpoint *ep)
{
	for (unsigned r = 0; r < ep->nrails; r++)
		if (ep->rails[r].device->limits.inline_bytes < bounce_bytes(ep))
			return true;
	return false;
}

/* Those of the first n rails. */
static void deregister_bounces(struct pinion_endpoint *ep, unsigned n)
{
	while (n) {
		struct pn_rail *rail = &ep->rails[--n];

		pn_cache_deregister(rail->cache, &rail->bounce_mr);
	}
}

/* On every rail: a packet that one has lost goes over another. */
static int register_bounces(struct pinion_endpoint *ep, void *memory,
			    size_t len)
{
	for (unsigned r = 0; r < ep->nrails; r++) {
		struct pn_mr *mr = &ep->rails[r].bounce_mr;
		int ret;

		*mr = (struct pn_mr){ .addr = memory, .len = len };
		ret = pn_cache_register_own(ep->rails[r].cache, mr);
		if (ret) {
			deregister_bounces(ep, r);
			return ret;
		}
	}
	return 0;
}

int pn_bounces_open(struct pinion_endpoint *ep,
		    const struct pn_pages_policy *pages)
{
	size_t each = bounce_bytes(ep), len = NBOUNCES * each;
	void *memory;
	int ret;

	pn_list_init(&ep->bounces);
	ep->pages = *pages;
	if (!need_bounces(ep))
		return 0;
	ep->bounce_storage = calloc(NBOUNCES, sizeof(*ep->bounce_storage));
	if (!ep->bounce_storage)
		return -ENOMEM;
	ret = pn_pages_map(len, pages, &memory);
	if (ret)
		goto free_storage;
	ret = register_bounces(ep, memory, len);
	if (ret)
		goto unmap;
	for (ep->nbounces = 0; ep->nbounces < NBOUNCES; ep->nbounces++) {
		struct pn_bounce *b = &ep->bounce_storage[ep->nbounces];

		b->track = (struct pn_track){ PN_TRACK_BOUNCE, ep };
		b->data = (uint8_t *)memory + ep->nbounces * each;
		pn_list_append(&ep->bounces, &b->link);
	}
	return 0;

unmap:
	pn_pages_unmap(memory, len, pages);
free_storage:
	free(ep->bounce_storage);
	ep->bounce_storage = NULL;
	return ret;
}

void pn_bounces_close(struct pinion_endpoint *ep)
{
	const struct pn_mr *mr = &ep->rails[0].bounce_mr;

	if (!ep->nbounces)
		return;
	deregister_bounces(ep, ep->nrails);
	pn_pages_unmap(mr->addr, mr->len, &ep->pages);
}

void pn_bounce_put(struct pinion_endpoint *ep, struct pn_bounce *bounce)
{
	bounce->peer = NULL;
	pn_list_insert(bounce->small ? &ep->smalls : &ep->bounces,
		       &bounce->link);
}

/* Keys are no payload: they are there also where none is moved. */
void pn_packet_fill(struct pn_bounce *bounce, const struct pn_wire *wire,
		    const void *payload, size_t len, struct pn_device *device)
{
	uint8_t *to = bounce->data + sizeof(*wire);

	memcpy(bounce->data, wire, sizeof(*wire));
	bounce->len = sizeof(*wire) + len;
	if (wire->nkeys)
		memcpy(to, payload, len);
	else if (len)
		pn_copy(device, to, payload, len);
}

static int post_bounced(const struct pn_way *way, const struct pn_wire *wire,
			const void *payload, size_t len)
{
	struct pinion_endpoint *ep = way->owner->ep;
	const struct pn_rail *rail = way->rail;
	struct pn_list *link = pn_list_pop(&ep->bounces);
	struct pn_bounce *bounce;
	struct pn_sge sge;
	struct pn_op op = { .kind = PN_OP_SEND, .sge = &sge, .nsge = 1 };
	int ret;

	if (!link)
		return -EAGAIN;
	bounce = pn_container_of(link, struct pn_bounce, link);
	pn_packet_fill(bounce, wire, payload, len, ep->device);
	sge = (struct pn_sge){ bounce->data, sizeof(*wire) + len,
			       rail->bounce_mr.lkey };
	op.user = bounce;
	ret = pn_device_post(rail->device, way->peer, &op);
	if (ret)
		pn_bounce_put(ep, bounce);
	else
		ep->noperations++;
	return ret;
}

int pn_packet_post(const struct pn_way *way, const struct pn_wire *wire,
		   const void *payload, size_t len)
{
	struct pn_head head;

	if (!pn_packet_is_inline(way, len))
		return post_bounced(way, wire, payload, len);
	head = pn_wire_head(wire);
	return pn_packet_inline(way, &head, payload, len);
}

int pn_packet_try(struct pinion_peer *peer, const struct pn_wire *wire,
		  const void *payload, size_t len)
{
	const struct pn_way *way = peer->way;

	if (!way->up)
		return -EAGAIN;
	if (pn_unlikely(peer->sequenced))
		return pn_kept_send(peer, wire, payload, len);
	return pn_packet_post(way, wire, payload, len);
}

static struct pn_packet *packet_alloc(struct pinion_endpoint *ep)
{
	struct pn_list *link = pn_list_pop(&ep->packets);

	return link ? pn_container_of(link, struct pn_packet, link)
		    : malloc(sizeof(struct pn_packet));
}

void pn_peer_busy(struct pinion_peer *peer)
{
	if (pn_list_empty(&peer->busy))
		pn_list_append(&peer->ep->busy, &peer->busy);
}

static int enqueue(struct pinion_peer *peer, const struct pn_wire *wire,
		   const void *payload, size_t len,
		   struct pinion_request *request)
{
	struct pn_packet *packet = packet_alloc(peer->ep);

	if (!packet)
		return -ENOMEM;
	packet->wire = *wire;
	packet->payload = payload;
	packet->len = len;
	packet->request = request;
	if (request) {
		request->npackets++;
	} else if (len) {
		pn_assert(len <= sizeof(packet->small));
		memcpy(packet->small, payload, len);
		packet->payload = packet->small;
	}
	pn_list_append(&peer->packets, &packet->link);
	pn_peer_busy(peer);
	peer->ep->stats.stalls++;
	return 0;
}

int pn_packet_send(struct pinion_peer *peer, const struct pn_wire *wire,
		   const void *payload, size_t len,
		   struct pinion_request *request)
{
	int ret = -EAGAIN;

	if (peer->down)
		return peer->down;
	if (pn_list_empty(&peer->packets))
		ret = pn_packet_try(peer, wire, payload, len);
	return ret == -EAGAIN ? enqueue(peer, wire, payload, len, request)
			      : ret;
}

bool pn_packet_withdraw(struct pinion_request *request)
{
	struct pn_list *pos;

	pn_list_for_each (pos, &request->peer->packets) {
		struct pn_packet *p =
			pn_container_of(pos, struct pn_packet, link);

		if ((p->wire.kind != PN_WIRE_MATCH &&
		     p->wire.kind != PN_WIRE_GRANT) ||
		    p->wire.from != request->id)
			continue;
		if (p->request)
			request->npackets--;
		pn_list_remove(pos);
		pn_list_insert(&request->ep->packets, pos);
		return true;
	}
	return false;
}

static bool pump_packets(struct pinion_peer *peer)
{
	struct pinion_endpoint *ep = peer->ep;
	bool moved = false;

	while (!pn_list_empty(&peer->packets)) {
		struct pn_packet *p = pn_container_of(peer->packets.next,
						      struct pn_packet, link);
		struct pinion_request *request = p->request;
		int ret = pn_packet_try(peer, &p->wire, p->payload, p->len);

		if (ret == -EAGAIN)
			break;
		moved = true;
		pn_list_remove(&p->link);
		pn_list_insert(&ep->packets, &p->link);
		if (!request)
			continue;
		request->npackets--;
		/* All of an eager message is out; others wait for more. */
		if (ret || request->status || request->moved == request->total)
			pn_request_end(request, ret);
	}
	return moved;
}

/* Pumping one may end others' requests, so take them one by one. */
static bool pump_fragments(struct pn_way *way)
{
	struct pn_list *link;
	bool moved = false;

	while ((link = pn_list_pop(&way->stalled))) {
		struct pn_fragment *f =
			pn_container_of(link, struct pn_fragment, stall);
		size_t before = f->posted;

		if (pn_fragment_pump(f) == -EAGAIN) {
			pn_list_insert(&way->stalled, link);
			return moved || f->posted != before;
		}
		moved = true;
	}
	return moved;
}

bool pn_peer_pump(struct pinion_peer *peer)
{
	bool moved = false, idle = true;

	for (unsigned r = 0; r < peer->ep->nrails; r++)
		moved |= pn_way_greet(&peer->ways[r]);
	moved |= pn_kept_pump(peer);
	moved |= pump_packets(peer);
	for (unsigned r = 0; r < peer->ep->nrails; r++) {
		moved |= pump_fragments(&peer->ways[r]);
		idle &= pn_list_empty(&peer->ways[r].stalled) &&
			!peer->ways[r].greet;
	}
	moved |= pn_onesided_pump(peer);
	/* Looked at last: what was pumped may have said something. */
	if (idle && pn_list_empty(&peer->packets) && !peer->resend &&
	    pn_list_empty(&peer->onesided.stalled))
		pn_list_remove(&peer->busy);
	return moved;
}
