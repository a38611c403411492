/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * child -- what a forked child does, checked by its exit status: there is no
 * cmocka in it.
 */
#ifndef PN_TESTS_CHILD_H
#define PN_TESTS_CHILD_H

#include "test.h"

#include <sys/wait.h>
#include <unistd.h>

/* Runs fn in a child, which succeeds unless fn ends it, or hangs. */
static inline void child_run(void (*fn)(void))
{
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		alarm(60); /* whoever hangs is ended */
		fn();
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

#endif
