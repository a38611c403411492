/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/sim/events.h"

#include <stdlib.h>

#include "base/compiler.h"

void pn_sim_event_queue_fini(struct pn_sim_event_queue *events)
{
	free(events->heap);
	*events = (struct pn_sim_event_queue){ 0 };
}

static bool before(const struct pn_sim_event_entry *a,
		   const struct pn_sim_event_entry *b)
{
	return a->time_ns != b->time_ns ? a->time_ns < b->time_ns
					: a->sequence < b->sequence;
}

static void put_at(struct pn_sim_event_queue *events, size_t i,
		   struct pn_sim_event_entry entry)
{
	events->heap[i] = entry;
	entry.event->pos = i + 1;
}

static void sift_up(struct pn_sim_event_queue *events, size_t i,
		    struct pn_sim_event_entry entry)
{
	while (i && before(&entry, &events->heap[(i - 1) / 2])) {
		put_at(events, i, events->heap[(i - 1) / 2]);
		i = (i - 1) / 2;
	}
	put_at(events, i, entry);
}

static void sift_down(struct pn_sim_event_queue *events, size_t i,
		      struct pn_sim_event_entry entry)
{
	for (;;) {
		size_t child = 2 * i + 1;

		if (child + 1 < events->n &&
		    before(&events->heap[child + 1], &events->heap[child]))
			child++;
		if (child >= events->n || before(&entry, &events->heap[child]))
			break;
		put_at(events, i, events->heap[child]);
		i = child;
	}
	put_at(events, i, entry);
}

void pn_sim_event_add(struct pn_sim_event_queue *events,
		      struct pn_sim_event *event, uint64_t time_ns)
{
	struct pn_sim_event_entry entry = { time_ns, events->sequence++,
					    event };

	pn_assert(!event->pos);
	if (events->n == events->capacity) {
		events->capacity = events->capacity ? 2 * events->capacity : 64;
		events->heap =
			realloc(events->heap, events->capacity * sizeof(entry));
		pn_assert(events->heap);
	}
	sift_up(events, events->n++, entry);
}

/* Removes heap[i]; the last entry takes its place and is sifted. */
static void remove_at(struct pn_sim_event_queue *events, size_t i)
{
	struct pn_sim_event_entry last = events->heap[--events->n];

	events->heap[i].event->pos = 0;
	if (i == events->n)
		return;
	if (i && before(&last, &events->heap[(i - 1) / 2]))
		sift_up(events, i, last);
	else
		sift_down(events, i, last);
}

void pn_sim_event_cancel(struct pn_sim_event_queue *events,
			 struct pn_sim_event *event)
{
	if (event->pos)
		remove_at(events, event->pos - 1);
}

struct pn_sim_event *pn_sim_event_pop(struct pn_sim_event_queue *events,
				      uint64_t *time_ns)
{
	struct pn_sim_event *event;

	if (!events->n)
		return NULL;
	event = events->heap[0].event;
	*time_ns = events->heap[0].time_ns;
	remove_at(events, 0);
	return event;
}
