/* SPDX-License-Identifier: BSD-2-Clause */
/* forbid -- takes away what a program expects: a seccomp filter as containers
 * have, and no /proc. */
#ifndef PN_TESTS_MONITOR_FORBID_H
#define PN_TESTS_MONITOR_FORBID_H

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "base/compiler.h"
#include "test.h"

/* From now on `number` fails with `error`, for good, in the calling thread and
 * those that it starts. False: no filter can be set here. */
static inline bool forbid(unsigned number, unsigned error)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
			 offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { PN_ARRAY_LEN(code), code };

	return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) &&
	       !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

/* /proc is empty from now on, for this process and its children. Only while it
 * has one thread. False: not permitted here. */
static inline bool forbid_proc(void)
{
	return !unshare(CLONE_NEWUSER | CLONE_NEWNS) &&
	       !mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) &&
	       !mount("none", "/proc", "tmpfs", 0, NULL);
}

/* Exit status of a test that cannot forbid. */
static inline int forbid_skip(const char *why)
{
	fprintf(stderr, "skipped: %s\n", why);
	return TEST_SKIP;
}

#endif
