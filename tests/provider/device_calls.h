/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * device_calls -- how many operations the provider had executed by the device.
 *
 * PINION_RMA says which way operations go: `device` means that tests have to
 * see some, `request` that there are none. Included by one file of a program;
 * see next_call.h.
 */
#ifndef PN_TESTS_FABRIC_DEVICE_CALLS_H
#define PN_TESTS_FABRIC_DEVICE_CALLS_H

#include <pinion/pinion.h>
#include <stdbool.h>
#include <string.h>

#include "next_call.h"

static unsigned ndevice_calls;

int pinion_put(struct pinion_endpoint *ep, const struct pinion_move *move,
	       struct pinion_request **out)
{
	int (*next)(struct pinion_endpoint *, const struct pinion_move *,
		    struct pinion_request **);

	*(void **)&next = next_call("pinion_put");
	ndevice_calls++;
	return next(ep, move, out);
}

int pinion_get(struct pinion_endpoint *ep, const struct pinion_move *move,
	       struct pinion_request **out)
{
	int (*next)(struct pinion_endpoint *, const struct pinion_move *,
		    struct pinion_request **);

	*(void **)&next = next_call("pinion_get");
	ndevice_calls++;
	return next(ep, move, out);
}

static bool rma_is(const char *way)
{
	const char *option = getenv("PINION_RMA");

	return option && !strcmp(option, way);
}

/* Whether the device was used as PINION_RMA says since the count was `before`.
 */
static bool device_was_used_since(unsigned before)
{
	if (rma_is("device"))
		return ndevice_calls > before;
	return !rma_is("request") || ndevice_calls == before;
}

#endif
