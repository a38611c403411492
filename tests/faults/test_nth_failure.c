/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_nth_failure -- fails the first, the second, the third ... call of each
 * kind (injector.h) in a scene (scenes.h), once and from then on for ever.
 *
 * 	test_nth_failure SCENE [STEP [KIND [NTH once|always]]]
 *
 * Each fault has a process of its own, which plays the scene with the fault and
 * then once more without. The play with the fault succeeds or ends with an
 * error that the call's manual page lists, in bounded time. Afterwards nothing
 * is left: descriptors, pinned pages, files in /dev/shm; and the second play
 * succeeds. Under AddressSanitizer no memory is leaked either. A kind is done
 * when the scene runs through without reaching its fault. With a STEP above 1
 * only every STEP-th fault is tried, from a random first one on. SQLite tests
 * itself in this way.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "vmpin.h"

#include "monitor/monitor.h"

#include "child.h"
#include "documented.h"
#include "injector.h"
#include "scenes.h"

/* What takes longer hangs: a scene takes some 30 ms on idle cores. */
#ifndef PATIENCE_S
#define PATIENCE_S 180
#endif

enum outcome { NOT_REACHED = 10, PASSED, FAILED };

struct fault {
	enum fault_kind kind;
	unsigned long nth; /* 0: none */
	bool always;
};

/* What a process has beside memory. */
struct holdings {
	unsigned descriptors, files;
	size_t pinned;
};

/* Written by the process of a fault. */
struct result {
	struct holdings left; /* after both plays */
	int ret;	      /* of the play with the fault */
	char failed[128];     /* the call that returned it */
	char why[256];	      /* what is wrong, with FAILED */
};

static struct result *result; /* shared with the processes */

/* --- in the process of a fault -------------------------------------------- */

static unsigned files_of_mine(void)
{
	char path[64], number[32];
	unsigned n = 0;
	DIR *folder;

	snprintf(path, sizeof(path), "/dev/shm/pinion-%u", geteuid());
	/* "PROCESS-NAMESPACE" (base/stats_segment.c) */
	snprintf(number, sizeof(number), "%d-", (int)getpid());
	folder = opendir(path);
	if (!folder)
		return 0;
	for (struct dirent *e; (e = readdir(folder));)
		n += !strncmp(e->d_name, number, strlen(number));
	closedir(folder);
	return n;
}

/* Kernel 6.1 uncharges pages about a second late. */
static size_t pinned_at_rest(void)
{
	uint64_t end = pn_clock_ns() + 20 * PN_NS_PER_S;

	while (vmpin() && pn_clock_ns() < end)
		usleep(1000);
	return vmpin();
}

static enum outcome wrong(const char *what, int ret, const char *where)
{
	snprintf(result->why, sizeof(result->why), "%s: %s%s%s", what,
		 strerror(-ret), *where ? " from " : "", where);
	return FAILED;
}

/* Errors that no fault may cause, and those that the call does not list. */
static bool is_mistake(const char *call, int ret)
{
	return ret > 0 || ret == -EBADMSG || ret == -EPIPE || ret == -EPROTO ||
	       ret == -EINVAL || ret == -ECONNABORTED ||
	       !errno_is_documented(call, ret);
}

static enum outcome play_both(struct scene *scene, const struct fault *fault)
{
	bool reached;
	int ret;

	if (fault->nth)
		injector_arm(fault->kind, fault->nth, fault->always);
	ret = scene_play(scene);
	reached = injector_disarm();
	result->ret = ret;
	memcpy(result->failed, scene->failed, sizeof(result->failed));
	if (ret && (!reached || is_mistake(scene->failed, ret)))
		return wrong("the play with the fault", ret, scene->failed);
	if (scene_partner_result(scene) == -EPIPE)
		return wrong("its partner", -EPIPE, "");
	ret = scene_play(scene);
	if (ret)
		return wrong("the next play", ret, scene->failed);
	ret = scene_partner_result(scene);
	if (ret)
		return wrong("the partner of the next play", ret, "");
	return reached ? PASSED : NOT_REACHED;
}

static void run(struct scene *scene, const struct fault *fault)
{
	pid_t partner = scene_start_partner(scene);
	enum outcome outcome = play_both(scene, fault);

	if (scene_end_partner(scene, partner))
		wrong("the partner", -ECHILD, "");
	result->left = (struct holdings){ test_descriptors(), files_of_mine(),
					  pinned_at_rest() };
	/* The mode that a fault in the monitor's self-test leads to. */
	if (pn_monitor_mode() == PN_MONITOR_USERFAULTFD)
		result->left.descriptors -= 2;
	exit(result->why[0] ? FAILED : outcome);
}

/* --- the test ------------------------------------------------------------- */

/* Waits for a group of processes, and ends it if it hangs. */
static int await(pid_t pid)
{
	uint64_t end = pn_clock_ns() + PATIENCE_S * PN_NS_PER_S;
	int status;

	while (!waitpid(pid, &status, WNOHANG)) {
		if (pn_clock_ns() > end) {
			snprintf(result->why, sizeof(result->why), "hangs");
			kill(-pid, SIGKILL);
			waitpid(pid, &status, 0);
			break;
		}
		usleep(500);
	}
	kill(-pid, SIGKILL); /* a partner that was left behind */
	return status;
}

static enum outcome play_in_process(struct scene *scene,
				    const struct fault *fault)
{
	int status;
	pid_t pid;

	memset(result, 0, sizeof(*result));
	fflush(stdout);
	pid = fork();
	if (!pid) {
		setpgid(0, 0);
		run(scene, fault);
	}
	setpgid(pid, pid);
	status = await(pid);
	if (WIFEXITED(status) && (WEXITSTATUS(status) == PASSED ||
				  WEXITSTATUS(status) == NOT_REACHED))
		return (enum outcome)WEXITSTATUS(status);
	if (!result->why[0])
		snprintf(result->why, sizeof(result->why), "%s",
			 child_end(status));
	return FAILED;
}

/* More than a play without faults leaves. */
static bool left_something(const struct holdings *plain)
{
	const struct holdings *left = &result->left;

	if (left->descriptors <= plain->descriptors && !left->files &&
	    left->pinned <= plain->pinned)
		return false;
	snprintf(result->why, sizeof(result->why),
		 "left %u descriptors (without a fault %u), %u files, "
		 "%zu bytes pinned",
		 left->descriptors, plain->descriptors, left->files,
		 left->pinned);
	return true;
}

static bool fault_is_survived(struct scene *scene, const struct fault *fault,
			      const struct holdings *plain, bool *reached)
{
	enum outcome outcome = play_in_process(scene, fault);

	*reached = outcome != NOT_REACHED;
	if (outcome != FAILED && !left_something(plain))
		return true;
	printf("FAULT %s %s %lu %s: %s (%s: %s)\n", scene->name,
	       fault_names[fault->kind], fault->nth,
	       fault->always ? "always" : "once", result->why,
	       result->failed[0] ? result->failed : "all calls",
	       result->ret ? strerror(-result->ret) : "success");
	return false;
}

/* How many faults of a kind were not survived. */
static unsigned try_kind(struct scene *scene, struct fault fault,
			 unsigned long step, const struct holdings *plain)
{
	unsigned nfailed = 0, n = 0;
	bool reached = true;

	for (; reached; fault.nth += step, n++)
		if (!fault_is_survived(scene, &fault, plain, &reached))
			nfailed++;
	printf("%s, %s %s: %u faults, %u not survived\n", scene->name,
	       fault_names[fault.kind], fault.always ? "always" : "once", n - 1,
	       nfailed);
	return nfailed;
}

static unsigned try_all(struct scene *scene, unsigned long step,
			const char *kind)
{
	uint64_t seed = step > 1 ? test_seed() : 0;
	struct holdings plain;
	unsigned nfailed = 0;

	if (play_in_process(scene, &(struct fault){ 0 }) != NOT_REACHED) {
		printf("without a fault: %s\n", result->why);
		return 1;
	}
	plain = result->left;
	for (unsigned k = 0; k < FAULT_NKINDS; k++)
		for (int always = 0; always < 2; always++) {
			struct fault fault = { k, 1, always };

			if (step > 1)
				fault.nth += test_below(&seed, step);
			if (!kind || !strcmp(kind, fault_names[k]))
				nfailed += try_kind(scene, fault, step, &plain);
		}
	return nfailed;
}

static int try_one(struct scene *scene, char **argv)
{
	struct holdings plain = { UINT32_MAX, 0, 0 };
	struct fault fault = { 0, strtoul(argv[1], NULL, 0),
			       !strcmp(argv[2], "always") };
	bool reached;

	while (strcmp(fault_names[fault.kind], argv[0]))
		fault.kind++;
	return !fault_is_survived(scene, &fault, &plain, &reached);
}

int main(int argc, char **argv)
{
	struct scene *scene;

	if (argc < 2) {
		fprintf(stderr, "usage: test_nth_failure SCENE [STEP [KIND "
				"[NTH once|always]]]\n");
		return 2;
	}
	signal(SIGPIPE, SIG_IGN);
	scene_registrar_refuses = injector_refuses;
	result = mmap(NULL, sizeof(*result), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	scene = scene_find(argv[1]);
	if (argc == 6)
		return try_one(scene, argv + 3);
	return try_all(scene, argc > 2 ? strtoul(argv[2], NULL, 0) : 1,
		       argc > 3 ? argv[3] : NULL) > 0;
}
