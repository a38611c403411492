/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/fabric/keys.h"

#include <errno.h>
#include <rdma/fi_errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/log.h"
#include "base/pages.h"
#include "base/range.h"

/* An rkey is TAG << 44 | GENERATION << 20 | SLOT, an lkey GENERATION << 20 |
 * SLOT with more bits of the generation. */
#define SLOT_BITS	20
#define GENERATION_BITS 24
#define TAG_SHIFT	(SLOT_BITS + GENERATION_BITS)

/* Keys to try before the domain counts as full. */
#define MAX_KEY_TRIES 1024

void pn_fabric_keys_init(struct pn_fabric_keys *keys)
{
	pn_mutex_init(&keys->lock);
}

/* --- slots ---------------------------------------------------------------- */

static struct pn_fabric_slot *slot_at(const struct pn_fabric_keys *keys,
				      unsigned index)
{
	struct pn_fabric_slot *block = NULL;

	/* Pairs with the release in add_block(). */
	if (index < PN_FABRIC_MAX_BLOCKS * PN_FABRIC_BLOCK_SLOTS)
		block = atomic_load_explicit(
			&keys->blocks[index / PN_FABRIC_BLOCK_SLOTS],
			memory_order_acquire);
	return block ? &block[index % PN_FABRIC_BLOCK_SLOTS] : NULL;
}

static int add_block(struct pn_fabric_keys *keys) PN_REQUIRES(&keys->lock)
{
	unsigned which = keys->nslots / PN_FABRIC_BLOCK_SLOTS;
	struct pn_fabric_slot *block;

	if (which == PN_FABRIC_MAX_BLOCKS)
		return -ENOMEM;
	block = calloc(PN_FABRIC_BLOCK_SLOTS, sizeof(*block));
	if (!block)
		return -ENOMEM;
	for (unsigned i = 0; i + 1 < PN_FABRIC_BLOCK_SLOTS; i++)
		block[i].next_free = keys->nslots + i + 2;
	atomic_store_explicit(&keys->blocks[which], block,
			      memory_order_release);
	keys->free = keys->nslots + 1;
	keys->nslots += PN_FABRIC_BLOCK_SLOTS;
	return 0;
}

/* The slot of an index that this table has given out. */
static struct pn_fabric_slot *own_slot(const struct pn_fabric_keys *keys,
				       unsigned index)
{
	struct pn_fabric_slot *slot = slot_at(keys, index);

	pn_assert(slot);
	return slot;
}

static int alloc_slot(struct pn_fabric_keys *keys, unsigned *out)
{
	int ret = 0;

	pn_lock(&keys->lock);
	if (!keys->free)
		ret = add_block(keys);
	if (!ret) {
		*out = keys->free - 1;
		keys->free = own_slot(keys, *out)->next_free;
	}
	pn_unlock(&keys->lock);
	return ret;
}

static void free_slot(struct pn_fabric_keys *keys, unsigned index)
{
	pn_lock(&keys->lock);
	own_slot(keys, index)->next_free = keys->free;
	keys->free = index + 1;
	pn_unlock(&keys->lock);
}

/* --- regions of the provider ---------------------------------------------- */

static int error_of(int ret)
{
	if (ret == -FI_ENOKEY)
		return -ENOMEM;
	return -ret >= FI_ERRNO_OFFSET ? -EIO : ret;
}

/* A peer could try keys that it can guess: the provider lets whoever has one
 * read, and asks no key of ours. */
static int random_key(const struct pn_fabric_keys *keys, uint64_t *out)
{
	if (getrandom(out, sizeof(*out), 0) != sizeof(*out))
		return -EIO;
	*out &= keys->key_mask;
	return 0;
}

static int make_region(const struct pn_fabric_keys *keys,
		       struct fi_mr_attr *attr, struct fid_mr **out)
{
	int ret = -FI_ENOKEY;

	for (unsigned i = 0; ret == -FI_ENOKEY && i < MAX_KEY_TRIES; i++) {
		ret = keys->prov_key ? 0
				     : random_key(keys, &attr->requested_key);
		if (ret)
			return ret;
		ret = fi_mr_regattr(keys->domain, attr, 0, out);
		if (keys->prov_key)
			break;
	}
	return ret;
}

static int open_region(struct pn_fabric_keys *keys, void *addr, size_t len,
		       uint64_t access, struct fid_mr **out)
{
	struct iovec iov = { addr, len };
	struct fi_mr_attr attr = { .mr_iov = &iov,
				   .iov_count = 1,
				   .access = access };
	int ret = make_region(keys, &attr, out);

	if (ret)
		return error_of(ret);
	if (!keys->endpoint)
		return 0;
	ret = fi_mr_bind(*out, &keys->endpoint->fid, 0);
	if (!ret)
		ret = fi_mr_enable(*out);
	if (ret)
		fi_close(&(*out)->fid);
	return error_of(ret);
}

void pn_fabric_region_close(struct fid_mr *region)
{
	int ret = region ? fi_close(&region->fid) : 0;

	if (ret)
		pn_error("fabric: closing a memory region: error %d", -ret);
}

int pn_fabric_region_open(struct pn_fabric_keys *keys, void *addr, size_t len,
			  struct fid_mr **out)
{
	return open_region(keys, addr, len, FI_SEND | FI_RECV, out);
}

/* Peers read every range with fi_read() for long operations: also the source
 * of a WRITE of ours. */
static uint64_t access_of(unsigned access)
{
	uint64_t flags = FI_SEND | FI_WRITE | FI_REMOTE_READ;

	if (access & PINION_ACCESS_LOCAL_WRITE)
		flags |= FI_RECV | FI_READ;
	return flags;
}

/* --- registering ---------------------------------------------------------- */

/* A provider that does not pin accepts any range. */
static int check_pages(const struct pn_fabric_keys *keys,
		       const struct pn_mr *mr)
{
	if (keys->pins)
		return 0;
	return pn_pages_check(mr->addr, mr->len,
			      mr->access & PINION_ACCESS_LOCAL_WRITE);
}

static uint64_t new_rkey(struct pn_fabric_keys *keys, const struct pn_mr *mr)
{
	uint64_t generation = atomic_fetch_add(&keys->generation, 1);

	if (!(mr->access & PN_ACCESS_REMOTE))
		return 0;
	generation &= (UINT64_C(1) << GENERATION_BITS) - 1;
	return (uint64_t)keys->tag << TAG_SHIFT | generation << SLOT_BITS |
	       mr->device_slot;
}

static uint64_t new_lkey(struct pn_fabric_keys *keys, unsigned index)
{
	return (1 + atomic_fetch_add(&keys->generation, 1)) << SLOT_BITS |
	       index;
}

static size_t page_bytes(const struct pn_fabric_slot *slot)
{
	return pn_range_npages(slot->addr, slot->len) << PN_PAGE_SHIFT;
}

static void publish(struct pn_fabric_keys *keys, struct pn_fabric_slot *slot,
		    struct pn_mr *mr)
{
	mr->lkey = new_lkey(keys, mr->device_slot);
	mr->rkey = new_rkey(keys, mr);
	atomic_fetch_add(&keys->live_bytes, page_bytes(slot));
	atomic_fetch_add(&keys->nmrs, 1);
	/* Pairs with the acquire in the look-ups. */
	atomic_store_explicit(&slot->rkey, mr->rkey, memory_order_release);
	atomic_store_explicit(&slot->lkey, mr->lkey, memory_order_release);
}

int pn_fabric_keys_register(struct pn_fabric_keys *keys, struct pn_mr *mr)
{
	struct pn_fabric_slot *slot;
	struct fid_mr *region;
	unsigned index;
	int ret = check_pages(keys, mr);

	if (!ret)
		ret = alloc_slot(keys, &index);
	if (ret)
		return ret;
	slot = own_slot(keys, index);
	slot->addr = (uintptr_t)mr->addr;
	slot->len = mr->len;
	slot->access = mr->access;
	ret = open_region(keys, mr->addr, mr->len, access_of(mr->access),
			  &region);
	if (ret) {
		free_slot(keys, index);
		return ret;
	}
	slot->mr = region;
	mr->device_slot = index;
	publish(keys, slot, mr);
	return 0;
}

struct pn_fabric_slot *pn_fabric_keys_revoke(struct pn_fabric_keys *keys,
					     const struct pn_mr *mr)
{
	struct pn_fabric_slot *slot = own_slot(keys, mr->device_slot);

	atomic_store(&slot->lkey, 0);
	atomic_store(&slot->rkey, 0);
	return slot;
}

static void close_slot(struct pn_fabric_keys *keys, unsigned index)
{
	struct pn_fabric_slot *slot = own_slot(keys, index);

	pn_fabric_region_close(slot->mr);
	atomic_fetch_sub(&keys->live_bytes, page_bytes(slot));
	atomic_fetch_sub(&keys->nmrs, 1);
	free_slot(keys, index);
}

void pn_fabric_keys_close(struct pn_fabric_keys *keys, const struct pn_mr *mr)
{
	close_slot(keys, mr->device_slot);
}

/* Peers may know the provider's key from long operations. */
struct pn_fabric_slot *pn_fabric_keys_rekey(struct pn_fabric_keys *keys,
					    struct pn_mr *mr,
					    struct fid_mr **old)
{
	struct pn_fabric_slot *slot = own_slot(keys, mr->device_slot);
	struct fid_mr *region;
	int ret = open_region(keys, mr->addr, mr->len, access_of(slot->access),
			      &region);

	if (ret)
		pn_warn("fabric: a peer may still read revoked memory, with a "
			"key of the provider: error %d",
			-ret);
	*old = ret ? NULL : atomic_exchange(&slot->mr, region);
	mr->rkey = new_rkey(keys, mr);
	atomic_store(&slot->rkey, mr->rkey);
	return slot;
}

void pn_fabric_keys_fini(struct pn_fabric_keys *keys)
{
	for (unsigned i = 0; i < keys->nslots; i++)
		if (slot_at(keys, i)->lkey)
			close_slot(keys, i);
	for (unsigned i = 0; i < PN_FABRIC_MAX_BLOCKS; i++)
		free(keys->blocks[i]);
	pn_mutex_fini(&keys->lock);
}

/* --- look-up -------------------------------------------------------------- */

static bool covers(const struct pn_fabric_slot *slot, uint64_t addr,
		   uint64_t len, unsigned access)
{
	return (slot->access & access) == access && addr >= slot->addr &&
	       len <= slot->len && addr - slot->addr <= slot->len - len;
}

static struct pn_fabric_slot *slot_of(const struct pn_fabric_keys *keys,
				      uint64_t key)
{
	return slot_at(keys, key & ((UINT64_C(1) << SLOT_BITS) - 1));
}

struct pn_fabric_slot *pn_fabric_keys_local(const struct pn_fabric_keys *keys,
					    const struct pn_sge *sge,
					    unsigned access)
{
	struct pn_fabric_slot *slot = slot_of(keys, sge->lkey);

	return slot && sge->lkey &&
			       atomic_load_explicit(&slot->lkey,
						    memory_order_acquire) ==
				       sge->lkey &&
			       covers(slot, (uintptr_t)sge->addr, sge->len,
				      access)
		       ? slot
		       : NULL;
}

struct pn_fabric_slot *pn_fabric_keys_remote(const struct pn_fabric_keys *keys,
					     uint64_t addr, uint64_t len,
					     uint64_t rkey, unsigned access)
{
	struct pn_fabric_slot *slot = rkey ? slot_of(keys, rkey) : NULL;

	if (!slot)
		return NULL;
	pn_fabric_slot_use(slot);
	if (atomic_load(&slot->rkey) == rkey && covers(slot, addr, len, access))
		return slot;
	pn_fabric_slot_unuse(slot);
	return NULL;
}
