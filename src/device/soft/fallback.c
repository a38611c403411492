/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/soft/fallback.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/list.h"
#include "base/lock.h"
#include "base/process.h"
#include "base/range.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

struct pn_soft_locked {
	struct pn_list link;
	struct pn_range pages;
};

static struct pn_mutex lock = { PTHREAD_MUTEX_INITIALIZER };
static struct pn_list all PN_GUARDED_BY(&lock) = { &all, &all };

/* fork() may run while another thread holds the lock. */
static void before_fork(void) PN_NO_THREAD_SAFETY
{
	pn_lock(&lock);
}

static void after_fork(void) PN_NO_THREAD_SAFETY
{
	pn_unlock(&lock);
}

/* A child inherits no locked pages. Entries are removed one by one, so that
 * pn_soft_locked_put() of one in the child does not reach the list through it.
 */
static void in_child(void) PN_NO_THREAD_SAFETY
{
	while (pn_list_pop(&all))
		;
	pn_unlock(&lock);
}

static void watch_fork(void)
{
	pn_process_atfork(before_fork, after_fork, in_child);
}

/* mlock() returns ENOMEM both for holes and for the limit. Populating the pages
 * first distinguishes them, and refuses memory that is not writable. */
static int lock_pages(struct pn_range pages)
{
	if (madvise((void *)pages.addr, pages.len, MADV_POPULATE_WRITE) &&
	    errno != EAGAIN)
		return -EFAULT;
	/* By system call: sanitizers make the function do nothing. */
	return syscall(SYS_mlock, pages.addr, pages.len) ? -ENOMEM : 0;
}

int pn_soft_locked_get(void *addr, size_t len, struct pn_soft_locked **out)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct pn_soft_locked *locked = malloc(sizeof(*locked));
	int ret;

	if (!locked)
		return -ENOMEM;
	pthread_once(&once, watch_fork);
	locked->pages = pn_range_pages((uintptr_t)addr, len, PN_PAGE_BYTES);
	pn_lock(&lock);
	ret = lock_pages(locked->pages);
	if (!ret)
		pn_list_append(&all, &locked->link);
	pn_unlock(&lock);
	if (ret)
		free(locked);
	else
		*out = locked;
	return ret;
}

/* Returns the end of the range from `from` on that no entry covers; or `from`
 * itself, and the end of the covering entry in *covered. */
static uintptr_t uncovered_until(uintptr_t from, uintptr_t end,
				 uintptr_t *covered) PN_REQUIRES(&lock)
{
	struct pn_list *pos;

	pn_list_for_each (pos, &all) {
		struct pn_range r =
			pn_container_of(pos, struct pn_soft_locked, link)
				->pages;

		if (from >= r.addr && from < r.addr + r.len) {
			*covered = r.addr + r.len;
			return from;
		}
		if (r.addr > from && r.addr < end)
			end = r.addr;
	}
	return end;
}

void pn_soft_locked_put(struct pn_soft_locked *locked)
{
	uintptr_t at = locked->pages.addr;
	uintptr_t end = at + locked->pages.len;

	pn_lock(&lock);
	pn_list_remove(&locked->link);
	while (at < end) {
		uintptr_t covered = 0;
		uintptr_t until = uncovered_until(at, end, &covered);

		if (until > at)
			syscall(SYS_munlock, at, until - at);
		at = until > at ? until : covered;
	}
	pn_unlock(&lock);
	free(locked);
}

static int process_result(ssize_t done, size_t len)
{
	if (done == (ssize_t)len)
		return 0;
	return done < 0 && errno == ESRCH ? -ECONNRESET : -EACCES;
}

int pn_soft_process_write(pid_t pid, const struct iovec *iov, unsigned n,
			  uint64_t addr, size_t len)
{
	struct iovec remote = { (void *)(uintptr_t)addr, len };

	return process_result(process_vm_writev(pid, iov, n, &remote, 1, 0),
			      len);
}

int pn_soft_process_read(pid_t pid, const struct iovec *iov, unsigned n,
			 uint64_t addr, size_t len)
{
	struct iovec remote = { (void *)(uintptr_t)addr, len };

	return process_result(process_vm_readv(pid, iov, n, &remote, 1, 0),
			      len);
}
