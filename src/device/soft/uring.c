/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/soft/uring.h"

#include <errno.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* 10 ms, in which the kernel may find memory. */
#define MAX_ENTERS     100
#define ENTER_PAUSE_US 100

/* NULL: errno says why. */
static void *map_queue(int fd, size_t bytes, off_t which)
{
	void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_POPULATE, fd, which);

	if (map == MAP_FAILED)
		return NULL;
	/* A child that submitted would interfere with its parent. */
	madvise(map, bytes, MADV_DONTFORK);
	return map;
}

static size_t queue_bytes(const struct io_uring_params *params)
{
	size_t sq =
		params->sq_off.array + params->sq_entries * sizeof(unsigned);
	size_t cq = params->cq_off.cqes +
		    params->cq_entries * sizeof(struct io_uring_cqe);

	return sq > cq ? sq : cq;
}

static void find_queues(struct pn_uring *uring,
			const struct io_uring_params *params)
{
	char *base = uring->queues;

	uring->sq = (struct pn_uring_queue){
		.head = (void *)(base + params->sq_off.head),
		.tail = (void *)(base + params->sq_off.tail),
		.mask = (void *)(base + params->sq_off.ring_mask),
	};
	uring->cq = (struct pn_uring_queue){
		.head = (void *)(base + params->cq_off.head),
		.tail = (void *)(base + params->cq_off.tail),
		.mask = (void *)(base + params->cq_off.ring_mask),
	};
	uring->array = (void *)(base + params->sq_off.array);
	uring->cqes = (void *)(base + params->cq_off.cqes);
}

int pn_uring_map(struct pn_uring *uring, int fd,
		 const struct io_uring_params *params)
{
	int ret;

	*uring = (struct pn_uring){
		.fd = fd,
		.queue_bytes = queue_bytes(params),
		.sqe_bytes = params->sq_entries * sizeof(struct io_uring_sqe),
	};
	/* Before 5.4 each queue was a separate mapping. */
	if (!(params->features & IORING_FEAT_SINGLE_MMAP))
		return -EINVAL;
	uring->queues = map_queue(fd, uring->queue_bytes, IORING_OFF_SQ_RING);
	if (!uring->queues)
		return -errno;
	uring->sqes = map_queue(fd, uring->sqe_bytes, IORING_OFF_SQES);
	if (!uring->sqes) {
		ret = -errno;
		munmap(uring->queues, uring->queue_bytes);
		return ret;
	}
	find_queues(uring, params);
	return 0;
}

int pn_uring_open(struct pn_uring *uring, unsigned nentries,
		  struct io_uring_params *params)
{
	int fd = (int)syscall(__NR_io_uring_setup, nentries, params), ret;

	if (fd < 0)
		return -errno;
	ret = pn_uring_map(uring, fd, params);
	if (ret)
		close(fd);
	return ret;
}

void pn_uring_close(struct pn_uring *uring)
{
	munmap(uring->sqes, uring->sqe_bytes);
	munmap(uring->queues, uring->queue_bytes);
	close(uring->fd);
}

int pn_uring_register(const struct pn_uring *uring, unsigned op,
		      const void *arg, unsigned n)
{
	long ret = syscall(__NR_io_uring_register, uring->fd, op, arg, n);

	return ret < 0 ? -errno : (int)ret;
}

/* The kernel has no memory for a request. */
static bool refuses(long n, unsigned *tries)
{
	if (n >= 0 || errno != EAGAIN || ++*tries > MAX_ENTERS)
		return false;
	usleep(ENTER_PAUSE_US);
	return true;
}

int pn_uring_enter(const struct pn_uring *uring, unsigned submit, unsigned wait,
		   unsigned flags)
{
	unsigned tries = 0;
	long n;

	do
		n = syscall(__NR_io_uring_enter, uring->fd, submit, wait, flags,
			    NULL, 0);
	while ((n < 0 && errno == EINTR) || refuses(n, &tries));
	if (n >= 0)
		return (int)n;
	return tries ? -ENOMEM : -errno;
}
