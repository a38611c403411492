/* SPDX-License-Identifier: BSD-2-Clause */
#include "helper/pin_listener.h"

#include <errno.h>
#include <stdlib.h>

#include "helper/helper.h"

struct transfer {
	struct pn_list link;
	const void *slot;
	struct pn_call call;
};

static struct pn_helper_pins *pins_of(struct pn_pin_listener *listener)
{
	return pn_container_of(listener, struct pn_helper_pins, listener);
}

/* Slots are elements of arrays: their low bits do not differ much. */
static struct pn_list *list_of(struct pn_helper_pins *pins, const void *slot)
{
	uint64_t hash = (uintptr_t)slot * UINT64_C(0x9e3779b97f4a7c15);

	return &pins->lists[hash >> 32 & (PN_PINNED_LISTS - 1)];
}

/* Without memory the pin is not recorded. */
static void *begin(struct pn_pin_listener *listener, void *addr, size_t len)
{
	struct pn_helper_pins *pins = pins_of(listener);
	struct transfer *transfer = malloc(sizeof(*transfer));

	if (!transfer)
		return NULL;
	pn_list_init(&transfer->link);
	transfer->call.copied = 0;
	pn_helper_post(pins->helper, &transfer->call, PN_CALL_PIN, addr, len);
	if (transfer->call.range.len)
		return transfer;
	free(transfer);
	return NULL;
}

static void pinned(struct pn_pin_listener *listener, void *note,
		   const struct pinion_pin *pin)
{
	struct pn_helper_pins *pins = pins_of(listener);
	struct transfer *transfer = note;

	if (!transfer)
		return;
	if (!pin) {
		free(transfer);
		return;
	}
	transfer->slot = pin->internal[0];
	pn_lock(&pins->lock);
	pn_list_append(list_of(pins, transfer->slot), &transfer->link);
	pn_unlock(&pins->lock);
}

static void *unpinning(struct pn_pin_listener *listener,
		       const struct pinion_pin *pin)
{
	struct pn_helper_pins *pins = pins_of(listener);
	const void *slot = pin->internal[0];
	struct transfer *found = NULL;
	struct pn_list *pos;

	pn_lock(&pins->lock);
	pn_list_for_each (pos, list_of(pins, slot)) {
		found = pn_container_of(pos, struct transfer, link);
		if (found->slot == slot)
			break;
		found = NULL;
	}
	if (found)
		pn_list_remove(&found->link);
	pn_unlock(&pins->lock);
	return found;
}

static void unpinned(struct pn_pin_listener *listener, void *note)
{
	struct transfer *transfer = note;

	pn_helper_done(pins_of(listener)->helper, &transfer->call);
	free(transfer);
}

int pn_helper_pins_open(struct pn_helper *helper, struct pn_cache *cache,
			struct pn_helper_pins **out)
{
	struct pn_helper_pins *pins = calloc(1, sizeof(*pins));

	if (!pins)
		return -ENOMEM;
	pins->listener = (struct pn_pin_listener){ .begin = begin,
						   .pinned = pinned,
						   .unpinning = unpinning,
						   .unpinned = unpinned };
	pins->helper = helper;
	pins->cache = cache;
	pn_mutex_init(&pins->lock);
	for (unsigned i = 0; i < PN_PINNED_LISTS; i++)
		pn_list_init(&pins->lists[i]);
	pn_cache_set_listener(cache, &pins->listener);
	*out = pins;
	return 0;
}

void pn_helper_pins_close(struct pn_helper_pins *pins) PN_NO_THREAD_SAFETY
{
	struct pn_list *link;

	if (!pins)
		return;
	pn_cache_set_listener(pins->cache, NULL);
	for (unsigned i = 0; i < PN_PINNED_LISTS; i++)
		while ((link = pn_list_pop(&pins->lists[i])))
			free(pn_container_of(link, struct transfer, link));
	pn_mutex_fini(&pins->lock);
	free(pins);
}
