/* SPDX-License-Identifier: BSD-2-Clause */
/* The public calls of pinion/pinion.h and pinion/config.h. */
#include <pinion/pinion.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cancel.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/sized.h"
#include "base/stats_segment.h"
#include "cache/policy/policy.h"
#include "context.h"
#include "device/registrar/registrar.h"
#include "revision.h"
#include "trace/record.h"

/* Opens the registrar instead of the devices of the option. */
static int open_registrar(struct pinion_context *context,
			  const struct pinion_registrar *registrar)
{
	int ret = pn_registrar_open(registrar, &context->devices[0]);

	context->device = context->devices[0];
	context->nrails = !ret;
	strcpy(context->config.device, "registrar");
	return ret;
}

static int open_devices(struct pinion_context *context,
			const struct pinion_registrar *registrar)
{
	struct pn_device_attr attr = { .pages = pn_context_pages(context) };
	int ret;

	if (registrar)
		return open_registrar(context, registrar);
	ret = pn_device_open_rails(context->config.device, &attr,
				   context->devices, &context->nrails);
	context->device = context->devices[0];
	return ret;
}

static void close_devices(struct pinion_context *context)
{
	for (unsigned r = context->nrails; r--;)
		pn_device_close(context->devices[r]);
}

void pn_context_close_caches(struct pinion_context *context)
{
	for (unsigned r = context->nrails; r--;)
		pn_cache_close(context->caches[r]);
	pn_budget_close(&context->budget);
}

int pn_context_open_caches(struct pinion_context *context)
{
	const struct pn_config *config = &context->config;
	struct pn_cache_attr attr = {
		.budget = &context->budget,
		.policy = pn_policy_at((unsigned)config->cache_policy)->name,
		.max_region_bytes = config->cache_max_region,
		.batch = (unsigned)config->cache_batch,
		.batch_bytes = config->cache_batch_bytes,
		.batch_age_ns = config->cache_batch_age,
		.no_merge = !config->cache_merge,
		.keep_by_address = config->cuda_keep,
		.stats_owner = pn_context_stats_owner(context),
	};
	struct pn_budget_attr budget = {
		.devices = context->devices,
		.ndevices = context->nrails,
		.max_bytes = config->max_bytes,
		.max_regions = config->max_regions,
		.nprocesses = (unsigned)config->local_processes,
		.process_max_bytes = config->process_max_bytes,
	};
	int ret = 0;

	context->process = pn_process_number();
	pn_budget_open(&context->budget, &budget);
	for (unsigned r = 0; !ret && r < context->nrails; r++) {
		attr.device = context->devices[r];
		ret = pn_cache_open(&attr, &context->caches[r]);
	}
	if (ret)
		pn_context_close_caches(context);
	context->cache = context->caches[0];
	return ret;
}

/* --- fork() --------------------------------------------------------------- */

/* Contexts whose device finds registrations by address. */
static struct pn_mutex by_address_lock = { PTHREAD_MUTEX_INITIALIZER };
static struct pn_list by_address PN_GUARDED_BY(&by_address_lock) = {
	&by_address, &by_address
};

/* The kernel copies every pinned page for the child at once. What is not in use
 * is given up, and comes back with its next use. */
static void before_fork(void)
{
	struct pn_list *pos;

	pn_lock(&by_address_lock);
	pn_list_for_each (pos, &by_address)
		pn_cache_flush(
			pn_container_of(pos, struct pinion_context, by_address)
				->cache);
	pn_unlock(&by_address_lock);
}

/* Counters of a child must not be the parent's. */
static void in_child(void) PN_NO_THREAD_SAFETY
{
	pn_mutex_init(&by_address_lock);
	pn_list_init(&by_address);
	pn_stats_in_child();
}

static void watch_fork(void)
{
	pn_process_atfork(before_fork, NULL, in_child);
}

static void list_by_address(struct pinion_context *context)
{
	pn_list_init(&context->by_address);
	if (!(context->device->caps & PN_CAP_BY_ADDRESS))
		return;
	pn_lock(&by_address_lock);
	pn_list_append(&by_address, &context->by_address);
	pn_unlock(&by_address_lock);
}

static void unlist_by_address(struct pinion_context *context)
{
	pn_lock(&by_address_lock);
	pn_list_remove(&context->by_address);
	pn_unlock(&by_address_lock);
}

/* Without the fork handlers, locks of the parent's other threads may be held
 * for ever. */
static int refuse_lost(void)
{
	pn_error("pinion_open() in a child of _Fork() or of a raw clone() or "
		 "fork() system call: make the child by fork()");
	return -EPERM;
}

#define CONTEXT struct pinion_context

static const struct pn_stats_field context_fields[] = {
	PN_STATS_FIELD(TEXT, CONTEXT, config.device, "device"),
	PN_STATS_FIELD(BYTES, CONTEXT, budget.bytes, "pinned_bytes"),
	PN_STATS_FIELD(BYTES, CONTEXT, budget.max_bytes, "max_bytes"),
	PN_STATS_FIELD(BYTES, CONTEXT, budget.process_limit,
		       "process_max_bytes"),
	PN_STATS_FIELD(BYTES, CONTEXT, budget.peak_bytes, "peak_bytes"),
	PN_STATS_FIELD(BYTES, CONTEXT, budget.deferred_bytes, "late_bytes"),
	PN_STATS_FIELD(GAUGE, CONTEXT, budget.regions, "pinned_regions"),
	PN_STATS_FIELD(GAUGE, CONTEXT, budget.max_regions, "max_regions"),
};

static const struct pn_stats_kind shown_context = {
	"context", sizeof(CONTEXT), 0, context_fields,
	PN_ARRAY_LEN(context_fields)
};

int pinion_open(const struct pinion_attr *given, struct pinion_context **out)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	PN_NO_CANCEL();
	struct pinion_attr attr = { .size = sizeof(attr) };
	struct pinion_context *context;
	int ret = given ? pn_sized_copy(&attr, sizeof(attr), given) : 0;

	if (!out || attr.flags)
		return -EINVAL;
	if (ret)
		return ret;
	if (pn_process_is_unusable())
		return refuse_lost();
	pthread_once(&once, watch_fork);
	context = pn_stats_alloc(&shown_context, NULL, true);
	if (!context)
		return -ENOMEM;
	context->exported = true;
	ret = pn_config_load(&context->config, attr.options);
	if (ret)
		goto free_context;
	pn_log_set_level((enum pn_log_level)context->config.log);
	/* An error is logged; the program runs without a trace. */
	(void)pn_record_start(context->config.trace,
			      context->config.trace_max_bytes);
	ret = pn_limits_explain(open_devices(context, attr.registrar),
				"open a device");
	if (ret)
		goto free_context;
	ret = pn_context_open_caches(context);
	/* -EMFILE is about thread keys here, not about descriptors. */
	if (ret == -ENOMEM)
		pn_limits_explain(ret, "open a cache");
	if (ret)
		goto close_devices;
	/* Where there are messages it is opened with the first endpoint, which
	 * measures what registering costs. */
	if (!pn_device_has_messages(context->device))
		ret = pn_context_open_helper(context);
	if (ret)
		goto close_caches;
	pn_context_init(context);
	list_by_address(context);
	*out = context;
	return 0;

close_caches:
	pn_context_close_caches(context);
close_devices:
	close_devices(context);
free_context:
	pn_stats_free(context);
	return ret;
}

void pinion_close(struct pinion_context *context)
{
	PN_NO_CANCEL();
	if (!context || pn_process_is_unusable())
		return;
	if (!pn_context_foreign(context)) {
		unlist_by_address(context);
		pn_context_close_endpoints(context);
		pn_context_close_copier(context);
		pn_context_close_helper(context);
		pn_context_close_heaps(context);
		pn_context_free_registrations(context);
		pn_context_close_caches(context);
		close_devices(context);
		pn_mutex_fini(&context->lock);
	}
	free(context->transport);
	pn_stats_free(context);
}

const char *pinion_version(void)
{
	return PN_VERSION;
}

int pinion_log_last(char *text, size_t bytes)
{
	return text && bytes ? pn_log_last(text, bytes) : -EINVAL;
}

int pinion_config_query(struct pinion_context *context, unsigned index,
			struct pinion_config_option *out)
{
	struct pinion_config_option full;
	const struct pn_option *table;
	size_t n;

	if (!context || !out || !out->size)
		return -EINVAL;
	table = pn_config_table(&n);
	if (index >= n)
		return -ENOENT;
	full = (struct pinion_config_option){
		.name = table[index].name,
		.type = pn_option_type_name(table[index].type),
		.help = table[index].help,
		.def = table[index].def,
		.source = pn_config_source_name(context->config.source[index]),
	};
	pn_option_format(&table[index], &context->config, full.value,
			 sizeof(full.value));
	pn_sized_answer(out, &full, sizeof(full));
	return 0;
}
