/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * events -- the simulation events of a world, ordered by time.
 *
 * An event is embedded in the object that it concerns. It is queued or not
 * (pn_sim_event_is_queued()). Events of the same time fire in the order in
 * which they were added, which makes a run repeatable. The queue is a binary
 * heap: add, cancel and pop cost O(log n).
 * At rest: heap[i] is not later than heap[2i+1] and heap[2i+2], and the event
 * of heap[i] has pos i + 1.
 * Threads: the owner's lock.
 */
#ifndef PN_DEVICE_SIM_EVENTS_H
#define PN_DEVICE_SIM_EVENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pn_sim;

struct pn_sim_event {
	void (*fire)(struct pn_sim *sim, struct pn_sim_event *event);
	size_t pos; /* index in the heap plus 1; 0: not queued */
};

struct pn_sim_event_entry {
	uint64_t time_ns, sequence;
	struct pn_sim_event *event;
};

struct pn_sim_event_queue {
	struct pn_sim_event_entry *heap;
	size_t n, capacity;
	uint64_t sequence;
};

void pn_sim_event_queue_fini(struct pn_sim_event_queue *events);

/* Queues an event that is not queued. Aborts when there is no memory: a world
 * that has lost an event is invalid. */
void pn_sim_event_add(struct pn_sim_event_queue *events,
		      struct pn_sim_event *event, uint64_t time_ns);

/* Does nothing when the event is not queued. */
void pn_sim_event_cancel(struct pn_sim_event_queue *events,
			 struct pn_sim_event *event);

/* Removes and returns the earliest event; NULL: none. */
struct pn_sim_event *pn_sim_event_pop(struct pn_sim_event_queue *events,
				      uint64_t *time_ns);

/* The time of the earliest event; UINT64_MAX: none. */
static inline uint64_t pn_sim_event_next_ns(
	const struct pn_sim_event_queue *events)
{
	return events->n ? events->heap[0].time_ns : UINT64_MAX;
}

static inline bool pn_sim_event_is_queued(const struct pn_sim_event *event)
{
	return event->pos;
}

#endif
