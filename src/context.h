/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * context -- the object behind the public handle: configuration, devices,
 * budget, caches, heaps, endpoints.
 *
 * Life: pinion_open() opens its parts bottom up, pinion_close() closes them top
 * down. The files api_*.c have the public calls, and name the public headers
 * that they implement: they validate the arguments and call the layer that does
 * the work.
 * Threads: any. `lock` protects the lists; opening and closing of endpoints is
 * serialized by `entered` (api_message.c).
 * fork: the copy of a context in a child is foreign, whatever kind of fork made
 * the child. Every call on it is refused, except pinion_close(), which does not
 * touch the parent's device. In a child in which the fork handlers did not run,
 * pinion_open() is refused, too.
 */
#ifndef PN_CONTEXT_H
#define PN_CONTEXT_H

#include <stdatomic.h>
#include <string.h>

#include "base/list.h"
#include "base/lock.h"
#include "base/process.h"
#include "cache/cache.h"
#include "config/config.h"
#include "device/device.h"
#include "helper/helper.h"
#include "helper/pin_listener.h"
#include "message/message.h"

struct pn_copier;

struct pinion_context {
	struct pn_config config;
	/* The rails: each is a device and its cache. One budget serves all.
	 * Calls other than messages use the first rail. */
	struct pn_device *devices[PN_RAILS_MAX];
	struct pn_cache *caches[PN_RAILS_MAX];
	unsigned nrails;
	struct pn_device *device; /* devices[0] */
	struct pn_cache *cache;	  /* caches[0] */
	struct pn_budget budget;
	/* The endpoints. The first one uses the context's devices; the others
	 * open devices that share their registrations. One thread at a time
	 * opens or closes an endpoint: the one that set `entered` (enter() in
	 * api_message.c). */
	_Atomic uint32_t entered;
	struct pn_list endpoints; /* lock */
	bool devices_taken;	  /* entered: an endpoint uses `devices` */
	unsigned nendpoints;	  /* entered */
	/* The helper, or NULL. It lives from the first endpoint (entered), or,
	 * where there are no messages, from pinion_open(), until the context is
	 * closed: any thread may pin until then, and pins feed it. */
	struct pn_helper *helper;
	struct pn_helper_pins *helper_pins;
	uint32_t process;	      /* that opened it (base/process.h) */
	bool exported;		      /* in the statistics segment */
	struct pn_mutex lock;	      /* protects the lists */
	struct pn_list by_address;    /* of contexts on GPUs */
	struct pn_list registrations; /* of pinion_device_register() */
	struct pn_list heaps;
	void *transport; /* of api_transport.c: freed with the context */
	/* Of api_cuda.c, on a GPU; NULL: nothing was copied yet. */
	struct pn_copier *_Atomic copier;
};

/* The owner of its parts' counters in the statistics segment; NULL: none. */
static inline const void *pn_context_stats_owner(
	const struct pinion_context *context)
{
	return context->exported ? context : NULL;
}

/* Whether a parent of this process opened it. */
static inline bool pn_context_foreign(const struct pinion_context *context)
{
	return !pn_process_is_current(context->process);
}

/* Whether the handle of a caller can be used. */
static inline bool pn_context_usable(const struct pinion_context *context)
{
	return context && !pn_context_foreign(context);
}

/* How the parts of a context map their own memory. */
static inline struct pn_pages_policy pn_context_pages(
	const struct pinion_context *context)
{
	const struct pn_config *config = &context->config;

	return (struct pn_pages_policy){
		.huge = (enum pn_pages_huge)config->huge_pages,
		.numa_node = config->numa_node == PN_CONFIG_ANY_NODE
				     ? -1
				     : (int)config->numa_node,
	};
}

/* Initializes the lock and the lists. */
static inline void pn_context_init(struct pinion_context *context)
{
	pn_mutex_init(&context->lock);
	pn_list_init(&context->registrations);
	pn_list_init(&context->heaps);
	pn_list_init(&context->endpoints);
}

/* Opens and closes the budget and the caches of all devices. */
int pn_context_open_caches(struct pinion_context *context);
void pn_context_close_caches(struct pinion_context *context);

/* Opens the helper, if the options ask for one and it is not open yet, and
 * closes it. The caches must be open; when it closes, no endpoint may be. */
int pn_context_open_helper(struct pinion_context *context);
void pn_context_close_helper(struct pinion_context *context);

/* Ends copies under way, copy workers and bounce buffers. */
void pn_context_close_copier(struct pinion_context *context);

/* Ends the registrations of pinion_device_register() that are left. */
void pn_context_free_registrations(struct pinion_context *context);

/* Closes the endpoints that are left. */
void pn_context_close_endpoints(struct pinion_context *context);

/* Closes the heaps that are left. */
void pn_context_close_heaps(struct pinion_context *context);

#endif
