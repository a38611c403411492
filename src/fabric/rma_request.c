/* SPDX-License-Identifier: BSD-2-Clause */
/* Checks and parses RMA requests (onesided.h). */
#include <errno.h>
#include <string.h>

#include "fabric/onesided.h"

size_t pn_fi_rma_request_payload(const struct pn_fi_rma_request *request)
{
	switch (request->kind) {
	case PN_FI_WRITE:
		return request->flags & PN_FI_DATA_FOLLOWS ? 0 : request->len;
	case PN_FI_READ:
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
	default:
		return false;
	}
}

int pn_fi_rma_request_parse(const void *data, size_t len,
			    struct pn_fi_rma_request *out,
			    const uint8_t **payload)
{
	memset(out, 0, sizeof(*out));
	memcpy(out, data, len < sizeof(*out) ? len : sizeof(*out));
	if (len && out->version != PN_FI_RMA_REQUEST_VERSION)
		return -EPROTONOSUPPORT;
	if (len < sizeof(*out) || !kind_ok(out) ||
	    pn_fi_rma_request_payload(out) != len - sizeof(*out))
		return -EPROTO;
	*payload = (const uint8_t *)data + sizeof(*out);
	return 0;
}
