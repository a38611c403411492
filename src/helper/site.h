/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * site -- which call uses which buffer, and when it will do so again.
 *
 * Nouns
 *   call       one transfer: when it needed its memory (a send when it was
 *              posted, a receive when its message had arrived), its kind, its
 *              memory, and where in the program it was made (return addresses,
 *              or the hash of a name).
 *   buffer     a range of memory that calls use: exactly that range.
 *   window     the last calls of a thread in the order of posting: the calls
 *              before a call are its context.
 *   sequence   the calls of one thread as they come to the table: as a rule in
 *              the order in which they ended.
 *   signature  a hash of a call's frames, kind and buffer, and of kind and
 *              buffer of the calls before it, as many as the window is long.
 *              The same line of a program has one signature inside a loop and
 *              another in its first iteration.
 *   site       what is known of one signature. A site belongs to one buffer; a
 *              buffer has several sites when different code uses it.
 *   period     the time from a site's call to its next.
 *   gap        the time from a call to the next call on the same buffer.
 *   deadline   when a buffer must be registered again.
 *   expiry     when to stop expecting the next call on a buffer.
 *
 * Three predictors
 *   shortest  (of the paper, see helper.h) The period is the shortest seen;
 *             the deadline is the last call + period. The earliest deadline of
 *             the buffer's sites counts, even if it has passed: that call is
 *             still to come.
 *   periodic  (of the paper, too) looks for the smallest m such that the last
 *             calls of the sequence repeat the calls m before them, over a
 *             whole window. The buffer's next call is expected after the time
 *             that it took in the last repetition.
 *   learned   (ours) remembers for each site the gaps that followed it and sets
 *             the deadline by cost (gaps.h). A new site uses the gaps of its
 *             buffer. The expiry is four times the longest gap later, eight
 *             times while there are few gaps.
 *
 * Time. A call that finds its memory not registered is delayed, and all later
 * calls with it. In the next round, when the memory is registered, all of these
 * calls come sooner than in any round before. So periods and gaps are measured
 * in program time, which stands still while a call registers
 * (pn_call.delay_ns). Deadlines and expiries are in real time, as if no call
 * were delayed until then.
 *
 * A site whose predictions keep missing is irregular: the helper leaves its
 * buffer alone. The table goes on predicting, and the site becomes regular
 * again when its predictions come true.
 *
 * Life: a table holds up to max_buffers. To add another one, it forgets the
 * buffer whose last call is the oldest, and its sites, unless that is queued.
 * Threads: the caller's. Nothing here reads a clock or calls a device.
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

enum pn_call_kind {
	PN_CALL_SEND,
	PN_CALL_RECEIVE,
	PN_CALL_PIN,
	PN_CALL_PUT, /* also conditional */
	PN_CALL_GET,
	PN_CALL_GRANT,
};

struct pn_call {
	uint64_t time_ns;
	uint64_t delay_ns; /* lost because its memory was not registered */
	struct pn_range range;
	uint64_t context; /* a hash of the calls before it (pn_window_add()) */
	uint32_t kind;	  /* enum pn_call_kind, or any other number */
	uint32_t nframes; /* of frames[] */
	/* Not 0: the transfer uses no registration of the cache: it is copied,
	 * or registers for itself alone. A word, so that a record has no
	 * padding. */
	uint64_t copied;
	uintptr_t frames[PN_CALL_FRAMES];
};

#define PN_WINDOW_MAX 8 /* calls of context */

/* All zero is an empty window. */
struct pn_window {
	uint64_t recent[PN_WINDOW_MAX]; /* kind and buffer of the last calls */
	unsigned n;			/* calls so far; recent is a ring */
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
	/* Keeps n from wrapping around; its index in the ring stays. */
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
	uint64_t last_ns;   /* program time, as the times below */
	uint64_t period_ns; /* the shortest; 0: called once so far */
	struct pn_gaps gaps;
	uint16_t misses; /* weighted; falls when a prediction came true */
	bool irregular;
};

struct pn_call_buffer {
	struct pn_hash_entry entry; /* by range */
	struct pn_range range;
	struct pn_list link; /* in the table's list, by last call */
	struct pn_list sites;
	struct pn_callsite *last_site; /* of the last call */
	uint64_t last_ns;	       /* of the last call, program time */
	uint64_t predicted_ns; /* gap expected after the last call; or 0 */
	struct pn_gaps gaps;   /* of all sites together */
	uint64_t deadline_ns;  /* real time; 0: no prediction */
	uint64_t expiry_ns;    /* real time */
	/* The helper's (helper.c); the table only reads `queued`. */
	bool queued;	   /* the job is in a queue: do not forget */
	bool leased;	   /* in helper->leases, else in ->jobs */
	struct pn_job job; /* registers, or ends the lease */
	/* What to register again, on each rail; length 0: nothing. */
	struct pn_dropped dropped[PN_RAILS_MAX];
	uint64_t ready_ns;     /* registered since; PN_FOREVER: is not */
	uint64_t last_call_ns; /* time_ns of the last call that ended */
	unsigned ncopied;      /* calls in a row that were copied */
	uint64_t risk_ns;  /* what dropping it may cost; part of at_risk_ns */
	bool risk_returns; /* no deadline: it may not come again at all */
};

struct pn_callsites_attr {
	enum pn_predictor predictor;
	unsigned periodic;  /* calls that `periodic` looks at; 0: default */
	size_t max_buffers; /* 0: 16384 */
	/* A buffer is about to be forgotten. NULL: nobody cares. */
	void (*forget)(void *arg, struct pn_call_buffer *buffer);
	void *forget_arg;
	struct pn_costs costs; /* being late costs a registration */
	double patience; /* keeping a buffer registered and unused for so many
			  * times what registering it costs is as bad as being
			  * late once; 0: 2500 */
};

struct pn_callsites;
struct pn_call_sequence;

/* -EINVAL: no such predictor, or too much for `periodic`; -ENOMEM. */
int pn_callsites_open(const struct pn_callsites_attr *attr,
		      struct pn_callsites **out);
void pn_callsites_close(struct pn_callsites *sites); /* NULL is fine */

/* Sets what a registration costs, as the device knows it by now. */
void pn_callsites_set_costs(struct pn_callsites *sites, double register_ns,
			    double register_page_ns);

/* NULL: no memory. Sequences are freed before their table is closed. */
struct pn_call_sequence *pn_call_sequence_alloc(struct pn_callsites *sites);
/* NULL is fine. */
void pn_call_sequence_free(struct pn_call_sequence *sequence);

/* What the table made of a call. */
struct pn_call_result {
	struct pn_call_buffer *buffer; /* with new deadline and expiry */
	struct pn_callsite *site;
	bool first;	/* on this buffer */
	bool irregular; /* leave the buffer alone */
	/* What had been predicted for this call, and what happened: times
	 * since the call that led to the prediction. 0: no prediction. */
	uint64_t predicted_ns, observed_ns;
};

/* Adds the next call of a sequence. -ENOMEM: nothing has changed. */
int pn_callsites_add_call(struct pn_call_sequence *sequence,
			  const struct pn_call *call,
			  struct pn_call_result *result);

/* The buffer with exactly this range; NULL: none. */
struct pn_call_buffer *pn_callsites_find(const struct pn_callsites *sites,
					 struct pn_range range);

size_t pn_callsites_nbuffers(const struct pn_callsites *sites);
uint64_t pn_callsites_bytes(const struct pn_callsites *sites); /* of buffers */
size_t pn_callsites_nsites(const struct pn_callsites *sites);

#endif
