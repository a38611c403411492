/* SPDX-License-Identifier: BSD-2-Clause */
/* Fragments of messages: their storage, their pins, what they post, and what
 * their end means. */
#include <errno.h>

#include "message/twosided/transfer_impl.h"

/* --- storage and pins ----------------------------------------------------- */

struct pn_fragment *pn_fragment_add(struct pinion_request *request,
				    enum pn_fragment_kind kind, size_t offset,
				    size_t len)
{
	struct pn_fragment *f = pn_pool_get(&request->ep->transfers.fragments);

	if (!f)
		return NULL;
	pn_rdma_init(&f->rdma, &pn_transfer_rdma_ops, request, offset, len);
	f->kind = kind;
	f->arrived = 0;
	f->nkeys = 0;
	f->expected = f->again = false;
	pn_list_append(&request->transfer.fragments, &f->rdma.link);
	request->transfer.nfragments++;
	return f;
}

void pn_fragment_detach(struct pn_fragment *f)
{
	pn_rail_expect_done(f, false);
	pn_rdma_unstall(&f->rdma);
	pn_list_remove(&f->rdma.link);
	f->rdma.request->transfer.nfragments--;
}

void pn_fragment_free(struct pinion_endpoint *ep, struct pn_fragment *f)
{
	pn_rdma_unpin(&f->rdma);
	pn_pool_put(&ep->transfers.fragments, f);
}

void pn_fragment_drop(struct pn_fragment *f)
{
	struct pinion_endpoint *ep = f->rdma.request->ep;

	pn_fragment_detach(f);
	pn_fragment_free(ep, f);
}

/* What is not kept is registered apart from the cache; but what the helper has
 * registered, or is registering, would be registered twice. The middle of the
 * buffer tells, since its ends may share pages with other buffers. */
static bool goes_apart(const struct pinion_request *request,
		       struct pn_cache *cache)
{
	return !request->transfer.shape.keep &&
	       !(request->ep->helper &&
		 pn_cache_will_hold(cache, request->buf + request->total / 2));
}

/* What a registration must allow. One that `auto` keeps serves all protocols,
 * since the next message may go by another. */
unsigned pn_fragment_access(const struct pinion_request *request,
			    struct pn_cache *cache, unsigned access)
{
	if (goes_apart(request, cache))
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
	struct pinion_request *request = f->rdma.request;
	struct pn_cache *cache = f->rdma.conn->rail->cache;
	struct pinion_pin pin;

	if (!pn_cache_pin_no_listener(cache, request->buf, request->total,
				      pn_fragment_access(request, cache,
							 access),
				      &pin))
		pn_cache_unpin(cache, &pin);
}

int pn_fragment_pin(struct pn_fragment *f, unsigned access)
{
	struct pinion_request *request = f->rdma.request;
	bool whole = f->rdma.offset &&
		     f->rdma.offset + f->rdma.len == request->total;

	if (whole && request->transfer.shape.keep &&
	    f->rdma.offset <= request->ep->limits.match_bytes &&
	    request->ep->protocol == PN_PROTOCOL_AUTO)
		pin_whole(f, access);
	return pn_rdma_pin(&f->rdma,
			   pn_fragment_access(request,
					      f->rdma.conn->rail->cache,
					      access));
}

/* --- operations ----------------------------------------------------------- */

/* In the fragment's own pin, or in the pin of the whole source. */
static struct pn_sge local_sge(const struct pn_rdma_fragment *rdma)
{
	if (rdma->pinned)
		return pn_pin_at(&rdma->pin, rdma->posted);
	return pn_pin_at(&rdma->request->transfer.source,
			 rdma->offset + rdma->posted);
}

static struct pn_wire_key remote_key(const struct pn_fragment *f)
{
	const struct pn_transfer *transfer = &f->rdma.request->transfer;

	if (f->kind == PN_FRAGMENT_WRITE)
		return pn_keys_at(f->keys, f->nkeys, f->rdma.posted);
	return pn_keys_on_rail(transfer->keys, transfer->nkeys,
			       transfer->key_rails,
			       pn_connection_remote_rail(f->rdma.conn),
			       f->rdma.offset + f->rdma.posted);
}

static int locate(const struct pn_rdma_fragment *rdma, struct pn_sge *local,
		  struct pn_wire_key *remote)
{
	*local = local_sge(rdma);
	*remote = remote_key(pn_fragment_of(rdma));
	return remote->len ? 0 : -EPROTO;
}

/* The last write of a fragment tells the receiver that all were successful. */
static void describe(const struct pn_rdma_fragment *rdma, struct pn_op *op)
{
	const struct pn_fragment *f = pn_fragment_of(rdma);

	op->kind = f->kind == PN_FRAGMENT_WRITE ? PN_OP_WRITE : PN_OP_READ;
	if (op->kind == PN_OP_WRITE &&
	    pn_transfer_notifies(rdma->conn->rail->device) &&
	    rdma->posted + op->sge->len == rdma->len) {
		op->flags = PN_OP_IMM;
		op->imm = f->number;
	}
}

void pn_fragment_start(struct pn_fragment *f)
{
	f->rdma.by_packets = f->kind == PN_FRAGMENT_DATA;
	pn_rdma_start(&f->rdma);
}

/* --- the end -------------------------------------------------------------- */

static void drop(struct pn_rdma_fragment *rdma)
{
	pn_fragment_drop(pn_fragment_of(rdma));
}

static void fail(struct pn_fragment *f)
{
	struct pinion_request *request = f->rdma.request;
	int status = f->rdma.status;

	pn_fragment_drop(f);
	pn_transfer_fail(request, status);
}

static void sent_by_packets(struct pn_fragment *f)
{
	struct pinion_request *request = f->rdma.request;
	size_t len = f->rdma.len;

	pn_fragment_drop(f);
	pn_sender_moved(request, len);
}

static void ended(struct pn_rdma_fragment *rdma)
{
	struct pn_fragment *f = pn_fragment_of(rdma);

	if (pn_unlikely(rdma->status) && pn_failover_handles(f))
		return;
	if (rdma->status || rdma->request->status)
		fail(f);
	else if (f->kind == PN_FRAGMENT_WRITE)
		pn_sender_written(f);
	else if (f->kind == PN_FRAGMENT_DATA)
		sent_by_packets(f);
	else
		pn_receiver_arrived(f);
}

const struct pn_rdma_ops pn_transfer_rdma_ops = {
	.user = PN_RDMA_TWOSIDED,
	.fails_over = true,
	.locate = locate,
	.describe = describe,
	.ended = ended,
	.drop = drop,
};
