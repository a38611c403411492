/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * validate -- the device-independent checks of an operation: the part of post()
 * that needs only the operation, the capabilities and the limits. Inline, since
 * every small message runs through it.
 */
#ifndef PN_DEVICE_VALIDATE_H
#define PN_DEVICE_VALIDATE_H

#include <errno.h>

#include "device/device.h"

static inline bool pn_op_is_atomic(const struct pn_op *op)
{
	return op->kind >= PN_OP_FETCH_ADD;
}

/* The flags that are valid for this kind. */
static inline unsigned pn_op_flags(const struct pn_device *device,
				   enum pn_op_kind kind)
{
	unsigned flags = PN_OP_SILENT | PN_OP_FENCE;

	if (kind == PN_OP_SEND || kind == PN_OP_WRITE)
		flags |= PN_OP_INLINE;
	if (kind == PN_OP_WRITE && device->caps & PN_CAP_WRITE_IMM)
		flags |= PN_OP_IMM;
	return flags;
}

/* Returns the sum of the segments' lengths. -EINVAL: it overflows. */
static inline int pn_op_length(const struct pn_op *op, size_t *out)
{
	size_t len = 0;

	for (unsigned i = 0; i < op->nsge; i++)
		if (__builtin_add_overflow(len, op->sge[i].len, &len))
			return -EINVAL;
	*out = len;
	return 0;
}

static inline size_t pn_op_max_bytes(const struct pn_device *device,
				     const struct pn_op *op)
{
	if (op->flags & PN_OP_INLINE)
		return device->limits.inline_bytes;
	return op->kind == PN_OP_SEND ? device->limits.max_send_bytes
				      : device->limits.max_op_bytes;
}

/* Returns 0 and the operation's length, or -EINVAL. */
static inline int pn_op_validate(const struct pn_device *device,
				 const struct pn_op *op, size_t *len)
{
	if ((unsigned)op->kind > PN_OP_COMPARE_SWAP ||
	    (op->flags & ~pn_op_flags(device, op->kind)) ||
	    op->nsge > device->limits.max_sge || (op->nsge && !op->sge) ||
	    pn_op_length(op, len) || *len > pn_op_max_bytes(device, op))
		return -EINVAL;
	if (!pn_op_is_atomic(op))
		return 0;
	return op->nsge != 1 || *len != 8 || op->remote_addr % 8 ||
			       !(device->caps & PN_CAP_ATOMICS)
		       ? -EINVAL
		       : 0;
}

#endif
