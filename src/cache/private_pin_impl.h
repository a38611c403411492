/* SPDX-License-Identifier: BSD-2-Clause */
/* private_pin.c: pins that bypass the cache, without a plan. */
#ifndef PN_CACHE_PRIVATE_PIN_IMPL_H
#define PN_CACHE_PRIVATE_PIN_IMPL_H

#include "cache/cache_impl.h"

/* Pins the buffer, and nobody else finds the region; *ret is what the pin
 * returns. False: a plan has to be made, and nothing has happened. */
bool pn_private_pin(struct pn_cache *cache, const struct iovec *buffer,
		    unsigned flags, struct pinion_pin *pin, int *ret);

#endif
