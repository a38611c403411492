/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * move -- puts, gets and atomics: moves bytes between local segments and the
 * pinned pages of a peer, in chunks, without the peer's CPU.
 *
 * A remote gives access to a peer's exposed memory: the peer's files and those
 * of its rings that were needed so far. A ring costs a descriptor, so it is
 * closed again: after the chunk when its number shows that few descriptors are
 * left below the limit, and whenever descriptors are needed elsewhere
 * (pn_soft_remote_close_idle_rings()).
 * A staging is what one thread needs to move bytes: a bounce buffer that is
 * also a file, and a pipe. It is opened when first used.
 *
 *   put, small   copy into the bounce buffer, READ_FIXED from it: one system
 *                call
 *   put, large   vmsplice the source pages into the pipe, READ_FIXED from it:
 *                one copy
 *   get          WRITE_FIXED into the bounce buffer, copy from it. The file is
 *                opened a second time with O_DIRECT. tmpfs ignores that flag,
 *                but it keeps io_uring from handing the write to a worker
 *                thread. Where tmpfs does not know it (before 6.6) the pipe is
 *                used instead.
 *   strict       local segments also go through their own slots, by way of the
 *                bounce buffer: so a stale local registration has an effect
 *                there, too
 *   no io_uring  process_vm_writev and _readv
 *
 * Each chunk takes the ring's lock, checks key, bounds and access of the whole
 * operation, submits and reaps. vmspliced pages are read before the submission
 * returns, so nothing refers to the source after the completion.
 * Threads: one thread at a time uses a staging; a remote has a lock, held for
 * one chunk.
 */
#ifndef PN_DEVICE_SOFT_MOVE_H
#define PN_DEVICE_SOFT_MOVE_H

#include "device/soft/slots.h"

#define PN_SOFT_MAX_SGE 16

struct pn_soft_staging {
	struct pn_soft_slots *own; /* for strict; NULL otherwise */
	size_t chunk;
	bool open;  /* the fields below are valid */
	int file;   /* of the bounce buffer, for reading */
	int direct; /* the same file, for writing; -1: not available */
	char *bounce;
	int pipe[2];
	size_t pipe_pages;
};

/* own: only with strict. */
void pn_soft_staging_init(struct pn_soft_staging *staging, size_t chunk,
			  struct pn_soft_slots *own);
void pn_soft_staging_fini(struct pn_soft_staging *staging);

/* Opens the staging if it is not open; moving bytes does that, too. Returns the
 * system's error. */
int pn_soft_staging_open(struct pn_soft_staging *staging);

struct pn_soft_remote {
	struct pn_mutex lock;
	struct pn_soft_shared *shared;
	struct pn_soft_presence *presence;
	struct pn_soft_slots *loopback; /* the own device's, or NULL */
	pid_t pid;
	/* Under lock: */
	bool gone, warned;
	uint64_t close_after_chunk; /* by ring: close it after the chunk */
	struct pn_soft_ring *rings[PN_SOFT_RINGS];
};

void pn_soft_remote_init(struct pn_soft_remote *remote,
			 struct pn_soft_shared *shared,
			 struct pn_soft_presence *presence,
			 struct pn_soft_slots *loopback, pid_t pid);

/* Closes the rings: from the return on, operations return -ECONNRESET. The
 * files stay mapped. */
void pn_soft_remote_disconnect(struct pn_soft_remote *remote);
void pn_soft_remote_fini(struct pn_soft_remote *remote);

/* Closes the rings if no thread is using them; they are opened again when
 * needed. Returns the number of descriptors freed. */
unsigned pn_soft_remote_close_idle_rings(struct pn_soft_remote *remote);

/* An operation while it is executed. */
struct pn_soft_transfer {
	const struct pn_op *op;
	size_t len;  /* of all segments */
	size_t done; /* bytes of it that were moved */
};

/* Moves up to `budget` bytes of a WRITE or READ and advances transfer->done. An
 * operation of 0 bytes needs no key. 0, -EACCES, -EFAULT, -ECONNRESET, or an
 * error of the system: -EMFILE, before anything was moved, when no descriptor
 * is left for a staging or a ring. */
int pn_soft_move_bytes(struct pn_soft_staging *staging,
		       struct pn_soft_remote *remote,
		       struct pn_soft_transfer *transfer, size_t budget);

/* Executes an atomic; the old value is then in op's segment. */
int pn_soft_move_atomic(struct pn_soft_staging *staging,
			struct pn_soft_remote *remote, const struct pn_op *op);

#endif
