/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Encoding and decoding of records; format.h describes them.
 */
#include "trace/format.h"

#include "base/compiler.h"

static inline uint64_t zigzag(uint64_t difference)
{
	return difference << 1 ^ (uint64_t)((int64_t)difference >> 63);
}

static inline uint64_t unzigzag(uint64_t value)
{
	return value >> 1 ^ -(value & 1);
}

static inline uint8_t *encode_varint(uint8_t *to, uint64_t value)
{
	while (value >= 128) {
		*to++ = (uint8_t)(value | 128);
		value >>= 7;
	}
	*to++ = (uint8_t)value;
	return to;
}

/* X(field): all fields except time and kind, in the order of their bits. New
 * fields are added at the end only. */
#define FIELDS(X)   \
	X(addr)     \
	X(len)      \
	X(handle)   \
	X(flags)    \
	X(decision) \
	X(reason)   \
	X(site)     \
	X(thread)   \
	X(source)   \
	X(peer)     \
	X(op)       \
	X(more)

uint8_t *pn_event_encode(uint8_t *to, const struct pn_trace_event *event,
			 struct pn_trace_event *before)
{
	uint8_t *changed = to + 1;
	unsigned mask = 0, bit = 1;

	*to = event->kind;
	to = encode_varint(to + 3, zigzag(event->time_ns - before->time_ns));
#define PUT(field)                                                       \
	if (event->field != before->field) {                             \
		mask |= bit;                                             \
		to = encode_varint(to, zigzag((uint64_t)event->field -   \
					      (uint64_t)before->field)); \
	}                                                                \
	bit <<= 1;
	FIELDS(PUT)
#undef PUT
	changed[0] = (uint8_t)mask;
	changed[1] = (uint8_t)(mask >> 8);
	*before = *event;
	return to;
}

uint8_t *pn_record_encode(uint8_t *to, const struct pn_record *record,
			  struct pn_trace_event *before)
{
	uint8_t *kind = to;

	to = pn_event_encode(to, &record->event, before);
	if (!record->nblob)
		return to;
	*kind |= PN_RECORD_BLOB;
	to = encode_varint(to, record->nblob);
	memcpy(to, record->blob, record->nblob);
	return to + record->nblob;
}

/* Returns NULL if the varint does not end before `end`. */
static inline const uint8_t *decode_varint(const uint8_t *at,
					   const uint8_t *end, uint64_t *out)
{
	uint64_t value = 0;

	for (unsigned shift = 0; at < end && shift < 64; shift += 7) {
		uint8_t byte = *at++;

		value |= (uint64_t)(byte & 127) << shift;
		if (!(byte & 128)) {
			*out = value;
			return at;
		}
	}
	return NULL;
}

static const uint8_t *decode_blob(const uint8_t *at, const uint8_t *end,
				  struct pn_record *record)
{
	uint64_t n;

	at = decode_varint(at, end, &n);
	if (!at || n > PN_RECORD_BLOB_MAX || n > (size_t)(end - at))
		return NULL;
	record->blob = at;
	record->nblob = (uint16_t)n;
	return at + n;
}

static inline const uint8_t *decode_fields(const uint8_t *at,
					   const uint8_t *end, unsigned mask,
					   struct pn_trace_event *event)
{
	uint64_t value;

#define TAKE(field)                                                         \
	if (mask & 1) {                                                     \
		at = decode_varint(at, end, &value);                        \
		if (pn_unlikely(!at))                                       \
			return NULL;                                        \
		event->field = (__typeof__(event->field))(event->field +    \
							  unzigzag(value)); \
	}                                                                   \
	mask >>= 1;
	FIELDS(TAKE)
#undef TAKE
	/* Fields that a later version added. */
	for (; mask; mask >>= 1)
		if (mask & 1 && !(at = decode_varint(at, end, &value)))
			return NULL;
	return at;
}

const uint8_t *pn_record_decode(const uint8_t *at, const uint8_t *end,
				struct pn_record *record,
				struct pn_trace_event *before)
{
	unsigned kind, mask;
	uint64_t value;

	if (end - at < 4)
		return NULL;
	kind = at[0];
	mask = at[1] | (unsigned)at[2] << 8;
	at = decode_varint(at + 3, end, &value);
	if (!at)
		return NULL;
	before->time_ns += unzigzag(value);
	before->kind = kind & 127;
	at = decode_fields(at, end, mask, before);
	if (!at)
		return NULL;
	record->event = *before;
	record->nblob = 0;
	return kind & PN_RECORD_BLOB ? decode_blob(at, end, record) : at;
}
