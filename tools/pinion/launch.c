/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/pinion/launch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "base/stats_segment.h"

#define MOMENT_MS 10
#define PATIENCE_MS                                                            \
	500 /* before forwarding a signal that a terminal may have sent to the \
	       launcher too */
#define AGAIN_MS   1000	 /* the same signal within this time counts as one */
#define TELL_MS	   1000	 /* orphans get SIGTERM after this time */
#define KILL_MS	   3000	 /* and SIGKILL after this */
#define ORPHANS_MS 60000 /* after this, remaining processes are given up */

struct job {
	pid_t launcher;
	bool apart;   /* the launcher has its own process group */
	bool is_over; /* signalled to end, or the launcher was killed */
	bool ended;   /* the launcher has ended; its status: */
	int status;
	int number;	       /* the last forwarded signal */
	uint64_t signalled_ns; /* its time */
	sigset_t held;
	/* Children that existed before, left by the program that exec'd us. */
	pid_t *inherited;
	unsigned ninherited;
};

/* --- children ------------------------------------------------------------- */

pid_t pn_parent_of(pid_t pid)
{
	char path[64], text[512];
	const char *rest;
	int fd, parent = 0;
	ssize_t n = -1;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		n = read(fd, text, sizeof(text) - 1);
		close(fd);
	}
	text[n > 0 ? n : 0] = '\0';
	/* The command name before it can contain anything, even parentheses. */
	rest = strrchr(text, ')');
	return rest && sscanf(rest, ") %*c %d", &parent) == 1 ? parent : 0;
}

static void for_children(void (*fn)(pid_t pid, void *arg), void *arg)
{
	DIR *dir = opendir("/proc");
	struct dirent *entry;

	while (dir && (entry = readdir(dir))) {
		int pid = atoi(entry->d_name);

		if (pid > 0 && pn_parent_of(pid) == getpid())
			fn(pid, arg);
	}
	if (dir)
		closedir(dir);
}

static void add_inherited(pid_t pid, void *arg)
{
	struct job *job = arg;
	pid_t *more =
		realloc(job->inherited, (job->ninherited + 1) * sizeof(*more));

	if (!more)
		return;
	job->inherited = more;
	more[job->ninherited++] = pid;
}

/* --- beginning ------------------------------------------------------------ */

/* Signals are blocked and fetched one by one. Signals that nohup(1) ignores
 * stay ignored. */
static void hold_signals(sigset_t *held, sigset_t *before)
{
	static const int numbers[] = { SIGINT,	SIGTERM, SIGHUP, SIGQUIT,
				       SIGUSR1, SIGUSR2, SIGCHLD };

	signal(SIGCHLD, SIG_DFL); /* otherwise SIGCHLD is not delivered */
	sigemptyset(held);
	for (size_t i = 0; i < PN_ARRAY_LEN(numbers); i++)
		sigaddset(held, numbers[i]);
	sigprocmask(SIG_BLOCK, held, before);
}

static bool in_foreground(void)
{
	int tty = open("/dev/tty", O_RDONLY | O_NOCTTY | O_CLOEXEC);
	bool is = tty >= 0 && tcgetpgrp(tty) == getpgrp();

	if (tty >= 0)
		close(tty);
	return is;
}

/* Parent and child both set the group, to avoid a race. */
static int begin(struct job *job, int (*start)(const void *), const void *arg)
{
	sigset_t before;

	fflush(NULL);
	hold_signals(&job->held, &before);
	for_children(add_inherited, job);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	job->apart = !in_foreground();
	job->launcher = fork();
	if (job->launcher < 0)
		return -errno;
	if (job->apart)
		setpgid(job->launcher, 0);
	if (job->launcher)
		return 0;
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	sigprocmask(SIG_SETMASK, &before, NULL);
	_exit(start(arg));
}

/* --- while it runs -------------------------------------------------------- */

/* Reaps ended children. Returns whether others remain. */
static bool reap(struct job *job)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		if (pid != job->launcher)
			continue;
		job->ended = true;
		job->status = status;
	}
	return !pid;
}

static bool is_end_signal(int number)
{
	return number == SIGINT || number == SIGTERM || number == SIGHUP ||
	       number == SIGQUIT;
}

static bool is_repeated(struct job *job, int number)
{
	uint64_t now = pn_clock_ns();
	bool again = number == job->number &&
		     now - job->signalled_ns < AGAIN_MS * PN_NS_PER_MS;

	job->number = number;
	job->signalled_ns = now;
	return again;
}

/* A signal to the whole group has reached the launcher. */
static void wait_for_launcher(struct job *job)
{
	const struct timespec moment = { .tv_nsec = MOMENT_MS * 1000000 };

	for (int ms = 0; ms < PATIENCE_MS && !job->ended; ms += MOMENT_MS) {
		nanosleep(&moment, NULL);
		reap(job);
	}
}

static void forward_signal(struct job *job, const siginfo_t *info)
{
	int number = info->si_signo;

	if (is_end_signal(number)) {
		job->is_over = true;
		if (is_repeated(job, number))
			return;
	}
	/* The launcher gets signals of the terminal (which no process sent),
	 * too. */
	if (!job->apart && info->si_code > 0)
		return;
	if (!job->apart)
		wait_for_launcher(job);
	if (!job->ended)
		kill(job->launcher, number);
}

static void await(struct job *job, struct pn_watchdog *watchdog)
{
	uint64_t look_ns = watchdog->interval_ns / 2;
	const struct timespec period = {
		.tv_sec = (time_t)(look_ns / PN_NS_PER_S),
		.tv_nsec = (long)(look_ns % PN_NS_PER_S),
	};
	siginfo_t info;

	while (!job->ended) {
		int number = look_ns ? sigtimedwait(&job->held, &info, &period)
				     : sigwaitinfo(&job->held, &info);

		if (number == SIGCHLD)
			reap(job);
		else if (number > 0)
			forward_signal(job, &info);
		else if (errno == EAGAIN)
			pn_watchdog_look(watchdog, job->launcher, stderr);
	}
}

/* --- afterwards ----------------------------------------------------------- */

struct signalling {
	const struct job *job;
	int number;
	unsigned n;
};

static bool is_inherited(const struct job *job, pid_t pid)
{
	for (unsigned i = 0; i < job->ninherited; i++)
		if (job->inherited[i] == pid)
			return true;
	return false;
}

static void send_signal(pid_t pid, void *arg)
{
	struct signalling *signalling = arg;

	if (is_inherited(signalling->job, pid))
		return;
	signalling->n++;
	kill(pid, signalling->number);
}

/* Signals every child of the job; returns their number. Pids are not reused
 * meanwhile, since the children are reaped here. */
static unsigned signal_all(const struct job *job, int number)
{
	struct signalling signalling = { job, number, 0 };

	for_children(send_signal, &signalling);
	return signalling.n;
}

/* Returns the signal that the processes of an ended job get after so much time,
 * `before` being the last one; 0: none. Processes whose parents are killed
 * become our children meanwhile, so this repeats. */
static int signal_remaining(const struct job *job, unsigned ms, int before)
{
	int number = ms >= KILL_MS ? SIGKILL : ms >= TELL_MS ? SIGTERM : 0;

	if (number == SIGKILL || number != before)
		signal_all(job, number);
	return number;
}

/* Ends the rest of the job; see launch.h. Only the time waited here counts:
 * while a machine is suspended, processes make no progress. */
static void end_orphans(struct job *job)
{
	const struct timespec moment = { .tv_nsec = MOMENT_MS * 1000000 };
	unsigned ms = 0;
	int last_signal = 0;

	while (ms < ORPHANS_MS) {
		bool left =
			reap(job) && (!job->ninherited || signal_all(job, 0));
		unsigned nsegments = pn_stats_sweep();
		int number;

		if (job->is_over ? !left : !nsegments)
			return;
		if (job->is_over)
			last_signal = signal_remaining(job, ms, last_signal);
		number = sigtimedwait(&job->held, NULL, &moment);
		if (number < 0)
			ms += MOMENT_MS;
		if (!is_end_signal(number))
			continue;
		job->is_over = true;
		if (ms < KILL_MS)
			ms = KILL_MS;
	}
	fprintf(stderr,
		"pinion: some processes of the job could not be killed\n");
}

int pn_launch(int (*start)(const void *arg), const void *arg,
	      struct pn_watchdog *watchdog)
{
	struct job job = { 0 };
	int ret = begin(&job, start, arg);

	if (ret)
		return ret;
	await(&job, watchdog);
	if (WIFSIGNALED(job.status))
		job.is_over = true;
	end_orphans(&job);
	free(job.inherited);
	return WIFEXITED(job.status) ? WEXITSTATUS(job.status)
				     : 128 + WTERMSIG(job.status);
}
