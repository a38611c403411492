/* SPDX-License-Identifier: BSD-2-Clause */
/* Addresses and hellos, from and to the bytes that travel. */
#include <errno.h>

#include "base/compiler.h"
#include "device/fabric/wire.h"

#define HEAD offsetof(struct pn_fabric_address, raw)

void pn_fabric_address_put(const struct pn_fabric_address *address,
			   struct pn_address *out)
{
	memset(out, 0, sizeof(*out));
	pn_assert(address->len <= PN_FABRIC_RAW_BYTES);
	out->len = (uint32_t)(HEAD + address->len);
	memcpy(out->data, address, out->len);
}

static bool is_address(const struct pn_fabric_address *from)
{
	return !memcmp(from->kind, "fabr", 4) && from->len &&
	       from->len <= PN_FABRIC_RAW_BYTES;
}

static int check(const struct pn_fabric_address *from)
{
	return is_address(from) && from->version == PN_FABRIC_VERSION ? 0
								      : -EINVAL;
}

int pn_fabric_address_check(const struct pn_address *blob,
			    struct pn_fabric_address *out)
{
	memset(out, 0, sizeof(*out));
	if (blob->len < HEAD || blob->len > HEAD + PN_FABRIC_RAW_BYTES)
		return -EINVAL;
	memcpy(out, blob->data, blob->len);
	return blob->len == HEAD + out->len ? check(out) : -EINVAL;
}

bool pn_fabric_hello_has_sender(const struct pn_fabric_hello *hello, size_t len)
{
	return len >= sizeof(*hello) && is_address(&hello->from);
}

int pn_fabric_hello_check(const void *data, size_t len, uint64_t nonce,
			  struct pn_fabric_hello *out)
{
	const size_t head = offsetof(struct pn_fabric_hello, to_nonce);

	memset(out, 0, sizeof(*out));
	if (len < head)
		return -EPROTO;
	memcpy(out, data, len < sizeof(*out) ? len : sizeof(*out));
	if (out->magic != PN_FABRIC_MAGIC)
		return -EPROTO;
	if (out->version != PN_FABRIC_VERSION)
		return -ECONNREFUSED;
	if (len < sizeof(*out) || check(&out->from) || !out->header.tag)
		return -EINVAL;
	return out->to_nonce == nonce ? 0 : -ECONNRESET;
}
