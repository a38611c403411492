/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of the message layer share; see message.h for the story. */
#ifndef PN_MESSAGE_IMPL_H
#define PN_MESSAGE_IMPL_H

#include <stdatomic.h>

#include "base/board.h"
#include "base/list.h"
#include "base/lock.h"
#include "base/thread.h"
#include "cache/event.h"
#include "message/auto.h"
#include "message/direct.h"
#include "message/message.h"
#include "message/onesided.h"
#include "message/track.h"
#include "message/wire.h"

/* A buffer that carries one packet: a registered one when it is too long to go
 * inline, a plain one when it only has to be kept (kept.c). */
struct pn_bounce {
	struct pn_track track;
	struct pn_list link; /* in ep->bounces or ep->smalls while free, in
			      * peer->sent while kept */
	uint8_t *data;
	struct pinion_peer *peer; /* that it is kept for; NULL: it is not */
	size_t len;
	uint32_t sequence;
	bool small;  /* not registered */
	bool posted; /* its operation has not ended */
};

/* A packet that found the queue full. */
struct pn_packet {
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
	PN_FRAGMENT_LOST,   /* sender: written over a way that went down */
	PN_FRAGMENT_TARGET, /* receiver: waits for FIN or DATA */
	PN_FRAGMENT_READ,   /* receiver: comes by RDMA reads */
};

/* A part of a long message on its way. */
struct pn_fragment {
	struct pn_track track;
	enum pn_fragment_kind kind;
	struct pinion_request *request;
	struct pn_list link;  /* in request->fragments */
	struct pn_way *way;   /* that it takes */
	struct pn_list stall; /* in way->stalled: not all is posted */
	size_t offset, len;   /* in the message */
	size_t posted;	      /* bytes */
	size_t arrived;	      /* TARGET: bytes that came by DATA */
	unsigned inflight;    /* operations of the device */
	uint32_t number;      /* the immediate of its write */
	int status;
	bool pinned;
	bool expected; /* counted in rail->expected */
	bool again;    /* TARGET: announced before; WRITE: announced anew, to
			* begin when the operations in flight have failed */
	struct pn_way *next_way; /* with `again`, WRITE: that it is to take */
	struct pinion_pin pin;
	unsigned nkeys;
	struct pn_wire_key keys[PN_WIRE_MAX_KEYS]; /* of the other side */
};

/* One device of an endpoint. */
struct pn_rail {
	struct pn_device *device;
	struct pn_cache *cache;
	struct pn_mr bounce_mr; /* all bounce buffers, registered there */
	/* What is on its way to this side (rail.c). */
	double byte_ns;	    /* believed */
	size_t expected;    /* bytes announced, not there yet */
	uint64_t free_ns;   /* when they will be there */
	uint64_t landed_ns; /* when the last one was, if more were expected */
	uint64_t watched_bytes, watched_ns; /* that landed so, and took */
};

/* How far a way is on its way out (close.c). */
enum pn_parting {
	PN_PARTING_NOT,
	PN_PARTING_WISHES, /* to say BYE */
	PN_PARTING_SAID,
	PN_PARTING_ENDS, /* detached; PEER_DOWN will tell */
};

/* The way to a peer over one rail; the device's pn_peer.user points to it. */
struct pn_way {
	struct pinion_peer *owner;
	struct pn_rail *rail;
	struct pn_peer *peer; /* NULL: not attached yet */
	unsigned number;      /* of the peer's rail at its other end */
	bool up;	      /* operations can be posted */
	bool greet;	      /* after a HELLO */
	bool greeted;	      /* our HELLO was said */
	bool heard;	      /* the peer's was heard, and fits */
	bool foreign;	      /* its other end is of another conversation */
	bool swept;	      /* the peer has said DOWN */
	int down;	      /* 0, or why it is */
	enum pn_parting parting;
	struct pn_track bye;
	struct pn_list stalled; /* fragments that found its queue full */
};

#define PN_REPORTS 4 /* a power of two */

struct pinion_peer {
	/* Its way's, as it was after the last short message. First, since
	 * pinion_peer_prefetch() wants nothing else. */
	_Atomic(const char *) next_send;
	struct pinion_endpoint *ep;
	struct pn_way *way;		       /* that packets take */
	struct pn_way ways[PN_RAILS_MAX];      /* by number of the rail */
	struct pn_address rails[PN_RAILS_MAX]; /* the peer's own */
	unsigned nrails;
	/* Which conversation this is: what each side calls it. */
	uint64_t name, other_name; /* the latter by HELLO; 0: not known */
	bool connected;		   /* all ways that there can be are attached */
	bool single;		   /* one of us reaches others over one rail */
	bool sequenced;		   /* both sides have several rails, and not
				    * that: */
	bool complained;	   /* that no rail reaches it */
	bool resend;		   /* some of `sent` are to be posted again */
	uint32_t next_sequence, expected_sequence;
	struct pn_list sent;   /* packets not known to have arrived */
	struct pn_list parked; /* claims: packets that came too early */
	unsigned nparked;
	struct pn_list link;	 /* in ep->peers */
	struct pn_list requests; /* by peer_link */
	struct pn_list packets;	 /* waiting for the queue, in order */
	struct pn_list busy;	 /* in ep->busy while these or a way's fragments
				  * wait */
	struct pn_peer_onesided onesided;
	int down;	 /* 0, or why it is gone */
	uint32_t number; /* in events; 0: none yet */
	/* What its messages took, still to be told; the newest. */
	uint64_t reports[PN_REPORTS];
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
	bool late;    /* receiver: the message came first */
	bool tells;   /* at its end: the other side is to know that it failed */
	bool unheard; /* sender: waits for GOT */
	bool says_got;	/* receiver: of a long message, at its end */
	bool was_short; /* from `keys` on it is as pn_request_alloc() made it */
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
	struct pn_list link; /* in ep->unexpected, ep->claimed, or free */
	struct pinion_peer *peer;
	struct pn_wire wire;
	size_t payload_len, capacity;
	uint32_t sequence; /* of a parked packet */
	uint8_t payload[];
};

#define PN_SMALL_CLAIM 512

struct pinion_endpoint {
	uint32_t ntold;			/* peers that have a number */
	struct pinion_context *context; /* set and used by the public calls */
	struct pn_list context_link;	/* likewise */
	bool owns_devices;
	struct pn_rail rails[PN_RAILS_MAX];
	struct pn_device *devices[PN_RAILS_MAX]; /* the same, to wait for */
	unsigned nrails;
	bool either; /* a peer has one way; its rail is as good as another */
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
	struct pn_auto *choosers[PN_RAILS_MAX]; /* one, or with `either` one for
						 * each rail */
	struct pn_reuse reuse;
	enum pn_reuse_way eager_way; /* that its sends take */
	struct pn_directs *directs;  /* NULL: none went so yet */
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
	struct pn_list claimed;	   /* set aside by a probe */
	struct pn_list done;	   /* ended requests without handles */
	struct pn_list small_claims, large_claims; /* free ones */
	struct pn_list packets;			   /* free ones */
	struct pn_list fragments;		   /* free ones */

	struct pinion_request **table; /* by number */
	uint32_t ntable, nrequests;
	struct pn_list requests; /* free ones */

	struct pn_pages_policy pages; /* behind bounce buffers */
	struct pn_bounce *bounce_storage;
	unsigned nbounces;
	struct pn_list bounces; /* free ones */
	struct pn_list smalls;	/* likewise, not registered */
	size_t small_bytes;	/* of each */

	struct pn_endpoint_onesided onesided;
	unsigned noperations; /* in the device: what is tracked */
	unsigned nparting;    /* ways that are */
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
	bool polls_into;
	struct {
		struct pinion_completion *out;
		unsigned n, room;
	} polled;
	struct pn_taker taker; /* they are offered to, of its devices */
	struct pn_endpoint_stats stats;
};

/* Kept registrations serve every protocol: a source may be read, a target be
 * written and read into. */
#define PN_SOURCE_ACCESS PINION_ACCESS_REMOTE_READ
#define PN_TARGET_ACCESS \
	(PINION_ACCESS_REMOTE_WRITE | PINION_ACCESS_LOCAL_WRITE)

/* wait.c: the lock of virtual time, where a task may not hold a mutex while
 * others run. */
void pn_endpoint_queue(struct pinion_endpoint *ep);
void pn_endpoint_leave(struct pinion_endpoint *ep);

static inline void pn_endpoint_lock(struct pinion_endpoint *ep)
	PN_NO_THREAD_SAFETY
{
	if (!ep->locking)
		return;
	if (pn_unlikely(ep->virtual_time))
		pn_endpoint_queue(ep);
	else
		pn_lock(&ep->lock);
}

static inline void pn_endpoint_unlock(struct pinion_endpoint *ep)
	PN_NO_THREAD_SAFETY
{
	if (!ep->locking)
		return;
	if (pn_unlikely(ep->virtual_time))
		pn_endpoint_leave(ep);
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
bool pn_endpoint_roomy(const struct pinion_endpoint *ep, size_t len);
/* Whether what of a buffer goes by RDMA, under any protocol, is registered for
 * the way to a peer. */
bool pn_peer_covers(const struct pinion_peer *peer, const uint8_t *buf,
		    size_t len, unsigned access);
/* Who chooses how messages to a peer go, and learns from it. */
static inline struct pn_auto *pn_peer_chooser(const struct pinion_peer *peer)
{
	const struct pinion_endpoint *ep = peer->ep;

	return ep->choosers[ep->either ? peer->way->rail - ep->rails : 0];
}
/* A posted receive of many is about to take a message: what that leaves of its
 * buffer is posted right behind it. */
void pn_receive_rest(struct pinion_request *receive, size_t message_len);

/* wait.c: makes the descriptor readable if it is armed. */
void pn_endpoint_tell(struct pinion_endpoint *ep);
/* Whoever armed the descriptor looks by itself: it need not be told. */
static inline void pn_endpoint_disarm(struct pinion_endpoint *ep)
{
	if (pn_unlikely(ep->armed) && ep->armed == pn_thread_self() &&
	    !ep->others_armed)
		ep->armed = NULL;
}

/* close.c: an operation has ended that an endpoint has left behind. */
void pn_endpoint_left(struct pinion_endpoint *ep);
/* Ends a device's peer that belongs to no way: nothing that it still says is
 * heard. */
void pn_way_refuse(struct pn_peer *device_peer);

/* peer.c */
/* The way that a device's peer is; NULL: not known yet, or no memory. */
struct pn_way *pn_way_find(struct pinion_endpoint *ep,
			   struct pn_peer *device_peer);
static inline struct pn_way *pn_way_of(struct pinion_endpoint *ep,
				       struct pn_peer *device_peer)
{
	return pn_likely(device_peer->user) ? device_peer->user
					    : pn_way_find(ep, device_peer);
}
/* The way of a device's peer that speaks for the first time; NULL: it is none,
 * or no memory. */
struct pn_way *pn_way_introduce(struct pinion_endpoint *ep,
				struct pn_peer *device_peer,
				const struct pn_wire *wire,
				const uint8_t *payload, size_t len);
/* A HELLO; -EPROTO: of somebody else. */
int pn_way_hello(struct pn_way *way, const struct pn_wire *wire,
		 const uint8_t *payload, size_t len);
/* Whether what came over a way, and is no HELLO, is for its peer's
 * conversation. Where it comes before one it is not, and the way is parted
 * from. */
bool pn_way_listens(struct pn_way *way);
void pn_way_up(struct pn_way *way);
void pn_way_down(struct pn_way *way, int why);
/* Says HELLO where it is due; true when something moved. */
bool pn_way_greet(struct pn_way *way);
/* The peer has other ways that may live. */
bool pn_way_has_others(const struct pn_way *way);
/* The way to a peer's rail as packets number it, or NULL. */
struct pn_way *pn_way_named(struct pinion_peer *peer, unsigned number);
/* How packets number the rail of this end of a way, and that of the other. */
static inline unsigned pn_way_near(const struct pn_way *way)
{
	return way->owner->sequenced
		       ? (unsigned)(way->rail - way->owner->ep->rails)
		       : 0;
}
static inline unsigned pn_way_far(const struct pn_way *way)
{
	return way->owner->sequenced ? way->number : 0;
}
/* The way does not do what it should: has it go down. */
void pn_way_break(struct pn_way *way);
/* A DOWN. */
void pn_way_told_down(struct pinion_peer *peer, unsigned number);
/* It leads back to its own device. */
bool pn_way_is_loopback(const struct pn_way *way);
/* Makes sure that the peer is connected or on its way. */
int pn_peer_connect(struct pinion_peer *peer);
/* The peer broke the rules or is gone: all its requests end, and its ways. */
void pn_peer_fail(struct pinion_peer *peer, int why);

/* packet.c */
int pn_bounces_open(struct pinion_endpoint *ep,
		    const struct pn_pages_policy *pages);
void pn_bounces_close(struct pinion_endpoint *ep);
void pn_bounce_put(struct pinion_endpoint *ep, struct pn_bounce *bounce);
/* Sends a packet now or, when the queue is full, later and in order. With a
 * request, payload lies in its buffer and request->npackets counts it. */
int pn_packet_send(struct pinion_peer *peer, const struct pn_wire *wire,
		   const void *payload, size_t len,
		   struct pinion_request *request);
/* The same, only now: -EAGAIN. For streams of DATA. */
int pn_packet_try(struct pinion_peer *peer, const struct pn_wire *wire,
		  const void *payload, size_t len);
/* Whether the device takes the bytes of such a packet while it posts. */
static inline bool pn_packet_is_inline(const struct pn_way *way, size_t len)
{
	return sizeof(struct pn_wire) + len <=
	       way->rail->device->limits.inline_bytes;
}
/* Posts such a packet. What the copy takes in virtual time is charged here. */
static inline int pn_packet_inline(const struct pn_way *way,
				   const struct pn_head *head,
				   const void *payload, size_t len)
{
	struct pn_device *device = way->rail->device;
	int ret = pn_device_send_inline(device, way->peer, head, payload, len);

	if (pn_unlikely(!ret && device->ops->charge))
		pn_device_charge(device,
				 (uint64_t)((double)len *
					    device->costs.copy_byte_ns));
	return ret;
}
/* Posts a packet on a way, behind nothing. */
int pn_packet_post(const struct pn_way *way, const struct pn_wire *wire,
		   const void *payload, size_t len);
/* Puts head and payload into a buffer. */
void pn_packet_fill(struct pn_bounce *bounce, const struct pn_wire *wire,
		    const void *payload, size_t len, struct pn_device *device);
/* Takes a MATCH or GRANT back that waits for the queue; false: it is out. */
bool pn_packet_withdraw(struct pinion_request *request);
/* Posts what waits; true when something moved. */
bool pn_peer_pump(struct pinion_peer *peer);
void pn_peer_busy(struct pinion_peer *peer);

/* kept.c */
/* As pn_packet_try(), and keeps the packet until it has arrived. */
int pn_kept_send(struct pinion_peer *peer, const struct pn_wire *wire,
		 const void *payload, size_t len);
void pn_kept_done(struct pn_bounce *kept, int status);
/* Posts again what has to be; true when something moved. */
bool pn_kept_pump(struct pinion_peer *peer);
void pn_kept_drop(struct pinion_peer *peer);
/* What to do with a packet that has a sequence number: 0: act on it; -EALREADY:
 * it was here before, or is parked; other errors: its peer is at fault. */
int pn_kept_arrived(struct pinion_peer *peer, uint32_t sequence,
		    const struct pn_wire *wire, const uint8_t *payload,
		    size_t len);
/* The parked packet whose turn it is, or NULL. */
struct pinion_unexpected *pn_kept_next(struct pinion_peer *peer);

/* rail.c */
void pn_rails_init(struct pinion_endpoint *ep);
/* Nobody else posts to the devices of an endpoint. */
void pn_rails_claim(struct pinion_endpoint *ep, bool ours,
		    bool single_threaded);
/* Where the fragment that begins at request->next is to go, and how long it
 * is. -EAGAIN: nowhere now. */
int pn_rail_choose(struct pinion_request *request, size_t *len,
		   struct pn_way **out);
/* The same for len bytes that another way has lost. */
struct pn_way *pn_rail_instead(const struct pinion_request *request,
			       size_t len);
/* A fragment's bytes are to come over its way; they came, or will not. */
void pn_rail_expect(struct pn_fragment *f);
void pn_rail_forget(struct pn_fragment *f, bool landed);
/* The same for what comes by DATA before the fragments. */
void pn_rail_expect_data(struct pinion_request *request);
void pn_rail_data(struct pinion_request *request, size_t len);
/* Whether the source can be read over a way. */
bool pn_rail_readable(const struct pinion_request *request,
		      const struct pn_way *way);

/* match.c */
/* Whether a MATCH is of a message that a receive waits for. */
static inline bool pn_match_message(const struct pinion_request *receive,
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
struct pinion_unexpected *pn_claim_make(struct pinion_peer *peer,
					const struct pn_wire *wire, size_t len);
void pn_claim_free(struct pinion_endpoint *ep, struct pinion_unexpected *claim);

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
uint32_t pn_request_announce(struct pinion_request *request);
struct pinion_request *pn_request_announced(struct pinion_peer *peer,
					    uint32_t number);
/* The same, of any kind. */
struct pinion_request *pn_request_at(struct pinion_peer *peer, uint32_t id);
/* Keeps the keys that came with a packet. -ENOMEM. */
int pn_request_keep_keys(struct pinion_request *request,
			 const struct pn_wire *wire, const uint8_t *payload);
/* Ends the pin `source`, if there is one. */
void pn_request_unpin(struct pinion_request *request);
/* Ends it if nothing refers to its buffer any more; keeps the first status. */
void pn_request_end(struct pinion_request *request, int status);
/* Ends a receive whose message came in one packet. */
void pn_request_end_short(struct pinion_request *request);
/* Takes what an ended request has to say and frees it. */
void pn_request_take(struct pinion_request *request,
		     struct pinion_completion *out);
void pn_requests_free(struct pinion_endpoint *ep);

/* Transfers: transfer_impl.h says how they go. */
/* sender.c */
int pn_transfer_send(struct pinion_request *request,
		     const struct pn_choice *choice);
/* read: unpins the source. */
void pn_transfer_conceal(struct pinion_request *request);

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
void pn_transfer_tell(struct pinion_request *request);
/* Says that a message is here, to the peer's request that wants to know; and
 * hears it. */
void pn_transfer_got(struct pinion_peer *peer, uint32_t request);
int pn_transfer_heard(struct pinion_peer *peer, const struct pn_wire *wire);
/* Gives up fragments that the device is not working on. */
void pn_transfer_abandon(struct pinion_request *request);

/* failover.c: both after a way went down: the fragments that were on it; and
 * when the peer has said what it lacks of them. */
void pn_transfer_way_down(struct pn_way *way);
void pn_transfer_swept(struct pn_way *way);

/* fragment.c: posts more of a fragment; -EAGAIN: the queue is full. */
int pn_fragment_pump(struct pn_fragment *fragment);

/* keys.c */
/* The n-th byte of a pinned buffer: its key, and how far that reaches. */
struct pn_sge pn_pin_at(const struct pinion_pin *pin, size_t n);
/* The same of the other side's memory; len 0: beyond its end. */
struct pn_wire_key pn_keys_at(const struct pn_wire_key *keys, unsigned nkeys,
			      size_t n);
/* The keys of a pinned buffer for the other side; false: too many parts. */
bool pn_keys_export(const struct pinion_pin *pin, struct pn_wire *wire,
		    struct pn_wire_key *keys);

/* tell.c: what the process's event sink is told, if there is one: a request as
 * posted, and how a message goes. */
void pn_tell_request(struct pinion_request *request);
void pn_tell_protocol(struct pinion_request *request, int protocol,
		      enum pn_event_reason why);

/* shown.c */
extern const struct pn_shown_kind pn_shown_endpoint;

#ifdef PINION_CHECK_CLOSE
#define PN_ENDPOINT_CHECK(ep)	      pn_endpoint_check(ep)
#define PN_ENDPOINT_CHECK_PARTING(ep) pn_endpoint_check_parting(ep)
#else
#define PN_ENDPOINT_CHECK(ep)	      ((void)0)
#define PN_ENDPOINT_CHECK_PARTING(ep) ((void)0)
#endif

/* check.c: what holds when an endpoint has parted, as far as it could. */
void pn_endpoint_check_parting(const struct pinion_endpoint *ep);

#endif
