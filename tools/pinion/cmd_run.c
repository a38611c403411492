/* SPDX-License-Identifier: BSD-2-Clause */
/* pinion run: runs an unmodified program with pinion under it, by preloading
 * libraries. Without a report the command becomes the program by exec. */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/pinion/command.h"
#include "tools/pinion/job.h"
#include "tools/pinion/launch.h"
#include "tools/pinion/paths.h"

/* As env(1) and nice(1) have it. */
enum { CANNOT_EXECUTE = 126, NOT_FOUND = 127 };

struct values {
	bool cuda, verbs, remote;
	char trace[PN_OPTION_TEXT_BYTES];
	char report[PN_OPTION_TEXT_BYTES];
	bool print;
};

static const struct pn_option options[] = {
	{ "cuda", PN_OPTION_BOOL, "yes",
	  "copies of unpinned memory to and from NVIDIA GPUs go through pinion",
	  offsetof(struct values, cuda), 0, 0, NULL },
	{ "verbs", PN_OPTION_BOOL, "no",
	  "memory that the program registers with libibverbs goes through "
	  "pinion's cache",
	  offsetof(struct values, verbs), 0, 0, NULL },
	{ "remote", PN_OPTION_BOOL, "no",
	  "keep memory that peers can reach registered, too: keys that the "
	  "program has given up may go on working for peers",
	  offsetof(struct values, remote), 0, 0, NULL },
	{ "trace", PN_OPTION_TEXT, "",
	  "record each process's requests into this folder, one file per "
	  "process, for `pinion trace`",
	  offsetof(struct values, trace), 0, 0, NULL },
	{ "report", PN_OPTION_TEXT, "",
	  "afterwards, write a page of each process's registrations and "
	  "requests, as `pinion report`",
	  offsetof(struct values, report), 0, 0, NULL },
	{ "print", PN_OPTION_BOOL, "no",
	  "print the command instead of running it",
	  offsetof(struct values, print), 0, 0, NULL },
};

/* --- setting up ----------------------------------------------------------- */

/* The dynamic linker splits LD_PRELOAD at colons and spaces. */
static int preload(const char *library)
{
	char path[PN_PATH_BYTES];

	if (pn_paths_program(library, path))
		return pn_usage_error("run: no %s beside this command or in "
				      "its prefix; build or install pinion "
				      "again",
				      library);
	if (strpbrk(path, ": "))
		return pn_usage_error("run: %s cannot be preloaded: its path "
				      "has a colon or a space",
				      path);
	return pn_job_prepend("LD_PRELOAD", path);
}

/* Everything that the options ask for. Returns as preload(). */
static int set_up(const struct values *values)
{
	int ret = 0;

	if (values->verbs)
		ret = preload("libpinion-verbs.so");
	if (!ret && values->cuda)
		ret = preload("libpinion-cuda.so");
	if (!ret && values->remote && setenv("PINION_KEEP_REMOTE", "yes", 1))
		ret = -errno;
	return ret;
}

static int print_command(char *const *operands)
{
	static const char *const names[] = { "LD_PRELOAD", "PINION_KEEP_REMOTE",
					     "PINION_TRACE" };
	const char *space = "";

	for (size_t i = 0; i < PN_ARRAY_LEN(names); i++) {
		const char *value = getenv(names[i]);

		if (!value)
			continue;
		printf("%s%s=%s", space, names[i], value);
		space = " ";
	}
	while (*operands)
		printf(" %s", *operands++);
	printf("\n");
	return PN_EXIT_OK;
}

/* --- running -------------------------------------------------------------- */

/* Returns only when exec failed. */
static int start(const void *arg)
{
	char *const *operands = arg;
	int error;

	execvp(operands[0], operands);
	error = errno;
	pn_failed(operands[0], -error);
	return error == ENOENT ? NOT_FOUND : CANNOT_EXECUTE;
}

static int run_and_report(char *const *operands, const struct values *values,
			  const char *folder)
{
	const struct pn_job_report report = { .title = "pinion run",
					      .folder = folder,
					      .output = values->report,
					      .remove = !*values->trace };
	struct pn_watchdog watchdog = { .interval_ns = 0 };
	int status = pn_launch(start, operands, &watchdog);

	if (status < 0)
		return pn_failed(operands[0], status);
	if (pn_job_report(&report) && !status)
		return PN_EXIT_FAILED;
	return status;
}

static int run(const void *v, char *const *operands)
{
	const struct values *values = v;
	char made[] = PN_JOB_FOLDER;
	const char *folder = values->trace;
	int ret;

	if (!*operands)
		return pn_usage_error("run: name a program, for example "
				      "`pinion run --cuda python3 train.py`");
	if (!values->cuda && !values->verbs)
		return pn_usage_error("run: nothing to do with --cuda=no");
	if (values->remote && !values->verbs)
		return pn_usage_error("run: --remote goes with --verbs");
	ret = set_up(values);
	if (ret)
		return ret < 0 ? pn_failed("run", ret) : ret;
	if (*values->report && !*folder && !values->print)
		folder = mkdtemp(made);
	if (!folder)
		return pn_failed(made, -errno);
	ret = pn_job_trace(folder);
	if (ret)
		return pn_failed(folder, ret);
	if (values->print)
		return print_command(operands);
	return *values->report ? run_and_report(operands, values, folder)
			       : start(operands);
}

const struct pn_command pn_cmd_run = {
	.name = "run",
	.help = "run an unmodified CUDA or verbs program with pinion under it",
	.about = "Preloads libraries of pinion into the program and the "
		 "processes that it starts. With --cuda, the default, copies "
		 "between unpinned memory and GPUs go through pinion's copy "
		 "engine: PyTorch's x.cuda(), y.cpu() and load_state_dict(), "
		 "cudaMemcpy() and cuMemcpy() of any program. With --verbs "
		 "memory that the program registers with libibverbs goes "
		 "through pinion's cache, and stays registered until it is "
		 "released; memory that peers can reach only with --remote. "
		 "What the program sees stays the same. pinion-run(1) says "
		 "which calls are taken. The exit status is the program's; 127 "
		 "and 126: it was "
		 "not found, or could not be executed.",
	.options = options,
	.noptions = PN_ARRAY_LEN(options),
	.values_bytes = sizeof(struct values),
	.operands = "PROGRAM [ARGUMENT...]",
	.passes = true,
	.run = run,
};
