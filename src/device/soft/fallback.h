/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fallback -- what the soft device does where io_uring is not permitted.
 *
 * Registering locks pages with mlock(), moving bytes is process_vm_writev()
 * and process_vm_readv() by address. Pages are locked, not pinned: a released
 * address that means something else later is served without complaint, so a
 * stale registration goes unnoticed. The caller checks keys and bounds.
 *
 * mlock() does not nest, so all devices of the process share one list of
 * locked ranges: a page is unlocked when the last range over it goes. A forked
 * child has nothing locked and begins with an empty list.
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

/* Writes the local pieces to addr in process pid, or reads it into them; all
 * of it or an error. -ECONNRESET: no such process; -EACCES: not permitted, or
 * nothing mapped there. */
int pn_soft_process_write(pid_t pid, const struct iovec *iov, unsigned n,
			  uint64_t addr, size_t len);
int pn_soft_process_read(pid_t pid, const struct iovec *iov, unsigned n,
			 uint64_t addr, size_t len);

#endif
