/* SPDX-License-Identifier: BSD-2-Clause */
/* Regions: memory with a key. Nothing is registered with the device here: the
 * cache registers the buffers of long messages when they are sent, and regions
 * are exposed when peers ask (exposure.c). The monitor tells of memory that the
 * program releases while the region exists. */
#include <sched.h>
#include <stdlib.h>
#include <sys/random.h>

#include "provider/onesided.h"

#define NHASHES	 1024 /* a power of two */
#define CLOSE_MS 1000
#define ACCESS_FLAGS                                               \
	(FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | \
	 FI_REMOTE_WRITE)

/* --- by key --------------------------------------------------------------- */

static struct pn_list *chain_of(struct pn_fi_domain *domain, uint64_t key)
{
	return &domain->mrs[key * UINT64_C(0x9e3779b97f4a7c15) >> 54 &
			    (NHASHES - 1)];
}

int pn_fi_mrs_init(struct pn_fi_domain *domain)
{
	domain->mrs = malloc(NHASHES * sizeof(*domain->mrs));
	if (!domain->mrs)
		return -FI_ENOMEM;
	for (unsigned i = 0; i < NHASHES; i++)
		pn_list_init(&domain->mrs[i]);
	return 0;
}

void pn_fi_mrs_fini(struct pn_fi_domain *domain)
{
	free(domain->mrs);
}

struct pn_fi_mr *pn_fi_mr_find(struct pn_fi_domain *domain, uint64_t key)
{
	struct pn_list *pos, *chain = chain_of(domain, key);

	pn_list_for_each (pos, chain) {
		struct pn_fi_mr *mr =
			pn_container_of(pos, struct pn_fi_mr, link);

		if (mr->fid.key == key)
			return mr;
	}
	return NULL;
}

uint8_t *pn_fi_mr_at(const struct pn_fi_mr *mr, uint64_t addr, uint64_t len,
		     uint64_t access)
{
	uint64_t base = pn_fi_mr_base(mr);
	uint8_t *at;

	/* This order avoids overflow. */
	if (addr < base || addr - base > mr->len ||
	    len > mr->len - (addr - base) || (mr->access & access) != access)
		return NULL;
	at = mr->base + (addr - base);
	return mr->range && pn_watched_range_check(mr->range, at, len,
						   access & FI_REMOTE_WRITE)
		       ? NULL
		       : at;
}

/* --- life ----------------------------------------------------------------- */

/* Under the lock. Makes progress of all endpoints with responders. */
static bool is_used(const struct pn_fi_mr *mr)
{
	struct pn_list *pos;

	if (!mr->users)
		return false;
	pn_list_for_each (pos, &mr->domain->responding) {
		pn_fi_ep_progress(
			pn_container_of(pos, struct pn_fi_ep, responding));
	}
	return mr->users;
}

/* The initiator may see a completion before this side has polled the end of the
 * operation. The program may free the memory after close, so wait until no
 * responder accesses it. */
static bool wait_unused(struct pn_fi_mr *mr)
{
	int64_t deadline = pn_fi_deadline_ms(CLOSE_MS);
	bool used;

	do {
		pn_fi_lock(mr->domain);
		used = is_used(mr);
		pn_fi_unlock(mr->domain);
		if (used)
			sched_yield();
	} while (used && pn_fi_deadline_ms(0) < deadline);
	return !used;
}

/* The region keeps its key, since its close may fail. */
static void set_closing(struct pn_fi_mr *mr, bool closing)
{
	pn_fi_lock(mr->domain);
	mr->closing = closing;
	if (closing)
		pn_fi_unexpose_mr(mr);
	pn_fi_unlock(mr->domain);
}

static int close_mr(struct fid *fid)
{
	struct pn_fi_mr *mr = pn_container_of(fid, struct pn_fi_mr, fid.fid);
	struct pn_fi_domain *domain = mr->domain;

	set_closing(mr, true);
	if (!wait_unused(mr)) {
		set_closing(mr, false);
		return -FI_EBUSY;
	}
	pn_fi_lock(domain);
	pn_list_remove(&mr->link);
	if (mr->counter)
		mr->counter->regions--;
	pn_fi_unlock(domain);
	pn_watched_range_remove(mr->range);
	atomic_fetch_sub(&domain->refs, 1);
	free(mr);
	return 0;
}

/* All endpoints of a domain use its regions: binding to one does nothing. */
static int bind_mr(struct fid *fid, struct fid *other, uint64_t flags)
{
	struct pn_fi_mr *mr = pn_container_of(fid, struct pn_fi_mr, fid.fid);
	struct pn_fi_counter *counter =
		pn_container_of(other, struct pn_fi_counter, fid.fid);

	if (other->fclass == FI_CLASS_EP)
		return flags ? -FI_EBADFLAGS : 0;
	if (other->fclass != FI_CLASS_CNTR ||
	    counter->cq->domain != mr->domain || mr->counter)
		return -FI_EINVAL;
	if (flags != FI_REMOTE_WRITE)
		return -FI_EBADFLAGS;
	pn_fi_lock(mr->domain);
	/* The device does not count. */
	pn_fi_unexpose_mr(mr);
	mr->counter = counter;
	counter->regions++;
	pn_fi_unlock(mr->domain);
	return 0;
}

/* A region is enabled from the start. */
static int control(struct fid *fid, int command, void *arg)
{
	(void)fid, (void)arg;
	return command == FI_ENABLE ? 0 : -FI_ENOSYS;
}

static struct fi_ops mr_fid_ops = {
	.size = sizeof(struct fi_ops),
	.close = close_mr,
	.bind = bind_mr,
	.control = control,
	.ops_open = pn_fi_no_ops,
};

/* A random key that no region has: who was not told it does not guess it, and a
 * region that is closed does not come back under its key. Under the lock. */
static int new_key(struct pn_fi_domain *domain, uint64_t *out)
{
	do {
		if (!domain->nkeys) {
			if (getrandom(domain->keys, sizeof(domain->keys), 0) !=
			    sizeof(domain->keys))
				return -FI_EIO;
			domain->nkeys = PN_ARRAY_LEN(domain->keys);
		}
		*out = domain->keys[--domain->nkeys];
	} while (*out == FI_KEY_NOTAVAIL || pn_fi_mr_find(domain, *out));
	return 0;
}

/* Sets the key and inserts the region. Under the lock. */
static int insert_mr(struct pn_fi_mr *mr, uint64_t wanted)
{
	struct pn_fi_domain *domain = mr->domain;
	int ret = 0;

	mr->fid.key = wanted;
	if (domain->prov_keys)
		ret = new_key(domain, &mr->fid.key);
	else if (pn_fi_mr_find(domain, wanted))
		ret = -FI_ENOKEY;
	if (ret)
		return ret;
	pn_list_append(chain_of(domain, mr->fid.key), &mr->link);
	return 0;
}

/* `iface` is to be ignored without FI_HMEM, which is not supported. */
static int validate(const struct fi_mr_attr *attr, uint64_t flags)
{
	const struct iovec *iov = attr->mr_iov;

	if (flags & ~FI_RMA_EVENT || attr->access & ~ACCESS_FLAGS)
		return -FI_EBADFLAGS;
	if (!iov || attr->iov_count != 1 || attr->offset ||
	    (uintptr_t)iov->iov_base + iov->iov_len < (uintptr_t)iov->iov_base)
		return -FI_EINVAL;
	return 0;
}

/* Peers reach only memory with remote access. */
static int watch_mr(struct pn_fi_mr *mr)
{
	if (!(mr->access & (FI_REMOTE_READ | FI_REMOTE_WRITE)) || !mr->len)
		return 0;
	return pn_watched_range_add(mr->base, mr->len, &mr->range);
}

static int reg_attr(struct fid *fid, const struct fi_mr_attr *attr,
		    uint64_t flags, struct fid_mr **out)
{
	struct pn_fi_mr *mr;
	int ret;

	if (fid->fclass != FI_CLASS_DOMAIN || !attr)
		return -FI_EINVAL;
	ret = validate(attr, flags);
	if (ret)
		return ret;
	mr = calloc(1, sizeof(*mr));
	if (!mr)
		return -FI_ENOMEM;
	mr->domain = pn_container_of(fid, struct pn_fi_domain, fid.fid);
	mr->base = attr->mr_iov->iov_base;
	mr->len = attr->mr_iov->iov_len;
	mr->access = attr->access;
	mr->fid.fid.fclass = FI_CLASS_MR;
	mr->fid.fid.context = attr->context;
	mr->fid.fid.ops = &mr_fid_ops;
	mr->fid.mem_desc = mr;
	pn_list_init(&mr->exposures);
	ret = watch_mr(mr);
	if (ret)
		goto free_mr;
	pn_fi_lock(mr->domain);
	ret = insert_mr(mr, attr->requested_key);
	pn_fi_unlock(mr->domain);
	if (ret)
		goto unwatch;
	atomic_fetch_add(&mr->domain->refs, 1);
	*out = &mr->fid;
	return 0;

unwatch:
	pn_watched_range_remove(mr->range);
free_mr:
	free(mr);
	return ret;
}

static int reg_vector(struct fid *fid, const struct iovec *iov, size_t count,
		      uint64_t access, uint64_t offset, uint64_t key,
		      uint64_t flags, struct fid_mr **out, void *context)
{
	struct fi_mr_attr attr = { .mr_iov = iov,
				   .iov_count = count,
				   .access = access,
				   .offset = offset,
				   .requested_key = key,
				   .context = context };

	return reg_attr(fid, &attr, flags, out);
}

static int reg(struct fid *fid, const void *buf, size_t len, uint64_t access,
	       uint64_t offset, uint64_t key, uint64_t flags,
	       struct fid_mr **out, void *context)
{
	struct iovec iov = { (void *)(uintptr_t)buf, len };

	return reg_vector(fid, &iov, 1, access, offset, key, flags, out,
			  context);
}

struct fi_ops_mr pn_fi_mr_ops = {
	.size = sizeof(struct fi_ops_mr),
	.reg = reg,
	.regv = reg_vector,
	.regattr = reg_attr,
};
