/* SPDX-License-Identifier: BSD-2-Clause */
#include "trace/record.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/list.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/process.h"
#include "base/thread.h"
#include "cache/trace_event.h"
#include "monitor/syscalls.h"
#include "trace/format.h"

#define RING_ENTRIES 512 /* power of two */

struct ring_entry {
	_Atomic uint64_t filled; /* its number + 1 once the event is complete */
	/* The stream of the thread that recorded the event, and the time of the
	 * newest event there; NULL: the thread has none. */
	const struct stream *stream;
	uint64_t after_ns;
	struct pn_trace_event event;
};

struct recorder;

struct stream {
	struct recorder *recorder;
	struct pn_trace_block *block; /* NULL: none yet, or the file is full */
	uint32_t used;
	uint32_t number;
	bool busy; /* inside record(): detects a signal handler that records */
	struct pn_trace_event before;
	struct pn_list link;  /* in recorder.idle */
	struct stream *older; /* list of all streams */
};

struct recorder {
	struct pn_trace_sink sink; /* must be first */
	/* enum state; reads as FOREIGN in forked children */
	_Atomic uint32_t *state;
	struct pn_trace_head *head;
	int fd;
	uint64_t max_blocks;
	_Atomic uint64_t nblocks;
	_Atomic bool full; /* no further blocks */
	_Atomic uint32_t nsources;
	_Atomic uint64_t latest_ns; /* start time of the newest block */
	char path[4096];
	/* The ring of events recorded by record_noalloc(). */
	_Atomic uint64_t ring_head, ring_tail;
	_Atomic bool draining;
	struct ring_entry ring[RING_ENTRIES];
	/* Protects the fields below. */
	struct pn_mutex lock;
	struct pn_list idle;	/* streams of ended threads */
	struct stream *newest;	/* head of the list of all streams */
	struct recorder *older; /* the parent's recorder, or a stopped one */
};

enum state { FOREIGN, RECORDING, STOPPED };

static struct recorder *_Atomic current;
static struct pn_mutex start_lock = { PTHREAD_MUTEX_INITIALIZER };

/* A forked child continues the numbering: its first thread keeps the parent's
 * number. */
static int thread_key; /* base/thread.h; negative: no key was free */
static _Atomic uint32_t nthreads;

static _Thread_local struct stream *my_stream
	__attribute__((tls_model("initial-exec")));

static inline bool is_recording(const struct recorder *r)
{
	return atomic_load_explicit(r->state, memory_order_relaxed) ==
	       RECORDING;
}

static void count_lost(struct recorder *r)
{
	atomic_fetch_add_explicit(&r->head->lost, 1, memory_order_relaxed);
}

/* --- blocks --------------------------------------------------------------- */

/* Not through libc: libc's munmap() would notify the monitor. */
static void unmap(void *at, size_t bytes)
{
	PN_SYSCALL(SYS_munmap, (long)at, (long)bytes);
}

static void *map(int fd, off_t offset, size_t bytes)
{
	long at = PN_SYSCALL(SYS_mmap, 0, (long)bytes, PROT_READ | PROT_WRITE,
			     MAP_SHARED, fd, offset);

	return pn_syscall_failed(at) ? NULL : (void *)at;
}

/* Reserves disk space first: a store to a mapped hole on a full disk raises
 * SIGBUS. */
static void *map_new(struct recorder *r, off_t offset, size_t bytes)
{
	PN_NO_CANCEL();
	void *at;
	int ret = posix_fallocate(r->fd, offset, (off_t)bytes);

	errno = ret;
	if (ret)
		return NULL;
	at = map(r->fd, offset, bytes);
	if (at)
		PN_SYSCALL(SYS_madvise, (long)at, (long)bytes,
			   MADV_POPULATE_WRITE);
	return at;
}

static void stop_growing(struct recorder *r, const char *why)
{
	if (!atomic_exchange(&r->full, true))
		pn_warn("recording to %s stops: %s; further events are "
			"counted as lost",
			r->path, why);
}

static struct pn_trace_block *new_block(struct recorder *r, bool *first)
{
	struct pn_trace_block *block;
	uint64_t number;

	if (atomic_load_explicit(&r->full, memory_order_relaxed))
		return NULL;
	number = atomic_fetch_add(&r->nblocks, 1);
	if (number >= r->max_blocks) {
		stop_growing(r, "the file has reached trace_max_bytes");
		return NULL;
	}
	block = map_new(r,
			(off_t)(PN_TRACE_HEAD_BYTES +
				number * PN_TRACE_BLOCK_BYTES),
			PN_TRACE_BLOCK_BYTES);
	if (!block)
		stop_growing(r, strerror(errno));
	*first = !number;
	return block;
}

/* Gives the stream a new block. */
static bool next_block(struct stream *stream, uint64_t start_ns)
{
	bool first = false;
	struct pn_trace_block *block = new_block(stream->recorder, &first);

	if (stream->block)
		unmap(stream->block, PN_TRACE_BLOCK_BYTES);
	stream->block = block;
	stream->used = 0;
	stream->before = (struct pn_trace_event){ .time_ns = start_ns };
	if (!block)
		return false;
	if (first)
		stream->recorder->head->start_ns = start_ns;
	atomic_store(&stream->recorder->latest_ns, start_ns);
	block->stream = stream->number;
	block->start_ns = start_ns;
	block->magic = PN_TRACE_BLOCK_MAGIC;
	return true;
}

/* --- streams ----------------------------------------------------------------
 */

static pthread_key_t stream_key;
static pthread_once_t stream_once = PTHREAD_ONCE_INIT;
/* otherwise streams of ended threads are not reused */
static bool has_stream_key;

/* Destructor of the thread: hands the stream to the next thread. */
static void detach_stream(void *arg)
{
	struct stream *stream = arg;
	struct recorder *r = stream->recorder;

	my_stream = NULL;
	/* In a forked child the lock may be held by a thread that does not
	 * exist there. */
	if (atomic_load(r->state) == FOREIGN)
		return;
	pn_lock(&r->lock);
	pn_list_append(&r->idle, &stream->link);
	pn_unlock(&r->lock);
}

static void make_stream_key(void)
{
	has_stream_key = !pthread_key_create(&stream_key, detach_stream);
}

static struct stream *get_stream(struct recorder *r)
{
	struct pn_list *link;
	struct stream *stream;

	pn_lock(&r->lock);
	link = pn_list_pop(&r->idle);
	pn_unlock(&r->lock);
	if (link)
		return pn_container_of(link, struct stream, link);
	stream = calloc(1, sizeof(*stream));
	if (!stream)
		return NULL;
	stream->recorder = r;
	pn_list_init(&stream->link);
	pn_lock(&r->lock);
	stream->number = r->newest ? r->newest->number + 1 : 0;
	stream->older = r->newest;
	r->newest = stream;
	pn_unlock(&r->lock);
	return stream;
}

static PN_NOINLINE struct stream *attach_stream(struct recorder *r)
{
	struct stream *stream = get_stream(r);

	if (!stream)
		return NULL;
	pthread_once(&stream_once, make_stream_key);
	if (!has_stream_key || pthread_setspecific(stream_key, stream))
		pn_debug("no thread key: the stream of a thread is not reused "
			 "when it ends");
	return my_stream = stream;
}

static inline struct stream *stream_of(struct recorder *r)
{
	struct stream *stream = my_stream;

	/* The first thread of a forked child still has its parent's stream. */
	return pn_likely(stream && stream->recorder == r) ? stream
							  : attach_stream(r);
}

/* --- recording ------------------------------------------------------------ */

static inline void commit(struct stream *stream, const uint8_t *end)
{
	stream->used = (uint32_t)(end - stream->block->records);
	/* Readers of a live file, and of the file of a killed process, read up
	 * to `used`. */
	atomic_store_explicit(&stream->block->used, stream->used,
			      memory_order_release);
}

static inline bool reserve_bytes(struct stream *stream, size_t bytes,
				 uint64_t time_ns)
{
	if (pn_likely(stream->block &&
		      PN_TRACE_BLOCK_ROOM - stream->used >= bytes))
		return true;
	return next_block(stream, time_ns);
}

static inline void write_event(struct stream *stream,
			       const struct pn_trace_event *event)
{
	if (pn_unlikely(!reserve_bytes(stream, PN_RECORD_PLAIN_MAX,
				       event->time_ns))) {
		count_lost(stream->recorder);
		return;
	}
	commit(stream, pn_event_encode(stream->block->records + stream->used,
				       event, &stream->before));
}

/* Sets the thread number and the site that the thread has declared. */
static inline void name_thread(struct pn_trace_event *event)
{
	struct pn_thread *self = pn_thread_self();
	void **number;

	if (pn_unlikely(!self))
		return;
	if (!event->site)
		event->site = self->site;
	if (pn_unlikely(thread_key < 0))
		return;
	number = &self->local[thread_key];
	if (pn_unlikely(!*number))
		*number =
			(void *)(uintptr_t)(atomic_fetch_add(&nthreads, 1) + 1);
	event->thread = (uint32_t)(uintptr_t)*number;
}

static inline uint64_t later(uint64_t a_ns, uint64_t b_ns)
{
	return a_ns > b_ns ? a_ns : b_ns;
}

/* The time of an event of the ring, which goes into `stream` before an event of
 * now_ns. Readers merge the streams by time. So an event of another thread must
 * not precede the events that its thread has recorded before it: now_ns may be
 * older than these. */
static uint64_t ring_event_ns(const struct ring_entry *w,
			      const struct stream *stream, uint64_t now_ns)
{
	bool own = !w->stream || w->stream == stream;

	return later(own ? now_ns : w->after_ns + 1, stream->before.time_ns);
}

/* Moves the events of the ring into the caller's stream. */
static PN_NOINLINE void drain_ring(struct recorder *r, struct stream *stream,
				   uint64_t now_ns)
{
	uint64_t at;

	if (atomic_exchange_explicit(&r->draining, true, memory_order_acquire))
		return; /* another thread is draining */
	at = atomic_load_explicit(&r->ring_tail, memory_order_relaxed);
	for (;; at++) {
		struct ring_entry *w = &r->ring[at % RING_ENTRIES];

		/* Pairs with the release in record_noalloc(). */
		if (atomic_load_explicit(&w->filled, memory_order_acquire) !=
		    at + 1)
			break;
		w->event.time_ns = ring_event_ns(w, stream, now_ns);
		write_event(stream, &w->event);
		atomic_store_explicit(&r->ring_tail, at + 1,
				      memory_order_release);
	}
	atomic_store_explicit(&r->draining, false, memory_order_release);
}

static void record(struct pn_trace_sink *sink,
		   const struct pn_trace_event *event)
{
	struct recorder *r = pn_container_of(sink, struct recorder, sink);
	struct pn_trace_event copy = *event;
	struct stream *stream;

	if (pn_unlikely(!is_recording(r)))
		return;
	stream = stream_of(r);
	if (pn_unlikely(!stream || stream->busy)) {
		count_lost(r);
		return;
	}
	stream->busy = true;
	name_thread(&copy);
	if (pn_unlikely(
		    atomic_load_explicit(&r->ring_head, memory_order_relaxed) !=
		    atomic_load_explicit(&r->ring_tail, memory_order_relaxed)))
		drain_ring(r, stream, event->time_ns);
	/* What the ring had may be newer. */
	copy.time_ns = later(copy.time_ns, stream->before.time_ns);
	write_event(stream, &copy);
	stream->busy = false;
}

static void record_noalloc(struct pn_trace_sink *sink,
			   const struct pn_trace_event *event)
{
	struct recorder *r = pn_container_of(sink, struct recorder, sink);
	struct ring_entry *w;
	uint64_t at;

	if (!is_recording(r))
		return;
	at = atomic_load(&r->ring_head);
	do {
		/* Acquire pairs with the release in drain_ring(): the entry has
		 * been read and may be overwritten. */
		if (at - atomic_load_explicit(&r->ring_tail,
					      memory_order_acquire) >=
		    RING_ENTRIES) {
			count_lost(r);
			return;
		}
	} while (!atomic_compare_exchange_weak(&r->ring_head, &at, at + 1));
	w = &r->ring[at % RING_ENTRIES];
	w->event = *event;
	w->stream = my_stream && my_stream->recorder == r ? my_stream : NULL;
	w->after_ns = w->stream ? my_stream->before.time_ns : 0;
	atomic_store_explicit(&w->filled, at + 1, memory_order_release);
}

static uint16_t add_source(struct pn_trace_sink *sink,
			   const struct pn_trace_event *event,
			   const void *about, uint16_t bytes)
{
	struct recorder *r = pn_container_of(sink, struct recorder, sink);
	struct pn_record introduction = { *event, about, bytes };
	struct stream *stream = is_recording(r) ? stream_of(r) : NULL;
	uint32_t number;

	if (!stream || bytes > PN_RECORD_BLOB_MAX)
		return 0;
	number = atomic_fetch_add(&r->nsources, 1) + 1;
	if (number > UINT16_MAX)
		return 0;
	introduction.event.source = (uint16_t)number;
	name_thread(&introduction.event);
	stream->busy = true;
	if (reserve_bytes(stream, PN_RECORD_MAX, event->time_ns))
		commit(stream,
		       pn_record_encode(stream->block->records + stream->used,
					&introduction, &stream->before));
	else
		count_lost(r);
	stream->busy = false;
	return (uint16_t)number;
}

/* --- the file ------------------------------------------------------------- */

/* The rank that a launcher of parallel programs gave this process, or 0. */
static long rank(void)
{
	static const char *const names[] = { "OMPI_COMM_WORLD_RANK",
					     "PMIX_RANK", "PMI_RANK",
					     "SLURM_PROCID" };

	for (size_t i = 0; i < PN_ARRAY_LEN(names); i++) {
		const char *text = getenv(names[i]);

		if (text && *text)
			return atol(text);
	}
	return 0;
}

/* -ENAMETOOLONG. */
static int expand_pattern(const char *pattern, char *out, size_t size)
{
	size_t n = 0;

	for (const char *c = pattern; *c; c++) {
		char piece[16] = { *c };

		if (*c == '%' && c[1] == 'p')
			snprintf(piece, sizeof(piece), "%d", getpid());
		if (*c == '%' && c[1] == 'r')
			snprintf(piece, sizeof(piece), "%ld", rank());
		if (*c == '%' && c[1] && strchr("pr%", c[1]))
			c++;
		if (n + strlen(piece) >= size)
			return -ENAMETOOLONG;
		n += (size_t)sprintf(out + n, "%s", piece);
	}
	return 0;
}

/* Only an empty file or a trace may be overwritten. */
static int check_overwritable(int fd)
{
	uint64_t magic;
	struct stat st;

	if (fstat(fd, &st))
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EEXIST;
	if (!st.st_size)
		return 0;
	if (pread(fd, &magic, sizeof(magic), 0) == sizeof(magic) &&
	    magic == PN_TRACE_MAGIC)
		return 0;
	return -EEXIST;
}

/* Returns a descriptor of the file, truncated and locked. -EWOULDBLOCK: another
 * process records into it. */
static int open_locked(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
	int ret;

	if (fd < 0)
		return -errno;
	ret = flock(fd, LOCK_EX | LOCK_NB) ? -errno : check_overwritable(fd);
	if (!ret && ftruncate(fd, 0))
		ret = -errno;
	if (!ret)
		return fd;
	close(fd);
	return ret;
}

static int open_path(struct recorder *r, const char *pattern)
{
	int ret = expand_pattern(pattern, r->path, sizeof(r->path) - 16);

	if (ret)
		return ret;
	r->fd = open_locked(r->path);
	if (r->fd == -EWOULDBLOCK) {
		sprintf(r->path + strlen(r->path), ".%d", getpid());
		r->fd = open_locked(r->path);
	}
	return r->fd < 0 ? r->fd : 0;
}

static void name_program(char *out, size_t size)
{
	snprintf(out, size, "%s", program_invocation_short_name);
}

static int write_head(struct recorder *r)
{
	r->head = map_new(r, 0, PN_TRACE_HEAD_BYTES);
	if (!r->head)
		return -errno;
	r->head->order = PN_TRACE_ORDER;
	r->head->version = PN_TRACE_VERSION;
	r->head->block_bytes = PN_TRACE_BLOCK_BYTES;
	r->head->pid = (uint32_t)getpid();
	name_program(r->head->program, sizeof(r->head->program));
	r->head->magic = PN_TRACE_MAGIC;
	return 0;
}

/* --- beginning and end ---------------------------------------------------- */

/* Allocates a word that reads as FOREIGN in every forked child. */
static int make_state(struct recorder *r)
{
	void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (page == MAP_FAILED)
		return -ENOMEM;
	if (madvise(page, 4096, MADV_WIPEONFORK)) {
		munmap(page, 4096);
		return -ENOSYS;
	}
	r->state = page;
	atomic_store(r->state, RECORDING);
	return 0;
}

static int recorder_open(struct recorder *r, const char *pattern,
			 uint64_t max_bytes)
{
	int ret = open_path(r, pattern);

	if (ret)
		return ret;
	ret = write_head(r);
	if (!ret)
		ret = make_state(r);
	if (ret) {
		close(r->fd);
		return ret;
	}
	r->sink = (struct pn_trace_sink){ record, record_noalloc, add_source };
	r->max_blocks = max_bytes / PN_TRACE_BLOCK_BYTES;
	pn_mutex_init(&r->lock);
	pn_list_init(&r->idle);
	return 0;
}

static int start_recorder(const char *pattern, uint64_t max_bytes)
{
	struct recorder *r = calloc(1, sizeof(*r));
	int ret = r ? recorder_open(r, pattern, max_bytes) : -ENOMEM;

	if (ret) {
		pn_error("cannot record to %s: %s; continuing without a trace",
			 r && r->path[0] ? r->path : pattern,
			 ret == -EEXIST ? "the file exists and is not a trace; "
					  "name another file or remove it"
					: strerror(-ret));
		free(r);
		return ret;
	}
	r->older = atomic_load(&current);
	atomic_store(&current, r);
	pn_trace_sink_install(&r->sink);
	return 0;
}

/* fork() may run while another thread is in pn_record_start(). */
static void before_fork(void) PN_NO_THREAD_SAFETY
{
	pn_lock(&start_lock);
}

static void after_fork(void) PN_NO_THREAD_SAFETY
{
	pn_unlock(&start_lock);
}

static void init_once(void)
{
	pn_process_atfork(before_fork, after_fork, after_fork);
	thread_key = pn_thread_key_alloc(NULL);
}

int pn_record_start(const char *pattern, uint64_t max_bytes)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct recorder *r;
	int ret = 0;

	if (!pattern[0])
		return 0;
	pthread_once(&once, init_once);
	pn_lock(&start_lock);
	r = atomic_load(&current);
	if (!r || !is_recording(r))
		ret = start_recorder(pattern, max_bytes);
	pn_unlock(&start_lock);
	return ret;
}

const char *pn_record_path(void)
{
	struct recorder *r = atomic_load(&current);

	return r && is_recording(r) ? r->path : NULL;
}

/* The recorder is not freed: other threads may still use it. */
void __attribute__((destructor)) pn_record_stop(void)
{
	struct recorder *r = atomic_load(&current);

	if (!r || !is_recording(r))
		return;
	pn_trace_sink_install(NULL);
	if (atomic_load(&r->ring_head) != atomic_load(&r->ring_tail) &&
	    stream_of(r))
		drain_ring(r, my_stream,
			   my_stream->block ? my_stream->before.time_ns
					    : atomic_load(&r->latest_ns));
	atomic_store(r->state, STOPPED);
	atomic_store(&r->head->complete, 1);
	/* not closed: a thread may be about to use the descriptor */
	flock(r->fd, LOCK_UN);
}
