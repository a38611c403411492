/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What programs get from ibv_reg_mr().
 *
 * Whether a struct ibv_mr is ours is looked up by its address: nothing behind
 * the struct of another library may be read.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/compiler.h"
#include "base/lock.h"
#include "preload/verbs/preload.h"

#define NBUCKETS 16384
#define NLOCKS	 64

struct region {
	struct ibv_mr mr; /* the program's */
	/* As libibverbs has it behind its own: kind and access, which functions
	 * of its providers read. */
	int type, verbs_access;
	struct region *next; /* in its bucket */
	unsigned access;     /* IBV_ACCESS_ bits */
	/* Pinned in one of the domain's contexts; NULL: an orphan, or `real`.
	 */
	struct pn_ibv_domain *domain;
	struct pinion_context *context;
	struct pinion_pin pin;
	struct pn_ibv_window *window; /* whose key it has; or NULL */
	struct ibv_mr *real; /* after ibv_rereg_mr(): a registration of its own
			      */
};

/* locks[bucket % NLOCKS]; pn_ibv_region_is_ours() looks at heads without. */
static struct region *buckets[NBUCKETS];
static struct pn_mutex locks[NLOCKS] = { [0 ... NLOCKS -
					  1] = { PTHREAD_MUTEX_INITIALIZER } };

/* --- the table -------------------------------------------------------------
 */

static size_t bucket_of(const struct ibv_mr *mr)
{
	return (size_t)(((uintptr_t)mr >> 4) * UINT64_C(0x9e3779b97f4a7c15) >>
			50) %
	       NBUCKETS;
}

static void add(struct region *region)
{
	size_t i = bucket_of(&region->mr);

	pn_lock(&locks[i % NLOCKS]);
	region->next = buckets[i];
	__atomic_store_n(&buckets[i], region, __ATOMIC_RELAXED);
	pn_unlock(&locks[i % NLOCKS]);
}

/* NULL: not ours. */
static struct region *find(const struct ibv_mr *mr, bool and_remove)
{
	size_t i = bucket_of(mr);
	struct region **at = &buckets[i], *found;

	pn_lock(&locks[i % NLOCKS]);
	while (*at && &(*at)->mr != mr)
		at = &(*at)->next;
	found = *at;
	if (found && and_remove)
		__atomic_store_n(at, found->next, __ATOMIC_RELAXED);
	pn_unlock(&locks[i % NLOCKS]);
	return found;
}

/* A program that deregisters a region of ours knows that it was added: no
 * barrier. Where nothing was ever added no lock is taken, so none is held when
 * a process forks that has no handler yet (set_up_once()). */
bool pn_ibv_region_is_ours(const struct ibv_mr *mr)
{
	return __atomic_load_n(&buckets[bucket_of(mr)], __ATOMIC_RELAXED) &&
	       find(mr, false);
}

/* A look-up may have been under way in another thread. It changes nothing. */
void pn_ibv_regions_in_child(void)
{
	for (unsigned i = 0; i < NLOCKS; i++)
		locks[i] = (struct pn_mutex){ PTHREAD_MUTEX_INITIALIZER };
}

/* --- opening ---------------------------------------------------------------
 */

/* Flags that pinion's pins have; libibverbs refuses rights of peers to write
 * without local ones. */
static bool is_taken(const struct pn_ibv_request *r)
{
	const unsigned known = IBV_ACCESS_LOCAL_WRITE | PN_IBV_REMOTE |
			       IBV_ACCESS_RELAXED_ORDERING;

	return r->len && r->iova == (uintptr_t)r->addr &&
	       !(r->access & ~known) &&
	       (r->access & IBV_ACCESS_LOCAL_WRITE ||
		!(r->access &
		  (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)));
}

static bool has_exact_bytes(const struct pinion_pin *pin)
{
	const struct ibv_mr *mr = pin->handle;

	return mr->addr == pin->addr && mr->length == pin->len;
}

static void fill(struct region *region, const struct pn_ibv_request *r,
		 const struct ibv_mr *real)
{
	region->mr = *real;
	region->mr.addr = r->addr;
	region->mr.length = r->len;
	region->access = r->access;
	region->verbs_access = (int)r->access;
}

static int pin_with(struct region *region, const struct pn_ibv_request *r,
		    unsigned flags)
{
	flags |= r->access & (IBV_ACCESS_LOCAL_WRITE | PN_IBV_REMOTE);
	return pinion_pin(region->context, r->addr, r->len, flags,
			  &region->pin);
}

/* Whether memory that peers can reach is pinned with the key of a window. The
 * registration has the exact bytes, too: rxe (Linux 6.1) checks accesses by the
 * bounds of the registration, not of the window. The cache gives exact bytes to
 * pins with remote access; the context leaves the right itself out. */
static bool pin_behind_window(struct region *region,
			      const struct pn_ibv_request *r)
{
	unsigned exact = (r->access & IBV_ACCESS_LOCAL_WRITE) |
			 PINION_ACCESS_REMOTE_READ;
	struct pinion_context *context = pn_ibv_context(
		region->domain,
		IBV_ACCESS_MW_BIND | (r->access & IBV_ACCESS_RELAXED_ORDERING));

	if (!context ||
	    pinion_pin(context, r->addr, r->len, exact, &region->pin))
		return false;
	if (has_exact_bytes(&region->pin))
		region->window = pn_ibv_window_open(pn_ibv_domain_windows(
							    region->domain),
						    region->pin.handle, r,
						    &region->mr.rkey);
	if (!region->window) {
		pinion_unpin(context, &region->pin);
		return false;
	}
	region->context = context;
	return true;
}

/* The choice learns whether the memory was registered anew. */
static bool pin_with_window(struct region *region,
			    const struct pn_ibv_request *r)
{
	struct pn_ibv_choice *choice = pn_ibv_domain_choice(region->domain);
	unsigned before = pn_ibv_choice_count();
	bool worked = pin_behind_window(region, r);

	if (choice)
		pn_ibv_choice_used(choice, r, worked, before);
	return worked;
}

/* A pin with remote access that bypasses the cache is deregistered when its
 * unpin returns. */
static int pin(struct region *region, const struct pn_ibv_request *r)
{
	bool remote = r->access & PN_IBV_REMOTE;
	int ret;

	if (remote && pn_ibv_wants_window(region->domain, r) &&
	    pin_with_window(region, r))
		return 0;
	if (remote && !pn_ibv_keeps_remote(region->domain))
		return pin_with(region, r, PINION_PIN_BYPASS);
	ret = pin_with(region, r, 0);
	if (ret || !remote || has_exact_bytes(&region->pin))
		return ret;
	pinion_unpin(region->context, &region->pin);
	return pin_with(region, r, PINION_PIN_BYPASS);
}

struct ibv_mr *pn_ibv_region_open(const struct pn_ibv_request *r)
{
	struct pn_ibv_domain *domain = is_taken(r) && !pn_ibv_ended()
					       ? pn_ibv_domain_find(r->pd)
					       : NULL;
	struct pinion_context *context =
		domain ? pn_ibv_context(domain, r->access) : NULL;
	/* glibc's calloc() leaves the thread's own cache aside. */
	struct region *region = context ? malloc(sizeof(*region)) : NULL;
	uint32_t key;

	if (!region)
		return NULL;
	*region = (struct region){ .domain = domain, .context = context };
	if (pin(region, r)) {
		free(region);
		return NULL;
	}
	key = region->mr.rkey;
	fill(region, r, region->pin.handle);
	if (region->window)
		region->mr.rkey = key;
	pn_ibv_domain_ref(domain);
	add(region);
	return &region->mr;
}

/* --- closing ---------------------------------------------------------------
 */

/* No key of a window works after success. */
static int end_key(struct region *region)
{
	int ret;

	if (!region->window || !region->domain || pn_ibv_ended())
		return 0;
	ret = pn_ibv_window_close(pn_ibv_domain_windows(region->domain),
				  region->window, region->pin.handle);
	if (!ret)
		region->window = NULL;
	return ret;
}

/* After end_key(). */
static void unpin(struct region *region)
{
	if (!region->domain || pn_ibv_ended())
		return;
	pinion_unpin(region->context, &region->pin);
	pn_ibv_domain_unref(region->domain);
	region->domain = NULL;
}

bool pn_ibv_region_close(struct ibv_mr *mr, int *ret)
{
	struct region *region = find(mr, true);

	if (!region)
		return false;
	*ret = region->real ? pn_ibv_real()->ibv_dereg_mr(region->real)
			    : -end_key(region);
	if (*ret) {
		add(region);
		return true;
	}
	unpin(region);
	free(region);
	return true;
}

void pn_ibv_regions_orphan(const struct pn_ibv_domain *domain,
			   bool and_unpin) PN_NO_THREAD_SAFETY
{
	for (size_t i = 0; i < NBUCKETS; i++)
		for (struct region *r = buckets[i]; r; r = r->next) {
			if (domain && r->domain != domain)
				continue;
			/* All keys end with the adapter. */
			if (and_unpin) {
				(void)end_key(r);
				unpin(r);
			}
			r->domain = NULL;
		}
}

/* --- ibv_rereg_mr() --------------------------------------------------------
 */

/* What the program wants to have afterwards. */
static struct pn_ibv_request changed(const struct region *region, int flags,
				     const struct pn_ibv_request *change)
{
	struct pn_ibv_request r = { .pd = region->mr.pd,
				    .addr = region->mr.addr,
				    .len = region->mr.length,
				    .access = region->access };

	if (flags & IBV_REREG_MR_CHANGE_PD)
		r.pd = change->pd;
	if (flags & IBV_REREG_MR_CHANGE_TRANSLATION) {
		r.addr = change->addr;
		r.len = change->len;
	}
	if (flags & IBV_REREG_MR_CHANGE_ACCESS)
		r.access = change->access;
	r.iova = (uintptr_t)r.addr;
	return r;
}

/* The registration below may be shared: another one takes its place, which only
 * this region has. */
bool pn_ibv_region_change(struct ibv_mr *mr, int flags,
			  const struct pn_ibv_request *change, int *ret)
{
	struct region *region = find(mr, false);
	struct pn_ibv_request r;
	struct ibv_mr *real;

	if (!region)
		return false;
	r = changed(region, flags, change);
	real = flags & ~IBV_REREG_MR_FLAGS_SUPPORTED ? NULL
						     : pn_ibv_real_reg(&r);
	*ret = IBV_REREG_MR_ERR_INPUT;
	if (!real)
		return true;
	if (end_key(region)) {
		pn_ibv_real()->ibv_dereg_mr(real);
		return true;
	}
	if (region->real)
		pn_ibv_real()->ibv_dereg_mr(region->real);
	unpin(region);
	region->real = real;
	fill(region, &r, real);
	*ret = 0;
	return true;
}
