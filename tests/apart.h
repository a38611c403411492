/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * apart -- a child with a /dev/shm of its own, where nobody else meets and
 * where it may spoil what it likes. Checked by its exit status; where that is
 * not permitted the test is skipped.
 */
#ifndef PN_TESTS_APART_H
#define PN_TESTS_APART_H

#include "test.h"

#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

static inline void apart_go(void)
{
	if (unshare(CLONE_NEWNS) ||
	    mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("none", "/dev/shm", "tmpfs", 0, NULL))
		_exit(TEST_SKIP);
}

/* What returns 0 when all is as it should be, else which step was not. */
static inline void run_apart(int (*what)(void))
{
	pid_t pid = fork();
	int status;

	if (!pid) {
		/* What fails there ends the child, not the test in it. */
		setenv("CMOCKA_TEST_ABORT", "1", 1);
		apart_go();
		_exit(what());
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == TEST_SKIP)
		skip();
	assert_int_equal(WEXITSTATUS(status), 0);
}

#endif
