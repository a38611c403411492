/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * keys -- addresses and keys of pinned memory, here and at a peer.
 *
 * A pin consists of segments, each with its own keys; so does the memory that a
 * peer announces. These functions find the segment of a byte.
 */
#ifndef PN_MESSAGE_KEYS_H
#define PN_MESSAGE_KEYS_H

#include <pinion/cache.h>

#include "device/device.h"
#include "message/connection/wire.h"

/* Byte n of a pinned buffer: address and key, and the length that they cover.
 */
struct pn_sge pn_pin_at(const struct pinion_pin *pin, size_t n);

/* The same for memory of a peer. len 0: n is beyond its end. */
struct pn_wire_key pn_keys_at(const struct pn_wire_key *keys, unsigned nkeys,
			      size_t n);

/* The same with the keys for one of the peer's rails; rails as in a MATCH. */
struct pn_wire_key pn_keys_on_rail(const struct pn_wire_key *keys,
				   unsigned nkeys, uint64_t rails,
				   unsigned rail, size_t n);

/* Appends the keys of a pin to a packet; false: it has too many segments. */
bool pn_keys_export(const struct pinion_pin *pin, struct pn_wire *wire,
		    struct pn_wire_key *keys);

#endif
