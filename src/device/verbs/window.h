/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * window -- memory windows of type 1: an rkey that can be revoked while the
 * registration stays.
 *
 * A window is bound to a registration, and peers use the window's key. Binding
 * it again gives it a new key and invalidates the old one. No page is touched,
 * and transfers with the registration's lkey continue. Without windows a new
 * key takes a new registration, and transfers in flight with the old lkey fail
 * (keys.c).
 *
 * The binder is a queue pair that is connected to itself and sends nothing:
 * a bind is a work request, and it must not depend on a connected peer. Type 2
 * windows belong to the queue pair they were bound on, so they would serve one
 * peer only.
 *
 * Eight bits of a key change from bind to bind. Before they wrap around, the
 * window is replaced by a new one.
 *
 * A bind that failed on the queue pair or had not ended after a second may have
 * happened or not. No later bind may take its completion, so the binder fails
 * for good: what the adapter has not done yet it never does, and every later
 * bind is refused at once. Users then do without windows. A key that cannot be
 * bound away ends with its window; where the adapter does not free the window
 * either, the key may go on working, and the caller gets an error: whoever
 * wanted the key to end must not be told that it did.
 *
 * Threads: any.
 */
#ifndef PN_DEVICE_VERBS_WINDOW_H
#define PN_DEVICE_VERBS_WINDOW_H

#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/lock.h"

struct pn_verbs_binder {
	struct ibv_cq *cq;
	struct ibv_qp *qp;    /* NULL: not open */
	struct pn_mutex lock; /* one bind at a time */
	_Atomic bool failed;
};

/* All zero: no window. */
struct pn_verbs_window {
	struct ibv_mw *mw;
	unsigned nbinds;
};

/* Opens the binder on a port; not for iWARP. */
int pn_verbs_binder_open(struct pn_verbs_binder *binder, struct ibv_pd *pd,
			 uint8_t port, const struct ibv_port_attr *attr);
/* Also if it was never opened. */
void pn_verbs_binder_close(struct pn_verbs_binder *binder);

/* It is open and has not failed. */
static inline bool pn_verbs_binder_works(const struct pn_verbs_binder *binder)
{
	return binder->qp && !atomic_load(&binder->failed);
}

/* Gives the window a new key for a whole registration. The old key is refused
 * after the return. On failure nothing changes, unless the binder fails, too:
 * then the key that the window had may be refused already, and is for certain
 * when the window was freed. -EIO, -ETIMEDOUT, or an error of the adapter. */
int pn_verbs_window_bind(struct pn_verbs_binder *binder,
			 struct pn_verbs_window *window, struct ibv_mr *mr,
			 unsigned access);
/* The same for a part of a registration, as the struct says; a length of 0:
 * the window is bound to nothing, and no key of it works. */
int pn_verbs_window_bind_part(struct pn_verbs_binder *binder,
			      struct pn_verbs_window *window,
			      const struct ibv_mw_bind_info *part);
/* Call it before the deregistration. Afterwards no key of the window works. On
 * failure, an error of the adapter, the window stays as it is: its key may
 * work, and the caller may try again. */
int pn_verbs_window_free(struct pn_verbs_window *window);

#endif
