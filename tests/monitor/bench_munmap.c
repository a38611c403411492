/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What does the monitor add to a munmap of memory that nobody watches?
 *
 * Alternates munmap through libc and by a raw system call, of empty ranges, so
 * that the call itself is as cheap as possible; 10,000 regions are watched
 * elsewhere. Prints one JSON line: medians of 301 batches of 1,000. Also what a
 * probe, a watched munmap and a check cost.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "recorder.h"

#define BATCH	1000
#define BATCHES 301
#define REGIONS 10000
#define LEN	(4 * PN_PAGE_BYTES)

static char *watched, *elsewhere;

static void by_libc(void)
{
	munmap(elsewhere, LEN);
}

static void by_kernel(void)
{
	PN_SYSCALL(SYS_munmap, (long)elsewhere, LEN);
}

static void by_probe(void)
{
	pn_monitor_probe((uintptr_t)watched);
}

static void by_check(void)
{
	pn_monitor_check();
}

static void by_watch(void)
{
	pn_monitor_watch((uintptr_t)watched, LEN);
	pn_monitor_unwatch((uintptr_t)watched, LEN);
}

static void by_watched_release(void)
{
	madvise(watched, PN_PAGE_BYTES, MADV_DONTNEED);
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double batch_ns(void (*fn)(void))
{
	uint64_t start = pn_clock_ns();

	for (int i = 0; i < BATCH; i++)
		fn();
	return (double)(pn_clock_ns() - start) / BATCH;
}

/* Batches of a and b alternate, so that noise affects both. */
static void medians(void (*a)(void), void (*b)(void), double *a_ns,
		    double *b_ns)
{
	static double as[BATCHES], bs[BATCHES];

	for (int i = 0; i < BATCHES; i++) {
		as[i] = batch_ns(a);
		bs[i] = batch_ns(b);
	}
	qsort(as, BATCHES, sizeof(as[0]), compare);
	qsort(bs, BATCHES, sizeof(bs[0]), compare);
	*a_ns = as[BATCHES / 2];
	*b_ns = bs[BATCHES / 2];
}

static char *reserve(size_t len)
{
	return mmap(NULL, len, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

int main(void)
{
	double libc_ns, kernel_ns, probe_ns, check_ns, watch_ns, release_ns;
	struct recorder r;

	if (recorder_open(&r))
		return 1;
	watched = reserve(REGIONS * 4 * LEN);
	elsewhere = reserve((size_t)1 << 30) + ((size_t)512 << 20);
	munmap(elsewhere, LEN);
	for (size_t i = 0; i < REGIONS; i++)
		if (pn_monitor_watch((uintptr_t)watched + i * 4 * LEN, LEN))
			return 1;
	medians(by_libc, by_kernel, &libc_ns, &kernel_ns);
	medians(by_probe, by_check, &probe_ns, &check_ns);
	medians(by_watch, by_watched_release, &watch_ns, &release_ns);
	printf("{\"bench\":\"monitor\",\"mode\":\"%s\","
	       "\"libc_munmap_ns\":%.1f,\"raw_munmap_ns\":%.1f,"
	       "\"ns_unrelated_munmap\":%.1f,\"probe_ns\":%.1f,"
	       "\"check_ns\":%.1f,\"watch_unwatch_ns\":%.1f,"
	       "\"watched_dontneed_ns\":%.1f}\n",
	       pn_monitor_mode_name(pn_monitor_mode()), libc_ns, kernel_ns,
	       libc_ns - kernel_ns, probe_ns, check_ns, watch_ns, release_ns);
	recorder_close(&r);
	return 0;
}
