/* SPDX-License-Identifier: BSD-2-Clause */
#include "message/protocol/protocol.h"

#include <errno.h>
#include <string.h>

static const struct pn_protocol *const rows[PN_PROTOCOL_COUNT] = {
	[PN_PROTOCOL_EAGER] = &pn_protocol_eager,
	[PN_PROTOCOL_COPY] = &pn_protocol_copy,
	[PN_PROTOCOL_DEMAND] = &pn_protocol_demand,
	[PN_PROTOCOL_CACHED] = &pn_protocol_cached,
	[PN_PROTOCOL_PIPELINE] = &pn_protocol_pipeline,
	[PN_PROTOCOL_CACHING_PIPELINE] = &pn_protocol_caching_pipeline,
	[PN_PROTOCOL_READ] = &pn_protocol_read,
	[PN_PROTOCOL_OVERLAPPED] = &pn_protocol_overlapped,
};

const struct pn_protocol *pn_protocol_at(unsigned id)
{
	return id < PN_PROTOCOL_COUNT ? rows[id] : NULL;
}

const char *pn_protocol_name(unsigned id)
{
	return id < PN_PROTOCOL_COUNT ? rows[id]->name : "auto";
}

int pn_protocol_find(const char *name)
{
	for (int i = 0; i <= PN_PROTOCOL_AUTO; i++)
		if (!strcmp(pn_protocol_name((unsigned)i), name))
			return i;
	return -ENOENT;
}
