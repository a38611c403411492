/* SPDX-License-Identifier: BSD-2-Clause */
/* pin -- pages that stay what they were when they were pinned: buffers of an
 * io_uring, as the device `soft` uses them. Reads and writes of a fixed buffer
 * access the pinned pages, whatever is mapped at the address meanwhile. */
#include <errno.h>
#include <linux/io_uring.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "standin_impl.h"

#define NSLOTS	   8192u
#define SLOT_BYTES ((size_t)1 << 30) /* the kernel's limit for a buffer */

static struct {
	pthread_mutex_t lock; /* all below */
	int fd, memory_fd;
	unsigned *sq_tail, *sq_mask, *sq_array, *cq_head, *cq_tail, *cq_mask;
	struct io_uring_sqe *sqes;
	struct io_uring_cqe *cqes;
	bool used[NSLOTS];
} ring = { .lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1 };

static int register_with_ring(unsigned op, const void *arg, unsigned n)
{
	long ret = syscall(__NR_io_uring_register, ring.fd, op, arg, n);

	return ret < 0 ? -errno : (int)ret;
}

static int map_ring(const struct io_uring_params *p)
{
	size_t sq = p->sq_off.array + p->sq_entries * sizeof(unsigned);
	size_t cq = p->cq_off.cqes + p->cq_entries * sizeof(*ring.cqes);
	char *at = mmap(NULL, sq > cq ? sq : cq, PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_POPULATE, ring.fd, IORING_OFF_SQ_RING);

	if (at == MAP_FAILED)
		return -errno;
	ring.sq_tail = (void *)(at + p->sq_off.tail);
	ring.sq_mask = (void *)(at + p->sq_off.ring_mask);
	ring.sq_array = (void *)(at + p->sq_off.array);
	ring.cq_head = (void *)(at + p->cq_off.head);
	ring.cq_tail = (void *)(at + p->cq_off.tail);
	ring.cq_mask = (void *)(at + p->cq_off.ring_mask);
	ring.cqes = (void *)(at + p->cq_off.cqes);
	ring.sqes = mmap(NULL, p->sq_entries * sizeof(*ring.sqes),
			 PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
			 ring.fd, IORING_OFF_SQES);
	return ring.sqes == MAP_FAILED ? -errno : 0;
}

int pin_init(int memory_fd)
{
	struct io_uring_params params = { 0 };
	struct io_uring_rsrc_register table = {
		.nr = NSLOTS,
		.flags = IORING_RSRC_REGISTER_SPARSE,
	};
	int ret;

	ring.fd = (int)syscall(__NR_io_uring_setup, 4, &params);
	if (ring.fd < 0)
		return -errno;
	ring.memory_fd = memory_fd;
	ret = map_ring(&params);
	if (!ret)
		ret = register_with_ring(IORING_REGISTER_BUFFERS2, &table,
					 sizeof(table));
	return ret;
}

static unsigned slots_of(size_t bytes)
{
	return (unsigned)((bytes + SLOT_BYTES - 1) / SLOT_BYTES);
}

/* First fit; NSLOTS: there is no room. */
static unsigned find_slots(unsigned n)
{
	for (unsigned first = 0, run = 0, i = 0; i < NSLOTS; i++) {
		run = ring.used[i] ? 0 : run + 1;
		first = i + 1 - run;
		if (run == n)
			return first;
	}
	return NSLOTS;
}

static int update_slot(unsigned slot, struct iovec iov)
{
	__u64 tag = 0;
	struct io_uring_rsrc_update2 update = {
		.offset = slot,
		.data = (uintptr_t)&iov,
		.tags = (uintptr_t)&tag,
		.nr = 1,
	};
	int ret = register_with_ring(IORING_REGISTER_BUFFERS_UPDATE, &update,
				     sizeof(update));

	return ret == 1 ? 0 : ret < 0 ? ret : -EIO;
}

static void release_locked(unsigned slot, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		update_slot(slot + i, (struct iovec){ NULL, 0 });
		ring.used[slot + i] = false;
	}
}

int pin_pages(void *at, size_t bytes)
{
	unsigned n = slots_of(bytes), slot, i;
	int ret = 0;

	pthread_mutex_lock(&ring.lock);
	slot = find_slots(n);
	if (slot == NSLOTS)
		ret = -ENOMEM;
	for (i = 0; !ret && i < n; i++) {
		size_t from = i * SLOT_BYTES, left = bytes - from;

		ret = update_slot(slot + i,
				  (struct iovec){ (char *)at + from,
						  left < SLOT_BYTES
							  ? left
							  : SLOT_BYTES });
		ring.used[slot + i] = !ret;
	}
	if (ret && slot != NSLOTS)
		release_locked(slot, i ? i - 1 : 0);
	pthread_mutex_unlock(&ring.lock);
	return ret ? ret : (int)slot;
}

void pin_release(unsigned slot, size_t bytes)
{
	pthread_mutex_lock(&ring.lock);
	release_locked(slot, slots_of(bytes));
	pthread_mutex_unlock(&ring.lock);
}

/* Submits one operation and waits for it: its result. */
static int submit(const struct io_uring_sqe *sqe)
{
	unsigned tail = *ring.sq_tail, at = tail & *ring.sq_mask, head;
	int result;
	long ret;

	ring.sqes[at] = *sqe;
	ring.sq_array[at] = at;
	__atomic_store_n(ring.sq_tail, tail + 1, __ATOMIC_RELEASE);
	do
		ret = syscall(__NR_io_uring_enter, ring.fd, 1, 1,
			      IORING_ENTER_GETEVENTS, NULL, 0);
	while (ret < 0 && errno == EINTR);
	head = *ring.cq_head;
	while (__atomic_load_n(ring.cq_tail, __ATOMIC_ACQUIRE) == head)
		syscall(__NR_io_uring_enter, ring.fd, 0, 1,
			IORING_ENTER_GETEVENTS, NULL, 0);
	result = ring.cqes[head & *ring.cq_mask].res;
	__atomic_store_n(ring.cq_head, head + 1, __ATOMIC_RELEASE);
	return result;
}

int pin_move(const struct pin_move *move)
{
	size_t done = 0;
	int ret = 1;

	pthread_mutex_lock(&ring.lock);
	while (done < move->bytes && ret > 0) {
		size_t at = move->offset + done, left = move->bytes - done;
		size_t in_slot = SLOT_BYTES - at % SLOT_BYTES;
		struct io_uring_sqe sqe = {
			.opcode = move->to_memory ? IORING_OP_WRITE_FIXED
						  : IORING_OP_READ_FIXED,
			.fd = ring.memory_fd,
			.off = move->file_offset + done,
			.addr = move->base + at,
			.len = (unsigned)(left < in_slot ? left : in_slot),
			.buf_index = (__u16)(move->slot + at / SLOT_BYTES),
		};

		ret = submit(&sqe);
		done += ret > 0 ? (size_t)ret : 0;
	}
	pthread_mutex_unlock(&ring.lock);
	return ret < 0 ? ret : ret ? 0 : -EIO;
}
