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

/* In children: no assertion of cmocka's, but a line and an exit status. */
#define CHECK(x)                                                           \
	do {                                                               \
		if (!(x)) {                                                \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, \
				#x);                                       \
			_exit(1);                                          \
		}                                                          \
	} while (0)

/* RLIMIT_MEMLOCK counts over all processes of a user, and old kernels give a
 * charge back late: each test has users that no other is. */
static inline uid_t fresh_user(void)
{
	static unsigned n;

	return 40000 + ((unsigned)getpid() * 8 + n++) % 20000;
}

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
