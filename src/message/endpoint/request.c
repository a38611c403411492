/* SPDX-License-Identifier: BSD-2-Clause */
/* Requests: allocation, ids, and the end. request.h explains ids. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "message/connection/rail.h"
#include "message/endpoint/endpoint.h"
#include "message/endpoint/request.h"
#include "message/onesided/onesided.h"
#include "message/twosided/transfer.h"

#define INDEX_BITS PN_REQUEST_INDEX_BITS
#define INDEX_MASK ((UINT32_C(1) << INDEX_BITS) - 1)

static int grow_table(struct pinion_endpoint *ep)
{
	uint32_t n = ep->requests.ntable ? 2 * ep->requests.ntable : 64;
	struct pinion_request **table;

	if (n > INDEX_MASK)
		return -ENOMEM;
	table = realloc(ep->requests.table, n * sizeof(*table));
	if (!table)
		return -ENOMEM;
	ep->requests.table = table;
	ep->requests.ntable = n;
	return 0;
}

struct pinion_request *pn_request_new(struct pinion_endpoint *ep)
{
	struct pinion_request *request;

	if (ep->requests.nrequests == ep->requests.ntable && grow_table(ep))
		return NULL;
	request = calloc(1, sizeof(*request));
	if (!request)
		return NULL;
	/* Index 0 with generation 0 would be id 0, which means none. */
	request->id = ep->requests.nrequests | UINT32_C(1) << INDEX_BITS;
	ep->requests.table[ep->requests.nrequests++] = request;
	pn_list_init(&request->link);
	return request;
}

void pn_request_init_rest(struct pinion_request *request)
{
	struct pn_wire_key *keys = request->transfer.keys;
	struct pinion_pin *sources = request->transfer.sources;

	memset((char *)request + offsetof(struct pinion_request, call), 0,
	       sizeof(*request) - offsetof(struct pinion_request, call));
	request->transfer.keys = keys;
	request->transfer.sources = sources;
	pn_list_init(&request->transfer.fragments);
	pn_onesided_init_request(request);
}

struct pinion_request *pn_request_by_id(struct pinion_peer *peer, uint32_t id)
{
	struct pinion_endpoint *ep = peer->ep;
	uint32_t index = id & INDEX_MASK;
	struct pinion_request *request;

	if (index >= ep->requests.nrequests)
		return NULL;
	request = ep->requests.table[index];
	if (request->id != id || request->ended || request->peer != peer)
		return NULL;
	return request;
}

/* Index and count: no two fragments in flight have the same. */
uint32_t pn_request_new_immediate(struct pinion_request *request)
{
	return request->nimmediates++ << INDEX_BITS |
	       (request->id & INDEX_MASK);
}

struct pinion_request *pn_request_by_immediate(struct pinion_peer *peer,
					       uint32_t number)
{
	struct pinion_endpoint *ep = peer->ep;
	uint32_t index = number & INDEX_MASK;

	return index < ep->requests.nrequests
		       ? pn_request_by_id(peer, ep->requests.table[index]->id)
		       : NULL;
}

struct pinion_request *pn_request_find(struct pinion_peer *peer, uint32_t id,
				       bool is_send)
{
	struct pinion_request *request = pn_request_by_id(peer, id);

	return request && !request->kind && request->is_send == is_send
		       ? request
		       : NULL;
}

/* The storage stays with the request when it is used again. */
int pn_request_store_keys(struct pinion_request *request,
			  const struct pn_wire *wire, const uint8_t *payload)
{
	if (!wire->nkeys)
		return 0;
	if (!request->transfer.keys)
		request->transfer.keys = malloc(
			PN_WIRE_MAX_KEYS * sizeof(*request->transfer.keys));
	if (!request->transfer.keys)
		return -ENOMEM;
	memcpy(request->transfer.keys, payload,
	       wire->nkeys * sizeof(*request->transfer.keys));
	request->transfer.nkeys = wire->nkeys;
	request->transfer.key_rails =
		wire->kind == PN_WIRE_MATCH ? wire->offset : 0;
	return 0;
}

void pn_request_unpin(struct pinion_request *request)
{
	if (request->transfer.source_pinned)
		pn_cache_unpin(request->ep->cache, &request->transfer.source);
	request->transfer.source_pinned = false;
	if (request->transfer.exposed)
		pn_transfer_unpin_source(request);
}

static bool is_truncated(const struct pinion_request *request)
{
	return !request->is_send && request->message_len > request->len;
}

static void tell(struct pinion_request *request)
{
	bool tells = request->sends_fail;

	request->sends_fail = false;
	if (tells && request->kind)
		pn_grant_send_fail(request);
	else if (tells)
		pn_transfer_send_fail(request);
}

/* From here on the program may reap the request. */
static void finish(struct pinion_request *request)
{
	struct pinion_endpoint *ep = request->ep;

	request->ended = true;
	if (ep->helper && !request->kind)
		request->call.copied = !request->transfer.shape.fragment ||
				       !request->transfer.shape.keep;
	pn_helper_done(ep->helper, &request->call);
	pn_list_remove(&request->peer_link);
	if (pn_unlikely(request->hashed))
		pn_match_unhash(&ep->matching, request);
	pn_list_remove(&request->link);
	if (!request->has_handle)
		pn_list_append(&ep->requests.done, &request->link);
	/* The owner of the request may sleep in the device, which has nothing
	 * more to signal, or on the descriptor. */
	pn_endpoint_wake_waiting(ep);
}

void pn_request_end(struct pinion_request *request, int status)
{
	if (request->ended)
		return;
	if (status && !request->status)
		request->status = status;
	if (status && request->kind)
		pn_rdma_abandon(&request->onesided.fragments);
	else if (status)
		pn_rdma_abandon(&request->transfer.fragments);
	if (request->transfer.nfragments || request->npackets ||
	    request->onesided.nfragments ||
	    (pn_unlikely(request->awaits_got) && !request->status))
		return;
	pn_request_unpin(request);
	pn_rail_data_arrived(request, request->transfer.data_due);
	if (request->transfer.in_flight)
		pn_transfer_end(request);
	tell(request);
	if (pn_unlikely(request->sends_got) && !request->status)
		pn_transfer_send_got(request->peer, request->remote_id);
	/* Last: a truncated message is the error only if there is no other. */
	if (!request->status && is_truncated(request))
		request->status = -EMSGSIZE;
	finish(request);
	if (request->kind)
		pn_onesided_ended(request);
}

void pn_request_end_short(struct pinion_request *request)
{
	if (pn_unlikely(is_truncated(request)))
		request->status = -EMSGSIZE;
	request->rest_is_clean = !request->ep->helper;
	finish(request);
}

void pn_request_reap(struct pinion_request *request,
		     struct pinion_completion *out)
{
	if (out)
		*out = (struct pinion_completion){
			.status = request->status,
			.flags = request->has_data ? PINION_COMPLETION_DATA : 0,
			.peer = request->peer,
			.tag = request->tag,
			.len = request->moved,
			.user = request->user,
			.data = (uint32_t)request->data,
			.data_high = (uint32_t)(request->data >> 32),
			.message_len = request->message_len,
			.buf = request->buf,
		};
	if (pn_unlikely(request->multi_recv) && --request->multi_recv->internal)
		out->flags |= PINION_COMPLETION_MORE;
	pn_list_remove(&request->link);
	pn_request_free(request);
}

void pn_requests_free(struct pinion_endpoint *ep)
{
	for (uint32_t i = 0; i < ep->requests.nrequests; i++) {
		struct pinion_request *request = ep->requests.table[i];

		free(request->transfer.keys);
		free(request->transfer.sources);
		free(request);
	}
	free(ep->requests.table);
}
