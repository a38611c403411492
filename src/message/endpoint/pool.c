/* SPDX-License-Identifier: BSD-2-Clause */
#include "message/endpoint/pool.h"

#include <errno.h>
#include <stdlib.h>

#include "cache/cache.h"
#include "message/endpoint/endpoint.h"

static struct pn_list *link_of(const struct pn_pool *pool, void *object)
{
	return (struct pn_list *)((char *)object + pool->link_offset);
}

void pn_pool_init(struct pn_pool *pool, size_t struct_bytes, size_t link_offset,
		  size_t extra_bytes)
{
	*pool = (struct pn_pool){ .object_bytes = struct_bytes + extra_bytes,
				  .link_offset = link_offset,
				  .grows = true };
	pn_list_init(&pool->free);
}

int pn_pool_fix(struct pn_pool *pool, unsigned n)
{
	pool->grows = false;
	pool->storage = n ? calloc(n, pool->object_bytes) : NULL;
	if (n && !pool->storage)
		return -ENOMEM;
	pool->nfixed = n;
	for (unsigned i = 0; i < n; i++)
		pn_list_append(&pool->free, link_of(pool, pn_pool_at(pool, i)));
	return 0;
}

void pn_pool_fini(struct pn_pool *pool)
{
	struct pn_list *link;

	while (pool->grows && (link = pn_list_pop(&pool->free)))
		free((char *)link - pool->link_offset);
	free(pool->storage);
	pool->storage = NULL;
}

void *pn_pool_grow(struct pn_pool *pool)
{
	void *object = pool->grows ? calloc(1, pool->object_bytes) : NULL;

	if (object)
		pn_list_init(link_of(pool, object));
	return object;
}

/* --- registered memory ---------------------------------------------------- */

static void deregister(struct pn_pool_memory *memory)
{
	while (memory->ncaches) {
		unsigned i = --memory->ncaches;

		pn_cache_deregister(memory->caches[i], &memory->mrs[i]);
	}
}

static int register_with(struct pn_pool_memory *memory, struct pn_cache *cache,
			 const struct pn_mr *as, bool strict)
{
	struct pn_mr *mr = &memory->mrs[memory->ncaches];
	int ret;

	*mr = *as;
	ret = strict ? pn_cache_register(cache, mr)
		     : pn_cache_register_own(cache, mr);
	if (ret)
		return ret;
	memory->caches[memory->ncaches++] = cache;
	return 0;
}

int pn_pool_memory_open(struct pn_pool_memory *memory,
			const struct pinion_endpoint *ep,
			const struct pn_pool_memory_attr *attr)
{
	struct pn_mr mr = { .len = attr->len, .access = attr->access };
	int ret = pn_pages_map(attr->len, &ep->pages, &mr.addr);

	if (ret)
		return ret;
	*memory = (struct pn_pool_memory){ .pages = ep->pages };
	for (unsigned r = 0; r < attr->nrails && !ret; r++)
		ret = register_with(memory, ep->rails[r].cache, &mr,
				    attr->strict);
	if (ret) {
		deregister(memory);
		pn_pages_unmap(mr.addr, mr.len, &memory->pages);
		memory->mrs[0] = (struct pn_mr){ 0 };
	}
	return ret;
}

void pn_pool_memory_close(struct pn_pool_memory *memory)
{
	void *addr = memory->mrs[0].addr;
	size_t len = memory->mrs[0].len;

	if (!memory->ncaches)
		return;
	deregister(memory);
	pn_pages_unmap(addr, len, &memory->pages);
}
