/* SPDX-License-Identifier: BSD-2-Clause */
/* Checks and parses RMA requests (onesided.h). */
#include <errno.h>
#include <string.h>

#include "provider/onesided.h"

size_t pn_fi_rma_request_payload(const struct pn_fi_rma_request *request)
{
	switch (request->kind) {
	case PN_FI_WRITE:
		return request->flags & PN_FI_DATA_FOLLOWS ? 0 : request->len;
	case PN_FI_READ:
	case PN_FI_EXPOSE:
		return 0;
	case PN_FI_COMPARE:
		return 2 * request->len;
	default:
		return request->op == FI_ATOMIC_READ ? 0 : request->len;
	}
}

static bool atomic_ok(const struct pn_fi_rma_request *e)
{
	return pn_fi_atomic_valid(e->kind, e->type, e->op) &&
	       e->len <= PN_FI_ATOMIC_BYTES &&
	       !(e->len % pn_fi_datatype_bytes(e->type));
}

static bool kind_ok(const struct pn_fi_rma_request *e)
{
	switch (e->kind) {
	case PN_FI_WRITE:
	case PN_FI_READ:
		return true;
	case PN_FI_UPDATE:
	case PN_FI_FETCH:
	case PN_FI_COMPARE:
		return atomic_ok(e);
	case PN_FI_EXPOSE:
		return e->nsegments == 1 && !e->len;
	default:
		return false;
	}
}

struct pn_fi_rma_segment pn_fi_rma_request_segment(
	const struct pn_fi_rma_request *request, const uint8_t *payload,
	unsigned i)
{
	struct pn_fi_rma_segment segment = { request->addr, request->len,
					     request->key };

	if (request->nsegments > 1)
		memcpy(&segment,
		       payload - (request->nsegments - i) * sizeof(segment),
		       sizeof(segment));
	return segment;
}

/* Atomics have whole values in each segment. */
static bool segments_ok(const struct pn_fi_rma_request *e,
			const uint8_t *payload)
{
	size_t unit =
		pn_fi_is_atomic(e->kind) ? pn_fi_datatype_bytes(e->type) : 1;
	uint64_t sum = 0;

	for (unsigned i = 0; i < e->nsegments; i++) {
		uint64_t len = pn_fi_rma_request_segment(e, payload, i).len;

		if (len % unit || __builtin_add_overflow(sum, len, &sum))
			return false;
	}
	return sum == e->len && (e->nsegments || e->kind == PN_FI_WRITE);
}

int pn_fi_rma_request_parse(const void *data, size_t len,
			    struct pn_fi_rma_request *out,
			    const uint8_t **payload)
{
	size_t list;

	memset(out, 0, sizeof(*out));
	memcpy(out, data, len < sizeof(*out) ? len : sizeof(*out));
	if (len && out->version != PN_FI_RMA_REQUEST_VERSION)
		return -EPROTONOSUPPORT;
	if (len < sizeof(*out) || !kind_ok(out) ||
	    out->nsegments > PN_FI_IOV_LIMIT)
		return -EPROTO;
	list = pn_fi_rma_request_segments(out);
	if (len - sizeof(*out) < list ||
	    pn_fi_rma_request_payload(out) != len - sizeof(*out) - list)
		return -EPROTO;
	*payload = (const uint8_t *)data + sizeof(*out) + list;
	return segments_ok(out, *payload) ? 0 : -EPROTO;
}

bool pn_fi_region_key_valid(const struct pn_fi_region_key *key, size_t len)
{
	uint64_t end;

	return len >= offsetof(struct pn_fi_region_key, exposure.data) &&
	       key->exposure.len <= sizeof(key->exposure.data) &&
	       len == pn_fi_region_key_bytes(key) &&
	       !__builtin_add_overflow(key->base, key->len, &end);
}
