/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * trace -- reads the requests of a program that ran before.
 *
 * Nouns
 *   trace    a file, being read from its beginning to its end
 *   event    one row of it, struct pn_trace_event; PIN events are the requests
 *   site     from where in the program a request came: a 64-bit id, and the
 *            return addresses of the calling frames where the file has them
 *   cache    what was recorded: its budget, policy and so on. A process has
 *            one for each context; pn_trace_event.source says which
 *
 * Three formats are told apart by their content, each plain or gzip'd:
 *   binary   what PINION_TRACE records (format.h)
 *   full     the same as text: CSV with a column for each number
 *   plain    CSV `t_us,addr,len[,op[,site]]`: one buffer handed to a transfer
 *            per line. All are PIN events, `op` is the number of its name
 *            (pn_trace_op_name()), and nothing says when they were unpinned
 *            (info->unpins is false): at once.
 *
 * Events come in order of time as far as clocks can be compared: those of one
 * thread exactly, those of several threads merged.
 * A damaged file is read up to the damage; then pn_trace_read() says -EBADMSG
 * and pn_trace_location() where and what. A binary file whose program crashed
 * is not damaged: it ends where recording ended. Memory is bounded whatever the
 * file says: sites beyond 2^18 have an id and no frames, names beyond 254 share
 * the last number. Threads: a trace belongs to one. Errors: negative errno.
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
	bool unpins;	   /* the file says when pins end */
	bool sites;	   /* and where they came from */
	bool ops;	   /* and for what */
	bool complete;	   /* recording ended in good order, or plain text */
	uint32_t pid;	   /* 0: not known */
	uint64_t start_ns; /* the time that time_ns 0 stands for */
	uint64_t lost;	   /* events that found no room, known so far */
	uint64_t file_bytes, read_bytes; /* for progress; as on disk */
	char program[64];		 /* "": not known */
};

#define PN_TRACE_MAX_FRAMES 64

/* -ENOENT and so on: as open(2); -EBADMSG: no trace; why says more. */
int pn_trace_open(const char *path, struct pn_trace **out, struct pn_why *why);
void pn_trace_close(struct pn_trace *trace);

/* Reads up to max events; returns how many, 0 at the end, or -EBADMSG (once
 * all events before the damage were returned), -EIO, -ENOMEM. */
int pn_trace_read(struct pn_trace *trace, struct pn_trace_event *events,
		  int max);

/* One event: 1, 0 at the end, or the errors above. */
int pn_trace_next(struct pn_trace *trace, struct pn_trace_event *event);

/* Where reading stands and, after an error, what is wrong there:
 * "FILE:12: the length is no number". Valid until the next call. */
const char *pn_trace_location(struct pn_trace *trace);

const struct pn_trace_info *pn_trace_info(struct pn_trace *trace);

/* What was said about a source (pn_trace_event.source); known when its OPEN
 * event has been read. -ENOENT: nothing. */
int pn_trace_cache_config(struct pn_trace *trace, uint16_t source,
			  struct pn_trace_event_cache *out);

/* The frames of a site, innermost first; how many there are, 0: not known. */
unsigned pn_trace_site_frames(struct pn_trace *trace, uint64_t site,
			      uint64_t frames[PN_TRACE_MAX_FRAMES]);

/* What pn_trace_event.op stands for; "" for 0. */
const char *pn_trace_op_name(struct pn_trace *trace, uint8_t op);

/* event_names.c: what the numbers of an event are called; NULL: they have no
 * name. decision and reason depend on the event's kind and decision. */
const char *pn_trace_kind_name(uint8_t kind);
const char *pn_trace_decision_name(const struct pn_trace_event *event);
const char *pn_trace_reason_name(const struct pn_trace_event *event);

/* The number of a word of length len; -1: there is no such word. kind is that
 * of the event, and decision. */
int pn_trace_kind_number(const char *word, size_t len);
int pn_trace_decision_number(uint8_t kind, const char *word, size_t len);
int pn_trace_reason_number(const char *word, size_t len);

#endif
