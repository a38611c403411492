/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fuzz_wire -- packets between endpoints (message/wire.h), parsed and sent to a
 * live endpoint (tests/message/hostile.h).
 *
 * The input is a sequence of packets. A byte with its top bit set begins a raw
 * packet: its length, then its bytes. Any other byte begins a packet whose
 * header is built from the following twelve bytes, so that arbitrary numbers in
 * valid headers are frequent. Parsing never reads outside a packet; the
 * endpoint completes every request, keeps working with its honest peer, and
 * leaves nothing pinned.
 */
#include "fuzz.h"

#include <errno.h>
#include <stdbool.h>

#include "base/log.h"
#include "message/connection/wire.h"
#include "message/hostile.h"

#define MAX_PACKETS 16
#define FIELDS	    12

struct input {
	const uint8_t *data;
	size_t left;
};

static uint8_t take(struct input *in)
{
	if (!in->left)
		return 0;
	in->left--;
	return *in->data++;
}

static size_t take_bytes(struct input *in, uint8_t *to, size_t len)
{
	if (len > in->left)
		len = in->left;
	memcpy(to, in->data, len);
	in->data += len;
	in->left -= len;
	return len;
}

/* Any size from 1 to the largest number. */
static uint64_t wild(struct input *in)
{
	uint64_t mantissa = take(in);

	return mantissa << take(in) % 64;
}

/* As many keys and bytes as the header announces. */
static size_t put_keys(const struct pn_wire *wire, uint8_t *to, uint8_t rkey)
{
	struct pn_wire_key key = { .addr = (uint64_t)rkey << 12,
				   .len = wire->len,
				   .rkey = rkey };
	size_t n = wire->nkeys < 64 ? wire->nkeys : 64;

	for (size_t i = 0; i < n; i++) {
		memcpy(to + i * sizeof(key), &key, sizeof(key));
		key.len = 0;
	}
	return n * sizeof(key);
}

static size_t make_packet(struct input *in, uint8_t kind, uint8_t *to)
{
	struct pn_wire wire = { .version = PN_WIRE_VERSION,
				.kind = kind % (PN_WIRE_NKINDS + 1) };
	uint8_t payload;

	wire.protocol = take(in);
	wire.nkeys = take(in);
	wire.to = HOSTILE_FIRST + take(in) % (HOSTILE_NREQUESTS + 1);
	wire.from = take(in);
	wire.status = -(int32_t)take(in);
	wire.tag = take(in);
	wire.offset = wild(in);
	wire.len = wild(in);
	payload = take(in);
	memcpy(to, &wire, sizeof(wire));
	to += sizeof(wire);
	if (payload & 1)
		return sizeof(wire) + put_keys(&wire, to, payload);
	memset(to, payload, 8 * (size_t)payload);
	return sizeof(wire) + 8 * (size_t)payload;
}

static size_t next_packet(struct input *in, uint8_t *to)
{
	uint8_t first = take(in);

	return first & 0x80 ? take_bytes(in, to, first & 0x7f)
			    : make_packet(in, first, to);
}

/* Memory of exactly the packet's size, so that a read past its end is detected.
 */
static void check_parse(const uint8_t *bytes, size_t len)
{
	uint8_t *exact = malloc(len ? len : 1);
	const uint8_t *payload = NULL;
	struct pn_wire wire;
	size_t payload_len = 0;
	int ret;

	FUZZ_ASSERT(exact);
	memcpy(exact, bytes, len);
	ret = pn_wire_parse(exact, len, &wire, &payload, &payload_len);
	FUZZ_ASSERT(!ret || ret == -EPROTO || ret == -EPROTONOSUPPORT);
	if (!ret) {
		FUZZ_ASSERT(payload == exact + sizeof(wire));
		FUZZ_ASSERT(payload_len == len - sizeof(wire));
		FUZZ_ASSERT(wire.nkeys <= PN_WIRE_MAX_KEYS);
	}
	free(exact);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t bytes[MAX_PACKETS][HOSTILE_MAX_PACKET];
	struct hostile_packet packets[MAX_PACKETS];
	struct input in = { data, size };
	struct hostile_result result;
	unsigned n = 0;

	pn_log_set_level(PN_LOG_NONE);
	for (; in.left && n < MAX_PACKETS; n++) {
		packets[n].data = bytes[n];
		packets[n].len = next_packet(&in, bytes[n]);
		check_parse(bytes[n], packets[n].len);
	}
	FUZZ_ASSERT(hostile_run(packets, n, &result));
	return 0;
}
