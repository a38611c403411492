/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * window -- memory windows of type 1: keys for peers that can be revoked while
 * the registration behind them stays as it is (U6).
 *
 * A window is bound to a registration, and its key then is what peers use; to
 * bind it again gives it another key and ends the one before. No page is
 * touched, and transfers with the registration's own lkey go on. Without
 * windows a new key takes a new registration, and what is under way with the
 * old one's lkey fails (keys.c).
 *
 * The binder is a queue pair that is connected to itself and sends nothing:
 * binding is work that is posted, and no lane may have to be there for it.
 * Type 2 windows belong to the queue pair they were bound on, so they would
 * serve one peer only.
 *
 * A key has eight bits that change from bind to bind: before they come round,
 * the window is replaced by a new one.
 *
 * Threads: any.
 */
#ifndef PN_DEVICE_VERBS_WINDOW_H
#define PN_DEVICE_VERBS_WINDOW_H

#include <infiniband/verbs.h>

#include "base/lock.h"

struct pn_verbs_binder {
	struct ibv_cq *cq;
	struct ibv_qp *qp;    /* NULL: not open */
	struct pn_mutex lock; /* one bind at a time */
};

/* All zero: none. */
struct pn_verbs_window {
	struct ibv_mw *mw;
	unsigned nbinds;
};

/* Opens the binder on a port. 0 or a negative errno; not for iWARP. */
int pn_verbs_binder_open(struct pn_verbs_binder *binder, struct ibv_pd *pd,
			 uint8_t port, const struct ibv_port_attr *attr);
/* Of one that never was open, too. */
void pn_verbs_binder_close(struct pn_verbs_binder *binder);

/* Gives the window a new key for all of a registration; the one before is
 * refused from the return on. On failure nothing has changed. */
int pn_verbs_window_bind(struct pn_verbs_binder *binder,
			 struct pn_verbs_window *window, struct ibv_mr *mr,
			 unsigned access);
/* Before its registration ends. */
void pn_verbs_window_free(struct pn_verbs_window *window);

#endif
