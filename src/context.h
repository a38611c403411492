/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * context -- what stands behind the public handle: configuration, device,
 * budget, cache, heaps, endpoint.
 *
 * Born in pinion_open(), dies in pinion_close(). Parts are opened bottom up
 * and closed top down. The files api_*.c hold the public calls, one for each
 * public header: they validate and pass on to the layer that does the work.
 * fork: a child's copy is foreign, whatever kind of fork made the child. Every
 * call on it is refused but pinion_close(), which leaves the parent's device
 * alone. A child that the handlers did not run in is refused pinion_open(),
 * too.
 */
#ifndef PN_CONTEXT_H
#define PN_CONTEXT_H

#include <string.h>

#include "base/list.h"
#include "base/lock.h"
#include "base/process.h"
#include "cache/cache.h"
#include "config/config.h"
#include "device/device.h"
#include "helper/helper.h"
#include "helper/pins.h"
#include "message/message.h"

struct pinion_context {
	struct pn_config config;
	/* The rails: each a device with its cache, the budget one for all.
	 * The first is what all calls but messages mean. */
	struct pn_device *devices[PN_RAILS_MAX];
	struct pn_cache *caches[PN_RAILS_MAX];
	unsigned nrails;
	struct pn_device *device; /* devices[0] */
	struct pn_cache *cache;	  /* caches[0] */
	struct pn_budget budget;
	/* The endpoints. The first has the context's devices for itself, the
	 * others open devices that share their registrations. Whoever opens or
	 * closes one is alone at it (enter() in api_message.c). */
	struct pn_list endpoints; /* lock */
	bool devices_taken;	  /* by an endpoint; entered */
	unsigned nendpoints;	  /* entered */
	_Atomic uint32_t entered; /* somebody has */
	/* NULL: none. From the first endpoint to the last (entered); over a
	 * registrar, as long as the context, and fed by pins. */
	struct pn_helper *helper;
	struct pn_helper_pins *helper_pins;
	uint32_t process;     /* that made it (base/process.h) */
	bool shown;	      /* lives on the board (base/stats_segment.h) */
	struct pn_mutex lock; /* protects the lists */
	struct pn_list registrations; /* made by hand */
	struct pn_list heaps;
	void *transport; /* of pinion/verbs.h or fabric.h: freed with it */
};

/* What the counters of its parts belong to on the board; NULL: none is there.
 */
static inline const void *pn_context_stats_owner(
	const struct pinion_context *context)
{
	return context->shown ? context : NULL;
}

/* Whether a forked child has it from its parent. */
static inline bool pn_context_foreign(const struct pinion_context *context)
{
	return !pn_process_is_current(context->process);
}

/* Whether a caller's handle can be used. */
static inline bool pn_context_usable(const struct pinion_context *context)
{
	return context && !pn_context_foreign(context);
}

/* The pages behind memory that the parts of a context map for themselves. */
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

/* The empty lists of a context that is being made. */
static inline void pn_context_init(struct pinion_context *context)
{
	pn_mutex_init(&context->lock);
	pn_list_init(&context->registrations);
	pn_list_init(&context->heaps);
	pn_list_init(&context->endpoints);
}

/* Opens the budget and the caches of all devices as the options want them; and
 * closes the caches. */
int pn_context_open_caches(struct pinion_context *context);
void pn_context_close_caches(struct pinion_context *context);

/* Opens the helper if the options want one, and closes it. Its cache must be
 * there, its endpoints not yet and not any more. */
int pn_context_open_helper(struct pinion_context *context);
void pn_context_close_helper(struct pinion_context *context);

/* Ends the registrations made by hand that are left. */
void pn_context_free_registrations(struct pinion_context *context);

/* Closes the endpoints that are left. */
void pn_context_close_endpoints(struct pinion_context *context);

/* Closes the heaps that are left. */
void pn_context_close_heaps(struct pinion_context *context);

#endif
