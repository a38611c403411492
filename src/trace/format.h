/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * format -- the binary trace file.
 *
 * A file is a header of PN_TRACE_HEAD_BYTES and blocks of equal size. A block
 * belongs to one stream (one thread at a time writes a stream). It holds
 * records one after the other, `used` bytes of them; the bytes behind are
 * undefined. A block whose magic is 0 was allocated but not started and holds
 * nothing. Blocks are independent: the delta encoding of each starts from an
 * all-zero event.
 *
 * A record encodes how an event differs from the event before it in its block:
 *
 * 	kind      1 byte; top bit: a blob follows
 * 	changed   2 bytes: bit i stands for field i of FIELDS in encode.c
 * 	time      zigzag varint: difference to the previous time
 * 	fields    the changed fields, in order: zigzag varint of the difference
 * 	blob      varint length, then bytes
 *
 * A varint has 7 bits per byte, lowest first; the top bit says that another
 * byte follows. Zigzag maps 0, -1, 1, -2 to 0, 1, 2, 3. Differences are modulo
 * 2^64.
 *
 * Besides events (cache/trace_event.h) there are records about the trace
 * itself: PN_RECORD_SITE gives `site` its frames (blob: 8 bytes each),
 * PN_RECORD_OP gives `op` its name. The blob of an OPEN event is a struct
 * pn_trace_event_cache.
 *
 * Numbers have the byte order of the recording machine; readers refuse another
 * byte order and another major version. Additions that keep the version: new
 * kinds, bits in `changed` up to 15, bytes at the end of blobs.
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
	uint64_t start_ns;	   /* of the first block: time 0 for readers */
	_Atomic uint64_t lost;	   /* events that did not fit */
	_Atomic uint32_t complete; /* the process ended normally */
	uint32_t reserved;
	char program[64];
};

struct pn_trace_block {
	uint32_t magic, stream;
	uint64_t start_ns; /* time of its first event */
	_Atomic uint32_t used;
	uint32_t reserved;
	uint8_t records[];
};

#define PN_TRACE_BLOCK_ROOM \
	(PN_TRACE_BLOCK_BYTES - sizeof(struct pn_trace_block))

enum pn_record_kind {
	PN_RECORD_SITE = 120,
	PN_RECORD_OP = 121,
	PN_RECORD_BLOB = 128, /* flag: a blob follows */
};

/* Maximum length: 3 bytes, 13 varints, and the blob. */
#define PN_RECORD_BLOB_MAX  1024
#define PN_RECORD_MAX	    (3 + 13 * 10 + 2 + PN_RECORD_BLOB_MAX)
/* Maximum without a blob: four varints of 64 bits and the time; the other
 * fields are shorter. */
#define PN_RECORD_PLAIN_MAX (3 + 5 * 10 + 2 * 5 + 3 * 3 + 3 * 2)

struct pn_record {
	struct pn_trace_event event;
	const void *blob;
	uint16_t nblob;
};

/* encode.c: writes a record at `to`, which has PN_RECORD_MAX bytes of space
 * (PN_RECORD_PLAIN_MAX without a blob). *before is the previous event; on
 * return it is this one. Returns the end of the record. */
uint8_t *pn_record_encode(uint8_t *to, const struct pn_record *record,
			  struct pn_trace_event *before);
/* The same for an event without a blob, the common case. */
uint8_t *pn_event_encode(uint8_t *to, const struct pn_trace_event *event,
			 struct pn_trace_event *before);

/* Reads a record; *before as above. Returns its end, or NULL if the record is
 * damaged or reaches beyond `end`. The blob is not copied. */
const uint8_t *pn_record_decode(const uint8_t *at, const uint8_t *end,
				struct pn_record *record,
				struct pn_trace_event *before);

#endif
