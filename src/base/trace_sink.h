/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * event -- where the library says what it did, for whoever wants to know.
 *
 * An event is numbers; what they mean is the business of those who record
 * (cache/trace_event.h has the words) and of those who read (trace/). A sink is
 * what takes events; there is one in a process or none, and base does not know
 * what it does with them. trace/record.h brings one that writes a file.
 *
 * Whoever records asks pn_trace_sink() first and keeps the answer where its
 * fast path looks anyway: recording that is off costs what that look costs.
 *
 * Two ways to record. pn_event_record() may allocate and call the system; it
 * does not wait for other threads. pn_event_record_noalloc() does neither and
 * may be called inside an allocator; it loses events when too many come before
 * the next loud one, and the sink counts these.
 * Threads: any. A sink stays until the process ends, so that a pointer to it
 * never dangles; it takes nothing any more after its end, nor in a forked
 * child.
 */
#ifndef PN_BASE_TRACE_SINK_H
#define PN_BASE_TRACE_SINK_H

#include <stdatomic.h>
#include <stdint.h>

#define PN_EVENT_NO_PEER UINT32_MAX

struct pn_trace_event {
	uint64_t time_ns; /* of the clock of the device concerned; a quiet
			   * event gets that of the next loud one */
	uint64_t addr, len;
	uint64_t site;	 /* call site; 0: not known */
	uint64_t handle; /* pairs what begins with what ends it */
	uint32_t peer;	 /* PN_EVENT_NO_PEER: none */
	uint32_t thread; /* numbered from 1 by the sink; 0: not known */
	uint16_t source; /* who of several records, from 1; 0: not known */
	uint16_t flags;
	uint16_t more; /* so many events that belong to this one follow */
	uint8_t kind, op;
	uint8_t decision, reason;
	uint16_t reserved;
};

struct pn_trace_sink {
	void (*record)(struct pn_trace_sink *sink,
		       const struct pn_trace_event *e);
	void (*record_noalloc)(struct pn_trace_sink *sink,
			       const struct pn_trace_event *e);
	/* A number for somebody who will record (its events' `source`), with
	 * the event that says so and `bytes` bytes about it; 0: none is left.
	 */
	uint16_t (*add_source)(struct pn_trace_sink *sink,
			       const struct pn_trace_event *e,
			       const void *about, uint16_t bytes);
};

extern struct pn_trace_sink *_Atomic pn_trace_sink_installed;

/* The sink of this process; NULL: nobody records. */
static inline struct pn_trace_sink *pn_trace_sink(void)
{
	/* Pairs with the release in pn_trace_sink_install(). */
	return atomic_load_explicit(&pn_trace_sink_installed,
				    memory_order_acquire);
}

/* NULL: none from now on. */
void pn_trace_sink_install(struct pn_trace_sink *sink);

#endif
