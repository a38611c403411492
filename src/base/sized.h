/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * sized -- structs of the public API that begin with their size, so that
 * fields can be added to them (the rule of openat2(2)).
 *
 * The struct of a caller may be shorter than ours, of an older header: missing
 * fields are zero. It may be longer, of a newer header, if the fields that we
 * do not know are zero. A query writes the fields that both sides know.
 * Threads: any.
 */
#ifndef PN_BASE_SIZED_H
#define PN_BASE_SIZED_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "base/compiler.h"

/* Copies a caller's struct to *ours, which has `bytes` bytes. -EINVAL: NULL, or
 * an impossible size (logged once); -E2BIG: the caller's struct is longer, and
 * not zero behind our fields.
 */
int pn_sized_copy(void *ours, size_t bytes, const void *theirs);

/* Whether the struct of a caller has exactly our size. */
static inline bool pn_sized_is(const void *theirs, size_t bytes)
{
	const size_t *size = theirs;

	return size && *size == bytes;
}

/* A struct of exactly `bytes` bytes: the caller's if it has that size, else a
 * copy in *ours. NULL: *ret has the error, as above. */
static inline const void *pn_sized_use(const void *theirs, void *ours,
				       size_t bytes, int *ret)
{
	*ret = 0;
	if (pn_likely(pn_sized_is(theirs, bytes)))
		return theirs;
	*ret = pn_sized_copy(ours, bytes, theirs);
	return *ret ? NULL : ours;
}

/* Copies the answer of a query, *ours, to its caller. */
static inline void pn_sized_answer(void *theirs, void *ours, size_t bytes)
{
	const size_t *asked = theirs;
	size_t *given = ours;

	*given = *asked < bytes ? *asked : bytes;
	memcpy(theirs, ours, *given);
}

#endif
