/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Peers, and the ways to them: one for each rail that both sides have.
 *
 * A peer is the endpoint that an address names. An address lists the devices of
 * all its rails; the i-th way is over this endpoint's i-th rail, to that rail
 * of the peer which attaching pairs with it. Ways are attached when the peer is
 * first sent to, or are found attached when the peer did so.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "message/message_impl.h"

static bool same_address(const struct pn_address *a, const struct pn_address *b)
{
	return a->len == b->len && !memcmp(a->data, b->data, a->len);
}

static bool has_rail(const struct pinion_peer *peer,
		     const struct pn_address *rail)
{
	for (unsigned i = 0; i < peer->nrails; i++)
		if (same_address(&peer->rails[i], rail))
			return true;
	return false;
}

static struct pinion_peer *find_peer(struct pinion_endpoint *ep,
				     const struct pn_address *rails,
				     unsigned nrails)
{
	struct pn_list *pos;

	pn_list_for_each (pos, &ep->peers) {
		struct pinion_peer *peer =
			pn_container_of(pos, struct pinion_peer, link);

		for (unsigned i = 0; i < nrails; i++)
			if (has_rail(peer, &rails[i]))
				return peer;
	}
	return NULL;
}

static void init_ways(struct pinion_peer *peer)
{
	for (unsigned r = 0; r < peer->ep->nrails; r++) {
		peer->ways[r].owner = peer;
		peer->ways[r].rail = &peer->ep->rails[r];
		pn_list_init(&peer->ways[r].stalled);
	}
	peer->way = &peer->ways[0];
}

struct pinion_peer *pn_peer_of(struct pinion_endpoint *ep,
			       const struct pn_address *rails, unsigned nrails)
{
	struct pinion_peer *peer = find_peer(ep, rails, nrails);

	if (peer)
		return peer;
	peer = calloc(1, sizeof(*peer));
	if (!peer)
		return NULL;
	peer->ep = ep;
	memcpy(peer->rails, rails, nrails * sizeof(*rails));
	peer->nrails = nrails;
	init_ways(peer);
	pn_list_init(&peer->requests);
	pn_list_init(&peer->packets);
	pn_list_init(&peer->busy);
	pn_onesided_init_peer(peer);
	pn_list_append(&ep->peers, &peer->link);
	return peer;
}

/* The way is over this peer of its device. It may have come up before this
 * endpoint was there: the device's own address, when its costs were measured.
 */
static void bind_way(struct pn_way *way, struct pn_peer *device_peer)
{
	way->peer = device_peer;
	way->up = device_peer->up;
	device_peer->user = way;
}

int pn_peer_connect(struct pinion_peer *peer)
{
	struct pn_way *way = peer->way;
	struct pn_peer *device_peer;
	int ret;

	if (peer->down)
		return peer->down;
	if (way->peer)
		return 0;
	ret = pn_device_attach(way->rail->device, &peer->rails[0],
			       &device_peer);
	if (!ret)
		bind_way(way, device_peer);
	return ret;
}

struct pn_way *pn_way_of(struct pinion_endpoint *ep,
			 struct pn_peer *device_peer)
{
	struct pn_way *way = device_peer->user;
	struct pinion_peer *peer;

	if (pn_likely(way))
		return way;
	/* It came by itself. */
	peer = pn_peer_of(ep, &device_peer->address, 1);
	if (!peer)
		return NULL;
	bind_way(&peer->ways[0], device_peer);
	return &peer->ways[0];
}

void pn_way_up(struct pn_way *way)
{
	way->up = true;
	pn_peer_busy(way->owner);
}

void pn_way_down(struct pn_way *way, int why)
{
	way->up = false;
	pn_peer_fail(way->owner, why);
}

static void drop_packets(struct pinion_peer *peer)
{
	struct pn_list *link;

	while ((link = pn_list_pop(&peer->packets))) {
		struct pn_packet *p =
			pn_container_of(link, struct pn_packet, link);

		if (p->request)
			p->request->npackets--;
		pn_list_insert(&peer->ep->packets, link);
	}
	pn_list_remove(&peer->busy);
}

static void fail_posted(struct pinion_peer *peer, int why)
{
	struct pn_list *pos, *next;

	pn_list_for_each_safe (pos, next, &peer->ep->posted) {
		struct pinion_request *request =
			pn_container_of(pos, struct pinion_request, link);

		if (request->peer == peer)
			pn_request_end(request, why);
	}
}

/* Messages that nobody received yet stay: the bytes of eager ones are here,
 * and the receives that the others would have matched are to fail, not to
 * match what was sent after them. */
void pn_peer_fail(struct pinion_peer *peer, int why)
{
	struct pn_list *pos, *next;

	if (peer->down)
		return;
	peer->down = why;
	for (unsigned r = 0; r < peer->ep->nrails; r++)
		peer->ways[r].up = false;
	drop_packets(peer);
	fail_posted(peer, why);
	pn_list_for_each_safe (pos, next, &peer->requests)
		pn_request_end(pn_container_of(pos, struct pinion_request,
					       peer_link),
			       why);
}

void pn_peers_forget(struct pinion_endpoint *ep)
{
	struct pn_list *pos;

	pn_list_for_each (pos, &ep->peers) {
		struct pinion_peer *peer =
			pn_container_of(pos, struct pinion_peer, link);

		for (unsigned r = 0; r < ep->nrails; r++)
			if (peer->ways[r].peer)
				peer->ways[r].peer->user = NULL;
	}
}

/* --- addresses ------------------------------------------------------------ */

void pn_endpoint_address(struct pinion_endpoint *ep, struct pinion_address *out)
{
	struct pn_address rails[PN_RAILS_MAX];

	for (unsigned r = 0; r < ep->nrails; r++)
		pn_device_address(ep->rails[r].device, &rails[r]);
	pn_wire_put_address(rails, ep->nrails, out);
}

void pn_peer_address(const struct pinion_peer *peer, struct pinion_address *out)
{
	pn_wire_put_address(peer->rails, peer->nrails, out);
}

int pn_endpoint_peer(struct pinion_endpoint *ep,
		     const struct pinion_address *address,
		     struct pinion_peer **out)
{
	struct pn_address rails[PN_RAILS_MAX];
	struct pinion_peer *peer;
	unsigned nrails;
	int ret = address->len > sizeof(address->data)
			  ? -EINVAL
			  : pn_wire_get_address(address->data, address->len,
						rails, &nrails);

	if (ret == -EPROTONOSUPPORT)
		pn_error("an address is of version %d of the wire format, not "
			 "%d: use one version of pinion everywhere",
			 address->data[0], PN_WIRE_VERSION);
	if (ret)
		return ret;
	pn_endpoint_lock(ep);
	peer = pn_peer_of(ep, rails, nrails);
	pn_endpoint_unlock(ep);
	if (!peer)
		return -ENOMEM;
	*out = peer;
	return 0;
}
