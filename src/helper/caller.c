/* SPDX-License-Identifier: BSD-2-Clause */
/* The critical path: threads of the program record their calls. */
#include <stdlib.h>

#include "helper/frames.h"
#include "helper/helper_impl.h"

static struct pn_caller *caller_alloc(struct pn_helper *helper)
{
	struct pn_caller *caller = calloc(1, sizeof(*caller));

	if (!caller)
		return NULL;
	caller->helper = helper;
	pn_lock(&helper->lock);
	pn_list_append(&helper->callers, &caller->link);
	pn_unlock(&helper->lock);
	return caller;
}

static struct pn_caller *caller_self(struct pn_helper *helper)
{
	struct pn_thread *self = pn_thread_self();
	struct pn_caller *caller = self ? self->local[helper->key] : NULL;

	if (pn_unlikely(self && !caller))
		caller = self->local[helper->key] = caller_alloc(helper);
	return caller;
}

void pn_caller_ended(void *value)
{
	struct pn_caller *caller = value;

	atomic_store(&caller->ended, true);
}

void pn_helper_record_post(struct pn_helper *helper, struct pn_call *call,
			   unsigned kind, const void *addr, size_t len)
{
	struct pn_caller *caller;

	if (len < helper->attr.threshold)
		return;
	caller = caller_self(helper);
	if (pn_unlikely(!caller))
		return;
	call->time_ns = pn_device_now(helper->device);
	call->range = (struct pn_range){ (uintptr_t)addr, len };
	call->kind = kind;
	call->nframes = pn_frames_capture(call->frames, PN_CALL_FRAMES,
					  helper->attr.frames);
	pn_window_add(&caller->window, helper->attr.window, call);
	if (call->copied)
		return; /* nothing is to be registered for it */
	pn_ring_put(&caller->posted, call);
	if (pn_unlikely(atomic_load(&helper->sleeping)))
		pn_helper_notify(helper);
}

void pn_helper_record_done(struct pn_helper *helper, const struct pn_call *call)
{
	struct pn_caller *caller = caller_self(helper);

	if (pn_unlikely(!caller))
		return;
	pn_ring_put(&caller->done, call);
	if (pn_unlikely(atomic_load(&helper->sleeping)))
		pn_helper_notify(helper);
}

static void caller_free(struct pn_caller *caller)
{
	pn_list_remove(&caller->link);
	pn_call_sequence_free(caller->sequence);
	free(caller);
}

/* Takes the callers in turn: the one served goes to the end of the list. */
bool pn_callers_take_done(struct pn_helper *helper, struct pn_call *call,
			  struct pn_caller **from)
{
	struct pn_list *pos, *next;
	uint64_t lost = 0;
	bool found = false;

	pn_lock(&helper->lock);
	pn_list_for_each_safe (pos, next, &helper->callers) {
		struct pn_caller *caller =
			pn_container_of(pos, struct pn_caller, link);
		bool ended = atomic_load(&caller->ended);

		if (pn_ring_take(&caller->done, call, &lost)) {
			pn_list_remove(pos);
			pn_list_append(&helper->callers, pos);
			*from = caller;
			found = true;
			break;
		}
		/* `ended` was read before the ring was found empty. */
		if (ended)
			caller_free(caller);
	}
	pn_unlock(&helper->lock);
	pn_count(&helper->stats.lost, lost);
	return found;
}

bool pn_callers_take_posted(struct pn_helper *helper, struct pn_call *call)
{
	struct pn_list *pos;
	uint64_t lost = 0; /* not counted: only their end matters */
	bool found = false;

	pn_lock(&helper->lock);
	pn_list_for_each (pos, &helper->callers) {
		found = pn_ring_take(
			&pn_container_of(pos, struct pn_caller, link)->posted,
			call, &lost);
		if (found)
			break;
	}
	pn_unlock(&helper->lock);
	return found;
}

bool pn_callers_any(struct pn_helper *helper)
{
	struct pn_list *pos;
	bool any = false;

	pn_lock(&helper->lock);
	pn_list_for_each (pos, &helper->callers) {
		struct pn_caller *caller =
			pn_container_of(pos, struct pn_caller, link);

		any |= pn_ring_any(&caller->done) ||
		       pn_ring_any(&caller->posted);
	}
	pn_unlock(&helper->lock);
	return any;
}

void pn_callers_free(struct pn_helper *helper)
{
	while (!pn_list_empty(&helper->callers))
		caller_free(pn_container_of(helper->callers.next,
					    struct pn_caller, link));
}
