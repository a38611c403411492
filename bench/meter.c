/* SPDX-License-Identifier: BSD-2-Clause */
#include "bench/meter.h"

#include <errno.h>
#include <stdlib.h>

#include "base/lock.h"
#include "base/range.h"

/* Of all meters: held for some instructions. */
static struct pn_mutex lock = { PTHREAD_MUTEX_INITIALIZER };

/* A copy of the device's operations with two replaced. */
struct metered_ops {
	struct pn_device_ops ops;
	const struct pn_device_ops *inner;
	struct pn_meter *meter;
};

static struct metered_ops *metered_of(struct pn_device *device)
{
	return (struct metered_ops *)device->ops;
}

static size_t bytes_of(struct pn_mr *const *mrs, unsigned n)
{
	size_t npages = 0;

	for (unsigned i = 0; i < n; i++)
		npages += pn_range_npages((uintptr_t)mrs[i]->addr, mrs[i]->len);
	return npages << PN_PAGE_SHIFT;
}

/* A task that owes time is ahead of the others, so the clock may go back. */
static void settle(struct pn_meter *meter, uint64_t now_ns)
{
	if (now_ns <= meter->since_ns)
		return;
	meter->byte_ns +=
		(double)meter->bytes * (double)(now_ns - meter->since_ns);
	meter->since_ns = now_ns;
	pn_series_add(&meter->series, (double)meter->bytes, now_ns);
}

static void notify(const struct pn_meter *meter)
{
	if (meter->changed)
		meter->changed(meter->arg, meter->since_ns - meter->start_ns,
			       meter->bytes);
}

static void more(struct pn_meter *meter, uint64_t now_ns, size_t bytes)
{
	pn_lock(&lock);
	for (; meter; meter = meter->into) {
		settle(meter, now_ns);
		meter->bytes += bytes;
		if (meter->bytes > meter->metered.peak_bytes)
			meter->metered.peak_bytes = meter->bytes;
		notify(meter);
	}
	pn_unlock(&lock);
}

static void less(struct pn_meter *meter, uint64_t now_ns, size_t bytes)
{
	pn_lock(&lock);
	for (; meter; meter = meter->into) {
		settle(meter, now_ns);
		meter->bytes -= bytes;
		notify(meter);
	}
	pn_unlock(&lock);
}

static int metered_register(struct pn_device *device, struct pn_mr *const *mrs,
			    unsigned n)
{
	struct metered_ops *m = metered_of(device);
	size_t bytes = bytes_of(mrs, n);
	int ret;

	more(m->meter, pn_device_now(device), bytes);
	ret = m->inner->reg(device, mrs, n);
	if (ret)
		less(m->meter, pn_device_now(device), bytes);
	return ret;
}

static void metered_deregister(struct pn_device *device,
			       struct pn_mr *const *mrs, unsigned n)
{
	struct metered_ops *m = metered_of(device);
	size_t bytes = bytes_of(mrs, n);

	m->inner->dereg(device, mrs, n);
	less(m->meter, pn_device_now(device), bytes);
}

int pn_meter_attach(struct pn_meter *meter, struct pn_device *device)
{
	struct metered_ops *m = malloc(sizeof(*m));

	if (!m)
		return -ENOMEM;
	m->ops = *device->ops;
	m->inner = device->ops;
	m->meter = meter;
	m->ops.reg = metered_register;
	m->ops.dereg = metered_deregister;
	device->ops = &m->ops;
	return 0;
}

void pn_meter_detach(struct pn_device *device)
{
	struct metered_ops *m = metered_of(device);

	device->ops = m->inner;
	free(m);
}

void pn_meter_start(struct pn_meter *meter, uint64_t now_ns)
{
	pn_lock(&lock);
	*meter = (struct pn_meter){ .start_ns = now_ns,
				    .since_ns = now_ns,
				    .into = meter->into,
				    .changed = meter->changed,
				    .arg = meter->arg };
	pn_series_start(&meter->series, now_ns);
	pn_unlock(&lock);
}

void pn_meter_stop(struct pn_meter *meter, uint64_t now_ns)
{
	pn_lock(&lock);
	settle(meter, now_ns);
	if (now_ns > meter->start_ns)
		meter->metered.mean_bytes =
			meter->byte_ns / (double)(now_ns - meter->start_ns);
	pn_unlock(&lock);
}
