/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * limits -- says which limit of the system is in the way, and what to do.
 *
 * -EMFILE and -ENOMEM are what a program gets; which of the limits it was, and
 * how to raise it, is said in one line of the log by the place that decides the
 * error. Where one comes after the other only the first is told, and another
 * one some seconds later.
 * Threads: any.
 */
#ifndef PN_BASE_LIMITS_H
#define PN_BASE_LIMITS_H

#include <stdbool.h>
#include <stddef.h>

/* Logs a line if `error`, a negative errno, is one of a limit: descriptors, or
 * memory where the address space is limited. `what` could not be done because
 * of it: "connect to a peer". Returns error. */
int pn_limits_explain(int error, const char *what);

/* Whether this process may lock memory beyond RLIMIT_MEMLOCK (CAP_IPC_LOCK). */
bool pn_limits_may_lock_all(void);

/* Bytes that RLIMIT_MEMLOCK lets this process pin; SIZE_MAX: no limit. */
size_t pn_limits_memlock(void);

#endif
