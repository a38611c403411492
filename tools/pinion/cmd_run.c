/* SPDX-License-Identifier: BSD-2-Clause */
/* pinion run: runs an unmodified program with pinion under it, by preloading
 * libraries. Without a report the command becomes the program by exec. */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/pinion/command.h"
#include "tools/pinion/job.h"
#include "tools/pinion/launch.h"
#include "tools/pinion/paths.h"

#define CUDA_LIBRARY  "libpinion-cuda.so"
#define VERBS_LIBRARY "libpinion-verbs.so"
#define HOOK_LIBRARY  "libpinion-hook-fi.so"

/* As env(1) and nice(1) have it. */
enum { CANNOT_EXECUTE = 126, NOT_FOUND = 127 };

struct values {
	bool cuda, verbs, fabric, remote;
	int windows; /* index of windows_choices */
	char trace[PN_OPTION_TEXT_BYTES];
	char report[PN_OPTION_TEXT_BYTES];
	bool print;
};

static const char *const windows_choices[] = { "auto", "yes", "no", NULL };

static const struct pn_option options[] = {
	{ "cuda", PN_OPTION_BOOL, "yes",
	  "copies of unpinned memory to and from NVIDIA GPUs go through pinion",
	  offsetof(struct values, cuda), 0, 0, NULL },
	{ "verbs", PN_OPTION_BOOL, "no",
	  "memory that the program registers with libibverbs goes through "
	  "pinion's cache",
	  offsetof(struct values, verbs), 0, 0, NULL },
	{ "fabric", PN_OPTION_BOOL, "no",
	  "memory that the program registers with libfabric goes through "
	  "pinion's cache",
	  offsetof(struct values, fabric), 0, 0, NULL },
	{ "remote", PN_OPTION_BOOL, "no",
	  "keep memory that peers can reach registered, too: keys that the "
	  "program has given up may go on working for peers",
	  offsetof(struct values, remote), 0, 0, NULL },
	{ "windows", PN_OPTION_CHOICE, "auto",
	  "with --verbs, where the adapter has memory windows of type 1: keep "
	  "memory that peers can reach registered, too, with keys of windows, "
	  "which end when the program gives them up; auto: where that is "
	  "faster",
	  offsetof(struct values, windows), 1, 0, windows_choices },
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

static int refuse_missing(const char *library)
{
	return pn_usage_error("run: no %s beside this command or in its "
			      "prefix; build or install pinion again",
			      library);
}

/* The dynamic linker splits LD_PRELOAD at colons and spaces. */
static int preload(const char *path)
{
	if (strpbrk(path, ": "))
		return pn_usage_error("run: %s cannot be preloaded: its path "
				      "has a colon or a space",
				      path);
	return pn_job_prepend("LD_PRELOAD", path);
}

/* What was not asked for by name may be missing. */
static int preload_ours(const char *library, bool asked_for)
{
	char path[PN_PATH_BYTES];

	if (!pn_paths_program(library, path))
		return preload(path);
	return asked_for ? refuse_missing(library) : 0;
}

/* Whether libfabric looks into the folder by itself. */
static bool is_default(const char *folder)
{
	struct stat a, b;

	return !stat(folder, &a) && !stat(PN_FABRIC_PLUGINS, &b) &&
	       a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/* A path of folders replaces the default. "@" before the first gives the order
 * of folders precedence over versions. */
static int set_provider_path(const char *folder)
{
	const char *old = getenv("FI_PROVIDER_PATH");
	bool ordered = old && *old == '@';
	char *text;
	int ret;

	if ((!old || !*old) && is_default(folder))
		return 0;
	old = old && old[ordered] ? old + ordered : PN_FABRIC_PLUGINS;
	if (asprintf(&text, "%s%s:%s", ordered ? "@" : "", folder, old) < 0)
		return -ENOMEM;
	ret = setenv("FI_PROVIDER_PATH", text, 1) ? -errno : 0;
	free(text);
	return ret;
}

/* The first hook is the innermost. The name with its prefix: the provider
 * `pinion` may be there, too. */
static int set_hook(void)
{
	const char *old = getenv("FI_HOOK");
	char *text;
	int ret;

	if (asprintf(&text, "ofi_hook_pinion%s%s", old && *old ? ";" : "",
		     old ? old : "") < 0)
		return -ENOMEM;
	ret = setenv("FI_HOOK", text, 1) ? -errno : 0;
	free(text);
	return ret;
}

/* The library is preloaded for its monitor, which must start before threads do.
 * libfabric's own cache would keep memory registered that the program or pinion
 * has given up. */
/* libfabric's own cache of registrations, below pinion's. */
static int switch_off_fabric_cache(void)
{
	return setenv("FI_MR_CACHE_MAX_COUNT", "0", 0) ? -errno : 0;
}

/* Whether the program's contexts are to use a libfabric provider. */
static bool is_device_fabric(void)
{
	const char *device = getenv("PINION_DEVICE");

	return device && strstr(device, "fabric");
}

static int set_up_fabric(void)
{
	char hook[PN_PATH_BYTES];
	struct pn_paths place;
	int ret;

	if (pn_paths_find(&place) ||
	    !pn_path_print(hook, "%s/" HOOK_LIBRARY, place.provider_dir) ||
	    access(hook, R_OK))
		return refuse_missing(HOOK_LIBRARY);
	ret = preload(place.library);
	if (!ret)
		ret = set_provider_path(place.provider_dir);
	if (!ret)
		ret = set_hook();
	return ret;
}

/* 0, enum pn_exit of what was said, or a negative errno. */
static int set_up(const struct values *values)
{
	bool others = values->verbs || values->fabric;
	int ret = values->verbs ? preload_ours(VERBS_LIBRARY, true) : 0;

	if (!ret && values->cuda)
		ret = preload_ours(CUDA_LIBRARY, !others);
	if (!ret && values->fabric)
		ret = set_up_fabric();
	if (!ret && (values->fabric || is_device_fabric()))
		ret = switch_off_fabric_cache();
	if (!ret && values->remote && setenv("PINION_KEEP_REMOTE", "yes", 1))
		ret = -errno;
	if (!ret && values->windows &&
	    setenv("PINION_KEEP_WINDOWS", windows_choices[values->windows], 1))
		ret = -errno;
	return ret;
}

static int print_command(char *const *operands)
{
	static const char *const names[] = {
		"LD_PRELOAD",	      "FI_HOOK",
		"FI_PROVIDER_PATH",   "FI_MR_CACHE_MAX_COUNT",
		"PINION_KEEP_REMOTE", "PINION_KEEP_WINDOWS",
		"PINION_TRACE",
	};
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
	if (!values->cuda && !values->verbs && !values->fabric)
		return pn_usage_error("run: nothing to do with --cuda=no");
	if (values->remote && !values->verbs && !values->fabric)
		return pn_usage_error("run: --remote goes with --verbs or "
				      "--fabric");
	if (values->windows && !values->verbs)
		return pn_usage_error("run: --windows goes with --verbs");
	ret = set_up(values);
	if (ret)
		return ret < 0 ? pn_failed("run", ret) : ret;
	if (*values->report && !*folder && !values->print)
		folder = mkdtemp(made);
	if (!folder)
		return pn_failed(made, -errno);
	ret = pn_job_trace(folder, "%p");
	if (ret)
		return pn_failed(folder, ret);
	if (values->print)
		return print_command(operands);
	return *values->report ? run_and_report(operands, values, folder)
			       : start(operands);
}

const struct pn_command pn_cmd_run = {
	.name = "run",
	.help = "run an unmodified CUDA, verbs or libfabric program with "
		"pinion under it",
	.about = "Preloads libraries of pinion into the program and the "
		 "processes that it starts. With --cuda, the default, copies "
		 "between unpinned memory and GPUs go through pinion's copy "
		 "engine: PyTorch's x.cuda(), y.cpu() and load_state_dict(), "
		 "cudaMemcpy() and cuMemcpy() of any program. With --verbs and "
		 "--fabric memory that the program registers with libibverbs "
		 "and with any provider of libfabric goes through pinion's "
		 "cache, and stays registered until it is released; memory "
		 "that peers can reach only with --remote. What the program "
		 "sees stays the same. pinion-run(1) says which calls are "
		 "taken. The exit status is the program's; 127 and 126: it was "
		 "not found, or could not be executed.",
	.options = options,
	.noptions = PN_ARRAY_LEN(options),
	.values_bytes = sizeof(struct values),
	.operands = "PROGRAM [ARGUMENT...]",
	.passes = true,
	.run = run,
};
