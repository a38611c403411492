/* SPDX-License-Identifier: BSD-2-Clause */
#include "message/connection/allowance.h"

#include <errno.h>

#include "message/connection/connection.h"
#include "message/connection/packet.h"
#include "message/connection/wire.h"
#include "message/endpoint/endpoint.h"

/* Without a limit so much is left that it never ends. */
#define UNLIMITED (SIZE_MAX / 2)

void pn_allowance_init(struct pn_allowance *allowance, size_t limit)
{
	allowance->left = allowance->bound = limit ? limit / 4 : UNLIMITED;
}

/* --- the sender ----------------------------------------------------------- */

static size_t used(const struct pn_allowance *allowance)
{
	return allowance->bound - allowance->left;
}

static void set(struct pn_allowance *allowance, size_t used_now, size_t left)
{
	allowance->left = left;
	allowance->bound = used_now + left;
}

/* `now` is what is used when the question has been sent. */
static int32_t ask(struct pn_allowance *allowance, size_t now)
{
	if (allowance->asking)
		return 0;
	allowance->asking = true;
	allowance->asked = now;
	return PN_WIRE_ASKS;
}

bool pn_allowance_extend(struct pinion_peer *peer, size_t bytes,
			 int32_t *status)
{
	struct pn_allowance *allowance = &peer->allowance;
	size_t limit = peer->ep->unexpected_limit;
	size_t before = used(allowance), more;

	if (pn_allowance_is_over(peer, bytes))
		return false;
	if (!limit)
		limit = 2 * UNLIMITED;
	more = limit / 4 > bytes ? limit / 4 : bytes;
	if (more > limit - before)
		more = limit - before;
	set(allowance, before + bytes, more - bytes);
	*status |= ask(allowance, before + bytes);
	return true;
}

bool pn_allowance_is_over(const struct pinion_peer *peer, size_t bytes)
{
	const struct pn_allowance *allowance = &peer->allowance;
	size_t limit = peer->ep->unexpected_limit;

	return limit && bytes > allowance->left &&
	       (bytes > limit || used(allowance) > limit - bytes);
}

void pn_allowance_return(struct pn_allowance *allowance, size_t bytes,
			 int32_t status)
{
	allowance->left += bytes;
	if (status & PN_WIRE_ASKS)
		allowance->asking = false;
	/* Another task may have asked meanwhile. */
	if (allowance->asked > used(allowance))
		allowance->asked = used(allowance);
}

/* If nothing is used, the message is longer than the limit. */
int32_t pn_allowance_ask(struct pinion_peer *peer)
{
	struct pn_allowance *allowance = &peer->allowance;

	return used(allowance) ? ask(allowance, used(allowance)) : 0;
}

static int send(struct pinion_peer *peer, enum pn_wire_kind kind, size_t len)
{
	struct pn_wire wire = { .version = PN_WIRE_VERSION,
				.kind = (uint8_t)kind,
				.len = len };

	return pn_packet_send(peer, &wire, NULL, 0, NULL);
}

void pn_allowance_send_ask(struct pinion_peer *peer)
{
	if (pn_allowance_ask(peer) && send(peer, PN_WIRE_ASK, 0))
		peer->allowance.asking = false;
}

/* What was sent after the question may be among what is kept, or not have
 * arrived. */
int pn_allowance_on_kept(struct pinion_peer *peer, const struct pn_wire *wire)
{
	struct pn_allowance *allowance = &peer->allowance;
	size_t before = used(allowance);
	size_t now = wire->len + (before - allowance->asked);
	size_t limit = peer->ep->unexpected_limit;

	if (!allowance->asking || wire->len > before)
		return -EPROTO;
	allowance->asking = false;
	set(allowance, now < before ? now : before, allowance->left);
	if (limit && allowance->bound > limit)
		set(allowance, used(allowance), limit - used(allowance));
	return 0;
}

/* --- the receiver --------------------------------------------------------- */

size_t pn_allowance_of(const struct pn_wire *wire, size_t payload_len)
{
	if (wire->nkeys || wire->status & PN_WIRE_LATE)
		return 0;
	return pn_allowance_bytes((unsigned)wire->status & PN_WIRE_SPACE,
				  payload_len);
}

void pn_allowance_keep(struct pinion_peer *peer, size_t bytes)
{
	peer->allowance.kept += bytes;
	peer->ep->matching.kept_bytes += bytes;
}

static void tell(struct pinion_peer *peer)
{
	peer->allowance.tells = false;
	send(peer, PN_WIRE_KEPT, peer->allowance.kept);
}

void pn_allowance_release(struct pinion_peer *peer, size_t bytes)
{
	peer->allowance.kept -= bytes;
	peer->ep->matching.kept_bytes -= bytes;
	if (pn_unlikely(peer->allowance.tells) &&
	    peer->allowance.kept <= peer->allowance.tell_at)
		tell(peer);
}

void pn_allowance_asked(struct pinion_peer *peer, bool late)
{
	size_t kept = peer->allowance.kept;

	peer->allowance.tells = late && kept;
	peer->allowance.tell_at = kept - (kept + 3) / 4;
	if (!peer->allowance.tells)
		tell(peer);
}
