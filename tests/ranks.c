/* SPDX-License-Identifier: BSD-2-Clause */
#include "ranks.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "device/sim/sim.h"

#define PATIENCE_NS                                                          \
	(400 * PN_NS_PER_S) /* longer than the timeouts that report a reason \
			     */
#define PATIENCE_S 800	    /* of a rank as a whole */

struct gang {
	const struct ranks *run;
	struct rank ranks[RANKS_MAX];
};

/* --- functions for ranks ------------------------------------------------- */

void rank_fail(struct rank *rank, const char *what, const char *file, int line)
{
	struct rank_board *board = rank->board;

	if (atomic_exchange(&board->failed, true))
		return;
	snprintf(board->why, sizeof(board->why), "rank %u: %s:%d: %s",
		 rank->rank, file, line, what);
}

void rank_pause(struct rank *rank)
{
	if (rank->virtual_time)
		pn_device_consume_cpu(rank->device, PN_NS_PER_US);
	else
		usleep(20);
}

void rank_wait(struct rank *rank, uint64_t deadline_ns)
{
	pn_device_wait_any(rank->rails, rank->nrails, deadline_ns);
}

static bool arrived(struct rank *rank, unsigned other, uint64_t deadline)
{
	while (atomic_load(&rank->board->rank[other].round) < rank->round) {
		if (atomic_load(&rank->board->failed))
			return false;
		if (pn_device_now(rank->device) > deadline) {
			rank_fail(rank, "another rank does not come", __FILE__,
				  __LINE__);
			return false;
		}
		if (rank->idle)
			rank->idle(rank->idle_arg);
		rank_pause(rank);
	}
	return true;
}

bool rank_exchange(struct rank *rank, const void *mine, size_t len,
		   void *theirs)
{
	uint64_t deadline = pn_device_now(rank->device) + PATIENCE_NS;
	unsigned parity = ++rank->round & 1;

	if (len)
		memcpy(rank->board->rank[rank->rank].blob[parity], mine, len);
	atomic_store(&rank->board->rank[rank->rank].round, rank->round);
	for (unsigned r = 0; r < rank->nranks; r++) {
		if (!arrived(rank, r, deadline))
			return false;
		if (len)
			memcpy((char *)theirs + r * len,
			       rank->board->rank[r].blob[parity], len);
	}
	return true;
}

bool rank_barrier(struct rank *rank)
{
	return rank_exchange(rank, NULL, 0, NULL);
}

/* --- running ranks ------------------------------------------------------- */

static struct gang *gang_of(struct rank *rank)
{
	return pn_container_of(rank - rank->rank, struct gang, ranks[0]);
}

/* The spec of a rank: '|' separates specs, which ranks use in turn. */
static void spec_of(const char *specs, unsigned rank, char *out, size_t size)
{
	const char *from = specs;

	while (rank--) {
		from += strcspn(from, "|");
		from = *from ? from + 1 : specs;
	}
	snprintf(out, size, "%.*s", (int)strcspn(from, "|"), from);
}

/* Enters the network namespace that a spec names; returns the rest of it. NULL:
 * there is no such namespace. */
static const char *enter_namespace(const char *spec)
{
	size_t len = spec[0] == '@' ? strcspn(spec + 1, "@") : 0;
	char path[128];
	int fd;

	if (!len)
		return spec;
	snprintf(path, sizeof(path), "/run/netns/%.*s", (int)len, spec + 1);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || setns(fd, CLONE_NEWNET))
		return NULL;
	close(fd);
	return spec + len + 2;
}

/* A rank in a thread or process. */
static void *run_opened(void *arg)
{
	struct rank *rank = arg;
	const struct ranks *run = gang_of(rank)->run;
	char whole[256];
	const char *spec;
	int ret;

	spec_of(run->spec, rank->rank, whole, sizeof(whole));
	spec = enter_namespace(whole);
	ret = spec ? pn_device_open_rails(spec, NULL, rank->rails,
					  &rank->nrails)
		   : -ENONET;
	if (ret) {
		rank_fail(rank, strerror(-ret), "open", 0);
		return NULL;
	}
	rank->device = rank->rails[0];
	rank->either = pn_device_spec_is_alternatives(spec);
	run->fn(rank);
	while (rank->nrails)
		pn_device_close(rank->rails[--rank->nrails]);
	return NULL;
}

static void run_threads(struct gang *gang)
{
	pthread_t threads[RANKS_MAX];

	for (unsigned r = 0; r < gang->run->nranks; r++)
		pn_assert(!pthread_create(&threads[r], NULL, run_opened,
					  &gang->ranks[r]));
	for (unsigned r = 0; r < gang->run->nranks; r++)
		pthread_join(threads[r], NULL);
}

static void run_processes(struct gang *gang)
{
	pid_t pids[RANKS_MAX];

	fflush(NULL);
	for (unsigned r = 0; r < gang->run->nranks; r++) {
		pids[r] = fork();
		pn_assert(pids[r] >= 0);
		if (!pids[r]) {
			alarm(PATIENCE_S);
			run_opened(&gang->ranks[r]);
			exit(0);
		}
	}
	for (unsigned r = 0; r < gang->run->nranks; r++) {
		int status;

		pn_assert(waitpid(pids[r], &status, 0) == pids[r]);
		if (status)
			rank_fail(&gang->ranks[r], "process ended badly",
				  __FILE__, __LINE__);
	}
}

static void run_task(void *arg)
{
	struct rank *rank = arg;

	gang_of(rank)->run->fn(rank);
	pn_device_close(rank->device);
}

static void run_sim(struct gang *gang)
{
	const struct ranks *run = gang->run;
	const char *more = run->spec[3] ? run->spec + 4 : "";
	char params[256];
	struct pn_sim *sim;
	int ret;

	snprintf(params, sizeof(params), "nodes=%u%s%s", run->nranks,
		 more[0] ? "," : "", more);
	pn_assert(!pn_sim_open(params, run->script, &sim));
	for (unsigned r = 0; r < run->nranks; r++) {
		gang->ranks[r].device = pn_sim_device(sim, r);
		gang->ranks[r].nrails = pn_sim_nrails(sim);
		for (unsigned i = 0; i < pn_sim_nrails(sim); i++)
			gang->ranks[r].rails[i] = pn_sim_rail(sim, r, i);
		gang->ranks[r].virtual_time = true;
		gang->ranks[r].sim = sim;
		pn_assert(!pn_sim_spawn(sim, r, run_task, &gang->ranks[r]));
	}
	ret = pn_sim_run(sim);
	if (ret)
		rank_fail(&gang->ranks[0], strerror(-ret), "pn_sim_run", 0);
	pn_sim_close(sim);
}

bool ranks_run(const struct ranks *run)
{
	struct gang gang = { .run = run };
	struct rank_board *board;
	bool failed;

	board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pn_assert(board != MAP_FAILED);
	for (unsigned r = 0; r < run->nranks; r++)
		gang.ranks[r] =
			(struct rank){ .board = board,
				       .rank = r,
				       .nranks = run->nranks,
				       .progress_thread =
					       strstr(run->how, "+progress"),
				       .helper = strstr(run->how, "+helper"),
				       .arg = run->arg };
	if (!strncmp(run->how, "sim", strlen("sim")))
		run_sim(&gang);
	else if (!strncmp(run->how, "threads", strlen("threads")))
		run_threads(&gang);
	else
		run_processes(&gang);
	failed = atomic_load(&board->failed);
	if (failed)
		printf("%s\n", board->why);
	munmap(board, sizeof(*board));
	return !failed;
}

bool ranks_run_apart(const struct ranks *run)
{
	pid_t pid;
	int status;

	fflush(NULL);
	pid = fork();
	pn_assert(pid >= 0);
	if (!pid) {
		bool passed = ranks_run(run);

		fflush(NULL);
		_exit(!passed);
	}
	pn_assert(waitpid(pid, &status, 0) == pid);
	return !status;
}
