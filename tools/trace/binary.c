/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reader of the binary format: blocks of several threads, merged by time.
 *
 * The file is read once, from its beginning to its end. Blocks are in the file
 * in the order in which threads allocated them, so approximately in the order
 * of their first events. `coming` says that the input is at a block of which
 * only the header has been read. `open` blocks still have unread events. The
 * next event is the earliest among the first unread events of the open blocks,
 * once no block that begins earlier can follow in the file. Blocks of one
 * stream are read one after the other.
 *
 * A trace of one thread has one open block, whose events are decoded directly
 * into the caller's array.
 */
#include <errno.h>
#include <stdlib.h>

#include "tools/trace/trace_impl.h"
#include "trace/format.h"

/* Maximum number of open blocks. With more recording threads the order by time
 * is approximate. */
#define OPEN_MAX 256

struct block {
	uint8_t *bytes; /* PN_TRACE_BLOCK_BYTES */
	const uint8_t *at, *end;
	uint64_t offset; /* offset of the block in the file */
	uint32_t stream;
	struct pn_trace_event before;
	struct pn_record first; /* decoded, not returned yet */
};

struct pn_binary {
	/* [0, nopen); unused entries keep their bytes */
	struct block open[OPEN_MAX];
	unsigned nopen;
	bool coming;	  /* the input is at a block that is not open yet */
	uint64_t next_ns; /* its start time */
	uint32_t next_used, next_stream;
};

/* --- metadata records -------------------------------------------------------
 */

static int store_site(struct pn_trace *trace, const struct pn_record *record)
{
	uint64_t frames[PN_TRACE_MAX_FRAMES];
	unsigned n = record->nblob / sizeof(*frames);

	if (!record->event.site ||
	    pn_sites_find(&trace->sites, record->event.site))
		return 0;
	if (n > PN_TRACE_MAX_FRAMES)
		n = PN_TRACE_MAX_FRAMES;
	memcpy(frames, record->blob, n * sizeof(*frames));
	return pn_sites_add(&trace->sites, record->event.site, frames, n);
}

/* Stores the metadata of a record. Returns 1 if the record is an event, 0 if
 * not, or an error. */
static int store_metadata(struct pn_trace *trace,
			  const struct pn_record *record)
{
	int ret = 0;

	switch (record->event.kind) {
	case PN_EVENT_OPEN:
		if (record->nblob)
			ret = pn_caches_set(&trace->caches,
					    record->event.source, record->blob,
					    record->nblob);
		return ret ? ret : 1;
	case PN_RECORD_SITE:
		return record->nblob ? store_site(trace, record) : 0;
	case PN_RECORD_OP:
		return pn_ops_name(&trace->ops, record->event.op, record->blob,
				   record->nblob);
	default:
		return record->event.kind < PN_EVENT_NKINDS;
	}
}

/* --- blocks --------------------------------------------------------------- */

static int damaged_at(struct pn_trace *trace, const struct block *block)
{
	int ret = pn_trace_set_damaged(trace, "a record is damaged");

	trace->position = block->offset + (uint64_t)(block->at - block->bytes);
	return ret;
}

/* Decodes the next event of a block into block->first. Returns 1, 0 at the end,
 * or an error. */
static int advance(struct pn_trace *trace, struct block *block)
{
	while (block->at < block->end) {
		const uint8_t *next =
			pn_record_decode(block->at, block->end, &block->first,
					 &block->before);
		int ret;

		if (!next || !pn_trace_event_is_valid(&block->first.event))
			return damaged_at(trace, block);
		block->at = next;
		ret = store_metadata(trace, &block->first);
		if (ret)
			return ret;
	}
	return 0;
}

/* Reads the header of the next block that is not empty. */
static int look_ahead(struct pn_trace *trace)
{
	struct pn_binary *b = trace->binary;
	struct pn_input *input = &trace->input;

	while (!b->coming) {
		struct pn_trace_block head;
		long n = pn_input_need(input, PN_TRACE_BLOCK_BYTES);

		/* A file that is being written, or whose disk was full, may end
		 * inside a block that was never started. */
		if (n < (long)sizeof(head))
			return n < 0 ? (int)n : 0;
		memcpy(&head, input->buffer + input->at, sizeof(head));
		if (head.magic && head.magic != PN_TRACE_BLOCK_MAGIC)
			return pn_trace_set_damaged(trace,
						    "no block begins here");
		if (head.used > PN_TRACE_BLOCK_ROOM)
			return pn_trace_set_damaged(trace,
						    "the length of a block is "
						    "larger than the block");
		if ((long)(sizeof(head) + head.used) > n)
			return pn_trace_set_damaged(
				trace, "the file ends within a block");
		b->next_ns = head.start_ns;
		b->next_stream = head.stream;
		b->next_used = head.magic ? head.used : 0;
		b->coming = b->next_used;
		if (!b->coming)
			input->at += n < PN_TRACE_BLOCK_BYTES
					     ? (size_t)n
					     : PN_TRACE_BLOCK_BYTES;
	}
	return 0;
}

/* Copies the coming block and adds it to the open blocks, unless it has no
 * events. */
static int open_block(struct pn_trace *trace)
{
	struct pn_binary *b = trace->binary;
	struct pn_input *input = &trace->input;
	struct block *block = &b->open[b->nopen];
	size_t left = input->end - input->at;
	size_t n = left < PN_TRACE_BLOCK_BYTES ? left : PN_TRACE_BLOCK_BYTES;
	int ret;

	if (!block->bytes) {
		block->bytes = malloc(PN_TRACE_BLOCK_BYTES);
		if (!block->bytes)
			return -ENOMEM;
	}
	memcpy(block->bytes, input->buffer + input->at, n);
	block->at = block->bytes + sizeof(struct pn_trace_block);
	block->end = block->at + b->next_used;
	block->offset = pn_input_offset(input);
	block->stream = b->next_stream;
	block->before = (struct pn_trace_event){ .time_ns = b->next_ns };
	input->at += n;
	b->coming = false;
	ret = advance(trace, block);
	if (ret > 0)
		b->nopen++;
	return ret < 0 ? ret : 0;
}

static void close_block(struct pn_binary *b, unsigned i)
{
	struct block closed = b->open[i];

	/* Keep the order of the file. */
	b->nopen--;
	memmove(&b->open[i], &b->open[i + 1],
		(b->nopen - i) * sizeof(b->open[0]));
	b->open[b->nopen] = closed;
}

/* Whether an earlier open block belongs to the same stream. */
static bool waits(const struct pn_binary *b, unsigned i)
{
	for (unsigned j = 0; j < i; j++)
		if (b->open[j].stream == b->open[i].stream)
			return true;
	return false;
}

static unsigned earliest(const struct pn_binary *b)
{
	unsigned best = 0;

	for (unsigned i = 1; i < b->nopen; i++)
		if (b->open[i].first.event.time_ns <
			    b->open[best].first.event.time_ns &&
		    !waits(b, i))
			best = i;
	return best;
}

/* Opens every block that begins no later than the next event. */
static int open_due(struct pn_trace *trace)
{
	struct pn_binary *b = trace->binary;
	int ret = look_ahead(trace);

	while (!ret && b->coming && b->nopen < OPEN_MAX &&
	       (!b->nopen ||
		b->next_ns <= b->open[earliest(b)].first.event.time_ns)) {
		ret = open_block(trace);
		if (!ret)
			ret = look_ahead(trace);
	}
	return ret;
}

/* --- merging -------------------------------------------------------------- */

/* The time up to which the events of block i precede those of all other blocks.
 */
static uint64_t merge_limit(const struct pn_binary *b, unsigned i)
{
	uint64_t limit =
		b->coming && b->nopen < OPEN_MAX ? b->next_ns : UINT64_MAX;

	for (unsigned j = 0; j < b->nopen; j++)
		if (j != i && b->open[j].first.event.time_ns < limit &&
		    b->open[j].stream != b->open[i].stream)
			limit = b->open[j].first.event.time_ns;
	return limit;
}

static void emit(struct pn_trace *trace, const struct pn_trace_event *event,
		 struct pn_trace_event *out)
{
	uint64_t start_ns = trace->info.start_ns;

	*out = *event;
	out->time_ns =
		event->time_ns > start_ns ? event->time_ns - start_ns : 0;
}

/* Returns at least one event of block i. Returns the number of events, or an
 * error. */
static int emit_block(struct pn_trace *trace, unsigned i,
		      struct pn_trace_event *events, int max)
{
	struct pn_binary *b = trace->binary;
	struct block *block = &b->open[i];
	uint64_t limit = merge_limit(b, i);
	int n = 0, ret;

	do {
		emit(trace, &block->first.event, &events[n++]);
		ret = advance(trace, block);
	} while (ret > 0 && n < max && block->first.event.time_ns <= limit);
	if (ret < 0)
		trace->failed = ret;
	if (ret <= 0)
		close_block(b, i);
	return n;
}

static int fill_binary(struct pn_trace *trace, struct pn_trace_event *events,
		       int max)
{
	int ret = open_due(trace);

	/* Events of open blocks are returned before the damage behind them. */
	if (!trace->binary->nopen)
		return ret;
	if (ret) {
		trace->binary->coming = false;
		trace->input.ended = true;
		trace->input.error = ret;
		trace->input.at = trace->input.end;
	}
	return emit_block(trace, earliest(trace->binary), events, max);
}

static void close_binary(struct pn_trace *trace)
{
	struct pn_binary *b = trace->binary;

	for (unsigned i = 0; i < OPEN_MAX; i++)
		free(b->open[i].bytes);
	free(b);
}

static const struct pn_reader binary_reader = { fill_binary, close_binary };

/* --- the head ------------------------------------------------------------- */

static const char *wrong_head(const struct pn_trace_head *head)
{
	if (head->order != PN_TRACE_ORDER)
		return "recorded on a machine with another byte order";
	if (head->version != PN_TRACE_VERSION)
		return "another version of the format; use the pinion that "
		       "recorded it";
	if (head->block_bytes != PN_TRACE_BLOCK_BYTES)
		return "unsupported size of blocks";
	return NULL;
}

int pn_binary_recognise(struct pn_trace *trace)
{
	struct pn_input *input = &trace->input;
	struct pn_trace_head head;
	const char *wrong;

	if (input->end - input->at < PN_TRACE_HEAD_BYTES)
		return 0;
	memcpy(&head, input->buffer + input->at, sizeof(head));
	if (head.magic != PN_TRACE_MAGIC)
		return 0;
	wrong = wrong_head(&head);
	if (wrong)
		return pn_trace_set_damaged(trace, "%s", wrong);
	trace->binary = calloc(1, sizeof(*trace->binary));
	if (!trace->binary)
		return -ENOMEM;
	input->at += PN_TRACE_HEAD_BYTES;
	trace->info.format = PN_TRACE_BINARY;
	trace->info.unpins = trace->info.sites = true;
	trace->info.ops = true;
	trace->info.complete = head.complete;
	trace->info.pid = head.pid;
	trace->info.lost = head.lost;
	trace->info.start_ns = head.start_ns;
	memcpy(trace->info.program, head.program, sizeof(head.program));
	pn_text_sanitize(trace->info.program, sizeof(trace->info.program));
	trace->reader = &binary_reader;
	return 0;
}
