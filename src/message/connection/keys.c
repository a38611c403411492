/* SPDX-License-Identifier: BSD-2-Clause */
#include "message/connection/keys.h"

#include "cache/cache.h"

struct pn_sge pn_pin_at(const struct pinion_pin *pin, size_t n)
{
	struct pinion_pin_segment part;

	for (unsigned i = 0; !pn_cache_pin_segment(pin, i, &part); i++) {
		if (n < part.len)
			return (struct pn_sge){ (char *)part.addr + n,
						part.len - n, part.local_key };
		n -= part.len;
	}
	return (struct pn_sge){ 0 };
}

struct pn_wire_key pn_keys_on_rail(const struct pn_wire_key *keys,
				   unsigned nkeys, uint64_t rails,
				   unsigned rail, size_t n)
{
	for (unsigned i = 0; i < nkeys; i++) {
		if (pn_wire_key_rail(rails, i) != rail)
			continue;
		if (n < keys[i].len)
			return (struct pn_wire_key){ keys[i].addr + n,
						     keys[i].len - n,
						     keys[i].rkey };
		n -= keys[i].len;
	}
	return (struct pn_wire_key){ 0 };
}

struct pn_wire_key pn_keys_at(const struct pn_wire_key *keys, unsigned nkeys,
			      size_t n)
{
	return pn_keys_on_rail(keys, nkeys, 0, 0, n);
}

bool pn_keys_export(const struct pinion_pin *pin, struct pn_wire *wire,
		    struct pn_wire_key *keys)
{
	struct pinion_pin_segment part;

	if (wire->nkeys + pin->nsegments > PN_WIRE_MAX_KEYS)
		return false;
	for (unsigned i = 0; i < pin->nsegments; i++) {
		pn_cache_pin_segment(pin, i, &part);
		keys[wire->nkeys++] =
			(struct pn_wire_key){ (uintptr_t)part.addr, part.len,
					      part.remote_key };
	}
	return true;
}
