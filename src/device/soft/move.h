/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * move -- puts, gets and atomics: bytes between local segments and the pinned
 * pages of a peer, in chunks, without the peer's CPU.
 *
 * A remote is the way into a peer's exposed memory: its files and those
 * of its rings that were needed so far. A ring costs a descriptor, so it is let
 * go again: after the chunk when its number says that few are left below the
 * limit, and whenever somebody needs descriptors
 * (pn_soft_remote_close_idle_rings()). A staging is what one thread needs to
 * move bytes: a bounce buffer that is also a file, and a pipe; opened when
 * first used.
 *
 *   put, small   copy into the bounce buffer, READ_FIXED from it: one system
 *                call
 *   put, large   vmsplice the source pages into the pipe, READ_FIXED from it:
 *                one copy
 *   get          WRITE_FIXED into the bounce buffer, copy from it. The file is
 *                opened a second time with O_DIRECT, which tmpfs takes for
 *                nothing but which keeps io_uring from handing the write to a
 *                worker thread. Where tmpfs does not know it (before 6.6) the
 *                pipe serves instead.
 *   strict       local segments too go through their own slots, by way of the
 *                bounce buffer: a stale local registration then hurts as well
 *   no io_uring  process_vm_writev and _readv
 *
 * Each chunk takes the ring's lock, checks key, bounds and access of the whole
 * operation, submits and reaps. vmspliced pages are read before the submission
 * returns, so nothing refers to the source after its completion.
 * Threads: a staging belongs to one thread at a time; a remote has a lock, held
 * for one chunk.
 */
#ifndef PN_DEVICE_SOFT_MOVE_H
#define PN_DEVICE_SOFT_MOVE_H

#include "device/soft/slots.h"

#define PN_SOFT_MAX_SGE 16

struct pn_soft_staging {
	struct pn_soft_slots *own; /* for strict; NULL otherwise */
	size_t chunk;
	bool open;  /* what follows is there */
	int file;   /* of the bounce buffer, for reading */
	int direct; /* the same for writing; -1: not to be had */
	char *bounce;
	int pipe[2];
	size_t pipe_pages;
};

/* own only with strict. */
void pn_soft_staging_init(struct pn_soft_staging *staging, size_t chunk,
			  struct pn_soft_slots *own);
void pn_soft_staging_fini(struct pn_soft_staging *staging);

/* Opens it if it is not; moving does that by itself. -errno of what the system
 * refuses. */
int pn_soft_staging_open(struct pn_soft_staging *staging);

struct pn_soft_remote {
	struct pn_mutex lock;
	struct pn_soft_shared *shared;
	struct pn_soft_presence *presence;
	struct pn_soft_slots *loopback; /* the own device's, or NULL */
	pid_t pid;
	/* Under lock: */
	bool gone, warned;
	uint64_t close_after_chunk; /* by ring: let go after the chunk */
	struct pn_soft_ring *rings[PN_SOFT_RINGS];
};

void pn_soft_remote_init(struct pn_soft_remote *remote,
			 struct pn_soft_shared *shared,
			 struct pn_soft_presence *presence,
			 struct pn_soft_slots *loopback, pid_t pid);

/* Lets go of the rings: from the return on, operations are -ECONNRESET. The
 * files stay mapped. */
void pn_soft_remote_disconnect(struct pn_soft_remote *remote);
void pn_soft_remote_fini(struct pn_soft_remote *remote);

/* Lets go of the rings, if nobody is using them: they are fetched again when
 * they are needed. Returns how many descriptors that has freed. */
unsigned pn_soft_remote_close_idle_rings(struct pn_soft_remote *remote);

/* Moves up to `budget` bytes of a WRITE or READ of len bytes in all, from
 * *done on, and advances *done. An operation of 0 bytes needs no key. 0,
 * -EACCES, -EFAULT, -ECONNRESET, or what the system says: -EMFILE, before
 * anything else was done, when no descriptor is left for a staging or a ring.
 */
int pn_soft_move_bytes(struct pn_soft_staging *staging,
		       struct pn_soft_remote *remote, const struct pn_op *op,
		       size_t len, size_t budget, size_t *done);

/* Carries out an atomic; the old value is in op's segment at the end. */
int pn_soft_move_atomic(struct pn_soft_staging *staging,
			struct pn_soft_remote *remote, const struct pn_op *op);

#endif
