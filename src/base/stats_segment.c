/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/stats_segment.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/range.h"
#include "revision.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* In front of every object: where it lives. */
struct tag {
	void *heap;	 /* to be freed; NULL: it is on a board */
	uint64_t number; /* of that board */
	struct pn_stats_block *block;
} PN_ALIGNED(PN_CACHELINE);

static struct pn_mutex lock = { PTHREAD_MUTEX_INITIALIZER };
/* Under the lock, but that a forked child starts anew. */
static struct {
	unsigned char *map; /* NULL: there is none */
	uint64_t number;    /* of the boards so far */
	unsigned nlive;
	pid_t pid;
	char name[PN_STATS_PATH_BYTES]; /* in the folder */
} board;

/* Allocations that only the board refers to are not leaks. Weak: it is there
 * when the program has been built with a sanitizer that looks for them. */
extern void __lsan_register_root_region(const void *, size_t)
	__attribute__((weak));
extern void __lsan_unregister_root_region(const void *, size_t)
	__attribute__((weak));

static size_t round_up(size_t bytes)
{
	return (bytes + PN_CACHELINE - 1) & ~(size_t)(PN_CACHELINE - 1);
}

/* --- the folder ----------------------------------------------------------- */

const char *pn_stats_folder(char *buf)
{
	snprintf(buf, PN_STATS_PATH_BYTES, "/dev/shm/pinion-%u",
		 (unsigned)geteuid());
	return buf;
}

uint64_t pn_stats_namespace(void)
{
	struct stat st;

	return stat("/proc/self/ns/pid", &st) ? 0 : (uint64_t)st.st_ino;
}

/* The folder's descriptor. Anyone may make a folder of that name: one that is
 * not ours alone is not used. */
static int open_folder(bool make)
{
	char path[PN_STATS_PATH_BYTES];
	struct stat st;
	int fd;

	pn_stats_folder(path);
	if (make && mkdir(path, 0700) && errno != EEXIST)
		return -errno;
	fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (!fstat(fd, &st) && st.st_uid == geteuid() && !(st.st_mode & 077))
		return fd;
	close(fd);
	pn_warn("%s is not this user's alone: nothing is shown there, `pinion "
		"top` will not see this process. Remove it.",
		path);
	return -EPERM;
}

static bool is_child(pid_t pid)
{
	siginfo_t info;

	return !waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT);
}

/* Removes what processes left that are no more; how many are children. */
static unsigned sweep(int folder, uint64_t namespace)
{
	int fd = dup(folder);
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
	struct dirent *entry;
	unsigned long long theirs;
	unsigned nchildren = 0;
	int pid;

	if (!dir) {
		if (fd >= 0)
			close(fd);
		return 0;
	}
	while ((entry = readdir(dir))) {
		if (sscanf(entry->d_name, "%d-%llu", &pid, &theirs) != 2 ||
		    theirs != namespace)
			continue;
		if (kill(pid, 0) && errno == ESRCH)
			unlinkat(folder, entry->d_name, 0);
		else
			nchildren += is_child(pid);
	}
	closedir(dir);
	return nchildren;
}

unsigned pn_stats_sweep(void)
{
	int folder = open_folder(false);
	unsigned nchildren;

	if (folder < 0)
		return 0;
	nchildren = sweep(folder, pn_stats_namespace());
	close(folder);
	return nchildren;
}

/* --- the file ------------------------------------------------------------- */

static void write_head(struct pn_stats_head *head, uint64_t namespace)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	*head = (struct pn_stats_head){
		.version = PN_STATS_VERSION,
		.head_bytes = (uint32_t)round_up(sizeof(*head)),
		.pid = (uint32_t)getpid(),
		.namespace = namespace,
		.opened_ns = (uint64_t)now.tv_sec * PN_NS_PER_S +
			     (uint64_t)now.tv_nsec,
		.used = round_up(sizeof(*head)),
	};
	snprintf(head->command, sizeof(head->command), "%s",
		 program_invocation_short_name);
	snprintf(head->library, sizeof(head->library), "%s", PN_VERSION);
	/* Last: a reader that comes meanwhile sees no board yet. */
	memcpy(head->magic, PN_STATS_MAGIC, sizeof(head->magic));
}

/* Makes room up to `end` before it is touched: a full file system would end
 * the process otherwise. */
static int populate(unsigned char *map, size_t begin, size_t end)
{
	struct pn_range pages =
		pn_range_pages(begin, end - begin, PN_PAGE_BYTES);

	return madvise(map + pages.addr, pages.len, MADV_POPULATE_WRITE)
		       ? -errno
		       : 0;
}

/* No descriptor is kept: programs that close all theirs do no harm. */
static int map_file(int folder, const char *name, unsigned char **out)
{
	int fd, ret = 0;
	void *map;

	unlinkat(folder, name, 0); /* of a process that had our pid */
	fd = openat(folder, name,
		    O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	map = ftruncate(fd, (off_t)PN_STATS_MAX_BYTES)
		      ? MAP_FAILED
		      : mmap(NULL, PN_STATS_MAX_BYTES, PROT_READ | PROT_WRITE,
			     MAP_SHARED | MAP_NORESERVE, fd, 0);
	if (map == MAP_FAILED)
		ret = -errno;
	close(fd);
	if (!ret)
		ret = populate(map, 0, sizeof(struct pn_stats_head));
	if (ret) {
		unlinkat(folder, name, 0);
		if (map != MAP_FAILED)
			munmap(map, PN_STATS_MAX_BYTES);
		return ret;
	}
	*out = map;
	return 0;
}

static int open_locked(void) PN_REQUIRES(&lock)
{
	uint64_t namespace = pn_stats_namespace();
	unsigned char *map = NULL;
	int ret, folder = open_folder(true);

	if (folder < 0)
		return folder;
	sweep(folder, namespace);
	snprintf(board.name, sizeof(board.name), "%d-%llu", (int)getpid(),
		 (unsigned long long)namespace);
	ret = map_file(folder, board.name, &map);
	close(folder);
	if (ret)
		return ret;
	pn_assert(map);
	write_head((struct pn_stats_head *)map, namespace);
	board.map = map;
	board.number++;
	board.pid = getpid();
	return 0;
}

static void remove_file(void)
{
	char folder[PN_STATS_PATH_BYTES], path[2 * PN_STATS_PATH_BYTES];

	snprintf(path, sizeof(path), "%s/%s", pn_stats_folder(folder),
		 board.name);
	unlink(path);
}

static void close_locked(void) PN_REQUIRES(&lock)
{
	remove_file();
	munmap(board.map, PN_STATS_MAX_BYTES);
	board.map = NULL;
}

/* A program may end with its contexts open. Its memory stays: threads may
 * still run. */
__attribute__((destructor)) static void remove_at_exit(void)
{
	if (board.map && board.pid == getpid())
		remove_file();
}

/* --- blocks --------------------------------------------------------------- */

static unsigned rows_of(const struct pn_stats_kind *kind)
{
	return kind->nrows ? kind->nrows : 1;
}

/* Where the object begins in a block; its tag is just before. */
static size_t data_at(const struct pn_stats_kind *kind)
{
	return round_up(sizeof(struct pn_stats_block) +
			kind->nfields * sizeof(struct pn_stats_field)) +
	       sizeof(struct tag);
}

static size_t block_bytes(const struct pn_stats_kind *kind)
{
	return data_at(kind) + round_up(rows_of(kind) * kind->bytes);
}

static struct pn_stats_block *block_at(size_t at) PN_REQUIRES(&lock)
{
	return (struct pn_stats_block *)(board.map + at);
}

/* One of the same size that was freed, else new room; 0: there is none. */
static size_t find_room_locked(size_t bytes) PN_REQUIRES(&lock)
{
	struct pn_stats_head *head = (struct pn_stats_head *)board.map;
	size_t at = head->head_bytes, used = atomic_load(&head->used);

	for (; at < used; at += block_at(at)->bytes)
		if (!atomic_load(&block_at(at)->live) &&
		    block_at(at)->bytes == bytes)
			return at;
	if (bytes > PN_STATS_MAX_BYTES - used ||
	    populate(board.map, used, used + bytes))
		return 0;
	return used;
}

static uint64_t place_of(const void *owner) PN_REQUIRES(&lock)
{
	const struct tag *tag;

	if (!owner)
		return 0;
	tag = (const struct tag *)owner - 1;
	if (tag->heap || tag->number != board.number)
		return 0;
	return (uint64_t)((unsigned char *)tag->block - board.map);
}

static void *fill_block_locked(const struct pn_stats_kind *kind,
			       const void *owner, size_t at) PN_REQUIRES(&lock)
{
	struct pn_stats_head *head = (struct pn_stats_head *)board.map;
	struct pn_stats_block *block = block_at(at);
	unsigned char *object = board.map + at + data_at(kind);

	memset((void *)block, 0, block_bytes(kind));
	block->bytes = block_bytes(kind);
	block->nfields = kind->nfields;
	block->owner = place_of(owner);
	block->nrows = rows_of(kind);
	block->row_bytes = (uint32_t)kind->bytes;
	block->data_at = data_at(kind);
	snprintf(block->kind, sizeof(block->kind), "%s", kind->name);
	memcpy(block + 1, kind->fields,
	       kind->nfields * sizeof(struct pn_stats_field));
	((struct tag *)object)[-1] = (struct tag){ NULL, board.number, block };
	/* Readers pair with it by reading live and used before the rest. */
	atomic_store_explicit(&block->live, 1, memory_order_release);
	if (at + block->bytes > atomic_load(&head->used))
		atomic_store(&head->used, at + block->bytes);
	board.nlive++;
	if (__lsan_register_root_region)
		__lsan_register_root_region(block, block->bytes);
	return object;
}

static void *alloc_shown(const struct pn_stats_kind *kind, const void *owner)
{
	void *object = NULL;
	size_t at = 0;
	int ret = 0;

	pn_lock(&lock);
	if (!board.map)
		ret = open_locked();
	if (board.map)
		at = find_room_locked(block_bytes(kind));
	if (at)
		object = fill_block_locked(kind, owner, at);
	else if (board.map && !board.nlive)
		close_locked();
	pn_unlock(&lock);
	if (!object)
		pn_debug("a %s is not shown: %s", kind->name,
			 ret ? strerror(-ret) : "no room");
	return object;
}

static void *alloc_hidden(const struct pn_stats_kind *kind)
{
	size_t bytes =
		sizeof(struct tag) + round_up(rows_of(kind) * kind->bytes);
	struct tag *tag = aligned_alloc(PN_CACHELINE, bytes);

	if (!tag)
		return NULL;
	memset(tag, 0, bytes);
	tag->heap = tag;
	return tag + 1;
}

void *pn_stats_alloc(const struct pn_stats_kind *kind, const void *owner,
		     bool shown)
{
	PN_NO_CANCEL();
	void *object = shown ? alloc_shown(kind, owner) : NULL;

	return object ? object : alloc_hidden(kind);
}

void pn_stats_free(void *object)
{
	struct tag *tag;

	if (!object)
		return;
	PN_NO_CANCEL();
	tag = (struct tag *)object - 1;
	if (tag->heap) {
		free(tag->heap);
		return;
	}
	pn_lock(&lock);
	if (board.map && tag->number == board.number) {
		atomic_store(&tag->block->live, 0);
		if (__lsan_unregister_root_region)
			__lsan_unregister_root_region(tag->block,
						      tag->block->bytes);
		if (!--board.nlive)
			close_locked();
	}
	pn_unlock(&lock);
}

/* The copy moves to where the board was, so that pointers stay good. */
static void make_private(unsigned char *map)
{
	size_t used = atomic_load(&((struct pn_stats_head *)map)->used);
	size_t bytes = (used + 4095) & ~(size_t)4095;
	void *copy = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	pn_assert(copy != MAP_FAILED);
	memcpy(copy, map, used);
	pn_assert(mremap(copy, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED,
			 map) == map);
	if (bytes < PN_STATS_MAX_BYTES)
		munmap(map + bytes, PN_STATS_MAX_BYTES - bytes);
}

bool pn_stats_counters_valid(const struct pn_stats_kind *kind,
			     const void *object)
{
	for (unsigned i = 0; i < kind->nfields; i++) {
		const struct pn_stats_field *f = &kind->fields[i];
		int64_t count;

		if (f->type != PN_STATS_COUNTER || f->bytes != sizeof(count))
			continue;
		memcpy(&count, (const char *)object + f->at, sizeof(count));
		if (count < 0)
			return false;
	}
	return true;
}

void pn_stats_in_child(void) PN_NO_THREAD_SAFETY
{
	/* Another thread of the parent may have held it. */
	lock = (struct pn_mutex){ PTHREAD_MUTEX_INITIALIZER };
	if (!board.map)
		return;
	make_private(board.map);
	board.map = NULL;
	board.number++; /* what is still there is nobody's board */
	board.nlive = 0;
}
