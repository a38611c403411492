/* SPDX-License-Identifier: BSD-2-Clause */
/* Files that tests of traces write, and what comes back from them. */
#ifndef PN_TESTS_TRACE_FILE_H
#define PN_TESTS_TRACE_FILE_H

#include "test.h"

#include <unistd.h>
#include <zlib.h>

#include "trace/trace.h"

static char trace_folder[64];

static inline void trace_remove_folder(void)
{
	rmdir(trace_folder);
}

/* A name in a folder of the test's own, which goes when the test ends. */
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

/* Writes bytes, gzip'd or not. */
static inline void trace_write(const char *path, const void *bytes, size_t len,
			       bool gzip)
{
	gzFile file = gzopen(path, gzip ? "wb1" : "wbT");

	assert_non_null(file);
	if (len)
		assert_int_equal(gzwrite(file, bytes, (unsigned)len), len);
	assert_int_equal(gzclose(file), Z_OK);
}

#endif
