/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/trace/write.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/trace/trace_impl.h"
#include "trace/format.h"

struct pn_trace_writer {
	FILE *file;
	enum pn_trace_format format;
	struct pn_trace *from;
	bool begun;
	/* Metadata that has been written. */
	struct pn_sites sites; /* ids only */
	bool ops[256];
	/* Binary format: */
	uint8_t *block; /* PN_TRACE_BLOCK_BYTES */
	uint8_t *at;	/* NULL: no block is started */
	struct pn_trace_event before;
};

/* --- binary --------------------------------------------------------------- */

static struct pn_trace_block *block_of(struct pn_trace_writer *w)
{
	return (struct pn_trace_block *)w->block;
}

static void write_binary_head(struct pn_trace_writer *w)
{
	const struct pn_trace_info *info = &w->from->info;
	char bytes[PN_TRACE_HEAD_BYTES] = "";
	struct pn_trace_head head = { .magic = PN_TRACE_MAGIC,
				      .order = PN_TRACE_ORDER,
				      .version = PN_TRACE_VERSION,
				      .block_bytes = PN_TRACE_BLOCK_BYTES,
				      .pid = info->pid,
				      .start_ns = info->start_ns,
				      .lost = info->lost,
				      .complete = info->complete };

	memcpy(head.program, info->program, sizeof(head.program));
	memcpy(bytes, &head, sizeof(head));
	fwrite(bytes, 1, sizeof(bytes), w->file);
}

static void end_block(struct pn_trace_writer *w)
{
	if (!w->at)
		return;
	block_of(w)->used = (uint32_t)(w->at - block_of(w)->records);
	memset(w->at, 0, (size_t)(w->block + PN_TRACE_BLOCK_BYTES - w->at));
	fwrite(w->block, 1, PN_TRACE_BLOCK_BYTES, w->file);
	w->at = NULL;
}

static void write_record(struct pn_trace_writer *w,
			 const struct pn_record *record)
{
	uint64_t start_ns = record->event.time_ns;

	if (w->at && w->at + PN_RECORD_MAX > w->block + PN_TRACE_BLOCK_BYTES)
		end_block(w);
	if (!w->at) {
		*block_of(w) =
			(struct pn_trace_block){ .magic = PN_TRACE_BLOCK_MAGIC,
						 .start_ns = start_ns };
		w->at = block_of(w)->records;
		w->before = (struct pn_trace_event){ .time_ns = start_ns };
	}
	w->at = pn_record_encode(w->at, record, &w->before);
}

static void describe_binary(struct pn_trace_writer *w,
			    const struct pn_trace_event *event, uint8_t kind,
			    const void *blob, size_t bytes)
{
	struct pn_record record = { .event = *event,
				    .blob = blob,
				    .nblob = (uint16_t)bytes };

	record.event.kind = kind;
	write_record(w, &record);
}

/* --- text ----------------------------------------------------------------- */

static void print_frames(FILE *file, const uint64_t *frames, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		fprintf(file, "%s%" PRIx64, i ? ";" : "", frames[i]);
}

static void write_full_head(struct pn_trace_writer *w)
{
	const struct pn_trace_info *info = &w->from->info;

	fprintf(w->file,
		PN_CSV_FULL_FIRST_LINE "\n#pid,%u\n#lost,%" PRIu64 "\n",
		info->pid, info->lost);
	fprintf(w->file, "#complete,%d\n#start_ns,%" PRIu64 "\n",
		info->complete, info->start_ns);
	fprintf(w->file, "#program,%s\n" PN_CSV_FULL_COLUMNS "\n",
		info->program);
}

static void print_field(FILE *file, const struct pn_cache_field *field,
			const struct pn_trace_event_cache *cache)
{
	const char *from = (const char *)cache + field->offset;
	uint64_t number = 0;
	double real;

	switch (field->type) {
	case PN_FIELD_TEXT:
		fprintf(file, ",%s=%s", field->name, from);
		return;
	case PN_FIELD_DOUBLE:
		memcpy(&real, from, sizeof(real));
		fprintf(file, ",%s=%.17g", field->name, real);
		return;
	default:
		memcpy(&number, from, field->bytes);
		fprintf(file, ",%s=%" PRIu64, field->name, number);
	}
}

static void describe_cache(struct pn_trace_writer *w, uint16_t source,
			   const struct pn_trace_event_cache *cache)
{
	fprintf(w->file, "#cache,%u", source);
	for (const struct pn_cache_field *f = pn_cache_fields; f->name; f++)
		print_field(w->file, f, cache);
	putc('\n', w->file);
}

/* Prints a word, or the number if there is no word. */
static void print_word(FILE *file, const char *word, unsigned number)
{
	if (word)
		fprintf(file, "%s,", word);
	else
		fprintf(file, "%u,", number);
}

static void write_full(struct pn_trace_writer *w,
		       const struct pn_trace_event *e)
{
	FILE *file = w->file;

	fprintf(file, "%" PRIu64 ",", e->time_ns);
	print_word(file, pn_trace_kind_name(e->kind), e->kind);
	print_word(file, pn_trace_decision_name(e), e->decision);
	print_word(file, pn_trace_reason_name(e), e->reason);
	fprintf(file, "0x%" PRIx64 ",%" PRIu64 ",0x%x,0x%" PRIx64, e->addr,
		e->len, e->flags, e->handle);
	fprintf(file, ",0x%" PRIx64 ",", e->site);
	if (e->peer != PN_EVENT_NO_PEER)
		fprintf(file, "%u", e->peer);
	fprintf(file, ",%u,%u,%u,%s\n", e->thread, e->source, e->more,
		pn_trace_op_name(w->from, e->op));
}

static void write_plain_head(struct pn_trace_writer *w)
{
	const struct pn_trace_info *info = &w->from->info;

	fprintf(w->file, "t_us,addr,len%s%s\n",
		info->ops || info->sites ? ",op" : "",
		info->sites ? ",site" : "");
}

static void write_plain(struct pn_trace_writer *w,
			const struct pn_trace_event *e)
{
	const struct pn_trace_info *info = &w->from->info;
	uint64_t frames[PN_TRACE_MAX_FRAMES];

	fprintf(w->file, "%" PRIu64 ".%03u,0x%" PRIx64 ",%" PRIu64,
		e->time_ns / 1000, (unsigned)(e->time_ns % 1000), e->addr,
		e->len);
	if (info->ops || info->sites)
		fprintf(w->file, ",%s", pn_trace_op_name(w->from, e->op));
	if (info->sites) {
		putc(',', w->file);
		print_frames(w->file, frames,
			     pn_trace_site_frames(w->from, e->site, frames));
	}
	putc('\n', w->file);
}

/* --- all ------------------------------------------------------------------ */

static int describe_site(struct pn_trace_writer *w,
			 const struct pn_trace_event *e)
{
	uint64_t frames[PN_TRACE_MAX_FRAMES];
	unsigned n;

	if (!e->site || pn_sites_find(&w->sites, e->site))
		return 0;
	n = pn_trace_site_frames(w->from, e->site, frames);
	if (n && w->format == PN_TRACE_BINARY) {
		describe_binary(w, e, PN_RECORD_SITE, frames,
				n * sizeof(*frames));
	} else if (n) {
		fprintf(w->file, "#site,%" PRIx64 ",", e->site);
		print_frames(w->file, frames, n);
		putc('\n', w->file);
	}
	return pn_sites_add(&w->sites, e->site, NULL, 0);
}

static void describe_op(struct pn_trace_writer *w,
			const struct pn_trace_event *e)
{
	const char *name = pn_trace_op_name(w->from, e->op);

	if (w->format == PN_TRACE_BINARY && name[0] && !w->ops[e->op])
		describe_binary(w, e, PN_RECORD_OP, name, strlen(name));
	w->ops[e->op] = true;
}

static void write_event(struct pn_trace_writer *w,
			const struct pn_trace_event *e)
{
	struct pn_record record = { .event = *e };
	struct pn_trace_event_cache cache;
	bool about = e->kind == PN_EVENT_OPEN &&
		     !pn_trace_cache_config(w->from, e->source, &cache);

	if (w->format == PN_TRACE_FULL) {
		if (about)
			describe_cache(w, e->source, &cache);
		write_full(w, e);
		return;
	}
	if (about) {
		record.blob = &cache;
		record.nblob = sizeof(cache);
	}
	write_record(w, &record);
}

static void begin(struct pn_trace_writer *w)
{
	w->begun = true;
	switch (w->format) {
	case PN_TRACE_BINARY:
		write_binary_head(w);
		return;
	case PN_TRACE_FULL:
		write_full_head(w);
		return;
	case PN_TRACE_PLAIN:
		write_plain_head(w);
	}
}

/* Times in binary files are those of the recorder's clock. */
int pn_writer_event(struct pn_trace_writer *w,
		    const struct pn_trace_event *event)
{
	struct pn_trace_event e = *event;
	int ret;

	if (!w->begun)
		begin(w);
	if (w->format == PN_TRACE_PLAIN) {
		if (e.kind == PN_EVENT_PIN)
			write_plain(w, &e);
		return ferror(w->file) ? -EIO : 0;
	}
	if (w->format == PN_TRACE_BINARY)
		e.time_ns += w->from->info.start_ns;
	ret = describe_site(w, &e);
	describe_op(w, &e);
	write_event(w, &e);
	return ferror(w->file) ? -EIO : ret;
}

static int refuse(struct pn_why *why, const char *path, int ret)
{
	if (why)
		snprintf(why->text, sizeof(why->text), "%.180s: %s", path,
			 strerror(-ret));
	return ret;
}

int pn_writer_open(const char *path, enum pn_trace_format format,
		   struct pn_trace *from, struct pn_trace_writer **out,
		   struct pn_why *why)
{
	struct pn_trace_writer *w = calloc(1, sizeof(*w));
	bool stdout_ = !strcmp(path, "-");

	if (w)
		w->block = malloc(PN_TRACE_BLOCK_BYTES);
	if (!w || !w->block) {
		free(w);
		return refuse(why, path, -ENOMEM);
	}
	w->format = format;
	w->from = from;
	w->file = stdout_ ? stdout : fopen(path, "we");
	if (!w->file) {
		int ret = -errno;

		free(w->block);
		free(w);
		return refuse(why, path, ret);
	}
	*out = w;
	return 0;
}

int pn_writer_close(struct pn_trace_writer *w)
{
	int ret = 0;

	if (!w->begun)
		begin(w);
	end_block(w);
	if (fflush(w->file) || ferror(w->file))
		ret = -EIO;
	if (w->file != stdout && fclose(w->file))
		ret = -errno;
	pn_sites_fini(&w->sites);
	free(w->block);
	free(w);
	return ret;
}
