/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of the message layer share; see message.h for the story. */
#ifndef PN_MESSAGE_IMPL_H
#define PN_MESSAGE_IMPL_H

#include <stdatomic.h>

#include "base/list.h"
#include "base/lock.h"
#include "base/stats_segment.h"
#include "base/thread.h"
#include "cache/trace_event.h"
#include "message/connection/wire.h"
#include "message/endpoint/operation.h"
#include "message/message.h"
#include "message/onesided/onesided.h"
#include "message/protocol/select.h"
#include "message/twosided/direct.h"

/* A buffer that carries one packet: a registered one when it is too long to go
 * inline, a plain one when it only has to be kept (retransmit.c). */
struct pn_packet_buffer {
	struct pn_operation_context operation;
	struct pn_list
		link; /* in ep->packet_buffers or ep->unregistered_buffers while
		       * free, in peer->sent while kept */
	uint8_t *data;
	struct pinion_peer *peer; /* that it is kept for; NULL: it is not */
	size_t len;
	uint32_t sequence;
	bool small;  /* not registered */
	bool posted; /* its operation has not ended */
};

/* A packet that found the queue full. */
struct pn_queued_packet {
	struct pn_list link; /* in peer->packets */
	struct pn_wire wire;
	/* Payload in a request's buffer, which must wait for it, or, without
	 * a request, copied to `small`. */
	struct pinion_request *request;
	const uint8_t *payload;
	size_t len;
	uint8_t small[PN_WIRE_MAX_KEYS * sizeof(struct pn_wire_key)];
};

enum pn_fragment_kind {
	PN_FRAGMENT_DATA,   /* sender: goes by DATA packets */
	PN_FRAGMENT_WRITE,  /* sender: goes by RDMA writes */
	PN_FRAGMENT_LOST,   /* sender: written over a conn that went down */
	PN_FRAGMENT_TARGET, /* receiver: waits for FIN or DATA */
	PN_FRAGMENT_READ,   /* receiver: comes by RDMA reads */
};

/* A part of a long message on its conn. */
struct pn_fragment {
	struct pn_operation_context operation;
	enum pn_fragment_kind kind;
	struct pinion_request *request;
	struct pn_list link;	    /* in request->fragments */
	struct pn_connection *conn; /* that it takes */
	struct pn_list stall_link;  /* in conn->stalled: not all is posted */
	size_t offset, len;	    /* in the message */
	size_t posted;		    /* bytes */
	size_t arrived;		    /* TARGET: bytes that came by DATA */
	unsigned inflight;	    /* operations of the device */
	uint32_t number;	    /* the immediate of its write */
	int status;
	bool pinned;
	bool expected; /* counted in rail->expected */
	bool again;    /* TARGET: announced before; WRITE: announced anew, to
			* begin when the operations in flight have failed */
	struct pn_connection
		*next_conn; /* with `again`, WRITE: that it is to take */
	struct pinion_pin pin;
	unsigned nkeys;
	struct pn_wire_key keys[PN_WIRE_MAX_KEYS]; /* of the other side */
};

/* One device of an endpoint. */
struct pn_rail {
	struct pn_device *device;
	struct pn_cache *cache;
	struct pn_mr packet_mr; /* all bounce buffers, registered there */
	/* What is on its conn to this side (rail.c). */
	double byte_ns;		  /* believed */
	size_t expected;	  /* bytes announced, not there yet */
	uint64_t free_ns;	  /* when they will be there */
	uint64_t last_arrival_ns; /* when the last one was, if more were
				     expected */
	uint64_t measured_bytes, measured_ns; /* that landed so, and took */
};

/* How far a conn is on its conn out (close.c). */
enum pn_close_state {
	PN_CLOSE_NONE,
	PN_CLOSE_PENDING, /* to say BYE */
	PN_CLOSE_BYE_SENT,
	PN_CLOSE_DETACHED, /* detached; PEER_DOWN will tell */
};

/* The conn to a peer over one rail; the device's pn_peer.user points to it. */
struct pn_connection {
	struct pinion_peer *owner;
	struct pn_rail *rail;
	struct pn_peer *peer; /* NULL: not attached yet */
	unsigned number;      /* of the peer's rail at its other end */
	bool up;	      /* operations can be posted */
	bool hello_due;	      /* after a HELLO */
	bool hello_sent;      /* our HELLO was said */
	bool hello_received;  /* the peer's was hello_received, and fits */
	bool wrong_session;   /* its other end is of another conversation */
	bool down_received;   /* the peer has said DOWN */
	int down;	      /* 0, or why it is */
	enum pn_close_state close_state;
	struct pn_operation_context bye;
	struct pn_list stalled; /* fragments that found its queue full */
};

#define PN_TIMINGS 4 /* a power of two */

struct pinion_peer {
	/* Its conn's, as it was after the last short message. First, since
	 * pinion_peer_prefetch() wants nothing else. */
	_Atomic(const char *) next_send;
	struct pinion_endpoint *ep;
	struct pn_connection *conn;		  /* that packets take */
	struct pn_connection conns[PN_RAILS_MAX]; /* by number of the rail */
	struct pn_address rails[PN_RAILS_MAX];	  /* the peer's own */
	unsigned nrails;
	/* Which conversation this is: what each side calls it. */
	uint64_t name, remote_session; /* the latter by HELLO; 0: not known */
	bool connected;		 /* all conns that there can be are attached */
	bool single;		 /* one of us reaches others over one rail */
	bool sequenced;		 /* both sides have several rails, and not
				  * that: */
	bool unreachable_logged; /* that no rail reaches it */
	bool resend;		 /* some of `sent` are to be posted again */
	uint32_t next_sequence, expected_sequence;
	struct pn_list sent;	     /* packets not known to have arrived */
	struct pn_list out_of_order; /* claims: packets that came too early */
	unsigned nout_of_order;
	struct pn_list link;	 /* in ep->peers */
	struct pn_list requests; /* by peer_link */
	struct pn_list packets;	 /* waiting for the queue, in order */
	struct pn_list busy; /* in ep->busy while these or a conn's fragments
			      * wait */
	struct pn_peer_onesided onesided;
	int down;	 /* 0, or why it is gone */
	uint32_t number; /* in events; 0: none yet */
	/* What its messages took, still to be told; the newest. */
	uint64_t reports[PN_TIMINGS];
	unsigned nreports;
};

/* Fetches the cache lines that a message of len bytes will be written to. */
static inline void pn_peer_prefetch(const struct pinion_peer *peer, size_t len)
{
	const char *line =
		atomic_load_explicit(&peer->next_send, memory_order_relaxed);
	const char *end;

	if (!line)
		return;
	/* 48 bytes stand before a message; long ones are not urgent. */
	end = line + 48 + (len < 512 ? len : 512);
	for (; line < end; line += PN_CACHELINE)
#ifdef __x86_64__
		/* The compiler only emits it for processors that it knows to
		 * have it; those of 64 bits that do not ignore it. */
		__asm__ volatile("prefetchw %0" : : "m"(*line));
#else
		__builtin_prefetch(line, 1);
#endif
}

/* Short messages are to touch few lines: what they need stands first. */
struct pinion_request {
	struct pinion_endpoint *ep;
	struct pn_list link; /* posted, or done */
	struct pn_list peer_link;
	struct pinion_peer *peer;
	uint32_t id;
	uint32_t announced; /* fragments so far, of all that had this index */
	uint32_t data;
	bool has_data;
	uint8_t space;
	void *user;
	uint8_t *buf;
	size_t len; /* of the buffer */
	uint64_t tag, ignore;
	struct pinion_multi_recv *multi_recv; /* or NULL */

	/* From here to `keys` on all is zero in the beginning. */
	uint32_t other; /* the peer's number of it; 0: not known yet */
	enum pn_request_kind kind;
	int status;
	bool is_send;
	bool has_handle;
	bool ended;
	bool canceling;
	bool late;  /* receiver: the message came first */
	bool tells; /* at its end: the other side is to know that it failed */
	bool awaits_got;    /* sender: waits for GOT */
	bool sends_got;	    /* receiver: of a long message, at its end */
	bool rest_is_clean; /* from `keys` on it is as pn_request_alloc() made
			       it */
	size_t message_len; /* as the sender says */
	size_t total;	    /* of that, what is moved */
	size_t moved;

	struct pn_wire_key *keys;   /* read, receiver: of the source */
	struct pinion_pin *sources; /* read: pins of the source, by rail */
	size_t next; /* receiver: where the next fragment begins */
	size_t due;  /* receiver: bytes before it, still to come by DATA */
	struct pn_rail *due_rail; /* over which; NULL: there is one */
	uint64_t ready_ns; /* when what was announced will be registered */
	double plan_ns[PN_RAILS_MAX]; /* what each rail has of the message */
	struct pn_call call;	      /* for the helper */
	struct pn_shape shape;
	struct pn_list fragments;
	unsigned nfragments;
	unsigned npackets;  /* queued, with payload from buf; direct ones */
	uint64_t began_ns;  /* receiver: expected, and matched then; else 0 */
	bool source_pinned; /* early: the whole source; a granted buffer */
	struct pinion_pin source;
	unsigned exposed;   /* read: rails on which the source is, as bits */
	unsigned nkeys;	    /* and how many keys came */
	uint64_t key_rails; /* as in the MATCH */
	struct pn_onesided onesided; /* of kinds other than messages */
};

/* A message that came before its receive. */
struct pinion_unexpected {
	struct pn_list link; /* in ep->unexpected, ep->probed, or free */
	struct pinion_peer *peer;
	struct pn_wire wire;
	size_t payload_len, capacity;
	uint32_t sequence; /* of a out_of_order packet */
	uint8_t payload[];
};

#define PN_UNEXPECTED_SMALL_BYTES 512

struct pinion_endpoint {
	uint32_t ntraced_peers;		/* peers that have a number */
	struct pinion_context *context; /* set and used by the public calls */
	struct pn_list context_link;	/* likewise */
	bool owns_devices;
	struct pn_rail rails[PN_RAILS_MAX];
	struct pn_device *devices[PN_RAILS_MAX]; /* the same, to wait for */
	unsigned nrails;
	bool either; /* a peer has one conn; its rail is as good as another */
	int epoll;   /* over all devices and `told`; -1: not open */
	int told;    /* an eventfd for what no device tells; with epoll */
	struct pn_device *device; /* the first rail's: clock, copies, waits */
	struct pn_cache *cache;	  /* the first rail's */
	struct pn_helper *helper; /* told of every request; or NULL */
	struct pn_budget *budget;
	struct pn_protocol_limits limits;
	size_t inject_below; /* shorter messages are eager, go inline and are
			      * of no interest to `reuse` */
	int protocol;
	struct pn_protocol_selector
		*selectors[PN_RAILS_MAX]; /* one, or with `either` one for
					   * each rail */
	struct pn_reuse reuse;
	enum pn_reuse_kind eager_kind;	    /* that its sends take */
	struct pn_direct_pool *direct_pool; /* NULL: none went so yet */
	bool locking;
	bool virtual_time;     /* and then with these: */
	bool inside;	       /* a task is */
	unsigned queued;       /* others want to be */
	_Atomic uint32_t left; /* counts how often one left */
	struct pn_mutex lock;
	struct pn_list peers;
	struct pn_list busy;	   /* peers with something to post */
	struct pn_list posted;	   /* receives, oldest first */
	struct pn_list unexpected; /* claims, oldest first */
	struct pn_list probed;	   /* set aside by a probe */
	struct pn_list done;	   /* ended requests without handles */
	struct pn_list small_unexpected, large_unexpected; /* free ones */
	struct pn_list packets;				   /* free ones */
	struct pn_list fragments;			   /* free ones */

	struct pinion_request **table; /* by number */
	uint32_t ntable, nrequests;
	struct pn_list requests; /* free ones */

	struct pn_pages_policy pages; /* behind bounce buffers */
	struct pn_packet_buffer *packet_buffer_storage;
	unsigned npacket_buffers;
	struct pn_list packet_buffers;	     /* free ones */
	struct pn_list unregistered_buffers; /* likewise, not registered */
	size_t small_bytes;		     /* of each */

	struct pn_endpoint_onesided onesided;
	unsigned noperations; /* in the device: what is tracked */
	unsigned nclosing;    /* conns that are */
	bool sleeping;	      /* a thread is in the device's wait() */
	/* Who armed the descriptor, which has told of nothing since; NULL:
	 * nobody. While a thread sleeps in the devices they are its alone, and
	 * it tells when it is back. `others_armed`: and more threads, which
	 * are told whoever looks by himself. */
	const struct pn_thread *armed;
	bool others_armed;
	_Atomic uint32_t progressed; /* counts; others wait on it */
	/* In real time, and when no helper is to be told, short messages that
	 * come while pinion_poll() makes progress go straight to it. */
	bool completes_into_poll;
	struct {
		struct pinion_completion *out;
		unsigned n, room;
	} polled;
	struct pn_receive_handler
		receive_handler; /* they are offered to, of its devices */
	struct pn_endpoint_stats stats;
};

/* Kept registrations serve every protocol: a source may be read, a target be
 * written and read into. */
#define PN_SOURCE_ACCESS PINION_ACCESS_REMOTE_READ
#define PN_TARGET_ACCESS \
	(PINION_ACCESS_REMOTE_WRITE | PINION_ACCESS_LOCAL_WRITE)

/* wait.c: the lock of virtual time, where a task may not hold a mutex while
 * others run. */
void pn_endpoint_lock_virtual(struct pinion_endpoint *ep);
void pn_endpoint_unlock_virtual(struct pinion_endpoint *ep);

static inline void pn_endpoint_lock(struct pinion_endpoint *ep)
	PN_NO_THREAD_SAFETY
{
	if (!ep->locking)
		return;
	if (pn_unlikely(ep->virtual_time))
		pn_endpoint_lock_virtual(ep);
	else
		pn_lock(&ep->lock);
}

static inline void pn_endpoint_unlock(struct pinion_endpoint *ep)
	PN_NO_THREAD_SAFETY
{
	if (!ep->locking)
		return;
	if (pn_unlikely(ep->virtual_time))
		pn_endpoint_unlock_virtual(ep);
	else
		pn_unlock(&ep->lock);
}

/* All that follows is called with the lock, or where nobody else can come. */

/* progress.c: acts on what the devices say; how much that was. */
int pn_endpoint_progress(struct pinion_endpoint *ep);
void pn_progress_init(struct pinion_endpoint *ep);

/* post.c */
/* Whether so much more can be left registered without pushing others out
 * soon. */
bool pn_endpoint_budget_allows(const struct pinion_endpoint *ep, size_t len);
/* Whether what of a buffer goes by RDMA, under any protocol, is registered for
 * the conn to a peer. */
bool pn_peer_covers(const struct pinion_peer *peer, const uint8_t *buf,
		    size_t len, unsigned access);
/* Who chooses how messages to a peer go, and learns from it. */
static inline struct pn_protocol_selector *pn_peer_selector(
	const struct pinion_peer *peer)
{
	const struct pinion_endpoint *ep = peer->ep;

	return ep->selectors[ep->either ? peer->conn->rail - ep->rails : 0];
}
/* A posted receive of many is about to take a message: what that leaves of its
 * buffer is posted right behind it. */
void pn_multi_recv_repost(struct pinion_request *receive, size_t message_len);

/* wait.c: makes the descriptor readable if it is armed. */
void pn_endpoint_notify(struct pinion_endpoint *ep);
/* Whoever armed the descriptor looks by itself: it need not be told. */
static inline void pn_endpoint_disarm(struct pinion_endpoint *ep)
{
	if (pn_unlikely(ep->armed) && ep->armed == pn_thread_self() &&
	    !ep->others_armed)
		ep->armed = NULL;
}

/* close.c: an operation has ended that an endpoint has left behind. */
void pn_endpoint_orphan_done(struct pinion_endpoint *ep);
/* Ends a device's peer that belongs to no conn: nothing that it still says is
 * hello_received. */
void pn_connection_refuse(struct pn_peer *device_peer);

/* peer.c */
/* The conn that a device's peer is; NULL: not known yet, or no memory. */
struct pn_connection *pn_connection_find(struct pinion_endpoint *ep,
					 struct pn_peer *device_peer);
static inline struct pn_connection *pn_connection_of(
	struct pinion_endpoint *ep, struct pn_peer *device_peer)
{
	return pn_likely(device_peer->user)
		       ? device_peer->user
		       : pn_connection_find(ep, device_peer);
}
/* The conn of a device's peer that speaks for the first time; NULL: it is none,
 * or no memory. */
struct pn_connection *pn_connection_identify(struct pinion_endpoint *ep,
					     struct pn_peer *device_peer,
					     const struct pn_wire *wire,
					     const uint8_t *payload,
					     size_t len);
/* A HELLO; -EPROTO: of somebody else. */
int pn_connection_hello(struct pn_connection *conn, const struct pn_wire *wire,
			const uint8_t *payload, size_t len);
/* Whether what came over a conn, and is no HELLO, is for its peer's
 * conversation. Where it comes before one it is not, and the conn is parted
 * from. */
bool pn_connection_accepts(struct pn_connection *conn);
void pn_connection_up(struct pn_connection *conn);
void pn_connection_down(struct pn_connection *conn, int why);
/* Says HELLO where it is due; true when something moved. */
bool pn_connection_send_hello(struct pn_connection *conn);
/* The peer has other conns that may live. */
bool pn_connection_has_alternative(const struct pn_connection *conn);
/* The conn to a peer's rail as packets number it, or NULL. */
struct pn_connection *pn_connection_by_rail(struct pinion_peer *peer,
					    unsigned number);
/* How packets number the rail of this end of a conn, and that of the other. */
static inline unsigned pn_connection_local_rail(
	const struct pn_connection *conn)
{
	return conn->owner->sequenced
		       ? (unsigned)(conn->rail - conn->owner->ep->rails)
		       : 0;
}
static inline unsigned pn_connection_remote_rail(
	const struct pn_connection *conn)
{
	return conn->owner->sequenced ? conn->number : 0;
}
/* The conn does not do what it should: has it go down. */
void pn_connection_break(struct pn_connection *conn);
/* A DOWN. */
void pn_connection_remote_down(struct pinion_peer *peer, unsigned number);
/* It leads back to its own device. */
bool pn_connection_is_loopback(const struct pn_connection *conn);
/* Makes sure that the peer is connected or on its conn. */
int pn_peer_connect(struct pinion_peer *peer);
/* The peer broke the rules or is gone: all its requests end, and its conns. */
void pn_peer_fail(struct pinion_peer *peer, int why);

/* packet.c */
int pn_packet_buffers_open(struct pinion_endpoint *ep,
			   const struct pn_pages_policy *pages);
void pn_packet_buffers_close(struct pinion_endpoint *ep);
void pn_packet_buffer_put(struct pinion_endpoint *ep,
			  struct pn_packet_buffer *buffer);
/* Sends a packet now or, when the queue is full, later and in order. With a
 * request, payload lies in its buffer and request->npackets counts it. */
int pn_packet_send(struct pinion_peer *peer, const struct pn_wire *wire,
		   const void *payload, size_t len,
		   struct pinion_request *request);
/* The same, only now: -EAGAIN. For streams of DATA. */
int pn_packet_try_send(struct pinion_peer *peer, const struct pn_wire *wire,
		       const void *payload, size_t len);
/* Whether the device takes the bytes of such a packet while it posts. */
static inline bool pn_packet_is_inline(const struct pn_connection *conn,
				       size_t len)
{
	return sizeof(struct pn_wire) + len <=
	       conn->rail->device->limits.inline_bytes;
}
/* Posts such a packet. What the copy takes in virtual time is charged here. */
static inline int pn_packet_post_inline(const struct pn_connection *conn,
					const struct pn_inline_header *head,
					const void *payload, size_t len)
{
	struct pn_device *device = conn->rail->device;
	int ret = pn_device_send_inline(device, conn->peer, head, payload, len);

	if (pn_unlikely(!ret && device->ops->consume_cpu))
		pn_device_consume_cpu(device,
				      (uint64_t)((double)len *
						 device->costs.copy_byte_ns));
	return ret;
}
/* Posts a packet on a conn, behind nothing. */
int pn_packet_post(const struct pn_connection *conn, const struct pn_wire *wire,
		   const void *payload, size_t len);
/* Puts head and payload into a buffer. */
void pn_packet_fill(struct pn_packet_buffer *buffer, const struct pn_wire *wire,
		    const void *payload, size_t len, struct pn_device *device);
/* Takes a MATCH or GRANT back that waits for the queue; false: it is out. */
bool pn_packet_withdraw(struct pinion_request *request);
/* Posts what waits; true when something moved. */
bool pn_peer_progress(struct pinion_peer *peer);
void pn_peer_add_pending(struct pinion_peer *peer);

/* retransmit.c */
/* As pn_packet_try_send(), and keeps the packet until it has arrived. */
int pn_retransmit_send(struct pinion_peer *peer, const struct pn_wire *wire,
		       const void *payload, size_t len);
void pn_retransmit_done(struct pn_packet_buffer *buffer, int status);
/* Posts again what has to be; true when something moved. */
bool pn_retransmit_progress(struct pinion_peer *peer);
void pn_retransmit_drop(struct pinion_peer *peer);
/* What to do with a packet that has a sequence number: 0: act on it; -EALREADY:
 * it was here before, or is out_of_order; other errors: its peer is at fault.
 */
int pn_sequence_received(struct pinion_peer *peer, uint32_t sequence,
			 const struct pn_wire *wire, const uint8_t *payload,
			 size_t len);
/* The out_of_order packet whose turn it is, or NULL. */
struct pinion_unexpected *pn_sequence_next(struct pinion_peer *peer);

/* rail.c */
void pn_rails_init(struct pinion_endpoint *ep);
/* Nobody else posts to the devices of an endpoint. */
void pn_rails_set_owner(struct pinion_endpoint *ep, bool ours,
			bool single_threaded);
/* Where the fragment that begins at request->next is to go, and how long it
 * is. -EAGAIN: nowhere now. */
int pn_rail_choose(struct pinion_request *request, size_t *len,
		   struct pn_connection **out);
/* The same for len bytes that another conn has lost. */
struct pn_connection *pn_rail_choose_alternative(
	const struct pinion_request *request, size_t len);
/* A fragment's bytes are to come over its conn; they came, or will not. */
void pn_rail_expect(struct pn_fragment *f);
void pn_rail_expect_done(struct pn_fragment *f, bool landed);
/* The same for what comes by DATA before the fragments. */
void pn_rail_expect_data(struct pinion_request *request);
void pn_rail_data_arrived(struct pinion_request *request, size_t len);
/* Whether the source can be read over a conn. */
bool pn_rail_can_read(const struct pinion_request *request,
		      const struct pn_connection *conn);

/* match.c */
/* Whether a MATCH is of a message that a receive waits for. */
static inline bool pn_match_accepts(const struct pinion_request *receive,
				    const struct pinion_peer *peer,
				    const struct pn_wire *wire)
{
	return (!receive->peer || receive->peer == peer) &&
	       receive->space == (wire->status & PN_WIRE_SPACE) &&
	       !((wire->tag ^ receive->tag) & ~receive->ignore);
}
struct pinion_request *pn_match_posted(struct pinion_endpoint *ep,
				       struct pinion_peer *peer,
				       const struct pn_wire *wire);
struct pinion_unexpected *pn_match_unexpected(
	struct pinion_endpoint *ep, const struct pinion_message *wanted);
/* Keeps a packet; its payload, of so many bytes, the caller copies. NULL: no
 * memory, or longer than any of us sends. */
struct pinion_unexpected *pn_unexpected_alloc(struct pinion_peer *peer,
					      const struct pn_wire *wire,
					      size_t len);
void pn_unexpected_free(struct pinion_endpoint *ep,
			struct pinion_unexpected *unexpected);

/* request.c */
struct pinion_request *pn_request_alloc(struct pinion_endpoint *ep,
					const struct pinion_message *message);
/* It is nobody's any more. */
void pn_request_free(struct pinion_request *request);
/* The request a peer means by a number, or NULL: it is lying or late. */
struct pinion_request *pn_request_find(struct pinion_peer *peer, uint32_t id,
				       bool is_send);
/* A number for the next fragment that a receive or grant announces, and the
 * request, of any kind, that a number is of, or NULL as above. */
uint32_t pn_request_new_immediate(struct pinion_request *request);
struct pinion_request *pn_request_by_immediate(struct pinion_peer *peer,
					       uint32_t number);
/* The same, of any kind. */
struct pinion_request *pn_request_by_id(struct pinion_peer *peer, uint32_t id);
/* Keeps the keys that came with a packet. -ENOMEM. */
int pn_request_store_keys(struct pinion_request *request,
			  const struct pn_wire *wire, const uint8_t *payload);
/* Ends the pin `source`, if there is one. */
void pn_request_unpin(struct pinion_request *request);
/* Ends it if nothing refers to its buffer any more; keeps the first status. */
void pn_request_end(struct pinion_request *request, int status);
/* Ends a receive whose message came in one packet. */
void pn_request_end_short(struct pinion_request *request);
/* Takes what an ended request has to say and frees it. */
void pn_request_reap(struct pinion_request *request,
		     struct pinion_completion *out);
void pn_requests_free(struct pinion_endpoint *ep);

/* Transfers: transfer_impl.h says how they go. */
/* sender.c */
int pn_transfer_send(struct pinion_request *request,
		     const struct pn_choice *choice);
/* read: unpins the source. */
void pn_transfer_unpin_source(struct pinion_request *request);

/* receiver.c */
/* A receive and the message that it was matched with. */
void pn_transfer_receive(struct pinion_request *request,
			 struct pinion_peer *peer, const struct pn_wire *wire,
			 const uint8_t *payload, size_t len);
/* A peer's write with an immediate arrived. */
void pn_transfer_written(struct pinion_peer *peer, uint32_t number);

/* transfer.c */
/* What a peer's packet means for a transfer; -EPROTO: it makes no sense. */
int pn_transfer_packet(struct pinion_peer *peer, const struct pn_wire *wire,
		       const uint8_t *payload, size_t len);
/* An operation of a fragment ended. */
void pn_transfer_done(struct pn_fragment *fragment, int status);
/* Tells the other side of a message that this one has failed. */
void pn_transfer_send_fail(struct pinion_request *request);
/* Says that a message is here, to the peer's request that wants to know; and
 * hears it. */
void pn_transfer_send_got(struct pinion_peer *peer, uint32_t request);
int pn_transfer_on_got(struct pinion_peer *peer, const struct pn_wire *wire);
/* Gives up fragments that the device is not working on. */
void pn_transfer_abandon(struct pinion_request *request);

/* failover.c: both after a conn went down: the fragments that were on it; and
 * when the peer has said what it lacks of them. */
void pn_failover_connection_down(struct pn_connection *conn);
void pn_failover_remote_down(struct pn_connection *conn);

/* fragment.c: posts more of a fragment; -EAGAIN: the queue is full. */
int pn_fragment_post(struct pn_fragment *fragment);

/* keys.c */
/* The n-th byte of a pinned buffer: its key, and how far that reaches. */
struct pn_sge pn_pin_at(const struct pinion_pin *pin, size_t n);
/* The same of the other side's memory; len 0: beyond its end. */
struct pn_wire_key pn_keys_at(const struct pn_wire_key *keys, unsigned nkeys,
			      size_t n);
/* The keys of a pinned buffer for the other side; false: too many parts. */
bool pn_keys_export(const struct pinion_pin *pin, struct pn_wire *wire,
		    struct pn_wire_key *keys);

/* trace_events.c: what the process's event sink is told, if there is one: a
 * request as posted, and how a message goes. */
void pn_trace_request_posted(struct pinion_request *request);
void pn_trace_protocol_chosen(struct pinion_request *request, int protocol,
			      enum pn_trace_event_reason why);

/* statistics.c */
extern const struct pn_stats_kind pn_endpoint_statistics;

#ifdef PINION_CHECK_CLOSE
#define PN_ENDPOINT_CHECK(ep)	      pn_endpoint_check(ep)
#define PN_ENDPOINT_CHECK_CLOSING(ep) pn_endpoint_check_closing(ep)
#else
#define PN_ENDPOINT_CHECK(ep)	      ((void)0)
#define PN_ENDPOINT_CHECK_CLOSING(ep) ((void)0)
#endif

/* check.c: what holds when an endpoint has parted, as far as it could. */
void pn_endpoint_check_closing(const struct pinion_endpoint *ep);

#endif
