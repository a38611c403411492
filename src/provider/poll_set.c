/* SPDX-License-Identifier: BSD-2-Clause */
/* Poll sets: CQs and counters that are polled together. A counter is ready if
 * it changed since the last poll. */
#include <stdlib.h>

#include "provider/provider.h"

struct set {
	struct fid_poll fid;
	struct pn_fi_domain *domain;
	struct pn_list members;
};

struct member {
	struct pn_list link;
	struct fid *fid;
	struct pn_fi_cq *cq;
	unsigned *refs;		       /* of the CQ or counter */
	struct pn_fi_counter *counter; /* or NULL */
	uint64_t seen;
};

static struct set *set_of(struct fid_poll *fid)
{
	return pn_container_of(fid, struct set, fid);
}

static uint64_t changes(const struct pn_fi_counter *counter)
{
	return atomic_load(&counter->value) + atomic_load(&counter->errors);
}

static bool has_something(struct member *m)
{
	uint64_t now;

	if (!m->counter)
		return pn_fi_cq_progress(m->cq);
	pn_fi_counter_progress(m->counter);
	now = changes(m->counter);
	if (now == m->seen)
		return false;
	m->seen = now;
	return true;
}

static int poll_members(struct fid_poll *fid, void **context, int count)
{
	struct set *set = set_of(fid);
	struct pn_list *pos;
	int n = 0;

	pn_fi_lock(set->domain);
	pn_list_for_each (pos, &set->members) {
		struct member *m = pn_container_of(pos, struct member, link);

		if (n < count && has_something(m))
			context[n++] = m->fid->context;
	}
	pn_fi_unlock(set->domain);
	return n;
}

static int fill(struct member *m, struct fid *fid)
{
	m->fid = fid;
	if (fid->fclass == FI_CLASS_CQ) {
		m->cq = pn_container_of(fid, struct pn_fi_cq, fid.fid);
		m->refs = &m->cq->refs;
		return 0;
	}
	if (fid->fclass != FI_CLASS_CNTR)
		return -FI_EINVAL;
	m->counter = pn_container_of(fid, struct pn_fi_counter, fid.fid);
	m->cq = m->counter->cq;
	m->refs = &m->counter->refs;
	m->seen = changes(m->counter);
	return 0;
}

static int add(struct fid_poll *fid, struct fid *event_fid, uint64_t flags)
{
	struct set *set = set_of(fid);
	struct member *m;
	int ret;

	if (flags)
		return -FI_EBADFLAGS;
	m = calloc(1, sizeof(*m));
	if (!m)
		return -FI_ENOMEM;
	ret = fill(m, event_fid);
	if (!ret && m->cq->domain != set->domain)
		ret = -FI_EINVAL;
	if (ret) {
		free(m);
		return ret;
	}
	pn_fi_lock(set->domain);
	++*m->refs;
	pn_list_append(&set->members, &m->link);
	pn_fi_unlock(set->domain);
	return 0;
}

/* Under the lock. */
static void remove_member(struct member *m)
{
	pn_list_remove(&m->link);
	--*m->refs;
	free(m);
}

static int del(struct fid_poll *fid, struct fid *event_fid, uint64_t flags)
{
	struct set *set = set_of(fid);
	struct pn_list *pos, *next;
	int ret = -FI_EINVAL;

	if (flags)
		return -FI_EBADFLAGS;
	pn_fi_lock(set->domain);
	pn_list_for_each_safe (pos, next, &set->members) {
		struct member *m = pn_container_of(pos, struct member, link);

		if (m->fid != event_fid)
			continue;
		remove_member(m);
		ret = 0;
	}
	pn_fi_unlock(set->domain);
	return ret;
}

static int close_set(struct fid *fid)
{
	struct set *set = pn_container_of(fid, struct set, fid.fid);

	pn_fi_lock(set->domain);
	while (!pn_list_empty(&set->members))
		remove_member(pn_container_of(set->members.next, struct member,
					      link));
	pn_fi_unlock(set->domain);
	atomic_fetch_sub(&set->domain->refs, 1);
	free(set);
	return 0;
}

static struct fi_ops set_fid_ops = {
	.size = sizeof(struct fi_ops),
	.close = close_set,
	.bind = pn_fi_no_bind,
	.control = pn_fi_no_control,
	.ops_open = pn_fi_no_ops,
};

static struct fi_ops_poll set_ops = {
	.size = sizeof(struct fi_ops_poll),
	.poll = poll_members,
	.poll_add = add,
	.poll_del = del,
};

int pn_fi_poll_open(struct fid_domain *domain, struct fi_poll_attr *attr,
		    struct fid_poll **out)
{
	struct set *set;

	if (attr && attr->flags)
		return -FI_EBADFLAGS;
	set = calloc(1, sizeof(*set));
	if (!set)
		return -FI_ENOMEM;
	set->domain = pn_container_of(domain, struct pn_fi_domain, fid);
	atomic_fetch_add(&set->domain->refs, 1);
	pn_list_init(&set->members);
	set->fid.fid.fclass = FI_CLASS_POLL;
	set->fid.fid.ops = &set_fid_ops;
	set->fid.ops = &set_ops;
	*out = &set->fid;
	return 0;
}
