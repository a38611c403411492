/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * text -- splits lines into fields and parses them in place.
 *
 * parse_...() parse one field at line->at and move line->at behind it. They
 * return false when the field is not of that kind.
 */
#ifndef PN_TOOLS_TRACE_TEXT_H
#define PN_TOOLS_TRACE_TEXT_H

#include <string.h>

#include "base/clock.h"
#include "tools/trace/trace_impl.h"

#define PN_LINE_MAX_BYTES 8192

struct line {
	const char *at, *end; /* without its newline */
};

/* Reads the next line, which is valid until the next call. Returns 1, 0 at the
 * end, or an error. */
int pn_text_line(struct pn_trace *trace, struct line *line);

/* csv.c: adds the frames of a site, hexadecimal and separated by ';', to the
 * table. */
int pn_text_site(struct pn_trace *trace, uint64_t id, struct line text);

/* csv.c: sets event->op to the number of an operation's name. */
int pn_text_op(struct pn_trace *trace, struct line text,
	       struct pn_trace_event *event);

static inline bool line_is(struct line line, const char *text)
{
	size_t len = strlen(text);

	return (size_t)(line.end - line.at) == len &&
	       !memcmp(line.at, text, len);
}

/* --- fields -------------------------------------------------------------- */

static inline bool digit(char c, unsigned *out)
{
	*out = (unsigned)c - '0';
	return *out < 10;
}

static inline bool hex_digit(char c, unsigned *out)
{
	if (digit(c, out))
		return true;
	*out = ((unsigned)c | 0x20) - 'a' + 10;
	return *out >= 10 && *out < 16;
}

/* Parses up to the first character that is not a digit. False: no digits, or
 * too large. */
static inline bool parse_decimal(struct line *line, uint64_t *out)
{
	const char *start = line->at;
	uint64_t value = 0;
	unsigned d;

	for (; line->at < line->end && digit(*line->at, &d); line->at++)
		if (__builtin_mul_overflow(value, 10, &value) ||
		    __builtin_add_overflow(value, d, &value))
			return false;
	*out = value;
	return line->at > start;
}

static inline bool parse_hex(struct line *line, uint64_t *out)
{
	const char *start = line->at;
	uint64_t value = 0;
	unsigned d;

	for (; line->at < line->end && hex_digit(*line->at, &d); line->at++)
		value = value << 4 | d;
	*out = value;
	return line->at > start && line->at - start <= 16;
}

/* Hexadecimal after 0x, else decimal. */
static inline bool parse_number(struct line *line, uint64_t *out)
{
	if (line->end - line->at > 2 && line->at[0] == '0' &&
	    (line->at[1] | 0x20) == 'x') {
		line->at += 2;
		return parse_hex(line, out);
	}
	return parse_decimal(line, out);
}

/* Microseconds with a fraction, to nanoseconds; finer digits are dropped. */
static inline bool parse_time(struct line *line, uint64_t *out)
{
	uint64_t ns, weight = 100;
	unsigned d;

	if (!parse_decimal(line, &ns) ||
	    __builtin_mul_overflow(ns, PN_NS_PER_US, &ns))
		return false;
	if (line->at < line->end && *line->at == '.')
		for (line->at++; line->at < line->end && digit(*line->at, &d);
		     line->at++, weight /= 10)
			if (__builtin_add_overflow(ns, d * weight, &ns))
				return false;
	*out = ns;
	return true;
}

/* Skips the comma before another field. */
static inline bool skip_comma(struct line *line)
{
	if (line->at == line->end || *line->at != ',')
		return false;
	line->at++;
	return true;
}

static inline struct line parse_field(struct line *line)
{
	const char *start = line->at;
	const char *comma = memchr(start, ',', (size_t)(line->end - line->at));

	line->at = comma ? comma : line->end;
	return (struct line){ start, line->at };
}

#endif
