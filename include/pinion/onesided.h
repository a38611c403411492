/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pinion/onesided.h -- put, get and atomics on a peer's memory, and writes that
 * wait for a grant.
 *
 *	owner:  pinion_exposure_open(ep, memory, len, access, &exposure);
 *	        pinion_exposure_key(exposure, &key);   ... send key->len ...
 *	peer:   pinion_remote_open(ep, owner, &key, &remote);
 *	        struct pinion_move put = { .size = sizeof(put),
 *	                                   .remote = remote, .buf = buf,
 *	                                   .len = n };
 *	        pinion_put(ep, &put, &request);
 *	        pinion_wait(ep, request, PINION_FOREVER, NULL);
 *
 * Nouns
 *   exposure  memory of this endpoint that peers may touch without its CPU.
 *   key       what they need for it: plain data, to be sent by whatever means.
 *   remote    a peer's key, checked: an exposure as its peers see it.
 *   grant     leave to write one buffer once, named by a tag.
 *
 * Requests are those of pinion/message.h: with a handle, or reported by
 * pinion_poll(). One that ended with status 0 has taken effect at the target;
 * its buffer is free. Operations on one peer are in no order towards each
 * other, unless pinion_peer_fence() stands between them; none is atomic towards
 * others or the target's CPU but the atomics, towards each other.
 *
 * A buffer needs no registering. Small ones travel inline or through a buffer
 * that is registered already. Others are found in the cache or registered,
 * fragment by fragment while earlier fragments move. When there is no room for
 * that, or copying is cheaper, they go through bounce buffers. The first
 * operation reserves those (260 KiB of the budget).
 *
 * Conditional writes: pinion_put_when() may be started before the peer is ready
 * to receive. It registers its source at once, and waits for the peer's
 * pinion_grant() with the same tag, which registers the target at the same
 * time; then the bytes move, and both requests end. Whoever comes first waits;
 * of several with one tag the oldest is served first.
 *
 * Errors: -EACCES the key was revoked or does not allow it, which leaves the
 * peer usable; -ECONNRESET the peer is gone; -ECANCELED: canceled, or flushed
 * by the device behind an operation that was refused.
 * Exposures and remotes die with their endpoint: close them before it. On
 * several rails these operations go from the first one to the peer's first:
 * -EHOSTUNREACH when these have no connection, -ECONNRESET when it is down.
 */
#ifndef PINION_ONESIDED_H
#define PINION_ONESIDED_H

#include <stddef.h>
#include <stdint.h>

#include <pinion/config.h>
#include <pinion/device.h>
#include <pinion/message.h>

#ifdef __cplusplus
extern "C" {
#endif

struct pinion_exposure;
struct pinion_remote;

#define PINION_EXPOSURE_KEY_BYTES 512

/* Names an exposure. Plain data; its first 4 + len bytes are what counts. */
struct pinion_exposure_key {
	uint32_t len;
	uint8_t data[PINION_EXPOSURE_KEY_BYTES - 4];
};

/* Lets peers that have the key touch [addr, addr + len); access is a set of
 * PINION_ACCESS_REMOTE_ bits. Registers exactly these bytes, apart from what
 * is cached. May sleep. If the memory is released while it is exposed, its keys
 * are refused from this endpoint's next call on.
 * -EINVAL: NULL, a range that wraps around, no or unknown access; -EFAULT: not
 * mapped, or in a way the device cannot pin; -ENOBUFS: no room in the budget;
 * -ENOMEM; others of pinion_device_register(). */
PINION_API int pinion_exposure_open(struct pinion_endpoint *ep, void *addr,
				    size_t len, unsigned access,
				    struct pinion_exposure **out);

/* Fills *key for peers. -EINVAL: NULL. */
PINION_API int pinion_exposure_key(const struct pinion_exposure *exposure,
				   struct pinion_exposure_key *key);

/* Revokes the key and frees the handle: from the return on whoever uses the
 * key gets -EACCES. NULL is fine. */
PINION_API void pinion_exposure_close(struct pinion_exposure *exposure);

/* A peer's exposure. -EINVAL: no key, or of another kind; -EPROTONOSUPPORT: of
 * another version (logged); -ENOMEM. */
PINION_API int pinion_remote_open(struct pinion_endpoint *ep,
				  struct pinion_peer *peer,
				  const struct pinion_exposure_key *key,
				  struct pinion_remote **out);

/* Operations under way go on. NULL is fine. */
PINION_API void pinion_remote_close(struct pinion_remote *remote);

/* What a put or get works on. Start from zero and set `size`. */
struct pinion_move {
	size_t size;	/* sizeof(struct pinion_move) */
	uint64_t flags; /* none yet: 0 */
	struct pinion_remote *remote;
	uint64_t offset; /* in the exposed memory */
	void *buf;	 /* untouched by you until the request has ended */
	size_t len;
	void *user;
};

/* Begins to copy buf to the remote memory. *out, if out is not NULL, is the
 * request's handle. -EINVAL; -E2BIG; -EACCES: beyond the end, or not allowed by
 * the key; -ENOBUFS: no room for the bounce buffers, on a device that must pin
 * them; others of pinion_device_register() for these; -ENOMEM; -ECONNRESET, and
 * others of pinion_send() that say why there is no connection. */
PINION_API int pinion_put(struct pinion_endpoint *ep,
			  const struct pinion_move *move,
			  struct pinion_request **out);

/* Begins to copy the remote memory to buf; as above. */
PINION_API int pinion_get(struct pinion_endpoint *ep,
			  const struct pinion_move *move,
			  struct pinion_request **out);

/* What an atomic operation works on: 8 aligned bytes. Start from zero and set
 * `size`. */
struct pinion_atomic {
	size_t size;	/* sizeof(struct pinion_atomic) */
	uint64_t flags; /* none yet: 0 */
	struct pinion_remote *remote;
	uint64_t offset;
	uint64_t operand; /* what is added, or put there */
	uint64_t compare; /* compare_swap: what must be there */
	uint64_t *result; /* gets what was there before; may be NULL */
	void *user;
};

/* Begins to add operand. Errors as above; -EINVAL, too: not aligned to 8
 * bytes; -EOPNOTSUPP: the device has no atomics. */
PINION_API int pinion_atomic_fetch_add(struct pinion_endpoint *ep,
				       const struct pinion_atomic *atomic,
				       struct pinion_request **out);

/* Begins to put operand there. Errors as above. */
PINION_API int pinion_atomic_swap(struct pinion_endpoint *ep,
				  const struct pinion_atomic *atomic,
				  struct pinion_request **out);

/* Begins to put operand there if compare is. Errors as above. */
PINION_API int pinion_atomic_compare_swap(struct pinion_endpoint *ep,
					  const struct pinion_atomic *atomic,
					  struct pinion_request **out);

/* A request that ends when all operations on that peer started before it have
 * (puts, gets, atomics), whatever their status. -EINVAL; for bounce buffers and
 * the connection as above. */
PINION_API int pinion_peer_flush(struct pinion_endpoint *ep,
				 struct pinion_peer *peer, void *user,
				 struct pinion_request **out);

/* Operations on that peer started from now on take effect after those started
 * before. Does not wait. -EINVAL; -ENOMEM; why there is no connection. */
PINION_API int pinion_peer_fence(struct pinion_endpoint *ep,
				 struct pinion_peer *peer);

/* Begins to write message->buf to wherever message->peer grants it under
 * message->tag; `ignore` must be 0. The request ends with -EMSGSIZE, and
 * nothing is written, when the grant is shorter. pinion_cancel() is in time
 * until the grant is here. Errors of pinion_put() but -EACCES; -EINVAL, too: no
 * peer, or ignore is not 0. */
PINION_API int pinion_put_when(struct pinion_endpoint *ep,
			       const struct pinion_message *message,
			       struct pinion_request **out);

/* Grants message->buf to a pinion_put_when() of message->peer with the same
 * tag. The request ends when the bytes are there; its completion says how many
 * (fewer than granted, if the write was shorter), or with -EMSGSIZE when the
 * write was longer. pinion_cancel() is in time until the grant is used. Errors
 * as above. */
PINION_API int pinion_grant(struct pinion_endpoint *ep,
			    const struct pinion_message *message,
			    struct pinion_request **out);

#ifdef __cplusplus
}
#endif

#endif
