/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * site -- which call uses which memory, and when it will do so again.
 *
 * Nouns
 *   call       one transfer: when it wanted its memory (a send when it was
 *              posted, a receive when its message was there), what kind, which
 *              memory, from where in the program (return addresses, or a
 *              name's address).
 *   buffer      a range of memory that calls use: exactly that range.
 *   window     the last calls of a thread, in the order of posting: what went
 *              before a call is its context.
 *   sequence     the calls of one thread as they come to the table: in the
 * order in which they ended, as a rule. signature  a hash of a call's frames,
 * kind and buffer, and of kind and buffer of the calls before it, as many as
 * the window is long (H3). The same line of a program has one signature inside
 * a loop and another in its first iteration. site       what is known of one
 * signature. It belongs to one buffer; a buffer has several when different code
 * uses it (H4). period     the time from a site's call to its next. gap the
 * time from a call to the next call on the same buffer. deadline   when a
 * buffer must be registered again. expiry     when to stop expecting it.
 *
 * Three predictors
 *   shortest  (paper, H4) period = the shortest seen; deadline = last call +
 *             period; the earliest among a buffer's sites counts, also when it
 *             has passed: that call is still to come.
 *   periodic  (the paper's other one, H5) looks for the smallest m such that
 *             the last calls of the sequence repeat those m calls before, all
 *             over a window that has to be full; the buffer's next call will
 *             come after the time it took in the last repetition.
 *   learned   (ours) remembers for each site the gaps that followed it and sets
 *             the deadline by cost (gaps.h). A site that is new asks the gaps
 *             of its buffer. Four times the longest gap later (eight times
 * while there are few) nobody is expected any more.
 *
 * Time. A call that finds its memory not registered is held up, and with it
 * everything behind it: the next round, when it is not, all the others come
 * sooner than ever. So periods and gaps are measured in the program's own time,
 * which stands still while a call registers (pn_call.delay_ns). Deadlines and
 * expiries are in real time, as if nothing were held up until then.
 *
 * A site whose predictions keep missing is irregular: whoever acts on
 * predictions should leave its buffer alone. It goes on being predicted, and
 * is taken back when that comes true again.
 *
 * Life: a table holds up to max_buffers; then the buffer that was not called
 * for the longest time goes, with its sites, unless it is held. Threads: the
 * caller's. Nothing here knows the time or a device.
 */
#ifndef PN_HELPER_SITE_H
#define PN_HELPER_SITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "base/range.h"
#include "cache/cache.h"
#include "device/device.h"
#include "helper/gaps.h"
#include "helper/hash_table.h"
#include "helper/job_queue.h"

#define PN_CALL_FRAMES 8

enum pn_call_kind { PN_CALL_SEND, PN_CALL_RECEIVE };

struct pn_call {
	uint64_t time_ns;
	uint64_t delay_ns; /* that it lost because its memory was not there */
	struct pn_range range;
	uint64_t context; /* a hash of the calls before it (pn_window_add()) */
	uint32_t kind;	  /* enum pn_call_kind, or any other number */
	uint32_t nframes; /* used below */
	uintptr_t frames[PN_CALL_FRAMES];
};

#define PN_WINDOW_MAX 8 /* calls of context */

/* All zero is an empty window. */
struct pn_window {
	uint64_t recent[PN_WINDOW_MAX]; /* kind and buffer of the last calls */
	unsigned n;			/* so far; a ring */
};

/* Sets call->context from the last `length` calls and adds this one. On the
 * critical path: some nanoseconds. */
static inline void pn_window_add(struct pn_window *window, unsigned length,
				 struct pn_call *call)
{
	uint64_t context = 0;

	for (unsigned i = 1; i <= length && i <= window->n; i++)
		context = pn_hash_mix(
			context,
			window->recent[(window->n - i) % PN_WINDOW_MAX]);
	call->context = context;
	window->recent[window->n % PN_WINDOW_MAX] =
		pn_hash_mix(call->range.addr, call->kind);
	/* Far from wrapping around, at the same buffer in the ring. */
	if (++window->n == 1u << 31)
		window->n = PN_WINDOW_MAX;
}

enum pn_predictor {
	PN_PREDICT_LEARNED,
	PN_PREDICT_SHORTEST,
	PN_PREDICT_PERIODIC,
	PN_PREDICTOR_COUNT,
};

/* "learned", ...; NULL at the end. */
const char *pn_predictor_name(unsigned predictor);

#define PN_PERIODIC_MAX	    1024 /* calls that `periodic` looks at */
#define PN_PERIODIC_DEFAULT 64

struct pn_callsite {
	struct pn_hash_entry entry; /* by signature */
	struct pn_list link;	    /* in buffer->sites */
	struct pn_call_buffer *buffer;
	uint64_t ncalls;
	uint64_t last_ns;   /* in the program's own time, as all that follows */
	uint64_t period_ns; /* the shortest; 0: called once so far */
	struct pn_gaps gaps;
	uint16_t misses; /* rises with each, falls with each that came true */
	bool irregular;
};

struct pn_call_buffer {
	struct pn_hash_entry entry; /* by range */
	struct pn_range range;
	struct pn_list link; /* in the table's list, by last call */
	struct pn_list sites;
	struct pn_callsite *last_site; /* whose call was the last */
	uint64_t last_ns;	       /* in the program's own time */
	uint64_t predicted_ns; /* the gap that is expected after it; or 0 */
	struct pn_gaps gaps;   /* whatever the site */
	uint64_t deadline_ns;  /* in real time; 0: not known */
	uint64_t expiry_ns;    /* in real time */
	bool held;	       /* not to be forgotten */
	/* What the helper keeps for it (helper.c). */
	struct pn_job job;	   /* in one of its queues while held */
	bool leased;		   /* in the second one */
	struct pn_dropped dropped; /* what is to be registered again */
	uint64_t ready_ns;	   /* registered since; PN_FOREVER: dropped */
	uint64_t seen_ns;	   /* when its last call that is over was */
};

struct pn_callsites_attr {
	enum pn_predictor predictor;
	unsigned periodic;     /* calls that `periodic` looks at; 0: default */
	size_t max_buffers;    /* 0: 16384 */
	struct pn_costs costs; /* what being late costs: registering */
	double patience;       /* holding a buffer idle for so many times what
				* registering it costs is as bad as being late
				* once; 0: 2500 */
};

struct pn_callsites;
struct pn_call_sequence;

/* -EINVAL: no such predictor, or too much for `periodic`; -ENOMEM. */
int pn_callsites_open(const struct pn_callsites_attr *attr,
		      struct pn_callsites **out);
void pn_callsites_close(struct pn_callsites *sites); /* NULL is fine */

/* What registering costs has become known better. */
void pn_callsites_set_costs(struct pn_callsites *sites, double register_ns,
			    double register_page_ns);

/* NULL: no memory. Streams are freed before their table is closed. */
struct pn_call_sequence *pn_call_sequence_alloc(struct pn_callsites *sites);
void pn_call_sequence_free(
	struct pn_call_sequence *sequence); /* NULL is fine */

/* What a call brought. */
struct pn_call_result {
	struct pn_call_buffer
		*buffer; /* its deadline_ns and expiry_ns are new */
	struct pn_callsite *site;
	bool first;	/* the buffer is new */
	bool irregular; /* leave the buffer alone */
	/* What had been predicted for this call, and how it was: times since
	 * the call from which it was predicted. 0: there was no prediction. */
	uint64_t predicted_ns, observed_ns;
};

/* Takes the next call of a sequence. -ENOMEM: as if it had not been. */
int pn_callsites_add_call(struct pn_call_sequence *sequence,
			  const struct pn_call *call,
			  struct pn_call_result *result);

/* The buffer of a range; NULL: not known. */
struct pn_call_buffer *pn_callsites_find(const struct pn_callsites *sites,
					 struct pn_range range);

size_t pn_callsites_nbuffers(const struct pn_callsites *sites);
uint64_t pn_callsites_bytes(const struct pn_callsites *sites); /* of buffers */
size_t pn_callsites_nsites(const struct pn_callsites *sites);

#endif
