/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pinion reproduce: runs the experiments of the five papers, one after the
 * other, and writes one report with the papers' figures beside ours.
 *
 * An experiment is an entry of the table below: a command of pinion, its
 * arguments in the quick and in the full variant, and the approximate run time.
 * Each runs in its own process, so that it does not disturb the next one, and
 * writes its rows to a file. A failed experiment is reported and left out: its
 * claims are missing in the report.
 */
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "device/cuda/driver.h"
#include "tools/pinion/cmd_report.h"
#include "tools/pinion/command.h"
#include "tools/pinion/report.h"

struct values {
	bool quick, list;
	char output[PN_OPTION_TEXT_BYTES], folder[PN_OPTION_TEXT_BYTES];
	char only[PN_OPTION_TEXT_BYTES], traces[PN_OPTION_TEXT_BYTES];
};

#define FIELD(name) offsetof(struct values, name)

static const struct pn_option options[] = {
	{ "quick", PN_OPTION_BOOL, "no",
	  "run smaller variants: minutes instead of most of an hour",
	  FIELD(quick), 0, 0, NULL },
	{ "output", PN_OPTION_TEXT, "reproduced.html", "the report",
	  FIELD(output), 0, 0, NULL },
	{ "folder", PN_OPTION_TEXT, "reproduced",
	  "folder for the rows of each experiment", FIELD(folder), 0, 0, NULL },
	{ "only", PN_OPTION_TEXT, "",
	  "run only this experiment; the report uses the rows of the others in "
	  "the folder",
	  FIELD(only), 0, 0, NULL },
	{ "traces", PN_OPTION_TEXT, "",
	  "folder of traces, for the experiment `recorded`", FIELD(traces), 0,
	  0, NULL },
	{ "list", PN_OPTION_BOOL, "no", "list the experiments", FIELD(list), 0,
	  0, NULL },
};

#define NAS_SIZES  "--device sim:cost=woodall2006 --buffers 1 --bytes "
#define PROTOCOLS  "--protocol cached,pipeline,caching-pipeline "
#define HEAP_QUICK " --trials 100 --budget 20s --what register,new,reuse,put"

static const struct experiment {
	const char *name;
	const char *rows; /* rows of the design */
	const char *command;
	const char *quick, *full; /* arguments; NULL: same as quick */
	unsigned quick_s, full_s; /* approximate run time */
} experiments[] = {
	/* Helper */
	{ "predictor", "H3 H5", "bench helper --experiment predictor", "", NULL,
	  4, 4 },
	{ "figure1", "H1", "bench helper --experiment figure1", "", NULL, 1,
	  1 },
	{ "nas", "H1 H6", "bench helper --experiment nas", "", NULL, 60, 60 },
	{ "limit", "H9", "bench helper --experiment limit", "", NULL, 2, 2 },
	{ "cores", "H8", "bench helper --experiment cores", "", NULL, 10, 10 },
	{ "aggregation", "H10", "bench helper --experiment aggregation", "",
	  NULL, 2, 2 },
	{ "scaling", "H10", "bench helper --experiment scaling", "--nodes 64",
	  "--nodes 1024", 15, 120 },
	{ "recording", "H7", "bench helper --experiment recording", "", NULL, 8,
	  8 },
	{ "cluster", "H10 X4", "sim cluster --workload ft", "--nodes 16",
	  "--nodes 256", 5, 120 },
	/* Heap */
	{ "heap-stria", "A4", "bench heap --device soft:cost=stria", HEAP_QUICK,
	  "", 15, 60 },
	{ "heap-mutrino", "A4", "bench heap --device soft:cost=mutrino",
	  HEAP_QUICK, "", 15, 60 },
	{ "heap-view", "A5", "bench heap --device sim:cost=stria --what view",
	  "--trials 10", "", 2, 10 },
	{ "register", "A4 M9", "bench register --pages 4k --present yes",
	  "--max 2M --trials 200 --budget 5s", "--max 64M", 5, 20 },
	/* Pipeline */
	{ "message-size", "P1 P2 P3 P4 P5 P6 P9",
	  "bench message --device sim:cost=woodall2006 --buffers 1 --reuse 1",
	  "--bytes 1M,8M", "--bytes 64K..64M", 25, 600 },
	{ "message-reuse", "P5 P6 P9",
	  "bench message " NAS_SIZES "8M " PROTOCOLS,
	  "--reuse "
	  "1,5,20,40,50,56,60",
	  "--reuse 1,2,3,5,10,20,30,40,50,54,56,60,70,80,90,100", 40, 200 },
	{ "rails", "P7", "bench rails", "--min 8M --max 16M", "", 60, 200 },
	/* Region cache */
	{ "paper-003", "M1 M2 M3 M4 M8", "sim paper", "", NULL, 90, 90 },
	{ "policies", "M2 M4 X6", "sim cache",
	  "--trace gen:httpd,requests=20000", "--trace gen:httpd", 10, 60 },
	{ "frrwp", "M6 M7 M10", "bench frrwp", "", NULL, 1, 1 },
	{ "fast-register", "M5 M9",
	  "bench register --device sim:cost=ou2009 --pages 4k --present yes",
	  "--max 2M --trials 10", NULL, 1, 1 },
	/* Reuse */
	{ "reuse", "R1 R2 R3 R4 R6", "bench reuse --device sim:cost=rashti2011",
	  "", NULL, 20, 20 },
	{ "put", "R2", "bench put --device sim:cost=rashti2011", "--max 64K",
	  "", 3, 20 },
	/* All of them on a GPU, with measured times; where there is one. */
	{ "gpu-transfer", "G7", "bench gpu", "--max 64M --budget 5s",
	  "--max 1G --fragment 16M --budget 60s", 6, 65 },
	{ "gpu-helper", "G7", "bench gpu --experiment helper", "--periods 8",
	  "--periods 30", 50, 140 },
	{ "policies-h200", "G7 M2", "sim cache --profile h200 --policy lru,mre",
	  "--trace gen:httpd,requests=20000", "--trace gen:httpd", 5, 30 },
};

#define N PN_ARRAY_LEN(experiments)

static const char *arguments(const struct experiment *e, bool quick)
{
	return quick || !e->full ? e->quick : e->full;
}

static unsigned expected_s(const struct experiment *e, bool quick)
{
	return quick ? e->quick_s : e->full_s;
}

/* --- one experiment ------------------------------------------------------- */

static void path_of(const struct values *values, const struct experiment *e,
		    char *path, size_t bytes)
{
	snprintf(path, bytes, "%.480s/%s.json", values->folder, e->name);
}

/* Splits a line into words that point into it. Returns their number. */
static int split(char *line, char **words, int max)
{
	int n = 0;

	for (char *word = strtok(line, " "); word && n < max;
	     word = strtok(NULL, " "))
		words[n++] = word;
	return n;
}

static int spawn(char **argv, const char *path, pid_t *child)
{
	posix_spawn_file_actions_t actions;
	int ret = posix_spawn_file_actions_init(&actions);

	if (ret)
		return -ret;
	ret = posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, path,
					       O_WRONLY | O_CREAT | O_TRUNC,
					       0666);
	/* Only this process prints progress on the terminal. */
	if (!ret)
		ret = posix_spawn_file_actions_addopen(&actions, STDIN_FILENO,
						       "/dev/null", O_RDONLY,
						       0);
	if (!ret)
		ret = posix_spawn(child, "/proc/self/exe", &actions, NULL, argv,
				  environ);
	posix_spawn_file_actions_destroy(&actions);
	return -ret;
}

/* Prints the current experiment, its number, and the estimated remaining time:
 * the expected rest, scaled by the error of the estimate so far. */
struct clock {
	uint64_t began_ns;
	unsigned done_s, all_s; /* expected */
};

static double left_s(const struct clock *clock)
{
	double took = (double)(pn_clock_ns() - clock->began_ns) / PN_NS_PER_S;
	double factor = clock->done_s > 5 ? took / clock->done_s : 1;

	return (clock->all_s - clock->done_s) * factor;
}

static int wait_for(pid_t child, const struct clock *clock, const char *what)
{
	struct timespec nap = { 0, 200 * 1000 * 1000 };
	char text[200];
	int status;
	pid_t got;

	while (!(got = waitpid(child, &status, WNOHANG))) {
		snprintf(text, sizeof(text), "%.120s, about %.0f s left", what,
			 left_s(clock));
		pn_report_progress(text);
		nanosleep(&nap, NULL);
	}
	pn_report_progress(NULL);
	if (got < 0)
		return -errno;
	return WIFEXITED(status) && !WEXITSTATUS(status) ? 0 : -ECHILD;
}

static int run_one(const struct values *values, const struct experiment *e,
		   const struct clock *clock, unsigned number)
{
	char line[1024], path[PN_OPTION_TEXT_BYTES], what[160];
	char *argv[64] = { "pinion" };
	uint64_t began = pn_clock_ns();
	pid_t child;
	int ret, n;

	snprintf(line, sizeof(line), "%s %s --json", e->command,
		 arguments(e, values->quick));
	snprintf(what, sizeof(what), "%2u of %zu  %s (%s)", number, N, e->name,
		 e->rows);
	n = 1 + split(line, argv + 1, 60);
	argv[n] = NULL;
	path_of(values, e, path, sizeof(path));
	ret = spawn(argv, path, &child);
	if (!ret)
		ret = wait_for(child, clock, what);
	printf("%-60s %s %5.1f s\n", what, ret ? "FAILED" : "ok    ",
	       (double)(pn_clock_ns() - began) / PN_NS_PER_S);
	fflush(stdout);
	if (ret)
		unlink(path);
	return ret;
}

/* --- all of them ---------------------------------------------------------- */

/* Whether the machine has what the experiment needs. */
static bool can_run(const struct experiment *e)
{
	const struct pn_cuda_driver *driver;

	return strncmp(e->name, "gpu-", 4) ||
	       !pn_cuda_driver_init(&driver, NULL);
}

static bool wanted(const struct values *values, const struct experiment *e)
{
	return values->only[0] ? !strcmp(values->only, e->name) : can_run(e);
}

static unsigned run_all(const struct values *values)
{
	struct clock clock = { .began_ns = pn_clock_ns() };
	unsigned failed = 0;

	for (size_t i = 0; i < N; i++)
		if (wanted(values, &experiments[i]))
			clock.all_s +=
				expected_s(&experiments[i], values->quick);
	for (size_t i = 0; i < N; i++) {
		if (!wanted(values, &experiments[i]))
			continue;
		failed += !!run_one(values, &experiments[i], &clock,
				    (unsigned)i + 1);
		clock.done_s += expected_s(&experiments[i], values->quick);
	}
	return failed;
}

/* Recorded traces are a separate experiment if there are any. */
static int run_recorded(const struct values *values)
{
	char line[2 * PN_OPTION_TEXT_BYTES];
	const struct experiment recorded = { "recorded", "H1 X8", line, "",
					     NULL,	 30,	  30 };
	struct clock clock = { pn_clock_ns(), 0, 30 };

	if (!values->traces[0] || !wanted(values, &recorded))
		return 0;
	if (strchr(values->traces, ' '))
		return pn_usage_error("reproduce: the name of the folder of "
				      "traces must not contain blanks");
	snprintf(line, sizeof(line),
		 "bench helper --experiment recorded --traces %s",
		 values->traces);
	return run_one(values, &recorded, &clock, (unsigned)N + 1);
}

static int write_report(const struct values *values)
{
	static char paths[N + 1][PN_OPTION_TEXT_BYTES];
	char *files[N + 2] = { NULL };
	const struct experiment recorded = { .name = "recorded" };
	const struct pn_report_attr attr = {
		.title = values->quick
				 ? "pinion: the five papers, quick variants"
				 : "pinion: the five papers",
		.files = files,
		.output = values->output,
		.agreement = true,
	};
	size_t n = 0;

	for (size_t i = 0; i <= N; i++) {
		path_of(values, i < N ? &experiments[i] : &recorded, paths[i],
			sizeof(paths[i]));
		if (!access(paths[i], R_OK))
			files[n++] = paths[i];
	}
	return pn_report_write(&attr);
}

static int list(bool quick)
{
	for (size_t i = 0; i < N; i++)
		printf("%-14s %-22s about %4u s  pinion %s %s\n",
		       experiments[i].name, experiments[i].rows,
		       expected_s(&experiments[i], quick),
		       experiments[i].command,
		       arguments(&experiments[i], quick));
	return PN_EXIT_OK;
}

static bool is_known(const char *name)
{
	for (size_t i = 0; i < N; i++)
		if (!strcmp(experiments[i].name, name))
			return true;
	return !*name || !strcmp(name, "recorded");
}

static int run(const void *v, char *const *operands)
{
	const struct values *values = v;
	unsigned failed;
	int ret;

	(void)operands;
	if (values->list)
		return list(values->quick);
	if (!is_known(values->only))
		return pn_usage_error("reproduce: no experiment is called "
				      "'%s'; --list prints all",
				      values->only);
	if (mkdir(values->folder, 0777) && errno != EEXIST)
		return pn_failed(values->folder, -errno);
	failed = run_all(values);
	failed += !!run_recorded(values);
	ret = write_report(values);
	if (failed)
		fprintf(stderr, "pinion: %u experiments failed\n", failed);
	return failed ? PN_EXIT_FAILED : ret;
}

const struct pn_command pn_cmd_reproduce = {
	.name = "reproduce",
	.help = "run the experiments of the five papers and write a report",
	.about = "The report begins with a table that compares the papers' "
		 "figures with ours and explains differences. Experiments in "
		 "virtual time give the same figures on every machine; the "
		 "others depend on the machine and its load.",
	.options = options,
	.noptions = PN_ARRAY_LEN(options),
	.values_bytes = sizeof(struct values),
	.run = run,
};
