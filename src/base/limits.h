/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * limits -- logs which limit of the system is reached, and what to do.
 *
 * A program gets -EMFILE or -ENOMEM. The place that decides the error logs in
 * one line which limit it was and how to raise it. Of a series of such errors
 * the first is logged, and another one some seconds later. Threads: any.
 */
#ifndef PN_BASE_LIMITS_H
#define PN_BASE_LIMITS_H

#include <stdbool.h>
#include <stddef.h>

/* Logs a line if `error`, a negative errno, is that of a limit: descriptors, or
 * memory where the address space is limited. `what` is what failed: "connect to
 * a peer". Returns error. */
int pn_limits_explain(int error, const char *what);

/* Whether this process may lock memory beyond RLIMIT_MEMLOCK (CAP_IPC_LOCK). */
bool pn_limits_may_lock_all(void);

/* Bytes that RLIMIT_MEMLOCK lets this process pin; SIZE_MAX: no limit. */
size_t pn_limits_memlock(void);

#endif
