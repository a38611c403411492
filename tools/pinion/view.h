/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * view -- reads what processes show of themselves (base/stats_segment.h).
 *
 * A view is a copy of a board as it was a moment ago: the process goes on, and
 * may end, and the copy stays what it is. Everything in it is checked when it
 * is opened: a file that somebody has damaged is refused, not believed.
 *
 * A board is its process's when that process runs and has it mapped. One of a
 * process that is gone is removed when it is met. Those of other pid namespaces
 * (containers that share /dev/shm) are not looked at: their pids mean something
 * else there.
 * Threads: the caller's.
 */
#ifndef PN_TOOLS_VIEW_H
#define PN_TOOLS_VIEW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/stats_segment.h"

struct pn_view {
	unsigned char *copy;
	size_t used; /* bytes of it that blocks reach to */
	const struct pn_stats_head *head;
	char state; /* of the process, as in /proc: R, S, T (stopped), ... */
};

/* -ESRCH: no such process, or it shows nothing; -EPROTO: of another version or
 * damaged; -EACCES; -ENOMEM. */
int pn_view_open(int pid, struct pn_view *view);

/* The same from bytes, which the view takes over on success; for fuzzing. */
int pn_view_parse(unsigned char *bytes, size_t len, struct pn_view *view);
void pn_view_close(struct pn_view *view);

/* Pids of this user's processes that show something, rising; how many, at most
 * max; or a negative errno. */
int pn_view_list(int *pids, unsigned max);

/* The next block that is in use after `block`, or the first after NULL; NULL:
 * no more. */
const struct pn_stats_block *pn_view_next(const struct pn_view *view,
					  const struct pn_stats_block *block);
bool pn_view_is(const struct pn_stats_block *block, const char *kind);

/* The i-th field; i < block->nfields. */
const struct pn_stats_field *pn_view_field(const struct pn_stats_block *block,
					   unsigned i);
const struct pn_stats_field *pn_view_find(const struct pn_stats_block *block,
					  const char *name); /* NULL: none */

/* What a field says in a row: a number; or the sum of it and of the fields of
 * that name of blocks that the block owns. */
double pn_view_number(const struct pn_stats_block *block, unsigned row,
		      const struct pn_stats_field *field);
double pn_view_sum(const struct pn_view *view,
		   const struct pn_stats_block *owner,
		   const struct pn_stats_field *field);
uint64_t pn_view_word(const struct pn_stats_block *block, unsigned row,
		      const struct pn_stats_field *field);
/* Characters that are not printable become '?'. Returns buf. */
const char *pn_view_text(const struct pn_stats_block *block, unsigned row,
			 const struct pn_stats_field *field, char *buf,
			 size_t bytes);

/* All blocks of a kind together: a field by name, 0 where there is none. */
double pn_view_total(const struct pn_view *view, const char *kind,
		     const char *name);

/* The largest of them. */
double pn_view_largest(const struct pn_view *view, const char *kind,
		       const char *name);

#endif
