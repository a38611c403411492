/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fnv -- the hash FNV-1a of bytes, for names of things that processes compare.
 * It does not resist an adversary. A hash begins as PN_FNV_START; more bytes
 * are added one piece after the other.
 */
#ifndef PN_BASE_FNV_H
#define PN_BASE_FNV_H

#include <stddef.h>
#include <stdint.h>

#define PN_FNV_START UINT64_C(14695981039346656037)

static inline uint64_t pn_fnv_add(uint64_t hash, const void *data, size_t len)
{
	const uint8_t *bytes = data;

	for (size_t i = 0; i < len; i++)
		hash = (hash ^ bytes[i]) * UINT64_C(1099511628211);
	return hash;
}

#endif
