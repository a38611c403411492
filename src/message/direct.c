/* SPDX-License-Identifier: BSD-2-Clause */
#include "message/direct.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/pages.h"
#include "message/message_impl.h"

#define MAX_SEGMENTS 8

_Static_assert(sizeof(struct pn_wire) <= PN_DIRECT_HEAD, "a head fits a slot");

/* --- slots ---------------------------------------------------------------- */

static void init_slots(struct pinion_endpoint *ep, struct pn_directs *d)
{
	pn_list_init(&d->free);
	for (unsigned i = 0; i < PN_NDIRECTS; i++) {
		struct pn_direct *direct = &d->storage[i];

		direct->track = (struct pn_track){ PN_TRACK_DIRECT, ep };
		direct->head = (uint8_t *)d->mr.addr + i * PN_DIRECT_HEAD;
		pn_list_append(&d->free, &direct->link);
	}
}

static int open_slots(struct pinion_endpoint *ep)
{
	struct pn_directs *d = calloc(1, sizeof(*d));
	int ret;

	if (!d)
		return -ENOMEM;
	d->mr.len = PN_NDIRECTS * PN_DIRECT_HEAD;
	ret = pn_pages_map(d->mr.len, &ep->pages, &d->mr.addr);
	if (ret)
		goto free_slots;
	ret = pn_cache_register(ep->cache, &d->mr);
	if (ret)
		goto unmap;
	init_slots(ep, d);
	/* Another task may have been faster, while this one registered. */
	if (ep->directs) {
		pn_cache_deregister(ep->cache, &d->mr);
		goto unmap;
	}
	ep->directs = d;
	return 0;

unmap:
	pn_pages_unmap(d->mr.addr, d->mr.len, &ep->pages);
free_slots:
	free(d);
	return ret;
}

static struct pn_direct *take_slot(struct pinion_endpoint *ep)
{
	struct pn_list *link;

	if (pn_unlikely(!ep->directs) && open_slots(ep))
		return NULL;
	link = pn_list_pop(&ep->directs->free);
	return link ? pn_container_of(link, struct pn_direct, link) : NULL;
}

static void give_slot(struct pinion_endpoint *ep, struct pn_direct *direct)
{
	direct->request = NULL;
	pn_list_insert(&ep->directs->free, &direct->link);
}

size_t pn_direct_bytes(const struct pinion_endpoint *ep)
{
	return ep->directs ? ep->directs->mr.len : 0;
}

void pn_directs_close(struct pinion_endpoint *ep)
{
	struct pn_directs *d = ep->directs;
	struct pn_mr *mr;

	if (!d)
		return;
	for (unsigned i = 0; i < PN_NDIRECTS; i++)
		if (d->storage[i].request)
			pn_cache_unpin(ep->cache, &d->storage[i].pin);
	mr = &d->mr;
	pn_cache_deregister(ep->cache, mr);
	pn_pages_unmap(mr->addr, mr->len, &ep->pages);
}

/* --- sending -------------------------------------------------------------- */

static bool may_post(const struct pinion_peer *peer)
{
	return !peer->down && peer->way->up && pn_list_empty(&peer->packets) &&
	       peer->ep->nrails == 1;
}

/* The head and the parts of the pin; -E2BIG: too many for the device. */
static int gather(const struct pn_direct *direct, struct pn_sge *sge,
		  unsigned most, unsigned *n)
{
	const struct pinion_request *request = direct->request;
	size_t len;

	sge[0] = (struct pn_sge){ direct->head, sizeof(struct pn_wire),
				  request->ep->directs->mr.lkey };
	*n = 1;
	for (size_t at = 0; at < request->len; at += len) {
		struct pn_sge part = pn_pin_at(&direct->pin, at);

		if (*n == most)
			return -E2BIG;
		if (part.len > request->len - at)
			part.len = request->len - at;
		len = part.len;
		sge[(*n)++] = part;
	}
	return 0;
}

static int post(struct pn_direct *direct, const struct pn_wire *wire)
{
	struct pinion_endpoint *ep = direct->request->ep;
	const struct pn_way *way = direct->request->peer->way;
	unsigned most = ep->device->limits.max_sge;
	struct pn_sge sge[MAX_SEGMENTS];
	struct pn_op op = { .kind = PN_OP_SEND, .sge = sge, .user = direct };
	int ret = gather(direct, sge, most < MAX_SEGMENTS ? most : MAX_SEGMENTS,
			 &op.nsge);

	if (ret)
		return ret;
	memcpy(direct->head, wire, sizeof(*wire));
	ret = pn_device_post(ep->device, way->peer, &op);
	if (!ret)
		ep->noperations++;
	return ret;
}

/* Others may run while it is pinned: the peer may go, or packets come to wait
 * that this one must not overtake. */
static int pin_and_post(struct pn_direct *direct, const struct pn_wire *wire)
{
	struct pinion_request *request = direct->request;
	struct pn_cache *cache = request->ep->cache;
	int ret = pn_cache_pin(cache, request->buf, request->len, 0,
			       &direct->pin);

	if (ret)
		return ret;
	ret = may_post(request->peer) && !request->status ? post(direct, wire)
							  : -EAGAIN;
	if (ret)
		pn_cache_unpin(cache, &direct->pin);
	return ret;
}

int pn_direct_send(struct pinion_request *request, const struct pn_wire *wire)
{
	struct pinion_endpoint *ep = request->ep;
	struct pn_direct *direct;
	int ret;

	if (!may_post(request->peer))
		return -EAGAIN;
	request->npackets++;
	direct = take_slot(ep);
	if (direct) {
		direct->request = request;
		ret = pin_and_post(direct, wire);
		if (ret)
			give_slot(ep, direct);
	} else {
		ret = -ENOBUFS;
	}
	if (ret) {
		request->npackets--;
		return ret;
	}
	ep->stats.direct++;
	pn_reuse_out(&ep->reuse, ep->eager_way, request->len);
	return 0;
}

void pn_direct_done(struct pinion_endpoint *ep, struct pn_direct *direct,
		    int status)
{
	struct pinion_request *request = direct->request;

	pn_cache_unpin(ep->cache, &direct->pin);
	give_slot(ep, direct);
	pn_reuse_ended(&ep->reuse);
	request->npackets--;
	pn_request_end(request, status);
}
