/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/limits.h"

#include <errno.h>
#include <linux/capability.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"

#define QUIET_NS (10 * PN_NS_PER_S)

/* Whether QUIET_NS have passed since the last such line. */
static bool may_log(_Atomic uint64_t *logged_ns)
{
	uint64_t now = pn_clock_ns();
	uint64_t last = atomic_load(logged_ns);

	return (!last || now - last >= QUIET_NS) &&
	       atomic_compare_exchange_strong(logged_ns, &last, now);
}

static uint64_t limit_of(int resource)
{
	struct rlimit limit = { RLIM_INFINITY, RLIM_INFINITY };

	getrlimit(resource, &limit);
	return limit.rlim_cur;
}

static void explain_descriptors(int error, const char *what)
{
	static _Atomic uint64_t logged_ns;

	if (!may_log(&logged_ns))
		return;
	if (error == -ENFILE)
		pn_error("cannot %s: the system has no more descriptors; raise "
			 "fs.file-max",
			 what);
	else
		pn_error("cannot %s: no more descriptors, the limit is %llu; "
			 "raise `ulimit -n` or close some",
			 what, (unsigned long long)limit_of(RLIMIT_NOFILE));
}

static void explain_memory(const char *what)
{
	static _Atomic uint64_t logged_ns;
	uint64_t limit = limit_of(RLIMIT_AS);

	if (limit != RLIM_INFINITY && may_log(&logged_ns))
		pn_error("cannot %s: no memory; the address space is limited "
			 "to %llu MiB, raise `ulimit -v`",
			 what, (unsigned long long)(limit >> 20));
}

int pn_limits_explain(int error, const char *what)
{
	if (error == -EMFILE || error == -ENFILE || error == -ETOOMANYREFS)
		explain_descriptors(error, what);
	else if (error == -ENOMEM)
		explain_memory(what);
	return error;
}

bool pn_limits_may_lock_all(void)
{
	struct __user_cap_header_struct head = {
		.version = _LINUX_CAPABILITY_VERSION_3,
	};
	struct __user_cap_data_struct data[2];

	return !syscall(SYS_capget, &head, data) &&
	       (data[0].effective >> CAP_IPC_LOCK & 1);
}

size_t pn_limits_memlock(void)
{
	uint64_t limit = RLIM_INFINITY;

	if (!pn_limits_may_lock_all())
		limit = limit_of(RLIMIT_MEMLOCK);
	return limit == RLIM_INFINITY ? SIZE_MAX : (size_t)limit;
}
