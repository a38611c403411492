/* SPDX-License-Identifier: BSD-2-Clause */
/* Keys of memory windows, for memory that stays registered. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/range.h"
#include "device/verbs/window.h"
#include "preload/verbs/preload.h"

#define NMEASURED 8

struct pn_ibv_window {
	struct pn_verbs_window window;
	struct pn_ibv_window *next; /* in the list of free ones */
};

struct pn_ibv_windows {
	struct pn_verbs_binder binder;
	struct pn_ibv_objects *objects; /* a window counts as one */
	struct pn_mutex lock;		/* the list */
	struct pn_ibv_window *free;
	struct pn_ibv_choice *choice; /* wants to know what binds take */
};

/* --- of a domain -----------------------------------------------------------
 */

static bool has_windows(const struct ibv_context *adapter,
			const struct ibv_device_attr *attr)
{
	return adapter->device->transport_type == IBV_TRANSPORT_IB &&
	       attr->max_mw > 0 &&
	       attr->device_cap_flags & IBV_DEVICE_MEM_WINDOW;
}

/* On the first port that is active. */
static int open_binder(struct pn_verbs_binder *binder, struct ibv_pd *pd)
{
	struct ibv_port_attr port;

	for (uint8_t i = 1; !ibv_query_port(pd->context, i, &port); i++)
		if (port.state == IBV_PORT_ACTIVE)
			return pn_verbs_binder_open(binder, pd, i, &port);
	return -1;
}

/* Binds a window of a page and ends it, some times. */
static void measure(struct pn_ibv_windows *windows, struct ibv_pd *pd)
{
	static char page[PN_PAGE_BYTES] PN_ALIGNED(PN_PAGE_BYTES);
	const struct pn_ibv_request request = {
		.pd = pd,
		.addr = page,
		.len = sizeof(page),
		.iova = (uintptr_t)page,
		.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND,
	};
	struct pn_ibv_request part = request;
	struct ibv_mr *mr = pn_ibv_real_reg(&request);
	struct pn_ibv_window *window;
	uint32_t key;

	part.access = IBV_ACCESS_REMOTE_READ;
	for (unsigned i = 0; mr && i < NMEASURED; i++) {
		window = pn_ibv_window_open(windows, mr, &part, &key);
		if (!window || pn_ibv_window_close(windows, window, mr))
			break;
	}
	if (mr)
		pn_ibv_real()->ibv_dereg_mr(mr);
}

struct pn_ibv_windows *pn_ibv_windows_open(struct ibv_pd *pd,
					   struct pn_ibv_choice *choice)
{
	struct ibv_device_attr attr;
	struct pn_ibv_windows *windows =
		!ibv_query_device(pd->context, &attr) &&
				has_windows(pd->context, &attr)
			? calloc(1, sizeof(*windows))
			: NULL;

	if (!windows)
		return NULL;
	windows->objects = pn_ibv_objects_of(pd->context, &attr);
	if (!windows->objects || open_binder(&windows->binder, pd)) {
		free(windows);
		return NULL;
	}
	pn_mutex_init(&windows->lock);
	windows->choice = choice;
	if (choice)
		measure(windows, pd);
	return windows;
}

bool pn_ibv_windows_work(const struct pn_ibv_windows *windows)
{
	return pn_verbs_binder_works(&windows->binder);
}

/* Windows that the adapter does not free stay in the list. */
static void free_windows(struct pn_ibv_windows *windows)
{
	struct pn_ibv_window **at = &windows->free, *window;

	while ((window = *at)) {
		if (pn_verbs_window_free(&window->window)) {
			at = &window->next;
			continue;
		}
		*at = window->next;
		free(window);
		pn_ibv_object_put(windows->objects);
	}
}

void pn_ibv_windows_flush(struct pn_ibv_windows *windows)
{
	pn_lock(&windows->lock);
	free_windows(windows);
	pn_unlock(&windows->lock);
}

void pn_ibv_windows_close(struct pn_ibv_windows *windows)
{
	struct pn_ibv_window *window;

	if (!windows)
		return;
	free_windows(windows);
	while ((window = windows->free)) {
		windows->free = window->next;
		free(window);
	}
	pn_verbs_binder_close(&windows->binder);
	pn_mutex_fini(&windows->lock);
	free(windows);
}

/* --- one window ------------------------------------------------------------
 */

static struct pn_ibv_window *take_free(struct pn_ibv_windows *windows)
{
	struct pn_ibv_window *window;

	pn_lock(&windows->lock);
	window = windows->free;
	if (window)
		windows->free = window->next;
	pn_unlock(&windows->lock);
	if (window || !pn_ibv_object_get(windows->objects))
		return window;
	window = calloc(1, sizeof(*window));
	if (!window)
		pn_ibv_object_put(windows->objects);
	return window;
}

static int bind(struct pn_ibv_windows *windows, struct pn_ibv_window *window,
		const struct ibv_mw_bind_info *part)
{
	uint64_t start = pn_clock_ns();
	int ret = pn_verbs_window_bind_part(&windows->binder, &window->window,
					    part);

	if (!ret && windows->choice)
		pn_ibv_choice_bound(windows->choice, pn_clock_ns() - start);
	return ret;
}

/* A window that nobody has the key of. */
static void give_back(struct pn_ibv_windows *windows,
		      struct pn_ibv_window *window)
{
	pn_lock(&windows->lock);
	window->next = windows->free;
	windows->free = window;
	pn_unlock(&windows->lock);
}

struct pn_ibv_window *pn_ibv_window_open(struct pn_ibv_windows *windows,
					 struct ibv_mr *real,
					 const struct pn_ibv_request *r,
					 uint32_t *key)
{
	struct pn_ibv_window *window = take_free(windows);
	const struct ibv_mw_bind_info part = {
		.mr = real,
		.addr = (uintptr_t)r->addr,
		.length = r->len,
		.mw_access_flags = r->access & PN_IBV_REMOTE,
	};

	if (!window)
		return NULL;
	if (bind(windows, window, &part)) {
		give_back(windows, window);
		return NULL;
	}
	*key = window->window.mw->rkey;
	return window;
}

/* A window that cannot be bound to nothing goes, and its key with it. */
int pn_ibv_window_close(struct pn_ibv_windows *windows,
			struct pn_ibv_window *window, struct ibv_mr *real)
{
	const struct ibv_mw_bind_info nothing = { .mr = real };
	int ret = bind(windows, window, &nothing);

	if (ret)
		ret = pn_verbs_window_free(&window->window);
	if (!ret)
		give_back(windows, window);
	return ret;
}
