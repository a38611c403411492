/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Shared by the readers of the formats; trace.h describes the module.
 *
 * input   bytes of a file, plain or gzip'd, through one bounded buffer
 * tables  sites, names of operations and caches, each with a limit
 * reader  one format: fills an array of events from the input
 */
#ifndef PN_TOOLS_TRACE_TRACE_IMPL_H
#define PN_TOOLS_TRACE_TRACE_IMPL_H

#include <zlib.h>

#include "base/compiler.h"
#include "tools/trace/trace.h"

/* --- bytes --------------------------------------------------------------- */

#define PN_INPUT_BYTES (256 << 10)

struct pn_input {
	gzFile file;
	uint8_t *buffer; /* PN_INPUT_BYTES */
	size_t at, end;	 /* the unread part */
	uint64_t offset; /* of buffer[0] in the uncompressed file */
	bool ended;
	int error; /* returned after the last byte; 0: end of file */
};

/* Makes at least `want` bytes readable at buffer[at], fewer at the end of the
 * file. Returns the number of readable bytes; without any: 0, -EIO or -EBADMSG
 * (damaged gzip). */
long pn_input_need(struct pn_input *input, size_t want);

static inline uint64_t pn_input_offset(const struct pn_input *input)
{
	return input->offset + input->at;
}

/* Terminates a text from a file and replaces characters that a CSV column or a
 * terminal must not get by '?'. */
void pn_text_sanitize(char *text, size_t bytes);

/* --- tables -------------------------------------------------------------- */

#define PN_SITES_MAX	   (1u << 18)
#define PN_SITE_FRAMES_MAX (4u << 20)
#define PN_OPS_MAX	   255
#define PN_OP_BYTES	   32

struct pn_site {
	uint64_t id; /* 0: free */
	uint32_t first, n;
};

/* Open addressing; at most half full. */
struct pn_sites {
	struct pn_site *table;
	uint32_t mask, n;
	uint64_t *frames;
	uint32_t nframes, max_frames;
};

/* Returns the site or NULL. */
const struct pn_site *pn_sites_find(const struct pn_sites *sites, uint64_t id);
/* Adds a site that is not in the table; beyond the limits it is dropped.
 * -ENOMEM. */
int pn_sites_add(struct pn_sites *sites, uint64_t id, const uint64_t *frames,
		 unsigned n);
void pn_sites_fini(struct pn_sites *sites);

struct pn_ops {
	char (*names)[PN_OP_BYTES];
	unsigned n;
	unsigned last; /* most lines repeat the name of the line before */
};

/* Returns the number of a name, from 1; a new name gets the next number.
 * -EBADMSG: too long, or invalid characters; -ENOMEM. */
int pn_ops_number(struct pn_ops *ops, const char *name, size_t len);

/* Sets the name of op; characters that a column must not hold become '?'.
 * -ENOMEM. */
int pn_ops_name(struct pn_ops *ops, unsigned op, const char *name, size_t len);

#define PN_CACHES_MAX 4096

struct pn_caches {
	struct pn_trace_event_cache *table; /* by source - 1 */
	unsigned n;
};

/* `about` may be shorter or longer than this version's struct. -ENOMEM. */
int pn_caches_set(struct pn_caches *caches, unsigned source, const void *about,
		  size_t bytes);

/* --- readers ------------------------------------------------------------- */

struct pn_trace;
struct pn_binary;

struct pn_reader {
	int (*fill)(struct pn_trace *trace, struct pn_trace_event *events,
		    int max);
	void (*close)(struct pn_trace *trace); /* may be NULL */
};

#define PN_TRACE_READ_AHEAD 256

struct pn_trace {
	char *path;
	struct pn_input input;
	const struct pn_reader *reader;
	struct pn_trace_info info;
	struct pn_sites sites;
	struct pn_ops ops;
	struct pn_caches caches;
	struct pn_binary *binary; /* state of the binary reader */
	uint64_t line;		  /* text formats: current line, from 1 */
	uint64_t position;	  /* binary: offset of the damage */
	int failed;		  /* sticky error of every further read */
	char what[PN_WHY_BYTES];
	char where[PN_WHY_BYTES * 2];
	/* For pn_trace_next(). */
	int next, n;
	struct pn_trace_event ahead[PN_TRACE_READ_AHEAD];
};

/* Whether the event's range does not wrap around. Readers refuse other events,
 * so that their users need no overflow checks. */
bool pn_trace_event_is_valid(const struct pn_trace_event *event);

/* Stores the reason; returns -EBADMSG. */
int pn_trace_set_damaged(struct pn_trace *trace, const char *fmt, ...)
	PN_PRINTF(2, 3);

/* binary.c: sets trace->reader and consumes the file header if the file is
 * binary. Returns an error for a binary file that cannot be read. */
int pn_binary_recognise(struct pn_trace *trace);

/* csv.c: consumes the first line and returns the reader that it asks for, or
 * NULL. */
const struct pn_reader *pn_csv_recognise(struct pn_trace *trace);

/* csv_full.c: its first line, its columns, its reader. */
#define PN_CSV_FULL_FIRST_LINE "#pinion trace 1"
#define PN_CSV_FULL_COLUMNS                                             \
	"time_ns,kind,decision,reason,addr,len,flags,handle,site,peer," \
	"thread,source,more,op"
extern const struct pn_reader pn_csv_full_reader;

/* One number of struct pn_trace_event_cache, as text. */
enum pn_field_type {
	PN_FIELD_NUMBER,
	PN_FIELD_DOUBLE,
	PN_FIELD_TEXT,
};
struct pn_cache_field {
	const char *name;
	enum pn_field_type type;
	uint16_t offset, bytes;
};
/* terminated by name NULL */
extern const struct pn_cache_field pn_cache_fields[];

#endif
