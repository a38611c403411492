/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * soft_util -- helpers that the tests of the soft device share: a device with
 * its loopback peer, buffers, one operation from post to completion, and other
 * processes.
 *
 * Every wait lasts a minute at most, so that a test that would hang fails.
 * Other processes are the test program itself, started again in a role
 * (sanitizers do not work in a forked child of a process with threads). They
 * share a struct common and report by their exit status.
 */
#ifndef PN_TESTS_SOFT_UTIL_H
#define PN_TESTS_SOFT_UTIL_H

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <pinion/message.h>

#include "base/clock.h"
#include "base/huge.h"
#include "base/range.h"
#include "child.h"
#include "device/device.h"
#include "device/soft/slots.h"
#include "test.h"

#define TIMEOUT_NS (60 * PN_NS_PER_S)
#define ALL	   PINION_ACCESS_ALL

static inline struct pn_device *open_soft(const char *spec)
{
	struct pn_device *device = NULL;

	assert_ok(pn_device_open(spec, NULL, &device));
	return device;
}

/* Maps normal pages and writes to them, so that VmPin counts as we do. */
static inline void *map_buffer(size_t len, int fill)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_true(p != MAP_FAILED);
	madvise(p, len, MADV_NOHUGEPAGE);
	memset(p, fill, len);
	return p;
}

static inline void register_one(struct pn_device *device, struct pn_mr *mr,
				void *addr, size_t len, unsigned access)
{
	struct pn_mr *mrs[] = { mr };

	*mr = (struct pn_mr){ .addr = addr, .len = len, .access = access };
	assert_ok(pn_device_register(device, mrs, 1));
}

static inline void deregister_one(struct pn_device *device, struct pn_mr *mr)
{
	struct pn_mr *mrs[] = { mr };

	pn_device_deregister(device, mrs, 1);
}

/* Waits for the next completion. */
static inline struct pn_completion next_completion(struct pn_device *device)
{
	uint64_t deadline = pn_device_now(device) + TIMEOUT_NS;
	struct pn_completion c;

	while (!pn_device_poll(device, &c, 1))
		assert_ok(pn_device_wait(device, deadline));
	return c;
}

static inline struct pn_completion expect(struct pn_device *device,
					  enum pn_completion_kind kind)
{
	struct pn_completion c = next_completion(device);

	assert_int_equal(c.kind, kind);
	return c;
}

static inline struct pn_peer *attach_to(struct pn_device *device,
					const struct pn_address *address)
{
	struct pn_peer *peer;
	struct pn_completion c;

	assert_ok(pn_device_attach(device, address, &peer));
	c = expect(device, PN_COMPLETION_PEER_UP);
	assert_ptr_equal(c.peer, peer);
	return peer;
}

static inline struct pn_peer *loop_back(struct pn_device *device)
{
	struct pn_address address;

	pn_device_address(device, &address);
	return attach_to(device, &address);
}

/* Posts one operation and returns the status of its completion. */
static inline int run_op(struct pn_device *device, struct pn_peer *peer,
			 const struct pn_op *op)
{
	struct pn_completion c;

	assert_ok(pn_device_post(device, peer, op));
	c = expect(device, PN_COMPLETION_OP);
	assert_ptr_equal(c.user, op->user);
	assert_ptr_equal(c.peer, peer);
	return c.status;
}

struct remote_range {
	uint64_t addr, key;
};

static inline int move_op(struct pn_device *device, struct pn_peer *peer,
			  enum pn_op_kind kind, const struct pn_sge *sge,
			  struct remote_range to)
{
	struct pn_op op = { .kind = kind,
			    .sge = sge,
			    .nsge = 1,
			    .remote_addr = to.addr,
			    .rkey = to.key };

	return run_op(device, peer, &op);
}

/* A field of /proc/self/status that counts memory. */
static inline size_t status_bytes(const char *field)
{
	FILE *file = fopen("/proc/self/status", "r");
	char line[256];
	size_t kib = 0;

	assert_non_null(file);
	while (fgets(line, sizeof(line), file))
		if (!strncmp(line, field, strlen(field)))
			kib = strtoull(line + strlen(field), NULL, 10);
	fclose(file);
	return kib * 1024;
}

/* VmPin when this test pins nothing. Kernel 6.1 counts the pages of the test
 * before for another second. */
static inline size_t vmpin_at_rest(void)
{
	uint64_t deadline = pn_clock_ns() + TIMEOUT_NS;

	while (pn_huge_vmpin() && pn_clock_ns() < deadline)
		usleep(1000);
	return pn_huge_vmpin();
}

/* Waits until VmPin is `before` plus what the device (NULL: none) reports. */
static inline void assert_vmpin(size_t before, struct pn_device *device)
{
	uint64_t deadline = pn_clock_ns() + TIMEOUT_NS;
	struct pn_pinned pinned = { 0 };

	do {
		if (device)
			pn_device_pinned(device, &pinned);
		if (pn_huge_vmpin() ==
		    before + pinned.live_bytes + pinned.deferred_bytes)
			return;
		usleep(1000);
	} while (pn_clock_ns() < deadline);
	assert_int_equal(pn_huge_vmpin(),
			 before + pinned.live_bytes + pinned.deferred_bytes);
}

/* --- processes ----------------------------------------------------------- */

#define RANKS 6

/* Memory that the processes of a test share. A rank is filled in, then `here`
 * is set. */
struct common {
	struct {
		_Atomic int here;
		struct pn_address address;
		struct pinion_address endpoint; /* of tests that open one */
		uint64_t addr, key;
	} rank[RANKS];
	_Atomic int go[8]; /* steps of the test; their meaning is the test's */
	char spec[64];
	int number;
	int fd;
	uid_t user; /* for ranks that are not root */
};

static inline struct common *map_common(int fd)
{
	void *p = mmap(NULL, sizeof(struct common), PROT_READ | PROT_WRITE,
		       MAP_SHARED, fd, 0);

	assert_true(p != MAP_FAILED);
	return p;
}

static inline struct common *new_common(void)
{
	int fd = memfd_create("board", 0); /* inherited by children */
	struct common *common;

	assert_ok(ftruncate(fd, sizeof(struct common)));
	common = map_common(fd);
	common->fd = fd;
	common->user = fresh_user();
	return common;
}

static inline void free_common(struct common *common)
{
	close(common->fd);
	munmap(common, sizeof(*common));
}

/* A role in which a process can be started; each test program has a table of
 * them. */
struct role {
	const char *name;
	int (*fn)(struct common *, unsigned);
};
extern const struct role roles[];

#define ROLE(fn)        \
	{               \
#fn, fn \
	}

static inline void await(_Atomic int *flag, int value)
{
	uint64_t deadline = pn_clock_ns() + TIMEOUT_NS;

	while (*flag < value) {
		if (pn_clock_ns() > deadline)
			_exit(99);
		usleep(200);
	}
}

static inline void appear(struct common *common, unsigned rank,
			  struct pn_device *device, const struct pn_mr *mr)
{
	pn_device_address(device, &common->rank[rank].address);
	if (mr) {
		common->rank[rank].addr = (uintptr_t)mr->addr;
		common->rank[rank].key = mr->rkey;
	}
	common->rank[rank].here = 1;
}

/* Starts this program again as fn(common, rank), whose result is its exit
 * status. The process ends when this one does. */
static inline pid_t start_rank(int (*fn)(struct common *, unsigned),
			       struct common *common, unsigned rank)
{
	const struct role *role = roles;
	char fd[16], number[16];
	pid_t pid, parent = getpid();

	while (role->fn != fn)
		role++;
	snprintf(fd, sizeof(fd), "%d", common->fd);
	snprintf(number, sizeof(number), "%u", rank);
	pid = fork();
	assert_true(pid >= 0);
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() == parent)
		execl("/proc/self/exe", role->name, "--role", role->name, fd,
		      number, NULL);
	_exit(98);
}

/* For main(): runs the role that the arguments name, or returns. */
static inline void play_role(int argc, char **argv)
{
	if (argc != 5 || strcmp(argv[1], "--role"))
		return;
	/* A failed assertion ends the process. */
	setenv("CMOCKA_TEST_ABORT", "1", 1);
	for (const struct role *role = roles; role->name; role++)
		if (!strcmp(role->name, argv[2]))
			exit(role->fn(map_common(atoi(argv[3])),
				      (unsigned)atoi(argv[4])));
	exit(97);
}

/* For a rank started by root: continues as common->user, with lockable bytes of
 * RLIMIT_MEMLOCK. Changing the user makes the process not dumpable, so that
 * peers cannot reach it; that is undone. Returns 0 on success. */
static inline int become_user(const struct common *common, size_t lockable)
{
	struct rlimit limit = { lockable, lockable };

	return setrlimit(RLIMIT_MEMLOCK, &limit) || setuid(common->user) ||
	       prctl(PR_SET_DUMPABLE, 1);
}

static inline void assert_exits_well(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

#endif
