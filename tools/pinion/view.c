/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/pinion/view.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/compiler.h"

/* --- checking ------------------------------------------------------------- */

static const struct pn_stats_block *block_at(const struct pn_view *view,
					     size_t at)
{
	return (const struct pn_stats_block *)(view->copy + at);
}

static bool field_is_valid(const struct pn_stats_block *block,
			   const struct pn_stats_field *field)
{
	bool number = field->bytes == 1 || field->bytes == 2 ||
		      field->bytes == 4 || field->bytes == 8;

	return memchr(field->name, '\0', sizeof(field->name)) &&
	       field->type < PN_STATS_NTYPES && field->bytes &&
	       field->at <= block->row_bytes &&
	       field->bytes <= block->row_bytes - field->at &&
	       (field->type == PN_STATS_TEXT || number) &&
	       (field->type != PN_STATS_REAL || field->bytes == 8);
}

/* Whether everything that a block refers to is inside it. */
static bool block_is_valid(const struct pn_stats_block *block, size_t left)
{
	if (left < sizeof(*block) || block->bytes > left ||
	    block->bytes < sizeof(*block) || block->bytes % PN_CACHELINE ||
	    block->nfields > (block->bytes - sizeof(*block)) /
				     sizeof(struct pn_stats_field) ||
	    block->data_at > block->bytes || !block->nrows ||
	    !block->row_bytes ||
	    block->nrows > (block->bytes - block->data_at) / block->row_bytes ||
	    !memchr(block->kind, '\0', sizeof(block->kind)))
		return false;
	for (unsigned i = 0; i < block->nfields; i++)
		if (!field_is_valid(block, pn_view_field(block, i)))
			return false;
	return true;
}

static bool head_is_valid(const struct pn_stats_head *head, size_t len)
{
	return len >= sizeof(*head) &&
	       !memcmp(head->magic, PN_STATS_MAGIC, sizeof(head->magic)) &&
	       head->version == PN_STATS_VERSION &&
	       head->head_bytes >= sizeof(*head) &&
	       head->head_bytes % PN_CACHELINE == 0 &&
	       head->head_bytes <= len &&
	       memchr(head->command, '\0', sizeof(head->command)) &&
	       memchr(head->library, '\0', sizeof(head->library));
}

int pn_view_parse(unsigned char *bytes, size_t len, struct pn_view *view)
{
	const struct pn_stats_head *head = (const void *)bytes;
	struct pn_view found = { .copy = bytes, .head = head, .state = '?' };

	if (!head_is_valid(head, len))
		return -EPROTO;
	found.used = atomic_load(&head->used);
	if (found.used > len)
		found.used = len; /* the file has grown since it was copied */
	for (size_t at = head->head_bytes; at < found.used;) {
		const struct pn_stats_block *block = block_at(&found, at);

		if (!block_is_valid(block, found.used - at))
			return -EPROTO;
		at += block->bytes;
	}
	*view = found;
	return 0;
}

/* --- files ---------------------------------------------------------------- */

static void path_of(int pid, char *path, size_t bytes)
{
	char folder[PN_STATS_PATH_BYTES];

	snprintf(path, bytes, "%s/%d-%llu", pn_stats_folder(folder), pid,
		 (unsigned long long)pn_stats_namespace());
}

/* Whether a process has a file mapped. Without permission to look: yes. */
static bool has_mapped(int pid, const char *path)
{
	char name[64], line[512];
	bool found = false;
	FILE *maps;

	snprintf(name, sizeof(name), "/proc/%d/maps", pid);
	maps = fopen(name, "re");
	if (!maps)
		return errno != ENOENT;
	while (!found && fgets(line, sizeof(line), maps))
		found = strstr(line, path) && !strstr(line, "(deleted)");
	/* The kernel checks the permission when the file is read. */
	found |= ferror(maps);
	fclose(maps);
	return found;
}

/* Returns the state letter of /proc/PID/stat, behind the name, which can
 * contain anything. */
static char state_of(int pid)
{
	char name[64], line[512] = "";
	const char *at;
	FILE *stat;

	snprintf(name, sizeof(name), "/proc/%d/stat", pid);
	stat = fopen(name, "re");
	if (!stat)
		return '?';
	at = fgets(line, sizeof(line), stat) ? strrchr(line, ')') : NULL;
	fclose(stat);
	return at && at[1] == ' ' && at[2] ? at[2] : '?';
}

static bool is_alive(int pid, const char *path)
{
	return (!kill(pid, 0) || errno == EPERM) && state_of(pid) != 'Z' &&
	       has_mapped(pid, path);
}

/* Copies only the used part; the file is far longer. */
static int copy_file(int fd, unsigned char **out, size_t *len)
{
	struct pn_stats_head head;
	ssize_t n = pread(fd, &head, sizeof(head), 0);
	size_t used = atomic_load(&head.used);
	unsigned char *copy;

	if (n != sizeof(head) || used < sizeof(head) ||
	    used > PN_STATS_MAX_BYTES)
		return -EPROTO;
	copy = aligned_alloc(PN_CACHELINE, (used + PN_CACHELINE - 1) &
						   ~(size_t)(PN_CACHELINE - 1));
	if (!copy)
		return -ENOMEM;
	n = pread(fd, copy, used, 0);
	if (n != (ssize_t)used) {
		free(copy);
		return -EPROTO;
	}
	*out = copy;
	*len = used;
	return 0;
}

int pn_view_open(int pid, struct pn_view *view)
{
	char path[2 * PN_STATS_PATH_BYTES];
	unsigned char *copy;
	size_t len;
	int ret, fd;

	path_of(pid, path, sizeof(path));
	fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? -ESRCH : -errno;
	ret = copy_file(fd, &copy, &len);
	close(fd);
	if (!is_alive(pid, path)) {
		unlink(path);
		if (!ret)
			free(copy);
		return -ESRCH;
	}
	if (ret)
		return ret;
	ret = pn_view_parse(copy, len, view);
	if (ret)
		free(copy);
	else
		view->state = state_of(pid);
	return ret;
}

void pn_view_close(struct pn_view *view)
{
	free(view->copy);
	view->copy = NULL;
}

static int by_number(const void *a, const void *b)
{
	int x = *(const int *)a, y = *(const int *)b;

	return (x > y) - (x < y);
}

int pn_view_list(int *pids, unsigned max)
{
	char folder[PN_STATS_PATH_BYTES], path[2 * PN_STATS_PATH_BYTES];
	unsigned long long mine = pn_stats_namespace(), namespace;
	DIR *dir = opendir(pn_stats_folder(folder));
	struct dirent *entry;
	unsigned n = 0;
	int pid;

	if (!dir)
		return errno == ENOENT ? 0 : -errno;
	while (n < max && (entry = readdir(dir))) {
		if (sscanf(entry->d_name, "%d-%llu", &pid, &namespace) != 2 ||
		    namespace != mine)
			continue;
		path_of(pid, path, sizeof(path));
		if (is_alive(pid, path))
			pids[n++] = pid;
		else
			unlink(path);
	}
	closedir(dir);
	qsort(pids, n, sizeof(*pids), by_number);
	return (int)n;
}

/* --- blocks --------------------------------------------------------------- */

const struct pn_stats_block *pn_view_next(const struct pn_view *view,
					  const struct pn_stats_block *block)
{
	size_t at = view->head->head_bytes;

	if (block)
		at = (size_t)((const unsigned char *)block - view->copy) +
		     block->bytes;
	for (; at < view->used; at += block_at(view, at)->bytes)
		if (atomic_load(&block_at(view, at)->live))
			return block_at(view, at);
	return NULL;
}

bool pn_view_is(const struct pn_stats_block *block, const char *kind)
{
	return !strcmp(block->kind, kind);
}

static bool owns(const struct pn_view *view, const struct pn_stats_block *owner,
		 const struct pn_stats_block *block)
{
	return block->owner ==
	       (uint64_t)((const unsigned char *)owner - view->copy);
}

const struct pn_stats_field *pn_view_field(const struct pn_stats_block *block,
					   unsigned i)
{
	return (const struct pn_stats_field *)(block + 1) + i;
}

const struct pn_stats_field *pn_view_find(const struct pn_stats_block *block,
					  const char *name)
{
	for (unsigned i = 0; i < block->nfields; i++)
		if (!strcmp(pn_view_field(block, i)->name, name))
			return pn_view_field(block, i);
	return NULL;
}

static const unsigned char *value_at(const struct pn_stats_block *block,
				     unsigned row,
				     const struct pn_stats_field *field)
{
	return (const unsigned char *)block + block->data_at +
	       (size_t)row * block->row_bytes + field->at;
}

uint64_t pn_view_word(const struct pn_stats_block *block, unsigned row,
		      const struct pn_stats_field *field)
{
	const unsigned char *at = value_at(block, row, field);
	uint64_t word = 0;

	/* Little-endian only, as everywhere in pinion. */
	memcpy(&word, at, field->bytes < 8 ? field->bytes : 8);
	return word;
}

double pn_view_number(const struct pn_stats_block *block, unsigned row,
		      const struct pn_stats_field *field)
{
	double real;

	if (field->type != PN_STATS_REAL)
		return (double)pn_view_word(block, row, field);
	memcpy(&real, value_at(block, row, field), sizeof(real));
	return real;
}

double pn_view_sum(const struct pn_view *view,
		   const struct pn_stats_block *owner,
		   const struct pn_stats_field *field)
{
	double sum = pn_view_number(owner, 0, field);
	const struct pn_stats_block *other = NULL;

	while ((other = pn_view_next(view, other))) {
		const struct pn_stats_field *same =
			owns(view, owner, other) && other->nrows == 1
				? pn_view_find(other, field->name)
				: NULL;

		if (same)
			sum += pn_view_number(other, 0, same);
	}
	return sum;
}

const char *pn_view_text(const struct pn_stats_block *block, unsigned row,
			 const struct pn_stats_field *field, char *buf,
			 size_t bytes)
{
	const unsigned char *at = value_at(block, row, field);
	size_t n = 0;

	for (; n < field->bytes && n + 1 < bytes && at[n]; n++)
		buf[n] = isprint(at[n]) ? (char)at[n] : '?';
	buf[n] = '\0';
	return buf;
}

/* Returns the next block of a kind that has the field; NULL: none. */
static const struct pn_stats_block *next_with(
	const struct pn_view *view, const struct pn_stats_block *block,
	const char *kind, const char *name, double *value)
{
	while ((block = pn_view_next(view, block))) {
		const struct pn_stats_field *field =
			pn_view_is(block, kind) ? pn_view_find(block, name)
						: NULL;

		if (!field)
			continue;
		*value = pn_view_sum(view, block, field);
		break;
	}
	return block;
}

double pn_view_total(const struct pn_view *view, const char *kind,
		     const char *name)
{
	const struct pn_stats_block *block = NULL;
	double sum = 0, value;

	while ((block = next_with(view, block, kind, name, &value)))
		sum += value;
	return sum;
}

double pn_view_largest(const struct pn_view *view, const char *kind,
		       const char *name)
{
	const struct pn_stats_block *block = NULL;
	double largest = 0, value;

	while ((block = next_with(view, block, kind, name, &value)))
		if (value > largest)
			largest = value;
	return largest;
}
