/* SPDX-License-Identifier: BSD-2-Clause */
/* Trace events of messages: a request was posted, a protocol was chosen. */
#include "message/endpoint/endpoint.h"
#include "message/onesided/onesided.h"

static uint32_t number_of(struct pinion_peer *peer)
{
	if (!peer)
		return PN_EVENT_NO_PEER; /* a receive from any peer */
	if (!peer->trace_number)
		peer->trace_number = ++peer->ep->ntraced_peers;
	return peer->trace_number;
}

static void tell(struct pinion_request *request, struct pn_trace_event event)
{
	event.addr = (uintptr_t)request->buf;
	event.len = request->len;
	event.handle = request->id;
	event.peer = number_of(request->peer);
	pn_cache_trace_event(request->ep->cache, &event);
}

static uint8_t kind_of(const struct pinion_request *request)
{
	switch (request->kind) {
	case PN_REQUEST_MESSAGE:
		return request->is_send ? PN_EVENT_SEND : PN_EVENT_RECV;
	case PN_REQUEST_PUT:
	case PN_REQUEST_PUT_WHEN:
		return PN_EVENT_PUT;
	case PN_REQUEST_GET:
		return PN_EVENT_GET;
	default: /* transfers no memory of the program */
		return PN_EVENT_NONE;
	}
}

void pn_trace_request(struct pinion_request *request)
{
	struct pn_trace_event event = { .kind = kind_of(request) };

	if (event.kind)
		tell(request, event);
}

void pn_trace_protocol_chosen(struct pinion_request *request, int protocol,
			      enum pn_trace_event_reason why)
{
	if (pn_trace_sink())
		tell(request,
		     (struct pn_trace_event){ .kind = PN_EVENT_PROTOCOL,
					      .decision = (uint8_t)protocol,
					      .reason = (uint8_t)why });
}
