/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * verbs_impl -- the verbs device and its peers, as its own files see them.
 *
 * Two kinds of threads touch a device:
 *   callers   post, poll, release: one at a time (dev->lock, which a
 *             single_threaded device leaves out). They alone post to queue
 *             pairs, read the completion queue and destroy queue pairs.
 *   service   one thread: speaks rdma_cm and hears the adapter's asynchronous
 *             events (connect.h). It alone makes queue pairs and connections.
 * What crosses between them: the service tells callers by events (a lane is
 * there, a peer is gone), callers tell the service by flags in the peer and a
 * kick. Nobody waits for the other.
 *
 * Everything the device has to say goes through dev->done, a ring that poll()
 * empties; progress() fills it from the completion queue. A post that finds
 * its lane broken makes progress too, so that a caller that only posts gets
 * on.
 *
 * A lane ends in two steps: it is marked (broken, or the peer is down); then,
 * when the completion queue was seen empty, its queue pair is destroyed,
 * after which the adapter touches none of its memory, and what is still
 * recorded ends with the reason. Completions that come later belong to an
 * older epoch and are dropped.
 */
#ifndef PN_DEVICE_VERBS_IMPL_H
#define PN_DEVICE_VERBS_IMPL_H

#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdatomic.h>

#include "base/cancel.h"
#include "base/list.h"
#include "base/lock.h"
#include "device/verbs/keys.h"
#include "device/verbs/verbs.h"

#define PN_VERBS_VERSION     1
#define PN_VERBS_MAX_SEND    ((size_t)8 << 10)
#define PN_VERBS_MAX_SGE     16
#define PN_VERBS_RX_BUCKETS  256
#define PN_VERBS_POLL_BATCH  32
#define PN_VERBS_MAX_READS   16 /* reads and atomics at a time per lane */
#define PN_VERBS_DEVICE_NAME 64

struct pn_verbs_params {
	uint64_t queue_depth, receives, chunk, spin;
	uint64_t ack_timeout, retries, patience;
	bool odp, windows;
	char address[PN_OPTION_TEXT_BYTES];
};

/* What a verbs device's address holds. */
struct pn_verbs_address {
	uint32_t version;
	char kind[4]; /* "verb" */
	uint64_t nonce;
	uint16_t family;
	uint16_t port; /* network order, as ip */
	uint32_t scope;
	uint8_t ip[16];
};

/* On iWARP: messages of lane `lane` that its owner may have sent in all, modulo
 * 2^16 (iwarp.h). */
struct pn_verbs_credit {
	uint16_t lane, messages;
};

/* On iWARP: a byte that the peer may read to see what was done (iwarp.h). */
struct pn_verbs_confirm_byte {
	uint64_t addr;
	uint32_t rkey, unused;
};

/* A receive buffer: posted, or lent to whoever polled its message. */
struct pn_verbs_receive {
	struct pn_list link;	    /* peer->early */
	struct pn_verbs_peer *peer; /* iWARP: whose message it holds */
	char *buffer, *data;
	uint32_t imm, len;
	bool is_imm; /* a write's immediate: no message */
};

/* An operation in flight. */
struct pn_verbs_record {
	struct pn_verbs_peer *peer;
	void *user;
	uint64_t operand; /* SWAP: the new value */
	uint64_t guess;	  /* SWAP: what the last compare-swap expected */
	uint64_t *result; /* SWAP: where the old value lands */
	uint64_t remote_addr;
	uint32_t rkey, lkey;
	int status; /* if the adapter says it went well */
	bool silent, swap;
	bool reaches;	/* into the peer's memory: may be refused */
	unsigned reads; /* what it adds to its lane's */
};

struct pn_verbs_stage;

/* What we post on; the callers'. */
struct pn_verbs_tx {
	struct ibv_qp *qp;		 /* NULL: not there (any more) */
	struct pn_verbs_record *records; /* queue_depth of them, a ring */
	unsigned head, count;		 /* oldest; in flight */
	unsigned unsignalled;		 /* posted since the last signal */
	uint16_t epoch;
	bool swapping; /* a SWAP is under way: nothing goes after it */
	bool refused;  /* a post was told -EAGAIN */
	int broken;    /* how what is left will end; 0: it works */

	/* Fences of our own. */
	unsigned reads; /* and atomics under way; on iWARP, parts of reads */
	bool fenced;	/* one was told to wait for them: all wait */

	/* iWARP only (iwarp.h). */
	struct pn_verbs_stage *stage; /* one for each record */
	struct ibv_mr *stage_mr;
	struct ibv_qp *next;		   /* to take the broken one's place */
	uint16_t next_number;		   /* its number */
	uint16_t number, sent;		   /* messages on this lane */
	bool confirming;		   /* a read of a byte is under way */
	struct pn_verbs_record *uncovered; /* newest to tell, no read behind */
};

/* What the peer posts on; the callers'. */
struct pn_verbs_rx {
	struct ibv_qp *qp;
	struct pn_verbs_peer *peer;
	struct pn_verbs_rx *next; /* bucket, or dev->retired */
	uint16_t number;	  /* iWARP: as the peer counts its lanes */
};

struct pn_verbs_peer {
	struct pn_peer peer;
	struct pn_list link; /* dev->peers */
	struct pn_verbs_address at;
	uint32_t tag; /* in its rkeys */

	/* The callers'. */
	struct pn_verbs_tx out;
	struct pn_verbs_rx *in;
	struct pn_list early;	/* received before PEER_UP was told */
	struct pn_list failing; /* dev->failing: lane broken or peer down */
	bool up_told, down_told;
	int down;			   /* 0 or why */
	struct pn_verbs_confirm_byte byte; /* of its, to read */
	struct pn_verbs_credit may_send;   /* what it granted us */
	uint16_t granted, arrived;	   /* what we granted it; what came */
	unsigned held;			   /* of its messages, not released */
	bool must_grant;		   /* what it does not know yet */
	struct pn_list owed; /* dev->owed: to be granted something */

	/* From the callers to the service. */
	_Atomic bool wants_lane, wants_end;
	_Atomic uint32_t pulse; /* iWARP: changes when an operation ends; odd:
				 * some are under way */
	_Atomic uint32_t last_grant; /* lane << 16 | messages */

	/* The service's. */
	struct rdma_cm_id *out_id, *in_id;
	struct ibv_qp *out_qp; /* until it is handed over */
	uint64_t deadline_ns;  /* for the out lane to be there; 0: it is */
	uint64_t out_lost_ns;  /* iWARP: dropped then; to be connected again */
	uint64_t in_lost_ns;   /* the in lane went away then; 0: it is there */
	uint64_t pulse_ns;     /* when it was seen to change */
	uint32_t seen_pulse;
	uint16_t out_number; /* of lanes connected */
	uint32_t told_grant; /* last_grant as the out lane's hello had it */
	bool has_window;     /* dev->nwindows counts it */
	bool gone;	     /* DOWN was told */
};

/* From the service to the callers. */
struct pn_verbs_event {
	struct pn_list link;
	enum {
		PN_VERBS_EVENT_TX_READY,
		PN_VERBS_EVENT_RX_READY,
		PN_VERBS_EVENT_PEER_DOWN,
	} kind;
	struct pn_verbs_peer *peer;
	struct ibv_qp *qp;
	int status;
	/* iWARP. OUT: its number, the grant its hello told. IN: its number,
	 * the grant and the byte in its hello. */
	uint16_t number;
	struct pn_verbs_credit grant;
	struct pn_verbs_confirm_byte byte;
};

struct pn_verbs_device {
	struct pn_device device;
	struct pn_verbs_params params;
	char name[PN_VERBS_DEVICE_NAME];
	uint8_t port;
	bool is_iwarp, is_software;
	bool own_fences; /* those of the adapter fail (verbs.h) */
	struct ibv_device_attr attr;
	struct ibv_port_attr port_attr;
	unsigned odp_caps;
	struct pn_verbs_address address;

	/* Whose registrations it uses: its own, or those of the device that it
	 * was opened to share them with. Queues are made on the domain's
	 * context, since they use its protection domain; the device's own
	 * context is for the adapter's asynchronous events, of which each
	 * context hears those of the port. */
	struct pn_verbs_device *domain;
	struct ibv_context *context;
	struct ibv_pd *pd; /* the domain's */
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct pn_verbs_keys keys; /* of a domain */
	char *receive_memory;
	size_t receive_bytes;
	struct pn_pages_policy receive_pages;
	struct ibv_mr *receive_mr;
	struct pn_verbs_receive *receives;
	struct ibv_mr *byte_mr; /* iWARP: what peers read to confirm */
	size_t head_bytes;	/* before the payload of each message */
	unsigned max_sge;	/* of the adapter's, per operation */
	unsigned max_sends;
	int event_fd, epoll; /* sleepers */

	struct pn_mutex lock;	    /* see above; before the others */
	int cancel_was;		    /* of the thread that is inside */
	struct pn_completion *done; /* a ring of max_done, a power of two */
	unsigned done_head, ndone, max_done;
	unsigned nsends; /* in flight, or done and not polled */
	struct pn_verbs_rx *in[PN_VERBS_RX_BUCKETS];
	struct pn_verbs_rx *retired; /* replaced; CQ not seen empty since */
	struct pn_list failing;
	struct pn_list owed; /* iWARP: peers that wait for a grant */
	bool relieved;	     /* a lane that had refused a post has room */

	struct pn_mutex peers_lock; /* the list; any thread */
	struct pn_list peers;

	struct pn_mutex events_lock; /* the service's news */
	struct pn_list events;
	_Atomic unsigned nevents;
	_Atomic unsigned woken; /* wake() */

	/* The service. */
	pthread_t thread;
	bool running;
	_Atomic bool stop;
	struct rdma_event_channel *cm;
	struct rdma_cm_id *listener;
	int service_epoll, kick_fd;
	uint64_t port_lost_ns;
	unsigned nwindows; /* iWARP: peers that have been promised buffers */
};

static inline struct pn_verbs_device *pn_verbs_of(struct pn_device *device)
{
	return pn_container_of(device, struct pn_verbs_device, device);
}

static inline struct pn_verbs_peer *pn_verbs_peer_of(struct pn_peer *peer)
{
	return pn_container_of(peer, struct pn_verbs_peer, peer);
}

/* A single-threaded device pays for no lock; the analysis of clang cannot
 * follow that. Posting and polling may be system calls (rxe, siw), which a
 * canceled thread must not end in. */
static inline void pn_verbs_lock(struct pn_verbs_device *dev)
	PN_NO_THREAD_SAFETY
{
	int was = pn_cancel_off();

	if (!dev->device.single_threaded)
		pn_lock(&dev->lock);
	dev->cancel_was = was;
}

static inline void pn_verbs_unlock(struct pn_verbs_device *dev)
	PN_NO_THREAD_SAFETY
{
	int was = dev->cancel_was;

	if (!dev->device.single_threaded)
		pn_unlock(&dev->lock);
	pn_cancel_restore(&was);
}

/* The tag of a device's rkeys; never 0. */
static inline uint32_t pn_verbs_tag(uint64_t nonce)
{
	return ((uint32_t)(nonce ^ nonce >> 32) | 1) & ~PN_VERBS_NO_READ;
}

/* Whether an rkey can be of this peer and good for an operation. */
static inline bool pn_verbs_key_matches(const struct pn_verbs_peer *peer,
					const struct pn_op *op)
{
	uint32_t tag = (uint32_t)(op->rkey >> 32);

	return (tag & ~PN_VERBS_NO_READ) == peer->tag &&
	       (op->kind != PN_OP_READ || !(tag & PN_VERBS_NO_READ));
}

/* find.c: the adapter that a spec names ("rxe0/1", "rxe0", "": the first that
 * works), opened, and an IP address of its port. Says in one line what is
 * missing and what to do. */
int pn_verbs_find(struct pn_verbs_device *dev, const char *name);

/* qp.c: queue pairs. */
/* send_wrs 0: for an in lane. NULL with errno. */
struct ibv_qp *pn_verbs_qp_create(struct pn_verbs_device *dev,
				  unsigned send_wrs);
/* Moves a queue pair along as its connection says. */
int pn_verbs_qp_modify(struct pn_verbs_device *dev, struct ibv_qp *qp,
		       struct rdma_cm_id *id, enum ibv_qp_state state);
/* Measures what a queue pair of this adapter can do: inline, segments. */
int pn_verbs_qp_probe(struct pn_verbs_device *dev);

/* poll.c, the caller being inside. */
/* A lane does not work any more: what is left on it will end with `broken`. */
void pn_verbs_teardown_begin(struct pn_verbs_device *dev,
			     struct pn_verbs_peer *peer, int broken);
/* Turns what the adapter and the service say into completions. */
void pn_verbs_progress(struct pn_verbs_device *dev);
/* Posts a receive buffer again. */
void pn_verbs_receive_post(struct pn_verbs_device *dev,
			   struct pn_verbs_receive *receive);

/* post.c: gives work to the adapter: 0, -EAGAIN or what it says. */
int pn_verbs_post_wr(struct pn_verbs_tx *lane, struct ibv_send_wr *wr);
/* The number of a record in completions. */
static inline uint64_t pn_verbs_wr_id(const struct pn_verbs_tx *lane,
				      const struct pn_verbs_record *record)
{
	return (uint64_t)lane->epoch << 48 | (uintptr_t)record;
}
/* In it: the read of a byte behind the record. */
#define PN_VERBS_CONFIRM UINT64_C(1)
/* The next compare-swap of a SWAP. */
int pn_verbs_swap_retry(struct pn_verbs_device *dev,
			struct pn_verbs_record *record);

/* wait.c: makes whoever sleeps look again. Any thread. */
void pn_verbs_notify(struct pn_verbs_device *dev);

/* Rows of the table of operations. */
int pn_verbs_attach(struct pn_device *device, const struct pn_address *address,
		    struct pn_peer **out);
void pn_verbs_detach(struct pn_device *device, struct pn_peer *peer);
int pn_verbs_post(struct pn_device *device, struct pn_peer *peer,
		  const struct pn_op *op);
int pn_verbs_poll(struct pn_device *device, struct pn_completion *out,
		  unsigned max);
void pn_verbs_release(struct pn_device *device,
		      const struct pn_completion *completion);
int pn_verbs_wait(struct pn_device *device, uint64_t deadline_ns);
void pn_verbs_wake(struct pn_device *device);
int pn_verbs_arm(struct pn_device *device);
void pn_verbs_describe(struct pn_device *device, pn_fact_fn *fn, void *arg);

#endif
