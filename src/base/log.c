/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/cancel.h"

static _Atomic int enabled = PN_LOG_WARN;

void pn_log_set_level(enum pn_log_level level)
{
	atomic_store_explicit(&enabled, level, memory_order_relaxed);
}

void pn_log(enum pn_log_level level, const char *fmt, ...)
{
	static const char *const names[] = { "", "error", "warning", "info",
					     "debug" };
	char line[1024];
	int saved = errno;
	int len, head;
	va_list ap;

	if ((int)level > atomic_load_explicit(&enabled, memory_order_relaxed))
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
	line[len++] = '\n';
	/* One write(2) per line, so that lines of several threads and processes
	 * do not mix. A closed standard error is ignored. */
	if (write(STDERR_FILENO, line, len) < 0)
		errno = 0;
	errno = saved;
}

_Noreturn void pn_assert_failed(const char *what, const char *file, int line)
{
	pn_log(PN_LOG_ERROR, "%s:%d: assertion failed: %s", file, line, what);
	abort();
}
