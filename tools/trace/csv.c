/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The plain text format: `t_us,addr,len[,op[,site]]`, one request per line.
 *
 * Lines are parsed in place in the input buffer, without allocation. The id of
 * a site is the hash of the text of its frames, so that the frames are parsed
 * only once, when the site is new.
 */
#include <errno.h>

#include "tools/trace/text.h"

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

int pn_text_site(struct pn_trace *trace, uint64_t id, struct line text)
{
	uint64_t frames[PN_TRACE_MAX_FRAMES];
	unsigned n = 0;

	for (; text.at < text.end; n++) {
		if (n == PN_TRACE_MAX_FRAMES)
			return pn_trace_set_damaged(
				trace, "a site has more than %d frames", n);
		if (!parse_hex(&text, &frames[n]) ||
		    (text.at < text.end && *text.at++ != ';'))
			return pn_trace_set_damaged(
				trace, "a site is not a list of hexadecimal "
				       "numbers separated by ';'");
	}
	return pn_sites_add(&trace->sites, id, frames, n);
}

/* Returns the id of a site's text; "" is no site. */
static int site_of(struct pn_trace *trace, struct line text, uint64_t *id)
{
	*id = 0;
	if (text.at == text.end)
		return 0;
	*id = hash_text(text);
	if (pn_sites_find(&trace->sites, *id))
		return 0;
	return pn_text_site(trace, *id, text);
}

/* --- plain --------------------------------------------------------------- */

int pn_text_op(struct pn_trace *trace, struct line text,
	       struct pn_trace_event *event)
{
	int op = pn_ops_number(&trace->ops, text.at,
			       (size_t)(text.end - text.at));

	if (op == -EBADMSG)
		return pn_trace_set_damaged(trace,
					    "the operation's name is too long "
					    "or has invalid characters");
	if (op < 0)
		return op;
	event->op = (uint8_t)op;
	return 0;
}

/* Parses the columns that the header line announces behind the first three. */
static int parse_optional(struct pn_trace *trace, struct line *line,
			  struct pn_trace_event *event)
{
	struct line text;
	int ret;

	if (!skip_comma(line))
		return pn_trace_set_damaged(trace, "the operation is missing");
	ret = pn_text_op(trace, parse_field(line), event);
	if (ret || !trace->info.sites)
		return ret;
	if (!skip_comma(line))
		return pn_trace_set_damaged(trace, "the site is missing");
	text = parse_field(line);
	return site_of(trace, text, &event->site);
}

static inline const char *parse_required(struct line *line,
					 struct pn_trace_event *event)
{
	if (!parse_time(line, &event->time_ns) || !skip_comma(line))
		return "the time is no number of microseconds";
	if (!parse_number(line, &event->addr) || !skip_comma(line))
		return "the address is no number of 64 bits";
	if (!parse_decimal(line, &event->len))
		return "the length is no number of 64 bits";
	if (!pn_trace_event_is_valid(event))
		return "the buffer wraps around the end of the address space";
	return NULL;
}

static int parse_plain(struct pn_trace *trace, struct line line,
		       struct pn_trace_event *event)
{
	const char *wrong;
	int ret = 0;

	*event = (struct pn_trace_event){ .kind = PN_EVENT_PIN,
					  .peer = PN_EVENT_NO_PEER };
	wrong = parse_required(&line, event);
	if (wrong)
		return pn_trace_set_damaged(trace, "%s", wrong);
	if (trace->info.ops)
		ret = parse_optional(trace, &line, event);
	if (!ret && line.at != line.end)
		ret = pn_trace_set_damaged(trace, "more columns than the first "
						  "line announces");
	return ret;
}

static int fill_plain(struct pn_trace *trace, struct pn_trace_event *events,
		      int max)
{
	struct line line;
	int n = 0, ret = 0;

	while (n < max && (ret = pn_text_line(trace, &line)) > 0) {
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

static const struct pn_reader plain_reader = { .fill = fill_plain };

const struct pn_reader *pn_csv_recognise(struct pn_trace *trace)
{
	struct line line;

	if (pn_text_line(trace, &line) <= 0)
		return NULL;
	if (line_is(line, PN_CSV_FULL_FIRST_LINE)) {
		trace->info.format = PN_TRACE_FULL;
		trace->info.unpins = trace->info.sites = true;
		trace->info.ops = true;
		return &pn_csv_full_reader;
	}
	trace->info.format = PN_TRACE_PLAIN;
	trace->info.complete = true;
	trace->info.sites = line_is(line, "t_us,addr,len,op,site");
	trace->info.ops =
		trace->info.sites || line_is(line, "t_us,addr,len,op");
	return trace->info.ops || line_is(line, "t_us,addr,len") ? &plain_reader
								 : NULL;
}
