/* SPDX-License-Identifier: BSD-2-Clause */
/* Posts messages for the program: send, inject, receive, probe, cancel. */
#include <errno.h>

#include "message/connection/connection.h"
#include "message/connection/packet.h"
#include "message/connection/wire.h"
#include "message/endpoint/endpoint.h"
#include "message/endpoint/request.h"
#include "message/matching/matching.h"
#include "message/onesided/onesided.h"
#include "message/protocol/select.h"
#include "message/twosided/transfer.h"

/* --- choosing the protocol ------------------------------------------------ */

bool pn_endpoint_budget_allows(const struct pinion_endpoint *ep, size_t len)
{
	const struct pn_budget *budget = ep->budget;

	return pn_cache_keeps(ep->cache) &&
	       atomic_load_explicit(&budget->bytes, memory_order_relaxed) +
			       len <
		       atomic_load_explicit(&budget->max_bytes,
					    memory_order_relaxed) /
			       2;
}

bool pn_endpoint_was_dropped(const struct pinion_endpoint *ep, const void *buf)
{
	bool dropped = false;

	for (unsigned r = 0; ep->helper && r < ep->nrails; r++)
		dropped |= pn_cache_was_dropped(ep->rails[r].cache, buf);
	return dropped;
}

bool pn_peer_covers(const struct pinion_peer *peer, const uint8_t *buf,
		    size_t len, unsigned access)
{
	const struct pn_protocol_limits *limits = &peer->ep->limits;
	struct pn_cache *cache =
		peer->ep->either ? peer->conn->rail->cache : peer->ep->cache;
	size_t from = len > limits->rdma_offset ? limits->rdma_offset
						: limits->match_bytes;

	return len > from &&
	       pn_cache_covers(cache, buf + from, len - from, access);
}

/* Decides whether an eager message is copied or sent directly from its buffer.
 */
static void choose_eager(struct pinion_endpoint *ep,
			 const struct pinion_message *m, struct pn_choice *out)
{
	enum pn_reuse_verdict verdict =
		pn_reuse_decide(&ep->reuse, ep->eager_kind, m->buf, m->len);

	if (pn_likely(!verdict))
		return;
	out->direct = true;
	out->reason = verdict == PN_REUSE_CACHED ? PN_BECAUSE_CACHED
						 : PN_BECAUSE_REUSE;
}

/* Eager if the length allows it, else as configured, else by copying. */
static void choose(struct pinion_endpoint *ep, const struct pinion_message *m,
		   struct pn_choice *out)
{
	const struct pn_protocol *row;

	*out = (struct pn_choice){ .protocol = PN_PROTOCOL_EAGER,
				   .reason = PN_BECAUSE_SHORT };
	if (pn_protocol_eager.applies(&ep->limits, m->len)) {
		choose_eager(ep, m, out);
		return;
	}
	if (ep->protocol == PN_PROTOCOL_AUTO) {
		struct pn_use source = {
			.addr = (uintptr_t)m->buf,
			.len = m->len,
			.end = PN_END_SOURCE,
			.cached = pn_peer_covers(m->peer, m->buf, m->len,
						 PN_SOURCE_ACCESS),
			.unkept = !pn_cache_keeps(ep->cache),
		};

		source.dropped =
			!source.cached && pn_endpoint_was_dropped(ep, m->buf);
		pn_protocol_selector_choose(pn_peer_selector(m->peer), &source,
					    pn_endpoint_budget_allows(ep,
								      m->len),
					    &ep->transfers.load, out);
		return;
	}
	row = pn_protocol_at((unsigned)ep->protocol);
	out->protocol = row->applies(&ep->limits, m->len) ? ep->protocol
							  : PN_PROTOCOL_COPY;
	out->reason = out->protocol == ep->protocol ? PN_BECAUSE_ASKED
						    : PN_BECAUSE_SHORT;
	out->keep = pn_protocol_keeps_registration(out->protocol);
}

/* --- sending -------------------------------------------------------------- */

/* Sends as chosen. The time until the MATCH was posted is part of the
 * prediction that the selector checks. */
static int send_chosen(struct pinion_request *request,
		       const struct pn_choice *choice)
{
	struct pinion_endpoint *ep = request->ep;
	const struct pinion_peer *peer = request->peer;
	uint32_t id = request->id;
	uint64_t start;
	int ret;

	ep->stats.sent[choice->protocol]++;
	if (!choice->predicted_ns)
		return pn_transfer_send(request, choice);
	start = pn_device_now(ep->device);
	request->transfer.began_ns = start;
	ret = pn_transfer_send(request, choice);
	pn_protocol_selector_sent(pn_peer_selector(peer), choice, id,
				  (double)(pn_device_now(ep->device) - start));
	return ret;
}

/* Whether a message can be sent before the call returns, without a request. */
static bool can_inject(const struct pinion_endpoint *ep,
		       const struct pinion_message *m)
{
	const struct pinion_peer *peer = m->peer;

	return !peer->down && peer->conn && peer->conn->up &&
	       !peer->sequenced && pn_list_empty(&peer->packets) &&
	       !ep->helper && !pn_trace_sink();
}

/* An eager message that the device takes inline needs no request: the receiver
 * sends no answer to it. */
static int inject(struct pinion_endpoint *ep, const struct pinion_message *m)
{
	struct pinion_peer *peer = m->peer;
	size_t counted = pn_allowance_bytes(m->space, m->len);
	int32_t status = pn_wire_match_status((uint8_t)m->space,
					      m->flags & PINION_MESSAGE_DATA,
					      pn_message_data(m));
	struct pn_inline_header head;
	int ret;

	if (!pn_allowance_take(peer, counted, &status))
		return -EAGAIN;
	head = pn_wire_match(PN_PROTOCOL_EAGER, pn_message_data(m), status,
			     m->tag, m->len);
	ret = pn_packet_post_inline(peer->conn, &head, m->buf, m->len);
	if (pn_unlikely(ret)) {
		pn_allowance_return(&peer->allowance, counted, status);
		return ret;
	}
	ep->stats.sent[PN_PROTOCOL_EAGER]++;
	atomic_store_explicit(&peer->next_send,
			      peer->conn->device_peer->next_send,
			      memory_order_relaxed);
	return 0;
}

static PN_NOINLINE int send_request(struct pinion_endpoint *ep,
				    const struct pinion_message *message,
				    struct pinion_request **out)
{
	struct pinion_request *request;
	struct pn_choice choice;
	int ret;

	/* The answer may be there. */
	if (pn_unlikely(pn_allowance_waits(message->peer, message->len)))
		pn_endpoint_progress(ep);
	ret = pn_peer_connect(message->peer);
	request = ret ? NULL : pn_request_alloc(ep, message);
	if (request) {
		choose(ep, message, &choice);
		request->is_send = true;
		request->awaits_got =
			message->flags & PINION_MESSAGE_DELIVERY_COMPLETE;
		request->has_handle = out;
		if (ep->helper)
			request->call.copied = !choice.keep;
		pn_helper_post(ep->helper, &request->call, PN_CALL_SEND,
			       message->buf, message->len);
		pn_trace_request_posted(request);
		pn_trace_protocol_chosen(request, choice.protocol,
					 choice.reason);
		ret = send_chosen(request, &choice);
		if (out)
			*out = request;
	} else if (!ret) {
		ret = -ENOMEM;
	}
	return ret;
}

int pn_endpoint_send(struct pinion_endpoint *ep,
		     const struct pinion_message *message,
		     struct pinion_request **out)
{
	int ret;

	pn_endpoint_lock(ep);
	pn_reuse_on_send(&ep->reuse);
	ret = send_request(ep, message, out);
	pn_endpoint_unlock(ep);
	return ret;
}

/* The caller will try again: sees to it that the peer is connected by then, or
 * says when it keeps less. -EOPNOTSUPP: trying again never helps. */
static PN_NOINLINE int cannot_inject(const struct pinion_message *m)
{
	struct pinion_peer *peer = m->peer;
	int ret = peer->down ? peer->down : pn_peer_connect(peer);

	if (ret)
		return ret;
	pn_endpoint_progress(peer->ep);
	if (!peer->down &&
	    pn_allowance_is_over(peer, pn_allowance_bytes(m->space, m->len)))
		pn_allowance_send_ask(peer);
	return peer->sequenced || peer->ep->helper || pn_trace_sink()
		       ? -EOPNOTSUPP
		       : -EAGAIN;
}

int pn_endpoint_inject(struct pinion_endpoint *ep,
		       const struct pinion_message *message)
{
	int ret;

	if (pn_unlikely(message->len >= ep->inject_below))
		return -EMSGSIZE;
	pn_endpoint_lock(ep);
	pn_reuse_on_send(&ep->reuse);
	ret = pn_likely(can_inject(ep, message)) ? inject(ep, message)
						 : -EAGAIN;
	if (pn_unlikely(ret == -EAGAIN))
		ret = cannot_inject(message);
	pn_endpoint_unlock(ep);
	return ret;
}

/* --- receiving ------------------------------------------------------------ */

static PN_NOINLINE void receive_unexpected(struct pinion_endpoint *ep,
					   struct pinion_request *request,
					   struct pinion_unexpected *unexpected)
{
	pn_unexpected_remove(&ep->matching, unexpected);
	request->was_unexpected = true;
	pn_transfer_receive(request, unexpected->peer, &unexpected->wire,
			    unexpected->payload, unexpected->payload_len);
	pn_unexpected_free(ep, unexpected);
}

static PN_ALWAYS_INLINE inline struct pinion_request *begin_receive(
	struct pinion_endpoint *ep, const struct pinion_message *message)
{
	struct pinion_request *request = pn_request_alloc(ep, message);

	if (!request)
		return NULL;
	pn_helper_post(ep->helper, &request->call, PN_CALL_RECEIVE,
		       message->buf, message->len);
	pn_trace_request_posted(request);
	if (pn_unlikely(message->multi_recv))
		message->multi_recv->internal++;
	return request;
}

static inline int receive(struct pinion_endpoint *ep,
			  const struct pinion_message *message,
			  struct pinion_unexpected *unexpected,
			  struct pinion_request **out)
{
	struct pinion_request *request;

	if (!unexpected && message->peer && message->peer->down &&
	    !pn_match_find_unexpected(&ep->matching, message))
		return message->peer->down;
	request = begin_receive(ep, message);
	if (!request)
		return -ENOMEM;
	request->has_handle = out;
	if (!unexpected)
		unexpected = pn_match_find_unexpected(&ep->matching, message);
	if (unexpected)
		receive_unexpected(ep, request, unexpected);
	else
		pn_match_post(&ep->matching, request);
	if (out)
		*out = request;
	return 0;
}

/* Advances a multi-receive past a message. False: the buffer is used up. */
static bool advance_multi_recv(struct pinion_message *message, size_t used)
{
	size_t min = message->multi_recv->min_bytes;

	if (used >= message->len || message->len - used < min)
		return false;
	message->buf = (char *)message->buf + used;
	message->len -= used;
	return true;
}

void pn_multi_recv_repost(struct pinion_request *receive, size_t message_len)
{
	struct pinion_message rest = { .size = sizeof(rest),
				       .buf = receive->buf,
				       .len = receive->len,
				       .tag = receive->tag,
				       .ignore = receive->ignore,
				       .peer = receive->peer,
				       .user = receive->user,
				       .space = receive->space,
				       .multi_recv = receive->multi_recv };
	struct pinion_request *request = NULL;

	if (advance_multi_recv(&rest, message_len))
		request = begin_receive(receive->ep, &rest);
	if (request)
		pn_match_post_behind(&receive->ep->matching, receive, request);
}

/* Takes unexpected messages first, and posts what they leave of the buffer. The
 * buffer also counts as used up if there is no memory for another receive, or
 * if the peer is down. */
static PN_NOINLINE int receive_multi(struct pinion_endpoint *ep,
				     const struct pinion_message *message)
{
	struct pinion_message rest = *message;
	struct pinion_unexpected *unexpected;
	bool began = false;
	size_t used;
	int ret;

	do {
		unexpected = pn_match_find_unexpected(&ep->matching, &rest);
		used = unexpected ? unexpected->wire.len : rest.len;
		ret = receive(ep, &rest, unexpected, NULL);
		began |= !ret;
	} while (!ret && advance_multi_recv(&rest, used));
	return began ? 0 : ret;
}

int pn_endpoint_recv_unexpected(struct pinion_endpoint *ep,
				struct pinion_unexpected *unexpected,
				const struct pinion_message *message,
				struct pinion_request **out)
{
	int ret;

	pn_endpoint_lock(ep);
	ret = pn_unlikely(message->multi_recv)
		      ? receive_multi(ep, message)
		      : receive(ep, message, unexpected, out);
	pn_endpoint_unlock(ep);
	return ret;
}

int pn_endpoint_probe(struct pinion_endpoint *ep,
		      const struct pinion_message *message,
		      struct pinion_completion *out,
		      struct pinion_unexpected **unexpected)
{
	struct pinion_unexpected *found;

	pn_endpoint_lock(ep);
	found = pn_match_find_unexpected(&ep->matching, message);
	if (!found) {
		pn_endpoint_progress(ep);
		found = pn_match_find_unexpected(&ep->matching, message);
	}
	if (found) {
		uint64_t data = pn_wire_data(&found->wire);

		if (out)
			*out = (struct pinion_completion){
				.flags = found->wire.status & PN_WIRE_HAS_DATA
						 ? PINION_COMPLETION_DATA
						 : 0,
				.peer = found->peer,
				.tag = found->wire.tag,
				.len = found->wire.len,
				.message_len = found->wire.len,
				.data = (uint32_t)data,
				.data_high = (uint32_t)(data >> 32),
			};
		if (unexpected) {
			pn_unexpected_remove(&ep->matching, found);
			pn_list_append(&ep->matching.probed, &found->link);
			*unexpected = found;
		}
	}
	pn_endpoint_unlock(ep);
	return found ? 0 : -EAGAIN;
}

/* --- cancelling ----------------------------------------------------------- */

static void cancel(struct pinion_request *request)
{
	struct pn_wire wire = { .version = PN_WIRE_VERSION,
				.kind = PN_WIRE_CANCEL,
				.from = request->id };

	if (request->ended || request->canceling)
		return;
	if (request->kind) {
		pn_onesided_cancel(request);
		return;
	}
	if (!request->is_send) {
		/* Only a receive that is not matched is in the list. */
		if (!pn_list_empty(&request->link))
			pn_request_end(request, -ECANCELED);
		return;
	}
	/* An eager message ends when it is posted. A CANCEL after that would
	 * make the receiver drop a message that was reported as sent. */
	if (pn_packet_withdraw(request)) {
		pn_request_end(request, -ECANCELED);
		return;
	}
	/* The same holds for a direct send that is posted. */
	if (request->moved == request->total && !request->late)
		return;
	request->canceling = true;
	if (!request->remote_id)
		pn_packet_send(request->peer, &wire, NULL, 0, NULL);
}

int pn_endpoint_cancel(struct pinion_endpoint *ep,
		       struct pinion_request *request)
{
	pn_endpoint_lock(ep);
	cancel(request);
	pn_endpoint_unlock(ep);
	return 0;
}

int pn_endpoint_cancel_user(struct pinion_endpoint *ep, const void *user)
{
	struct pinion_request *found = NULL;
	struct pn_list *pos;

	pn_endpoint_lock(ep);
	pn_list_for_each (pos, &ep->matching.posted.entries) {
		struct pinion_request *request =
			pn_container_of(pos, struct pinion_request, link);

		if (request->user != user || request->has_handle)
			continue;
		found = request;
		break;
	}
	if (found)
		pn_request_end(found, -ECANCELED);
	pn_endpoint_unlock(ep);
	return found ? 0 : -ENOENT;
}
