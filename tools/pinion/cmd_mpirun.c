/* SPDX-License-Identifier: BSD-2-Clause */
/* pinion mpirun: runs Open MPI's mpirun, configured to send messages over
 * pinion. */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "tools/pinion/command.h"
#include "tools/pinion/job.h"
#include "tools/pinion/launch.h"
#include "tools/pinion/paths.h"
#include "tools/pinion/psm.h"

struct values {
	char trace[PN_OPTION_TEXT_BYTES];
	char launcher[PN_OPTION_TEXT_BYTES];
	char report[PN_OPTION_TEXT_BYTES];
	bool windows;
	int progress; /* an index of progress_choices */
	uint64_t watchdog;
	bool psm;
	bool print;
};

/* The first: as PINION_PROGRESS says. */
static const char *const progress_choices[] = { "unset", "caller", "thread",
						"auto", NULL };

static const struct pn_option options[] = {
	{ "trace", PN_OPTION_TEXT, "",
	  "record each rank's requests into this folder, one file per rank, "
	  "for `pinion trace`",
	  offsetof(struct values, trace), 0, 0, NULL },
	{ "report", PN_OPTION_TEXT, "",
	  "after the job, write a page of each rank's registrations and "
	  "requests, as `pinion report`",
	  offsetof(struct values, report), 0, 0, NULL },
	{ "windows", PN_OPTION_BOOL, "no",
	  "implement windows with RMA and atomics of the provider instead of "
	  "messages, over a second endpoint in each rank",
	  offsetof(struct values, windows), 0, 0, NULL },
	{ "progress", PN_OPTION_CHOICE, "unset",
	  "whether a thread in each rank moves messages on while the program "
	  "computes: sets PINION_PROGRESS",
	  offsetof(struct values, progress), 0, 0, progress_choices },
	{ "watchdog", PN_OPTION_NUMBER, "60",
	  "after so many seconds in which all ranks wait and no message moves, "
	  "a line says which rank waits for what (0: never)",
	  offsetof(struct values, watchdog), 0, 1000000, NULL },
	{ "psm", PN_OPTION_BOOL, "no",
	  "load libfabric's libraries for PSM adapters even if this host has "
	  "none (each takes 100 ms)",
	  offsetof(struct values, psm), 0, 0, NULL },
	{ "launcher", PN_OPTION_TEXT, "",
	  "the mpirun to start (default: mpirun.openmpi, else mpirun)",
	  offsetof(struct values, launcher), 0, 0, NULL },
	{ "print", PN_OPTION_BOOL, "no",
	  "print the command instead of running it",
	  offsetof(struct values, print), 0, 0, NULL },
};

/* --- setting up ----------------------------------------------------------- */

/* MCA parameters for Open MPI, unless the user sets others: Debian's
 * configuration file disables most of this. Open MPI's memory hooks would
 * overwrite ours and are not needed. Windows use messages (pt2pt) or RMA (rdma
 * over btl/ofi); for btl/ofi every rank opens an endpoint, whether it has
 * windows or not. */
static const struct {
	const char *name;
	const char *by_messages;
	const char *by_rma; /* NULL: the same value */
} settings[] = {
	{ "FI_PROVIDER", "pinion", NULL },
	{ "OMPI_MCA_pml", "cm", NULL },
	{ "OMPI_MCA_mtl", "ofi", NULL },
	{ "OMPI_MCA_btl", "self", "self,ofi" },
	{ "OMPI_MCA_osc", "^ucx,rdma", "rdma,sm" },
	{ "OMPI_MCA_osc_rdma_btls", "ofi", NULL },
	/* btl/ofi of 4.1 aborts on atomic minima, which osc/rdma would use. */
	{ "OMPI_MCA_osc_rdma_acc_use_amo", "0", NULL },
	{ "OMPI_MCA_memory", "^patcher", NULL },
	/* Of providers below pinion, which has a cache of its own. */
	{ "FI_MR_CACHE_MAX_COUNT", "0", NULL },
};

/* The providers that the devices of a spec need, for FI_PROVIDER: it hides all
 * others from every user of libfabric in the process. */
static void list_providers(const char *spec, char *out, size_t size)
{
	size_t n = (size_t)snprintf(out, size, "pinion");

	while (spec && (spec = strstr(spec, "fabric")) && n < size) {
		size_t len;

		spec += strlen("fabric");
		spec += *spec == ':';
		len = strcspn(spec, ";,+/=");
		/* None is named: the device chooses. */
		if (!len || spec[len] == '=')
			n += (size_t)snprintf(out + n, size - n,
					      ",tcp,verbs,efa,cxi");
		else
			n += (size_t)snprintf(out + n, size - n, ",%.*s",
					      (int)len, spec);
	}
}

/* Open MPI uses pinion alone, whatever its devices need. */
static int set_providers(void)
{
	char list[PN_OPTION_TEXT_BYTES];

	list_providers(getenv("PINION_DEVICE"), list, sizeof(list));
	if (setenv("FI_PROVIDER", list, 0))
		return -errno;
	if (!strchr(list, ',') || getenv("OMPI_MCA_mtl_ofi_provider_exclude"))
		return 0;
	return setenv("OMPI_MCA_mtl_ofi_provider_include", "pinion", 0) ? -errno
									: 0;
}

static int set_up(const struct pn_paths *place, const char *trace,
		  const struct values *values)
{
	int ret = pn_job_prepend("FI_PROVIDER_PATH", place->provider_dir);

	if (!ret)
		ret = set_providers();
	if (!ret && values->progress &&
	    setenv("PINION_PROGRESS", progress_choices[values->progress], 1))
		ret = -errno;
	for (size_t i = 0; !ret && i < PN_ARRAY_LEN(settings); i++) {
		const char *value = values->windows && settings[i].by_rma
					    ? settings[i].by_rma
					    : settings[i].by_messages;

		if (setenv(settings[i].name, value, 0))
			ret = -errno;
	}
	return ret ? ret : pn_job_trace(trace, "rank-%r.%p");
}

/* --- running -------------------------------------------------------------- */

/* A command line under construction; run() allocated enough entries. */
struct line {
	const char **words;
	size_t n;
};

static void add(struct line *line, const char *word)
{
	line->words[line->n++] = word;
}

/* Variables that mpirun must export to ranks on other hosts. */
static void add_exports(struct line *line)
{
	add(line, "-x");
	add(line, "FI_PROVIDER_PATH");
	add(line, "-x");
	add(line, "FI_PROVIDER");
	add(line, "-x");
	add(line, "FI_MR_CACHE_MAX_COUNT");
	for (char **e = environ; *e; e++) {
		char *name;

		if (strncmp(*e, "PINION_", 7) || !strchr(*e, '='))
			continue;
		name = strndup(*e, strcspn(*e, "="));
		if (!name)
			continue;
		add(line, "-x");
		add(line, name); /* putenv() keeps the string */
	}
}

static size_t count(char *const *words)
{
	size_t n = 0;

	while (words[n])
		n++;
	return n;
}

static int print_line(const struct line *line)
{
	printf("FI_PROVIDER_PATH=%s", getenv("FI_PROVIDER_PATH"));
	for (size_t i = 0; i < PN_ARRAY_LEN(settings); i++)
		printf(" %s=%s", settings[i].name, getenv(settings[i].name));
	for (size_t i = 0; i < line->n; i++)
		printf(" %s", line->words[i]);
	printf("\n");
	return PN_EXIT_OK;
}

static bool helper_is_on(void)
{
	const char *helper = getenv("PINION_HELPER");

	return helper && *helper && strcmp(helper, "off");
}

/* --- as a child ----------------------------------------------------------- */

/* Arguments of start(). */
struct call {
	const struct line *line;
	bool named;
};

/* Returns only when exec failed. */
static int start(const void *arg)
{
	const struct call *call = arg;
	char **argv = (char **)(uintptr_t)call->line->words;

	execvp(argv[0], argv);
	if (errno == ENOENT && !call->named) {
		argv[0] = (char *)(uintptr_t) "mpirun";
		execvp(argv[0], argv);
	}
	return pn_failed(argv[0], -errno);
}

/* Runs the job and writes the report if requested. Returns the launcher's
 * status. */
static int run_and_report(const struct line *line, const struct values *values,
			  const char *folder)
{
	const struct call call = { line, *values->launcher };
	const struct pn_job_report report = { .title = "pinion mpirun",
					      .folder = folder,
					      .output = values->report,
					      .remove = !*values->trace };
	struct pn_watchdog watchdog = { .interval_ns = values->watchdog *
						       PN_NS_PER_S };
	int status = pn_launch(start, &call, &watchdog);

	if (status < 0)
		return pn_failed("mpirun", status);
	if (*values->report && pn_job_report(&report) && !status)
		return PN_EXIT_FAILED;
	return status;
}

/* Whether FI_PROVIDER is what this command would choose. */
static bool is_own_choice(void)
{
	const char *chosen = getenv("FI_PROVIDER");
	char list[PN_OPTION_TEXT_BYTES];

	list_providers(getenv("PINION_DEVICE"), list, sizeof(list));
	return !strcmp(chosen, "pinion") || !strcmp(chosen, list);
}

/* The stand-ins for PSM, or NULL: who chose another provider may mean PSM on
 * other hosts. */
static char *stand_ins(const struct pn_paths *place, bool psm)
{
	return psm || !is_own_choice() ? NULL : pn_psm_stand_ins(place);
}

/* Only the ranks get the library preloaded, not mpirun; and call sites are
 * named only on request. */
static const char *preload(const struct pn_paths *place, bool psm)
{
	const char *old = getenv("LD_PRELOAD");
	const char *sites = helper_is_on() ? place->sites : "";
	char *without = stand_ins(place, psm);
	char *text;
	int n;

	n = asprintf(&text, "LD_PRELOAD=%s%s%s%s%s%s%s", place->library,
		     *sites ? ":" : "", sites, without ? ":" : "",
		     without ? without : "", old && *old ? ":" : "",
		     old ? old : "");
	free(without);
	return n < 0 ? NULL : text;
}

static int run(const void *v, char *const *operands)
{
	const struct values *values = v;
	char made[] = PN_JOB_FOLDER;
	const char *folder = values->trace;
	struct pn_paths place;
	struct line line = { 0 };
	int ret;

	if (!*operands)
		return pn_usage_error("mpirun: name a program, for example "
				      "`pinion mpirun -n 2 ./a.out`");
	if (pn_paths_find(&place))
		return pn_usage_error("mpirun: no " PN_PROVIDER " beside this "
				      "command; install libfabric-dev and "
				      "build pinion again");
	if (*values->report && !*folder && !values->print)
		folder = mkdtemp(made);
	if (!folder)
		return pn_failed(made, -errno);
	ret = set_up(&place, folder, values);
	if (ret)
		return pn_failed(*folder ? folder : "mpirun", ret);
	line.words = calloc(count(operands) + 2 * count(environ) + 16,
			    sizeof(*line.words));
	if (!line.words)
		return pn_failed("mpirun", -ENOMEM);
	add(&line, *values->launcher ? values->launcher : "mpirun.openmpi");
	add_exports(&line);
	add(&line, "-x");
	add(&line, preload(&place, values->psm));
	while (*operands)
		add(&line, *operands++);
	if (values->print)
		ret = print_line(&line);
	else
		ret = run_and_report(&line, values, folder);
	free(line.words);
	return ret;
}

const struct pn_command pn_cmd_mpirun = {
	.name = "mpirun",
	.help = "run an MPI program over pinion, with Open MPI's mpirun",
	.about = "Everything after these options goes to mpirun. The command "
		 "finds the libfabric provider, configures Open MPI to use it, "
		 "and preloads the library, so that the release of memory is "
		 "detected from the start; with PINION_HELPER it also preloads "
		 "a library that names the call sites of messages for the "
		 "helper. Settings of Open MPI in the environment or in "
		 "mpirun's own options take precedence. At the end it removes "
		 "files of killed ranks in /dev/shm, and ends all processes of "
		 "a job that was told to end.",
	.options = options,
	.noptions = PN_ARRAY_LEN(options),
	.values_bytes = sizeof(struct values),
	.operands = "MPIRUN-OPTION... PROGRAM [ARGUMENT...]",
	.passes = true,
	.run = run,
};
