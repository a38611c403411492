/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * trace_sink -- where the library records what it did.
 *
 * An event is a set of numbers. cache/trace_event.h defines their meaning, and
 * the readers of tools/trace/ know it. A sink takes events. A process has one
 * sink or none. base does not know what a sink does with events; the sink of
 * trace/record.h writes them to a file.
 *
 * A module that records calls pn_trace_sink() once and keeps the pointer where
 * its fast path reads anyway: while no trace is recorded, the check of that
 * pointer is the only cost.
 *
 * There are two ways to record. record() may allocate and make system calls; it
 * does not wait for other threads. record_noalloc() does neither and may be
 * called inside an allocator; it loses events when too many come before the
 * next record(), and the sink counts the losses.
 * Threads: any. A sink stays until the process ends, so that a pointer to it
 * never dangles; it ignores events after its end and in a forked child.
 */
#ifndef PN_BASE_TRACE_SINK_H
#define PN_BASE_TRACE_SINK_H

#include <stdatomic.h>
#include <stdint.h>

#define PN_EVENT_NO_PEER UINT32_MAX

struct pn_trace_event {
	uint64_t time_ns; /* of the clock of the device; record_noalloc() takes
			     a time after its thread's last record() */
	uint64_t addr, len;
	uint64_t site;	 /* call site; 0: not known */
	uint64_t handle; /* the same in the event that ends what this begins */
	uint32_t peer;	 /* PN_EVENT_NO_PEER: none */
	uint32_t thread; /* numbered from 1 by the sink; 0: not known */
	uint16_t source; /* the number of the recorder, from 1; 0: not known */
	uint16_t flags;
	uint16_t more; /* so many events of the same call follow */
	uint8_t kind, op;
	uint8_t decision, reason;
	uint16_t reserved;
};

struct pn_trace_sink {
	void (*record)(struct pn_trace_sink *sink,
		       const struct pn_trace_event *e);
	void (*record_noalloc)(struct pn_trace_sink *sink,
			       const struct pn_trace_event *e);
	/* Returns a number for a new recorder (the `source` of its events), and
	 * records the event that opens it with `bytes` bytes about it; 0: no
	 * number is left. */
	uint16_t (*add_source)(struct pn_trace_sink *sink,
			       const struct pn_trace_event *e,
			       const void *about, uint16_t bytes);
};

extern struct pn_trace_sink *_Atomic pn_trace_sink_installed;

/* The sink of this process; NULL: no trace is recorded. */
static inline struct pn_trace_sink *pn_trace_sink(void)
{
	/* Pairs with the release in pn_trace_sink_install(). */
	return atomic_load_explicit(&pn_trace_sink_installed,
				    memory_order_acquire);
}

/* NULL: none from now on. */
void pn_trace_sink_install(struct pn_trace_sink *sink);

#endif
