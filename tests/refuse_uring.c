/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * refuse_uring EPERM|ENOSYS COMMAND [ARG...] -- runs a command where io_uring
 * is refused with that error, as by the seccomp filters of many containers.
 * The command and all that it starts cannot get it back.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/compiler.h"

#define LOAD(field) \
	BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define RETURN(value) BPF_STMT(BPF_RET | BPF_K, value)

/* The three calls have consecutive numbers. 32-bit programs use the same
 * numbers and are refused, too. */
static int refuse(unsigned error)
{
	struct sock_filter code[] = {
		LOAD(nr),
		BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, __NR_io_uring_setup, 0, 2),
		BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, __NR_io_uring_register, 1,
			 0),
		RETURN(SECCOMP_RET_ERRNO | error),
		RETURN(SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { PN_ARRAY_LEN(code), code };

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	       prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

int main(int argc, char **argv)
{
	bool absent = argc > 2 && !strcmp(argv[1], "ENOSYS");

	if (argc < 3 || (!absent && strcmp(argv[1], "EPERM"))) {
		fprintf(stderr, "usage: refuse_uring EPERM|ENOSYS COMMAND\n");
		return 2;
	}
	if (refuse(absent ? ENOSYS : EPERM)) {
		perror("refuse_uring: skipped: no seccomp filters here");
		return 77;
	}
	execvp(argv[2], argv + 2);
	perror(argv[2]);
	return 127;
}
