/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * write -- writes a trace that is being read into another file, in any of the
 * formats of trace.h.
 *
 * A writer is opened on a trace and given events of it, all or some, in order;
 * what the trace says about itself (caches, sites, names) is written before the
 * first event that needs it. The plain format takes requests alone: other
 * events are left out of it.
 * Binary files come out as recordings of one thread: events of several stand in
 * the order in which they were given.
 * Threads: a writer belongs to one.
 */
#ifndef PN_TOOLS_TRACE_WRITE_H
#define PN_TOOLS_TRACE_WRITE_H

#include "tools/trace/trace.h"

struct pn_trace_writer;

/* path "-" is standard output. A file that exists is
 * overwritten. Errors as open(2), why says more. */
int pn_writer_open(const char *path, enum pn_trace_format format,
		   struct pn_trace *from, struct pn_trace_writer **out,
		   struct pn_why *why);

/* -EIO, -ENOSPC and so on, -ENOMEM. */
int pn_writer_event(struct pn_trace_writer *writer,
		    const struct pn_trace_event *event);

/* Completes the file; the last error, if there was any. */
int pn_writer_close(struct pn_trace_writer *writer);

#endif
