/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * errand -- something to be done by a deadline, and the queue of them (the
 * paper's RQ).
 *
 * The queue is ordered by deadline. One after the other, every errand must be
 * done in time: between an errand and the one before it lies at least the time
 * that it takes. Adding one that comes too close moves deadlines forward in
 * time, its own or those before it, never back (paper Helper, 3.2, "adjusting
 * registration deadlines").
 *
 * At rest: for neighbours a, b: a.due_ns + b.work_ns <= b.due_ns, or both are
 * as early as can be.
 * Threads: the caller's.
 */
#ifndef PN_HELPER_ERRAND_H
#define PN_HELPER_ERRAND_H

#include <stddef.h>
#include <stdint.h>

#include "base/list.h"

struct pn_errand {
	struct pn_list link; /* in the queue, or alone */
	uint64_t due_ns;     /* done by then */
	uint64_t work_ns;    /* how long it takes, at most */
};

struct pn_errands {
	struct pn_list list;
	size_t n;
};

static inline void pn_errand_init(struct pn_errand *errand)
{
	pn_list_init(&errand->link);
}

static inline void pn_errands_init(struct pn_errands *errands)
{
	pn_list_init(&errands->list);
	errands->n = 0;
}

/* The one due first; NULL: none. */
static inline struct pn_errand *pn_errands_first(
	const struct pn_errands *errands)
{
	if (pn_list_empty(&errands->list))
		return NULL;
	return pn_container_of(errands->list.next, struct pn_errand, link);
}

/* When the first errand that would have to move for it, or itself, would have
 * to be begun if one were added that is due at due_ns and takes work_ns. */
uint64_t pn_errands_start(const struct pn_errands *errands, uint64_t due_ns,
			  uint64_t work_ns);

/* Adds an errand that stands in no queue; its due_ns may become earlier. */
void pn_errands_add(struct pn_errands *errands, struct pn_errand *errand);

/* Takes it out; nothing happens when it stands in no queue. */
void pn_errands_remove(struct pn_errands *errands, struct pn_errand *errand);

#endif
