/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fabric_impl -- the fabric device, its packets and peers, for the files of
 * this folder.
 *
 * Threads: callers and the service thread do the same work, under dev->lock:
 * post, read the completion queue, execute requests. Completions go through the
 * ring dev->done: pn_fabric_progress() fills it, poll() empties it.
 *
 * A packet is in one place: in the free list, posted to receive, lent to a
 * caller, in the queue of a peer (a request that waits), handed to libfabric
 * for sending, or in the backlog (libfabric had no room).
 *
 * A peer that goes down: pn_fabric_peer_down() marks it. Teardown, in
 * pn_fabric_progress(), waits until the completion queue was empty and the
 * provider has ended the reads for this peer (or DRAIN_NS has passed); then the
 * operations that are left complete, and PEER_DOWN comes last.
 */
#ifndef PN_DEVICE_FABRIC_IMPL_H
#define PN_DEVICE_FABRIC_IMPL_H

#include <pthread.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <stdatomic.h>

#include "base/cancel.h"
#include "base/list.h"
#include "base/lock.h"
#include "device/fabric/fabric.h"
#include "device/fabric/keys.h"
#include "device/fabric/library.h"
#include "device/fabric/wire.h"

#define PN_FABRIC_NAME_BYTES 64

struct pn_fabric_params {
	uint64_t queue_depth, window, spin;
	uint64_t heartbeat, patience;
	char domain[PN_OPTION_TEXT_BYTES];
	char address[PN_OPTION_TEXT_BYTES];
};

/* What libfabric gets as the context of an operation. */
struct pn_fabric_context {
	struct fi_context2 provider;
	enum {
		PN_FABRIC_TX,
		PN_FABRIC_RX,
		PN_FABRIC_FETCH,
	} kind;
};

struct pn_fabric_fetch;

struct pn_fabric_packet {
	struct pn_fabric_context context;
	struct pn_list link;
	struct pn_fabric_peer *peer; /* TX: receiver. RX: sender */
	void *desc;		     /* of its memory region; or NULL */
	size_t len;
	/* A PULL: in progress; its destination, once begun; ended. */
	struct pn_fabric_fetch *fetch;
	struct pn_fabric_slot *slot;
	bool executed;
	union {
		struct pn_fabric_header header;
		struct pn_fabric_hello hello;
		struct pn_fabric_write write;
		struct pn_fabric_pull pull;
		struct pn_fabric_atomic atomic;
		struct pn_fabric_grant grant;
		uint8_t bytes[PN_FABRIC_PACKET_BYTES];
	} wire;
};

/* Long operations: bytes that this device reads from a peer's memory. */
struct pn_fabric_fetch {
	struct pn_list link; /* dev->fetches */
	struct pn_fabric_peer *peer;
	struct pn_fabric_packet *pull; /* NULL: for a READ of ours */
	uint32_t number;	       /* of the READ */
	unsigned n, posted, ended;
	unsigned nlost; /* posted, and failed by what is known */
	int status;
	bool abandoned; /* nobody waits for it any more */
	struct pn_fabric_piece {
		struct pn_fabric_context context;
		struct pn_fabric_fetch *fetch;
		uint64_t number; /* in the order of posting */
		bool ended;	 /* or lost */
		void *addr;
		void *desc;
		struct pn_fabric_source from;
	} pieces[PN_FABRIC_MAX_SGE];
};

/* An operation in flight. */
struct pn_fabric_record {
	void *user;
	int status;
	bool silent;
	bool reads; /* READ, atomic: ends with its answer */
	bool ended;
	bool fetching; /* READ: the provider writes into the segments */
	bool uses;     /* the segments count as users of their slots */
	unsigned nsge;
	struct pn_sge sge[PN_FABRIC_MAX_SGE];
	struct pn_fabric_slot *slots[PN_FABRIC_MAX_SGE];
};

/* A long READ of the peer. */
struct pn_fabric_granted {
	struct pn_list link;
	uint32_t number;
	struct pn_fabric_slot *slot;
};

struct pn_fabric_peer {
	struct pn_peer peer;
	struct pn_list link; /* dev->peers */
	struct pn_fabric_address at;
	fi_addr_t addr;
	uint32_t number, tag; /* ours: in packets to us */
	uint32_t to, to_tag;  /* the peer's: in packets to it; tag 0: unknown */
	bool echoed;	      /* our hello repeated to_tag */
	bool up_reported, down_reported;
	bool bye_sent, bye_received;
	int down;		   /* 0, or the reason */
	uint64_t teardown_ns;	   /* since when; 0: not in teardown */
	struct pn_list teardown;   /* dev->teardowns */
	struct pn_list backlog;	   /* packets, by link */
	struct pn_list backlogged; /* dev->backlogged */
	int pidfd;		   /* a process of this host; or -1 */
	bool ended;		   /* the process: it gets nothing more */
	/* Heartbeat. */
	bool heard, pinged;
	uint64_t silent_ns;

	struct {
		/* By number; NULL for a peer that was refused or is down. */
		struct pn_fabric_record *records;
		uint32_t head, next;	    /* oldest in flight; next to post */
		uint32_t executed, granted; /* as the peer says */
		uint32_t sequence;
		unsigned reads; /* READs and atomics in flight */
		bool fenced;	/* a fenced operation waits for them: all do */
		bool post_refused;
	} tx;
	struct {
		struct pn_list queue; /* requests that wait, in order */
		struct pn_list grants;
		uint32_t sequence;
		uint32_t received; /* requests */
		uint32_t executed, granted;
		uint32_t announced;	/* granted, as the peer knows it */
		unsigned fetches;	/* posted for this peer and not ended */
		bool advancing;		/* pn_fabric_advance() runs */
		struct pn_list ack_due; /* dev->acks_due */
	} rx;
};

struct pn_fabric_block {
	struct pn_list link;
	void *memory;
	size_t bytes;
	struct fid_mr *mr; /* NULL: not needed */
};

struct pn_fabric_device {
	struct pn_device device;

	/* --- constant after open ------------------------------------------ */

	/* The device whose registrations this device uses: itself, or the
	 * device that it was opened to share registrations with. It has the
	 * fabric and the domain, too. */
	struct pn_fabric_device *owner;
	const struct pn_fabric_library *library;
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_av *av;
	struct fid_cq *cq;
	struct fid_ep *ep;
	int cq_fd;	     /* -1: the provider has none */
	uint64_t cq_nread;   /* entries read so far */
	int event_fd, epoll; /* for callers that sleep */
	size_t inject_bytes;
	bool local_mr;
	struct pn_fabric_address address;
	struct pn_fabric_params params;
	struct pn_pages_policy pages;
	uint64_t host;
	unsigned depth_mask; /* queue_depth - 1 */

	/* --- any thread; locks of its own --------------------------------- */

	struct pn_fabric_keys keys; /* of an owner */
	_Atomic unsigned woken;	    /* by wake() */
	_Atomic unsigned waiters;   /* callers in wait() that may sleep */

	/* --- under lock --------------------------------------------------- */

	struct pn_mutex lock;
	int cancel_was; /* cancelability of the thread that holds lock */
	struct {
		struct pn_completion *ring;
		unsigned head, n, max; /* max: a power of two */
	} done;
	uint64_t activity; /* counts calls of callers */
	bool armed;	/* somebody may sleep on the descriptor since arm() */
	bool must_poll; /* for him: cq_fd cannot be relied on */
	bool post_room; /* a refused post may succeed now */
	bool ack_now;	/* an ACK that is due does not wait */
	struct pn_list peers;
	struct pn_fabric_peer **by_number;
	unsigned npeers, nrefusals; /* in by_number; hellos refused */
	struct pn_list blocks, free, unposted; /* blocks; packets */
	size_t packet_bytes;		       /* of all blocks */
	unsigned nreceives, nwanted; /* packets for receiving: are, should be */
	unsigned nsending;	     /* packets that libfabric holds */
	struct pn_list backlogged, teardowns, acks_due, fetches;
	uint64_t nreads; /* pieces that were ever posted */
	struct {
		unsigned n;	 /* reads that failed, not known which */
		uint64_t before; /* of those with a smaller number */
		int status;
	} lost;

	/* --- the service thread ------------------------------------------- */

	struct {
		pthread_t thread;
		bool running;
		_Atomic bool stop;
		_Atomic bool deep;   /* it sleeps until a heartbeat is due */
		int event_fd, epoll; /* epoll: pidfds of peers */
		uint64_t seen;	     /* activity, and when */
		uint64_t seen_ns;
		uint64_t scanned_ns; /* last look at the peers */
		uint64_t npings;     /* heartbeats sent */
		uint64_t nticks;     /* looks while callers polled */
		uint64_t read_seen;  /* cq_nread at the last look */
		uint64_t nap_ns;     /* the last sleep without descriptor */
	} service;
};

static inline struct pn_fabric_device *pn_fabric_of(struct pn_device *device)
{
	return pn_container_of(device, struct pn_fabric_device, device);
}

static inline struct pn_fabric_peer *pn_fabric_peer_of(struct pn_peer *peer)
{
	return pn_container_of(peer, struct pn_fabric_peer, peer);
}

/* Providers make system calls: cancellation is off, so that no thread ends
 * inside them. */
static inline void pn_fabric_lock(struct pn_fabric_device *dev)
	PN_ACQUIRE(&dev->lock)
{
	int was = pn_cancel_off();

	pn_lock(&dev->lock);
	dev->cancel_was = was;
}

static inline void pn_fabric_unlock(struct pn_fabric_device *dev)
	PN_RELEASE(&dev->lock)
{
	int was = dev->cancel_was;

	pn_unlock(&dev->lock);
	pn_cancel_restore(&was);
}

/* Whether the peer will answer our BYE. Until then the endpoint stays open: TCP
 * resets a connection that is closed before all was read, and the provider at
 * the other side may drop what it has not read, too. */
static inline bool pn_fabric_awaits_bye(const struct pn_fabric_peer *peer)
{
	return peer->up_reported && peer->bye_sent && !peer->bye_received &&
	       !peer->ended;
}

/* Whether a counter that wraps around has passed `number`. */
static inline bool pn_fabric_passed(uint32_t count, uint32_t number)
{
	return (int32_t)(count - number) > 0;
}

/* All of the following: the caller holds dev->lock, if nothing else is said. */

/* find.c: chooses provider (empty: the first usable one after `skip` others)
 * and domain, sets dev->info. Logs why not, unless the others were skipped. */
int pn_fabric_find(struct pn_fabric_device *dev, const char *provider,
		   unsigned skip);
/* Lists what fi_getinfo() offers (pn_device_ops.list). */
void pn_fabric_list(pn_fact_fn *fn, void *arg);
/* An error of libfabric as an errno. */
int pn_fabric_error(int ret);

/* packet.c: a packet to send; NULL: no memory. */
struct pn_fabric_packet *pn_fabric_packet_get(struct pn_fabric_device *dev);
void pn_fabric_packet_put(struct pn_fabric_device *dev,
			  struct pn_fabric_packet *packet);
/* Sends a packet of a connected peer; completes its header. */
void pn_fabric_send(struct pn_fabric_device *dev, struct pn_fabric_peer *peer,
		    struct pn_fabric_packet *packet);
/* Sends a packet whose header is complete. */
void pn_fabric_send_raw(struct pn_fabric_device *dev,
			struct pn_fabric_peer *peer,
			struct pn_fabric_packet *packet);
/* Sends a packet that is only a header. Without memory it is lost: the peer
 * goes down. */
void pn_fabric_send_short(struct pn_fabric_device *dev,
			  struct pn_fabric_peer *peer, enum pn_fabric_kind kind,
			  uint32_t number, uint32_t imm);
/* libfabric has sent a packet, or failed. */
void pn_fabric_sent(struct pn_fabric_device *dev,
		    struct pn_fabric_packet *packet, int status);
/* Sends the backlog. */
void pn_fabric_send_backlog(struct pn_fabric_device *dev);
void pn_fabric_drop_backlog(struct pn_fabric_device *dev,
			    struct pn_fabric_peer *peer);
/* Wants n packets more (or fewer) for receiving. -ENOMEM. */
int pn_fabric_receives_add(struct pn_fabric_device *dev, unsigned n);
void pn_fabric_receives_remove(struct pn_fabric_device *dev, unsigned n);
/* Posts a packet for receiving, or frees it if there are too many. */
void pn_fabric_receive_post(struct pn_fabric_device *dev,
			    struct pn_fabric_packet *packet);
/* Posts packets that libfabric had no room for. */
void pn_fabric_receives_post(struct pn_fabric_device *dev);
void pn_fabric_packets_free(struct pn_fabric_device *dev);

/* connect.c */
/* A HELLO, REFUSE or BYE has arrived. */
void pn_fabric_on_hello(struct pn_fabric_device *dev,
			const struct pn_fabric_packet *packet);
void pn_fabric_send_hello(struct pn_fabric_device *dev,
			  struct pn_fabric_peer *peer,
			  enum pn_fabric_kind kind);
/* Marks a peer as down; the first reason counts. */
void pn_fabric_peer_down(struct pn_fabric_device *dev,
			 struct pn_fabric_peer *peer, int status);
/* The same after an error of the provider. */
void pn_fabric_peer_failed(struct pn_fabric_device *dev,
			   struct pn_fabric_peer *peer, int error);
/* Ends peers that are down. The completion queue was empty. */
void pn_fabric_finish_teardowns(struct pn_fabric_device *dev);
void pn_fabric_peers_free(struct pn_fabric_device *dev);

/* execute.c: the target's side. */
/* A request has arrived; takes the packet. */
void pn_fabric_on_request(struct pn_fabric_device *dev,
			  struct pn_fabric_peer *peer,
			  struct pn_fabric_packet *packet);
/* Executes the requests that can be executed; none while the peer has a
 * backlog, so that answers do not pile up for one that does not read. */
void pn_fabric_advance(struct pn_fabric_device *dev,
		       struct pn_fabric_peer *peer);
void pn_fabric_on_release(struct pn_fabric_peer *peer, uint32_t number);
/* The buffer of a request is free again. */
void pn_fabric_return_credit(struct pn_fabric_device *dev,
			     struct pn_fabric_packet *packet);
/* Ends what the peer has begun here. */
void pn_fabric_requests_drop(struct pn_fabric_device *dev,
			     struct pn_fabric_peer *peer);
/* An ACK is due. */
void pn_fabric_ack_later(struct pn_fabric_device *dev,
			 struct pn_fabric_peer *peer);
/* Sends the ACKs that are due, except to peers with a backlog. */
void pn_fabric_send_acks(struct pn_fabric_device *dev);

/* fetch.c: reads of a peer's memory. -ENOMEM. */
struct pn_fabric_fetch *pn_fabric_fetch_get(struct pn_fabric_peer *peer);
/* Begins; the end is reported by pn_fabric_advance() or retires a READ. */
void pn_fabric_fetch_start(struct pn_fabric_device *dev,
			   struct pn_fabric_fetch *fetch);
/* Posts what libfabric had no room for. */
void pn_fabric_fetches_post(struct pn_fabric_device *dev);
void pn_fabric_fetched(struct pn_fabric_device *dev,
		       struct pn_fabric_piece *piece, int status);
/* A read has failed, and the provider does not say which. */
void pn_fabric_fetch_lost(struct pn_fabric_device *dev, int status);
void pn_fabric_fetches_abandon(struct pn_fabric_device *dev,
			       struct pn_fabric_peer *peer);

/* post.c: the initiator's side. */
/* An answer has arrived. */
void pn_fabric_on_answer(struct pn_fabric_device *dev,
			 struct pn_fabric_peer *peer,
			 const struct pn_fabric_packet *packet);
/* Completes the operations that have ended, in order. */
void pn_fabric_retire(struct pn_fabric_device *dev,
		      struct pn_fabric_peer *peer);
/* Completes all with `status`. */
void pn_fabric_retire_all(struct pn_fabric_device *dev,
			  struct pn_fabric_peer *peer, int status);
/* A READ of ours has ended. */
void pn_fabric_read_ended(struct pn_fabric_device *dev,
			  struct pn_fabric_peer *peer, uint32_t number,
			  int status);

/* poll.c */
/* flush: sends the ACKs that are due at once; else the next call does, so that
 * an answer of the caller can carry them. */
void pn_fabric_progress(struct pn_fabric_device *dev, bool flush);
/* Handles all that has arrived. */
void pn_fabric_drain(struct pn_fabric_device *dev);
void pn_fabric_complete(struct pn_fabric_device *dev,
			struct pn_completion done);
void pn_fabric_complete_peer(struct pn_fabric_device *dev,
			     struct pn_fabric_peer *peer,
			     enum pn_completion_kind kind, int status);

/* wait.c; without dev->lock: makes a sleeping caller look again. */
void pn_fabric_notify(int event_fd);
void pn_fabric_drain_notifications(int event_fd);
/* Whether a thread may sleep on cq_fd. */
bool pn_fabric_cq_armed(struct pn_fabric_device *dev);
/* With dev->lock, after progress: callers that sleep on the descriptor do not
 * know what came. */
void pn_fabric_tell_sleepers(struct pn_fabric_device *dev);

/* service.c; without dev->lock. */
int pn_fabric_service_start(struct pn_fabric_device *dev);
void pn_fabric_service_stop(struct pn_fabric_device *dev);
/* How long the service thread sleeps where no descriptor wakes it, after a
 * sleep of `last_ns`: shortly if something came meanwhile, else twice as long,
 * up to a millisecond. So an operation waits about as long as the last one is
 * ago. */
uint64_t pn_fabric_nap_after(uint64_t last_ns, bool came);
/* With dev->lock: watches the process of a peer on this host. */
void pn_fabric_watch_process(struct pn_fabric_device *dev,
			     struct pn_fabric_peer *peer, uint32_t pid);
void pn_fabric_unwatch_process(struct pn_fabric_peer *peer);
/* With dev->lock: takes the peers down whose processes have ended. */
void pn_fabric_find_ended(struct pn_fabric_device *dev);

/* Rows of the table of operations. */
int pn_fabric_attach(struct pn_device *device, const struct pn_address *address,
		     struct pn_peer **out);
void pn_fabric_detach(struct pn_device *device, struct pn_peer *peer);
int pn_fabric_post(struct pn_device *device, struct pn_peer *peer,
		   const struct pn_op *op);
int pn_fabric_poll(struct pn_device *device, struct pn_completion *out,
		   unsigned max);
void pn_fabric_return_buffer(struct pn_device *device,
			     const struct pn_completion *completion);
int pn_fabric_wait(struct pn_device *device, uint64_t deadline_ns);
void pn_fabric_wake(struct pn_device *device);
int pn_fabric_arm(struct pn_device *device);

#endif
