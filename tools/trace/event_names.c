/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Names of the numbers in cache/event.h, in its order.
 */
#include <string.h>

#include "base/compiler.h"
#include "message/protocol/protocol.h"
#include "tools/trace/trace.h"

static const char *const kinds[PN_EVENT_NKINDS] = {
	[PN_EVENT_OPEN] = "open",	  [PN_EVENT_CLOSE] = "close",
	[PN_EVENT_PIN] = "pin",		  [PN_EVENT_READY] = "ready",
	[PN_EVENT_UNPIN] = "unpin",	  [PN_EVENT_RELEASE] = "release",
	[PN_EVENT_FLUSH] = "flush",	  [PN_EVENT_REVOKE] = "revoke",
	[PN_EVENT_RESIZE] = "resize",	  [PN_EVENT_OTHERS] = "others",
	[PN_EVENT_JOINS] = "joins",	  [PN_EVENT_MAPPING] = "mapping",
	[PN_EVENT_REGISTER] = "register", [PN_EVENT_DEREGISTER] = "deregister",
	[PN_EVENT_EVICT] = "evict",	  [PN_EVENT_SEND] = "send",
	[PN_EVENT_RECV] = "recv",	  [PN_EVENT_PUT] = "put",
	[PN_EVENT_GET] = "get",		  [PN_EVENT_PROTOCOL] = "protocol",
};

static const char *const decisions[PN_NDECISIONS] = {
	[PN_DECIDED_NOTHING] = "",	  [PN_DECIDED_HIT] = "hit",
	[PN_DECIDED_MISS] = "miss",	  [PN_DECIDED_REFUSED] = "refused",
	[PN_DECIDED_LATER] = "later",	  [PN_DECIDED_KEPT] = "kept",
	[PN_DECIDED_DROPPED] = "dropped", [PN_DECIDED_NO] = "no",
	[PN_DECIDED_YES] = "yes",
};

static const char *const reasons[PN_NREASONS] = {
	[PN_BECAUSE_NOTHING] = "",	   [PN_BECAUSE_CACHED] = "cached",
	[PN_BECAUSE_PARTS] = "parts",	   [PN_BECAUSE_LOOKED] = "looked",
	[PN_BECAUSE_WAITED] = "waited",	   [PN_BECAUSE_NEW] = "new",
	[PN_BECAUSE_PARTIAL] = "partial",  [PN_BECAUSE_ACCESS] = "access",
	[PN_BECAUSE_BYPASS] = "bypass",	   [PN_BECAUSE_BYTES] = "bytes",
	[PN_BECAUSE_REGIONS] = "regions",  [PN_BECAUSE_DEVICE] = "device",
	[PN_BECAUSE_FLUSHED] = "flushed",  [PN_BECAUSE_RELEASED] = "released",
	[PN_BECAUSE_JOINED] = "joined",	   [PN_BECAUSE_REVOKED] = "revoked",
	[PN_BECAUSE_FAILED] = "failed",	   [PN_BECAUSE_ASKED] = "asked",
	[PN_BECAUSE_SHORT] = "short",	   [PN_BECAUSE_NO_ROOM] = "no-room",
	[PN_BECAUSE_PEER] = "peer",	   [PN_BECAUSE_HELPER] = "helper",
	[PN_BECAUSE_OWNED] = "owned",	   [PN_BECAUSE_CHEAPEST] = "cheapest",
	[PN_BECAUSE_REUSE] = "reuse",	   [PN_BECAUSE_TRIAL] = "trial",
	[PN_BECAUSE_STREAM] = "in-flight",
};

static const char *name_in(const char *const *names, unsigned n,
			   unsigned number)
{
	return number < n ? names[number] : NULL;
}

const char *pn_trace_kind_name(uint8_t kind)
{
	return name_in(kinds, PN_ARRAY_LEN(kinds), kind);
}

const char *pn_trace_decision_name(const struct pn_trace_event *event)
{
	if (event->kind != PN_EVENT_PROTOCOL)
		return name_in(decisions, PN_ARRAY_LEN(decisions),
			       event->decision);
	return event->decision < PN_PROTOCOL_COUNT
		       ? pn_protocol_at(event->decision)->name
		       : NULL;
}

const char *pn_trace_reason_name(const struct pn_trace_event *event)
{
	if (event->decision == PN_DECIDED_REFUSED &&
	    event->kind != PN_EVENT_PROTOCOL)
		return NULL; /* an errno */
	return name_in(reasons, PN_ARRAY_LEN(reasons), event->reason);
}

static int number_in(const char *const *names, unsigned n, const char *word,
		     size_t len)
{
	for (unsigned i = 0; i < n; i++)
		if (names[i] && !strncmp(names[i], word, len) && !names[i][len])
			return (int)i;
	return -1;
}

int pn_trace_kind_number(const char *word, size_t len)
{
	return number_in(kinds, PN_ARRAY_LEN(kinds), word, len);
}

int pn_trace_decision_number(uint8_t kind, const char *word, size_t len)
{
	const char *names[PN_PROTOCOL_COUNT];

	if (kind != PN_EVENT_PROTOCOL)
		return number_in(decisions, PN_ARRAY_LEN(decisions), word, len);
	for (unsigned i = 0; i < PN_PROTOCOL_COUNT; i++)
		names[i] = pn_protocol_at(i)->name;
	return number_in(names, PN_PROTOCOL_COUNT, word, len);
}

int pn_trace_reason_number(const char *word, size_t len)
{
	return number_in(reasons, PN_ARRAY_LEN(reasons), word, len);
}
