/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * uring -- an io_uring as the kernel provides it: a descriptor and two queues
 * in memory that every process with the descriptor can map.
 *
 * liburing is not used. Its cursors are private to a process while these queues
 * are shared by several, and the contents of `struct io_uring` change between
 * its versions (2.9 has no submission array and does not keep the descriptor of
 * queues mapped a second time).
 *
 * Life: pn_uring_open() makes the ring, pn_uring_map() maps the queues of an
 * existing one; pn_uring_close() ends both. fork() does not inherit the
 * mappings. Kernel 5.19 is needed; an older one returns -EINVAL.
 * Threads: the caller's locks.
 */
#ifndef PN_DEVICE_SOFT_URING_H
#define PN_DEVICE_SOFT_URING_H

#include <linux/io_uring.h>
#include <stddef.h>

/* One of the queues. The kernel advances the head of the submissions and the
 * tail of the completions, the user the other two. */
struct pn_uring_queue {
	unsigned *head, *tail, *mask;
};

struct pn_uring {
	int fd;
	struct pn_uring_queue sq, cq;
	unsigned *array; /* index into sqes for each entry of sq */
	struct io_uring_sqe *sqes;
	struct io_uring_cqe *cqes;
	void *queues; /* one mapping of both queues */
	size_t queue_bytes, sqe_bytes;
};

/* Makes a ring and maps its queues; returns in params what pn_uring_map()
 * needs. Errors are those of io_uring_setup(2) and mmap(2). */
int pn_uring_open(struct pn_uring *uring, unsigned nentries,
		  struct io_uring_params *params);

/* Maps the queues of the ring fd, which belongs to *uring on success. */
int pn_uring_map(struct pn_uring *uring, int fd,
		 const struct io_uring_params *params);

void pn_uring_close(struct pn_uring *uring);

/* io_uring_register(2): its result or a negative errno. */
int pn_uring_register(const struct pn_uring *uring, unsigned op,
		      const void *arg, unsigned n);

/* io_uring_enter(2), repeated after a signal, and for some milliseconds while
 * the kernel has no memory for it: its result or a negative errno, -ENOMEM
 * instead of -EAGAIN. */
int pn_uring_enter(const struct pn_uring *uring, unsigned submit, unsigned wait,
		   unsigned flags);

#endif
