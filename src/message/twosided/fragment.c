/* SPDX-License-Identifier: BSD-2-Clause */
/* Fragments: their storage, their pins, and what they post to the device. */
#include <errno.h>
#include <stdlib.h>

#include "message/twosided/transfer_impl.h"

/* --- storage and pins ----------------------------------------------------- */

struct pn_fragment *pn_fragment_add(struct pinion_request *request,
				    enum pn_fragment_kind kind, size_t offset,
				    size_t len)
{
	struct pn_list *link =
		pn_list_pop(&request->ep->transfers.free_fragments);
	struct pn_fragment *f =
		link ? pn_container_of(link, struct pn_fragment, link)
		     : malloc(sizeof(*f));

	if (!f)
		return NULL;
	f->operation = (struct pn_operation_context){ PN_OPERATION_FRAGMENT,
						      request->ep };
	f->kind = kind;
	f->request = request;
	f->conn = request->peer->conn;
	f->offset = offset;
	f->len = len;
	f->posted = f->arrived = 0;
	f->inflight = f->nkeys = 0;
	f->status = 0;
	f->pinned = f->expected = f->again = false;
	pn_list_init(&f->stall_link);
	pn_list_append(&request->transfer.fragments, &f->link);
	request->transfer.nfragments++;
	return f;
}

void pn_fragment_detach(struct pn_fragment *f)
{
	pn_rail_expect_done(f, false);
	pn_list_remove(&f->stall_link);
	pn_list_remove(&f->link);
	f->request->transfer.nfragments--;
}

void pn_fragment_unpin(struct pn_fragment *f)
{
	if (f->pinned)
		pn_cache_unpin(f->conn->rail->cache, &f->pin);
	f->pinned = false;
}

void pn_fragment_free(struct pinion_endpoint *ep, struct pn_fragment *f)
{
	pn_fragment_unpin(f);
	pn_list_insert(&ep->transfers.free_fragments, &f->link);
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
	if (!request->transfer.shape.keep)
		return access | PINION_PIN_BYPASS;
	if (request->ep->protocol != PN_PROTOCOL_AUTO)
		return access;
	return access |
	       (request->is_send ? PN_SOURCE_ACCESS : PN_TARGET_ACCESS);
}

/* What `auto` keeps of a buffer that goes whole is all of it: the next message
 * may go by a protocol that wants the first bytes, too. */
static void pin_whole(struct pn_fragment *f, unsigned access)
{
	struct pinion_request *request = f->request;
	struct pn_cache *cache = f->conn->rail->cache;
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

	if (whole && request->transfer.shape.keep &&
	    f->offset <= request->ep->limits.match_bytes &&
	    request->ep->protocol == PN_PROTOCOL_AUTO)
		pin_whole(f, access);
	ret = pn_cache_pin(f->conn->rail->cache, request->buf + f->offset,
			   f->len, pn_fragment_access(request, access),
			   &f->pin);

	f->pinned = !ret;
	return ret;
}

/* --- operations of the device --------------------------------------------- */

/* Where a fragment goes on: in its own pin or in the one of all the source. */
static struct pn_sge local_sge(const struct pn_fragment *f)
{
	if (f->pinned)
		return pn_pin_at(&f->pin, f->posted);
	return pn_pin_at(&f->request->transfer.source, f->offset + f->posted);
}

static struct pn_wire_key remote_key(const struct pn_fragment *f)
{
	const struct pinion_request *request = f->request;

	if (f->kind == PN_FRAGMENT_WRITE)
		return pn_keys_at(f->keys, f->nkeys, f->posted);
	return pn_keys_on_rail(request->transfer.keys, request->transfer.nkeys,
			       request->transfer.key_rails,
			       pn_connection_remote_rail(f->conn),
			       f->offset + f->posted);
}

/* Posts RDMA operations until all of the fragment is out. */
static int post_rdma(struct pn_fragment *f, enum pn_op_kind kind)
{
	struct pinion_request *request = f->request;
	struct pn_device *device = f->conn->rail->device;

	if (!f->conn->up)
		return -EAGAIN;
	/* Its last operation tells the receiver that all were well. */
	while (f->posted < f->len && !f->status) {
		struct pn_sge sge = local_sge(f);
		struct pn_wire_key to = remote_key(f);
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
		ret = pn_device_post(device, f->conn->device_peer, &op);
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
static int post_data(struct pn_fragment *f)
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
		pn_packet_header(request, &wire, PN_WIRE_DATA);
		wire.offset = at;
		ret = pn_packet_try_send(request->peer, &wire,
					 request->buf + at, len);
		if (ret)
			return ret;
		f->posted += len;
	}
	return 0;
}

int pn_fragment_post(struct pn_fragment *f)
{
	struct pinion_request *request = f->request;
	size_t len = f->len;
	int ret = 0;

	switch (f->kind) {
	case PN_FRAGMENT_DATA:
		ret = post_data(f);
		if (!ret) {
			pn_fragment_drop(f);
			pn_sender_moved(request, len);
			return 0;
		}
		break;
	case PN_FRAGMENT_WRITE:
		ret = post_rdma(f, PN_OP_WRITE);
		break;
	case PN_FRAGMENT_READ:
		ret = post_rdma(f, PN_OP_READ);
		break;
	case PN_FRAGMENT_LOST:
	case PN_FRAGMENT_TARGET:
		break;
	}
	/* The conn is going down; PEER_DOWN will say so. */
	if (ret == -ECONNRESET && pn_connection_has_alternative(f->conn))
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
	pn_list_append(&f->conn->stalled, &f->stall_link);
	pn_peer_add_pending(f->request->peer);
}

void pn_fragment_start(struct pn_fragment *f)
{
	if (!pn_list_empty(&f->conn->stalled) || pn_fragment_post(f) == -EAGAIN)
		pn_fragment_stall(f);
}
