/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * sized -- structs of the public API that begin with their size, so that
 * fields can be added to them (the rule of openat2(2)).
 *
 * A caller's struct may be shorter than ours, of an older header: missing
 * fields are zero. It may be longer, of a newer header, if what we do not know
 * is zero. Queries write what both sides know.
 * Threads: any.
 */
#ifndef PN_BASE_SIZED_H
#define PN_BASE_SIZED_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "base/compiler.h"

/* Copies a caller's struct to *ours, whose length is bytes. -EINVAL: NULL, or a
 * size that cannot be (logged, once); -E2BIG: it is longer, and not zero there.
 */
int pn_sized_copy(void *ours, size_t bytes, const void *theirs);

/* Whether a caller's struct is exactly ours. */
static inline bool pn_sized_is(const void *theirs, size_t bytes)
{
	const size_t *size = theirs;

	return size && *size == bytes;
}

/* A struct of exactly bytes: the caller's own if it is one, else a copy in
 * *ours. NULL: *ret says why, as above. */
static inline const void *pn_sized_use(const void *theirs, void *ours,
				       size_t bytes, int *ret)
{
	*ret = 0;
	if (pn_likely(pn_sized_is(theirs, bytes)))
		return theirs;
	*ret = pn_sized_copy(ours, bytes, theirs);
	return *ret ? NULL : ours;
}

/* Hands what a query found, *ours, to its caller. */
static inline void pn_sized_answer(void *theirs, void *ours, size_t bytes)
{
	const size_t *asked = theirs;
	size_t *given = ours;

	*given = *asked < bytes ? *asked : bytes;
	memcpy(theirs, ours, *given);
}

#endif
