/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * message -- tagged messages over a device and a cache.
 *
 * The public story is pinion/message.h; this is how it is built.
 *
 * A walk through the files: post.c takes what the program sends and receives,
 * progress.c polls the devices and hands what they have to say to the others,
 * wait.c tells the program what has ended. packet.c sends packets and keeps
 * those that found the device's queue full; match.c brings messages and
 * receives together; transfers move the bytes of long messages fragment by
 * fragment, whatever the protocol (transfer_impl.h, protocol/); select.c
 * chooses one, by history.c; request.c keeps requests and their numbers.
 * reuse.c decides which small transfers go straight from the program's buffer
 * (usage.c counts them), direct.c sends those. peer.c knows peers and the conns
 * to them. endpoint.c opens an endpoint, close.c ends it all.
 *
 * Life of a request: pn_request_alloc() -> posted or sent -> matched ->
 * fragments come and go -> pn_request_end() -> taken by test, wait or poll ->
 * freed. It ends only when no operation of the device and no queued packet
 * refers to its buffer any more, also when it failed.
 *
 * What holds at rest: a request that has not ended is in exactly one of: the
 * list of posted receives, or its peer's list of requests. Each fragment of a
 * request has a pin, or moves by DATA packets. moved counts bytes that need
 * no more attention.
 *
 * Threads: one lock per endpoint around everything, none when single_threaded.
 * One thread at a time sleeps in the device; others wait for it to make
 * progress.
 *
 * That lock is held while the engine pins and unpins fragments, fragments and
 * granted buffers (registering on a miss) and copies packets; this is the one
 * exception to "no lock across register, deregister, copy", and it breaks
 * nothing that the rule protects. The rule is for virtual time, where these
 * calls let other tasks run: there it is no mutex but a place that tasks queue
 * for (wait.c). Where it is given up, whatever works on a request counts itself
 * in (npackets, nfragments, inflight) so that it is still there afterwards.
 * Nobody who holds a lock that registering needs waits for this one: it is
 * taken first, the cache's, monitor's and device's after it, and none of these
 * calls back. What it costs is that another thread's call on the same endpoint
 * waits for a registration; hits of the cache, pins and other endpoints do not.
 * Giving it up instead would let a second thread post later fragments and
 * packets first: the order that messages promise hangs on it. Not under it:
 * waiting, blocking, exposing and unexposing memory, opening bounce buffers,
 * deferred deregistration (pn_cache_step() in tidy()).
 */
#ifndef PN_MESSAGE_MESSAGE_H
#define PN_MESSAGE_MESSAGE_H

#include <pinion/message.h>

#include "cache/cache.h"
#include "device/device.h"
#include "helper/helper.h"
#include "message/protocol/protocol.h"
#include "message/protocol/reuse.h"
#include "message/protocol/select.h"

struct pn_endpoint_attr {
	struct {
		struct pn_device *device;
		struct pn_cache *cache; /* of that device, or of its domain */
	} rails[PN_RAILS_MAX];
	unsigned nrails;
	bool either; /* each peer over one of them, the first that reaches it */
	/* The devices are this endpoint's alone and are closed with it. They
	 * share the domain of the device that the cache registers with. */
	bool owns_devices;
	struct pn_budget *budget;
	struct pn_helper *helper; /* of the first rail's cache; or NULL */
	struct pn_protocol_limits limits; /* packet_bytes is found out */
	int protocol; /* of messages that are not eager; PN_PROTOCOL_AUTO */
	struct pn_reuse_attr reuse; /* small_bytes is eager_bytes */
	bool single_threaded;
	struct pn_pages_policy pages;
	const void *stats_owner; /* as in struct pn_cache_attr */
};

/* As pinion_endpoint_open() and its kin; arguments are checked by the public
 * calls. */
int pn_endpoint_open(const struct pn_endpoint_attr *attr,
		     struct pinion_endpoint **out);
void pn_endpoint_close(struct pinion_endpoint *ep);
void pn_endpoint_address(struct pinion_endpoint *ep,
			 struct pinion_address *out);
int pn_endpoint_peer(struct pinion_endpoint *ep,
		     const struct pinion_address *address,
		     struct pinion_peer **out);
void pn_peer_address(const struct pinion_peer *peer,
		     struct pinion_address *out);
int pn_endpoint_send(struct pinion_endpoint *ep,
		     const struct pinion_message *message,
		     struct pinion_request **out);
int pn_endpoint_inject(struct pinion_endpoint *ep,
		       const struct pinion_message *message);
int pn_endpoint_probe(struct pinion_endpoint *ep,
		      const struct pinion_message *message,
		      struct pinion_completion *out,
		      struct pinion_unexpected **unexpected);
/* unexpected may be NULL: whatever matches. */
int pn_endpoint_recv_unexpected(struct pinion_endpoint *ep,
				struct pinion_unexpected *unexpected,
				const struct pinion_message *message,
				struct pinion_request **out);
static inline int pn_endpoint_recv(struct pinion_endpoint *ep,
				   const struct pinion_message *message,
				   struct pinion_request **out)
{
	return pn_endpoint_recv_unexpected(ep, NULL, message, out);
}
int pn_endpoint_cancel(struct pinion_endpoint *ep,
		       struct pinion_request *request);
int pn_endpoint_cancel_user(struct pinion_endpoint *ep, const void *user);
int pn_endpoint_test(struct pinion_endpoint *ep, struct pinion_request *request,
		     struct pinion_completion *out);
int pn_endpoint_wait_until(struct pinion_endpoint *ep,
			   struct pinion_request *request, uint64_t deadline_ns,
			   struct pinion_completion *out);
static inline int pn_endpoint_wait(struct pinion_endpoint *ep,
				   struct pinion_request *request,
				   struct pinion_completion *out)
{
	return pn_endpoint_wait_until(ep, request, PN_FOREVER, out);
}
int pn_endpoint_poll(struct pinion_endpoint *ep, struct pinion_completion *out,
		     unsigned max);
int pn_endpoint_fd(struct pinion_endpoint *ep);
int pn_endpoint_arm(struct pinion_endpoint *ep);

/* How often each protocol was taken, and what else happened. */
struct pn_endpoint_stats {
	uint64_t sent[PN_PROTOCOL_COUNT];
	uint64_t direct; /* of the eager ones: straight from their buffers */
	uint64_t received;
	uint64_t unexpected;
	uint64_t copied_no_budget; /* fragments sent by DATA for want of room */
	uint64_t accesses[4];	   /* puts and gets by enum pn_path */
	uint64_t bounced;	   /* fragments of one-sided operations */
	uint64_t stalls;	   /* packets that found the queue full */
	uint64_t bad_packets;
	struct pn_protocol_selector_stats choices; /* of `auto` */
	uint64_t rails_lost; /* conns that went down while others lived */
	uint64_t fragments[PN_RAILS_MAX]; /* received by RDMA over each rail */
	uint64_t resent; /* packets and fragments, over another */
};

void pn_endpoint_query(struct pinion_endpoint *ep,
		       struct pn_endpoint_stats *out);

/* check.c: checks what holds at rest; asserts. For tests, slow. */
void pn_endpoint_check(struct pinion_endpoint *ep);

/* Sends messages by this protocol, or `auto`, from now on (benchmarks). */
void pn_endpoint_set_protocol(struct pinion_endpoint *ep, int protocol);

#endif
