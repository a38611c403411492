/* SPDX-License-Identifier: BSD-2-Clause */
/* What the public calls on endpoints share (api_message.c, api_onesided.c,
 * api_explain.c). */
#ifndef PN_API_ENDPOINT_H
#define PN_API_ENDPOINT_H

#include "context.h"
#include "message/endpoint/endpoint.h"

/* Whether a caller's handle can be used. After fork() the child's copy belongs
 * to the parent. */
static inline bool pn_endpoint_usable(const struct pinion_endpoint *ep)
{
	return ep && pn_context_usable(ep->context);
}

#endif
