/* SPDX-License-Identifier: BSD-2-Clause */
#include "process_lives.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "child.h"

#define PATIENCE_NS (3 * LIVES_PATIENCE_S * PN_NS_PER_S)
#define SETTLE_NS   (PN_NS_PER_S / 2)
#define ROLE	    "--process-of-a-schedule"

/* What the driver knows of a node's process. */
struct seen {
	pid_t pid;	/* 0: none */
	pid_t last_pid; /* of the one before */
	int steps_fd;
	unsigned ngiven; /* steps */
	bool stopped, leaves;
};

struct driver {
	struct lives_board *board;
	int board_fd;
	struct seen nodes[LIVES_NODES];
	bool own_shm;
	struct lives_counts *counts;
};

static struct driver driver;

#define FAIL(...) lives_fail(driver.board, __VA_ARGS__)

/* --- processes ------------------------------------------------------------ */

static struct lives_board *map_board(int fd)
{
	void *p = mmap(NULL, sizeof(struct lives_board), PROT_READ | PROT_WRITE,
		       MAP_SHARED, fd, 0);

	pn_assert(p != MAP_FAILED);
	return p;
}

void lives_begin(int argc, char **argv)
{
	if (argc != 5 || strcmp(argv[1], ROLE))
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setenv("CMOCKA_TEST_ABORT", "1", 1);
	exit(lives_process(map_board(atoi(argv[2])), (unsigned)atoi(argv[3]),
			   atoi(argv[4])));
}

/* As fork(), with this process id if it is free and the kernel permits it. */
static pid_t fork_as(pid_t pid)
{
	struct clone_args args = { .exit_signal = SIGCHLD,
				   .set_tid = (uintptr_t)&pid,
				   .set_tid_size = 1 };
	long child = -1;

	fflush(NULL);
	if (pid)
		child = syscall(SYS_clone3, &args, sizeof(args));
	if (child > 0)
		driver.counts->same_pids++;
	return child < 0 ? fork() : (pid_t)child;
}

static _Noreturn void become_process(unsigned n, int steps_fd)
{
	char fds[2][16], number[16];

	fcntl(driver.board_fd, F_SETFD, 0);
	fcntl(steps_fd, F_SETFD, 0);
	snprintf(fds[0], sizeof(fds[0]), "%d", driver.board_fd);
	snprintf(fds[1], sizeof(fds[1]), "%d", steps_fd);
	snprintf(number, sizeof(number), "%u", n);
	execl("/proc/self/exe", "node", ROLE, fds[0], number, fds[1], NULL);
	_exit(98);
}

static void start(unsigned n)
{
	struct seen *seen = &driver.nodes[n];
	int ends[2];

	if (seen->pid)
		return;
	pn_assert(!pipe2(ends, O_CLOEXEC));
	driver.board->nodes[n].nprocesses++;
	driver.board->nodes[n].ndone = 0;
	driver.counts->processes++;
	seen->pid = fork_as(seen->last_pid);
	pn_assert(seen->pid >= 0);
	if (!seen->pid)
		become_process(n, ends[0]);
	close(ends[0]);
	seen->steps_fd = ends[1];
	seen->ngiven = 0;
	seen->stopped = seen->leaves = false;
}

/* The process has ended; nothing is known of it any more but its number. */
static void forget(struct seen *seen)
{
	close(seen->steps_fd);
	seen->last_pid = seen->pid;
	seen->pid = 0;
}

/* Whether the process has ended, which only those may that were told to. */
static bool has_ended(unsigned n)
{
	struct seen *seen = &driver.nodes[n];
	int status;

	if (!seen->pid || !waitpid(seen->pid, &status, WNOHANG))
		return !seen->pid;
	if (status || !seen->leaves)
		FAIL("node %u: %s", n, child_end(status));
	forget(seen);
	return true;
}

static void kill_process(unsigned n)
{
	struct seen *seen = &driver.nodes[n];

	if (has_ended(n))
		return;
	kill(seen->pid, SIGKILL);
	waitpid(seen->pid, NULL, 0);
	forget(seen);
}

static void stop(unsigned n, bool stopped)
{
	struct seen *seen = &driver.nodes[n];

	if (has_ended(n) || seen->stopped == stopped)
		return;
	kill(seen->pid, stopped ? SIGSTOP : SIGCONT);
	seen->stopped = stopped;
}

static void give(unsigned n, const struct lives_step *step)
{
	struct seen *seen = &driver.nodes[n];

	if (has_ended(n) || seen->leaves)
		return;
	seen->leaves = step->act == ACT_EXIT || step->act == ACT_END;
	if (write(seen->steps_fd, step, sizeof(*step)) == sizeof(*step))
		seen->ngiven++;
}

/* --- checks --------------------------------------------------------------- */

/* Nobody has ended, or pins more than the budget. */
static void look_at(unsigned n)
{
	const struct lives_schedule *s = &driver.board->schedule;
	char path[64], line[256];
	size_t kib;
	FILE *file;

	if (has_ended(n))
		return;
	snprintf(path, sizeof(path), "/proc/%d/status", driver.nodes[n].pid);
	file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "VmPin: %zu kB", &kib) == 1 &&
		    kib << 10 > s->max_bytes)
			FAIL("node %u pins %zu KiB of %zu", n, kib,
			     s->max_bytes >> 10);
	if (file)
		fclose(file);
}

/* The process has done all its steps, or has ended. */
static bool await_done(unsigned n)
{
	uint64_t end = pn_clock_ns() + PATIENCE_NS;

	while (!has_ended(n) &&
	       driver.board->nodes[n].ndone < driver.nodes[n].ngiven) {
		if (driver.board->failed)
			return false;
		if (pn_clock_ns() > end) {
			FAIL("node %u, process %d, hangs", n,
			     driver.nodes[n].pid);
			return false;
		}
		usleep(200);
	}
	return !driver.board->failed;
}

/* A file in /dev/shm: of a process of ours? The registry of helpers stays. */
static int look_at_file(const char *path, const struct stat *st, int type,
			struct FTW *ftw)
{
	const char *name = path + ftw->base;

	(void)st;
	if (type == FTW_D || !strncmp(name, "pinion-helpers-", 15))
		return 0;
	for (unsigned n = 0; n < LIVES_NODES; n++)
		if (driver.own_shm || (driver.nodes[n].last_pid &&
				       atoi(name) == driver.nodes[n].last_pid))
			FAIL("left in shared memory: %s", path);
	return 0;
}

static void look_at_sockets(void)
{
	FILE *file = fopen("/proc/net/unix", "re");
	char line[512];

	while (file && fgets(line, sizeof(line), file)) {
		const char *name = strstr(line, "@pinion-soft-");

		for (unsigned n = 0; name && n < LIVES_NODES; n++)
			if (driver.nodes[n].last_pid &&
			    atoi(name + 13) == driver.nodes[n].last_pid)
				FAIL("a socket is left: %s", name);
	}
	if (file)
		fclose(file);
}

/* --- a schedule ----------------------------------------------------------- */

/* Not for long: a process may wait for one that is stopped. */
static void settle(void)
{
	uint64_t end = pn_clock_ns() + SETTLE_NS;

	for (unsigned n = 0; n < LIVES_NODES; n++)
		while (!has_ended(n) && !driver.nodes[n].stopped &&
		       driver.board->nodes[n].ndone < driver.nodes[n].ngiven &&
		       !driver.board->failed && pn_clock_ns() < end)
			usleep(200);
}

static void take(const struct lives_step *step)
{
	usleep(step->us);
	switch (step->act) {
	case ACT_START:
		start(step->node);
		break;
	case ACT_KILL:
		kill_process(step->node);
		break;
	case ACT_STOP:
	case ACT_CONTINUE:
		stop(step->node, step->act == ACT_STOP);
		break;
	case ACT_SETTLE:
		settle();
		break;
	default:
		give(step->node, step);
	}
	for (unsigned n = 0; n < LIVES_NODES; n++)
		look_at(n);
}

static void give_all(enum lives_act act, unsigned other)
{
	struct lives_step step = { .act = act, .other = other };

	for (unsigned n = 0; n < LIVES_NODES; n++)
		give(n, &step);
	for (unsigned n = 0; n < LIVES_NODES; n++)
		if (!await_done(n))
			return;
}

/* The node closes everything. The others notice. */
static void end_node(unsigned n)
{
	give(n, &(struct lives_step){ .act = ACT_END });
	if (await_done(n))
		give_all(ACT_OUTLIVE, n);
}

/* What killed processes have left goes when the next one opens something. */
static void sweep(void)
{
	start(0);
	give(0, &(struct lives_step){ .act = ACT_OPEN });
	give(0, &(struct lives_step){ .act = ACT_END });
	await_done(0);
}

static void finale(void)
{
	for (unsigned n = 0; n < LIVES_NODES; n++)
		stop(n, false);
	give_all(ACT_CALM, 0);
	for (unsigned n = 0; n < LIVES_NODES && !driver.board->failed; n++)
		end_node(n);
	if (!driver.board->failed)
		sweep();
	if (driver.board->failed)
		return;
	nftw("/dev/shm", look_at_file, 8, FTW_PHYS);
	look_at_sockets();
}

/* The machine's other processes have no files there. */
static bool has_own_shm(void)
{
	return !unshare(CLONE_NEWNS) &&
	       !mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) &&
	       !mount("none", "/dev/shm", "tmpfs", 0, NULL);
}

static void count(void)
{
	const struct lives_board *board = driver.board;
	struct lives_counts *counts = driver.counts;

	counts->received += board->nreceived;
	counts->moved += board->nmoved;
	counts->added += board->nadded;
	counts->written += board->nwritten;
	counts->refused += board->nrefused;
}

static const char *run(const struct lives_schedule *s, unsigned descriptors)
{
	struct lives_board *board = driver.board;

	memset(board, 0, sizeof(*board));
	memset(driver.nodes, 0, sizeof(driver.nodes));
	board->schedule = *s;
	board->descriptors = descriptors;
	for (unsigned i = 0; i < s->n && !board->failed; i++)
		take(&s->steps[i]);
	finale();
	for (unsigned n = 0; n < LIVES_NODES; n++)
		kill_process(n);
	count();
	return board->failed ? board->why : NULL;
}

/* The descriptors of processes that have ended without trouble: libraries keep
 * some, for which the options 0 stand (libunwind, with the helper). */
static unsigned usual_descriptors(const struct lives_schedule *s)
{
	static const enum lives_act acts[] = { ACT_START,   ACT_OPEN,
					       ACT_SETTLE,  ACT_SEND,
					       ACT_RECEIVE, ACT_MOVE,
					       ACT_SETTLE };
	struct lives_schedule plain = { .seed = s->seed,
					.nnodes = 2,
					.max_bytes = s->max_bytes,
					.n = 2 * PN_ARRAY_LEN(acts) };

	memcpy(plain.device, s->device, sizeof(plain.device));
	for (unsigned i = 0; i < plain.n; i++)
		plain.steps[i] = (struct lives_step){ .act = acts[i / 2],
						      .node = i % 2,
						      .other = (i + 1) % 2,
						      .us = 1000,
						      .len = 100000 };
	return run(&plain, 0) ? 0 : driver.board->descriptors_left;
}

const char *lives_run(const struct lives_schedule *s,
		      struct lives_counts *counts)
{
	static unsigned descriptors;
	static char device[sizeof(s->device)];

	driver.counts = counts;
	if (!driver.board) {
		driver.board_fd = memfd_create("board", MFD_CLOEXEC);
		pn_assert(!ftruncate(driver.board_fd,
				     sizeof(struct lives_board)));
		driver.board = map_board(driver.board_fd);
		driver.own_shm = has_own_shm();
		signal(SIGPIPE, SIG_IGN);
		unsetenv("PINION_TEST_SEED"); /* no option of pinion's */
	}
	if (strcmp(device, s->device)) {
		descriptors = usual_descriptors(s);
		memcpy(device, s->device, sizeof(device));
		if (!descriptors)
			return driver.board->why;
	}
	return run(s, descriptors);
}
