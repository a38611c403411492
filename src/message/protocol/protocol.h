/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * protocol -- how a message is transferred, as rows that explain themselves.
 *
 * All protocols are the pipeline of Woodall and others 2006, section 4, with
 * other numbers: how much goes with the MATCH, how much by packets, how large
 * the RDMA fragments are, how many are in flight, and whether registrations are
 * kept. So a protocol is a row: when it applies, its shape for a length, and
 * its predicted cost. sender.c and receiver.c execute any shape. The sender
 * chooses the protocol and names it in the MATCH; each side takes the shape
 * from its own row and options, which need not agree.
 */
#ifndef PN_MESSAGE_PROTOCOL_H
#define PN_MESSAGE_PROTOCOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/device.h"

/* Fragments of one message that are registered at a time, at most. */
#define PN_PROTOCOL_MAX_DEPTH 64

/* Row P8: every limit is an option; these are their values. */
struct pn_protocol_limits {
	size_t packet_bytes;   /* payload of one send; from the device */
	size_t eager_bytes;    /* largest message sent whole with its MATCH */
	size_t match_bytes;    /* of a longer one, bytes that go with it */
	size_t rdma_offset;    /* pipeline: up to here by packets */
	size_t fragment_bytes; /* pipeline; 0: from the device's costs */
	size_t segment_bytes; /* caching pipeline: fragments end at multiples; a
				 power of two; 0: from costs */
	unsigned depth;	      /* fragments registered at a time */
};

/* How one message is transferred. */
struct pn_shape {
	size_t match;	 /* bytes in the MATCH */
	size_t offset;	 /* from `match` to here by DATA; then RDMA */
	size_t fragment; /* bytes of one RDMA fragment; 0: no RDMA */
	size_t align; /* fragments end at multiples of this address; 0: anywhere
		       */
	unsigned depth;
	bool keep;  /* registrations go through the cache and stay */
	bool early; /* the sender registers before the receiver answers */
	bool read;  /* the receiver reads instead of the sender writing */
};

struct pn_protocol {
	const char *name;
	const char *help; /* one line */
	/* Whether it can transfer a message of len bytes. */
	bool (*applies)(const struct pn_protocol_limits *limits, size_t len);
	void (*shape)(const struct pn_protocol_limits *limits, size_t len,
		      struct pn_shape *out);
	/* Predicted time from send to arrival, in ns. reuse 0: the buffers were
	 * never used before; reuse 1: they always were. */
	double (*cost)(const struct pn_protocol_limits *limits,
		       const struct pn_costs *costs, size_t len, double reuse);
	/* Predicted time for which a message occupies the busiest of sender,
	 * receiver and link, in ns: what it adds when many are in flight. */
	double (*busy)(const struct pn_protocol_limits *limits,
		       const struct pn_costs *costs, size_t len, double reuse);
};

/* Numbers on the wire: new ones are appended. */
enum pn_protocol_id {
	PN_PROTOCOL_EAGER,
	PN_PROTOCOL_COPY,
	PN_PROTOCOL_DEMAND,
	PN_PROTOCOL_CACHED,
	PN_PROTOCOL_PIPELINE,
	PN_PROTOCOL_CACHING_PIPELINE,
	PN_PROTOCOL_READ,
	PN_PROTOCOL_OVERLAPPED,
	PN_PROTOCOL_COUNT,
	/* No row, and never on the wire: select.h chooses one. */
	PN_PROTOCOL_AUTO = PN_PROTOCOL_COUNT,
};

extern const struct pn_protocol pn_protocol_eager;
extern const struct pn_protocol pn_protocol_copy;
extern const struct pn_protocol pn_protocol_demand;
extern const struct pn_protocol pn_protocol_cached;
extern const struct pn_protocol pn_protocol_pipeline;
extern const struct pn_protocol pn_protocol_caching_pipeline;
extern const struct pn_protocol pn_protocol_read;
extern const struct pn_protocol pn_protocol_overlapped;

/* The fragment size for which the pipeline's predicted cost is lowest; keep:
 * the caching pipeline's. A power of two. */
size_t pn_protocol_best_fragment(const struct pn_protocol_limits *limits,
				 const struct pn_costs *costs, bool keep);

/* NULL: no such number. */
const struct pn_protocol *pn_protocol_at(unsigned id);

/* A row's name, or "auto". */
const char *pn_protocol_name(unsigned id);

/* The number of the protocol with this name, which may be "auto"; or -ENOENT.
 */
int pn_protocol_find(const char *name);

#endif
