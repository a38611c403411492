/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/device.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/range.h"
#include "device/sim/sim.h"
#include "device/soft/soft.h"

static const struct pn_device_ops *const kinds[] = {
	&pn_soft_ops,
	&pn_sim_ops,
};

const struct pn_device_ops *pn_device_kind(unsigned index)
{
	return index < PN_ARRAY_LEN(kinds) ? kinds[index] : NULL;
}

static const struct pn_device_ops *find_kind(const char *name, size_t len)
{
	for (size_t i = 0; i < PN_ARRAY_LEN(kinds); i++)
		if (!strncmp(kinds[i]->kind, name, len) && !kinds[i]->kind[len])
			return kinds[i];
	return NULL;
}

int pn_device_open(const char *spec, const struct pn_device_attr *attr,
		   struct pn_device **out)
{
	static const struct pn_device_attr defaults = {
		.pages = { .numa_node = -1 },
	};
	size_t len = strcspn(spec, ":");
	const struct pn_device_ops *ops = find_kind(spec, len);

	if (!ops) {
		pn_error("no device '%.64s'; `pinion info` lists those there "
			 "are",
			 spec);
		return -ENODEV;
	}
	return ops->open(spec[len] ? spec + len + 1 : "",
			 attr ? attr : &defaults, out);
}

void pn_device_close(struct pn_device *device)
{
	if (device)
		device->ops->close(device);
}

int pn_device_check_mr(const struct pn_device *device, const struct pn_mr *mr)
{
	if (!pn_range_valid((uintptr_t)mr->addr, mr->len) ||
	    mr->len > device->limits.max_mr_bytes ||
	    (mr->access & ~(unsigned)PINION_ACCESS_ALL))
		return -EINVAL;
	return 0;
}

int pn_device_register(struct pn_device *device, struct pn_mr *const *mrs,
		       unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		int ret = pn_device_check_mr(device, mrs[i]);

		if (ret)
			return ret;
	}
	for (unsigned i = 0; i < n; i++) {
		if (mrs[i]->access &
		    (PINION_ACCESS_REMOTE_WRITE | PINION_ACCESS_REMOTE_ATOMIC))
			mrs[i]->access |= PINION_ACCESS_LOCAL_WRITE;
		mrs[i]->lkey = mrs[i]->rkey = 0;
		mrs[i]->device_slot = 0;
		mrs[i]->device_data = NULL;
	}
	return device->ops->reg(device, mrs, n);
}

void pn_device_block_until(struct pn_device *device, _Atomic uint32_t *word,
			   uint32_t value, uint64_t deadline_ns)
{
	struct timespec ts;
	uint64_t now;

	if (device->ops->block) {
		device->ops->block(device, word, value, deadline_ns);
		return;
	}
	now = deadline_ns == PN_FOREVER ? 0 : pn_device_now(device);
	if (deadline_ns <= now)
		return;
	ts = (struct timespec){
		.tv_sec = (time_t)((deadline_ns - now) / PN_NS_PER_S),
		.tv_nsec = (long)((deadline_ns - now) % PN_NS_PER_S),
	};
	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value,
		deadline_ns == PN_FOREVER ? NULL : &ts, NULL, 0);
}

void pn_device_unblock(struct pn_device *device, _Atomic uint32_t *word)
{
	if (device->ops->unblock)
		device->ops->unblock(device, word);
	else
		syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL,
			NULL, 0);
}
