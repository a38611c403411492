/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What cannot be tried when a mode is set up: it would take a second process, a
 * thread of the kernel's in this one, a file on a disk. The table says what
 * each mode sees of it; tests try what is claimed, doc/design/monitor.md and
 * pinion(7) have the same rows.
 */
#include "base/compiler.h"
#include "monitor/monitor.h"

static const char unseen[] = "not seen";
static const char files[] = "memory of files does not stay registered";

static const struct row {
	const char *what, *patch, *userfaultfd;
} rows[] = {
	{ "raw system calls", "not seen: code that does not call libc (Go)",
	  "after" },
	{ "io_uring madvise", unseen, "after" },
	{ "another libc", "not seen: dlmopen(), static code", "after" },
	{ "open with O_TRUNC", unseen, files },
	{ "other processes' cuts", "not seen: a file truncated or punched",
	  files },
	{ "remap_file_pages", "before", "at the next use" },
	{ "shmat SHM_REMAP", "before", "at the next use" },
	{ "a program's userfaultfd", "as all else",
	  "its memory does not stay registered; EBUSY for the program on "
	  "memory that pinion watches" },
};

const char *pn_monitor_untested(unsigned index, enum pn_monitor_mode mode,
				const char **seen)
{
	if (index >= PN_ARRAY_LEN(rows))
		return NULL;
	switch (mode) {
	case PN_MONITOR_PATCH:
		*seen = rows[index].patch;
		break;
	case PN_MONITOR_USERFAULTFD:
		*seen = rows[index].userfaultfd;
		break;
	default:
		*seen = unseen;
	}
	return rows[index].what;
}
