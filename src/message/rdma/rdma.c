/* SPDX-License-Identifier: BSD-2-Clause */
#include "message/rdma/rdma.h"

#include <errno.h>

#include "message/connection/packet.h"
#include "message/endpoint/endpoint.h"

void pn_rdma_init(struct pn_rdma_fragment *f, const struct pn_rdma_ops *ops,
		  struct pinion_request *request, size_t offset, size_t len)
{
	f->operation = (struct pn_operation_context){ PN_OPERATION_FRAGMENT,
						      request->ep };
	f->ops = ops;
	f->request = request;
	f->conn = request->peer->conn;
	f->offset = offset;
	f->len = len;
	f->posted = 0;
	f->inflight = 0;
	f->status = 0;
	f->by_packets = f->lost = f->pinned = false;
	pn_list_init(&f->stall_link);
}

/* --- pins ----------------------------------------------------------------- */

int pn_rdma_pin(struct pn_rdma_fragment *f, unsigned access)
{
	int ret = pn_cache_pin_no_listener(f->conn->rail->cache,
					   f->request->buf + f->offset, f->len,
					   access, &f->pin);

	f->pinned = !ret;
	return ret;
}

void pn_rdma_unpin(struct pn_rdma_fragment *f)
{
	if (f->pinned)
		pn_cache_unpin(f->conn->rail->cache, &f->pin);
	f->pinned = false;
}

/* --- posting -------------------------------------------------------------- */

static bool has_more(const struct pn_rdma_fragment *f)
{
	return f->posted < f->len && !f->status && !f->request->status;
}

/* With several rails one packet at a time: while it is copied, the fragments of
 * other rails wait for their start. */
static int post_packets(struct pn_rdma_fragment *f)
{
	struct pinion_request *request = f->request;
	struct pinion_endpoint *ep = request->ep;
	size_t before = f->posted;

	while (has_more(f)) {
		size_t at = f->offset + f->posted, len = f->len - f->posted;
		struct pn_wire wire;
		int ret;

		if (f->posted != before && ep->nrails > 1)
			return -EAGAIN;
		if (len > ep->limits.packet_bytes)
			len = ep->limits.packet_bytes;
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

static int post_operation(struct pn_rdma_fragment *f)
{
	struct pn_device *device = f->conn->rail->device;
	size_t most = f->len - f->posted;
	struct pn_wire_key remote;
	struct pn_sge local;
	struct pn_op op = { .sge = &local, .nsge = 1, .user = f };
	int ret = f->ops->locate(f, &local, &remote);

	if (ret)
		return ret;
	if (most > remote.len)
		most = remote.len;
	if (most > device->limits.max_op_bytes)
		most = device->limits.max_op_bytes;
	if (local.len > most)
		local.len = most;
	op.remote_addr = remote.addr;
	op.rkey = remote.rkey;
	f->ops->describe(f, &op);
	ret = pn_device_post(device, f->conn->device_peer, &op);
	if (ret)
		return ret;
	f->request->ep->noperations++;
	pn_progress_thread_began(&f->request->ep->progress_entry);
	f->inflight++;
	f->posted += local.len;
	if (f->ops->posted)
		f->ops->posted(f, &op);
	return 0;
}

static int post_fragment(struct pn_rdma_fragment *f)
{
	const struct pn_connection *conn = f->conn;
	int ret = 0;

	if (!conn->up)
		return conn->down && !f->ops->fails_over ? conn->down : -EAGAIN;
	if (f->ops->prepare)
		ret = f->ops->prepare(f);
	if (!ret && f->by_packets)
		ret = post_packets(f);
	while (!ret && has_more(f))
		ret = post_operation(f);
	/* The connection is going down; PEER_DOWN follows. */
	if (ret == -ECONNRESET && f->ops->fails_over &&
	    pn_connection_has_alternative(conn))
		ret = -EAGAIN;
	return ret;
}

static void check_ended(struct pn_rdma_fragment *f)
{
	if (!f->inflight && !has_more(f))
		f->ops->ended(f);
}

/* -EAGAIN: there is more to post. 0: the fragment may be gone. */
static int post(struct pn_rdma_fragment *f)
{
	int ret;

	f->inflight++; /* other tasks may run */
	ret = post_fragment(f);
	f->inflight--;
	if (ret == -EAGAIN && has_more(f))
		return ret;
	if (ret && ret != -EAGAIN && !f->status)
		f->status = ret;
	if (f->ops->posted_all)
		f->ops->posted_all(f);
	check_ended(f);
	return 0;
}

static struct pn_list *stall_queue(struct pn_rdma_fragment *f)
{
	return &f->conn->stalled[f->ops->user];
}

static void stall(struct pn_rdma_fragment *f)
{
	pn_list_append(stall_queue(f), &f->stall_link);
	pn_peer_add_pending(f->conn->peer);
}

void pn_rdma_start(struct pn_rdma_fragment *f)
{
	if (!pn_list_empty(stall_queue(f)) || post(f) == -EAGAIN)
		stall(f);
}

void pn_rdma_restart(struct pn_rdma_fragment *f)
{
	pn_rdma_unstall(f);
	f->status = 0;
	f->posted = 0;
	pn_rdma_start(f);
}

void pn_rdma_move(struct pn_rdma_fragment *f, struct pn_connection *conn)
{
	bool stalled = !pn_list_empty(&f->stall_link);

	pn_rdma_unstall(f);
	f->conn = conn;
	if (stalled)
		stall(f);
}

/* Posting one may end the requests of others, so they are taken one by one. */
bool pn_rdma_progress(struct pn_connection *conn, enum pn_rdma_user user)
{
	struct pn_list *queue = &conn->stalled[user], *link;
	bool moved = false;

	while ((link = pn_list_pop(queue))) {
		struct pn_rdma_fragment *f =
			pn_container_of(link, struct pn_rdma_fragment,
					stall_link);
		size_t before = f->posted;

		if (post(f) == -EAGAIN) {
			pn_list_insert(queue, link);
			return moved || f->posted != before;
		}
		moved = true;
	}
	return moved;
}

/* --- completion ----------------------------------------------------------- */

void pn_rdma_done(struct pn_rdma_fragment *f, int status)
{
	f->inflight--;
	if (status && !f->status)
		f->status = status;
	check_ended(f);
}

bool pn_rdma_may_still_write(const struct pn_rdma_fragment *f)
{
	return f->lost && !f->conn->down_received && !f->conn->peer->down;
}

void pn_rdma_abandon(struct pn_list *fragments)
{
	struct pn_list *pos, *next;

	pn_list_for_each_safe (pos, next, fragments) {
		struct pn_rdma_fragment *f =
			pn_container_of(pos, struct pn_rdma_fragment, link);

		pn_rdma_unstall(f);
		if (!f->inflight && !pn_rdma_may_still_write(f))
			f->ops->drop(f);
	}
}
