/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Ways that go down, and operations that end badly through no fault of theirs.
 *
 * The receiver announces again, over another way, what it expected over this
 * one; then it says DOWN. The sender loses what it was writing there: such a
 * fragment is LOST until it is announced again or the peer's DOWN comes without
 * that, since then it had arrived. A device says PEER_DOWN only when nothing of
 * that way can touch memory any more, so a write of the old announcement never
 * lands behind one of the new. doc/design/rails.md goes through the cases.
 */
#include <errno.h>

#include "message/transfer_impl.h"

/* Receiver: what was to come over another way is asked for again. Of a read
 * the sender has not heard before. */
static void announce_again(struct pn_fragment *f)
{
	struct pinion_request *request = f->request;
	int ret;

	pn_rail_forget(f, false);
	pn_list_remove(&f->stall);
	pn_fragment_unpin(f);
	f->again |= f->kind == PN_FRAGMENT_TARGET;
	f->kind = PN_FRAGMENT_TARGET;
	f->status = 0;
	f->way = pn_rail_instead(request, f->len);
	if (pn_fragment_pin(f, PINION_ACCESS_REMOTE_WRITE))
		request->ep->stats.copied_no_budget++;
	request->ep->stats.resent++;
	ret = pn_receiver_announce(f);
	if (ret)
		pn_transfer_fail(request, ret);
}

/* Sender: all operations of a write have ended, not all well. */
static void lost(struct pn_fragment *f)
{
	struct pinion_request *request = f->request;
	size_t len = f->len;

	pn_list_remove(&f->stall);
	pn_fragment_unpin(f);
	if (f->again) {
		pn_sender_begin(f, f->next_way);
	} else if (f->way->swept) {
		pn_fragment_drop(f);
		pn_sender_moved(request, len);
	} else {
		f->kind = PN_FRAGMENT_LOST;
	}
}

/* A fragment whose way has gone; afterwards it is on another one, or LOST. */
static void take_off(struct pn_fragment *f, struct pn_way *instead)
{
	switch (f->kind) {
	case PN_FRAGMENT_WRITE:
		lost(f);
		return;
	case PN_FRAGMENT_READ:
		announce_again(f);
		return;
	case PN_FRAGMENT_TARGET:
		/* What comes by DATA is not concerned. */
		if (f->pinned && !f->arrived) {
			announce_again(f);
			return;
		}
		pn_rail_forget(f, false);
		pn_fragment_unpin(f);
		f->way = instead;
		return;
	default:
		f->way = instead;
		if (pn_list_empty(&f->stall))
			return;
		pn_list_remove(&f->stall);
		pn_fragment_stall(f);
	}
}

/* One that is on a way, LOST or else what the device is done with. */
static struct pn_fragment *next_on(struct pinion_request *request,
				   const struct pn_way *way, bool lost)
{
	struct pn_list *pos;

	pn_list_for_each (pos, &request->fragments) {
		struct pn_fragment *f =
			pn_container_of(pos, struct pn_fragment, link);

		if (f->way == way && (f->kind == PN_FRAGMENT_LOST) == lost &&
		    (lost || !f->inflight))
			return f;
	}
	return NULL;
}

void pn_transfer_way_down(struct pn_way *way)
{
	struct pinion_peer *peer = way->owner;
	struct pn_list *pos, *next;

	pn_list_for_each_safe (pos, next, &peer->requests) {
		struct pinion_request *request =
			pn_container_of(pos, struct pinion_request, peer_link);
		struct pn_fragment *f;

		while (!request->ended && (f = next_on(request, way, false)))
			take_off(f, peer->way);
	}
}

void pn_transfer_swept(struct pn_way *way)
{
	struct pn_list *pos, *next;

	pn_list_for_each_safe (pos, next, &way->owner->requests) {
		struct pinion_request *request =
			pn_container_of(pos, struct pinion_request, peer_link);
		struct pn_fragment *f;

		while (!request->ended && (f = next_on(request, way, true))) {
			if (!request->status) {
				lost(f);
				continue;
			}
			pn_fragment_drop(f);
			pn_request_end(request, request->status);
		}
	}
}

/* An operation ended so because its way does not work, not because of what it
 * was to do: a refusal says nothing of the way. */
static bool is_ways_fault(const struct pn_fragment *f)
{
	return f->status == -ECONNRESET && !f->request->status &&
	       pn_way_has_others(f->way);
}

/* Nothing was wrong with it: an operation before it was refused, and the device
 * had to start over. Of its own none was; what arrived is written once more. */
static bool is_innocent(const struct pn_fragment *f)
{
	return f->status == -ECANCELED && !f->request->status;
}

static void do_again(struct pn_fragment *f)
{
	pn_list_remove(&f->stall);
	f->status = 0;
	f->posted = 0;
	pn_fragment_start(f);
}

/* The same of a request that has failed: it waits for the peer's DOWN. */
static bool is_lost_late(const struct pn_fragment *f)
{
	return f->status == -ECONNRESET && f->request->status &&
	       f->kind == PN_FRAGMENT_WRITE && !f->way->swept &&
	       !f->request->peer->down && pn_way_has_others(f->way);
}

static void lose_late(struct pn_fragment *f)
{
	pn_fragment_unpin(f);
	f->kind = PN_FRAGMENT_LOST;
	pn_way_break(f->way);
}

/* PEER_DOWN comes behind the last of them and asks for what was to be read. */
static void way_failed(struct pn_fragment *f)
{
	struct pn_way *way = f->way;

	if (f->kind == PN_FRAGMENT_WRITE)
		lost(f);
	else if (way->down)
		announce_again(f);
	pn_way_break(way);
}

bool pn_failover_takes(struct pn_fragment *f)
{
	if (is_ways_fault(f))
		way_failed(f);
	else if (is_innocent(f))
		do_again(f);
	else if (is_lost_late(f))
		lose_late(f);
	else
		return false;
	return true;
}
