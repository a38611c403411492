/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pinion trace: record the requests of a program, print them, convert them to
 * other formats. `stat` is in cmd_trace_stat.c.
 */
#include "tools/pinion/cmd_trace.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/pinion/report.h"
#include "tools/pinion/words.h"
#include "tools/trace/write.h"

/* --- what they share -------------------------------------------------------
 */

int pn_trace_operand(char *const *operands, struct pn_trace **out)
{
	struct pn_why why = { "" };

	if (!operands[0] || operands[1])
		return pn_usage_error("trace: name one file after the options");
	if (!pn_trace_open(operands[0], out, &why))
		return PN_EXIT_OK;
	fprintf(stderr, "pinion: %s\n", why.text);
	return PN_EXIT_FAILED;
}

/* Updates rarely. */
static void show_progress(struct pn_trace *trace, uint64_t nevents)
{
	const struct pn_trace_info *info;
	char text[80];

	if (nevents % (1 << 18))
		return;
	info = pn_trace_info(trace);
	snprintf(text, sizeof(text), "reading: %" PRIu64 " %%",
		 info->file_bytes ? info->read_bytes * 100 / info->file_bytes
				  : 0);
	pn_report_progress(text);
}

int pn_trace_walk(struct pn_trace *trace,
		  int (*fn)(void *arg, const struct pn_trace_event *events,
			    int n),
		  void *arg)
{
	struct pn_trace_event events[256];
	uint64_t nevents = 0;
	int n, ret = 0;

	while (!ret && (n = pn_trace_read(trace, events, 256)) > 0) {
		ret = fn(arg, events, n);
		nevents += (unsigned)n;
		show_progress(trace, nevents);
	}
	pn_report_progress(NULL);
	if (ret || !n)
		return ret;
	fprintf(stderr, "pinion: %s\n", pn_trace_location(trace));
	return PN_EXIT_FAILED;
}

const char *pn_trace_format_text(const struct pn_trace_info *info)
{
	static const char *const names[] = { "recording", "recording as CSV",
					     "CSV" };

	return names[info->format];
}

/* --- record ----------------------------------------------------------------
 */

struct record_values {
	char output[PN_OPTION_TEXT_BYTES];
	uint64_t max;
};

static const struct pn_option record_options[] = {
	{ "output", PN_OPTION_TEXT, "pinion-%p.trace",
	  "the file; %p is replaced by the process id",
	  offsetof(struct record_values, output), 0, 0, NULL },
	{ "max", PN_OPTION_BYTES, "1G", "maximum size of a file",
	  offsetof(struct record_values, max), 128 << 10, 0, NULL },
};

/* The command replaces this process; it, and every process that it starts,
 * records when it opens pinion. */
static int run_record(const void *v, char *const *operands)
{
	const struct record_values *values = v;
	char max[24];

	if (!operands[0])
		return pn_usage_error("trace record: name a command: `pinion "
				      "trace record -- ./a.out`");
	snprintf(max, sizeof(max), "%" PRIu64, values->max);
	if (setenv("PINION_TRACE", values->output, 1) ||
	    setenv("PINION_TRACE_MAX_BYTES", max, 1))
		return pn_failed("trace record", -errno);
	execvp(operands[0], operands);
	return pn_failed(operands[0], -errno);
}

static const struct pn_command record_command = {
	.name = "record",
	.help = "run a command and record its requests",
	.about = "Every process that opens pinion writes its own file; if the "
		 "name has no %p and another process is writing that file "
		 "already, the process id is appended.",
	.options = record_options,
	.noptions = PN_ARRAY_LEN(record_options),
	.values_bytes = sizeof(struct record_values),
	.operands = "[--] COMMAND [ARGUMENT...]",
	.run = run_record,
};

/* --- show ------------------------------------------------------------------
 */

struct show_values {
	char kind[PN_OPTION_TEXT_BYTES], decision[PN_OPTION_TEXT_BYTES];
	char at[PN_OPTION_TEXT_BYTES];
	uint64_t from, to, min, thread, cache, limit;
};

#define SHOW(field) offsetof(struct show_values, field)

static const struct pn_option show_options[] = {
	{ "kind", PN_OPTION_TEXT, "",
	  "only these kinds of events, separated by commas (pin,evict)",
	  SHOW(kind), 0, 0, NULL },
	{ "decision", PN_OPTION_TEXT, "",
	  "only events with this decision: hit, miss, refused, later, kept, "
	  "dropped",
	  SHOW(decision), 0, 0, NULL },
	{ "at", PN_OPTION_TEXT, "", "only ranges that contain this address",
	  SHOW(at), 0, 0, NULL },
	{ "from", PN_OPTION_TIME, "0", "only events at this time or later",
	  SHOW(from), 0, 0, NULL },
	{ "to", PN_OPTION_TIME, "0", "only events before this time (0: all)",
	  SHOW(to), 0, 0, NULL },
	{ "min", PN_OPTION_BYTES, "0", "only ranges of at least so many bytes",
	  SHOW(min), 0, 0, NULL },
	{ "thread", PN_OPTION_NUMBER, "0", "only this thread (0: all)",
	  SHOW(thread), 0, 0, NULL },
	{ "cache", PN_OPTION_NUMBER, "0", "only this cache (0: all)",
	  SHOW(cache), 0, 0, NULL },
	{ "limit", PN_OPTION_NUMBER, "0",
	  "stop after so many lines (0: no limit)", SHOW(limit), 0, 0, NULL },
};

struct show {
	const struct show_values *values;
	struct pn_trace *trace;
	bool kinds[256];
	int decision; /* -1: all */
	bool has_at;
	uint64_t at, nlines;
};

static int parse_kinds(struct show *show)
{
	const char *list = show->values->kind;
	char word[PN_WORD_BYTES];

	memset(show->kinds, !*list, sizeof(show->kinds));
	while (pn_words_next(&list, word)) {
		int kind = pn_trace_kind_number(word, strlen(word));

		if (kind < 0)
			return pn_usage_error(
				"trace show: unknown kind of event '%s'", word);
		show->kinds[kind] = true;
	}
	return *list ? pn_usage_error("trace show: no kind of event '%s'", list)
		     : PN_EXIT_OK;
}

static int parse_filters(struct show *show)
{
	const char *word = show->values->decision, *at = show->values->at;
	char *end;

	show->decision = -1;
	if (*word)
		show->decision = pn_trace_decision_number(PN_EVENT_PIN, word,
							  strlen(word));
	if (*word && show->decision < 0)
		return pn_usage_error("trace show: unknown decision '%s'",
				      word);
	show->has_at = *at;
	show->at = strtoull(at, &end, 0);
	if (*end)
		return pn_usage_error("trace show: '%s' is not an address", at);
	return parse_kinds(show);
}

static bool passes(const struct show *show, const struct pn_trace_event *e)
{
	const struct show_values *v = show->values;

	return show->kinds[e->kind] && e->time_ns >= v->from &&
	       (!v->to || e->time_ns < v->to) && e->len >= v->min &&
	       (!v->thread || e->thread == v->thread) &&
	       (!v->cache || e->source == v->cache) &&
	       (show->decision < 0 || e->decision == show->decision) &&
	       (!show->has_at ||
		(show->at >= e->addr && show->at - e->addr < e->len));
}

static const char *word_or_number(const char *word, unsigned number,
				  char buf[12])
{
	if (!word)
		snprintf(buf, 12, "%u", number);
	return word ? word : buf;
}

static void print_event(struct pn_trace *trace, const struct pn_trace_event *e)
{
	const char *op = pn_trace_op_name(trace, e->op);
	char bytes[PN_REPORT_BYTES_LEN], n[3][12];

	printf("%14.3f %3u %2u %-10s %-7s %-8s %#14" PRIx64 " %9s",
	       (double)e->time_ns / 1e3, e->thread, e->source,
	       word_or_number(pn_trace_kind_name(e->kind), e->kind, n[0]),
	       word_or_number(pn_trace_decision_name(e), e->decision, n[1]),
	       word_or_number(pn_trace_reason_name(e), e->reason, n[2]),
	       e->addr, pn_report_bytes(e->len, bytes));
	if (e->flags)
		printf(" flags %#x", e->flags);
	if (e->more)
		printf(" +%u", e->more);
	if (e->peer != PN_EVENT_NO_PEER)
		printf(" peer %u", e->peer);
	if (*op)
		printf(" %s", op);
	if (e->site)
		printf(" site %" PRIx64, e->site);
	putchar('\n');
}

static int show_events(void *arg, const struct pn_trace_event *events, int n)
{
	struct show *show = arg;

	for (int i = 0; i < n; i++) {
		if (!passes(show, &events[i]))
			continue;
		print_event(show->trace, &events[i]);
		if (++show->nlines == show->values->limit)
			return -1;
	}
	return ferror(stdout) ? PN_EXIT_FAILED : 0;
}

static int run_show(const void *v, char *const *operands)
{
	struct show show = { .values = v };
	int ret = parse_filters(&show);

	if (!ret)
		ret = pn_trace_operand(operands, &show.trace);
	if (ret)
		return ret;
	printf("%14s %3s %2s %-10s %-7s %-8s %14s %9s\n", "us", "thr", "c",
	       "event", "outcome", "why", "address", "bytes");
	ret = pn_trace_walk(show.trace, show_events, &show);
	pn_trace_close(show.trace);
	return ret == -1 ? PN_EXIT_OK : ret;
}

static const struct pn_command show_command = {
	.name = "show",
	.help = "print a trace, one event per line",
	.about = "Times are relative to the first event; c is the cache, one "
		 "per context of the process. The events that a request caused "
		 "precede it.",
	.options = show_options,
	.noptions = PN_ARRAY_LEN(show_options),
	.values_bytes = sizeof(struct show_values),
	.operands = "FILE",
	.run = run_show,
};

/* --- convert ---------------------------------------------------------------
 */

struct convert_values {
	int format;
	char output[PN_OPTION_TEXT_BYTES];
};

/* In the order of enum pn_trace_format. */
static const char *const formats[] = { "binary", "csv", "plain", NULL };

static const struct pn_option convert_options[] = {
	{ "format", PN_OPTION_CHOICE, "csv",
	  "binary, csv (one column per number) or plain (requests only: "
	  "t_us,addr,len,op,site)",
	  offsetof(struct convert_values, format), 0, 0, formats },
	{ "output", PN_OPTION_TEXT, "-", "the file; -: standard output",
	  offsetof(struct convert_values, output), 0, 0, NULL },
};

static int write_events(void *arg, const struct pn_trace_event *events, int n)
{
	int ret = 0;

	for (int i = 0; i < n && !ret; i++)
		ret = pn_writer_event(arg, &events[i]);
	return ret ? pn_failed("trace convert", ret) : PN_EXIT_OK;
}

static int same_file(const char *a, const char *b)
{
	char x[PATH_MAX], y[PATH_MAX];

	return realpath(a, x) && realpath(b, y) && !strcmp(x, y);
}

static int convert(struct pn_trace *trace, const struct convert_values *values)
{
	struct pn_trace_writer *writer;
	struct pn_why why = { "" };
	int ret, end;

	if (pn_writer_open(values->output, (enum pn_trace_format)values->format,
			   trace, &writer, &why)) {
		fprintf(stderr, "pinion: %s\n", why.text);
		return PN_EXIT_FAILED;
	}
	ret = pn_trace_walk(trace, write_events, writer);
	end = pn_writer_close(writer);
	if (!ret && end)
		ret = pn_failed(values->output, end);
	return ret;
}

static int run_convert(const void *v, char *const *operands)
{
	const struct convert_values *values = v;
	struct pn_trace *trace;
	int ret;

	if (values->format == PN_TRACE_BINARY && isatty(STDOUT_FILENO) &&
	    !strcmp(values->output, "-"))
		return pn_usage_error(
			"trace convert: name a file with --output; binary data "
			"cannot go to a terminal");
	if (operands[0] && same_file(operands[0], values->output))
		return pn_usage_error("trace convert: '%s' is the input file; "
				      "name another output",
				      operands[0]);
	ret = pn_trace_operand(operands, &trace);
	if (ret)
		return ret;
	ret = convert(trace, values);
	pn_trace_close(trace);
	return ret;
}

static const struct pn_command convert_command = {
	.name = "convert",
	.help = "convert a trace to another format",
	.about = "Reads every format, compressed with gzip or not. binary and "
		 "csv have the same contents; plain has only the requests.",
	.options = convert_options,
	.noptions = PN_ARRAY_LEN(convert_options),
	.values_bytes = sizeof(struct convert_values),
	.operands = "FILE",
	.run = run_convert,
};

/* --- the command ------------------------------------------------------------
 */

static const struct pn_command *const subs[] = {
	&record_command,  &show_command, &pn_cmd_trace_stat,
	&convert_command, NULL,
};

const struct pn_command pn_cmd_trace = {
	.name = "trace",
	.help = "record the requests of a program, print and analyse them",
	.about = "A program that uses pinion also records when PINION_TRACE "
		 "names a file.",
	.subs = subs,
};
