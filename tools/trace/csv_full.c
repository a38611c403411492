/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The full text format with one column per number of an event: `pinion trace
 * convert` makes it from a recording so that other tools can read it, and back.
 *
 * 	#pinion trace 1
 * 	#pid,4711
 * 	#cache,1,max_bytes=8388608,policy=lru,...
 * 	#site,1f2e,558c70b29c12;7fb93335a24a
 * 	time_ns,kind,decision,reason,addr,len,flags,handle,...
 * 	0,pin,miss,new,0x7f3c5a000000,65536,0x1,0x55d0,0x1f2e,,1,1,0,send
 *
 * Lines that begin with # are directives; unknown ones are comments. A number
 * may replace a word. An empty field is 0; an empty peer means no peer.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "tools/trace/text.h"

/* --- directives ------------------------------------------------------------
 */

#define FIELD(name, type)                                                 \
	{                                                                 \
#name, type, offsetof(struct pn_trace_event_cache, name), \
			sizeof(((struct pn_trace_event_cache *)0)->name)  \
	}

const struct pn_cache_field pn_cache_fields[] = {
	FIELD(max_bytes, PN_FIELD_NUMBER),
	FIELD(max_regions, PN_FIELD_NUMBER),
	FIELD(max_region_bytes, PN_FIELD_NUMBER),
	FIELD(batch_bytes, PN_FIELD_NUMBER),
	FIELD(batch_age_ns, PN_FIELD_NUMBER),
	FIELD(batch, PN_FIELD_NUMBER),
	FIELD(merge, PN_FIELD_NUMBER),
	FIELD(watched, PN_FIELD_NUMBER),
	FIELD(read_only, PN_FIELD_NUMBER),
	FIELD(one_segment, PN_FIELD_NUMBER),
	FIELD(register_ns, PN_FIELD_DOUBLE),
	FIELD(register_page_ns, PN_FIELD_DOUBLE),
	FIELD(deregister_ns, PN_FIELD_DOUBLE),
	FIELD(deregister_page_ns, PN_FIELD_DOUBLE),
	FIELD(policy, PN_FIELD_TEXT),
	FIELD(device, PN_FIELD_TEXT),
	{ NULL, PN_FIELD_NUMBER, 0, 0 },
};

static size_t length(struct line text)
{
	return (size_t)(text.end - text.at);
}

/* x86-64 and aarch64 are little-endian: the low bytes come first. */
static bool set_number(struct line value, void *to, size_t bytes)
{
	uint64_t number;

	if (!parse_number(&value, &number) || value.at != value.end ||
	    (bytes < 8 && number >> 8 * bytes))
		return false;
	memcpy(to, &number, bytes);
	return true;
}

static bool set_double(struct line value, void *to)
{
	char text[40] = "";
	size_t n = (size_t)(value.end - value.at);
	char *end;
	double number;

	if (!n || n >= sizeof(text))
		return false;
	memcpy(text, value.at, n);
	number = strtod(text, &end);
	memcpy(to, &number, sizeof(number));
	return end == text + n;
}

static bool set_field(const struct pn_cache_field *field, struct line value,
		      struct pn_trace_event_cache *cache)
{
	char *to = (char *)cache + field->offset;
	size_t n = (size_t)(value.end - value.at);

	switch (field->type) {
	case PN_FIELD_TEXT:
		if (n >= field->bytes)
			return false;
		memcpy(to, value.at, n);
		return true;
	case PN_FIELD_DOUBLE:
		return set_double(value, to);
	default:
		return set_number(value, to, field->bytes);
	}
}

/* Parses name=value; an unknown name is of a later version and ignored. */
static bool parse_cache_field(struct line text,
			      struct pn_trace_event_cache *cache)
{
	const char *equals = memchr(text.at, '=', (size_t)(text.end - text.at));
	const struct pn_cache_field *f = pn_cache_fields;
	struct line name = { text.at, equals };

	if (!equals)
		return false;
	while (f->name && !line_is(name, f->name))
		f++;
	return !f->name ||
	       set_field(f, (struct line){ equals + 1, text.end }, cache);
}

static int parse_cache(struct pn_trace *trace, struct line line)
{
	struct pn_trace_event_cache cache = { 0 };
	uint64_t source;
	bool ok = parse_number(&line, &source) && source <= UINT16_MAX;

	while (ok && skip_comma(&line))
		ok = parse_cache_field(parse_field(&line), &cache);
	if (!ok || line.at != line.end)
		return pn_trace_set_damaged(trace,
					    "a cache is described by NUMBER,"
					    "name=value,...");
	return pn_caches_set(&trace->caches, (unsigned)source, &cache,
			     sizeof(cache));
}

static int parse_site(struct pn_trace *trace, struct line line)
{
	uint64_t id;

	if (!parse_hex(&line, &id) || !id || !skip_comma(&line))
		return pn_trace_set_damaged(trace, "a site is described by ID,"
						   "frame;frame;...");
	if (pn_sites_find(&trace->sites, id))
		return 0;
	return pn_text_site(trace, id, line);
}

static void parse_program(struct line line, struct pn_trace_info *info)
{
	size_t n = length(line);

	if (n >= sizeof(info->program))
		n = sizeof(info->program) - 1;
	memcpy(info->program, line.at, n);
	info->program[n] = 0;
	pn_text_sanitize(info->program, sizeof(info->program));
}

static int parse_directive(struct pn_trace *trace, struct line line)
{
	struct pn_trace_info *info = &trace->info;
	struct line name = parse_field(&line);
	uint64_t n = 0;

	if (!skip_comma(&line))
		return 0;
	if (line_is(name, "#cache"))
		return parse_cache(trace, line);
	if (line_is(name, "#site"))
		return parse_site(trace, line);
	if (line_is(name, "#program"))
		parse_program(line, info);
	parse_number(&line, &n);
	if (line_is(name, "#pid"))
		info->pid = (uint32_t)n;
	else if (line_is(name, "#lost"))
		info->lost = n;
	else if (line_is(name, "#start_ns"))
		info->start_ns = n;
	else if (line_is(name, "#complete"))
		info->complete = n;
	return 0;
}

/* --- events --------------------------------------------------------------- */

/* Parses a number of at most `max`; empty: 0. */
static bool parse_below(struct line *line, uint64_t max, uint64_t *out)
{
	*out = 0;
	if (line->at == line->end || *line->at == ',')
		return true;
	return parse_number(line, out) && *out <= max;
}

/* Sets *out to the number of the word, or parses a number if there is no such
 * word (word < 0). */
static bool word_or_number(struct line text, int word, uint8_t *out)
{
	uint64_t value = (uint64_t)word;

	if (word < 0 && (!parse_number(&text, &value) || text.at != text.end))
		return false;
	*out = (uint8_t)value;
	return value <= UINT8_MAX;
}

/* Parses the first columns. Returns what is wrong, or NULL. */
static const char *parse_words(struct line *line, struct pn_trace_event *e)
{
	struct line text;

	if (!parse_decimal(line, &e->time_ns) || !skip_comma(line))
		return "the time is no number";
	text = parse_field(line);
	if (!word_or_number(text, pn_trace_kind_number(text.at, length(text)),
			    &e->kind) ||
	    e->kind >= PN_EVENT_NKINDS || !skip_comma(line))
		return "unknown kind of event";
	text = parse_field(line);
	if (!word_or_number(text,
			    pn_trace_decision_number(e->kind, text.at,
						     length(text)),
			    &e->decision) ||
	    !skip_comma(line))
		return "unknown decision";
	text = parse_field(line);
	if (!word_or_number(text, pn_trace_reason_number(text.at, length(text)),
			    &e->reason) ||
	    !skip_comma(line))
		return "unknown reason";
	return NULL;
}

#define COLUMN(field)                                               \
	if (!parse_below(line, (__typeof__(e->field))-1, &value) || \
	    !skip_comma(line))                                      \
		return "the column " #field " is no such number";   \
	e->field = (__typeof__(e->field))value

static const char *parse_numbers(struct line *line, struct pn_trace_event *e)
{
	uint64_t value;
	bool peer;

	COLUMN(addr);
	COLUMN(len);
	COLUMN(flags);
	COLUMN(handle);
	COLUMN(site);
	peer = line->at < line->end && *line->at != ',';
	COLUMN(peer);
	COLUMN(thread);
	COLUMN(source);
	COLUMN(more);
	if (!peer)
		e->peer = PN_EVENT_NO_PEER;
	return NULL;
}

static int parse_full(struct pn_trace *trace, struct line line,
		      struct pn_trace_event *event)
{
	const char *wrong;

	*event = (struct pn_trace_event){ 0 };
	wrong = parse_words(&line, event);
	if (!wrong)
		wrong = parse_numbers(&line, event);
	if (!wrong && !pn_trace_event_is_valid(event))
		wrong = "the range wraps around the end of the address space";
	if (!wrong && memchr(line.at, ',', length(line)))
		wrong = "too many columns";
	if (wrong)
		return pn_trace_set_damaged(trace, "%s", wrong);
	return pn_text_op(trace, line, event);
}

static int fill_full(struct pn_trace *trace, struct pn_trace_event *events,
		     int max)
{
	struct line line;
	int n = 0, ret = 0;

	while (n < max && !ret && (ret = pn_text_line(trace, &line)) > 0) {
		ret = 0;
		if (line.at == line.end || line_is(line, PN_CSV_FULL_COLUMNS))
			continue;
		if (*line.at == '#')
			ret = parse_directive(trace, line);
		else if (!(ret = parse_full(trace, line, &events[n])))
			n++;
	}
	if (ret < 0)
		trace->failed = ret;
	return n;
}

const struct pn_reader pn_csv_full_reader = { .fill = fill_full };
