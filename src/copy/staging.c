/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Staging sets: bounce buffers that are registered and charged to the budget.
 *
 * Staging sets are made as copies first want them, so that a program with small
 * copies has few. Where the budget has no room there are fewer, or none; then
 * the driver copies.
 */
#include "copy/copy_impl.h"

static size_t staging_bytes(const struct pn_copier *copier)
{
	return PN_COPY_NBUFFERS * copier->block_bytes + PN_PAGE_BYTES;
}

void pn_copy_check_generation(struct pn_copier *copier)
{
	unsigned long long now = pn_cuda_context_id(copier->attr.device);
	unsigned long long before = atomic_exchange(&copier->context_id, now);

	if (before && before != now)
		atomic_fetch_add(&copier->generation, 1);
}

/* What the driver refuses to unregister stays mapped, as long as the process
 * lives: the driver finds it by address, whatever would be mapped there next.
 */
static void empty_staging(struct pn_copier *copier,
			  struct pn_copy_staging *staging)
{
	if (!staging->mr.addr)
		return;
	pn_cache_deregister(copier->attr.cache, &staging->mr);
	if (!pn_device_still_registered(copier->attr.device, &staging->mr))
		pn_pages_unmap(staging->mr.addr, staging_bytes(copier),
			       &copier->attr.pages);
	staging->mr.addr = NULL;
}

static void set_completions(struct pn_copier *copier,
			    struct pn_copy_staging *staging)
{
	const struct pn_cuda_driver *cu = copier->cu;
	_Atomic uint32_t *words =
		(void *)((char *)staging->mr.addr +
			 PN_COPY_NBUFFERS * copier->block_bytes);

	for (unsigned i = 0; i < PN_COPY_NBUFFERS; i++) {
		struct pn_copy_completion *completion =
			&staging->completions[i];

		/* A cache line apart. */
		*completion = (struct pn_copy_completion){
			.word = words + i * 16, .poll_ns = PN_COPY_POLL_NS
		};
		if (!cu->stream_write_value32 ||
		    cu->mem_host_get_device_pointer(&completion->at,
						    (void *)completion->word,
						    0))
			completion->at = 0;
	}
}

static int fill_staging(struct pn_copier *copier,
			struct pn_copy_staging *staging)
{
	struct pn_mr mr = { .len = staging_bytes(copier),
			    .access = PINION_ACCESS_LOCAL_WRITE };
	int ret = pn_pages_map(mr.len, &copier->attr.pages, &mr.addr);

	if (ret)
		return ret;
	staging->generation = atomic_load(&copier->generation);
	ret = pn_cache_register_own(copier->attr.cache, &mr);
	if (ret) {
		pn_pages_unmap(mr.addr, mr.len, &copier->attr.pages);
		return ret;
	}
	staging->mr = mr;
	set_completions(copier, staging);
	return 0;
}

/* The next staging set; false: it cannot be had. */
static bool add_staging(struct pn_copier *copier)
{
	unsigned n = atomic_load(&copier->nstaging);
	struct pn_copy_staging *staging = &copier->staging[n];

	if (n == PN_COPY_MAX_PARTICIPANTS || fill_staging(copier, staging))
		return false;
	pn_lock(&copier->lock);
	atomic_store(&copier->nstaging, n + 1);
	pn_list_append(&copier->free_staging, &staging->link);
	atomic_fetch_add(&copier->nfree, 1);
	pn_unlock(&copier->lock);
	return true;
}

/* A budget without room is asked again after so many copies that wanted more.
 */
#define REFUSED_COPIES 256

void pn_copy_staging_grow(struct pn_copier *copier, unsigned n)
{
	if (pn_likely(atomic_load(&copier->nstaging) >= n) ||
	    !pn_try_lock(&copier->growing))
		return;
	if (copier->refused)
		copier->refused--;
	while (!copier->refused && atomic_load(&copier->nstaging) < n)
		if (!add_staging(copier))
			copier->refused = REFUSED_COPIES;
	pn_unlock(&copier->growing);
}

bool pn_copy_staging_renew(struct pn_copier *copier,
			   struct pn_copy_staging *staging)
{
	if (pn_likely(staging->mr.addr &&
		      staging->generation == atomic_load(&copier->generation)))
		return true;
	empty_staging(copier, staging);
	return !fill_staging(copier, staging);
}

struct pn_copy_staging *pn_copy_staging_take_locked(struct pn_copier *copier)
{
	struct pn_list *link = pn_list_pop(&copier->free_staging);

	if (!link)
		return NULL;
	atomic_fetch_sub(&copier->nfree, 1);
	return pn_container_of(link, struct pn_copy_staging, link);
}

struct pn_copy_staging *pn_copy_staging_take(struct pn_copier *copier)
{
	struct pn_copy_staging *staging;

	pn_lock(&copier->lock);
	staging = pn_copy_staging_take_locked(copier);
	pn_unlock(&copier->lock);
	if (!staging || pn_copy_staging_renew(copier, staging))
		return staging;
	pn_copy_staging_return(copier, staging);
	return NULL;
}

void pn_copy_staging_return(struct pn_copier *copier,
			    struct pn_copy_staging *staging)
{
	bool awaited;

	pn_lock(&copier->lock);
	/* In front, so that the next copy finds the buffers in a CPU's cache.
	 */
	pn_list_insert(&copier->free_staging, &staging->link);
	atomic_fetch_add(&copier->nfree, 1);
	awaited = !pn_list_empty(&copier->jobs);
	pn_unlock(&copier->lock);
	if (awaited)
		pn_copy_workers_notify(copier);
}

void pn_copy_staging_close(struct pn_copier *copier)
{
	for (unsigned i = 0; i < atomic_load(&copier->nstaging); i++)
		empty_staging(copier, &copier->staging[i]);
}
