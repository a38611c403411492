/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * private -- what libpinion-cuda.so needs of libpinion.so beside the public
 * calls. The names are exported under PINION_PRIVATE: both libraries come from
 * one build, and the names may change at any time.
 */
#ifndef PN_COPY_PRIVATE_H
#define PN_COPY_PRIVATE_H

#include <pinion/cuda.h>

#include "copy/copy.h"

/* As pinion_cuda_copy(); *result is what the driver said. */
PINION_API int pn_cuda_copy(struct pinion_context *context,
			    const struct pn_copy_op *op, pn_cu_result *result);

/* Completes pending invalidations: nothing that was released before the call
 * is registered when it returns. */
PINION_API int pn_cuda_settle(struct pinion_context *context);

/* Deregisters program memory that overlaps the range; a length that wraps
 * around means everything. -EBUSY: a copy is under way there. */
PINION_API int pn_cuda_yield(struct pinion_context *context, const void *addr,
			     size_t len);

/* Below, copies are the driver's. */
PINION_API size_t pn_cuda_min_bytes(struct pinion_context *context);

#endif
