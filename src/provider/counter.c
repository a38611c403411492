/* SPDX-License-Identifier: BSD-2-Clause */
/* Counters. Each has a CQ of its own that stays empty: it serves progress and
 * waiting. An endpoint that has a counter but no CQ discards its entries there.
 */
#include <stdlib.h>

#include "provider/onesided.h"

/* The flags of fi_ep_bind() for each event. */
static const uint64_t event_flags[PN_FI_EVENTS] = {
	FI_SEND, FI_RECV, FI_READ, FI_WRITE, FI_REMOTE_READ, FI_REMOTE_WRITE,
};

static struct pn_fi_counter *counter_of(struct fid_cntr *fid)
{
	return pn_container_of(fid, struct pn_fi_counter, fid);
}

/* --- counting ------------------------------------------------------------- */

static void notify_changed(struct pn_fi_counter *counter)
{
	if (counter->cq->armed)
		pn_fi_cq_wake(counter->cq);
}

void pn_fi_counter_add(struct pn_fi_counter *counter, int status)
{
	atomic_fetch_add(status ? &counter->errors : &counter->value, 1);
	notify_changed(counter);
}

void pn_fi_counter_progress(struct pn_fi_counter *counter)
{
	struct pn_list *pos, *responding = &counter->cq->domain->responding;

	pn_fi_cq_progress(counter->cq);
	if (!counter->regions)
		return;
	pn_list_for_each (pos, responding) {
		pn_fi_ep_progress(
			pn_container_of(pos, struct pn_fi_ep, responding));
	}
}

static uint64_t read_one(struct pn_fi_counter *counter,
			 const atomic_uint_fast64_t *what, uint64_t *seen)
{
	uint64_t now;

	pn_fi_lock(counter->cq->domain);
	pn_fi_counter_progress(counter);
	now = *seen = atomic_load(what);
	pn_fi_unlock(counter->cq->domain);
	return now;
}

static uint64_t read_value(struct fid_cntr *fid)
{
	struct pn_fi_counter *counter = counter_of(fid);

	return read_one(counter, &counter->value, &counter->seen_value);
}

static uint64_t read_errors(struct fid_cntr *fid)
{
	struct pn_fi_counter *counter = counter_of(fid);

	return read_one(counter, &counter->errors, &counter->seen_errors);
}

static int change(struct fid_cntr *fid, atomic_uint_fast64_t *what,
		  uint64_t value, bool add)
{
	struct pn_fi_counter *counter = counter_of(fid);

	pn_fi_lock(counter->cq->domain);
	atomic_store(what, value + (add ? atomic_load(what) : 0));
	notify_changed(counter);
	pn_fi_unlock(counter->cq->domain);
	return 0;
}

static int add(struct fid_cntr *fid, uint64_t value)
{
	return change(fid, &counter_of(fid)->value, value, true);
}

static int add_error(struct fid_cntr *fid, uint64_t value)
{
	return change(fid, &counter_of(fid)->errors, value, true);
}

static int set(struct fid_cntr *fid, uint64_t value)
{
	return change(fid, &counter_of(fid)->value, value, false);
}

static int set_error(struct fid_cntr *fid, uint64_t value)
{
	return change(fid, &counter_of(fid)->errors, value, false);
}

/* --- waiting -------------------------------------------------------------- */

/* Writes to bound regions arrive at endpoints that the wait object does not
 * know. */
static bool may_sleep(const struct pn_fi_counter *counter)
{
	return counter->cq->epoll >= 0 && !counter->regions;
}

int pn_fi_counter_trywait(struct pn_fi_counter *counter)
{
	uint64_t value, errors;
	bool changed_since;
	int ret;

	ret = pn_fi_cq_trywait(counter->cq);
	if (ret == -FI_EINVAL)
		return ret;
	pn_fi_lock(counter->cq->domain);
	value = atomic_load(&counter->value);
	errors = atomic_load(&counter->errors);
	changed_since =
		value != counter->seen_value || errors != counter->seen_errors;
	counter->seen_value = value;
	counter->seen_errors = errors;
	pn_fi_unlock(counter->cq->domain);
	return changed_since || !may_sleep(counter) ? -FI_EAGAIN : ret;
}

/* Status of a wait that began with `errors`. -FI_EAGAIN: it goes on. */
static int wait_status(const struct pn_fi_counter *counter, uint64_t threshold,
		       uint64_t errors)
{
	if (atomic_load(&counter->value) >= threshold)
		return 0;
	return atomic_load(&counter->errors) != errors ? -FI_EAVAIL
						       : -FI_EAGAIN;
}

/* The condition is checked under the lock that arming takes: a later change
 * wakes the thread. Programs with FI_WAIT_NONE come here, too, although they
 * should not. */
static int wait_for(struct fid_cntr *fid, uint64_t threshold, int timeout)
{
	struct pn_fi_counter *counter = counter_of(fid);
	uint64_t errors = atomic_load(&counter->errors);
	int64_t deadline = pn_fi_deadline_ms(timeout);
	bool is_armed = false;
	int ret;

	do {
		pn_fi_lock(counter->cq->domain);
		pn_fi_counter_progress(counter);
		ret = wait_status(counter, threshold, errors);
		if (ret == -FI_EAGAIN)
			is_armed = may_sleep(counter) &&
				   pn_fi_cq_sleep_begin(counter->cq);
		pn_fi_unlock(counter->cq->domain);
		if (ret != -FI_EAGAIN)
			return ret;
	} while (pn_fi_cq_sleep(counter->cq, is_armed, deadline));
	return -FI_ETIMEDOUT;
}

/* --- binding -------------------------------------------------------------- */

/* An endpoint is listed once, whatever the number of its events. */
static bool is_member(const struct pn_fi_counter *counter,
		      const struct pn_fi_ep *ep)
{
	for (int e = 0; e < PN_FI_EVENTS; e++)
		if (ep->events[e].counter == counter)
			return true;
	return false;
}

int pn_fi_counter_bind(struct pn_fi_ep *ep, struct pn_fi_counter *counter,
		       uint64_t flags)
{
	uint64_t known = 0;
	int ret = 0;

	if (counter->cq->domain != ep->domain || !flags)
		return -FI_EINVAL;
	for (int e = 0; e < PN_FI_EVENTS; e++) {
		known |= event_flags[e];
		if (flags & event_flags[e] && ep->events[e].counter)
			return -FI_EINVAL;
	}
	if (flags & ~known)
		return -FI_EBADFLAGS;
	pn_fi_lock(ep->domain);
	/* The device does not count. */
	if (flags & (FI_REMOTE_READ | FI_REMOTE_WRITE))
		pn_fi_unexpose_ep(ep);
	for (int e = 0; e < PN_FI_EVENTS && !ret; e++) {
		if (!(flags & event_flags[e]))
			continue;
		if (!is_member(counter, ep)) {
			pn_list_append(&counter->cq->eps,
				       &ep->events[e].member.link);
			ret = pn_fi_cq_watch(counter->cq, ep);
		}
		ep->events[e].counter = counter;
		counter->refs++;
	}
	pn_fi_unlock(ep->domain);
	return ret;
}

void pn_fi_counters_unbind(struct pn_fi_ep *ep)
{
	for (int e = 0; e < PN_FI_EVENTS; e++) {
		struct pn_fi_counter *counter = ep->events[e].counter;

		if (!counter)
			continue;
		pn_list_remove(&ep->events[e].member.link);
		pn_fi_cq_unwatch(counter->cq, ep);
		counter->refs--;
	}
}

/* --- life ----------------------------------------------------------------- */

static int close_counter(struct fid *fid)
{
	struct pn_fi_counter *counter =
		pn_container_of(fid, struct pn_fi_counter, fid.fid);
	int ret = counter->refs || counter->regions
			  ? -FI_EBUSY
			  : fi_close(&counter->cq->fid.fid);

	if (!ret)
		free(counter);
	return ret;
}

static int control(struct fid *fid, int command, void *arg)
{
	struct pn_fi_counter *counter =
		pn_container_of(fid, struct pn_fi_counter, fid.fid);

	return fi_control(&counter->cq->fid.fid, command, arg);
}

static struct fi_ops counter_fid_ops = {
	.size = sizeof(struct fi_ops),
	.close = close_counter,
	.bind = pn_fi_no_bind,
	.control = control,
	.ops_open = pn_fi_no_ops,
};

static struct fi_ops_cntr counter_ops = {
	.size = sizeof(struct fi_ops_cntr),
	.read = read_value,
	.readerr = read_errors,
	.add = add,
	.set = set,
	.wait = wait_for,
	.adderr = add_error,
	.seterr = set_error,
};

int pn_fi_counter_open(struct fid_domain *domain, struct fi_cntr_attr *attr,
		       struct fid_cntr **out, void *context)
{
	struct fi_cq_attr cq_attr = { .wait_obj = FI_WAIT_UNSPEC };
	struct pn_fi_counter *counter;
	struct fid_cq *cq;
	int ret;

	if (attr && attr->flags)
		return -FI_EBADFLAGS;
	if (attr && attr->events != FI_CNTR_EVENTS_COMP)
		return -FI_ENOSYS;
	if (attr && attr->wait_obj != FI_WAIT_YIELD)
		cq_attr.wait_obj = attr->wait_obj;
	counter = calloc(1, sizeof(*counter));
	if (!counter)
		return -FI_ENOMEM;
	ret = pn_fi_cq_open(domain, &cq_attr, &cq, NULL);
	if (ret) {
		free(counter);
		return ret;
	}
	counter->cq = pn_container_of(cq, struct pn_fi_cq, fid);
	counter->cq->discards_entries = true;
	counter->fid.fid.fclass = FI_CLASS_CNTR;
	counter->fid.fid.context = context;
	counter->fid.fid.ops = &counter_fid_ops;
	counter->fid.ops = &counter_ops;
	*out = &counter->fid;
	return 0;
}
