/* SPDX-License-Identifier: BSD-2-Clause */
/* pinion stat: prints the current counters of running processes. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/pinion/command.h"
#include "tools/pinion/json.h"
#include "tools/pinion/view.h"

#define MOST 1024 /* maximum number of processes */

struct values {
	int format;
};

enum { JSON, PROMETHEUS };

static const char *const formats[] = { "json", "prometheus", NULL };

static const struct pn_option options[] = {
	{ "format", PN_OPTION_CHOICE, "json",
	  "json, one object per line, or prometheus, its text format",
	  offsetof(struct values, format), 0, 0, formats },
};

/* Number of blocks of the same kind before this one: its index among them. */
static unsigned ordinal(const struct pn_view *view,
			const struct pn_stats_block *block)
{
	const struct pn_stats_block *other = NULL;
	unsigned n = 0;

	while ((other = pn_view_next(view, other)) && other != block)
		n += pn_view_is(other, block->kind);
	return n;
}

/* A row of a table is valid if its first field is not 0. */
static bool row_is_empty(const struct pn_stats_block *block, unsigned row)
{
	return block->nrows > 1 && block->nfields &&
	       !pn_view_word(block, row, pn_view_field(block, 0));
}

/* --- JSON ----------------------------------------------------------------- */

/* SIZE_MAX, "no limit", becomes 2^64 as a double. */
static uint64_t count_of(double sum)
{
	return sum >= 0x1p64 ? UINT64_MAX : (uint64_t)sum;
}

static void print_field(struct pn_json *json, const struct pn_view *view,
			const struct pn_stats_block *block, unsigned row,
			const struct pn_stats_field *field)
{
	char text[600];

	if (field->type == PN_STATS_TEXT)
		pn_json_text(json, field->name,
			     pn_view_text(block, row, field, text,
					  sizeof(text)));
	else if (field->type == PN_STATS_REAL)
		pn_json_number(json, field->name,
			       pn_view_number(block, row, field));
	else if (field->type == PN_STATS_ADDRESS || block->nrows > 1)
		pn_json_count(json, field->name,
			      pn_view_word(block, row, field));
	else
		pn_json_count(json, field->name,
			      count_of(pn_view_sum(view, block, field)));
}

static void print_row(const struct pn_view *view,
		      const struct pn_stats_block *block, unsigned row)
{
	char state[2] = { view->state, '\0' };
	struct pn_json json;

	pn_json_begin(&json, stdout);
	pn_json_count(&json, "pid", view->head->pid);
	pn_json_text(&json, "command", view->head->command);
	pn_json_text(&json, "state", state);
	pn_json_text(&json, "kind", block->kind);
	pn_json_count(&json, "number", ordinal(view, block));
	for (unsigned i = 0; i < block->nfields; i++)
		print_field(&json, view, block, row, pn_view_field(block, i));
	pn_json_end(&json);
}

static void print_json(const struct pn_view *view)
{
	const struct pn_stats_block *block = NULL;

	while ((block = pn_view_next(view, block)))
		for (unsigned row = 0; row < block->nrows; row++)
			if (!row_is_empty(block, row))
				print_row(view, block, row);
}

/* --- Prometheus ----------------------------------------------------------- */

/* In label values, backslash, quote and newline are escaped. */
static void print_label(const char *name, const char *text)
{
	printf("%s=\"", name);
	for (; *text; text++)
		if (*text == '\\' || *text == '"')
			printf("\\%c", *text);
		else if (*text == '\n')
			printf("\\n");
		else
			putchar(*text);
	putchar('"');
}

static bool is_metric(const struct pn_stats_block *block,
		      const struct pn_stats_field *field)
{
	return block->nrows == 1 && strcmp(block->kind, "thread") &&
	       field->type != PN_STATS_TEXT && field->type != PN_STATS_ADDRESS;
}

/* HELP texts. A field that is not here (of a newer library) is described by its
 * name. */
static const struct {
	const char *kind, *name, *text;
} helps[] = {
	{ "context", "pinned_bytes", "Bytes pinned now." },
	{ "context", "max_bytes", "Budget of pinned bytes." },
	{ "context", "process_max_bytes",
	  "Budget of pinned bytes of the process." },
	{ "context", "peak_bytes", "Most bytes pinned at once." },
	{ "context", "late_bytes",
	  "Bytes whose deregistration is not finished." },
	{ "context", "pinned_regions", "Regions pinned now." },
	{ "context", "max_regions", "Budget of pinned regions." },
	{ "cache", "hits", "Pins that found their memory registered." },
	{ "cache", "misses", "Pins that had to register." },
	{ "cache", "misses_new", "Misses: nothing of the range was cached." },
	{ "cache", "misses_partial", "Misses: a part was cached." },
	{ "cache", "misses_access", "Misses: cached with other access." },
	{ "cache", "misses_bypass", "Misses: the pin bypasses the cache." },
	{ "cache", "waits", "Pins that waited for another's registration." },
	{ "cache", "registrations", "Regions registered." },
	{ "cache", "registered_bytes", "Bytes registered, in all." },
	{ "cache", "deregistrations", "Regions deregistered." },
	{ "cache", "deregister_batches", "Calls that deregistered them." },
	{ "cache", "evictions", "Regions evicted for space." },
	{ "cache", "invalidations",
	  "Regions invalidated because their memory was released." },
	{ "cache", "overflows", "Times the ring of releases was full." },
	{ "cache", "refused", "Pins refused for want of budget." },
	{ "cache", "regions", "Regions in the cache now." },
	{ "cache", "bytes", "Bytes in the cache now." },
	{ "cache", "dying_bytes", "Bytes being deregistered now." },
	{ "endpoint", "idle_since_ns",
	  "Monotonic clock at the first empty poll after an event." },
	{ "endpoint", "idle_seen_ns",
	  "Monotonic clock when the endpoint last noted that it was idle." },
};

static void print_help(const struct pn_stats_block *block,
		       const struct pn_stats_field *field)
{
	for (size_t i = 0; i < PN_ARRAY_LEN(helps); i++)
		if (pn_view_is(block, helps[i].kind) &&
		    !strcmp(field->name, helps[i].name)) {
			printf("%s\n", helps[i].text);
			return;
		}
	for (const char *c = field->name; *c; c++)
		putchar(*c == '_' ? ' ' : *c);
	printf(" of %s %s, as the library counts it.\n",
	       strchr("aeiou", block->kind[0]) ? "an" : "a", block->kind);
}

/* The unit of time in Prometheus is the second; the library counts
 * nanoseconds. */
static bool is_time(const struct pn_stats_field *field)
{
	size_t len = strlen(field->name);

	return len > 3 && !strcmp(field->name + len - 3, "_ns");
}

static void print_name(const struct pn_stats_block *block,
		       const struct pn_stats_field *field)
{
	int len = (int)strlen(field->name) - (is_time(field) ? 3 : 0);

	printf("pinion_%s_%.*s%s%s", block->kind, len, field->name,
	       is_time(field) ? "_seconds" : "",
	       field->type == PN_STATS_COUNTER ? "_total" : "");
}

static void print_sample(const struct pn_view *view,
			 const struct pn_stats_block *block,
			 const struct pn_stats_field *field)
{
	double sum = pn_view_sum(view, block, field);

	print_name(block, field);
	printf("{pid=\"%u\",", view->head->pid);
	print_label("command", view->head->command);
	printf(",number=\"%u\"} %.17g\n", ordinal(view, block),
	       is_time(field) ? sum / 1e9 : sum);
}

/* The samples of a metric must be together, for all processes. */
static void print_metric(const struct pn_view *views, unsigned n,
			 const struct pn_stats_block *first,
			 const struct pn_stats_field *field)
{
	printf("# HELP ");
	print_name(first, field);
	putchar(' ');
	print_help(first, field);
	printf("# TYPE ");
	print_name(first, field);
	puts(field->type == PN_STATS_COUNTER ? " counter" : " gauge");
	for (unsigned i = 0; i < n; i++) {
		const struct pn_stats_block *block = NULL;

		while ((block = pn_view_next(&views[i], block))) {
			const struct pn_stats_field *same =
				pn_view_is(block, first->kind)
					? pn_view_find(block, field->name)
					: NULL;

			if (same)
				print_sample(&views[i], block, same);
		}
	}
}

/* Whether a field of the same name came before, in this process or in an
 * earlier one. */
static bool is_repeated(const struct pn_view *views, unsigned i,
			const struct pn_stats_block *block,
			const struct pn_stats_field *field)
{
	for (unsigned v = 0; v <= i; v++) {
		const struct pn_stats_block *other = NULL;

		while ((other = pn_view_next(&views[v], other)) &&
		       other != block)
			if (pn_view_is(other, block->kind) &&
			    pn_view_find(other, field->name))
				return true;
	}
	return false;
}

static void print_prometheus(const struct pn_view *views, unsigned n)
{
	for (unsigned v = 0; v < n; v++) {
		const struct pn_stats_block *block = NULL;

		while ((block = pn_view_next(&views[v], block)))
			for (unsigned i = 0; i < block->nfields; i++) {
				const struct pn_stats_field *field =
					pn_view_field(block, i);

				if (is_metric(block, field) &&
				    !is_repeated(views, v, block, field))
					print_metric(views, n, block, field);
			}
	}
}

/* --- the command ---------------------------------------------------------- */

static int print_error(int pid, int ret)
{
	if (ret == -ESRCH)
		fprintf(stderr,
			"pinion: process %d is not a process of this user with "
			"an open pinion context\n",
			pid);
	else
		fprintf(stderr, "pinion: statistics of process %d: %s\n", pid,
			ret == -EPROTO ? "damaged, or of another version of "
					 "pinion"
				       : strerror(-ret));
	return PN_EXIT_FAILED;
}

static int parse_pid(const char *text, int *pid)
{
	char *end;
	long value = strtol(text, &end, 10);

	if (*end || value <= 0 || value > 1 << 22)
		return pn_usage_error("stat: '%s' is not a process id", text);
	*pid = (int)value;
	return PN_EXIT_OK;
}

static int select_processes(char *const *operands, int *pids, unsigned *n)
{
	int ret = PN_EXIT_OK;

	for (*n = 0; operands[*n] && ret == PN_EXIT_OK && *n < MOST; ++*n)
		ret = parse_pid(operands[*n], &pids[*n]);
	if (*n || ret)
		return ret;
	ret = pn_view_list(pids, MOST);
	if (ret < 0)
		return pn_failed("listing the processes", ret);
	*n = (unsigned)ret;
	return PN_EXIT_OK;
}

/* A process named on the command line must exist; without names, processes that
 * have ended are skipped. */
static int open_views(const int *pids, unsigned n, bool named,
		      struct pn_view *views, unsigned *nviews)
{
	for (unsigned i = 0; i < n; i++) {
		int ret = pn_view_open(pids[i], &views[*nviews]);

		if (ret && (named || ret != -ESRCH))
			return print_error(pids[i], ret);
		*nviews += !ret;
	}
	return PN_EXIT_OK;
}

static int run(const void *v, char *const *operands)
{
	const struct values *values = v;
	static struct pn_view views[MOST];
	static int pids[MOST];
	unsigned n, nviews = 0;
	int ret = select_processes(operands, pids, &n);

	if (!ret)
		ret = open_views(pids, n, operands[0], views, &nviews);
	if (!ret && values->format == PROMETHEUS)
		print_prometheus(views, nviews);
	for (unsigned i = 0; !ret && i < nviews; i++)
		if (values->format == JSON)
			print_json(&views[i]);
	for (unsigned i = 0; i < nviews; i++)
		pn_view_close(&views[i]);
	return ret;
}

const struct pn_command pn_cmd_stat = {
	.name = "stat",
	.help = "print the counters of running processes",
	.about = "Prints the counters of all processes of this user with an "
		 "open pinion context, or of the named ones. Also works for a "
		 "stuck or stopped process, since the process takes no part.",
	.options = options,
	.noptions = PN_ARRAY_LEN(options),
	.values_bytes = sizeof(struct values),
	.operands = "[PID...]",
	.run = run,
};
