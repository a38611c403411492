/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * view -- reads the statistics segments of processes (base/stats_segment.h).
 *
 * A view is a copy of a segment at one moment: the process continues and may
 * end, the copy does not change. Everything in it is checked when it is opened:
 * a damaged file is refused.
 *
 * A segment belongs to its process if that process runs and has the segment
 * mapped. The segment of an ended process is removed when it is found. Segments
 * of other pid namespaces (containers that share /dev/shm) are ignored, since
 * their pids have another meaning here.
 * Threads: one at a time.
 */
#ifndef PN_TOOLS_VIEW_H
#define PN_TOOLS_VIEW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/stats_segment.h"

struct pn_view {
	unsigned char *copy;
	size_t used; /* bytes up to the end of the last block */
	const struct pn_stats_head *head;
	char state; /* state of the process in /proc: R, S, T (stopped), ... */
};

/* -ESRCH: no such process, or it has no segment; -EPROTO: another version, or
 * damaged; -EACCES; -ENOMEM. */
int pn_view_open(int pid, struct pn_view *view);

/* The same from bytes, which the view owns on success; for fuzzing. */
int pn_view_parse(unsigned char *bytes, size_t len, struct pn_view *view);
void pn_view_close(struct pn_view *view);

/* Stores the pids of this user's processes that have a segment, ascending.
 * Returns their number, at most max, or a negative errno. */
int pn_view_list(int *pids, unsigned max);

/* Returns the next used block after `block`, or the first one after NULL; NULL:
 * no more. */
const struct pn_stats_block *pn_view_next(const struct pn_view *view,
					  const struct pn_stats_block *block);
bool pn_view_is(const struct pn_stats_block *block, const char *kind);

/* The i-th field; i < block->nfields. */
const struct pn_stats_field *pn_view_field(const struct pn_stats_block *block,
					   unsigned i);
const struct pn_stats_field *pn_view_find(const struct pn_stats_block *block,
					  /* NULL: no such field */
					  const char *name);

/* The value of a field in a row as a number; pn_view_sum() adds the fields of
 * the same name of blocks that the block owns. */
double pn_view_number(const struct pn_stats_block *block, unsigned row,
		      const struct pn_stats_field *field);
double pn_view_sum(const struct pn_view *view,
		   const struct pn_stats_block *owner,
		   const struct pn_stats_field *field);
uint64_t pn_view_word(const struct pn_stats_block *block, unsigned row,
		      const struct pn_stats_field *field);
/* Non-printable characters become '?'. Returns buf. */
const char *pn_view_text(const struct pn_stats_block *block, unsigned row,
			 const struct pn_stats_field *field, char *buf,
			 size_t bytes);

/* The sum of a field over all blocks of a kind; 0 without such a field. */
double pn_view_total(const struct pn_view *view, const char *kind,
		     const char *name);

/* The maximum of a field over all blocks of a kind. */
double pn_view_largest(const struct pn_view *view, const char *kind,
		       const char *name);

#endif
