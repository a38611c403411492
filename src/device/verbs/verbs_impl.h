/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * verbs_impl -- the verbs device and its peers, for the files of this folder.
 *
 * Threads: two kinds of threads use a device.
 *   callers   call post, poll and the other operations, one at a time (under
 *             dev->lock; a single_threaded device omits the lock). Only callers
 *             post to queue pairs, read the completion queue and destroy queue
 *             pairs.
 *   service   the service thread handles rdma_cm and the adapter's asynchronous
 *             events (service.c). Only the service thread creates and connects
 *             queue pairs.
 * The service thread sends events to the callers (queue pair ready, peer down).
 * Callers set flags in the peer and notify the service thread. Neither waits
 * for the other.
 *
 * Completions go through the ring dev->done: pn_verbs_progress() fills it from
 * the completion queue and from events, poll() empties it. A post that finds a
 * broken queue pair makes progress, too, so a caller that only posts advances.
 *
 * Teardown of a tx queue pair has two steps. First it is marked (tx.broken, or
 * peer.down). Then, when the completion queue was empty, the queue pair is
 * destroyed: after that the adapter does not access memory of its operations,
 * and the operations that are left complete with the reason. Later completions
 * carry an older epoch and are dropped.
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
#define PN_VERBS_MAX_READS   16 /* reads and atomics in flight per queue pair */
#define PN_VERBS_DEVICE_NAME 64

struct pn_verbs_params {
	uint64_t queue_depth, receives, chunk, spin;
	uint64_t ack_timeout, retries, patience;
	bool odp, windows;
	char address[PN_OPTION_TEXT_BYTES];
};

/* The address of a verbs device, as it travels. */
struct pn_verbs_address {
	uint32_t version;
	char kind[4]; /* "verb" */
	uint64_t nonce;
	uint16_t family;
	uint16_t port; /* network order, as ip */
	uint32_t scope;
	uint8_t ip[16];
};

/* iWARP: how many messages the owner of the tx queue pair of this generation
 * may send on it in all, modulo 2^16 (iwarp.h). */
struct pn_verbs_credit {
	uint16_t generation, messages;
};

/* iWARP: a byte that peers read to confirm operations (iwarp.h). */
struct pn_verbs_confirm_byte {
	uint64_t addr;
	uint32_t rkey, unused;
};

/* A receive buffer: posted, or lent to the caller that polled its message. */
struct pn_verbs_receive {
	struct pn_list link;	    /* peer->early */
	struct pn_verbs_peer *peer; /* iWARP: sender of the message in it */
	char *buffer, *data;
	uint32_t imm, len;
	bool is_imm; /* immediate data of a write: no message */
	struct ibv_sge segment;
	struct ibv_recv_wr wr; /* wr.next: in dev->receive.returned */
};

/* An operation in flight. */
struct pn_verbs_record {
	struct pn_verbs_peer *peer;
	void *user;
	uint64_t operand; /* SWAP: the new value */
	uint64_t guess;	  /* SWAP: expected value of the last compare-swap */
	uint64_t *result; /* SWAP: the adapter writes the old value here */
	uint64_t remote_addr;
	uint32_t rkey, lkey;
	int status; /* to report if the adapter reports success */
	bool silent, swap;
	bool remote_access; /* accesses the peer's memory: may be refused */
	unsigned reads;	    /* its share of tx.reads */
};

struct pn_verbs_stage;

/* The queue pair of our operations. Callers write all of it. */
struct pn_verbs_tx {
	struct ibv_qp *qp; /* NULL: not connected, or destroyed */
	struct pn_verbs_record
		*records;     /* ring of queue_depth, + 1 (iwarp.c) */
	unsigned head, count; /* oldest; in flight */
	unsigned unsignalled; /* posted since the last signaled one */
	uint16_t epoch;
	bool swap_pending; /* a SWAP is in flight: nothing is posted after it */
	bool post_refused; /* a post returned -EAGAIN */
	int broken;	   /* status of operations that are left; 0: it works */

	/* Software fences. */
	unsigned reads; /* reads and atomics in flight; iWARP: their segments */
	bool fenced;	/* a fenced operation waits for reads: all wait */

	/* iWARP only (iwarp.h). */
	struct pn_verbs_stage *stage; /* one for each record */
	struct ibv_mr *stage_mr;
	struct ibv_qp *next; /* connected; will replace the broken qp */
	uint16_t next_generation;
	uint16_t generation, sent; /* of qp; messages sent on it */
	bool confirming;	   /* a confirming read is in flight */
	/* The newest signaled operation with no read posted after it. */
	struct pn_verbs_record *unconfirmed;
};

/* The queue pair of the peer's operations. Callers write all of it. */
struct pn_verbs_rx {
	struct ibv_qp *qp;
	struct pn_verbs_peer *peer;
	struct pn_verbs_rx *next; /* in its bucket, or in dev->retired */
	uint16_t generation;	  /* iWARP: the peer's tx.generation */
};

struct pn_verbs_peer {
	/* Constant. */
	struct pn_peer peer;
	struct pn_list link; /* dev->peers */
	struct pn_verbs_address at;
	uint32_t tag; /* in its rkeys */

	/* Written by callers. */
	struct pn_verbs_tx tx;
	struct pn_verbs_rx *rx;
	struct pn_list early;	 /* messages received before PEER_UP */
	struct pn_list teardown; /* dev->teardowns: tx broken or peer down */
	bool up_reported, down_reported;
	int down; /* 0, or the reason */
	/* iWARP. */
	struct pn_verbs_confirm_byte confirm_byte; /* of the peer */
	struct pn_verbs_credit credit; /* that the peer granted us */
	uint16_t credits_granted;  /* to the peer, on its current queue pair */
	uint16_t credits_used;	   /* messages that arrived on it */
	unsigned unreturned;	   /* its messages that callers still hold */
	bool credit_urgent;	   /* a grant that the peer may not know */
	struct pn_list credit_due; /* dev->credits_due */

	/* Written by callers, read by the service thread. */
	_Atomic bool connect_wanted, close_wanted;
	/* iWARP: changes when an operation ends; odd: some are in flight. */
	_Atomic uint32_t progress_count;
	_Atomic uint32_t granted_credit; /* generation << 16 | messages */

	/* Written by the service thread. */
	struct rdma_cm_id *tx_id, *rx_id;
	struct ibv_qp *connecting_qp; /* until it is handed to the callers */
	uint64_t deadline_ns; /* for tx to be connected; 0: it is connected */
	uint64_t tx_lost_ns;  /* iWARP: when tx was lost; reconnect is due */
	uint64_t rx_lost_ns;  /* when rx was disconnected; 0: connected */
	uint64_t progress_ns; /* when progress_count was seen to change */
	uint32_t seen_progress_count;
	uint16_t tx_generation; /* counts connection requests */
	uint32_t hello_credit;	/* granted_credit in the hello of tx */
	bool has_credit_window; /* counted in service.ncredit_windows */
	bool down_queued;	/* PEER_DOWN was queued */
};

/* From the service thread to the callers. */
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
	/* iWARP. TX_READY: the credit in our hello. RX_READY: the
	 * credit and the byte in the peer's hello. */
	uint16_t generation;
	struct pn_verbs_credit credit;
	struct pn_verbs_confirm_byte confirm_byte;
};

struct pn_verbs_device {
	struct pn_device device;

	/* --- constant after open ------------------------------------------ */

	bool is_iwarp, is_software;
	bool software_fences; /* the adapter's are not reliable (verbs.h) */
	uint8_t port;
	unsigned max_sge;    /* of the adapter, per operation */
	unsigned max_sends;  /* limit of nsends */
	size_t header_bytes; /* before the payload of each message */
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	/* The device whose registrations this device uses: itself, or the
	 * device that it was opened to share registrations with. Queues are
	 * created on the domain's context, since they use its protection
	 * domain. The device's own context delivers the asynchronous events of
	 * the port. */
	struct pn_verbs_device *domain;
	struct ibv_context *context;
	struct ibv_pd *pd; /* of the domain */
	struct ibv_comp_channel *channel;
	int event_fd, epoll; /* for threads that sleep (wait.c) */
	struct {
		struct pn_verbs_receive *buffers;
		struct ibv_mr *mr;
		char *memory;
		size_t bytes;
		struct pn_pages_policy pages;
		unsigned batch; /* buffers that one call posts */
	} receive;
	struct ibv_mr *confirm_mr; /* iWARP: the byte that peers read */
	struct pn_verbs_address address;
	struct pn_verbs_params params;
	char name[PN_VERBS_DEVICE_NAME];
	unsigned odp_caps;
	struct ibv_port_attr port_attr;
	struct ibv_device_attr attr;

	/* --- any thread; locks of its own --------------------------------- */

	struct pn_verbs_keys keys; /* of a domain */

	/* --- written by callers, under lock ------------------------------- */

	struct pn_mutex lock; /* taken before the other locks of the device */
	int cancel_was;	      /* cancelability of the thread that holds lock */
	struct {
		struct pn_completion *ring;
		unsigned head, n, max; /* max: a power of two */
	} done;
	/* Receive buffers to post. While at least half of all are posted, they
	 * wait until there is a batch of them. */
	struct {
		struct ibv_recv_wr *first, *last;
		unsigned n, nposted; /* nposted: in the shared receive queue */
	} returned;
	unsigned nsends; /* in flight, or completed and not polled */
	bool post_room;	 /* a tx that refused a post has room again */
	struct pn_verbs_rx *retired; /* replaced; to destroy when CQ is empty */
	struct pn_list teardowns;    /* peers, by peer->teardown */
	struct pn_list credits_due;  /* iWARP: peers, by peer->credit_due */
	struct pn_verbs_rx *rx_table[PN_VERBS_RX_BUCKETS]; /* by qp_num */

	/* --- shared by callers and the service thread --------------------- */

	struct pn_mutex peers_lock; /* protects the list */
	struct pn_list peers;
	struct {
		struct pn_mutex lock; /* protects list */
		struct pn_list list;
		_Atomic unsigned n;
	} events;		/* the service thread appends, callers remove */
	_Atomic unsigned woken; /* by wake() */

	/* --- written by the service thread (and by open and close) -------- */

	struct {
		pthread_t thread;
		bool running;
		_Atomic bool stop; /* written by close */
		struct rdma_event_channel *cm;
		struct rdma_cm_id *listener;
		int epoll, event_fd;
		bool removed;		  /* the adapter */
		uint64_t port_lost_ns;	  /* 0: the port is up */
		unsigned ncredit_windows; /* iWARP: peers with reserved buffers
					   */
	} service;
};

static inline struct pn_verbs_device *pn_verbs_of(struct pn_device *device)
{
	return pn_container_of(device, struct pn_verbs_device, device);
}

static inline struct pn_verbs_peer *pn_verbs_peer_of(struct pn_peer *peer)
{
	return pn_container_of(peer, struct pn_verbs_peer, peer);
}

/* Begins and ends an operation of a caller. A single_threaded device takes no
 * lock, which clang's analysis cannot follow. Posting and polling may be system
 * calls (rxe, siw): cancellation is off, so that no thread ends inside them. */
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

/* The tag in the rkeys of a device; never 0. */
static inline uint32_t pn_verbs_tag(uint64_t nonce)
{
	return ((uint32_t)(nonce ^ nonce >> 32) | 1) & ~PN_VERBS_NO_READ;
}

/* Whether the rkey of an operation may be a key of this peer that allows it. */
static inline bool pn_verbs_key_matches(const struct pn_verbs_peer *peer,
					const struct pn_op *op)
{
	uint32_t tag = (uint32_t)(op->rkey >> 32);

	return (tag & ~PN_VERBS_NO_READ) == peer->tag &&
	       (op->kind != PN_OP_READ || !(tag & PN_VERBS_NO_READ));
}

/* find.c: opens the adapter that a spec names ("rxe0/1", "rxe0"; "": the first
 * that works) and finds an IP address of its port. Logs what is missing and
 * what to do. */
int pn_verbs_find(struct pn_verbs_device *dev, const char *name);

/* qp.c: creates a queue pair. send_wrs 0: for rx. NULL: see errno. */
struct ibv_qp *pn_verbs_qp_create(struct pn_verbs_device *dev,
				  unsigned send_wrs);
/* Moves a queue pair to `state` with the attributes of its connection. */
int pn_verbs_qp_modify(struct pn_verbs_device *dev, struct ibv_qp *qp,
		       struct rdma_cm_id *id, enum ibv_qp_state state);
/* Finds out how many bytes the adapter can inline. */
int pn_verbs_qp_probe(struct pn_verbs_device *dev);

/* poll.c. All of these: the caller holds dev->lock. */
/* Marks tx broken: operations that are left complete with `broken`. */
void pn_verbs_teardown_begin(struct pn_verbs_device *dev,
			     struct pn_verbs_peer *peer, int broken);
/* Turns completions of the adapter and events of the service thread into
 * completions in dev->done. */
void pn_verbs_progress(struct pn_verbs_device *dev);
/* Posts a receive buffer, now or together with the next ones. */
void pn_verbs_receive_post(struct pn_verbs_device *dev,
			   struct pn_verbs_receive *receive);
/* Sets what a receive buffer is posted with. */
void pn_verbs_receive_init(struct pn_verbs_device *dev,
			   struct pn_verbs_receive *receive, char *buffer);
/* Destroys the replaced rx queue pairs. The completion queue is empty. */
void pn_verbs_destroy_retired(struct pn_verbs_device *dev);

/* post.c: posts work requests. -EAGAIN: the queue is full. */
int pn_verbs_post_wr(struct pn_verbs_tx *tx, struct ibv_send_wr *wr);
/* The wr_id of a record. */
static inline uint64_t pn_verbs_wr_id(const struct pn_verbs_tx *tx,
				      const struct pn_verbs_record *record)
{
	return (uint64_t)tx->epoch << 48 | (uintptr_t)record;
}
/* Set in a wr_id: the confirming read after the record. */
#define PN_VERBS_CONFIRM UINT64_C(1)
/* Posts the next compare-swap of a SWAP. */
int pn_verbs_swap_retry(struct pn_verbs_record *record);

/* wait.c: makes a sleeping thread look again. Any thread. */
void pn_verbs_notify(struct pn_verbs_device *dev);
/* Adds a descriptor to an epoll; 0 or a negative errno. */
int pn_verbs_watch(int epoll, int fd);
void pn_verbs_set_nonblocking(int fd);

/* service.c */
int pn_verbs_service_start(struct pn_verbs_device *dev);
/* Ends the thread and all connections. */
void pn_verbs_service_stop(struct pn_verbs_device *dev);
/* The adapter was removed or has failed: all peers are down. Called by the
 * service thread. */
void pn_verbs_service_removed(struct pn_verbs_device *dev);
/* Makes the service thread look at the flags of peers. Any thread. */
void pn_verbs_service_notify(struct pn_verbs_device *dev);

/* Rows of the table of operations. */
int pn_verbs_attach(struct pn_device *device, const struct pn_address *address,
		    struct pn_peer **out);
void pn_verbs_detach(struct pn_device *device, struct pn_peer *peer);
int pn_verbs_post(struct pn_device *device, struct pn_peer *peer,
		  const struct pn_op *op);
int pn_verbs_send_inline(struct pn_device *device, struct pn_peer *peer,
			 const struct pn_inline_header *header,
			 const void *body, size_t len);
int pn_verbs_poll(struct pn_device *device, struct pn_completion *out,
		  unsigned max);
void pn_verbs_return_buffer(struct pn_device *device,
			    const struct pn_completion *completion);
int pn_verbs_wait(struct pn_device *device, uint64_t deadline_ns);
void pn_verbs_wake(struct pn_device *device);
int pn_verbs_arm(struct pn_device *device);

#endif
