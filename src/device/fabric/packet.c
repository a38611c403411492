/* SPDX-License-Identifier: BSD-2-Clause */
/* Packets: their memory, sending and receiving. */
#include <errno.h>
#include <stdlib.h>

#include "base/log.h"
#include "device/fabric/fabric_impl.h"

#define BLOCK_PACKETS 64

/* --- memory --------------------------------------------------------------- */

static int add_block(struct pn_fabric_device *dev)
{
	struct pn_fabric_block *block = calloc(1, sizeof(*block));
	struct pn_fabric_packet *packets;
	int ret = block ? 0 : -ENOMEM;

	if (ret)
		return ret;
	block->bytes = BLOCK_PACKETS * sizeof(*packets);
	ret = pn_pages_map(block->bytes, &dev->pages, &block->memory);
	if (!ret && dev->local_mr)
		ret = pn_fabric_region_open(&dev->owner->keys, block->memory,
					    block->bytes, &block->mr);
	if (ret) {
		pn_pages_unmap(block->memory, block->bytes, &dev->pages);
		free(block);
		return ret;
	}
	packets = block->memory;
	for (unsigned i = 0; i < BLOCK_PACKETS; i++) {
		packets[i].desc = block->mr ? fi_mr_desc(block->mr) : NULL;
		pn_list_append(&dev->free, &packets[i].link);
	}
	pn_list_append(&dev->blocks, &block->link);
	dev->packet_bytes += block->bytes;
	return 0;
}

void pn_fabric_packets_free(struct pn_fabric_device *dev)
{
	struct pn_list *pos;

	while ((pos = pn_list_pop(&dev->blocks))) {
		struct pn_fabric_block *block =
			pn_container_of(pos, struct pn_fabric_block, link);

		if (block->mr)
			fi_close(&block->mr->fid);
		pn_pages_unmap(block->memory, block->bytes, &dev->pages);
		free(block);
	}
}

struct pn_fabric_packet *pn_fabric_packet_get(struct pn_fabric_device *dev)
{
	struct pn_list *pos;

	if (pn_unlikely(pn_list_empty(&dev->free)) && add_block(dev))
		return NULL;
	pos = pn_list_pop(&dev->free);
	return pn_container_of(pos, struct pn_fabric_packet, link);
}

/* The packet used last is used next: its memory is in the cache. */
void pn_fabric_packet_put(struct pn_fabric_device *dev,
			  struct pn_fabric_packet *packet)
{
	pn_list_insert(&dev->free, &packet->link);
}

/* --- sending -------------------------------------------------------------- */

static ssize_t hand_over(struct pn_fabric_device *dev,
			 struct pn_fabric_packet *packet)
{
	ssize_t ret;

	if (packet->len <= dev->inject_bytes) {
		ret = fi_inject(dev->ep, &packet->wire, packet->len,
				packet->peer->addr);
		if (!ret)
			pn_fabric_packet_put(dev, packet);
		return ret;
	}
	packet->context.kind = PN_FABRIC_TX;
	ret = fi_send(dev->ep, &packet->wire, packet->len, packet->desc,
		      packet->peer->addr, &packet->context);
	dev->nsending += !ret;
	return ret;
}

/* Returns false if libfabric has no room. */
static bool try_send(struct pn_fabric_device *dev,
		     struct pn_fabric_packet *packet)
{
	ssize_t ret = hand_over(dev, packet);

	if (pn_likely(!ret))
		return true;
	if (ret == -FI_EAGAIN)
		return false;
	pn_fabric_peer_failed(dev, packet->peer, pn_fabric_error((int)ret));
	pn_fabric_packet_put(dev, packet);
	return true;
}

void pn_fabric_send_raw(struct pn_fabric_device *dev,
			struct pn_fabric_peer *peer,
			struct pn_fabric_packet *packet)
{
	packet->peer = peer;
	if (pn_unlikely(peer->ended)) {
		pn_fabric_packet_put(dev, packet);
		return;
	}
	if (pn_likely(pn_list_empty(&peer->backlog)) && try_send(dev, packet))
		return;
	pn_list_append(&peer->backlog, &packet->link);
	if (pn_list_empty(&peer->backlogged))
		pn_list_append(&dev->backlogged, &peer->backlogged);
}

void pn_fabric_send(struct pn_fabric_device *dev, struct pn_fabric_peer *peer,
		    struct pn_fabric_packet *packet)
{
	struct pn_fabric_header *header = &packet->wire.header;

	header->unused = 0;
	header->to = peer->to;
	header->tag = peer->to_tag;
	header->sequence = peer->tx.sequence++;
	header->executed = peer->rx.executed;
	header->granted = peer->rx.announced = peer->rx.granted;
	pn_list_remove(&peer->rx.ack_due);
	pn_fabric_send_raw(dev, peer, packet);
}

void pn_fabric_send_short(struct pn_fabric_device *dev,
			  struct pn_fabric_peer *peer, enum pn_fabric_kind kind,
			  uint32_t number, uint32_t imm)
{
	struct pn_fabric_packet *packet = pn_fabric_packet_get(dev);

	if (!packet) {
		pn_fabric_peer_down(dev, peer, -ENOMEM);
		return;
	}
	packet->wire.header = (struct pn_fabric_header){ .kind = (uint8_t)kind,
							 .imm = imm,
							 .number = number };
	packet->len = sizeof(packet->wire.header);
	pn_fabric_send(dev, peer, packet);
}

void pn_fabric_sent(struct pn_fabric_device *dev,
		    struct pn_fabric_packet *packet, int status)
{
	dev->nsending--;
	if (pn_unlikely(status))
		pn_fabric_peer_failed(dev, packet->peer, status);
	pn_fabric_packet_put(dev, packet);
}

static void send_backlog_of(struct pn_fabric_device *dev,
			    struct pn_fabric_peer *peer)
{
	while (!pn_list_empty(&peer->backlog)) {
		struct pn_list *pos = peer->backlog.next;

		pn_list_remove(pos);
		if (try_send(dev, pn_container_of(pos, struct pn_fabric_packet,
						  link)))
			continue;
		pn_list_insert(&peer->backlog, pos);
		return;
	}
	pn_list_remove(&peer->backlogged);
	if (peer->tx.post_refused) {
		peer->tx.post_refused = false;
		dev->post_room = true;
	}
	pn_fabric_advance(dev, peer);
}

void pn_fabric_send_backlog(struct pn_fabric_device *dev)
{
	struct pn_list *pos, *tmp;

	pn_list_for_each_safe (pos, tmp, &dev->backlogged) {
		send_backlog_of(dev, pn_container_of(pos, struct pn_fabric_peer,
						     backlogged));
	}
}

void pn_fabric_drop_backlog(struct pn_fabric_device *dev,
			    struct pn_fabric_peer *peer)
{
	struct pn_list *pos;

	while ((pos = pn_list_pop(&peer->backlog)))
		pn_fabric_packet_put(dev,
				     pn_container_of(pos,
						     struct pn_fabric_packet,
						     link));
	pn_list_remove(&peer->backlogged);
}

/* --- receiving ------------------------------------------------------------ */

static ssize_t post_receive(struct pn_fabric_device *dev,
			    struct pn_fabric_packet *packet)
{
	packet->context.kind = PN_FABRIC_RX;
	return fi_recv(dev->ep, &packet->wire, sizeof(packet->wire),
		       packet->desc, FI_ADDR_UNSPEC, &packet->context);
}

void pn_fabric_receive_post(struct pn_fabric_device *dev,
			    struct pn_fabric_packet *packet)
{
	ssize_t ret;

	if (pn_unlikely(dev->nreceives > dev->nwanted)) {
		dev->nreceives--;
		pn_fabric_packet_put(dev, packet);
		return;
	}
	if (pn_unlikely(!pn_list_empty(&dev->unposted))) {
		pn_list_append(&dev->unposted, &packet->link);
		return;
	}
	ret = post_receive(dev, packet);
	if (pn_likely(!ret))
		return;
	if (ret != -FI_EAGAIN)
		pn_error("fabric: cannot post a receive buffer: %s",
			 dev->library->strerror((int)-ret));
	pn_list_append(&dev->unposted, &packet->link);
}

void pn_fabric_receives_post(struct pn_fabric_device *dev)
{
	struct pn_list *pos;

	while (!pn_list_empty(&dev->unposted)) {
		pos = dev->unposted.next;
		if (post_receive(dev,
				 pn_container_of(pos, struct pn_fabric_packet,
						 link)))
			return;
		pn_list_remove(pos);
	}
}

int pn_fabric_receives_add(struct pn_fabric_device *dev, unsigned n)
{
	dev->nwanted += n;
	while (dev->nreceives < dev->nwanted) {
		struct pn_fabric_packet *packet = pn_fabric_packet_get(dev);

		if (!packet) {
			dev->nwanted -= n;
			return -ENOMEM;
		}
		dev->nreceives++;
		pn_fabric_receive_post(dev, packet);
	}
	return 0;
}

void pn_fabric_receives_remove(struct pn_fabric_device *dev, unsigned n)
{
	dev->nwanted -= n;
}
