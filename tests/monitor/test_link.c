/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_link BARE LINKED -- how many system calls a program makes more because
 * it is linked with libpinion, without opening a context. Counts with ptrace(2)
 * the calls of two programs that do nothing, without and with the library.
 *
 * Calls that fail are not counted: they are the loader's, which looks for
 * libraries in one folder after the other.
 */
#include "test.h"

#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *bare, *linked;

/* What pinion's constructor may do: look for threads, patch libc, test the
 * break. */
#define MOST_OWN 30
/* Besides, the loader maps libpinion and what it needs: some 11 calls for each
 * of the libraries, of which there were 8. */
#define MOST_ALL 140

/* Counts until the program ends. */
static unsigned count(pid_t pid)
{
	struct __ptrace_syscall_info info;
	unsigned n = 0;
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (!WIFSTOPPED(status))
		skip(); /* no ptrace() here */
	assert_ok(ptrace(PTRACE_SETOPTIONS, pid, 0,
			 PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL));
	for (;;) {
		assert_ok(ptrace(PTRACE_SYSCALL, pid, 0, 0));
		assert_int_equal(waitpid(pid, &status, 0), pid);
		if (WIFEXITED(status))
			break;
		assert_true(WIFSTOPPED(status));
		if (ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof(info), &info) <
		    0)
			skip(); /* before 5.3 */
		n += info.op == PTRACE_SYSCALL_INFO_EXIT && !info.exit.is_error;
	}
	assert_int_equal(status, 0);
	return n;
}

static unsigned calls_of(const char *path, const char *monitor)
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (!pid) {
		setenv("PINION_MONITOR", monitor, 1);
		if (!ptrace(PTRACE_TRACEME, 0, 0, 0))
			execl(path, path, NULL);
		_exit(TEST_SKIP);
	}
	return count(pid);
}

static void linking_costs_few_system_calls(void **state)
{
	unsigned without = calls_of(bare, "auto");
	unsigned none = calls_of(linked, "none");
	unsigned with = calls_of(linked, "auto");

	(void)state;
	printf("without pinion %u; linked %u, with PINION_MONITOR=none %u\n",
	       without, with, none);
	assert_in_range(with - none, 1, MOST_OWN);
	assert_in_range(with - without, with - none, MOST_ALL);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(linking_costs_few_system_calls),
	};

	if (argc < 3)
		return TEST_SKIP;
	bare = argv[1];
	linked = argv[2];
	return RUN_TESTS(tests);
}
