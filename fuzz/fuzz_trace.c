/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fuzz_trace -- trace files of every format (tools/trace/trace.h).
 *
 * The input is a file. If it is refused, there is a reason. If it is read,
 * every event is valid, damage has a position, names and sites can be looked
 * up, the statistics can be computed, and the events, written in either
 * lossless format and read again, are the same.
 *
 * An input that begins with `B` is the records of the only block of a recording
 * instead, so that the fuzzer need not find a valid header.
 */
#include "fuzz.h"

#include <errno.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tools/trace/stat.h"
#include "tools/trace/write.h"
#include "trace/format.h"

#define EVENTS_MAX 512

static struct pn_trace_event events[EVENTS_MAX], again[EVENTS_MAX];

/* Makes a file in memory; stores its name in path. */
static int make_file(const void *bytes, size_t size, char path[32])
{
	int fd = memfd_create("trace", MFD_CLOEXEC);

	FUZZ_ASSERT(fd >= 0);
	FUZZ_ASSERT(write(fd, bytes, size) == (ssize_t)size);
	snprintf(path, 32, "/proc/self/fd/%d", fd);
	return fd;
}

static void check_event(struct pn_trace *trace, const struct pn_trace_event *e)
{
	uint64_t frames[PN_TRACE_MAX_FRAMES];
	struct pn_trace_event_cache cache;

	FUZZ_ASSERT(e->kind < PN_EVENT_NKINDS);
	if (e->kind == PN_EVENT_PIN)
		FUZZ_ASSERT(e->addr + e->len >= e->addr);
	FUZZ_ASSERT(pn_trace_site_frames(trace, e->site, frames) <=
		    PN_TRACE_MAX_FRAMES);
	FUZZ_ASSERT(strlen(pn_trace_op_name(trace, e->op)) < 256);
	if (!pn_trace_cache_config(trace, e->source, &cache))
		FUZZ_ASSERT(memchr(cache.policy, 0, sizeof(cache.policy)));
	(void)pn_trace_decision_name(e);
	(void)pn_trace_reason_name(e);
}

/* Reads all events and keeps the first EVENTS_MAX. */
static size_t read_all(struct pn_trace *trace, struct pn_trace_event *out)
{
	struct pn_trace_event e;
	size_t n = 0;
	int ret;

	while ((ret = pn_trace_next(trace, &e)) > 0) {
		check_event(trace, &e);
		if (n < EVENTS_MAX)
			out[n] = e;
		n++;
	}
	FUZZ_ASSERT(!ret || ret == -EBADMSG);
	FUZZ_ASSERT(pn_trace_location(trace)[0]);
	return n < EVENTS_MAX ? n : EVENTS_MAX;
}

static void sum_up(size_t n)
{
	struct pn_stat stat;
	uint64_t classes = 0;

	FUZZ_ASSERT(!pn_stat_init(&stat));
	FUZZ_ASSERT(!pn_stat_add(&stat, events, (int)n));
	pn_stat_finish(&stat);
	for (unsigned k = 0; k < PN_STAT_CLASSES; k++)
		classes += stat.sizes[k].requests;
	FUZZ_ASSERT(classes == stat.requests);
	FUZZ_ASSERT(pn_stat_hits(&stat, UINT64_MAX).requests <= stat.requests);
	pn_stat_fini(&stat);
}

/* Operations may get other numbers; their names are equal. */
static void check_same(struct pn_trace *a, struct pn_trace *b, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct pn_trace_event x = events[i], y = again[i];

		FUZZ_ASSERT(!strcmp(pn_trace_op_name(a, x.op),
				    pn_trace_op_name(b, y.op)));
		x.op = y.op = 0;
		FUZZ_ASSERT(!memcmp(&x, &y, sizeof(x)));
	}
}

static void write_again(struct pn_trace *trace, size_t n,
			enum pn_trace_format format)
{
	struct pn_trace_writer *writer;
	struct pn_trace *other;
	char path[32];
	int fd = make_file("", 0, path);

	FUZZ_ASSERT(!pn_writer_open(path, format, trace, &writer, NULL));
	for (size_t i = 0; i < n; i++)
		FUZZ_ASSERT(!pn_writer_event(writer, &events[i]));
	FUZZ_ASSERT(!pn_writer_close(writer));
	FUZZ_ASSERT(!pn_trace_open(path, &other, NULL));
	FUZZ_ASSERT(read_all(other, again) == n);
	check_same(trace, other, n);
	pn_trace_close(other);
	close(fd);
}

static void try_file(const void *bytes, size_t size)
{
	struct pn_trace *trace;
	struct pn_why why = { "" };
	char path[32];
	int fd = make_file(bytes, size, path);
	int ret = pn_trace_open(path, &trace, &why);

	FUZZ_ASSERT(!ret || why.text[0]);
	if (!ret) {
		size_t n = read_all(trace, events);

		sum_up(n);
		write_again(trace, n, PN_TRACE_BINARY);
		write_again(trace, n, PN_TRACE_FULL);
		pn_trace_close(trace);
	}
	close(fd);
}

static void try_records(const uint8_t *data, size_t size)
{
	static char file[PN_TRACE_HEAD_BYTES + PN_TRACE_BLOCK_BYTES];
	struct pn_trace_head head = { .magic = PN_TRACE_MAGIC,
				      .order = PN_TRACE_ORDER,
				      .version = PN_TRACE_VERSION,
				      .block_bytes = PN_TRACE_BLOCK_BYTES };
	struct pn_trace_block block = { .magic = PN_TRACE_BLOCK_MAGIC };

	if (size > PN_TRACE_BLOCK_ROOM)
		size = PN_TRACE_BLOCK_ROOM;
	block.used = (uint32_t)size;
	memset(file, 0, sizeof(file));
	memcpy(file, &head, sizeof(head));
	memcpy(file + PN_TRACE_HEAD_BYTES, &block, sizeof(block));
	memcpy(file + PN_TRACE_HEAD_BYTES + sizeof(block), data, size);
	try_file(file, sizeof(file));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size && data[0] == 'B')
		try_records(data + 1, size - 1);
	else
		try_file(data, size);
	return 0;
}
