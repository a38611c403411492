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
	/* Pinned or registered in one of the domain's contexts; NULL: an
	 * orphan, or `real`. */
	struct pn_ibv_domain *domain;
	struct pinion_context *context;
	struct pinion_pin pin;
	struct pinion_registration *registration; /* instead of `pin` */
	struct ibv_mr *real; /* after ibv_rereg_mr(): a registration of its own
			      */
};

static struct region *buckets[NBUCKETS]; /* locks[bucket % NLOCKS] */
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
	buckets[i] = region;
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
		*at = found->next;
	pn_unlock(&locks[i % NLOCKS]);
	return found;
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

/* Registers for this region alone. The deregistration of a pin, even of one
 * that bypasses the cache, may come after its unpin; this one does not. */
static int register_alone(struct region *region, const struct pn_ibv_request *r,
			  unsigned access)
{
	struct pinion_registration_info info = { .size = sizeof(info) };
	int ret = pinion_device_register(region->context, r->addr, r->len,
					 access, &region->registration);

	if (ret)
		return ret;
	pn_assert(!pinion_registration_query(region->registration, &info));
	fill(region, r, info.handle);
	return 0;
}

static int pin(struct region *region, const struct pn_ibv_request *r)
{
	const unsigned access =
		r->access & (IBV_ACCESS_LOCAL_WRITE | PN_IBV_REMOTE);
	bool remote = access & PN_IBV_REMOTE;
	int ret;

	if (remote && !pn_ibv_keeps_remote(region->domain))
		return register_alone(region, r, access);
	ret = pinion_pin(region->context, r->addr, r->len, access,
			 &region->pin);
	if (ret)
		return ret;
	if (!remote || has_exact_bytes(&region->pin)) {
		fill(region, r, region->pin.handle);
		return 0;
	}
	pinion_unpin(region->context, &region->pin);
	return register_alone(region, r, access);
}

struct ibv_mr *pn_ibv_region_open(const struct pn_ibv_request *r)
{
	struct pn_ibv_domain *domain = is_taken(r) && !pn_ibv_ended()
					       ? pn_ibv_domain_find(r->pd)
					       : NULL;
	struct pinion_context *context =
		domain ? pn_ibv_context(domain, r->access) : NULL;
	struct region *region = context ? calloc(1, sizeof(*region)) : NULL;

	if (!region)
		return NULL;
	region->domain = domain;
	region->context = context;
	if (pin(region, r)) {
		free(region);
		return NULL;
	}
	pn_ibv_domain_ref(domain);
	add(region);
	return &region->mr;
}

/* --- closing ---------------------------------------------------------------
 */

static void unpin(struct region *region)
{
	if (!region->domain || pn_ibv_ended())
		return;
	if (region->registration)
		pinion_device_deregister(region->registration);
	else
		pinion_unpin(region->context, &region->pin);
	region->registration = NULL;
	pn_ibv_domain_unref(region->domain);
	region->domain = NULL;
}

bool pn_ibv_region_close(struct ibv_mr *mr, int *ret)
{
	struct region *region = find(mr, true);

	if (!region)
		return false;
	*ret = region->real ? pn_ibv_real()->ibv_dereg_mr(region->real) : 0;
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
			if (and_unpin)
				unpin(r);
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
	if (region->real)
		pn_ibv_real()->ibv_dereg_mr(region->real);
	unpin(region);
	region->real = real;
	fill(region, &r, real);
	*ret = 0;
	return true;
}
