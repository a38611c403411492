/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The kinds of release that the self-test cannot perform, since they take a
 * second process, a kernel thread or a file on a disk. The table says how each
 * mode detects them. Tests verify the table; doc/design/monitor.md and
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
				const char **detection)
{
	if (index >= PN_ARRAY_LEN(rows))
		return NULL;
	switch (mode) {
	case PN_MONITOR_PATCH:
		*detection = rows[index].patch;
		break;
	case PN_MONITOR_USERFAULTFD:
		*detection = rows[index].userfaultfd;
		break;
	default:
		*detection = unseen;
	}
	return rows[index].what;
}
