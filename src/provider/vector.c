/* SPDX-License-Identifier: BSD-2-Clause */
#include "provider/vector.h"

#include <stdlib.h>
#include <string.h>

size_t pn_fi_vector_bytes(const struct iovec *iov, size_t count)
{
	size_t bytes = 0;

	if (count > PN_FI_IOV_LIMIT)
		return SIZE_MAX;
	for (size_t i = 0; i < count; i++)
		if (__builtin_add_overflow(bytes, iov[i].iov_len, &bytes))
			return SIZE_MAX;
	return bytes;
}

void pn_fi_gather(void *to, const struct iovec *iov, size_t count)
{
	uint8_t *at = to;

	for (size_t i = 0; i < count; at += iov[i++].iov_len)
		if (iov[i].iov_len)
			memcpy(at, iov[i].iov_base, iov[i].iov_len);
}

void pn_fi_scatter(const struct iovec *iov, const void *from, size_t bytes)
{
	const uint8_t *at = from;

	for (; bytes; iov++) {
		size_t n = iov->iov_len < bytes ? iov->iov_len : bytes;

		if (n)
			memcpy(iov->iov_base, at, n);
		at += n;
		bytes -= n;
	}
}

/* The list is in the memory for injected data, which such an op does not use.
 */
static struct iovec *vector_of(const struct pn_fi_op *op)
{
	_Static_assert(PN_FI_IOV_LIMIT * sizeof(struct iovec) <=
			       sizeof(op->inject),
		       "the list of segments fits");
	return (struct iovec *)(void *)(uintptr_t)op->inject;
}

int pn_fi_op_set_vector(struct pn_fi_op *op, const struct iovec *iov,
			size_t count)
{
	size_t bytes = pn_fi_vector_bytes(iov, count);

	op->copy = malloc(bytes ? bytes : 1);
	if (!op->copy)
		return -FI_ENOMEM;
	memcpy(vector_of(op), iov, count * sizeof(*iov));
	op->nsegments = (unsigned)count;
	return 0;
}

void pn_fi_op_scatter(const struct pn_fi_op *op, size_t bytes)
{
	if (op->nsegments)
		pn_fi_scatter(vector_of(op), op->copy, bytes);
}
