/* SPDX-License-Identifier: BSD-2-Clause */
#include "message/connection/wire.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

/* The keys of a packet name exactly the bytes that it is about. In a MATCH the
 * keys of each rail do. */
static bool keys_ok(const struct pn_wire *wire, const uint8_t *keys, size_t len)
{
	uint64_t rails = wire->kind == PN_WIRE_MATCH ? wire->offset : 0;
	uint64_t sum[PN_RAILS_MAX] = { 0 };
	unsigned n[PN_RAILS_MAX] = { 0 };

	if (wire->nkeys > PN_WIRE_MAX_KEYS ||
	    len != wire->nkeys * sizeof(struct pn_wire_key))
		return false;
	for (unsigned i = 0; i < wire->nkeys; i++) {
		unsigned r = pn_wire_key_rail(rails, i);
		struct pn_wire_key key;

		memcpy(&key, keys + i * sizeof(key), sizeof(key));
		if (__builtin_add_overflow(sum[r], key.len, &sum[r]))
			return false;
		n[r]++;
	}
	for (unsigned r = 0; r < PN_RAILS_MAX; r++)
		if (n[r] && sum[r] != wire->len)
			return false;
	return true;
}

/* Whether this kind of packet may have this payload. */
static bool payload_ok(const struct pn_wire *wire, const uint8_t *payload,
		       size_t len)
{
	switch (wire->kind) {
	case PN_WIRE_MATCH:
		if (wire->status &
		    ~(PN_WIRE_SPACE | PN_WIRE_HAS_DATA | PN_WIRE_TELL |
		      PN_WIRE_WIDE_DATA | PN_WIRE_ASKS | PN_WIRE_LATE))
			return false;
		if (wire->status & PN_WIRE_LATE && len)
			return false;
		return wire->nkeys ? keys_ok(wire, payload, len)
				   : len <= wire->len;
	case PN_WIRE_READY:
	case PN_WIRE_GRANT:
		return keys_ok(wire, payload, len);
	case PN_WIRE_DATA:
	case PN_WIRE_HELLO:
		return !wire->nkeys && len;
	default:
		return !wire->nkeys && !len;
	}
}

void pn_wire_put_address(const struct pn_address *rails, unsigned nrails,
			 bool either, struct pinion_address *out)
{
	uint8_t *to = out->data;

	_Static_assert(sizeof(out->data) >=
			       2 + PN_RAILS_MAX * (1 + PN_ADDRESS_BYTES),
		       "room for all rails");
	memset(out, 0, sizeof(*out));
	*to++ = PN_WIRE_VERSION;
	*to++ = (uint8_t)(nrails | (either ? PN_WIRE_EITHER : 0));
	for (unsigned i = 0; i < nrails; i++) {
		*to++ = (uint8_t)rails[i].len;
		memcpy(to, rails[i].data, rails[i].len);
		to += rails[i].len;
	}
	out->len = (uint32_t)(to - out->data);
}

int pn_wire_get_address(const uint8_t *data, size_t len,
			struct pn_address *rails, unsigned *nrails)
{
	const uint8_t *end = data + len, *at = data + 2;
	unsigned count;

	if (len < 2)
		return -EINVAL;
	if (data[0] != PN_WIRE_VERSION)
		return -EPROTONOSUPPORT;
	/* Read once: a hostile peer may change what it has sent. */
	count = *(const volatile uint8_t *)&data[1] & ~(unsigned)PN_WIRE_EITHER;
	if (!count || count > PN_RAILS_MAX)
		return -EINVAL;
	for (unsigned i = 0; i < count; i++) {
		size_t n = at < end ? *(const volatile uint8_t *)at++ : 0;

		if (!n || n > PN_ADDRESS_BYTES || n > (size_t)(end - at))
			return -EINVAL;
		rails[i] = (struct pn_address){ .len = (uint32_t)n };
		memcpy(rails[i].data, at, n);
		at += n;
	}
	*nrails = count;
	return at == end ? 0 : -EINVAL;
}

int pn_wire_parse(const void *data, size_t len, struct pn_wire *out,
		  const uint8_t **payload, size_t *payload_len)
{
	/* The version is the first byte in every version. */
	if (!len)
		return -EPROTO;
	if (*(const uint8_t *)data != PN_WIRE_VERSION)
		return -EPROTONOSUPPORT;
	if (len < sizeof(*out))
		return -EPROTO;
	/* Only the copy is looked at: the sender could still change the
	 * original. */
	memcpy(out, data, sizeof(*out));
	*payload = (const uint8_t *)data + sizeof(*out);
	*payload_len = len - sizeof(*out);
	return out->kind && out->kind < PN_WIRE_NKINDS &&
			       payload_ok(out, *payload, *payload_len)
		       ? 0
		       : -EPROTO;
}

/* --- key blobs ------------------------------------------------------------ */

/* FNV-1a over everything except the field `check`. */
static uint32_t check_of(const struct pn_key_head *head,
			 const struct pn_wire_key *keys)
{
	struct pn_key_head zeroed = *head;
	const uint8_t *parts[] = { (const uint8_t *)&zeroed,
				   (const uint8_t *)keys };
	size_t lens[] = { sizeof(zeroed), head->nkeys * sizeof(*keys) };
	uint32_t x = UINT32_C(2166136261);

	zeroed.check = 0;
	for (unsigned p = 0; p < 2; p++)
		for (size_t i = 0; i < lens[p]; i++)
			x = (x ^ parts[p][i]) * UINT32_C(16777619);
	return x;
}

size_t pn_key_pack(struct pn_key_head *head, const struct pn_wire_key *keys,
		   void *data)
{
	head->version = PN_KEY_VERSION;
	head->magic = PN_KEY_MAGIC;
	head->check = check_of(head, keys);
	memcpy(data, head, sizeof(*head));
	memcpy((uint8_t *)data + sizeof(*head), keys,
	       head->nkeys * sizeof(*keys));
	return PN_KEY_BYTES(head->nkeys);
}

static bool covers(const struct pn_key_head *head,
		   const struct pn_wire_key *keys)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < head->nkeys; i++)
		if (!keys[i].len || keys[i].addr + keys[i].len < keys[i].addr ||
		    __builtin_add_overflow(sum, keys[i].len, &sum))
			return false;
	return sum == head->len;
}

int pn_key_parse(const void *data, size_t len, struct pn_key_head *head,
		 struct pn_wire_key keys[PN_KEY_MAX])
{
	/* The version is the first byte in every version. */
	if (!len)
		return -EINVAL;
	if (*(const uint8_t *)data != PN_KEY_VERSION)
		return -EPROTONOSUPPORT;
	if (len < sizeof(*head))
		return -EINVAL;
	memcpy(head, data, sizeof(*head));
	if (head->magic != PN_KEY_MAGIC || !head->nkeys ||
	    head->nkeys > PN_KEY_MAX || len != PN_KEY_BYTES(head->nkeys))
		return -EINVAL;
	memcpy(keys, (const uint8_t *)data + sizeof(*head),
	       head->nkeys * sizeof(*keys));
	if (head->check != check_of(head, keys) || !covers(head, keys))
		return -EINVAL;
	return 0;
}

int pn_wire_failure(const struct pn_wire *wire)
{
	switch (wire->status) {
	case -EACCES:
	case -ECANCELED:
	case -ECONNRESET:
	case -EMSGSIZE:
		return wire->status;
	default:
		return wire->status < 0 ? -EREMOTEIO : -EPROTO;
	}
}
