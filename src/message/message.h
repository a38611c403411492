/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * message -- tagged messages and one-sided operations over devices and caches.
 *
 * pinion/message.h and pinion/onesided.h tell the public story; this is how it
 * is built. The parts, each a folder with headers of its own:
 *
 *   endpoint/    the state of an endpoint, its lock, posting, progress,
 *                waiting, requests, opening and closing
 *   connection/  peers, connections over rails, packets, retransmission, the
 *                wire format
 *   matching/    brings messages and receives together
 *   twosided/    transfers the bytes of messages, fragment by fragment
 *   onesided/    put, get, atomics, conditional writes, exposed memory
 *   rdma/        posts, stalls, retries and completes the RDMA operations of
 *                fragments, for twosided/ and onesided/
 *   protocol/    the protocols as rows, which one a message takes, and which
 *                small transfers use the program's buffer directly
 *
 * Life of a message: post.c makes a request, chooses a protocol and hands the
 * request to the sender (twosided/sender.c). progress.c polls the devices;
 * packets find their receive (matching/) and the receiver
 * (twosided/receiver.c), which asks for fragments. request.c ends the request,
 * and test, wait or poll reap it. request.h tells the life of a request.
 *
 * Threads: one lock per endpoint protects everything; there is none if the
 * endpoint is single-threaded and without the progress thread
 * (endpoint/progress_thread.h). One thread at a time sleeps in the devices;
 * others wait for it to make progress.
 *
 * The lock is held while fragments and granted buffers are pinned and unpinned
 * (which registers on a miss) and while packets are copied. This is the one
 * exception to the rule of device.h that callers hold no lock across register,
 * deregister and copy. The rule exists for virtual time, where these calls let
 * other tasks run: in virtual time the endpoint's lock is not a mutex but a
 * queue of tasks (pn_endpoint_lock_virtual()). Where another task may run,
 * whoever works on a request counts itself in (npackets, nfragments, inflight),
 * so that the request is still there afterwards. The lock cannot deadlock: it
 * is taken before the locks of cache, monitor and device, and none of these
 * modules calls back while it registers. The cost is that another thread's call
 * on the same endpoint waits for a registration; cache hits, other pins and
 * other endpoints do not wait. Without the lock a second thread could post
 * later fragments and packets first, and messages would lose their order. Done
 * without the lock: waiting, blocking, exposing and unexposing memory, opening
 * bounce buffers, deferred deregistration (run_deferred_work() in wait.c).
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
		struct pn_cache *cache; /* of this device, or of its domain */
	} rails[PN_RAILS_MAX];
	unsigned nrails;
	bool either; /* each peer is reached over one rail, the first that can
		      */
	/* The endpoint closes the devices. No other endpoint uses them. They
	 * share the domain of the device that the cache registers with. */
	bool owns_devices;
	struct pn_budget *budget;
	struct pn_helper *helper; /* of all rails' caches; or NULL */
	struct pn_protocol_limits
		limits; /* packet_bytes is set by pn_endpoint_open() */
	/* How long a peer with several rails may be without a connection that
	 * is up, after it had one; 0: for ever. */
	uint64_t rail_timeout_ns;
	/* Bytes of unexpected messages with a peer (allowance.h); 0: no limit.
	 */
	size_t unexpected_limit;
	int protocol; /* of messages that are not eager; or PN_PROTOCOL_AUTO */
	struct pn_reuse_attr reuse; /* small_bytes is set to eager_bytes */
	bool single_threaded;
	/* The progress thread serves the endpoint; progress and progress_arg
	 * are those of struct pinion_endpoint_attr. */
	bool progress_thread;
	int (*progress)(void *arg);
	void *progress_arg;
	struct pn_pages_policy pages;
	const void *stats_owner; /* as in struct pn_cache_attr */
};

/* What the public calls of the same names do. The public calls have checked the
 * arguments. */
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
/* unexpected may be NULL: any message that matches. */
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

/* How often each protocol was used, and other counts. */
struct pn_endpoint_stats {
	uint64_t sent[PN_PROTOCOL_COUNT];
	uint64_t direct; /* eager sends directly from their buffers */
	uint64_t received;
	uint64_t unexpected;
	uint64_t late; /* sent without data, since the peer may keep no more */
	uint64_t copied_no_budget; /* fragments sent by DATA because the budget
				      had no room */
	uint64_t accesses[4];	   /* puts and gets by enum pn_path */
	uint64_t bounced; /* fragments of one-sided operations through bounce
			     buffers */
	uint64_t stalls;  /* packets that waited for the queue */
	uint64_t bad_packets;
	struct pn_protocol_selector_stats choices; /* by `auto` */
	uint64_t rails_lost; /* connections that went down while the peer had
				others */
	uint64_t fragments[PN_RAILS_MAX]; /* received by RDMA over each rail */
	uint64_t resent; /* packets and fragments, over another connection */
	/* Of the progress thread: how often it woke up for this endpoint, left
	 * the work to callers who were at it, and how many events it handled.
	 */
	uint64_t progress_wakeups, progress_yields, progress_events;
};

void pn_endpoint_query(struct pinion_endpoint *ep,
		       struct pn_endpoint_stats *out);

/* check.c: asserts what holds at rest. For tests; slow. */
void pn_endpoint_check(struct pinion_endpoint *ep);

/* From now on sends messages by this protocol, or `auto` (benchmarks). */
void pn_endpoint_set_protocol(struct pinion_endpoint *ep, int protocol);

#endif
