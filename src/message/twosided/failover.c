/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fragments whose connection goes down, and operations that fail through no
 * fault of their own.
 *
 * The receiver announces again, over another connection, what it expected over
 * the failed one; then it sends DOWN. The sender marks the fragments that it
 * was writing there as lost (rdma.lost). A lost fragment waits until the
 * receiver announces it again, or sends DOWN without announcing it: then the
 * fragment had arrived. A device says PEER_DOWN only when nothing of that
 * connection can touch memory any more, so a write for the old announcement
 * never arrives after one for the new. doc/design/rails.md goes through the
 * cases.
 */
#include <errno.h>

#include "message/twosided/transfer_impl.h"

/* Receiver: announces a fragment of a failed connection on another one. The
 * sender has not heard of a read before. */
static void announce_again(struct pn_fragment *f)
{
	struct pinion_request *request = f->rdma.request;
	int ret;

	pn_rail_expect_done(f, false);
	pn_rdma_unstall(&f->rdma);
	pn_rdma_unpin(&f->rdma);
	f->again |= f->kind == PN_FRAGMENT_TARGET;
	f->kind = PN_FRAGMENT_TARGET;
	f->rdma.status = 0;
	f->rdma.conn = pn_rail_choose_alternative(request, f->rdma.len);
	if (pn_fragment_pin(f, PINION_ACCESS_REMOTE_WRITE))
		request->ep->stats.copied_no_budget++;
	request->ep->stats.resent++;
	ret = pn_receiver_send_ready(f);
	if (ret)
		pn_transfer_fail(request, ret);
}

/* Sender: all operations of a write have ended, some with errors. */
static void write_lost(struct pn_fragment *f)
{
	struct pinion_request *request = f->rdma.request;
	size_t len = f->rdma.len;

	pn_rdma_unstall(&f->rdma);
	pn_rdma_unpin(&f->rdma);
	if (f->again) {
		pn_sender_begin(f, f->next_conn);
	} else if (f->rdma.conn->down_received) {
		pn_fragment_drop(f);
		pn_sender_moved(request, len);
	} else {
		f->rdma.lost = true;
	}
}

/* The connection of a fragment is down: afterwards the fragment is on another
 * one, or lost. */
static void reroute(struct pn_fragment *f, struct pn_connection *instead)
{
	switch (f->kind) {
	case PN_FRAGMENT_WRITE:
		write_lost(f);
		return;
	case PN_FRAGMENT_READ:
		announce_again(f);
		return;
	case PN_FRAGMENT_TARGET:
		/* Fragments that come by DATA are not concerned. */
		if (f->rdma.pinned && !f->arrived) {
			announce_again(f);
			return;
		}
		pn_rail_expect_done(f, false);
		pn_rdma_unpin(&f->rdma);
		f->rdma.conn = instead;
		return;
	default:
		pn_rdma_move(&f->rdma, instead);
	}
}

/* A fragment on a connection: a lost one, or one without operations in flight.
 */
static struct pn_fragment *next_on(struct pinion_request *request,
				   const struct pn_connection *conn, bool lost)
{
	struct pn_list *pos;

	pn_list_for_each (pos, &request->transfer.fragments) {
		struct pn_fragment *f =
			pn_container_of(pos, struct pn_fragment, rdma.link);

		if (f->rdma.conn == conn && f->rdma.lost == lost &&
		    (lost || !f->rdma.inflight))
			return f;
	}
	return NULL;
}

void pn_failover_connection_down(struct pn_connection *conn)
{
	struct pinion_peer *peer = conn->peer;
	struct pn_list *pos, *next;

	pn_list_for_each_safe (pos, next, &peer->requests) {
		struct pinion_request *request =
			pn_container_of(pos, struct pinion_request, peer_link);
		struct pn_fragment *f;

		while (!request->ended && (f = next_on(request, conn, false)))
			reroute(f, peer->conn);
	}
}

void pn_failover_remote_down(struct pn_connection *conn)
{
	struct pn_list *pos, *next;

	pn_list_for_each_safe (pos, next, &conn->peer->requests) {
		struct pinion_request *request =
			pn_container_of(pos, struct pinion_request, peer_link);
		struct pn_fragment *f;

		while (!request->ended && (f = next_on(request, conn, true))) {
			if (!request->status) {
				write_lost(f);
				continue;
			}
			pn_fragment_drop(f);
			pn_request_end(request, request->status);
		}
	}
}

/* Whether operations failed because the connection does not work. An operation
 * that the peer refused says nothing about the connection. */
static bool is_connection_fault(const struct pn_fragment *f)
{
	return f->rdma.status == -ECONNRESET && !f->rdma.request->status &&
	       pn_connection_has_alternative(f->rdma.conn);
}

/* Whether operations were flushed because another one was refused, and the
 * device had to start over. None of the fragment's own was refused; bytes that
 * arrived are written once more. */
static bool was_flushed(const struct pn_fragment *f)
{
	return f->rdma.status == -ECANCELED && !f->rdma.request->status;
}

/* Whether a write of a failed request was lost: it waits for the peer's DOWN.
 */
static bool is_write_lost_late(const struct pn_fragment *f)
{
	return f->rdma.status == -ECONNRESET && f->rdma.request->status &&
	       f->kind == PN_FRAGMENT_WRITE && !f->rdma.conn->down_received &&
	       !f->rdma.request->peer->down &&
	       pn_connection_has_alternative(f->rdma.conn);
}

static void write_lost_late(struct pn_fragment *f)
{
	pn_rdma_unpin(&f->rdma);
	f->rdma.lost = true;
	pn_connection_break(f->rdma.conn);
}

/* A read is announced when PEER_DOWN comes, behind the last completion. */
static void connection_failed(struct pn_fragment *f)
{
	struct pn_connection *conn = f->rdma.conn;

	if (f->kind == PN_FRAGMENT_WRITE)
		write_lost(f);
	else if (conn->down)
		announce_again(f);
	pn_connection_break(conn);
}

bool pn_failover_handles(struct pn_fragment *f)
{
	if (is_connection_fault(f))
		connection_failed(f);
	else if (was_flushed(f))
		pn_rdma_restart(&f->rdma);
	else if (is_write_lost_late(f))
		write_lost_late(f);
	else
		return false;
	return true;
}
