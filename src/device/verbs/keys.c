/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/verbs/keys.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/log.h"
#include "base/range.h"
#include "device/verbs_access.h"

#define MAX_THREADS 8

void pn_verbs_keys_init(struct pn_verbs_keys *keys)
{
	pn_mutex_init(&keys->lock);
}

/* --- slots ---------------------------------------------------------------- */

static struct pn_verbs_slot *slot_at(const struct pn_verbs_keys *keys,
				     unsigned index)
{
	struct pn_verbs_slot *block = NULL;

	/* Pairs with the release in add_block(). */
	if (index < PN_VERBS_MAX_BLOCKS * PN_VERBS_BLOCK_SLOTS)
		block = atomic_load_explicit(
			&keys->blocks[index / PN_VERBS_BLOCK_SLOTS],
			memory_order_acquire);
	return block ? &block[index % PN_VERBS_BLOCK_SLOTS] : NULL;
}

/* A slot that is not free, or is about to be taken: it exists. */
static struct pn_verbs_slot *known_slot(const struct pn_verbs_keys *keys,
					unsigned index)
{
	struct pn_verbs_slot *slot = slot_at(keys, index);

	pn_assert(slot);
	return slot;
}

static int add_block(struct pn_verbs_keys *keys) PN_REQUIRES(&keys->lock)
{
	unsigned which = keys->nslots / PN_VERBS_BLOCK_SLOTS;
	struct pn_verbs_slot *block;

	if (which == PN_VERBS_MAX_BLOCKS)
		return -ENOMEM;
	block = calloc(PN_VERBS_BLOCK_SLOTS, sizeof(*block));
	if (!block)
		return -ENOMEM;
	for (unsigned i = 0; i < PN_VERBS_BLOCK_SLOTS; i++)
		block[i].next_free =
			i + 1 < PN_VERBS_BLOCK_SLOTS ? keys->nslots + i + 2 : 0;
	atomic_store_explicit(&keys->blocks[which], block,
			      memory_order_release);
	keys->free = keys->nslots + 1;
	keys->nslots += PN_VERBS_BLOCK_SLOTS;
	return 0;
}

static int alloc_slot(struct pn_verbs_keys *keys, unsigned *out)
{
	int ret = 0;

	pn_lock(&keys->lock);
	if (!keys->free)
		ret = add_block(keys);
	if (!ret) {
		*out = keys->free - 1;
		keys->free = known_slot(keys, *out)->next_free;
	}
	pn_unlock(&keys->lock);
	return ret;
}

static void free_slot(struct pn_verbs_keys *keys, unsigned index)
{
	pn_lock(&keys->lock);
	known_slot(keys, index)->next_free = keys->free;
	keys->free = index + 1;
	pn_unlock(&keys->lock);
}

/* --- access of an ibv_mr -------------------------------------------------- */

static int adapter_access(const struct pn_verbs_keys *keys,
			  const struct pn_verbs_slot *slot)
{
	unsigned access = slot->access;
	int flags = pn_verbs_access(access, keys->is_iwarp);

	if (slot->by_window) {
		flags &= ~pn_verbs_remote_access(access, keys->is_iwarp);
		flags |= IBV_ACCESS_MW_BIND;
	}
	if (keys->on_demand)
		flags |= IBV_ACCESS_ON_DEMAND;
	return flags;
}

/* --- chunks, registered by several threads -------------------------------- */

/* The chunks of a range. Each thread takes the next one. */
struct chunk_job {
	const struct pn_verbs_keys *keys;
	char *addr;
	size_t len, chunk;
	unsigned nchunks;
	int access;
	struct ibv_mr **mrs; /* NULL: only fault the pages in */
	_Atomic unsigned next;
	_Atomic int error;
};

static void run_chunk(struct chunk_job *job, unsigned i)
{
	char *addr = job->addr + i * job->chunk;
	size_t len =
		i + 1 < job->nchunks ? job->chunk : job->len - i * job->chunk;

	if (!job->mrs) {
		/* Best effort: registering faults in the other pages. */
		struct pn_range pages =
			pn_range_pages((uintptr_t)addr, len, PN_PAGE_BYTES);

		madvise((void *)pages.addr, pages.len, MADV_POPULATE_WRITE);
		return;
	}
	job->mrs[i] = ibv_reg_mr(job->keys->pd, addr, len, job->access);
	if (!job->mrs[i])
		atomic_store(&job->error, pn_verbs_reg_error(errno, addr, len));
}

static void *run_chunks(void *arg)
{
	struct chunk_job *job = arg;
	unsigned i;

	while (!atomic_load(&job->error) &&
	       (i = atomic_fetch_add(&job->next, 1)) < job->nchunks)
		run_chunk(job, i);
	return NULL;
}

static void run_in_threads(struct chunk_job *job)
{
	pthread_t threads[MAX_THREADS];
	unsigned n = 0, max = job->keys->nthreads;

	while (n + 1 < max && n + 1 < job->nchunks &&
	       !pthread_create(&threads[n], NULL, run_chunks, job))
		n++;
	run_chunks(job);
	while (n)
		pthread_join(threads[--n], NULL);
}

/* Returns how many the adapter has refused to deregister; they stay in mrs. */
static unsigned deregister_chunks(struct ibv_mr **mrs, unsigned n)
{
	unsigned nkept = 0;

	for (unsigned i = 0; i < n; i++) {
		if (mrs[i] && ibv_dereg_mr(mrs[i]))
			nkept++;
		else
			mrs[i] = NULL;
	}
	return nkept;
}

/* False: the adapter keeps some of it, and the slot; to be tried again. */
static bool deregister_adapter(struct pn_verbs_slot *slot)
{
	/* Where the adapter keeps the window it refuses what comes next, too,
	 * and both say so. */
	if (pn_verbs_window_free(&slot->window))
		slot->window = (struct pn_verbs_window){ NULL, 0 };
	if (deregister_chunks(slot->chunks, slot->nchunks)) {
		if (!slot->kept)
			pn_error("verbs: ibv_dereg_mr: %s: %zu bytes stay "
				 "pinned until a later try",
				 strerror(errno), slot->len);
		slot->kept = true;
		return false;
	}
	if (slot->nchunks > 1)
		free(slot->chunks);
	slot->nchunks = 0;
	slot->kept = false;
	return true;
}

/* --- registering ---------------------------------------------------------- */

static int register_chunks(struct pn_verbs_keys *keys,
			   struct pn_verbs_slot *slot)
{
	unsigned n = (unsigned)((slot->len + keys->chunk - 1) / keys->chunk);
	struct chunk_job job = { .keys = keys,
				 .addr = (char *)slot->addr,
				 .len = slot->len,
				 .chunk = keys->chunk,
				 .nchunks = n,
				 .access = adapter_access(keys, slot) };

	if (n > 1 && slot->access & PN_ACCESS_REMOTE) {
		if (slot->access & PINION_ACCESS_LOCAL_WRITE &&
		    !keys->on_demand)
			run_in_threads(&job);
		job.nchunks = n = 1;
		atomic_store(&job.next, 0);
	}
	job.mrs = n > 1 ? calloc(n, sizeof(*job.mrs)) : &slot->first;
	if (!job.mrs)
		return -ENOMEM;
	slot->first = NULL;
	slot->nchunks = n;
	slot->chunks = job.mrs;
	run_in_threads(&job);
	if (job.error) {
		deregister_adapter(slot);
		return job.error;
	}
	atomic_store_explicit(&slot->adapter_lkey, job.mrs[0]->lkey,
			      memory_order_relaxed);
	return 0;
}

static int bind_window(struct pn_verbs_keys *keys, struct pn_verbs_slot *slot)
{
	return pn_verbs_window_bind(
		&keys->binder, &slot->window, slot->first,
		(unsigned)pn_verbs_remote_access(slot->access, keys->is_iwarp));
}

static int register_adapter(struct pn_verbs_keys *keys,
			    struct pn_verbs_slot *slot)
{
	int ret;

	slot->by_window = slot->access & PN_ACCESS_REMOTE &&
			  pn_verbs_binder_works(&keys->binder);
	ret = register_chunks(keys, slot);
	if (ret || !slot->by_window)
		return ret;
	ret = bind_window(keys, slot);
	if (ret)
		deregister_adapter(slot);
	return ret;
}

static uint64_t rkey_of(const struct pn_verbs_keys *keys,
			const struct pn_verbs_slot *slot)
{
	uint32_t tag = keys->tag;

	if (!(slot->access & PINION_ACCESS_REMOTE_READ))
		tag |= PN_VERBS_NO_READ;
	if (!(slot->access & PN_ACCESS_REMOTE))
		return 0;
	return (uint64_t)tag << 32 |
	       (slot->window.mw ? slot->window.mw->rkey : slot->first->rkey);
}

/* The slot has registrations from now on. */
static void begin_slot(struct pn_verbs_keys *keys,
		       const struct pn_verbs_slot *slot)
{
	atomic_fetch_add(&keys->live_bytes,
			 pn_range_npages(slot->addr, slot->len)
				 << PN_PAGE_SHIFT);
	atomic_fetch_add(&keys->nmrs, 1);
}

/* No look-up finds the slot any more. False: the adapter keeps some of it. */
static bool end_slot(struct pn_verbs_keys *keys, unsigned index)
{
	struct pn_verbs_slot *slot = known_slot(keys, index);

	atomic_store(&slot->lkey, 0);
	if (!deregister_adapter(slot))
		return false;
	atomic_fetch_sub(&keys->live_bytes,
			 pn_range_npages(slot->addr, slot->len)
				 << PN_PAGE_SHIFT);
	atomic_fetch_sub(&keys->nmrs, 1);
	free_slot(keys, index);
	return true;
}

/* Registers what the slot describes. What could not be undone after an error
 * stays in the slot. */
static int register_slot(struct pn_verbs_keys *keys, struct pn_verbs_slot *slot)
{
	int ret = register_adapter(keys, slot);

	if (ret && !slot->nchunks && slot->by_window &&
	    !pn_verbs_binder_works(&keys->binder))
		ret = register_adapter(keys, slot);
	if (!ret || slot->nchunks)
		begin_slot(keys, slot);
	return ret;
}

static int register_one(struct pn_verbs_keys *keys, struct pn_mr *mr)
{
	struct pn_verbs_slot *slot;
	unsigned index;
	int ret = alloc_slot(keys, &index);

	if (ret)
		return ret;
	slot = known_slot(keys, index);
	slot->addr = (uintptr_t)mr->addr;
	slot->len = mr->len;
	slot->access = mr->access;
	ret = register_slot(keys, slot);
	if (ret && slot->nchunks)
		mr->device_slot = index | PN_VERBS_KEPT;
	else if (ret)
		free_slot(keys, index);
	if (ret)
		return ret;
	mr->device_slot = index;
	mr->lkey = (uint64_t)(index + 1) << 32 | slot->chunks[0]->lkey;
	mr->rkey = rkey_of(keys, slot);
	/* Pairs with the acquire in slot_of(). */
	atomic_store_explicit(&slot->lkey, mr->lkey, memory_order_release);
	return 0;
}

int pn_verbs_keys_register(struct pn_verbs_keys *keys, struct pn_mr *const *mrs,
			   unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		int ret = register_one(keys, mrs[i]);

		if (ret) {
			pn_verbs_keys_deregister(keys, mrs, i);
			return ret;
		}
	}
	return 0;
}

void pn_verbs_keys_deregister(struct pn_verbs_keys *keys,
			      struct pn_mr *const *mrs, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		mrs[i]->device_slot &= ~PN_VERBS_KEPT;
		if (!end_slot(keys, mrs[i]->device_slot))
			mrs[i]->device_slot |= PN_VERBS_KEPT;
	}
}

static void use_registration(struct pn_verbs_slot *slot, struct ibv_mr *mr)
{
	slot->first = mr;
	atomic_store_explicit(&slot->adapter_lkey, mr->lkey,
			      memory_order_release);
}

static void drop_new(struct ibv_mr *mr)
{
	if (deregister_chunks(&mr, 1))
		pn_error("verbs: ibv_dereg_mr: %s: registered until the device "
			 "closes",
			 strerror(errno));
}

/* The pages stay pinned: the new ibv_mr is registered before the old one is
 * deregistered. The lkey that callers see does not change; the adapter's does.
 * There is no window afterwards: it may be one that could not be bound. */
static int replace_registration(struct pn_verbs_keys *keys,
				struct pn_verbs_slot *slot,
				const struct pn_mr *mr)
{
	struct ibv_mr *old = slot->first, *new;
	bool by_window = slot->by_window;
	int ret;

	slot->by_window = false;
	new = ibv_reg_mr(keys->pd, mr->addr, mr->len,
			 adapter_access(keys, slot));
	ret = new ? pn_verbs_window_free(&slot->window)
		  : pn_verbs_reg_error(errno, mr->addr, mr->len);
	if (ret) {
		drop_new(new);
		slot->by_window = by_window;
		return ret;
	}
	use_registration(slot, new);
	if (!deregister_chunks(&old, 1))
		return 0;
	/* Peers reach it by the old key still. */
	use_registration(slot, old);
	drop_new(new);
	return -EBUSY;
}

int pn_verbs_keys_rekey(struct pn_verbs_keys *keys, struct pn_mr *mr)
{
	struct pn_verbs_slot *slot = known_slot(keys, mr->device_slot);
	int ret = -EIO;

	if (!(slot->access & PN_ACCESS_REMOTE))
		return 0;
	if (slot->by_window)
		ret = bind_window(keys, slot);
	if (ret && (!slot->by_window || !pn_verbs_binder_works(&keys->binder)))
		ret = replace_registration(keys, slot, mr);
	if (!ret)
		mr->rkey = rkey_of(keys, slot);
	return ret;
}

void pn_verbs_keys_fini(struct pn_verbs_keys *keys)
{
	for (unsigned i = 0; i < keys->nslots; i++) {
		struct pn_verbs_slot *slot = known_slot(keys, i);

		if (slot->nchunks && !end_slot(keys, i) && slot->nchunks > 1)
			free(slot->chunks);
	}
	for (unsigned i = 0; i < PN_VERBS_MAX_BLOCKS; i++)
		free(keys->blocks[i]);
	pn_verbs_binder_close(&keys->binder);
	pn_mutex_fini(&keys->lock);
}

/* --- look-up -------------------------------------------------------------- */

static struct pn_verbs_slot *slot_of(const struct pn_verbs_keys *keys,
				     uint64_t lkey)
{
	unsigned index = (unsigned)(lkey >> 32);
	struct pn_verbs_slot *slot = index ? slot_at(keys, index - 1) : NULL;

	return slot && atomic_load_explicit(&slot->lkey,
					    memory_order_acquire) == lkey
		       ? slot
		       : NULL;
}

static unsigned split_segment(const struct pn_verbs_keys *keys,
			      const struct pn_verbs_slot *slot,
			      const struct pn_sge *sge, struct ibv_sge *out)
{
	size_t at = (uintptr_t)sge->addr - slot->addr;
	size_t left = sge->len;
	unsigned n = 0;

	while (left) {
		size_t room = keys->chunk - at % keys->chunk;
		size_t len = left < room ? left : room;

		out[n++] = (struct ibv_sge){
			.addr = slot->addr + at,
			.length = (uint32_t)len,
			.lkey = slot->chunks[at / keys->chunk]->lkey
		};
		at += len;
		left -= len;
	}
	return n;
}

int pn_verbs_keys_resolve(const struct pn_verbs_keys *keys,
			  const struct pn_sge *sge, unsigned access,
			  struct ibv_sge *out, unsigned max)
{
	struct pn_verbs_slot *slot = slot_of(keys, sge->lkey);
	struct pn_range want = { (uintptr_t)sge->addr, sge->len };

	if (!slot || (slot->access & access) != access ||
	    !pn_range_covers((struct pn_range){ slot->addr, slot->len }, want))
		return -EFAULT;
	if (pn_likely(slot->nchunks == 1)) {
		uint32_t lkey = atomic_load_explicit(&slot->adapter_lkey,
						     memory_order_acquire);

		if (!max)
			return -EINVAL;
		*out = (struct ibv_sge){ want.addr, (uint32_t)want.len, lkey };
		return 1;
	}
	if ((want.addr - slot->addr + want.len - 1) / keys->chunk -
		    (want.addr - slot->addr) / keys->chunk + 1 >
	    max)
		return -EINVAL;
	return (int)split_segment(keys, slot, sge, out);
}
