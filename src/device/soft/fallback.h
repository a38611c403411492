/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fallback -- replaces io_uring where it is not permitted.
 *
 * Registering locks pages with mlock(). Bytes move by address with
 * process_vm_writev() and process_vm_readv(). Pages are locked, not pinned: an
 * address that was released and mapped anew is accessed without an error, so a
 * stale registration goes unnoticed. The caller checks keys and bounds.
 *
 * mlock() does not nest, so all devices of the process share one list of locked
 * ranges: a page is unlocked when the last range over it is removed. A forked
 * child has nothing locked and starts with an empty list.
 * Threads: any.
 */
#ifndef PN_DEVICE_SOFT_FALLBACK_H
#define PN_DEVICE_SOFT_FALLBACK_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

struct pn_soft_locked;

/* Locks the pages of [addr, addr + len). -EFAULT: not mapped or not writable;
 * -ENOMEM: RLIMIT_MEMLOCK. */
int pn_soft_locked_get(void *addr, size_t len, struct pn_soft_locked **out);
void pn_soft_locked_put(struct pn_soft_locked *locked);

/* Writes the local ranges to addr in process pid, or reads from there; all
 * bytes or an error. -ECONNRESET: no such process; -EACCES: not permitted, or
 * nothing is mapped there. */
int pn_soft_process_write(pid_t pid, const struct iovec *iov, unsigned n,
			  uint64_t addr, size_t len);
int pn_soft_process_read(pid_t pid, const struct iovec *iov, unsigned n,
			 uint64_t addr, size_t len);

#endif
