/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pinion reproduce: runs the experiments of the five papers, one after the
 * other, and writes one report with the papers' figures beside ours.
 *
 * An experiment is an entry of the table below: a command of pinion, its
 * arguments in the quick and in the full variant, and the approximate run time.
 * Each runs in its own process and writes its rows to a file, which gets its
 * name when it is complete: an interrupted run can be resumed. Experiments in
 * virtual time run side by side, one per core; those that measure real time run
 * alone. A failed experiment is reported and left out: its claims are missing
 * in the report. One that this machine cannot run is left out with the reason,
 * in what is printed and on the page.
 */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <math.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "bench/timed_replay.h"
#include "device/cuda/driver.h"
#include "tools/pinion/busy.h"
#include "tools/pinion/claims.h"
#include "tools/pinion/cmd_report.h"
#include "tools/pinion/command.h"
#include "tools/pinion/json.h"
#include "tools/pinion/page.h"
#include "tools/pinion/paths.h"
#include "tools/pinion/report.h"
#include "tools/pinion/rows.h"

#define LINE_BYTES (PN_PATH_BYTES + 512) /* command line of an experiment */

struct values {
	bool quick, list, resume;
	char output[PN_OPTION_TEXT_BYTES], folder[PN_OPTION_TEXT_BYTES];
	char only[PN_OPTION_TEXT_BYTES], traces[PN_OPTION_TEXT_BYTES];
	char rows[PN_OPTION_TEXT_BYTES];
};

#define FIELD(name) offsetof(struct values, name)

static const struct pn_option options[] = {
	{ "quick", PN_OPTION_BOOL, "no",
	  "run smaller variants: at most 5 minutes on two idle cores",
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
	  "folder of traces for the experiments `recorded` (default: those "
	  "that come with pinion)",
	  FIELD(traces), 0, 0, NULL },
	{ "rows", PN_OPTION_TEXT, "",
	  "folder of rows from elsewhere (*.json), for example from a guest "
	  "with RDMA or from a machine with a GPU, for the report",
	  FIELD(rows), 0, 0, NULL },
	{ "resume", PN_OPTION_BOOL, "no",
	  "keep the rows that an earlier run with the same arguments left in "
	  "the folder",
	  FIELD(resume), 0, 0, NULL },
	{ "list", PN_OPTION_BOOL, "no", "list the experiments", FIELD(list), 0,
	  0, NULL },
};

#define PROTOCOLS  "--protocol cached,pipeline,caching-pipeline "
#define REUSED	   "bench message --buffers 1 --bytes 8M " PROTOCOLS "--device "
#define HEAP_QUICK " --trials 1000 --budget 10s --what register,new,reuse,put"

static const struct experiment {
	const char *name;
	const char *rows; /* rows of the design */
	bool alone;	  /* measures real time */
	const char *command;
	const char *quick, *full; /* arguments; NULL: same as quick */
	unsigned quick_s, full_s; /* approximate run time */
} experiments[] = {
	/* Helper */
	{ "predictor", "H3 H5", false, "bench helper --experiment predictor",
	  "", NULL, 1, 1 },
	{ "predictor-cx5", "H3 H5", false,
	  "bench helper --experiment predictor --cost cx5", "", NULL, 1, 1 },
	{ "latency", "H1", false, "bench helper --experiment latency", "", NULL,
	  2, 2 },
	{ "latency-cx5", "H1", false,
	  "bench helper --experiment latency --cost cx5", "", NULL, 2, 2 },
	{ "latency-h200", "H1", false,
	  "bench helper --experiment latency --cost h200", "", NULL, 2, 2 },
	{ "figure1", "H1", false, "bench helper --experiment figure1", "", NULL,
	  1, 1 },
	{ "nas", "H1 H6", false, "bench helper --experiment nas", "", NULL, 25,
	  25 },
	{ "nas-cx5", "H1 H6", false, "bench helper --experiment nas --cost cx5",
	  "", NULL, 25, 25 },
	{ "limit", "H9", false, "bench helper --experiment limit", "", NULL, 2,
	  2 },
	{ "cores", "H8", false, "bench helper --experiment cores", "", NULL, 5,
	  5 },
	{ "aggregation", "H10", false, "bench helper --experiment aggregation",
	  "", NULL, 2, 2 },
	{ "aggregation-cx5", "H10", false,
	  "bench helper --experiment aggregation --cost cx5", "", NULL, 2, 2 },
	{ "scaling", "H10", false, "bench helper --experiment scaling",
	  "--nodes 64", "--nodes 1024", 8, 120 },
	{ "recording", "H7", true, "bench helper --experiment recording", "",
	  NULL, 8, 8 },
	{ "rhythm", "H1 H6", true, "bench helper --experiment rhythm",
	  "--periods 8", "", 11, 18 },
	{ "cluster", "H10 X4", false, "sim cluster --workload ft", "--nodes 16",
	  "--nodes 256", 5, 120 },
	/* Heap */
	{ "heap-stria", "A4", true, "bench heap --device soft:cost=stria",
	  HEAP_QUICK, "", 12, 60 },
	{ "heap-mutrino", "A4", true, "bench heap --device soft:cost=mutrino",
	  HEAP_QUICK, "", 12, 60 },
	{ "heap-cx5", "A4", true, "bench heap --device soft:cost=cx5",
	  HEAP_QUICK, "", 12, 60 },
	{ "heap-h200", "A4", true, "bench heap --device soft:cost=h200",
	  HEAP_QUICK, "", 12, 60 },
	{ "heap-soft", "A4", true, "bench heap --device soft", HEAP_QUICK, "",
	  8, 60 },
	{ "view", "A5", true, "bench view --device soft", "--rounds 3", "", 3,
	  5 },
	{ "register", "A4 M5 M9", true,
	  "bench register --device soft --pages 4k",
	  "--max 2M --trials 200 --budget 5s", "--max 64M", 4, 22 },
	{ "slab", "A4", true, "bench slab --device soft",
	  "--trials 50 --budget 3s", "", 3, 10 },
	{ "slots", "M5", true, "bench slots", "--budget 2s", "", 2, 10 },
	/* Pipeline */
	{ "message-size", "P1 P2 P3 P4 P5 P6 P9", false,
	  "bench message --device sim:cost=woodall2006 --buffers 1 --reuse 1",
	  "--bytes 64K,256K,1M,8M", "--bytes 64K..64M", 5, 60 },
	{ "message-reuse", "P5 P6 P9", false, REUSED "sim:cost=woodall2006",
	  "--reuse 1,2,5,10,20,35,40,45,50,55,60,70,80",
	  "--reuse "
	  "1,2,3,5,10,20,30,35,40,42,44,46,48,50,52,54,56,58,60,70,80,90,100",
	  6, 20 },
	{ "message-cx5", "P5 P6 P9", false, REUSED "sim:cost=cx5",
	  "--reuse 1,2,3,4,5,6,7,8,10,12,15,20,40", NULL, 4, 4 },
	{ "message-h200", "P5 P6 P9", false, REUSED "sim:cost=h200",
	  "--reuse 1,2,3,4,5,6,7,8,10,12,15,20,40", NULL, 4, 4 },
	{ "message-soft", "P5 P6 P9", true, REUSED "soft",
	  "--reuse 1,2,5,20 --budget 10s", "--reuse 1,2,3,5,10,20,40,80", 12,
	  60 },
	{ "rails", "P7", false, "bench rails", "--min 8M --max 16M", "", 30,
	  200 },
	/* Region cache */
	{ "paper-003", "M1 M2 M3 M4 M8", false, "sim paper", "", NULL, 14, 14 },
	{ "paper-003-cx5", "M2 M3 M8", false, "sim paper --profile cx5", "",
	  NULL, 14, 14 },
	{ "paper-003-h200", "M2 M3 M8", false, "sim paper --profile h200", "",
	  NULL, 14, 14 },
	{ "policies", "M2 M4 X6", false, "sim cache",
	  "--trace gen:httpd,requests=20000", "--trace gen:httpd", 3, 60 },
	{ "frrwp", "M6 M7 M10", false, "bench frrwp", "", NULL, 1, 1 },
	{ "frrwp-cx5", "M6 M7 M10", false, "bench frrwp --device sim:cost=cx5",
	  "", NULL, 1, 1 },
	{ "frrwp-h200", "M6 M7 M10", false,
	  "bench frrwp --device sim:cost=h200", "", NULL, 1, 1 },
	/* Reuse */
	{ "reuse", "R1 R2 R3 R4 R6", false,
	  "bench reuse --device sim:cost=rashti2011", "--messages 100000", "",
	  8, 27 },
	{ "reuse-cx5", "R1 R2 R3 R4 R6", false,
	  "bench reuse --device sim:cost=cx5", "--messages 100000", "", 8, 27 },
	{ "reuse-h200", "R1 R2 R3 R4 R6", false,
	  "bench reuse --device sim:cost=h200", "--messages 100000", "", 8,
	  27 },
	{ "reuse-soft", "R1 R2 R4 R6", true,
	  "bench reuse --device soft --mode on",
	  "--messages 10000 --buffers 50 --budget 15s", "", 20, 60 },
	{ "put", "R2", false, "bench put --device sim:cost=rashti2011",
	  "--max 64K", "", 3, 20 },
	{ "collectives", "R6", true,
	  "bench mpi --what bcast,scatter --ranks 4,16 --stacks pinion,vader",
	  "--min 1K --max 8K --factor 8 --rounds 1 --warm 20",
	  "--min 128 --max 64K --factor 4 --rounds 3 --warm 50", 20, 120 },
	/* All of them on a GPU, with measured times; where there is one. */
	{ "gpu-transfer", "G7", true, "bench gpu", "--max 64M --budget 5s",
	  "--max 1G --fragment 16M --budget 60s", 6, 65 },
	{ "gpu-helper", "G7", true, "bench gpu --experiment helper",
	  "--periods 8", "--periods 30", 50, 140 },
	{ "policies-h200", "G7 M2", false,
	  "sim cache --profile h200 --policy lru,mre",
	  "--trace gen:httpd,requests=20000", "--trace gen:httpd", 3, 30 },
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

static void command_line(const struct values *values,
			 const struct experiment *e, char *line, size_t bytes)
{
	const char *more = arguments(e, values->quick);

	snprintf(line, bytes, "%s%s%s --json", e->command, *more ? " " : "",
		 more + strspn(more, " "));
}

/* Whether the folder has rows of this very command. */
static bool is_done(const struct values *values, const struct experiment *e)
{
	char path[PN_OPTION_TEXT_BYTES], line[LINE_BYTES];
	char whole[LINE_BYTES + 8];
	struct pn_rows rows = { 0 };
	struct pn_why why;
	const char *command;
	bool done;

	path_of(values, e, path, sizeof(path));
	command_line(values, e, line, sizeof(line));
	snprintf(whole, sizeof(whole), "pinion %s", line);
	if (pn_rows_read(&rows, path, &why) || !rows.n) {
		pn_rows_fini(&rows);
		return false;
	}
	command = pn_row_text(rows.rows[0], "command");
	done = command && !strcmp(command, whole);
	pn_rows_fini(&rows);
	return done;
}

/* --- all of them ---------------------------------------------------------- */

/* What is to be done, runs and is done. */
struct batch {
	const struct values *values;
	uint64_t began_ns;
	double done_s, all_s; /* expected times, see share_s() */
	unsigned number, of, failed;
	struct running {
		const struct experiment *e; /* NULL: free */
		pid_t child;
		uint64_t began_ns;
		struct pn_busy busy;
		char path[PN_OPTION_TEXT_BYTES + 8];
	} running[16];
	unsigned nslots;
};

/* What an experiment adds to the time of all: a part of its own where others
 * run beside it. */
static double share_s(const struct batch *b, const struct experiment *e)
{
	return (double)expected_s(e, b->values->quick) /
	       (e->alone ? 1 : b->nslots);
}

/* Expected rest, scaled by the error of the estimate so far. */
static double left_s(const struct batch *b)
{
	double took = (double)(pn_clock_ns() - b->began_ns) / PN_NS_PER_S;
	double factor = b->done_s > 5 ? took / b->done_s : 1;

	return fmax((b->all_s - b->done_s) * factor, 0);
}

static void start(struct batch *b, struct running *slot,
		  const struct experiment *e)
{
	char line[LINE_BYTES], path[PN_OPTION_TEXT_BYTES];
	char *argv[64] = { "pinion" };
	int n;

	command_line(b->values, e, line, sizeof(line));
	n = 1 + split(line, argv + 1, 60);
	argv[n] = NULL;
	path_of(b->values, e, path, sizeof(path));
	*slot = (struct running){ .e = e, .began_ns = pn_clock_ns() };
	snprintf(slot->path, sizeof(slot->path), "%s.part", path);
	pn_busy_begin(&slot->busy);
	if (spawn(argv, slot->path, &slot->child))
		slot->child = -1;
}

/* Adds a row: was the machine idle while time was measured? */
static int note_busy(struct running *slot)
{
	FILE *file = fopen(slot->path, "ae");
	struct pn_json json;

	if (!file)
		return -errno;
	pn_busy_end(&slot->busy);
	pn_json_begin(&json, file);
	pn_json_text(&json, "bench", PN_PAGE_BUSY);
	pn_json_text(&json, "experiment", slot->e->name);
	pn_json_number(&json, "others_percent",
		       100 * pn_busy_share(&slot->busy));
	pn_json_end(&json);
	return fclose(file) ? -errno : 0;
}

/* A complete file of rows gets its name. */
static void finish(struct batch *b, struct running *slot, bool ok)
{
	const struct experiment *e = slot->e;
	char path[PN_OPTION_TEXT_BYTES], what[160];

	path_of(b->values, e, path, sizeof(path));
	ok = ok && (!e->alone || !note_busy(slot)) && !rename(slot->path, path);
	if (!ok) {
		unlink(slot->path);
		unlink(path);
	}
	b->failed += !ok;
	b->done_s += share_s(b, e);
	pn_report_progress(NULL);
	snprintf(what, sizeof(what), "%2u of %u  %s (%s)", ++b->number, b->of,
		 e->name, e->rows);
	printf("%-56s %s %5.1f s, about %.0f s left\n", what,
	       ok ? "ok    " : "FAILED",
	       (double)(pn_clock_ns() - slot->began_ns) / PN_NS_PER_S,
	       left_s(b));
	fflush(stdout);
	slot->e = NULL;
}

/* Reaps what has ended. Returns a free slot, or NULL. */
static struct running *reap(struct batch *b)
{
	struct running *found = NULL;

	for (unsigned i = 0; i < b->nslots; i++) {
		struct running *slot = &b->running[i];
		int status = -1;
		pid_t got = slot->e && slot->child > 0
				    ? waitpid(slot->child, &status, WNOHANG)
				    : -1;

		if (slot->e && got)
			finish(b, slot, got > 0 && !status);
		if (!slot->e)
			found = slot;
	}
	return found;
}

static bool is_idle(const struct batch *b)
{
	for (unsigned i = 0; i < b->nslots; i++)
		if (b->running[i].e)
			return false;
	return true;
}

static void show_progress(const struct batch *b)
{
	char text[200];
	size_t at = 0;

	for (unsigned i = 0; i < b->nslots && at < 120; i++)
		if (b->running[i].e)
			at += (size_t)snprintf(text + at, sizeof(text) - at,
					       "%s%s", at ? ", " : "",
					       b->running[i].e->name);
	if (at)
		snprintf(text + at, sizeof(text) - at, ", about %.0f s left",
			 left_s(b));
	if (at)
		pn_report_progress(text);
}

static struct running *wait_for_slot(struct batch *b, bool all)
{
	const struct timespec nap = { 0, 50 * 1000 * 1000 };
	struct running *slot;

	while (!(slot = reap(b)) || (all && !is_idle(b))) {
		show_progress(b);
		nanosleep(&nap, NULL);
	}
	return slot;
}

/* What the machine lacks for an experiment; NULL: nothing. Open MPI refuses
 * root unless it is told twice that this is meant. */
static const char *lacks_mpi(void)
{
	char path[PN_PATH_BYTES];

	if (pn_paths_program("mpi_patterns", path))
		return "bench/mpi_patterns is not in this build: it needs Open "
		       "MPI and libfabric (Debian: libopenmpi-dev, "
		       "libfabric-dev)";
	if (!geteuid() && (!getenv("OMPI_ALLOW_RUN_AS_ROOT") ||
			   !getenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")))
		return "Open MPI refuses root: set OMPI_ALLOW_RUN_AS_ROOT=1 "
		       "and OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1, or run it as "
		       "another user";
	return NULL;
}

static const char *lacks(const struct experiment *e)
{
	const struct pn_cuda_driver *driver;
	char path[PN_PATH_BYTES];

	if (!strcmp(e->name, "view") && pn_paths_program("kokkos_view", path))
		return "bench/kokkos_view is not in this build: it needs "
		       "Kokkos "
		       "(Debian: libkokkos-dev), and is not installed with "
		       "pinion";
	if (!strcmp(e->name, "collectives"))
		return lacks_mpi();
	if (!strncmp(e->name, "gpu-", 4) && pn_cuda_driver_init(&driver, NULL))
		return "there is no GPU with a driver; rows of a machine that "
		       "has one come by --rows DIR";
	return NULL;
}

static bool wanted(const struct values *values, const struct experiment *e)
{
	if (values->only[0])
		return !strcmp(values->only, e->name);
	return !lacks(e) && !(values->resume && is_done(values, e));
}

/* Experiments in virtual time side by side, or the others one by one. */
static void run_kind(struct batch *b, bool alone)
{
	for (size_t i = 0; i < N; i++)
		if (experiments[i].alone == alone &&
		    wanted(b->values, &experiments[i]))
			start(b, wait_for_slot(b, alone), &experiments[i]);
	wait_for_slot(b, true);
}

static unsigned cores(void)
{
	long n = sysconf(_SC_NPROCESSORS_ONLN);

	return n < 1 ? 1 : n > 16 ? 16 : (unsigned)n;
}

static unsigned run_all(const struct values *values)
{
	struct batch b = { .values = values,
			   .began_ns = pn_clock_ns(),
			   .nslots = cores() };

	for (size_t i = 0; i < N; i++)
		if (wanted(values, &experiments[i])) {
			b.all_s += share_s(&b, &experiments[i]);
			b.of++;
		}
	run_kind(&b, false);
	run_kind(&b, true);
	if (values->resume && b.of < N)
		printf("the rows of the other experiments are kept\n");
	return b.failed;
}

/* --- the recorded streams --------------------------------------------------
 */

#define RECORDED    "recorded"
#define MAX_STREAMS 64

/* The helper's experiment with all streams of the folder, then the policies
 * with each at the costs of a GPU. */
struct streams {
	const struct values *values;
	unsigned n;
	struct stream {
		struct experiment experiment;
		char name[160], line[PN_PATH_BYTES + 128];
	} stream[MAX_STREAMS];
};

static struct stream *add_stream(struct streams *streams, const char *rows,
				 unsigned seconds)
{
	struct stream *stream = &streams->stream[streams->n++];

	stream->experiment = (struct experiment){ .name = stream->name,
						  .rows = rows,
						  .command = stream->line,
						  .quick = "",
						  .quick_s = seconds,
						  .full_s = seconds };
	return stream;
}

static int add_policies(void *arg, const char *path, const char *name)
{
	struct streams *streams = arg;
	struct stream *stream;

	if (streams->n == MAX_STREAMS || strchr(name, ' '))
		return 0;
	stream = add_stream(streams, "G7 M2", 1);
	snprintf(stream->name, sizeof(stream->name), "policies-h200-%.140s",
		 name);
	snprintf(stream->line, sizeof(stream->line),
		 "sim cache --profile h200 --policy lru,mre --trace %s", path);
	return 0;
}

static void add_streams(struct streams *streams, const char *folder)
{
	struct stream *stream = add_stream(streams, "H1 X8", 10);

	snprintf(stream->name, sizeof(stream->name), RECORDED);
	snprintf(stream->line, sizeof(stream->line),
		 "bench helper --experiment recorded --traces %s", folder);
	/* Without the folder the experiment above fails, and says so. */
	pn_trace_files_each(folder, add_policies, streams);
}

static unsigned run_streams(const struct streams *streams)
{
	const struct values *values = streams->values;
	struct batch b = { .values = values,
			   .began_ns = pn_clock_ns(),
			   .nslots = cores() };
	bool todo[MAX_STREAMS];

	for (unsigned i = 0; i < streams->n; i++) {
		const struct experiment *e = &streams->stream[i].experiment;

		todo[i] = !(values->resume && is_done(values, e));
		b.of += todo[i];
		b.all_s += todo[i] ? share_s(&b, e) : 0;
	}
	for (unsigned i = 0; i < streams->n; i++)
		if (todo[i])
			start(&b, wait_for_slot(&b, false),
			      &streams->stream[i].experiment);
	wait_for_slot(&b, true);
	return b.failed;
}

/* Those that come with pinion, or those of --traces. Returns "" if there are
 * none, else their folder. */
static const char *find_streams(const struct values *values,
				char shipped[PN_PATH_BYTES],
				struct streams *streams)
{
	const char *folder = values->traces;

	if (!*folder && !pn_paths_traces(shipped))
		folder = shipped;
	streams->values = values;
	streams->n = 0;
	if (*folder)
		add_streams(streams, folder);
	return folder;
}

static int run_recorded(const struct values *values)
{
	static struct streams streams;
	char shipped[PN_PATH_BYTES];
	const char *folder = find_streams(values, shipped, &streams);

	if (!*folder ||
	    (values->only[0] && strcmp(values->only, RECORDED) != 0))
		return 0;
	if (strchr(folder, ' '))
		return pn_usage_error("reproduce: the name of the folder of "
				      "traces must not contain blanks");
	return (int)run_streams(&streams);
}

/* --- what cannot be run --------------------------------------------------- */

static bool has_rows_in(const char *folder, const struct experiment *e)
{
	char path[PN_OPTION_TEXT_BYTES + 64];

	snprintf(path, sizeof(path), "%s/%s.json", folder, e->name);
	return *folder && !access(path, R_OK);
}

/* Experiments that this machine cannot run and that have no rows from
 * elsewhere. Returns their number. */
static size_t find_left_out(const struct values *values,
			    struct pn_left_out out[N])
{
	size_t n = 0;

	for (size_t i = 0; i < N; i++) {
		const struct experiment *e = &experiments[i];
		const char *why = lacks(e);

		if (why && !has_rows_in(values->folder, e) &&
		    !has_rows_in(values->rows, e))
			out[n++] =
				(struct pn_left_out){ e->name, e->rows, why };
	}
	return n;
}

static void print_left_out(const struct pn_left_out *left, size_t n)
{
	for (size_t i = 0; i < n; i++)
		printf("left out  %s (%s): %s\n", left[i].name, left[i].rows,
		       left[i].why);
}

static void print_absent(void)
{
	for (size_t i = 0; i < pn_nabsent; i++)
		printf("cannot be shown here  %s, %s (%s): %s\n",
		       pn_absent[i].row, pn_absent[i].what, pn_absent[i].where,
		       pn_absent[i].why);
}

/* --- the report ----------------------------------------------------------- */

/* Adds the rows of the folder's experiments, then those from elsewhere. */
static int find_files(const struct values *values, glob_t *found)
{
	char pattern[PN_OPTION_TEXT_BYTES + 16];
	int ret;

	snprintf(pattern, sizeof(pattern), "%s/*.json", values->folder);
	ret = glob(pattern, 0, NULL, found);
	if (ret && ret != GLOB_NOMATCH)
		return -ENOMEM;
	if (!values->rows[0])
		return 0;
	snprintf(pattern, sizeof(pattern), "%s/*.json", values->rows);
	ret = glob(pattern, found->gl_pathc ? GLOB_APPEND : 0, NULL, found);
	return ret == GLOB_NOMATCH ? -ENOENT : ret ? -ENOMEM : 0;
}

static int write_report(const struct values *values)
{
	char *none[] = { NULL };
	struct pn_left_out left[N];
	size_t nleft = find_left_out(values, left);
	glob_t found = { 0 };
	int ret = find_files(values, &found);
	const struct pn_report_attr attr = {
		.title = values->quick
				 ? "pinion: the five papers, quick variants"
				 : "pinion: the five papers",
		.files = found.gl_pathc ? found.gl_pathv : none,
		.output = values->output,
		.agreement = true,
		.left_out = left,
		.nleft_out = nleft,
	};

	print_left_out(left, nleft);
	ret = ret ? pn_failed(values->rows, ret) : pn_report_write(&attr);
	globfree(&found);
	return ret;
}

static void list_one(const struct experiment *e, bool quick)
{
	printf("%-16s %-22s about %4u s  pinion %s %s\n", e->name, e->rows,
	       expected_s(e, quick), e->command, arguments(e, quick));
}

/* Also what is not among the experiments that run, and why. */
static int list(const struct values *values)
{
	static struct streams streams;
	char shipped[PN_PATH_BYTES];
	struct pn_left_out left[N];

	for (size_t i = 0; i < N; i++)
		list_one(&experiments[i], values->quick);
	find_streams(values, shipped, &streams);
	for (unsigned i = 0; i < streams.n; i++)
		list_one(&streams.stream[i].experiment, values->quick);
	print_left_out(left, find_left_out(values, left));
	print_absent();
	return PN_EXIT_OK;
}

static bool is_known(const char *name)
{
	for (size_t i = 0; i < N; i++)
		if (!strcmp(experiments[i].name, name))
			return true;
	return !*name || !strcmp(name, RECORDED);
}

static int run(const void *v, char *const *operands)
{
	const struct values *values = v;
	unsigned failed;
	int ret;

	(void)operands;
	if (values->list)
		return list(values);
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
	.about = "The report begins with a verdict about each figure of the "
		 "papers: measured, predicted, or fitted, which counts for "
		 "nothing. Experiments in virtual time run side by side and "
		 "give the same figures on every machine (messages within 3 "
		 "%, by the addresses of their buffers); the others run "
		 "alone, and depend on the machine and its load.",
	.options = options,
	.noptions = PN_ARRAY_LEN(options),
	.values_bytes = sizeof(struct values),
	.run = run,
};
