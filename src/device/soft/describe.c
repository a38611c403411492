/* SPDX-License-Identifier: BSD-2-Clause */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/limits.h"
#include "device/soft/soft_impl.h"

/* Reads the first line of a file of /proc or /sys; `missing` if there is none.
 */
static void read_line(const char *path, const char *missing, char *out,
		      size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, out, size - 1);

	if (fd >= 0)
		close(fd);
	if (n <= 0) {
		snprintf(out, size, "%s", missing);
		return;
	}
	out[n] = 0;
	out[strcspn(out, "\n")] = 0;
}

static void describe_mode(struct pn_soft_device *dev, pn_fact_fn *fn, void *arg)
{
	char text[320];

	if (!dev->why_mlock) {
		fn(arg, "mode", "io_uring: registered pages are pinned");
		return;
	}
	snprintf(text, sizeof(text),
		 "mlock, because %s. Lost: pages are locked, not pinned; a "
		 "stale registration goes unnoticed; read-only checks only "
		 "when registering; puts and gets need ptrace rights",
		 dev->why_mlock);
	fn(arg, "mode", text);
}

static void describe_limits(pn_fact_fn *fn, void *arg)
{
	struct rlimit limit;
	char text[128];

	if (getrlimit(RLIMIT_MEMLOCK, &limit))
		return;
	if (limit.rlim_cur == RLIM_INFINITY)
		snprintf(text, sizeof(text), "unlimited");
	else
		snprintf(text, sizeof(text),
			 "%llu KiB for all processes of the user (ulimit -l)",
			 (unsigned long long)limit.rlim_cur / 1024);
	fn(arg, "RLIMIT_MEMLOCK", text);
	fn(arg, "CAP_IPC_LOCK",
	   pn_limits_may_lock_all() ? "yes: RLIMIT_MEMLOCK does not count"
				    : "no");
}

/* Whether this process may get its own descriptors; then peers of the same user
 * may, too, unless Yama or a changed user forbids it. */
static void describe_rights(pn_fact_fn *fn, void *arg)
{
	int pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);
	int fd =
		pidfd < 0 ? -1 : (int)syscall(SYS_pidfd_getfd, pidfd, pidfd, 0);
	char text[128];

	fn(arg, "pidfd_getfd", fd >= 0 ? "permitted" : "not permitted");
	if (fd >= 0)
		close(fd);
	if (pidfd >= 0)
		close(pidfd);
	read_line("/proc/sys/kernel/yama/ptrace_scope",
		  "not there: processes of one user reach each other", text,
		  sizeof(text));
	fn(arg, "Yama ptrace_scope", text);
	if (!strcmp(text, "1"))
		fn(arg, "tracing",
		   "this process lets all of its user's trace it while a soft "
		   "device is open (PR_SET_PTRACER)");
	read_line("/proc/sys/kernel/io_uring_disabled", "not there: permitted",
		  text, sizeof(text));
	fn(arg, "kernel.io_uring_disabled", text);
	read_line("/sys/kernel/mm/transparent_hugepage/enabled", "not there",
		  text, sizeof(text));
	fn(arg, "transparent huge pages", text);
}

static void describe_moving(struct pn_soft_device *dev, pn_fact_fn *fn,
			    void *arg)
{
	struct pn_soft_staging staging;
	char text[160];

	pn_soft_enter(dev);
	pn_soft_staging_open(&dev->staging);
	staging = dev->staging;
	pn_soft_leave(dev);
	snprintf(text, sizeof(text),
		 "%u rings of %u slots, up to %llu of "
		 "each kind (private, exposed)",
		 pn_soft_slots_rings(&dev->domain->slots),
		 dev->domain->slots.nslots,
		 (unsigned long long)dev->params.rings);
	fn(arg, "rings", text);
	fn(arg, "strict",
	   dev->params.strict ? "yes: local segments go through their slots"
			      : "no: local segments are read by address");
	snprintf(text, sizeof(text),
		 "chunks of %zu KiB; gets by %s; pipe of "
		 "%zu pages",
		 staging.chunk / 1024,
		 staging.direct >= 0 ? "a bounce file" : "pipe",
		 staging.pipe_pages);
	fn(arg, "moving", text);
	fn(arg, "unpinning",
	   dev->domain->slots.deferred_uncharge
		   ? "the kernel uncharges late (about 1 s): dying "
		     "bytes are counted until then"
		   : "uncharged at once");
}

void pn_soft_describe(struct pn_device *device, pn_fact_fn *fn, void *arg)
{
	struct pn_soft_device *dev = pn_soft_of(device);
	struct utsname name;

	describe_mode(dev, fn, arg);
	if (!uname(&name))
		fn(arg, "kernel", name.release);
	describe_moving(dev, fn, arg);
	describe_limits(fn, arg);
	describe_rights(fn, arg);
}
