/* SPDX-License-Identifier: BSD-2-Clause */
/* The counters of an endpoint in the statistics segment (base/stats_segment.h).
 */
#include "message/endpoint/endpoint.h"

#define COUNTER(member, name) \
	PN_STATS_FIELD(COUNTER, struct pinion_endpoint, stats.member, name)

#define STALL(type, member, name) \
	PN_STATS_FIELD(type, struct pinion_endpoint, stall.member, name)

static const struct pn_stats_field endpoint_fields[] = {
	COUNTER(sent[PN_PROTOCOL_EAGER], "sent_eager"),
	COUNTER(sent[PN_PROTOCOL_COPY], "sent_copy"),
	COUNTER(sent[PN_PROTOCOL_DEMAND], "sent_demand"),
	COUNTER(sent[PN_PROTOCOL_CACHED], "sent_cached"),
	COUNTER(sent[PN_PROTOCOL_PIPELINE], "sent_pipeline"),
	COUNTER(sent[PN_PROTOCOL_CACHING_PIPELINE], "sent_caching_pipeline"),
	COUNTER(sent[PN_PROTOCOL_READ], "sent_read"),
	COUNTER(sent[PN_PROTOCOL_OVERLAPPED], "sent_overlapped"),
	COUNTER(received, "received"),
	COUNTER(unexpected, "unexpected"),
	COUNTER(late, "late"),
	COUNTER(copied_no_budget, "copied_no_budget"),
	COUNTER(bounced, "bounced"),
	COUNTER(stalls, "stalls"),
	COUNTER(bad_packets, "bad_packets"),
	COUNTER(rails_lost, "rails_lost"),
	COUNTER(resent, "resent"),
	COUNTER(progress_wakeups, "progress_wakeups"),
	COUNTER(progress_yields, "progress_yields"),
	COUNTER(progress_events, "progress_events"),
	PN_STATS_FIELD(BYTES, struct pinion_endpoint, matching.kept_bytes,
		       "unexpected_bytes"),
	/* For `pinion mpirun --watchdog`. */
	STALL(GAUGE, empty_polls, "empty_polls"),
	STALL(GAUGE, since_ns, "idle_since_ns"),
	STALL(GAUGE, seen_ns, "idle_seen_ns"),
	STALL(ADDRESS, address, "address"),
	STALL(GAUGE, receive.n, "receives"),
	STALL(GAUGE, receive.space, "receive_space"),
	STALL(GAUGE, receive.matched, "receive_matched"),
	STALL(ADDRESS, receive.peer, "receive_peer"),
	STALL(ADDRESS, receive.tag, "receive_tag"),
	STALL(ADDRESS, receive.ignore, "receive_ignore"),
	STALL(BYTES, receive.bytes, "receive_bytes"),
	STALL(GAUGE, send.n, "sends"),
	STALL(GAUGE, send.space, "send_space"),
	STALL(GAUGE, send.matched, "send_matched"),
	STALL(ADDRESS, send.peer, "send_peer"),
	STALL(ADDRESS, send.tag, "send_tag"),
	STALL(BYTES, send.bytes, "send_bytes"),
};

const struct pn_stats_kind pn_endpoint_statistics = {
	"endpoint", sizeof(struct pinion_endpoint), 0, endpoint_fields,
	PN_ARRAY_LEN(endpoint_fields)
};
