/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Runs the conformance suite on one device:
 *
 *   test_conformance sim|threads|processes SPEC [CASE]
 *
 * sim: ranks are coroutines of one world; threads: ranks are threads, each
 * with a device of its own (what TSan sees best); processes: ranks are forked.
 */
#include "conformance.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/compiler.h"
#include "device/sim/sim.h"

struct run {
	const char *spec;
	const struct conf_case *test;
	struct conf_board *board;
	struct conf ranks[CONF_MAX_RANKS];
};

static bool supported(const struct conf *conf, const struct conf_case *test)
{
	return (conf->device->caps & test->needs) == test->needs;
}

/* A rank in a thread or process: opens, runs, closes. */
static void *run_rank(void *arg)
{
	struct conf *conf = arg;
	struct run *run =
		pn_container_of(conf - conf->rank, struct run, ranks[0]);
	int ret = pn_device_open(run->spec, NULL, &conf->device);

	if (ret) {
		conf_fail(conf, strerror(-ret), "open", 0);
		return NULL;
	}
	if (supported(conf, run->test))
		run->test->fn(conf);
	pn_device_close(conf->device);
	return NULL;
}

static void run_threads(struct run *run)
{
	pthread_t threads[CONF_MAX_RANKS];

	for (unsigned r = 0; r < run->test->nranks; r++)
		pn_assert(!pthread_create(&threads[r], NULL, run_rank,
					  &run->ranks[r]));
	for (unsigned r = 0; r < run->test->nranks; r++)
		pthread_join(threads[r], NULL);
}

static void run_processes(struct run *run)
{
	pid_t pids[CONF_MAX_RANKS];

	fflush(NULL);
	for (unsigned r = 0; r < run->test->nranks; r++) {
		pids[r] = fork();
		pn_assert(pids[r] >= 0);
		if (!pids[r]) {
			alarm(60);
			run_rank(&run->ranks[r]);
			exit(0);
		}
	}
	for (unsigned r = 0; r < run->test->nranks; r++) {
		int status;

		pn_assert(waitpid(pids[r], &status, 0) == pids[r]);
		if (status)
			conf_fail(&run->ranks[r], "process ended badly",
				  __FILE__, __LINE__);
	}
}

static void run_task(void *arg)
{
	struct conf *conf = arg;
	struct run *run =
		pn_container_of(conf - conf->rank, struct run, ranks[0]);

	if (supported(conf, run->test))
		run->test->fn(conf);
	pn_device_close(conf->device);
}

static void run_sim(struct run *run)
{
	char params[256];
	struct pn_sim *sim;
	int ret;

	snprintf(params, sizeof(params), "nodes=%u%s%s", run->test->nranks,
		 run->spec[3] ? "," : "", run->spec[3] ? run->spec + 4 : "");
	pn_assert(!pn_sim_open(params, NULL, &sim));
	for (unsigned r = 0; r < run->test->nranks; r++) {
		run->ranks[r].device = pn_sim_device(sim, r);
		run->ranks[r].virtual_time = true;
		pn_assert(!pn_sim_spawn(sim, r, run_task, &run->ranks[r]));
	}
	ret = pn_sim_run(sim);
	if (ret)
		conf_fail(&run->ranks[0], strerror(-ret), "pn_sim_run", 0);
	pn_sim_close(sim);
}

static bool run_case(const char *how, const char *spec,
		     const struct conf_case *test)
{
	struct run run = { .spec = spec, .test = test };
	bool failed;

	run.board = mmap(NULL, sizeof(*run.board), PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pn_assert(run.board != MAP_FAILED);
	for (unsigned r = 0; r < test->nranks; r++)
		run.ranks[r] = (struct conf){ .board = run.board,
					      .rank = r,
					      .nranks = test->nranks };
	printf("[ RUN      ] %s\n", test->name);
	if (!strcmp(how, "sim"))
		run_sim(&run);
	else if (!strcmp(how, "threads"))
		run_threads(&run);
	else
		run_processes(&run);
	failed = atomic_load(&run.board->failed);
	if (failed)
		printf("%s\n", run.board->why);
	printf("[%s] %s\n", failed ? "  FAILED  " : "       OK ", test->name);
	munmap(run.board, sizeof(*run.board));
	return !failed;
}

int main(int argc, char **argv)
{
	unsigned passed = 0, failed = 0;

	if (argc < 3 || argc > 4) {
		fprintf(stderr, "usage: %s sim|threads|processes SPEC [CASE]\n",
			argv[0]);
		return 2;
	}
	for (const struct conf_case *t = conf_cases; t->name; t++) {
		if (argc == 4 && strcmp(argv[3], t->name))
			continue;
		if (run_case(argv[1], argv[2], t))
			passed++;
		else
			failed++;
	}
	printf("%u passed, %u failed\n", passed, failed);
	return failed || !passed;
}
