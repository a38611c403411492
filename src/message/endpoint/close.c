/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The end of an endpoint.
 *
 * Devices may outlive the endpoint, and another endpoint may be opened on them.
 * Nothing of the old endpoint may reach the new one, so its connections end
 * with it. On each connection a BYE, which is an empty send, follows everything
 * else, including packets that waited for the queue. When the BYE has arrived,
 * so has the last message that was reported as sent, and the connection is
 * detached. PEER_DOWN comes when the peer cannot touch memory here any more. A
 * loopback connection stays, since it is the device's own: the endpoint waits
 * until the BYE has come back, and nothing of this endpoint follows it.
 *
 * Operations point into the endpoint's memory, so the endpoint waits for their
 * completions, too. All of this takes CLOSE_TIMEOUT_NS at most. What has not
 * ended by then (the peer is stopped, say) is orphaned: the endpoint's memory
 * stays until the device has completed its last operation, whoever polls the
 * device, or has closed. Registrations end in any case; devices allow that
 * while operations use them. An endpoint that owns its devices closes them and
 * leaves nothing behind.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/stats_segment.h"
#include "message/connection/connection.h"
#include "message/connection/packet.h"
#include "message/connection/rail.h"
#include "message/endpoint/endpoint.h"
#include "message/endpoint/request.h"
#include "message/matching/matching.h"
#include "message/onesided/onesided.h"
#include "message/protocol/select.h"
#include "message/twosided/direct.h"
#include "message/twosided/transfer.h"

#define CLOSE_TIMEOUT_NS PN_NS_PER_S

/* The owner of a device's peer whose endpoint is closed: all it sends is
 * ignored. */
static struct pinion_peer closed_peer = { .down = -ECONNRESET };
static struct pn_connection closed_connection = { .peer = &closed_peer,
						  .down = -ECONNRESET };

static void for_connections(struct pinion_endpoint *ep,
			    void (*fn)(struct pn_connection *conn))
{
	struct pn_list *pos;

	pn_list_for_each (pos, &ep->peers) {
		struct pinion_peer *peer =
			pn_container_of(pos, struct pinion_peer, link);

		for (unsigned r = 0; r < ep->nrails; r++)
			if (peer->conns[r].device_peer)
				fn(&peer->conns[r]);
	}
}

/* --- closing connections -------------------------------------------------- */

static void begin_close(struct pn_connection *conn)
{
	if (conn->down)
		return;
	conn->close_state = PN_CLOSE_PENDING;
	conn->peer->ep->nclosing++;
}

static void end_close(struct pn_connection *conn)
{
	conn->close_state = PN_CLOSE_NONE;
	conn->peer->ep->nclosing--;
}

/* PEER_DOWN follows. A loopback connection on which nothing was sent stays. */
static void detach(struct pn_connection *conn)
{
	if (pn_connection_is_loopback(conn) ||
	    pn_device_detach(conn->rail->device, conn->device_peer))
		end_close(conn);
	else
		conn->close_state = PN_CLOSE_DETACHED;
}

/* Posts the packets that waited for the queue, since a peer may wait for them,
 * but not those of sends that have not ended. False: the queue is still full.
 */
static bool flush_queued(struct pn_connection *conn)
{
	struct pinion_peer *peer = conn->peer;

	if (peer->conn != conn || peer->sequenced)
		return true;
	while (!pn_list_empty(&peer->packets)) {
		struct pn_queued_packet *p =
			pn_container_of(peer->packets.next,
					struct pn_queued_packet, link);

		if (!p->request && pn_packet_post(conn, &p->wire, p->payload,
						  p->len) == -EAGAIN)
			return false;
		pn_list_remove(&p->link);
		pn_pool_put(&peer->ep->packets.queued, p);
	}
	return true;
}

static void send_bye(struct pn_connection *conn)
{
	const struct pn_op bye = { .kind = PN_OP_SEND, .user = &conn->bye };
	struct pinion_endpoint *ep = conn->peer->ep;
	int ret;

	if (conn->close_state != PN_CLOSE_PENDING)
		return;
	if (!conn->device_peer->up) {
		detach(conn);
		return;
	}
	if (!flush_queued(conn))
		return;
	conn->bye = (struct pn_operation_context){ PN_OPERATION_BYE, ep };
	ret = pn_device_post(conn->rail->device, conn->device_peer, &bye);
	if (!ret) {
		ep->noperations++;
		conn->close_state = PN_CLOSE_BYE_SENT;
	} else if (ret != -EAGAIN) {
		detach(conn);
	}
}

/* --- completions while closing -------------------------------------------- */

static void on_op(struct pinion_endpoint *ep,
		  struct pn_operation_context *operation)
{
	struct pn_connection *conn =
		pn_container_of(operation, struct pn_connection, bye);

	if (operation->ep != ep) {
		pn_endpoint_orphan_done(operation->ep);
		return;
	}
	ep->noperations--;
	if (operation->kind == PN_OPERATION_BYE &&
	    conn->close_state == PN_CLOSE_BYE_SENT &&
	    !pn_connection_is_loopback(conn))
		detach(conn);
}

static bool is_own_address(const struct pn_peer *device_peer)
{
	struct pn_address own;

	pn_device_address(device_peer->device, &own);
	return own.len == device_peer->address.len &&
	       !memcmp(own.data, device_peer->address.data, own.len);
}

void pn_connection_refuse(struct pn_peer *device_peer)
{
	device_peer->user = &closed_connection;
	pn_device_detach(device_peer->device, device_peer);
}

static void on_completion(struct pinion_endpoint *ep,
			  const struct pn_completion *c)
{
	struct pn_connection *conn = c->peer->user;
	bool ours = conn && conn->peer->ep == ep;

	/* A new peer. Its first packets are dropped here, so the next endpoint
	 * could not make sense of the rest: refuse it. */
	if (!conn && c->kind != PN_COMPLETION_PEER_DOWN &&
	    !is_own_address(c->peer))
		pn_connection_refuse(c->peer);
	if (c->kind == PN_COMPLETION_OP && c->user) {
		on_op(ep, c->user);
	} else if (c->kind == PN_COMPLETION_RECV) {
		if (ours && !c->len && conn->close_state == PN_CLOSE_BYE_SENT &&
		    pn_connection_is_loopback(conn))
			end_close(conn);
		pn_device_return_buffer(c->peer->device, c);
	} else if (c->kind == PN_COMPLETION_PEER_DOWN && ours) {
		if (conn->close_state)
			end_close(conn);
		conn->down = c->status ? c->status : -ECONNRESET;
	}
}

static bool poll_one(struct pinion_endpoint *ep, struct pn_device *device)
{
	struct pn_completion c;

	if (!pn_device_poll(device, &c, 1))
		return false;
	on_completion(ep, &c);
	return true;
}

static void drain(struct pinion_endpoint *ep)
{
	uint64_t deadline = pn_device_now(ep->device) + CLOSE_TIMEOUT_NS;

	for_connections(ep, begin_close);
	while ((ep->nclosing || ep->noperations) &&
	       pn_device_now(ep->device) < deadline) {
		bool moved = false;

		for_connections(ep, send_bye);
		for (unsigned r = 0; r < ep->nrails; r++)
			moved |= poll_one(ep, ep->rails[r].device);
		if (!moved && (ep->nclosing || ep->noperations) &&
		    pn_device_wait_any(ep->devices, ep->nrails, deadline))
			return;
	}
}

/* The device's peer outlives the connection. */
static void unbind(struct pn_connection *conn)
{
	bool stays = pn_connection_is_loopback(conn) && !conn->close_state &&
		     !conn->down;

	if (conn->close_state == PN_CLOSE_PENDING ||
	    conn->close_state == PN_CLOSE_BYE_SENT)
		pn_device_detach(conn->rail->device, conn->device_peer);
	conn->device_peer->user = stays ? NULL : &closed_connection;
}

/* --- memory --------------------------------------------------------------- */

/* Requests that never ended still hold pins of fragments. */
static void unpin_unfinished(struct pinion_endpoint *ep,
			     struct pinion_request *request)
{
	struct pn_list *link;

	while ((link = pn_list_pop(&request->transfer.fragments))) {
		struct pn_fragment *f =
			pn_container_of(link, struct pn_fragment, rdma.link);

		pn_rdma_unpin(&f->rdma);
		pn_pool_put(&ep->transfers.fragments, f);
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

		free_list(&peer->packets,
			  offsetof(struct pn_queued_packet, link));
		pn_retransmit_drop(peer);
	}
	free_list(&ep->matching.unexpected.entries,
		  offsetof(struct pinion_unexpected, link));
	free_list(&ep->matching.probed,
		  offsetof(struct pinion_unexpected, link));
	pn_matching_fini(&ep->matching);
	pn_pool_fini(&ep->transfers.fragments);
	free_list(&ep->peers, offsetof(struct pinion_peer, link));
	pn_onesided_free_fragments(ep);
	pn_requests_free(ep);
	pn_packets_free(ep);
	pn_direct_free(ep);
	pn_stats_free(ep);
}

void pn_endpoint_orphan_done(struct pinion_endpoint *ep)
{
	if (--ep->noperations)
		return;
	pn_device_remove_cleanup(ep->device, &ep->cleanup);
	free_all(ep);
}

/* The first device closes last: no operation completes any more. */
static void on_device_closed(struct pn_device_cleanup *cleanup)
{
	free_all(pn_container_of(cleanup, struct pinion_endpoint, cleanup));
}

static void orphan(struct pinion_endpoint *ep)
{
	pn_warn("an endpoint closes with %u operations that do not end; its "
		"memory is kept until they do",
		ep->noperations);
	ep->cleanup.fn = on_device_closed;
	pn_device_add_cleanup(ep->device, &ep->cleanup);
}

/* A closed device executes no operation and completes none. */
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
	pn_progress_thread_remove(ep);
	PN_ENDPOINT_CHECK(ep);
	pn_rails_set_owner(ep, false, false);
	drain(ep);
	PN_ENDPOINT_CHECK_CLOSING(ep);
	/* Before registrations end: a device may wait until a peer has released
	 * one, which a peer that is detached need not do. */
	for_connections(ep, unbind);
	for (uint32_t i = 0; i < ep->requests.nrequests; i++)
		unpin_unfinished(ep, ep->requests.table[i]);
	pn_onesided_fini(ep);
	pn_endpoint_close_descriptors(ep);
	pn_direct_close(ep);
	pn_reuse_fini(&ep->reuse);
	pn_packets_close(ep);
	for (unsigned r = 0; r < ep->nrails; r++)
		pn_protocol_selector_close(ep->selectors[r]);
	pn_endpoint_fini_locks(ep);
	if (ep->owns_devices)
		close_devices(ep);
	if (ep->noperations)
		orphan(ep);
	else
		free_all(ep);
}
