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

int pn_bounces_open(struct pinion_endpoint *ep,
		    const struct pn_pages_policy *pages)
{
	size_t each = bounce_bytes(ep), len = NBOUNCES * each;
	struct pn_mr *mr = &ep->bounce_mr;
	int ret;

	pn_list_init(&ep->bounces);
	ep->pages = *pages;
	/* A device that takes every packet inline needs none. */
	if (ep->device->limits.inline_bytes >= each)
		return 0;
	ep->bounce_storage = calloc(NBOUNCES, sizeof(*ep->bounce_storage));
	if (!ep->bounce_storage)
		return -ENOMEM;
	if (!pn_budget_take(ep->budget, len, 1)) {
		ret = -ENOBUFS;
		goto free_storage;
	}
	ret = pn_pages_map(len, pages, &mr->addr);
	if (ret)
		goto give_room;
	mr->len = len;
	ret = pn_device_register(ep->device, &mr, 1);
	if (ret)
		goto unmap;
	for (ep->nbounces = 0; ep->nbounces < NBOUNCES; ep->nbounces++) {
		struct pn_bounce *b = &ep->bounce_storage[ep->nbounces];

		b->track = PN_TRACK_BOUNCE;
		b->data = (uint8_t *)mr->addr + ep->nbounces * each;
		pn_list_append(&ep->bounces, &b->link);
	}
	return 0;

unmap:
	pn_pages_unmap(mr->addr, len, pages);
give_room:
	pn_budget_give(ep->budget, len, 1);
free_storage:
	free(ep->bounce_storage);
	ep->bounce_storage = NULL;
	return ret;
}

void pn_bounces_close(struct pinion_endpoint *ep)
{
	struct pn_mr *mr = &ep->bounce_mr;

	if (!ep->nbounces)
		return;
	pn_device_deregister(ep->device, &mr, 1);
	pn_budget_give(ep->budget, mr->len, 1);
	pn_pages_unmap(mr->addr, mr->len, &ep->pages);
	if (!ep->noperations)
		free(ep->bounce_storage);
}

void pn_bounce_put(struct pinion_endpoint *ep, struct pn_bounce *bounce)
{
	pn_list_insert(&ep->bounces, &bounce->link);
}

/* The device takes the bytes while it posts; in virtual time that copy is
 * charged here. */
static int post_inline(struct pinion_peer *peer, const struct pn_wire *wire,
		       const void *payload, size_t len)
{
	struct pn_device *device = peer->ep->device;
	struct pn_sge sge[2] = { { (void *)wire, sizeof(*wire), 0 },
				 { (void *)payload, len, 0 } };
	struct pn_op op = { .kind = PN_OP_SEND,
			    .flags = PN_OP_INLINE | PN_OP_SILENT,
			    .sge = sge,
			    .nsge = len ? 2 : 1 };
	int ret = pn_device_post(device, peer->peer, &op);

	if (!ret)
		pn_device_charge(device,
				 (uint64_t)((double)len *
					    device->costs.copy_byte_ns));
	return ret;
}

static int post_bounced(struct pinion_peer *peer, const struct pn_wire *wire,
			const void *payload, size_t len)
{
	struct pinion_endpoint *ep = peer->ep;
	struct pn_list *link = pn_list_pop(&ep->bounces);
	struct pn_bounce *bounce;
	struct pn_sge sge;
	struct pn_op op = { .kind = PN_OP_SEND, .sge = &sge, .nsge = 1 };
	int ret;

	if (!link)
		return -EAGAIN;
	bounce = pn_container_of(link, struct pn_bounce, link);
	memcpy(bounce->data, wire, sizeof(*wire));
	pn_copy(ep->device, bounce->data + sizeof(*wire), payload, len);
	sge = (struct pn_sge){ bounce->data, sizeof(*wire) + len,
			       ep->bounce_mr.lkey };
	op.user = bounce;
	ret = pn_device_post(ep->device, peer->peer, &op);
	if (ret)
		pn_bounce_put(ep, bounce);
	else
		ep->noperations++;
	return ret;
}

int pn_packet_try(struct pinion_peer *peer, const struct pn_wire *wire,
		  const void *payload, size_t len)
{
	size_t most = peer->ep->device->limits.inline_bytes;

	if (!peer->up)
		return -EAGAIN;
	return sizeof(*wire) + len <= most
		       ? post_inline(peer, wire, payload, len)
		       : post_bounced(peer, wire, payload, len);
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

		if (p->wire.kind != PN_WIRE_MATCH ||
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

bool pn_peer_pump(struct pinion_peer *peer)
{
	bool moved = pump_packets(peer);
	struct pn_list *link;

	/* Pumping one may end others' requests, so take them one by one. */
	while ((link = pn_list_pop(&peer->stalled))) {
		struct pn_fragment *f =
			pn_container_of(link, struct pn_fragment, stall);
		size_t before = f->posted;

		if (pn_fragment_pump(f) == -EAGAIN) {
			pn_list_insert(&peer->stalled, link);
			moved |= f->posted != before;
			break;
		}
		moved = true;
	}
	if (pn_list_empty(&peer->packets) && pn_list_empty(&peer->stalled))
		pn_list_remove(&peer->busy);
	return moved;
}
