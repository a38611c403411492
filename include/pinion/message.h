/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pinion/message.h -- tagged messages between endpoints.
 *
 *	struct pinion_endpoint *ep;
 *	struct pinion_peer *peer;
 *	struct pinion_request *request;
 *
 *	pinion_endpoint_open(context, NULL, &ep);
 *	pinion_endpoint_address(ep, &mine);      ... exchange addresses ...
 *	pinion_peer_add(ep, &theirs, &peer);
 *	struct pinion_message message = { .size = sizeof(message),
 *					  .buf = buf, .len = len, .tag = 42,
 *					  .peer = peer };
 *	pinion_send(ep, &message, &request);
 *	pinion_wait(ep, request, PINION_FOREVER, NULL);
 *
 * Nouns
 *   endpoint  where messages leave from and arrive at. A context may have any
 *             number: each has peers, queues and completions of its own, so
 *             that one thread per endpoint meets no lock of another's; all
 *             share the context's registrations, so that memory that is cached,
 *             pinned, of a heap, serves them all.
 *   peer      another endpoint (or the same). Added by its address; connected
 *             when first sent to. An endpoint that sends to us becomes a peer
 *             by itself.
 *   message   bytes and a 64-bit tag. A receive takes the first message, in
 *             order of sending per peer, whose tag equals its own in all bits
 *             but those of `ignore`, from its peer or from any.
 *   request   a send or receive under way.
 *
 * A request ends in one of two ways, as its starter chose: with a handle (the
 * out argument) it is asked about by pinion_test() or pinion_wait(), which
 * free it; without one (NULL) its end is reported by pinion_poll(), with the
 * `user` pointer that the message had. A program with many requests under way
 * uses the second: pinion_poll() costs the same for one request as for ten
 * thousand, and pinion_endpoint_fd() lets it sleep beside its other descriptors
 * (examples/13_server.c).
 *
 * pinion decides how the bytes move (eagerly, through pre-registered buffers,
 * by RDMA with registration on demand, cached, or pipelined): it takes the
 * protocol that is predicted to cost least and learns from what messages took.
 * The option `protocol` fixes one for experiments.
 *
 * Progress is made inside these calls only, unless the option or attribute
 * `progress` asks for a thread that makes it while the program computes.
 * Threads: any, unless the endpoint was opened PINION_ENDPOINT_SINGLE_THREADED:
 * then one at a time, and no lock is paid for. Errors: a peer that is connected
 * and dies ends its requests with -ECONNRESET within about a second; others go
 * on. The manual pages list all errors.
 */
#ifndef PINION_MESSAGE_H
#define PINION_MESSAGE_H

#include <stddef.h>
#include <stdint.h>

#include <pinion/config.h>

#ifdef __cplusplus
extern "C" {
#endif

struct pinion_endpoint;
struct pinion_peer;
struct pinion_request;

#define PINION_ADDRESS_BYTES 528

/* Names an endpoint. Plain data: send it by any means. */
struct pinion_address {
	uint32_t len;
	uint8_t data[PINION_ADDRESS_BYTES - 4];
};

enum pinion_endpoint_flag {
	/* One thread at a time calls this endpoint: no lock is paid for. */
	PINION_ENDPOINT_SINGLE_THREADED = 1 << 0,
	/* Who makes progress; none of these: as the option `progress` says. */
	PINION_ENDPOINT_PROGRESS_CALLER = 1 << 1, /* calls on the endpoint */
	/* Also a thread, one for all endpoints of the process. */
	PINION_ENDPOINT_PROGRESS_THREAD = 1 << 2,
	/* The thread if there is a core for it. */
	PINION_ENDPOINT_PROGRESS_AUTO = 1 << 3,
};

struct pinion_endpoint_attr {
	size_t size;	/* sizeof(struct pinion_endpoint_attr) */
	uint64_t flags; /* PINION_ENDPOINT_ bits */
	/* For libraries with progress and a lock of their own, NULL otherwise:
	 * the progress thread calls progress(progress_arg) instead of working
	 * on the endpoint. It returns what pinion_endpoint_arm() returned, or
	 * -EBUSY if other threads are at it now. */
	int (*progress)(void *arg);
	void *progress_arg;
};

enum pinion_completion_flag {
	PINION_COMPLETION_DATA = 1 << 0, /* `data` came along */
	/* Of a multi-receive: this is not its last completion. */
	PINION_COMPLETION_MORE = 1 << 1,
};

/* How a request ended. */
struct pinion_completion {
	int status; /* 0 or a negative errno: -EMSGSIZE the message was longer
		     * than the buffer, which is full; -ECANCELED;
		     * -ECONNRESET the peer is gone; pinion_send(3) has all */
	uint32_t flags; /* PINION_COMPLETION_ bits */
	struct pinion_peer *peer;
	uint64_t tag;
	size_t len;	    /* bytes received or sent */
	void *user;	    /* the request's */
	size_t message_len; /* of the message, also when the buffer was short */
	void *buf;	    /* where the bytes are; tells apart the messages of
			     * one multi-receive */
	uint32_t data;	    /* with PINION_COMPLETION_DATA */
	uint32_t data_high; /* its upper 32 bits */
	uint64_t reserved[2];
};

/* Opens an endpoint of a context; attr may be NULL. Any thread. -EINVAL;
 * -E2BIG; -ENOMEM; -EMFILE; -ENOBUFS: no room in the budget for bounce buffers;
 * -EOPNOTSUPP: the context has one, and its device (`sim`) has no more: open
 * another context; or a progress thread is asked for, and its device has no
 * descriptor to sleep on (`sim`); others when the system refuses what the
 * device or the helper needs: pinion_endpoint_open(3). */
PINION_API int pinion_endpoint_open(struct pinion_context *context,
				    const struct pinion_endpoint_attr *attr,
				    struct pinion_endpoint **out);

/* Abandons what is under way: its handles are gone, and nothing is read from or
 * written to its buffers any more. What was reported as sent arrives. Peers see
 * the endpoint go; one opened later is another peer to them, and may have the
 * same address (the first of a context has). In any order; the close of the
 * context does it, too. May sleep, for a second at most, if a peer takes
 * nothing. NULL is fine. */
PINION_API void pinion_endpoint_close(struct pinion_endpoint *ep);

/* Fills *out with the endpoint's address, for others to add. -EINVAL: NULL. */
PINION_API int pinion_endpoint_address(struct pinion_endpoint *ep,
				       struct pinion_address *out);

/* The peer at address, the same each time until it is gone; then a new one, for
 * the endpoint that may have been opened in its place. Does not connect yet.
 * -EINVAL: no address of an endpoint; -EPROTONOSUPPORT: of one that speaks
 * another version (logged); -ENOMEM. One of another kind of device is -EINVAL
 * when first sent to. Handles of peers live as long as the endpoint. */
PINION_API int pinion_peer_add(struct pinion_endpoint *ep,
			       const struct pinion_address *address,
			       struct pinion_peer **out);

/* Fills *out with a peer's address (of one that came by itself, say). -EINVAL:
 * NULL. */
PINION_API int pinion_peer_address(const struct pinion_peer *peer,
				   struct pinion_address *out);

/* A multi-receive: one receive that takes many messages, each right behind the
 * one before, and keeps its place among the receives posted until its buffer is
 * used up. Yours, until a completion without PINION_COMPLETION_MORE. */
struct pinion_multi_recv {
	size_t size;	   /* sizeof(struct pinion_multi_recv) */
	size_t min_bytes;  /* with less room left no further message is taken;
			    * 0: 1 */
	unsigned internal; /* pinion's own; 0 */
	unsigned reserved;
};

enum pinion_message_flag {
	/* Send: `data` travels along. */
	PINION_MESSAGE_DATA = 1 << 0,
	/* Send: ends when the other side has it, received or kept for a
	 * receive. */
	PINION_MESSAGE_DELIVERY_COMPLETE = 1 << 1,
};

/* What a send or receive works on. Start from zero and set `size`. */
struct pinion_message {
	size_t size;	/* sizeof(struct pinion_message) */
	uint64_t flags; /* PINION_MESSAGE_ bits */
	void *buf;	/* untouched by you until the request has ended */
	size_t len;
	uint64_t tag;
	uint64_t ignore; /* receive: bits of the tag that do not matter */
	struct pinion_peer *peer; /* receive: NULL means any */
	void *user;
	struct pinion_multi_recv *multi_recv; /* receive, without a handle */
	uint32_t data;	/* send, with PINION_MESSAGE_DATA */
	uint32_t space; /* 0 to 255: messages match receives of the same space
			 * only; those from 128 on do not count towards
			 * unexpected_limit */
	uint32_t data_high; /* the upper 32 bits of data */
	uint32_t reserved;  /* 0 */
};

/* A hint: a message of len bytes to this peer follows at once. The cache lines
 * that it will be written to are fetched while it is prepared, which takes some
 * nanoseconds off short ones. Called long before, it has no effect, since the
 * receiver reads the first of them over and over. Any thread, at any time. */
PINION_API void pinion_peer_prefetch(const struct pinion_peer *peer,
				     size_t len);

/* Begins to send. *out, if out is not NULL, is the request's handle. A short
 * message has ended when it has left, whatever the peer does, unless the peer
 * keeps too much for receives to come (option unexpected_limit); and between
 * endpoints that both have several rails the first one ends only when the peer
 * has made progress once. -EINVAL: NULL, size 0, unknown flags, or a range that
 * wraps around; -E2BIG: pinion_attr(3) explains; -ENOMEM; -ECONNRESET: the
 * peer is gone; -ECONNREFUSED, -EHOSTUNREACH, -EMFILE, -EPROTO,
 * -EPROTONOSUPPORT: why its connection ended, or could not be made; -EBUSY: it
 * belongs to another peer; -ENODEV: the own adapter is gone. */
PINION_API int pinion_send(struct pinion_endpoint *ep,
			   const struct pinion_message *message,
			   struct pinion_request **out);

/* Sends a short message that has left when the call returns: the buffer is
 * yours again, there is no request and no completion. -EAGAIN: not possible
 * now (the peer is not connected yet, its queue is full, or it keeps too much
 * for receives to come): make progress and try again, or use pinion_send().
 * -EMSGSIZE: too long to be injected, ever;
 * pinion_endpoint_stats.max_inject_bytes tells the limit. -EINVAL: also
 * PINION_MESSAGE_DELIVERY_COMPLETE. -EOPNOTSUPP: never on this endpoint
 * (several rails, the helper, or a trace is recorded). After any of these but
 * -EINVAL, pinion_send() is the way. Other errors as there. */
PINION_API int pinion_inject(struct pinion_endpoint *ep,
			     const struct pinion_message *message);

/* Begins to receive; as above, but it does not connect, also if it names a
 * peer: the peer may be opened later. So a receive does not learn of the death
 * of a peer that this endpoint is not connected to, and waits; a send (of 0
 * bytes, say) connects. -EINVAL: also a multi-receive with a handle. */
PINION_API int pinion_recv(struct pinion_endpoint *ep,
			   const struct pinion_message *message,
			   struct pinion_request **out);

/* Looks whether a message that matches (peer, tag, ignore) has arrived and is
 * not received yet: 0 and *out describes it; -EAGAIN: none; -EINVAL; -E2BIG.
 * With `unexpected` not NULL it is set aside, for pinion_recv_unexpected()
 * alone. */
struct pinion_unexpected;
PINION_API int pinion_probe(struct pinion_endpoint *ep,
			    const struct pinion_message *message,
			    struct pinion_completion *out,
			    struct pinion_unexpected **unexpected);

/* Receives a message that was set aside into message->buf; the handle is gone
 * then. -EINVAL; -E2BIG; -ENOMEM. */
PINION_API int pinion_recv_unexpected(struct pinion_endpoint *ep,
				      struct pinion_unexpected *unexpected,
				      const struct pinion_message *message,
				      struct pinion_request **out);

/* Asks that a request end early: its status is -ECANCELED if that was in time.
 * It still has to be waited for or polled. -EINVAL: NULL. */
PINION_API int pinion_cancel(struct pinion_endpoint *ep,
			     struct pinion_request *request);

/* The same for the oldest receive without a handle whose `user` this is and
 * that no message has matched; its end is polled. -ENOENT: none; -EINVAL. */
PINION_API int pinion_recv_cancel(struct pinion_endpoint *ep, const void *user);

/* 0: the request has ended, *out (may be NULL) says how, the handle is gone;
 * -EAGAIN: not yet; -EINVAL: NULL. Makes progress. */
PINION_API int pinion_test(struct pinion_endpoint *ep,
			   struct pinion_request *request,
			   struct pinion_completion *out);

#define PINION_FOREVER UINT64_MAX

/* As above, but sleeps until it has ended, for timeout_us at most
 * (PINION_FOREVER: without limit); returns its status. -EINVAL: NULL;
 * -ETIMEDOUT: it has not ended, the handle stays good. A cancellation point
 * while it sleeps: the request stays as it is, and the handle good. */
PINION_API int pinion_wait(struct pinion_endpoint *ep,
			   struct pinion_request *request, uint64_t timeout_us,
			   struct pinion_completion *out);

/* Takes up to max completions of requests without handles, into an array whose
 * elements have element_bytes: sizeof(struct pinion_completion). How many, or a
 * negative errno: -EINVAL. Makes progress. */
PINION_API int pinion_poll(struct pinion_endpoint *ep,
			   struct pinion_completion *out, size_t element_bytes,
			   unsigned max);

/* A descriptor to wait on: becomes readable after pinion_endpoint_arm()
 * returned 0 when there may be something to poll. -EOPNOTSUPP on devices in
 * virtual time; -EINVAL: NULL; -EMFILE, -ENFILE, -ENOMEM, -ENOSPC: the system
 * gives none. */
PINION_API int pinion_endpoint_fd(struct pinion_endpoint *ep);

/* 0: armed; -EAGAIN: there is something to do already; -EOPNOTSUPP: there is no
 * descriptor; -EINVAL: NULL; -ENOMEM. */
PINION_API int pinion_endpoint_arm(struct pinion_endpoint *ep);

/* Counters since the endpoint was opened. */
struct pinion_endpoint_stats {
	size_t size; /* sizeof(struct pinion_endpoint_stats), by you */
	/* Messages sent, by protocol: what `auto` took, or was asked for. */
	uint64_t sent_eager;
	uint64_t sent_copy;
	uint64_t sent_demand;
	uint64_t sent_cached;
	uint64_t sent_pipeline;
	uint64_t sent_caching_pipeline;
	uint64_t sent_read;
	uint64_t sent_overlapped;
	uint64_t received;
	uint64_t unexpected;	   /* came before their receive */
	uint64_t copied_no_budget; /* parts copied since nothing more may be
				    * pinned */
	uint64_t stalls;	   /* packets that found the queue full */
	uint64_t explored; /* by `auto`, to learn what a protocol takes */
	/* Predictions of `auto` that were compared with what the message took,
	 * and how far they were off: mean of |took/predicted - 1|. */
	uint64_t predictions;
	double prediction_error;
	/* Of sent_eager: straight from the buffer, not copied. */
	uint64_t sent_direct;
	size_t max_inject_bytes; /* what pinion_inject() takes at most */
	/* Choices of `auto` for their throughput, since other long messages
	 * were in flight; and how often `auto` changed the protocol of a size.
	 */
	uint64_t chosen_in_flight;
	uint64_t protocol_changes;
};

/* Fills *stats, whose `size` you set. -EINVAL: NULL, or size 0. */
PINION_API int pinion_endpoint_query(struct pinion_endpoint *ep,
				     struct pinion_endpoint_stats *stats);

/* What pinion_endpoint_explain() is asked about. Start from zero. */
struct pinion_explain_attr {
	size_t size;	    /* sizeof(struct pinion_explain_attr) */
	uint64_t flags;	    /* PINION_EXPLAIN_ bits */
	uint64_t len;	    /* of the message */
	uint64_t reuse;	    /* how often the buffer is used before its memory is
			     * released; 0: 1 */
	uint64_t in_flight; /* long messages in flight at a time, with this one;
			     * 0: 1 */
};

enum pinion_explain_flag {
	/* What may be pinned is pinned: to leave a buffer registered, another
	 * must be given up. */
	PINION_EXPLAIN_BUDGET_FULL = 1 << 0,
};

/* A protocol that a message could take, and what it is predicted to take.
 * Strings are constant. */
struct pinion_explanation {
	size_t size;	      /* sizeof(struct pinion_explanation), by you */
	const char *protocol; /* "pipeline" */
	int chosen;	      /* 1: `auto` takes this one */
	const char *reason;   /* why, if it is chosen; else "" */
	double first_ns;      /* when the buffer has to be registered */
	double later_ns;      /* when it is registered */
	double mean_ns;	      /* of all uses, this one by that protocol, the
			       * others by what is cheapest then */
};

/* Fills *out with the index-th protocol, from 0, that `auto` weighs for such a
 * message on this endpoint's device (every decision can be explained).
 * -ENOENT: there are no more; -EINVAL; -E2BIG. */
PINION_API int pinion_endpoint_explain(struct pinion_endpoint *ep,
				       const struct pinion_explain_attr *attr,
				       unsigned index,
				       struct pinion_explanation *out);

#ifdef __cplusplus
}
#endif

#endif
