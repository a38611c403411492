/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fabric -- pinion as a provider of libfabric, so that MPI and others use it
 * without a change.
 *
 * A plug-in, libpinion-fi.so, on top of the public calls of libpinion.so: that
 * library may have been preloaded, and its memory-release monitor with it.
 *
 * Nouns, in libfabric's words
 *   fabric, domain  hold nothing but their children; the domain has the lock.
 *   endpoint   a pinion context and its endpoint: FI_EP_RDM.
 *   AV         names of endpoints by number, for map and table alike. Names
 *              are PN_FI_NAME_BYTES long, whatever the device; some are of
 *              a service. Endpoints turn a number into a peer when it is
 *              first used.
 *   op         something under way: the `user` of pinion's request.
 *   CQ         a ring of entries, errors among them. An op reserves its entry
 *              when it begins, so that no end is ever lost. Past the ring to
 *              whoever reads while it is empty.
 *   counter    how many ops of an endpoint ended well, and how many not.
 *   EQ         events that the program itself writes: nothing here has any.
 *   poll set   CQs and counters to be asked together.
 *
 * What libfabric's words become
 *   tagged and untagged messages  two spaces of pinion's messages
 *   remote CQ data    the 32 bits that travel along with a message
 *   FI_MULTI_RECV     a receive of many messages
 *   peek and claim    pinion_probe(); the claim waits in the fi_context
 *   inject            a copy, unless the message leaves before the call
 *                     returns. At most 128 bytes, since buffers from there on
 *                     are worth remembering (paper Reuse); on `soft`, which
 *                     carries them itself, 4 KiB, for messages alone
 *   mr_mode           pinion registers; keys and addresses are as asked for
 *   RMA and atomics   messages that the target's progress acts upon: onesided.h
 *
 * Threads: as the domain's threading model says. One lock per domain around
 * everything, none for FI_THREAD_DOMAIN; endpoints are single_threaded below
 * it. Nobody sleeps with it.
 * Errors: negative errno, which libfabric's are. What cannot be done here is
 * not advertised, and -FI_ENOSYS when called nevertheless.
 */
#ifndef PN_FABRIC_FABRIC_H
#define PN_FABRIC_FABRIC_H

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

#include "base/compiler.h"
#include "base/list.h"
#include "base/lock.h"

#define PN_FI_NAME_BYTES       64
#define PN_FI_INJECT_BYTES     128
#define PN_FI_INJECT_MAX_BYTES 4096
#define PN_FI_DATA_BYTES       4

/* FI_MR_BASIC and FI_MR_SCALABLE, the modes of programs older than libfabric
 * 1.5. The headers of libfabric 2 warn wherever these names are used. */
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
	struct pn_mutex lock;	/* around everything below */
	bool virtual_addresses; /* of regions; else they begin at 0 */
	bool own_keys;		/* the program does not choose them */
	uint64_t next_key;
	struct pn_list *mrs;	/* by hash of their key */
	struct pn_list serving; /* endpoints that take errands */
};

/* How an endpoint is called: what travels in libfabric's address buffers. */
struct pn_fi_name {
	uint8_t len; /* 0: removed; PN_FI_BY_SERVICE: data is a service, text */
	uint8_t data[PN_FI_NAME_BYTES - 1];
};

#define PN_FI_BY_SERVICE 0xff
#define PN_FI_NO_SERVICE "0" /* as a port: whichever is free */

struct pn_fi_av {
	struct fid_av fid;
	struct pn_fi_domain *domain;
	unsigned refs; /* endpoints */
	struct pn_fi_name *names;
	size_t n, capacity;
};

struct pn_fi_ep;

/* One end of an op; an error when err is not 0. */
struct pn_fi_entry {
	struct fi_cq_tagged_entry end;
	size_t olen; /* bytes that found no room */
	int err;
	struct pn_fi_ep *ep;	  /* of a receive, to name: */
	struct pinion_peer *peer; /* NULL: not known */
};

struct pn_fi_cq {
	struct fid_cq fid;
	struct pn_fi_domain *domain;
	unsigned refs; /* endpoints, one for each direction, and poll sets */
	bool bin;      /* a counter's: what is pushed is gone */
	size_t entry_bytes;
	struct pn_fi_entry *ring;
	size_t capacity; /* a power of two */
	size_t head, tail;
	size_t reserved;    /* for ops under way */
	struct pn_list eps; /* members, to make progress */
	int epoll;	    /* what to wait for; -1: no wait object */
	int wake;	    /* an eventfd inside it */
	bool armed;	    /* somebody may wait: an entry wakes */
	unsigned sleepers;  /* threads asleep */
	bool told;	    /* these were woken, and some are still there */
	/* While fi_cq_read() makes progress: what ends meanwhile, and well,
	 * goes straight to it. */
	struct {
		char *buf;
		fi_addr_t *from; /* or NULL */
		size_t n, room;
	} reader;
	bool polls_again;    /* the last read got less than it asked for */
	uint8_t empty_polls; /* how often after such a one nothing was found;
			      * goes round, so that it is tried again */
	bool signaled;	     /* fi_cq_signal() */
};

/* The direction of an op; also an index. */
enum pn_fi_dir {
	PN_FI_TX,
	PN_FI_RX,
	PN_FI_DIRS,
};

/* An endpoint in a CQ; of one that is there for both ways, one stands in the
 * list. */
struct pn_fi_member {
	struct pn_list link;
	struct pn_fi_ep *ep;
};

/* What pinion's requests have as `user`: who hears of their end. */
struct pn_fi_callback {
	/* NULL: a send or receive, as most are. */
	void (*ended)(struct pn_fi_callback *end,
		      const struct pinion_completion *c);
};

/* The spaces of pinion's messages. */
enum pn_fi_space {
	PN_FI_SPACE_TAGGED,
	PN_FI_SPACE_MSG,
	PN_FI_SPACE_RMA_REQUEST, /* these: see onesided.h */
	PN_FI_SPACE_RMA_DATA,
	PN_FI_SPACE_RMA_RESPONSE,
};

/* What a counter counts: fi_ep_bind()'s flags, in this order. */
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
	struct pn_fi_cq *cq; /* its own, always empty: endpoints and waiting */
	atomic_uint_fast64_t value, errors;
	uint64_t seen_value, seen_errors; /* by who asks fi_trywait() */
	unsigned refs;	  /* endpoints, one for each event; poll sets */
	unsigned regions; /* whose writes it counts, by any endpoint */
};

struct pn_fi_op {
	struct pn_fi_callback end; /* first: pinion's `user` */
	struct pn_list link;	   /* in ep->active or ep->free_ops */
	struct pn_fi_ep *ep;
	enum pn_fi_dir way;
	enum pn_fi_event event;
	bool quiet; /* a good end is not told */
	struct pn_fi_callback
		rest;	  /* one-sided: of bytes sent behind the errand */
	unsigned pending; /* one-sided: requests of pinion */
	int status;	  /* one-sided: of those that ended */
	void *context;
	uint64_t flags; /* of the entry */
	uint8_t *buf;
	size_t len;
	struct pinion_message message;
	struct pinion_multi_recv multi_recv; /* FI_MULTI_RECV */
	void *copy; /* of what was injected and is longer than: */
	uint8_t inject[PN_FI_INJECT_BYTES];
};

struct pn_fi_ep {
	struct fid_ep fid;
	struct pn_fi_domain *domain;
	struct pn_fi_av *av;
	struct {
		struct pn_fi_cq *cq;
		bool selective;
		uint64_t op_flags;
		struct pn_fi_member member;
	} ways[PN_FI_DIRS];
	struct {
		struct pn_fi_counter *counter; /* or NULL */
		struct pn_fi_member member;
	} events[PN_FI_EVENTS];
	uint64_t caps;
	bool enabled;
	bool directed; /* src_addr of receives counts */
	size_t min_multi_recv;
	size_t inject_bytes;
	struct pinion_context *context;
	struct pinion_endpoint *endpoint;
	struct pinion_peer **peers; /* by fi_addr; NULL: not used yet */
	size_t npeers;
	struct pn_list active, free_ops;
	struct pn_list notes, free_notes; /* errands on their way, and others */
	uint64_t next_number;		  /* of errands */
	struct pn_list responders;
	unsigned idle_responders; /* that wait for an errand */
	struct pn_list serving;	  /* in the domain's, with responders */
	int held[2]; /* what makes it known by a service; -1: it is not */
};

static inline void pn_fi_lock(struct pn_fi_domain *domain) PN_NO_THREAD_SAFETY
{
	if (domain->locking)
		pn_lock(&domain->lock);
}

static inline void pn_fi_unlock(struct pn_fi_domain *domain) PN_NO_THREAD_SAFETY
{
	if (domain->locking)
		pn_unlock(&domain->lock);
}

/* info.c */
int pn_fi_getinfo(uint32_t version, const char *node, const char *service,
		  uint64_t flags, const struct fi_info *hints,
		  struct fi_info **out);
/* The most that can be injected with such capabilities. */
size_t pn_fi_inject_bytes(uint64_t caps);
/* Whether a caller's info is one of ours: 0 or -FI_EINVAL. */
int pn_fi_info_check(const struct fi_info *info);

/* domain.c */
int pn_fi_domain_open(struct fid_fabric *fabric, struct fi_info *info,
		      struct fid_domain **out, void *context);

/* av.c */
int pn_fi_av_open(struct fid_domain *domain, struct fi_av_attr *attr,
		  struct fid_av **out, void *context);
/* The peer that a number means for an endpoint. Under the lock. -FI_EINVAL:
 * there is none. */
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
/* And back: FI_ADDR_NOTAVAIL. */
fi_addr_t pn_fi_addr_of(struct pn_fi_ep *ep, const struct pinion_peer *peer);

/* cq.c */
int pn_fi_cq_open(struct fid_domain *domain, struct fi_cq_attr *attr,
		  struct fid_cq **out, void *context);
/* All under the lock. An entry is reserved, then pushed or given back.
 * -FI_ENOMEM. */
int pn_fi_cq_reserve(struct pn_fi_cq *cq);
void pn_fi_cq_unreserve(struct pn_fi_cq *cq);
void pn_fi_cq_push(struct pn_fi_cq *cq, const struct pn_fi_entry *entry);
/* Whether somebody reads who has room and no older entry to see first. */
static inline bool pn_fi_cq_has_reader(const struct pn_fi_cq *cq)
{
	return cq->reader.n != cq->reader.room && cq->head == cq->tail;
}
/* Where a good end can be written for whoever reads, instead of pushing it;
 * NULL: push it. */
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
/* An endpoint's descriptor joins what the CQ waits for. */
int pn_fi_cq_watch(struct pn_fi_cq *cq, struct pn_fi_ep *ep);
void pn_fi_cq_unwatch(struct pn_fi_cq *cq, struct pn_fi_ep *ep);
/* fi_trywait() of one: 0: its descriptor will tell; -FI_EAGAIN: read first. */
int pn_fi_cq_trywait(struct pn_fi_cq *cq);

/* Looks for ends when there are none; whether there are. */
bool pn_fi_cq_progress(struct pn_fi_cq *cq);
/* Whoever waits for it looks again. */
void pn_fi_cq_wake(struct pn_fi_cq *cq);
/* Under the lock, and when there is nothing: whether the descriptor will tell.
 * Then pn_fi_cq_sleep() has to follow, without the lock: it sleeps until it
 * does. Any number of threads may. Else it lets others run: somebody is to see
 * first what he was told. False: the time is up. */
bool pn_fi_cq_sleep_begin(struct pn_fi_cq *cq);
bool pn_fi_cq_sleep(struct pn_fi_cq *cq, bool dozes, int64_t deadline_ms);
int64_t pn_fi_deadline_ms(int timeout_ms);

/* counter.c */
int pn_fi_counter_open(struct fid_domain *domain, struct fi_cntr_attr *attr,
		       struct fid_cntr **out, void *context);
int pn_fi_counter_bind(struct pn_fi_ep *ep, struct pn_fi_counter *counter,
		       uint64_t flags);
/* When an endpoint closes, under the lock. */
void pn_fi_counters_unbind(struct pn_fi_ep *ep);
void pn_fi_counter_add(struct pn_fi_counter *counter, int status);
/* fi_trywait() of one; -FI_EAGAIN: it has changed since it was read, or by its
 * nature nothing will tell. For one thread; fi_cntr_wait() is for any number.
 */
int pn_fi_counter_trywait(struct pn_fi_counter *counter);
/* Makes progress, under the lock. */
void pn_fi_counter_progress(struct pn_fi_counter *counter);
static inline void pn_fi_count_event(const struct pn_fi_ep *ep,
				     enum pn_fi_event event, int status)
{
	if (pn_unlikely(ep->events[event].counter))
		pn_fi_counter_add(ep->events[event].counter, status);
}

/* service.c */
bool pn_fi_is_service(const struct pn_fi_name *name);
const char *pn_fi_service_text(const struct pn_fi_name *name);
/* -FI_EINVAL: too long, or with a slash or blank. */
int pn_fi_service_name(const char *service, struct pn_fi_name *out);
/* Makes an endpoint's name known by a service for as long as `held` are open.
 * -FI_EADDRINUSE: another has it; -FI_EADDRNOTAVAIL: its name is too long. */
int pn_fi_publish(const struct pn_fi_name *service,
		  const struct pn_fi_name *name, int held[2]);
void pn_fi_unpublish(const int held[2]);
/* -FI_EHOSTUNREACH: nobody has it now. */
int pn_fi_resolve(const struct pn_fi_name *service, struct pn_fi_name *out);
/* May ask name servers, unless FI_NUMERICHOST is among the flags. */
bool pn_fi_is_this_host(const char *node, uint64_t flags);

/* poll_set.c */
int pn_fi_poll_open(struct fid_domain *domain, struct fi_poll_attr *attr,
		    struct fid_poll **out);

/* unsupported.c: calls of every object that have nothing to do here. */
int pn_fi_no_bind(struct fid *fid, struct fid *other, uint64_t flags);
int pn_fi_no_control(struct fid *fid, int command, void *arg);
int pn_fi_no_ops(struct fid *fid, const char *name, uint64_t flags, void **ops,
		 void *context);

/* eq.c */
int pn_fi_eq_open(struct fid_fabric *fabric, struct fi_eq_attr *attr,
		  struct fid_eq **out, void *context);
int pn_fi_eq_trywait(struct fid_eq *eq);

/* endpoint.c */
int pn_fi_endpoint_open(struct fid_domain *domain, struct fi_info *info,
			struct fid_ep **out, void *context);

/* op.c */
/* Takes what pinion has to say; how many ends. Under the lock. */
int pn_fi_ep_progress(struct pn_fi_ep *ep);
/* The end: under the lock, their places in CQs are given back; then, after
 * pinion's, they go. */
void pn_fi_ops_abandon(struct pn_fi_ep *ep);
void pn_fi_ops_free(struct pn_fi_ep *ep);
/* For ops of other kinds, under the lock. NULL: no memory. Its place in the CQ
 * is taken. */
struct pn_fi_op *pn_fi_op_alloc(struct pn_fi_ep *ep, enum pn_fi_dir way);
/* It has not begun. */
void pn_fi_op_drop(struct pn_fi_op *op);
/* It has ended: counts it, tells it, frees it. */
void pn_fi_op_complete(struct pn_fi_op *op, const struct pinion_completion *c);
/* Makes a receive one for FI_MULTI_RECV. */
void pn_fi_op_make_multi_recv(struct pn_fi_op *op);
/* The entry that it ends with. */
struct pn_fi_entry pn_fi_op_entry(const struct pn_fi_op *op,
				  const struct pinion_completion *c);
/* Its reservation was used. */
void pn_fi_op_free(struct pn_fi_op *op);
/* Receives alone: a send is on its way already. The oldest with the context. */
ssize_t pn_fi_cancel(fid_t fid, void *context);

/* msg.c, tagged.c */
extern struct fi_ops_msg pn_fi_msg_ops;
extern struct fi_ops_tagged pn_fi_tagged_ops;

#endif
