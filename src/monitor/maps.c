/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reads /proc/self/maps through a buffer on the stack: it is used inside
 * shmdt(), where nothing may be allocated.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "monitor/monitor_impl.h"
#include "monitor/syscalls.h"

struct reader {
	long fd;
	size_t len, pos;
	int error;
	char buf[2048];
};

/* The next character, or -1 at the end. */
static int next(struct reader *r)
{
	long n;

	if (r->pos == r->len) {
		n = PN_SYSCALL(SYS_read, r->fd, (long)r->buf, sizeof(r->buf));
		if (n <= 0) {
			r->error = (int)n;
			return -1;
		}
		r->len = (size_t)n;
		r->pos = 0;
	}
	return (unsigned char)r->buf[r->pos++];
}

static int digit_value(int c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : 99;
}

/* Reads a number and the one character behind it; false: end of the file. */
static bool read_number(struct reader *r, int base, unsigned long *out)
{
	int c;

	*out = 0;
	while ((c = next(r)) >= 0 && digit_value(c) < base)
		*out = *out * (unsigned long)base +
		       (unsigned long)digit_value(c);
	return c >= 0;
}

static bool skip_past(struct reader *r, char stop)
{
	int c;

	do
		c = next(r);
	while (c >= 0 && c != stop);
	return c >= 0;
}

static bool starts_with(const char *path, const char *start)
{
	return !strncmp(path, start, strlen(start));
}

/* Reads the rest of the line. The character behind the inode has been read
 * already; it ends the line when there is no path. */
static bool read_path(struct reader *r, struct pn_mapping *m)
{
	char path[16] = "";
	size_t len = 0;
	int c = (unsigned char)r->buf[r->pos - 1];

	while (c == ' ')
		c = next(r);
	for (; c >= 0 && c != '\n'; c = next(r))
		if (len < sizeof(path) - 1)
			path[len++] = (char)c;
	m->sysv = starts_with(path, "/SYSV");
	/* Anonymous shared memory and huge pages have a file that no process
	 * can open. */
	m->file = m->inode && !m->sysv && !starts_with(path, "/dev/zero") &&
		  !starts_with(path, "/anon_hugepage");
	return c == '\n';
}

/* start-end perms offset dev inode path */
static bool read_mapping(struct reader *r, struct pn_mapping *m)
{
	return read_number(r, 16, &m->start) && read_number(r, 16, &m->end) &&
	       skip_past(r, ' ') && read_number(r, 16, &m->offset) &&
	       skip_past(r, ' ') && read_number(r, 10, &m->inode) &&
	       read_path(r, m);
}

int pn_maps_walk(bool (*fn)(void *arg, const struct pn_mapping *mapping),
		 void *arg)
{
	struct reader r;
	struct pn_mapping mapping;

	r.len = r.pos = 0;
	r.error = 0;
	r.fd = PN_SYSCALL(SYS_openat, AT_FDCWD, (long)"/proc/self/maps",
			  O_RDONLY | O_CLOEXEC);
	if (pn_syscall_failed(r.fd))
		return (int)r.fd;
	while (read_mapping(&r, &mapping) && fn(arg, &mapping))
		;
	PN_SYSCALL(SYS_close, r.fd);
	return r.error;
}
