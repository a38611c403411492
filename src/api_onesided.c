/* SPDX-License-Identifier: BSD-2-Clause */
/* The public calls of pinion/onesided.h. */
#include <pinion/onesided.h>

#include <errno.h>

#include "api_endpoint.h"
#include "base/cancel.h"
#include "base/range.h"
#include "base/sized.h"
#include "context.h"
#include "message/connection/keys.h"
#include "message/endpoint/endpoint.h"
#include "message/onesided/onesided.h"

static bool peer_valid(const struct pinion_endpoint *ep,
		       const struct pinion_peer *peer)
{
	return pn_endpoint_usable(ep) && peer && peer->ep == ep;
}

int pinion_exposure_open(struct pinion_endpoint *ep, void *addr, size_t len,
			 unsigned access, struct pinion_exposure **out)
{
	PN_NO_CANCEL();
	if (!pn_endpoint_usable(ep) || !out || !(access & PN_ACCESS_REMOTE))
		return -EINVAL;
	return pn_endpoint_expose(ep, addr, len, access, out);
}

int pinion_exposure_key(const struct pinion_exposure *exposure,
			struct pinion_exposure_key *key)
{
	if (!exposure || !key)
		return -EINVAL;
	pn_exposure_key(exposure, key);
	return 0;
}

/* In a forked child the registration belongs to the parent. */
void pinion_exposure_close(struct pinion_exposure *exposure)
{
	PN_NO_CANCEL();
	if (exposure && pn_endpoint_usable(pn_exposure_endpoint(exposure)))
		pn_endpoint_unexpose(exposure);
}

int pinion_remote_open(struct pinion_endpoint *ep, struct pinion_peer *peer,
		       const struct pinion_exposure_key *key,
		       struct pinion_remote **out)
{
	PN_NO_CANCEL();
	if (!peer_valid(ep, peer) || !key || !out)
		return -EINVAL;
	return pn_endpoint_remote(ep, peer, key, out);
}

void pinion_remote_close(struct pinion_remote *remote)
{
	PN_NO_CANCEL();
	if (remote && pn_endpoint_usable(remote->peer->ep))
		pn_endpoint_remote_close(remote);
}

/* Whether the key of a remote allows this access. */
static int check_access(const struct pinion_remote *remote, uint64_t offset,
			size_t len, unsigned access)
{
	if (offset > remote->len || len > remote->len - offset ||
	    !(remote->access & access))
		return -EACCES;
	return 0;
}

static int start_access(struct pinion_endpoint *ep, enum pn_request_kind kind,
			unsigned needs, const struct pinion_move *move,
			struct pinion_request **out)
{
	struct pinion_move own;
	int ret;

	move = pn_sized_use(move, &own, sizeof(own), &ret);
	if (!move)
		return ret;
	if (move->flags || !move->remote ||
	    !peer_valid(ep, move->remote->peer) ||
	    (move->len && !pn_range_valid((uintptr_t)move->buf, move->len)))
		return -EINVAL;
	ret = check_access(move->remote, move->offset, move->len, needs);
	return ret ? ret : pn_endpoint_access(ep, kind, move, out);
}

int pinion_put(struct pinion_endpoint *ep, const struct pinion_move *move,
	       struct pinion_request **out)
{
	return start_access(ep, PN_REQUEST_PUT, PINION_ACCESS_REMOTE_WRITE,
			    move, out);
}

int pinion_get(struct pinion_endpoint *ep, const struct pinion_move *move,
	       struct pinion_request **out)
{
	return start_access(ep, PN_REQUEST_GET, PINION_ACCESS_REMOTE_READ, move,
			    out);
}

static int start_atomic(struct pinion_endpoint *ep, enum pn_op_kind op,
			const struct pinion_atomic *atomic,
			struct pinion_request **out)
{
	const struct pinion_remote *remote;
	struct pinion_atomic own;
	int ret;

	atomic = pn_sized_use(atomic, &own, sizeof(own), &ret);
	if (!atomic)
		return ret;
	remote = atomic->remote;
	if (atomic->flags || !remote || !peer_valid(ep, remote->peer))
		return -EINVAL;
	ret = check_access(remote, atomic->offset, sizeof(uint64_t),
			   PINION_ACCESS_REMOTE_ATOMIC);
	if (ret)
		return ret;
	if (pn_keys_at(remote->keys, remote->nkeys, atomic->offset).addr % 8)
		return -EINVAL;
	if (!(ep->device->caps & PN_CAP_ATOMICS))
		return -EOPNOTSUPP;
	return pn_endpoint_atomic(ep, op, atomic, out);
}

int pinion_atomic_fetch_add(struct pinion_endpoint *ep,
			    const struct pinion_atomic *atomic,
			    struct pinion_request **out)
{
	return start_atomic(ep, PN_OP_FETCH_ADD, atomic, out);
}

int pinion_atomic_swap(struct pinion_endpoint *ep,
		       const struct pinion_atomic *atomic,
		       struct pinion_request **out)
{
	return start_atomic(ep, PN_OP_SWAP, atomic, out);
}

int pinion_atomic_compare_swap(struct pinion_endpoint *ep,
			       const struct pinion_atomic *atomic,
			       struct pinion_request **out)
{
	return start_atomic(ep, PN_OP_COMPARE_SWAP, atomic, out);
}

int pinion_peer_flush(struct pinion_endpoint *ep, struct pinion_peer *peer,
		      void *user, struct pinion_request **out)
{
	if (!peer_valid(ep, peer))
		return -EINVAL;
	return pn_endpoint_flush(ep, peer, user, out);
}

int pinion_peer_fence(struct pinion_endpoint *ep, struct pinion_peer *peer)
{
	return peer_valid(ep, peer) ? pn_endpoint_fence(ep, peer) : -EINVAL;
}

static bool conditional_valid(const struct pinion_endpoint *ep,
			      const struct pinion_message *m)
{
	return peer_valid(ep, m->peer) && !m->flags && !m->ignore &&
	       !m->multi_recv && m->space <= UINT8_MAX &&
	       (!m->len || pn_range_valid((uintptr_t)m->buf, m->len));
}

typedef int conditional_fn(struct pinion_endpoint *ep,
			   const struct pinion_message *message,
			   struct pinion_request **out);

static int start_conditional(conditional_fn *start, struct pinion_endpoint *ep,
			     const struct pinion_message *message,
			     struct pinion_request **out)
{
	struct pinion_message own;
	int ret;

	message = pn_sized_use(message, &own, sizeof(own), &ret);
	if (!message)
		return ret;
	return conditional_valid(ep, message) ? start(ep, message, out)
					      : -EINVAL;
}

int pinion_put_when(struct pinion_endpoint *ep,
		    const struct pinion_message *message,
		    struct pinion_request **out)
{
	return start_conditional(pn_endpoint_put_when, ep, message, out);
}

int pinion_grant(struct pinion_endpoint *ep,
		 const struct pinion_message *message,
		 struct pinion_request **out)
{
	return start_conditional(pn_endpoint_grant, ep, message, out);
}
