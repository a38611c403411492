/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/registrar/registrar.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/range.h"
#include "base/sized.h"
#include "device/cost_estimate.h"
#include "device/own_registration.h"

/* The limit of ranges in one call. */
#define MAX_BATCH_RANGES 64

#define ALL_FLAGS ((uint64_t)PINION_REGISTRAR_READ_ONLY)

struct registrar {
	struct pn_device device;
	struct pinion_registrar attr;
	unsigned max_batch;
	bool estimates_costs;
	struct pn_cost_estimate reg, dereg;
	_Atomic size_t live_bytes, nmrs;
};

/* One call of a function. */
struct call {
	struct pinion_registrar_range ranges[MAX_BATCH_RANGES];
	struct pinion_registrar_range *list[MAX_BATCH_RANGES];
	unsigned n;
	size_t npages;
};

static struct registrar *registrar_of(struct pn_device *device)
{
	return pn_container_of(device, struct registrar, device);
}

static size_t pages_of(const struct pn_mr *mr)
{
	return pn_range_npages((uintptr_t)mr->addr, mr->len);
}

/* --- calls of the program's functions ------------------------------------- */

static void prepare(struct call *call, struct pn_mr *const *mrs, unsigned n)
{
	call->n = n;
	call->npages = 0;
	for (unsigned i = 0; i < n; i++) {
		const struct pn_mr *mr = mrs[i];

		call->ranges[i] = (struct pinion_registrar_range){
			.addr = mr->addr,
			.len = mr->len,
			.access = mr->access,
			.handle = mr->handle,
			.local_key = mr->lkey,
			.remote_key = mr->rkey,
		};
		call->list[i] = &call->ranges[i];
		call->npages += pages_of(mr);
	}
}

/* Replaces return values that are not allowed. -EINPROGRESS has another meaning
 * for pins. */
static int checked_status(int ret)
{
	return ret > 0 || ret == -EINPROGRESS ? -EIO : ret;
}

static int call_register(struct registrar *r, struct pn_mr *const *mrs,
			 unsigned n)
{
	struct call call;
	bool timed = r->estimates_costs && pn_cost_estimate_wants(&r->reg);
	uint64_t start = timed ? pn_clock_ns() : 0;
	int ret;

	prepare(&call, mrs, n);
	pn_own_registration_begin();
	ret = checked_status(
		r->attr.register_ranges(r->attr.arg, call.list, n));
	pn_own_registration_end();
	if (ret)
		return ret;
	if (timed)
		pn_cost_estimate_add(&r->reg, n, call.npages,
				     pn_clock_ns() - start);
	for (unsigned i = 0; i < n; i++) {
		mrs[i]->handle = call.ranges[i].handle;
		mrs[i]->lkey = call.ranges[i].local_key;
		mrs[i]->rkey = call.ranges[i].remote_key;
		mrs[i]->device_slot =
			1; /* registered; see registrar_still_registered() */
	}
	return 0;
}

/* A deregister function that fails and marks no range means all of them. */
static bool marks_any(const struct call *call)
{
	for (unsigned i = 0; i < call->n; i++)
		if (call->ranges[i].status)
			return true;
	return false;
}

static void call_deregister(struct registrar *r, struct pn_mr *const *mrs,
			    unsigned n)
{
	struct call call;
	bool timed = r->estimates_costs && pn_cost_estimate_wants(&r->dereg);
	uint64_t start = timed ? pn_clock_ns() : 0;
	bool all;
	int ret;

	prepare(&call, mrs, n);
	pn_own_registration_begin();
	ret = checked_status(
		r->attr.deregister_ranges(r->attr.arg, call.list, n));
	pn_own_registration_end();
	if (!ret && timed)
		pn_cost_estimate_add(&r->dereg, n, call.npages,
				     pn_clock_ns() - start);
	all = ret && !marks_any(&call);
	for (unsigned i = 0; i < n; i++) {
		if (ret && (all || call.ranges[i].status))
			continue;
		mrs[i]->device_slot = 0;
		atomic_fetch_sub(&r->live_bytes, pages_of(mrs[i])
							 << PN_PAGE_SHIFT);
		atomic_fetch_sub(&r->nmrs, 1);
	}
}

/* --- limits --------------------------------------------------------------- */

static bool charge(_Atomic size_t *used, size_t n, size_t max)
{
	size_t now = atomic_load(used);

	do {
		if (now > max || n > max - now)
			return false;
	} while (!atomic_compare_exchange_weak(used, &now, now + n));
	return true;
}

static size_t bytes_of(struct pn_mr *const *mrs, unsigned n)
{
	size_t npages = 0;

	for (unsigned i = 0; i < n; i++)
		npages += pages_of(mrs[i]);
	return npages << PN_PAGE_SHIFT;
}

/* Charges ranges before they are registered, so that two threads together stay
 * within the limits. */
static int charge_limits(struct registrar *r, size_t bytes, unsigned n)
{
	const struct pn_device_limits *limits = &r->device.limits;

	if (!charge(&r->live_bytes, bytes, limits->max_pinned_bytes))
		return -ENOMEM;
	if (charge(&r->nmrs, n, limits->max_mrs))
		return 0;
	atomic_fetch_sub(&r->live_bytes, bytes);
	return -ENOMEM;
}

static void uncharge_limits(struct registrar *r, size_t bytes, unsigned n)
{
	atomic_fetch_sub(&r->live_bytes, bytes);
	atomic_fetch_sub(&r->nmrs, n);
}

/* --- registrations -------------------------------------------------------- */

static unsigned smaller(unsigned a, unsigned b)
{
	return a < b ? a : b;
}

static void registrar_dereg(struct pn_device *device, struct pn_mr *const *mrs,
			    unsigned n)
{
	struct registrar *r = registrar_of(device);

	for (unsigned i = 0; i < n; i += r->max_batch)
		call_deregister(r, mrs + i, smaller(n - i, r->max_batch));
}

static int registrar_reg(struct pn_device *device, struct pn_mr *const *mrs,
			 unsigned n)
{
	struct registrar *r = registrar_of(device);
	int ret = charge_limits(r, bytes_of(mrs, n), n);
	unsigned done = 0;

	if (ret)
		return ret;
	while (done < n) {
		unsigned more = smaller(n - done, r->max_batch);

		ret = call_register(r, mrs + done, more);
		if (ret)
			break;
		done += more;
	}
	if (!ret)
		return 0;
	uncharge_limits(r, bytes_of(mrs + done, n - done), n - done);
	registrar_dereg(device, mrs, done);
	return ret;
}

static bool registrar_still_registered(const struct pn_mr *mr)
{
	return mr->device_slot;
}

static int registrar_rekey(struct pn_device *device, struct pn_mr *mr)
{
	(void)device, (void)mr;
	return -EOPNOTSUPP;
}

static void registrar_pinned(struct pn_device *device, struct pn_pinned *out)
{
	struct registrar *r = registrar_of(device);

	*out = (struct pn_pinned){ .live_bytes = atomic_load(&r->live_bytes),
				   .mrs = atomic_load(&r->nmrs) };
}

/* --- operations that a registrar does not have ---------------------------- */

static int refuse_open(const char *params, const struct pn_device_attr *attr,
		       struct pn_device **out)
{
	(void)params, (void)attr, (void)out;
	return -EOPNOTSUPP;
}

static void no_address(struct pn_device *device, struct pn_address *out)
{
	(void)device;
	*out = (struct pn_address){ .len = 0 };
}

static int refuse_attach(struct pn_device *device,
			 const struct pn_address *address, struct pn_peer **out)
{
	(void)device, (void)address, (void)out;
	return -EOPNOTSUPP;
}

static int refuse_post(struct pn_device *device, struct pn_peer *peer,
		       const struct pn_op *op)
{
	(void)device, (void)peer, (void)op;
	return -EOPNOTSUPP;
}

static int poll_nothing(struct pn_device *device, struct pn_completion *out,
			unsigned max)
{
	(void)device, (void)out, (void)max;
	return 0;
}

static void return_nothing(struct pn_device *device,
			   const struct pn_completion *completion)
{
	(void)device, (void)completion;
}

static int refuse_wait(struct pn_device *device, uint64_t deadline_ns)
{
	(void)device, (void)deadline_ns;
	return -EOPNOTSUPP;
}

static void wake_nobody(struct pn_device *device)
{
	(void)device;
}

static int refuse(struct pn_device *device)
{
	(void)device;
	return -EOPNOTSUPP;
}

/* --- opening and closing -------------------------------------------------- */

static uint64_t registrar_now(struct pn_device *device)
{
	(void)device;
	return pn_clock_ns();
}

static void registrar_describe(struct pn_device *device, pn_fact_fn *fn,
			       void *arg)
{
	struct registrar *r = registrar_of(device);
	char text[96];

	fn(arg, "registers by", "functions of the program");
	snprintf(text, sizeof(text), "%u ranges in a call", r->max_batch);
	fn(arg, "batches", text);
	fn(arg, "costs",
	   r->estimates_costs ? "learned from the calls" : "given");
	fn(arg, "messages", "none: they need a device");
}

static void registrar_close(struct pn_device *device)
{
	struct registrar *r = registrar_of(device);

	pn_cost_estimate_fini(&r->reg);
	pn_cost_estimate_fini(&r->dereg);
	free(r);
}

static const struct pn_device_ops registrar_ops = {
	.kind = "registrar",
	.help = "functions of the program (pinion/registrar.h)",
	.open = refuse_open,
	.close = registrar_close,
	.describe = registrar_describe,
	.reg = registrar_reg,
	.dereg = registrar_dereg,
	.still_registered = registrar_still_registered,
	.rekey = registrar_rekey,
	.pinned = registrar_pinned,
	.address = no_address,
	.attach = refuse_attach,
	.post = refuse_post,
	.poll = poll_nothing,
	.return_buffer = return_nothing,
	.wait = refuse_wait,
	.wake = wake_nobody,
	.fd = refuse,
	.arm = refuse,
	.now = registrar_now,
};

bool pn_device_is_registrar(const struct pn_device *device)
{
	return device->ops == &registrar_ops;
}

/* NaN is refused, too. */
static bool costs_ok(const struct pinion_registrar *attr)
{
	return attr->register_ns >= 0 && attr->register_page_ns >= 0 &&
	       attr->deregister_ns >= 0 && attr->deregister_page_ns >= 0;
}

static int validate(const struct pinion_registrar *attr,
		    struct pinion_registrar *out)
{
	const char *what = NULL;
	int ret = pn_sized_copy(out, sizeof(*out), attr);

	if (ret == -E2BIG)
		what = "sets fields that this version of pinion does not know";
	else if (ret)
		what = "has no size";
	else if (!out->register_ranges || !out->deregister_ranges)
		what = "needs both functions";
	else if (out->flags & ~ALL_FLAGS)
		what = "has unknown flags";
	else if (out->reserved)
		what = "sets a reserved field";
	else if (!costs_ok(out))
		what = "has a cost below zero";
	if (!what)
		return 0;
	pn_error("pinion_open: the registrar %s", what);
	return ret ? ret : -EINVAL;
}

static size_t or_unlimited(size_t limit)
{
	return limit ? limit : SIZE_MAX;
}

static void fill_device(struct registrar *r)
{
	const struct pinion_registrar *attr = &r->attr;
	struct pn_device *device = &r->device;

	device->ops = &registrar_ops;
	device->caps = PN_CAP_PINS | PN_CAP_ONE_SEGMENT;
	if (attr->flags & PINION_REGISTRAR_READ_ONLY)
		device->caps |= PN_CAP_READ_ONLY;
	device->limits = (struct pn_device_limits){
		.max_mr_bytes = or_unlimited(attr->max_registration_bytes),
		.max_mrs = or_unlimited(attr->max_registrations),
		.max_pinned_bytes = or_unlimited(attr->max_pinned_bytes),
	};
	device->costs = (struct pn_costs){
		.register_ns = attr->register_ns,
		.register_page_ns = attr->register_page_ns,
		.deregister_ns = attr->deregister_ns,
		.deregister_page_ns = attr->deregister_page_ns,
	};
	device->profile = "none";
	r->estimates_costs =
		attr->register_ns == 0 && attr->register_page_ns == 0 &&
		attr->deregister_ns == 0 && attr->deregister_page_ns == 0;
	r->max_batch = MAX_BATCH_RANGES;
	if (attr->max_batch)
		r->max_batch = smaller(attr->max_batch, MAX_BATCH_RANGES);
}

int pn_registrar_open(const struct pinion_registrar *attr,
		      struct pn_device **out)
{
	struct pinion_registrar own;
	struct registrar *r;
	int ret = validate(attr, &own);

	if (ret)
		return ret;
	r = calloc(1, sizeof(*r));
	if (!r)
		return -ENOMEM;
	r->attr = own;
	fill_device(r);
	pn_cost_estimate_init(&r->reg, &r->device.costs.register_ns,
			      &r->device.costs.register_page_ns);
	pn_cost_estimate_init(&r->dereg, &r->device.costs.deregister_ns,
			      &r->device.costs.deregister_page_ns);
	*out = &r->device;
	return 0;
}
