/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Seats: bounce buffers that are registered and charged to the budget.
 *
 * Seats are made as copies first want them, so that a program with small copies
 * has few. Where the budget has no room there are fewer, or none; then the
 * driver copies.
 */
#include "copy/copy_impl.h"

static size_t seat_bytes(const struct pn_copier *copier)
{
	return PN_COPY_NBUFFERS * copier->block_bytes + PN_PAGE_BYTES;
}

/* The CUDA context of the buffers' registration may be gone: deregistering
 * then fails without harm, and the cache keeps trying. */
static void empty_seat(struct pn_copier *copier, struct pn_copy_seat *seat)
{
	if (!seat->mr.addr)
		return;
	pn_cache_deregister(copier->attr.cache, &seat->mr);
	pn_pages_unmap(seat->mr.addr, seat_bytes(copier), &copier->attr.pages);
	seat->mr.addr = NULL;
}

static void set_marks(struct pn_copier *copier, struct pn_copy_seat *seat)
{
	const struct pn_cuda_driver *cu = copier->cu;
	_Atomic uint32_t *words =
		(void *)((char *)seat->mr.addr +
			 PN_COPY_NBUFFERS * copier->block_bytes);

	for (unsigned i = 0; i < PN_COPY_NBUFFERS; i++) {
		struct pn_copy_mark *mark = &seat->marks[i];

		/* A cache line apart. */
		*mark = (struct pn_copy_mark){ .word = words + i * 16 };
		if (!cu->stream_write_value32 ||
		    cu->mem_host_get_device_pointer(&mark->at,
						    (void *)mark->word, 0))
			mark->at = 0;
	}
}

static int fill_seat(struct pn_copier *copier, struct pn_copy_seat *seat)
{
	struct pn_mr mr = { .len = seat_bytes(copier),
			    .access = PINION_ACCESS_LOCAL_WRITE };
	int ret = pn_pages_map(mr.len, &copier->attr.pages, &mr.addr);

	if (ret)
		return ret;
	seat->generation = atomic_load(&copier->generation);
	ret = pn_cache_register_own(copier->attr.cache, &mr);
	if (ret) {
		pn_pages_unmap(mr.addr, mr.len, &copier->attr.pages);
		return ret;
	}
	seat->mr = mr;
	set_marks(copier, seat);
	return 0;
}

/* The next seat; false: it cannot be had. */
static bool add_seat(struct pn_copier *copier)
{
	unsigned n = atomic_load(&copier->nseats);
	struct pn_copy_seat *seat = &copier->seats[n];

	if (n == PN_COPY_MAX_SEATS || fill_seat(copier, seat))
		return false;
	pn_lock(&copier->lock);
	atomic_store(&copier->nseats, n + 1);
	pn_list_append(&copier->free_seats, &seat->link);
	atomic_fetch_add(&copier->nfree, 1);
	pn_unlock(&copier->lock);
	return true;
}

/* A budget without room is asked again after so many copies that wanted more.
 */
#define REFUSED_COPIES 256

void pn_copy_seats_grow(struct pn_copier *copier, unsigned n)
{
	if (pn_likely(atomic_load(&copier->nseats) >= n) ||
	    !pn_try_lock(&copier->growing))
		return;
	if (copier->refused)
		copier->refused--;
	while (!copier->refused && atomic_load(&copier->nseats) < n)
		if (!add_seat(copier))
			copier->refused = REFUSED_COPIES;
	pn_unlock(&copier->growing);
}

bool pn_copy_seat_renew(struct pn_copier *copier, struct pn_copy_seat *seat)
{
	if (pn_likely(seat->mr.addr &&
		      seat->generation == atomic_load(&copier->generation)))
		return true;
	empty_seat(copier, seat);
	return !fill_seat(copier, seat);
}

struct pn_copy_seat *pn_copy_seat_take_locked(struct pn_copier *copier)
{
	struct pn_list *link = pn_list_pop(&copier->free_seats);

	if (!link)
		return NULL;
	atomic_fetch_sub(&copier->nfree, 1);
	return pn_container_of(link, struct pn_copy_seat, link);
}

struct pn_copy_seat *pn_copy_seat_take(struct pn_copier *copier)
{
	struct pn_copy_seat *seat;

	pn_lock(&copier->lock);
	seat = pn_copy_seat_take_locked(copier);
	pn_unlock(&copier->lock);
	if (!seat || pn_copy_seat_renew(copier, seat))
		return seat;
	pn_copy_seat_return(copier, seat);
	return NULL;
}

void pn_copy_seat_return(struct pn_copier *copier, struct pn_copy_seat *seat)
{
	bool awaited;

	pn_lock(&copier->lock);
	/* In front, so that the next copy finds the buffers in a CPU's cache.
	 */
	pn_list_insert(&copier->free_seats, &seat->link);
	atomic_fetch_add(&copier->nfree, 1);
	awaited = !pn_list_empty(&copier->jobs);
	pn_unlock(&copier->lock);
	if (awaited)
		pn_copy_workers_notify(copier);
}

void pn_copy_seats_close(struct pn_copier *copier)
{
	for (unsigned i = 0; i < atomic_load(&copier->nseats); i++)
		empty_seat(copier, &copier->seats[i]);
}
