/* SPDX-License-Identifier: BSD-2-Clause */
/* Addresses and hellos, from and to the bytes that travel. */
#include <errno.h>

#include "device/verbs/connect.h"

void pn_verbs_address_to_socket(const struct pn_verbs_address *from, bool port,
				union pn_verbs_socket_address *out)
{
	memset(out, 0, sizeof(*out));
	out->any.sa_family = from->family;
	if (from->family == AF_INET) {
		memcpy(&out->v4.sin_addr, from->ip, 4);
		out->v4.sin_port = port ? from->port : 0;
	} else {
		memcpy(&out->v6.sin6_addr, from->ip, 16);
		out->v6.sin6_port = port ? from->port : 0;
		out->v6.sin6_scope_id = from->scope;
	}
}

static int check_address(const struct pn_verbs_address *from)
{
	return !memcmp(from->kind, "verb", 4) &&
			       from->version == PN_VERBS_VERSION &&
			       (from->family == AF_INET ||
				from->family == AF_INET6) &&
			       from->port
		       ? 0
		       : -EINVAL;
}

/* The blob of an IPv4 address: the fields before the scope, then 4 bytes. */
#define V4_HEAD	 offsetof(struct pn_verbs_address, scope)
#define V4_BYTES (V4_HEAD + 4)

void pn_verbs_address_put(const struct pn_verbs_address *address,
			  struct pn_address *out)
{
	memset(out, 0, sizeof(*out));
	out->len = address->family == AF_INET ? V4_BYTES : sizeof(*address);
	memcpy(out->data, address, sizeof(*address));
	if (address->family != AF_INET)
		return;
	memset(out->data + V4_HEAD, 0, sizeof(*address) - V4_HEAD);
	memcpy(out->data + V4_HEAD, address->ip, 4);
}

int pn_verbs_address_check(const struct pn_address *blob,
			   struct pn_verbs_address *out)
{
	bool v4 = blob->len == V4_BYTES;

	if (!v4 && blob->len != sizeof(*out))
		return -EINVAL;
	memset(out, 0, sizeof(*out));
	memcpy(out, blob->data, v4 ? V4_HEAD : sizeof(*out));
	if (v4)
		memcpy(out->ip, blob->data + V4_HEAD, 4);
	return v4 == (out->family == AF_INET) ? check_address(out) : -EINVAL;
}

int pn_verbs_hello_check(const void *data, size_t len, uint64_t nonce,
			 struct pn_verbs_hello *out)
{
	if (len < sizeof(*out))
		return -EPROTO;
	memcpy(out, data, sizeof(*out));
	if (out->magic != PN_VERBS_MAGIC)
		return -EPROTO;
	if (out->version != PN_VERBS_VERSION)
		return -ECONNREFUSED;
	if (out->to != nonce)
		return -ECONNRESET;
	return check_address(&out->from);
}
