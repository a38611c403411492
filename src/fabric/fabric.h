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
 *              are PN_FI_NAME_BYTES long, whatever the device. Endpoints turn
 *              a number into a peer when it is first used.
 *   op         a send or receive under way: the `user` of pinion's request.
 *   CQ         a ring of entries, errors among them. An op reserves its entry
 *              when it begins, so that no end is ever lost.
 *   EQ         events that the program itself writes: nothing here has any.
 *
 * What libfabric's words become
 *   tagged and untagged messages  two spaces of pinion's messages
 *   remote CQ data    the 32 bits that travel along with a message
 *   FI_MULTI_RECV     one receive at a time into what is left of the buffer,
 *                     posted again after each message
 *   peek and claim    pinion_probe(); the claim waits in the fi_context
 *   inject            a copy inside the op; at most 128 bytes, since buffers
 *                     from there on are worth remembering (paper Reuse)
 *   mr_mode 0         pinion registers
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

#define PN_FI_NAME_BYTES   64
#define PN_FI_INJECT_BYTES 128
#define PN_FI_DATA_BYTES   4

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
	struct pn_mutex lock; /* around everything below */
};

/* How an endpoint is called: what travels in libfabric's address buffers. */
struct pn_fi_name {
	uint8_t len; /* 0: removed */
	uint8_t data[PN_FI_NAME_BYTES - 1];
};

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
	unsigned refs; /* of endpoints, one for each direction */
	size_t entry_bytes;
	struct pn_fi_entry *ring;
	size_t capacity; /* a power of two */
	size_t head, tail;
	size_t reserved;    /* for ops under way */
	struct pn_list eps; /* members, to make progress */
	int epoll;	    /* what to wait for; -1: no wait object */
	int wake;	    /* an eventfd inside it */
	bool armed;	    /* somebody may wait: an entry wakes */
	bool signaled;	    /* fi_cq_signal() */
};

/* The direction of an op; also an index. */
enum pn_fi_way {
	PN_FI_TX,
	PN_FI_RX,
	PN_FI_WAYS,
};

/* An endpoint in a CQ; of one that is there for both ways, one stands in the
 * list. */
struct pn_fi_member {
	struct pn_list link;
	struct pn_fi_ep *ep;
};

struct pn_fi_op {
	struct pn_list link; /* in ep->active or ep->free_ops */
	struct pn_fi_ep *ep;
	enum pn_fi_way way;
	bool quiet; /* a good end is not told */
	bool multi;
	void *context;
	uint64_t flags; /* of the entry */
	uint8_t *buf;
	size_t len;
	struct pinion_message message; /* multi: to receive again */
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
	} ways[PN_FI_WAYS];
	bool enabled;
	bool directed; /* src_addr of receives counts */
	size_t min_multi_recv;
	struct pinion_context *context;
	struct pinion_endpoint *endpoint;
	struct pinion_peer **peers; /* by fi_addr; NULL: not used yet */
	size_t npeers;
	struct pn_list active, free_ops;
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
int pn_fi_peer_at(struct pn_fi_ep *ep, fi_addr_t addr,
		  struct pinion_peer **out);
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
/* An endpoint's descriptor joins what the CQ waits for. */
int pn_fi_cq_watch(struct pn_fi_cq *cq, struct pn_fi_ep *ep);
void pn_fi_cq_unwatch(struct pn_fi_cq *cq, struct pn_fi_ep *ep);
/* fi_trywait() of one: 0: its descriptor will tell; -FI_EAGAIN: read first. */
int pn_fi_cq_trywait(struct pn_fi_cq *cq);

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
void pn_fi_ops_free(struct pn_fi_ep *ep);
ssize_t pn_fi_cancel(fid_t fid, void *context);
extern struct fi_ops_msg pn_fi_msg_ops;
extern struct fi_ops_tagged pn_fi_tagged_ops;

#endif
