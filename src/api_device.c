/* SPDX-License-Identifier: BSD-2-Clause */
/* The public calls of pinion/device.h: the device, and explicit registrations.
 */
#include <pinion/device.h>

#include <errno.h>
#include <stdlib.h>

#include "base/cancel.h"
#include "base/sized.h"
#include "context.h"

struct pinion_registration {
	struct pn_mr mr;
	struct pinion_context *context;
	struct pn_list link; /* in context->registrations */
};

/* Explicit registrations are charged to the budget, too. */
static int register_memory(struct pinion_context *context, struct pn_mr *mr)
{
	int ret = pn_device_check_mr(context->device, mr);

	if (!ret && mr->access & ~(unsigned)PINION_ACCESS_ALL)
		ret = -EINVAL;
	if (!ret)
		ret = pn_cache_register(context->cache, mr);
	return ret == -ENOBUFS ? -ENOMEM : ret;
}

static void end_registration(struct pinion_registration *reg)
{
	pn_cache_deregister(reg->context->cache, &reg->mr);
	free(reg);
}

void pn_context_free_registrations(struct pinion_context *context)
	PN_NO_THREAD_SAFETY
{
	struct pn_list *entry;

	while ((entry = pn_list_pop(&context->registrations)))
		end_registration(pn_container_of(entry,
						 struct pinion_registration,
						 link));
}

int pinion_device_query(struct pinion_context *context,
			struct pinion_device_info *info)
{
	PN_NO_CANCEL();
	struct pinion_device_info full;
	const struct pn_device *device;
	struct pn_pinned pinned;

	if (!pn_context_usable(context) || !info || !info->size)
		return -EINVAL;
	device = context->device;
	pn_device_pinned(context->device, &pinned);
	full = (struct pinion_device_info){
		.kind = device->ops->kind,
		.profile = device->profile,
		.emulated = device->emulated,
		.pins = !!(device->caps & PN_CAP_PINS),
		.max_registration_bytes = device->limits.max_mr_bytes,
		.max_registrations = device->limits.max_mrs,
		.max_pinned_bytes = device->limits.max_pinned_bytes,
		.pinned_bytes = pinned.live_bytes,
		.dying_bytes = pinned.deferred_bytes,
		.registrations = pinned.mrs,
	};
	pn_sized_answer(info, &full, sizeof(full));
	return 0;
}

int pinion_device_register(struct pinion_context *context, void *addr,
			   size_t len, unsigned access,
			   struct pinion_registration **out)
{
	PN_NO_CANCEL();
	struct pinion_registration *reg;
	int ret;

	if (!pn_context_usable(context) || !out)
		return -EINVAL;
	reg = calloc(1, sizeof(*reg));
	if (!reg)
		return -ENOMEM;
	reg->context = context;
	reg->mr = (struct pn_mr){ .addr = addr, .len = len, .access = access };
	ret = register_memory(context, &reg->mr);
	if (ret) {
		free(reg);
		return ret;
	}
	pn_lock(&context->lock);
	pn_list_append(&context->registrations, &reg->link);
	pn_unlock(&context->lock);
	*out = reg;
	return 0;
}

void pinion_device_deregister(struct pinion_registration *reg)
{
	PN_NO_CANCEL();
	if (!reg)
		return;
	/* The registration belongs to the parent, whose lock may be held. */
	if (pn_context_foreign(reg->context)) {
		if (!pn_process_is_unusable())
			free(reg);
		return;
	}
	pn_lock(&reg->context->lock);
	pn_list_remove(&reg->link);
	pn_unlock(&reg->context->lock);
	end_registration(reg);
}

int pinion_registration_query(const struct pinion_registration *reg,
			      struct pinion_registration_info *info)
{
	struct pinion_registration_info full;

	if (!reg || !info || !info->size)
		return -EINVAL;
	full = (struct pinion_registration_info){
		.addr = reg->mr.addr,
		.len = reg->mr.len,
		.access = reg->mr.access,
		.local_key = reg->mr.lkey,
		.remote_key = reg->mr.rkey,
		.handle = reg->mr.handle,
	};
	pn_sized_answer(info, &full, sizeof(full));
	return 0;
}
