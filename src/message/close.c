/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The end of an endpoint.
 *
 * Devices outlive it, and another endpoint may be opened on them: nothing of
 * this one may come up there. So its ways end with it. On each a BYE, an empty
 * send, goes out behind everything else, also what waited for room; when it has
 * arrived, so has the last message that was reported as sent, and the way is
 * detached. PEER_DOWN comes when nothing of the peer can touch memory here any
 * more. A way to itself stays, as it is the device's own: there the BYE is
 * waited for, behind which nothing of this life follows.
 *
 * Operations point into the endpoint's memory, so their ends are waited for,
 * too. All of this takes a second at most. What has not ended by then (a peer
 * that is stopped, say) is left behind: the endpoint's memory stays until the
 * device has told of its last operation, whoever polls that. Registrations go
 * in any case, which devices allow while operations use them. An endpoint that
 * has devices of its own closes them, and leaves nothing behind.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/board.h"
#include "base/clock.h"
#include "base/log.h"
#include "message/message_impl.h"

#define PATIENCE_NS PN_NS_PER_S

/* What a device's peer belongs to when its endpoint has gone. */
static struct pinion_peer nobody = { .down = -ECONNRESET };
static struct pn_way nobodys = { .owner = &nobody, .down = -ECONNRESET };

static void for_ways(struct pinion_endpoint *ep, void (*fn)(struct pn_way *way))
{
	struct pn_list *pos;

	pn_list_for_each (pos, &ep->peers) {
		struct pinion_peer *peer =
			pn_container_of(pos, struct pinion_peer, link);

		for (unsigned r = 0; r < ep->nrails; r++)
			if (peer->ways[r].peer)
				fn(&peer->ways[r]);
	}
}

/* --- parting -------------------------------------------------------------- */

static void part(struct pn_way *way)
{
	if (way->down)
		return;
	way->parting = PN_PARTING_WISHES;
	way->owner->ep->nparting++;
}

static void parted(struct pn_way *way)
{
	way->parting = PN_PARTING_NOT;
	way->owner->ep->nparting--;
}

/* PEER_DOWN follows. Where nothing was said yet, a way to itself just stays. */
static void detach(struct pn_way *way)
{
	if (pn_way_is_loopback(way) ||
	    pn_device_detach(way->rail->device, way->peer))
		parted(way);
	else
		way->parting = PN_PARTING_ENDS;
}

/* What was to be said and found no room, without what sends that have not ended
 * were to say: a peer may wait for it. False: there is still no room. */
static bool say_rest(struct pn_way *way)
{
	struct pinion_peer *peer = way->owner;

	if (peer->way != way || peer->sequenced)
		return true;
	while (!pn_list_empty(&peer->packets)) {
		struct pn_packet *p = pn_container_of(peer->packets.next,
						      struct pn_packet, link);

		if (!p->request && pn_packet_post(way, &p->wire, p->payload,
						  p->len) == -EAGAIN)
			return false;
		pn_list_remove(&p->link);
		pn_list_insert(&peer->ep->packets, &p->link);
	}
	return true;
}

static void say_bye(struct pn_way *way)
{
	const struct pn_op bye = { .kind = PN_OP_SEND, .user = &way->bye };
	struct pinion_endpoint *ep = way->owner->ep;
	int ret;

	if (way->parting != PN_PARTING_WISHES)
		return;
	if (!way->peer->up) {
		detach(way);
		return;
	}
	if (!say_rest(way))
		return;
	way->bye = (struct pn_track){ PN_TRACK_BYE, ep };
	ret = pn_device_post(way->rail->device, way->peer, &bye);
	if (!ret) {
		ep->noperations++;
		way->parting = PN_PARTING_SAID;
	} else if (ret != -EAGAIN) {
		detach(way);
	}
}

/* --- what devices still have to say --------------------------------------- */

static void on_op(struct pinion_endpoint *ep, struct pn_track *track)
{
	struct pn_way *way = pn_container_of(track, struct pn_way, bye);

	if (track->ep != ep) {
		pn_endpoint_left(track->ep);
		return;
	}
	ep->noperations--;
	if (track->kind == PN_TRACK_BYE && way->parting == PN_PARTING_SAID &&
	    !pn_way_is_loopback(way))
		detach(way);
}

static bool leads_back(const struct pn_peer *device_peer)
{
	struct pn_address own;

	pn_device_address(device_peer->device, &own);
	return own.len == device_peer->address.len &&
	       !memcmp(own.data, device_peer->address.data, own.len);
}

void pn_way_refuse(struct pn_peer *device_peer)
{
	device_peer->user = &nobodys;
	pn_device_detach(device_peer->device, device_peer);
}

static void hear(struct pinion_endpoint *ep, const struct pn_completion *c)
{
	struct pn_way *way = c->peer->user;
	bool ours = way && way->owner->ep == ep;

	/* One that has just come, and of whose first words nothing is kept: the
	 * next endpoint would not know what the rest is about. */
	if (!way && c->kind != PN_COMPLETION_PEER_DOWN && !leads_back(c->peer))
		pn_way_refuse(c->peer);
	if (c->kind == PN_COMPLETION_OP && c->user) {
		on_op(ep, c->user);
	} else if (c->kind == PN_COMPLETION_RECV) {
		if (ours && !c->len && way->parting == PN_PARTING_SAID &&
		    pn_way_is_loopback(way))
			parted(way);
		pn_device_release(c->peer->device, c);
	} else if (c->kind == PN_COMPLETION_PEER_DOWN && ours) {
		if (way->parting)
			parted(way);
		way->down = c->status ? c->status : -ECONNRESET;
	}
}

static bool hear_one(struct pinion_endpoint *ep, struct pn_device *device)
{
	struct pn_completion c;

	if (!pn_device_poll(device, &c, 1))
		return false;
	hear(ep, &c);
	return true;
}

static void drain(struct pinion_endpoint *ep)
{
	uint64_t deadline = pn_device_now(ep->device) + PATIENCE_NS;

	for_ways(ep, part);
	while ((ep->nparting || ep->noperations) &&
	       pn_device_now(ep->device) < deadline) {
		bool moved = false;

		for_ways(ep, say_bye);
		for (unsigned r = 0; r < ep->nrails; r++)
			moved |= hear_one(ep, ep->rails[r].device);
		if (!moved && (ep->nparting || ep->noperations) &&
		    pn_device_wait_any(ep->devices, ep->nrails, deadline))
			return;
	}
}

/* The device's peer outlives the way. */
static void forget(struct pn_way *way)
{
	bool stays = pn_way_is_loopback(way) && !way->parting && !way->down;

	if (way->parting == PN_PARTING_WISHES ||
	    way->parting == PN_PARTING_SAID)
		pn_device_detach(way->rail->device, way->peer);
	way->peer->user = stays ? NULL : &nobodys;
}

/* --- memory --------------------------------------------------------------- */

/* Fragments of requests that never ended still hold pins. */
static void abandon(struct pinion_endpoint *ep, struct pinion_request *request)
{
	struct pn_list *link;

	while ((link = pn_list_pop(&request->fragments))) {
		struct pn_fragment *f =
			pn_container_of(link, struct pn_fragment, link);

		if (f->pinned)
			pn_cache_unpin(f->way->rail->cache, &f->pin);
		pn_list_append(&ep->fragments, link);
	}
	pn_request_unpin(request);
}

static void free_list(struct pn_list *list, size_t link_offset)
{
	struct pn_list *link;

	while ((link = pn_list_pop(list)))
		free((char *)link - link_offset);
}

static void free_all(struct pinion_endpoint *ep)
{
	struct pn_list *pos;

	pn_list_for_each (pos, &ep->peers) {
		struct pinion_peer *peer =
			pn_container_of(pos, struct pinion_peer, link);

		free_list(&peer->packets, offsetof(struct pn_packet, link));
		pn_kept_drop(peer);
	}
	free_list(&ep->unexpected, offsetof(struct pinion_unexpected, link));
	free_list(&ep->claimed, offsetof(struct pinion_unexpected, link));
	free_list(&ep->small_claims, offsetof(struct pinion_unexpected, link));
	free_list(&ep->large_claims, offsetof(struct pinion_unexpected, link));
	free_list(&ep->packets, offsetof(struct pn_packet, link));
	free_list(&ep->fragments, offsetof(struct pn_fragment, link));
	free_list(&ep->smalls, offsetof(struct pn_bounce, link));
	free_list(&ep->peers, offsetof(struct pinion_peer, link));
	pn_pieces_free(ep);
	pn_requests_free(ep);
	free(ep->bounce_storage);
	free(ep->directs);
	pn_board_free(ep);
}

void pn_endpoint_left(struct pinion_endpoint *ep)
{
	if (!--ep->noperations)
		free_all(ep);
}

/* Nothing is told of operations any more, nor done. */
static void close_devices(struct pinion_endpoint *ep)
{
	for (unsigned r = ep->nrails; r--;)
		pn_device_close(ep->rails[r].device);
	ep->noperations = 0;
}

void pn_endpoint_close(struct pinion_endpoint *ep)
{
	if (!ep)
		return;
	PN_ENDPOINT_CHECK(ep);
	pn_rails_claim(ep, false, false);
	drain(ep);
	PN_ENDPOINT_CHECK_PARTING(ep);
	for (uint32_t i = 0; i < ep->nrequests; i++)
		abandon(ep, ep->table[i]);
	pn_onesided_fini(ep);
	for_ways(ep, forget);
	if (ep->epoll >= 0) {
		close(ep->epoll);
		close(ep->told);
	}
	pn_directs_close(ep);
	pn_reuse_fini(&ep->reuse);
	pn_bounces_close(ep);
	for (unsigned r = 0; r < ep->nrails; r++)
		pn_auto_close(ep->choosers[r]);
	pn_mutex_fini(&ep->lock);
	if (ep->owns_devices)
		close_devices(ep);
	if (!ep->noperations) {
		free_all(ep);
		return;
	}
	pn_warn("an endpoint closes with %u operations that do not end; its "
		"memory is kept until they do",
		ep->noperations);
}
