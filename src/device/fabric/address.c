/* SPDX-License-Identifier: BSD-2-Clause */
/* Addresses and hellos, from and to the bytes that travel. */
#include <errno.h>
#include <netinet/in.h>
#include <rdma/fabric.h>
#include <string.h>

#include "base/compiler.h"
#include "device/fabric/wire.h"

/* The bytes of an address: kind, version, provider, format, nonce, length,
 * then `raw`, of which an internet address keeps port and address only. So the
 * addresses of `soft` and `fabric` together fit into the 64 bytes that Open MPI
 * has for the name of an endpoint. */
#define KIND	    'f'
#define AT_KIND	    0
#define AT_VERSION  1
#define AT_PROVIDER 2
#define AT_FORMAT   6
#define AT_NONCE    8
#define AT_LEN	    16 /* how many bytes follow */
#define HEAD	    17

/* An internet address as a provider has it, and its bytes that matter. */
union internet {
	sa_family_t family;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
	uint8_t raw[sizeof(struct sockaddr_in6)];
};

#define SHORT_V4 (sizeof(in_port_t) + sizeof(struct in_addr))
#define SHORT_V6 (sizeof(in_port_t) + sizeof(struct in6_addr))

/* Fills *out from `len` bytes; returns how long it is, or 0. */
static size_t expand(const uint8_t *from, size_t len, union internet *out)
{
	memset(out, 0, sizeof(*out));
	if (len == SHORT_V4) {
		out->v4.sin_family = AF_INET;
		memcpy(&out->v4.sin_port, from, sizeof(in_port_t));
		memcpy(&out->v4.sin_addr, from + sizeof(in_port_t),
		       sizeof(out->v4.sin_addr));
		return sizeof(out->v4);
	}
	if (len == SHORT_V6) {
		out->v6.sin6_family = AF_INET6;
		memcpy(&out->v6.sin6_port, from, sizeof(in_port_t));
		memcpy(&out->v6.sin6_addr, from + sizeof(in_port_t),
		       sizeof(out->v6.sin6_addr));
		return sizeof(out->v6);
	}
	return 0;
}

static bool is_internet(unsigned format)
{
	return format == FI_SOCKADDR || format == FI_SOCKADDR_IN ||
	       format == FI_SOCKADDR_IN6;
}

/* Writes port and address; returns how many bytes, or 0 if the address has more
 * than these (the scope of a link-local one). */
static size_t shorten(const struct pn_fabric_address *address, uint8_t *to)
{
	union internet all, again;
	const void *at = &all.v4.sin_addr;
	size_t len = SHORT_V4;

	if (!is_internet(address->format) || address->len > sizeof(all.raw))
		return 0;
	memset(&all, 0, sizeof(all));
	memcpy(all.raw, address->raw, address->len);
	if (all.family == AF_INET6) {
		at = &all.v6.sin6_addr;
		len = SHORT_V6;
	}
	/* The port is at the same place in both. */
	memcpy(to, &all.v4.sin_port, sizeof(in_port_t));
	memcpy(to + sizeof(in_port_t), at, len - sizeof(in_port_t));
	return expand(to, len, &again) == address->len &&
			       !memcmp(again.raw, all.raw, sizeof(all.raw))
		       ? len
		       : 0;
}

void pn_fabric_address_put(const struct pn_fabric_address *address,
			   struct pn_address *out)
{
	size_t len;

	memset(out, 0, sizeof(*out));
	pn_assert(address->len <= PN_FABRIC_RAW_BYTES);
	out->data[AT_KIND] = KIND;
	out->data[AT_VERSION] = (uint8_t)address->version;
	memcpy(out->data + AT_PROVIDER, &address->provider,
	       sizeof(address->provider));
	memcpy(out->data + AT_FORMAT, &address->format,
	       sizeof(address->format));
	memcpy(out->data + AT_NONCE, &address->nonce, sizeof(address->nonce));
	len = shorten(address, out->data + HEAD);
	if (!len) {
		len = address->len;
		memcpy(out->data + HEAD, address->raw, len);
	}
	out->data[AT_LEN] = (uint8_t)len;
	out->len = (uint32_t)(HEAD + len);
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
	const uint8_t *raw = blob->data + HEAD;
	union internet all;
	size_t len;

	memset(out, 0, sizeof(*out));
	if (blob->len <= HEAD || blob->len > HEAD + PN_FABRIC_RAW_BYTES ||
	    blob->data[AT_KIND] != KIND ||
	    blob->data[AT_LEN] != blob->len - HEAD)
		return -EINVAL;
	memcpy(out->kind, "fabr", sizeof(out->kind));
	out->version = blob->data[AT_VERSION];
	memcpy(&out->provider, blob->data + AT_PROVIDER, sizeof(out->provider));
	memcpy(&out->format, blob->data + AT_FORMAT, sizeof(out->format));
	memcpy(&out->nonce, blob->data + AT_NONCE, sizeof(out->nonce));
	len = is_internet(out->format) ? expand(raw, blob->len - HEAD, &all)
				       : 0;
	out->len = (uint16_t)(len ? len : blob->len - HEAD);
	memcpy(out->raw, len ? all.raw : raw, out->len);
	return check(out);
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
