/* SPDX-License-Identifier: BSD-2-Clause */
/* What a trace says of messages: that they were posted, and how they go. */
#include "message/message_impl.h"

static uint32_t number_of(struct pinion_peer *peer)
{
	if (!peer)
		return PN_EVENT_NO_PEER; /* received from anybody */
	if (!peer->number)
		peer->number = ++peer->ep->ntold;
	return peer->number;
}

static void tell(struct pinion_request *request, struct pn_event event)
{
	event.addr = (uintptr_t)request->buf;
	event.len = request->len;
	event.handle = request->id;
	event.peer = number_of(request->peer);
	pn_cache_tell(request->ep->cache, &event);
}

void pn_tell_request(struct pinion_request *request)
{
	if (pn_event_sink())
		tell(request,
		     (struct pn_event){ .kind = request->is_send
							? PN_EVENT_SEND
							: PN_EVENT_RECV });
}

void pn_tell_protocol(struct pinion_request *request, int protocol,
		      enum pn_event_reason why)
{
	if (pn_event_sink())
		tell(request, (struct pn_event){ .kind = PN_EVENT_PROTOCOL,
						 .decision = (uint8_t)protocol,
						 .reason = (uint8_t)why });
}
