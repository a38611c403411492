/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Trace files written by tests, and what is read from them.
 */
#ifndef PN_TESTS_TRACE_FILE_H
#define PN_TESTS_TRACE_FILE_H

#include "test.h"

#include <ftw.h>
#include <unistd.h>
#include <zlib.h>

#include "tools/trace/trace.h"

static char trace_folder[64];

static inline int trace_remove_entry(const char *path, const struct stat *st,
				     int kind, struct FTW *where)
{
	(void)st, (void)kind, (void)where;
	return remove(path);
}

/* Also removes files of a failed test. */
static inline void trace_remove_folder(void)
{
	nftw(trace_folder, trace_remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

/* A path in the test's own folder, which is removed when the test ends. */
static inline const char *trace_path(const char *name)
{
	static char path[128];

	if (!trace_folder[0]) {
		strcpy(trace_folder, "trace.XXXXXX");
		assert_non_null(mkdtemp(trace_folder));
		atexit(trace_remove_folder);
	}
	snprintf(path, sizeof(path), "%s/%s", trace_folder, name);
	return path;
}

static inline void trace_remove(const char *name)
{
	unlink(trace_path(name));
}

/* Writes bytes, compressed with gzip or not. */
static inline void trace_write(const char *path, const void *bytes, size_t len,
			       bool gzip)
{
	gzFile file = gzopen(path, gzip ? "wb1" : "wbT");

	assert_non_null(file);
	if (len)
		assert_int_equal(gzwrite(file, bytes, (unsigned)len), len);
	assert_int_equal(gzclose(file), Z_OK);
}

/* Whether two events are equal except for the time, which readers count from
 * the first event. */
static inline bool trace_same(const struct pn_trace_event *a,
			      const struct pn_trace_event *b)
{
	struct pn_trace_event x = *a, y = *b;

	x.time_ns = y.time_ns = 0;
	return !memcmp(&x, &y, sizeof(x));
}

/* A random event whose numbers are small, large or unchanged. */
static inline void trace_random(uint64_t *seed, struct pn_trace_event *e)
{
	static const uint8_t shifts[] = { 0, 8, 30, 52, 60, 63 };
	uint8_t shift = shifts[test_below(seed, sizeof(shifts))];

	e->time_ns += test_below(seed, 1000000) >> test_below(seed, 20);
	e->kind = (uint8_t)(PN_EVENT_PIN +
			    test_below(seed, PN_EVENT_NKINDS - PN_EVENT_PIN));
	e->peer = test_below(seed, 4) ? PN_EVENT_NO_PEER
				      : (uint32_t)test_random(seed);
	if (test_below(seed, 2))
		e->addr = test_random(seed) >> shift;
	if (test_below(seed, 2))
		e->len = test_random(seed) >> shift;
	e->addr >>= e->addr > UINT64_MAX / 2;
	e->len >>= 2 * (e->len > UINT64_MAX / 4);
	if (test_below(seed, 3))
		e->handle = test_random(seed) >> shift;
	if (!test_below(seed, 3))
		e->site = test_random(seed) >> shift;
	if (!test_below(seed, 3)) {
		e->flags = (uint16_t)test_random(seed);
		e->source = (uint16_t)test_random(seed);
		e->more = (uint16_t)test_random(seed);
		e->decision = (uint8_t)test_random(seed);
		e->reason = (uint8_t)test_random(seed);
	}
}

#endif
