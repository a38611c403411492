/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * trace_event -- what the numbers in an event of a trace mean.
 *
 * The numbers are in files that people keep: a number never gets a new meaning,
 * and new ones are added at the end. tools/trace/event_names.c has their names.
 * PIN events are the requests; the other events say what became of requests, or
 * what happened around them. An event is recorded when its outcome is known. So
 * the events that a PIN caused (REGISTER, EVICT, ...) come before the PIN.
 */
#ifndef PN_CACHE_TRACE_EVENT_H
#define PN_CACHE_TRACE_EVENT_H

#include "base/trace_sink.h"

enum pn_trace_event_kind {
	PN_EVENT_NONE,
	PN_EVENT_OPEN,	   /* a cache was opened: struct pn_trace_event_cache */
	PN_EVENT_CLOSE,	   /* and closed: addr hits, len misses in all */
	PN_EVENT_PIN,	   /* flags: as asked; more: rest of a list */
	PN_EVENT_READY,	   /* what became of a PIN decided LATER */
	PN_EVENT_UNPIN,	   /* handle: of its PIN or READY */
	PN_EVENT_RELEASE,  /* memory at addr is being released */
	PN_EVENT_FLUSH,	   /* everything not in use was evicted */
	PN_EVENT_REVOKE,   /* remote keys in the range were revoked */
	PN_EVENT_RESIZE,   /* budget: len bytes, addr regions */
	PN_EVENT_OTHERS,   /* charged by others: len bytes, addr regions */
	PN_EVENT_JOINS,	   /* merging with neighbours: len 1 on, 0 off */
	PN_EVENT_MAPPING,  /* does one mapping have the range? YES, NO */
	PN_EVENT_REGISTER, /* a region: KEPT or DROPPED */
	PN_EVENT_DEREGISTER, /* a region; more: rest of the batch */
	PN_EVENT_EVICT,	     /* a region left the cache: reason */
	PN_EVENT_SEND,	     /* messages, as posted; handle: the request */
	PN_EVENT_RECV,
	PN_EVENT_PUT,
	PN_EVENT_GET,
	PN_EVENT_PROTOCOL, /* decision: which; reason: why */
	PN_EVENT_NKINDS,
};

/* Flags of PIN and similar events: the PINION_ACCESS_ and PINION_PIN_ bits with
 * fixed values, and: */
enum pn_trace_event_flag {
	PN_EVENT_LOCAL_WRITE = 1 << 0,
	PN_EVENT_REMOTE_READ = 1 << 1,
	PN_EVENT_REMOTE_WRITE = 1 << 2,
	PN_EVENT_REMOTE_ATOMIC = 1 << 3,
	PN_EVENT_RELAXED = 1 << 4,
	PN_EVENT_BYPASS = 1 << 8,
	PN_EVENT_STARTED = 1 << 12, /* by pinion_pin_start() */
};

/* From the flags of a pin to those of an event, and back. */
uint16_t pn_trace_event_flags(unsigned pin_flags);
unsigned pn_trace_event_pin_flags(uint16_t event);

enum pn_trace_event_decision {
	PN_DECIDED_NOTHING,
	PN_DECIDED_HIT,
	PN_DECIDED_MISS,
	PN_DECIDED_REFUSED, /* reason: errno, positive, 255 at most */
	PN_DECIDED_LATER,   /* a miss that the worker carries out */
	PN_DECIDED_KEPT,    /* a region: in the cache */
	PN_DECIDED_DROPPED, /* a region: only as long as it is pinned */
	PN_DECIDED_NO,
	PN_DECIDED_YES,
	PN_NDECISIONS,
};

/* The reason of an event: why a PIN hit or missed, why a region ended (EVICT,
 * DEREGISTER), why a protocol was chosen. The rest of a list that missed has
 * decision NOTHING, so that HITs and MISSes add up to the cache's counters. */
enum pn_trace_event_reason {
	PN_BECAUSE_NOTHING,
	PN_BECAUSE_CACHED,   /* hit: one region covers it */
	PN_BECAUSE_PARTS,    /* hit: several do */
	PN_BECAUSE_LOOKED,   /* hit: one does, found with the lock */
	PN_BECAUSE_WAITED,   /* hit: another thread registered it meanwhile */
	PN_BECAUSE_NEW,	     /* miss: nothing is cached there */
	PN_BECAUSE_PARTIAL,  /* miss: not all of it is */
	PN_BECAUSE_ACCESS,   /* cached with less access than asked for */
	PN_BECAUSE_BYPASS,   /* asked for: used once */
	PN_BECAUSE_BYTES,    /* the budget's bytes were needed */
	PN_BECAUSE_REGIONS,  /* the budget's number of regions was needed */
	PN_BECAUSE_DEVICE,   /* the device had no room */
	PN_BECAUSE_FLUSHED,  /* a flush */
	PN_BECAUSE_RELEASED, /* its memory was released */
	PN_BECAUSE_JOINED,   /* merged into a larger region */
	PN_BECAUSE_REVOKED,  /* its remote key was handed out */
	PN_BECAUSE_FAILED,   /* registering failed */
	PN_BECAUSE_ASKED,    /* protocol: the options say so */
	PN_BECAUSE_SHORT,    /* protocol: the message is that short */
	PN_BECAUSE_NO_ROOM,  /* protocol: the budget is full */
	PN_BECAUSE_PEER,     /* protocol: the other side cannot do better */
	PN_BECAUSE_HELPER,   /* the helper expects no use soon */
	PN_BECAUSE_OWNED,    /* a slab, which the heap adds and removes */
	PN_BECAUSE_CHEAPEST, /* protocol: cheapest even for one use */
	PN_BECAUSE_REUSE,    /* protocol: further uses pay for registering */
	PN_BECAUSE_TRIAL,    /* protocol: exploration */
	PN_BECAUSE_STREAM,   /* protocol: the most bytes per time while others
				are in flight */
	PN_NREASONS,
};

/* What decides about hits and misses of a cache besides its requests. Numbers
 * are in the byte order of the machine that recorded. Fields are added at the
 * end. */
struct pn_trace_event_cache {
	uint64_t max_bytes, max_regions; /* the budget */
	uint64_t max_region_bytes;
	uint64_t batch_bytes, batch_age_ns;
	uint32_t batch;
	uint8_t merge, watched,
		read_only;   /* read_only: memory can be pinned read-only */
	uint8_t one_segment; /* a pin has one region (cache/single_segment.c) */
	/* Costs of the device in ns, as the policies know them. */
	double register_ns, register_page_ns;
	double deregister_ns, deregister_page_ns;
	char policy[16];
	char device[64];
};

#endif
