/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cancel.h"

static _Atomic int enabled = PN_LOG_WARN;

void pn_log_set_level(enum pn_log_level level)
{
	atomic_store_explicit(&enabled, level, memory_order_relaxed);
}

/* The last error. Errors are rare and never on a data path, so one place for
 * all threads is enough. Whoever finds `busy` set goes on without: a line may
 * be lost, and a child of fork() never waits for a thread that it does not
 * have. */
static struct {
	atomic_flag busy;
	pid_t thread; /* that logged it; 0: forgotten */
	char text[1024];
} last = { .busy = ATOMIC_FLAG_INIT };

static void remember(const char *text, int len)
{
	if (atomic_flag_test_and_set_explicit(&last.busy, memory_order_acquire))
		return;
	last.thread = gettid();
	memcpy(last.text, text, len);
	last.text[len] = 0;
	atomic_flag_clear_explicit(&last.busy, memory_order_release);
}

int pn_log_last(char *text, size_t bytes)
{
	int ret = -ENOENT;

	if (atomic_flag_test_and_set_explicit(&last.busy, memory_order_acquire))
		return ret;
	if (last.thread == gettid()) {
		snprintf(text, bytes, "%s", last.text);
		last.thread = 0;
		ret = 0;
	}
	atomic_flag_clear_explicit(&last.busy, memory_order_release);
	return ret;
}

void pn_log(enum pn_log_level level, const char *fmt, ...)
{
	static const char *const names[] = { "", "error", "warning", "info",
					     "debug" };
	char line[1024];
	int saved = errno;
	int on = atomic_load_explicit(&enabled, memory_order_relaxed);
	int len, head;
	va_list ap;

	if ((int)level > on && level != PN_LOG_ERROR)
		return;
	PN_NO_CANCEL();
	head = snprintf(line, sizeof(line), "pinion: %s: ", names[level]);
	errno = saved; /* for %m */
	va_start(ap, fmt);
	len = vsnprintf(line + head, sizeof(line) - head - 1, fmt, ap);
	va_end(ap);
	len = len < 0 ? head : head + len;
	if (len > (int)sizeof(line) - 2)
		len = sizeof(line) - 2;
	if (level == PN_LOG_ERROR)
		remember(line + head, len - head);
	if ((int)level > on)
		goto out;
	line[len++] = '\n';
	/* One write(2) per line, so that lines of several threads and processes
	 * do not mix. A closed standard error is ignored. */
	if (write(STDERR_FILENO, line, len) < 0)
		errno = 0;
out:
	errno = saved;
}

_Noreturn void pn_assert_failed(const char *what, const char *file, int line)
{
	pn_log(PN_LOG_ERROR, "%s:%d: assertion failed: %s", file, line, what);
	abort();
}
