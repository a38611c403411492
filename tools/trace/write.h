/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * write -- writes a trace that is being read to another file, in any format of
 * trace.h.
 *
 * A writer is opened on a trace and gets events of it, all or some, in order.
 * The metadata of the trace (caches, sites, names) is written before the first
 * event that needs it. The plain format takes PIN events only and ignores
 * others. Binary files look like recordings of one thread: events of several
 * threads are in the order in which the writer got them.
 * Threads: one.
 */
#ifndef PN_TOOLS_TRACE_WRITE_H
#define PN_TOOLS_TRACE_WRITE_H

#include "tools/trace/trace.h"

struct pn_trace_writer;

/* path "-" is standard output. An existing file is overwritten. Errors as
 * open(2); `why` has the text. */
int pn_writer_open(const char *path, enum pn_trace_format format,
		   struct pn_trace *from, struct pn_trace_writer **out,
		   struct pn_why *why);

/* -EIO, -ENOSPC and so on, -ENOMEM. */
int pn_writer_event(struct pn_trace_writer *writer,
		    const struct pn_trace_event *event);

/* Completes the file. Returns the last error, if any. */
int pn_writer_close(struct pn_trace_writer *writer);

#endif
