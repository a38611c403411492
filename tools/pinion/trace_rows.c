/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/pinion/trace_rows.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "revision.h"
#include "tools/pinion/report.h"
#include "tools/pinion/timeline.h"
#include "tools/trace/stat.h"
#include "tools/trace/trace.h"

#define BATCH 256 /* events per read */

struct reading {
	struct pn_rows *rows;
	const char *path;
	char process[128], device[64];
	struct pn_timeline memory;
	struct pn_stat stat;
};

static void add(struct pn_timeline *memory, const struct pn_trace_event *event)
{
	double len = (double)event->len;

	if (event->kind == PN_EVENT_REGISTER)
		pn_timeline_set(memory, event->time_ns, memory->now + len);
	else if (event->kind == PN_EVENT_DEREGISTER)
		pn_timeline_set(memory, event->time_ns,
				fmax(memory->now - len, 0));
}

/* --- rows ----------------------------------------------------------------- */

static struct pn_row *row_about(struct reading *r, const char *what)
{
	struct pn_row *row = pn_rows_add(r->rows);

	if (!row || pn_row_set_text(row, "bench", "trace") ||
	    pn_row_set_text(row, "what", what) ||
	    pn_row_set_text(row, "process", r->process) ||
	    pn_row_set_text(row, "device", r->device) ||
	    pn_row_set_text(row, "machine", "as recorded") ||
	    pn_row_set_text(row, "revision", PN_REVISION) ||
	    pn_row_set_text(row, "command", pn_report_command()))
		return NULL;
	return row;
}

static int add_memory(struct reading *r)
{
	for (unsigned i = 0; i < pn_series_n(&r->memory.series); i++) {
		struct pn_row *row = row_about(r, "memory");
		struct pn_point point = pn_series_at(&r->memory.series, i);

		if (!row || pn_row_set_number(row, "t_s", point.at_s) ||
		    pn_row_set_number(row, "registered_bytes", point.highest) ||
		    pn_row_set_number(row, "registered_bytes_mean", point.mean))
			return -ENOMEM;
	}
	return 0;
}

static int add_reuse(struct reading *r)
{
	static const char *const names[PN_STAT_NUSES] = { "once", "2 to 10",
							  "11 to 100", "more" };

	for (int i = 0; i < PN_STAT_NUSES; i++) {
		const struct pn_stat_use *use = &r->stat.uses[i];
		struct pn_row *row = row_about(r, "reuse");

		if (!row || pn_row_set_text(row, "used", names[i]) ||
		    pn_row_set_number(row, "buffers", (double)use->buffers) ||
		    pn_row_set_number(row, "requests_percent",
				      100 * (double)use->requests /
					      (double)r->stat.requests))
			return -ENOMEM;
	}
	return 0;
}

static int add_budgets(struct reading *r)
{
	for (uint64_t b = 64 << 10; b / 2 < r->stat.footprint_bytes; b *= 2) {
		struct pn_stat_class hits = pn_stat_hits(&r->stat, b);
		struct pn_row *row = row_about(r, "budget");

		if (!row || pn_row_set_number(row, "budget_bytes", (double)b) ||
		    pn_row_set_number(row, "hit_percent",
				      100 * (double)hits.requests /
					      (double)r->stat.requests))
			return -ENOMEM;
	}
	return 0;
}

/* --- reading -------------------------------------------------------------- */

static int read_events(struct reading *r, struct pn_trace *trace)
{
	struct pn_trace_event events[BATCH];
	int n;

	while ((n = pn_trace_read(trace, events, BATCH)) > 0) {
		int ret = pn_stat_add(&r->stat, events, n);

		if (ret)
			return ret;
		for (int i = 0; i < n; i++)
			add(&r->memory, &events[i]);
	}
	return n;
}

/* "rank 3" of a job of `pinion mpirun`, "a.out 1234", or the name of the
 * file. */
static void name_process(struct reading *r, struct pn_trace *trace)
{
	const struct pn_trace_info *info = pn_trace_info(trace);
	const char *slash = strrchr(r->path, '/');
	struct pn_trace_event_cache cache;
	unsigned rank;

	slash = slash ? slash + 1 : r->path;
	if (sscanf(slash, "rank-%u.", &rank) == 1)
		snprintf(r->process, sizeof(r->process), "rank %u", rank);
	else if (info->program[0])
		snprintf(r->process, sizeof(r->process), "%s %u", info->program,
			 info->pid);
	else
		snprintf(r->process, sizeof(r->process), "%s", slash);
	if (!pn_trace_cache_config(trace, 1, &cache) ||
	    !pn_trace_cache_config(trace, 0, &cache))
		snprintf(r->device, sizeof(r->device), "%.60s", cache.device);
	else
		snprintf(r->device, sizeof(r->device), "not recorded");
}

static int read_trace(struct reading *r, struct pn_trace *trace,
		      struct pn_why *why)
{
	int ret = read_events(r, trace);

	if (ret == -EBADMSG)
		snprintf(why->text, sizeof(why->text), "%s",
			 pn_trace_location(trace));
	if (ret)
		return ret;
	pn_stat_finish(&r->stat);
	name_process(r, trace);
	if (r->stat.events[PN_EVENT_REGISTER])
		pn_timeline_set(&r->memory, r->stat.last_ns, r->memory.now);
	ret = r->stat.events[PN_EVENT_REGISTER] ? add_memory(r) : 0;
	if (!ret && r->stat.requests)
		ret = add_reuse(r);
	if (!ret && r->stat.requests)
		ret = add_budgets(r);
	return ret;
}

int pn_trace_rows_read(struct pn_rows *rows, const char *path,
		       struct pn_why *why)
{
	struct reading *r = calloc(1, sizeof(*r));
	struct pn_trace *trace;
	int ret;

	if (!r)
		return -ENOMEM;
	r->rows = rows;
	r->path = path;
	pn_timeline_init(&r->memory);
	ret = pn_stat_init(&r->stat);
	if (ret)
		goto free_reading;
	ret = pn_trace_open(path, &trace, why);
	if (!ret) {
		ret = read_trace(r, trace, why);
		pn_trace_close(trace);
	}
	pn_stat_fini(&r->stat);
free_reading:
	free(r);
	return ret;
}
