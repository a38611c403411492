/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pool -- objects that are used again and again, and registered memory behind
 * them: packet buffers, retransmissions, bounce buffers, headers of direct
 * sends, fragments.
 *
 * Nouns
 *   object  a struct of the user's, with a `struct pn_list` in it that links it
 *           into the pool while it is free. The user may link it elsewhere
 *           while it is in use.
 *   pool    the free objects of one kind and size. A growing pool allocates an
 *           object when none is free. A fixed pool has a fixed number of
 *           objects, allocated together, and refuses more: each has a share of
 *           registered memory.
 *   memory  pages that are mapped and registered once, with the caches of one
 *           or several rails. Several pools may share it.
 *
 * Life: pn_pool_init() -> get and put -> pn_pool_fini(). pn_pool_memory_close()
 * may come before pn_pool_fini(): a device may still hold pointers to objects
 * when an endpoint closes (close.c), but not to their bytes.
 *
 * At rest: every object is free or in use; put and get never free storage.
 *
 * Threads: the endpoint's lock. pn_pool_memory_open() and close() sleep in the
 * device and need no lock.
 */
#ifndef PN_MESSAGE_POOL_H
#define PN_MESSAGE_POOL_H

#include <stdbool.h>
#include <stddef.h>

#include "base/compiler.h"
#include "base/list.h"
#include "base/pages.h"
#include "device/device.h"

struct pinion_endpoint;
struct pn_cache;

struct pn_pool {
	struct pn_list free; /* the last one put comes first: it is warm */
	size_t object_bytes; /* growing pools: with the extra bytes */
	size_t link_offset;  /* of the struct pn_list in an object */
	bool grows;
	unsigned nfixed; /* objects of a fixed pool */
	void *storage;	 /* of these objects */
};

/* A growing pool. extra_bytes follow each object. Takes no memory. */
void pn_pool_init(struct pn_pool *pool, size_t struct_bytes, size_t link_offset,
		  size_t extra_bytes);
#define PN_POOL_INIT(pool, type, link, extra_bytes) \
	pn_pool_init((pool), sizeof(type), offsetof(type, link), (extra_bytes))

/* Makes a pool that is initialized and empty a fixed one: n objects, which may
 * be none, all zero but for their links, all free. -ENOMEM. */
int pn_pool_fix(struct pn_pool *pool, unsigned n);

/* Frees the objects that are free, and a fixed pool's storage. */
void pn_pool_fini(struct pn_pool *pool);

/* Object i of a fixed pool. */
static inline void *pn_pool_at(const struct pn_pool *pool, unsigned i)
{
	return (char *)pool->storage + i * pool->object_bytes;
}

/* Whether an object is one of a fixed pool's. */
static inline bool pn_pool_owns(const struct pn_pool *pool, const void *object)
{
	return (size_t)((const char *)object - (const char *)pool->storage) <
	       pool->nfixed * pool->object_bytes;
}

/* A new object of a growing pool, zeroed; or NULL. */
void *pn_pool_grow(struct pn_pool *pool);

/* An object; NULL: none is free, or no memory. Its contents are those of its
 * last use, or zero. */
static inline void *pn_pool_get(struct pn_pool *pool)
{
	struct pn_list *link = pn_list_pop(&pool->free);

	return pn_likely(link) ? (char *)link - pool->link_offset
			       : pn_pool_grow(pool);
}

static inline void pn_pool_put(struct pn_pool *pool, void *object)
{
	pn_list_insert(&pool->free,
		       (struct pn_list *)((char *)object + pool->link_offset));
}

/* --- registered memory ---------------------------------------------------- */

struct pn_pool_memory {
	struct pn_pages_policy pages;
	unsigned ncaches; /* 0: not open */
	struct pn_cache *caches[PN_RAILS_MAX];
	struct pn_mr mrs[PN_RAILS_MAX]; /* by cache: the same memory in all */
};

struct pn_pool_memory_attr {
	size_t len;
	unsigned nrails; /* registers with the caches of the first so many */
	unsigned access; /* PINION_ACCESS_ bits */
	/* -ENOBUFS when the budget has no room. Otherwise the memory is then
	 * registered without pinning it, if the device can. */
	bool strict;
};

/* Maps memory and registers it on rails of an endpoint. Errors as those of
 * pn_pages_map() and pn_cache_register(). */
int pn_pool_memory_open(struct pn_pool_memory *memory,
			const struct pinion_endpoint *ep,
			const struct pn_pool_memory_attr *attr);
/* Fine if it is not open. */
void pn_pool_memory_close(struct pn_pool_memory *memory);

static inline bool pn_pool_memory_is_open(const struct pn_pool_memory *memory)
{
	return memory->ncaches;
}

static inline uint8_t *pn_pool_memory_addr(const struct pn_pool_memory *memory)
{
	return memory->mrs[0].addr;
}

/* Bytes of the budget that are charged for it, on each rail. */
static inline size_t pn_pool_memory_bytes(const struct pn_pool_memory *memory)
{
	return memory->mrs[0].len;
}

#endif
