/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/soft/ring.h"

#include <errno.h>
#include <string.h>

#include "base/range.h"

/* The lock allows one submission at a time; small rings also leave more of
 * RLIMIT_MEMLOCK to the user. */
#define ENTRIES 1

static int restrict_and_enable(const struct pn_uring *uring)
{
	struct io_uring_restriction allowed[] = {
		{ .opcode = IORING_RESTRICTION_SQE_OP,
		  .sqe_op = IORING_OP_READ_FIXED },
		{ .opcode = IORING_RESTRICTION_SQE_OP,
		  .sqe_op = IORING_OP_WRITE_FIXED },
		{ .opcode = IORING_RESTRICTION_REGISTER_OP,
		  .register_op = IORING_REGISTER_BUFFERS_UPDATE },
	};
	int ret = pn_uring_register(uring, IORING_REGISTER_RESTRICTIONS,
				    allowed, PN_ARRAY_LEN(allowed));

	return ret ? ret
		   : pn_uring_register(uring, IORING_REGISTER_ENABLE_RINGS,
				       NULL, 0);
}

static int make_empty_slots(const struct pn_uring *uring, unsigned nslots)
{
	struct io_uring_rsrc_register table = {
		.nr = nslots,
		.flags = IORING_RSRC_REGISTER_SPARSE,
	};

	return pn_uring_register(uring, IORING_REGISTER_BUFFERS2, &table,
				 sizeof(table));
}

static int make_uring(struct pn_soft_ring *ring, unsigned nslots)
{
	struct io_uring_params params = {
		.flags = ring->slots ? IORING_SETUP_R_DISABLED : 0,
	};
	int ret = pn_uring_open(&ring->uring, ENTRIES, &params);

	if (ret)
		return ret;
	ret = make_empty_slots(&ring->uring, nslots);
	if (!ret && ring->slots)
		ret = restrict_and_enable(&ring->uring);
	if (ret) {
		pn_uring_close(&ring->uring);
		return ret;
	}
	ring->page->params = params;
	atomic_store(&ring->page->fd, ring->uring.fd);
	return 0;
}

int pn_soft_ring_init(struct pn_soft_ring *ring, struct pn_soft_ring_page *page,
		      struct pn_soft_slot *slots, unsigned nslots,
		      bool uses_uring)
{
	*ring = (struct pn_soft_ring){ .page = page,
				       .slots = slots,
				       .uses_uring = uses_uring };
	pn_soft_robust_init(&page->lock);
	return uses_uring ? make_uring(ring, nslots) : 0;
}

int pn_soft_ring_join(struct pn_soft_ring *ring, struct pn_soft_ring_page *page,
		      struct pn_soft_slot *slots, int fd)
{
	struct io_uring_params params = page->params;

	*ring = (struct pn_soft_ring){ .page = page,
				       .slots = slots,
				       .uses_uring = fd >= 0 };
	return fd < 0 ? 0 : pn_uring_map(&ring->uring, fd, &params);
}

void pn_soft_ring_fini(struct pn_soft_ring *ring)
{
	if (ring->uses_uring)
		pn_uring_close(&ring->uring);
}

/* The dead holder left an entry that was not submitted, whose file number is
 * invalid here; or it was executed, and its completion was not taken. */
static void repair(struct pn_soft_ring *ring)
{
	struct pn_uring_queue *sq = &ring->uring.sq, *cq = &ring->uring.cq;

	if (!ring->uses_uring)
		return;
	__atomic_store_n(sq->tail, __atomic_load_n(sq->head, __ATOMIC_ACQUIRE),
			 __ATOMIC_RELEASE);
	__atomic_store_n(cq->head, __atomic_load_n(cq->tail, __ATOMIC_ACQUIRE),
			 __ATOMIC_RELEASE);
}

void pn_soft_ring_lock(struct pn_soft_ring *ring)
{
	if (pn_soft_robust_lock(&ring->page->lock)) {
		repair(ring);
		pn_soft_robust_repaired(&ring->page->lock);
	}
}

void pn_soft_ring_unlock(struct pn_soft_ring *ring)
{
	pn_soft_robust_unlock(&ring->page->lock);
}

static void queue_locked(struct pn_soft_ring *ring, int opcode,
			 const struct pn_soft_move *move)
{
	struct pn_uring_queue *sq = &ring->uring.sq;
	unsigned tail = __atomic_load_n(sq->tail, __ATOMIC_RELAXED);
	unsigned index = tail & *sq->mask;
	struct io_uring_sqe *sqe = &ring->uring.sqes[index];

	memset(sqe, 0, sizeof(*sqe));
	sqe->opcode = (uint8_t)opcode;
	sqe->fd = move->fd;
	sqe->off = move->offset;
	sqe->addr = move->addr;
	sqe->len = move->len;
	sqe->buf_index = (uint16_t)move->slot;
	sqe->user_data = ++ring->page->ticket;
	ring->uring.array[index] = index;
	/* Pairs with the kernel's acquire of the tail in io_uring_enter(). */
	__atomic_store_n(sq->tail, tail + 1, __ATOMIC_RELEASE);
}

/* Takes completions until ours; others were left by a dead holder. */
static int reap_locked(struct pn_soft_ring *ring)
{
	struct pn_uring_queue *cq = &ring->uring.cq;

	for (;;) {
		unsigned head = __atomic_load_n(cq->head, __ATOMIC_RELAXED);
		struct io_uring_cqe *cqe = &ring->uring.cqes[head & *cq->mask];
		bool ours;
		int res;

		if (head == __atomic_load_n(cq->tail, __ATOMIC_ACQUIRE)) {
			/* The kernel handed it to a worker thread: wait for
			 * that, by looking if it cannot be waited for. */
			pn_uring_enter(&ring->uring, 0, 1,
				       IORING_ENTER_GETEVENTS);
			continue;
		}
		ours = cqe->user_data == ring->page->ticket;
		res = cqe->res;
		__atomic_store_n(cq->head, head + 1, __ATOMIC_RELEASE);
		if (ours)
			return res;
	}
}

int pn_soft_ring_submit_locked(struct pn_soft_ring *ring, int opcode,
			       const struct pn_soft_move *move)
{
	int ret;

	queue_locked(ring, opcode, move);
	ret = pn_uring_enter(&ring->uring, 1, 0, 0);
	if (ret == 1)
		return reap_locked(ring);
	repair(ring);
	return ret < 0 ? ret : -EIO;
}

int pn_soft_ring_update(struct pn_soft_ring *ring, unsigned first,
			const struct iovec *iov, unsigned n)
{
	struct io_uring_rsrc_update2 update = {
		.offset = first,
		.data = (uint64_t)(uintptr_t)iov,
		.nr = n,
	};

	return pn_uring_register(&ring->uring, IORING_REGISTER_BUFFERS_UPDATE,
				 &update, sizeof(update));
}

static size_t whole_pages(size_t bytes)
{
	return pn_range_pages(0, bytes, PN_PAGE_BYTES).len;
}

size_t pn_soft_ring_bytes(const struct pn_soft_ring *ring)
{
	if (!ring->uses_uring)
		return 0;
	return whole_pages(ring->uring.queue_bytes) +
	       whole_pages(ring->uring.sqe_bytes);
}
