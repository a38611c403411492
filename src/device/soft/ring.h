/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ring -- an io_uring used for one thing: moving bytes between a file and
 * pages pinned in its slots.
 *
 * The owner makes a ring with an empty table of slots (pn_soft_ring_init());
 * a peer maps the same ring (pn_soft_ring_join()) after fetching its file with
 * pidfd_getfd(). Exposed rings are restricted before they are enabled: only
 * fixed reads and writes can be submitted, and only slots be updated. (A peer
 * could update them too: io_uring knows no restriction by process.)
 *
 * Submission keeps no cursors of its own, since several processes submit: the
 * tail in the shared memory is the truth, and at rest (lock free) it equals
 * the head.
 * If a process dies with the lock, whoever comes next takes back what it had
 * queued and throws its completions away (repair).
 *
 * Without io_uring a ring is only its lock and its slots.
 * Threads: any; *_locked functions hold the ring's lock.
 */
#ifndef PN_DEVICE_SOFT_RING_H
#define PN_DEVICE_SOFT_RING_H

#include <sys/uio.h>

#include "device/soft/shared.h"
#include "device/soft/uring.h"

struct pn_soft_ring {
	struct pn_soft_ring_page *page;
	struct pn_soft_slot *slots; /* what peers may use; NULL: private */
	struct pn_uring uring;
	bool uses_uring;
};

/* Makes the owner's ring with nslots empty slots. page is zeroed memory, in
 * the shared file for an exposed ring. */
int pn_soft_ring_init(struct pn_soft_ring *ring, struct pn_soft_ring_page *page,
		      struct pn_soft_slot *slots, unsigned nslots,
		      bool uses_uring);

/* Maps a peer's ring, whose file fd becomes the ring's. */
int pn_soft_ring_join(struct pn_soft_ring *ring, struct pn_soft_ring_page *page,
		      struct pn_soft_slot *slots, int fd);

void pn_soft_ring_fini(struct pn_soft_ring *ring);

void pn_soft_ring_lock(struct pn_soft_ring *ring);
void pn_soft_ring_unlock(struct pn_soft_ring *ring);

/* One fixed read (into the slot) or write (out of it). */
struct pn_soft_move {
	unsigned slot;
	uint64_t addr; /* inside the slot */
	unsigned len;
	int fd;
	uint64_t offset; /* in the file; all ones for a pipe */
};

/* Returns the bytes moved, or a negative errno. */
int pn_soft_ring_submit_locked(struct pn_soft_ring *ring, int opcode,
			       const struct pn_soft_move *move);

/* Fills n slots from `first` on; an iovec of length 0 empties its slot. Any
 * thread, without the lock: the caller owns the slots. Returns how many were
 * done before an error, or the error. */
int pn_soft_ring_update(struct pn_soft_ring *ring, unsigned first,
			const struct iovec *iov, unsigned n);

/* Bytes that the kernel charges for the ring itself. */
size_t pn_soft_ring_bytes(const struct pn_soft_ring *ring);

#endif
