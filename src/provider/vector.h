/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * vector -- operations on several local segments, up to PN_FI_IOV_LIMIT.
 *
 * pinion's messages have one buffer. So the segments of a send or write are
 * gathered into a copy when the operation starts, and those of a receive or
 * read are scattered from a copy when it completes; the op owns the copy and
 * the list of segments. One segment, or none, is used in place.
 *
 * Threads: under the domain's lock, or on the caller's own data.
 */
#ifndef PN_PROVIDER_VECTOR_H
#define PN_PROVIDER_VECTOR_H

#include <sys/uio.h>

#include "provider/provider.h"

/* The sum of the lengths; SIZE_MAX: too large, or more than PN_FI_IOV_LIMIT
 * segments. */
size_t pn_fi_vector_bytes(const struct iovec *iov, size_t count);

/* Copies all segments to `to`; and `bytes` bytes from `from` to them. */
void pn_fi_gather(void *to, const struct iovec *iov, size_t count);
void pn_fi_scatter(const struct iovec *iov, const void *from, size_t bytes);

/* Gives an op a copy of all segments, whose contents are undefined. -FI_ENOMEM.
 */
int pn_fi_op_set_vector(struct pn_fi_op *op, const struct iovec *iov,
			size_t count);
/* Scatters `bytes` bytes of the op's copy to its segments, if it has any. */
void pn_fi_op_scatter(const struct pn_fi_op *op, size_t bytes);

#endif
