/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/pinion/job.h"

#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/pinion/cmd_report.h"
#include "tools/pinion/command.h"
#include "tools/pinion/paths.h"

int pn_job_prepend(const char *name, const char *value)
{
	const char *old = getenv(name);
	char *text;
	int ret;

	if (asprintf(&text, "%s%s%s", value, old && *old ? ":" : "",
		     old ? old : "") < 0)
		return -ENOMEM;
	ret = setenv(name, text, 1) ? -errno : 0;
	free(text);
	return ret;
}

int pn_job_trace(const char *folder, const char *name)
{
	char full[PN_PATH_BYTES], pattern[PN_PATH_BYTES];

	if (!*folder)
		return 0;
	if (mkdir(folder, 0777) && errno != EEXIST)
		return -errno;
	/* Absolute, since processes may be started in another folder. */
	if (!realpath(folder, full))
		return -errno;
	if (!pn_path_print(pattern, "%s/%s.trace", full, name))
		return -ENAMETOOLONG;
	return setenv("PINION_TRACE", pattern, 1) ? -errno : 0;
}

/* The traces of a folder, terminated by NULL; returns NULL without memory. */
static char **list_traces(const char *folder, size_t *n)
{
	char pattern[PN_PATH_BYTES];
	glob_t found = { 0 };
	char **files = NULL;

	*n = 0;
	if (pn_path_print(pattern, "%s/*.trace", folder) &&
	    !glob(pattern, 0, NULL, &found))
		*n = found.gl_pathc;
	files = calloc(*n + 1, sizeof(*files));
	for (size_t i = 0; files && i < *n; i++)
		files[i] = strdup(found.gl_pathv[i]);
	globfree(&found);
	return files;
}

int pn_job_report(const struct pn_job_report *report)
{
	size_t n;
	char **files = list_traces(report->folder, &n);
	const struct pn_report_attr attr = { .title = report->title,
					     .files = files,
					     .output = report->output };
	int ret = PN_EXIT_FAILED;

	if (files && n)
		ret = pn_report_write(&attr);
	else
		fprintf(stderr, "pinion: no process has recorded anything\n");
	for (size_t i = 0; files && i < n; i++) {
		if (report->remove)
			unlink(files[i]);
		free(files[i]);
	}
	free(files);
	if (report->remove)
		rmdir(report->folder);
	return ret;
}
