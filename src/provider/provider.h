/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * provider -- pinion as a provider of libfabric, for MPI and other programs.
 *
 * The provider is a plug-in, libpinion-fi.so, that uses the public calls of
 * libpinion.so. A program may have preloaded that library and its
 * memory-release monitor.
 *
 * Nouns (libfabric's)
 *   fabric, domain  hold their children; the domain has the lock.
 *   endpoint   FI_EP_RDM: a pinion context and its endpoint.
 *   AV         addresses of endpoints by number; map and table are the same.
 *              An address is a struct pn_fi_name of PN_FI_NAME_BYTES bytes for
 *              every device; it holds a device address or a service. An
 *              endpoint turns a number into a peer when it first uses it.
 *   op         an operation in flight: the `user` of pinion's request.
 *   CQ         a ring of entries, errors included. An op reserves its entry
 *              when it starts, so a completion always has room. An entry that
 *              completes while fi_cq_read() polls an empty ring is written
 *              directly to the reader's buffer.
 *   counter    counts the operations of an endpoint that succeeded or failed.
 *   EQ         holds only events that the program writes.
 *   poll set   CQs and counters that are polled together.
 *
 * Mapping of libfabric to pinion
 *   tagged and untagged messages  two spaces of pinion's messages
 *   remote CQ data    the 64 bits of data of a message
 *   FI_MULTI_RECV     pinion's multi-receive
 *   peek and claim    pinion_probe(); the fi_context holds the unexpected
 *                     message until the claim
 *   inject            a copy, unless the message leaves before the call
 *                     returns. At most 128 bytes, since larger buffers are
 *                     worth remembering (reuse of buffers); 4 KiB over `soft`,
 *                     which copies them while it posts; 256 bytes with RMA
 *   mr_mode           any: pinion registers memory itself; keys and addresses
 *                     are as the program asks
 *   RMA and atomics   messages that the target's progress executes; long reads
 *                     and writes of exposed regions, pinion_put() and
 *                     pinion_get(): onesided.h
 *
 * Threads: as the domain's threading model says. One lock per domain protects
 * everything; FI_THREAD_DOMAIN omits it. pinion's endpoints below it are
 * single_threaded. No thread sleeps with the lock.
 * Progress: manual, or with FI_PROGRESS_AUTO (or the option `progress`) also by
 * pinion's progress thread, which calls pn_fi_ep_progress_thread(). The
 * domain's lock is a biased one then, which the thread visits.
 * Errors: negative errno, as libfabric's. What is not supported is not
 * advertised, and returns -FI_ENOSYS.
 */
#ifndef PN_PROVIDER_PROVIDER_H
#define PN_PROVIDER_PROVIDER_H

#include <stdatomic.h>
#include <stdbool.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>
#include <rdma/providers/fi_log.h>
#include <rdma/providers/fi_prov.h>

#include <pinion/pinion.h>

#include "base/biased_lock.h"
#include "base/compiler.h"
#include "base/list.h"
#include "base/lock.h"

#define PN_FI_NAME_BYTES       64
#define PN_FI_INJECT_BYTES     128
#define PN_FI_INJECT_RMA_BYTES 256 /* with FI_RMA or FI_ATOMIC */
#define PN_FI_INJECT_MAX_BYTES 4096
#define PN_FI_TX_SIZE	       4096 /* unless the program asks for another */
#define PN_FI_DATA_BYTES       8
#define PN_FI_IOV_LIMIT	       4 /* segments of an operation, local and remote */

/* FI_MR_BASIC and FI_MR_SCALABLE, the modes before libfabric 1.5. The headers
 * of libfabric 2 warn about the use of these names. */
#define PN_FI_MR_BASIC	  (1 << 0)
#define PN_FI_MR_SCALABLE (1 << 1)

extern struct fi_provider pn_fi_provider;

struct pn_fi_fabric {
	struct fid_fabric fid;
	atomic_uint refs; /* domains, EQs */
};

struct pn_fi_domain {
	struct fid_domain fid;
	struct pn_fi_fabric *fabric;
	atomic_uint refs; /* AVs, CQs, endpoints */
	bool locking;
	struct pn_mutex lock; /* protects the domain and all its children */
	bool auto_progress;   /* biased_lock does, instead */
	struct pn_biased_lock biased_lock;
	bool virtual_addresses; /* FI_MR_VIRT_ADDR; else regions begin at 0 */
	bool prov_keys;		/* FI_MR_PROV_KEY */
	uint64_t keys[16];	/* random, for the next regions */
	unsigned nkeys;
	struct pn_list *mrs;	   /* hash table by key */
	struct pn_list responding; /* endpoints with responders */
	size_t exposed_bytes;	   /* of all endpoints */
};

/* The address of an endpoint in libfabric's address buffers. */
struct pn_fi_name {
	uint8_t len; /* 0: removed; PN_FI_BY_SERVICE: data is a service name */
	uint8_t data[PN_FI_NAME_BYTES - 1];
};

#define PN_FI_BY_SERVICE 0xff
#define PN_FI_NO_SERVICE "0" /* as a port: any that is free */

struct pn_fi_av {
	struct fid_av fid;
	struct pn_fi_domain *domain;
	unsigned refs; /* endpoints */
	struct pn_fi_name *names;
	size_t n, capacity;
	/* A hash table of the names: the first number of each chain and the
	 * next number in the chain, each plus 1. Both have `capacity` entries,
	 * a power of two. */
	size_t *chains, *next;
};

/* A peer that this endpoint has used, and its lowest number. */
struct pn_fi_source {
	const struct pinion_peer *peer; /* NULL: free */
	fi_addr_t addr;
};

struct pn_fi_ep;

/* The completion of an op; an error if err is not 0. */
struct pn_fi_entry {
	struct fi_cq_tagged_entry cqe;
	size_t olen; /* bytes that were truncated */
	int err;
	struct pn_fi_ep *ep;	  /* receives: to find the source's number */
	struct pinion_peer *peer; /* receives: the source; NULL: not known */
};

struct pn_fi_cq {
	struct fid_cq fid;
	struct pn_fi_domain *domain;
	unsigned refs; /* endpoints, one for each direction, and poll sets */
	bool discards_entries; /* the CQ of a counter */
	size_t entry_bytes;
	struct pn_fi_entry *ring;
	size_t capacity; /* a power of two */
	size_t head, tail;
	size_t reserved;     /* entries, for ops in flight */
	struct pn_list eps;  /* struct pn_fi_member: endpoints to progress */
	int epoll;	     /* the wait object; -1: none */
	int event_fd;	     /* eventfd in epoll */
	bool armed;	     /* a thread may wait: an entry wakes it */
	unsigned sleepers;   /* threads in poll() on epoll */
	bool wakeup_pending; /* event_fd was written; sleepers may not know */
	/* The buffer of fi_cq_read() while it makes progress: successful
	 * completions are written there. */
	struct {
		char *buf;
		fi_addr_t *from; /* or NULL */
		size_t n, room;
	} reader;
	bool polls_again; /* the last read returned fewer than asked for */
	/* Empty polls after such a read. It wraps around, so that skipping is
	 * tried anew from time to time (cq.c). */
	uint8_t empty_polls;
	bool signaled; /* fi_cq_signal() */
};

/* The direction of an op; also an index. */
enum pn_fi_dir {
	PN_FI_TX,
	PN_FI_RX,
	PN_FI_DIRS,
};

/* An endpoint in the list of a CQ. An endpoint that is bound in both directions
 * is listed once. */
struct pn_fi_member {
	struct pn_list link;
	struct pn_fi_ep *ep;
};

/* The `user` of pinion's requests: called when the request completes. */
struct pn_fi_callback {
	/* NULL: the usual completion of a send or receive (op.c). */
	void (*completed)(struct pn_fi_callback *callback,
			  const struct pinion_completion *c);
};

/* The spaces of pinion's messages. */
enum pn_fi_space {
	PN_FI_SPACE_TAGGED,
	PN_FI_SPACE_MSG,
	/* onesided.h. They have the bit 0x80: the provider takes such messages
	 * at once, so they do not count towards `unexpected_limit`. */
	PN_FI_SPACE_RMA_REQUEST = 0x80,
	PN_FI_SPACE_RMA_DATA,
	PN_FI_SPACE_RMA_RESPONSE,
};

/* Who moves the bytes of RMA: the option `rma`. */
enum pn_fi_rma_mode {
	PN_FI_RMA_AUTO,
	PN_FI_RMA_DEVICE,  /* the device, as soon as it can */
	PN_FI_RMA_REQUEST, /* the target's progress */
};

/* Events that counters count; event_flags[] has the flags of fi_ep_bind(). */
enum pn_fi_event {
	PN_FI_EVENT_SEND,
	PN_FI_EVENT_RECV,
	PN_FI_EVENT_READ,
	PN_FI_EVENT_WRITE,
	PN_FI_EVENT_REMOTE_READ,
	PN_FI_EVENT_REMOTE_WRITE,
	PN_FI_EVENTS,
};

struct pn_fi_counter {
	struct fid_cntr fid;
	struct pn_fi_cq *cq; /* its own, always empty: for progress and waits */
	atomic_uint_fast64_t value, errors;
	uint64_t seen_value, seen_errors; /* by the last read or fi_trywait() */
	unsigned refs;	  /* endpoints, one for each event; poll sets */
	unsigned regions; /* bound to it: remote writes by any endpoint count */
};

/* The fields that every op needs share a cache line. */
struct pn_fi_op {
	struct pn_fi_callback callback; /* first: pinion's `user` */
	struct pn_fi_op *next_free;
	/* Grows with each op of the endpoint; 0: not in use, or without a
	 * reserved entry. */
	uint64_t number;
	struct pn_fi_ep *ep;
	void *context;
	uint64_t flags; /* of the entry */
	enum pn_fi_dir dir;
	enum pn_fi_event event;
	bool unsignaled;       /* success writes no entry */
	struct pn_fi_op *next; /* of all ops of the endpoint */
	/* One-sided operations: the callback of data that does not fit into
	 * the request; pinion's requests in flight; the status so far. */
	struct pn_fi_callback data_callback;
	unsigned pending;
	int status;
	bool delays_sends; /* counted in ep->long_ops */
	uint8_t *buf;
	size_t len;
	/* One-sided operations by the device: what a request needs. */
	struct pinion_peer *peer;
	uint64_t remote_addr, remote_key;
	struct pinion_multi_recv multi_recv; /* FI_MULTI_RECV */
	unsigned nsegments; /* to scatter the copy to (vector.h); 0: none */
	void *copy; /* of segments, or of injected data that does not fit into:
		     */
	_Alignas(struct iovec) uint8_t inject[PN_FI_INJECT_BYTES];
} PN_ALIGNED(PN_CACHELINE);

struct pn_fi_ep {
	struct fid_ep fid;
	struct pn_fi_domain *domain;
	struct pn_fi_av *av;
	struct {
		struct pn_fi_cq *cq;
		bool selective;
		uint64_t op_flags;
		struct pn_fi_member member;
	} dirs[PN_FI_DIRS];
	struct {
		struct pn_fi_counter *counter; /* or NULL */
		struct pn_fi_member member;
	} events[PN_FI_EVENTS];
	uint64_t caps;
	bool enabled;
	atomic_bool is_open; /* the progress thread may use it */
	bool directed;	     /* FI_DIRECTED_RECV */
	bool several_devices;
	bool acks_claimed; /* for Open MPI (open_mpi.h) */
	size_t min_multi_recv;
	size_t inject_bytes;
	struct pinion_context *context;
	struct pinion_endpoint *endpoint;
	struct pinion_peer **peers; /* by fi_addr; NULL: not used yet */
	size_t npeers;
	struct pn_fi_source *sources;	 /* hash table by peer */
	size_t nsources, source_slots;	 /* in use; a power of two, or 0 */
	struct pn_fi_op *ops, *free_ops; /* all; not in use */
	uint64_t nops;			 /* started so far */
	/* Operations of PN_FI_TX in flight; beyond tx_size -FI_EAGAIN. */
	size_t tx_ops, tx_size;
	/* FI_ORDER_SAW, FI_ORDER_SAR: sends wait for long operations. */
	bool sends_follow_writes, sends_follow_reads;
	unsigned long_ops;
	/* One-sided operations (onesided.h). */
	struct pn_list rma_tx_bufs, free_rma_tx_bufs; /* in flight; free */
	uint64_t next_number;			      /* of RMA requests */
	struct pn_list responders;
	unsigned idle_responders; /* that wait for a request */
	unsigned nrequests;	  /* received by this progress */
	/* A responder was canceled, and has not ended yet; and it has ended in
	 * this progress. */
	bool fence_posted, fence_passed;
	/* What failed for want of memory is tried again by every other
	 * progress; nobody sleeps meanwhile. */
	bool lacks_memory, retries;
	struct pn_list responding; /* domain->responding */
	enum pn_fi_rma_mode rma;
	bool exposes;
	struct pn_list exposures;
	size_t rma_min; /* what the device may execute is no shorter */
	struct pn_fi_peer_regions *peer_regions; /* NULL: none used yet */
	int service_fds[2]; /* sockets that publish a service; -1: none */
};

static inline void pn_fi_lock(struct pn_fi_domain *domain) PN_NO_THREAD_SAFETY
{
	if (!domain->locking)
		return;
	if (pn_unlikely(domain->auto_progress))
		pn_biased_lock(&domain->biased_lock);
	else
		pn_lock(&domain->lock);
}

static inline void pn_fi_unlock(struct pn_fi_domain *domain) PN_NO_THREAD_SAFETY
{
	if (!domain->locking)
		return;
	if (pn_unlikely(domain->auto_progress))
		pn_biased_unlock(&domain->biased_lock);
	else
		pn_unlock(&domain->lock);
}

/* The default flags of calls that have no flags argument. */
static inline uint64_t pn_fi_op_flags(const struct fid_ep *fid,
				      enum pn_fi_dir dir)
{
	const struct pn_fi_ep *ep = pn_container_of(fid, struct pn_fi_ep, fid);

	return ep->dirs[dir].op_flags;
}

/* info.c */
int pn_fi_getinfo(uint32_t version, const char *node, const char *service,
		  uint64_t flags, const struct fi_info *hints,
		  struct fi_info **out);
/* The limit of inject for an endpoint with these capabilities. */
size_t pn_fi_inject_bytes(uint64_t caps);
/* As PINION_RMA says. */
enum pn_fi_rma_mode pn_fi_rma_mode(void);
/* Whether PINION_DEVICE names more than one device. */
bool pn_fi_several_devices(void);
/* Checks that an info is one that pn_fi_getinfo() may have returned.
 * -FI_EINVAL. */
int pn_fi_info_check(const struct fi_info *info);

/* domain.c */
int pn_fi_domain_open(struct fid_fabric *fabric, struct fi_info *info,
		      struct fid_domain **out, void *context);

/* av.c */
int pn_fi_av_open(struct fid_domain *domain, struct fi_av_attr *attr,
		  struct fid_av **out, void *context);
/* The peer of an AV number. Under the lock. -FI_EINVAL: no such number. */
int pn_fi_peer_find(struct pn_fi_ep *ep, fi_addr_t addr,
		    struct pinion_peer **out);
static inline int pn_fi_peer_at(struct pn_fi_ep *ep, fi_addr_t addr,
				struct pinion_peer **out)
{
	if (pn_unlikely(addr >= ep->npeers || !ep->peers[addr] ||
			!ep->av->names[addr].len))
		return pn_fi_peer_find(ep, addr, out);
	*out = ep->peers[addr];
	return 0;
}
/* The AV number of a peer; FI_ADDR_NOTAVAIL: it has none. */
fi_addr_t pn_fi_addr_of(struct pn_fi_ep *ep, const struct pinion_peer *peer);

/* cq.c */
int pn_fi_cq_open(struct fid_domain *domain, struct fi_cq_attr *attr,
		  struct fid_cq **out, void *context);
/* All under the lock. Each reserved entry is pushed or unreserved later.
 * -FI_ENOMEM. */
int pn_fi_cq_grow(struct pn_fi_cq *cq);
static inline int pn_fi_cq_reserve(struct pn_fi_cq *cq)
{
	int ret = 0;

	if (pn_unlikely(cq->tail - cq->head + cq->reserved >= cq->capacity))
		ret = pn_fi_cq_grow(cq);
	if (pn_likely(!ret))
		cq->reserved++;
	return ret;
}
static inline void pn_fi_cq_unreserve(struct pn_fi_cq *cq)
{
	cq->reserved--;
}
void pn_fi_cq_push(struct pn_fi_cq *cq, const struct pn_fi_entry *entry);
/* The same for a message that was sent in the call; nobody reads meanwhile. */
void pn_fi_cq_push_sent(struct pn_fi_cq *cq, void *context, uint64_t flags);
/* Whether a reader has room, and no older entry comes first. */
static inline bool pn_fi_cq_has_reader(const struct pn_fi_cq *cq)
{
	return cq->reader.n != cq->reader.room && cq->head == cq->tail;
}
/* The reader's next entry: write a successful completion there instead of
 * pushing it. NULL: push it. */
static inline struct fi_cq_tagged_entry *pn_fi_cq_reader_entry(
	struct pn_fi_cq *cq)
{
	if (pn_unlikely(!pn_fi_cq_has_reader(cq) || cq->reader.from ||
			cq->entry_bytes != sizeof(struct fi_cq_tagged_entry)))
		return NULL;
	cq->reserved--;
	return (struct fi_cq_tagged_entry *)(void *)cq->reader.buf +
	       cq->reader.n++;
}
/* Adds the endpoint's descriptor to the wait object of the CQ, and removes it.
 */
int pn_fi_cq_watch(struct pn_fi_cq *cq, struct pn_fi_ep *ep);
void pn_fi_cq_unwatch(struct pn_fi_cq *cq, struct pn_fi_ep *ep);
/* fi_trywait(). 0: the wait object is armed; -FI_EAGAIN: read first. */
int pn_fi_cq_trywait(struct pn_fi_cq *cq);

/* Makes progress if the ring is empty. True: there are entries. */
bool pn_fi_cq_progress(struct pn_fi_cq *cq);
/* Wakes the threads that wait. */
void pn_fi_cq_wake(struct pn_fi_cq *cq);
/* Arms an empty CQ, under the lock. True: armed; pn_fi_cq_sleep() must follow,
 * without the lock. Any number of threads may sleep. */
bool pn_fi_cq_sleep_begin(struct pn_fi_cq *cq);
/* If armed, sleeps until the wait object is ready. Else yields the CPU: another
 * thread was woken and has to run first. False: the deadline has passed. */
bool pn_fi_cq_sleep(struct pn_fi_cq *cq, bool is_armed, int64_t deadline_ms);
/* The time of a timeout; -1: none. */
int64_t pn_fi_deadline_ms(int timeout_ms);

/* counter.c */
int pn_fi_counter_open(struct fid_domain *domain, struct fi_cntr_attr *attr,
		       struct fid_cntr **out, void *context);
int pn_fi_counter_bind(struct pn_fi_ep *ep, struct pn_fi_counter *counter,
		       uint64_t flags);
/* When an endpoint closes, under the lock. */
void pn_fi_counters_unbind(struct pn_fi_ep *ep);
void pn_fi_counter_add(struct pn_fi_counter *counter, int status);
/* fi_trywait(). -FI_EAGAIN: the counter changed since it was read, or it counts
 * writes to regions, which wake nobody. For one thread; any number of threads
 * may call fi_cntr_wait(). */
int pn_fi_counter_trywait(struct pn_fi_counter *counter);
/* Makes progress, under the lock. */
void pn_fi_counter_progress(struct pn_fi_counter *counter);
static inline void pn_fi_count_event(const struct pn_fi_ep *ep,
				     enum pn_fi_event event, int status)
{
	if (pn_unlikely(ep->events[event].counter))
		pn_fi_counter_add(ep->events[event].counter, status);
}

/* service_name.c */
bool pn_fi_is_service(const struct pn_fi_name *name);
const char *pn_fi_service_text(const struct pn_fi_name *name);
/* -FI_EINVAL: too long, or with a slash or blank. */
int pn_fi_service_name(const char *service, struct pn_fi_name *out);
/* Publishes the name of an endpoint under a service while `service_fds` are
 * open. -FI_EADDRINUSE: another endpoint has the service; -FI_EADDRNOTAVAIL:
 * the name is too long. */
int pn_fi_publish(const struct pn_fi_name *service,
		  const struct pn_fi_name *name, int service_fds[2]);
void pn_fi_unpublish(const int service_fds[2]);
/* Finds the endpoint of a service. -FI_EHOSTUNREACH: there is none now. */
int pn_fi_resolve(const struct pn_fi_name *service, struct pn_fi_name *out);
/* May query name servers, unless the flags have FI_NUMERICHOST. */
bool pn_fi_is_this_host(const char *node, uint64_t flags);

/* poll_set.c */
int pn_fi_poll_open(struct fid_domain *domain, struct fi_poll_attr *attr,
		    struct fid_poll **out);

/* unsupported.c: return -FI_ENOSYS. */
int pn_fi_no_bind(struct fid *fid, struct fid *other, uint64_t flags);
int pn_fi_no_control(struct fid *fid, int command, void *arg);
extern struct fi_ops_collective pn_fi_no_collective_ops;
int pn_fi_no_ops(struct fid *fid, const char *name, uint64_t flags, void **ops,
		 void *context);

/* eq.c */
int pn_fi_eq_open(struct fid_fabric *fabric, struct fi_eq_attr *attr,
		  struct fid_eq **out, void *context);
int pn_fi_eq_trywait(struct fid_eq *fid);

/* endpoint.c */
int pn_fi_endpoint_open(struct fid_domain *domain, struct fi_info *info,
			struct fid_ep **out, void *context);

/* op.c */
/* Polls pinion's endpoint; returns the number of completions. Requests that
 * were sent before a message that has completed are executed when it returns.
 * Under the lock. */
int pn_fi_ep_progress(struct pn_fi_ep *ep);
/* responder.c: when polls have used all responders, or returned all they had
 * room for. True: poll again, since requests may wait for a responder, or their
 * completions behind others. */
bool pn_fi_requests_remain(struct pn_fi_ep *ep);
/* responder.c, initiator.c: what failed for want of memory. False: it failed
 * again. */
bool pn_fi_responders_retry(struct pn_fi_ep *ep);
bool pn_fi_requests_retry(struct pn_fi_ep *ep);
/* The same by pinion's progress thread; `progress` of struct
 * pinion_endpoint_attr, with the endpoint. */
int pn_fi_ep_progress_thread(void *arg);
/* Close of an endpoint: first, under the lock, unreserves the entries of its
 * ops; then, when pinion's endpoint is closed, frees the ops. */
void pn_fi_ops_abandon(struct pn_fi_ep *ep);
void pn_fi_ops_free(struct pn_fi_ep *ep);
/* Adds a free op; false: no memory. */
bool pn_fi_op_add(struct pn_fi_ep *ep);
/* Allocates an op and reserves its entry. Under the lock. NULL: no memory, or
 * the transmit queue is full. */
static inline struct pn_fi_op *pn_fi_op_alloc(struct pn_fi_ep *ep,
					      enum pn_fi_dir dir)
{
	struct pn_fi_op *op;

	if (pn_unlikely((dir == PN_FI_TX && ep->tx_ops >= ep->tx_size) ||
			(!ep->free_ops && !pn_fi_op_add(ep)) ||
			pn_fi_cq_reserve(ep->dirs[dir].cq)))
		return NULL;
	ep->tx_ops += dir == PN_FI_TX;
	op = ep->free_ops;
	ep->free_ops = op->next_free;
	op->number = ++ep->nops;
	op->dir = dir;
	op->event = dir == PN_FI_TX ? PN_FI_EVENT_SEND : PN_FI_EVENT_RECV;
	op->callback.completed = NULL;
	op->unsignaled = false;
	return op;
}
/* The op did not start: unreserves its entry and frees it. */
void pn_fi_op_drop(struct pn_fi_op *op);
/* The op completed: counts it, pushes its entry, frees it. */
void pn_fi_op_complete(struct pn_fi_op *op, const struct pinion_completion *c);
/* Turns a receive into a multi-receive. */
void pn_fi_op_make_multi_recv(struct pn_fi_op *op,
			      struct pinion_message *message);
/* The entry of a completed op. */
struct pn_fi_entry pn_fi_op_entry(const struct pn_fi_op *op,
				  const struct pinion_completion *c);
/* Frees an op whose entry was pushed or unreserved. The most recently used
 * comes first: its memory is warm. */
static inline void pn_fi_op_free(struct pn_fi_op *op)
{
	op->ep->tx_ops -= op->dir == PN_FI_TX;
	op->number = 0;
	op->next_free = op->ep->free_ops;
	op->ep->free_ops = op;
}
/* Cancels the oldest receive with the context. Sends cannot be canceled. */
ssize_t pn_fi_cancel(fid_t fid, void *context);

/* msg.c, tagged.c */
extern struct fi_ops_msg pn_fi_msg_ops;
extern struct fi_ops_tagged pn_fi_tagged_ops;

#endif
