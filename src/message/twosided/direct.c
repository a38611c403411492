/* SPDX-License-Identifier: BSD-2-Clause */
#include "message/twosided/direct.h"

#include <errno.h>
#include <string.h>

#include "message/connection/keys.h"
#include "message/endpoint/endpoint.h"
#include "message/endpoint/request.h"

#define MAX_SEGMENTS 8

_Static_assert(sizeof(struct pn_wire) <= PN_DIRECT_HEADER_BYTES,
	       "a head fits a slot");

/* --- slots ---------------------------------------------------------------- */

static void init_slots(struct pinion_endpoint *ep)
{
	struct pn_direct_pool *d = &ep->transfers.direct_pool;

	for (unsigned i = 0; i < PN_DIRECT_SLOTS; i++) {
		struct pn_direct_slot *slot = pn_pool_at(&d->slots, i);

		slot->operation =
			(struct pn_operation_context){ PN_OPERATION_DIRECT,
						       ep };
		slot->head = pn_pool_memory_addr(&d->memory) +
			     i * PN_DIRECT_HEADER_BYTES;
	}
}

static int pool_open(struct pinion_endpoint *ep)
{
	static const struct pn_pool_memory_attr attr = {
		.len = PN_DIRECT_SLOTS * PN_DIRECT_HEADER_BYTES,
		.nrails = 1,
		.strict = true
	};
	struct pn_direct_pool *d = &ep->transfers.direct_pool;
	struct pn_pool_memory memory;
	int ret = pn_pool_memory_open(&memory, ep, &attr);

	if (ret)
		return ret;
	/* Another task may have been faster, while this one registered. */
	ret = pn_pool_memory_is_open(&d->memory)
		      ? -EALREADY
		      : pn_pool_fix(&d->slots, PN_DIRECT_SLOTS);
	if (ret) {
		pn_pool_memory_close(&memory);
		return ret == -EALREADY ? 0 : ret;
	}
	d->memory = memory;
	init_slots(ep);
	return 0;
}

static struct pn_direct_slot *slot_alloc(struct pinion_endpoint *ep)
{
	struct pn_direct_pool *d = &ep->transfers.direct_pool;

	if (pn_unlikely(!pn_pool_memory_is_open(&d->memory)) && pool_open(ep))
		return NULL;
	return pn_pool_get(&d->slots);
}

static void slot_free(struct pinion_endpoint *ep, struct pn_direct_slot *direct)
{
	direct->request = NULL;
	pn_pool_put(&ep->transfers.direct_pool.slots, direct);
}

void pn_direct_init(struct pinion_endpoint *ep)
{
	PN_POOL_INIT(&ep->transfers.direct_pool.slots, struct pn_direct_slot,
		     link, 0);
}

size_t pn_direct_bytes(const struct pinion_endpoint *ep)
{
	return pn_pool_memory_bytes(&ep->transfers.direct_pool.memory);
}

void pn_direct_close(struct pinion_endpoint *ep)
{
	struct pn_direct_pool *d = &ep->transfers.direct_pool;

	for (unsigned i = 0; i < d->slots.nfixed; i++) {
		struct pn_direct_slot *slot = pn_pool_at(&d->slots, i);

		if (slot->request)
			pn_cache_unpin(ep->cache, &slot->pin);
	}
	pn_pool_memory_close(&d->memory);
}

void pn_direct_free(struct pinion_endpoint *ep)
{
	pn_pool_fini(&ep->transfers.direct_pool.slots);
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
	const struct pn_direct_pool *pool = &request->ep->transfers.direct_pool;
	size_t len;

	sge[0] = (struct pn_sge){ direct->head, sizeof(struct pn_wire),
				  pool->memory.mrs[0].lkey };
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
