/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * sized -- structs of the caller that begin with their size.
 *
 * The rule of openat2(2): a caller built against an older header has a shorter
 * struct, and the fields it lacks are zero; one built against a newer header
 * has a longer one, which is accepted as long as the part that is not known
 * here is zero.
 */
#ifndef PN_BASE_SIZED_H
#define PN_BASE_SIZED_H

#include <stddef.h>

/* Copies the caller's struct, whose first member is a size_t with its size,
 * into ours of our_bytes; ours then has our size. -EINVAL: a size that does not
 * even hold itself; -E2BIG: fields that are not known here are set. */
int pn_struct_take(void *ours, size_t our_bytes, const void *theirs);

#endif
