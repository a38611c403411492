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
 *	struct pinion_message message = { .buf = buf, .len = len, .tag = 42,
 *					  .peer = peer };
 *	pinion_send(ep, &message, &request);
 *	pinion_wait(ep, request, NULL);
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
 * `user` pointer that the message had.
 *
 * How the bytes move (eagerly, through pre-registered buffers, by RDMA with
 * registration on demand, cached, or pipelined) is pinion's business: it takes
 * what is predicted to cost least and learns from what messages took. The
 * option `protocol` fixes one for experiments.
 *
 * Progress is made inside these calls only. Threads: any, unless the endpoint
 * was opened single_threaded: then one at a time, and no lock is paid for.
 * Errors: a peer that dies ends its requests with -ECONNRESET within about a
 * second; others go on.
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

/* Names an endpoint. Plain data: send it by whatever means there are. */
struct pinion_address {
	uint32_t len;
	uint8_t data[PINION_ADDRESS_BYTES - 4];
};

struct pinion_endpoint_attr {
	size_t size; /* sizeof(struct pinion_endpoint_attr) */
	int single_threaded;
};

/* How a request ended. */
struct pinion_completion {
	int status; /* 0 or a negative errno: -EMSGSIZE the message was longer
		     * than the buffer, which is full; -ECANCELED;
		     * -ECONNRESET the peer is gone; pinion_send(3) has all */
	struct pinion_peer *peer;
	uint64_t tag;
	size_t len;	    /* bytes received or sent */
	void *user;	    /* the request's */
	size_t message_len; /* of the message, also when the buffer was short */
	uint32_t data;	    /* that came along, when has_data */
	int has_data;
	void *buf; /* where the bytes are; tells apart those of one `many` */
	int more;  /* of a receive of many messages: this is not its last end */
};

/* Opens an endpoint of a context; attr may be NULL. Any thread. -EINVAL;
 * -ENOMEM; -EMFILE; -ENOBUFS: no room in the budget for bounce buffers;
 * -EOPNOTSUPP: the context has one, and its device (`sim`) has no more: open
 * another context. */
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
 * another version (logged). One of another kind of device is -EINVAL when first
 * sent to. Handles of peers live as long as the endpoint. */
PINION_API int pinion_peer_add(struct pinion_endpoint *ep,
			       const struct pinion_address *address,
			       struct pinion_peer **out);

/* Fills *out with a peer's address (of one that came by itself, say). -EINVAL:
 * NULL. */
PINION_API int pinion_peer_address(const struct pinion_peer *peer,
				   struct pinion_address *out);

/* For a receive that takes many messages, each right behind the one before, and
 * keeps its place among the receives posted until its buffer is used up. Yours,
 * until an end says that there are no more. */
struct pinion_many {
	size_t least;	  /* fewer bytes take no further message; 0: 1 */
	unsigned pending; /* pinion's own; 0 */
};

/* What a send or receive works on. Start from zero. */
struct pinion_message {
	void *buf; /* untouched by you until the request has ended */
	size_t len;
	uint64_t tag;
	uint64_t ignore; /* receive: bits of the tag that do not matter */
	struct pinion_peer *peer; /* receive: NULL means any */
	void *user;
	uint32_t data; /* send: travels along, when has_data is not 0 */
	uint8_t has_data;
	uint8_t space;	 /* messages meet receives of the same space only */
	uint8_t at_once; /* send: the return value may say that it has ended; or
			  * PINION_AT_ONCE_ONLY */
	uint8_t delivered; /* send: ends when the other side has it, received or
			    * kept for a receive; never at once */
	struct pinion_many *many; /* receive, without a handle: see above */
};

/* What pinion_send() returns when message->at_once is not 0 and all is done:
 * the buffer is yours again, *out is not set and no completion follows. */
#define PINION_SENT 1

/* For at_once: pinion_send() may return PINION_SENT; or it does, or else
 * returns -EAGAIN and has not begun. */
#define PINION_AT_ONCE	    1
#define PINION_AT_ONCE_ONLY 2

/* A hint, no more: a message of len bytes to this peer follows at once. The
 * cache lines that it will be written to come while it is made ready, which
 * takes some nanoseconds off short ones; said long before, it is in vain, since
 * the receiver looks at the first over and over. Any thread, at any time. */
static inline void pinion_about_to_send(const struct pinion_peer *peer,
					size_t len)
{
	/* What every peer begins with: where that is, or NULL. */
#ifdef __cplusplus
	const char *const *first = reinterpret_cast<const char *const *>(peer);
#else
	const char *const *first = (const char *const *)peer;
#endif
	const char *line = __atomic_load_n(first, __ATOMIC_RELAXED);
	const char *end;

	if (!line)
		return;
	/* 48 bytes stand before a message; long ones do not hurry. */
	end = line + 48 + (len < 512 ? len : 512);
	for (; line < end; line += 64)
#ifdef __x86_64__
		/* The compiler leaves it to those who know their processor;
		 * those of 64 bits that do not know it take it for nothing. */
		__asm__ volatile("prefetchw %0" : : "m"(*line));
#else
		__builtin_prefetch(line, 1);
#endif
}

/* Begins to send. *out, if out is not NULL, is the request's handle. A short
 * message is over when it is out, whatever the peer does; but between endpoints
 * that both have several rails the first one is so only when the peer has made
 * progress once. PINION_SENT only when asked for. -EINVAL: NULL, or a range
 * that wraps around; -ENOMEM; -ECONNRESET: the peer is gone; -EAGAIN: see
 * above. */
PINION_API int pinion_send(struct pinion_endpoint *ep,
			   const struct pinion_message *message,
			   struct pinion_request **out);

/* Begins to receive; as above. -EINVAL: also `many` with a handle. */
PINION_API int pinion_recv(struct pinion_endpoint *ep,
			   const struct pinion_message *message,
			   struct pinion_request **out);

/* Looks whether a message that matches (peer, tag, ignore) has arrived and is
 * not received yet: 0 and *out tells of it; -EAGAIN: none. With `claim` not
 * NULL it is set aside for pinion_recv_claimed() alone. */
struct pinion_claim;
PINION_API int pinion_probe(struct pinion_endpoint *ep,
			    const struct pinion_message *message,
			    struct pinion_completion *out,
			    struct pinion_claim **claim);

/* Receives a claimed message into message->buf; ends the claim. */
PINION_API int pinion_recv_claimed(struct pinion_endpoint *ep,
				   struct pinion_claim *claim,
				   const struct pinion_message *message,
				   struct pinion_request **out);

/* Asks that a request end early: -ECANCELED if that was in time. It still has
 * to be waited for or polled. */
PINION_API int pinion_cancel(struct pinion_endpoint *ep,
			     struct pinion_request *request);

/* The same for the oldest receive without a handle whose `user` this is and
 * that no message has matched; its end is polled. -ENOENT: none. */
PINION_API int pinion_cancel_user(struct pinion_endpoint *ep, const void *user);

/* 0: the request has ended, *out (may be NULL) says how, the handle is gone;
 * -EAGAIN: not yet. Makes progress. */
PINION_API int pinion_test(struct pinion_endpoint *ep,
			   struct pinion_request *request,
			   struct pinion_completion *out);

/* As above, but sleeps until it has ended; returns its status. A cancellation
 * point while it sleeps: the request stays as it is, and the handle good. */
PINION_API int pinion_wait(struct pinion_endpoint *ep,
			   struct pinion_request *request,
			   struct pinion_completion *out);

/* Takes up to max ends of requests without handles; how many, or a negative
 * errno. Makes progress. */
PINION_API int pinion_poll(struct pinion_endpoint *ep,
			   struct pinion_completion *out, unsigned max);

/* A descriptor to wait on (U4): becomes readable after pinion_endpoint_arm()
 * returned 0 when there may be something to poll. -EOPNOTSUPP on devices in
 * virtual time. */
PINION_API int pinion_endpoint_fd(struct pinion_endpoint *ep);

/* 0: armed; -EAGAIN: there is something to do already. */
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
	uint64_t unexpected;	  /* came before their receive */
	uint64_t copied_for_room; /* parts copied since nothing more may be
				   * pinned */
	uint64_t stalls;	  /* packets that found the queue full */
	uint64_t tried;		  /* by `auto`, to know what it takes */
	/* Predictions of `auto` that were compared with what the message took,
	 * and how far they were off: mean of |took/predicted - 1|. */
	uint64_t compared;
	double off;
	/* Of sent_eager: straight from the buffer, not copied. */
	uint64_t sent_direct;
};

/* Fills *stats, whose `size` you set. -EINVAL: NULL, or size 0. */
PINION_API int pinion_endpoint_query(struct pinion_endpoint *ep,
				     struct pinion_endpoint_stats *stats);

#ifdef __cplusplus
}
#endif

#endif
