/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * patcher -- stands for UCX, Open MPI or libfabric in the same process: it
 * patches the entry of libc's munmap (or sbrk) with the jump that they write,
 * and counts calls.
 */
#ifndef PN_TESTS_MONITOR_PATCHER_H
#define PN_TESTS_MONITOR_PATCHER_H

#define PATCHER_EXPORT __attribute__((visibility("default")))

/* What its hook calls. */
enum patcher_kind {
	PATCHER_RAW,	 /* a system call of its own */
	PATCHER_SYSCALL, /* libc's syscall(), as UCX does */
	PATCHER_POLITE,	 /* what was at the entry before, if that was a jump */
	PATCHER_SBRK,	 /* of sbrk: the kernel, and libc's note of the break */
};

PATCHER_EXPORT int patcher_install(enum patcher_kind kind);
PATCHER_EXPORT unsigned patcher_calls(void);

#endif
