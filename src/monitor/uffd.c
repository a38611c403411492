/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * userfaultfd: the kernel reports to a file descriptor what happens to mappings
 * that are registered with it. They are registered for write protection and
 * never protected, so that no fault is ever raised; only the events are wanted.
 *
 * A reader thread reads the events and notifies the subscribers. The kernel
 * lets a releasing thread go on when its event has been *read*, not when
 * subscribers have been notified. So the reader makes `event_seq` odd before it
 * reads and even after it has notified: when it is even, every release whose
 * system call has returned has been notified (pn_uffd_settled()). The releasing
 * thread may still be inside the kernel when another thread has the address
 * already. In that window the kernel answers EAGAIN to requests on this
 * descriptor, also to one that it would refuse anyway: that is the first probe.
 * A second probe detects a mapping that replaced a watched one without an
 * event: it is not registered (ENOENT).
 *
 * Whole mappings are registered, since each edge of a registered range splits a
 * mapping and a process may have 65,530. They stay registered until they are
 * unmapped.
 *
 * The program may have userfaultfds of its own. A mapping belongs to at most
 * one of them: registering another's mapping is refused (EBUSY), and such
 * memory is not watched. Requests to write-protect do not check to which
 * userfaultfd a mapping belongs: they would succeed there and end the program's
 * protection, so there are none here.
 *
 * Nothing here allocates or frees while holding a lock that the reader needs;
 * the reader needs none.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/compiler.h"
#include "base/service_thread.h"
#include "config/option.h"
#include "monitor/monitor_impl.h"

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
#ifndef UFFD_FEATURE_WP_HUGETLBFS_SHMEM
#define UFFD_FEATURE_WP_HUGETLBFS_SHMEM (1 << 12)
#endif

#define EVENTS                                                  \
	(UFFD_FEATURE_EVENT_UNMAP | UFFD_FEATURE_EVENT_REMOVE | \
	 UFFD_FEATURE_EVENT_REMAP | UFFD_FEATURE_PAGEFAULT_FLAG_WP)
#define MESSAGES 16

static _Atomic int uffd = -1;
static int stop_fd = -1; /* readable: the reader has to end */
static pthread_t reader;
static _Atomic uint64_t event_seq; /* odd while events are handled */

/* --- which mappings are registered already -------------------------------- */

/* Mappings that were registered as a whole, found by any address in them. Only
 * a hint, written and read without a lock: a range that lies in one is
 * registered without a search for its mapping. If the hint is right that
 * changes nothing; if it is out of date, the edges of the range split another
 * mapping, which costs two of the 65,530. */
#define HINTS_LOG2    9
#define GRANULE_SHIFT 21

static struct hint {
	_Atomic uintptr_t start, end;
} hints[1 << HINTS_LOG2];

static struct hint *hint_of(uintptr_t granule)
{
	uint64_t hash = granule * UINT64_C(0x9e3779b97f4a7c15);

	return &hints[hash >> (64 - HINTS_LOG2)];
}

static void hint_add(struct pn_range mapping, uintptr_t from)
{
	uintptr_t last = (mapping.addr + mapping.len - 1) >> GRANULE_SHIFT;
	uintptr_t g = from >> GRANULE_SHIFT;

	for (unsigned n = 0; g <= last && n < PN_ARRAY_LEN(hints); g++, n++) {
		struct hint *hint = hint_of(g);

		atomic_store(&hint->end, 0);
		atomic_store(&hint->start, mapping.addr);
		atomic_store(&hint->end, mapping.addr + mapping.len);
	}
}

static bool has_hint(struct pn_range range)
{
	struct hint *hint = hint_of(range.addr >> GRANULE_SHIFT);

	return range.addr >= atomic_load(&hint->start) &&
	       range.addr + range.len <= atomic_load(&hint->end);
}

static void hints_remove(struct pn_range range)
{
	for (size_t i = 0; i < PN_ARRAY_LEN(hints); i++) {
		uintptr_t start = atomic_load(&hints[i].start);
		uintptr_t end = atomic_load(&hints[i].end);

		if (start < range.addr + range.len && range.addr < end)
			atomic_store(&hints[i].end, 0);
	}
}

/* --- the reader ---------------------------------------------------------- */

static void handle_message(const struct uffd_msg *msg)
{
	switch (msg->event) {
	case UFFD_EVENT_UNMAP:
		hints_remove((struct pn_range){
			msg->arg.remove.start,
			msg->arg.remove.end - msg->arg.remove.start });
		/* fall through */
	case UFFD_EVENT_REMOVE:
		pn_release_notify_watched((struct pn_range){
			msg->arg.remove.start,
			msg->arg.remove.end - msg->arg.remove.start });
		break;
	case UFFD_EVENT_REMAP:
		hints_remove((struct pn_range){ msg->arg.remap.from,
						msg->arg.remap.len });
		pn_release_notify_watched((struct pn_range){
			msg->arg.remap.from, msg->arg.remap.len });
		break;
	}
}

static void read_events(int fd)
{
	struct uffd_msg msgs[MESSAGES];
	ssize_t n;

	atomic_fetch_add(&event_seq, 1);
	while ((n = read(fd, msgs, sizeof(msgs))) > 0)
		for (size_t i = 0; i < (size_t)n / sizeof(msgs[0]); i++)
			handle_message(&msgs[i]);
	atomic_fetch_add(&event_seq, 1);
}

static void *reader_main(void *arg)
{
	struct pollfd fds[] = { { .fd = atomic_load(&uffd), .events = POLLIN },
				{ .fd = stop_fd, .events = POLLIN } };

	(void)arg;
	for (;;) {
		if (poll(fds, PN_ARRAY_LEN(fds), -1) < 0)
			continue; /* EINTR; nothing else can happen */
		if (fds[1].revents)
			return NULL;
		if (fds[0].revents)
			read_events(fds[0].fd);
	}
}

static int start_reader(void)
{
	return pn_service_thread_start(&reader, "pinion-monitor", reader_main,
				       NULL);
}

/* --- life ---------------------------------------------------------------- */

static int open_descriptor(void)
{
	int flags = O_CLOEXEC | O_NONBLOCK;
	long fd = -1;

	errno = ENOSYS;
	if (pn_monitor_faults.no_userfaultfd)
		return -1;
	/* User mode only is permitted to everybody since Linux 5.11. */
	fd = syscall(SYS_userfaultfd, flags | UFFD_USER_MODE_ONLY);
	if (fd < 0)
		fd = syscall(SYS_userfaultfd, flags);
	return (int)fd;
}

static int refuse(struct pn_why *why, const char *what, int error)
{
	snprintf(why->text, sizeof(why->text), "%s: %s", what, strerror(error));
	return -EOPNOTSUPP;
}

/* Write protection of hugetlbfs and shared memory needs Linux 5.19. */
static int open_with(uint64_t features)
{
	struct uffdio_api api = { .api = UFFD_API, .features = features };
	int fd = open_descriptor();

	if (fd >= 0 && ioctl(fd, UFFDIO_API, &api)) {
		int error = errno;

		close(fd);
		errno = error;
		return -1;
	}
	return fd;
}

bool pn_uffd_used_by_program(void)
{
	static const char mark[] = "anon_inode:[userfaultfd]";
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *entry;
	bool found = false;
	char text[64];
	ssize_t n;

	while (dir && !found && (entry = readdir(dir))) {
		n = readlinkat(dirfd(dir), entry->d_name, text, sizeof(text));
		found = n == (ssize_t)strlen(mark) &&
			!memcmp(text, mark, (size_t)n);
	}
	if (dir)
		closedir(dir);
	return found;
}

static bool stop_at_first(void *arg, const struct pn_mapping *mapping)
{
	(void)arg;
	(void)mapping;
	return false;
}

int pn_uffd_open(struct pn_why *why)
{
	int ret = pn_maps_walk(stop_at_first, NULL);
	int fd;

	if (ret)
		return refuse(why, "/proc/self/maps cannot be read", -ret);
	fd = open_with(EVENTS | UFFD_FEATURE_WP_HUGETLBFS_SHMEM);
	if (fd < 0)
		fd = open_with(EVENTS);
	if (fd < 0)
		return refuse(why,
			      "the kernel offers no userfaultfd with unmap "
			      "events and write protection",
			      errno);
	stop_fd = eventfd(0, EFD_CLOEXEC);
	if (stop_fd < 0) {
		ret = refuse(why, "no event descriptor", errno);
		goto close_fd;
	}
	atomic_store(&uffd, fd);
	ret = start_reader();
	if (!ret)
		return 0;
	ret = refuse(why, "the reader thread cannot be started", -ret);
	atomic_store(&uffd, -1);
	close(stop_fd);
close_fd:
	close(fd);
	return ret;
}

/* Closing the descriptor unregisters every mapping and lets threads go on that
 * wait for their event to be read. */
void pn_uffd_close(void)
{
	uint64_t one = 1;
	int fd = atomic_exchange(&uffd, -1);

	if (fd < 0)
		return;
	pn_assert(write(stop_fd, &one, sizeof(one)) == sizeof(one));
	pthread_join(reader, NULL);
	close(fd);
	close(stop_fd);
	hints_remove((struct pn_range){ 0, UINTPTR_MAX });
}

void pn_uffd_reset(void)
{
	int fd = atomic_exchange(&uffd, -1);

	if (fd < 0)
		return;
	close(fd);
	close(stop_fd);
	atomic_store(&event_seq, 0);
	hints_remove((struct pn_range){ 0, UINTPTR_MAX });
}

bool pn_uffd_running(void)
{
	return atomic_load(&uffd) >= 0;
}

/* --- watching ------------------------------------------------------------- */

static int register_range(struct pn_range range)
{
	struct uffdio_register reg = {
		.range = { range.addr, range.len },
		.mode = UFFDIO_REGISTER_MODE_WP,
	};

	return ioctl(atomic_load(&uffd), UFFDIO_REGISTER, &reg) ? -errno : 0;
}

struct watching {
	struct pn_range range;
	bool exact;
	uintptr_t covered; /* mappings reach up to here without a hole */
	int ret;
};

/* shmdt() raises no event (Linux 6.18), nor does the truncation of a file by
 * any process: such mappings are refused. */
static bool watch_mapping(void *arg, const struct pn_mapping *m)
{
	struct watching *w = arg;
	uintptr_t end = w->range.addr + w->range.len;
	struct pn_range whole = { m->start, m->end - m->start };

	if (m->end <= w->range.addr)
		return true;
	if (m->start > w->covered || m->start >= end)
		return false;
	w->ret = m->sysv || m->file
			 ? -EOPNOTSUPP
			 : register_range(w->exact ? w->range : whole);
	if (!w->ret && !w->exact)
		hint_add(whole,
			 m->start > w->range.addr ? m->start : w->range.addr);
	w->covered = m->end;
	return !w->ret && m->end < end;
}

static int watch_mappings(struct pn_range range, bool exact)
{
	struct watching w = { range, exact, range.addr, 0 };
	int ret = pn_maps_walk(watch_mapping, &w);

	if (!ret)
		ret = w.ret;
	if (!ret && w.covered < range.addr + range.len)
		ret = -EFAULT;
	return ret;
}

int pn_uffd_watch(struct pn_range range, bool exact)
{
	uint64_t before = atomic_load(&event_seq);
	int ret;

	/* Mostly it is registered already. A hint is used only while no event
	 * is being handled. */
	if (!exact && has_hint(range) && !register_range(range) &&
	    !(before & 1) && atomic_load(&event_seq) == before)
		return 0;
	ret = watch_mappings(range, exact);
	return ret == -EINVAL || ret == -EPERM || ret == -EBUSY ? -EOPNOTSUPP
								: ret;
}

/* --- probes -------------------------------------------------------------- */

bool pn_uffd_settled(void)
{
	return !(atomic_load(&event_seq) & 1);
}

/* Whether a release is between the beginning of its system call and the reading
 * of its event. The kernel checks that before it refuses the empty range. */
static bool in_flight(void)
{
	struct uffdio_writeprotect nothing = { .mode = 0 };

	return ioctl(atomic_load(&uffd), UFFDIO_WRITEPROTECT, &nothing) &&
	       errno == EAGAIN;
}

/* Whether no userfaultfd has the page's mapping. The kernel checks that first;
 * then it refuses the request for anonymous memory, and for shared memory maps
 * the page as a read would. Before Linux 5.13 the answer is no. */
static bool unregistered(uintptr_t addr)
{
	size_t page = pn_monitor_page_bytes();
	struct uffdio_continue one = {
		.range = { addr & ~(page - 1), page },
		.mode = UFFDIO_CONTINUE_MODE_DONTWAKE,
	};

	return ioctl(atomic_load(&uffd), UFFDIO_CONTINUE, &one) &&
	       errno == ENOENT;
}

bool pn_uffd_probe(uintptr_t addr)
{
	uint64_t before = atomic_load(&event_seq);

	return !(before & 1) && !in_flight() && !unregistered(addr) &&
	       atomic_load(&event_seq) == before;
}
