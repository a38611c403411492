/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rdma -- posts, stalls, retries and completes the RDMA operations of
 * fragments, for two-sided transfers and for one-sided operations.
 *
 * Nouns
 *   fragment     a range of a request's buffer that moves over one connection,
 *                by RDMA writes, reads or an atomic; or by DATA packets if one
 *                side could not be registered.
 *   user         the part of the message layer that a fragment belongs to
 *                (twosided/, onesided/): struct pn_rdma_ops. The user's struct
 *                begins with a struct pn_rdma_fragment.
 *   stall queue  fragments of a connection of which not everything is posted,
 *                because the device's queue is full or the connection is not up
 *                yet. Each user has its own: a one-sided fragment may wait for
 *                a bounce buffer as well, and must not hold up messages.
 *
 * Life of a fragment: pn_rdma_init() -> pinned by its user, unless it is copied
 * -> pn_rdma_start() posts operations until all bytes are posted or the device
 * says -EAGAIN; then the fragment stalls, behind those that stall already, and
 * pn_rdma_progress() goes on -> pn_rdma_done() for each completion -> when
 * nothing is in flight, and everything is posted or something failed,
 * ops->ended decides: the user drops the fragment, copies it out, or restarts
 * it, also on another connection (failover.c).
 *
 * An operation is as long as the local segment, the remote key and the device
 * allow; each byte is posted once, in order. The first error of a fragment
 * counts: nothing more is posted, and ops->ended is called when the operations
 * in flight have completed.
 *
 * At rest: a fragment is stalled (posted < len), in flight, or waits for the
 * other side. `inflight` counts operations of the device, and whoever works on
 * the fragment while other tasks may run. A fragment of a failed request is
 * never stalled.
 *
 * Threads: under the endpoint's lock. In virtual time other tasks run while a
 * fragment is copied, pinned or unpinned.
 */
#ifndef PN_MESSAGE_RDMA_H
#define PN_MESSAGE_RDMA_H

#include <pinion/cache.h>

#include "base/list.h"
#include "device/device.h"
#include "message/connection/wire.h"
#include "message/endpoint/operation.h"

struct pinion_request;
struct pn_connection;
struct pn_rdma_fragment;

/* In the order in which their stalled fragments are posted. */
enum pn_rdma_user {
	PN_RDMA_TWOSIDED,
	PN_RDMA_ONESIDED,
	PN_RDMA_NUSERS,
};

struct pn_rdma_ops {
	enum pn_rdma_user user;
	/* When a connection goes down. True: its fragments stall until they
	 * move to another one. False: they fail. */
	bool fails_over;
	/* Before bytes are posted; may be NULL, and may be called again.
	 * -EAGAIN: the fragment stalls. May let other tasks run. */
	int (*prepare)(struct pn_rdma_fragment *f);
	/* Where the byte `posted` lies, here and at the peer, and how far from
	 * there on. An error fails the fragment. */
	int (*locate)(const struct pn_rdma_fragment *f, struct pn_sge *local,
		      struct pn_wire_key *remote);
	/* Sets kind, flags and operands of an operation whose length is set. */
	void (*describe)(const struct pn_rdma_fragment *f, struct pn_op *op);
	/* The operation is in the device's queue; may be NULL. */
	void (*posted)(struct pn_rdma_fragment *f, const struct pn_op *op);
	/* Nothing of the fragment will be posted any more, until it is started
	 * again; may be NULL. */
	void (*posted_all)(struct pn_rdma_fragment *f);
	/* Nothing is in flight, and everything is posted or status, or the
	 * request's, is set. The fragment may be gone afterwards. */
	void (*ended)(struct pn_rdma_fragment *f);
	/* Unlinks and frees a fragment that is not in flight. */
	void (*drop)(struct pn_rdma_fragment *f);
};

struct pn_rdma_fragment {
	struct pn_operation_context operation;
	const struct pn_rdma_ops *ops;
	struct pinion_request *request;
	struct pn_connection *conn;
	struct pn_list link;	   /* in the request's fragments; or free */
	struct pn_list stall_link; /* in conn->stalled */
	size_t offset, len;	   /* in the request's buffer */
	size_t posted;		   /* bytes */
	unsigned inflight;
	int status;	 /* the first error of an operation, or of posting */
	bool by_packets; /* DATA packets, no RDMA */
	bool lost;	 /* a write whose connection failed: see below */
	bool pinned;
	struct pinion_pin pin;
};

/* Sets everything but `link`: nothing is posted or pinned. */
void pn_rdma_init(struct pn_rdma_fragment *f, const struct pn_rdma_ops *ops,
		  struct pinion_request *request, size_t offset, size_t len);

/* Posts what can be posted now; the rest follows from pn_rdma_progress(). The
 * fragment may be gone afterwards. */
void pn_rdma_start(struct pn_rdma_fragment *f);

/* Posts the fragment from its beginning again: its operations have ended. */
void pn_rdma_restart(struct pn_rdma_fragment *f);

/* Moves a fragment that is not in flight to another connection. If the fragment
 * was stalled it stalls there. */
void pn_rdma_move(struct pn_rdma_fragment *f, struct pn_connection *conn);

static inline void pn_rdma_unstall(struct pn_rdma_fragment *f)
{
	pn_list_remove(&f->stall_link);
}

/* An operation of a fragment completed. */
void pn_rdma_done(struct pn_rdma_fragment *f, int status);

/* Posts stalled fragments of one user; true when something was posted. */
bool pn_rdma_progress(struct pn_connection *conn, enum pn_rdma_user user);

/* The request of these fragments has failed: drops those that are not in flight
 * and that the peer does not wait for. */
void pn_rdma_abandon(struct pn_list *fragments);

/* A write that failed with its connection may have reached the peer, or still
 * reach it, until the peer has said DOWN or is gone. Until then its request
 * does not end: the peer would take the buffer for free. */
bool pn_rdma_may_still_write(const struct pn_rdma_fragment *f);

/* Pins the fragment's bytes with the connection's device; errors of
 * pn_cache_pin(). Unpins them if they are pinned: also those of an unlinked
 * fragment, whose request may be gone. */
int pn_rdma_pin(struct pn_rdma_fragment *f, unsigned access);
void pn_rdma_unpin(struct pn_rdma_fragment *f);

#endif
