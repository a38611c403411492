/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Ways that go down, and operations that end badly through no fault of theirs.
 *
 * The receiver announces again, over another conn, what it expected over this
 * one; then it says DOWN. The sender loses what it was writing there: such a
 * fragment is LOST until it is announced again or the peer's DOWN comes without
 * that, since then it had arrived. A device says PEER_DOWN only when nothing of
 * that conn can touch memory any more, so a write of the old announcement never
 * lands behind one of the new. doc/design/rails.md goes through the cases.
 */
#include <errno.h>

#include "message/twosided/transfer_impl.h"

/* Receiver: what was to come over another conn is asked for again. Of a read
 * the sender has not heard before. */
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
	ret = pn_receiver_announce(f);
	if (ret)
		pn_transfer_fail(request, ret);
}

/* Sender: all operations of a write have ended, not all well. */
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

/* A fragment whose conn has gone; afterwards it is on another one, or LOST. */
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
		/* What comes by DATA is not concerned. */
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

/* One that is on a conn, LOST or else what the device is done with. */
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

/* An operation ended so because its conn does not work, not because of what it
 * was to do: a refusal says nothing of the conn. */
static bool is_connection_fault(const struct pn_fragment *f)
{
	return f->rdma.status == -ECONNRESET && !f->rdma.request->status &&
	       pn_connection_has_alternative(f->rdma.conn);
}

/* Nothing was wrong with it: an operation before it was refused, and the device
 * had to start over. Of its own none was; what arrived is written once more. */
static bool was_flushed(const struct pn_fragment *f)
{
	return f->rdma.status == -ECANCELED && !f->rdma.request->status;
}

/* The same of a request that has failed: it waits for the peer's DOWN. */
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

/* PEER_DOWN comes behind the last of them and asks for what was to be read. */
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
