/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * format -- the binary form of a trace.
 *
 * A file is a head of PN_TRACE_HEAD_BYTES and blocks of equal size. A block
 * belongs to one stream (one thread at a time writes it) and holds records, one
 * behind the other, `used` bytes of them; what lies behind is undefined. A
 * block whose magic is 0 was never begun and holds nothing. Blocks are
 * independent: each begins with the state that an all-zero event is.
 *
 * A record says how an event differs from the one before it in its block:
 *
 *	kind      1 byte; the top bit: a blob follows
 *	changed   2 bytes: bit i stands for field i of pn_trace_fields
 *	time      zigzag varint: difference to the time before
 *	fields    those that changed, in order: zigzag varint of the difference
 *	blob      varint length, then bytes
 *
 * A varint is 7 bits a byte, lowest first, the top bit says that more follow;
 * zigzag maps 0, -1, 1, -2 to 0, 1, 2, 3. Differences are modulo 2^64.
 *
 * Besides events (cache/trace_event.h) there are records about the trace
 *itself: PN_RECORD_SITE gives `site` its frames (blob: 8 bytes each),
 *PN_RECORD_OP gives `op` its name. An OPEN event has a struct
 *pn_trace_event_cache for a blob.
 *
 * Numbers are in the byte order of the machine that recorded; readers refuse
 * another order and another major version. What can be added without changing
 * the version: kinds, bits in `changed` up to 15, bytes at the end of blobs.
 */
#ifndef PN_TRACE_FORMAT_H
#define PN_TRACE_FORMAT_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/trace_sink.h"

#define PN_TRACE_MAGIC	     UINT64_C(0x0a65636172746e70) /* "pntrace\n" */
#define PN_TRACE_VERSION     1
#define PN_TRACE_ORDER	     UINT32_C(0x01020304)
#define PN_TRACE_HEAD_BYTES  4096
#define PN_TRACE_BLOCK_BYTES (64 << 10)
#define PN_TRACE_BLOCK_MAGIC UINT32_C(0x6b6c6270)

struct pn_trace_head {
	uint64_t magic;
	uint32_t order, version;
	uint32_t block_bytes, pid;
	uint64_t start_ns;     /* of the first block: readers count from it */
	_Atomic uint64_t lost; /* events that found no room */
	_Atomic uint32_t complete; /* the process ended in good order */
	uint32_t reserved;
	char program[64];
};

struct pn_trace_block {
	uint32_t magic, stream;
	uint64_t start_ns; /* of its first event */
	_Atomic uint32_t used;
	uint32_t reserved;
	uint8_t records[];
};

#define PN_TRACE_BLOCK_ROOM \
	(PN_TRACE_BLOCK_BYTES - sizeof(struct pn_trace_block))

enum pn_record_kind {
	PN_RECORD_SITE = 120,
	PN_RECORD_OP = 121,
	PN_RECORD_BLOB = 128, /* the bit */
};

/* No record is longer: 3 bytes, 13 varints, and the blob. */
#define PN_RECORD_BLOB_MAX  1024
#define PN_RECORD_MAX	    (3 + 13 * 10 + 2 + PN_RECORD_BLOB_MAX)
/* Without a blob: four varints of 64 bits and time, the others shorter. */
#define PN_RECORD_PLAIN_MAX (3 + 5 * 10 + 2 * 5 + 3 * 3 + 3 * 2)

struct pn_record {
	struct pn_trace_event event;
	const void *blob;
	uint16_t nblob;
};

/* encode.c: writes a record at `to`, where PN_RECORD_MAX bytes fit (or
 * PN_RECORD_PLAIN_MAX, without a blob); *before is the event before, and this
 * one afterwards. Returns the end. */
uint8_t *pn_record_encode(uint8_t *to, const struct pn_record *record,
			  struct pn_trace_event *before);
/* The same for what most records are. */
uint8_t *pn_event_encode(uint8_t *to, const struct pn_trace_event *event,
			 struct pn_trace_event *before);

/* Reads a record; *before as above. Returns its end, or NULL: it is damaged or
 * does not end before `end`. The blob is where it lies. */
const uint8_t *pn_record_decode(const uint8_t *at, const uint8_t *end,
				struct pn_record *record,
				struct pn_trace_event *before);

#endif
