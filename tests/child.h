/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * child -- checks in a forked child, by its exit status: cmocka does not work
 * there.
 */
#ifndef PN_TESTS_CHILD_H
#define PN_TESTS_CHILD_H

#include "test.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* For children, instead of cmocka's assertions: prints a line and exits. */
#define CHECK(x)                                                           \
	do {                                                               \
		if (!(x)) {                                                \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, \
				#x);                                       \
			_exit(1);                                          \
		}                                                          \
	} while (0)

/* RLIMIT_MEMLOCK counts over all processes of a user, and old kernels uncharge
 * late: each test has its own users. */
static inline uid_t fresh_user(void)
{
	static unsigned n;

	return 40000 + ((unsigned)getpid() * 8 + n++) % 20000;
}

/* How a child has ended, in words. */
static inline const char *child_end(int status)
{
	static char text[64];

	if (WIFSIGNALED(status))
		snprintf(text, sizeof(text), "ended by signal %d (%s)",
			 WTERMSIG(status), strsignal(WTERMSIG(status)));
	else
		snprintf(text, sizeof(text), "exit status %d",
			 WEXITSTATUS(status));
	return text;
}

/* Runs fn in a child. The child succeeds unless fn ends it, or hangs. */
static inline void child_run(void (*fn)(void))
{
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		alarm(60); /* ends a child that hangs */
		fn();
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

#endif
