/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/trace/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/range.h"
#include "tools/trace/trace_impl.h"

int pn_trace_set_damaged(struct pn_trace *trace, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(trace->what, sizeof(trace->what), fmt, ap);
	va_end(ap);
	trace->position = pn_input_offset(&trace->input);
	return -EBADMSG;
}

bool pn_trace_event_is_valid(const struct pn_trace_event *event)
{
	switch (event->kind) {
	case PN_EVENT_CLOSE:
	case PN_EVENT_RESIZE:
	case PN_EVENT_OTHERS:
		return true; /* addr and len are counts */
	default:
		return event->len <= UINT64_MAX - PN_PAGE_BYTES &&
		       event->addr <= UINT64_MAX - PN_PAGE_BYTES - event->len;
	}
}

/* --- opening ------------------------------------------------------------- */

static int refuse(struct pn_why *why, const char *path, int ret)
{
	if (why)
		snprintf(why->text, sizeof(why->text), "%.180s: %s", path,
			 strerror(-ret));
	return ret;
}

/* Pipes can be read too, but without progress. */
static int open_file(const char *path, struct pn_trace *trace)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) || S_ISDIR(st.st_mode)) {
		close(fd);
		return -EISDIR;
	}
	trace->info.file_bytes = (uint64_t)st.st_size;
	trace->input.file = gzdopen(fd, "rb");
	if (!trace->input.file) {
		close(fd);
		return -ENOMEM;
	}
	gzbuffer(trace->input.file, PN_INPUT_BYTES);
	return 0;
}

static struct pn_trace *trace_alloc(const char *path)
{
	struct pn_trace *trace = calloc(1, sizeof(*trace));

	if (!trace)
		return NULL;
	trace->path = strdup(path);
	trace->input.buffer = malloc(PN_INPUT_BYTES);
	if (trace->path && trace->input.buffer)
		return trace;
	pn_trace_close(trace);
	return NULL;
}

static int recognise(struct pn_trace *trace)
{
	long n = pn_input_need(&trace->input, PN_INPUT_BYTES);

	if (n < 0)
		return (int)n;
	trace->info.gzip = !gzdirect(trace->input.file);
	n = pn_binary_recognise(trace);
	if (!n && !trace->reader)
		trace->reader = pn_csv_recognise(trace);
	if (n || trace->reader)
		return (int)n;
	return pn_trace_set_damaged(
		trace, "not a trace: the file begins neither as a recording "
		       "nor with a line `t_us,addr,len[,op[,site]]`");
}

int pn_trace_open(const char *path, struct pn_trace **out, struct pn_why *why)
{
	struct pn_trace *trace = trace_alloc(path);
	int ret = trace ? open_file(path, trace) : -ENOMEM;

	if (!ret) {
		ret = recognise(trace);
		if (ret && why && trace->what[0]) {
			snprintf(why->text, sizeof(why->text), "%.100s: %.150s",
				 path, trace->what);
			pn_trace_close(trace);
			return ret;
		}
	}
	if (ret) {
		pn_trace_close(trace);
		return refuse(why, path, ret);
	}
	*out = trace;
	return 0;
}

void pn_trace_close(struct pn_trace *trace)
{
	if (!trace)
		return;
	if (trace->reader && trace->reader->close)
		trace->reader->close(trace);
	if (trace->input.file)
		gzclose(trace->input.file);
	pn_sites_fini(&trace->sites);
	free(trace->ops.names);
	free(trace->caches.table);
	free(trace->input.buffer);
	free(trace->path);
	free(trace);
}

/* --- reading ------------------------------------------------------------- */

int pn_trace_read(struct pn_trace *trace, struct pn_trace_event *events,
		  int max)
{
	int n = 0;

	while (n < max && !trace->failed) {
		int got = trace->reader->fill(trace, events + n, max - n);

		if (got < 0)
			trace->failed = got;
		if (got <= 0)
			break;
		n += got;
	}
	if (trace->failed && !trace->what[0])
		snprintf(trace->what, sizeof(trace->what), "%s",
			 trace->failed == -EBADMSG
				 ? "the compressed data is damaged or cut short"
				 : strerror(-trace->failed));
	return n ? n : trace->failed;
}

int pn_trace_next(struct pn_trace *trace, struct pn_trace_event *event)
{
	if (trace->next == trace->n) {
		int n = pn_trace_read(trace, trace->ahead, PN_TRACE_READ_AHEAD);

		if (n <= 0)
			return n;
		trace->n = n;
		trace->next = 0;
	}
	*event = trace->ahead[trace->next++];
	return 1;
}

const char *pn_trace_location(struct pn_trace *trace)
{
	const char *what = trace->what;
	const char *colon = what[0] ? ": " : "";

	if (trace->info.format == PN_TRACE_BINARY)
		snprintf(trace->where, sizeof(trace->where),
			 "%.200s: byte %" PRIu64 "%s%s", trace->path,
			 what[0] ? trace->position
				 : pn_input_offset(&trace->input),
			 colon, what);
	else
		snprintf(trace->where, sizeof(trace->where),
			 "%.200s:%" PRIu64 "%s%s", trace->path, trace->line,
			 colon, what);
	return trace->where;
}

const struct pn_trace_info *pn_trace_info(struct pn_trace *trace)
{
	z_off_t at = gzoffset(trace->input.file);

	trace->info.read_bytes = at > 0 ? (uint64_t)at : 0;
	return &trace->info;
}

unsigned pn_trace_site_frames(struct pn_trace *trace, uint64_t id,
			      uint64_t frames[PN_TRACE_MAX_FRAMES])
{
	const struct pn_site *site = pn_sites_find(&trace->sites, id);

	if (!site || !site->n)
		return 0;
	memcpy(frames, trace->sites.frames + site->first,
	       site->n * sizeof(*frames));
	return site->n;
}

const char *pn_trace_op_name(struct pn_trace *trace, uint8_t op)
{
	return op && op <= trace->ops.n ? trace->ops.names[op - 1] : "";
}

int pn_trace_cache_config(struct pn_trace *trace, uint16_t source,
			  struct pn_trace_event_cache *out)
{
	if (!source || source > trace->caches.n ||
	    !trace->caches.table[source - 1].max_bytes)
		return -ENOENT;
	*out = trace->caches.table[source - 1];
	return 0;
}
