/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A library that contains the monitor, to be loaded by dlopen(): the mode
 * depends on when that happens.
 */
#include "late.h"

void late_report(struct pn_monitor_report *out)
{
	pn_monitor_report(out);
}

/* Releases watched memory; returns how often it was notified. */
unsigned late_count_told(void)
{
	struct recorder r;
	char *p = mmap(NULL, PN_PAGE_BYTES, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (recorder_open(&r))
		return 0;
	recorder_aim(&r, p, PN_PAGE_BYTES);
	if (pn_monitor_watch((uintptr_t)p, PN_PAGE_BYTES))
		return 0;
	munmap(p, PN_PAGE_BYTES);
	recorder_settle();
	pn_monitor_unwatch((uintptr_t)p, PN_PAGE_BYTES);
	recorder_close(&r);
	return r.after;
}
