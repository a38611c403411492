/* SPDX-License-Identifier: BSD-2-Clause */
/* Bounce buffers of one-sided operations, in two sizes. Reserved with the first
 * operation, not with the endpoint: most programs only send messages, and the
 * budget is small where RLIMIT_MEMLOCK is. */
#include <errno.h>

#include "message/onesided/onesided_impl.h"

#define CELLS_BYTES (PN_NBOUNCE_CELLS * PN_BOUNCE_CELL_BYTES)
#define ALL_BYTES   (CELLS_BYTES + PN_NBOUNCE_BUFFERS * PN_BOUNCE_BUFFER_BYTES)

static void fill_pool(struct pn_bounce_pool *pool)
{
	uint8_t *at = pool->mr.addr;

	for (unsigned i = 0; i < PN_NBOUNCE_CELLS + PN_NBOUNCE_BUFFERS; i++) {
		struct pn_bounce_buffer *bounce_buffer = &pool->storage[i];
		bool cell = i < PN_NBOUNCE_CELLS;

		bounce_buffer->data = at;
		at += cell ? PN_BOUNCE_CELL_BYTES : PN_BOUNCE_BUFFER_BYTES;
		pn_list_append(cell ? &pool->free_cells : &pool->free,
			       &bounce_buffer->link);
	}
}

static int get_memory(struct pinion_endpoint *ep, struct pn_mr *mr)
{
	int ret = pn_pages_map(ALL_BYTES, &ep->pages, &mr->addr);

	if (ret)
		return ret;
	ret = pn_cache_register_own(ep->cache, mr);
	if (ret)
		pn_pages_unmap(mr->addr, ALL_BYTES, &ep->pages);
	return ret;
}

static void give_memory(struct pinion_endpoint *ep, struct pn_mr *mr)
{
	pn_cache_deregister(ep->cache, mr);
	pn_pages_unmap(mr->addr, mr->len, &ep->pages);
}

int pn_bounce_pool_open(struct pinion_endpoint *ep)
{
	struct pn_bounce_pool *pool = &ep->onesided.bounce_pool;
	struct pn_mr mr = { .len = ALL_BYTES,
			    .access = PINION_ACCESS_LOCAL_WRITE };
	bool late;
	int ret;

	if (pn_likely(pool->mr.addr))
		return 0;
	pn_endpoint_unlock(ep);
	ret = get_memory(ep, &mr);
	pn_endpoint_lock(ep);
	late = pool->mr.addr; /* another was faster */
	if (!ret && !late) {
		pool->mr = mr;
		fill_pool(pool);
	} else if (!ret) {
		pn_endpoint_unlock(ep);
		give_memory(ep, &mr);
		pn_endpoint_lock(ep);
	}
	return late ? 0 : ret;
}

void pn_bounce_pool_close(struct pinion_endpoint *ep)
{
	if (ep->onesided.bounce_pool.mr.addr)
		give_memory(ep, &ep->onesided.bounce_pool.mr);
}

struct pn_bounce_buffer *pn_bounce_buffer_get(struct pinion_endpoint *ep,
					      size_t len)
{
	struct pn_bounce_pool *pool = &ep->onesided.bounce_pool;
	struct pn_list *link = len <= PN_BOUNCE_CELL_BYTES
				       ? pn_list_pop(&pool->free_cells)
				       : pn_list_pop(&pool->free);

	return link ? pn_container_of(link, struct pn_bounce_buffer, link)
		    : NULL;
}

/* The newest first: its memory is warm. */
void pn_bounce_buffer_put(struct pinion_endpoint *ep,
			  struct pn_bounce_buffer *bounce_buffer)
{
	struct pn_bounce_pool *pool = &ep->onesided.bounce_pool;
	bool cell = bounce_buffer - pool->storage < PN_NBOUNCE_CELLS;

	pn_list_insert(cell ? &pool->free_cells : &pool->free,
		       &bounce_buffer->link);
}
