/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * apart -- a child with its own /dev/shm, which no other process uses and which
 * it may corrupt. Its exit status is the result. The test is skipped where this
 * is not permitted.
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

/* Returns 0 on success, else the number of the step that failed. */
static inline void run_apart(int (*what)(void))
{
	pid_t pid = fork();
	int status;

	if (!pid) {
		/* A failure ends the child, not the test in it. */
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
