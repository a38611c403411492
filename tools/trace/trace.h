/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * trace -- reads the trace of a program that ran before.
 *
 * Nouns
 *   trace    a file that is read once, from its beginning to its end
 *   event    one record of the file, struct pn_trace_event. PIN events are the
 *            requests
 *   site     the place in the program that made a request: a 64-bit id, and the
 *            return addresses of the calling frames if the file has them
 *   cache    the configuration that was recorded: budget, policy and so on. A
 *            process has one cache per context; the event's `source` names it
 *
 * A trace has one of three formats, plain or compressed with gzip. The reader
 * recognises the format by the content:
 *   binary   written by PINION_TRACE (trace/format.h)
 *   full     the same as text: CSV with one column per number
 *   plain    CSV `t_us,addr,len[,op[,site]]`: one line per buffer that is
 *            handed to a transfer. Every line is a PIN event, `op` is the
 *            number of its operation's name (pn_trace_op_name()). The file does
 *            not record unpins (info->unpins is false): each pin ends at once
 *
 * Events of one thread come in their recorded order. Events of several threads
 * are merged by time, as far as their clocks can be compared. A damaged file is
 * read up to the damage; then pn_trace_read() returns -EBADMSG and
 * pn_trace_location() says where and why. A binary file whose program crashed
 * is not damaged: it ends where recording ended. Memory is bounded for any
 * input: sites beyond 2^18 keep their id and lose their frames, operation names
 * beyond 254 share the last number.
 * Threads: one thread uses a trace. Errors: negative errno.
 */
#ifndef PN_TOOLS_TRACE_TRACE_H
#define PN_TOOLS_TRACE_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cache/trace_event.h"
#include "config/option.h"

struct pn_trace;

enum pn_trace_format { PN_TRACE_BINARY, PN_TRACE_FULL, PN_TRACE_PLAIN };

struct pn_trace_info {
	enum pn_trace_format format;
	bool gzip;
	bool unpins; /* the file records the end of pins */
	bool sites;  /* the file has call sites */
	bool ops;    /* the file has names of operations */
	/* the recording ended normally, or the format is plain */
	bool complete;
	uint32_t pid;	   /* 0: not known */
	uint64_t start_ns; /* time of time_ns 0 on the recorder's clock */
	/* events that did not fit, as far as the file is read */
	uint64_t lost;
	uint64_t file_bytes, read_bytes; /* for progress: sizes on disk */
	char program[64];		 /* "": not known */
};

#define PN_TRACE_MAX_FRAMES 64

/* Errors as open(2); -EBADMSG: the file is not a trace. `why` has the text. */
int pn_trace_open(const char *path, struct pn_trace **out, struct pn_why *why);
void pn_trace_close(struct pn_trace *trace);

/* Reads up to max events. Returns their number, 0 at the end, or -EBADMSG
 * (after all events before the damage), -EIO, -ENOMEM. */
int pn_trace_read(struct pn_trace *trace, struct pn_trace_event *events,
		  int max);

/* Reads one event. Returns 1, 0 at the end, or the errors above. */
int pn_trace_next(struct pn_trace *trace, struct pn_trace_event *event);

/* The current position and, after an error, its reason: "FILE:12: the length is
 * no number". Valid until the next call. */
const char *pn_trace_location(struct pn_trace *trace);

const struct pn_trace_info *pn_trace_info(struct pn_trace *trace);

/* The configuration of a cache (`source` of its events); known once its OPEN
 * event has been read. -ENOENT: not known. */
int pn_trace_cache_config(struct pn_trace *trace, uint16_t source,
			  struct pn_trace_event_cache *out);

/* The frames of a site, innermost first. Returns their number, 0: not known. */
unsigned pn_trace_site_frames(struct pn_trace *trace, uint64_t id,
			      uint64_t frames[PN_TRACE_MAX_FRAMES]);

/* The name of the operation number op; "" for 0. */
const char *pn_trace_op_name(struct pn_trace *trace, uint8_t op);

/* event_names.c: the names of the numbers of an event; NULL: no name. Names of
 * decision and reason depend on the event's kind and decision. */
const char *pn_trace_kind_name(uint8_t kind);
const char *pn_trace_decision_name(const struct pn_trace_event *event);
const char *pn_trace_reason_name(const struct pn_trace_event *event);

/* The number of a word of length len; -1: there is no such word. kind is that
 * of the event, and decision. */
int pn_trace_kind_number(const char *word, size_t len);
int pn_trace_decision_number(uint8_t kind, const char *word, size_t len);
int pn_trace_reason_number(const char *word, size_t len);

#endif
