/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * keys -- the registrations of a verbs device.
 *
 * A slot holds one registration: its range, its access and the memory regions
 * of the adapter (struct ibv_mr). The lkey that callers see consists of the
 * number of the slot and the adapter's lkey. post() looks the lkey up and
 * checks the segment: if the adapter found the error, the queue pair would
 * break.
 *
 * A registration without remote access that is longer than the option `chunk`
 * is divided into several chunks, each an ibv_mr, which several threads
 * register in parallel. A segment that crosses a chunk border is posted as two.
 * Peers need one key, so memory with remote access is one ibv_mr; several
 * threads fault its pages in first, which is most of the cost.
 *
 * A new rkey (rekey) is a new ibv_mr or, with windows=yes, another key of the
 * memory window (window.h). Where windows have failed it is a new ibv_mr again.
 *
 * An adapter can refuse to deregister an ibv_mr. Its pages stay pinned and
 * count, no look-up finds the slot, and the caller, who is told
 * (pn_verbs_keys_kept()), deregisters it again later.
 *
 * At rest: a slot without ibv_mr is free and in the free list; one with lkey 0
 * besides is kept by the adapter.
 * Threads: any. Slots are read without a lock. A look-up that races with the
 * deregistration of the same key, which callers must avoid, finds the slot or
 * does not.
 */
#ifndef PN_DEVICE_VERBS_KEYS_H
#define PN_DEVICE_VERBS_KEYS_H

#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/lock.h"
#include "device/device.h"
#include "device/verbs/window.h"

/* The table of slots grows by blocks, which never move. */
#define PN_VERBS_BLOCK_SLOTS 1024
#define PN_VERBS_MAX_BLOCKS  1024

/* Set in the tag of an rkey: peers may not read. siw executes such reads
 * nevertheless, so the initiator checks. */
#define PN_VERBS_NO_READ UINT32_C(0x80000000)

struct pn_verbs_slot {
	_Atomic uint64_t lkey; /* 0: free */
	struct ibv_mr **chunks;
	uintptr_t addr;
	size_t len;
	unsigned access;
	unsigned nchunks;     /* 0: free */
	bool kept;	      /* the adapter did not deregister it */
	bool by_window;	      /* peers reach it through the window */
	struct ibv_mr *first; /* the only chunk: chunks points here */
	/* Of the only chunk. Who posts while the key is replaced must not read
	 * the ibv_mr, which goes. */
	_Atomic uint32_t adapter_lkey;
	struct pn_verbs_window
		window; /* its key is the rkey, if there is one */
	unsigned next_free;
};

struct pn_verbs_keys {
	struct ibv_pd *pd;
	uint32_t tag;	/* in our rkeys */
	size_t chunk;	/* bytes of a chunk */
	bool is_iwarp;	/* reads write only where peers may write */
	bool on_demand; /* IBV_ACCESS_ON_DEMAND */
	/* While it works, peers access new memory through windows. */
	struct pn_verbs_binder binder;
	unsigned nthreads;

	struct pn_mutex lock; /* protects blocks and the free list */
	struct pn_verbs_slot *_Atomic blocks[PN_VERBS_MAX_BLOCKS];
	unsigned nslots, free; /* free: slot + 1 */

	_Atomic size_t live_bytes, nmrs;
};

void pn_verbs_keys_init(struct pn_verbs_keys *keys);
/* Deregisters what is left. */
void pn_verbs_keys_fini(struct pn_verbs_keys *keys);

int pn_verbs_keys_register(struct pn_verbs_keys *keys, struct pn_mr *const *mrs,
			   unsigned n);
void pn_verbs_keys_deregister(struct pn_verbs_keys *keys,
			      struct pn_mr *const *mrs, unsigned n);

/* In the number of a slot that an mr has: the adapter keeps it. */
#define PN_VERBS_KEPT (1u << 31)

static inline bool pn_verbs_keys_kept(const struct pn_mr *mr)
{
	return mr->device_slot & PN_VERBS_KEPT;
}

/* -EBUSY: the adapter does not deregister the old key. */
int pn_verbs_keys_rekey(struct pn_verbs_keys *keys, struct pn_mr *mr);

/* Turns a segment into segments of the adapter, at most max, and returns their
 * number. -EFAULT: its key does not cover it or lacks `access`; -EINVAL: more
 * than max. */
int pn_verbs_keys_resolve(const struct pn_verbs_keys *keys,
			  const struct pn_sge *sge, unsigned access,
			  struct ibv_sge *out, unsigned max);

#endif
