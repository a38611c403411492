/* SPDX-License-Identifier: BSD-2-Clause */
/* The public calls: validate, then pass on to the layer that does it. */
#include <pinion/pinion.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "context.h"
#include "revision.h"

struct pinion_registration {
	struct pn_mr mr;
	struct pinion_context *context;
	struct pn_list link; /* in context->registrations */
};

static int open_device(struct pinion_context *context)
{
	const struct pn_config *config = &context->config;
	struct pn_device_attr attr = {
		.pages = { .huge = (enum pn_pages_huge)config->huge_pages,
			   .numa_node = -1 },
	};

	if (config->numa_node != PN_CONFIG_ANY_NODE)
		attr.pages.numa_node = (int)config->numa_node;
	return pn_device_open(config->device, &attr, &context->device);
}

int pinion_open(const struct pinion_attr *attr, struct pinion_context **out)
{
	struct pinion_context *context;
	int ret;

	if (!out || (attr && attr->size < sizeof(*attr)))
		return -EINVAL;
	context = calloc(1, sizeof(*context));
	if (!context)
		return -ENOMEM;
	ret = pn_config_load(&context->config, attr ? attr->options : NULL);
	if (ret)
		goto free_context;
	pn_log_set_level((enum pn_log_level)context->config.log);
	ret = open_device(context);
	if (ret)
		goto free_context;
	pn_mutex_init(&context->lock);
	pn_list_init(&context->registrations);
	*out = context;
	return 0;

free_context:
	free(context);
	return ret;
}

/* Registrations nobody ended die with the device; only their storage is left.
 */
static void free_registrations(struct pinion_context *context)
	PN_NO_THREAD_SAFETY
{
	struct pn_list *entry;

	while ((entry = pn_list_pop(&context->registrations))) {
		struct pinion_registration *reg =
			pn_container_of(entry, struct pinion_registration,
					link);
		struct pn_mr *mr = &reg->mr;

		pn_device_deregister(context->device, &mr, 1);
		free(reg);
	}
}

void pinion_close(struct pinion_context *context)
{
	if (!context)
		return;
	free_registrations(context);
	pn_device_close(context->device);
	pn_mutex_fini(&context->lock);
	free(context);
}

const char *pinion_version(void)
{
	return PN_VERSION;
}

int pinion_config_at(struct pinion_context *context, unsigned index,
		     struct pinion_config_option *out)
{
	const struct pn_option *table;
	size_t n;

	if (!context || !out)
		return -EINVAL;
	table = pn_config_table(&n);
	if (index >= n)
		return -ENOENT;
	out->name = table[index].name;
	out->type = pn_option_type_name(table[index].type);
	out->help = table[index].help;
	out->def = table[index].def;
	out->source = pn_config_source_name(context->config.source[index]);
	pn_option_format(&table[index], &context->config, out->value,
			 sizeof(out->value));
	return 0;
}

int pinion_device_query(struct pinion_context *context,
			struct pinion_device_info *info)
{
	struct pinion_device_info full;
	const struct pn_device *device;
	struct pn_pinned pinned;

	if (!context || !info || !info->size)
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
		.dying_bytes = pinned.dying_bytes,
		.registrations = pinned.mrs,
	};
	/* A program built against an older header has a shorter struct. */
	full.size = info->size < sizeof(full) ? info->size : sizeof(full);
	memcpy(info, &full, full.size);
	return 0;
}

int pinion_device_register(struct pinion_context *context, void *addr,
			   size_t len, unsigned access,
			   struct pinion_registration **out)
{
	struct pinion_registration *reg;
	struct pn_mr *mr;
	int ret;

	if (!context || !out)
		return -EINVAL;
	reg = calloc(1, sizeof(*reg));
	if (!reg)
		return -ENOMEM;
	reg->context = context;
	reg->mr = (struct pn_mr){ .addr = addr, .len = len, .access = access };
	mr = &reg->mr;
	ret = pn_device_register(context->device, &mr, 1);
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
	struct pn_mr *mr;

	if (!reg)
		return;
	mr = &reg->mr;
	pn_lock(&reg->context->lock);
	pn_list_remove(&reg->link);
	pn_unlock(&reg->context->lock);
	pn_device_deregister(reg->context->device, &mr, 1);
	free(reg);
}

int pinion_registration_key(const struct pinion_registration *reg,
			    struct pinion_remote_key *key)
{
	if (!reg || !key)
		return -EINVAL;
	if (!reg->mr.rkey)
		return -EACCES;
	*key = (struct pinion_remote_key){ .addr = (uintptr_t)reg->mr.addr,
					   .len = reg->mr.len,
					   .key = reg->mr.rkey };
	return 0;
}
