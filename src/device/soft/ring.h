/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ring -- an io_uring used for one purpose: moving bytes between a file and
 * pages pinned in its slots.
 *
 * The owner makes a ring with an empty table of slots (pn_soft_ring_init()). A
 * peer maps the same ring (pn_soft_ring_join()) after it got the file with
 * pidfd_getfd(). Exposed rings are restricted before they are enabled: only
 * fixed reads and writes can be submitted, and only slots can be updated. (A
 * peer could update them, too: io_uring has no restriction by process.)
 *
 * Submission has no cursors of its own, since several processes submit: the
 * tail in the shared memory is authoritative, and at rest (lock free) it equals
 * the head.
 * If a process dies with the lock, the next holder discards what that process
 * had queued and its completions (repair).
 *
 * Without io_uring a ring is only its lock and its slots.
 * Threads: any; *_locked functions require the ring's lock.
 */
#ifndef PN_DEVICE_SOFT_RING_H
#define PN_DEVICE_SOFT_RING_H

#include <sys/uio.h>

#include "device/soft/shared.h"
#include "device/soft/uring.h"

struct pn_soft_ring {
	struct pn_soft_ring_page *page;
	struct pn_soft_slot *slots; /* those of peers; NULL: a private ring */
	struct pn_uring uring;
	bool uses_uring;
};

/* Makes the owner's ring with nslots empty slots. page is zeroed memory; for an
 * exposed ring it is in the shared file. */
int pn_soft_ring_init(struct pn_soft_ring *ring, struct pn_soft_ring_page *page,
		      struct pn_soft_slot *slots, unsigned nslots,
		      bool uses_uring);

/* Maps a peer's ring. Its file fd then belongs to the ring. */
int pn_soft_ring_join(struct pn_soft_ring *ring, struct pn_soft_ring_page *page,
		      struct pn_soft_slot *slots, int fd);

void pn_soft_ring_fini(struct pn_soft_ring *ring);

void pn_soft_ring_lock(struct pn_soft_ring *ring);
void pn_soft_ring_unlock(struct pn_soft_ring *ring);

/* One fixed read (into the slot) or write (out of it). */
struct pn_soft_move {
	unsigned slot;
	uint64_t addr; /* virtual address in the range of the slot */
	unsigned len;
	int fd;
	uint64_t offset; /* in the file; all ones for a pipe */
};

/* Returns the bytes moved, or a negative errno. */
int pn_soft_ring_submit_locked(struct pn_soft_ring *ring, int opcode,
			       const struct pn_soft_move *move);

/* Fills n slots from `first` on; an iovec of length 0 empties its slot. Any
 * thread, without the lock: the slots belong to the caller. Returns the number
 * done before an error, or the error. */
int pn_soft_ring_update(struct pn_soft_ring *ring, unsigned first,
			const struct iovec *iov, unsigned n);

/* The bytes that the kernel charges for the ring itself. */
size_t pn_soft_ring_bytes(const struct pn_soft_ring *ring);

#endif
