/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * patcher -- a stand-in for UCX, Open MPI or libfabric in the same process: it
 * patches libc's munmap at its entry with the jump that they write, counts
 * calls, and goes to the kernel by itself.
 */
#ifndef PN_TESTS_MONITOR_PATCHER_H
#define PN_TESTS_MONITOR_PATCHER_H

#include <stdbool.h>

#define PATCHER_EXPORT __attribute__((visibility("default")))

/* polite: calls what was at the entry before, if that was a jump. */
PATCHER_EXPORT int patcher_install(bool polite);
PATCHER_EXPORT unsigned patcher_calls(void);

#endif
