/* SPDX-License-Identifier: BSD-2-Clause */
#include "message/wire.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

/* Keys name exactly the bytes that the packet is about. */
static bool keys_ok(const struct pn_wire *wire, const uint8_t *keys, size_t len)
{
	uint64_t sum = 0;

	if (wire->nkeys > PN_WIRE_MAX_KEYS ||
	    len != wire->nkeys * sizeof(struct pn_wire_key))
		return false;
	for (unsigned i = 0; i < wire->nkeys; i++) {
		struct pn_wire_key key;

		memcpy(&key, keys + i * sizeof(key), sizeof(key));
		if (__builtin_add_overflow(sum, key.len, &sum))
			return false;
	}
	return !wire->nkeys || sum == wire->len;
}

/* Whether a kind of packet may carry this payload. */
static bool payload_ok(const struct pn_wire *wire, const uint8_t *payload,
		       size_t len)
{
	switch (wire->kind) {
	case PN_WIRE_MATCH:
		return wire->nkeys ? keys_ok(wire, payload, len)
				   : len <= wire->len;
	case PN_WIRE_READY:
		return keys_ok(wire, payload, len);
	case PN_WIRE_DATA:
		return !wire->nkeys && len;
	default:
		return !wire->nkeys && !len;
	}
}

int pn_wire_parse(const void *data, size_t len, struct pn_wire *out,
		  const uint8_t **payload, size_t *payload_len)
{
	struct pn_wire wire;

	/* The version stands first in every version. */
	if (!len)
		return -EPROTO;
	if (*(const uint8_t *)data != PN_WIRE_VERSION)
		return -EPROTONOSUPPORT;
	if (len < sizeof(wire))
		return -EPROTO;
	memcpy(&wire, data, sizeof(wire));
	if (!wire.kind || wire.kind >= PN_WIRE_NKINDS ||
	    !payload_ok(&wire, (const uint8_t *)data + sizeof(wire),
			len - sizeof(wire)))
		return -EPROTO;
	*out = wire;
	*payload = (const uint8_t *)data + sizeof(wire);
	*payload_len = len - sizeof(wire);
	return 0;
}
