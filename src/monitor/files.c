/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Releases through a file. Truncating a file or punching a hole into it takes
 * pages from all its mappings, also from private ones that were written to, and
 * names a file, not an address. If anything is watched and the call takes pages
 * at all, the mappings of the file are found by its inode number. The device
 * number is not compared: /proc/self/maps and stat() name different ones on
 * some file systems (btrfs, overlayfs), and a false match costs only time.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/stat.h>

#include "monitor/monitor_impl.h"
#include "monitor/syscalls.h"

#define END_OF_FILE UINT64_MAX

struct file_release {
	struct pn_release *release;
	uint64_t inode;
	uint64_t from, to; /* offsets in the file */
};

static bool add_mapping(void *arg, const struct pn_mapping *m)
{
	struct file_release *gone = arg;
	uint64_t start = m->offset, end = start + (m->end - m->start);

	if (m->inode != gone->inode || start >= gone->to || end <= gone->from)
		return true;
	if (start < gone->from)
		start = gone->from;
	if (end > gone->to)
		end = gone->to;
	pn_release_add_perhaps(gone->release, m->start + (start - m->offset),
			       end - start, 0);
	return true;
}

static void add_file_release(struct pn_release *release, const struct stat *st,
			     uint64_t from, uint64_t to)
{
	const struct pn_range all = { pn_monitor_page_bytes(),
				      UINTPTR_MAX / 2 };
	struct file_release gone = { release, st->st_ino, from, to };

	/* If the mappings cannot be read, any may be one of the file. */
	if (pn_filter_may_overlap(all) && pn_maps_walk(add_mapping, &gone))
		pn_release_add_perhaps(release, all.addr, all.len, 0);
}

/* False: there is no such file; the call will fail. */
static bool status_of(int fd, const char *path, struct stat *out)
{
	return !PN_SYSCALL(SYS_newfstatat, path ? AT_FDCWD : fd,
			   (long)(path ? path : ""), (long)out,
			   path ? 0 : AT_EMPTY_PATH);
}

void pn_release_add_truncate(struct pn_release *release, int fd,
			     const char *path, off_t len)
{
	struct stat st;

	if (len >= 0 && status_of(fd, path, &st) && len < st.st_size)
		add_file_release(release, &st, (uint64_t)len, END_OF_FILE);
}

void pn_release_add_fallocate(struct pn_release *release, int fd, int mode,
			      off_t from, off_t len)
{
	const int shifts = FALLOC_FL_COLLAPSE_RANGE | FALLOC_FL_INSERT_RANGE;
	const int empties = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE;
	struct stat st;

	if (!(mode & (shifts | empties)) || from < 0 || len <= 0 ||
	    !status_of(fd, NULL, &st))
		return;
	add_file_release(release, &st, (uint64_t)from,
			 mode & shifts ? END_OF_FILE
				       : (uint64_t)from + (uint64_t)len);
}
