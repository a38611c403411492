/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/soft/move.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "base/range.h"
#include "device/soft/fallback.h"

/* Up to this length copying into the bounce buffer is faster than vmsplice. */
#define COPY_MAX ((size_t)16 << 10)
#define IN_PIPE	 UINT64_MAX

/* --- staging ------------------------------------------------------------- */

static void open_pipe(struct pn_soft_staging *staging)
{
	int bytes;

	/* Non-blocking, so that io_uring never hands a read to a worker thread.
	 */
	if (pipe2(staging->pipe, O_CLOEXEC | O_NONBLOCK)) {
		staging->pipe[0] = staging->pipe[1] = -1;
		return;
	}
	/* Unaligned pages need one more pipe slot. Beyond the user's limit on
	 * pipes the size does not change; chunks that do not fit are then
	 * copied. */
	fcntl(staging->pipe[1], F_SETPIPE_SZ,
	      (int)(staging->chunk + 2 * PN_PAGE_BYTES));
	bytes = fcntl(staging->pipe[1], F_GETPIPE_SZ);
	staging->pipe_pages = bytes > 0 ? (size_t)bytes / PN_PAGE_BYTES : 0;
}

static int open_direct(int file)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
	return open(path, O_RDWR | O_DIRECT | O_NONBLOCK | O_CLOEXEC);
}

void pn_soft_staging_init(struct pn_soft_staging *staging, size_t chunk,
			  struct pn_soft_slots *own)
{
	*staging = (struct pn_soft_staging){
		.own = own, .chunk = chunk, .direct = -1, .pipe = { -1, -1 }
	};
}

static void close_fd(int fd)
{
	if (fd >= 0)
		close(fd);
}

void pn_soft_staging_fini(struct pn_soft_staging *staging)
{
	if (!staging->open)
		return;
	munmap(staging->bounce, staging->chunk);
	close_fd(staging->file);
	close_fd(staging->direct);
	close_fd(staging->pipe[0]);
	close_fd(staging->pipe[1]);
}

int pn_soft_staging_open(struct pn_soft_staging *staging)
{
	void *map;
	int ret;

	if (pn_likely(staging->open))
		return 0;
	ret = pn_soft_memfd("pinion-bounce", staging->chunk, &staging->file,
			    &map);
	if (ret)
		return ret;
	staging->bounce = map;
	staging->open = true;
	fcntl(staging->file, F_SETFL, O_NONBLOCK);
	staging->direct = open_direct(staging->file);
	open_pipe(staging);
	/* It would work without a pipe, but worse and permanently so. */
	if (staging->pipe[0] >= 0 || errno != EMFILE)
		return 0;
	pn_soft_staging_fini(staging);
	pn_soft_staging_init(staging, staging->chunk, staging->own);
	return -EMFILE;
}

/* Discards what a failed operation left in the pipe. */
static void drain(struct pn_soft_staging *staging)
{
	while (read(staging->pipe[0], staging->bounce, staging->chunk) > 0)
		;
}

/* --- remotes ------------------------------------------------------------- */

void pn_soft_remote_init(struct pn_soft_remote *remote,
			 struct pn_soft_shared *shared,
			 struct pn_soft_presence *presence,
			 struct pn_soft_slots *loopback, pid_t pid)
{
	memset(remote, 0, sizeof(*remote));
	pn_mutex_init(&remote->lock);
	remote->shared = shared;
	remote->presence = presence;
	remote->loopback = loopback;
	remote->pid = pid;
}

/* Closes the rings in the set; returns their number. */
static unsigned drop_rings(struct pn_soft_remote *remote, uint64_t set)
	PN_REQUIRES(&remote->lock)
{
	unsigned n = 0;

	for (unsigned i = 0; i < PN_SOFT_RINGS; i++) {
		if (!remote->rings[i] || !(set >> i & 1))
			continue;
		pn_soft_ring_fini(remote->rings[i]);
		free(remote->rings[i]);
		remote->rings[i] = NULL;
		n++;
	}
	remote->close_after_chunk &= ~set;
	return n;
}

void pn_soft_remote_disconnect(struct pn_soft_remote *remote)
{
	pn_lock(&remote->lock);
	remote->gone = true;
	drop_rings(remote, UINT64_MAX);
	pn_unlock(&remote->lock);
}

unsigned pn_soft_remote_close_idle_rings(struct pn_soft_remote *remote)
{
	unsigned n;

	if (!remote->shared->uses_uring || !pn_try_lock(&remote->lock))
		return 0;
	n = drop_rings(remote, UINT64_MAX);
	pn_unlock(&remote->lock);
	return n;
}

void pn_soft_remote_fini(struct pn_soft_remote *remote)
{
	pn_soft_remote_disconnect(remote);
	pn_mutex_fini(&remote->lock);
}

/* A peer may be up although its memory cannot be accessed: logs why, once. */
static int report_no_access(struct pn_soft_remote *remote)
	PN_REQUIRES(&remote->lock)
{
	if (!remote->warned)
		pn_warn("soft: process %d does not let us open its rings "
			"(pidfd_getfd: ptrace permission); puts and gets to "
			"it are refused. It must be dumpable (not just have "
			"changed its user) and must not hold more "
			"capabilities than we do",
			(int)remote->pid);
	remote->warned = true;
	return -EACCES;
}

/* If the peer's service thread is alive after the pidfd was opened, the pidfd
 * is the peer's: the number cannot have been given to another process before.
 */
static int fetch_file(struct pn_soft_remote *remote, unsigned index, int *fd)
	PN_REQUIRES(&remote->lock)
{
	int theirs = atomic_load(&remote->shared->rings[index].fd);
	int pidfd, error;

	*fd = -1;
	if (!remote->shared->uses_uring)
		return 0;
	pidfd = (int)syscall(SYS_pidfd_open, remote->pid, 0);
	if (pidfd < 0)
		return errno == ESRCH ? -ECONNRESET : -errno;
	if (pn_soft_robust_is_orphan(&remote->presence->alive)) {
		close(pidfd);
		return -ECONNRESET;
	}
	*fd = (int)syscall(SYS_pidfd_getfd, pidfd, theirs, 0);
	error = errno;
	close(pidfd);
	if (*fd >= 0)
		return 0;
	if (error == EMFILE || error == ENFILE)
		return -EMFILE;
	return error == ESRCH ? -ECONNRESET : report_no_access(remote);
}

/* Descriptors below the limit that are left to the program. The kernel returns
 * the lowest free number. */
#define RESERVED_FDS 64

static bool is_scarce(int fd)
{
	struct rlimit limit;

	return fd >= 0 && !getrlimit(RLIMIT_NOFILE, &limit) &&
	       (rlim_t)fd + RESERVED_FDS >= limit.rlim_cur;
}

static int open_ring(struct pn_soft_remote *remote, unsigned index)
	PN_REQUIRES(&remote->lock)
{
	struct pn_soft_ring *ring = malloc(sizeof(*ring));
	int fd, ret;

	if (!ring)
		return -ENOMEM;
	ret = fetch_file(remote, index, &fd);
	if (!ret) {
		ret = pn_soft_ring_join(ring, &remote->shared->rings[index],
					remote->shared->slots[index], fd);
		if (ret)
			close(fd);
	}
	if (ret) {
		free(ring);
		return ret;
	}
	remote->rings[index] = ring;
	if (is_scarce(fd))
		remote->close_after_chunk |= UINT64_C(1) << index;
	return 0;
}

static int ring_of(struct pn_soft_remote *remote, uint64_t key,
		   struct pn_soft_ring **out) PN_REQUIRES(&remote->lock)
{
	unsigned index = pn_soft_location_ring(key);
	int ret;

	if (remote->gone)
		return -ECONNRESET;
	if (pn_soft_location_family(key) != PN_SOFT_EXPOSED ||
	    index >= atomic_load(&remote->shared->nrings))
		return -EACCES;
	if (remote->loopback) {
		*out = &pn_soft_slots_table(remote->loopback, key)->ring;
		return 0;
	}
	if (pn_unlikely(!remote->rings[index])) {
		ret = open_ring(remote, index);
		if (ret)
			return ret;
	}
	*out = remote->rings[index];
	return 0;
}

/* Called at the end of a chunk. */
static void end_chunk(struct pn_soft_remote *remote) PN_REQUIRES(&remote->lock)
{
	if (pn_unlikely(remote->close_after_chunk))
		drop_rings(remote, remote->close_after_chunk);
}

/* --- the remote side of a chunk ------------------------------------------ */

/* Bytes to move between a file (or local memory where there is no io_uring) and
 * the peer. */
struct chunk {
	const struct pn_op *op;
	size_t op_len;
	uint64_t addr; /* at the peer */
	size_t len;
	int fd;
	uint64_t offset;
	const struct iovec *iov;
	unsigned niov;
};

static unsigned access_of(const struct pn_op *op)
{
	switch (op->kind) {
	case PN_OP_WRITE:
		return PINION_ACCESS_REMOTE_WRITE;
	case PN_OP_READ:
		return PINION_ACCESS_REMOTE_READ;
	default:
		return PINION_ACCESS_REMOTE_ATOMIC;
	}
}

/* Maps the kernel's errors. Its checks repeat ours, so EFAULT means that the
 * slot was emptied by force (the owner died or closed). */
static int map_error(int ret)
{
	return ret == -EFAULT || !ret ? -EACCES : ret;
}

/* Moves a chunk whose key was checked, slot by slot and, if the kernel stops
 * early, in several steps. */
static int submit_slots_locked(struct pn_soft_ring *ring, int opcode,
			       const struct chunk *chunk, uint64_t base)
{
	uint64_t addr = chunk->addr, end = addr + chunk->len;
	unsigned slot = pn_soft_location_slot(chunk->op->rkey);

	while (addr < end) {
		uint64_t stop = pn_soft_slot_end(base, addr);
		struct pn_soft_move move = {
			.slot = slot + pn_soft_slot_of(base, addr),
			.addr = addr,
			.len = (unsigned)((stop < end ? stop : end) - addr),
			.fd = chunk->fd,
			.offset = chunk->offset == IN_PIPE
					  ? IN_PIPE
					  : chunk->offset + addr - chunk->addr,
		};
		int ret = pn_soft_ring_submit_locked(ring, opcode, &move);

		if (ret <= 0)
			return map_error(ret);
		addr += (unsigned)ret;
	}
	return 0;
}

static int process_copy(struct pn_soft_remote *remote, int opcode,
			const struct chunk *chunk)
{
	if (opcode == IORING_OP_READ_FIXED)
		return pn_soft_process_write(remote->pid, chunk->iov,
					     chunk->niov, chunk->addr,
					     chunk->len);
	return pn_soft_process_read(remote->pid, chunk->iov, chunk->niov,
				    chunk->addr, chunk->len);
}

static int submit_chunk_locked(struct pn_soft_remote *remote,
			       struct pn_soft_ring *ring, int opcode,
			       const struct chunk *chunk)
{
	const struct pn_op *op = chunk->op;
	struct pn_soft_slot *slot =
		&ring->slots[pn_soft_location_slot(op->rkey)];
	struct pn_soft_access access = { .key = op->rkey,
					 .addr = op->remote_addr,
					 .len = chunk->op_len,
					 .access = access_of(op) };
	uint64_t base;

	if (!pn_soft_slot_grants(slot, &access, &base))
		return -EACCES;
	if (!ring->uses_uring)
		return process_copy(remote, opcode, chunk);
	return submit_slots_locked(ring, opcode, chunk, base);
}

static int submit_chunk(struct pn_soft_remote *remote, int opcode,
			const struct chunk *chunk)
{
	struct pn_soft_ring *ring;
	int ret;

	pn_lock(&remote->lock);
	ret = ring_of(remote, chunk->op->rkey, &ring);
	if (!ret) {
		pn_soft_ring_lock(ring);
		ret = submit_chunk_locked(remote, ring, opcode, chunk);
		pn_soft_ring_unlock(ring);
		end_chunk(remote);
	}
	pn_unlock(&remote->lock);
	return ret;
}

/* --- the local side: segments -------------------------------------------- */

/* The parts of op's segments that hold bytes [from, from + len). */
static unsigned gather(const struct pn_op *op, size_t from, size_t len,
		       struct iovec *iov, uint64_t *lkeys)
{
	unsigned n = 0;

	for (unsigned i = 0; i < op->nsge && len; i++) {
		size_t here = op->sge[i].len;

		if (from >= here) {
			from -= here;
			continue;
		}
		here = here - from < len ? here - from : len;
		iov[n] = (struct iovec){ (char *)op->sge[i].addr + from, here };
		lkeys[n++] = op->sge[i].lkey;
		len -= here;
		from = 0;
	}
	return n;
}

static size_t pages_in(const struct iovec *iov, unsigned n)
{
	size_t pages = 0;

	for (unsigned i = 0; i < n; i++)
		pages += pn_range_npages((uintptr_t)iov[i].iov_base,
					 iov[i].iov_len);
	return pages;
}

/* Moves one local range between its slot and the bounce buffer at offset. */
static int through_slot(struct pn_soft_staging *staging, int opcode,
			struct iovec local, uint64_t lkey, uint64_t offset)
{
	struct pn_soft_table *table = pn_soft_slots_table(staging->own, lkey);
	unsigned slot = pn_soft_location_slot(lkey);
	uint64_t base, addr = (uintptr_t)local.iov_base;
	struct pn_soft_access access = { .key = lkey,
					 .addr = addr,
					 .len = local.iov_len };
	struct pn_op op = { .rkey = lkey };
	struct chunk chunk = {
		.op = &op,
		.addr = addr,
		.len = local.iov_len,
		.fd = opcode == IORING_OP_WRITE_FIXED && staging->direct >= 0
			      ? staging->direct
			      : staging->file,
		.offset = offset,
	};
	int ret = -EFAULT;

	pn_soft_ring_lock(&table->ring);
	if (pn_soft_slot_grants(&table->local[slot], &access, &base))
		ret = submit_slots_locked(&table->ring, opcode, &chunk, base);
	pn_soft_ring_unlock(&table->ring);
	return ret == -EACCES ? -EFAULT : ret;
}

/* Whether the local segments go through their slots. */
static bool is_strict(const struct pn_soft_staging *staging,
		      const struct pn_op *op)
{
	return staging->own && staging->own->uses_uring &&
	       !(op->flags & PN_OP_INLINE);
}

static int all_through_slots(struct pn_soft_staging *staging, int opcode,
			     const struct iovec *iov, const uint64_t *lkeys,
			     unsigned n)
{
	uint64_t offset = 0;
	int ret = 0;

	for (unsigned i = 0; i < n && !ret; offset += iov[i++].iov_len)
		ret = through_slot(staging, opcode, iov[i], lkeys[i], offset);
	return ret;
}

static void copy_in(struct pn_soft_staging *staging, const struct iovec *iov,
		    unsigned n)
{
	char *to = staging->bounce;

	for (unsigned i = 0; i < n; to += iov[i++].iov_len)
		memcpy(to, iov[i].iov_base, iov[i].iov_len);
}

static void copy_out(struct pn_soft_staging *staging, const struct iovec *iov,
		     unsigned n)
{
	const char *from = staging->bounce;

	for (unsigned i = 0; i < n; from += iov[i++].iov_len)
		memcpy(iov[i].iov_base, from, iov[i].iov_len);
}

/* Maps the source pages into the pipe. A short count: not all of them are
 * mapped. */
static int splice_in(struct pn_soft_staging *staging, const struct iovec *iov,
		     unsigned n, size_t len)
{
	ssize_t done = vmsplice(staging->pipe[1], iov, n, 0);

	if (done == (ssize_t)len)
		return 0;
	drain(staging);
	return -EFAULT;
}

/* --- puts and gets ------------------------------------------------------- */

static int put_chunk(struct pn_soft_staging *staging,
		     struct pn_soft_remote *remote, struct chunk *chunk,
		     const uint64_t *lkeys)
{
	bool piped = false;
	int ret = 0;

	chunk->fd = staging->file;
	if (!remote->shared->uses_uring)
		; /* directly from the segments */
	else if (is_strict(staging, chunk->op))
		ret = all_through_slots(staging, IORING_OP_WRITE_FIXED,
					chunk->iov, lkeys, chunk->niov);
	else if (chunk->len <= COPY_MAX ||
		 pages_in(chunk->iov, chunk->niov) > staging->pipe_pages)
		copy_in(staging, chunk->iov, chunk->niov);
	else {
		ret = splice_in(staging, chunk->iov, chunk->niov, chunk->len);
		chunk->fd = staging->pipe[0];
		chunk->offset = IN_PIPE;
		piped = true;
	}
	if (ret)
		return ret;
	ret = submit_chunk(remote, IORING_OP_READ_FIXED, chunk);
	if (ret && piped)
		drain(staging);
	return ret;
}

static int read_pipe(struct pn_soft_staging *staging, const struct chunk *chunk)
{
	ssize_t n = readv(staging->pipe[0], chunk->iov, (int)chunk->niov);

	if (n == (ssize_t)chunk->len)
		return 0;
	drain(staging);
	return -EFAULT;
}

static int get_chunk(struct pn_soft_staging *staging,
		     struct pn_soft_remote *remote, struct chunk *chunk,
		     const uint64_t *lkeys)
{
	bool strict = is_strict(staging, chunk->op);
	bool piped = staging->direct < 0 && !strict &&
		     chunk->len <= staging->pipe_pages * PN_PAGE_BYTES;
	int ret;

	chunk->fd = staging->direct >= 0 ? staging->direct : staging->file;
	if (piped) {
		chunk->fd = staging->pipe[1];
		chunk->offset = IN_PIPE;
	}
	ret = submit_chunk(remote, IORING_OP_WRITE_FIXED, chunk);
	if (ret && piped)
		drain(staging);
	if (ret || !remote->shared->uses_uring)
		return ret;
	if (piped)
		return read_pipe(staging, chunk);
	if (strict)
		return all_through_slots(staging, IORING_OP_READ_FIXED,
					 chunk->iov, lkeys, chunk->niov);
	copy_out(staging, chunk->iov, chunk->niov);
	return 0;
}

int pn_soft_move_bytes(struct pn_soft_staging *staging,
		       struct pn_soft_remote *remote,
		       struct pn_soft_transfer *transfer, size_t budget)
{
	const struct pn_op *op = transfer->op;
	size_t len = transfer->len, *done = &transfer->done;
	size_t stop = len - *done < budget ? len : *done + budget;
	int ret = *done < stop ? pn_soft_staging_open(staging) : 0;

	if (ret)
		return ret;
	while (*done < stop) {
		size_t left = stop - *done;
		size_t n = left < staging->chunk ? left : staging->chunk;
		uint64_t lkeys[PN_SOFT_MAX_SGE];
		struct iovec iov[PN_SOFT_MAX_SGE];
		struct chunk chunk = {
			.op = op,
			.op_len = len,
			.addr = op->remote_addr + *done,
			.len = n,
			.iov = iov,
			.niov = gather(op, *done, n, iov, lkeys),
		};

		ret = op->kind == PN_OP_WRITE
			      ? put_chunk(staging, remote, &chunk, lkeys)
			      : get_chunk(staging, remote, &chunk, lkeys);
		if (ret)
			return ret;
		*done += n;
	}
	return 0;
}

/* --- atomics ------------------------------------------------------------- */

static int update_locked(struct pn_soft_staging *staging,
			 struct pn_soft_remote *remote,
			 struct pn_soft_ring *ring, const struct pn_op *op)
{
	struct iovec iov = { staging->bounce, sizeof(uint64_t) };
	struct chunk chunk = {
		.op = op,
		.op_len = sizeof(uint64_t),
		.addr = op->remote_addr,
		.len = sizeof(uint64_t),
		.fd = staging->direct >= 0 ? staging->direct : staging->file,
		.iov = &iov,
		.niov = 1,
	};
	uint64_t value;
	int ret = submit_chunk_locked(remote, ring, IORING_OP_WRITE_FIXED,
				      &chunk);

	if (ret)
		return ret;
	memcpy(&value, staging->bounce, sizeof(value));
	memcpy(op->sge[0].addr, &value, sizeof(value));
	value = pn_op_atomic_result(op, value);
	memcpy(staging->bounce, &value, sizeof(value));
	chunk.fd = staging->file;
	return submit_chunk_locked(remote, ring, IORING_OP_READ_FIXED, &chunk);
}

int pn_soft_move_atomic(struct pn_soft_staging *staging,
			struct pn_soft_remote *remote, const struct pn_op *op)
{
	pthread_mutex_t *order = &remote->shared->atomic_lock;
	struct pn_soft_ring *ring;
	int ret = pn_soft_staging_open(staging);

	if (ret)
		return ret;
	pn_lock(&remote->lock);
	ret = ring_of(remote, op->rkey, &ring);
	if (!ret) {
		/* A dead holder leaves nothing to repair: each update is
		 * complete in itself. */
		if (pn_soft_robust_lock(order))
			pn_soft_robust_repaired(order);
		pn_soft_ring_lock(ring);
		ret = update_locked(staging, remote, ring, op);
		pn_soft_ring_unlock(ring);
		pn_soft_robust_unlock(order);
		end_chunk(remote);
	}
	pn_unlock(&remote->lock);
	return ret;
}
