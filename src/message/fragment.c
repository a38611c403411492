/* SPDX-License-Identifier: BSD-2-Clause */
/* Fragments: their storage, their pins, and what they post to the device. */
#include <errno.h>
#include <stdlib.h>

#include "message/transfer_impl.h"

/* --- storage and pins ----------------------------------------------------- */

struct pn_fragment *pn_fragment_add(struct pinion_request *request,
				    enum pn_fragment_kind kind, size_t offset,
				    size_t len)
{
	struct pn_list *link = pn_list_pop(&request->ep->fragments);
	struct pn_fragment *f =
		link ? pn_container_of(link, struct pn_fragment, link)
		     : malloc(sizeof(*f));

	if (!f)
		return NULL;
	f->track = (struct pn_track){ PN_TRACK_FRAGMENT, request->ep };
	f->kind = kind;
	f->request = request;
	f->way = request->peer->way;
	f->offset = offset;
	f->len = len;
	f->posted = f->arrived = 0;
	f->inflight = f->nkeys = 0;
	f->status = 0;
	f->pinned = f->expected = f->again = false;
	pn_list_init(&f->stall);
	pn_list_append(&request->fragments, &f->link);
	request->nfragments++;
	return f;
}

void pn_fragment_detach(struct pn_fragment *f)
{
	pn_rail_forget(f, false);
	pn_list_remove(&f->stall);
	pn_list_remove(&f->link);
	f->request->nfragments--;
}

void pn_fragment_unpin(struct pn_fragment *f)
{
	if (f->pinned)
		pn_cache_unpin(f->way->rail->cache, &f->pin);
	f->pinned = false;
}

void pn_fragment_free(struct pinion_endpoint *ep, struct pn_fragment *f)
{
	pn_fragment_unpin(f);
	pn_list_insert(&ep->fragments, &f->link);
}

void pn_fragment_drop(struct pn_fragment *f)
{
	struct pinion_endpoint *ep = f->request->ep;

	pn_fragment_detach(f);
	pn_fragment_free(ep, f);
}

/* What a registration must allow. One that `auto` keeps serves all protocols,
 * since the next message may go by another. */
unsigned pn_fragment_access(const struct pinion_request *request,
			    unsigned access)
{
	if (!request->shape.keep)
		return access | PINION_PIN_BYPASS;
	if (request->ep->protocol != PN_PROTOCOL_AUTO)
		return access;
	return access |
	       (request->is_send ? PN_SOURCE_ACCESS : PN_TARGET_ACCESS);
}

/* What `auto` keeps of a buffer that goes whole is all of it: the next message
 * may go by a protocol that wants the first bytes, too. */
static void keep_all(struct pn_fragment *f, unsigned access)
{
	struct pinion_request *request = f->request;
	struct pn_cache *cache = f->way->rail->cache;
	struct pinion_pin pin;

	if (!pn_cache_pin(cache, request->buf, request->total,
			  pn_fragment_access(request, access), &pin))
		pn_cache_unpin(cache, &pin);
}

int pn_fragment_pin(struct pn_fragment *f, unsigned access)
{
	struct pinion_request *request = f->request;
	bool whole = f->offset && f->offset + f->len == request->total;
	int ret;

	if (whole && request->shape.keep &&
	    f->offset <= request->ep->limits.match_bytes &&
	    request->ep->protocol == PN_PROTOCOL_AUTO)
		keep_all(f, access);
	ret = pn_cache_pin(f->way->rail->cache, request->buf + f->offset,
			   f->len, pn_fragment_access(request, access),
			   &f->pin);

	f->pinned = !ret;
	return ret;
}

/* --- operations of the device --------------------------------------------- */

/* Where a fragment goes on: in its own pin or in the one of all the source. */
static struct pn_sge local_part_of(const struct pn_fragment *f)
{
	if (f->pinned)
		return pn_pin_at(&f->pin, f->posted);
	return pn_pin_at(&f->request->source, f->offset + f->posted);
}

static struct pn_wire_key remote_of(const struct pn_fragment *f)
{
	const struct pinion_request *request = f->request;

	if (f->kind == PN_FRAGMENT_WRITE)
		return pn_keys_at(f->keys, f->nkeys, f->posted);
	return pn_keys_on_rail(request->keys, request->nkeys,
			       request->key_rails, pn_way_far(f->way),
			       f->offset + f->posted);
}

/* Posts RDMA operations until all of the fragment is out. */
static int pump_rdma(struct pn_fragment *f, enum pn_op_kind kind)
{
	struct pinion_request *request = f->request;
	struct pn_device *device = f->way->rail->device;

	if (!f->way->up)
		return -EAGAIN;
	/* Its last operation tells the receiver that all were well. */
	while (f->posted < f->len && !f->status) {
		struct pn_sge sge = local_part_of(f);
		struct pn_wire_key to = remote_of(f);
		struct pn_op op = { .kind = kind,
				    .sge = &sge,
				    .nsge = 1,
				    .remote_addr = to.addr,
				    .rkey = to.rkey,
				    .user = f };
		int ret;

		if (!to.len)
			return -EPROTO;
		if (sge.len > to.len)
			sge.len = to.len;
		if (sge.len > f->len - f->posted)
			sge.len = f->len - f->posted;
		if (sge.len > device->limits.max_op_bytes)
			sge.len = device->limits.max_op_bytes;
		if (kind == PN_OP_WRITE && pn_transfer_notifies(device) &&
		    f->posted + sge.len == f->len) {
			op.flags = PN_OP_IMM;
			op.imm = f->number;
		}
		ret = pn_device_post(device, f->way->peer, &op);
		if (ret)
			return ret;
		request->ep->noperations++;
		f->inflight++;
		f->posted += sge.len;
	}
	return 0;
}

/* With several rails a packet at a time: while this one copies, others wait for
 * their fragments to be begun. */
static int pump_data(struct pn_fragment *f)
{
	struct pinion_request *request = f->request;
	size_t before = f->posted;

	while (f->posted < f->len) {
		size_t at = f->offset + f->posted, len = f->len - f->posted;
		struct pn_wire wire;
		int ret;

		if (f->posted != before && request->ep->nrails > 1)
			return -EAGAIN;
		if (len > request->ep->limits.packet_bytes)
			len = request->ep->limits.packet_bytes;
		pn_packet_for(request, &wire, PN_WIRE_DATA);
		wire.offset = at;
		ret = pn_packet_try(request->peer, &wire, request->buf + at,
				    len);
		if (ret)
			return ret;
		f->posted += len;
	}
	return 0;
}

int pn_fragment_pump(struct pn_fragment *f)
{
	struct pinion_request *request = f->request;
	size_t len = f->len;
	int ret = 0;

	switch (f->kind) {
	case PN_FRAGMENT_DATA:
		ret = pump_data(f);
		if (!ret) {
			pn_fragment_drop(f);
			pn_sender_moved(request, len);
			return 0;
		}
		break;
	case PN_FRAGMENT_WRITE:
		ret = pump_rdma(f, PN_OP_WRITE);
		break;
	case PN_FRAGMENT_READ:
		ret = pump_rdma(f, PN_OP_READ);
		break;
	case PN_FRAGMENT_LOST:
	case PN_FRAGMENT_TARGET:
		break;
	}
	/* The way is going down; PEER_DOWN will say so. */
	if (ret == -ECONNRESET && pn_way_has_others(f->way))
		ret = -EAGAIN;
	if (ret && ret != -EAGAIN) {
		f->status = ret;
		if (!f->inflight)
			pn_fragment_drop(f);
		pn_transfer_fail(request, ret);
	}
	return ret;
}

void pn_fragment_stall(struct pn_fragment *f)
{
	pn_list_append(&f->way->stalled, &f->stall);
	pn_peer_busy(f->request->peer);
}

void pn_fragment_start(struct pn_fragment *f)
{
	if (!pn_list_empty(&f->way->stalled) || pn_fragment_pump(f) == -EAGAIN)
		pn_fragment_stall(f);
}
