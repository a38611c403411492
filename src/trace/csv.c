/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Text: `t_us,addr,len[,op[,site]]`, one request a line.
 *
 * Lines are parsed where they lie in the source's buffer; nothing is allocated
 * for one. A site is the text of its frames: its id is the text's hash, so that
 * the frames themselves are parsed once, when a site is new.
 */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/range.h"
#include "trace/trace_impl.h"

/* --- lines --------------------------------------------------------------- */

#define LINE_MAX_BYTES 8192

struct line {
	const char *at, *end; /* without its newline */
};

/* The next line, which is valid until the next call. 1, 0 at the end, or an
 * error. */
static int next_line(struct pn_trace *trace, struct line *line)
{
	struct pn_source *source = &trace->source;
	long n = pn_source_need(source, LINE_MAX_BYTES);
	const char *start = (const char *)source->buffer + source->at;
	const char *newline;
	size_t len;

	if (n <= 0)
		return (int)n;
	trace->line++;
	len = n < LINE_MAX_BYTES ? (size_t)n : LINE_MAX_BYTES;
	newline = memchr(start, '\n', len);
	if (!newline && n >= LINE_MAX_BYTES)
		return pn_trace_damaged(trace, "the line is longer than %d",
					LINE_MAX_BYTES);
	if (!newline && source->error)
		return source->error;
	len = newline ? (size_t)(newline - start) : len;
	source->at += len + !!newline;
	*line = (struct line){ start, start + len };
	if (len && line->end[-1] == '\r')
		line->end--;
	return 1;
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

/* Up to the first character that is no digit; false: none, or too large. */
static inline bool take_decimal(struct line *line, uint64_t *out)
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

static inline bool take_hex(struct line *line, uint64_t *out)
{
	const char *start = line->at;
	uint64_t value = 0;
	unsigned d;

	for (; line->at < line->end && hex_digit(*line->at, &d); line->at++)
		value = value << 4 | d;
	*out = value;
	return line->at > start && line->at - start <= 16;
}

/* 0x and hexadecimal, or decimal. */
static inline bool take_number(struct line *line, uint64_t *out)
{
	if (line->end - line->at > 2 && line->at[0] == '0' &&
	    (line->at[1] | 0x20) == 'x') {
		line->at += 2;
		return take_hex(line, out);
	}
	return take_decimal(line, out);
}

/* Microseconds with a fraction, to nanoseconds; finer digits are dropped. */
static inline bool take_time(struct line *line, uint64_t *out)
{
	uint64_t ns, weight = 100;
	unsigned d;

	if (!take_decimal(line, &ns) ||
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

/* The comma before another field. */
static inline bool take_comma(struct line *line)
{
	if (line->at == line->end || *line->at != ',')
		return false;
	line->at++;
	return true;
}

static struct line take_text(struct line *line)
{
	const char *start = line->at;
	const char *comma = memchr(start, ',', (size_t)(line->end - line->at));

	line->at = comma ? comma : line->end;
	return (struct line){ start, line->at };
}

/* --- sites --------------------------------------------------------------- */

static uint64_t hash_text(struct line text)
{
	uint64_t hash = UINT64_C(0x243f6a8885a308d3);

	while (text.at < text.end) {
		size_t n = (size_t)(text.end - text.at);
		uint64_t word = 0;

		memcpy(&word, text.at, n < 8 ? n : 8);
		hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
		hash ^= hash >> 29;
		text.at += n < 8 ? n : 8;
	}
	return hash ? hash : 1;
}

static int add_site(struct pn_trace *trace, uint64_t id, struct line text)
{
	uint64_t frames[PN_TRACE_MAX_FRAMES];
	unsigned n = 0;

	for (; text.at < text.end; n++) {
		if (n == PN_TRACE_MAX_FRAMES)
			return pn_trace_damaged(
				trace, "a site has more than %d frames", n);
		if (!take_hex(&text, &frames[n]) ||
		    (text.at < text.end && *text.at++ != ';'))
			return pn_trace_damaged(
				trace, "a site is no list of hexadecimal "
				       "numbers joined by ';'");
	}
	return pn_sites_add(&trace->sites, id, frames, n);
}

/* The id of a site's text; "" is no site. */
static int site_of(struct pn_trace *trace, struct line text, uint64_t *id)
{
	*id = 0;
	if (text.at == text.end)
		return 0;
	*id = hash_text(text);
	if (pn_sites_find(&trace->sites, *id))
		return 0;
	return add_site(trace, *id, text);
}

/* --- plain --------------------------------------------------------------- */

static int take_op(struct pn_trace *trace, struct line *line,
		   struct pn_event *event)
{
	struct line text = take_text(line);
	int op = pn_ops_number(&trace->ops, text.at,
			       (size_t)(text.end - text.at));

	if (op == -EBADMSG)
		return pn_trace_damaged(trace,
					"the operation's name is too long");
	if (op < 0)
		return op;
	event->op = (uint8_t)op;
	return 0;
}

/* What the header announces behind the first three columns. */
static int take_rest(struct pn_trace *trace, struct line *line,
		     struct pn_event *event)
{
	struct line text;
	int ret;

	if (!take_comma(line))
		return pn_trace_damaged(trace, "the operation is missing");
	ret = take_op(trace, line, event);
	if (ret || !trace->info.sites)
		return ret;
	if (!take_comma(line))
		return pn_trace_damaged(trace, "the site is missing");
	text = take_text(line);
	return site_of(trace, text, &event->site);
}

static inline const char *take_first(struct line *line, struct pn_event *event)
{
	if (!take_time(line, &event->time_ns) || !take_comma(line))
		return "the time is no number of microseconds";
	if (!take_number(line, &event->addr) || !take_comma(line))
		return "the address is no number of 64 bits";
	if (!take_decimal(line, &event->len))
		return "the length is no number of 64 bits";
	if (event->len > UINT64_MAX - PN_PAGE_BYTES ||
	    event->addr > UINT64_MAX - PN_PAGE_BYTES - event->len)
		return "the buffer wraps around the end of the address space";
	return NULL;
}

static int parse_plain(struct pn_trace *trace, struct line line,
		       struct pn_event *event)
{
	const char *wrong;
	int ret = 0;

	*event = (struct pn_event){ .kind = PN_EVENT_PIN,
				    .peer = PN_EVENT_NO_PEER };
	wrong = take_first(&line, event);
	if (wrong)
		return pn_trace_damaged(trace, "%s", wrong);
	if (trace->has_op)
		ret = take_rest(trace, &line, event);
	if (!ret && line.at != line.end)
		ret = pn_trace_damaged(trace, "more columns than the first "
					      "line announces");
	return ret;
}

static int fill_plain(struct pn_trace *trace, struct pn_event *events, int max)
{
	struct line line;
	int n = 0, ret = 0;

	while (n < max && (ret = next_line(trace, &line)) > 0) {
		if (line.at == line.end || *line.at == '#')
			continue;
		ret = parse_plain(trace, line, &events[n]);
		if (ret)
			break;
		n++;
	}
	if (ret < 0)
		trace->failed = ret;
	return n;
}

const struct pn_reader pn_reader_plain = { .fill = fill_plain };

static bool is(struct line line, const char *text)
{
	size_t len = strlen(text);

	return (size_t)(line.end - line.at) == len &&
	       !memcmp(line.at, text, len);
}

const struct pn_reader *pn_csv_recognise(struct pn_trace *trace)
{
	struct line line;

	if (next_line(trace, &line) <= 0)
		return NULL;
	trace->info.format = PN_TRACE_PLAIN;
	trace->info.complete = true;
	trace->info.sites = is(line, "t_us,addr,len,op,site");
	trace->has_op = trace->info.sites || is(line, "t_us,addr,len,op");
	return trace->has_op || is(line, "t_us,addr,len") ? &pn_reader_plain
							  : NULL;
}
