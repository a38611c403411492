/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * huge -- how much memory the kernel charges for pinning pages.
 *
 * io_uring charges a huge page (transparent or reserved) whole, however little
 * of it is registered. A program cannot ask the kernel for that charge. This
 * module returns what can be known: an upper bound, which costs nothing; what
 * the page tables say now; and VmPin, the charge of the whole process. Threads:
 * any; there is no state. Caveats: huge pages are taken to be of 2 MiB;
 * reserved ones of 1 GiB are counted as 2 MiB. The page tables do not show a
 * huge page that is mapped by small page-table entries, as after a part of it
 * was unmapped, protected or watched by userfaultfd; VmPin includes such a
 * page.
 */
#ifndef PN_BASE_HUGE_H
#define PN_BASE_HUGE_H

#include "base/range.h"

/* The most that may be charged for these pages, in bytes. */
size_t pn_huge_bound(struct pn_range pages);

/* How many bytes are charged, as far as the page tables tell. Faults the first
 * and the last page in for writing, as pinning does: a fault may make a huge
 * page. A kernel before 6.7 does not say which pages are huge; there a block of
 * 2 MiB counts as a huge page when all of it is present. */
size_t pn_huge_bytes(struct pn_range pages);

/* VmPin of this process, in bytes; SIZE_MAX when unknown. */
size_t pn_huge_vmpin(void);

#endif
