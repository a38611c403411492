/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * process -- which process this is: the one that made an object, or a copy of
 * it that some kind of fork made.
 *
 * Every process has a number. An object keeps the number of the process that
 * made it (pn_process_number()) and is foreign where the number differs
 * (pn_process_is_current()). The number is in a page that the kernel wipes in
 * every child (MADV_WIPEONFORK), however the child was made:
 *   fork()                 the handlers run; the child gets the next number
 *                          and can have objects of its own.
 *   _Fork(), clone, fork   no handler runs; the number stays 0. Other threads
 *   as system calls        may have held any lock at that moment, so nothing
 *                          can be repaired: the child and its children are
 *                          refused everything.
 * A child that shares the memory of its parent (vfork(), CLONE_VM) is no copy;
 * it may call nothing of pinion before it executes another program.
 *
 * Modules with locks or lists to be put in order around fork() give their
 * handlers here (pn_process_atfork()), not to pthread_atfork(): in a process
 * without a number the handlers must not run, since the locks may be held for
 * ever.
 *
 * Threads: any. Caveat: before Linux 4.14 only children of fork() are known.
 */
#ifndef PN_BASE_PROCESS_H
#define PN_BASE_PROCESS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"

/* The largest page of any kernel on this processor. */
#ifdef __x86_64__
#define PN_PROCESS_PAGE 4096
#else
#define PN_PROCESS_PAGE 65536
#endif

struct pn_process {
	_Atomic uint32_t number; /* 0: none, or not asked for yet */
} PN_ALIGNED(PN_PROCESS_PAGE);

/* Accessed directly: reading it takes one instruction more than a constant. */
extern struct pn_process pn_process __attribute__((visibility("hidden")));

/* The number of this process, for an object that is being made; 0: a child in
 * which no handler has run, which makes nothing. */
uint32_t pn_process_number(void);

/* Whether this process has that number. */
static inline bool pn_process_is_current(uint32_t number)
{
	return pn_likely(atomic_load_explicit(&pn_process.number,
					      memory_order_relaxed) == number);
}

/* Whether no handler has run in this child: it may take no lock, and nothing of
 * its parent can be put in order. */
bool pn_process_is_unusable(void);

/* Handlers around fork(), in the order of pthread_atfork(): `before` of the
 * last module first. `before` and `parent` may be NULL. At most
 * PN_PROCESS_HANDLERS; takes no lock. */
#define PN_PROCESS_HANDLERS 16
void pn_process_atfork(void (*before)(void), void (*parent)(void),
		       void (*child)(void));

#endif
