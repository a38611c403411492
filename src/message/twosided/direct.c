/* SPDX-License-Identifier: BSD-2-Clause */
#include "message/twosided/direct.h"

#include <errno.h>
#include <string.h>

#include "message/connection/keys.h"
#include "message/endpoint/endpoint.h"
#include "message/endpoint/request.h"

#define MAX_SEGMENTS 8

_Static_assert(sizeof(struct pn_wire) <= PN_DIRECT_HEADER_BYTES,
	       "a header fits a slot");

/* --- slots ---------------------------------------------------------------- */

static void init_slots(struct pinion_endpoint *ep)
{
	struct pn_direct_pool *d = &ep->transfers.direct_pool;

	for (unsigned i = 0; i < PN_DIRECT_SLOTS; i++) {
		struct pn_direct_slot *slot = pn_pool_at(&d->slots, i);

		slot->operation =
			(struct pn_operation_context){ PN_OPERATION_DIRECT,
						       ep };
		slot->header = pn_pool_memory_addr(&d->memory) +
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

static void slot_free(struct pinion_endpoint *ep, struct pn_direct_slot *slot)
{
	slot->request = NULL;
	pn_pool_put(&ep->transfers.direct_pool.slots, slot);
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

/* The header and the segments of the pin; -E2BIG: too many for the device. */
static int gather(const struct pn_direct_slot *slot, struct pn_sge *sge,
		  unsigned most, unsigned *n)
{
	const struct pinion_request *request = slot->request;
	const struct pn_direct_pool *pool = &request->ep->transfers.direct_pool;
	size_t len;

	sge[0] = (struct pn_sge){ slot->header, sizeof(struct pn_wire),
				  pool->memory.mrs[0].lkey };
	*n = 1;
	for (size_t at = 0; at < request->len; at += len) {
		struct pn_sge segment = pn_pin_at(&slot->pin, at);

		if (*n == most)
			return -E2BIG;
		if (segment.len > request->len - at)
			segment.len = request->len - at;
		len = segment.len;
		sge[(*n)++] = segment;
	}
	return 0;
}

static int post(struct pn_direct_slot *slot, const struct pn_wire *wire)
{
	struct pinion_endpoint *ep = slot->request->ep;
	const struct pn_connection *conn = slot->request->peer->conn;
	unsigned most = ep->device->limits.max_sge;
	struct pn_sge sge[MAX_SEGMENTS];
	struct pn_op op = { .kind = PN_OP_SEND, .sge = sge, .user = slot };
	int ret = gather(slot, sge, most < MAX_SEGMENTS ? most : MAX_SEGMENTS,
			 &op.nsge);

	if (ret)
		return ret;
	memcpy(slot->header, wire, sizeof(*wire));
	ret = pn_device_post(ep->device, conn->device_peer, &op);
	if (!ret)
		ep->noperations++;
	return ret;
}

/* Other tasks may run while the buffer is pinned: the peer may fail, or packets
 * may begin to wait that this one must not overtake. */
static int pin_and_post(struct pn_direct_slot *slot, const struct pn_wire *wire)
{
	struct pinion_request *request = slot->request;
	struct pn_cache *cache = request->ep->cache;
	int ret = pn_cache_pin_no_listener(cache, request->buf, request->len, 0,
					   &slot->pin);

	if (ret)
		return ret;
	ret = may_post(request->peer) && !request->status ? post(slot, wire)
							  : -EAGAIN;
	if (ret)
		pn_cache_unpin(cache, &slot->pin);
	return ret;
}

int pn_direct_send(struct pinion_request *request, const struct pn_wire *wire)
{
	struct pinion_endpoint *ep = request->ep;
	struct pn_direct_slot *slot;
	int ret;

	if (!may_post(request->peer))
		return -EAGAIN;
	request->npackets++;
	slot = slot_alloc(ep);
	if (slot) {
		slot->request = request;
		ret = pin_and_post(slot, wire);
		if (ret)
			slot_free(ep, slot);
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

void pn_direct_done(struct pinion_endpoint *ep, struct pn_direct_slot *slot,
		    int status)
{
	struct pinion_request *request = slot->request;

	pn_cache_unpin(ep->cache, &slot->pin);
	slot_free(ep, slot);
	pn_reuse_direct_done(&ep->reuse);
	request->npackets--;
	pn_request_end(request, status);
}
