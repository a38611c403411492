/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The bytes of long operations: fi_read() from a peer's memory.
 *
 * A provider may report that a read has failed without saying which (shm, when
 * the memory at either end is gone). It is known when no other of the reads
 * that were posted before the report is in flight: every read ends. Should a
 * provider end a read after all that was taken for lost, it finds its memory:
 * the fetch stays until then, or until the device closes.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/log.h"
#include "device/fabric/fabric_impl.h"

struct pn_fabric_fetch *pn_fabric_fetch_get(struct pn_fabric_peer *peer)
{
	struct pn_fabric_fetch *fetch = malloc(sizeof(*fetch));

	if (!fetch)
		return NULL;
	fetch->peer = peer;
	fetch->pull = NULL;
	fetch->n = fetch->posted = fetch->ended = fetch->nlost = 0;
	fetch->status = 0;
	fetch->abandoned = false;
	return fetch;
}

/* What the provider refused or lost leaves the connection in a state that
 * nobody knows. The peer, whose operation this may be, is told. */
static void reset(struct pn_fabric_device *dev, struct pn_fabric_peer *peer,
		  int status)
{
	if (!peer->down && !peer->ended)
		pn_fabric_send_hello(dev, peer, PN_FABRIC_BYE);
	pn_fabric_peer_failed(dev, peer, status);
}

static void finish(struct pn_fabric_device *dev, struct pn_fabric_fetch *fetch)
{
	struct pn_fabric_peer *peer = fetch->peer;
	struct pn_fabric_packet *pull = fetch->pull;
	int status = fetch->status;
	uint32_t number = fetch->number;
	bool abandoned = fetch->abandoned;

	if (fetch->nlost) {
		fetch->abandoned = true;
	} else {
		pn_list_remove(&fetch->link);
		free(fetch);
	}
	if (abandoned)
		return;
	peer->rx.fetches--;
	if (status)
		reset(dev, peer, status);
	if (pull) {
		pull->fetch = NULL;
		pull->executed = true;
		if (!peer->down)
			pn_fabric_advance(dev, peer);
	} else if (!peer->down) {
		pn_fabric_read_ended(dev, peer, number, 0);
	}
}

static bool post_pieces(struct pn_fabric_device *dev,
			struct pn_fabric_fetch *fetch)
{
	while (fetch->posted < fetch->n && !fetch->status) {
		struct pn_fabric_piece *piece = &fetch->pieces[fetch->posted];
		ssize_t ret;

		piece->context.kind = PN_FABRIC_FETCH;
		piece->fetch = fetch;
		piece->number = dev->nreads;
		piece->ended = false;
		ret = fi_read(dev->ep, piece->addr, piece->from.len,
			      piece->desc, fetch->peer->addr, piece->from.addr,
			      piece->from.key, &piece->context);
		if (ret == -FI_EAGAIN)
			return false;
		if (ret) {
			fetch->status = pn_fabric_error((int)ret);
			break;
		}
		fetch->posted++;
		dev->nreads++;
	}
	return true;
}

static void finish_if_ended(struct pn_fabric_device *dev,
			    struct pn_fabric_fetch *fetch)
{
	if (fetch->ended + fetch->nlost == fetch->posted &&
	    (fetch->posted == fetch->n || fetch->status || fetch->abandoned))
		finish(dev, fetch);
}

void pn_fabric_fetch_start(struct pn_fabric_device *dev,
			   struct pn_fabric_fetch *fetch)
{
	fetch->peer->rx.fetches++;
	pn_list_append(&dev->fetches, &fetch->link);
	post_pieces(dev, fetch);
	finish_if_ended(dev, fetch);
}

void pn_fabric_fetches_post(struct pn_fabric_device *dev)
{
	struct pn_list *pos, *tmp;

	pn_list_for_each_safe (pos, tmp, &dev->fetches) {
		struct pn_fabric_fetch *fetch =
			pn_container_of(pos, struct pn_fabric_fetch, link);

		if (fetch->posted == fetch->n || fetch->abandoned ||
		    fetch->status || fetch->peer->down)
			continue;
		if (!post_pieces(dev, fetch))
			return;
		finish_if_ended(dev, fetch);
	}
}

/* --- reads that fail without a name --------------------------------------- */

/* Whether it may be the one: it is in flight since before the report. */
static bool may_be_lost(const struct pn_fabric_device *dev,
			const struct pn_fabric_piece *piece)
{
	return !piece->ended && piece->number < dev->lost.before;
}

static unsigned count_candidates(const struct pn_fabric_device *dev,
				 const struct pn_fabric_fetch *fetch)
{
	unsigned n = 0;

	for (unsigned i = 0; i < fetch->posted; i++)
		n += may_be_lost(dev, &fetch->pieces[i]);
	return n;
}

/* A fetch with reads that may be lost; *n: how many there are in all. What a
 * peer that is gone has left behind may never end, and is not waited for. */
static struct pn_fabric_fetch *find_candidates(struct pn_fabric_device *dev,
					       unsigned *n)
{
	struct pn_fabric_fetch *found = NULL;
	struct pn_list *pos;

	*n = 0;
	pn_list_for_each (pos, &dev->fetches) {
		struct pn_fabric_fetch *fetch =
			pn_container_of(pos, struct pn_fabric_fetch, link);
		unsigned here =
			fetch->abandoned ? 0 : count_candidates(dev, fetch);

		*n += here;
		if (here && !found)
			found = fetch;
	}
	return found;
}

static void lose(struct pn_fabric_device *dev, struct pn_fabric_fetch *fetch)
{
	for (unsigned i = 0; i < fetch->posted; i++)
		if (may_be_lost(dev, &fetch->pieces[i])) {
			fetch->pieces[i].ended = true;
			fetch->nlost++;
		}
	if (!fetch->status)
		fetch->status = dev->lost.status;
	finish_if_ended(dev, fetch);
}

/* One at a time: the end of a fetch may begin others, with larger numbers. */
static void end_lost(struct pn_fabric_device *dev)
{
	struct pn_fabric_fetch *fetch;
	unsigned n;

	fetch = find_candidates(dev, &n);
	if (n > dev->lost.n)
		return;
	dev->lost.n = 0;
	for (; fetch; fetch = find_candidates(dev, &n))
		lose(dev, fetch);
}

void pn_fabric_fetch_lost(struct pn_fabric_device *dev, int status)
{
	dev->lost.n++;
	dev->lost.before = dev->nreads;
	dev->lost.status = status;
	end_lost(dev);
}

/* --- the end -------------------------------------------------------------- */

void pn_fabric_fetched(struct pn_fabric_device *dev,
		       struct pn_fabric_piece *piece, int status)
{
	struct pn_fabric_fetch *fetch = piece->fetch;

	fetch->ended++;
	if (pn_unlikely(piece->ended))
		fetch->nlost--;
	piece->ended = true;
	if (status && !fetch->status)
		fetch->status = status;
	finish_if_ended(dev, fetch);
	if (pn_unlikely(dev->lost.n))
		end_lost(dev);
}

void pn_fabric_fetches_abandon(struct pn_fabric_device *dev,
			       struct pn_fabric_peer *peer)
{
	struct pn_list *pos, *tmp;

	pn_list_for_each_safe (pos, tmp, &dev->fetches) {
		struct pn_fabric_fetch *fetch =
			pn_container_of(pos, struct pn_fabric_fetch, link);

		if (fetch->peer != peer || fetch->abandoned)
			continue;
		if (fetch->ended != fetch->posted)
			pn_warn("fabric: a peer is gone, and the provider "
				"still reads from it");
		if (fetch->pull)
			fetch->pull->fetch = NULL;
		fetch->abandoned = true;
		peer->rx.fetches--;
		finish_if_ended(dev, fetch);
	}
}
