/* SPDX-License-Identifier: BSD-2-Clause */
/* Bounce buffers of one-sided operations, in two sizes. Reserved with the first
 * operation, not with the endpoint: most programs only send messages, and the
 * budget is small where RLIMIT_MEMLOCK is. */
#include <errno.h>

#include "message/message_impl.h"

#define CELLS_BYTES (PN_NCELLS * PN_LANDING_CELL)
#define ALL_BYTES   (CELLS_BYTES + PN_NLANDINGS * PN_LANDING_BYTES)

static void fill_pool(struct pn_landings *pool)
{
	uint8_t *at = pool->mr.addr;

	for (unsigned i = 0; i < PN_NCELLS + PN_NLANDINGS; i++) {
		struct pn_landing *landing = &pool->storage[i];
		bool cell = i < PN_NCELLS;

		landing->data = at;
		at += cell ? PN_LANDING_CELL : PN_LANDING_BYTES;
		pn_list_append(cell ? &pool->free_cells : &pool->free,
			       &landing->link);
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

int pn_landings_open(struct pinion_endpoint *ep)
{
	struct pn_landings *pool = &ep->onesided.landings;
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

void pn_landings_close(struct pinion_endpoint *ep)
{
	if (ep->onesided.landings.mr.addr)
		give_memory(ep, &ep->onesided.landings.mr);
}

struct pn_landing *pn_landing_take(struct pinion_endpoint *ep, size_t len)
{
	struct pn_landings *pool = &ep->onesided.landings;
	struct pn_list *link = len <= PN_LANDING_CELL
				       ? pn_list_pop(&pool->free_cells)
				       : pn_list_pop(&pool->free);

	return link ? pn_container_of(link, struct pn_landing, link) : NULL;
}

/* The newest first: its memory is warm. */
void pn_landing_give(struct pinion_endpoint *ep, struct pn_landing *landing)
{
	struct pn_landings *pool = &ep->onesided.landings;
	bool cell = landing - pool->storage < PN_NCELLS;

	pn_list_insert(cell ? &pool->free_cells : &pool->free, &landing->link);
}
