/* SPDX-License-Identifier: BSD-2-Clause */
/* Bounce buffers of one-sided operations, in two sizes. Their memory is
 * registered with the first operation, not with the endpoint: most programs
 * only send messages, and the budget is small where RLIMIT_MEMLOCK is. */
#include <errno.h>

#include "message/onesided/onesided_impl.h"

#define CELLS_BYTES (PN_NBOUNCE_CELLS * PN_BOUNCE_CELL_BYTES)
#define ALL_BYTES   (CELLS_BYTES + PN_NBOUNCE_BUFFERS * PN_BOUNCE_BUFFER_BYTES)

void pn_bounce_pool_init(struct pn_bounce_pool *pool)
{
	PN_POOL_INIT(&pool->buffers, struct pn_bounce_buffer, link, 0);
	PN_POOL_INIT(&pool->cells, struct pn_bounce_buffer, link, 0);
}

static int fill(struct pn_pool *pool, unsigned n, uint8_t *at, size_t each)
{
	int ret = pn_pool_fix(pool, n);

	for (unsigned i = 0; i < n && !ret; i++) {
		struct pn_bounce_buffer *buffer = pn_pool_at(pool, i);

		buffer->data = at + i * each;
	}
	return ret;
}

/* -ENOMEM: the pool stays as it is. */
static int set_memory(struct pn_bounce_pool *pool,
		      const struct pn_pool_memory *memory)
{
	uint8_t *at = pn_pool_memory_addr(memory);
	int ret =
		fill(&pool->cells, PN_NBOUNCE_CELLS, at, PN_BOUNCE_CELL_BYTES);

	if (!ret)
		ret = fill(&pool->buffers, PN_NBOUNCE_BUFFERS, at + CELLS_BYTES,
			   PN_BOUNCE_BUFFER_BYTES);
	if (!ret) {
		pool->memory = *memory;
		return 0;
	}
	pn_pool_fini(&pool->cells);
	pn_bounce_pool_init(pool);
	return ret;
}

int pn_bounce_pool_open(struct pinion_endpoint *ep)
{
	static const struct pn_pool_memory_attr attr = {
		.len = ALL_BYTES,
		.nrails = 1,
		.access = PINION_ACCESS_LOCAL_WRITE
	};
	struct pn_bounce_pool *pool = &ep->onesided.bounce_pool;
	struct pn_pool_memory memory;
	bool late;
	int ret;

	if (pn_likely(pn_pool_memory_is_open(&pool->memory)))
		return 0;
	pn_endpoint_unlock(ep);
	ret = pn_pool_memory_open(&memory, ep, &attr);
	pn_endpoint_lock(ep);
	late = pn_pool_memory_is_open(&pool->memory); /* by another thread */
	if (ret)
		return late ? 0 : ret;
	ret = late ? 0 : set_memory(pool, &memory);
	if (late || ret) {
		pn_endpoint_unlock(ep);
		pn_pool_memory_close(&memory);
		pn_endpoint_lock(ep);
	}
	return ret;
}

void pn_bounce_pool_close(struct pinion_endpoint *ep)
{
	struct pn_bounce_pool *pool = &ep->onesided.bounce_pool;

	pn_pool_memory_close(&pool->memory);
	pn_pool_fini(&pool->buffers);
	pn_pool_fini(&pool->cells);
}

struct pn_bounce_buffer *pn_bounce_buffer_get(struct pinion_endpoint *ep,
					      size_t len)
{
	struct pn_bounce_pool *pool = &ep->onesided.bounce_pool;

	return pn_pool_get(len <= PN_BOUNCE_CELL_BYTES ? &pool->cells
						       : &pool->buffers);
}

void pn_bounce_buffer_put(struct pinion_endpoint *ep,
			  struct pn_bounce_buffer *bounce_buffer)
{
	struct pn_bounce_pool *pool = &ep->onesided.bounce_pool;

	pn_pool_put(pn_pool_owns(&pool->cells, bounce_buffer) ? &pool->cells
							      : &pool->buffers,
		    bounce_buffer);
}
