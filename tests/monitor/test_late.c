/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Loads a library that contains the monitor, with other threads running or
 * without (argument `threaded` or `alone`), and with nothing in /proc (argument
 * `no_proc` behind it). This program itself has none of pinion's code.
 */
#include "test.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <unistd.h>

#include "forbid.h"
#include "late.h"

static const char *library;
static bool threaded, no_proc;

static void *sit_and_wait(void *arg)
{
	char byte;

	return read(*(int *)arg, &byte, 1) == 1 ? arg : NULL;
}

static void *load(struct pn_monitor_report *report, unsigned *notified)
{
	void *handle = dlopen(library, RTLD_NOW);
	void (*get_report)(struct pn_monitor_report *);
	unsigned (*count_notified)(void);

	assert_non_null(handle);
	get_report = (void (*)(struct pn_monitor_report *))dlsym(handle,
								 "late_report");
	count_notified = (unsigned (*)(void))dlsym(handle, "late_count_told");
	assert_non_null(get_report);
	assert_non_null(count_notified);
	get_report(report);
	*notified = count_notified();
	return handle;
}

static void loading_late_selects_a_safe_mode(void **state)
{
	struct pn_monitor_report report;
	bool patched;
	unsigned notified;
	void *handle = load(&report, &notified);

	(void)state;
	patched = report.mode == PN_MONITOR_PATCH;
	print_message("mode %d: %s\n", report.mode,
		      report.refused[PN_MONITOR_PATCH]);
	assert_int_equal(patched, !threaded && !RECORDER_SANITIZED);
	if (threaded && !RECORDER_SANITIZED)
		assert_non_null(
			strstr(report.refused[PN_MONITOR_PATCH], "threads"));
	/* With threads, and without a way to read the mappings. */
	if (no_proc && !patched) {
		assert_int_equal(report.mode, PN_MONITOR_BYPASS);
		assert_int_equal(notified, 0);
		dlclose(handle);
		return;
	}
	assert_int_equal(notified, 1);
	/* The code that libc jumps to is still there. */
	assert_ok(dlclose(handle));
	munmap(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
	       4096);
	handle = load(&report, &notified);
	assert_int_equal(notified, 1);
	dlclose(handle);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(loading_late_selects_a_safe_mode),
	};
	pthread_t thread;
	int fds[2];
	int ret;

	if (argc < 3 || pipe(fds))
		return 2;
	no_proc = argc > 3;
	if (no_proc && !forbid_proc())
		return forbid_skip("/proc cannot be hidden here");
	library = argv[1];
	threaded = !strcmp(argv[2], "threaded");
	if (threaded && pthread_create(&thread, NULL, sit_and_wait, &fds[0]))
		return 2;
	ret = RUN_TESTS(tests);
	if (threaded) {
		if (write(fds[1], "", 1) != 1)
			return 2;
		pthread_join(thread, NULL);
	}
	return ret;
}
