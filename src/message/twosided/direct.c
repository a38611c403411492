/* SPDX-License-Identifier: BSD-2-Clause */
#include "message/twosided/direct.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/pages.h"
#include "message/connection/keys.h"
#include "message/endpoint/endpoint.h"
#include "message/endpoint/request.h"

#define MAX_SEGMENTS 8

_Static_assert(sizeof(struct pn_wire) <= PN_DIRECT_HEADER_BYTES,
	       "a head fits a slot");

/* --- slots ---------------------------------------------------------------- */

static void pool_init(struct pinion_endpoint *ep, struct pn_direct_pool *d)
{
	pn_list_init(&d->free);
	for (unsigned i = 0; i < PN_DIRECT_SLOTS; i++) {
		struct pn_direct_slot *direct = &d->storage[i];

		direct->operation =
			(struct pn_operation_context){ PN_OPERATION_DIRECT,
						       ep };
		direct->head =
			(uint8_t *)d->mr.addr + i * PN_DIRECT_HEADER_BYTES;
		pn_list_append(&d->free, &direct->link);
	}
}

static int pool_open(struct pinion_endpoint *ep)
{
	struct pn_direct_pool *d = calloc(1, sizeof(*d));
	int ret;

	if (!d)
		return -ENOMEM;
	d->mr.len = PN_DIRECT_SLOTS * PN_DIRECT_HEADER_BYTES;
	ret = pn_pages_map(d->mr.len, &ep->pages, &d->mr.addr);
	if (ret)
		goto free_slots;
	ret = pn_cache_register(ep->cache, &d->mr);
	if (ret)
		goto unmap;
	pool_init(ep, d);
	/* Another task may have been faster, while this one registered. */
	if (ep->transfers.direct_pool) {
		pn_cache_deregister(ep->cache, &d->mr);
		goto unmap;
	}
	ep->transfers.direct_pool = d;
	return 0;

unmap:
	pn_pages_unmap(d->mr.addr, d->mr.len, &ep->pages);
free_slots:
	free(d);
	return ret;
}

static struct pn_direct_slot *slot_alloc(struct pinion_endpoint *ep)
{
	struct pn_list *link;

	if (pn_unlikely(!ep->transfers.direct_pool) && pool_open(ep))
		return NULL;
	link = pn_list_pop(&ep->transfers.direct_pool->free);
	return link ? pn_container_of(link, struct pn_direct_slot, link) : NULL;
}

static void slot_free(struct pinion_endpoint *ep, struct pn_direct_slot *direct)
{
	direct->request = NULL;
	pn_list_insert(&ep->transfers.direct_pool->free, &direct->link);
}

size_t pn_direct_bytes(const struct pinion_endpoint *ep)
{
	return ep->transfers.direct_pool ? ep->transfers.direct_pool->mr.len
					 : 0;
}

void pn_direct_close(struct pinion_endpoint *ep)
{
	struct pn_direct_pool *d = ep->transfers.direct_pool;
	struct pn_mr *mr;

	if (!d)
		return;
	for (unsigned i = 0; i < PN_DIRECT_SLOTS; i++)
		if (d->storage[i].request)
			pn_cache_unpin(ep->cache, &d->storage[i].pin);
	mr = &d->mr;
	pn_cache_deregister(ep->cache, mr);
	pn_pages_unmap(mr->addr, mr->len, &ep->pages);
}

/* --- sending -------------------------------------------------------------- */

static bool may_post(const struct pinion_peer *peer)
{
	return !peer->down && peer->conn->up && pn_list_empty(&peer->packets) &&
	       peer->ep->nrails == 1;
}

/* The head and the parts of the pin; -E2BIG: too many for the device. */
static int gather(const struct pn_direct_slot *direct, struct pn_sge *sge,
		  unsigned most, unsigned *n)
{
	const struct pinion_request *request = direct->request;
	size_t len;

	sge[0] = (struct pn_sge){ direct->head, sizeof(struct pn_wire),
				  request->ep->transfers.direct_pool->mr.lkey };
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

static int post(struct pn_direct_slot *direct, const struct pn_wire *wire)
{
	struct pinion_endpoint *ep = direct->request->ep;
	const struct pn_connection *conn = direct->request->peer->conn;
	unsigned most = ep->device->limits.max_sge;
	struct pn_sge sge[MAX_SEGMENTS];
	struct pn_op op = { .kind = PN_OP_SEND, .sge = sge, .user = direct };
	int ret = gather(direct, sge, most < MAX_SEGMENTS ? most : MAX_SEGMENTS,
			 &op.nsge);

	if (ret)
		return ret;
	memcpy(direct->head, wire, sizeof(*wire));
	ret = pn_device_post(ep->device, conn->device_peer, &op);
	if (!ret)
		ep->noperations++;
	return ret;
}

/* Others may run while it is pinned: the peer may go, or packets come to wait
 * that this one must not overtake. */
static int pin_and_post(struct pn_direct_slot *direct,
			const struct pn_wire *wire)
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
	struct pn_direct_slot *direct;
	int ret;

	if (!may_post(request->peer))
		return -EAGAIN;
	request->npackets++;
	direct = slot_alloc(ep);
	if (direct) {
		direct->request = request;
		ret = pin_and_post(direct, wire);
		if (ret)
			slot_free(ep, direct);
	} else {
		ret = -ENOBUFS;
	}
	if (ret) {
		request->npackets--;
		return ret;
	}
	ep->stats.direct++;
	pn_reuse_direct_sent(&ep->reuse, ep->eager_kind, request->len);
	return 0;
}

void pn_direct_done(struct pinion_endpoint *ep, struct pn_direct_slot *direct,
		    int status)
{
	struct pinion_request *request = direct->request;

	pn_cache_unpin(ep->cache, &direct->pin);
	slot_free(ep, direct);
	pn_reuse_direct_done(&ep->reuse);
	request->npackets--;
	pn_request_end(request, status);
}
