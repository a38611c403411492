/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * keys -- the registrations of a verbs device.
 *
 * A slot remembers one registration: its range, its rights and the adapter's
 * own handles. Its number and the adapter's lkey together are the lkey that
 * callers see, so that a segment can be checked before it is posted: an
 * adapter that finds out breaks the connection.
 *
 * A registration without remote access that is longer than `chunk` becomes
 * several of the adapter's, made by several threads at once; a segment that
 * crosses the border of two is posted as two. Peers need one key, so memory
 * that is open to them is never cut: its pages are faulted in by several
 * threads instead, which is most of the work.
 *
 * A new key (rekey) is a new registration, or with windows=yes another key of
 * the window that peers see it through (window.h).
 *
 * At rest: a slot with lkey 0 is free and in the free list; all others hold at
 * least one of the adapter's registrations.
 * Threads: any. Slots are looked at without a lock; a look-up that races with
 * the end of the same registration is its caller's mistake and finds either.
 */
#ifndef PN_DEVICE_VERBS_KEYS_H
#define PN_DEVICE_VERBS_KEYS_H

#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/lock.h"
#include "device/device.h"
#include "device/verbs/window.h"

#define PN_VERBS_BLOCK_SLOTS 1024
#define PN_VERBS_MAX_BLOCKS  1024

/* In the tag of an rkey: peers may not read. siw serves such reads all the
 * same, so who posts them looks. */
#define PN_VERBS_NO_READ UINT32_C(0x80000000)

struct pn_verbs_slot {
	_Atomic uint64_t lkey; /* 0: free */
	struct ibv_mr **parts;
	uintptr_t addr;
	size_t len;
	unsigned access;
	unsigned nparts;
	struct ibv_mr *first; /* where parts points when there is one */
	struct pn_verbs_window window; /* whose key peers use */
	unsigned next_free;
};

struct pn_verbs_keys {
	struct ibv_pd *pd;
	uint32_t tag;	/* in our rkeys */
	size_t chunk;	/* bytes of a part */
	bool is_iwarp;	/* reads land only where peers may write */
	bool on_demand; /* IBV_ACCESS_ON_DEMAND */
	/* Open: what peers reach, they reach through windows. */
	struct pn_verbs_binder binder;
	unsigned nthreads;

	struct pn_mutex lock; /* the chunks and the free list */
	struct pn_verbs_slot *_Atomic chunks[PN_VERBS_MAX_BLOCKS];
	unsigned nslots, free; /* free: slot + 1 */

	_Atomic size_t live_bytes, nmrs;
};

void pn_verbs_keys_init(struct pn_verbs_keys *keys);
/* Ends every registration that is left. */
void pn_verbs_keys_fini(struct pn_verbs_keys *keys);

int pn_verbs_keys_register(struct pn_verbs_keys *keys, struct pn_mr *const *mrs,
			   unsigned n);
void pn_verbs_keys_deregister(struct pn_verbs_keys *keys,
			      struct pn_mr *const *mrs, unsigned n);
int pn_verbs_keys_rekey(struct pn_verbs_keys *keys, struct pn_mr *mr);

/* Turns a segment into the adapter's, at most max of them. Returns how many;
 * -EFAULT: its key does not cover it or lacks `access`; -EINVAL: max. */
int pn_verbs_keys_resolve(const struct pn_verbs_keys *keys,
			  const struct pn_sge *sge, unsigned access,
			  struct ibv_sge *out, unsigned max);

#endif
